"""A plant under cloud control, and what noise on its outputs costs: exactly.

The loop of section V.C of the paper, for any linear plant:

    u(t)    = −K (x̂(t) − x_r(t))
    x̂(t+1) = A x̂(t) + B u(t) + L (ŷ(t) − C x̂(t) − D u(t)),     ŷ(t) = y(t) + γ(t).

The loop is linear, so means and mean squares need no simulation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, semidefinite_root
from affinedp.control.by_time import sample_noise
from affinedp.control.gateway_path import sent_always
from affinedp.control.loop_errors import (
    LinearLoop,
    Simulation,
    check_growth,
    check_size,
    first_of,
    noise_warnings,
    unit_loadings,
    white_noise,
)
from affinedp.control.plant import (
    SteeredPlant,
    causal,
    covariance,
    least_gain,
    plant_of,
    semidefinite,
    shaped,
)
from affinedp.domains.dynamics import ENDLESS, Dynamics
from affinedp.errors import AffineDPError, AffineDPWarning, counted, outside
from affinedp.exact.numbers import real_array, whole_number
from affinedp.mechanism import Mechanism
from affinedp.parts import Locked
from affinedp.show.page import Report
from affinedp.strategies.filter import Filter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Reference: TypeAlias = Callable[[int], ArrayLike] | ArrayLike


@dataclass(frozen=True, eq=False, init=False)
class ClosedLoop(LinearLoop, Locked):
    """Plant, observer and state feedback that follow a reference.

    Attributes
    ----------
    plant : SteeredPlant
        Given as a discrete-time ``control.StateSpace``, or as (A, B, C) or (A, B, C, D).
    feedback : array, shape (k, n)
        K in u(t) = −K (x̂(t) − x_r(t)).
    observer : array, shape (n, m)
        L, the gain of the prediction: see :meth:`lqg` for where it comes from.
    reference : array of shape (n,) or (time, n), or function of t
        x_r, constant, or for t = 0, 1, …
    x0, xhat0 : arrays, shape (n,)
        Where plant and observer start; zeros unless given.
    state_weight : array, shape (n, n)
        Q of :meth:`noise_cost`: a number, a diagonal or a matrix; the identity unless given.

    Examples
    --------
    >>> from affinedp.control import ClosedLoop, design_output_noise
    >>> plant = ([[1.0]], [[1.0]], [[1.0]])
    >>> loop = ClosedLoop(plant, [[0.5]], [[0.5]], reference=[0.0], x0=[4.0])
    >>> loop.mean(2).ravel().tolist()
    [4.0, 4.0, 3.0]
    >>> noise = design_output_noise(([[1.0]], [[1.0]]), horizon=50, epsilon=1.0, delta=0.01)
    >>> float(loop.mean_square_error(noise, 50)[-1, 0].round(4))  # 1.8779², as in the paper
    3.5264
    """

    plant: SteeredPlant
    feedback: FloatArray = field(repr=False)
    observer: FloatArray = field(repr=False)
    reference: Reference = field(repr=False)
    x0: FloatArray = field(repr=False)
    xhat0: FloatArray = field(repr=False)
    state_weight: FloatArray = field(repr=False)

    def __init__(
        self,
        plant: Any,
        feedback: ArrayLike,
        observer: ArrayLike,
        reference: Reference,
        *,
        x0: ArrayLike | None = None,
        xhat0: ArrayLike | None = None,
        state_weight: ArrayLike | None = None,
    ) -> None:
        checked = plant_of(plant)
        n = checked.states
        values = {
            "plant": checked,
            "feedback": shaped(feedback, (checked.inputs, n), "feedback"),
            "observer": shaped(observer, (n, checked.outputs), "observer"),
            "reference": _checked_reference(reference, n),
            "x0": shaped(np.zeros(n) if x0 is None else x0, (n,), "x0"),
            "xhat0": shaped(np.zeros(n) if xhat0 is None else xhat0, (n,), "xhat0"),
            "state_weight": _weight(state_weight, n),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def lqg(
        cls,
        plant: Any,
        reference: Reference,
        *,
        state_cost: ArrayLike,
        input_cost: ArrayLike,
        process_covariance: ArrayLike,
        measurement_covariance: ArrayLike,
        x0: ArrayLike | None = None,
        xhat0: ArrayLike | None = None,
        state_weight: ArrayLike | None = None,
    ) -> ClosedLoop:
        """Return the loop with the gains of least quadratic cost.

        The observer predicts x̂(t+1) from ŷ(t), so L = A P Cᵀ (C P Cᵀ + R)⁻¹.  That is what
        python-control's ``dlqe(A, I, C, Q, R)`` returns, and ``dlqr(Aᵀ, Cᵀ, Q, R)`` transposed.
        The gain of a filter that uses ŷ(t) for x̂(t) lacks the factor A (MATLAB's ``dlqe``
        returns that one): multiply it by A first.

        Parameters
        ----------
        plant, reference, x0, xhat0, state_weight
            As for the class.
        state_cost, input_cost : float or array
            Weights of x and u in the quadratic cost; a number stands for that multiple of the
            identity, a vector for a diagonal.
        process_covariance, measurement_covariance : float or array
            What the observer assumes, likewise.

        Returns
        -------
        ClosedLoop

        Examples
        --------
        >>> vehicle = ([[1, 0.1], [0, 1]], [[0.005], [0.1]], [[1, 0]])
        >>> loop = ClosedLoop.lqg(
        ...     vehicle, [0, 0], state_cost=20, input_cost=1,
        ...     process_covariance=2, measurement_covariance=1,
        ... )
        >>> loop.feedback.round(4).tolist(), loop.observer.round(4).tolist()
        ([[3.424, 4.3095]], [[0.8266], [0.6973]])
        """
        checked = plant_of(plant)
        n, k, m = checked.states, checked.inputs, checked.outputs
        feedback = least_gain(
            checked.A,
            checked.B,
            semidefinite(state_cost, "state_cost", n),
            semidefinite(input_cost, "input_cost", k),
            "the plant must be stabilisable, and input_cost positive definite",
        )
        observer = least_gain(
            checked.A.T,
            checked.C.T,
            semidefinite(process_covariance, "process_covariance", n),
            semidefinite(measurement_covariance, "measurement_covariance", m),
            "the plant must be detectable, and measurement_covariance positive definite",
        ).T
        return cls(
            checked, feedback, observer, reference,
            x0=x0, xhat0=xhat0, state_weight=state_weight,
        )  # fmt: skip

    def references(self, steps: int) -> FloatArray:
        """Return x_r(0), …, x_r(steps), shape (steps + 1, n).

        Parameters
        ----------
        steps : int
            How many outputs are sent.
        """
        wanted, n = self.reference, self.plant.states
        if callable(wanted):
            return np.array([shaped(wanted(t), (n,), f"reference({t})") for t in range(steps + 1)])
        given = np.asarray(wanted, dtype=np.float64)
        if given.ndim == 1:
            return np.tile(given, (steps + 1, 1))
        if len(given) <= steps:
            raise AffineDPError(
                f"the reference ends at t = {len(given) - 1}, but {steps} steps need it up to "
                f"t = {steps}: give more of it, or a function of t"
            )
        return given[: steps + 1].copy()

    @cached_property
    def matrix(self) -> FloatArray:
        """What takes (x, x̂) one step ahead, shape (2n, 2n)."""
        plant = self.plant
        pull = plant.B @ self.feedback
        correction = self.observer @ plant.C
        return np.block([[plant.A, -pull], [correction, plant.A - pull - correction]])

    @cached_property
    def injection(self) -> FloatArray:
        """How γ(t) enters (x, x̂), shape (2n, m)."""
        return np.concatenate([np.zeros_like(self.observer), self.observer])

    def pull(self, references: FloatArray) -> FloatArray:
        """Return how the reference enters (x, x̂): B K x_r(t) in both, shape (time, 2n).

        Parameters
        ----------
        references : array, shape (time, n)
            As :meth:`references` returns it.
        """
        return np.tile(references @ (self.plant.B @ self.feedback).T, (1, 2))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a careful reader should know: which half of the loop is not stable."""
        plant = self.plant
        halves = (
            ("plant under state feedback, A − B K,", plant.A - plant.B @ self.feedback),
            ("observer, A − L C,", plant.A - self.observer @ plant.C),
        )
        radii = [(name, float(np.abs(np.linalg.eigvals(half)).max())) for name, half in halves]
        return tuple(
            f"the {name} is not asymptotically stable: spectral radius {radius:.6g}"
            for name, radius in radii
            if radius >= 1.0
        )

    def mean(self, steps: int) -> FloatArray:
        """Return the mean tracking error E x(t) − x_r(t), which no noise changes.

        Parameters
        ----------
        steps : int
            How many outputs are sent.

        Returns
        -------
        array, shape (steps + 1, n)
            For t = 0, …, steps.
        """
        nothing = np.zeros((1, whole_number(steps, "steps"), self.plant.outputs))
        return np.array(self._run(nothing).tracking_errors[0])

    def mean_square_error(
        self,
        noise: Mechanism | None,
        steps: int,
        *,
        process_noise: ArrayLike | None = None,
        sensor_noise: ArrayLike | None = None,
    ) -> FloatArray:
        """Return E (x_i(t) − x_r,i(t))² for each state and step: exact, not simulated.

        Noise that was drawn once for the whole horizon is followed by its loadings, fresh and
        filtered noise by a Lyapunov recursion.  An unstable loop and noise that explodes warn.

        Parameters
        ----------
        noise : Mechanism or None
            On the outputs; None for none.
        steps : int
            How many outputs are sent, at most the noise's horizon.
        process_noise, sensor_noise : float, array of shape (n,) or (n, n), optional
            White noise on x(t+1) and on y(t), besides: standard deviations or a covariance.

        Returns
        -------
        array, shape (steps + 1, n)
            For t = 0, …, steps.
        """
        count = whole_number(steps, "steps")
        self._check_noise(noise, count)
        for words in (*self.warnings, *noise_warnings(noise, count)):
            warnings.warn(words, AffineDPWarning, stacklevel=outside())
        return self._mean_squares(noise, count, process_noise, sensor_noise)

    def _mean_squares(
        self,
        noise: Mechanism | None,
        steps: int,
        process_noise: ArrayLike | None = None,
        sensor_noise: ArrayLike | None = None,
    ) -> FloatArray:
        added = self._added_squares(noise, steps, process_noise, sensor_noise)
        squares = self.mean(steps) ** 2 + added
        check_growth(squares.max(axis=1))
        return squares

    def stationary_error(
        self,
        noise: Mechanism | None,
        *,
        process_noise: ArrayLike | None = None,
        sensor_noise: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the variance of each state after a long time, shape (n,): exact.

        Parameters
        ----------
        noise : Mechanism or None
            On the outputs; None for none.  Stationary noise with a horizon has no such error.
        process_noise, sensor_noise : float, array of shape (n,) or (n, n), optional
            White noise on x(t+1) and on y(t), besides: standard deviations or a covariance.

        Examples
        --------
        >>> from affinedp.control import ClosedLoop, design_input_noise
        >>> room = ([[0.99]], [[0.9]], [[1.0]])
        >>> loop = ClosedLoop(room, [[0.3]], [[0.3]], reference=[0.0])
        >>> m = design_input_noise(room, epsilon=1.0, delta=1e-4, mu=0.1)
        >>> loop.stationary_error(m).round(3).tolist()
        [0.184]
        """
        self._check_noise(noise, 1)
        found = self._noisy(noise, process_noise, sensor_noise).stationary()
        return np.array(found.diagonal()[: self.plant.states])

    def noise_response(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return (A, B, C, D) from output noise to the weighted tracking error.

        With it the loop is a ``cost`` for :func:`~affinedp.control.design_input_noise`.
        """
        n = self.plant.states
        seen = np.hstack([semidefinite_root(self.state_weight), np.zeros((n, n))])
        return self.matrix, self.injection, seen, np.zeros((n, self.plant.outputs))

    def report(self, noise: Mechanism, steps: int | None = None) -> Report:
        """Return the noise's report with the tracking error beside it.

        Parameters
        ----------
        noise : Mechanism
            On the outputs.
        steps : int, optional
            How many outputs are sent: the mean over them.  Unless given, the noise's horizon; for
            noise without one the error after a long time.
        """
        made, count = causal(noise), 1 if steps is None else whole_number(steps, "steps")
        self._check_noise(noise, count)
        if steps is None and isinstance(made, Filter) and made.horizon >= ENDLESS:
            words, mean = "after a long time", self._lasting_error()
            if mean is None:  # a reference that moves has no last mean
                words, mean = f"{words}, around its mean", np.zeros(self.plant.states)
            errors = [mean**2 + self.stationary_error(one) for one in (noise, None)]
        else:
            count = made.horizon if steps is None else count
            words = f"over {counted(count, 'step')}"
            errors = [self._mean_squares(one, count).mean(axis=0) for one in (noise, None)]
        rows = [
            (
                "tracking",
                f"{name}: root mean square error {math.sqrt(after):.4g} with this noise, "
                f"{math.sqrt(before):.4g} without, {words}",
            )
            for name, after, before in zip(self.plant.state_names, *errors)
        ]
        if any(errors[1] > 0):
            own = "what is left without noise is the loop's own: its offset, and disturbances"
            rows.append(("tracking", own))
        cautions = (*self.warnings, *noise_warnings(noise, count))
        rows += [("warning", caution) for caution in cautions]
        found = noise.report()
        return replace(found, totals=(*found.totals, *rows))

    def _lasting_error(self) -> FloatArray | None:
        """The mean tracking error after a long time, shape (n,); None if the reference moves."""
        if callable(self.reference) or np.ndim(self.reference) > 1:
            return None
        reference = self.references(0)
        rest = np.linalg.solve(np.eye(len(self.matrix)) - self.matrix, self.pull(reference)[0])
        return np.asarray(rest[: self.plant.states] - reference[0])

    def plot(self, noise: Mechanism, steps: int | None = None) -> Figure:
        """Return a picture of every state over time: reference, mean, and how far noise moves it.

        The bands are exact, not simulated.  The figure is pyplot's current one.

        Parameters
        ----------
        noise : Mechanism
            On the outputs.
        steps : int, optional
            How many outputs are sent; unless given the noise's horizon, and at most 200.

        Returns
        -------
        matplotlib.figure.Figure
        """
        made = causal(noise)
        count = min(made.horizon, 200) if steps is None else whole_number(steps, "steps")
        self._check_noise(noise, count)
        from affinedp.show.plot import new_figure

        plant, references = self.plant, self.references(count)
        mean = self.mean(count) + references
        spread = np.sqrt(self._added_squares(noise, count))
        figure = new_figure(figsize=(7.0, 1.0 + 2.3 * plant.states), layout="constrained")
        shown = figure.subplots(plant.states, 1, sharex=True, squeeze=False)[:, 0]
        times = plant.dt * np.arange(count + 1)
        for i, axes in enumerate(shown):
            low, high = mean[:, i] - 2 * spread[:, i], mean[:, i] + 2 * spread[:, i]
            axes.fill_between(times, low, high, alpha=0.25, label="± 2 standard deviations")
            axes.plot(times, mean[:, i], label="mean, as without noise")
            axes.plot(times, references[:, i], "k--", linewidth=1, label="reference")
            axes.set_ylabel(plant.state_names[i])
            axes.grid(alpha=0.3)
        figure.legend(*shown[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        shown[0].set_title(f"The loop under noise that keeps ε = {_epsilon(noise)}")
        unit = "time" if plant.dt != 1.0 else "step"
        shown[-1].set_xlabel(unit + first_of(count, causal(noise).horizon))
        return figure

    def noise_cost(
        self, dynamics: Dynamics, state_weight: ArrayLike | None = None, steps: int | None = None
    ) -> FloatArray:
        """Return W: noise with root R costs tr(W R Rᵀ) in the sum of squared tracking errors.

        With γ(t) = C(t) A(t−1)…A(0) R η, Σ_t E‖x(t) − x_r(t)‖²_Q over t = 0, …, steps is its value
        without noise plus tr(W R Rᵀ).  W depends neither on x(0) nor on the reference.

        Parameters
        ----------
        dynamics : Dynamics
            What shapes the noise; its outputs are the plant's, its states need not be.
        state_weight : float or array, optional
            Q; the loop's own unless given.
        steps : int, optional
            How many outputs are sent; the horizon of ``dynamics`` unless given.

        Returns
        -------
        array, shape (states of ``dynamics``, states of ``dynamics``)
            Positive semidefinite, and singular where some noise costs nothing.

        Examples
        --------
        >>> from affinedp.domains.dynamics import dynamics_of
        >>> loop = ClosedLoop(([[1.0]], [[1.0]], [[1.0]]), [[0.5]], [[0.5]], reference=[0.0])
        >>> loop.noise_cost(dynamics_of(([[1.0]], [[1.0]]), horizon=2)).tolist()
        [[0.0625]]
        """
        count = dynamics.horizon if steps is None else whole_number(steps, "steps")
        self._check_noise(dynamics, count)
        weight, n = self.state_weight, self.plant.states
        if state_weight is not None:
            weight = _weight(state_weight, n)
        cost = np.zeros((dynamics.states, dynamics.states))
        with np.errstate(over="ignore", invalid="ignore"):
            for response in self._responses(unit_loadings(dynamics, count), dynamics.states):
                cost += response[:n].T @ weight @ response[:n]
        if not np.all(np.isfinite(cost)):
            raise AffineDPError(
                f"the noise or the loop grows beyond double precision within {count} steps: "
                "take fewer, or stabilise the loop (see ClosedLoop.warnings)"
            )
        return np.asarray((cost + cost.T) / 2)

    def simulate(
        self,
        noise: Mechanism | ArrayLike | None,
        steps: int,
        runs: int,
        seed: int,
        *,
        process_noise: ArrayLike | None = None,
        sensor_noise: ArrayLike | None = None,
    ) -> Simulation:
        """Return simulated runs of the loop.

        The other kinds of noise use streams of their own, beside that of the privacy noise.
        For simulation only: nothing here is fit to be published.

        Parameters
        ----------
        noise : Mechanism, array or None
            Drawn anew in each run, or given for all: an array of shape (runs, steps, m).
        steps : int
            How many outputs are sent.
        runs : int
            How often.
        seed : int
            Makes it repeatable.
        process_noise, sensor_noise : float, array of shape (n,) or (n, n), optional
            White noise on x(t+1) and on y(t): standard deviations or a covariance.

        Returns
        -------
        Simulation

        Examples
        --------
        >>> loop = ClosedLoop(([[1.0]], [[1.0]], [[1.0]]), [[0.5]], [[0.5]], reference=[0.0])
        >>> loop.simulate(np.ones((1, 3, 1)), steps=3, runs=1, seed=0).states.ravel().tolist()
        [0.0, 0.0, -0.25, -0.5]
        """
        count, many = whole_number(steps, "steps"), whole_number(runs, "runs")
        start = whole_number(seed, "seed", least=0)
        n, m = self.plant.states, self.plant.outputs
        check_size(many, count, 2 * n + self.plant.inputs + 2 * m)
        process = covariance(process_noise, "process_noise", n)
        sensor = covariance(sensor_noise, "sensor_noise", m)
        if noise is None:
            added = np.zeros((many, count, m))
        elif isinstance(noise, Mechanism):
            self._check_noise(noise, count)
            sent_always(noise)
            added = sample_noise(noise, many, count, start)
        else:
            added = shaped(noise, (many, count, m), "noise")
        if sensor.any():
            added = added + white_noise(sensor, (many, count), start, stream=1)
        disturbance = None
        if process.any():
            disturbance = white_noise(process, (many, count), start, stream=2)
        return self._run(added, disturbance)

    def _run(self, noise: FloatArray, disturbance: FloatArray | None = None) -> Simulation:
        """Run the loop with given noise."""
        plant, n = self.plant, self.plant.states
        runs, steps, _ = noise.shape
        references = self.references(steps)
        pull = self.pull(references)[:, :, None]
        # inside, runs come last: each step is then one product with long contiguous rows
        added = noise.transpose(1, 2, 0)
        both = np.empty((steps + 1, 2 * n, runs))
        both[0] = np.concatenate([self.x0, self.xhat0])[:, None]
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            for t in range(steps):
                after = np.matmul(self.matrix, both[t], out=both[t + 1])
                after += self.injection @ added[t]
                after += pull[t]
                if disturbance is not None:
                    after[:n] += disturbance[:, t].T
            states, estimates = both[:, :n], both[:, n:]
            inputs = self.feedback @ (references[:, :, None] - estimates)[:-1]
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


def _epsilon(noise: Mechanism) -> str:
    asked = noise.guarantee.asked
    if asked is None:
        return f"{noise.guarantee.epsilon(1e-6):.3g} at δ = 1e-06"
    return f"{asked.epsilon:g}" + (f" at δ = {asked.delta:g}" if asked.delta else "")


def _checked_reference(reference: Reference, n: int) -> Reference:
    """A reference that fits n states, arrays as read-only copies, or a refusal."""
    if callable(reference):
        return reference
    array = np.atleast_1d(real_array(reference, "reference"))
    if array.ndim > 2 or array.shape[-1] != n:
        raise AffineDPError(
            f"reference has shape {array.shape}, but must be a constant of shape ({n},), an array "
            f"of shape (time, {n}), or a function of t"
        )
    return shaped(array, array.shape, "reference")


def _weight(value: ArrayLike | None, n: int) -> FloatArray:
    weight = semidefinite(1.0 if value is None else value, "state_weight", n)
    if not weight.any():
        raise AffineDPError("state_weight must not be zero")
    return weight


@dataclass(frozen=True, eq=False)
class Sweep:
    """Exact mean-square tracking errors for several ε."""

    # the privacy levels, as they were given
    epsilons: FloatArray
    # for each level, step and state
    mean_square_errors: FloatArray = field(repr=False)
    # what to call the states
    state_names: tuple[str, ...]

    def table(self) -> dict[str, NDArray[np.generic]]:
        """Return columns of equal length, one row per level, step and state.

        ``pandas.DataFrame(sweep.table())`` makes a tidy table of them.
        """
        count, times, states = self.mean_square_errors.shape
        return {
            "epsilon": np.repeat(self.epsilons, times * states),
            "step": np.tile(np.repeat(np.arange(times), states), count),
            "state": np.tile(np.array(self.state_names), count * times),
            "mean_square_error": self.mean_square_errors.ravel(),
        }


def sweep(
    loop: ClosedLoop,
    noise: Callable[[float], Mechanism],
    epsilons: Sequence[float],
    steps: int,
    *,
    n_jobs: int = 1,
) -> Sweep:
    """Return the exact mean-square tracking errors for several privacy levels.

    Parameters
    ----------
    loop : ClosedLoop
        What is controlled.
    noise : function of ε
        Designs the noise; for processes, anything that joblib's backend can send to them.
    epsilons : sequence of float
        The privacy levels.
    steps : int
        How many outputs are sent.
    n_jobs : int
        Workers of joblib; ``joblib.parallel_config`` chooses where they run.

    Returns
    -------
    Sweep

    Examples
    --------
    >>> from affinedp.control import ClosedLoop, independent_output_noise
    >>> from affinedp.control.closed_loop import sweep
    >>> loop = ClosedLoop(([[1.0]], [[1.0]], [[1.0]]), [[0.5]], [[0.5]], reference=[0.0])
    >>> def noise(epsilon):
    ...     return independent_output_noise(([[1.0]], [[1.0]]), 9, epsilon=epsilon, delta=0.01)
    >>> found = sweep(loop, noise, [1.0, 10.0], steps=9)
    >>> found.mean_square_errors.shape, found.mean_square_errors[:, -1, 0].round(3).tolist()
    ((2, 10, 1), [5.874, 0.204])
    """
    from joblib import Parallel, delayed

    levels = real_array(list(epsilons), "epsilons", 1)
    if len(levels) == 0:
        raise AffineDPError("epsilons is empty: give at least one privacy level")
    jobs = [delayed(_one)(loop, noise, float(level), steps) for level in levels]
    errors = np.array(Parallel(n_jobs=n_jobs)(jobs))
    return Sweep(levels, errors, loop.plant.state_names)


def _one(
    loop: ClosedLoop, noise: Callable[[float], Mechanism], epsilon: float, steps: int
) -> FloatArray:
    return loop.mean_square_error(noise(epsilon), steps)
