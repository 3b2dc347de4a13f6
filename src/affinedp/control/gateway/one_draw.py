"""Noise from one draw, with fresh noise on top."""

from __future__ import annotations

from collections.abc import Sequence

from affinedp.arrays import FloatArray
from affinedp.control.gateway.integer_noise import FreshNoise
from affinedp.control.gateway.noise_path import NoisePath
from affinedp.control.gateway.plan import GatewayPlan
from affinedp.control.gateway.sums import published
from affinedp.control.trajectory.dynamics import Dynamics
from affinedp.once.record import Head
from affinedp.strategies.rounded_plan import GRID_BITS


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
        self._states = dynamics.states
        self._path = NoisePath(dynamics, root, plan.path_bits)
        self._fresh = FreshNoise(plan.fresh_scales, plan.fresh_law)

    def start(self, draw: Sequence[int]) -> tuple[int, ...]:
        """Return where the path begins.

        Parameters
        ----------
        draw : sequence of int
            η in units of its grid.
        """
        return self._path.start(draw, GRID_BITS)

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
        noise = self._path.outputs(step, numbers, self._plan.grid_exponents)
        return published(self._plan, readings, noise, self._fresh.take()), numbers

    def fits(self, head: Head) -> bool:
        """Whether a path has as many numbers as there are states.

        Parameters
        ----------
        head : Head
            From a state.
        """
        return len(head.numbers) == self._states

    def until(self, head: Head) -> int | None:
        """Return None: every step follows from the one draw, which is on the disk.

        Parameters
        ----------
        head : Head
            Any.
        """
        return None
