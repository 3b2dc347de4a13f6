"""Numbers that are at least 0 and still obey the equations, nearest to what was published.

Post-processing: only published and public numbers are looked at.  It moves small cells up and
their large neighbours down, so estimates are no longer unbiased; the unconstrained ones are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, sparse

from affinedp.arrays import FloatArray
from affinedp.tables.layout import Layout

TIME_LIMIT = 60.0


def at_least_zero(
    layout: Layout,
    points: FloatArray,
    public: FloatArray,
    deviations: FloatArray,
    step: float | None,
) -> tuple[Any, bool]:
    """Return the nearest points without negative numbers, and whether all were found.

    The distance is the sum of absolute changes, each in units of its noise.  Where there is no
    such point (public numbers that leave none), the row stays as it was.

    Parameters
    ----------
    layout : Layout
        The equations.
    points : array, shape (data sets, private entries)
        What was published: on the equations, and multiples of ``step`` if there is one.
    public : array, shape (data sets, public entries)
        Numbers that stay as they are.
    deviations : array
        Size of the noise of every entry.
    step : float or None
        What the numbers are multiples of.
    """
    result = points.copy()
    complete = True
    matrix = layout.matrix[:, layout.private].tocsr()
    seen = np.diff(matrix.indptr) > 0
    known = layout.matrix[:, ~layout.is_private]
    unit = 1.0 if step is None else step
    weight = 1.0 / np.where(deviations > 0, deviations, 1.0)
    for row in np.flatnonzero((points < 0).any(axis=1)).tolist():
        right = -(known @ public[row] + layout.offsets)[seen] / unit
        found = _nearest(matrix[seen], right, points[row] / unit, weight, step is not None)
        if found is None:
            complete = False
        elif step is None:
            result[row] = found
        else:
            result[row] = np.rint(found) * unit
    return result, complete


def _nearest(
    matrix: Any, right: FloatArray, target: FloatArray, weight: FloatArray, whole: bool
) -> FloatArray | None:
    """x ≥ 0 on the equations with the least weighted sum of |x − target|."""
    n = len(target)
    identity = sparse.eye_array(n)
    # x − up + down = target
    rows = sparse.block_array(
        [[matrix, sparse.csr_array((matrix.shape[0], 2 * n))],
         [identity, sparse.hstack([-identity, identity])]], format="csr",
    )  # fmt: skip
    sides = np.concatenate([right, target])
    # decimals in units of the largest: a vertex then obeys the equations up to rounding, and the
    # solver gets no slack, which it would use up
    size = 1.0 if whole else max(1.0, float(np.abs(sides).max()))
    found = optimize.milp(
        np.concatenate([np.zeros(n), weight, weight]),
        constraints=optimize.LinearConstraint(rows, sides / size, sides / size),
        integrality=np.concatenate([np.full(n, int(whole)), np.zeros(2 * n)]),
        bounds=optimize.Bounds(0, np.inf),
        options={"time_limit": TIME_LIMIT},
    )
    if found.x is None:
        return None
    x = np.asarray(found.x[:n]) * size
    if whole:
        x = np.rint(x)
        if (x < 0).any() or np.abs(matrix @ x - right).max(initial=0.0) > 1e-6:
            return None
    return np.asarray(np.maximum(x, 0.0))
