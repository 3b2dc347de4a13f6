"""Section V of the paper: every number and figure of the vehicle that the cloud drives.

The paper designs for positions only (velocities public), with a noise scale that is an upper
bound.  Both are reproduced as they are, beside the least noise and the noise that hides
velocities too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from affinedp.control.by_time import noise_by_time
from affinedp.control.stationary.output_noise import design_output_noise
from affinedp.control.trajectory.given_noise import verify_trajectory_noise
from affinedp.laws.calibration import gaussian_sigma_bound
from affinedp.paper.claims import Claim, verdict_of
from affinedp.paper.vehicle import (
    DELTA,
    EPSILON,
    HORIZON,
    PAPER_FEEDBACK,
    PAPER_OBSERVER,
    PAPER_SIGMA,
    POSITIONS,
    VEHICLE,
    guessed_velocities,
    protections,
    tracking_errors,
    tradeoff,
    vehicle_loop,
    vehicle_noise,
)


def claims(runs: int = 10_000, seed: int = 0) -> list[Claim]:
    """Return every number of section V beside ours, and what the section leaves out.

    Examples
    --------
    >>> found = claims(runs=100)
    >>> [claim.row()[1:4] for claim in found if "√Σ" in claim.what]
    [('2.5244', '2.52441', 'agrees'), ('2.5244', '1.87788', 'corrected')]
    """
    return [*_gains(), *_scales(), *_errors(runs, seed), *_figure_3(), *_velocities(runs, seed)]


def _printed(what: str, paper: float, ours: float, how: str) -> Claim:
    """A number that the paper prints with four decimals."""
    return Claim(what, paper, ours, verdict_of(abs(paper - ours) <= 0.5001e-4), how)


def _gains() -> list[Claim]:
    loop = vehicle_loop()
    both = (
        ("K_P", PAPER_FEEDBACK, loop.feedback.ravel(), "dlqr(A, B, 20 I, 1)"),
        ("L", PAPER_OBSERVER, loop.observer.ravel(), "dlqe(A, I, C, 2 I, 1)"),
    )
    return [
        _printed(f"{name}, entry {i + 1}", stated, float(gain), f"python-control's {how}")
        for name, paper, ours, how in both
        for i, (stated, gain) in enumerate(zip(paper, ours))
    ]


def _scales() -> list[Claim]:
    bound = float(gaussian_sigma_bound(EPSILON, DELTA))
    scalar = design_output_noise(([[1.0]], [[1.0]]), HORIZON, EPSILON, DELTA)
    vehicle = design_output_noise(VEHICLE, HORIZON, EPSILON, DELTA, mu=POSITIONS)
    least = float(noise_by_time(scalar)[0, 0])
    apart = float(np.abs(noise_by_time(vehicle) - noise_by_time(scalar)).max())
    return [
        _printed("√Σ by the paper", PAPER_SIGMA, bound, "1 / (Φ⁻¹(δ) + √(Φ⁻¹(δ)² + 2ε)), a bound"),
        _printed("√Σ, the least", PAPER_SIGMA, least, "κ(ε, 1/√Σ) = δ, the rule the paper states"),
        Claim(
            "scalar design against the vehicle with public velocities",
            None, apart, "added", "largest difference of their noise: the same design",
        ),
    ]  # fmt: skip


def _errors(runs: int, seed: int) -> list[Claim]:
    """Mean squares at t = T, exactly and by chance, and what becomes of the velocity."""
    loop = vehicle_loop()
    found = []
    for structured, kind in ((True, "one draw"), (False, "i.i.d.")):
        for sigma, rule in ((PAPER_SIGMA, "paper's σ"), (None, "least σ")):
            noise = vehicle_noise(structured=structured, sigma=sigma)
            exact = loop.mean_square_error(noise, HORIZON)[-1]
            simulated = loop.simulate(noise, HORIZON, runs, seed)
            apart = (simulated.mean_square_error - exact)[-1] / simulated.standard_error[-1]
            how = f"exact; {runs:,} runs are {apart[0]:+.1f} standard errors off"
            what = f"E|p − p_r|² at t = {HORIZON}, {kind}, {rule}"
            found.append(Claim(what, None, float(exact[0]), "added", how))
            if structured and sigma:
                what = f"E|v − v_r|² at t = {HORIZON}, {kind}, {rule}"
                verdict = verdict_of(exact[1] < 1e-3)
                found.append(Claim(what, "vanishes", float(exact[1]), verdict, "exact"))
    return found


def _figure_3() -> list[Claim]:
    """What the paper concludes from Figure 3, as the worst case over its ε and both states."""
    curves = {(curve.structured, curve.rule): curve.errors for curve in tradeoff()}
    ratio = max(
        float((curves[True, rule] / curves[False, rule]).max()) for rule in ("paper", "least")
    )
    rising = max(float((errors[1:] / errors[:-1]).max()) for errors in curves.values())
    gain = curves[True, "paper"][:, 0] / curves[True, "least"][:, 0]
    return [
        Claim(
            "Fig. 3: mean squares of one draw over i.i.d., at most",
            "below 1", ratio, verdict_of(ratio < 1), "exact, over its ε, both states, both rules",
        ),
        Claim(
            "Fig. 3: mean squares at one ε over those at the next smaller, at most",
            "below 1", rising, verdict_of(rising < 1), "exact, over all its curves",
        ),
        Claim(
            "Fig. 3: E|p − p_r|² at ε = 0.01, paper's σ over least σ",
            None, float(gain[0]), "added", "exact, for the same promise",
        ),
    ]  # fmt: skip


def _velocities(runs: int, seed: int) -> list[Claim]:
    few = min(runs, 100)
    designs = protections(few, seed)
    listened = designs[0].simulation
    miss = np.abs(guessed_velocities(listened) - listened.states[:, : HORIZON - 1, 1]).max()
    epsilon = _epsilon_of_both()
    found = [
        Claim(
            "ε that the paper's noise keeps for positions and velocities",
            "1", epsilon, verdict_of(epsilon <= EPSILON),
            "Theorem 1: no promise; velocities are called private, but not designed for",
        ),
        Claim(
            "error of velocities computed from ŷ and u under the paper's noise (m/s)",
            None, float(miss), "added", f"largest of {few} runs: only rounding is left",
        ),
    ]  # fmt: skip
    for design in designs[1:]:
        what = f"E|p − p_r|² at t = {HORIZON}: {design.name.removeprefix('and ')}"
        found.append(Claim(what, None, float(design.exact[-1, 0]), "added", "exact, least noise"))
    return found


def _epsilon_of_both() -> float:
    """The ε of the paper's noise if velocities are private too: infinite."""
    noise = design_output_noise(VEHICLE, HORIZON, EPSILON, DELTA, mu=POSITIONS)
    return verify_trajectory_noise(VEHICLE, HORIZON, noise.noise_matrix).epsilon(DELTA)


def figures(out: Path, runs: int = 1000, seed: int = 0) -> list[Path]:
    """Draw Figures 2 and 3, and one of the designs that hide velocities too."""
    from affinedp.paper.control_figures import draw_all

    return draw_all(
        Path(out),
        tracking_errors(runs, seed),
        tradeoff(runs=runs, seed=seed),
        protections(runs, seed),
    )
