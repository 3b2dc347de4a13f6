"""How far noise reaches with a given probability: confidence intervals for true numbers.

The law of the noise is public, so intervals cost no budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, dense, is_sparse
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_matrix
from affinedp.exact.rounding import careful_product
from affinedp.laws.combination_reach import body_reach, independent_reach
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace_reach import laplace_reach, laplace_total_reach
from affinedp.laws.named import LawName
from affinedp.laws.normal_reach import each_of, normal_reach
from affinedp.laws.ranks import DOUBT, safe_rank
from affinedp.laws.staircase import Staircase
from affinedp.record import MechanismRecord

# Laplace scales are put on a grid, so that outputs with the same mixture need one computation.
GRID = 1e9
# Simulated releases where the law is not computed: so many, fewer for many numbers, and errors
# beyond the quantile that there should be.
RELEASES = 500_000
LEAST_RELEASES = 1_999
BEYOND = 60
# Simulated numbers at a time, those for one question, and at most.
BATCH = 4e6
SIMULATED = 1e7
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
    matrix, powers = _scaled(matrix)
    rows = _noise_rows(mechanism, matrix)
    outside = 1 - level
    if simultaneous:
        # data sets have noise of their own: all hold with the product of their probabilities
        outside = each_of(outside, 1 if given.ndim == 1 else len(given))
        reach, how = _joint_reach(mechanism, rows, outside)
    else:
        reach, how = _single_reach(mechanism, rows, outside)
    center, width = _centers(given, matrix, powers), _enlarged(reach, factor, powers)
    if single:
        center, width = center[..., 0], width[..., 0]
    return Interval(center - width, center + width, level, simultaneous, how)


def _scaled(matrix: Any) -> tuple[Any, Any]:
    """The combinations with coefficients of at most 1, and the powers of two that this took off.

    Squares of coefficients such as 1e-170 are no doubles.
    """
    if matrix is None:
        return None, 0
    largest = abs(matrix).max(axis=1)
    largest = np.asarray(largest.toarray() if is_sparse(largest) else largest, dtype=float).ravel()
    powers = np.frexp(largest)[1]
    if not is_sparse(matrix):
        return np.ldexp(matrix, -powers[:, None]), powers
    found = matrix.tocsr().astype(float)
    found.data = np.ldexp(found.data, np.repeat(-powers, np.diff(found.indptr)))
    return found, powers


def _centers(given: FloatArray, matrix: Any, powers: Any) -> FloatArray:
    """The combinations of what was released."""
    if matrix is None:
        return given
    found = dense(careful_product(np.atleast_2d(given), matrix.T))
    return np.asarray(np.ldexp(found if given.ndim == 2 else found[0], powers))


def _enlarged(reach: FloatArray, factor: float, powers: Any) -> FloatArray:
    """Half widths in the units of the question, not rounded to nothing."""
    width = np.ldexp(reach * factor, powers)
    return np.asarray(np.where((reach > 0) & (width < 1e-307), np.nextafter(width, 1.0), width))


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


def _noise_rows(mechanism: MechanismRecord, matrix: Any) -> Any:
    """The combinations in terms of noise whose coordinates are free: no row but 0 has no noise.

    Digits that cancel against a public equation are kept, so that what is left of the noise is
    not taken for a rounding.
    """
    body = mechanism.noise.size is not None
    if matrix is None:
        return mechanism.noise_range if body else dense(mechanism.noise_matrix)
    if body:
        return careful_product(matrix, mechanism.noise_range)
    return dense(careful_product(careful_product(matrix, mechanism.basis), mechanism.root))


def _norms(rows: FloatArray) -> FloatArray:
    """Lengths of rows of any size."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * np.sqrt(((rows / safe[:, None]) ** 2).sum(axis=1)))


def _noisy(rows: Any) -> Any:
    """Which combinations have any noise."""
    return np.asarray((rows != 0).sum(axis=1)).ravel() > 0


