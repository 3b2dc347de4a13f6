"""How far noise reaches with a given probability: half widths of confidence intervals."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.promise.verification import Law
from affinedp.tables.description import number

# Terms of the Fourier series; what is left out is bounded and counted against the coverage.
TERMS = 4096
# Numbers in one table of the series' factors.
MOST_WORK = 2e7
TAIL = 1e-12
GRID = 1e9


def half_widths(noise: FloatArray, law: Law, level: float) -> FloatArray:
    """Return t with ``P(|Λ η|_i ≤ t_i) ≥ level`` for every output i.

    Exact for Gaussian noise and for a single Laplace noise.  A sum of Laplace noises has no
    quantile in closed form: it is computed from its characteristic function, with all that is
    left out counted against the coverage, so that the result is never too small.

    Parameters
    ----------
    noise : array, shape (m, p)
        Λ.
    law : {"gaussian", "laplace"}
        Law of η.
    level : float
        Such as 0.95.

    Examples
    --------
    >>> half_widths(np.array([[3.0, 4.0]]), "gaussian", 0.95).round(3)
    array([9.8])
    >>> half_widths(np.array([[2.0, 0.0]]), "laplace", 0.95).round(4)
    array([5.9915])
    """
    if not 0 < number(level, "level") < 1:
        raise AffineDPError(f"level must lie in (0, 1), not {level!r}")
    if law == "gaussian":
        reach = float(special.ndtri((1 + level) / 2)) * (1 + 1e-12)
        return np.asarray(reach * np.sqrt((noise**2).sum(axis=1)))
    known: dict[bytes, float] = {}
    found = np.zeros(len(noise))
    for i, row in enumerate(np.abs(noise)):
        size = float(np.sqrt((row**2).sum()))
        if size == 0.0:
            continue
        # scales on a grid, so that outputs with the same mixture need one computation; rounded up,
        # which makes a sum of symmetric unimodal noises reach farther (Birnbaum 1948)
        scales = np.sort(np.ceil(row[row > 0] / size * GRID))[::-1] / GRID
        key = scales.tobytes()
        if key not in known:
            known[key] = _laplace_reach(scales, level)
        found[i] = known[key] * size * (1 + 1e-12)
    return found


def _laplace_reach(scales: FloatArray, level: float) -> float:
    """The half width for a sum of Laplace noises with these scales, never too small."""
    if len(scales) == 1:
        return -math.log1p(-level) * float(scales[0])
    safe = _chernoff_reach(scales, 1 - level)
    far = _chernoff_reach(scales, TAIL)
    if len(scales) * float(TERMS) > MOST_WORK or safe >= far:
        return safe
    step = math.pi / far  # the series has period 2 far, so what wraps around is beyond far
    frequency = step * np.arange(1, TERMS + 1)
    decay = np.exp(-np.log1p(np.outer(frequency, scales) ** 2).sum(axis=1)) / frequency
    missing = _left_out(scales, float(frequency[-1])) + TAIL

    def coverage(t: float) -> float:
        series = float(decay @ np.sin(frequency * t))
        return t / far + 2 * step / math.pi * series - missing

    if coverage(safe) < level:
        return safe
    low, high = 0.0, safe
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if coverage(middle) >= level else (middle, high)
    return high


def _left_out(scales: FloatArray, last: float) -> float:
    """What the terms of the series beyond the last frequency add up to at most."""
    bounds = []
    for count in range(1, min(4, len(scales)) + 1):
        logs = 2 * float(np.log(scales[:count] * last).sum())
        bounds.append(math.exp(-logs) / (2 * count))
    return 2 / math.pi * min(bounds)


def _chernoff_reach(scales: FloatArray, probability: float) -> float:
    """A t with ``P(|sum| > t) ≤ probability``: Chernoff's bound, at the best of many slopes."""
    theta = np.linspace(0.001, 0.999, 999) / float(scales.max())
    logs = -np.log1p(-(np.outer(theta, scales) ** 2)).sum(axis=1)
    return float(((logs - math.log(probability / 2)) / theta).min())
