"""Intervals for numbers with known variances: one by one, or all at once."""

from __future__ import annotations

import functools
import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.intervals import laplace_sum_reach
from affinedp.promise.verification import Law


def half_widths(
    law: Law, variances: FloatArray, level: float, together: bool | int = False
) -> FloatArray:
    """Return how far estimates are from the truth with a probability of at least ``level``.

    Gaussian: exact for one number, Šidák's for all at once, which holds for any correlation.
    Laplace: sums of independent Laplace numbers of variance v; never too small, by Chebyshev's
    inequality or that of sub-exponential tails, whichever is less.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise.
    variances : array
        Of the estimates.
    level : float
        Such as 0.95.
    together : bool or int
        For all numbers with a variance at once, or for so many.
    """
    from scipy.special import ndtri

    if not 0 < level < 1:
        raise AffineDPError(f"level must lie between 0 and 1, not {level!r}")
    deviations = np.sqrt(variances)
    count = int((deviations > 0).sum()) if together is True else int(together)
    if law == "gaussian":
        # 1 − level^{1/m} without cancellation; the tail on one side is half of it
        outside = -math.expm1(math.log(level) / max(count, 1))
        return np.asarray(deviations * float(-ndtri(outside / 2)))
    outside = (1 - level) / max(count, 1)
    return np.asarray(deviations * laplace_reach(outside))


@functools.lru_cache(maxsize=4096)
def equal_sum_reach(scale: float, terms: int, level: float, together: int = 1) -> float:
    """Return how far a sum of Laplace numbers of one scale reaches; never too small.

    Parameters
    ----------
    scale : float
        Of each of them.
    terms : int
        How many there are.
    level : float
        With which probability.
    together : int
        For so many such sums at once, by Bonferroni's inequality.
    """
    each = 1 - (1 - level) / max(together, 1)
    return laplace_sum_reach(np.array([scale]), np.array([float(terms)]), each)


def whole_reach(scale: float, terms: int, level: float, together: int = 1) -> float:
    """Return how far a sum of whole Laplace numbers of one scale reaches; never too small.

    A Laplace number is the difference of two exponential ones.  Their whole parts are geometric,
    independent of the rests, and differ by whole Laplace noise.  So a sum L on the line is the
    whole sum S and independent noise; a window of length 2k + 1 holds 2k + 1 whole numbers
    wherever it is, and S is symmetric and unimodal: P(|S| ≤ k) ≥ P(|L| ≤ k + ½).

    Parameters
    ----------
    scale, terms, level, together
        As for :func:`equal_sum_reach`.
    """
    return float(math.ceil(max(equal_sum_reach(scale, terms, level, together) - 0.5, 0.0)))


def laplace_reach(outside: float) -> float:
    """Return t with P(|Σ a_i L_i| > t σ) ≤ outside for all a, where σ² = 2 Σ a².

    For 0 < u < 1 and scales b_i with 2 Σ b² = 1 the moment generating function is
    Π 1/(1 − u² b_i²), and −ln(1 − x) is convex, so that one term with b² = ½ is the worst case at
    every u < √2: P ≤ 2 e^{−ut} / (1 − u²/2).

    Parameters
    ----------
    outside : float
        A probability.
    """
    u = np.sqrt(2) * (1 - np.geomspace(1e-9, 0.999, 4000))
    chernoff = (math.log(2 / outside) - np.log1p(-(u**2) / 2)) / u
    return float(min(chernoff.min(), 1 / math.sqrt(outside)))
