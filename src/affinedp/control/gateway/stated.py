"""What a gateway states about its sensors: what its promise needs, what they cost, if they help."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.gateway.plan import GatewayPlan
from affinedp.control.gateway.sending import Sending
from affinedp.control.sensors.sensor import Sensor
from affinedp.errors import AffineDPError

# From here on the steps of the sensor cost enough to say so.
WORTH_SAYING = 2.0
# What a cure should bring the total down to, relative to the noise that hides the trajectory.
GOOD = 1.1
# Draws, each off by g²/24 in total variation, whose sum is worth a word (see streaming.md).
MANY_DRAWS = 1e9
OF_EACH_DRAW = 1e-26


def conditions(sending: Sending, sensor: Sensor, plan: GatewayPlan) -> Iterator[str]:
    """Say what the promise needs of the sensors, and what they cost."""
    errors = "; ".join(
        f"{name}: {error:.3g} (and |{name}| ≤ {largest:.3g})"
        for name, error, largest in zip(sending.names, plan.measurement_error, plan.largest)
    )
    yield (
        "it holds for recorded measurements that are off the equations by at most "
        f"{errors}: rounding, the sensor's resolution, model error that neighbours do not share"
    )
    yield f"declared about the sensors: {sensor.sentence(sending.names)}"
    draws = 3.0 * sending.steps * len(sending.names)
    if draws > MANY_DRAWS:
        yield f"δ(ε) is right where it is at least {OF_EACH_DRAW * draws:.1g} (1 + e^ε)"
    if sensor.low and not sending.strategy.independent:
        yield "public limits keep every measurement in the sensors' range: that is taken on trust"
    if not sensor.exact and not sensor.low and not sending.strategy.independent:
        yield "it holds as long as no sensor saturates: declare its range to have that checked"
    said = advice(sending.cost(sensor))
    if said:
        yield said


def advice(cost: float) -> str:
    """Say what hiding the steps of a sensor costs, and what helps; empty if it costs little.

    Examples
    --------
    >>> advice(1.2)
    ''
    >>> advice(1864.0)[:62]
    "hiding the sensors' steps takes 1.86e+03 times the variance of"
    """
    if cost < WORTH_SAYING:
        return ""
    bits = bits_for(cost)
    return (
        f"hiding the sensors' steps takes {cost:.3g} times the variance of hiding the trajectory "
        "alone, since a worst-case rounding error does not die out as the trajectory's difference "
        f"does. {bits} more bits, of the converter or by Dither({bits}, step), bring that to "
        f"{GOOD:g} times"
    )


def bits_for(cost: float, good: float = GOOD) -> int:
    """Return how many more bits bring the cost of a sensor's steps down.

    Examples
    --------
    >>> bits_for(1864.0), bits_for(6.08)
    (10, 5)
    """
    box = math.sqrt(cost) - 1
    return max(0, math.ceil(math.log2(box / (math.sqrt(good) - 1))))


def check_useful(sensor: Sensor, noise: FloatArray, cost: float) -> None:
    """Refuse readings that tell less than what everybody knows, the middle of the range."""
    if not sensor.low:
        return
    half = (np.array(sensor.high) - np.array(sensor.low)) / 2
    if np.all(noise < half):
        return
    worst = int(np.argmax(noise / half))
    raise AffineDPError(
        f"the noise on output {worst + 1} would have a standard deviation of {noise[worst]:.3g}, "
        f"where the middle of its range is never off by more than {half[worst]:.3g}: at this "
        "promise the sensor carries nothing useful, and nothing is drawn or charged. "
        + (advice(cost) or "Ask for a weaker promise, or a shorter horizon")
    )
