"""How far noise reaches: one number or all at once, exactly or by the rank of simulated releases.

The k-th smallest of n draws is below the quantile only if k draws are, which has a binomial
probability: the exact argument of Clopper and Pearson, for the simulation at hand and not only on
average over simulations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.errors import AffineDPError

# Half widths, and in words how they were computed.
Reach = tuple[FloatArray, str]

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
# With at most this probability a simulation says too little, for all numbers it is asked about.
DOUBT = 1e-6


def safe_rank(releases: int, outside: float, numbers: int = 1, doubt: float = DOUBT) -> int | None:
    """Return the rank of an error that is exceeded with probability ``outside`` at most.

    It is not with a probability of ``doubt`` at most, over simulations; None if even the largest
    error may be too small.

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


def normal_reach(outside: float) -> float:
    """Return t with P(|W| > t) = outside for a standard Gaussian number W, rounded up.

    Examples
    --------
    >>> round(normal_reach(0.05), 6), round(normal_reach(1e-30), 6)
    (1.959964, 11.523884)
    """
    from scipy import special

    return float(-special.ndtri(outside / 2)) * (1 + 1e-12)


def each_of(outside: float, count: int) -> float:
    """Return 1 − (1 − outside)^(1/count), without cancellation: the share of each of several.

    Examples
    --------
    >>> round(each_of(1e-15, 4) / 1e-16, 9)
    2.5
    """
    if outside >= 1:  # of levels so small that 1 − level is 1
        return 1.0
    return -math.expm1(math.log1p(-outside) / max(count, 1))


class Noise(Protocol):
    """What a simulation asks a law."""

    size: int | None

    @property
    def free(self) -> Any:
        """The coordinates that rows are about."""

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw η."""

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ η``."""


def norms(rows: Any) -> FloatArray:
    """Return the lengths of rows of any size."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * np.sqrt(((rows / safe[:, None]) ** 2).sum(axis=1)))


def with_noise(rows: Any) -> Any:
    """Return which rows have any noise."""
    return np.asarray((rows != 0).sum(axis=1)).ravel() > 0


def simulated_reach(law: Noise, rows: Any, outside: float) -> Reach:
    """Return half widths number by number, by the rank of simulated errors."""
    releases = _releases(rows, outside)
    rank = None if releases is None else safe_rank(releases, outside, rows.shape[0])
    if releases is None or rank is None:
        raise too_rare(outside, rows.shape[0])
    errors = np.concatenate(list(_simulated(law, rows, releases)))
    reach = np.partition(errors, rank - 1, axis=0)[rank - 1]
    return reach * END, _ranked_words(rank, releases)


def simulated_together(law: Noise, rows: Any, outside: float) -> Reach | None:
    """Return half widths for all numbers at once; None if that is too rare to be simulated."""
    releases = _releases(rows, outside)
    rank = None if releases is None else safe_rank(releases, outside)
    if releases is None or rank is None:
        return None
    scale = _deviations(law, rows)
    errors = _simulated(law, rows, releases)
    largest = np.concatenate([(batch / scale).max(axis=1) for batch in errors])
    times = float(np.partition(largest, rank - 1)[rank - 1])
    return np.where(with_noise(rows), times * scale * END, 0.0), _ranked_words(rank, releases)


def too_rare(outside: float, numbers: int) -> AffineDPError:
    """Return the refusal of a level that cannot be simulated."""
    return AffineDPError(
        f"a level of 1 − {outside:.3g} for {numbers:,} numbers would need more simulated releases "
        "than fit: ask for a lower level, or for fewer numbers at a time"
    )


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


def _simulated(law: Noise, rows: Any, releases: int) -> Iterator[FloatArray]:
    """The sizes of errors of simulated releases, some releases at a time."""
    generator = np.random.default_rng(0)
    p = law.size or rows.shape[1]
    size = max(1, int(BATCH / max(p, *rows.shape)))
    for start in range(0, releases, size):
        noise = law.sample(generator, min(size, releases - start), p)[:, law.free]
        yield np.abs(np.asarray((rows @ noise.T).T))


def _deviations(law: Noise, rows: Any) -> FloatArray:
    """Standard deviations of the combinations, but for rounding; 1 where there is no noise."""
    import scipy.sparse as sparse

    p = law.size or rows.shape[1]
    free = np.arange(p)[law.free]
    place = sparse.csr_array((np.ones(len(free)), (np.arange(len(free)), free)), (len(free), p))
    whole = rows @ place
    squares = law.variances(whole if is_sparse(whole) else np.asarray(whole))
    found = np.sqrt(np.maximum(squares, 0.0))
    # they only say which numbers get how much of the room: any positive ones will do
    least = 1e-9 * float(found.max(initial=0.0))
    return np.asarray(np.where(with_noise(rows), np.maximum(found, least), 1.0))
