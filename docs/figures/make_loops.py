"""Draw loops.png: what an LQG loop pays for the same promise with different noise."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
from bench_control_peers import loop_costs  # noqa: E402

COLOURS = ("#D55E00", "#E69F00", "#0072B2")
NAMES = ("white output noise", "input perturbation", "least noise")


def main() -> None:
    """Measure and draw."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axes, (name, costs) in zip(figure.subplots(1, 3), loop_costs().items()):
        for k, (colour, label) in enumerate(zip(COLOURS, NAMES)):
            places = np.arange(2) + (k - 1) * 0.27
            axes.bar(places, costs[k], width=0.25, color=colour, label=label)
            for place, cost in zip(places, costs[k]):
                axes.text(
                    place,
                    cost * 1.06,
                    f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}",
                    ha="center",
                    fontsize=8,
                )
        axes.set_yscale("log")
        most = max(max(pair) for pair in costs)
        axes.set_ylim(1, most * 2)
        ticks = [1, 2, 4] if most < 10 else [1, 10, 100, 1000, 10000]
        ticks = [tick for tick in ticks if tick < 2 * most]
        axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xticks([0, 1], ["controller\nunaware", "controller\naware"])
        axes.set_title(name)
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].set_ylabel("cost, times that without privacy")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), ncols=3, frameon=False,
                  loc="outside lower center")  # fmt: skip
    figure.savefig(Path(__file__).parent / "loops.png", dpi=130)


if __name__ == "__main__":
    main()
