"""Independent geometric noise on the axes of a lattice basis: standard practice for whole data.

With the cells of a table as axes this is discrete Laplace noise on the cells, added up.  There are
no facets to list, so any dimension will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, rank_of
from affinedp.laws.laplace import geometric_variance

# Moves times dimensions up to which every axis has a rate of its own.
MOST_NUMBERS = 20_000
# Lattices of more dimensions are given one basis only.
MOST_DIMENSIONS = 2_000


@dataclass(frozen=True, eq=False)
class Axes:
    """A cross-polytope in a basis of the lattice."""

    basis: FloatArray  # the axes as columns, of whole numbers and determinant ±1; shape (r, r)
    widths: FloatArray  # where the body ends on every axis; every move is inside; shape (r,)
    error: float  # what the noise costs at rate ε


def best_axes(moves: FloatArray, cost: FloatArray, limit: float) -> Axes:
    """Return the axes of least cost, among the basis of the coordinates and those of moves.

    Examples
    --------
    Two cells and their sum; each person is in one cell.

    >>> found = best_axes(np.eye(2), np.array([[2.0, 1.0], [1.0, 2.0]]), 1.0)
    >>> found.widths.tolist(), round(found.error, 4)
    ([1.0, 1.0], 7.3654)
    """
    found = [
        _axes(basis, np.abs(moves @ back.T), cost, limit)
        for basis, back in lattice_bases(moves, cost)
    ]
    return min(found, key=lambda one: one.error)


def lattice_bases(moves: FloatArray, cost: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield bases of the lattice as columns, with their inverses."""
    size = moves.shape[1]
    unit = np.eye(size)
    yield unit, unit
    if size > MOST_DIMENSIONS:
        return
    steps = moves / np.gcd.reduce(moves.astype(np.int64), axis=1)[:, None]
    price = np.einsum("ki,ij,kj->k", steps, cost, steps)
    for order in (np.argsort(price, kind="stable"), np.arange(len(steps))):
        chosen = _independent(steps[order])
        if chosen is None:
            continue
        basis = chosen.T
        back = np.rint(np.linalg.inv(basis))
        # products of small whole numbers are exact in doubles: this proves the determinant ±1
        if np.abs(basis).max() * np.abs(back).max() * size < 2.0**52 and np.array_equal(
            basis @ back, unit
        ):
            yield basis, back


def _independent(rows: FloatArray) -> FloatArray | None:
    """The first rows that are independent, as many as there are dimensions."""
    size = rows.shape[1]
    if len(rows) == size:
        return rows if rank_of(rows) == size else None
    if len(rows) * float(size) > MOST_NUMBERS:
        return None
    kept: list[FloatArray] = []
    left = rows.astype(float)
    directions = np.zeros((0, size))
    for row in left:
        rest = row - directions.T @ (directions @ row)
        length = float(np.linalg.norm(rest))
        if length > 1e-9 * float(np.linalg.norm(row)):
            kept.append(row)
            directions = np.vstack([directions, rest / length])
        if len(kept) == size:
            return np.array(kept)
    return None


def _axes(basis: FloatArray, moved: FloatArray, cost: FloatArray, limit: float) -> Axes:
    """The best rates on given axes: Σ_i rate_i |n_i| ≤ ε for every move n."""
    price = np.maximum(np.einsum("ji,jk,ki->i", basis, cost, basis), 0.0)
    longest = moved.max(axis=0)
    if ((moved != 0).sum(axis=1) == 1).all():  # every move is along one axis
        rates = limit / longest
    else:
        rates = np.full(len(longest), limit / float(moved.sum(axis=1).max()))
        if moved.size <= MOST_NUMBERS:
            rates = _better(rates, moved, price, limit)
    widths = np.array([float(f"{limit / rate:.10g}") for rate in rates.tolist()])
    # digits that were left out may put a move outside: all widths grow by as much
    most = float((moved / widths).sum(axis=1).max())
    if most > 1 + 1e-15:
        widths = widths * most
    costs = [c * geometric_variance(limit / w) for c, w in zip(price.tolist(), widths.tolist())]
    return Axes(basis, widths, float(sum(costs)))


def _better(rates: FloatArray, moved: FloatArray, price: FloatArray, limit: float) -> FloatArray:
    """Rates of least cost, a convex problem, or the given ones where the search fails."""
    from scipy.optimize import minimize

    rows = np.unique(moved[moved.any(axis=1)], axis=0)
    scale = float(price.max()) or 1.0

    def cost(h: FloatArray) -> float:
        return float((price / np.sinh(h / 2) ** 2).sum()) / scale

    def slope(h: FloatArray) -> FloatArray:
        return np.asarray(-price / (np.sinh(h / 2) ** 2 * np.tanh(h / 2))) / scale

    found = minimize(
        cost, rates, jac=slope, method="SLSQP", bounds=[(1e-6 * limit, limit)] * len(rates),
        constraints={
            "type": "ineq", "fun": lambda h: limit - rows @ h, "jac": lambda _: -rows,
        },
        options={"maxiter": 200, "ftol": 1e-12},
    )  # fmt: skip
    h = np.clip(np.nan_to_num(found.x, nan=1e-6 * limit), 1e-6 * limit, limit)
    h = h * (limit / float((moved @ h).max()))
    return h if cost(h) < cost(rates) else rates
