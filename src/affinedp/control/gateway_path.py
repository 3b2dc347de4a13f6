"""What a gateway sends with: the noise of a mechanism over one run, its path, what it states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, dense
from affinedp.control.gateway_plan import (
    STREAM_BITS,
    Facts,
    GatewayPlan,
    facts_of,
    plan_for,
    white_plan,
)
from affinedp.control.plant import causal
from affinedp.control.sensors import (
    EXACT,
    Reach,
    Resolution,
    Sensor,
    check_range,
    per_output,
    sensor_of,
    undeclared,
)
from affinedp.domains.dynamics import ENDLESS, Dynamics
from affinedp.errors import AffineDPError, counted
from affinedp.exact.numbers import whole_number
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.knorm import KNorm
from affinedp.laws.polytope import LatticeCones, Polytope, polytope_of
from affinedp.laws.sampler import IntegerNoise, draw_integers
from affinedp.laws.sampler.bodies import ConeNoise
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import Inputs
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.base import GRID_BITS, Sent
from affinedp.strategies.causal import Causal, Path
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import Fresh, Trajectory

# Vertices are multiples of this many steps, so that few proposals are rejected.
SPLIT = 256
# How long one draw takes tells about it: it is one of so many.
BATCH = 64
RATE_BITS = 80


@dataclass(frozen=True, eq=False)
class BodyOnGrid:
    """The body of the noise in steps, and what reading on the grid is charged."""

    # A step is ``2**exponent`` in every coordinate
    exponent: int
    # with whole vertices
    body: Polytope
    # at least the gauge of the difference between what is read of neighbours
    charge: Fraction

    @classmethod
    def of(cls, law: KNorm, sensitivity: float) -> BodyOnGrid:
        """Put the body on a grid on which a step moves no output by 2⁻⁵⁶ of its noise."""
        whole = polytope_of(dense(law.points))
        widths = np.linalg.svd(whole.moment_root() / law.rate, compute_uv=False)
        with np.errstate(divide="ignore"):
            size = float(np.linalg.norm(1 / widths)) * math.sqrt(len(widths)) * 1.01
        if not 0 < size < math.inf:
            raise AffineDPError("the noise is too ill-conditioned to send with")
        exponent = math.frexp(1 / size)[1] - 2 - GRID_BITS
        unit = SPLIT * Fraction(2) ** exponent
        body = Polytope(
            [
                tuple(Fraction(SPLIT * round(c / unit)) for c in vertex)
                for vertex in whole.exact_vertices
            ]
        )
        # a vertex is off by SPLIT/2 steps in every coordinate at most, and gauges are sums of them
        off = body.box([Fraction(SPLIT, 2)] * body.dimension)
        longest = Fraction(sensitivity) / Fraction(law.rate)
        cell = body.box([Fraction(1)] * body.dimension)
        return cls(exponent, body, longest * (1 + off) + 3 * cell)

    def noise(self, sensitivity: float, factor: float) -> ConeNoise:
        """Return what draws it, in steps."""
        rate = Fraction(sensitivity) / Fraction(factor) / self.charge
        unit = Fraction(2) ** (math.frexp(float(rate))[1] - RATE_BITS)
        return ConeNoise(LatticeCones(self.body), math.floor(rate / unit) * unit)


# Steps that a gateway keeps of noise without an end; older ones are not sent again.
KEPT = 4096
# Steps over which reach is worked out.
MOST_REACHED = 1_000_000
# What else helps against a range where one draw serves all steps.
INDEPENDENT = (
    ", or send with noise that is independent at every step (independent_output_noise), to which "
    "saturation costs nothing"
)


@dataclass(frozen=True, eq=False)
class Sending:
    """The noise of a mechanism over one run, read by some sensors; it holds nothing secret."""

    # what promises
    mechanism: Mechanism
    # its noise, over the steps of this run
    strategy: Causal
    # how many there are at most, and of how many one is sent
    steps: int
    every: int
    # what is declared about readings
    sensor: Sensor
    # fresh noise that somebody chose
    fresh: tuple[float, ...]

    @classmethod
    def of(
        cls,
        mechanism: Any,
        resolution: Resolution | str | None = None,
        *,
        measurement_error: ArrayLike | None = None,
        limits: tuple[ArrayLike, ArrayLike] | None = None,
        fresh_noise: ArrayLike | None = None,
        horizon: int | None = None,
        every: int | None = None,
    ) -> Sending:
        """Return what a gateway sends with, or refuse it; what is left out is as designed."""
        strategy = causal(mechanism)
        most = strategy.horizon
        steps = most if horizon is None else whole_number(horizon, "horizon")
        if steps > most:
            raise AffineDPError(
                f"a run of {steps:,} steps is longer than the {most:,} that this noise is made "
                "for: design it for this horizon, or send fewer steps"
            )
        bodies = type(strategy) is Trajectory and type(mechanism.noise) is KNorm
        if type(mechanism.noise) is not Gaussian and not bodies:
            raise AffineDPError(
                "a gateway sends Gaussian or K-norm noise. Release Laplace noise for a recorded "
                "trajectory (once_then_predict), or design K-norm noise (law='knorm'), which keeps "
                "ε without δ too"
            )
        designed = mechanism.design.sent or Sent(1.0, ())
        one_of = designed.every if every is None else whole_number(every, "every")
        errors = designed.errors or None if measurement_error is None else measurement_error
        fresh = designed.fresh or None if fresh_noise is None else fresh_noise
        if isinstance(strategy, Fresh) and (one_of > 1 or fresh is not None):
            raise AffineDPError(
                "independent noise is all fresh, and for fewer steps it is a design for them: "
                "leave every and fresh_noise out"
            )
        if resolution is None:
            resolution = designed.resolution or None
        names = strategy.step_names
        sensor = sensor_of(names, resolution, errors, limits)
        scales = per_output(fresh, "fresh_noise", len(names))
        chosen = () if scales is None else tuple(scales.tolist())
        every = min(int(one_of), steps)  # then the first step alone
        return cls(mechanism, strategy.shortened(steps), steps, every, sensor, chosen)

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
        return facts_of(self.mechanism, self.strategy, self.steps, self.every)

    def plan(self) -> GatewayPlan:
        """Choose grids, fresh noise and enlargement."""
        if isinstance(self.strategy, Fresh):
            return white_plan(self.mechanism, self.strategy, self.sensor)
        return plan_for(self.facts, self.sensor, self.fresh, self.strategy.path_bits)

    @cached_property
    def designed(self) -> FloatArray:
        """Mean variance of the mechanism's noise on each output, over the steps that are sent."""
        if isinstance(self.strategy, Filter) and self.strategy.domain.horizon is None:
            return self.strategy.last_variances(self.mechanism.noise)
        deviations = self.strategy.deviations(self.mechanism.noise, self.steps)[:: self.every]
        return np.asarray((deviations**2).mean(axis=0))

    def variance(self, plan: GatewayPlan) -> FloatArray:
        """Return the mean variance of the noise on each output, with all that the plan adds."""
        if isinstance(self.strategy, Fresh):
            return plan.added_variance
        return np.asarray(plan.noise_factor**2 * self.designed + plan.added_variance)

    def deviation(self) -> float:
        """Return the root of the mean variance over outputs and steps that are sent."""
        return math.sqrt(float(self.variance(self.plan()).mean()))

    def cost(self) -> float:
        """Return the total variance with these sensors, relative to the mechanism's own."""
        if self.sensor.deviation() is None:
            return 1.0
        return float(self.variance(self.plan()).sum() / self.designed.sum())

    def sent(self, plan: GatewayPlan) -> Sent:
        """Return by how much a plan enlarges the noise, what it adds, and for which sensors."""
        factor, added = plan.noise_factor, plan.added_variance
        if isinstance(self.strategy, Fresh):  # enlarged, with nothing beside it
            factor = math.sqrt(float(added.max())) / self.strategy.sigma
            added = np.zeros(len(self.names))
        seen = self.sensor
        return Sent(
            factor,
            tuple(added.tolist()),
            self.every,
            seen.steps,
            seen.errors,
            self.fresh,
            self.steps,
        )

    def check_range(self, reach: Reach | None) -> None:
        """Refuse sensors that can saturate; independent noise does not mind.

        A saturated sensor only makes neighbours more alike, step by step.
        """
        if self.strategy.independent:
            return
        if isinstance(self.strategy, Filter):
            dynamics = _driven(self.strategy, self.steps, self.sensor, reach)
            check_range(self.sensor, dynamics, reach, jumps=self._jumps)
            if reach is not None and self._jumps is None:
                _check_declared(self.strategy, dynamics, reach)
        else:
            check_range(self.sensor, self.strategy.domain, reach, otherwise=INDEPENDENT)

    @property
    def _jumps(self) -> FloatArray | None:
        """By what the state of a neighbour jumps, one jump per column; else limits hold for both.

        Jumps before the first step are differences of x(0), and within its limits.
        """
        neighbours = self.mechanism.adjacency
        if isinstance(neighbours, Inputs) and neighbours.forward:
            return np.asarray(neighbours.domain.system.B * neighbours.mu)
        return None

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


