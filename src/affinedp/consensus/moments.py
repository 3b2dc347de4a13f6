"""What a record adds to the sums of least squares, as integers with a known largest size.

A record r = (1, features, target), each brought to [−1, 1], adds r rᵀ: the numbers r_a² and
√2 r_a r_b, whose 2-norm is ‖r‖².  Records longer than ``norm`` are shortened to it.  Every record
is rounded to a grid *by itself* before anything is added, so that the sums of neighbours differ
by the integers of one record, exactly.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix
from affinedp.domains.base import Domain
from affinedp.domains.reading import Wrap
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import is_number, real_array
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.base import Drawer, Largest, Prepared, Promised, Strategy

GRID_BITS = 50
# Rounding makes a shortened record longer than the norm by less than this share.
ROUNDING = Fraction(1, 2**40)
_HALF = 25
# Between these nothing overflows, and what a column is divided by is no 0.
_LARGEST, _NARROWEST = 1e150, 1e-150
# A norm of at least this makes records so many grid steps long that integers may stand for reals;
# rounding grows with the number of columns, and stays below ROUNDING up to this many.
LEAST_NORM = 2.0**-7
MOST_COLUMNS = 2**10
# The noise is larger than asked by this share, which pays for integers in place of reals.
SHARE = Fraction(1, 2**30)
LEAST_SCALE = 2**32


@dataclass(frozen=True, eq=False)
class Moments(Domain):
    """Records, of which only sums are looked at.

    Attributes
    ----------
    ranges : mapping of str to (float, float)
        Public: between which values every column lies.
    norm : float
        Records are shortened to this length.
    """

    kind = "moments"
    ranges: Mapping[str, tuple[float, float]]
    norm: float

    def __post_init__(self) -> None:
        if len(self.ranges) < 2:
            raise AffineDPError("give the ranges of the target and of at least one feature")
        if len(self.ranges) > MOST_COLUMNS:
            raise AffineDPError(f"there are {len(self.ranges)} columns, at most {MOST_COLUMNS} fit")
        for name, pair in self.ranges.items():
            low, high = real_array(pair, f"the range of {name!r}", 1)
            if not low < high:
                raise AffineDPError(f"the range of {name!r} must be (low, high), not {pair!r}")
            if max(-low, high) > _LARGEST or high - low < _NARROWEST:
                raise AffineDPError(
                    f"the range of {name!r} must lie within ±{_LARGEST:g} and be at least "
                    f"{_NARROWEST:g} wide, unlike {pair!r}: choose another unit"
                )
        if not LEAST_NORM <= self.norm <= 2**5:
            raise AffineDPError(f"norm must be between 1/128 and 32, not {self.norm!r}")

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The sums: of which two columns they are."""
        columns = ("1", *self.ranges)
        return tuple(f"{columns[a]} · {columns[b]}" for a, b in self._pairs())

    def read(self, x: Any) -> tuple[NDArray[Any], Wrap]:
        """Return the sums of one agent's records in grid steps, and how results are handed back."""
        return self.sums(x)[None], lambda y, names: y[0]

    @property
    def size(self) -> int:
        """The length k of a record: the constant, the features, the target."""
        return len(self.ranges) + 1

    @property
    def numbers(self) -> int:
        """How many sums there are: k (k + 1)/2."""
        return self.size * (self.size + 1) // 2

    def sensitivity(self, replace: bool) -> Fraction:
        """Return the 2-norm of the largest difference of neighbours' sums, in grid steps."""
        # ‖uuᵀ − vvᵀ‖² = |u|⁴ + |v|⁴ − 2(u·v)², at most 2 norm⁴; √2 and √numbers rounded up
        records = 2 if replace else 1
        root = Fraction(math.nextafter(math.sqrt(2), 2)) if replace else Fraction(1)
        squared = Fraction(self.norm) * Fraction(self.norm)
        longest = squared * (1 + ROUNDING) * (1 << GRID_BITS)
        return root * longest + records * Fraction(math.isqrt(self.numbers) + 1, 2)

    def records(self, data: Any) -> FloatArray:
        """Return the records, cut and shortened, shape (rows, k)."""
        missing = [name for name in self.ranges if name not in data]
        if missing:
            raise AffineDPError(f"the data has no column {missing[0]!r}")
        columns = [self._column(name, data[name]) for name in self.ranges]
        rows = len(columns[0])
        if any(len(column) != rows for column in columns):
            raise AffineDPError("the columns have different lengths")
        # column by column: what a record becomes must not depend on the records around it
        length = np.ones(rows)
        for column in columns:
            length = length + column * column
        shorten = np.minimum(1.0, self.norm / np.sqrt(length))
        return np.column_stack([shorten, *(shorten * column for column in columns)])

    def sums(self, data: Any) -> NDArray[Any]:
        """Return the sums of all records, exactly, as Python integers in grid steps: secret."""
        records = self.records(data)
        total: NDArray[Any] = np.empty(self.numbers, dtype=object)
        for place, (a, b) in enumerate(self._pairs()):
            products = records[:, a] * records[:, b] * (1.0 if a == b else math.sqrt(2))
            steps = np.rint(np.ldexp(products, GRID_BITS)).astype(np.int64)
            high, low = int((steps >> _HALF).sum()), int((steps & ((1 << _HALF) - 1)).sum())
            total[place] = (high << _HALF) + low
        return total

    def matrix(self, sums: FloatArray) -> FloatArray:
        """Return Σ r rᵀ from sums, shape (k, k)."""
        found = np.empty((self.size, self.size))
        for value, (a, b) in zip(sums, self._pairs(), strict=True):
            found[a, b] = found[b, a] = value if a == b else value / math.sqrt(2)
        return found

    def in_units(self, slopes: FloatArray) -> FloatArray:
        """Return intercept and slopes in the units of the columns."""
        bounds = np.array(list(self.ranges.values()))
        middle, half = bounds.mean(axis=1), (bounds[:, 1] - bounds[:, 0]) / 2
        found = np.empty_like(slopes)
        found[..., 1:] = slopes[..., 1:] * half[-1] / half[:-1]
        found[..., 0] = middle[-1] + half[-1] * slopes[..., 0] - found[..., 1:] @ middle[:-1]
        return found

    def _pairs(self) -> list[tuple[int, int]]:
        return [(a, b) for a in range(self.size) for b in range(a, self.size)]

    def _column(self, name: str, given: Any) -> FloatArray:
        low, high = self.ranges[name]
        cut = np.clip(real_array(_cut_integers(given, low, high), f"column {name!r}", 1), low, high)
        return np.clip((2 * cut - low - high) / (high - low), -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class OneRecord(Adjacency):
    """One record of one agent joins or leaves, or changes.

    Attributes
    ----------
    domain : Moments
        How records become sums.
    change : bool
        Whether a record changes: it is one that leaves and one that joins.
    """

    kind = "one record"
    domain: Moments
    change: bool = False

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        return f"one record of one agent {'changes' if self.change else 'joins or leaves'}"

    @property
    def unit(self) -> str:
        """What moves: a record that changes is another unit for a ledger than one that joins."""
        return f"{'the content of ' if self.change else ''}one record of one agent"


@dataclass(frozen=True, eq=False)
class NoisySums(Strategy):
    """All sums of an agent, each with noise of the same size.

    Attributes
    ----------
    domain : Moments
        How records become sums.
    scale : int
        The noise on every sum, in grid steps.
    """

    kind = "noisy sums"
    domain: Moments
    scale: int

    def __post_init__(self) -> None:
        if self.scale < LEAST_SCALE:
            raise AffineDPError("there would be hardly any noise: choose a smaller ε or δ")

    @property
    def names(self) -> tuple[str, ...]:
        """What is published."""
        return self.domain.names

    @property
    def coordinates(self) -> int:
        """One for each sum."""
        return self.domain.numbers

    @property
    def sigma(self) -> float:
        """The noise on every sum, in units of the records."""
        return math.ldexp(float(self.scale), -GRID_BITS)

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return sums in units of the noise."""
        return moves / self.sigma

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return a bound on what one record adds."""
        if type(adjacency) is not OneRecord or type(law) is not Gaussian:
            raise AffineDPError("noise on sums of records is Gaussian, and hides one record")
        upper = self.domain.sensitivity(adjacency.change) * (1 + SHARE) / self.scale
        return Largest(
            0.0, upper, False, "‖r rᵀ‖ = ‖r‖², at most the norm squared",
            warnings=(
                "ranges, norm, ridge and rounds must not be chosen by looking at records; that "
                "every record is complete is public by assumption",
            ),
            because=" on the sums of one agent; all that is sent is post-processing of them",
        )  # fmt: skip

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return combinations of sums in units of η."""
        rows = np.eye(self.coordinates) if combinations is None else combinations
        return rows * self.sigma

    def scaled(self, factor: float) -> NoisySums:
        """Return the same with larger noise."""
        return replace(self, scale=math.ceil(self.scale * Fraction(factor)))

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases: sums are integers, whatever the records."""
        return _Sums(law, self.scale, self.coordinates)


@dataclass(frozen=True)
class _Sums(Prepared):
    """Integer sums with integer noise."""

    law: Law
    unit: int
    size: int
    factor: float = 1.0
    bound: float | None = None

    def steps(self, data: Any) -> NDArray[Any]:
        """Return the sums in grid steps."""
        return np.asarray(data.T)

    def shared(self, data: Any) -> FloatArray:
        """Return nothing: every sum has noise."""
        return np.zeros(0)

    def draw(self, count: int, drawer: Drawer) -> NDArray[Any]:
        """Return noise in grid steps."""
        return drawer.integers(self.law, self.unit, (self.size, count))

    def reconstruct(self, noisy: NDArray[Any], shared: FloatArray) -> FloatArray:
        """Return the sums in units of the records."""
        return np.ldexp(noisy.T.astype(np.float64), -GRID_BITS)


def _cut_integers(given: Any, low: float, high: float) -> Any:
    """Cut integers of any size as floats are: that one is large must not be told by a refusal."""
    if np.ma.is_masked(given):
        return given
    array = np.asarray(given)
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.dtype.kind != "O":
        return array
    least, most = math.floor(low), math.ceil(high)
    cut = array.copy()
    for place, item in np.ndenumerate(array):
        if is_number(item) and isinstance(item, numbers.Integral):
            cut[place] = float(min(max(int(item), least), most))
    return cut
