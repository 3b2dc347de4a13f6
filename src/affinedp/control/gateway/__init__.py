"""The gateway: one noisy measurement per step, from one draw for the whole trajectory."""
