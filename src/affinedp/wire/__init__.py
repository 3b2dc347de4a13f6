"""Messages between processes over MQTT: the broker, one client, and a line between places."""
