"""Releases against one batched call of OpenDP's sampler for the same number of values."""

from __future__ import annotations

import time

import numpy as np

import affinedp as adp

SIZES = ((10_000, 1), (10_000, 10), (100, 1_000))
REPEATS = 3


def _best(call) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def run() -> str:
    """Return the Markdown section."""
    import opendp.prelude as opendp

    opendp.enable_features("contrib")
    lines = [
        "## Release",
        "",
        "One `Mechanism.release` of rows of data (exact coordinates, integer noise, outputs)",
        "against one batched call of OpenDP's `make_gaussian` (k = -40) on the same number of",
        f"values; seconds, best of {REPEATS}. Wanted: at most 1.3.",
        "",
        "| rows | noises per row | release | OpenDP alone | ratio |",
        "|---:|---:|---:|---:|---:|",
    ]
    for rows, r in SIZES:
        mechanism = adp.iid_noise(
            adp.AffineManifold(np.zeros((0, r))), law="gaussian", epsilon=1.0, delta=1e-6
        )
        data = np.random.default_rng(0).normal(size=(rows, r)) * 100
        mechanism.release(data[:1])  # the plan is made once
        sampler = opendp.m.make_gaussian(
            opendp.vector_domain(opendp.atom_domain(T=float, nan=False), size=rows * r),
            opendp.l2_distance(T=float),
            scale=1.0,
            k=-40,
        )
        values = data.ravel().tolist()
        ours = _best(lambda m=mechanism, x=data: m.release(x))
        alone = _best(lambda s=sampler, v=values: s(v))
        lines.append(f"| {rows:,} | {r:,} | {ours:.2f} | {alone:.2f} | {ours / alone:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
