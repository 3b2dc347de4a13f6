"""Noise for private inputs beside the designs of the literature, at the same (ε, δ)."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_are, solve_discrete_lyapunov
from scipy.stats import norm

from affinedp import gaussian_sensitivity, gaussian_sigma
from affinedp.arrays import FloatArray
from affinedp.control import (
    ControlledPlant,
    Dither,
    aware_controller,
    design_input_noise,
    design_output_noise,
    noise_by_time,
)
from affinedp.designs.least_trace import least_trace
from affinedp.exact.systems import LinearSystem, start_certificate
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import private_inputs
from affinedp.strategies.filter import Filter

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from plants import building, quarter_car, quarter_car_actuator, room

EPSILON, DELTA = 1.0, 1e-4
LIMIT = float(gaussian_sensitivity(EPSILON, DELTA))
POINTS = 1 << 14
# The mean and the largest squared error of jax-privacy's BLT of order 5, made for either.
BLT = {256: (6.849661, 8.014852), 1024: (9.347491, 10.709813), 4096: (12.238171, 13.794766)}
Plant = tuple[FloatArray, FloatArray, FloatArray]
TOTALS = ([[1.0]], [[1.0]], [[1.0]], [[1.0]])


def _zero_forcing(plant) -> float:
    """One prefilter per input, noise, and the rest of H: least over prefilters (2014)."""
    A, E, C = plant
    response = LinearSystem(A, E, C, np.zeros((len(C), E.shape[1]))).spectrum(POINTS)
    return float((np.linalg.norm(response, axis=1).mean(axis=0) ** 2).sum())


def _variances() -> list[str]:
    rows = []
    for name, plant in (("room", room()), ("building", building()), ("quarter car", quarter_car())):
        start = time.process_time()
        m = design_input_noise(plant, EPSILON, DELTA)
        seconds = time.process_time() - start
        others = [other.error * LIMIT**2 for other in m.alternatives]
        own = float((noise_by_time(m)[-1] ** 2).sum()) * LIMIT**2
        found = [*others, _zero_forcing(plant), own / (1 + m.gap), own]
        numbers = " | ".join(f"{value:.4g}" for value in found)
        rows.append(f"| {name} | {numbers} | {m.strategy.shaper.order} | {seconds:.1f} |")
    return rows


def _totals() -> list[str]:
    """Running totals of a stream: an integrator over a horizon."""
    rows = []
    for steps in (256, 1024, 4096):
        odd = 2 * np.arange(1, steps + 1) - 1
        bound = float((0.5 / np.sin(odd * np.pi / (4 * steps + 2))).sum() / steps) ** 2
        least = "not run"
        if steps <= 1024:
            directions = np.triu(np.ones((steps, steps)))  # the j-th number moves all sums from j
            least = f"{least_trace(directions, np.eye(steps)).value / steps:.6g}"
        taps = np.cumprod(np.concatenate([[1], odd[:-1] / (odd[:-1] + 1)]))
        squares = np.cumsum(taps**2)
        cells = [bound, least, squares.mean() * squares[-1]]
        for objective, blt in zip(("sum", "largest"), BLT[steps]):
            start = time.process_time()
            m = design_input_noise(TOTALS, EPSILON, DELTA, objective=objective, horizon=steps)
            seconds = time.process_time() - start
            found = noise_by_time(m).ravel() ** 2 * m.guarantee.sensitivity**2
            own = found.mean() if objective == "sum" else found.max()
            cells += [blt, own, f"{m.strategy.shaper.order}", f"{seconds:.1f}"]
            if objective == "sum":
                cells += [found.max(), squares[-1] ** 2]
        shown = (cell if isinstance(cell, str) else f"{cell:.6g}" for cell in cells)
        rows.append(f"| {steps} | {' | '.join(shown)} |")
    return rows


def _smoothed() -> list[str]:
    """Mean-square error after the best smoothing by someone who knows the statistics of w."""
    A, E, C = room()
    mu = 0.1
    size = np.abs(LinearSystem(A, E, C, np.zeros((1, 1))).spectrum(POINTS)[:, 0, 0])
    z = np.exp(-2j * np.pi * np.arange(POINTS) / POINTS)
    m = design_input_noise(room(), EPSILON, DELTA, mu=mu)
    ours = m.strategy.scale**2 * np.abs(m.strategy.noise.spectrum(POINTS)[:, 0, 0]) ** 2
    spectra = {
        "white output noise": np.full(POINTS, (size**2).mean()) * mu**2 / LIMIT**2,
        "input perturbation (static two-stage)": size**2 * mu**2 / LIMIT**2,
        "ours": ours,
    }
    rows = []
    for name, spectrum in spectra.items():
        found = []
        for sd in (0.1, 0.5):
            prior = size**2 * sd**2 * (1 - 0.81) / np.abs(1 - 0.9 * z) ** 2
            found.append(float((prior * spectrum / (prior + spectrum)).mean()))
        rows.append(f"| {name} | {spectrum.mean():.3g} | {found[0]:.3g} | {found[1]:.3g} |")
    return rows


def _static(plant, mu: float, place: str) -> Mechanism:
    """White noise on the outputs or on the inputs, as a mechanism."""
    neighbours = private_inputs(plant, mu)
    plant = neighbours.domain
    size = len(plant.output_names if place == "output" else plant.names)
    made = Filter(plant, LinearSystem.static(np.eye(size)), place)
    made = replace(made, start=start_certificate(made.exact_noise).root)
    unit = Mechanism(neighbours, made, Gaussian()).guarantee.sensitivity
    return Mechanism(neighbours, made.scaled(unit / LIMIT), Gaussian())


@dataclass
class Loop:
    """An LQG loop whose private input is hidden in its measurements."""

    private: Plant
    plant: Plant
    mu: float
    deviation: float
    sensor: float
    input_cost: float
    position: float = 0.0  # cost of the first state, beside that of the outputs

    @property
    def state_cost(self) -> FloatArray:
        A, _, C = self.private
        cost = C.T @ C + 1e-9 * np.eye(len(A))
        cost[0, 0] += self.position
        return cost

    @property
    def disturbances(self) -> FloatArray:
        E = self.private[1]
        return E @ E.T * self.deviation**2

    def steered(self, known: Mechanism | None) -> ControlledPlant:
        controller = aware_controller(
            self.plant, known, state_cost=self.state_cost, input_cost=self.input_cost,
            process_covariance=self.disturbances, measurement_covariance=self.sensor,
        )  # fmt: skip
        words = {"state_cost": self.state_cost, "input_cost": self.input_cost}
        return ControlledPlant(self.plant, controller, **words)

    def pays(self, known: Mechanism | None, noise: Mechanism | None) -> float:
        """Return the cost with this noise, of which the controller knows or not."""
        words = {"process_noise": self.disturbances, "sensor_noise": np.sqrt(self.sensor)}
        return self.steered(known).errors(noise, **words).cost

    @cached_property
    def without(self) -> float:
        return self.pays(None, None)

    def design(self, **words: Any) -> Mechanism:
        return design_input_noise(self.private, EPSILON, DELTA, mu=self.mu, **words)

    def in_turn(self) -> float:
        """Return what noise for the loop, a controller for the noise, and so on, pay."""
        noise = self.design()
        for _ in range(4):
            noise = self.design(cost=self.steered(noise))
        return self.pays(noise, noise) / self.without

    def silent(self) -> float:
        """Return what it costs to send nothing."""
        spread = solve_discrete_lyapunov(self.plant[0], self.disturbances)
        return float(np.trace(self.state_cost @ spread)) / self.without


LOOPS = {
    "room": Loop(room(), room(), 0.1, 0.2, 1e-4, 0.1),
    "building": Loop(building(), building(), 0.1, 0.2, 1e-4, 0.1),
    "quarter car": Loop(quarter_car(), quarter_car_actuator(), 0.01, 0.01, 1e-8, 1e-5, 1e-3),
}


def loop_costs() -> dict[str, list[tuple[float, float]]]:
    """Return what an LQG loop pays, unaware and aware, for each plant and kind of noise."""
    found = {}
    for name, loop in LOOPS.items():
        static = (_static(loop.private, loop.mu, place) for place in ("output", "input"))
        found[name] = [
            (loop.pays(None, noise) / loop.without, loop.pays(noise, noise) / loop.without)
            for noise in (*static, loop.design())
        ]
    return found


def _loops() -> list[str]:
    rows = []
    for name, cells in loop_costs().items():
        numbers = " | ".join(f"{unaware:.3g} / {aware:.3g}" for unaware, aware in cells)
        loop = LOOPS[name]
        rows.append(f"| {name} | {numbers} | {loop.in_turn():.3g} | {loop.silent():.3g} |")
    return rows


def _stepped() -> str:
    """What the room pays whose thermometer has steps of 0.1 °C, over a week."""
    loop, found = LOOPS["room"], []
    for steps in (0.1, Dither(6, 0.1)):
        noise = loop.design(horizon=672, resolution=steps)
        found.append(loop.pays(noise, noise) / loop.without)
    return STEPPED.format(*found)


HEAD = """## Private inputs beside the literature

