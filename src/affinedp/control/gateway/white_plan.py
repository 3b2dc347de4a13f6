"""The plan of a gateway whose noise is fresh at every step and nothing else.

All of the promise is carried by independent noise: neighbours differ by v, with ``‖v/σ‖ ≤ s`` over
the whole horizon, and by up to 2e_i at every step for what is not exact.  Enlarged by k,

    (s + √(T Σ_i (2 e_i/σ_i)²)) / k ≤ s/(1 + 2⁻³⁰).

The two add up without squares because they may point the same way.  A saturated sensor, or any
other that is monotone and moves no more than what it measures, only makes v smaller at each step:
it costs nothing.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.control.gateway.facts import DEVIATION_SHARE, SAFE, check_promise
from affinedp.control.gateway.plan import GatewayPlan, on_grids
from affinedp.control.sensors.sensor import Sensor
from affinedp.mechanism import Mechanism
from affinedp.strategies.rounded_plan import GRID_BITS, SHARE
from affinedp.strategies.trajectory import LEAST_BITS, Fresh


def white_plan(mechanism: Mechanism, strategy: Fresh, sensor: Sensor) -> GatewayPlan:
    """Choose scales and grids for independent noise over the horizon of the strategy.

    Examples
    --------
    >>> from affinedp.control import independent_output_noise
    >>> from affinedp.control.sensors.sensor import sensor_of
    >>> m = independent_output_noise(([[1]], [[1]]), horizon=100, epsilon=1, delta=0.01)
    >>> plan = white_plan(m, m.strategy, sensor_of(("y1",), 0.1))
    >>> bool(np.isclose(plan.fresh_noise[0] / m.strategy.sigma, 1.1))
    True
    """
    check_promise(mechanism)
    s, steps, outputs = mechanism.guarantee.sensitivity, strategy.horizon, strategy.domain.outputs
    sigma = np.full(outputs, strategy.sigma)
    declared = sensor.deviation()
    free = sigma * (s * DEVIATION_SHARE / math.sqrt(steps * outputs))
    needed = np.zeros(len(sigma)) if declared is None else declared
    # y is rounded to a grid of 2^-56 of the final noise, which this bounds generously
    growth = 1 + 2 * math.sqrt(steps * float(((needed / sigma) ** 2).sum())) / s
    own = 2.0 ** -(GRID_BITS - 1) * sigma * growth
    deviation = np.maximum((needed + own) * (1 + SAFE), free)
    box = math.sqrt(steps * float(((2 * deviation / sigma) ** 2).sum()))
    factor = (s + box) / s * (1 + SHARE) * (1 + 8 * SAFE)
    exponents, integers = on_grids(sigma * factor)
    return GatewayPlan(
        fresh_exponents=exponents,
        fresh_scales=integers,
        measurement_error=tuple(float(v) for v in (deviation - own) * (1 - SAFE)),
        deviation=tuple(float(v) for v in deviation),
        noise_factor=1.0,
        path_bits=LEAST_BITS,
    )
