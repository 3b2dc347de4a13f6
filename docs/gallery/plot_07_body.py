"""
The body that noise is drawn from
=================================

Three parts and a total have three free numbers, and the moves to be hidden are a body with flat
sides.  K-norm noise draws a point of it, evenly, and moves it out by a random factor.
"""

import matplotlib.pyplot as plt
import numpy as np
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.spatial import ConvexHull

import affinedp as adp

table = adp.AffineManifold.from_equations(["a + b + c = total"])
noise = adp.design_knorm(table, epsilon=1.0)
print(f"squared error {noise.expected_squared_error:.2f}, no law below {noise.lower_bound:.2f}")

# %%
# In coordinates of the space of tables that add up.

moves = np.linalg.qr(table.kernel)[0].T @ adp.CircuitAdjacency(table).directions()
points = np.hstack([moves, -moves]).T
hull = ConvexHull(points)
drawn = noise.sample(400, 0) @ np.linalg.qr(table.kernel)[0]
drawn = drawn[np.abs(drawn).max(axis=1) < 3]
figure = plt.figure(figsize=(5.6, 5.0), layout="constrained")
axes = figure.add_subplot(projection="3d")
faces = [points[face] for face in hull.simplices]
light = np.abs([plane[:3] @ [0.3, 0.5, 0.8] for plane in hull.equations])
colours = plt.colormaps["Blues"](0.35 + 0.5 * light / light.max())
axes.add_collection3d(Poly3DCollection(faces, facecolors=colours, alpha=0.85))
axes.scatter(*drawn.T, s=5, color="#D55E00", alpha=0.6)
axes.set(xlim=(-2, 2), ylim=(-2, 2), zlim=(-2, 2))
axes.set_box_aspect((1, 1, 1), zoom=1.3)
axes.axis("off")
axes.set_title("the moves of a + b + c = total, and draws of noise", fontsize=11)
plt.show()
