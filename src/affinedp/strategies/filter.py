"""Noise that a filter makes of fresh white noise at every step, for all time or over a horizon.

Its promise about private inputs is proved: an event moves the white noise by the whitened
response of the plant, whose energy is certified in rational arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains.dynamics import (
    ENDLESS,
    MOST_STATES,
    Dynamics,
    Plant,
    checked_horizon,
)
from affinedp.domains.observability import observability_bound
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import rounded_up
from affinedp.exact.rational import RationalMatrix
from affinedp.exact.systems import (
    Energy,
    ExactSystem,
    LinearSystem,
    checked_start,
    decay_certificate,
    energy_certificate,
    window_energy,
)
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.inputs import Inputs
from affinedp.parts import frozen
from affinedp.strategies.base import (
    FOR_STEPS,
    Largest,
    Lines,
    Prepared,
    Promised,
    Sent,
    Shown,
    Told,
)
from affinedp.strategies.causal import Causal, System, check_steps, constant

# Where white noise is coloured: on the way to the outputs, or before it passes the plant.
Place: TypeAlias = Literal["output", "input"]
# A certified energy this close to what floating point finds is called exact.
EXACT = 1 + 1e-6
LEAST_BITS = 192
DRAWN_POINTS, DRAWN_TIMES = 2048, 300
NEEDS = (
    "inputs that follow from what was sent, never from raw measurements (before the start, too); "
    "sensors that do not clip (a gateway with range and reach checks that); a plant that is the "
    "model"
)
BECAUSE = (
    " on every stretch of time (the whitened energy of the response, certified in rational "
    "arithmetic), and the feedback lemma for inputs that follow from what was sent"
)


@dataclass(frozen=True, eq=False)
class Filter(Causal):
    """Noise ``γ = M ζ`` on the outputs of a plant, with ζ fresh at every step.

    M is the shaper, or the plant after the shaper.  Fresh noise does not mean that steps may be
    taken apart: a restart with new noise is a new release for every event that still shows.
    """

    kind = "filter"
    # from the private inputs to the outputs
    domain: Plant
    # causal, with a causal stable inverse
    shaper: LinearSystem = field(repr=False)
    # whether the shaper's output is the noise, or drives a copy of the plant
    place: Place = "output"
    # standard deviation of ζ
    scale: float = 1.0
    # R: the memory of M starts as R η with η like ζ; None starts at rest; shape (n, n)
    start: FloatArray | None = field(default=None, repr=False)
    # how many outputs are sent at most, of noise for all time; None for all time
    steps: int | None = None

    def __post_init__(self) -> None:
        plant = self.domain.system
        size = plant.outputs if self.place == "output" else plant.inputs
        if (self.shaper.outputs, self.shaper.inputs) != (size, size):
            raise AffineDPError("the noise filter does not fit the plant")
        if self.shaper.order > MOST_STATES:
            raise AffineDPError(f"a noise filter may remember up to {MOST_STATES} numbers")
        if not 0 < self.scale < math.inf:
            raise AffineDPError(f"the scale of the noise must be positive, not {self.scale}")
        if self.steps is not None:
            checked_horizon(self.steps)
        if self.start is not None:
            object.__setattr__(self, "start", frozen(np.asarray(self.start, dtype=float)))
            if np.shape(self.start) != (self.noise.order, self.noise.order):
                raise AffineDPError("the start of the noise does not fit its filter")

    @property
    def horizon(self) -> int:
        """How many steps there are at most; 2⁴⁰ for all time."""
        return self.domain.steps if self.steps is None else min(self.domain.steps, self.steps)

    @property
    def coordinates(self) -> int:
        """How many numbers are drawn in all: for the start, and at every step."""
        return self.noise.order + self.noise.inputs * self.horizon

    @cached_property
    def noise(self) -> LinearSystem:
        """M in doubles, for ζ of unit scale."""
        return self.shaper if self.place == "output" else self.domain.system.after(self.shaper)

    @cached_property
    def exact_noise(self) -> ExactSystem:
        """M with exact numbers, for ζ of unit scale."""
        exact = self.shaper.exact()
        return exact if self.place == "output" else self.domain.system.exact().after(exact)

    @cached_property
    def system(self) -> System:
        """What makes the noise, in exact numbers."""
        exact = self.exact_noise
        start = np.zeros((self.noise.order, 0)) if self.start is None else self.start
        root = RationalMatrix.of(start) if start.size else RationalMatrix.zeros(*start.shape)
        return System(
            constant(exact.A), exact.B, constant(exact.C), exact.D, root, self.horizon
        )  # fmt: skip

    def path_bits(self, exponents: Sequence[int]) -> int:
        """Return how many bits keep output i within ``2**exponents[i]`` of its true value.

        With a proof that the filter forgets, all that was ever rounded moves output i by at most
        ``½ · 2**-bits · √n · bound_i``, for ever.
        """
        bits = LEAST_BITS
        if not self.noise.order:
            return bits
        for bound, exponent in zip(self.response_bound, exponents):
            error = max(float(bound) * math.sqrt(self.noise.order) / 2, 1e-300)
            bits = max(bits, math.ceil(math.log2(error)) + 1 - exponent)
        return bits

    @cached_property
    def response_bound(self) -> FloatArray:
        """A bound on ``Σ_k |C_i Aᵏ f|`` over unit vectors f, for each output i.

        Noise that drives a plant over a horizon need not forget: what the shaper's memory moves
        passes the plant, and what the plant remembers shows for as long as outputs are sent.
        """
        if self.place == "output" or self.domain.horizon is None:
            decay = decay_certificate(self.exact_noise.A)
            return np.array([decay.reach(row) for row in self.noise.C])
        plant, steps = self.domain.system, self.domain.horizon
        decay = decay_certificate(self.shaper.exact().A)
        driven = np.array([decay.reach(row) for row in self.shaper.C])
        found = []
        for row, direct in zip(plant.C, plant.D):
            names = tuple(f"x{i}" for i in range(plant.order))
            seen = np.vstack(
                observability_bound(Dynamics(plant.A, row[None], steps, names, ("y",)))
            )
            entered = np.linalg.norm(np.abs(seen) @ np.abs(plant.B), axis=0)
            shown = math.sqrt(steps) * (np.linalg.norm(seen) + entered @ driven)
            found.append((shown + np.abs(direct) @ driven) * (1 + 1e-9))
        return np.array(found)

    def loading(self) -> FloatArray:
        """Return how far each output moves at most if every number ever drawn moves by one."""
        made = self.noise
        direct = np.abs(made.D).sum(axis=1)
        if not made.order:
            return np.asarray(direct)
        into = float(np.linalg.norm(made.B)) * math.sqrt(made.inputs)
        at_start = 0.0
        if self.start is not None:
            at_start = float(np.linalg.norm(self.start)) * math.sqrt(made.order)
        return np.asarray((direct + self.response_bound * (into + at_start)) * (1 + 1e-9))

    @property
    def independent(self) -> bool:
        """Whether the noise is white, and each number of it is on one output alone."""
        made = self.noise
        square = made.order == 0 and made.inputs == made.outputs
        return square and np.array_equal(made.D, np.diag(np.diagonal(made.D)))

    def scaled(self, factor: float) -> Filter:
        """Return the same with noise that is larger by a factor."""
        return replace(self, scale=self.scale * factor)

    # -------------------------------------------------------------- the promise

    @cached_property
    def whitened(self) -> ExactSystem:
        """What a unit impulse on a private input looks like in units of ζ, for unit scale."""
        undone = self.shaper.exact().inverse()
        return undone.after(self.domain.system.exact()) if self.place == "output" else undone

    @cached_property
    def energy(self) -> Energy:
        """The proof of how much an impulse on a private input can do, for all time."""
        return energy_certificate(self.whitened)

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return what ζ is moved by, step by step, for inputs over some steps, at rest before."""
        inputs = self.domain.system.inputs
        steps = moves.shape[0] // inputs
        response = self.whitened.floats().impulse(steps) / self.scale
        response = np.abs(response) if absolute else response
        given = dense(moves).reshape(steps, inputs, -1)
        found = [
            sum(response[t - k] @ given[k] for k in range(t + 1)) for t in range(steps)
        ]  # fmt: skip
        return np.concatenate(found)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the certified norm of the whitened response to private inputs."""
        if type(adjacency) is not Inputs or type(law) is not Gaussian:
            raise AffineDPError("filters are certified for private inputs and Gaussian noise alone")
        squares = self.squared_sensitivities(adjacency)
        if self.start is not None:
            checked_start(self.exact_noise, self.start)
        elif self.domain.horizon is None:
            raise AffineDPError(
                "noise for all time starts in its stationary state: at rest it does not cover "
                "events before the start"
            )
        worst = int(np.argmax(squares))
        sensitivity = math.sqrt(squares[worst]) / self.scale * (1 + 1e-15)
        direction = np.zeros(len(adjacency.mu))
        direction[worst] = adjacency.mu[worst]
        how = "one step" if adjacency.window == 1 else "a window"
        exact = self._nearly(adjacency, float(squares[worst]), worst)
        return Largest(
            sensitivity / EXACT if exact else 0.0,
            sensitivity,
            exact,
            f"energy of the whitened response to {how}, certified",
            direction,
            because=BECAUSE,
        )

    def squared_sensitivities(self, adjacency: Inputs) -> FloatArray:
        """Return a bound on the squared sensitivity to each private input, for ζ of unit scale."""
        mu, window = adjacency.mu, adjacency.window
        if adjacency.forward and self.place == "input" and self.domain.horizon is not None:
            raise AffineDPError(
                "noise that drives the plant from rest comes after a jump of the first state, and "
                "does not cover it"
            )
        if window is None:
            gains = self.shaper.D
            diagonal = np.array_equal(gains, np.diag(np.diagonal(gains)))
            if self.place != "input" or self.shaper.order or not diagonal:
                raise AffineDPError(
                    "changes over any number of steps are covered by white noise on the inputs "
                    "alone"
                )
            # the energy of the pattern itself, whatever it is
            return np.asarray((mu / np.diagonal(gains)) ** 2 * (1 + 1e-15))
        if self.domain.horizon is not None:
            return self._within_horizon(adjacency)
        found = []
        for i, distance in enumerate(mu):
            square = Fraction(float(distance)) ** 2
            energy = self.energy.of(i)
            if window > 1:
                energy = Fraction(window_energy(self.energy, i, window))
            found.append(rounded_up(square * energy))
        return np.array(found)

    def _within_horizon(self, adjacency: Inputs) -> FloatArray:
        """Over a horizon the impulse at the first step does most; its energy is summed."""
        if adjacency.window != 1:
            raise AffineDPError("windows over a finite horizon are not certified: use window=1")
        exact, system = self.whitened, self.whitened.floats()
        if not all(
            Fraction(int(value), whole.over) == Fraction(float(double))
            for whole, doubles in zip(exact.matrices, system.matrices)
            for value, double in zip(whole.values.ravel(), doubles.ravel())
        ):
            raise AffineDPError("over a finite horizon the whitening filter must be exact doubles")
        steps = adjacency.steps_to_remember
        direct = (system.D**2).sum(axis=0) * (1 + 1e-14)
        if steps and system.order:
            names = tuple(f"x{i}" for i in range(system.order))
            outputs = tuple(f"y{i}" for i in range(system.outputs))
            root, slack = observability_bound(Dynamics(system.A, system.C, steps, names, outputs))
            for part in (root, slack):
                moved = part @ system.B
                terms = np.abs(part) @ np.abs(system.B)
                direct = direct + ((np.abs(moved) + 1e-14 * system.order * terms) ** 2).sum(axis=0)
        return np.asarray(direct * adjacency.mu**2 * (1 + 1e-13))

    def _nearly(self, adjacency: Inputs, square: float, i: int) -> bool:
        """Whether a certified energy is also the true one, as far as floating point tells."""
        if self.place == "input" or self.domain.horizon is not None or adjacency.window != 1:
            return False
        true = float(self.whitened.floats().energies()[i]) * float(adjacency.mu[i]) ** 2
        return square <= true * EXACT

    # -------------------------------------------------------------- the errors

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return combinations of the outputs of the first steps in terms of η, ζ(0), ζ(1), …"""
        made = self.noise
        steps = self.horizon if combinations is None else combinations.shape[1] // made.outputs
        numbers = made.order + made.inputs * steps
        check_steps(float(steps) * made.outputs * numbers)
        memory = np.zeros((made.order, numbers))
        if self.start is not None:
            memory[:, : made.order] = self.start
        found = np.zeros((steps, made.outputs, numbers))
        for t in range(steps):
            here = slice(made.order + made.inputs * t, made.order + made.inputs * (t + 1))
            found[t] = made.C @ memory
            found[t][:, here] += made.D
            memory = made.A @ memory
            memory[:, here] += made.B
        rows = self.scale * found.reshape(-1, numbers)
        return rows if combinations is None else np.asarray(combinations @ rows)

    def last_variances(self, law: Law) -> FloatArray:
        """Return the variance of each output at the last step: the largest, and stationary."""
        made = self.noise.output_covariance(self.domain.horizon)
        return np.array(np.diagonal(made)) * (self.scale**2 * law.variance)

    def deviations(self, law: Law, steps: int) -> FloatArray:
        """Return the standard deviation of γ(0), …, γ(steps − 1), shape (steps, outputs)."""
        check_steps(float(steps) * self.noise.outputs)
        if self.start is not None and self.domain.horizon is None:
            root = np.sqrt(self.last_variances(law))
            return np.array(np.broadcast_to(root, (steps, self.noise.outputs)))
        squares = np.cumsum((self.noise.impulse(steps) ** 2).sum(axis=2), axis=0)
        return np.asarray(np.sqrt(squares * law.variance) * self.scale)

    def mean_variance(self, law: Law) -> float:
        """Return the mean over time of the variance, summed over outputs."""
        if self.domain.horizon is None:
            return float(self.last_variances(law).sum())
        return float((self.deviations(law, self.horizon) ** 2).sum(axis=1).mean())

    def total_variance(self, law: Law) -> float:
        """Return the sum of the variances of all outputs at all steps; infinite for all time."""
        return self.mean_variance(law) * (math.inf if self.horizon >= ENDLESS else self.horizon)

    def simulated(
        self, law: Law, generator: np.random.Generator, size: int, steps: int
    ) -> FloatArray:
        """Draw noise for simulation, shape (size, steps, outputs)."""
        made = self.noise
        check_steps(float(size) * steps * (made.outputs + made.order))
        if steps > self.horizon:
            raise AffineDPError(f"{steps} steps are more than the horizon of {self.horizon}")
        state = np.zeros((size, made.order))
        if self.start is not None:
            state = self.scale * generator.standard_normal(state.shape) @ self.start.T
        found = np.empty((size, steps, made.outputs))
        for t in range(steps):
            drawn = self.scale * generator.standard_normal((size, made.inputs))
            found[:, t] = state @ made.C.T + drawn @ made.D.T
            state = state @ made.A.T + drawn @ made.B.T
        return found

    def shown(self, told: Told) -> Shown:
        """Return what a report says: the noise of each output, beside white noise."""
        adjacency, law, sent = told.adjacency, told.law, told.sent
        plant, names = self.domain, ", ".join(self.domain.names)
        forward = isinstance(adjacency, Inputs) and adjacency.forward
        times = "for all time" if self.horizon >= ENDLESS else f"over {self.horizon:,} steps"
        what = f"the private inputs ({names})"
        shared = "other inputs, disturbances, and what else the first state is made of"
        if forward:
            what = f"jumps of the state ({names}), of the first state too"
            shared = "inputs and disturbances"
        mean, last = self.mean_variance(law), self.last_variances(law)
        if sent is not None:
            mean, last = sent.factor**2 * mean + math.fsum(sent.added), sent.variances(last)
        variance = f"variance {mean:.4g} in all outputs together"
        when = "at every step"
        if plant.horizon is not None:
            when = (
                "in the mean over the horizon; the table shows the last step, where it is largest"
            )
        white, reason = None, "white noise does not keep this promise"
        if sent is not None:
            reason = FOR_STEPS
        with suppress(AffineDPError):
            flat = Filter(plant, LinearSystem.static(np.eye(self.noise.outputs)))
            squares = flat.squared_sensitivities(adjacency) if type(adjacency) is Inputs else None
            if squares is not None and sent is None:
                white, reason = math.sqrt(float(squares.max())) / told.sensitivity, ""
        return Shown(
            title=f"{times}, fresh at every step",
            outputs=tuple(zip(self.step_names, np.sqrt(last).tolist())),
            independent=white,
            reason=reason,
            promise=(
                ("hidden", f"{what}, from everyone who sees all that is sent and knows the plant"),
                ("shared", f"all {shared} are the same for both neighbours: they are not hidden"),
                ("needs", NEEDS),
            ),
            totals=(("noise", f"{variance}, {when}"),),
            unprotected=(f"{shared}, which neighbours share",),
            lines=lambda: (
                self._by_period(sent) if plant.horizon is None else self._by_time(law, sent)
            ),
        )

    def _by_time(self, law: Law, sent: Sent | None) -> Lines:
        every = 1 if sent is None else sent.every
        last = (self.horizon - 1) // every
        times = every * np.unique(np.linspace(0, last, DRAWN_TIMES).round().astype(int))
        covariances = np.array([self.noise.output_covariance(int(t) + 1) for t in times])
        squares = np.diagonal(covariances, axis1=1, axis2=2) * (self.scale**2 * law.variance)
        if sent is not None:
            squares = sent.variances(squares)
        return Lines(
            "Noise by time", "time step", "standard deviation (units of the output)",
            times.astype(float), dict(zip(self.step_names, np.sqrt(squares).T)),
        )  # fmt: skip

    def _by_period(self, sent: Sent | None) -> Lines:
        response = self.noise.spectrum(DRAWN_POINTS)[1 : DRAWN_POINTS // 2]
        size = self.scale * np.linalg.norm(response, axis=2)
        if sent is not None:  # what is fresh is white
            size = np.sqrt(sent.variances(size**2))
        period = DRAWN_POINTS / np.arange(1, DRAWN_POINTS // 2)
        return Lines(
            "Noise by period", "period (steps)", "root of the spectral density (output's units)",
            period, dict(zip(self.step_names, size.T)), logarithmic=True,
        )  # fmt: skip

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Refuse: outputs are sent one by one."""
        raise AffineDPError(
            "noise that is fresh at every step is sent step by step: use affinedp.control.Gateway"
        )
