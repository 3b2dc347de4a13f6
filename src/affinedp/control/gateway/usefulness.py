"""Whether readings with steps are worth sending at a promise, and what would make them so."""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.sensors.sensor import Sensor
from affinedp.errors import AffineDPError

# From here on the steps of the sensor cost enough to say so.
WORTH_SAYING = 2.0
# What a cure should bring the total down to, relative to the noise that hides the trajectory.
GOOD = 1.1


class UselessSensorError(AffineDPError):
    """A sensor whose readings, with the noise that hides its steps, tell less than its range does.

    Attributes
    ----------
    noise : array, shape (m,)
        Standard deviations of the noise that would be sent.
    """

    def __init__(self, message: str, noise: FloatArray) -> None:
        self.noise = noise
        super().__init__(message)


def advice(cost: float) -> str:
    """Say what hiding the steps of a sensor costs, and what helps; empty if it costs little.

    Parameters
    ----------
    cost : float
        Total variance relative to the noise that hides the trajectory alone.

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

    Parameters
    ----------
    cost : float
        Total variance relative to the noise that hides the trajectory alone.
    good : float
        What it should be.

    Examples
    --------
    >>> bits_for(1864.0), bits_for(6.08)
    (10, 5)
    """
    box = math.sqrt(cost) - 1
    return max(0, math.ceil(math.log2(box / (math.sqrt(good) - 1))))


def check_useful(sensor: Sensor, noise: FloatArray, cost: float) -> None:
    """Refuse readings that tell less than what everybody knows, the middle of the range.

    Parameters
    ----------
    sensor : Sensor
        With or without a range; without one nothing is known.
    noise : array, shape (m,)
        Standard deviation of what would be sent, over time.
    cost : float
        As for :func:`advice`.
    """
    if not sensor.low:
        return
    half = (np.array(sensor.high) - np.array(sensor.low)) / 2
    if np.all(noise < half):
        return
    worst = int(np.argmax(noise / half))
    raise UselessSensorError(
        f"the noise on output {worst + 1} would have a standard deviation of {noise[worst]:.3g}, "
        f"where the middle of its range is never off by more than {half[worst]:.3g}: at this "
        "promise the sensor carries nothing useful, and nothing is drawn or charged. "
        + (advice(cost) or "Ask for a weaker promise, or a shorter horizon"),
        noise,
    )
