"""A plant under cloud control, and what noise on its outputs costs: exactly.

The loop of section V.C of the paper, for any linear plant:

    u(t)    = −K (x̂(t) − x_r(t))
    x̂(t+1) = A x̂(t) + B u(t) + L (ŷ(t) − C x̂(t) − D u(t)),     ŷ(t) = y(t) + γ(t).

The loop is linear, so means and mean squares need no simulation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray
from affinedp.control.by_time import sample_noise
from affinedp.control.checks import (
    causal,
    covariance,
    semidefinite,
    semidefinite_root,
    shaped,
)
from affinedp.control.loop_errors import (
    check_noise,
    cost_of_one_draw,
    mean_errors,
    mean_squares,
    stationary_squares,
)
from affinedp.control.loop_report import loop_plot, loop_report, noise_warnings
from affinedp.control.plant import LoopRecord, Reference, SteeredPlant, checked_reference, plant_of
from affinedp.control.simulation import (
    Simulation,
    check_size,
    run_loop,
    white_noise,
)
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError, AffineDPWarning, MissingExtraError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.mechanism import Mechanism
from affinedp.show.page import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, init=False)
class ClosedLoop(LoopRecord):
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
            "reference": checked_reference(reference, n),
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
        """Return the loop with the gains of python-control's ``dlqr`` and ``dlqe``.

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
        feedback, observer = _lqg_gains(
            checked, state_cost, input_cost, process_covariance, measurement_covariance
        )
        return cls(
            checked, feedback, observer, reference,
            x0=x0, xhat0=xhat0, state_weight=state_weight,
        )  # fmt: skip

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
        return mean_errors(self, whole_number(steps, "steps"))

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
        if noise is not None:
            check_noise(self, noise, count)
        for words in self._warnings(noise, count):
            warnings.warn(words, AffineDPWarning, stacklevel=2)
        return mean_squares(self, noise, count, process_noise, sensor_noise)

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
        if noise is not None:
            check_noise(self, noise, 1)
        return stationary_squares(self, noise, process_noise, sensor_noise)

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
        count = None if steps is None else whole_number(steps, "steps")
        check_noise(self, noise, 1 if count is None else count)
        return loop_report(self, noise, count, self.warnings)

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
        count = min(causal(noise).horizon, 200) if steps is None else whole_number(steps, "steps")
        check_noise(self, noise, count)
        return loop_plot(self, noise, count)

    def _warnings(self, noise: Mechanism | None, steps: int) -> tuple[str, ...]:
        return (*self.warnings, *(() if noise is None else noise_warnings(noise, steps)))

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
        check_noise(self, dynamics, count)
        weight = self.state_weight
        if state_weight is not None:
            weight = _weight(state_weight, self.plant.states)
        return cost_of_one_draw(self, dynamics, weight, count)

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
            check_noise(self, noise, count)
            added = sample_noise(noise, many, count, start)
        else:
            added = shaped(noise, (many, count, m), "noise")
        if sensor.any():
            added = added + white_noise(sensor, (many, count), start, stream=1)
        disturbance = None
        if process.any():
            disturbance = white_noise(process, (many, count), start, stream=2)
        return run_loop(self, added, disturbance)


def _weight(value: ArrayLike | None, n: int) -> FloatArray:
    weight = semidefinite(1.0 if value is None else value, "state_weight", n)
    if not weight.any():
        raise AffineDPError("state_weight must not be zero")
    return weight


def _lqg_gains(
    plant: SteeredPlant,
    state_cost: ArrayLike,
    input_cost: ArrayLike,
    process_covariance: ArrayLike,
    measurement_covariance: ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """Return K and L of :meth:`affinedp.control.ClosedLoop.lqg`."""
    try:
        import control
    except ImportError:
        raise MissingExtraError("control", "control") from None
    n, k, m = plant.states, plant.inputs, plant.outputs
    regulator = (
        semidefinite(state_cost, "state_cost", n),
        semidefinite(input_cost, "input_cost", k),
    )
    estimator = (
        semidefinite(process_covariance, "process_covariance", n),
        semidefinite(measurement_covariance, "measurement_covariance", m),
    )
    try:
        feedback = control.dlqr(plant.A, plant.B, *regulator)[0]
        observer = control.dlqe(plant.A, np.eye(n), plant.C, *estimator)[0]
    except (ValueError, ArithmeticError, RuntimeError, np.linalg.LinAlgError) as error:
        raise AffineDPError(
            f"there are no such gains ({error}): the plant must be stabilisable and detectable, "
            "input_cost and measurement_covariance positive definite"
        ) from None
    return feedback, observer


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
