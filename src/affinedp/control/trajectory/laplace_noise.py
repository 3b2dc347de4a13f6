"""Laplace noise on x(0) of little cost: Algorithm 2 of the paper with its basis searched for."""

from __future__ import annotations

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.laplace_strategy import least_laplace, strategy_value


def least_laplace_root(
    differences: FloatArray, combinations: FloatArray, weight: FloatArray, limit: float
) -> tuple[FloatArray, str]:
    """Return a square root of Laplace noise on the coordinates, and how it was found.

    Parameters
    ----------
    differences : array, shape (K, n)
        Differences of x(0) between neighbours.
    combinations : array, shape (r, n)
        E: what the outputs reveal is ``E x(0)``.
    weight : array, shape (r, r)
        W: noise with root R costs ``tr(W R Rᵀ)``.
    limit : float
        ε.

    Examples
    --------
    >>> import numpy as np
    >>> least_laplace_root(np.array([[2.0], [1.0]]), np.eye(1), np.eye(1), 0.5)[0]
    array([[4.]])
    """
    directions = np.unique(differences @ combinations.T, axis=0)
    directions = directions[np.abs(directions).any(axis=1)]
    # stands for an orthonormal basis of the outputs
    triangle: FloatArray = np.asarray(np.linalg.cholesky(weight).T, dtype=np.float64)
    found = least_laplace(directions, weight, orthonormal=triangle, seed=0)
    strategy, how = found.strategy, f"a local optimum: {found.start}"
    if strategy.shape[0] > strategy.shape[1]:
        # more draws than coordinates would be projected; one draw for each is kept
        plain: dict[str, FloatArray] = {
            "an orthonormal basis": triangle,
            "the states as they are": np.eye(len(weight)),
        }
        start = min(plain, key=lambda name: strategy_value(plain[name], directions, weight))
        strategy, how = plain[start], f"{start} (more draws than coordinates would cost less)"
    largest = float(np.abs(directions @ strategy.T).sum(axis=1).max())
    return np.asarray(np.linalg.inv(strategy) * (largest / limit)), how
