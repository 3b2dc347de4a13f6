"""What a strategy is: numbers that noise is added to, and outputs that are made of them.

What is published is ``reconstruct(measure(x) + η)``.  A strategy is these two linear maps:

* ``measure`` takes differences of data to coordinates, in units of the noise.  It alone decides the
  promise: neighbours move the coordinates by ``measure(v)``.
* ``loadings`` is the adjoint of ``reconstruct``: it says of which η a combination of outputs is
  made.  It alone decides errors and intervals.

``prepare`` gives both in exact integers, for releases.  Nothing else is needed of a new structure;
``largest`` and ``variances`` may be answered faster by one that knows its form.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from affinedp.arrays import EPS, FloatArray, Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.laws.base import NOTHING_KNOWN, Gauges, Law, Moves, Sampler, sampler_of_law
from affinedp.laws.curves import Curve
from affinedp.laws.reach import Reach, whole_reach
from affinedp.neighbours.adjacency import Adjacency, Columns, Vector, overflow
from affinedp.parts import Locked, Part

if TYPE_CHECKING:
    from affinedp.exact.rational import BigIntegers

# The noise lives on multiples of 2^-GRID_BITS of its own scale.
GRID_BITS = 56
# All that rounding adds to the sensitivity may be this share of it; the noise is made larger by
# the same share.
SHARE = 2.0**-30
# Numbers of loadings that intervals are computed from, where a strategy knows nothing faster.
MOST_LOADINGS = 250_000
# Moves that are listed one by one, where nothing faster is known.
MOST_LISTED = 2_000_000
# Of these, the ones that floats cannot tell from the largest and that are computed exactly.
MOST_EXACT = 5_000


@dataclass(frozen=True, eq=False)
class Largest:
    """The largest gauge of a move in coordinates: how far neighbours are apart."""

    # lower, upper: certain bounds, rounding included
    lower: float | Fraction
    upper: float | Fraction
    # whether every move was covered, so that they are equal up to rounding
    exact: bool
    # how it was found
    method: str
    # a difference of data that attains it; shape (n,)
    direction: FloatArray | None = None
    # what a careful reader should know
    warnings: tuple[str, ...] = ()
    # what else is known of the moves, for the privacy curve
    moves: Moves = NOTHING_KNOWN
    # what the promise rests on besides the theorem of the law
    because: str = ""
    # a combination of outputs that neighbours move and noise misses: then nothing is promised;
    # shape (m,)
    leak: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Promised:
    """What releases must keep."""

    # the largest gauge of a move
    sensitivity: float
    # δ as a function of ε
    curve: Curve
    # why it holds, where moves cannot be listed
    proof: Proof | None = None


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves of a figure: one for each of some outputs, beside what is compared."""

    # title, across, up: of the figure and its axes
    title: str
    across: str
    up: str
    # where the numbers are; shape (k,)
    places: FloatArray
    # from names to k numbers
    values: Mapping[str, FloatArray]
    # whether the places are
    logarithmic: bool = False


@dataclass(frozen=True)
class Sent(Part):
    """What is sent of noise on a plant's outputs whose sensors have steps."""

    kind = "sent"
    # by which the noise is enlarged
    factor: float
    # variance of what is fresh beside it, on each output
    added: tuple[float, ...]
    # of so many steps one is sent
    every: int = 1
    # for which sensors: their steps, what else readings may be off by, fresh noise that was chosen
    resolution: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    fresh: tuple[float, ...] = ()
    # over how many steps, where that is less than the noise is made for
    steps: int | None = None

    def __post_init__(self) -> None:
        if not (1 <= self.factor < math.inf and all(0 <= one < math.inf for one in self.added)):
            raise AffineDPError("what is sent must be a factor of at least 1 and finite variances")
        if self.every < 1:
            raise AffineDPError(f"one of {self.every} steps cannot be sent")

    def variances(self, designed: FloatArray) -> FloatArray:
        """Return variances as they are sent; the last axis has the outputs."""
        if designed.shape[-1] != len(self.added):
            raise AffineDPError("what is sent has another number of outputs than the noise")
        return np.asarray(self.factor**2 * designed + np.array(self.added))


# Why noise for sensors with steps is compared with no other.
FOR_STEPS = "for sensors with steps it is not computed"


@dataclass(frozen=True, eq=False)
class Told:
    """What a report knows of a mechanism beside its strategy."""

    adjacency: Adjacency
    law: Law
    # what is promised, and the (ε, δ) that was asked for
    sensitivity: float
    asked: tuple[float, float] | None = None
    # what is sent of the noise
    sent: Sent | None = None


@dataclass(frozen=True, eq=False)
class Shown:
    """What a report says about noise that is not kept as matrices."""

    # what is noisy, and for how long, in words that follow the number of outputs
    title: str
    # names and standard deviations
    outputs: tuple[tuple[str, float], ...]
    # returns what a figure shows, where there is one
    lines: Callable[[], Lines] | None
    # standard deviation of independent noise that keeps the same promise
    independent: float | None = None
    # why that is not known
    reason: str = ""
    # promise, totals: what else is said about the promise, and about the noise
    promise: tuple[tuple[str, str], ...] = ()
    totals: tuple[tuple[str, str], ...] = ()
    # what is not covered
    unprotected: tuple[str, ...] = ()
    # the root mean square of the noise, where it is not that of ``outputs``
    typical: float | None = None


