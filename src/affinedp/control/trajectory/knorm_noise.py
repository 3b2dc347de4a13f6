"""K-norm noise on x(0): pure privacy for a whole trajectory, of little cost."""

from __future__ import annotations

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.body_search import better_bodies
from affinedp.designs.knorm_blocks import short_numbers
from affinedp.errors import AffineDPError
from affinedp.laws.polytope import polytope_of

STARTS = 6
# Extra points of a body have so many digits.
DIGITS = 5


def least_body(
    differences: FloatArray, combinations: FloatArray, weight: FloatArray
) -> tuple[FloatArray, str]:
    """Return points of a body as columns, up to sign, and how it was found.

    The best of the hull of the moves and of what a local search finds around it.

    Parameters
    ----------
    differences : array, shape (K, n)
        Differences of x(0) between neighbours.
    combinations : array, shape (r, n)
        E: what the outputs reveal is ``E x(0)``.
    weight : array, shape (r, r)
        W: noise of covariance Σ costs ``tr(W Σ)``.

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
    for extra in better_bodies(hull.vertices, weight, [], STARTS, generator):
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
