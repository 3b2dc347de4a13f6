"""The affine equations that the outputs ``F x`` obey, and with them every release."""

from __future__ import annotations

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import format_equation
from affinedp.exact.canonical import eliminate_dense

MOST_OUTPUTS = 2_000


def output_equations(
    manifold: AffineManifold, query: Matrix, basis: Matrix, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return independent equations of all ``F x + basis @ z``, in words."""
    outputs = query.shape[0]
    if outputs > MOST_OUTPUTS or basis.shape[1] == outputs:
        return ()  # too many to write down, or noise in every direction
    if _is_identity(query) and basis.shape[1] == manifold.dim and _along(manifold, basis):
        return manifold.equations()
    # y − F x_p lies in what x and the noise span together: eliminate the transposed system
    spanned = np.hstack([dense(basis), dense(query @ manifold.kernel)])
    canonical = eliminate_dense(np.ascontiguousarray(spanned.T), 1e-10)
    point = np.asarray(query @ manifold.point).ravel()
    found = []
    for column, free in enumerate(canonical.free):
        row: dict[int, float] = {int(free): 1.0}
        coefficients: FloatArray = np.asarray(canonical.reduced)[:, column]
        for pivot, value in zip(canonical.pivots, coefficients):
            if value != 0.0:
                row[int(pivot)] = -_tidy(float(value))
        sign = 1.0 if row[min(row)] > 0 else -1.0
        row = {i: sign * value for i, value in sorted(row.items())}
        offset = -sum(value * point[i] for i, value in row.items())
        found.append(format_equation(row, _tidy(float(offset)), names))
    return tuple(found)


def _is_identity(matrix: Matrix) -> bool:
    return matrix.shape[0] == matrix.shape[1] and bool(
        np.all(dense(matrix) == np.eye(len(dense(matrix))))
    )


def _along(manifold: AffineManifold, basis: Matrix) -> bool:
    """Whether the noise stays on the manifold."""
    off = dense(abs(manifold.D @ basis)).max(initial=0.0)
    return bool(off <= 1e-10 * dense(abs(manifold.D) @ abs(basis)).max(initial=0.0))


def _tidy(value: float) -> float:
    """Round away what floating point left behind: 0.9999999999999998 is 1."""
    return float(f"{value:.12g}") if abs(value) > 1e-12 else 0.0
