"""Agents as processes: one value, one draw, and messages that repeat nothing private."""
