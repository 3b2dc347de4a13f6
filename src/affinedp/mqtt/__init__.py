"""Processes that talk over MQTT: a control loop (plant, gateway, cloud), and agents that average.

In a loop the plant sends ``{"run": r, "step": t, "y": [...]}``; the gateway answers with the noisy
measurement on another topic; the cloud answers that with ``{"run": r, "step": t, "u": [...]}``,
which the plant waits for.  Agents send each other their public numbers, round by round.

Whoever waits sends again: every message may be lost, repeated or late, brokers and processes may be
killed and started again, and still no step is ever published with two values.  Whoever is asked
answers: with numbers, with ``missing`` (the loop goes on without a measurement), or with ``stop``
(it ends, and says why).  Whoever dies has left a last will, so that those who wait hear of it.
"""
