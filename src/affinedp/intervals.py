"""How far noise reaches with a given probability: confidence intervals for true numbers.

The law of the noise is public, so intervals cost no budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, dense, is_sparse, real_matrix
from affinedp.bodies.noise import BODY_LAWS
from affinedp.errors import AffineDPError
from affinedp.promise.verification import Law
from affinedp.record import MechanismRecord

# Terms of the Fourier series; what is left out is bounded and counted against the coverage.
TERMS = 4096
# Numbers in one table of the series' factors.
MOST_WORK = 2e7
TAIL = 1e-12
# Scales of a sum that are told apart.
MOST_SCALES = 400
GRID = 1e9
# Simulated releases for intervals that hold all at once.
RELEASES = 1999
MOST_RELEASES = 200_000
# Simulated numbers at a time, and at most.
BATCH = 4e6
MOST_SIMULATED = 1e8
# Noise on whole numbers may lie on the end itself, which rounding must not leave outside.
END = 1 + 1e-12
# What rounding of doubles may add to an end, relatively.
END_SLACK = 1e-11


@dataclass(frozen=True, eq=False)
class Interval:
    """Where true numbers lie; unpacks into its two ends.

    Attributes
    ----------
    low, high : float or array
        The ends.
    level : float
        With at least this probability.
    simultaneous : bool
        Whether all of them hold at once with it, or each by itself.
    how : str
        How they were computed, and what that says about the probability.
    """

    low: Any = field(repr=False)
    high: Any = field(repr=False)
    level: float
    simultaneous: bool
    how: str = ""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.low, self.high))


def interval_of(
    mechanism: MechanismRecord,
    y: Any,
    combination: Any = None,
    level: float = 0.95,
    simultaneous: bool = False,
    factor: float = 1.0,
) -> Interval:
    """Return where the true outputs, or combinations of them, lie.

    Parameters
    ----------
    mechanism : MechanismRecord
        What released y.
    y : array_like, shape (m,) or (rows, m), or pandas Series or DataFrame
        What was released.
    combination : mapping or array_like, shape (m,) or (k, m), optional
        Coefficients by output, or rows of them; every output by itself if left out.
    level : float
        Such as 0.95.
    simultaneous : bool
        For all numbers and rows at once.
    factor : float
        How much larger the release made the noise.
    """
    level = checked_level(level)
    given = _numbers(y, mechanism.output_names)
    matrix, single = _combinations(combination, mechanism.output_names)
    rows = 1 if given.ndim == 1 else len(given)
    # rows have noise of their own: all of them hold with the product of their probabilities
    share = level ** (1 / rows) if simultaneous else level
    if simultaneous:
        reach, how = _joint_reach(mechanism, matrix, share)
    elif mechanism.law == "gaussian":
        reach, how = _normal(level) * _deviations(mechanism, matrix), "exact: Gaussian noise"
    elif mechanism.law == "laplace":
        reach = half_widths(_mixed(mechanism, matrix), mechanism.law, level)
        how = "from the law of sums of Laplace noise; never too short"
    else:
        reach, how = _ranked_reach(mechanism, matrix, level)
    center = given if matrix is None else np.asarray((matrix @ given.T).T)
    width = reach * factor
    if single:
        center, width = center[..., 0], width[..., 0]
    return Interval(center - width, center + width, level, simultaneous, how)


def checked_level(level: Any) -> float:
    """Return a probability strictly between 0 and 1, or refuse it."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise AffineDPError(f"level must lie in (0, 1), not {level!r}")
    return float(level)


