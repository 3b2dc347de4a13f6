"""The vehicle of section V of the paper: the loop, its noises, and what its figures show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, TypeAlias

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.control.loop.simulation import Simulation
from affinedp.control.loop.sweeps import sweep
from affinedp.control.stationary.output_noise import design_output_noise
from affinedp.control.trajectory.design import independent_output_noise
from affinedp.laws.calibration import gaussian_sigma, gaussian_sigma_bound
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import Neighbours

Noise: TypeAlias = Mechanism

PERIOD = 0.1
VEHICLE = (
    np.array([[1.0, PERIOD], [0.0, 1.0]]),
    np.array([[PERIOD**2 / 2], [PERIOD]]),
    np.array([[1.0, 0.0]]),
)
START = (-20.0, 0.0)
HORIZON = 100
EPSILON, DELTA = 1.0, 0.01
EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
PAPER_FEEDBACK, PAPER_OBSERVER = (3.4240, 4.3095), (0.8266, 0.6973)
PAPER_SIGMA = 2.5244
POSITIONS = (1.0, 0.0)

Rule = Literal["paper", "least"]


@dataclass(frozen=True, eq=False)
class TrackingErrors:
    """Tracking errors under one noise: a curve and a cloud of Figure 2."""

    name: str
    noise: Noise
    simulation: Simulation = field(repr=False)

    @cached_property
    def exact(self) -> FloatArray:
        """Mean-square errors of p and v, shape (T + 1, 2), exact."""
        return vehicle_loop().mean_square_error(self.noise, HORIZON)


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """Mean-square errors at the end against ε: a curve of Figure 3."""

    name: str
    structured: bool
    rule: Rule
    errors: FloatArray = field(repr=False)
    simulated: FloatArray | None = field(default=None, repr=False)
    standard_errors: FloatArray | None = field(default=None, repr=False)


def reference(t: int) -> tuple[float, float]:
    """Return the paper's (p_r, v_r) at step t."""
    return float(np.tanh(t)), float(1 - abs(np.tanh(t - 9)))


def vehicle_loop() -> ClosedLoop:
    """Return the paper's loop; the gains it prints are those of a linear-quadratic design.

    Examples
    --------
    >>> loop = vehicle_loop()
    >>> loop.feedback.round(4).tolist(), loop.observer.round(4).tolist()
    ([[3.424, 4.3095]], [[0.8266], [0.6973]])
    """
    return ClosedLoop.lqg(
        VEHICLE,
        reference,
        state_cost=20.0,
        input_cost=1.0,
        process_covariance=2.0,
        measurement_covariance=1.0,
        x0=START,
    )


def vehicle_noise(
    epsilon: float = EPSILON, *, structured: bool = True, sigma: float | None = None
) -> Noise:
    """Return the paper's noise on the sent positions, or as much fresh noise as it compares with.

    Examples
    --------
    >>> from affinedp.control import noise_by_time
    >>> noise_by_time(vehicle_noise())[:2].round(4).tolist()
    [[1.8779], [1.8779]]
    >>> noise_by_time(vehicle_noise(structured=False, sigma=2.5244))[:2].round(3).tolist()
    [[25.244], [25.244]]
    """
    distance = 1.0 if sigma is None else sigma / float(gaussian_sigma(epsilon, DELTA))
    design = design_output_noise if structured else independent_output_noise
    return design(VEHICLE, HORIZON, epsilon, DELTA, mu=(distance, 0.0))


def tracking_errors(runs: int = 1000, seed: int = 0) -> list[TrackingErrors]:
    """Return what Figure 2 shows: tracking errors with the paper's σ and with the least."""
    loop = vehicle_loop()
    noises = {
        f"paper's σ = {PAPER_SIGMA} (a bound)": vehicle_noise(sigma=PAPER_SIGMA),
        f"least σ = {gaussian_sigma(EPSILON, DELTA):.4f}": vehicle_noise(),
    }
    return [
        TrackingErrors(name, noise, loop.simulate(noise, HORIZON, runs, seed))
        for name, noise in noises.items()
    ]


def tradeoff(n_jobs: int = 1, runs: int = 0, seed: int = 0) -> list[Tradeoff]:
    """Return what Figure 3 shows: mean-square errors at t = T against ε."""
    loop = vehicle_loop()
    found = []
    for structured in (True, False):
        kind = "one draw (r = 1)" if structured else "i.i.d. (r = T)"
        for rule in ("paper", "least"):
            noise = partial(_noise_by_rule, rule, structured)
            errors = sweep(loop, noise, EPSILONS, HORIZON, n_jobs=n_jobs).mean_square_errors
            words = "paper's σ (a bound)" if rule == "paper" else "least σ"
            curve = Tradeoff(f"{kind}, {words}", structured, rule, errors[:, -1])
            if runs:
                seen = [loop.simulate(noise(e), HORIZON, runs, seed) for e in EPSILONS]
                curve = replace(
                    curve,
                    simulated=np.array([one.mean_square_error[-1] for one in seen]),
                    standard_errors=np.array([one.standard_error[-1] for one in seen]),
                )
            found.append(curve)
    return found


def _noise_by_rule(rule: Rule, structured: bool, epsilon: float) -> Noise:
    sigma = float(gaussian_sigma_bound(epsilon, DELTA)) if rule == "paper" else None
    return vehicle_noise(epsilon, structured=structured, sigma=sigma)


def protections(runs: int = 1000, seed: int = 0) -> list[TrackingErrors]:
    """Return designs that protect more than the paper's: positions and velocities.

    All keep ε = 1, δ = 0.01; they differ in who is a neighbour.
    """
    loop = vehicle_loop()
    cases: list[tuple[str, Sequence[float], Neighbours]] = [
        ("positions (1 m) only, as in the paper", POSITIONS, "time-local"),
        ("and velocities (0.1 m/s), time-local", (1.0, 0.1), "time-local"),
        ("and velocities (1 m/s), time-local", (1.0, 1.0), "time-local"),
        ("and velocities (1 m/s), Definition 4", (1.0, 1.0), "manifold"),
    ]
    noises = [
        (name, design_output_noise(VEHICLE, HORIZON, EPSILON, DELTA, mu, kind))
        for name, mu, kind in cases
    ]
    return [
        TrackingErrors(name, noise, loop.simulate(noise, HORIZON, runs, seed))
        for name, noise in noises
    ]


def guessed_velocities(simulation: Simulation) -> FloatArray:
    """Return the velocities that an eavesdropper computes from ŷ and u, shape (runs, T − 1).

    p(t+1) = p(t) + T_s v(t) + T_s²/2 u(t), so noise that is the same in ŷ(t) and ŷ(t+1) cancels.
    """
    sent, inputs = simulation.outputs[:, :, 0], simulation.inputs[:, :-1, 0]
    return np.asarray(np.diff(sent, axis=1) / PERIOD - PERIOD / 2 * inputs)
