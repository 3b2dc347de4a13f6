"""The least noise for very many directions: solve for a few, look at all, add the worst."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.control.trajectory.promise import UncertainPromiseError
from affinedp.designs.least_trace import least_trace
from affinedp.errors import AffineDPError

# Directions that are solved for at once, and how many are added at a time.
FEW = 20_000
MORE = 2_000
MOST_ROUNDS = 40
CHUNK = 100_000
# Directions worse conditioned than this are spread before the least noise is sought.
SPREAD = 1e3
# What rounding may take from the certified gap.
MOST_ROUNDING = 0.05
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LeastNoise:
    """Noise of least cost for all directions.

    Attributes
    ----------
    root : array, shape (r, r)
        The noise in the revealed coordinates; the caller scales it to its promise.
    gap : float
        Relative distance of the scaled cost to the least possible: a solution for some of the
        directions costs at most as much as one for all of them.
    """

    root: FloatArray
    gap: float

    def lower_bound(self, weight: FloatArray) -> float:
        """Return what no noise of this sensitivity goes below, rounded down.

        Parameters
        ----------
        weight : array, shape (r, r)
            W.
        """
        cost = float((weight * (self.root @ self.root.T)).sum())
        return cost / (1 + self.gap) * (1 - 1e-9)


def least_noise(
    differences: FloatArray,
    combinations: FloatArray,
    weight: FloatArray,
    limit: float,
    tol: float,
    progress: Callable[[float], None],
) -> LeastNoise:
    """Return the noise of least ``tr(W Σ)`` with ``dᵀ Σ⁻¹ d ≤ limit²`` for all directions d.

    Parameters
    ----------
    differences : array, shape (K, n)
        Differences of x(0), one per row; the directions are ``combinations @ difference``.
    combinations : array, shape (r, n)
        What the outputs reveal.
    weight : array, shape (r, r)
        W, positive definite.
    limit : float
        The sensitivity to keep.
    tol : float
        Relative gap to certify.
    progress : callable
        Called with the gap so far.
    """
    chosen = _first(len(differences))
    for _ in range(MOST_ROUNDS):
        found = _solved(differences[chosen] @ combinations.T / limit, weight, tol, progress)
        worst, more = _beyond(differences, combinations, found.root, limit, tol)
        gap = (1 + found.gap) * max(worst, 1.0) ** 2 - 1
        if gap <= 2 * tol or len(chosen) == len(differences):
            return LeastNoise(found.root, max(gap, found.gap))
        progress(gap)
        chosen = np.union1d(chosen, more)
    return LeastNoise(found.root, gap)


def _first(count: int) -> IntArray:
    """All directions if they are few; else some from everywhere, the first and the last."""
    if count <= FEW:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, MORE).astype(np.intp))


def _beyond(
    differences: FloatArray, combinations: FloatArray, root: FloatArray, limit: float, tol: float
) -> tuple[float, IntArray]:
    """The largest length in units of the limit, and the directions that are too long."""
    matrix = np.linalg.solve(root, combinations) / limit
    worst, places, lengths = 0.0, [], []
    for start in range(0, len(differences), CHUNK):
        part = np.linalg.norm(differences[start : start + CHUNK] @ matrix.T, axis=1)
        worst = max(worst, float(part.max()))
        long = np.flatnonzero(part > 1 + tol / 4)
        places.append(start + long)
        lengths.append(part[long])
    place, length = np.concatenate(places), np.concatenate(lengths)
    return worst, place[np.argsort(-length)[:MORE]]


def _solved(
    directions: FloatArray, weight: FloatArray, tol: float, progress: Callable[[float], None]
) -> LeastNoise:
    """The least noise for a few directions, in coordinates in which they are well spread."""
    spread = _spread(directions)
    # the change of coordinates is rounded
    rounding = 16 * len(spread) * EPS * float(np.linalg.cond(spread))
    if rounding > MOST_ROUNDING:
        raise UncertainPromiseError(
            "over this horizon the dynamics stretch some directions so much more than others that "
            "rounding hides what the least noise is"
        )
    try:
        best = least_trace(
            directions @ np.linalg.inv(spread), spread @ weight @ spread.T, tol=tol,
            progress=lambda stage, gap: progress(gap),
        )  # fmt: skip
    except AffineDPError as error:
        raise UncertainPromiseError(
            "over this horizon the dynamics stretch some directions so much more than others that "
            f"no least noise can be certified ({error})"
        ) from None
    return LeastNoise(spread.T @ best.root, best.gap + rounding)


def _spread(directions: FloatArray) -> FloatArray:
    """U such that the rows of ``directions @ U⁻¹`` are well spread; the identity if they are."""
    size = np.abs(directions).max(axis=0)
    identity = np.eye(directions.shape[1])
    if not np.all(size > 0):
        return identity
    scale = np.ldexp(1.0, np.frexp(size)[1])
    triangle: FloatArray = np.asarray(np.linalg.qr(directions / scale, mode="r"))
    if triangle.shape != identity.shape or not SPREAD < np.linalg.cond(triangle) < 1 / EPS:
        return identity
    return np.asarray(triangle * scale)
