"""Exact elimination of linear equations, and what is certainly zero in it."""
