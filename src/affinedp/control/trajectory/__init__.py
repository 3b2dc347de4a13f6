"""The noise that hides a trajectory: dynamics, neighbours, promise, design, and its record."""
