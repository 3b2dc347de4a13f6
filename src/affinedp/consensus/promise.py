"""The noise of the agents, and what their messages promise (Theorem 4 of the paper).

Agent i adds its one draw γ_i = σ_i η_i to every message.  Given the messages, x_i(t+1) − x_i(t) is
a sum of public numbers, so the equations of agent i tie its states to each other with coefficients
±1.  Their only circuit moves the whole trajectory by the same amount, at most μ_i, and one draw
covers it: the sensitivity is μ_i/σ_i, whatever the running time, the weights or the other agents.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.consensus.network import Network, NetworkError, listed
from affinedp.errors import AffineDPError
from affinedp.laws.calibration import gaussian_sigma
from affinedp.laws.curves import Curve, GaussianCurve, LaplaceCurve, NoPromise
from affinedp.laws.named import LawName
from affinedp.neighbours.adjacency import mu_words
from affinedp.parts import digest
from affinedp.promise.asked import Asked
from affinedp.promise.guarantee import Guarantee

PerAgent = float | ArrayLike | Mapping[Any, float]

# What moves between neighbours, whoever states the promise: the simulation, or the agent itself.
AGENT_UNIT = "the value of one agent"
KEEP_PRIVATE = (
    "the promise covers messages only: a state or corrected read-out beside them reveals the noise"
)


@dataclass(frozen=True, eq=False)
class Noise:
    """One draw per agent, and whom it protects."""

    law: LawName
    sigma: FloatArray = field(repr=False)
    mu: FloatArray = field(repr=False)
    epsilon: FloatArray | None = field(repr=False)
    delta: float

    @property
    def variance(self) -> float:
        """Variance of η_i: 1 for Gaussian, 2 for Laplace noise."""
        return 1.0 if self.law == "gaussian" else 2.0

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
        size = (runs, len(self.sigma))
        if self.law == "gaussian":
            return self.sigma * generator.normal(size=size)
        return self.sigma * generator.laplace(size=size)

    def sensitivities(self) -> FloatArray:
        """μ_i/σ_i, rounded up; 0 where nothing moves, infinite where there is no noise."""
        moving = self.mu > 0
        found = np.where(moving, np.inf, 0.0)
        noisy = moving & (self.sigma > 0)
        found[noisy] = divide_up(self.mu[noisy], self.sigma[noisy])
        return found


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
    if isinstance(delta, bool) or not isinstance(delta, numbers.Real):
        raise AffineDPError(f"delta must be a number, not {delta!r}")
    steps = _not_negative(network, mu, "mu")
    if not steps.any():
        raise AffineDPError("mu is 0 for every agent: then there is nothing to protect")
    if law == "auto":
        if sigma is not None:
            raise AffineDPError("law='auto' chooses by epsilon and delta: with sigma, name the law")
        pure = noise_for(network, "laplace", epsilon, 0.0, mu, None)
        if not 0 < delta < 1:
            return noise_for(network, "laplace", epsilon, delta, mu, None)
        other = noise_for(network, "gaussian", epsilon, delta, mu, None)
        return pure if pure.total_variance <= other.total_variance else other
    kind: LawName = "gaussian" if law == "gaussian" else "laplace"
    if sigma is not None:
        if delta:
            raise AffineDPError("delta follows from sigma: ask guarantee.delta(epsilon) for it")
        given = _not_negative(network, sigma, "sigma")
        return Noise(kind, _read_only(given), _read_only(steps), None, 0.0)
    assert epsilon is not None
    wanted = _not_negative(network, epsilon, "epsilon")
    if kind == "gaussian":
        if not 0 < delta < 1:
            raise AffineDPError(f"Gaussian noise needs delta between 0 and 1, not {delta!r}")
        designed = np.asarray(gaussian_sigma(wanted, float(delta), steps))
    else:
        if delta:
            raise AffineDPError("Laplace noise is designed for delta = 0: leave delta out")
        zero = (wanted == 0) & (steps > 0)
        if zero.any():
            agents = [network.names[int(i)] for i in np.flatnonzero(zero)]
            raise NetworkError(
                f"epsilon is 0 for {listed(agents)}: no Laplace noise keeps it", agents
            )
        designed = np.zeros(network.n)
        moving = steps > 0
        designed[moving] = divide_up(steps[moving], wanted[moving])
    if not np.isfinite(designed).all():
        agents = [network.names[int(i)] for i in np.flatnonzero(~np.isfinite(designed))]
        raise NetworkError(f"epsilon is too small for {listed(agents)}: σ is infinite", agents)
    return Noise(kind, _read_only(designed), _read_only(steps), _read_only(wanted), float(delta))


class NoisyNetwork:
    """Agents that each add one draw: who they are, and what all that they send promises."""

    network: Network
    noise: Noise

    @property
    def n(self) -> int:
        """The number of agents."""
        return self.network.n

    @property
    def agents(self) -> Sequence[Hashable]:
        """The names of the agents; arrays are in this order."""
        return self.network.names

    @property
    def law(self) -> LawName:
        """The law of the noise."""
        return self.noise.law

    @property
    def sigma(self) -> FloatArray:
        """σ_i of each agent."""
        return self.noise.sigma

    @property
    def mu(self) -> FloatArray:
        """μ_i of each agent."""
        return self.noise.mu

    @cached_property
    def guarantee(self) -> Guarantee:
        """What all that is sent promises to every agent, however long it runs (Theorem 4)."""
        return self._stated(guarantee_of(self.noise, self.network))

    def agent_guarantee(self, agent: Hashable) -> Guarantee:
        """Return what all that is sent promises to one agent.

        Parameters
        ----------
        agent : hashable
            Its name.
        """
        return self._stated(agent_guarantee_of(self.noise, self.network, agent))

    def _stated(self, promise: Guarantee) -> Guarantee:
        """The promise in the words of the protocol."""
        return promise


def guarantee_of(noise: Noise, network: Network) -> Guarantee:
    """Return the promise to every agent: that of the agent with the least noise for its μ."""
    mu = noise.mu
    if np.all(mu == mu[0]):
        # the same for any number of agents: who else takes part does not matter
        key = digest("consensus: the trajectory of one agent", mu[:1])
    else:
        order = sorted(range(network.n), key=lambda i: repr(network.names[i]))
        names = "\n".join(repr(network.names[i]) for i in order)
        key = digest("consensus: the trajectory of one agent", mu[order], names)
    words = f"Definition 4: the trajectory of one agent moves by at most {mu_words(mu)}"
    found = _guarantee(noise, network, int(np.argmax(noise.sensitivities())), words, key)
    wanted = noise.epsilon
    if wanted is None or np.any(wanted != wanted[0]):
        return found
    return found.asked_for(Asked(float(wanted[0]), float(noise.delta)))


def agent_guarantee_of(noise: Noise, network: Network, agent: Hashable) -> Guarantee:
    """Return the promise to one agent."""
    place = network.position(agent)
    words, key = neighbours_of_agent(network.names[place], float(noise.mu[place]))
    found = _guarantee(noise, network, place, words, key)
    if noise.epsilon is None:
        return found
    return found.asked_for(Asked(float(noise.epsilon[place]), float(noise.delta)))


def neighbours_of_agent(name: Hashable, mu: float) -> tuple[str, str]:
    """Return what moves between neighbours in the promise to one agent, in words and as a key.

    The simulation and the agent as a process say the same.

    >>> neighbours_of_agent(3, 10.0)[0]
    "Definition 4: the trajectory of agent '3' moves by at most μ = 10"
    """
    words = f"Definition 4: the trajectory of agent {str(name)!r} moves by at most μ = {mu:g}"
    return words, digest("consensus: the trajectory of this agent", np.array([mu]), str(name))


def agent_basis(law: LawName) -> str:
    """Return what the promise about all messages of an agent rests on."""
    theorem = "Theorem 1" if law == "gaussian" else "Theorem 2"
    return f"Theorem 4 ({theorem} on x(t+1) = x(t) + u(t)), for any running time"


def _guarantee(noise: Noise, network: Network, place: int, words: str, key: str) -> Guarantee:
    """The promise along the trajectory of one agent."""
    s = float(noise.sensitivities()[place])
    name = network.names[place]
    theorem = "Theorem 1" if noise.law == "gaussian" else "Theorem 2"
    shared: dict[str, Any] = {"law": noise.law, "exact": True, "neighbours": words}
    shared |= {"neighbours_key": key, "unit": AGENT_UNIT}
    shared["output_names"] = (f"the message of agent {name!r}",)
    if math.isinf(s):
        return Guarantee(
            sensitivity=s,
            basis=f"{theorem}: agent {name!r} sends its state without noise",
            curve=NoPromise(),
            leak=np.ones(1),
            **shared,
        )
    curve: Curve = (
        GaussianCurve(s) if noise.law == "gaussian" else LaplaceCurve(s, np.full((1, 1), s))
    )
    return Guarantee(
        sensitivity=s,
        basis=agent_basis(noise.law),
        curve=curve,
        worst_direction=noise.mu[place : place + 1].copy(),
        names=(f"every state of agent {name!r}",),
        method="one circuit per agent, closed form",
        warnings=(KEEP_PRIVATE,),
        **shared,
    )


def divide_up(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Return the least doubles that are at least ``top/bottom``, for positive numbers.

    >>> from fractions import Fraction
    >>> up = divide_up(np.array([1.0]), np.array([3.0]))[0]
    >>> Fraction(1 / 3) < Fraction(1, 3) < Fraction(up)
    True
    """
    a, a_exponent = np.frexp(top)
    b, b_exponent = np.frexp(bottom)
    q = a / b
    # q b − a without rounding: Dekker's product, and Sterbenz' difference
    product = q * b
    q_high, q_low = _split(q)
    b_high, b_low = _split(b)
    rounding = ((q_high * b_high - product) + q_high * b_low + q_low * b_high) + q_low * b_low
    q = np.where((product - a) + rounding < 0, np.nextafter(q, np.inf), q)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(q, a_exponent - b_exponent)
    # below the normal numbers the scaling itself rounds
    tiny = result < np.finfo(np.float64).tiny
    return np.asarray(np.where(tiny, np.finfo(np.float64).tiny, result))


def _split(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Veltkamp's split into two halves of at most 26 bits."""
    wide = 134217729.0 * x
    high = wide - (wide - x)
    return high, x - high


def _not_negative(network: Network, given: PerAgent, what: str) -> FloatArray:
    values = network.values(given, what)
    bad = np.flatnonzero(values < 0)
    if len(bad):
        agents = [network.names[int(i)] for i in bad]
        raise NetworkError(f"{what} is negative for {listed(agents)}", agents)
    return values


def _read_only(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array
