"""Integer noise whose law is exact over all integers: discrete Gaussian and discrete Laplace.

The law, the proof and what time reveals: docs/explanation/noise-sampler.md.
"""

from affinedp.laws.sampler.noise import (
    IntegerNoise,
    Sampler,
    StackedNoise,
    checked_sampler,
    draw_integers,
)

__all__ = ["IntegerNoise", "Sampler", "StackedNoise", "checked_sampler", "draw_integers"]
