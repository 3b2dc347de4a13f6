"""
Ten clinics learn one model
===========================

Each clinic adds noise to its own sums and talks to its neighbours; all end with the same
regression.  No patient can be told from what was said, and no clinic has to trust another.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from affinedp.consensus import PrivateRegression

ranges = {"bmi": (15, 45), "s5": (3, 6.2), "progression": (0, 350)}
folder = next(
    p for p in (Path.cwd(), *Path.cwd().parents) if (p / "examples" / "diabetes.csv").exists()
)
with open(folder / "examples" / "diabetes.csv") as file:
    rows = list(csv.DictReader(file))
data = {name: np.array([float(row[name]) for row in rows]) for name in ranges}
parts = [{k: v[np.arange(442) % 10 == i] for k, v in data.items()} for i in range(10)]


def missed(learned):
    """Return the root mean square error of a model on all patients."""
    return float(np.sqrt(np.mean((learned.predict(data) - data["progression"]) ** 2)))


# %%
# The middle of 60 runs, and where eight of ten lie.

epsilons = np.geomspace(0.2, 10, 7)
labels = {"agents": "ten clinics that trust nobody", "central": "one party whom all trust"}
figure, axes = plt.subplots(figsize=(6.6, 4.0), layout="constrained")
for curator, colour in (("agents", "#E69F00"), ("central", "#0072B2")):
    spread = []
    for epsilon in epsilons:
        learning = PrivateRegression(nx.petersen_graph(), ranges, epsilon, 1e-6, norm=1.8**0.5)
        found = [missed(learning.simulate(parts, seed, curator=curator)) for seed in range(60)]
        spread.append(np.quantile(found, [0.1, 0.5, 0.9]))
    low, middle, high = np.array(spread).T
    axes.plot(epsilons, middle, "o-", color=colour, label=labels[curator])
    axes.fill_between(epsilons, low, high, color=colour, alpha=0.2, linewidth=0)
columns = np.column_stack([np.ones(442), data["bmi"], data["s5"]])
plain = columns @ np.linalg.lstsq(columns, data["progression"], rcond=None)[0]
axes.axhline(
    np.sqrt(np.mean((plain - data["progression"]) ** 2)),
    color="0.3",
    linestyle="--",
    label="not private",
)
axes.axhline(data["progression"].std(), color="0.3", linestyle=":", label="the average alone")
axes.set(xscale="log", xlabel="ε (δ = 10⁻⁶)", ylabel="root mean square error", ylim=(54, 100))
axes.set_xticks([0.2, 0.5, 1, 2, 5, 10], ["0.2", "0.5", "1", "2", "5", "10"])
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()