class Proof(Part):
    """Why a promise holds where moves cannot be listed: kept with a mechanism, and checked."""

    @abstractmethod
    def largest(self, strategy: Any, adjacency: Adjacency, law: Law) -> Largest:
        """Return what is proved about the largest gauge, by checking the proof."""

    @abstractmethod
    def longest(self, adjacency: Adjacency) -> float:
        """Return a bound on the 1-norm of every move."""


class Prepared(Locked):
    """The public part of releases: made once for a mechanism, used for all data."""

    strategy: Any
    # of the noise, unless ``noise`` says what draws it
    law: Law
    # how much larger than stated the noise is, for all that rounding adds
    factor: float
    # the public bound on the data
    bound: float | None
    # Whether noise is drawn before data is looked at: how long it takes tells about it.
    draws_first: ClassVar[bool] = False
    # Whether noise is drawn in 64 bits where it fits: only where sums with it cannot overflow.
    narrow: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """To how many numbers noise is added."""
        return int(self.strategy.coordinates)

    @property
    def unit(self) -> int:
        """The scale of the noise, in steps; 1 for whole noise, which has its own."""
        return 1

    @cached_property
    def noise(self) -> Sampler:
        """What draws the noise: asked for before any charge, since a law may refuse."""
        return sampler_of_law(self.law, self.unit)

    @abstractmethod
    def steps(self, data: Any) -> BigIntegers:
        """Return what noise is added to, in exact integers, shape (coordinates, rows)."""

    @abstractmethod
    def shared(self, data: Any) -> FloatArray:
        """Return what is published as it is, because all neighbours have it in common."""

    def check(self, data: Any) -> None:
        """Refuse data that cannot be released, before anything is charged or drawn."""

    @abstractmethod
    def reconstruct(self, noisy: BigIntegers, shared: FloatArray) -> Any:
        """Return the outputs: a function of noisy integers and public numbers alone."""


@dataclass(frozen=True, eq=False)
class CountsPlan(Prepared):
    """Releases of whole coordinates, each with noise of its own on a grid, or whole."""

    strategy: Any
    law: Law
    # a public bound on the number of people
    bound: float | None = None
    factor: float = 1.0
    narrow = True

    @property
    def unit(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.factor) * (1 << GRID_BITS))

    def shared(self, data: Any) -> FloatArray:
        """Return nothing, unless something is public."""
        return np.zeros(0)