class Walk:
    """How the noise goes on from the memory at a step: memory in, noise and the next memory out.

    ``unit`` is the standard deviation of what is drawn, in units of ``2**-bits``.
    """

    def __init__(
        self, path: Path | None, plan: GatewayPlan, unit: int, bits: int, body: BodyOnGrid | None
    ) -> None:
        self._path, self._unit, self._bits, self._body = path, unit, bits, body
        self._factor, self._grids = plan.noise_factor, plan.grid_exponents
        self._drawn = IntegerNoise("gaussian", unit) if path is not None and path.each else None

    def beginning(self, sensitivity: float) -> Callable[[], tuple[int, ...]]:
        """Return what draws once, and gives the memory at step 0; refused here, not there."""
        path, bits = self._path, self._bits
        if path is None:
            return lambda: ()
        if self._body is not None:
            vectors = self._body.noise(sensitivity, self._factor)
            return lambda: path.begin([int(c) for c in vectors.draw(BATCH)[0]], bits)
        unit = self._unit
        return lambda: path.begin(draw_integers("gaussian", unit, path.once).tolist(), bits)

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
            return (0,) * len(self._grids)
        return self._path.row(step, memory, drawn, self._bits, self._grids)

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


def _check_declared(strategy: Filter, dynamics: Dynamics, reach: Reach) -> None:
    """Refuse limits that say nothing about a private input."""
    plant = strategy.domain
    for i in undeclared(reach, dynamics, plant.system):
        raise AffineDPError(
            f"the limits leave out the private input {plant.names[i]}, which moves the outputs as "
            "no input of B does: add its column to B (and D), and between which numbers it lies"
        )


