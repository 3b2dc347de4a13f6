"""Simulated runs of a closed loop, many at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.plant import LoopRecord
from affinedp.errors import AffineDPError, MissingExtraError

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


def run_loop(
    loop: LoopRecord,
    noise: FloatArray,
    disturbance: FloatArray | None = None,
) -> Simulation:
    """Run a loop with given noise."""
    plant, n = loop.plant, loop.plant.states
    runs, steps, _ = noise.shape
    references = loop.references(steps)
    pull = loop.pull(references)[:, :, None]
    # inside, runs come last: each step is then one product with long contiguous rows
    added = noise.transpose(1, 2, 0)
    both = np.empty((steps + 1, 2 * n, runs))
    both[0] = np.concatenate([loop.x0, loop.xhat0])[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        for t in range(steps):
            after = np.matmul(loop.matrix, both[t], out=both[t + 1])
            after += loop.injection @ added[t]
            after += pull[t]
            if disturbance is not None:
                after[:n] += disturbance[:, t].T
        states, estimates = both[:, :n], both[:, n:]
        inputs = loop.feedback @ (references[:, :, None] - estimates)[:-1]
        outputs = plant.C @ states[:-1] + plant.D @ inputs + added
    check_growth(np.abs(both).max(axis=(1, 2)))
    references.flags.writeable = False
    return Simulation(
        _runs_first(states), _runs_first(estimates), _runs_first(inputs), _runs_first(outputs),
        references, plant.dt, plant.state_names, plant.output_names,
    )  # fmt: skip


def _runs_first(array: FloatArray) -> FloatArray:
    """A read-only view of (time, signal, run) as (run, time, signal)."""
    view = array.transpose(2, 0, 1)
    view.flags.writeable = False
    return view


def white_noise(
    covariance: FloatArray, shape: tuple[int, int], seed: int, stream: int
) -> FloatArray:
    """Return white Gaussian noise, independent of other streams and of ``default_rng(seed)``."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))
    return np.asarray(generator.standard_normal((*shape, len(covariance))) @ root.T)


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
