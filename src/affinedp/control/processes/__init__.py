"""Plant, gateway, cloud and eavesdropper as processes that talk over MQTT."""
