"""Private consensus in the corners: slow networks, many steps, intervals, news in time."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Callable

import numpy as np

from affinedp.consensus import PrivateConsensus
from affinedp.consensus.eigenvalues import spectrum_of
from affinedp.consensus.graph import network_from_edges


def _ring(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(n), (np.arange(n) + 1) % n


def _grid(side: int) -> tuple[np.ndarray, np.ndarray]:
    number = np.arange(side * side).reshape(side, side)
    pairs = [(number[:, 1:], number[:, :-1]), (number[1:], number[:-1])]
    return tuple(np.concatenate([pair[end].ravel() for pair in pairs]) for end in (0, 1))


def _seconds(call: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def _bounds() -> list[str]:
    """α of slow networks, whose λ₂ is known in closed form."""
    rows = []
    # with Metropolis weights a ring has w = 1/3
    known = {
        f"ring, {n:,}": (_ring(n), 4 / 3 * np.sin(np.pi / n) ** 2, None) for n in (3_000, 30_000)
    }
    for side in (60, 150):
        # one weight for all links of a grid: λ₂ = 2 w (1 − cos(π/side))
        known[f"grid, {side * side:,}"] = (_grid(side), 0.4 * (1 - np.cos(np.pi / side)), 0.2)
    for name, ((sources, targets), second, weight) in known.items():
        agents = int(max(sources.max(), targets.max())) + 1
        network = network_from_edges(agents, sources, targets, weight)
        seconds, found = _seconds(lambda network=network: spectrum_of(network))
        ratio = (1 - found.alpha_bound) / second
        shares = f"{found.lambda_2 / second:.6f} | {ratio:.4f}"
        rows.append(f"| {name} | {second:.3g} | {shares} | {seconds:.2f} |")
    return rows


def _bridges() -> list[str]:
    """Two complete groups of 50 and one light link: (1 − λ₂)^2t · 25,000."""
    rows = []
    groups = [[(a + s, b + s) for a, b in itertools.combinations(range(50), 2)] for s in (0, 50)]
    sources, targets = np.array([*groups[0], *groups[1], (0, 50)]).T
    for weight in (1e-10, 1e-14, 1e-16, 1e-20):
        weights = np.full(len(sources), 1 / 60)
        weights[-1] = weight
        consensus = PrivateConsensus.from_edges(
            100, sources, targets, weights=weights, law="laplace", sigma=1e-9
        )
        x0 = np.repeat([0.0, 1000.0**0.5], 50)
        steps = [100, 10**6, 10**12, 10**15]
        found = consensus.mean_square_error(x0, steps)
        # to first order in the weight λ₂ = 2 w/50
        wanted = 25_000 * np.exp(2 * np.array(steps) * np.log1p(-weight / 25))
        cells = " | ".join(f"{a:.6g} ({b:.6g})" for a, b in zip(found, wanted))
        rows.append(f"| {weight:g} | {cells} |")
    return rows


def _coverage() -> list[str]:
    """All noise on one agent of a path of 8, after 60 steps: one mode is left."""
    sigma = np.full(8, 1e-3)
    sigma[0] = 1.0
    consensus = PrivateConsensus.from_edges(8, range(7), range(1, 8), law="gaussian", sigma=sigma)
    rows = []
    for probes in (4, 64):
        cells = []
        for readout in ("state", "message", "corrected"):
            exact = consensus.mean_square_error(np.zeros(8), [60], readout)[0]
            inside = 0
            for seed in range(200):
                curve = consensus.mean_square_error(
                    np.zeros(8), [60], readout, method="estimate", probes=probes, seed=seed
                )
                inside += bool(curve.low[0] <= exact * (1 + 1e-9) <= curve.high[0] * (1 + 2e-9))
            cells.append(f"{inside / 2:.1f} %")
        rows.append(f"| {probes} | {' | '.join(cells)} |")
    return rows


def _many_steps() -> list[str]:
    n = 2_000
    consensus = PrivateConsensus.from_edges(n, *_ring(n), law="laplace", epsilon=1.0)
    modes, _ = _seconds(lambda: consensus.mean_square_error(np.arange(float(n)), 1))
    rows = []
    for name, steps in (("all of 10⁶", 10**6), ("1, 10, …, 10¹⁵", [10**k for k in range(16)])):
        seconds, _ = _seconds(lambda steps=steps: consensus.mean_square_error(np.arange(n), steps))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(f"| {name} | {modes:.1f} | {seconds:.2f} | {most:.2f} |")
    return rows


def _news() -> list[str]:
    rows = []
    for n in (1_000, 3_000):
        consensus = PrivateConsensus.from_edges(n, *_ring(n), law="laplace", epsilon=1.0)
        seconds, _ = _seconds(lambda c=consensus, n=n: c.schedule().connects(n // 2))
        rows.append(f"| {n:,} | {n // 2:,} | {seconds:.2f} |")
    return rows


def run() -> str:
    return "\n".join(
        [
            "## Consensus, in the corners",
            "",
            "`spectrum` of long rings and grids, which are slow: λ₂ in closed form,",
            "what Lanczos finds of it, the proved 1 − α as a share of it, and CPU seconds.",
            "",
            "| network | λ₂ | found | proved | s |",
            "|---|---:|---:|---:|---:|",
            *_bounds(),
            "",
            "`mean_square_error` of two groups of 50 that one light link joins, after so many",
            "steps; in brackets 25,000 (1 − w/25)^2t.",
            "",
            "| w | 100 | 10⁶ | 10¹² | 10¹⁵ |",
            "|---:|---:|---:|---:|---:|",
            *_bridges(),
            "",
            "A ring of 2,000 agents: seconds for all modes, seconds for the steps, and the peak of",
            "the whole process in GiB.",
            "",
            "| steps | modes s | s | GiB |",
            "|---|---:|---:|---:|",
            *_many_steps(),
            "",
            "How often intervals of estimates, stated at 95 %, hold the exact error of a path",
            "where one slow mode is left (200 runs each).",
            "",
            "| probes | state | message | corrected |",
            "|---:|---:|---:|---:|",
            *_coverage(),
            "",
            "`Schedule.connects` on a ring: does news of all reach all, in the order of time?",
            "",
            "| agents | steps | s |",
            "|---:|---:|---:|",
            *_news(),
        ]
    )


if __name__ == "__main__":
    print(run())
