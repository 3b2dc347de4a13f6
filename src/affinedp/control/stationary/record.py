"""The plain record of stationary noise: a filter, its scale, its start, and what it promises."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.stationary.filters import ExactFilter, Filter
from affinedp.control.stationary.inputs import PrivateInputs
from affinedp.control.stationary.promise import Place, noise_filter
from affinedp.domains.dynamics import ENDLESS
from affinedp.errors import AffineDPError
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.matrices import MOST_NUMBERS


@dataclass(frozen=True, eq=False)
class StationaryNoise:
    """Noise ``γ = M ζ`` on the outputs of a plant, with ζ fresh at every step.

    M is the shaper, or the plant after the shaper.

    Attributes
    ----------
    neighbours : PrivateInputs
        Whom the guarantee is about.
    guarantee : Guarantee
        What is promised about all that is ever sent.
    shaper : Filter
        Causal, with a causal stable inverse.
    place : {"output", "input"}
        Whether the shaper's output is the noise, or drives a copy of the plant.
    scale : float
        Standard deviation of ζ.
    start : array, shape (n, n), or None
        R: the noise filter's memory starts as R η with η like ζ; None starts at rest.
    cost : float or None
        What it costs: the sum of the variances, unless it was weighed otherwise.
    least : float or None
        No stationary noise with this promise costs less.
    alternatives : mapping
        Cost of the other designs with the same promise, by name.
    notes : tuple of str
        What a reader should know about the design.
    """

    neighbours: PrivateInputs = field(repr=False)
    guarantee: Guarantee
    shaper: Filter = field(repr=False)
    place: Place
    scale: float
    start: FloatArray | None = field(repr=False)
    cost: float | None = None
    least: float | None = None
    alternatives: Mapping[str, float] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.guarantee.neighbours_key != self.neighbours.key:
            raise AffineDPError("the guarantee is about other neighbours than these")
        if self.start is not None:
            self.start.flags.writeable = False

    @property
    def law(self) -> str:
        """Law of ζ."""
        return "gaussian"

    @property
    def outputs(self) -> int:
        """How many entries y(t) has."""
        return self.neighbours.plant.outputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """What to call them."""
        return self.neighbours.output_names

    @property
    def endless(self) -> bool:
        """Whether the promise has no horizon."""
        return self.neighbours.horizon is None

    @property
    def horizon(self) -> int:
        """How many outputs may be sent: 2⁴⁰ stands for all time where arithmetic needs a number."""
        return ENDLESS if self.neighbours.horizon is None else self.neighbours.horizon

    @cached_property
    def exact_filter(self) -> ExactFilter:
        """M with exact numbers, for ζ of unit scale."""
        return noise_filter(self.neighbours, self.shaper, self.place)

    @cached_property
    def filter(self) -> Filter:
        """M in doubles, for ζ of unit scale."""
        return self.shaper if self.place == "output" else self.neighbours.plant.after(self.shaper)

    @cached_property
    def stationary_variance(self) -> FloatArray:
        """Variance of the noise on each output, shape (outputs,); the largest, at rest."""
        if self.endless:
            return np.asarray(np.diagonal(self.filter.output_covariance()) * self.scale**2)
        return np.asarray(self.noise_over(self.horizon)[-1] ** 2)

    def noise_over(self, steps: int) -> FloatArray:
        """Return the standard deviation of γ(0), …, γ(steps − 1), shape (steps, outputs).

        Parameters
        ----------
        steps : int
            How many.
        """
        _refuse_large(float(steps) * self.outputs)
        if self.start is not None and self.endless:
            root = np.sqrt(self.stationary_variance)
            return np.array(np.broadcast_to(root, (steps, self.outputs)))
        squares = np.cumsum((self.filter.impulse(steps) ** 2).sum(axis=2), axis=0)
        return np.asarray(np.sqrt(squares) * self.scale)

    @property
    def mean_variance(self) -> float:
        """Mean over time of the variance, summed over outputs."""
        if self.endless:
            return float(self.stationary_variance.sum())
        return float((self.noise_over(self.horizon) ** 2).sum(axis=1).mean())

    def sample(
        self, size: int, steps: int, seed: int | np.random.Generator | None = None
    ) -> FloatArray:
        """Draw noise for simulation, shape (size, steps, outputs).  Never send data with it.

        Parameters
        ----------
        size : int
            How many runs.
        steps : int
            How many steps of each.
        seed : int, Generator or None
            Seed or generator; the same seed gives the same noise.
        """
        _refuse_large(float(size) * steps * (self.outputs + self.filter.order))
        if steps > self.horizon:
            raise AffineDPError(f"{steps} steps are more than the horizon of {self.horizon}")
        generator = np.random.default_rng(seed)
        noise = self.filter
        state = np.zeros((size, noise.order))
        if self.start is not None:
            state = self.scale * generator.standard_normal(state.shape) @ self.start.T
        found = np.empty((size, steps, self.outputs))
        for t in range(steps):
            drawn = self.scale * generator.standard_normal((size, noise.inputs))
            found[:, t] = state @ noise.C.T + drawn @ noise.D.T
            state = state @ noise.A.T + drawn @ noise.B.T
        return found

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is sent."""
        digest = hashlib.sha256(f"{self.neighbours.key} {self.place} {self.scale.hex()}".encode())
        plant = self.neighbours.plant
        start = np.zeros((0, 0)) if self.start is None else self.start
        for part in (self.shaper, plant):
            for matrix in (part.A, part.B, part.C, part.D):
                digest.update(
                    repr(matrix.shape).encode() + np.ascontiguousarray(matrix + 0.0).tobytes()
                )
        digest.update(repr(start.shape).encode() + np.ascontiguousarray(start + 0.0).tobytes())
        return digest.hexdigest()


def _refuse_large(numbers: float) -> None:
    if numbers > MOST_NUMBERS:
        raise AffineDPError(f"{numbers:,.0f} numbers do not fit in memory; ask for fewer steps")
