"""Least squares over records that agents keep to themselves.

Each agent adds noise to the sums of its own records, once.  The noisy sums are averaged over the
network, and every agent solves the normal equations of the average.  Nothing after the noise
touches a record, so all messages together promise what the one release of the sums does.

A record r = (1, features, target), each brought to [−1, 1], adds r rᵀ: the numbers r_a² and
√2 r_a r_b, whose 2-norm is ‖r‖².  Records longer than ``norm`` are shortened to it.  Every record
is rounded to a grid *by itself* before anything is added, so that the sums of neighbours differ
by the integers of one record, exactly.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix
from affinedp.budget.ledger import Ledger
from affinedp.consensus.eigenvalues import check_convergence, spectrum_of
from affinedp.consensus.error_curves import shrinking_steps
from affinedp.consensus.graph import Weights, network_of
from affinedp.domains.base import Domain
from affinedp.domains.reading import Wrap
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import generator_of, is_number, real_array, real_number, whole_number
from affinedp.laws.base import Law
from affinedp.laws.calibration import gaussian_sigma
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.privacy.design import Design
from affinedp.privacy.guarantee import Asked, Guarantee
from affinedp.strategies.base import CountsPlan, Largest, Prepared, Promised, Strategy

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
# Differences between the agents after averaging, as a share of what they were.
AGREED = 1e-9
MOST_ROUNDS = 100_000


@dataclass(frozen=True, eq=False)
class Moments(Domain):
    """Records, of which only sums are looked at."""

    kind = "moments"
    ranges: Mapping[str, tuple[float, float]]  # public: between which values every column lies
    norm: float  # records are shortened to this length

    def __post_init__(self) -> None:
        if len(self.ranges) < 2:
            raise AffineDPError("give the ranges of the target and of at least one feature")
        if len(self.ranges) > MOST_COLUMNS:
            raise AffineDPError(f"there are {len(self.ranges)} columns, at most {MOST_COLUMNS} fit")
        for name, pair in self.ranges.items():
            ends = real_array(pair, f"the range of {name!r}", 1)
            if len(ends) != 2 or not ends[0] < ends[1]:
                raise AffineDPError(f"the range of {name!r} must be (low, high), not {pair!r}")
            low, high = ends.tolist()
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
    """One record of one agent joins or leaves, or changes."""

    kind = "one record"
    domain: Moments
    change: bool = False  # one that leaves and one that joins

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
    """All sums of an agent, each with noise of the same size."""

    kind = "noisy sums"
    domain: Moments
    scale: int  # in grid steps

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
        return _Sums(self, law)


@dataclass(frozen=True, eq=False)
class _Sums(CountsPlan):
    """Integer sums with integer noise."""

    @property
    def unit(self) -> int:
        """The scale of the noise, in grid steps."""
        return int(self.strategy.scale)

    def steps(self, data: Any) -> NDArray[Any]:
        """Return the sums in grid steps."""
        return np.asarray(data.T)

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

    def cut(item: Any) -> Any:
        whole = is_number(item) and isinstance(item, numbers.Integral)
        return float(min(max(int(item), least), most)) if whole else item

    return np.frompyfunc(cut, 1, 1)(array)


@dataclass(frozen=True, eq=False)
class Learned:
    """What the agents know at the end: public.

    Attributes
    ----------
    coefficients : array, shape (agents, 1 + features)
        Intercept and slopes of every agent, in the units of the columns.
    features : tuple of str
        The columns of the slopes.
    rounds : int
        How many rounds of averaging.
    """

    coefficients: FloatArray
    features: tuple[str, ...]
    rounds: int

    def predict(self, data: Any, agent: int = 0) -> FloatArray:
        """Return predictions of the target.

        Parameters
        ----------
        data : mapping of str to array_like, or pandas DataFrame
            The features, by name.
        agent : int
            Whose coefficients.
        """
        columns = np.column_stack([np.asarray(data[name], dtype=float) for name in self.features])
        return np.asarray(self.coefficients[agent, 0] + columns @ self.coefficients[agent, 1:])


class PrivateRegression:
    """Agents that fit one linear model to the records of all, and show none of them.

    Parameters
    ----------
    graph : networkx.Graph, sparse matrix or array
        The network, as for :class:`PrivateConsensus`.
    ranges : dict of str to (float, float)
        Public: between which values every column lies; what is beyond is cut.  The last is the
        target.
    epsilon, delta : float
        The promise to every record of every agent.
    adjacency : {"join", "replace"}
        A record joins or leaves, or changes.
    norm : float, optional
        Records are shortened to this length, where the constant and each column count up to 1.
        By default none is; a smaller norm costs some bias and less noise.
    ridge : float, optional
        Added to the diagonal of the normal equations; by default the size of the noise in them.
    weights : {"metropolis", "uniform"} or float, optional
        As for :class:`PrivateConsensus`.

    Examples
    --------
    >>> import networkx as nx
    >>> learning = PrivateRegression(nx.cycle_graph(3), {"x": (0, 1), "y": (0, 10)}, 1.0, 1e-6)
    >>> learning.guarantee.holds(1.0, 1e-6), learning.guarantee.unit
    (True, 'one record of one agent')
    >>> x = np.linspace(0, 1, 5000)
    >>> learned = learning.simulate([{"x": x, "y": 2 + 5 * x}] * 3, seed=1)
    >>> learned.coefficients.round(1).tolist()[0]
    [2.0, 5.0]
    """

    def __init__(
        self,
        graph: Any,
        ranges: Mapping[str, tuple[float, float]],
        epsilon: float,
        delta: float,
        *,
        adjacency: Literal["join", "replace"] = "join",
        norm: float | None = None,
        ridge: float | None = None,
        weights: Weights = None,
    ) -> None:
        self.network = network_of(graph, weights)
        self.network.check_connected()
        check_convergence(self.network)
        if adjacency not in ("join", "replace"):
            raise AffineDPError(f"adjacency must be 'join' or 'replace', not {adjacency!r}")
        if not isinstance(ranges, Mapping):
            raise AffineDPError("ranges maps the name of every column to (low, high)")
        kept: dict[str, Any] = {
            str(name): tuple(real_array(pair, f"the range of {name!r}").ravel().tolist())
            for name, pair in ranges.items()
        }
        if len(kept) < len(ranges):
            raise AffineDPError("two columns of ranges have the same name")
        self._ridge = None if ridge is None else real_number(ridge, "ridge", 0.0)
        longest = math.sqrt(len(kept) + 1) if norm is None else real_number(norm, "norm")
        self.moments = Moments(kept, longest)
        change = adjacency == "replace"
        epsilon, delta = real_number(epsilon, "epsilon"), real_number(delta, "delta")
        sigma = Fraction(float(gaussian_sigma(epsilon, delta)))
        scale = math.ceil(sigma * self.moments.sensitivity(change) * (1 + SHARE))
        self._noise = NoisySums(self.moments, scale)
        asked = Design(asked=Asked(epsilon, delta))
        #: The one release of every agent: its noisy sums.
        self.mechanism = Mechanism(
            OneRecord(self.moments, change), self._noise, Gaussian(), design=asked
        )

    def __repr__(self) -> str:
        return f"PrivateRegression(agents={self.network.n}, features={self.features!r})"

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that predict."""
        return tuple(self.moments.ranges)[:-1]

    @property
    def sigma(self) -> float:
        """The noise of each agent on each sum, in units of the records."""
        return self._noise.sigma

    @property
    def guarantee(self) -> Guarantee:
        """What all messages together promise to every record, however long they are averaged."""
        return self.mechanism.guarantee

    def release(
        self, data: Any, *, ledger: Ledger | None = None, label: str | None = None
    ) -> FloatArray:
        """Return the noisy sums of one agent, to be sent to everyone: a release, made once.

        A record with a missing or infinite value is refused, with all others of the agent; leave
        it out or fill it first.  An agent without records releases noise as all others do.

        Parameters
        ----------
        data : mapping of str to array_like, or pandas DataFrame
            The agent's records.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger.
        """
        return np.asarray(self.mechanism.release(data, ledger=ledger, label=label))

    def learn(self, released: Sequence[FloatArray], rounds: int | None = None) -> Learned:
        """Average released sums over the network, and solve at every agent.

        Parameters
        ----------
        released : sequence of arrays
            One for each agent, in the order of the network.
        rounds : int, optional
            Rounds of averaging; by default as many as bring all agents together.
        """
        messages = real_array(np.array(released), "what was released")
        if messages.shape != (self.network.n, self.moments.numbers):
            raise AffineDPError(
                f"there must be {self.moments.numbers} sums for each of {self.network.n} agents, "
                f"not {messages.shape}"
            )
        count = self._rounds() if rounds is None else whole_number(rounds, "rounds", 0)
        for _ in range(count):
            messages = self.network.transition @ messages
        slopes = np.array([self._solve(row) for row in self.network.n * messages])
        return Learned(self.moments.in_units(slopes), self.features, count)

    def simulate(
        self,
        parts: Sequence[Any],
        seed: int | np.random.Generator | None = None,
        *,
        curator: Literal["agents", "central"] = "agents",
    ) -> Learned:
        """Return what would be learned, with noise that is good for studies and not for secrets.

        Parameters
        ----------
        parts : sequence of mappings or DataFrames
            The records of each agent.
        seed : int or Generator, optional
            Where the noise comes from.
        curator : {"agents", "central"}
            Whether each agent adds noise, or somebody whom all trust adds it once to the total.
        """
        if len(parts) != self.network.n:
            raise AffineDPError(f"there are {self.network.n} agents, but {len(parts)} parts")
        generator = generator_of(seed)
        steps = np.array([self.moments.sums(part) for part in parts])
        sums = np.ldexp(steps.astype(np.float64), -GRID_BITS)
        if curator == "agents":
            return self.learn(list(sums + self.sigma * generator.normal(size=sums.shape)))
        if curator != "central":
            raise AffineDPError(f"curator must be 'agents' or 'central', not {curator!r}")
        total = sums.sum(axis=0) + self.sigma * generator.normal(size=sums.shape[1])
        slopes = self._solve(total, noises=1)[None]
        return Learned(self.moments.in_units(slopes), self.features, 0)

    def _rounds(self) -> int:
        needed = shrinking_steps(spectrum_of(self.network).alpha, AGREED)
        if needed > MOST_ROUNDS:
            raise AffineDPError(f"{needed:,} rounds would be needed: add links, or give rounds")
        return max(needed, 1)

    def _solve(self, total: FloatArray, noises: int | None = None) -> FloatArray:
        """Least squares from noisy sums: negative eigenvalues are noise, and are set to 0."""
        matrix = self.moments.matrix(total)
        deviation = self.sigma * math.sqrt(self.network.n if noises is None else noises)
        ridge = deviation * math.sqrt(self.moments.size) if self._ridge is None else self._ridge
        values, vectors = np.linalg.eigh(matrix[:-1, :-1])
        return np.asarray(
            vectors @ ((vectors.T @ matrix[:-1, -1]) / (np.maximum(values, 0.0) + ridge))
        )
