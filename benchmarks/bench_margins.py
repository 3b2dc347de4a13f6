"""Margins of Adult's 14 attributes and of prefixes and ranges, beside ResidualPlanner's numbers."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.margins import design_margins
from affinedp.laws.laplace import geometric_variance

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
# The largest variance that the noise which it draws has for its plan, and the least: the square of
# the factorisation norm, by an independent dual solver.  For ranges it ends with an error.
LARGEST = (
    ("P(10)", [10], "prefix", 4.950700, 2.471268),
    ("P(100)", [100], "prefix", 49.535216, 5.043965),
    ("P(10)×I(5)×I(2)", [10, 5, 2], "prefix", 10.229964, 5.1648),
    ("P(100)×I(5)×I(2)", [100, 5, 2], "prefix", None, None),
    ("R(10)", [10], "ranges", None, 2.96605),
    ("R(100)", [100], "ranges", None, None),
)
# Values of one attribute, and what is asked about them at δ = 0.
WITHOUT_DELTA = ((20, "prefix"), (100, "prefix"), (1000, "prefix"), (64, "ranges"), (100, "ranges"))
# The least and the most children that are tried, all of them.
BRANCHINGS = (2, 40)


def up_to(count: int, k: int) -> list[tuple[int, ...]]:
    """All margins of 1 to k attributes."""
    return [A for size in range(1, k + 1) for A in itertools.combinations(range(count), size)]


def largest() -> list[str]:
    """Prefixes and ranges: the largest variance of an answer."""
    lines = [
        "",
        "The largest variance of an answer in the same margins (of up to 2 attributes), at squared "
        "sensitivity 1.  ResidualPlanner+: that of the noise which it draws for its plan.",
        "",
        "| workload | error | ResidualPlanner+ | the least | ResidualPlanner+ / ours | gap "
        "| design (CPU s) |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, sizes, form, planner, least in LARGEST:
        start = time.process_time()
        m = design_margins(
            sizes, up_to(len(sizes), min(2, len(sizes))), workloads={0: form}, epsilon=1.0,
            delta=1e-6, law="gaussian", objective="largest",
        )  # fmt: skip
        seconds = time.process_time() - start
        error = max(m.expected_squared_errors) * m.guarantee.sensitivity**2
        beside = ("–", "–") if planner is None else (f"{planner:.6g}", f"{planner / error:.4f}")
        known = "" if least is None else f"{least:.6g}"
        lines.append(
            f"| {name} | {error:.6g} | {beside[0]} | {known} | {beside[1]} | "
            f"{math.ceil(m.gap * 1e7) / 1e7:.1e} | {seconds:.2f} |"
        )
    return lines


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
        margins = up_to(len(sizes), k)
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


def asked(n: int, form: str) -> FloatArray:
    """One row per prefix or range."""
    if form == "prefix":
        return np.tri(n)
    first, last = np.triu_indices(n)
    values = np.arange(n)
    return np.asarray((first[:, None] <= values) & (values <= last[:, None]), dtype=float)


def tree_of_intervals(W: FloatArray, branches: int) -> float:
    """Whole noise at ε = 1 on a tree of intervals whose levels share ε, then least squares."""
    n = W.shape[1]
    widths = [branches**k for k in range(n) if branches**k < n]
    S = np.vstack([np.arange(n) // w == np.arange(-(-n // w))[:, None] for w in widths]).astype(
        float
    )
    precision = S.T @ S / geometric_variance(1 / len(widths))
    return float(np.trace(np.linalg.solve(precision, W.T @ W)))


def without_delta() -> list[str]:
    """Prefixes and ranges with whole noise."""
    lines = [
        "",
        "Prefixes and ranges of one attribute at ε = 1 and δ = 0: root mean square error.  *Tree*: "
        f"intervals with the best of {BRANCHINGS[0]} to {BRANCHINGS[1]} children, whose levels "
        "share ε, then least squares (OpenDP's consistent b-ary tree), computed here.",
        "",
        "| values | asked | error | values alone | tree | squared error: alone, tree "
        "| design (CPU s) |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for n, form in WITHOUT_DELTA:
        start = time.process_time()
        m = design_margins([n], 1, workloads={0: form}, epsilon=1.0)
        seconds = time.process_time() - start
        W = asked(n, form)
        alone = geometric_variance(1.0) * float((W**2).sum())
        low, high = BRANCHINGS
        tree = min(tree_of_intervals(W, b) for b in range(low, min(high, n - 1) + 1))
        error = m.expected_squared_error
        ours, values, practice = (math.sqrt(one / len(W)) for one in (error, alone, tree))
        lines.append(
            f"| {n} | {form} | {ours:.3f} | {values:.3f} | {practice:.3f} | {alone / error:.2f}×, "
            f"{tree / error:.3f}× | {seconds:.2f} |"
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
    return "\n".join([*lines, *sums(), *largest(), *without_delta()])
