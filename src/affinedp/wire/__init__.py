"""Messages between processes over MQTT: the broker, one client, lines between places, listeners."""
