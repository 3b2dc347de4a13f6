"""Noise from one draw, with fresh noise on top: exact sums of integers, rounded once at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.gateway.integer_noise import FreshNoise
from affinedp.control.gateway.noise_path import NoisePath, nearest_double, rounded
from affinedp.control.gateway.plan import PUBLISHED_BITS, GatewayPlan
from affinedp.control.trajectory.dynamics import Dynamics
from affinedp.once.state import Head
from affinedp.release.plan import GRID_BITS


class OneDraw:
    """What is published at each step, given how far the noise has come.

    Parameters
    ----------
    dynamics : Dynamics
        A, C and the horizon.
    root : array, shape (n, r)
        R, which makes noise on x(0) of the one draw.
    plan : GatewayPlan
        Grids and fresh noise.
    """

    def __init__(self, dynamics: Dynamics, root: FloatArray, plan: GatewayPlan) -> None:
        self._plan = plan
        self._path = NoisePath(dynamics, root, plan.path_bits)
        self._fresh = FreshNoise(plan.fresh_scales)

    def at(
        self, head: Head, step: int, readings: Sequence[float]
    ) -> tuple[FloatArray, tuple[int, ...]]:
        """Return what to publish at a step, and the noise's path there.

        Parameters
        ----------
        head : Head
            How far the path has come.
        step : int
            At least ``head.next_step``.
        readings : sequence of float
            One per output.
        """
        numbers = head.numbers
        for t in range(head.at, step):
            numbers = self._path.advance(t, numbers)
        return self._noisy(readings, step, numbers), numbers

    def _noisy(self, readings: Sequence[float], step: int, numbers: tuple[int, ...]) -> FloatArray:
        """Exact sums on the grid of the fresh noise, rounded to the grid of publication."""
        plan = self._plan
        noise = self._path.outputs(step, numbers, plan.grid_exponents)
        fresh = self._fresh.take()
        outputs = np.empty(len(readings))
        for i, value in enumerate(readings):
            whole, over = value.as_integer_ratio()
            # over is a power of two
            steps = rounded(whole, 1 - over.bit_length() - plan.grid_exponents[i])
            total = rounded(steps + noise[i] + fresh[i], PUBLISHED_BITS - GRID_BITS)
            outputs[i] = nearest_double(total, plan.published_exponents[i])
        return outputs