def _single_reach(mechanism: MechanismRecord, rows: Any, outside: float) -> tuple[FloatArray, str]:
    """Half widths that hold number by number."""
    if mechanism.law == "gaussian":
        return normal_reach(outside) * _norms(rows), "exact: Gaussian noise"
    if mechanism.law == "laplace":
        return _laplace_reach(
            rows, outside
        ), "from the law of sums of Laplace noise; never too short"
    exact = _law_reach(mechanism, rows, outside)
    return _ranked_reach(mechanism, rows, outside) if exact is None else exact


def _law_reach(
    mechanism: MechanismRecord, rows: Any, outside: float
) -> tuple[FloatArray, str] | None:
    """The same from the law of noise in coordinates, where it can be computed."""
    sparse_rows = _sparse(rows)
    law = mechanism.noise
    assert isinstance(law, KNorm | Staircase)
    found = independent_reach(law, sparse_rows, outside)
    if found is not None:
        return found * END, "from the law of sums of independent noise; never too short"
    found = body_reach(law, sparse_rows, outside)
    if found is not None:
        return found * END, "from the law of the noise, cone by cone; never too short"
    return None


def _sparse(rows: Any) -> Any:
    import scipy.sparse as sparse

    found: Any = sparse.csr_array(rows)
    found.eliminate_zeros()
    return found


def _joint_reach(mechanism: MechanismRecord, rows: Any, outside: float) -> tuple[FloatArray, str]:
    """Half widths that hold for all numbers of one release at once."""
    noisy = int(_noisy(rows).sum())
    if noisy == 0:
        return np.zeros(rows.shape[0]), "no noise"
    if noisy == 1:
        return _single_reach(mechanism, rows, outside)
    if mechanism.law == "gaussian":
        reach = normal_reach(each_of(outside, noisy)) * _norms(rows)
        return reach, "Šidák: holds for any correlation"
    if isinstance(mechanism.noise, KNorm | Staircase):
        each = each_of(outside, noisy)
        alone = independent_reach(mechanism.noise, _sparse(rows), each, apart=True)
        if alone is not None:
            return alone * END, "exact: independent noise on every number; never too short"
    releases = _releases(rows, outside)
    rank = None if releases is None else safe_rank(releases, outside)
    if releases is None or rank is None:
        return _bonferroni(mechanism, rows, outside, noisy)
    scale = _deviations(mechanism, rows)
    errors = _simulated(mechanism, rows, releases)
    largest = np.concatenate([(batch / scale).max(axis=1) for batch in errors])
    times = float(np.partition(largest, rank - 1)[rank - 1])
    return np.where(_noisy(rows), times * scale * END, 0.0), _ranked_words(rank, releases)


def _bonferroni(
    mechanism: MechanismRecord, rows: Any, outside: float, noisy: int
) -> tuple[FloatArray, str]:
    """Half widths for all at once where that is too rare to be simulated."""
    if mechanism.law == "laplace":
        reach = _laplace_reach(rows, outside / noisy)
    else:
        exact = _law_reach(mechanism, rows, outside / noisy)
        if exact is None:
            raise _too_rare(outside, rows.shape[0])
        reach = exact[0]
    return reach, "Bonferroni: holds for any law"


def _ranked_reach(mechanism: MechanismRecord, rows: Any, outside: float) -> tuple[FloatArray, str]:
    """Half widths by the rank of simulated errors, number by number, for any law."""
    releases = _releases(rows, outside)
    rank = None if releases is None else safe_rank(releases, outside, rows.shape[0])
    if releases is None or rank is None:
        raise _too_rare(outside, rows.shape[0])
    errors = np.concatenate(list(_simulated(mechanism, rows, releases)))
    reach = np.partition(errors, rank - 1, axis=0)[rank - 1]
    return reach * END, _ranked_words(rank, releases)


