"""Section VI of the paper: every number and figure of the ten agents, and one large network.

The paper's Gaussian noise comes from an upper bound on the least scale, and its read-out is the
state.  Both are reproduced as they are, beside the least scale and the better read-outs.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from affinedp.consensus.readouts import READOUTS
from affinedp.laws.calibration import gaussian_sigma_bound
from affinedp.paper.claims import Claim, verdict_of
from affinedp.paper.consensus_figures import draw_all
from affinedp.paper.large_network import converging
from affinedp.paper.ten_agents import (
    DELTA,
    EPSILONS,
    PAPER_AVERAGE,
    PAPER_SIGMAS,
    RUNS,
    STEPS,
    VALUES,
    Setting,
    experiments,
    ten_agents,
)


def claims(runs: int = RUNS, seed: int = 0) -> list[Claim]:
    """Return every number of section VI beside ours, and what the section leaves out.

    Examples
    --------
    >>> found = claims(runs=50)
    >>> [claim.row()[1:4] for claim in found if claim.what == "x*, the average of x(0)"]
    [('10', '15', 'corrected')]
    """
    settings = experiments(runs, seed)
    found = [*_network(), *_scales()]
    found += _means(settings[0])
    for setting in settings:
        found += _mean_squares(setting)
    return [*found, *_tradeoff(), _variance_one()]


def _network() -> list[Claim]:
    consensus = ten_agents()
    average = float(np.mean(VALUES))
    heaviest = float(consensus.network.weight_sums.max())
    spectrum = consensus.spectrum
    return [
        Claim(
            "x*, the average of x(0)",
            PAPER_AVERAGE, average, verdict_of(average == PAPER_AVERAGE), "mean of the ten values",
        ),
        Claim(
            "largest weight sum of an agent",
            "below 1", heaviest, verdict_of(heaviest < 1), "agents 2, 5, 7 and 10 have four links",
        ),
        Claim(
            "λ_n of the Laplacian",
            "below 2", spectrum.lambda_n, verdict_of(spectrum.lambda_n < 2),
            "all that convergence needs",
        ),
        Claim("α = max(|1−λ₂|, |1−λ_n|)", None, spectrum.alpha, "added", "all eigenvalues"),
    ]  # fmt: skip


def _scales() -> list[Claim]:
    found = []
    for epsilon, printed in PAPER_SIGMAS.items():
        bound = float(gaussian_sigma_bound(epsilon, DELTA))
        least = ten_agents(epsilon=epsilon)
        sigma = float(least.sigma[0])
        kept = ten_agents(epsilon=epsilon, rule="paper").guarantee.epsilon(DELTA)
        close = [abs(printed - value) <= 0.5001e-4 for value in (bound, sigma)]
        case = f"ε = {epsilon:g}, δ = {DELTA:g}"
        found += [
            Claim(
                f"σ by the paper, {case}",
                printed, bound, verdict_of(close[0]), "1 / (Φ⁻¹(δ) + √(Φ⁻¹(δ)² + 2ε)), a bound",
            ),
            Claim(
                f"σ, the least, {case}",
                printed, sigma, verdict_of(close[1]), "κ(ε, 1/σ) = δ, the rule the paper states",
            ),
            Claim(
                f"ε that σ = {printed:g} keeps at δ = {DELTA:g}",
                None, kept, "added", f"exact, where {epsilon:g} was asked for",
            ),
        ]  # fmt: skip
    for epsilon in EPSILONS:
        sigma = float(ten_agents("laplace", epsilon).sigma[0])
        verdict = verdict_of(math.isclose(sigma, 1 / epsilon, rel_tol=1e-12))
        found.append(Claim(f"Laplace σ, ε = {epsilon:g}", 1 / epsilon, sigma, verdict, "μ/ε"))
    return found


def _means(setting: Setting) -> list[Claim]:
    """Figure 5: the mean error dies out."""
    consensus, run = setting.consensus, setting.run
    exact = consensus.mean_error(VALUES, 200)
    states = run.states
    error = states.std(axis=0, ddof=1) / math.sqrt(len(states))
    off = np.abs(states.mean(axis=0) - 15.0 - exact[: STEPS + 1])[1:] / error[1:]
    late = float(np.abs(exact[-1]).max())
    return [
        Claim(
            "Fig. 5: largest |E x_i(t) − x*| at t = 200",
            "vanishes", late, verdict_of(late < 1e-9), "exact; the same for all noise",
        ),
        Claim(
            f"Fig. 5: largest |E x_i(t) − x*| at t = {STEPS}",
            None, float(np.abs(exact[STEPS]).max()), "added",
            f"exact; means of {len(states)} runs are at most {off.max():.1f} standard errors off",
        ),
    ]  # fmt: skip


def _mean_squares(setting: Setting) -> list[Claim]:
    """Figures 6 and 7: the limit against the bound, and all read-outs."""
    consensus, case = setting.consensus, f"ε = {setting.epsilon:g}, σ = {setting.sigma:.6g}"
    figure = 6 if setting.law == "gaussian" else 7
    bound, limit = float(consensus.bound()), consensus.limit()
    mean, error = setting.run.mean_square_error()
    off = (mean[-1] - setting.exact()[-1]) / error[-1]
    how = (
        f"exact; {len(setting.run.messages)} runs at t = {STEPS} are {off:+.1f} standard errors off"
    )
    stated = f"below {bound:.6g}" if setting.rule == "paper" or figure == 7 else None
    verdict = verdict_of(limit < bound) if stated else "added"
    found = [
        Claim(f"Fig. {figure}: limit of E‖x − 1x*‖², {case}", stated, limit, verdict, how),
    ]
    for readout in READOUTS[1:]:
        what = f"the same for the {readout} read-out, {case}"
        found.append(Claim(what, None, consensus.limit(readout), "added", "exact, same promise"))
    return found


def _tradeoff() -> list[Claim]:
    """The least ε for the error that the paper's noise was meant to allow."""
    zeta = float(ten_agents(rule="paper").bound())
    found = []
    for law in ("gaussian", "laplace"):
        consensus = ten_agents("gaussian" if law == "gaussian" else "laplace")
        for readout in ("paper", *READOUTS):
            how = "the paper's formula" if readout == "paper" else f"the exact limit, {readout}"
            what = f"least ε for an error of {zeta:.4g}, {law}, {readout}"
            epsilon = consensus.optimal_epsilon(zeta, readout)
            found.append(Claim(what, None, epsilon, "added", how))
    return found


def _variance_one() -> Claim:
    """Laplace noise of variance 1 is noise of scale 1/√2."""
    kept = ten_agents("laplace").with_noise(sigma=1 / math.sqrt(2)).guarantee.epsilon()
    return Claim(
        "ε kept by Laplace draws of variance 1 (as in the public scripts) at σ = 1",
        1.0, kept, verdict_of(kept <= 1.0), "L(0, 1) has variance 2",
    )  # fmt: skip


def figures(out: Path, runs: int = RUNS, seed: int = 0, agents: int = 100_000) -> list[Path]:
    """Draw Figures 4 to 7, the read-outs side by side, and a large network converging."""
    return draw_all(Path(out), experiments(runs, seed), converging(agents, seed))
