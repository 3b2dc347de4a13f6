"""
The pair that is told apart best
================================

A promise is about the worst pair of neighbours.  In a network of streets :func:`affinedp.verify`
names it: the ring of streets on which traffic may differ and that given noise hides least.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import affinedp as adp
from affinedp import flows

graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))
places = {i: (i % 4, -(i // 4)) for i in graph}
network = flows.from_graph(graph, laws="balance", public_injections=dict.fromkeys(graph, 0.0))

# %%
# The same noise on every street, meant for ε = 1 if streets were unrelated.

sigma = adp.gaussian_sigma(1.0, 1e-6)
guarantee = adp.verify(network.manifold, sigma)
worst = np.abs(guarantee.worst_direction)
print(f"meant for ε = 1, kept: ε = {guarantee.epsilon(1e-6):.2f}")

figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
edges = list(graph.edges)
colours = ["#D55E00" if moved > 1e-9 else "0.75" for moved in worst]
nx.draw_networkx_edges(graph, places, edges, ax=axes, edge_color=colours, width=4)
nx.draw_networkx_nodes(graph, places, ax=axes, node_color="white", edgecolors="0.3", node_size=260)
axes.set_title(
    f"the ring of {np.sum(worst > 1e-9)} streets that shows most",
    fontsize=11,
)
axes.axis("off")
plt.show()
