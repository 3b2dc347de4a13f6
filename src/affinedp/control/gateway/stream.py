"""Stationary noise, with fresh noise on top, for ever and with bounded memory.

``γ(t) = C ξ(t) + D ζ(t)`` with ζ fresh at every step, and ``ξ(t+1) = A ξ(t) + B ζ(t)``.  The state
of a gateway keeps ξ of the next step.  Steps that are skipped draw ζ all the same: a noise that
stood still while the plant went on would be another one.

A ζ that was sent and is lost with the power would be drawn again for what ξ remembers of it: a
second release.  So it must be on the disk before it is sent.  For the disk not to be waited for at
every step, ζ is drawn :data:`AHEAD` steps ahead, and kept in the state behind ξ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from affinedp.arrays import FloatArray
from affinedp.control.gateway.facts import STREAM_BITS
from affinedp.control.gateway.integer_noise import FreshNoise
from affinedp.control.gateway.plan import GatewayPlan
from affinedp.control.gateway.sums import published
from affinedp.control.stationary.path import StationaryPath
from affinedp.control.stationary.record import StationaryNoise
from affinedp.errors import AffineDPError
from affinedp.once.record import Head

# Steps that may be jumped over at once: each takes a draw.
MOST_SKIPPED = 1_000_000
# Steps for which ζ is drawn before they come.
AHEAD = 64


def draw_bits(scale: float) -> int:
    """Return the grid of ζ: its steps are at most 2⁻⁹⁶ of the scale.

    Parameters
    ----------
    scale : float
        Standard deviation of ζ.

    Examples
    --------
    >>> draw_bits(1.5), 2.0 ** -draw_bits(0.3) <= 0.3 * 2.0**-96
    (96, True)
    """
    return STREAM_BITS + 1 - math.frexp(scale)[1]


class Stream:
    """What is published at each step, given the noise filter's memory.

    Parameters
    ----------
    noise : StationaryNoise
        The noise.
    plan : GatewayPlan
        Grids, fresh noise and enlargement.
    """

    def __init__(self, noise: StationaryNoise, plan: GatewayPlan) -> None:
        self._plan = plan
        self._path = StationaryPath(noise, plan.path_bits)
        self._bits = draw_bits(noise.scale)
        scale = Fraction(plan.noise_factor) * Fraction(noise.scale) * Fraction(2) ** self._bits
        self._drawn = FreshNoise([math.ceil(scale)] * self._path.step_draws)
        self._order = noise.filter.order
        self._fresh = FreshNoise(plan.fresh_scales)

    @property
    def start_draws(self) -> int:
        """How many numbers are drawn once."""
        return self._path.start_draws

    def start(self, draw: Sequence[int]) -> tuple[int, ...]:
        """Return ξ(0).

        Parameters
        ----------
        draw : sequence of int
            In units of the grid of ζ.
        """
        return self._path.start(draw, self._bits)

    def at(
        self, head: Head, step: int, readings: Sequence[float]
    ) -> tuple[FloatArray, tuple[int, ...]]:
        """Return what to publish at a step, and the memory after it.

        Parameters
        ----------
        head : Head
            With the memory at ``head.next_step``.
        step : int
            At least that.
        readings : sequence of float
            One per output.
        """
        if step - head.next_step > MOST_SKIPPED:
            raise AffineDPError(
                f"step {step} jumps over {step - head.next_step:,} steps: at most "
                f"{MOST_SKIPPED:,} may be skipped at once"
            )
        memory, ahead = head.numbers[: self._order], list(head.numbers[self._order :])
        for t in range(head.next_step, step):
            memory = self._path.advance(t, memory, self._take(ahead), self._bits)
        drawn = self._take(ahead)
        noise = self._path.outputs(step, memory, drawn, self._bits, self._plan.grid_exponents)
        outputs = published(self._plan, readings, noise, self._fresh.take())
        memory = self._path.advance(step, memory, drawn, self._bits)
        while self._order and len(ahead) < AHEAD * self._path.step_draws:
            ahead += self._drawn.take()
        return outputs, (*memory, *ahead)

    def fits(self, head: Head) -> bool:
        """Whether a path has the memory of the filter, and whole steps behind it if it has any.

        Parameters
        ----------
        head : Head
            From a state.
        """
        more = len(head.numbers) - self._order
        return more == 0 or (self._order > 0 < more and more % self._path.step_draws == 0)

    def until(self, head: Head) -> int | None:
        """Return the first step whose ζ is not drawn yet; None where nothing is remembered of it.

        Parameters
        ----------
        head : Head
            With what :meth:`at` returned.
        """
        if not self._order:
            return None
        return head.next_step + (len(head.numbers) - self._order) // self._path.step_draws

    def _take(self, ahead: list[int]) -> list[int]:
        """The next ζ: what was drawn ahead, or else a new one."""
        if not ahead:
            return self._drawn.take()
        taken = ahead[: self._path.step_draws]
        del ahead[: self._path.step_draws]
        return taken
