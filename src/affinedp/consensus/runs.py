"""Read-outs, and simulated runs of them, for study and never for publication.

All that agents say is linear in their first messages y = x(0) + γ: at time t they say Q(t) y, where
Q(t) = P^t for plain consensus.  What agent i reads off as its estimate of the average is its
message minus a share c of its own draw:

* ``"state"``      c = 1    x_i itself, as in the paper;
* ``"message"``    c = 0    what everyone sees anyway;
* ``"corrected"``  c = 1/n  private to agent i, and the least mean-square error of the three.

With messages that end at the average of y, a read-out with share c ends at a mean-square error of
((1−c)²/n + c²(1−1/n)) times the total variance of the noise.

Sixteen runs go through the steps side by side, which was measured to be up to 3 times faster per
run on networks of 10³ to 10⁶ agents, and about as fast at worst.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NoReturn, Protocol

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.one_draw import Noise
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import whole_number

Readout = Literal["state", "message", "corrected"]
Seed = int | np.random.SeedSequence | np.random.Generator | None

READOUTS: tuple[Readout, ...] = ("state", "message", "corrected")
RUNS_AT_ONCE = 16
MOST_NUMBERS = 1.5e8


class Steps(Protocol):
    """What a protocol does to first messages, without end."""

    @property
    def order(self) -> IntArray | None:
        """The order of the agents in :meth:`follow`, if it is not their own."""

    def follow(self, columns: FloatArray) -> Iterator[FloatArray]:
        """Yield Q(0) y, Q(1) y, … for one vector or for columns side by side."""


def noise_share(readout: str, n: int, known: tuple[str, ...] = READOUTS) -> float:
    """Return c, the share of its own draw that an agent takes off its message."""
    if not isinstance(readout, Hashable) or readout not in known:
        raise AffineDPError(f"readout must be one of {', '.join(known)}, not {readout!r}")
    return {"state": 1.0, "message": 0.0, "corrected": 1.0 / n}[readout]


def limit_factor(share: float, n: int) -> float:
    """Return the mean-square error in the limit, in units of the total variance of the noise."""
    return (1 - share) ** 2 / n + share**2 * (1 - 1 / n)


def generator_of(seed: Seed) -> np.random.Generator:
    """Return a generator for draws; a number gives a stream of its own.

    Values drawn with ``default_rng(seed)`` and the same number would otherwise be the draws.
    """
    if isinstance(seed, np.random.SeedSequence | np.random.Generator | None):
        return np.random.default_rng(seed)
    number = whole_number(seed, "seed", 0)
    return np.random.default_rng(np.random.SeedSequence(number, spawn_key=(0xD2A3,)))


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
    readouts : tuple of str
        The estimates of the average that there are; the first is the default.
    """

    times: IntArray = field(repr=False)
    average: float
    noise: FloatArray | None = field(repr=False)
    _messages: FloatArray | None = field(repr=False)
    _errors: Mapping[str, FloatArray] = field(repr=False)
    readouts: tuple[str, ...] = READOUTS

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

    def readout(self, readout: str | None = None) -> FloatArray:
        """Return every agent's estimate of the average.

        Parameters
        ----------
        readout : {"state", "message", "corrected"}, optional
            Which estimate.
        """
        share = self._share(readout, self.messages.shape[-1])
        if share == 0.0:
            return self.messages
        assert self.noise is not None
        return self.messages - share * self.noise[:, None, :]

    def squared_error(self, readout: str | None = None) -> FloatArray:
        """Return ‖read-out − average‖² over the agents, shape (runs, time).

        Parameters
        ----------
        readout : {"state", "message", "corrected"}, optional
            Which estimate.
        """
        self._share(readout, 2)
        if self._errors:
            return self._errors[readout or self.readouts[0]]
        error = self.readout(readout) - self.average
        with np.errstate(over="ignore"):
            return finite(np.asarray(np.einsum("rti,rti->rt", error, error)))

    def mean_square_error(self, readout: str | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the mean of the squared error over the runs, and its standard error.

        Parameters
        ----------
        readout : {"state", "message", "corrected"}, optional
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
        if self._share(readout, 2):
            raise AffineDPError(
                f"the {readout} read-out must stay with its agent: the message y_i is already "
                "public, and their difference gives away γ_i, the one draw of agent i, which "
                "reveals x_i(0). Publish the message of an agent"
            )
        raise AffineDPError(
            "a simulated message must not be published: its noise comes from a generator that can "
            "be guessed and from doubles that leak. Let PrivateConsensus.agent draw it"
        )

    release = publish

    def _share(self, readout: str | None, n: int) -> float:
        return noise_share(self.readouts[0] if readout is None else readout, n, self.readouts)


def simulate(
    protocol: Steps,
    x0: FloatArray,
    noise: Noise,
    steps: int,
    runs: int,
    generator: np.random.Generator,
    keep: str = "all",
) -> Run:
    """Return simulated runs from checked arguments."""
    n = len(x0)
    if keep not in ("all", "last", "errors"):
        raise AffineDPError(f"keep must be 'all', 'last' or 'errors', not {keep!r}")
    kept = 1 if keep == "last" else steps + 1
    if runs * (kept + 1) * (len(READOUTS) if keep == "errors" else n) > MOST_NUMBERS:
        raise AffineDPError(
            f"{runs:,} runs × {kept:,} steps × {n:,} agents are too many numbers to keep: "
            "use keep='last', keep='errors', or fewer runs at a time"
        )
    times = np.arange(steps + 1 - kept, steps + 1)
    average = float(x0.mean())
    draws = messages = None
    errors: dict[str, FloatArray] = {}
    if keep == "errors":
        errors = {readout: np.empty((runs, len(times))) for readout in READOUTS}
    else:
        draws, messages = np.empty((runs, n)), np.empty((runs, len(times), n))
    for first in range(0, runs, RUNS_AT_ONCE):
        some = slice(first, min(first + RUNS_AT_ONCE, runs))
        drawn = noise.draw(generator, some.stop - first)
        if draws is not None:
            draws[some] = drawn
        y, gamma = (_side_by_side(values, protocol.order) for values in (x0 + drawn, drawn))
        spare = np.empty_like(y)
        for t, now in enumerate(islice(protocol.follow(y), steps + 1)):
            if messages is not None and (keep == "all" or t == steps):
                messages[some, 0 if keep == "last" else t] = _by_run(now, protocol.order)
            if errors:
                for readout, squares in _squared_errors(now, gamma, average, spare).items():
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
