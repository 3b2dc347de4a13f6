"""What a gateway states about its sensors: what the promise needs of them, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator

from affinedp.control.gateway.kinds import Kind
from affinedp.control.gateway.plan import GatewayPlan
from affinedp.control.gateway.usefulness import advice
from affinedp.control.sensors.sensor import Sensor

# Draws, each off by g²/24 in total variation, whose sum is worth a word (see streaming.md).
MANY_DRAWS = 1e9
OF_EACH_DRAW = 1e-26


def conditions(kind: Kind, sensor: Sensor, plan: GatewayPlan) -> Iterator[str]:
    """Say what the promise needs of the sensors, and what they cost.

    Parameters
    ----------
    kind : Kind
        The noise.
    sensor : Sensor
        What was declared.
    plan : GatewayPlan
        What follows from it.
    """
    errors = "; ".join(
        f"{name}: {error:.3g} (and |{name}| ≤ {largest:.3g})"
        for name, error, largest in zip(kind.names, plan.measurement_error, plan.largest)
    )
    yield (
        "it holds for recorded measurements that are off the equations by at most "
        f"{errors}: rounding, the sensor's resolution, model error that neighbours do not share"
    )
    yield f"declared about the sensors: {sensor.sentence(kind.names)}"
    draws = 3.0 * kind.steps * len(kind.names)
    if draws > MANY_DRAWS:
        yield f"δ(ε) is right where it is at least {OF_EACH_DRAW * draws:.1g} (1 + e^ε)"
    if sensor.low and kind.minds_saturation:
        yield "public limits keep every measurement in the sensors' range: that is taken on trust"
    if not sensor.exact and not sensor.low and kind.minds_saturation:
        yield "it holds as long as no sensor saturates: declare its range to have that checked"
    said = advice(kind.cost(sensor))
    if said:
        yield said
