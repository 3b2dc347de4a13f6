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

from affinedp.control.gateway.facts import DEVIATION_SHARE, SAFE
from affinedp.control.gateway.plan import GatewayPlan, on_grids
from affinedp.control.sensors.sensor import Sensor
from affinedp.control.trajectory.noise import IndependentOutputNoise
from affinedp.control.trajectory.promise import independent_promise
from affinedp.errors import AffineDPError
from affinedp.files.proofs import AGREEMENT
from affinedp.strategies.rounded_plan import GRID_BITS, SHARE
from affinedp.strategies.trajectory import LEAST_BITS


def white_plan(
    mechanism: IndependentOutputNoise, sensor: Sensor, horizon: int | None = None
) -> GatewayPlan:
    """Choose scales and grids for independent noise.

    Examples
    --------
    >>> from affinedp.control import independent_output_noise
    >>> from affinedp.control.sensors.sensor import sensor_of
    >>> m = independent_output_noise(([[1]], [[1]]), horizon=100, epsilon=1, delta=0.01)
    >>> plan = white_plan(m, sensor_of(m.dynamics.output_names, 0.1))
    >>> bool(np.isclose(plan.fresh_noise[0] / m.sigma[0], 1.1))
    True
    """
    guarantee = mechanism.guarantee
    steps = mechanism.horizon if horizon is None else horizon
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is sent with it")
    sigma, s = np.asarray(mechanism.sigma, dtype=float), guarantee.sensitivity
    if not np.all(sigma > 0):
        raise AffineDPError("an output without noise would be sent as it is: leave it out")
    found = independent_promise(mechanism.neighbours, float(sigma.min())).sensitivity
    if not found <= s * (1 + AGREEMENT):
        raise AffineDPError(
            f"the guarantee states a sensitivity of {s!r}, but the noise gives up to {found!r}: "
            "they do not belong together"
        )
    declared = sensor.deviation()
    free = sigma * (s * DEVIATION_SHARE / math.sqrt(steps * mechanism.outputs))
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
