"""Gains of a regulator and an observer, by python-control."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.loop.numbers import semidefinite
from affinedp.control.loop.plant import Plant
from affinedp.errors import AffineDPError, MissingExtraError


def lqg_gains(
    plant: Plant,
    state_cost: ArrayLike,
    input_cost: ArrayLike,
    process_covariance: ArrayLike,
    measurement_covariance: ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """Return K and L of :meth:`affinedp.control.ClosedLoop.lqg`.

    Parameters
    ----------
    plant : Plant
        What is controlled.
    state_cost, input_cost, process_covariance, measurement_covariance : float or array
        A multiple of the identity, a diagonal or a matrix.
    """
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
