"""
Three laws for one hexagon
==========================

A total and its two parts live in a plane, and the moves to be hidden are a hexagon there.  Gaussian
noise is an ellipse, a Laplace strategy a parallelogram, and K-norm noise is the hexagon itself.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

table = adp.AffineManifold.from_equations(["a + b = total"])
laws = {
    "Gaussian, δ = 10⁻⁶": adp.design_gaussian(table, epsilon=1.0, delta=1e-6),
    "Laplace strategy, δ = 0": adp.design_laplace(table, epsilon=1.0),
    "K-norm, δ = 0": adp.design_knorm(table, epsilon=1.0),
}

# %%
# All three keep ε = 1.  The two without δ have a seventh of the squared error here: a few numbers,
# a small ε and no list of releases to add up is where Gaussian noise loses.

plane = np.linalg.qr(table.kernel)[0]
moves = plane.T @ adp.CircuitAdjacency(table).directions()
corners = np.hstack([moves, -moves])
corners = corners[:, np.argsort(np.arctan2(corners[1], corners[0]))]
reach = 9.0
figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.7), layout="constrained")
for axes, (name, mechanism) in zip(panels, laws.items()):
    drawn = mechanism.sample(300_000, 0) @ plane
    axes.hexbin(
        *drawn.T, gridsize=44, extent=(-reach, reach) * 2, cmap="Blues", bins="log", mincnt=1
    )
    axes.fill(*corners, facecolor="none", edgecolor="#D55E00", linewidth=1.8)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    axes.set_title(f"{name}\nsquared error {mechanism.expected_squared_error:.3g}", fontsize=11)
plt.show()
