"""Margins of Adult's 14 attributes and of prefixes and ranges, beside ResidualPlanner's numbers."""

from __future__ import annotations

import itertools
import math
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
# What ResidualPlanner+ (github.com/cmla-psu/ResidualPlannerPlus at 82a9a89) plans for sums of
# variances at squared sensitivity 1, run once with its own settings; and the least, where it is
# known, by an independent dual solver.  P: prefixes, R: ranges, I: values.
NUMERICAL = (0, 2, 9, 10, 11)
SUMS = (
    ("P(100)", [100], {0: "prefix"}, 1, 559.644701, 499.744295),
    ("R(100)", [100], {0: "ranges"}, 1, 32965.738380, 31373.102664),
    ("P(100)×I(5)×I(2)", [100, 5, 2], {0: "prefix"}, 2, 8373.917284, 7523.218580),
    ("R(100)×I(5)×I(2)", [100, 5, 2], {0: "ranges"}, 2, 477819.787512, 454829.938881),
    ("P(20)×P(20)", [20, 20], {0: "prefix", 1: "prefix"}, 2, 5376.318987, 4220.274561),
    ("P(6)³", [6] * 3, dict.fromkeys(range(3), "prefix"), 3, 3814.981341, 2900.883565),
    ("Adult, P on 5", ADULT, dict.fromkeys(NUMERICAL, "prefix"), 2, 46070935.77693, None),
    ("Adult, P on 5", ADULT, dict.fromkeys(NUMERICAL, "prefix"), 3, 46687679654.17, None),
)


def sums() -> list[str]:
    """Prefixes and ranges: total variance at squared sensitivity 1."""
    lines = [
        "",
        "Prefixes (P), ranges (R) and values (I) in all margins of 1 to k attributes: sum of "
        "variances at squared sensitivity 1.  ResidualPlanner+'s plans and the least were "
        "computed once, elsewhere; the gap is our own certificate over all Gaussian mechanisms.",
        "",
        "| workload | k | error | ResidualPlanner+ | the least | ResidualPlanner+ / ours | gap "
        "| design (CPU s) |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, sizes, workloads, k, planner, least in SUMS:
        margins = [
            A for size in range(1, k + 1) for A in itertools.combinations(range(len(sizes)), size)
        ]
        start = time.process_time()
        m = design_margins(
            sizes, margins, workloads=workloads, epsilon=1.0, delta=1e-6, law="gaussian"
        )
        seconds = time.process_time() - start
        error = m.strategy.total_variance(m.noise) * m.guarantee.sensitivity**2
        known = "" if least is None else f"{least:.8g}"
        lines.append(
            f"| {name} | {k} | {error:.8g} | {planner:.8g} | {known} | {planner / error:.4f} | "
            f"{math.ceil(m.gap * 1e7) / 1e7:.1e} | {seconds:.2f} |"
        )
    return lines


def run() -> str:
    design_margins([2, 3, 2], "<=2", epsilon=1.0, delta=1e-6, adjacency="swaps")  # compiled
    lines = [
        "## Margins",
        "",
        "All margins of up to three of Adult's 14 attributes, noise for squared sensitivity 1: "
        "root mean square error over all cells that carry noise (objective *sum*), or the largest "
        "standard deviation of a cell (objective *largest*).  The gap is to what no Gaussian "
        "mechanism goes below.",
        "",
        "| neighbours | objective | error | ResidualPlanner | gap | design (CPU s) "
        "| equal noise, projected |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for neighbours, objective in CASES:
        start = time.process_time()
        m = design_margins(
            ADULT, "<=3", epsilon=1.0, delta=1e-6, adjacency=neighbours, objective=objective
        )
        seconds = time.process_time() - start
        squares = m.expected_squared_errors
        square = squares[squares > 0].mean() if objective == "sum" else squares.max()
        error = square**0.5 * m.guarantee.sensitivity
        equal = next(one for one in m.alternatives if one.reason.startswith("equal noise"))
        lines.append(
            f"| {neighbours} | {objective} | {error:.4f} | "
            f"{PLANNER.get((neighbours, objective), '')} | {m.gap:.1e} | {seconds:.2f} | "
            f"{equal.error / m.design.error:.3f}× |"
        )
    return "\n".join([*lines, *sums()])
