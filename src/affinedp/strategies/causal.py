"""Noise that a linear system makes step by step: ``ξ⁺ = A ξ + B ζ``, ``γ = C ξ + D ζ``.

Doubles are not enough to send it: their rounding errors lie outside the range of the noise, and
nothing hides them.  A :class:`Path` carries ξ as integers in units of ``2**-bits``; η and ζ are
integers that are given, and every step rounds each entry of ξ by at most half a unit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains.base import MadeNames
from affinedp.errors import AffineDPError
from affinedp.exact.rational import RationalMatrix
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Laplace
from affinedp.strategies.base import Sent, Strategy, released_numbers

# Numbers of noise over time that are listed at once.
MOST_NUMBERS = 1e8


class OutputNames(MadeNames):
    """Names of all outputs at all times, such as ``y1(0)``.

    Examples
    --------
    >>> names = OutputNames(("y", "z"), 2**40)
    >>> names[3], names[-1], len(names)
    ('z(1)', 'z(1099511627775)', 2199023255552)
    """

    def __init__(self, each: Sequence[str], horizon: int) -> None:
        self._each, self._horizon = tuple(each), horizon

    def __len__(self) -> int:
        return len(self._each) * self._horizon

    def name(self, place: int) -> str:
        """Return the name of one output at one time."""
        t, i = divmod(place, len(self._each))
        return f"{self._each[i]}({t})"


@dataclass(frozen=True, eq=False)
class System:
    """``ξ(0) = start η``, ``ξ(t+1) = A(t) ξ(t) + B ζ(t)``, ``γ(t) = C(t) ξ(t) + D ζ(t)``."""

    # A, C: the matrix of a step; the same object where it does not change
    A: Callable[[int], RationalMatrix]
    # B, D: how what is drawn at a step enters; without columns if nothing is
    B: RationalMatrix
    C: Callable[[int], RationalMatrix]
    D: RationalMatrix
    # how what is drawn once enters; without columns if nothing is
    start: RationalMatrix
    # how many steps there are
    horizon: int


class ByStep(Strategy):
    """Outputs that come one step after another."""

    @property
    @abstractmethod
    def by_step(self) -> tuple[int, int]:
        """How many steps there are, and how many outputs each has."""

    def flat(self, y: Any) -> FloatArray:
        """Return outputs by step as one row, or several."""
        given = None if hasattr(y, "reindex") else released_numbers(y)
        if given is not None and given.ndim in (2, 3) and given.shape[-2:] == self.by_step:
            y = given.reshape(*given.shape[:-2], -1)
        return super().flat(y)

    def present(self, row: FloatArray) -> FloatArray:
        """Return one row of outputs by step."""
        return row.reshape(self.by_step)


class Causal(ByStep):
    """Noise that a linear system makes, for outputs that are sent one after another."""

    # Standard deviation, for Laplace noise scale, of what is drawn, as the matrices have it.
    scale: float = 1.0

    @property
    def step_names(self) -> tuple[str, ...]:
        """Names of the outputs of one step."""
        found: tuple[str, ...] = self.domain.output_names
        return found

    @property
    def given_names(self) -> tuple[str, ...]:
        """The names of the outputs of one step."""
        return self.step_names

    @property
    def horizon(self) -> int:
        """How many steps there are at most."""
        return int(self.domain.horizon)

    @property
    @abstractmethod
    def system(self) -> System:
        """What makes the noise, in exact numbers."""

    @abstractmethod
    def path_bits(self, exponents: Sequence[int]) -> int:
        """Return how many bits keep output i within ``2**exponents[i]`` of its true value."""

    @abstractmethod
    def deviations(self, law: Law, steps: int) -> FloatArray:
        """Return the standard deviation of γ(0), …, γ(steps − 1), shape (steps, outputs)."""

    def deviations_at(self, law: Law, times: Sequence[int]) -> FloatArray:
        """Return the standard deviation of γ at some times, shape (times, outputs)."""
        return np.asarray(self.deviations(law, max(times) + 1)[list(times)])

    @property
    def independent(self) -> bool:
        """Whether each number of noise is on one output at one step alone."""
        return False

    def released_at_once(self, y: Any) -> bool:
        """Whether these are all outputs of a release, and not what was sent so far."""
        return False

    def shortened(self, steps: int) -> Causal:
        """Return the same noise over the first steps alone."""
        return self

    def simulated(
        self, law: Law, generator: np.random.Generator, size: int, steps: int
    ) -> FloatArray:
        """Draw noise for simulation, shape (size, steps, outputs)."""
        check_steps(float(size) * steps * len(self.step_names))
        shorter = self.shortened(steps)
        return shorter.spread(law.sample(generator, size, shorter.coordinates))

    def path(self, bits: int) -> Path:
        """Return how the integers of the noise go from step to step."""
        return Path(self.system, bits)

    @property
    def names(self) -> OutputNames:
        """Names of all outputs at all times."""
        return OutputNames(self.step_names, self.horizon)

    @property
    def by_step(self) -> tuple[int, int]:
        """How many steps there are, and how many outputs each has."""
        return self.horizon, len(self.step_names)

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every output at every time, one after another."""
        return np.asarray(self.deviations(law, self.horizon).ravel() ** 2)


