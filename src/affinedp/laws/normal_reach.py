"""How far Gaussian numbers reach, from tails that are kept as numbers of their own."""

from __future__ import annotations

import math


def normal_reach(outside: float) -> float:
    """Return t with P(|W| > t) = outside for a standard Gaussian number W, rounded up.

    Parameters
    ----------
    outside : float
        In (0, 1); 1 − outside may well be 1 in doubles.

    Examples
    --------
    >>> round(normal_reach(0.05), 6), round(normal_reach(1e-30), 6)
    (1.959964, 11.523884)
    """
    from scipy import special

    return float(-special.ndtri(outside / 2)) * (1 + 1e-12)


def each_of(outside: float, count: int) -> float:
    """Return 1 − (1 − outside)^(1/count), without cancellation: the share of each of several.

    Parameters
    ----------
    outside : float
        In (0, 1).
    count : int
        How many; below 1 counts as 1.

    Examples
    --------
    >>> round(each_of(1e-15, 4) / 1e-16, 9)
    2.5
    """
    return -math.expm1(math.log1p(-outside) / max(count, 1))
