"""
Agents that agree on an average
===============================

Section VI of the paper.  Ten agents find the average of their values and send only noisy messages.
Three ways to read the average off have the same promise and very different errors.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from affinedp.consensus import PrivateConsensus

# %%
# The network and the values of the paper, at ε = 1 and δ = 0.01.

edges = "1-2 1-10 2-3 2-5 2-10 3-4 4-5 5-6 5-7 6-7 7-8 7-10 8-9 9-10"
graph = nx.Graph()
graph.add_nodes_from(range(1, 11))
graph.add_edges_from(tuple(map(int, edge.split("-"))) for edge in edges.split())
values = np.array([10, 100, 20, -30, -20, -60, 70, 0, 80, -20])
consensus = PrivateConsensus(graph, law="gaussian", epsilon=1.0, delta=0.01, weights=0.25)
print(consensus.guarantee)

# %%
# The messages run plain consensus, so the error of what everyone sees anyway is about a tenth of
# that of the agents' own states.

STEPS = 40
colours = {"state": "#D55E00", "message": "#0072B2", "corrected": "#009E73"}
run = consensus.run(values, STEPS, seed=1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
left.plot(run.messages[0], color="#0072B2", linewidth=0.9)
left.axhline(values.mean(), color="k", linestyle="--", linewidth=1)
left.text(STEPS, values.mean() + 3, "average", ha="right")
left.set(xlabel="step", ylabel="messages of ten agents")
for readout, colour in colours.items():
    errors = np.array(consensus.mean_square_error(values, STEPS, readout))
    right.semilogy(errors, color=colour, label=readout)
    right.axhline(consensus.limit(readout), color=colour, linestyle=":", linewidth=1)
right.set(xlabel="step", ylabel="mean-square error over all agents")
right.legend(frameon=False, title="read-out")
plt.show()