@dataclass(frozen=True, eq=False)
class SentOutputs(ByStep):
    """Outputs that were sent so far: noise over time, enlarged, and what is fresh beside it."""

    kind = "sent outputs"
    of: Causal
    # how many outputs were sent
    steps: int
    # what a gateway makes of the noise
    sent: Sent
    # the law of what is fresh
    fresh: Law = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= -(-self.of.horizon // self.sent.every):
            raise AffineDPError(f"{self.steps} steps are none, or more than are ever sent")

    @property
    def domain(self) -> Any:
        """That of the noise."""
        return self.of.domain

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what was sent, such as ``y1(0)``."""
        return tuple(f"{name}({t})" for t in self._times for name in self.of.step_names)

    @property
    def _times(self) -> range:
        return range(0, self.steps * self.sent.every, self.sent.every)

    @property
    def coordinates(self) -> int:
        """How many numbers are drawn."""
        return int(self.loadings(np.zeros((0, len(self.names)))).shape[1])

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Refuse: what was sent promises what the mechanism does."""
        raise AffineDPError("ask the mechanism of the gateway what it promises")

    def scaled(self, factor: float) -> Strategy:
        """Refuse: it was sent."""
        raise AffineDPError("noise that was sent stays as it is")

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise combinations are made: that over time, and what is fresh."""
        outputs, times = len(self.of.step_names), self._times
        given = np.eye(len(self.names)) if combinations is None else dense(combinations)
        check_steps(float(len(given)) * times[-1] * outputs)
        places = np.arange(outputs) + outputs * np.array(times)[:, None]
        wide = np.zeros((len(given), outputs * (times[-1] + 1)))
        wide[:, places.ravel()] = given
        rows = dense(self.of.shortened(times[-1] + 1).loadings(wide))
        scales = np.tile(np.sqrt(np.array(self.sent.added) / self.fresh.variance), self.steps)
        return np.hstack([self.sent.factor * rows, given * scales])

    @property
    def by_step(self) -> tuple[int, int]:
        """How many outputs were sent, and how many each has."""
        return self.steps, len(self.of.step_names)


@dataclass(frozen=True, eq=False)
class WithFresh(Law):
    """Noise of one law on the first coordinates, and Laplace noise on the others."""

    kind = "with fresh"
    words, theorem = "K-norm and fresh Laplace", "the triangle inequality"
    first: Law
    own: int

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ η``."""
        rest = Laplace().variances(rows[:, self.own :])
        return np.asarray(self.first.variances(rows[:, : self.own]) + rest)

    def covariance(self, rows: Matrix) -> FloatArray:
        """Return the covariance of ``rows @ η``."""
        rest = Laplace().covariance(rows[:, self.own :])
        return np.asarray(self.first.covariance(rows[:, : self.own]) + rest)

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw η for simulation, shape (size, p)."""
        first = self.first.sample(generator, size, self.own)
        return np.hstack([first, Laplace().sample(generator, size, p - self.own)])


def sent_outputs(of: Causal, law: Law, sent: Sent | None, y: Any) -> tuple[SentOutputs, Law]:
    """Return the noise of outputs that were sent, one row per step, and its law."""
    if sent is None:
        raise AffineDPError(
            "a gateway adds noise that hides the steps of sensors: ask its own mechanism about "
            "what it sent (gateway.mechanism), or design the noise with resolution="
        )
    given, count = released_numbers(y), len(of.step_names)
    if given.ndim < 2 or given.shape[-1] != count:
        raise AffineDPError(
            f"y has shape {given.shape}: give one row for each step that was sent, from the first "
            f"on, with {count} outputs each"
        )
    fresh: Law = Gaussian() if type(law) is Gaussian else Laplace()
    made = SentOutputs(of, given.shape[-2], sent, fresh)
    if type(law) is type(fresh):
        return made, law
    return made, WithFresh(law, made.coordinates - len(made.names))


class Path:
    """How the integers of the noise go from step to step.

    It holds nothing secret: the integers are given to it and returned by it.

    Examples
    --------
    >>> one, half = (RationalMatrix.of(np.array([[value]])) for value in (1.0, 0.5))
    >>> none = RationalMatrix.zeros(1, 0)
    >>> path = Path(System(lambda t: half, none, lambda t: one, none, one, 3), bits=8)
    >>> memory = path.begin([6], draw_bits=0)                       # γ(0) = 6
    >>> memory = path.advance(0, memory, (), draw_bits=0)           # γ(1) = 3
    >>> path.row(1, memory, (), draw_bits=0, exponents=[-1])        # in halves
    (6,)
    """

    def __init__(self, system: System, bits: int) -> None:
        self._system, self._bits = system, bits
        self._B, self._D = _Rows.of(system.B), _Rows.of(system.D)
        self._start = _Rows.of(system.start)
        self._known: dict[str, tuple[RationalMatrix, _Rows]] = {}

    @property
    def once(self) -> int:
        """How many numbers are drawn once."""
        return self._system.start.shape[1]

    @property
    def each(self) -> int:
        """How many numbers are drawn at every step."""
        return self._system.D.shape[1]

    def begin(self, drawn: Sequence[int], draw_bits: int) -> tuple[int, ...]:
        """Return ξ(0)."""
        exponent = self._bits - draw_bits - self._start.bits
        return tuple(_rounded(v, exponent, self._start.odd) for v in self._start.times(drawn))

    def advance(
        self, step: int, memory: Sequence[int], drawn: Sequence[int], draw_bits: int
    ) -> tuple[int, ...]:
        """Return ξ(step + 1), up to the last step."""
        if step + 1 >= self._system.horizon:
            return tuple(memory)
        state = self._at("A", self._system.A(step))
        return self._sums(state, memory, self._B, drawn, draw_bits, [-self._bits] * len(memory))

    def row(
        self,
        step: int,
        memory: Sequence[int],
        drawn: Sequence[int],
        draw_bits: int,
        exponents: Sequence[int],
    ) -> tuple[int, ...]:
        """Return γ(step), entry i in units of ``2**exponents[i]``."""
        output = self._at("C", self._system.C(step))
        return self._sums(output, memory, self._D, drawn, draw_bits, exponents)

    def _at(self, name: str, matrix: RationalMatrix) -> _Rows:
        """The rows of a matrix, made anew only where it changed."""
        known = self._known.get(name)
        if known is None or known[0] is not matrix:
            known = self._known[name] = matrix, _Rows.of(matrix)
        return known[1]

    def _sums(
        self,
        left: _Rows,
        memory: Sequence[int],
        right: _Rows,
        drawn: Sequence[int],
        draw_bits: int,
        exponents: Sequence[int],
    ) -> tuple[int, ...]:
        """Products with what is remembered and with what is drawn: added exactly, rounded once."""
        fine = -self._bits - left.bits
        if not drawn:
            return tuple(
                _rounded(value, fine - exponent, left.odd)
                for value, exponent in zip(left.times(memory), exponents)
            )
        coarse = -draw_bits - right.bits
        low, odd = min(fine, coarse), left.odd * right.odd
        return tuple(
            _rounded(
                ((a * right.odd) << (fine - low)) + ((b * left.odd) << (coarse - low)),
                low - exponent,
                odd,
            )
            for a, b, exponent in zip(left.times(memory), right.times(drawn), exponents)
        )


@dataclass(frozen=True)
class _Rows:
    """A matrix as the nonzero integers of its rows, over ``2**bits * odd``."""

    rows: tuple[tuple[tuple[int, int], ...], ...]
    bits: int
    odd: int

    @classmethod
    def of(cls, matrix: RationalMatrix) -> _Rows:
        bits = (matrix.over & -matrix.over).bit_length() - 1
        rows = tuple(
            tuple((j, int(value)) for j, value in enumerate(row) if value)
            for row in matrix.values.tolist()
        )
        return cls(rows, bits, matrix.over >> bits)

    def times(self, numbers: Sequence[int]) -> list[int]:
        """Return the matrix times numbers, without what it is over."""
        return [sum([entry * numbers[j] for j, entry in row]) for row in self.rows]


def _rounded(value: int, exponent: int, odd: int) -> int:
    """``value * 2**exponent / odd`` rounded to the nearest integer, halves upwards."""
    if odd == 1:
        return rounded(value, exponent)
    if exponent >= 0:
        return ((value << (exponent + 1)) + odd) // (2 * odd)
    below = odd << -exponent
    return (2 * value + below) // (2 * below)


def rounded(value: int, exponent: int) -> int:
    """Return ``value * 2**exponent`` rounded to the nearest integer, halves upwards.

    Examples
    --------
    >>> rounded(7, -1), rounded(-7, -1), rounded(3, 2)
    (4, -3, 12)
    """
    if exponent >= 0:
        return value << exponent
    return (value + (1 << (-exponent - 1))) >> -exponent


def check_steps(numbers: float) -> None:
    """Refuse to list more numbers than fit in memory."""
    if numbers > MOST_NUMBERS:
        raise AffineDPError(f"{numbers:.1e} numbers do not fit in memory: ask for fewer steps")


def constant(matrix: RationalMatrix) -> Callable[[int], RationalMatrix]:
    """Return the matrix of every step of a system that does not change."""
    return partial(_same, matrix)  # which can be sent to other processes


def _same(matrix: RationalMatrix, step: int) -> RationalMatrix:
    return matrix
