"""How noise moves a linear loop: two recursions, exact up to rounding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import FloatArray

if TYPE_CHECKING:
    from affinedp.domains.dynamics import Dynamics


def responses(
    matrix: FloatArray, injection: FloatArray, loadings: Iterable[FloatArray], columns: int
) -> Iterator[FloatArray]:
    """Yield H_0 = 0, H_1, …: z(t) = H_t η, if z(t+1) = M z(t) + N γ(t) and γ(t) = Γ_t η."""
    response = np.zeros((len(matrix), columns))
    yield response
    for loading in loadings:
        response = matrix @ response + injection @ loading
        yield response


def variances(matrix: FloatArray, added: FloatArray, steps: int) -> FloatArray:
    """Return the variances of z(0) = 0, …, z(steps) under white noise: the Lyapunov recursion."""
    covariance = np.zeros_like(matrix)
    found = np.zeros((steps + 1, len(matrix)))
    for t in range(steps):
        covariance = matrix @ covariance @ matrix.T + added
        found[t + 1] = covariance.diagonal()
    return found


def unit_loadings(dynamics: Dynamics, steps: int) -> Iterator[FloatArray]:
    """Yield C(t) A(t−1)…A(0) for t = 0, …, steps − 1: loadings of noise with root I."""
    product = np.eye(dynamics.states)
    for t in range(steps):
        yield dynamics.output_matrix(t) @ product
        if t + 1 < steps:
            product = dynamics.state_matrix(t) @ product
