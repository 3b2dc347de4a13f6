"""How the protocol behaves: simulated runs, exact errors, limits, bounds, numbers of steps."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.network.modes import Modes, modes_of
from affinedp.consensus.network.network import Network
from affinedp.consensus.network.schedule import Mover, Schedule, Steady, schedule_of
from affinedp.consensus.network.spectrum import DENSE_AGENTS, Spectrum, spectrum_of
from affinedp.consensus.protocol import bounds, exact_errors
from affinedp.consensus.protocol.probes import estimated_curve
from affinedp.consensus.protocol.promise import Noise
from affinedp.consensus.protocol.readouts import limit_factor, noise_share
from affinedp.consensus.protocol.simulation import MOST_NUMBERS, Run, simulate
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

Seed = int | np.random.SeedSequence | np.random.Generator | None
# Statements (i), (ii) and (iii) of Proposition 1.
STATEMENTS = ("path", "mean", "mean-square")


class Behaviour:
    """What a network with noise does; the methods of :class:`PrivateConsensus` that compute."""

    network: Network
    noise: Noise

    @property
    def n(self) -> int:
        """The number of agents."""
        return self.network.n

    @cached_property
    def spectrum(self) -> Spectrum:
        """λ₂, λ_n and α: how fast differences die out."""
        return spectrum_of(self.network)

    @cached_property
    def _modes(self) -> Modes:
        return modes_of(self.network)

    @property
    def alpha(self) -> float:
        """The factor by which differences shrink in one step."""
        return self.spectrum.alpha

    def schedule(
        self,
        weights: Sequence[Any] | Callable[[int], Any] | None = None,
        away: Mapping[Any, Iterable[int]] | ArrayLike | None = None,
    ) -> Schedule:
        """Return weights by step and absences, for :meth:`run` and the error curves.

        Parameters
        ----------
        weights : sequence of matrices or graphs, or callable, optional
            Weights of step 0, 1, …, or a function of the step alone.
        away : mapping of agent to steps, or bool array, shape (steps, n), optional
            Who is away at which step: it keeps its state and its draw, and has no links.
        """
        return Schedule(self.network, weights, away)

    # ------------------------------------------------------------------ what happens

    def run(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int,
        runs: int = 1,
        seed: Seed = None,
        *,
        keep: str = "all",
        schedule: Any = None,
    ) -> Run:
        """Simulate; never publish any of it.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int
            The number of steps; times 0 to ``steps`` are kept.
        runs : int
            How many independent runs.
        seed : int, SeedSequence or Generator, optional
            Where the draws come from.
        keep : {"all", "last", "errors"}
            All messages, those of the last step, or only squared errors.
        schedule : Schedule, sequence or callable, optional
            Weights by step and absences.

        Returns
        -------
        Run
        """
        count, start = _whole(steps, "steps", 0), self._start(x0)
        repeats = _whole(runs, "runs", 1)
        mover = self._mover(schedule, count * repeats)
        generator = _generator(seed)
        return simulate(mover, start, self.noise, count, repeats, generator, keep)

    def mean_error(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int,
        *,
        keep: str = "all",
        schedule: Any = None,
    ) -> FloatArray:
        """Return E[x_i(t)] − average, exactly; it is the same for every read-out.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int
            The number of steps.
        keep : {"all", "last"}
            All steps, or only the last.
        schedule : Schedule, sequence or callable, optional
            Weights by step and absences.

        Returns
        -------
        array, shape (steps + 1, n) or (1, n)
        """
        count, start = _whole(steps, "steps", 0), self._start(x0)
        if keep not in ("all", "last"):
            raise AffineDPError(f"keep must be 'all' or 'last', not {keep!r}")
        if keep == "all" and float(count + 1) * self.n > MOST_NUMBERS:
            raise AffineDPError(f"{count + 1:,} steps × {self.n:,} agents: use keep='last'")
        mover = self._mover(schedule, 1)
        found = np.empty((count + 1 if keep == "all" else 1, self.n))
        for t, deviation in enumerate(exact_errors.deviations(mover, start, count)):
            if keep == "all" or t == count:
                found[t if keep == "all" else 0] = deviation
        return found

    def mean_square_error(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int | Sequence[int] | IntArray,
        readout: str = "state",
        *,
        method: str = "auto",
        probes: int = 64,
        confidence: float = 0.95,
        seed: Seed = 0,
        schedule: Any = None,
    ) -> exact_errors.ErrorCurve:
        """Return E‖read-out(t) − average‖² over all agents, for t = 0, …, steps.

        Exact up to 2000 agents.  Beyond, an estimate with an interval, marked as such.  However
        many steps there are, only their errors are kept.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int or sequence of int
            The number of steps, or chosen steps, ascending.
        readout : {"state", "message", "corrected"}
            Which estimate of the average.
        method : {"auto", "exact", "estimate"}
            "exact" takes every draw through all steps, however long that takes.
        probes : int
            For an estimate: how many random vectors.
        confidence : float
            For an estimate: the interval at each step covers with at least this probability,
            whatever the network.
        seed : int, SeedSequence or Generator, optional
            For an estimate.
        schedule : Schedule, sequence or callable, optional
            Weights by step and absences.

        Returns
        -------
        ErrorCurve
        """
        times, start = _times(steps), self._start(x0)
        share = noise_share(readout, self.n)
        if method not in ("auto", "exact", "estimate"):
            raise AffineDPError(f"method must be 'auto', 'exact' or 'estimate', not {method!r}")
        small = self.n <= DENSE_AGENTS
        last = int(times[-1])
        if method == "estimate" or (method == "auto" and not small):
            if not (isinstance(confidence, numbers.Real) and 0 < confidence < 1):
                raise AffineDPError(f"confidence must be between 0 and 1, not {confidence!r}")
            vectors = _whole(probes, "probes", 2)
            mover = self._mover(schedule, last * vectors)
            generator = _generator(seed)
            return estimated_curve(
                mover, self.noise, start, times, share, vectors, float(confidence), generator
            )
        if schedule is None and small:
            return exact_errors.spectral_curve(self._modes, self.noise, start, times, share)
        mover = self._mover(schedule, last * self.n)
        return exact_errors.column_curve(mover, self.noise, start, times, share)

    # ------------------------------------------------------------------ what it comes to

    def limit(self, readout: str = "state") -> float:
        """Return the mean-square error over all agents as t grows, exactly.

        Parameters
        ----------
        readout : {"state", "message", "corrected"}
            Which estimate of the average.
        """
        return self.noise.total_variance * limit_factor(readout, self.n)

    def bound(
        self,
        x0: ArrayLike | Mapping[Any, float] | None = None,
        steps: int | None = None,
        statement: str = "mean-square",
        *,
        noise: ArrayLike | None = None,
    ) -> FloatArray | float:
        """Return the bounds of Proposition 1 on the state, at every step or in the limit.

        Parameters
        ----------
        x0 : array_like or mapping of agents, optional
            x(0); without it the limit of the bound.
        steps : int, optional
            The number of steps.
        statement : {"path", "mean", "mean-square"}
            (i) on ‖x(t) − average‖ of runs with given draws, (ii) on ‖E x(t) − average‖, (iii) on
            E‖x(t) − average‖².
        noise : array_like, shape (n,) or (runs, n), optional
            The draws γ, for "path".

        Returns
        -------
        array, shape (steps + 1,) or (runs, steps + 1), or float
        """
        if statement not in STATEMENTS:
            raise AffineDPError(f"statement must be one of {STATEMENTS}, not {statement!r}")
        if (x0 is None) != (steps is None):
            raise AffineDPError("give x0 and steps, or neither for the limit of the bound")
        gamma = None
        if statement == "path":
            if noise is None:
                raise AffineDPError("statement 'path' is about given draws: give noise")
            gamma = real_array(noise, "noise")
            if gamma.ndim not in (1, 2) or gamma.shape[-1] != self.n:
                raise AffineDPError(f"noise must have one draw for each of {self.n} agents")
        if x0 is None or steps is None:
            if gamma is not None:
                draws = gamma
                limits = bounds.upwards(lambda: bounds.length(draws))
                return np.asarray(limits) if gamma.ndim == 2 else float(limits)
            whole = self.noise.total_variance * bounds.ROUNDING_UP
            return 0.0 if statement == "mean" else whole
        start, count, alpha = self._start(x0), _whole(steps, "steps", 0), self.spectrum.alpha_bound
        if gamma is not None:
            return bounds.path_bound(alpha, start, gamma, count)
        if statement == "mean":
            return bounds.mean_bound(alpha, start, count)
        return bounds.mean_square_bound(alpha, start, self.noise, count)

    def steps_to(
        self, tolerance: float, *, spread: float | None = None, readout: str = "state"
    ) -> int:
        """Return a number of steps that is proved to be enough.

        Without ``spread``: differences between messages have shrunk to this share of what they
        were, in every run.  With it: from this step on the mean-square error is within
        ``tolerance`` of its limit.  Neither depends on the data, so the number may be public.

        Parameters
        ----------
        tolerance : float
            Positive.
        spread : float, optional
            A public bound on ‖x(0) − average‖.
        readout : {"state", "message", "corrected"}
            Which estimate, with ``spread``.
        """
        wanted = _positive(tolerance, "tolerance")
        if spread is None:
            return bounds.shrinking_steps(self.spectrum.alpha_bound, wanted)
        if not (isinstance(spread, int | float | np.number) and 0 <= spread < np.inf):
            raise AffineDPError(f"spread must be a finite number, at least 0, not {spread!r}")
        alpha = self.spectrum.alpha_bound
        return bounds.settling_steps(alpha, self.noise, readout, float(spread), wanted)

    def optimal_epsilon(
        self, zeta: float, readout: str = "paper", *, delta: float | None = None
    ) -> float:
        """Return the least ε with which the mean-square error ends at ζ or below.

        Parameters
        ----------
        zeta : float
            ζ, over all agents.
        readout : {"paper", "state", "message", "corrected"}
            "paper" is the paper's trade-off, from its bound; the others use the exact limits.
        delta : float, optional
            δ, for Gaussian noise; the one this was made with by default.

        Returns
        -------
        float
        """
        allowed = delta if delta is not None else (self.noise.delta or None)
        return bounds.optimal_epsilon(self.noise, _positive(zeta, "zeta"), readout, allowed)

    # ------------------------------------------------------------------ inside

    def _start(self, x0: ArrayLike | Mapping[Any, float]) -> FloatArray:
        if not isinstance(x0, Mapping) and np.ndim(x0) != 1:
            raise AffineDPError(f"x0 must hold one value for each of {self.n} agents")
        return self.network.values(x0, "x0")

    def _mover(self, schedule: Any, products: int) -> Mover:
        if schedule is None:
            return Steady(self.network, products)
        return schedule_of(schedule, self.network)


def _whole(value: int, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise AffineDPError(f"{what} must be a whole number, at least {least}, not {value!r}")
    return int(value)


def _times(steps: int | Sequence[int] | IntArray) -> IntArray:
    """All steps up to a number, or the chosen ones."""
    if (
        isinstance(steps, str)
        or not isinstance(steps, Sequence | np.ndarray)
        or np.ndim(steps) == 0
    ):
        count = _whole(steps, "steps", 0)  # type: ignore[arg-type]
        if count >= MOST_NUMBERS:
            raise AffineDPError(
                f"{count:,} steps are too many errors to keep: choose some, such as "
                "steps=[0, 10, 100, 1000]"
            )
        return np.arange(count + 1)
    chosen = [_whole(step, "each of the chosen steps", 0) for step in steps]
    if max(chosen, default=0) > bounds.MOST_STEPS:
        raise AffineDPError("a chosen step is beyond 2^53, which doubles cannot count")
    found = np.array(chosen, dtype=np.int64)
    if not len(found) or np.any(np.diff(found) <= 0):
        raise AffineDPError("the chosen steps must be ascending, at least one, and none twice")
    return found


def _positive(value: float, what: str) -> float:
    if isinstance(value, int | float | np.number) and 0 < value < np.inf:
        return float(value)
    raise AffineDPError(f"{what} must be a positive number, not {value!r}")


def _generator(seed: Seed) -> np.random.Generator:
    """A generator for draws; a number gives a stream of its own.

    Values drawn with ``default_rng(seed)`` and the same number would otherwise be the draws.
    """
    if isinstance(seed, np.random.SeedSequence | np.random.Generator | None):
        return np.random.default_rng(seed)
    if isinstance(seed, numbers.Integral) and not isinstance(seed, bool) and seed >= 0:
        return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(0xD2A3,)))
    raise AffineDPError(f"seed must be a whole number, at least 0, not {seed!r}")
