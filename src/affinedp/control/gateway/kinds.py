"""The kinds of noise that a gateway sends, behind one face: plan, draw, and what comes next."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.gateway.facts import (
    Facts,
    deviations_of,
    stationary_facts,
    trajectory_facts,
)
from affinedp.control.gateway.knorm_draw import BodyOnGrid
from affinedp.control.gateway.plan import (
    GatewayPlan,
    cost_of_steps,
    gateway_plan,
    plan_for,
)
from affinedp.control.gateway.walk import Walk, draw_bits
from affinedp.control.gateway.white_plan import white_plan
from affinedp.control.sensors.reach import Reach
from affinedp.control.sensors.sensor import Sensor, check_range
from affinedp.control.trajectory.noise import IndependentOutputNoise, TrajectoryMechanism
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.causal import Path
from affinedp.strategies.filter import Filter
from affinedp.strategies.rounded_plan import GRID_BITS
from affinedp.strategies.trajectory import one_draw_system

# Steps that a gateway keeps of noise without an end; older ones are not sent again.
KEPT = 4096
# Steps over which reach is worked out.
MOST_REACHED = 1_000_000


class Kind(ABC):
    """A mechanism as a gateway sees it."""

    keeps: int | None = None  # how many steps are kept; None for all

    def __init__(self, mechanism: Any, horizon: int | None) -> None:
        own = mechanism.strategy if isinstance(mechanism, Mechanism) else mechanism
        most: int = getattr(own, "horizon")  # noqa: B009
        if horizon is not None and (type(horizon) is not int or not 1 <= horizon <= most):
            raise AffineDPError(f"horizon must be a whole number from 1 to {most:,}: {horizon!r}")
        self.mechanism = mechanism
        self.steps: int = most if horizon is None else horizon

    @property
    def guarantee(self) -> Guarantee:
        """What the mechanism promises."""
        return self.mechanism.guarantee  # type: ignore[no-any-return]

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Of the outputs."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of everything that decides what is sent."""

    @abstractmethod
    def plan(self, sensor: Sensor, fresh_noise: ArrayLike | None) -> GatewayPlan:
        """Choose grids, fresh noise and enlargement."""

    def draw(self, plan: GatewayPlan) -> tuple[int, ...]:
        """Draw what is drawn once, and return the memory at step 0."""
        return self.walk(plan).begin()

    @abstractmethod
    def walk(self, plan: GatewayPlan) -> Walk:
        """Return what makes the noise of every step."""

    @property
    @abstractmethod
    def designed(self) -> FloatArray:
        """Mean variance of the mechanism's noise on each output."""

    def variance(self, plan: GatewayPlan) -> FloatArray:
        """Return the mean variance of the noise on each output, with all that the plan adds."""
        return np.asarray(plan.noise_factor**2 * self.designed + plan.added_variance)

    @abstractmethod
    def cost(self, sensor: Sensor) -> float:
        """Return the total variance with these sensors, relative to exact ones."""

    @abstractmethod
    def check_range(self, sensor: Sensor, reach: Reach | None) -> None:
        """Refuse sensors that can saturate where that breaks the promise."""

    @property
    def minds_saturation(self) -> bool:
        """Whether a saturated sensor breaks the promise."""
        return True


