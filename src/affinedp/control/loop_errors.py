"""What noise does to a linear loop: exactly, in simulated runs, and in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, semidefinite_root
from affinedp.control.gateway_path import sent_always
from affinedp.control.plant import SteeredPlant, causal, covariance
from affinedp.domains.dynamics import ENDLESS, Dynamics
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import InitialState
from affinedp.strategies.causal import Causal
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import Fresh, Trajectory

MOST_NUMBERS = 5e8


@dataclass(frozen=True, eq=False)
class Simulation:
    """What happened in each run.  Arrays are (run, time, signal).

    Attributes
    ----------
    states : array, shape (runs, steps + 1, n)
        x(0), …, x(steps).
    estimates : array, shape (runs, steps + 1, n)
        The observer's x̂(0), …, x̂(steps).
    inputs : array, shape (runs, steps, k)
        u(0), …, u(steps − 1).
    outputs : array, shape (runs, steps, m)
        What was sent: ŷ(0), …, ŷ(steps − 1).
    references : array, shape (steps + 1, n)
        The reference, the same in each run.
    dt : float
        Seconds between two steps.
    state_names, output_names : tuples of str
        What to call the signals.
    """

    states: FloatArray = field(repr=False)
    estimates: FloatArray = field(repr=False)
    inputs: FloatArray = field(repr=False)
    outputs: FloatArray = field(repr=False)
    references: FloatArray = field(repr=False)
    dt: float
    state_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self.states)

    @property
    def steps(self) -> int:
        """How many outputs were sent in each."""
        return int(self.inputs.shape[1])

    @cached_property
    def tracking_errors(self) -> FloatArray:
        """x − x_r, shape (runs, steps + 1, n)."""
        return self.states - self.references

    @property
    def mean_square_error(self) -> FloatArray:
        """Mean over the runs of the squared tracking errors, shape (steps + 1, n)."""
        return np.asarray(np.mean(self.tracking_errors**2, axis=0))

    @property
    def standard_error(self) -> FloatArray:
        """Estimated standard error of :attr:`mean_square_error`; needs two runs or more."""
        if self.runs < 2:
            raise AffineDPError("one run says nothing about its own spread: simulate more")
        return np.asarray(np.std(self.tracking_errors**2, axis=0, ddof=1) / np.sqrt(self.runs))

    def to_control(self, run: int = 0) -> Any:
        """Return one run as a response of python-control, arrays (signal, time).

        It covers the steps at which something is sent, so the last state is left out.

        Parameters
        ----------
        run : int
            Which.

        Returns
        -------
        control.TimeResponseData
            With ``outputs`` ŷ, ``states`` x and ``inputs`` u.
        """
        try:
            from control import TimeResponseData
        except ImportError:
            raise MissingExtraError("control", "control") from None
        if not -self.runs <= run < self.runs:
            raise AffineDPError(f"there is no run {run}: there are {self.runs}")
        return TimeResponseData(
            self.dt * np.arange(self.steps),
            self.outputs[run].T,
            self.states[run, :-1].T,
            self.inputs[run].T,
            issiso=False,
            squeeze=False,
            output_labels=list(self.output_names),
            state_labels=list(self.state_names),
            title="Closed loop",
        )


def white_noise(
    covariance: FloatArray, shape: tuple[int, int], seed: int, stream: int
) -> FloatArray:
    """Return white Gaussian noise, independent of other streams and of ``default_rng(seed)``."""
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))
    return np.asarray(
        generator.standard_normal((*shape, len(covariance))) @ semidefinite_root(covariance)
    )


def check_growth(sizes: FloatArray) -> None:
    """Refuse what grew beyond double precision; ``sizes`` holds one number per step."""
    if not np.all(np.isfinite(sizes)):
        step = int(np.argmin(np.isfinite(sizes)))
        raise AffineDPError(
            f"the loop or its noise grows beyond double precision at step {step}: stabilise the "
            "loop (see ClosedLoop.warnings), or take fewer steps"
        )


def check_size(runs: int, steps: int, signals: int) -> None:
    """Refuse a simulation that would not fit in memory, before anything is drawn."""
    size = float(runs) * (steps + 1) * signals
    if size > MOST_NUMBERS:
        raise AffineDPError(
            f"{runs:,} runs of {steps:,} steps would hold {size:.2g} numbers: simulate fewer runs "
            "at a time, or use mean_square_error, which is exact without any"
        )


@dataclass(frozen=True, eq=False)
class NoisyLoop:
    """``z(t+1) = M z(t) + white noise``, with the noise filter's memory at the end of z."""

    matrix: FloatArray
    added: FloatArray
    first: FloatArray
    # what is sent: None for no noise; and the covariance of all white noise on the outputs
    noise: Causal | None
    sensed: FloatArray

    @property
    def filtered(self) -> Filter | None:
        """The noise, if a filter makes it."""
        return self.noise if isinstance(self.noise, Filter) else None

    def variances(self, steps: int) -> FloatArray:
        """Return the variances of z(0), …, z(steps), shape (steps + 1, k)."""
        covariance = self.first
        found = np.empty((steps + 1, len(self.matrix)))
        found[0] = covariance.diagonal()
        for t in range(steps):
            covariance = self.matrix @ covariance @ self.matrix.T + self.added
            found[t + 1] = covariance.diagonal()
        return found

    def stationary(self) -> FloatArray:
        """Return the covariance of z after a long time."""
        from scipy.linalg import solve_discrete_lyapunov

        if isinstance(self.noise, Trajectory):
            raise AffineDPError("noise of one draw has no stationary state: use mean_square_error")
        if self.filtered is not None and self.filtered.domain.horizon is not None:
            # what it does long after that happens to nobody
            steps = self.filtered.horizon
            raise AffineDPError(
                f"the noise is for a horizon of {steps:,} steps, within which it grows: it has no "
                f"stationary error. Use mean_square_error(noise, {steps})"
            )
        radius = float(np.abs(np.linalg.eigvals(self.matrix)).max())
        if radius >= 1:
            raise AffineDPError(
                f"the loop is not stable (spectral radius {radius:.6g}): its error grows without "
                "end, and there is no stationary one"
            )
        found = np.asarray(solve_discrete_lyapunov(self.matrix, self.added))
        # a variance of zero comes out as zero, not as −0 or a little less
        places = np.diag_indices(len(found))
        found[places] = np.maximum(found[places], 0.0) + 0.0
        return found


