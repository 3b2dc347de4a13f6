"""Draw least_noise.png: three laws that keep ε = 1 for a total and its two parts."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

SIZE = 3_000_000
REACH = 9.0
# Okabe and Ito's palette
VERMILLION = "#D55E00"


def main() -> None:
    """Draw the three densities in the plane of data, on one scale."""
    M = adp.AffineManifold.from_equations(["a + b = c"])
    plane = np.linalg.qr(M.kernel)[0]
    moves = plane.T @ adp.CircuitAdjacency(M).directions()
    corners = np.hstack([moves, -moves])
    corners = corners[:, np.argsort(np.arctan2(corners[1], corners[0]))]
    laws = (
        ("Gaussian, δ = 10⁻⁶", adp.design_gaussian(M, epsilon=1.0, delta=1e-6)),
        ("Laplace strategy, δ = 0", adp.design_laplace(M, epsilon=1.0)),
        ("K-norm, δ = 0", adp.design_knorm(M, epsilon=1.0)),
    )
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.1), layout="constrained")
    for axis, (title, mechanism) in zip(axes, laws):
        drawn = mechanism.sample(SIZE, 0) @ plane
        axis.hexbin(
            *drawn.T, gridsize=60, extent=(-REACH, REACH, -REACH, REACH), cmap="Blues", bins="log",
            mincnt=1, linewidths=0.2,
        )  # fmt: skip
        axis.fill(*corners, facecolor="none", edgecolor=VERMILLION, linewidth=1.8)
        axis.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal", xticks=[], yticks=[])
        axis.set_title(
            f"{title}\nsquared error {mechanism.expected_squared_error:.3g}", fontsize=12
        )
    figure.supxlabel(
        "noise in the plane a + b = c; red: the moves that must stay hidden at ε = 1; no mechanism "
        "goes below 7.67",
        fontsize=10,
    )
    figure.savefig(Path(__file__).with_name("least_noise.png"), dpi=130)


if __name__ == "__main__":
    main()
