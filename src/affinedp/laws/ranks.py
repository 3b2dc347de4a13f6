"""Which rank of simulated errors is no less than a quantile of their law.

The k-th smallest of n draws is below the quantile only if k draws are, which has a binomial
probability: the exact argument of Clopper and Pearson, for the simulation at hand and not only on
average over simulations.
"""

from __future__ import annotations

# With at most this probability a simulation says too little, for all numbers it is asked about.
DOUBT = 1e-6


def safe_rank(releases: int, outside: float, numbers: int = 1, doubt: float = DOUBT) -> int | None:
    """Return the rank of an error that is exceeded with probability ``outside`` at most.

    It is not with a probability of ``doubt`` at most, over simulations; None if even the largest
    error may be too small.

    Parameters
    ----------
    releases : int
        How many were simulated.
    outside : float
        In (0, 1).
    numbers : int
        For so many quantiles of one simulation.
    doubt : float
        In (0, 1), for all of them.

    Examples
    --------
    >>> safe_rank(100_000, 0.05), safe_rank(200, 0.05)
    (95325, None)
    """
    from scipy.special import bdtr

    each = doubt / max(numbers, 1) * (1 - 1e-9)

    def is_safe(above: int) -> bool:
        return float(bdtr(above, releases, outside)) <= each

    if not is_safe(0):
        return None
    low, high = 0, releases
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_safe(middle) else (low, middle)
    return releases - low
