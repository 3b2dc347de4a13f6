"""The noise of the agents, and what their messages promise (Theorem 4 of the paper).

Agent i adds its one draw γ_i = σ_i η_i to every message.  Given the messages, x_i(t+1) − x_i(t) is
a sum of public numbers, so the equations of agent i tie its states to each other with coefficients
±1.  Their only circuit moves the whole trajectory by the same amount, at most μ_i, and one draw
covers it: the sensitivity is μ_i/σ_i, whatever the running time, the weights or the other agents.
So the promise about a whole run is that of a mechanism that releases one number once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix
from affinedp.consensus.graph import Network, listed
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import check_squares, real_number, rounded_up
from affinedp.exact.rounding import two_products
from affinedp.laws.base import Law, LawName, Moves, law_named
from affinedp.laws.calibration import gaussian_sigma
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Laplace
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import LISTED, Adjacency, Columns
from affinedp.parts import Locked
from affinedp.privacy.design import Design
from affinedp.privacy.guarantee import Asked
from affinedp.strategies.base import SHARE, Largest, Prepared, Promised, Strategy
from affinedp.strategies.dense import Dense

PerAgent = float | ArrayLike | Mapping[Any, float]
Protocol = Literal["consensus", "push-sum"]

VALUE = AffineManifold(np.zeros((0, 1)), names=["value"])
# What the promise rests on besides the theorem of the law, and what a careful reader should know.
BECAUSE: Mapping[str, str] = {
    "consensus": " on x(t+1) = x(t) + u(t) (Theorem 4), for any running time",
    "push-sum": " on y = x + γ; all that is sent is post-processing of y, for any time",
}
WARNINGS: Mapping[str, tuple[str, ...]] = {
    "consensus": (
        "the promise covers messages only: a state or corrected read-out beside them reveals the "
        "noise",
    ),
    "push-sum": (
        "which links exist, how parts are shared and which messages are lost must not depend on "
        "private values or draws; masses must start at 1",
        "a corrected read-out must stay with its agent: it reveals the draw",
    ),
}


@dataclass(frozen=True, eq=False)
class OneAgent(Adjacency):
    """The trajectory of one agent moves: its value, and all that follows from it (Definition 4)."""

    kind = "one agent"
    mu: float
    agent: str | None = None  # None for whichever agent it is
    # where μ differs, and the promise is to all: the least and the largest, a digest of all agents
    among: tuple[float, float, str] | None = None

    domain: ClassVar[AffineManifold] = VALUE  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise AffineDPError(f"mu must be finite and not negative, not {self.mu!r}")

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        whose = "one agent" if self.agent is None else f"agent {self.agent!r}"
        how_far = f"μ = {self.mu:g}"
        if self.among is not None:
            how_far = f"its μ (from {self.among[0]:g} to {self.among[1]:g})"
        return f"Definition 4: the trajectory of {whose} moves by at most {how_far}"

    @property
    def unit(self) -> str:
        """What moves, whoever states the promise: the simulation, or the agent itself."""
        return "the value of one agent"

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Yield the one move."""
        exact = {0: Fraction(self.mu)} if self.mu else {}
        yield Columns(np.array([[self.mu]]), np.zeros((1, 1)), lambda k: exact)