class OneDrawKind(Kind):
    """Noise from one draw for the whole run, from a :class:`TrajectoryMechanism`."""

    @cached_property
    def _dynamics(self) -> Dynamics:
        dynamics: Dynamics = self.mechanism.dynamics
        return dynamics if self.steps == dynamics.horizon else dynamics.shortened(self.steps)

    @cached_property
    def _facts(self) -> Facts:
        return trajectory_facts(self.mechanism, self._dynamics)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs."""
        return self._dynamics.output_names

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is sent."""
        return str(self.mechanism.fingerprint)

    def plan(self, sensor: Sensor, fresh_noise: ArrayLike | None) -> GatewayPlan:
        """Choose grids, fresh noise and enlargement."""
        return gateway_plan(self.mechanism, sensor, fresh_noise, self.steps)

    @property
    def _root(self) -> FloatArray:
        """What makes x(0) of the one draw."""
        root: FloatArray = self.mechanism.root
        return root

    def walk(self, plan: GatewayPlan) -> Walk:
        """Return what makes the noise of every step."""
        path = Path(one_draw_system(self._dynamics, self._root), plan.path_bits)
        return Walk(path, plan, Fraction(plan.noise_factor) * (1 << GRID_BITS), GRID_BITS)

    @property
    def designed(self) -> FloatArray:
        """Mean variance of the mechanism's noise on each output."""
        return np.asarray((deviations_of(self.mechanism, self.steps) ** 2).mean(axis=0))

    def cost(self, sensor: Sensor) -> float:
        """Return the total variance with these sensors, relative to exact ones."""
        return cost_of_steps(self._facts, sensor)

    def check_range(self, sensor: Sensor, reach: Reach | None) -> None:
        """Refuse sensors that can saturate."""
        check_range(sensor, self._dynamics, reach)


class BodyKind(OneDrawKind):
    """K-norm noise from one draw: δ = 0, with fresh Laplace noise for what is not exact."""

    @cached_property
    def _grid(self) -> BodyOnGrid:
        return BodyOnGrid.of(self.mechanism)

    def draw(self, plan: GatewayPlan) -> tuple[int, ...]:
        """Draw steps of x(0), and return the memory at step 0."""
        drawn = self._grid.draw(self.guarantee.sensitivity, plan.noise_factor)
        return self.walk(plan).begin(drawn)

    @property
    def _root(self) -> FloatArray:
        return self._grid.root(self.mechanism)


class WhiteKind(Kind):
    """Fresh noise at every step and nothing else, from an :class:`IndependentOutputNoise`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs."""
        return tuple(self.mechanism.dynamics.output_names)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is sent."""
        dynamics = self.mechanism.dynamics
        key = f"{self.mechanism.neighbours.key} {dynamics.key} white"
        scales = np.ascontiguousarray(self.mechanism.sigma, dtype=np.float64)
        return hashlib.sha256(key.encode() + scales.tobytes()).hexdigest()

    def plan(self, sensor: Sensor, fresh_noise: ArrayLike | None) -> GatewayPlan:
        """Choose grids, fresh noise and enlargement."""
        if fresh_noise is not None:
            raise AffineDPError("independent noise is all fresh: leave fresh_noise out")
        return white_plan(self.mechanism, sensor, self.steps)

    def walk(self, plan: GatewayPlan) -> Walk:
        """Return what makes the noise of every step: none beside the fresh noise."""
        dynamics = self.mechanism.dynamics
        system = one_draw_system(dynamics, np.zeros((dynamics.states, 0)))
        return Walk(Path(system, plan.path_bits), plan, Fraction(1), 0)

    @property
    def designed(self) -> FloatArray:
        """Mean variance of the mechanism's noise on each output."""
        return np.asarray(self.mechanism.sigma, dtype=float) ** 2

    def variance(self, plan: GatewayPlan) -> FloatArray:
        """Return the variance of the noise on each output."""
        return plan.added_variance

    def cost(self, sensor: Sensor) -> float:
        """Return the total variance with these sensors, relative to exact ones."""
        plan = white_plan(self.mechanism, sensor, self.steps)
        return float((plan.fresh_noise**2 / self.designed).mean())

    def check_range(self, sensor: Sensor, reach: Reach | None) -> None:
        """A saturated sensor only makes neighbours more alike, step by step."""

    @property
    def minds_saturation(self) -> bool:
        """Whether a saturated sensor breaks the promise."""
        return False


