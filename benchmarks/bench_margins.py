"""k-way margins of Adult's 14 attributes, 6·10¹⁷ cells: beside ResidualPlanner's own number."""

from __future__ import annotations

import time

from affinedp.designs.margins import design_margins

ADULT = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
CASES = (
    ("person", "sum"),
    ("replace", "sum"),
    ("swaps", "sum"),
    ("person", "largest"),
    ("replace", "largest"),
)
# What ResidualPlanner (arXiv:2305.08175) itself prints: github.com/dkifer/ResidualPlanner at
# ef9c170, selection_only, dataset "Adult", workload "3D".  It was run once, and is not run here.
PLANNER = {("person", "sum"): "10.6650"}


def run() -> str:
    design_margins([2, 3, 2], "<=2", epsilon=1.0, delta=1e-6, adjacency="swaps")  # compiled
    lines = [
        "## Margins",
        "",
        "All margins of up to three of Adult's 14 attributes, noise for squared sensitivity 1: "
        "root mean square error over all cells that carry noise (goal *sum*), or the largest "
        "standard deviation of a cell (goal *largest*).  The gap is to what no Gaussian "
        "mechanism goes below.",
        "",
        "| neighbours | goal | error | ResidualPlanner | gap | design (CPU s) "
        "| equal noise, projected |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for neighbours, goal in CASES:
        start = time.process_time()
        m = design_margins(ADULT, "<=3", epsilon=1.0, delta=1e-6, adjacency=neighbours, goal=goal)
        seconds = time.process_time() - start
        squares = m.expected_squared_errors
        square = squares[squares > 0].mean() if goal == "sum" else squares.max()
        error = square**0.5 * m.guarantee.sensitivity
        equal = next(one for one in m.alternatives if one.reason.startswith("equal noise"))
        lines.append(
            f"| {neighbours} | {goal} | {error:.4f} | {PLANNER.get((neighbours, goal), '')} | "
            f"{m.gap:.1e} | {seconds:.2f} | "
            f"{equal.error / m.design.error:.3f}× |"
        )
    return "\n".join(lines)
