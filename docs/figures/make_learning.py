"""The picture of the tutorial on private learning: error against ε, for two kinds of trust."""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from affinedp.consensus import PrivateRegression

HERE = Path(__file__).parent
RANGES = {"bmi": (15, 45), "s5": (3, 6.2), "progression": (0, 350)}
RUNS = 300


def main() -> None:
    """Draw it."""
    with open(HERE.parents[1] / "examples" / "diabetes.csv") as file:
        rows = list(csv.DictReader(file))
    data = {name: np.array([float(row[name]) for row in rows]) for name in RANGES}
    parts = [{k: v[np.arange(442) % 10 == i] for k, v in data.items()} for i in range(10)]
    columns = np.column_stack([np.ones(442), data["bmi"], data["s5"]])
    plain = columns @ np.linalg.lstsq(columns, data["progression"], rcond=None)[0]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    epsilons = np.geomspace(0.2, 10, 9)
    labels = {"central": "one party whom all trust", "agents": "ten clinics that trust nobody"}
    for curator, colour in (("agents", "C1"), ("central", "C0")):
        errors = []
        for epsilon in epsilons:
            graph = nx.petersen_graph()
            learning = PrivateRegression(graph, RANGES, epsilon, 1e-6, norm=1.8**0.5)
            found = [learning.simulate(parts, seed, curator=curator) for seed in range(RUNS)]
            missed = [np.sqrt(np.mean((f.predict(data) - data["progression"]) ** 2)) for f in found]
            errors.append(np.quantile(missed, [0.1, 0.5, 0.9]))
        low, middle, high = np.array(errors).T
        axes.plot(epsilons, middle, "o-", color=colour, label=labels[curator])
        axes.fill_between(epsilons, low, high, color=colour, alpha=0.2, lw=0)
    missed = float(np.sqrt(np.mean((plain - data["progression"]) ** 2)))
    axes.axhline(missed, color="0.3", ls="--", label="not private")
    axes.axhline(data["progression"].std(), color="0.3", ls=":", label="the average alone")
    axes.set(xscale="log", xlabel="ε (δ = 1e-6, one patient joins or leaves)")
    axes.set(ylabel="root mean square error", ylim=(54, 100))
    axes.set_xticks([0.2, 0.5, 1, 2, 5, 10], ["0.2", "0.5", "1", "2", "5", "10"])
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "private_learning.png", dpi=120)


if __name__ == "__main__":
    main()
