"""Draw what non-negativity does to cells: ``python docs/figures/make_nonnegative.py``.

Writes nonnegative.png beside this file and prints the numbers of docs/explanation/people.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from affinedp.designs.tree import design_tree
from affinedp.tables import whole

RELEASES = 200
BINS = ((0, 0), (1, 2), (3, 9), (10, 29), (30, 10**9))


def main() -> None:
    """Release one simulated hierarchy often, and compare errors by true count."""
    generator = np.random.default_rng(3)
    parent = [-1, *[0] * 20, *(1 + i // 20 for i in range(400))]
    cells = np.where(generator.random(400) < 0.5, 0, generator.lognormal(1.5, 1.2, 400)).astype(int)
    counts = np.concatenate([np.zeros(21, int), cells])
    mechanism = design_tree(parent, epsilon=0.5)
    errors = []
    for _ in range(RELEASES):
        out = mechanism.release(counts)
        errors.append((out[21:] - cells, whole(mechanism, out, nonnegative=True)[21:] - cells))
    free, kept = (np.array(each) for each in zip(*errors))
    figure = Figure(figsize=(7.5, 3.6))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for place, (low, high) in enumerate(BINS):
        own = (cells >= low) & (cells <= high)
        words = f"{low}" if low == high else f"{low}-{high}" if high < 10**9 else f"{low}+"
        numbers = [each[:, own].mean() for each in (free, kept)]
        sizes = [np.sqrt((each[:, own] ** 2).mean()) for each in (free, kept)]
        print(f"| {words} | {own.sum()} | {numbers[0]:+.2f} | {numbers[1]:+.2f} "
              f"| {sizes[0]:.1f} | {sizes[1]:.1f} |")  # fmt: skip
        for side, value, color in zip((-0.18, 0.18), numbers, ("0.6", "#0072B2")):
            axes.bar(place + side, value, 0.34, color=color)
    axes.axhline(0, color="k", lw=0.8)
    axes.set_xticks(range(len(BINS)), ["0", "1–2", "3–9", "10–29", "30 and more"])
    axes.set_xlabel("true count of the cell")
    axes.set_ylabel("mean of published − true")
    axes.bar(0, 0, color="0.6", label="unconstrained")
    axes.bar(0, 0, color="#0072B2", label="no negative numbers")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_name("nonnegative.png"), dpi=110)


if __name__ == "__main__":
    main()
