"""Trees of totals of the size of the US, and places times margins: time, memory, optimality."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time

import numpy as np

from affinedp.designs.tree import design_tree
from affinedp.tables import whole

SIZES = {"328k": [1, 51, 3143, 85_000, 240_000], "1M": [1, 51, 3143, 85_000, 1_000_000]}
CASES = (
    ("328k", "person", "number"),
    ("328k", "person", "level"),
    ("328k", "replace", "level"),
    ("328k", "circuits", "level"),
    ("1M", "person", "level"),
)
PROMISE = {"epsilon": 1.0, "delta": 1e-6}


def random_tree(sizes: list[int], seed: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of nodes by level; every node has children, and some have many (lognormal)."""
    rng = np.random.default_rng(seed)
    parent, level, start = [np.array([-1])], [np.array([0])], 0
    for depth, (above, here) in enumerate(itertools.pairwise(sizes), 1):
        share = rng.lognormal(0, 0.9, above)
        kids = rng.multinomial(here - above, share / share.sum()) + 1
        parent.append(np.repeat(np.arange(start, start + above), kids))
        level.append(np.full(here, depth))
        start += above
    return np.concatenate(parent), np.concatenate(level)


def _case(size: str, neighbours: str, weighting: str) -> dict:
    """One design and one release, in a process of its own so that its memory can be seen."""
    import resource

    small = design_tree([-1, 0, 0, 1, 1, 2, 2], adjacency=neighbours, **PROMISE)
    # compiled, or read from the cache, before anything is measured
    whole(small, small.release([0] * 7), nonnegative=True)
    parent, level = random_tree(SIZES[size])
    weights = np.ones(len(parent)) if weighting == "number" else 1 / np.bincount(level)[level]
    start = time.process_time()
    m = design_tree(parent, adjacency=neighbours, weights=weights, law="gaussian", **PROMISE)
    designed = time.process_time() - start
    counts = np.random.default_rng(0).poisson(3, len(parent))
    start = time.process_time()
    whole(m, m.release(counts), nonnegative=True)
    return {
        "nodes": len(parent),
        "design": designed,
        "release": time.process_time() - start,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "gap": m.gap,
        "others": {o.words: o.error / m.design.error for o in m.alternatives},
    }


def _places() -> dict:
    """85,000 tracts × age × sex × race."""
    import resource

    from affinedp.designs.places import design_tree_margins

    design_tree_margins([-1, 0, 0], [3, 2], **PROMISE).release(np.zeros((2, 3, 2), np.int32))
    parent, level = random_tree([1, 51, 3143, 85_000])
    start = time.process_time()
    weights = 1 / np.bincount(level)[level]
    m = design_tree_margins(parent, [18, 2, 7], node_weights=weights, **PROMISE)
    designed = time.process_time() - start
    counts = np.random.default_rng(0).poisson(0.5, (85_000, 18, 2, 7)).astype(np.int32)
    start = time.process_time()
    out = m.release(counts)
    released = time.process_time() - start
    error = out[0, 1, 2][level == 3] - counts
    return {
        "design": designed,
        "release": released,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "gap": m.gap,
        "error": math.sqrt((error**2).mean()),
        "theory": math.sqrt(m.strategy.node_variances(m.noise, (0, 1, 2))[level == 3].mean()),
    }


def _apart(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def run() -> str:
    lines = [
        "## Trees",
        "",
        "Trees of totals of the size of the US (nation, states, counties, tracts, block groups; "
        "lognormal numbers of children), ε = 1, δ = 10⁻⁶, Gaussian noise.  The gap is to what no "
        "Gaussian mechanism goes below.  The release is exact, in whole numbers that add up and "
        "are at least 0.  CPU seconds on one core; compiled before.",
        "",
        "| nodes | neighbours | weights | design + bound (s) | release (s) | peak (GB) | gap "
        "| level split | equal noise, projected | cells, added up |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for size, neighbours, weighting in CASES:
        one = _apart(size, neighbours, weighting)
        others = one["others"]
        lines.append(
            f"| {one['nodes']:,} | {neighbours} | every {weighting} 1 | {one['design']:.1f} | "
            f"{one['release']:.2f} | {one['peak']:.2f} | {one['gap']:.1e} | "
            f"{others['one weight per level (gaussian)']:.3f}× | "
            f"{others['independent, projected (gaussian)']:.2f}× | "
            f"{others['cells and add up (gaussian)']:.4g}× |"
        )
    one = _apart("places")
    lines += [
        "",
        "85,000 tracts × 18 ages × 2 sexes × 7 races in a tree of places (21 million cells, 88,195 "
        f"tables): design {one['design']:.1f} s with gap {one['gap']:.1e}; exact release "
        f"{one['release']:.0f} s; peak {one['peak']:.2f} GB with all estimates put together; root "
        f"mean square error of the cells of tracts {one['error']:.3f}, by the formula "
        f"{one['theory']:.3f}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(json.dumps(_places() if arguments == ["places"] else _case(*arguments)))
