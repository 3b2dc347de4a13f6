"""Controllers that know of the noise, and what any linear controller pays: exactly.

An *unaware* controller takes ŷ for y.  An *aware* one runs a Kalman filter for the plant and the
noise filter together, so that it tells noise from motion as well as can be.  That costs no privacy:
the filter is public.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, semidefinite_root
from affinedp.control.gateway_path import sent_always
from affinedp.control.loop_errors import LinearLoop
from affinedp.control.plant import (
    SteeredPlant,
    causal,
    filter_of,
    least_gain,
    plant_of,
    semidefinite,
    shaped,
)
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import Inputs
from affinedp.strategies.filter import Filter

# The Kalman filter takes measurements for at least this noisy, relative to the noise's variance.
LEAST_MEASUREMENT = 1e-10


def aware_controller(
    system: Any,
    mechanism: Mechanism | None,
    *,
    state_cost: ArrayLike,
    input_cost: ArrayLike,
    process_covariance: ArrayLike,
    measurement_covariance: ArrayLike = 0.0,
    feedback: ArrayLike | None = None,
    integral_action: ArrayLike | None = None,
) -> Any:
    """Return an output-feedback controller that tells the privacy noise from the plant's motion.

    Its inputs are ŷ, then the desired state x_d and the feedforward input u_d, as in
    ``control.create_statefbk_iosystem``; its output is u:

        u = u_d − K (x̂ − x_d) − K_i z,      z(t+1) = z(t) + C_i (x̂(t) − x_d(t)),

    with x̂ from a Kalman filter for the plant together with the noise filter.

    Parameters
    ----------
    system : StateSpace, SteeredPlant, or (A, B, C) or (A, B, C, D)
        The plant, with u as its inputs: of a plant with others, too, ``system[:, ["heating"]]``.
    mechanism : Mechanism or None
        The noise that it knows of; None for a controller that takes ŷ for y.
    state_cost, input_cost : float or array
        Weights of x (and z, if there is integral action) and u in the quadratic cost.
    process_covariance : float or array
        Covariance of what disturbs x(t+1).
    measurement_covariance : float or array
        Covariance of sensor noise besides; must be positive where there is no other noise.
    feedback : array_like, shape (k, n) or (k, n + q), optional
        K and K_i, instead of the gains of least cost.
    integral_action : array_like, shape (q, n), optional
        C_i: what is integrated.

    Returns
    -------
    control.StateSpace

    Examples
    --------
    >>> from affinedp.control import aware_controller, design_input_noise
    >>> room = ([[0.99]], [[0.9]], [[1.0]])
    >>> m = design_input_noise(room, epsilon=1.0, delta=1e-4, mu=0.1)
    >>> c = aware_controller(room, m, state_cost=1, input_cost=0.1, process_covariance=0.03)
    >>> c.ninputs, c.noutputs, c.nstates                    # ŷ, x_d, u_d; the room and the noise
    (3, 1, 4)
    """
    plant = plant_of(system)
    _refuse_private(system, mechanism)
    n, k, m = plant.states, plant.inputs, plant.outputs
    integrated = np.zeros((0, n))
    if integral_action is not None:
        integrated = shaped(integral_action, (None, n), "integral_action")
    q = len(integrated)
    gain = _gain(plant, integrated, state_cost, input_cost, feedback)
    disturbed = semidefinite(process_covariance, "process_covariance", n)
    sensed = semidefinite(measurement_covariance, "measurement_covariance", m)
    A, C, observer = _predictor(plant, mechanism, disturbed, sensed)
    r = len(A)
    B = np.vstack([plant.B, np.zeros((r - n, k))])
    # u = u_d − gain (x̂ − x_d, z); the states are x̂ with the noise filter's memory, and z
    pick = np.hstack([np.eye(n), np.zeros((n, r - n))])
    out = np.hstack([-gain[:, :n] @ pick, -gain[:, n:]])
    through = np.hstack([np.zeros((k, m)), gain[:, :n], np.eye(k)])
    known = B - observer @ plant.D  # what u does to the prediction
    moved = np.block([[A - observer @ C, np.zeros((r, q))], [integrated @ pick, np.eye(q)]])
    moved[:r] += known @ out
    entered = np.zeros((r + q, m + n + k))
    entered[:r, :m] = observer
    entered[:r] += known @ through
    entered[r:, m : m + n] -= integrated
    return _state_space(plant, moved, entered, out, through)


def _refuse_private(system: Any, mechanism: Mechanism | None) -> None:
    """Refuse a plant with private and other inputs: a controller moves all that it is given."""
    if mechanism is None:
        return
    causal(mechanism)
    neighbours = mechanism.adjacency
    if not isinstance(neighbours, Inputs) or neighbours.forward:
        return
    labels = [str(label) for label in getattr(system, "input_labels", ())]
    private = [label for label in labels if label in neighbours.domain.names]
    if private and len(private) < len(labels):
        raise AffineDPError(
            f"the plant has the private input {private[0]!r}, which no controller moves: pass it "
            "with the inputs that this one does, such as system[:, ['heating']]"
        )


def _gain(
    plant: SteeredPlant,
    integrated: FloatArray,
    state_cost: ArrayLike,
    input_cost: ArrayLike,
    feedback: ArrayLike | None,
) -> FloatArray:
    n, k, q = plant.states, plant.inputs, len(integrated)
    if feedback is not None:
        return shaped(feedback, (k, n + q), "feedback")
    return least_gain(
        np.block([[plant.A, np.zeros((n, q))], [integrated, np.eye(q)]]),
        np.vstack([plant.B, np.zeros((q, k))]),
        semidefinite(state_cost, "state_cost", n + q),
        semidefinite(input_cost, "input_cost", k),
        "the plant (with what is integrated) must be stabilisable, input_cost positive definite",
    )


def _predictor(
    plant: SteeredPlant, mechanism: Mechanism | None, disturbed: FloatArray, sensed: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A and C of plant and noise filter together, and the gain of the prediction."""
    n, m = plant.states, plant.outputs
    A, C, V, R = plant.A, plant.C, disturbed, sensed
    S = np.zeros((n, m))
    if mechanism is not None:
        own, added = _sent_filter(mechanism, m)
        made, scale = own.noise, own.scale
        A = np.block([[A, np.zeros((n, made.order))], [np.zeros((made.order, n)), made.A]])
        C = np.hstack([C, made.C])
        V = np.zeros((len(A), len(A)))
        V[:n, :n] = disturbed
        V[n:, n:] = scale**2 * made.B @ made.B.T
        S = np.vstack([S, scale**2 * made.B @ made.D.T])
        R = R + scale**2 * made.D @ made.D.T + np.diag(added)
        R = R + LEAST_MEASUREMENT * float(own.last_variances(mechanism.noise).max()) * np.eye(m)
    needs = (
        "the plant must be detectable, and measurement_covariance positive where there is no other "
        "noise"
    )
    return A, C, least_gain(A.T, C.T, V, R, needs, S).T