# From here on the steps of the sensor cost enough to say so.
WORTH_SAYING = 2.0
# Remedies that leave more than this share of the noise are none.
WORTH_HAVING = 0.95
# What a cure should bring the total down to, relative to the noise that hides the trajectory.
GOOD = 1.1
# Draws, each off by g²/24 in total variation, whose sum is worth a word (see streaming.md).
MANY_DRAWS = 1e9
OF_EACH_DRAW = 1e-26


def with_sensors(
    mechanism: Mechanism,
    resolution: Resolution | str | None,
    measurement_error: ArrayLike | None = None,
    fresh_noise: ArrayLike | None = None,
    every: int = 1,
) -> Mechanism:
    """Return noise with the sensors that it is designed for, and what they cost in its notes."""
    if resolution is None:
        if (measurement_error, fresh_noise, every) != (None, None, 1):
            raise AffineDPError(
                "measurement_error, fresh_noise and every are about what a gateway sends: give the "
                "resolution of the sensors, too"
            )
        return mechanism
    sending = Sending.of(
        mechanism,
        resolution,
        measurement_error=measurement_error,
        fresh_noise=fresh_noise,
        every=every,
    )
    if sending.steps >= ENDLESS and sending.sensor.deviation() is not None:
        raise AffineDPError(
            "sensors with steps cost noise at every step that is sent, for ever: give a horizon"
        )
    rarely = f", one of {sending.every}" if sending.every > 1 else ""
    sent = (
        f"{sending.sensor.sentence(sending.names)}: with what hides these steps too, a gateway "
        f"sends noise of standard deviation {sending.deviation():.3g} (root mean square over the "
        f"steps that are sent{rarely})"
    )
    found = sending.sent(sending.plan())
    return mechanism.with_design(sent=found, notes=(*mechanism.notes, sent, *advice(sending)))