Variance of the noise times s²/μ², summed over outputs, one input at one step private, for all time.
White output noise and input perturbation; zero-forcing with one prefilter per input (Le Ny and
Pappas 2014); the bound below which no stationary noise goes, and which filters of growing order
attain in the limit; ours, certified in rational arithmetic, its order and the seconds of one core
that it took.

| plant | white | input | zero-forcing | bound | ours | order | s |
|---|---:|---:|---:|---:|---:|---:|---:|
"""
SUMS = """
Running totals of a stream (an integrator over n steps, one number of the stream moves by 1):
squared error times s². Of the mean over the steps: the singular-value bound, which holds for every
Gaussian noise and which none attains; the least of all Gaussian noise (`least_trace`, an n × n
covariance); the square root of the Toeplitz matrix; ours, a filter, with `objective="sum"`. Of the
largest over the steps: the same noise; the least of all filters that start at rest (Landau's
constant, squared, which that square root attains with n taps); ours with `objective="largest"`.
*BLT*: the buffered linear Toeplitz noise of order 5 of jax-privacy 2.0.0, found once for each.

| n | bound | least | root | BLT, mean | ours, mean | order | s | its largest | least | \
BLT, largest | ours, largest | order | s |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""
SMOOTHED = """
Zero-forcing and ours are the same idea for one input and one output; with several, noise that mixes
outputs needs less.

Room, μ = 0.1 kW, after the best smoothing by someone who knows the statistics of w (sd of w in kW,
correlation 0.9 per step): mean-square error in °C². The static two-stage design of Degue and Le Ny
is input perturbation with smoothing here. White noise and smoothing may win where the prior is
strong.

| noise | raw | sd 0.1 | sd 0.5 |
|---|---:|---:|---:|
"""
PRIVATE_KALMAN = """
The example in the tests of PrivateDynamicData.jl (private Kalman filtering: the sum of ten states
with a = 0.9 from the sum of their measurements plus noise; ε = ln 3, δ = 0.05, each signal moves by
1): its sufficient constant σ = {:.4f} gives a mean-square error of {:.4f}, the number that its
tests expect; the least σ = {:.4f} of `gaussian_sigma` gives {:.4f}.
"""
PAID = """
What an LQG loop pays, times its cost without privacy: controller unaware / aware of the noise; in
turn: noise for the loop, a controller for that noise, and so on four times; nothing sent.
Disturbances of sd 0.2 kW (0.01 m), μ = 0.1 kW (0.01 m).

| plant | white | input perturbation | ours | in turn | nothing |
|---|---:|---:|---:|---:|---:|
"""
STEPPED = """

Room with steps of 0.1 °C over a week, aware of noise that is designed for them: {:.3g}; with dither
of six bits: {:.3g}.
"""


