"""Symmetric bodies K of K-norm noise, in exact arithmetic: hulls, facets, gauges, cones, lattices.

docs/explanation/knorm.md says what the noise ``e^(−rate ‖z‖_K)`` promises and how it is drawn.
"""