class LinearLoop(ABC):
    """``z(t+1) = M z(t) + N γ(t)``, with the states of the plant at the beginning of z."""

    plant: SteeredPlant

    @property
    @abstractmethod
    def matrix(self) -> FloatArray:
        """M."""

    @property
    @abstractmethod
    def injection(self) -> FloatArray:
        """N."""

    def _check_noise(self, noise: Mechanism | Dynamics | None, steps: int) -> None:
        """Refuse noise for other outputs, or for fewer steps."""
        if noise is None:
            return
        if isinstance(noise, Dynamics):
            outputs, horizon = noise.outputs, noise.horizon
        else:
            outputs, horizon = len(causal(noise).step_names), causal(noise).horizon
        if outputs != self.plant.outputs:
            raise AffineDPError(
                f"the noise is for {outputs} outputs, but the plant has {self.plant.outputs}"
            )
        if steps > horizon:
            raise AffineDPError(
                f"{steps} steps send {steps} outputs, but the noise is for a horizon of "
                f"{horizon}: take fewer steps, or design for a longer horizon"
            )

    def _noisy(
        self,
        noise: Mechanism | None,
        process_noise: ArrayLike | None,
        sensor_noise: ArrayLike | None,
    ) -> NoisyLoop:
        """The loop under what is sent of the noise on its outputs, and white noise besides."""
        k, n, injection = len(self.matrix), self.plant.states, self.injection
        sensed = covariance(sensor_noise, "sensor_noise", self.plant.outputs)
        strategy = None
        if noise is not None:
            strategy, fresh = sent_always(noise)
            if isinstance(strategy, Fresh):
                fresh = fresh + noise.noise.variance * strategy.sigma**2
            sensed = sensed + np.diag(fresh)
        white: FloatArray = injection @ sensed @ injection.T
        white[:n, :n] += covariance(process_noise, "process_noise", n)
        if not isinstance(strategy, Filter):
            return NoisyLoop(self.matrix, white, np.zeros((k, k)), strategy, sensed)
        made, order = strategy.noise, strategy.noise.order
        whole = np.block([[self.matrix, injection @ made.C], [np.zeros((order, k)), made.A]])
        drive = strategy.scale * np.vstack([injection @ made.D, made.B])
        added = drive @ drive.T
        added[:k, :k] += white
        first = np.zeros((k + order, k + order))
        if strategy.start is not None:
            first[k:, k:] = strategy.scale**2 * (strategy.start @ strategy.start.T)
        return NoisyLoop(whole, added, first, strategy, sensed)

    def _added_squares(
        self,
        noise: Mechanism | None,
        steps: int,
        process_noise: ArrayLike | None = None,
        sensor_noise: ArrayLike | None = None,
    ) -> FloatArray:
        """What noise adds to the mean squares of the states, shape (steps + 1, n)."""
        n, moving = self.plant.states, self._noisy(noise, process_noise, sensor_noise)
        squares = np.zeros((steps + 1, n))
        with np.errstate(over="ignore", invalid="ignore"):
            if noise is not None and isinstance(moving.noise, Trajectory):
                loadings = moving.noise.shortened(steps).over_time
                moved = self._responses(loadings, loadings.shape[2])
                squares += [noise.noise.variances(response[:n]) for response in moved]
            if moving.added.any():
                squares += moving.variances(steps)[:, :n]
        return squares

    def _responses(self, loadings: Iterable[FloatArray], columns: int) -> Iterator[FloatArray]:
        """Yield H_0 = 0, H_1, …: z(t) = H_t η, if γ(t) = Γ_t η."""
        response = np.zeros((len(self.matrix), columns))
        yield response
        for loading in loadings:
            response = self.matrix @ response + self.injection @ loading
            yield response


