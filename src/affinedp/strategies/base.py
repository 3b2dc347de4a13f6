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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.laws.base import NOTHING_KNOWN, Law, Moves
from affinedp.laws.curves import Curve
from affinedp.laws.reach import Reach
from affinedp.neighbours.adjacency import Adjacency
from affinedp.parts import Part

if TYPE_CHECKING:
    from affinedp.exact.rational import BigIntegers
    from affinedp.laws.sampler.words import Source

EPS = float(np.finfo(float).eps)
# Numbers of loadings that intervals are computed from, where a strategy knows nothing faster.
MOST_LOADINGS = 250_000
# Moves that are listed one by one, where nothing faster is known.
MOST_LISTED = 2_000_000
# Of these, the ones that floats cannot tell from the largest and that are computed exactly.
MOST_EXACT = 5_000


@dataclass(frozen=True, eq=False)
class Largest:
    """The largest gauge of a move in coordinates: how far neighbours are apart.

    Attributes
    ----------
    lower, upper : float or Fraction
        Certain bounds, rounding included.
    exact : bool
        Whether every move was covered, so that they are equal up to rounding.
    method : str
        How it was found.
    direction : array, shape (n,), or None
        A difference of data that attains it.
    warnings : tuple of str
        What a careful reader should know.
    moves : Moves
        What else is known of the moves, for the privacy curve.
    because : str
        What the promise rests on besides the theorem of the law.
    leak : array, shape (m,), or None
        A combination of outputs that neighbours move and noise misses: then nothing is promised.
    """

    lower: float | Fraction
    upper: float | Fraction
    exact: bool
    method: str
    direction: FloatArray | None = None
    warnings: tuple[str, ...] = ()
    moves: Moves = NOTHING_KNOWN
    because: str = ""
    leak: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Promised:
    """What releases must keep.

    Attributes
    ----------
    sensitivity : float
        The largest gauge of a move.
    curve : Curve
        δ as a function of ε.
    proof : Proof or None
        Why it holds, where moves cannot be listed.
    """

    sensitivity: float
    curve: Curve
    proof: Proof | None = None


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves of a figure: one for each of some outputs, beside what is compared.

    Attributes
    ----------
    title, across, up : str
        Of the figure and its axes.
    places : array, shape (k,)
        Where the numbers are.
    values : mapping
        From names to k numbers.
    logarithmic : bool
        Whether both axes are.
    """

    title: str
    across: str
    up: str
    places: FloatArray
    values: Mapping[str, FloatArray]
    logarithmic: bool = False


@dataclass(frozen=True, eq=False)
class Shown:
    """What a report says about noise that is not kept as matrices.

    Attributes
    ----------
    title : str
        What is noisy, and for how long, in words that follow the number of outputs.
    outputs : tuple of (str, float)
        Names and standard deviations.
    independent : float or None
        Standard deviation of independent noise that keeps the same promise.
    reason : str
        Why that is not known.
    promise, totals : tuples of (str, str)
        What else is said about the promise, and about the noise.
    unprotected : tuple of str
        What is not covered.
    typical : float or None
        The root mean square of the noise, where it is not that of ``outputs``.
    lines : callable
        Returns what a figure shows.
    """

    title: str
    outputs: tuple[tuple[str, float], ...]
    lines: Callable[[], Lines]
    independent: float | None = None
    reason: str = ""
    promise: tuple[tuple[str, str], ...] = ()
    totals: tuple[tuple[str, str], ...] = ()
    unprotected: tuple[str, ...] = ()
    typical: float | None = None


class Proof(Part):
    """Why a promise holds where moves cannot be listed: kept with a mechanism, and checked."""

    @abstractmethod
    def largest(self, strategy: Any, adjacency: Adjacency, law: Law) -> Largest:
        """Return what is proved about the largest gauge, by checking the proof.

        Parameters
        ----------
        strategy : Strategy
            What is measured.
        adjacency : Adjacency
            The neighbours.
        law : Law
            Of the noise.
        """

    @abstractmethod
    def longest(self, adjacency: Adjacency) -> float:
        """Return a bound on the 1-norm of every move.

        Parameters
        ----------
        adjacency : Adjacency
            The neighbours.
        """


class Drawer(Protocol):
    """Who draws: affinedp's sampler from a source of random bytes, or OpenDP's."""

    @property
    def source(self) -> Source:
        """Gives random bytes."""

    def integers(self, law: Law, unit: int | Fraction, shape: tuple[int, int]) -> BigIntegers:
        """Return integers of a law with so many steps to its unit, exactly."""

    def narrow(self, law: Law, unit: int | Fraction, shape: tuple[int, int]) -> BigIntegers:
        """Return the same, in 64 bits where all of them fit: for whom sums cannot overflow."""


class Prepared:
    """The public part of releases: made once for a mechanism, used for all data.

    Attributes
    ----------
    factor : float
        How much larger than stated the noise is, for all that rounding adds.
    bound : float or None
        The public bound on the data.
    """

    factor: float
    bound: float | None
    # Whether noise is drawn before data is looked at: how long it takes tells about it.
    draws_first: ClassVar[bool] = False

    @abstractmethod
    def steps(self, data: Any) -> BigIntegers:
        """Return what noise is added to, in exact integers, shape (coordinates, rows)."""

    @abstractmethod
    def shared(self, data: Any) -> FloatArray:
        """Return what is published as it is, because all neighbours have it in common."""

    def check(self, data: Any) -> None:
        """Refuse data that cannot be released, before anything is charged or drawn."""

    @abstractmethod
    def draw(self, count: int, drawer: Drawer) -> BigIntegers:
        """Return noise for so many rows of data, in the same integers."""

    @abstractmethod
    def reconstruct(self, noisy: BigIntegers, shared: FloatArray) -> Any:
        """Return the outputs: a function of noisy integers and public numbers alone."""


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

        Parameters
        ----------
        moves : matrix, shape (n, K)
            One difference per column.
        absolute : bool
            Whether with the sizes of all coefficients: what terms may be off by.
        """

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest gauge of a move, from the list of all moves.

        Parameters
        ----------
        adjacency : Adjacency
            The neighbours.
        law : Law
            Of the noise.
        """
        return largest_listed(self, adjacency, law)

    # -------------------------------------------------------------- the errors

    @abstractmethod
    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which η combinations of outputs are made, one row per combination.

        Parameters
        ----------
        combinations : matrix, shape (k, m), optional
            Coefficients of outputs; every output by itself if left out.
        """

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every output.

        Parameters
        ----------
        law : Law
            Of the noise.
        """
        return law.variances(self.loadings())

    def total_variance(self, law: Law) -> float:
        """Return the sum of the variances of all outputs.

        Parameters
        ----------
        law : Law
            Of the noise.
        """
        return math.fsum(self.variances(law))

    def reach(self, law: Law, combinations: Matrix | None, outside: float, together: bool) -> Reach:
        """Return how far outputs, or combinations of them, may be off; never too short.

        Parameters
        ----------
        law : Law
            Of the noise.
        combinations : matrix, shape (k, m), or None
            Coefficients of outputs; every output by itself if None.
        outside : float
            How often they may be farther off, in (0, 1).
        together : bool
            Whether all hold at once.
        """
        if combinations is not None or len(self.names) * self.coordinates <= MOST_LOADINGS:
            rows = dense(self.loadings(combinations))
            return law.reach_together(rows, outside) if together else law.reach(rows, outside)
        variances = self.variances(law)
        each = law.each(outside, int((variances > 0).sum())) if together else outside
        return law.reach_by_variance(variances, each), "from variances; never too short"

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, one row per row of η.

        Parameters
        ----------
        drawn : array, shape (size, p)
            Rows of η.
        """
        return np.asarray((self.loadings() @ drawn.T).T)

    @abstractmethod
    def scaled(self, factor: float) -> Strategy:
        """Return the same with noise that is larger by a factor.

        Parameters
        ----------
        factor : float
            Positive.
        """

    # -------------------------------------------------------------- releases and reports

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases.

        Parameters
        ----------
        adjacency : Adjacency
            The neighbours.
        law : Law
            Of the noise.
        promised : Promised
            What releases must keep.
        bound : float or None
            A public bound on the data.
        """
        raise AffineDPError(
            f"{type(self).__name__} is for verification and simulation: it says nothing about "
            "releases (give it a method `prepare`)"
        )

    def shown(
        self,
        adjacency: Adjacency,
        law: Law,
        sensitivity: float,
        asked: tuple[float, float] | None = None,
    ) -> Shown | None:
        """Return what a report says; None for noise of matrices.

        Parameters
        ----------
        adjacency : Adjacency
            The neighbours.
        law : Law
            Of the noise.
        sensitivity : float
            What is promised.
        asked : (float, float), optional
            The (ε, δ) that was asked for, for one release.
        """
        return None

    def flat(self, y: Any) -> FloatArray:
        """Return what was released as one row of outputs, or several.

        Parameters
        ----------
        y : array_like, or Series or DataFrame
            As it was released.
        """
        names = self.names
        if hasattr(y, "reindex") or hasattr(y, "columns"):  # pandas, polars
            labels = list(y.columns if hasattr(y, "columns") else y.index)
            if set(labels) != set(names) or len(labels) != len(names):
                raise AffineDPError("y must have exactly the outputs of the mechanism as its names")
            y = y[list(names)].to_numpy()
        given = np.asarray(y, dtype=float)
        shaped = given.ndim in (1, 2) and given.shape[-1] == len(names)
        if not shaped or not np.isfinite(given).all():
            raise AffineDPError(f"y must hold {len(names)} finite numbers, one per output")
        return given

    def present(self, row: FloatArray) -> Any:
        """Return a row of outputs in the form in which they are released.

        Parameters
        ----------
        row : array, shape (m,)
            One number per output.
        """
        return row

    def row(self, combination: Mapping[Any, Any]) -> FloatArray:
        """Return coefficients by output as one row, 0 where none are given.

        Parameters
        ----------
        combination : mapping
            From names of outputs to numbers.
        """
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

    def noise_by_group(self, law: Law) -> Iterator[tuple[str, float]]:
        """Yield the root mean square noise of every group of outputs, for reports.

        Parameters
        ----------
        law : Law
            Of the noise.
        """
        squares = self.variances(law)
        for name, places in self.groups():
            if len(squares[places]):
                yield name, math.sqrt(float(squares[places].mean()))


def rounded_up(value: float | Fraction) -> float:
    """Return the least double that is not below a number.

    Parameters
    ----------
    value : float or Fraction
        Exact.
    """
    near = float(value)
    return near if math.isinf(near) or Fraction(near) >= value else math.nextafter(near, math.inf)


def largest_listed(strategy: Strategy, adjacency: Adjacency, law: Law) -> Largest:
    """Return the largest gauge over all moves: bounds for all, exactly for those on top.

    Parameters
    ----------
    strategy : Strategy
        What is measured.
    adjacency : Adjacency
        Its moves can be listed.
    law : Law
        Of the noise.
    """
    rounding = 8 * EPS * (len(adjacency.domain.names) + 8)
    best, count = 0.0, 0
    near: list[tuple[FloatArray, FloatArray]] = []
    for listed in adjacency.moves(MOST_LISTED):
        block, off = listed.values, listed.off
        count += block.shape[1]
        moves = dense(strategy.measure(block))
        doubt = dense(strategy.measure(off + rounding * abs(block), absolute=True))
        found = law.gauges(moves, doubt)
        best = max(best, float(found.lower.max(initial=0.0)))
        chosen = found.upper >= best
        near.append((dense(block[:, chosen]), found.upper[chosen]))
    upper = np.concatenate([part for _, part in near]) if near else np.zeros(0)
    method = f"listed {count:,} moves"
    if not len(upper):
        return Largest(0.0, 0.0, True, method)
    columns = np.hstack([part for part, _ in near])[:, upper >= best]
    upper = upper[upper >= best]
    above, worst = float(upper.max()), columns[:, int(np.argmax(upper))]
    exact = above <= best * (1 + 1e-9)
    return Largest(best, above, exact and math.isfinite(above), method, worst)
