"""Plain records of output noise: one draw for the whole horizon, or fresh noise at every step."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, dense
from affinedp.control.trajectory.neighbours import TrajectoryNeighbours
from affinedp.domains.dynamics import Dynamics, checked_horizon
from affinedp.domains.observability import output_blocks, output_gramian
from affinedp.domains.powers import scan_transitions
from affinedp.errors import AffineDPError
from affinedp.laws.knorm import KNorm
from affinedp.laws.named import LawName
from affinedp.privacy.guarantee import Guarantee
from affinedp.privacy.least_possible import LeastPossible
from affinedp.strategies.matrices import MOST_NUMBERS

# Over longer horizons squared errors are summed by doubling, and single times by powers.
MOST_LISTED = 100_000


@dataclass(frozen=True, eq=False)
class OutputNoise:
    """Noise γ(0), …, γ(T−1) on the outputs of a system, and what it promises.

    Attributes
    ----------
    neighbours : TrajectoryNeighbours
        Whom the guarantee is about; they know the dynamics.
    guarantee : Guarantee
        What is promised for the whole horizon.  Its worst direction is a difference of x(0).
    """

    neighbours: TrajectoryNeighbours = field(repr=False)
    guarantee: Guarantee

    def __post_init__(self) -> None:
        if not isinstance(self.neighbours, TrajectoryNeighbours):
            raise AffineDPError(f"neighbours must be those of a trajectory, not {self.neighbours}")
        if not isinstance(self.guarantee, Guarantee):
            raise AffineDPError(
                "noise without a guarantee is no mechanism: verify_output_noise says what noise "
                "that is given promises, and design_output_noise designs it"
            )
        if self.guarantee.neighbours_key != self.neighbours.key:
            raise AffineDPError("the guarantee is about other neighbours than these")

    @property
    def law(self) -> LawName:
        """Law of what is drawn, as the guarantee says: N(0, 1), L(0, 1), or K-norm."""
        laws: dict[str, LawName] = {"laplace": "laplace", "knorm": "knorm"}
        return laws.get(self.guarantee.law, "gaussian")

    @property
    def variance(self) -> float:
        """Variance of one draw: 1 for Gaussian, 2 for Laplace noise."""
        return 2.0 if self.law == "laplace" else 1.0

    def _drawn(self, shape: tuple[int, ...], seed: int | np.random.Generator | None) -> FloatArray:
        """Draws for simulation."""
        generator = np.random.default_rng(seed)
        if self.law == "laplace":
            return generator.laplace(0.0, 1.0, shape)
        return generator.standard_normal(shape)

    @property
    def dynamics(self) -> Dynamics:
        """The system and its horizon."""
        return self.neighbours.dynamics

    @property
    def horizon(self) -> int:
        """How many outputs are sent."""
        return self.dynamics.horizon

    @property
    def states(self) -> int:
        """How many entries x(t) has."""
        return self.dynamics.states

    @property
    def outputs(self) -> int:
        """How many entries y(t) has."""
        return self.dynamics.outputs

    @property
    def noise_by_time(self) -> FloatArray:
        """Standard deviation of γ(t), shape (horizon, outputs)."""
        raise NotImplementedError

    def noise_at(self, times: Sequence[int]) -> FloatArray:
        """Return the standard deviation of γ at some times, shape (times, outputs).

        Parameters
        ----------
        times : sequence of int
            Within the horizon.
        """
        return np.asarray(self.noise_by_time[list(times)])

    @property
    def expected_squared_error(self) -> float:
        """Expected squared error of all outputs of the horizon together."""
        return math.fsum((self.noise_by_time**2).ravel())

    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw noise for simulation, shape (size, horizon, outputs).  Never send data with it."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class OneDrawNoise(OutputNoise):
    """``γ(t) = C(t) A(t−1) … A(0) R η`` with one draw η for the whole horizon.

    All outputs together are then ``O (x(0) + R η)`` plus something public: however long someone
    listens, they learn one noisy initial state.

    Attributes
    ----------
    root : array, shape (n, r)
        R, the noise on x(0).
    gap : float or None
        Certified relative distance of the cost to the least possible.
    notes : tuple of str
        What a reader should know about the design.
    points : array, shape (n, p), or None
        For K-norm noise, points of the body of the noise on x(0), up to sign; ``root`` is then a
        root of its covariance.
    rate : float
        The rate of K-norm noise.
    least : LeastPossible or None
        What no mechanism that keeps the promise can go below, whatever its law and whether it
        waits for all outputs or not; None where it is not known, or where noise costs something
        else than the squared error of the outputs.
    """

    root: FloatArray = field(repr=False)
    gap: float | None = None
    notes: tuple[str, ...] = ()
    points: FloatArray | None = field(default=None, repr=False)
    rate: float = 1.0
    least: LeastPossible | None = field(default=None, repr=False)
    _made_of: tuple[Any, ...] | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.root.ndim != 2 or self.root.shape[0] != self.states:
            raise AffineDPError(
                f"root has shape {self.root.shape}, but x(0) has {self.states} entries"
            )
        self.root.flags.writeable = False
        if (self.law == "knorm") != (self.points is not None):
            raise AffineDPError("points go with K-norm noise, and it needs them")
        noise = (self.neighbours, self.root, self.points, self.rate)
        before = self._made_of
        if before is not None and (self.guarantee is before[1] or self.least is before[2]):
            same = (a == b if isinstance(a, float) else a is b for a, b in zip(noise, before[0]))
            if not all(same) and (self.guarantee is before[1] or self.least is not None):
                raise AffineDPError(
                    "this guarantee (or bound) is about other noise or other neighbours: it cannot "
                    "be kept when they are replaced. Design again"
                )
        object.__setattr__(self, "_made_of", (noise, self.guarantee, self.least))

    @property
    def lower_bound(self) -> float | None:
        """Squared error of all outputs that no mechanism of any law can go below, if it is known.

        ``least.sentence()`` says under which promise, and for which data.
        """
        return self.least.bound if self.least and self.least.bound > 0.0 else None

    @property
    def excess(self) -> float | None:
        """How many times ``lower_bound`` this noise costs, rounded up; None without one."""
        return self.least.excess if self.least and self.least.bound > 0.0 else None

    @cached_property
    def body(self) -> KNorm:
        """K-norm noise on the entries of x(0) that have noise."""
        return KNorm(self.body_points, self.rate)

    @property
    def body_points(self) -> FloatArray:
        """Points of the body on the entries of x(0) that have noise, up to sign."""
        if self.points is None:
            raise AffineDPError(f"{self.law} noise has no body")
        return np.asarray(self.points[self.noisy])

    @property
    def noisy(self) -> IntArray:
        """The entries of x(0) that have noise."""
        return np.flatnonzero(self.root.any(axis=1))

    def _drawn(self, shape: tuple[int, ...], seed: int | np.random.Generator | None) -> FloatArray:
        """η for simulation: for K-norm noise what makes the noise on x(0) of the root."""
        if self.points is None:
            return super()._drawn(shape, seed)
        drawn = self.body.sample(np.random.default_rng(seed), shape[0], self.body.size)
        return np.asarray(np.linalg.solve(self.root[self.noisy], drawn.T).T)

    def loadings(self, start: int = 0, stop: int | None = None) -> FloatArray:
        """Return Γ(t) with ``γ(t) = Γ(t) η`` for a range of times.

        Parameters
        ----------
        start, stop : int
            From and up to, but not including, these times; to the horizon by default.

        Returns
        -------
        array, shape (stop − start, outputs, r)
        """
        end = self.horizon if stop is None else stop
        if not all(isinstance(time, int | np.integer) for time in (start, end)):
            raise AffineDPError(f"times must be whole numbers, not {start!r} and {stop!r}")
        if not 0 <= start <= end <= self.horizon:
            raise AffineDPError(
                f"times must lie between 0 and {self.horizon}, not {start} to {end}"
            )
        rank = self.root.shape[1]
        if float(end - start) * self.outputs * rank > MOST_NUMBERS:
            raise AffineDPError(
                f"the noise of {end - start:,} steps does not fit in memory; ask for fewer"
            )
        found = np.empty((end - start, self.outputs, rank))
        if start == end:
            return found
        shorter = self.dynamics.shortened(end)

        def keep(first: int, block: FloatArray) -> None:
            skipped = max(0, start - first)
            if skipped < len(block):
                seen = output_blocks(shorter, first, block)[skipped:]
                place = first + skipped - start
                found[place : place + len(seen)] = seen @ self.root

        scan_transitions(shorter, keep, float(np.abs(self.root).max()))
        return found

    def noise_at(self, times: Sequence[int]) -> FloatArray:
        """Return the standard deviation of γ at some times, shape (times, outputs).

        Parameters
        ----------
        times : sequence of int
            Within the horizon.
        """
        if self.dynamics.time_varying or self.horizon <= MOST_LISTED:
            return super().noise_at(times)
        A, C = self.dynamics.A, self.dynamics.C
        found = [C @ np.linalg.matrix_power(A, int(t)) @ self.root for t in times]
        return np.asarray(np.linalg.norm(found, axis=2) * math.sqrt(self.variance))

    @property
    def expected_squared_error(self) -> float:
        """Expected squared error of all outputs of the horizon together."""
        if self.dynamics.time_varying or self.horizon <= MOST_LISTED:
            return super().expected_squared_error
        gramian = output_gramian(self.dynamics)
        return self.variance * float(np.trace(self.root.T @ gramian @ self.root))

    @cached_property
    def noise_by_time(self) -> FloatArray:
        """Standard deviation of γ(t), shape (horizon, outputs)."""
        _refuse_large(float(self.horizon) * self.outputs)
        deviations = np.empty((self.horizon, self.outputs))

        def keep(first: int, block: FloatArray) -> None:
            seen = output_blocks(self.dynamics, first, block) @ self.root
            deviations[first : first + len(block)] = np.linalg.norm(seen, axis=2)

        scan_transitions(self.dynamics, keep, float(np.abs(self.root).max()))
        return deviations * math.sqrt(self.variance)

    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw noise for simulation, shape (size, horizon, outputs).  Never send data with it.

        Parameters
        ----------
        size : int
            How many trajectories.
        seed : int, Generator or None
            Seed or generator; the same seed gives the same noise.

        Examples
        --------
        >>> from affinedp.control import design_output_noise
        >>> m = design_output_noise(([[1]], [[1]]), 50, epsilon=1.0, delta=0.01)
        >>> noise = m.sample(3, seed=0)
        >>> noise.shape, bool((noise[0] == noise[0, 0]).all())
        ((3, 50, 1), True)
        """
        count = checked_horizon(size)
        _refuse_large(float(count) * self.horizon * self.outputs)
        drawn = self._drawn((count, self.root.shape[1]), seed)
        return np.asarray(np.einsum("tmr,sr->stm", self.loadings(), drawn))

    @property
    def noise_matrix(self) -> FloatArray:
        """Λ of all outputs, shape (horizon · outputs, r); refused where it would not fit."""
        return self.loadings().reshape(-1, self.root.shape[1])

    @property
    def covariance(self) -> FloatArray:
        """Covariance of all outputs; refused where it would not fit in memory."""
        _refuse_large((float(self.horizon) * self.outputs) ** 2)
        noise = self.noise_matrix
        return np.asarray(self.variance * (noise @ noise.T))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is sent: dynamics, noise, neighbours."""
        digest = hashlib.sha256(f"{self.neighbours.key} {self.dynamics.key}".encode())
        if self.law != "gaussian":
            digest.update(self.law.encode())
        for part in (self.root,) if self.points is None else (self.points,):
            digest.update(repr(part.shape).encode() + np.ascontiguousarray(part).tobytes())
        if self.points is not None:
            digest.update(self.rate.hex().encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class FreshOutputNoise(OutputNoise):
    """Fresh noise of scale σ on every output at every step: the honest baseline.

    Attributes
    ----------
    sigma : array, shape (outputs,)
        Scales: ``N(0, σ²)``, or ``L(0, σ)``, which has variance 2σ².
    """

    sigma: FloatArray

    @property
    def noise_by_time(self) -> FloatArray:
        """Standard deviation of γ(t), shape (horizon, outputs)."""
        deviations = self.sigma * math.sqrt(self.variance)
        return np.array(np.broadcast_to(deviations, (self.horizon, self.outputs)))

    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw noise for simulation, shape (size, horizon, outputs).  Never send data with it.

        Parameters
        ----------
        size : int
            How many trajectories.
        seed : int, Generator or None
            Seed or generator; the same seed gives the same noise.
        """
        shape = (checked_horizon(size), self.horizon, self.outputs)
        _refuse_large(float(np.prod(shape)))
        return np.asarray(self._drawn(shape, seed) * self.sigma)


def _refuse_large(numbers: float) -> None:
    if numbers > MOST_NUMBERS:
        raise AffineDPError(
            f"{numbers:,.0f} numbers do not fit in memory; shorten the horizon or ask for fewer"
        )


def root_of_body(points: FloatArray, rate: float) -> FloatArray:
    """Return a root of the covariance of K-norm noise on x(0).

    Parameters
    ----------
    points : array, shape (n, p)
        Points of the body, up to sign; rows of zeros get no noise.
    rate : float
        The rate.
    """
    places = np.flatnonzero(points.any(axis=1))
    moment = KNorm(points[places], rate).moment
    root = np.zeros((len(points), len(places)))
    root[places] = np.linalg.cholesky(dense(moment))
    return root
