"""What a gateway states: its conditions, its noise, and what its sensors cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger
from affinedp.control.gateway.plan import ANALOG_DELTA, PUBLISHED_BITS, GatewayPlan, cost_of_steps
from affinedp.control.gateway.state import OneRun
from affinedp.control.gateway.usefulness import advice
from affinedp.control.gateway.white_plan import white_plan
from affinedp.control.sensors.sensor import Sensor
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.errors import AffineDPError


def check_arguments(mechanism: Any, ledger: Any, label: Any, switches: Mapping[str, Any]) -> None:
    """Refuse what a gateway cannot be made of.

    Parameters
    ----------
    mechanism, ledger, label : object
        As for a gateway.
    switches : mapping of str to object
        What must be True or False, by name.
    """
    if not isinstance(mechanism, OneRun):
        raise AffineDPError(
            "a gateway sends with a TrajectoryMechanism (design_output_noise) or with independent "
            f"noise (independent_output_noise), not with {type(mechanism).__name__}"
        )
    if mechanism.law != "gaussian":
        raise AffineDPError(
            "a gateway sends Gaussian noise: the fresh noise that hides rounding at every step "
            "has no counterpart for δ = 0. Release Laplace noise for a recorded trajectory "
            "(mechanism().release), or design Gaussian noise"
        )
    if not (label is None or isinstance(label, str)):
        raise AffineDPError(f"label must be text, not {label!r}")
    if not (ledger is None or isinstance(ledger, Ledger)):
        raise AffineDPError(f"ledger must be a Ledger, not {type(ledger).__name__}")
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise AffineDPError(f"{name} must be True or False, not {value!r}")


def conditions(mechanism: OneRun, sensor: Sensor, plan: GatewayPlan) -> Iterator[str]:
    """Say what the promise needs of the sensors, and what they cost.

    Parameters
    ----------
    mechanism : TrajectoryMechanism or IndependentOutputNoise
        The noise.
    sensor : Sensor
        What was declared.
    plan : GatewayPlan
        What follows from it.
    """
    names = mechanism.dynamics.output_names
    errors = "; ".join(
        f"{name}: {error:.3g} (and |{name}| ≤ {largest:.3g})"
        for name, error, largest in zip(names, plan.measurement_error, plan.largest)
    )
    yield (
        "it holds for recorded measurements that are off the equations by at most "
        f"{errors}: rounding, the sensor's resolution, model error that neighbours do not share"
    )
    yield f"declared about the sensors: {sensor.sentence(names)}"
    if sensor.analog:
        yield (
            "the sensors' own noise is taken on trust: Gaussian, fresh at every reading, "
            f"independent of the data; and δ(ε) is right where it is at least {ANALOG_DELTA:g} "
            "(1 + e^ε)"
        )
    if not sensor.exact and not sensor.low and isinstance(mechanism, TrajectoryMechanism):
        yield "it holds as long as no sensor saturates: declare its range to have that checked"
    said = advice(cost(mechanism, sensor))
    if said:
        yield said


def cost(mechanism: OneRun, sensor: Sensor) -> float:
    """Return the total variance with these sensors, relative to exact ones.

    Parameters
    ----------
    mechanism : TrajectoryMechanism or IndependentOutputNoise
        The noise.
    sensor : Sensor
        What was declared.
    """
    if isinstance(mechanism, TrajectoryMechanism):
        return cost_of_steps(mechanism, sensor)
    return float((white_plan(mechanism, sensor).fresh_noise ** 2 / mechanism.sigma**2).mean())


def deviation(mechanism: OneRun, plan: GatewayPlan) -> FloatArray:
    """Return the standard deviation of what is added to each output, over the whole horizon.

    Parameters
    ----------
    mechanism : TrajectoryMechanism or IndependentOutputNoise
        The noise.
    plan : GatewayPlan
        Fresh noise and enlargement.
    """
    fresh = plan.fresh_noise**2 * (1 + 4.0**-PUBLISHED_BITS / 12)
    if not isinstance(mechanism, TrajectoryMechanism):
        return np.asarray(np.sqrt(fresh))
    designed = (mechanism.noise_by_time**2).mean(axis=0)
    return np.asarray(np.sqrt(plan.noise_factor**2 * designed + fresh))
