"""Plant, gateway and cloud as processes that talk over MQTT.

The plant sends ``{"run": r, "step": t, "y": [...]}``; the gateway answers with the noisy
measurement on another topic; the cloud answers that with ``{"run": r, "step": t, "u": [...]}``,
which the plant waits for.  Whoever waits sends again: every message may be lost, repeated or late,
the broker and the others may be killed and started again, and still no step is ever published with
two values.  Whoever is asked answers: with numbers, with ``missing`` (the loop goes on without a
measurement), or with ``stop`` (it ends, and says why).  A plant that is started anew is a new run.
"""