def unit_loadings(dynamics: Dynamics, steps: int) -> Iterator[FloatArray]:
    """Yield C(t) A(t−1)…A(0) for t = 0, …, steps − 1: loadings of noise with root I."""
    product = np.eye(dynamics.states)
    for t in range(steps):
        yield dynamics.output_matrix(t) @ product
        if t + 1 < steps:
            product = dynamics.state_matrix(t) @ product


# Noise that changes by more than this over the horizon is worth a word.
MUCH = 100.0


def noise_warnings(noise: Mechanism | None, steps: int) -> tuple[str, ...]:
    """Return what a careful reader should know about noise over some steps."""
    made = None if noise is None else noise.strategy
    if noise is None or not isinstance(made, Trajectory) or steps < 2:
        return ()
    first, last = np.linalg.norm(made.deviations_at(noise.noise, [0, steps - 1]), axis=1)
    if last > MUCH * first:
        return (
            f"the noise grows from {first:.3g} to {last:.3g} over {steps:,} steps, as the plant "
            "itself does: one draw follows the dynamics. Close a local loop that stabilises the "
            "plant before it is measured, and design for the closed loop",
        )
    if first > MUCH * last and not isinstance(noise.adjacency, InitialState):
        return (
            f"the noise starts at {first:.3g} and ends at {last:.3g}: dynamics that contract make "
            "late states cost much noise early. If the past need not follow, use "
            "adjacency='forward' or 'initial'",
        )
    return ()


def first_of(shown: int, steps: int) -> str:
    """Return what a picture says beside its axis where it shows some steps alone."""
    of_all = "" if steps >= ENDLESS else f" of {steps:,}"
    return f" (first {shown}{of_all} steps)" if shown < steps else ""