class StationaryKind(Kind):
    """Stationary noise that goes on for ever, whose strategy is a :class:`Filter`."""

    keeps = KEPT

    @property
    def _made(self) -> Filter:
        made: Filter = self.mechanism.strategy
        return made

    @cached_property
    def _facts(self) -> Facts:
        return stationary_facts(self.mechanism, self._made, self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs."""
        return self._made.step_names

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is sent."""
        return str(self.mechanism.fingerprint)

    def plan(self, sensor: Sensor, fresh_noise: ArrayLike | None) -> GatewayPlan:
        """Choose grids, fresh noise and enlargement."""
        return plan_for(self._facts, sensor, fresh_noise, self._made.path_bits)

    def walk(self, plan: GatewayPlan) -> Walk:
        """Return what makes the noise of every step, from the filter's stationary state on."""
        made = self._made
        bits = draw_bits(made.scale)
        scale = Fraction(plan.noise_factor) * Fraction(made.scale) * Fraction(2) ** bits
        return Walk(made.path(plan.path_bits), plan, scale, bits)

    @property
    def designed(self) -> FloatArray:
        """Variance of the mechanism's noise on each output."""
        return self._made.last_variances(self.mechanism.noise)

    def cost(self, sensor: Sensor) -> float:
        """Return the total variance with these sensors, relative to exact ones."""
        return cost_of_steps(self._facts, sensor)

    def check_range(self, sensor: Sensor, reach: Reach | None) -> None:
        """Refuse sensors that can saturate; white noise does not mind."""
        if not self.minds_saturation:
            return
        plant = self._made.domain.system
        if reach is not None and reach.D is None and np.any(plant.D):
            raise AffineDPError(
                "private inputs enter the outputs at once here: say how all inputs do, "
                "reach=Reach(start, B, inputs, D)"
            )
        steps = min(self.steps, MOST_REACHED)
        if sensor.low and reach is not None and self.steps > MOST_REACHED:
            raise AffineDPError(
                f"whether a sensor stays in its range is worked out for up to {MOST_REACHED:,} "
                "steps: give horizon=, how many steps this run has at most"
            )
        A, C = plant.A, plant.C
        if not plant.order:  # a state that stays zero stands for none
            A, C = np.zeros((1, 1)), np.zeros((plant.outputs, 1))
        states = tuple(f"x{i + 1}" for i in range(len(A)))
        check_range(sensor, Dynamics(A, C, steps, states, self.names), reach)

    @property
    def minds_saturation(self) -> bool:
        """Whether a saturated sensor breaks the promise; not that of white noise."""
        made = self._made.noise
        if made.order or made.inputs != made.outputs:
            return True  # one number may be in several outputs
        return not np.array_equal(made.D, np.diag(np.diagonal(made.D)))


def kind_of(mechanism: Any, horizon: int | None = None) -> Kind:
    """Return a mechanism as a gateway sees it, or refuse it."""
    kinds: tuple[tuple[Any, type[Kind]], ...] = (
        (TrajectoryMechanism, OneDrawKind),
        (IndependentOutputNoise, WhiteKind),
    )
    if type(mechanism) is Mechanism and isinstance(mechanism.strategy, Filter):
        return StationaryKind(mechanism, horizon)
    for found, kind in kinds:
        if isinstance(mechanism, found):
            if kind is OneDrawKind and mechanism.law == "knorm":
                return BodyKind(mechanism, horizon)
            if mechanism.law != "gaussian":
                raise AffineDPError(
                    "a gateway sends Gaussian or K-norm noise. Release Laplace noise for a "
                    "recorded trajectory (mechanism().release), or design K-norm noise "
                    "(law='knorm'), which keeps ε without δ too"
                )
            return kind(mechanism, horizon)
    raise AffineDPError(
        "a gateway sends with a mechanism of design_output_noise, design_input_noise or "
        f"independent_output_noise, not with {type(mechanism).__name__}"
    )


def spread(kind: Kind, plan: GatewayPlan) -> FloatArray:
    """Return the standard deviation of what is added to each output."""
    return np.asarray(np.vectorize(math.sqrt, otypes=[float])(kind.variance(plan)))
