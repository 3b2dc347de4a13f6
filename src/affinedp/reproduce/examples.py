"""Examples 1 and 2 of the paper, verified."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from affinedp.circuit_adjacency import CircuitAdjacency
from affinedp.manifold import AffineManifold
from affinedp.verification import verify


@dataclass(frozen=True)
class Claim:
    """A number of the paper beside ours."""

    what: str
    paper: float
    ours: float


def example_1(
    factors: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0), epsilon: float = 1.0
) -> list[Claim]:
    """Return the promises of Example 1 (x1 − k x2 = b, μ = 1): i.i.d. and correlated noise.

    Parameters
    ----------
    factors : tuple of float
        The values of k.
    epsilon : float
        The ε that i.i.d. Laplace noise of scale 1/ε would keep without the equation.

    Examples
    --------
    >>> [round(claim.ours, 6) for claim in example_1((4.0,))]
    [5.0, 1.0]
    """
    claims = []
    for k in factors:
        manifold = AffineManifold([[1.0, -k]])
        iid = verify(manifold, 1 / epsilon, law="laplace")
        scale = max(1.0, 1 / k) / epsilon
        correlated = verify(manifold, np.array([[k], [1.0]]) * scale, law="laplace")
        stated = max(1 + k, 1 + 1 / k) * epsilon
        claims.append(Claim(f"k = {k:g}: ε of i.i.d. Laplace noise", stated, iid.epsilon()))
        claims.append(Claim(f"k = {k:g}: ε of γ₁ = k γ₂", epsilon, correlated.epsilon()))
    return claims


def example_2() -> list[tuple[str, str]]:
    """Return the neighbours of Example 2 (x1 = 2 x2, x3 free, μ = 1), as (case, difference).

    Examples
    --------
    >>> example_2()
    [('x3', 'x3 +1'), ('x1, x2', 'x1 +2, x2 +1')]
    """
    manifold = AffineManifold([[1, -2, 0]])
    rows = []
    for direction in CircuitAdjacency(manifold).directions().T:
        moving = [i for i in range(manifold.n) if direction[i] != 0.0]
        names = ", ".join(manifold.names[i] for i in moving)
        rows.append((names, ", ".join(f"{manifold.names[i]} {direction[i]:+g}" for i in moving)))
    return rows
