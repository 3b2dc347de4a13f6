"""Equations that follow from others must agree with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense, is_sparse, some
from affinedp.equations.elimination import EPS, Canonical
from affinedp.errors import InconsistentEquationsError


def solve_basis(
    matrix: Matrix, canonical: Canonical, right: FloatArray, transposed: bool = False
) -> FloatArray:
    """Solve with the square basis ``D[:, pivots]`` of the independent equations (or its transpose).

    Parameters
    ----------
    matrix : array or sparse matrix
        The independent equations.
    canonical : Canonical
        Their pivots.
    right : array
        The right side.
    transposed : bool
        Solve with the transpose.
    """
    basis: Any = matrix[:, canonical.pivots]
    if is_sparse(basis):
        import scipy.sparse as sparse
        from scipy.sparse.linalg import splu

        return np.asarray(splu(sparse.csc_array(basis)).solve(right, "T" if transposed else "N"))
    return np.linalg.solve(basis.T if transposed else basis, right)


def check_consistent(
    matrix: Matrix,
    offsets: FloatArray,
    canonical: Canonical,
    contradicting: tuple[int, ...] | None,
    tolerance: float,
) -> None:
    """Refuse an equation whose left side follows from others but whose offset does not.

    Parameters
    ----------
    matrix, offsets : arrays
        All equations that were given.
    canonical : Canonical
        Which of them are independent.
    contradicting : tuple of int or None
        Which ones contradict, where the arithmetic was exact.
    tolerance : float
        What an offset may be off by, relative to its terms, where it was not.
    """
    kept = canonical.rows
    dropped = np.setdiff1d(np.arange(matrix.shape[0]), kept)
    if len(dropped) == 0:
        return
    independent: Any = matrix[kept]
    left = dense(matrix[dropped][:, canonical.pivots])
    factors = solve_basis(independent, canonical, left.T, transposed=True) if len(kept) else left.T
    # an equation that takes no part comes out with a factor that is rounding of the others
    size = dense(abs(independent).max(axis=1)).reshape(-1, 1)
    share = np.abs(factors) * size
    factors = np.where(share > 1e-13 * share.max(axis=0, initial=0.0), factors, 0.0)
    residual = offsets[dropped] - factors.T @ offsets[kept]
    scale = np.abs(offsets[dropped]) + np.abs(factors.T) @ np.abs(offsets[kept])
    # factors that should be zero are off by a rounding of the largest
    dust = 1e3 * EPS * np.abs(factors).max(axis=0, initial=0.0)
    dust = dust * np.abs(offsets[kept]).max(initial=0.0)
    wrong = np.abs(residual) > tolerance * scale + dust
    if contradicting is not None:
        wrong = np.isin(dropped, contradicting)
    for d in np.flatnonzero(wrong):
        share = np.abs(factors[:, d])
        involved = [*kept[share > 1e-9 * share.max(initial=0.0)], dropped[d]]
        numbers = sorted(int(j) for j in involved)
        listed = some([str(j + 1) for j in numbers])
        does = "contradicts itself" if len(numbers) == 1 else "contradict each other"
        raise InconsistentEquationsError(
            f"equation{'s' if len(numbers) > 1 else ''} {listed} (counting from 1) {does} "
            f"(residual {residual[d]:.6g}). Correct or drop one of them",
            numbers,
            float(residual[d]),
        )
