"""The least noise for very many directions: solve for a few, look at all, add the worst."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.designs.least_trace import least_trace
from affinedp.errors import AffineDPError
from affinedp.strategies.trajectory import UncertainPromiseError

# Directions that are solved for at once, and how many are added at a time.
FEW = 20_000
MORE = 2_000
MOST_ROUNDS = 40
CHUNK = 100_000
# Directions worse conditioned than this are spread before the least noise is sought.
SPREAD = 1e3
# A variance that is so many times larger than needed is made smaller.
MUCH_TOO_LARGE = 2.0
# What rounding may take from the certified gap.
MOST_ROUNDING = 0.05
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LeastNoise:
    """Noise of least cost for all directions.

    Attributes
    ----------
    root : array, shape (r, r)
        The noise in the revealed coordinates; the caller scales it to its promise, exactly.
    gap : float
        Relative distance of its cost to the least possible: a solution for some of the directions
        costs at most as much as one for all of them.
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
            kept = LeastNoise(found.root * max(worst, 1.0), max(gap, found.gap))
            return _trimmed(kept, differences, combinations, limit, tol)
        progress(gap)
        chosen = np.union1d(chosen, more)
    return LeastNoise(found.root * max(worst, 1.0), gap)


def _first(count: int) -> IntArray:
    """All directions if they are few; else some from everywhere, the first and the last."""
    if count <= FEW:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, MORE).astype(np.intp))


def _trimmed(
    found: LeastNoise, differences: FloatArray, combinations: FloatArray, limit: float, tol: float
) -> LeastNoise:
    """The same noise without what no direction needs; a hair more of the rest pays for that.

    Where the noise at some times is huge, that at others weighs nothing in the cost: it may come
    out any number of times too large.  Here it shrinks along the direction u in which differences
    have most room, until one of them is as long as the limit; and so on, while that is worth it.
    """
    root = found.root
    for _ in range(2 * len(root)):
        matrix = np.asarray(np.linalg.solve(root, combinations) / limit, dtype=np.float64)
        longest = max(1.0, _beyond(differences, combinations, root, limit, tol)[0]) ** 2
        square = longest * (1 + tol / 2)
        # along u, differences grow by 1/f if (u·d)² (1/f² − 1) is at most the room of each
        triangle = np.zeros((0, len(root)))
        for part in _weighed(differences, matrix, square):
            triangle = np.asarray(np.linalg.qr(np.vstack([triangle, part]), mode="r"))
        least = np.linalg.svd(triangle)[2][-1]
        moved = max(
            float(np.abs(part @ least).max()) for part in _weighed(differences, matrix, square)
        )
        shrinks = 1 + 1 / max(moved**2, 1e-300)
        if not MUCH_TOO_LARGE < shrinks < 1e300:
            break
        root = root - (1 - 1 / np.sqrt(shrinks)) * np.outer(root @ least, least)
    if root is found.root:
        return found
    worst = max(1.0, _beyond(differences, combinations, root, limit, tol)[0])
    return LeastNoise(root * worst, (1 + found.gap) * worst**2 - 1)


def _weighed(differences: FloatArray, matrix: FloatArray, square: float) -> Iterator[FloatArray]:
    """Differences in units of the noise, over the root of what each lacks to a squared length."""
    for start in range(0, len(differences), CHUNK):
        whitened = differences[start : start + CHUNK] @ matrix.T
        room = square - np.einsum("ki,ki->k", whitened, whitened)
        yield whitened / np.sqrt(np.maximum(room, EPS))[:, None]


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
