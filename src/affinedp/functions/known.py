"""Functions of private data with a known reach: how far one neighbour can move them.

They are Lipschitz, so the worst move is known without any bound on the data, and noise is added to
the value itself: ``adp.design(M, query=adp.functions.peak(), epsilon=1.0)``.  Values are computed
in rational arithmetic and rounded to a grid that the noise pays for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError, AffineDPWarning, outside
from affinedp.exact.numbers import meaning, real_array
from affinedp.laws.base import Law, Sampler
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.parts import Part
from affinedp.strategies.base import Largest, Prepared, Promised, Strategy
from affinedp.strategies.matrices import Matrices

# A value is rounded to this share of the reach, and cut so far out that doubles hold it exactly.
FINE = Fraction(1, 2**12)
MOST_STEPS = 2**52
# What a record of an entry may be off by, relatively.
ROUNDING = Fraction(1, 2**53)


class KnownFunction(Part):
    """A number computed from entries, and how far a neighbour moves it."""

    words: ClassVar[str]
    entries: tuple[str, ...] = ()  # which entries it is computed from; all if empty

    def value(self, x: Sequence[Fraction]) -> Fraction:
        """Return the value, exactly."""
        raise NotImplementedError

    def reach(self, largest: float, total: float, sum_: float, count: int) -> Fraction:
        """Return how far it moves, given bounds of ‖v‖∞, ‖v‖₁ and |Σ v| of a move."""
        raise NotImplementedError

    def places(self, names: Sequence[str]) -> IntArray:
        """Return where its entries are."""
        unknown = [name for name in self.entries if name not in names]
        if unknown:
            raise AffineDPError(f"{unknown[0]!r} is no entry")
        chosen = [list(names).index(name) for name in self.entries]
        return np.array(chosen, dtype=np.intp) if chosen else np.arange(len(names))

    def sensitivity(self, adjacency: Adjacency) -> Fraction:
        """Return a bound on how far neighbours move it, rounded up."""
        names = adjacency.domain.names
        chosen = np.eye(len(names))[self.places(names)]
        largest = max(adjacency.sensitivity(row[None], 1).upper for row in chosen)
        total = adjacency.sensitivity(chosen, 1).upper
        sum_ = adjacency.sensitivity(chosen.sum(axis=0)[None], 1).upper
        return self.reach(largest, total, sum_, len(chosen))


@dataclass(frozen=True, eq=False)
class OrderStatistic(KnownFunction):
    """The k-th smallest entry: no order statistic moves farther than the entry that moves most."""

    kind = "order statistic"
    # from 1, the smallest; from −1, the largest
    rank: int = -1
    entries: tuple[str, ...] = ()
    words = "an order statistic"

    def value(self, x: Sequence[Fraction]) -> Fraction:
        """Return it exactly."""
        if not 1 <= abs(self.rank) <= len(x):
            raise AffineDPError(f"there is no rank {self.rank} among {len(x)} entries")
        return sorted(x)[self.rank - 1 if self.rank > 0 else self.rank]

    def reach(self, largest: float, total: float, sum_: float, count: int) -> Fraction:
        """Return ‖v‖∞."""
        return Fraction(largest)


@dataclass(frozen=True, eq=False)
class Spread(KnownFunction):
    """The largest entry less the smallest: twice the entry that moves most, or ‖v‖₁ if less."""

    kind = "range of entries"
    entries: tuple[str, ...] = ()
    words = "the range"

    def value(self, x: Sequence[Fraction]) -> Fraction:
        """Return it exactly."""
        return max(x) - min(x)

    def reach(self, largest: float, total: float, sum_: float, count: int) -> Fraction:
        """Return the least of 2 ‖v‖∞ and ‖v‖₁."""
        return min(2 * Fraction(largest), Fraction(total))


@dataclass(frozen=True, eq=False)
class ClippedSum(KnownFunction):
    """A sum of entries, each cut to an interval: parts that go up and parts that go down.

    It moves by at most max(Σ v₊, Σ v₋) = (‖v‖₁ + |Σ v|) / 2.
    """

    kind = "clipped sum"
    # lower, upper: None for no cut; offset is taken off every entry after the cut
    lower: float | None = None
    upper: float | None = None
    offset: float = 0.0
    entries: tuple[str, ...] = ()
    words = "a sum of clipped parts"

    def value(self, x: Sequence[Fraction]) -> Fraction:
        """Return it exactly."""
        low = None if self.lower is None else meaning(self.lower)
        high = None if self.upper is None else meaning(self.upper)
        cut = (v if low is None else max(v, low) for v in x)
        cut = (v if high is None else min(v, high) for v in cut)
        return sum(cut, Fraction(0)) - meaning(self.offset) * len(x)

    def reach(self, largest: float, total: float, sum_: float, count: int) -> Fraction:
        """Return (‖v‖₁ + |Σ v|) / 2."""
        return (Fraction(total) + Fraction(sum_)) / 2


@dataclass(frozen=True, eq=False)
class Differences(KnownFunction):
    """Σ_{i<j} |x_i − x_j|, by pairs or by n times a public total; an entry is in n − 1 of them."""

    kind = "sum of differences"
    total: float | None = None
    entries: tuple[str, ...] = ()
    words = "a sum of absolute differences"

    def _divisor(self, count: int) -> Fraction:
        if count < 2:
            raise AffineDPError("differences need at least two entries")
        return (
            Fraction(count * (count - 1), 2) if self.total is None else count * meaning(self.total)
        )

    def value(self, x: Sequence[Fraction]) -> Fraction:
        """Return it exactly, from the sorted entries."""
        n = len(x)
        found = sum(((2 * k + 1 - n) * v for k, v in enumerate(sorted(x))), Fraction(0))
        return found / self._divisor(n)

    def reach(self, largest: float, total: float, sum_: float, count: int) -> Fraction:
        """Return (n − 1) ‖v‖₁ over the divisor."""
        return (count - 1) * Fraction(total) / self._divisor(count)


@dataclass(frozen=True, eq=False)
class OnTrust(KnownFunction):
    """A function of the user's, with a Lipschitz constant on the user's word."""

    kind = "function on trust"
    f: Callable[[FloatArray], float] = field(default=np.max, repr=False)
    constant: float = 1.0
    norm: Literal["largest", "sum"] = "sum"
    entries: tuple[str, ...] = ()
    words = "a function whose Lipschitz constant is the user's word"

    @property
    def key(self) -> str:
        """Nothing identifies a function: each is its own."""
        return f"function on trust {id(self.f)} {self.constant} {self.norm} {self.entries}"

    def value(self, x: Sequence[Fraction]) -> Fraction:
        """Return it as the function computes it."""
        try:
            found = float(self.f(np.array([float(v) for v in x])))
        except Exception:  # what it says may quote the data
            raise AffineDPError(
                "the function fails at this data, or returns no number: nothing was released"
            ) from None
        if not np.isfinite(found):
            raise AffineDPError("the function is not finite at this data: nothing was released")
        return Fraction(found)

    def reach(self, largest: float, total: float, sum_: float, count: int) -> Fraction:
        """Return the constant times the norm of a move."""
        return Fraction(self.constant) * Fraction(largest if self.norm == "largest" else total)


# ------------------------------------------------------------------ by name

Entries = Sequence[str]


def _chosen(entries: Any) -> tuple[str, ...]:
    """The names of entries, or a refusal."""
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise AffineDPError("entries must be a list of names, or left out for all entries")
    found = tuple(entries)
    if not all(isinstance(name, str) for name in found):
        raise AffineDPError("entries must be names of entries, which are texts")
    return found


def _number(value: Any, name: str) -> float:
    """One finite number, or a refusal."""
    return float(real_array(value, name, 0))


def peak(entries: Entries = ()) -> OrderStatistic:
    """Return the largest entry.

    Parameters
    ----------
    entries : sequence of str
        Among these; among all by default.

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["a + b + c = 600"])
    >>> m = adp.design(M, query=adp.functions.peak(), epsilon=1.0, delta=1e-6)
    >>> m.release([100, 200, 300]).shape, round(float(m.expected_squared_error) ** 0.5, 1)
    ((1,), 1.4)
    """
    return OrderStatistic(-1, _chosen(entries))


def order_statistic(rank: int, entries: Entries = ()) -> OrderStatistic:
    """Return the entry of a rank, such as the median.

    Parameters
    ----------
    rank : int
        From 1, the smallest, on; or from −1, the largest, down.
    entries : sequence of str
        Among these; among all by default.

    Examples
    --------
    >>> order_statistic(2).value([5, 1, 3])
    3
    """
    place = _number(rank, "rank")
    if place == 0 or not place.is_integer():
        raise AffineDPError(f"rank must be a whole number other than 0, not {rank!r}")
    return OrderStatistic(int(place), _chosen(entries))


def range(entries: Entries = ()) -> Spread:  # as people call it
    """Return the largest entry less the smallest.

    Parameters
    ----------
    entries : sequence of str
        Among these; among all by default.

    Examples
    --------
    >>> range().value([5, 1, 3])
    4
    """
    return Spread(_chosen(entries))


def exceedance(limit: float, entries: Entries = ()) -> ClippedSum:
    """Return by how much entries are above a limit, added up: Σ max(0, x − limit).

    Parameters
    ----------
    limit : float
        Public.
    entries : sequence of str
        Of these; of all by default.

    Examples
    --------
    >>> int(exceedance(2).value([5, 1, 3]))
    4
    """
    cut = _number(limit, "limit")
    return ClippedSum(cut, None, cut, _chosen(entries))


def clipped_sum(
    lower: float | None = None, upper: float | None = None, entries: Entries = ()
) -> ClippedSum:
    """Return the sum of entries, each cut to an interval.

    Parameters
    ----------
    lower, upper : float, optional
        The ends; open if left out.
    entries : sequence of str
        Of these; of all by default.

    Examples
    --------
    >>> int(clipped_sum(2, 4).value([5, 1, 3]))
    9
    """
    low = None if lower is None else _number(lower, "lower")
    high = None if upper is None else _number(upper, "upper")
    if low is not None and high is not None and low > high:
        raise AffineDPError(f"lower must be at most upper, not {lower} and {upper}")
    return ClippedSum(low, high, 0.0, _chosen(entries))


def mean_absolute_difference(entries: Entries = ()) -> Differences:
    """Return the mean of |x_i − x_j| over all pairs of entries.

    Parameters
    ----------
    entries : sequence of str
        Of these; of all by default.

    Examples
    --------
    >>> mean_absolute_difference().value([5, 1, 3])
    Fraction(8, 3)
    """
    return Differences(None, _chosen(entries))


def gini(total: float, entries: Entries = ()) -> Differences:
    """Return Gini's coefficient of entries whose total is public.

    Parameters
    ----------
    total : float
        What the entries add up to.
    entries : sequence of str
        Of these; of all by default.

    Examples
    --------
    >>> gini(9).value([5, 1, 3])
    Fraction(8, 27)
    """
    public = _number(total, "total")
    if not public > 0:
        raise AffineDPError(f"total must be positive, not {total}")
    return Differences(public, _chosen(entries))


def lipschitz(
    f: Callable[[FloatArray], float],
    constant: float,
    norm: Literal["largest", "sum"] = "sum",
    entries: Entries = (),
) -> OnTrust:
    """Return a function of one's own, with a Lipschitz constant that is taken on trust.

    The guarantee says that it rests on it.  The constant must hold for values as they are
    computed, rounding included.

    Parameters
    ----------
    f : callable
        Of an array of the entries.
    constant : float
        |f(x) − f(x′)| is at most this times the norm of x − x′.
    norm : {"largest", "sum"}
        The largest absolute value, or the sum of absolute values.
    entries : sequence of str
        Which; all by default.

    Examples
    --------
    >>> lipschitz(lambda x: max(x) - min(x), 2.0, 'largest').constant
    2.0
    """
    if not callable(f):
        raise AffineDPError("f must be a function of an array of the entries")
    size = _number(constant, "constant")
    if not size > 0 or norm not in ("largest", "sum"):
        raise AffineDPError("constant must be positive, and norm 'largest' or 'sum'")
    return OnTrust(f, size, norm, _chosen(entries))


# ------------------------------------------------------------------ as a strategy


@dataclass(frozen=True, eq=False)
class OfFunction(Strategy):
    """Noise on one number that is computed from the data; ``number`` says how it is drawn."""

    kind = "of a function"
    domain: Any
    function: KnownFunction
    number: Matrices

    @property
    def names(self) -> Any:
        """The name of the number."""
        return self.number.names

    @property
    def coordinates(self) -> int:
        """One."""
        return self.number.coordinates

    def one(self, adjacency: Adjacency) -> CircuitAdjacency:
        """Return neighbours of the number alone: as far apart as data of neighbours puts it."""
        reach = float(self.function.sensitivity(adjacency) * (1 + FINE))
        return CircuitAdjacency(self.number.domain, float(np.nextafter(reach, np.inf)))

    def measure(self, moves: Any, absolute: bool = False) -> Any:
        """Refuse: the function is not linear."""
        raise AffineDPError("what is measured is no linear function of the data")

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return how far neighbours are apart, from the reach of the function."""
        found = self.number.largest(self.one(adjacency), law)
        trust = isinstance(self.function, OnTrust)
        because = f" for noise on {self.function.words}, which neighbours move by a known reach"
        because = f" for noise on {self.function.words}" if trust else because
        warned = ("the promise rests on the user's word about the function",) if trust else ()
        return replace(
            found, exact=False, direction=None, leak=None, because=because, warnings=warned,
            lower=0.0, method="reach of the function over all moves",
        )  # fmt: skip

    def loadings(self, combinations: Any = None) -> Any:
        """Return the loading of the number."""
        return self.number.loadings(combinations)

    def reach(self, law: Law, combinations: Any, outside: float, together: bool) -> Any:
        """Return how far the number may be off."""
        return self.number.reach(law, combinations, outside, together)

    def scaled(self, factor: float) -> OfFunction:
        """Return the same with noise that is larger by a factor."""
        return replace(self, number=self.number.scaled(factor))

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        reach = self.function.sensitivity(adjacency)
        more = Fraction(0)
        if bound is not None:  # records of neighbours may be rounded
            count = len(self.function.places(self.domain.names))
            off = 2 * ROUNDING * Fraction(bound)
            more = self.function.reach(float(off), float(off * count), float(off * count), count)
        if more > reach * FINE / 4:
            raise AffineDPError("rounding of data of this size moves the function: change units")
        plan = self.number.prepare(self.one(adjacency), law, promised, None)
        fine = reach * FINE / 2
        step = Fraction(2) ** (fine.numerator.bit_length() - fine.denominator.bit_length() - 1)
        limit = Fraction(min(getattr(plan, "largest", np.inf), 1e300)) / step
        return FunctionPlan(self, plan, step, min(MOST_STEPS, int(limit)), bound)


