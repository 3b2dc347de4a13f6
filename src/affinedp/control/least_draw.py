"""The least noise on x(0), one draw for a whole trajectory, by law; and what none goes below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.designs.knorm_blocks import short_numbers
from affinedp.designs.knorm_bodies import better_bodies
from affinedp.designs.laplace_strategy import least_laplace, strategy_value
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import with_floor
from affinedp.domains.observability import output_gramian
from affinedp.domains.powers import HorizonTooLongError
from affinedp.errors import AffineDPError
from affinedp.laws.polytope import polytope_of
from affinedp.mechanism import Mechanism
from affinedp.privacy.design import LeastPossible

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
    """Noise of least cost for all directions."""

    # the noise in the revealed coordinates; the caller scales it to its promise, exactly
    root: FloatArray
    # relative distance of its cost to the least possible: a solution for some of the
    # directions costs at most as much as one for all of them
    gap: float

    def lower_bound(self, weight: FloatArray) -> float:
        """Return what no noise of this sensitivity goes below, rounded down."""
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
    """Return the noise of least ``tr(W Σ)`` with ``dᵀ Σ⁻¹ d ≤ limit²`` for all directions d."""
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
        raise HorizonTooLongError(
            "over this horizon the dynamics stretch some directions so much more than others that "
            "rounding hides what the least noise is"
        )
    try:
        best = least_trace(
            directions @ np.linalg.inv(spread), spread @ weight @ spread.T, tol=tol,
            progress=lambda stage, gap: progress(gap),
        )  # fmt: skip
    except AffineDPError as error:
        raise HorizonTooLongError(
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


def least_laplace_root(
    differences: FloatArray, combinations: FloatArray, weight: FloatArray, limit: float
) -> tuple[FloatArray, str]:
    """Return a square root of Laplace noise on the coordinates, and how it was found.

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


STARTS = 6
# Extra points of a body have so many digits.
DIGITS = 5


def least_body(
    differences: FloatArray, combinations: FloatArray, weight: FloatArray, starts: int = STARTS
) -> tuple[FloatArray, str]:
    """Return points of a body as columns, up to sign, and how it was found.

    The best of the hull of the moves and of what a local search finds around it.

    Examples
    --------
    >>> import numpy as np
    >>> least_body(np.array([[2.0], [1.0]]), np.eye(1), np.eye(1))
    (array([[2.]]), 'the hull of the moves')
    """
    outer = _outer(differences @ combinations.T)
    hull = polytope_of(outer.T)
    best, error = hull, float((hull.second_moment() * weight).sum())
    note = "the hull of the moves"
    generator = np.random.default_rng(0)  # a fixed choice: the same design every time
    for extra in better_bodies(hull.vertices, weight, [], starts, generator):
        rounded = [[float(f"{c:.{DIGITS}g}") for c in point] for point in extra.tolist()]
        body = polytope_of(np.vstack([hull.vertices, rounded]).T)
        own = float((body.second_moment() * weight).sum())
        if own < error * (1 - 1e-9):
            best, error = body, own
            note = "a local optimum: a body found by search around the hull of the moves"
    return best.vertices.T, note


def _outer(moves: FloatArray) -> FloatArray:
    """The moves on the outside, as far as floats can tell; the promise looks at all of them."""
    from scipy.spatial import ConvexHull, QhullError

    size = np.abs(moves).max(axis=0)
    if not size.all():
        raise AffineDPError("some state that the outputs reveal does not move")
    scaled = moves / size
    if moves.shape[1] == 1:
        kept = [int(np.abs(scaled).argmax())]
    else:
        both = np.vstack([scaled, -scaled])
        try:
            kept = np.unique(ConvexHull(both).vertices % len(moves)).tolist()
        except QhullError:
            kept = list(range(len(moves)))
    return short_numbers(moves[kept])


# How exact the bound is.
GAP = 1e-6


def with_lower_bound(mechanism: Mechanism, cost: Any, epsilon: float, delta: float) -> Mechanism:
    """Add what no mechanism with the promise can go below: outputs that err in any way at all.

    Their error has a second moment M ⪰ V n nᵀ for every move n of the outputs, by which the least
    squared error is V times that of Gaussian noise of sensitivity 1.  Nothing is asked of the
    mechanisms: they may wait for all outputs, and need not obey the dynamics.
    """
    if cost is not None:
        return mechanism
    adjacency: Any = mechanism.adjacency
    strategy: Any = mechanism.strategy
    try:
        gramian = output_gramian(mechanism.domain)
        needed = strategy.revealed.restricted(adjacency.moving())
        differences, places = adjacency.differences(), needed.places
        lengths = np.abs(differences[:, places]).max(axis=0)
        weight, floor = with_floor(gramian[np.ix_(places, places)], lengths)
        if floor:
            return mechanism
        best = least_noise(differences, needed.combinations, weight, 1.0, GAP, lambda gap: None)
        error = float(np.trace(gramian @ mechanism.noise.covariance(strategy.start)))
        dual = best.lower_bound(weight)
        least = LeastPossible(dual, error, float(epsilon), float(delta), "real")
    except AffineDPError:  # too ill-conditioned to say anything
        return mechanism
    return mechanism.with_design(least=least)