@dataclass(frozen=True, eq=False)
class OneDraw(Strategy):
    """One number with one draw, of which all that an agent sends is a function."""

    kind = "one draw"
    sigma: float
    agent: str = ""
    protocol: Protocol = "consensus"

    domain: ClassVar[AffineManifold] = VALUE  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < math.inf:
            raise AffineDPError(f"sigma must be finite and not negative, not {self.sigma!r}")

    @property
    def names(self) -> tuple[str, ...]:
        """What is published."""
        return (f"the message of agent {self.agent}" if self.agent else "value",)

    @property
    def coordinates(self) -> int:
        """One."""
        return 1

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return moves in units of σ."""
        with np.errstate(over="ignore"):
            return np.asarray(moves / self.sigma)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return μ/σ, exactly."""
        if type(adjacency) is not OneAgent or type(law) not in (Gaussian, Laplace):
            return super().largest(adjacency, law)
        said: dict[str, Any] = {"because": BECAUSE[self.protocol]}
        mu, direction = Fraction(adjacency.mu), np.array([adjacency.mu])
        if mu == 0:
            return Largest(0.0, 0.0, True, "nothing moves", direction, **said)
        if self.sigma == 0:
            said["leak"] = np.ones(1)
            return Largest(math.inf, math.inf, True, "sent without noise", direction, **said)
        found = mu / Fraction(self.sigma)
        whose = f"the one circuit of agent {self.agent}" if self.agent else "one circuit"
        return Largest(
            found, found, True, f"{whose}, closed form", direction,
            warnings=WARNINGS[self.protocol], moves=Moves(np.full((1, 1), rounded_up(found))),
            **said,
        )  # fmt: skip

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return combinations of the one output in units of η."""
        rows = np.eye(1) if combinations is None else combinations
        return np.asarray(rows * self.sigma)

    def scaled(self, factor: float) -> OneDraw:
        """Return the same with a larger draw."""
        return replace(self, sigma=self.sigma * factor)

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases: those of one number with independent noise."""
        if law.norm == 2:
            check_squares(np.array([self.sigma]), "the noise is", "the value and of mu")
        one = Dense(VALUE, np.eye(1), np.array([[self.sigma]]), self.names)
        return one.prepare(adjacency, law, promised, bound)


@dataclass(frozen=True, eq=False)
class AverageOfAll(Strategy):
    """The average of what all agents drew once: what their messages come to, and keep."""

    kind = "average of agents"
    draw: OneDraw  # of the agent with the least noise, which decides the promise
    sigma: FloatArray

    domain: ClassVar[AffineManifold] = VALUE  # type: ignore[misc]
    names: ClassVar[tuple[str, ...]] = ("average",)  # type: ignore[misc]

    def __post_init__(self) -> None:
        if np.ndim(self.sigma) != 1 or self.draw.sigma not in self.sigma:
            raise AffineDPError("the draw that decides must be that of one of the agents")

    @property
    def coordinates(self) -> int:
        """One for each agent."""
        return len(self.sigma)

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return moves of one agent in units of its draw."""
        return self.draw.measure(moves, absolute)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return what all messages promise: the average is made of them."""
        return self.draw.largest(adjacency, law)

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return the average in units of η."""
        rows = np.eye(1) if combinations is None else np.asarray(combinations)
        return np.asarray(rows * (self.sigma / self.coordinates))

    def scaled(self, factor: float) -> AverageOfAll:
        """Return the same with larger draws."""
        return replace(self, draw=self.draw.scaled(factor), sigma=self.sigma * factor)

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return how much larger the draws of agents are: they release, this does not."""
        if bound is not None:
            raise AffineDPError("a bound belongs to one agent: give it to PrivateConsensus.agent")
        return _OfAgents()


@dataclass(frozen=True)
class _OfAgents(Prepared):
    """No release: agents draw, each for itself."""

    # at least what the grid adds to the draw of any agent without a bound
    factor: float = 1 + 4 * SHARE
    bound: float | None = None

    def check(self, data: Any = None) -> None:
        """Refuse to release."""
        raise AffineDPError(
            "agents publish, each for itself: PrivateConsensus.agent draws its noise once"
        )

    noise = size = property(check)
    steps = shared = reconstruct = check  # type: ignore[assignment]


def agent_mechanism(
    law: str,
    sigma: float,
    adjacency: OneAgent,
    promised: tuple[float, float] | None,
    agent: str,
    protocol: Protocol = "consensus",
) -> Mechanism:
    """Return the mechanism that releases the value of one agent: all that its messages say."""
    asked = None if promised is None else Asked(float(promised[0]), float(promised[1]))
    strategy = OneDraw(float(sigma), agent, protocol)
    return Mechanism(adjacency, strategy, law_named(law)(), design=Design(asked=asked))


