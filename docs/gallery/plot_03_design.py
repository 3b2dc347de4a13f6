"""
The least noise is the smallest ellipse
=======================================

Neighbours of a table are points in the plane of tables that add up.  Gaussian noise keeps the
promise if its ellipse contains all of them; the least noise is the ellipse of least squared axes.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

EPSILON, DELTA = 1.0, 1e-6

# %%
# Two parts and a total.  Between neighbours b moves by up to 3, a and the total by up to 1.

table = adp.AffineManifold.from_equations(["a + b = total"])
people = adp.CircuitAdjacency(table, mu=[1, 3, 1])
best = adp.design_gaussian(table, epsilon=EPSILON, delta=DELTA, adjacency=people)
iid = adp.iid_noise(table, law="gaussian", epsilon=EPSILON, delta=DELTA, adjacency=people)

print(best.guarantee)
print(f"\nsquared error {best.expected_squared_error:.1f}, ", end="")
print(f"of independent noise {iid.expected_squared_error:.1f}")

# %%
# Draw everything in coordinates of the plane a + b = total, in units in which the promise allows
# an ellipse to touch a neighbour.


def ellipse(root):
    """Return the outline of {root u : |u| = 1}."""
    angle = np.linspace(0, 2 * np.pi, 200)
    return root @ np.stack([np.cos(angle), np.sin(angle)])


plane = np.linalg.svd(table.D)[2][1:]  # an orthonormal basis of the kernel, as rows
limit = adp.gaussian_sensitivity(EPSILON, DELTA)
directions = plane @ people.directions()
corners = np.hstack([directions, -directions])
corners = corners[:, np.argsort(np.arctan2(corners[1], corners[0]))]

figure, axes = plt.subplots(figsize=(5.6, 5.0), layout="constrained")
for mechanism, colour, label in ((iid, "#D55E00", "independent"), (best, "#0072B2", "least")):
    covariance = plane @ mechanism.covariance @ plane.T
    outline = ellipse(np.linalg.cholesky(covariance) * limit)
    axes.plot(*outline, color=colour, label=f"{label} noise (as seen in the plane)")
axes.plot(*corners, "ko", markersize=5, label="neighbours")
axes.plot(0, 0, "k+", markersize=9)
axes.set_aspect("equal")
axes.set(xlabel="first coordinate of the plane", ylabel="second coordinate")
axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.12))
plt.show()

# %%
# Independent noise is wasted twice: part of it lies outside of the plane, where it hides nothing,
# and the rest does not follow the neighbours.