def whole_ends(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the whole numbers at the ends of intervals for numbers that are known to be whole.

    What rounding of doubles may have cut off is given back first, so no whole number is lost.
    An interval that holds none at all gets those around it.

    Parameters
    ----------
    low, high : arrays
        The ends.

    Examples
    --------
    >>> low, high = whole_ends(np.array([2965.999999999972, 0.2]), np.array([2969.5, 0.7]))
    >>> low.tolist(), high.tolist()
    ([2966.0, 0.0], [2969.0, 1.0])
    """
    first = np.ceil(low - END_SLACK * (1 + np.abs(low)))
    last = np.floor(high + END_SLACK * (1 + np.abs(high)))
    none = first > last
    return np.where(none, np.floor(low), first), np.where(none, np.ceil(high), last)


def _numbers(y: Any, names: tuple[str, ...]) -> FloatArray:
    """What was released, by position or by name."""
    if hasattr(y, "reindex"):  # pandas
        labels = list(y.index if y.ndim == 1 else y.columns)
        if set(labels) != set(names) or len(labels) != len(names):
            raise AffineDPError("y must have exactly the outputs of the mechanism as its names")
        y = (y[list(names)]).to_numpy()
    given = np.asarray(y, dtype=float)
    if given.ndim not in (1, 2) or given.shape[-1] != len(names) or not np.isfinite(given).all():
        raise AffineDPError(f"y must hold {len(names)} finite numbers, one per output")
    return given


def _combinations(combination: Any, names: tuple[str, ...]) -> tuple[Any, bool]:
    """One row of coefficients per wanted number, and whether a single one was asked for."""
    if combination is None:
        return None, False
    if isinstance(combination, Mapping):
        place = {name: i for i, name in enumerate(names)}
        unknown = [name for name in combination if name not in place]
        if unknown:
            raise AffineDPError(f"combination names {unknown[0]!r}, which is no output")
        row = np.zeros((1, len(names)))
        for name, value in combination.items():
            row[0, place[name]] = float(value)
        return row, True
    single = not is_sparse(combination) and np.ndim(combination) == 1
    matrix = real_matrix(np.atleast_2d(combination) if single else combination, "combination")
    if matrix.shape[1] != len(names):
        raise AffineDPError(f"combination must have {len(names)} coefficients, one per output")
    return matrix, single


def _mixed(mechanism: MechanismRecord, matrix: Any) -> FloatArray:
    """Λ of the combinations."""
    if matrix is None:
        return np.asarray(dense(mechanism.noise_matrix))
    return np.asarray(dense((matrix @ mechanism.basis) @ mechanism.root))


def _deviations(mechanism: MechanismRecord, matrix: Any) -> FloatArray:
    """Standard deviations of the combinations."""
    if matrix is None:
        return np.asarray(np.sqrt(mechanism.expected_squared_errors))
    if mechanism.law in BODY_LAWS:
        rows = dense(matrix)
        squares = np.einsum("ij,jk,ik->i", rows, mechanism.covariance, rows, optimize=True)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))
    squares = (_mixed(mechanism, matrix) ** 2).sum(axis=1)
    return np.asarray(np.sqrt(mechanism.variance * squares))


def _normal(level: float) -> float:
    from scipy import special

    return float(special.ndtri((1 + level) / 2)) * (1 + 1e-12)


def _joint_reach(mechanism: MechanismRecord, matrix: Any, level: float) -> tuple[FloatArray, str]:
    """Half widths that hold for all numbers of one release at once."""
    deviations = _deviations(mechanism, matrix)
    noisy = int((deviations > 0).sum())
    if noisy == 0:
        return deviations, "no noise"
    if mechanism.law == "gaussian":
        return _normal(level ** (1 / noisy)) * deviations, "Šidák: holds for any correlation"
    releases = max(RELEASES, math.ceil(20 / (1 - level)))
    rank = math.ceil((releases + 1) * level)
    if releases > MOST_RELEASES or rank > releases:
        if mechanism.law != "laplace":
            raise AffineDPError(f"level {level:.9g} is too close to 1 to be simulated")
        each = 1 - (1 - level) / noisy
        reach = half_widths(_mixed(mechanism, matrix), mechanism.law, each)
        return reach, "Bonferroni: holds for any law"
    errors = _simulated(mechanism, matrix, deviations, releases)
    largest = np.concatenate([batch.max(axis=1) for batch in errors])
    times = float(np.sort(largest)[rank - 1])
    how = f"rank {rank} of {releases} simulated releases: holds with at least {level:.6g}"
    return times * deviations * END, how


def _simulated(
    mechanism: MechanismRecord, matrix: Any, deviations: FloatArray, releases: int
) -> Iterator[FloatArray]:
    """The errors of simulated releases, in standard deviations, some releases at a time."""
    generator = np.random.default_rng(0)
    scale = np.where(deviations > 0, deviations, np.inf)
    size = max(1, int(BATCH / max(mechanism.root.shape[1], len(mechanism.output_names))))
    for start in range(0, releases, size):
        noise = mechanism.sample(min(size, releases - start), generator)
        errors = noise if matrix is None else np.asarray((matrix @ noise.T).T)
        yield np.abs(errors) / scale


def _ranked_reach(mechanism: MechanismRecord, matrix: Any, level: float) -> tuple[FloatArray, str]:
    """Half widths by the rank of simulated errors, number by number, for any law."""
    deviations = _deviations(mechanism, matrix)
    releases = max(RELEASES, math.ceil(20 / (1 - level)))
    if releases * float(len(deviations)) > MOST_SIMULATED:
        raise AffineDPError(f"level {level:.9g} is too close to 1 for so many numbers")
    rank = math.ceil((releases + 1) * level)
    errors = np.concatenate(list(_simulated(mechanism, matrix, deviations, releases)))
    times = np.partition(errors, rank - 1, axis=0)[rank - 1]
    how = f"rank {rank} of {releases} simulated releases: holds with at least {level:.6g}"
    return times * deviations * END, how


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
    level = checked_level(level)
    if law == "gaussian":
        return np.asarray(_normal(level) * np.sqrt((noise**2).sum(axis=1)))
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
            known[key] = _laplace_reach(scales, np.ones(len(scales)), level)
        found[i] = known[key] * size * (1 + 1e-12)
    return found


def laplace_sum_reach(scales: FloatArray, times: FloatArray, level: float) -> float:
    """Return t with ``P(|Σ b_i η_i| ≤ t) ≥ level`` for independent Laplace numbers η.

    Scales are taken a little larger so that few of them differ, which makes a sum of symmetric
    unimodal noises reach farther (Birnbaum 1948): the result is never too small, and at most a
    thousandth too large.

    Parameters
    ----------
    scales : array
        The b_i that differ, at least 0.
    times : array
        How many terms have each of them.
    level : float
        Such as 0.95.

    Examples
    --------
    >>> round(laplace_sum_reach(np.array([2.0]), np.array([1.0]), 0.95), 3)      # 2 ln 20
    5.991
    >>> laplace_sum_reach(np.array([1.0]), np.array([1000.0]), 0.95) < 2.0 * 1000**0.5 * 1.5
    True
    """
    level = checked_level(level)
    given, count = np.asarray(scales, dtype=float), np.asarray(times, dtype=float)
    kept = (given > 0) & (count > 0)
    given, count = given[kept], count[kept]
    size = math.sqrt(float((count * given**2).sum()))
    if size == 0.0:
        return 0.0
    if len(given) > MOST_SCALES:
        # up to the next power of 1.0005, and nothing below a millionth of the whole
        steps = np.ceil(np.log(np.maximum(given / size, 1e-7)) / math.log1p(5e-4))
        different, where = np.unique(steps, return_inverse=True)
        given = np.exp(different * math.log1p(5e-4)) * size * (1 + 1e-12)
        count = np.asarray(np.bincount(where, count), dtype=float)
    order = np.argsort(-given)
    reach = _laplace_reach(given[order] / size, count[order], level)
    return reach * size * (1 + 1e-12)


def _laplace_reach(scales: FloatArray, times: FloatArray, level: float) -> float:
    """The half width for a sum of Laplace noises with these scales, never too small."""
    if len(scales) == 1 and times[0] == 1:
        return -math.log1p(-level) * float(scales[0])
    safe = _chernoff_reach(scales, times, 1 - level)
    far = _chernoff_reach(scales, times, TAIL)
    if len(scales) * float(TERMS) > MOST_WORK or safe >= far:
        return safe
    step = math.pi / far  # the series has period 2 far, so what wraps around is beyond far
    frequency = step * np.arange(1, TERMS + 1)
    decay = np.exp(-(np.log1p(np.outer(frequency, scales) ** 2) @ times)) / frequency
    missing = _left_out(scales, times, float(frequency[-1])) + TAIL

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


def _left_out(scales: FloatArray, times: FloatArray, last: float) -> float:
    """What the terms of the series beyond the last frequency add up to at most."""
    largest = np.repeat(scales[:64], np.minimum(times[:64], 64).astype(int))[:64]
    logs = 2 * np.cumsum(np.log(largest * last))
    bounds = np.exp(-np.maximum(logs, -700)) / (2 * np.arange(1, len(largest) + 1))
    return 2 / math.pi * float(bounds.min())


def _chernoff_reach(scales: FloatArray, times: FloatArray, probability: float) -> float:
    """A t with ``P(|sum| > t) ≤ probability``: Chernoff's bound, at the best of many slopes."""
    # steep slopes are for few terms, flat ones for many
    theta = np.concatenate([np.geomspace(1e-6, 1e-3, 200), np.linspace(0.001, 0.999, 999)])
    theta = theta / float(scales.max())
    logs = -(np.log1p(-(np.outer(theta, scales) ** 2)) @ times)
    return float(((logs - math.log(probability / 2)) / theta).min())
