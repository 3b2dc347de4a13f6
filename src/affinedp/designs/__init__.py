"""Noise with the least error that keeps a given promise."""
