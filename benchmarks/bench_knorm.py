"""K-norm noise: errors beside Laplace and Gaussian noise, time to design, and draws per second."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np

import affinedp as adp
from affinedp.laws.sampler.one_sum import OneSumNoise

EPSILON = 1.0


def _margins(rows: int, columns: int) -> adp.AffineManifold:
    equations = np.zeros((rows + columns, rows * columns))
    for i in range(rows):
        for j in range(columns):
            equations[[i, rows + j], columns * i + j] = 1
    return adp.AffineManifold(equations)


def _integrator() -> adp.AffineManifold:
    motion = [f"p{t + 1} = p{t} + 0.1*v{t}" for t in range(4)]
    motion += [f"v{t + 1} = v{t}" for t in range(4)]
    names = [f"{kind}{t}" for t in range(5) for kind in "pv"]
    return adp.AffineManifold.from_equations(motion, names)


def _cases() -> dict[str, tuple[adp.AffineManifold, list[float] | None]]:
    sums = {f"one sum n={n}": (adp.AffineManifold([[1.0] * n]), None) for n in (3, 4, 5, 6, 8)}
    return {
        **sums,
        "one sum n=3, weight 100": (adp.AffineManifold([[1, 1, -1]]), [1.0, 1.0, 100.0]),
        "2×3, margins public": (_margins(2, 3), None),
        "3×3, margins public": (_margins(3, 3), None),
        "double integrator T=5": (_integrator(), None),
    }


def _cost(mechanism: adp.Mechanism, weights: list[float] | None) -> float:
    errors = mechanism.expected_squared_errors
    return float(errors.sum() if weights is None else errors @ np.array(weights))


def _timed(call):
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def _errors() -> list[str]:
    lines = [
        f"Squared error at ε = {EPSILON:g} (weighted with weights); Gaussian at δ = 1e-6.",
        "",
        "| case | hull | best K | on integers | Laplace | Gaussian | design s | draws per second |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (manifold, weights) in _cases().items():
        options = {"epsilon": EPSILON, "weights": weights}
        hull = adp.design_knorm(manifold, effort="quick", **options)
        best, seconds = _timed(lambda o=options, m=manifold: adp.design_knorm(m, **o))
        whole = ""
        if "integrator" not in name:
            found = adp.design_knorm(manifold, integers=True, **options)
            whole = f"{_cost(found, weights):.4g}"
        laplace = adp.design_laplace(manifold, **options)
        gaussian = adp.design_gaussian(manifold, delta=1e-6, **options)
        rows = np.zeros((5_000, manifold.n))
        best.release(rows[:1])
        _, drawn = _timed(lambda b=best, r=rows: b.release(r))
        costs = [_cost(one, weights) for one in (hull, best)]
        others = [_cost(one, weights) for one in (laplace, gaussian)]
        lines.append(
            f"| {name} | {costs[0]:.5g} | {costs[1]:.5g} | {whole} | {others[0]:.5g} | "
            f"{others[1]:.5g} | {seconds:.1f} | {len(rows) / drawn:,.0f} |"
        )
    return lines


def _large_sums() -> list[str]:
    lines = [
        "",
        "One draw under one sum of n integers, exactly.",
        "",
        "| n | seconds |",
        "|---:|---:|",
    ]
    for n in (100, 10_000, 1_000_000):
        noise = OneSumNoise(n, Fraction(1))
        times = [_timed(lambda s=noise: s.draw(1))[1] for _ in range(3)]
        lines.append(f"| {n:,} | {sorted(times)[1]:.3g} |")
    return lines


def run() -> str:
    """Return the Markdown section."""
    return "\n".join(["## K-norm noise", "", *_errors(), *_large_sums()])


if __name__ == "__main__":
    print(run())