def _state_space(plant: SteeredPlant, A: Any, B: Any, C: Any, D: Any) -> Any:
    try:
        import control
    except ImportError:
        raise MissingExtraError("control", "control") from None
    inputs = [f"{name}hat" for name in plant.output_names]
    inputs += [f"{name}_d" for name in plant.state_names]
    inputs += [f"u{i + 1}_d" for i in range(plant.inputs)]
    return control.ss(
        A, B, C, D, plant.dt, inputs=inputs, outputs=[f"u{i + 1}" for i in range(plant.inputs)]
    )


@dataclass(frozen=True, eq=False)
class LoopErrors:
    """Mean squares in a loop that regulates to zero.

    Attributes
    ----------
    states, inputs, outputs : arrays
        Variances of x, u and y.
    cost : float
        Of x and u together, as the loop weighs them.
    """

    states: FloatArray
    inputs: FloatArray
    outputs: FloatArray
    cost: float


@dataclass(frozen=True, eq=False, init=False)
class ControlledPlant(LinearLoop):
    """A plant under any linear controller, and what noise costs in that loop.

    Attributes
    ----------
    plant : SteeredPlant
        Given as a discrete-time ``control.StateSpace``, or as (A, B, C) or (A, B, C, D).
    controller : StateSpace
        From ŷ (and what comes after it, such as references) to u; ``aware_controller`` makes one.
    state_cost, input_cost : arrays
        What errors and inputs cost; the identity and zero unless given.

    Examples
    --------
    Telling the controller of the noise is worth more than shaping the noise.

    >>> from affinedp.control import ControlledPlant, aware_controller, design_input_noise
    >>> room = ([[0.99]], [[0.9]], [[1.0]])
    >>> m = design_input_noise(room, epsilon=1.0, delta=1e-4, mu=0.1)
    >>> settings = dict(state_cost=1, input_cost=0.1, process_covariance=0.0324)
    >>> def cost(known, noise):
    ...     c = aware_controller(room, known, measurement_covariance=1e-4, **settings)
    ...     loop = ControlledPlant(room, c, state_cost=1, input_cost=0.1)
    ...     return loop.errors(noise, process_noise=0.18, sensor_noise=0.01).cost
    >>> print(f"{cost(None, m) / cost(None, None):.1f} {cost(m, m) / cost(None, None):.1f}")
    6.3 4.3
    """

    plant: SteeredPlant
    controller: Any = field(repr=False)
    state_cost: FloatArray = field(repr=False)
    input_cost: FloatArray = field(repr=False)

    def __init__(
        self,
        plant: Any,
        controller: Any,
        *,
        state_cost: ArrayLike = 1.0,
        input_cost: ArrayLike = 0.0,
    ) -> None:
        checked = plant_of(plant)
        if not all(hasattr(controller, name) for name in "ABCD"):
            raise AffineDPError(
                "controller must be a StateSpace of python-control, such as aware_controller "
                f"returns, not {type(controller).__name__}"
            )
        made = [real_array(getattr(controller, name), f"controller.{name}") for name in "ABCD"]
        if made[3].shape[0] != checked.inputs or made[3].shape[1] < checked.outputs:
            raise AffineDPError(
                f"the controller has {made[3].shape[1]} inputs and {made[3].shape[0]} outputs, but "
                f"must take {checked.outputs} measurements and return {checked.inputs} inputs"
            )
        if made[3][:, : checked.outputs].any() and checked.D.any():
            raise AffineDPError("plant and controller both pass their input on at once")
        object.__setattr__(self, "plant", checked)
        object.__setattr__(self, "controller", controller)
        weight = semidefinite(state_cost, "state_cost", checked.states)
        object.__setattr__(self, "state_cost", weight)
        weight = semidefinite(input_cost, "input_cost", checked.inputs)
        object.__setattr__(self, "input_cost", weight)

    @property
    def matrix(self) -> FloatArray:
        """What takes the states of plant and controller one step ahead."""
        return self._loop[0]

    @property
    def injection(self) -> FloatArray:
        """How noise on the outputs enters them."""
        return self._loop[1]

    @cached_property
    def _loop(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """M and N of z(t+1) = M z + N γ for z = (x, controller), and u = out z + through γ."""
        plant, m = self.plant, self.plant.outputs
        A, B, C, D = (np.asarray(getattr(self.controller, name), dtype=float) for name in "ABCD")
        entered, through = B[:, :m], D[:, :m]
        out = np.hstack([through @ plant.C, C])
        seen = np.hstack([plant.C, np.zeros((m, len(A)))]) + plant.D @ out
        matrix = np.vstack(
            [
                np.hstack([plant.A, np.zeros((plant.states, len(A)))]) + plant.B @ out,
                np.hstack([np.zeros((len(A), plant.states)), A]) + entered @ seen,
            ]
        )
        return matrix, np.vstack([plant.B @ through, entered]), out, through

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a careful reader should know: whether the loop is stable."""
        radius = float(np.abs(np.linalg.eigvals(self._loop[0])).max())
        if radius < 1:
            return ()
        return (f"the loop is not asymptotically stable: spectral radius {radius:.6g}",)

    def noise_response(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return (A, B, C, D) from output noise to the weighted errors and inputs.

        :func:`~affinedp.control.design_input_noise` takes the loop as its ``cost``.
        """
        matrix, injection, out, through = self._loop
        n = self.plant.states
        errors = np.hstack([semidefinite_root(self.state_cost), np.zeros((n, len(matrix) - n))])
        pushed = semidefinite_root(self.input_cost)
        D = np.vstack([np.zeros((n, self.plant.outputs)), pushed @ through])
        return matrix, injection, np.vstack([errors, pushed @ out]), D

    def errors(
        self,
        noise: Mechanism | None = None,
        *,
        process_noise: ArrayLike | None = None,
        sensor_noise: ArrayLike | None = None,
    ) -> LoopErrors:
        """Return the stationary mean squares: exact, not simulated.

        Parameters
        ----------
        noise : Mechanism or None
            On the outputs, for all time; None for none.
        process_noise, sensor_noise : float, array of shape (n,) or (n, n), optional
            White noise on x(t+1) and on y(t), besides: standard deviations or a covariance.
        """
        n, plant = self.plant.states, self.plant
        self._check_noise(noise, 1)
        moving = self._noisy(noise, process_noise, sensor_noise)
        P, made = moving.stationary(), moving.filtered
        _, _, to_u, through = self._loop
        fresh = through @ moving.sensed @ through.T
        if made is not None:
            to_u = np.hstack([to_u, through @ made.noise.C])
            direct = made.scale * through @ made.noise.D
            fresh = fresh + direct @ direct.T
        U = to_u @ P @ to_u.T + fresh
        to_y = np.hstack([plant.C, np.zeros((plant.outputs, len(P) - n))]) + plant.D @ to_u
        Y = to_y @ P @ to_y.T + plant.D @ fresh @ plant.D.T
        cost = float(np.trace(self.state_cost @ P[:n, :n]) + np.trace(self.input_cost @ U))
        return LoopErrors(P.diagonal()[:n].copy(), U.diagonal().copy(), Y.diagonal().copy(), cost)

    def mean_square_error(
        self,
        noise: Mechanism | None,
        steps: int,
        *,
        process_noise: ArrayLike | None = None,
        sensor_noise: ArrayLike | None = None,
    ) -> FloatArray:
        """Return E x_i(t)² from rest, shape (steps + 1, n): exact, not simulated.

        Parameters
        ----------
        noise, process_noise, sensor_noise
            As for :meth:`errors`.
        steps : int
            How many outputs are sent.
        """
        count = whole_number(steps, "steps")
        self._check_noise(noise, count)
        return self._added_squares(noise, count, process_noise, sensor_noise)


def _sent_filter(noise: Mechanism, outputs: int) -> tuple[Filter, FloatArray]:
    """The filter of stationary noise for so many outputs, and the variance that is fresh beside."""
    filter_of(noise)
    made, added = sent_always(noise)
    assert isinstance(made, Filter)
    if len(made.step_names) != outputs:
        raise AffineDPError(
            f"the noise is for {len(made.step_names)} outputs, the plant has {outputs}"
        )
    return made, added
