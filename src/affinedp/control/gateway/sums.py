"""What is published: exact sums of integers, rounded once at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.gateway.noise_path import nearest_double, rounded
from affinedp.control.gateway.plan import PUBLISHED_BITS, GatewayPlan
from affinedp.strategies.rounded_plan import GRID_BITS


def published(
    plan: GatewayPlan, readings: Sequence[float], noise: Sequence[int], fresh: Sequence[int]
) -> FloatArray:
    """Return readings with noise: added on the grid of the fresh noise, rounded to a coarser one.

    Parameters
    ----------
    plan : GatewayPlan
        The grids.
    readings : sequence of float
        One per output.
    noise, fresh : sequences of int
        In units of the grid of each output.
    """
    outputs = np.empty(len(readings))
    for i, value in enumerate(readings):
        whole, over = value.as_integer_ratio()
        # over is a power of two
        steps = rounded(whole, 1 - over.bit_length() - plan.grid_exponents[i])
        total = rounded(steps + noise[i] + fresh[i], PUBLISHED_BITS - GRID_BITS)
        outputs[i] = nearest_double(total, plan.published_exponents[i])
    return outputs
