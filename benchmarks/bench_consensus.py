"""Private consensus from a thousand to a million agents: building, steps, memory, order."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

SIZES = (1_000, 10_000, 100_000, 1_000_000)
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "consensus_cost.png"
# Okabe and Ito's palette
BLUE, GREEN, VERMILLION, ORANGE = "#0072B2", "#009E73", "#D55E00", "#E69F00"


def random_links(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Four random rings through all agents: degree 8, and no order that helps."""
    generator = np.random.default_rng(n)
    rings = [generator.permutation(n) for _ in range(4)]
    return np.concatenate(rings), np.concatenate([np.roll(ring, 1) for ring in rings])


def grid_links(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A square grid with diagonals, degree 8, whose agents are numbered at random."""
    side = round(n**0.5)
    number = np.random.default_rng(n).permutation(side * side).reshape(side, side)
    pairs = [
        (number[:, 1:], number[:, :-1]),
        (number[1:], number[:-1]),
        (number[1:, 1:], number[:-1, :-1]),
        (number[1:, :-1], number[:-1, 1:]),
    ]
    return tuple(np.concatenate([pair[end].ravel() for pair in pairs]) for end in (0, 1))


def _seconds(*calls: Callable[[], object], repeats: int = 5) -> list[float]:
    """The least CPU time of each call; they take turns, so that busy moments hit all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, found in zip(calls, times):
            gc.collect()
            start = time.process_time()
            call()
            found.append(time.process_time() - start)
    return [min(found) for found in times]


def measure(kind: str, n: int) -> dict[str, float]:
    """Measure one network; called in a process of its own, for its peak of memory."""
    import affinedp.consensus.schedule as schedule
    from affinedp.consensus import PrivateConsensus

    sources, targets = random_links(n) if kind == "random" else grid_links(n)
    agents = int(targets.max()) + 1
    PrivateConsensus.from_edges(2, [0], [1], law="laplace", epsilon=1.0)  # imports what it needs
    start = time.process_time()
    consensus = PrivateConsensus.from_edges(agents, sources, targets, law="laplace", epsilon=1.0)
    build = time.process_time() - start
    x0 = np.random.default_rng(0).normal(size=agents)
    P = consensus.network.transition
    count = max(20, 2_000_000 // agents)
    schedule.ORDERED_AGENTS = 10**9  # first the very same matrix

    def bare() -> None:
        y = x0
        for _ in range(count):
            y = P @ y

    def run(runs: int, keep: str, steps: int = count) -> Callable[[], object]:
        return lambda: consensus.run(x0, steps, runs, seed=0, keep=keep)

    product, one, start_one, errors, start_errors = (
        total / count
        for total in _seconds(
            bare, run(1, "last"), run(1, "last", 0), run(1, "errors"), run(1, "errors", 0)
        )
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {}
    for ordered in (False, True):
        schedule.ORDERED_AGENTS = 0 if ordered else 10**9
        schedule.ORDERED_PRODUCTS = 0
        order = _seconds(lambda: consensus.network.ordered, repeats=1)[0] if ordered else 0.0
        calls = (run(1, "last"), run(1, "last", 0), run(16, "last"), run(16, "last", 0))
        single, start_single, many, start_many = _seconds(*calls, repeats=3)
        found[ordered] = ((single - start_single) / count, (many - start_many) / count / 16)
    return {
        "agents": agents,
        "build": build,
        "product": product,
        "step": one - start_one,
        "errors": errors - start_errors,
        "many": found[False][1],
        "ordered_one": found[True][0],
        "ordered": found[True][1],
        "order": order,
        "memory": peak,
    }


def measured(kind: str) -> list[dict[str, float]]:
    rows = []
    for n in SIZES:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            rows.append(pool.submit(measure, kind, n).result())
    return rows


def run() -> str:
    """Return the Markdown section, and draw its figure."""
    lines = [
        "## Consensus",
        "",
        "`PrivateConsensus.from_edges` on networks of degree 8, and one step of `run` (kept: the",
        "last messages; or the squared errors of all three read-outs at every step) against a bare",
        "SciPy product with the same matrix. Wanted at a million agents: a step at most 1.3 times",
        "the bare product, building in seconds, memory below 3 GiB. *Random* is four random rings;",
        "*grid* is a square grid with diagonals whose agents are numbered at random. CPU time, in",
        "milliseconds per step and run; memory is the peak of the process with one run.",
        "",
        "| network | agents | build s | bare | step | ratio | with errors | ratio | GiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    found = {kind: measured(kind) for kind in ("random", "grid")}
    for kind, rows in found.items():
        for row in rows:
            product, step, errors = (1e3 * row[key] for key in ("product", "step", "errors"))
            lines.append(
                f"| {kind} | {row['agents']:,} | {row['build']:.2f} | {product:.3g} | {step:.3g} | "
                f"{step / product:.2f} | {errors:.3g} | {errors / product:.2f} | "
                f"{row['memory']:.2f} |"
            )
    lines += [
        "",
        "Sixteen runs side by side, and linked agents put next to each other first (reverse",
        "Cuthill–McKee), milliseconds per step and run. `run` does both where they pay.",
        "",
        "| network | agents | 1 run | 1 run, ordered | 16 runs | 16 runs, ordered | ordering s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for kind, rows in found.items():
        for row in rows:
            cells = [1e3 * row[key] for key in ("step", "ordered_one", "many", "ordered")]
            shown = " | ".join(f"{cell:.3g}" for cell in cells)
            lines.append(f"| {kind} | {row['agents']:,} | {shown} | {row['order']:.2f} |")
    draw(found)
    lines += ["", f"![Cost against the number of agents](../docs/figures/{FIGURE.name})"]
    return "\n".join(lines)


def draw(found: dict[str, list[dict[str, float]]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    series = (
        ("random", "product", "bare product, random", "black", "--", "x"),
        ("random", "step", "one run, random", BLUE, "-", "o"),
        ("random", "many", "16 runs, random", ORANGE, "-", "s"),
        ("grid", "ordered", "16 runs, grid, ordered", GREEN, "-", "^"),
    )
    for kind, key, label, colour, line, marker in series:
        values = [1e3 * row[key] for row in found[kind]]
        agents = [row["agents"] for row in found[kind]]
        left.plot(agents, values, line, marker=marker, color=colour, label=label)
    left.set(title="one step of one run", ylabel="milliseconds")
    for axes, key, title, unit in (
        (middle, "build", "building from a list of links", "seconds"),
        (right, "memory", "peak of memory, one run", "GiB"),
    ):
        for kind, colour, marker in (("random", BLUE, "o"), ("grid", GREEN, "^")):
            agents = [row["agents"] for row in found[kind]]
            values = [row[key] for row in found[kind]]
            axes.plot(agents, values, marker=marker, color=colour, label=kind)
        axes.set(title=title, ylabel=unit)
    right.axhline(3, color=VERMILLION, linestyle=":", label="wanted at a million: below 3")
    for axes in (left, middle, right):
        axes.set(xscale="log", yscale="log", xlabel="agents (degree 8)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    print(run())
