"""Plant, gateway and cloud as processes that talk over MQTT.

The plant sends ``{"step": t, "y": [...]}``; the gateway answers with the noisy measurement on
another topic; the cloud answers that with ``{"step": t, "u": [...]}``, which the plant waits for.
Whoever waits sends again: every message may be lost, repeated or late, the broker and the gateway
may be killed and started again, and still no step is ever published with two values.
"""
