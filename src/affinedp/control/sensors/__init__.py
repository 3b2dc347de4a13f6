"""What sensors do to measurements: steps, range, noise of their own, and how it is declared."""
