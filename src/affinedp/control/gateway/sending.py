"""What a gateway sends with: the noise of a mechanism over one run, its plan, its path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.by_time import causal
from affinedp.control.gateway.facts import STREAM_BITS, Facts, facts_of
from affinedp.control.gateway.knorm_draw import BodyOnGrid
from affinedp.control.gateway.plan import GatewayPlan, cost_of_steps, plan_for
from affinedp.control.gateway.white_plan import white_plan
from affinedp.control.sensors.reach import Reach
from affinedp.control.sensors.sensor import Sensor, check_range
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.knorm import KNorm
from affinedp.laws.sampler import IntegerNoise, draw_integers
from affinedp.mechanism import Mechanism
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.causal import Causal, Path
from affinedp.strategies.filter import Filter
from affinedp.strategies.rounded_plan import GRID_BITS
from affinedp.strategies.trajectory import Fresh, Trajectory

# Steps that a gateway keeps of noise without an end; older ones are not sent again.
KEPT = 4096
# Steps over which reach is worked out.
MOST_REACHED = 1_000_000


@dataclass(frozen=True, eq=False)
class Sending:
    """The noise of a mechanism over one run; it holds nothing secret.

    Attributes
    ----------
    mechanism : Mechanism
        What promises.
    strategy : Causal
        Its noise, over the steps of this run.
    steps : int
        How many there are at most.
    """

    mechanism: Mechanism
    strategy: Causal
    steps: int

    @classmethod
    def of(cls, mechanism: Any, horizon: int | None = None) -> Sending:
        """Return what a gateway sends with, or refuse it."""
        strategy = causal(mechanism)
        most = strategy.horizon
        if horizon is not None and (type(horizon) is not int or not 1 <= horizon <= most):
            raise AffineDPError(f"horizon must be a whole number from 1 to {most:,}: {horizon!r}")
        bodies = type(strategy) is Trajectory and type(mechanism.noise) is KNorm
        if type(mechanism.noise) is not Gaussian and not bodies:
            raise AffineDPError(
                "a gateway sends Gaussian or K-norm noise. Release Laplace noise for a recorded "
                "trajectory (once_then_predict), or design K-norm noise (law='knorm'), which keeps "
                "ε without δ too"
            )
        steps = most if horizon is None else horizon
        return cls(mechanism, strategy.shortened(steps), steps)

    @property
    def guarantee(self) -> Guarantee:
        """What the mechanism promises."""
        return self.mechanism.guarantee

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs."""
        return self.strategy.step_names

    @property
    def keeps(self) -> int | None:
        """How many steps that were sent are kept; None for all."""
        return KEPT if isinstance(self.strategy, Filter) else None

    # -------------------------------------------------------------- the plan

    @cached_property
    def facts(self) -> Facts:
        """What the plan follows from."""
        return facts_of(self.mechanism, self.strategy, self.steps)

    def plan(self, sensor: Sensor, fresh_noise: ArrayLike | None) -> GatewayPlan:
        """Choose grids, fresh noise and enlargement."""
        if not isinstance(self.strategy, Fresh):
            return plan_for(self.facts, sensor, fresh_noise, self.strategy.path_bits)
        if fresh_noise is not None:
            raise AffineDPError("independent noise is all fresh: leave fresh_noise out")
        return white_plan(self.mechanism, self.strategy, sensor)

    @cached_property
    def designed(self) -> FloatArray:
        """Mean variance of the mechanism's noise on each output; the last of stationary noise."""
        if isinstance(self.strategy, Filter):
            return self.strategy.last_variances(self.mechanism.noise)
        deviations = self.strategy.deviations(self.mechanism.noise, self.steps)
        return np.asarray((deviations**2).mean(axis=0))

    def variance(self, plan: GatewayPlan) -> FloatArray:
        """Return the mean variance of the noise on each output, with all that the plan adds."""
        if isinstance(self.strategy, Fresh):
            return plan.added_variance
        return np.asarray(plan.noise_factor**2 * self.designed + plan.added_variance)

    def cost(self, sensor: Sensor) -> float:
        """Return the total variance with these sensors, relative to exact ones."""
        if not isinstance(self.strategy, Fresh):
            return cost_of_steps(self.facts, sensor)
        plan = self.plan(sensor, None)
        return float((plan.fresh_noise**2 / self.designed).mean())

    def check_range(self, sensor: Sensor, reach: Reach | None) -> None:
        """Refuse sensors that can saturate; independent noise does not mind.

        A saturated sensor only makes neighbours more alike, step by step.
        """
        if self.strategy.independent:
            return
        if isinstance(self.strategy, Filter):
            dynamics = _driven(self.strategy, self.steps, sensor, reach)
        else:
            dynamics = self.strategy.domain
        check_range(sensor, dynamics, reach)

    # -------------------------------------------------------------- the path

    def walk(self, plan: GatewayPlan) -> Walk:
        """Return what makes the noise of every step."""
        strategy, law, bits = self.strategy, self.mechanism.noise, GRID_BITS
        if isinstance(strategy, Fresh):  # nothing beside the fresh noise
            return Walk(None, plan, 0, 0, None)
        if isinstance(law, KNorm):
            grid = BodyOnGrid.of(law, self.guarantee.sensitivity)
            # a draw in units of 2⁻⁵⁶ of a step
            made = strategy.scaled(math.ldexp(1.0, grid.exponent + GRID_BITS))
            assert isinstance(made, Causal)
            return Walk(made.path(plan.path_bits), plan, 0, GRID_BITS, grid)
        if isinstance(strategy, Filter):
            bits = draw_bits(strategy.scale)
        unit = Fraction(plan.noise_factor) * Fraction(strategy.scale) * Fraction(2) ** bits
        return Walk(strategy.path(plan.path_bits), plan, math.ceil(unit), bits, None)

    def draw(self, plan: GatewayPlan) -> tuple[int, ...]:
        """Draw what is drawn once, and return the memory at step 0."""
        return self.walk(plan).begin(self.guarantee.sensitivity)


