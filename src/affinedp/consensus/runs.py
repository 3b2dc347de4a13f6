"""Simulated runs: messages, states and read-outs, for study and never for publication.

The messages obey y(t+1) = P y(t) and the states are x(t) = y(t) − γ, so one step of a run is one
sparse product.  Sixteen runs go through it side by side, which was measured to be up to 3 times
faster per run on networks of 10³ to 10⁶ agents, and about as fast at worst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.one_draw import Noise
from affinedp.consensus.readouts import READOUTS, noise_share, refuse_to_publish
from affinedp.consensus.schedule import Schedule
from affinedp.errors import AffineDPError

RUNS_AT_ONCE = 16
MOST_NUMBERS = 1.5e8


@dataclass(frozen=True, eq=False)
class Run:
    """What happened in simulated runs.  Arrays are (runs, time, agent).

    The noise comes from NumPy's generator: publish nothing of this.

    Attributes
    ----------
    times : array of int
        The steps that were kept.
    average : float
        The average of x(0), the true answer.
    noise : array, shape (runs, agent), or None
        γ, the one draw of each agent; None if only errors were kept.
    """

    times: IntArray = field(repr=False)
    average: float
    noise: FloatArray | None = field(repr=False)
    _messages: FloatArray | None = field(repr=False)
    _errors: Mapping[str, FloatArray] = field(repr=False)

    @property
    def messages(self) -> FloatArray:
        """y(t), which everybody may see."""
        if self._messages is None:
            raise AffineDPError("only errors were kept: run again with keep='all' or 'last'")
        return self._messages

    @property
    def overheard(self) -> FloatArray:
        """What an eavesdropper of this simulated run sees: the messages and nothing else."""
        return self.messages

    @property
    def states(self) -> FloatArray:
        """x(t), which each agent keeps to itself."""
        return self.readout("state")

    def readout(self, readout: str = "state") -> FloatArray:
        """Return every agent's estimate of the average.

        Parameters
        ----------
        readout : {"state", "message", "corrected"}
            Which estimate.
        """
        share = noise_share(readout, self.messages.shape[-1])
        if share == 0.0:
            return self.messages
        assert self.noise is not None
        return self.messages - share * self.noise[:, None, :]

    def squared_error(self, readout: str = "state") -> FloatArray:
        """Return ‖read-out − average‖² over the agents, shape (runs, time).

        Parameters
        ----------
        readout : {"state", "message", "corrected"}
            Which estimate.
        """
        noise_share(readout, 2)
        if readout in self._errors:
            return self._errors[readout]
        error = self.readout(readout) - self.average
        with np.errstate(over="ignore"):
            return finite(np.asarray(np.einsum("rti,rti->rt", error, error)))

    def mean_square_error(self, readout: str = "state") -> tuple[FloatArray, FloatArray]:
        """Return the mean of the squared error over the runs, and its standard error.

        Parameters
        ----------
        readout : {"state", "message", "corrected"}
            Which estimate.
        """
        return mean_and_error(self.squared_error(readout))

    def publish(self, readout: str = "message") -> NoReturn:
        """Refuse: nothing of a simulation is published.

        Parameters
        ----------
        readout : str
            Whichever.
        """
        refuse_to_publish(readout)

    release = publish


def simulate(
    schedule: Schedule,
    x0: FloatArray,
    noise: Noise,
    steps: int,
    runs: int,
    generator: np.random.Generator,
    keep: str,
) -> Run:
    """Return simulated runs from checked arguments."""
    n = len(x0)
    if keep not in ("all", "last", "errors"):
        raise AffineDPError(f"keep must be 'all', 'last' or 'errors', not {keep!r}")
    times = np.arange(steps + 1) if keep != "last" else np.array([steps])
    if keep != "errors" and float(runs) * (len(times) + 1) * n > MOST_NUMBERS:
        raise AffineDPError(
            f"{runs:,} runs × {len(times):,} steps × {n:,} agents are too many numbers to keep: "
            "use keep='last', keep='errors', or fewer runs at a time"
        )
    average = float(x0.mean())
    draws = np.empty((runs, n)) if keep != "errors" else None
    messages = np.empty((runs, len(times), n)) if keep != "errors" else None
    errors: dict[str, FloatArray] = {}
    if keep == "errors":
        errors = {readout: np.empty((runs, len(times))) for readout in READOUTS}
    for first in range(0, runs, RUNS_AT_ONCE):
        some = slice(first, min(first + RUNS_AT_ONCE, runs))
        drawn = noise.draw(generator, some.stop - first)
        if draws is not None:
            draws[some] = drawn
        y, gamma = _side_by_side(x0 + drawn, schedule.order), _side_by_side(drawn, schedule.order)
        spare = np.empty_like(y)
        for t in range(steps + 1):
            if t:
                y = schedule.move(t - 1, y)
            if messages is not None and (keep == "all" or t == steps):
                messages[some, 0 if keep == "last" else t] = _by_run(y, schedule.order)
            if errors:
                for readout, squares in _squared_errors(y, gamma, average, spare).items():
                    errors[readout][some, t] = squares
    return Run(times, average, draws, messages, {key: finite(e) for key, e in errors.items()})


def mean_and_error(squares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean over runs, and its standard error, which one run does not tell."""
    runs = len(squares)
    if runs < 2:
        return squares[0], np.full(squares.shape[1], np.nan)
    return squares.mean(axis=0), squares.std(axis=0, ddof=1) / np.sqrt(runs)


def finite(squares: FloatArray) -> FloatArray:
    """Return squared errors, or refuse those beyond double precision."""
    if np.isfinite(squares).all():
        return squares
    raise AffineDPError(
        "the squared errors are beyond double precision: use another unit, such as thousands"
    )


def _side_by_side(values: FloatArray, order: IntArray | None) -> FloatArray:
    """Runs as columns; a single run as a vector, whose product is faster."""
    if order is not None:
        values = values[:, order]
    return values[0] if len(values) == 1 else np.ascontiguousarray(values.T)


def _by_run(columns: FloatArray, order: IntArray | None) -> FloatArray:
    """Undo :func:`_side_by_side`."""
    rows = np.atleast_2d(columns.T)
    if order is None:
        return rows
    back = np.empty_like(rows)
    back[:, order] = rows
    return back


def _squared_errors(
    y: FloatArray, gamma: FloatArray, average: float, spare: FloatArray
) -> dict[str, FloatArray]:
    """‖read-out − average‖² of all read-outs, in few passes over long vectors."""
    n = len(y)
    error = np.subtract(y, average, out=spare)
    message, product = _dot(error, error), _dot(error, gamma)
    # ‖error − γ/n‖²: neither term is much larger than the sum
    corrected = message - 2 / n * product + _dot(gamma, gamma) / n**2
    # ‖error − γ‖² is taken directly: for large noise its terms would cancel
    error -= gamma
    return {"state": _dot(error, error), "message": message, "corrected": corrected}


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(a @ b if a.ndim == 1 else np.einsum("ij,ij->j", a, b))