@dataclass(frozen=True, eq=False)
class FunctionPlan(Prepared):
    """Releases of one number: the value on a grid, and noise for it."""

    strategy: OfFunction
    plan: Prepared
    # a power of two, at most half of what is paid for
    step: Fraction
    most: int
    bound: float | None = None

    @property
    def factor(self) -> float:  # type: ignore[override]
        """How much larger than stated the noise is."""
        return self.plan.factor

    @property
    def draws_first(self) -> bool:  # type: ignore[override]
        """As the noise of the number says."""
        return self.plan.draws_first

    @property
    def size(self) -> int:
        """As the noise of the number says."""
        return self.plan.size

    @property
    def noise(self) -> Sampler:
        """What draws the noise of the number."""
        return self.plan.noise

    def check(self, data: FloatArray) -> None:
        """Refuse data beyond the declared bound."""
        if self.bound is not None and float(np.abs(data).max(initial=0.0)) > self.bound:
            raise AffineDPError("some entry of x is larger than the declared bound")

    def _values(self, data: FloatArray) -> FloatArray:
        """Values as multiples of the step, cut where doubles end: neither moves them farther."""
        function = self.strategy.function
        places = function.places(self.strategy.domain.names)
        found = []
        for row in data[:, places].tolist():
            value = function.value([meaning(v) for v in row])
            steps = min(max(round(value / self.step), -self.most), self.most)
            found.append([float(steps * self.step)])
        return np.array(found)

    def steps(self, data: FloatArray) -> Any:
        """Return what noise is added to."""
        return self.plan.steps(self._values(data))

    def shared(self, data: FloatArray) -> FloatArray:
        """Return nothing: all of it is hidden."""
        return self.plan.shared(np.zeros((len(data), 1)))

    def reconstruct(self, noisy: Any, shared: FloatArray) -> Any:
        """Return the number with noise; where it is near the cut, say so: it is public."""
        found = self.plan.reconstruct(noisy, shared)
        cut = float(self.most * self.step)
        if (np.abs(found) > cut / 2).any():
            warnings.warn(
                f"what was published is near ±{cut:.3g}, where values are cut: they are too large "
                "for the reach of the function. Take off a public constant first",
                AffineDPWarning,
                stacklevel=outside(),
            )
        return found
