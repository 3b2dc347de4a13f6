"""Examples 1 and 2 of the paper, verified."""

from __future__ import annotations

import numpy as np

from affinedp.domains.manifold import AffineManifold
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.paper.report import Claim, verdict_of
from affinedp.privacy.verification import verify


def claims() -> list[Claim]:
    """Return every number of Examples 1 and 2 beside ours."""
    return [*example_1(), *example_2()]


def example_1(
    factors: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0), epsilon: float = 1.0
) -> list[Claim]:
    """Return the promises of Example 1 (x1 − k x2 = b, μ = 1): i.i.d. and correlated noise.

    Examples
    --------
    >>> [round(claim.ours, 6) for claim in example_1((4.0,))]
    [5.0, 1.0]
    """
    found = []
    for k in factors:
        manifold = AffineManifold([[1.0, -k]])
        iid = verify(manifold, 1 / epsilon, law="laplace").epsilon()
        scale = max(1.0, 1 / k) / epsilon
        correlated = verify(manifold, np.array([[k], [1.0]]) * scale, law="laplace").epsilon()
        stated = max(1 + k, 1 + 1 / k) * epsilon
        found.append(_compared(f"Example 1, k = {k:g}: ε of i.i.d. Laplace noise", stated, iid))
        found.append(_compared(f"Example 1, k = {k:g}: ε of γ₁ = k γ₂", epsilon, correlated))
    return found


def _compared(what: str, paper: float, ours: float) -> Claim:
    return Claim(what, paper, ours, verdict_of(abs(ours - paper) <= 1e-9 * paper), "Theorem 2")


def example_2() -> list[Claim]:
    """Return the neighbours of Example 2 (x1 = 2 x2, x3 free, μ = 1).

    Examples
    --------
    >>> [(claim.what, claim.ours) for claim in example_2()]
    [('Example 2: x3 moves', 'x3 +1'), ('Example 2: x1, x2 move together', 'x1 +2, x2 +1')]
    """
    manifold = AffineManifold([[1, -2, 0]])
    stated = {"x3": "x3 +1", "x1, x2": "x1 +2, x2 +1"}
    found = []
    for direction in CircuitAdjacency(manifold).directions().T:
        moving = [i for i in range(manifold.n) if direction[i] != 0.0]
        names = ", ".join(manifold.names[i] for i in moving)
        ours = ", ".join(f"{manifold.names[i]} {direction[i]:+g}" for i in moving)
        what = f"Example 2: {names} {'move together' if len(moving) > 1 else 'moves'}"
        verdict = verdict_of(ours == stated[names])
        found.append(Claim(what, stated[names], ours, verdict, "circuits of Definition 4"))
    return found
