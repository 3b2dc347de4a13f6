"""
One-way links and lost messages
===============================

Push-sum finds the average over links that lead one way and lose messages.  Losses cost time, not
accuracy, and no privacy at all.
"""

import matplotlib.pyplot as plt
import networkx as nx

from affinedp.consensus import PrivatePushSum

links = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")])
values = {"a": 10.0, "b": 0.0, "c": 30.0, "d": 20.0}
consensus = PrivatePushSum(links, law="gaussian", epsilon=1.0, delta=1e-6)
print(consensus.guarantee)

# %%

figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
for lost, colour in ((0.0, "#0072B2"), (0.3, "#E69F00"), (0.6, "#D55E00")):
    error = consensus.mean_square_error(values, 60, lost=lost, seed=1)
    axes.semilogy(error, color=colour, label=f"{lost:.0%} of the messages lost")
axes.axhline(consensus.limit(), color="k", linestyle=":", linewidth=1)
axes.text(60, consensus.limit() * 0.72, "limit", ha="right")
axes.set(xlabel="round", ylabel="mean-square error over all agents", ylim=(10, None))
axes.legend(frameon=False)
plt.show()