class Walk:
    """How the noise goes on from the memory at a step: memory in, noise and the next memory out.

    ``unit`` is the standard deviation of what is drawn, in units of ``2**-bits``.
    """

    def __init__(
        self, path: Path | None, plan: GatewayPlan, unit: int, bits: int, body: BodyOnGrid | None
    ) -> None:
        self._path, self._unit, self._bits, self._plan, self._body = path, unit, bits, plan, body
        self._drawn = IntegerNoise("gaussian", unit) if path is not None and path.each else None

    def begin(self, sensitivity: float) -> tuple[int, ...]:
        """Return the memory at step 0, of what is drawn once."""
        if self._path is None:
            return ()
        if self._body is not None:
            return self._path.begin(
                self._body.draw(sensitivity, self._plan.noise_factor), self._bits
            )
        drawn = draw_integers("gaussian", self._unit, self._path.once).tolist()
        return self._path.begin(drawn, self._bits)

    def draw(self, steps: int) -> list[list[int]]:
        """Return what is drawn for each of the steps that follow, skipped ones too.

        A noise that stood still while the plant went on would be another one.
        """
        if self._drawn is None or self._path is None:
            return [[]] * steps
        rows: list[list[int]] = self._drawn.draw((steps, self._path.each)).tolist()
        return rows

    def noise(self, step: int, memory: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
        """Return the noise of a step, entry i in units of the grid of output i."""
        if self._path is None:
            return (0,) * len(self._plan.grid_exponents)
        return self._path.row(step, memory, drawn, self._bits, self._plan.grid_exponents)

    def advance(self, step: int, memory: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
        """Return the memory at the next step."""
        if self._path is None:
            return ()
        return self._path.advance(step, memory, drawn, self._bits)


def draw_bits(scale: float) -> int:
    """Return the grid of ζ: its steps are at most 2⁻⁹⁶ of the scale.

    Examples
    --------
    >>> draw_bits(1.5), 2.0 ** -draw_bits(0.3) <= 0.3 * 2.0**-96
    (96, True)
    """
    return STREAM_BITS + 1 - math.frexp(scale)[1]


def _driven(strategy: Filter, steps: int, sensor: Sensor, reach: Reach | None) -> Dynamics:
    """The plant of private inputs over a run, for what its sensors can read."""
    plant = strategy.domain.system
    if reach is not None and reach.D is None and np.any(plant.D):
        raise AffineDPError(
            "private inputs enter the outputs at once here: say how all inputs do, "
            "reach=Reach(start, B, inputs, D)"
        )
    if sensor.low and reach is not None and steps > MOST_REACHED:
        raise AffineDPError(
            f"whether a sensor stays in its range is worked out for up to {MOST_REACHED:,} "
            "steps: give horizon=, how many steps this run has at most"
        )
    states = tuple(f"x{i + 1}" for i in range(len(plant.A)))
    return Dynamics(plant.A, plant.C, min(steps, MOST_REACHED), states, strategy.step_names)