def sent(mechanism: Mechanism) -> tuple[Causal, Sent]:
    """Return the noise that is sent, and what is sent beside it: computed, not read of a file."""
    strategy = causal(mechanism)
    designed = mechanism.design.sent
    if designed is None:
        return strategy, Sent(1.0, (0.0,) * len(strategy.step_names))
    sending = Sending.of(mechanism, designed.resolution or EXACT, horizon=designed.steps)
    found = sending.sent(sending.plan())
    scaled = sending.strategy.scaled(found.factor)
    assert isinstance(scaled, Causal)
    return scaled, found


def sent_always(mechanism: Mechanism) -> tuple[Causal, FloatArray]:
    """Return the noise that is sent at every step, and the variance of what is fresh beside it."""
    made, found = sent(mechanism)
    if found.every > 1:
        raise AffineDPError(
            f"of this noise one step of {found.every} is sent: what a loop does in between is not "
            "known here. Leave every out, or try it (affinedp control trial)"
        )
    return made, np.array(found.added)


def conditions(sending: Sending, plan: GatewayPlan) -> Iterator[str]:
    """Say what the promise needs of the sensors, and what they cost."""
    sensor = sending.sensor
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
    yield from advice(sending)


def advice(sending: Sending) -> Iterator[str]:
    """Say what hiding the steps of sensors costs, and what each remedy does; cheapest first."""
    if sending.fresh or sending.cost() < WORTH_SAYING:  # the noise of this run is what one chose
        return
    now = sending.deviation()
    found: dict[str, tuple[float, str]] = {}
    for kind, what, other in _remedies(sending):
        with suppress(AffineDPError):
            if kind not in found or found[kind][0] > now / 2:  # the first that halves the noise
                found[kind] = other.deviation(), what
    less = sorted((noise, what) for noise, what in found.values() if noise < now * WORTH_HAVING)
    listed = "; ".join(f"{what}: {noise:.3g}" for noise, what in less)
    yield (
        f"hiding the sensors' steps takes noise of standard deviation {now:.3g} where exact "
        f"readings would take {math.sqrt(float(sending.designed.mean())):.3g}: a worst-case "
        "rounding error does not die out as a trajectory's difference does"
        + (f". What helps, the cheapest first: {listed}" if less else "")
    )


def _remedies(sending: Sending) -> Iterator[tuple[str, str, Sending]]:
    """More bits, shorter runs and fewer steps: which kind, in words, and what is sent then."""
    sensor, strategy = sending.sensor, sending.strategy
    if sensor.steps:
        bits = bits_for(sending.cost())
        finer = replace(sensor, steps=tuple(math.ldexp(step, -bits) for step in sensor.steps))
        what = f"{bits} more bits, of the converter or by Dither({bits}, …)"
        yield "bits", what, replace(sending, sensor=finer)
    for factor in (2, 4, 8, 16, 32, 64):
        steps, every = sending.steps // factor, factor * sending.every
        if steps:
            shorter = replace(sending, strategy=strategy.shortened(steps), steps=steps)
            yield "run", f"a run of {counted(steps, 'step')}", shorter
        if every <= sending.steps and not isinstance(strategy, Fresh):
            yield (
                "every",
                f"one step of {every} (every={every}, or every in [sensors] of a file)",
                replace(sending, every=every),
            )


def bits_for(cost: float) -> int:
    """Return how many more bits bring the cost of a sensor's steps down.

    Examples
    --------
    >>> bits_for(1864.0), bits_for(6.08)
    (10, 5)
    """
    box = math.sqrt(cost) - 1
    return max(0, math.ceil(math.log2(box / (math.sqrt(GOOD) - 1))))


def check_useful(sending: Sending, plan: GatewayPlan) -> None:
    """Refuse readings that tell less than what everybody knows, the middle of the range."""
    sensor, noise = sending.sensor, np.sqrt(sending.variance(plan))
    if not sensor.low:
        return
    half = (np.array(sensor.high) - np.array(sensor.low)) / 2
    if np.all(noise < half):
        return
    worst = int(np.argmax(noise / half))
    raise AffineDPError(
        f"the noise on output {worst + 1} would have a standard deviation of {noise[worst]:.3g}, "
        f"where the middle of its range is never off by more than {half[worst]:.3g}: at this "
        "promise the sensor carries nothing useful, and nothing is drawn or charged; "
        + ("".join(advice(sending)) or "ask for a weaker promise, or a shorter horizon")
    )