class Strategy(Part):
    """Select, measure, reconstruct; ``domain`` says what data is.

    A subclass that measures more than its parent must not be answered by its parent's ``largest``:
    a class that says ``measure`` says ``largest`` too, or its moves are listed.
    """

    domain: Any
    names: Any  # of the outputs, a sequence of texts

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        if ("measure" in own or "matrix" in own) and "largest" not in own:
            cls.largest = Strategy.largest  # type: ignore[method-assign]

    @property
    @abstractmethod
    def coordinates(self) -> int:
        """To how many numbers noise is added."""

    @property
    def given_names(self) -> Any:
        """The names that people gave, of which those of the outputs are made."""
        return self.names

    # -------------------------------------------------------------- the promise

    @abstractmethod
    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return the coordinates of differences of data, in units of the noise.

        With ``absolute``, coefficients are replaced by their absolute values: ``moves`` are then
        bounds on how far off others are, and so is what is returned.
        """

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest gauge of a move, from the list of all moves."""
        return largest_listed(self, adjacency, law)

    # -------------------------------------------------------------- the errors

    @abstractmethod
    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which η combinations of outputs are made, one row per combination."""

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every output."""
        return law.variances(self.loadings())

    def total_variance(self, law: Law) -> float:
        """Return the sum of the variances of all outputs."""
        return math.fsum(self.variances(law))

    def reach(self, law: Law, combinations: Matrix | None, outside: float, together: bool) -> Reach:
        """Return how far outputs, or combinations of them, may be off; never too short."""
        if combinations is not None or len(self.names) * self.coordinates <= MOST_LOADINGS:
            rows = dense(self.loadings(combinations))
            return law.reach_together(rows, outside) if together else law.reach(rows, outside)
        variances = self.variances(law)
        each = law.each(outside, int((variances > 0).sum())) if together else outside
        return law.reach_by_variance(variances, each), "from variances; never too short"

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, one row per row of η."""
        return np.asarray((self.loadings() @ drawn.T).T)

    @abstractmethod
    def scaled(self, factor: float) -> Strategy:
        """Return the same with noise that is larger by a factor."""

    # -------------------------------------------------------------- releases and reports

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        raise AffineDPError(
            f"{type(self).__name__} is for verification and simulation: it says nothing about "
            "releases (give it a method `prepare`)"
        )

    def shown(self, told: Told) -> Shown | None:
        """Return what a report says; None for noise of matrices."""
        return None

    def flat(self, y: Any) -> FloatArray:
        """Return what was released as one row of outputs, or several."""
        names = self.names
        if hasattr(y, "reindex") or hasattr(y, "columns"):  # pandas, polars
            labels = list(y.columns if hasattr(y, "columns") else y.index)
            if set(labels) != set(names) or len(labels) != len(names):
                raise AffineDPError("y must have exactly the outputs of the mechanism as its names")
            y = y[list(names)].to_numpy()
        given = released_numbers(y)
        shaped = given.ndim in (1, 2) and given.shape[-1] == len(names)
        if not shaped or not np.isfinite(given).all():
            raise AffineDPError(f"y must hold {len(names)} finite numbers, one per output")
        return given

    def present(self, row: FloatArray) -> Any:
        """Return a row of outputs in the form in which they are released."""
        return row

    def row(self, combination: Mapping[Any, Any]) -> FloatArray:
        """Return coefficients by output as one row, 0 where none are given."""
        place = {name: i for i, name in enumerate(self.names)}
        found = np.zeros(len(self.names))
        for name, value in combination.items():
            if name not in place:
                raise AffineDPError(f"combination names {name!r}, which is no output")
            found[place[name]] = real_array(value, f"combination[{name!r}]", 0)
        return found

    def groups(self) -> Iterator[tuple[str, Any]]:
        """Yield names and places of groups of outputs, for reports."""
        for place, name in enumerate(self.names):
            yield name, slice(place, place + 1)

    def noise_by_group(self, law: Law) -> Iterator[tuple[str, int, float]]:
        """Yield every group of outputs, their number, and the root mean square of their noise."""
        squares = self.variances(law)
        for name, places in self.groups():
            if len(squares[places]):
                yield name, len(squares[places]), math.sqrt(float(squares[places].mean()))


def sum_reaches(rate: float, terms: Any, outside: float) -> FloatArray:
    """Return how far sums of so many whole numbers of noise of one rate are off."""
    each, where = np.unique(terms, return_inverse=True)
    scale = 1 / rate * (1 + 2.0**-52)
    found = [whole_reach(scale, int(one), outside) if one else 0.0 for one in each]
    return np.asarray(found)[where].reshape(np.shape(terms))


def released_numbers(y: Any) -> FloatArray:
    """Return what was released as doubles, or refuse what is no numbers."""
    try:
        return np.asarray(y, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise AffineDPError("y must hold numbers, as a release returned them") from None


def largest_listed(
    strategy: Strategy, adjacency: Adjacency, law: Law, limit: int = MOST_LISTED
) -> Largest:
    """Return the largest gauge over all moves, so many at most, from bounds for each of them."""
    top = on_top(adjacency, strategy.measure, law.gauges, limit)
    if not len(top.upper):
        return Largest(0.0, 0.0, True, top.method)
    exact = top.above <= top.best * (1 + 1e-9) and math.isfinite(top.above)
    return Largest(top.best, top.above, exact, top.method, top.worst)


@dataclass(frozen=True, eq=False)
class OnTop:
    """Moves whose gauge may be the largest, which floats cannot tell apart."""

    # one difference of data per column; shape (n, K)
    columns: FloatArray
    # bounds on their gauges; shape (K,)
    upper: FloatArray
    # return each of them in rational numbers; None where it is not known for certain
    exact: Sequence[Callable[[], Vector | None]]
    # what the largest gauge is certainly at least
    best: float
    method: str

    @property
    def above(self) -> float:
        """What the largest gauge is certainly at most."""
        return float(self.upper.max())

    @property
    def worst(self) -> FloatArray:
        """The move with the largest bound."""
        return np.asarray(self.columns[:, int(np.argmax(self.upper))])


def on_top(
    adjacency: Adjacency,
    measure: Callable[[Matrix, bool], Matrix],
    gauges: Callable[[FloatArray, FloatArray], Gauges],
    limit: int = MOST_LISTED,
) -> OnTop:
    """List all moves, and return those whose gauge may be the largest."""
    rounding = 8 * EPS * (len(adjacency.domain.names) + 8)
    best, count = 0.0, 0
    near: list[tuple[Columns, FloatArray]] = []
    for listed in adjacency.moves(limit):
        block, off = listed.values, listed.off
        count += block.shape[1]
        found = gauges(
            dense(measure(block, False)), dense(measure(off + rounding * abs(block), True))
        )
        if np.isnan(found.upper).any():
            raise overflow()
        near.append((listed, found.upper))
        low = float(found.lower.max(initial=0.0))
        if low > best:
            best, near = low, [one for one in near if one[1].max(initial=0.0) >= low]
        elif not found.upper.max(initial=0.0) >= best:
            near.pop()
    method = f"listed {count:,} moves"
    places = [np.flatnonzero(upper >= best) for _, upper in near]
    if not near:
        return OnTop(np.zeros((0, 0)), np.zeros(0), (), best, method)
    return OnTop(
        np.hstack([dense(one.values[:, these]) for (one, _), these in zip(near, places)]),
        np.concatenate([upper[these] for (_, upper), these in zip(near, places)]),
        [partial(one.certain, k) for (one, _), these in zip(near, places) for k in these.tolist()],
        best,
        method,
    )