def least_sigma(law: str, epsilon: FloatArray, delta: float, mu: FloatArray) -> FloatArray:
    """Return the least σ for (ε, δ), rounded up; 0 where nothing moves."""
    if law == "gaussian":
        if not 0 < delta < 1:
            raise AffineDPError(f"Gaussian noise needs delta between 0 and 1, not {delta!r}")
        return np.asarray(gaussian_sigma(epsilon, delta, mu))
    if delta:
        raise AffineDPError("Laplace noise is designed for delta = 0: leave delta out")
    return quotients(mu, epsilon)


@dataclass(frozen=True)
class AgentNoise:
    """The noise that an agent asks for; what is None was not said.

    Parameters
    ----------
    law : {"gaussian", "laplace"}, optional
        The law of the draw; Gaussian by default.
    epsilon, delta : float, optional
        The promise to keep; δ for Gaussian noise only.
    mu : float, optional
        The promise is about values up to so far apart; 1 by default.
    sigma : float, optional
        The scale of the noise, in place of ε and δ: it is verified, not designed.
    bound : float, optional
        A public bound on the size of values.  With it, values that are further apart by the
        rounding of double precision are covered too.

    Examples
    --------
    >>> noise = AgentNoise(epsilon=1.0, delta=0.01)
    >>> noise.mechanism().guarantee.holds(1.0, 0.01), round(noise.scale, 6)
    (True, 1.877876)
    """

    law: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    sigma: float | None = None
    bound: float | None = None

    def __post_init__(self) -> None:
        if self.law not in (None, "gaussian", "laplace"):
            raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {self.law!r}")
        for name, value in self.given().items():
            if name != "law":
                positive = name in ("mu", "sigma", "bound")
                object.__setattr__(self, name, real_number(value, name, 0.0, positive=positive))

    def given(self) -> dict[str, Any]:
        """Return what was said, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def record(self) -> dict[str, Any]:
        """Return what is drawn with, the defaults filled in."""
        return {"law": "gaussian", "mu": 1.0, **self.given()}

    @property
    def scale(self) -> float:
        """σ: the draw is σ times N(0, 1), or L(0, 1), which has variance 2."""
        if self.sigma is not None:
            if self.epsilon is not None or self.delta is not None:
                raise AffineDPError("epsilon and delta follow from sigma: leave them out")
            return self.sigma
        if self.epsilon is None:
            raise AffineDPError("say which noise: epsilon (and delta), or sigma")
        record = self.record()
        epsilon, mu = np.array([self.epsilon]), np.array([record["mu"]])
        found = float(least_sigma(record["law"], epsilon, self.delta or 0.0, mu)[0])
        if not math.isfinite(found):
            raise AffineDPError("epsilon is too small: the noise would be infinite")
        return found

    def mechanism(self, agent: str | None = None) -> Mechanism:
        """Return the mechanism that releases one value; its promise is that of the protocol.

        Parameters
        ----------
        agent : str, optional
            Whose value it is; whichever agent's by default.
        """
        record = self.record()
        promised = None if self.epsilon is None else (self.epsilon, self.delta or 0.0)
        whose = OneAgent(record["mu"], agent)
        return agent_mechanism(record["law"], self.scale, whose, promised, agent or "")


@dataclass(frozen=True, eq=False)
class Noise(Locked):
    """One draw per agent, and whom it protects."""

    law: LawName
    sigma: FloatArray = field(repr=False)
    mu: FloatArray = field(repr=False)
    epsilon: FloatArray | None = field(repr=False)
    delta: float

    @property
    def variance(self) -> float:
        """Variance of η_i: 1 for Gaussian, 2 for Laplace noise."""
        return float(law_named(self.law)().variance)

    @property
    def total_variance(self) -> float:
        """Σ E γ_i²."""
        try:
            with np.errstate(over="ignore", under="ignore"):
                total = self.variance * math.fsum(self.sigma**2)
        except OverflowError:
            total = math.inf
        if not math.isfinite(total):
            raise AffineDPError(
                f"the noise is so large (σ up to {float(self.sigma.max()):g}) that its variance is "
                "beyond double precision: use another unit, such as thousands"
            )
        return total

    def draw(self, generator: np.random.Generator, runs: int) -> FloatArray:
        """Draw γ for simulations, shape (runs, n).  Never publish data with it."""
        drawn = law_named(self.law)().sample(generator, runs, len(self.sigma))
        return np.asarray(self.sigma * drawn)


def noise_for(
    network: Network,
    law: str,
    epsilon: PerAgent | None,
    delta: float,
    mu: PerAgent,
    sigma: PerAgent | None,
) -> Noise:
    """Return the least noise for (ε_i, δ), or the noise that was given."""
    if law not in ("gaussian", "laplace", "auto"):
        raise AffineDPError(f"law must be 'gaussian', 'laplace' or 'auto', not {law!r}")
    if (epsilon is None) == (sigma is None):
        raise AffineDPError("give epsilon (and delta) to design the noise, or sigma to verify it")
    delta = real_number(delta, "delta")
    steps = _not_negative(network, mu, "mu")
    if not steps.any():
        raise AffineDPError("mu is 0 for every agent: then there is nothing to protect")
    if sigma is not None:
        if law == "auto":
            raise AffineDPError("law='auto' chooses by epsilon and delta: with sigma, name the law")
        if delta:
            raise AffineDPError("delta follows from sigma: ask guarantee.delta(epsilon) for it")
        return _noise(law, _not_negative(network, sigma, "sigma"), steps, None, 0.0)
    wanted = _not_negative(network, epsilon, "epsilon")  # type: ignore[arg-type]

    def designed(law: str, delta: float) -> Noise:
        found = least_sigma(law, wanted, delta, steps)
        if not np.isfinite(found).all():
            agents = network.named(np.flatnonzero(~np.isfinite(found)))
            raise AffineDPError(f"epsilon is too small for {listed(agents)}: σ is infinite")
        return _noise(law, found, steps, wanted, delta)

    if law != "auto":
        return designed(law, delta)
    if not 0 < delta < 1:
        return designed("laplace", delta)
    pure, other = designed("laplace", 0.0), designed("gaussian", delta)
    return pure if pure.total_variance <= other.total_variance else other


def _noise(law: str, *arrays: Any) -> Noise:
    return Noise("gaussian" if law == "gaussian" else "laplace", *arrays)


def quotients(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """top/bottom, rounded up; 0 where the top is 0, infinite where the bottom alone is."""
    found = np.where(top > 0, np.inf, 0.0)
    finite = (top > 0) & (bottom > 0)
    found[finite] = divide_up(top[finite], bottom[finite])
    return found


def divide_up(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Return the least doubles that are at least ``top/bottom``, for positive numbers."""
    a, a_exponent = np.frexp(top)
    b, b_exponent = np.frexp(bottom)
    q = a / b
    product, rounding = two_products(q, b)  # q b − a without rounding: Sterbenz' difference
    q = np.where((product - a) + rounding < 0, np.nextafter(q, np.inf), q)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(q, a_exponent - b_exponent)
    # below the normal numbers the scaling itself rounds
    tiny = result < np.finfo(np.float64).tiny
    return np.asarray(np.where(tiny, np.finfo(np.float64).tiny, result))


def _not_negative(network: Network, given: PerAgent, what: str) -> FloatArray:
    values = network.values(given, what)
    if np.any(values < 0):
        agents = network.named(np.flatnonzero(values < 0))
        raise AffineDPError(f"{what} is negative for {listed(agents)}")
    return values