def _private_kalman() -> str:
    """The example of PrivateDynamicData.jl: the sum of ten states, estimated from a noisy sum."""
    epsilon, delta = np.log(3.0), 0.05
    tail = float(norm.isf(delta))
    theirs = (tail + np.sqrt(tail**2 + 2 * epsilon)) / (2 * epsilon)

    def error(noise: float) -> float:
        measured = np.array([[10 * 0.01 + noise**2]])
        one = np.ones((1, 1))
        before = solve_discrete_are(0.9 * one, one, 10 * 0.2 * one, measured)
        return float((before - before**2 / (before + measured))[0, 0])

    ours = float(gaussian_sigma(epsilon, delta))
    return PRIVATE_KALMAN.format(theirs, error(theirs), ours, error(ours))


def run() -> str:
    """Return the Markdown section."""
    A, _, C = building()
    forward = design_output_noise((A, C), np.inf, EPSILON, DELTA, mu=0.5, adjacency="forward")
    degrees = float(np.sqrt(forward.strategy.mean_variance(forward.noise) / 3))
    jump = f"\n\nBuilding, a state entry jumps by 0.5 °C at any time: noise of {degrees:.2f} °C.\n"
    sums = [SUMS, *_joined(_totals()), "\n"]
    tables = [HEAD, *_joined(_variances()), jump, *sums, SMOOTHED, *_joined(_smoothed())]
    return "".join([*tables, "\n", PAID, *_joined(_loops()), _stepped(), _private_kalman()])


def _joined(rows: list[str]) -> list[str]:
    return ["\n".join(rows)]
