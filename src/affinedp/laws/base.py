"""What a law of noise is: a gauge, a privacy curve, a variance, and how it is drawn.

What is published is a function of ``z + η``: neighbours move z, and η has a law.  A law is a frozen
dataclass that derives from :class:`Law` and says

* ``kind``, ``words``, ``theorem``: its name for users and files, in words, and what it rests on;
* ``norm`` (1 or 2), or ``gauges`` and ``gauge`` where it is no norm: how far apart neighbours are;
* ``curve``: what δ holds at each ε, given the largest gauge of a move (the sensitivity);
* ``variance`` and ``sample``: for errors, simulations and, unless ``reach`` says more, intervals;
* ``sampler``: what draws it exactly, on integers; without it nothing is released.

Calibration (``limit``), grids (``box``) and errors (``variances``, ``covariance``) follow.
The gauge has the rate in it: the sensitivity is the largest gauge, for every law.  A law with a
``size`` is bound to so many coordinates, and its noise is in their units; others have independent
entries of unit scale, for any number of coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import EPS, FloatArray, Matrix, Norm, dense, is_sparse, squared
from affinedp.errors import AffineDPError
from affinedp.laws.curves import Curve
from affinedp.laws.reach import Reach, simulated_reach, simulated_together, too_rare, with_noise
from affinedp.laws.sampler.words import Source
from affinedp.parts import Part, kind_named

# Names that designs and readers take, and all that a user may say.
LawName = Literal["gaussian", "laplace", "knorm", "staircase"]
LAWS = ("gaussian", "laplace", "knorm", "staircase", "productnorm", "geometric")


@dataclass(frozen=True, eq=False)
class Gauges:
    """Gauges of several moves: certain bounds, rounding included."""

    lower: FloatArray  # lower, upper: the bounds; shape (K,)
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class Moves:
    """What is known of the moves in coordinates, beyond the largest gauge."""

    # |z| of every move, rounded up, where they were listed; shape (moves, coordinates)
    shifts: FloatArray | None = None
    # of whole moves: for every m the largest gauge of a move of m primitive lattice steps
    steps: Mapping[int, float] = field(default_factory=dict)
    on_axes: bool = False  # whether all whole moves are along one axis of independent noise
    one_step: bool = False  # whether a longest whole move is a single step along such an axis
    # the largest gauge before it was rounded; the sensitivity if left out
    largest: Fraction | float | None = None


NOTHING_KNOWN = Moves()


class Sampler(Protocol):
    """Draws integers of one law at one scale, exactly."""

    def draw(self, size: tuple[int, ...], source: Source, /) -> NDArray[Any]:
        """Return integers of any size, in an object array."""


class Law(Part):
    """The law of noise η on coordinates; entries are independent unless it is said otherwise."""

    words: str
    theorem: str
    # The gauge is ``rate`` times this norm, where it is one.
    norm: ClassVar[Norm | None] = None
    rate: float = 1.0
    # Whether coordinates and noise are whole numbers.
    whole: bool = False
    # Variance of one entry.
    variance: float = 1.0
    # How many coordinates the law is bound to.
    size: int | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.norm is not None and (type(cls.norm) is not int or cls.norm not in (1, 2)):
            raise AffineDPError(
                f"{cls.__qualname__} states the norm {cls.norm!r}: it is 1 or 2. Where neighbours "
                "are apart in another sense, leave it out and say `gauges` and `gauge`"
            )
        own = [name for name in ("gauges", "gauge", "box") if name in _overridden(cls)]
        if cls.norm is not None and own:
            raise AffineDPError(
                f"{cls.__qualname__} states the norm {cls.norm} and a gauge of its own "
                f"({', '.join(own)}): fast ways would take the norm. Leave out one of them"
            )

    def __post_init__(self) -> None:
        if not self.variance >= 0:
            raise AffineDPError(
                f"the variance of {self.words} noise must be at least 0, not {self.variance!r}"
            )

    @classmethod
    def of_root(cls, root: Matrix, rate: float = 1.0, whole: bool = False) -> Law:
        """Return the law of noise ``root @ η``, or of noise that ``root`` describes."""
        if any(field.default is MISSING for field in fields(cls)):  # type: ignore[arg-type]
            raise AffineDPError(
                f"{cls.words} noise is not given by a matrix: a design makes it, or hand over the "
                "law itself"
            )
        return cls()

    # -------------------------------------------------------------- what it promises

    @property
    def divisible(self) -> bool:
        """Whether half a move is half as far; between whole data there are no parts of a move."""
        return not self.whole

    def gauges(self, columns: FloatArray, doubt: FloatArray | None = None) -> Gauges:
        """Return bounds on how far apart columns are, in the sense of the promise."""
        size = np.abs(columns)
        off = np.zeros_like(size) if doubt is None else doubt
        found = self._norms(size)
        more = (self._norms(off) + (len(size) + 8) * EPS * found) * (1 + 1e-9)
        return Gauges(np.maximum(found - more, 0.0), found + more)

    def _norms(self, columns: FloatArray) -> FloatArray:
        if self.norm is None:
            raise AffineDPError(f"{self.words} noise has no norm: its class must say `gauges`")
        return np.asarray(self.rate * np.linalg.norm(columns, ord=self.norm, axis=0))

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return the gauge of one move exactly; refused where it is not rational."""
        if self.norm != 1:
            raise AffineDPError(f"the gauge of {self.words} noise is no rational number")
        return Fraction(self.rate) * sum(map(abs, move), Fraction(0))

    def box(self, p: int) -> float:
        """Return the largest gauge of a difference of at most 1 in each of p coordinates."""
        return float(self.gauges(np.ones((p, 1))).upper[0])

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return what δ holds at each ε."""
        raise NotImplementedError(f"{type(self).__qualname__} must say `curve`")

    def limit(self, epsilon: float, delta: float = 0.0) -> float:
        """Return a sensitivity that keeps (ε, δ): the largest, rounded down."""
        if self.curve(EPS).epsilon(delta) == math.inf:
            raise AffineDPError(f"{self.words} noise keeps no promise with delta = {delta:g}")

        def holds(sensitivity: float) -> bool:
            return self.curve(sensitivity).epsilon(delta) <= epsilon

        if holds(epsilon) and not holds(math.nextafter(epsilon, math.inf)):
            return epsilon
        return largest_kept(holds, 0.0, 1.0, 1e-14)

    # -------------------------------------------------------------- how large it is

    def each_variance(self, p: int) -> FloatArray:
        """Return the variances of p entries, where they are independent."""
        return np.full(p, self.variance)

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ η``."""
        return np.asarray(squared(rows) @ self.each_variance(rows.shape[1])).ravel()

    def covariance(self, rows: Matrix) -> FloatArray:
        """Return the covariance of ``rows @ η``."""
        each = self.each_variance(rows.shape[1])
        weighted = rows.multiply(each) if is_sparse(rows) else rows * each
        return dense(weighted @ rows.T)

    def spread(self, rows: Matrix) -> Matrix:
        """Return the noise matrix of ``rows @ η``; for a body, points of it, at a rate of 1."""
        return rows

    def at_rate(self, rate: float) -> Law:
        """Return the same law with a density that falls so fast."""
        if all(field.name != "rate" for field in fields(self)):  # type: ignore[arg-type]
            raise AffineDPError(f"{self.words} noise has no rate: scale the strategy")
        return replace(self, rate=rate)  # type: ignore[type-var]

    def beside(self, others: Sequence[Law]) -> Law:
        """Return the law of independent noise of this law and others like it."""
        if self.size is not None or any(other.key != self.key for other in others):
            raise AffineDPError(
                f"{self.words} noise of several scales does not stand side by side: release the "
                "mechanisms one by one, and compose their guarantees"
            )
        return self

    def span(self) -> Matrix | None:
        """Return vectors that span the noise, as columns; None if all coordinates are free."""
        return None

    # Which coordinates the vectors of ``span``, and rows of a reach, stand for.
    free: Any = slice(None)

    def depths(self, points: FloatArray) -> FloatArray:
        """Return how far the logarithm of the density has fallen at columns."""
        raise NotImplementedError(f"{type(self).__qualname__} must say `depths` to be attacked")

    # -------------------------------------------------------------- how far it reaches

    def reach(self, rows: Matrix, outside: float) -> Reach:
        """Return t with P(|row @ η| > t) ≤ outside for every row, never too small, and how."""
        known = self.known_reach(rows, outside)
        return simulated_reach(self, rows, outside) if known is None else known

    def reach_together(self, rows: Matrix, outside: float) -> Reach:
        """Return the same for all rows at once: t with P(some |row @ η| > t) ≤ outside."""
        noisy = int(with_noise(rows).sum())
        if noisy == 0:
            return np.zeros(rows.shape[0]), "no noise"
        if noisy == 1:
            return self.reach(rows, outside)
        found = self.known_together(rows, outside, noisy)
        found = simulated_together(self, rows, outside) if found is None else found
        if found is not None:
            return found
        known = self.known_reach(rows, outside / noisy)
        if known is None:
            raise too_rare(outside, rows.shape[0])
        return known[0], "Bonferroni: holds for any law"

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return the reach from the law itself; None where it is not known."""
        return None

    def known_together(self, rows: Matrix, outside: float, noisy: int) -> Reach | None:
        """Return the reach of so many numbers at once from the law; None where it is not known."""
        return None

    def reach_by_variance(self, variances: FloatArray, outside: float) -> FloatArray:
        """Return the reach of numbers of which only variances are known, never too small."""
        return np.asarray(np.sqrt(variances / outside))  # Chebyshev's inequality

    def each(self, outside: float, count: int) -> float:
        """Return what each of so many numbers may miss if all are to hold at once."""
        return outside / max(count, 1)

    # -------------------------------------------------------------- how it is drawn

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw η for simulation, shape (size, p); never publish with it."""
        raise NotImplementedError(f"{type(self).__qualname__} must say `sample`")

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws integers of the law with so many steps to its unit, exactly.

        The curve must hold for these integers, too: for neighbours that are whole steps apart.
        """
        raise AffineDPError(
            f"{self.words} noise has no exact sampler: simulate with it, do not release"
        )


def sampler_of_law(law: Law, unit: int | Fraction) -> Sampler:
    """Return what draws a law, or refuse what draws nothing: asked for before any charge."""
    found = law.sampler(unit)
    if not callable(getattr(found, "draw", None)):
        raise AffineDPError(
            f"the sampler of {law.words} noise is {type(found).__name__}, which has no method "
            "`draw`: return an object that has one, such as affinedp.laws.sampler.IntegerNoise"
        )
    return found


def largest_kept(holds: Callable[[float], bool], low: float, high: float, close: float) -> float:
    """Return the largest sensitivity that keeps a promise, as ``low`` does: never one too large."""
    while holds(high):
        low, high = high, 2 * high
    while high - low > close * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _overridden(cls: type[Law]) -> set[str]:
    """Names that a class or a class above it says anew."""
    return {name for above in cls.__mro__[: cls.__mro__.index(Law)] for name in vars(above)}


def law_named(name: Any) -> type[Law]:
    """Return the law that a user calls so, or refuse the name."""
    found = kind_named(name) if isinstance(name, str) else None
    if found is None or not issubclass(found, Law):
        known = ", ".join(repr(law) for law in LAWS)
        raise AffineDPError(f"law must be one of {known}, not {name!r}")
    return found
