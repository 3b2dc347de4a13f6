"""Draw attacks.png: what attacks measure against what is claimed.  Takes about two minutes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import affinedp as adp
from affinedp.audit import audit
from affinedp.audit.trial import AuditResult

EPSILONS = (0.25, 0.5, 1.0, 2.0)
RUNS = 100_000
DELTA = 0.01
STEPS = 5
# Okabe and Ito's palette
BLUE, GREEN, VERMILLION, PURPLE, ORANGE = "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00"

RATIO = adp.AffineManifold([[1, -4]])  # Example 1 of the paper with k = 4


def vehicle() -> adp.AffineManifold:
    """Return p(t+1) = p(t) + 0.1 v(t), v(t+1) = v(t) over a few steps."""
    equations = []
    for t in range(STEPS - 1):
        equations += [f"`p({t})` + 0.1*`v({t})` = `p({t + 1})`", f"`v({t})` = `v({t + 1})`"]
    return adp.AffineManifold.from_equations(equations)


def ignoring_equations(epsilon: float) -> AuditResult:
    """Attack i.i.d. noise of scale 1/ε, claimed for ε."""
    noise = adp.iid_noise(RATIO, law="laplace", epsilon=5 * epsilon)
    return audit(noise, claim=(epsilon, 0.0), runs=RUNS)


def variance_one(epsilon: float) -> AuditResult:
    """Attack the right noise matrix with Laplace draws of variance 1."""
    mechanism = adp.design_laplace(RATIO, epsilon=epsilon)
    generator = np.random.default_rng(0)

    def release(x: np.ndarray) -> np.ndarray:
        drawn = generator.laplace(scale=np.sqrt(0.5), size=(len(x), 1))
        return x + drawn @ mechanism.noise_matrix.T

    return audit(mechanism, release=release, runs=RUNS)


def theorem_3(epsilon: float) -> AuditResult:
    """Attack noise for time-local neighbours along all circuits."""
    manifold = vehicle()
    sets = [[f"p({t})", f"v({t})"] for t in range(STEPS)]
    time_local = adp.FreeSetAdjacency(manifold, sets)
    mechanism = adp.design_gaussian(manifold, epsilon=epsilon, delta=DELTA, adjacency=time_local)
    return audit(mechanism, adjacency=adp.CircuitAdjacency(manifold), runs=RUNS)


def our_laplace(epsilon: float) -> AuditResult:
    """Attack the Laplace design for the same equation."""
    return audit(adp.design_laplace(RATIO, epsilon=epsilon), runs=RUNS)


def our_gaussian(epsilon: float) -> AuditResult:
    """Attack the Gaussian design for the same vehicle, for all circuits."""
    return audit(adp.design_gaussian(vehicle(), epsilon=epsilon, delta=DELTA), runs=RUNS)


SERIES: tuple[tuple[str, str, str, Callable[[float], AuditResult]], ...] = (
    ("Theorem 3 noise, claimed for Definition 4", PURPLE, "D", theorem_3),
    ("i.i.d. Laplace that ignores x1 = 4 x2", VERMILLION, "s", ignoring_equations),
    ("Laplace of variance 1 instead of 2", ORANGE, "^", variance_one),
    ("our Laplace design", BLUE, "o", our_laplace),
    ("our Gaussian design", GREEN, "v", our_gaussian),
)


def draw(path: Path) -> None:
    """Run every attack and write the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.2), layout="constrained")
    axes = figure.subplots()
    for label, colour, marker, attack in SERIES:
        found = [attack(epsilon) for epsilon in EPSILONS]
        measured = [result.epsilon_lower for result in found]
        print(label, [(r.epsilon_stated, round(r.epsilon_lower, 3), r.passed) for r in found])
        axes.plot(EPSILONS, measured, marker=marker, color=colour, label=label, linewidth=1.5)
    line = np.array([0.2, 2.5])
    axes.plot(line, line, color="black", linestyle="--", linewidth=1, label="as claimed")
    axes.fill_between(line, line, 30, color="black", alpha=0.06, linewidth=0)
    axes.text(0.21, 0.6, "refuted: above its claim", fontsize=10)
    # no mistake in all counted runs, and never a miss
    most = np.log(RUNS / 2 / -np.log(0.0005))
    axes.axhline(most, color="black", linestyle=":", linewidth=1)
    axes.text(0.21, 1.07 * most, f"{RUNS:,} runs cannot prove more", fontsize=10)
    axes.set(xscale="log", yscale="log", xlim=(0.2, 2.5), ylim=(0.08, 15))
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_yticks((0.1, 0.25, 0.5, 1, 2, 5, 10), ("0.1", "0.25", "0.5", "1", "2", "5", "10"))
    axes.minorticks_off()
    axes.set_xlabel("ε that is claimed (δ = 0 for Laplace, 0.01 for Gaussian noise)")
    axes.set_ylabel("ε that an attack proves (99.9 % confidence)")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=9)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    draw(Path(__file__).with_name("attacks.png"))