def _releases(rows: Any, outside: float) -> int | None:
    """How many releases to simulate; None if that would be too many numbers."""
    numbers = float(max(rows.shape))
    releases = max(LEAST_RELEASES, int(min(RELEASES, SIMULATED / numbers)))
    releases = max(releases, math.ceil(min(BEYOND / outside, 1e18)))
    return None if releases * numbers > MOST_SIMULATED else releases


def _ranked_words(rank: int, releases: int) -> str:
    return (
        f"rank {rank} of {releases} simulated releases: never too short, unless chance misled the "
        f"simulation, which has a probability of at most {DOUBT:.0e}"
    )


def _too_rare(outside: float, numbers: int) -> AffineDPError:
    return AffineDPError(
        f"a level of 1 − {outside:.3g} for {numbers:,} numbers would need more simulated releases "
        "than fit: ask for a lower level, or for fewer numbers at a time"
    )


def _simulated(mechanism: MechanismRecord, rows: Any, releases: int) -> Iterator[FloatArray]:
    """The sizes of errors of simulated releases, some releases at a time."""
    generator = np.random.default_rng(0)
    size = max(1, int(BATCH / max(mechanism.root.shape[1], *rows.shape)))
    law, free = mechanism.noise, _free(mechanism)
    for start in range(0, releases, size):
        count = min(size, releases - start)
        noise = law.sample(generator, count, law.size or rows.shape[1])[:, free]
        yield np.abs(np.asarray((rows @ noise.T).T))


def _free(mechanism: MechanismRecord) -> Any:
    """The coordinates that rows of noise are about."""
    return mechanism.noise.free if isinstance(mechanism.noise, KNorm) else slice(None)


def _deviations(mechanism: MechanismRecord, rows: Any) -> FloatArray:
    """Standard deviations of the combinations, but for rounding; 1 where there is no noise."""
    import scipy.sparse as sparse

    free = np.arange(rows.shape[1])[_free(mechanism)]
    place = sparse.csr_array(
        (np.ones(len(free)), (np.arange(len(free)), free)),
        shape=(len(free), mechanism.noise.size or rows.shape[1]),
    )
    whole = rows @ place
    squares = mechanism.noise.variances(whole if is_sparse(whole) else np.asarray(whole))
    found = np.sqrt(np.maximum(squares, 0.0))
    # they only say which numbers get how much of the room: any positive ones will do
    least = 1e-9 * float(found.max(initial=0.0))
    return np.asarray(np.where(_noisy(rows), np.maximum(found, least), 1.0))


def half_widths(noise: FloatArray, law: LawName, level: float) -> FloatArray:
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
    outside = 1 - checked_level(level)
    if law == "gaussian":
        return np.asarray(normal_reach(outside) * _norms(noise))
    return _laplace_reach(noise, outside)


def _laplace_reach(noise: FloatArray, outside: float) -> FloatArray:
    """Half widths of sums of Laplace noises, row by row."""
    known: dict[bytes, float] = {}
    sizes = _norms(noise)
    found = np.zeros(len(noise))
    for i, (row, size) in enumerate(zip(np.abs(noise), sizes.tolist())):
        if size == 0.0:
            continue
        # scales on a grid, rounded up, which makes a sum of symmetric unimodal noises reach
        # farther (Birnbaum 1948)
        scales = np.sort(np.ceil(row[row > 0] / size * GRID))[::-1] / GRID
        key = scales.tobytes()
        if key not in known:
            known[key] = laplace_reach(scales, np.ones(len(scales)), outside)
        found[i] = known[key] * size * (1 + 1e-12)
    return found


def laplace_sum_reach(scales: FloatArray, times: FloatArray, level: float) -> float:
    """Return t with ``P(|Σ b_i η_i| ≤ t) ≥ level`` for independent Laplace numbers η.

    Never too small, and at most a thousandth too large.

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
    outside = 1 - checked_level(level)
    return laplace_total_reach(np.asarray(scales, float), np.asarray(times, float), outside)
