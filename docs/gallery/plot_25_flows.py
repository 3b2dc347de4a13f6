"""
Flows in a network
==================

What flows into a node flows out again.  Noise that obeys these balances hides any single flow, and
what is published can be used like the true flows.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from affinedp import flows

# %%
# A grid of streets with balance at every crossing, where vehicles may also enter and leave.
# Neighbours differ along a cycle of streets, or along a way from one crossing to another.

grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))
network = flows.from_graph(grid, laws="balance")
noise = flows.design_flow_noise(network, epsilon=1.0, delta=1e-6)
print(noise.notes[0])

# %%

figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
flows.draw_flow_noise(network, noise, axes=axes, unit="vehicles per hour")
plt.show()

# %%
# Published flows obey every balance:

manifold = network.manifold
truth = manifold.project(np.random.default_rng(0).uniform(100, 400, manifold.n))
published = noise.release(truth)
print(f"largest imbalance {np.abs(manifold.D @ published + manifold.b).max():.1e}")
