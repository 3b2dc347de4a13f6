"""A better body than the hull of the moves: extra points X, least E|z|² of hull(± moves, ± X).

With corners a_1..a_r of the boundary simplices C and s = Σ a_i, E|z|² = Σ p_C q(C) with
p_C ∝ |det C| and q(C) = Σ |a_i|² + |s|².  The problem is not convex, and floats are used freely:
what is found is built again in exact arithmetic, and kept only if it is better there too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.effort import Budget

# Extra points are searched for in so many dimensions; beyond, hulls take too long.
MOST_SEARCHED = 5
# Steps of a search: a hull is computed at each of them.
STEPS = 300
POLISH = 1_500
# What one evaluation costs before its first simplex, in multiply-adds.
CALL_WORK = 3e5


class Search:
    """The error of hull(± base, ± X) as a function of X, with its gradient."""

    def __init__(self, base: FloatArray, budget: Budget | None = None) -> None:
        self.budget = budget or Budget.of("thorough")
        self.base = np.vstack([base, -base])
        self.dimension = base.shape[1]
        if self.dimension > 1:
            self.base = self.base[_hull(self.base)[0]]

    def value(self, flat: FloatArray) -> tuple[float, FloatArray]:
        """Return the error and its gradient with respect to the extra points."""
        extra = flat.reshape(-1, self.dimension)
        points = np.vstack([self.base, extra, -extra])
        try:
            simplices = _hull(points)[1]
        except (ValueError, RuntimeError):
            return 1e300, np.zeros_like(flat)
        self.budget.spend(CALL_WORK + 100.0 * len(simplices) * self.dimension**2)
        corners = points[simplices]
        determinants = np.linalg.det(corners)
        # flat simplices of a facet that qhull triangulated carry no weight
        kept = np.abs(determinants) > 1e-12 * np.abs(determinants).max()
        corners, simplices, sizes = corners[kept], simplices[kept], np.abs(determinants[kept])
        sums = corners.sum(axis=1)
        costs = (corners**2).sum(axis=(1, 2)) + (sums**2).sum(axis=1)
        shares = sizes / sizes.sum()
        error = float(shares @ costs)
        inverse = np.linalg.inv(corners).transpose(0, 2, 1)
        slope = (costs - error)[:, None, None] * inverse + 2 * corners + 2 * sums[:, None, :]
        gradient = np.zeros_like(points)
        np.add.at(
            gradient,
            simplices.ravel(),
            (shares[:, None, None] * slope).reshape(-1, self.dimension),
        )
        first, count = len(self.base), len(extra)
        both = gradient[first : first + count] - gradient[first + count :]
        return error, np.asarray(both.ravel())

    def from_start(self, start: FloatArray) -> tuple[float, FloatArray]:
        """Return the least error found from a start, and the extra points; never worse than it."""
        from scipy.optimize import minimize

        best, chosen = self.value(start.ravel())[0], start
        found = minimize(
            self.value, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}
        )
        if self.dimension == 2:  # corners appear and vanish: the slope jumps there
            found = minimize(
                lambda x: self.value(x)[0], found.x, method="Nelder-Mead",
                options={"maxiter": POLISH, "xatol": 1e-7, "fatol": 1e-10},
            )  # fmt: skip
        if found.fun < best:
            best, chosen = float(found.fun), found.x.reshape(-1, self.dimension)
        return best, chosen


def _hull(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    from scipy.spatial import ConvexHull, QhullError

    try:
        found = ConvexHull(points, qhull_options="Qt Pp" if points.shape[1] < 5 else "Qt Qx Pp")
    except QhullError as error:
        raise ValueError(str(error)) from None
    return found.vertices, found.simplices


def better_bodies(
    moves: FloatArray,
    cost: FloatArray,
    given: list[FloatArray],
    starts: int,
    generator: np.random.Generator,
    budget: Budget | None = None,
) -> Iterator[FloatArray]:
    """Yield sets of extra points whose hull with the moves has a small error, the best first."""
    size = moves.shape[1]
    if size < 2 or size > MOST_SEARCHED or not (starts or given):
        return
    root = np.linalg.cholesky(cost).T
    back = np.linalg.inv(root).T
    try:
        search = Search(moves @ root.T, budget)
    except ValueError:  # so flat that floats cannot tell: the hull will have to do
        return
    spread = np.linalg.cholesky(search.base.T @ search.base / len(search.base)).T
    points = [extra @ root.T for extra in given]
    for i in range(starts):
        count = (1, 2, 3, size, size + 1, 2 * size)[i % 6]
        points.append(1.3 * generator.normal(size=(count, size)) @ spread)
    found: list[tuple[float, FloatArray]] = []
    with search.budget.keeping("bodies"):
        hull = search.value(np.zeros(0))[0]
        for start in points:
            found.append(search.from_start(start))
    for error, extra in sorted(found, key=lambda pair: pair[0]):
        if error < hull * (1 - 1e-6):
            yield np.asarray(extra @ back)
