"""Theorems 1 and 2 on any noise: what does it really promise under the equations?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import (
    FloatArray,
    IntArray,
    Matrix,
    Norm,
    dense,
    is_sparse,
    real_array,
    real_matrix,
    within_range,
)
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.norms import column_norms, first_largest
from affinedp.promise.curves import EPS, Curve, GaussianCurve, LaplaceCurve, NoPromise
from affinedp.promise.exact_noise import exact_whitening
from affinedp.promise.guarantee import Guarantee
from affinedp.relations.forgotten import warn_of_forgotten

if TYPE_CHECKING:
    import scipy.sparse as sparse

Law = Literal["gaussian", "laplace"]

# What is left of F x outside the noise's range counts as a leak above this share.
LEAK = 1e-12
# Up to this many directions the Laplace curve is computed for each of them.
LISTED_FOR_CURVE = 5_000
MOST_SIGN_VECTORS = 1e6
MOST_DENSE = 1e8
# Λ⁺F from a singular value decomposition is off by this many eps times the condition of Λ.
ROUNDINGS = 32
# Beyond this error a leak could hide in rounding.
MOST_ERROR = 1e-8


@dataclass(frozen=True)
class Whitened:
    """The query in units of the noise, and what the noise does not cover.

    Attributes
    ----------
    query : matrix, shape (r, n)
        Λ⁺F.
    error : float
        Its relative rounding error.
    full_column_rank : bool
        Whether Λ has independent columns.
    ranges : list of (outputs, basis)
        For each block of outputs that share noise and are not all covered, an orthonormal basis
        of what the noise covers.
    """

    query: Matrix
    error: float
    full_column_rank: bool
    ranges: list[tuple[IntArray, FloatArray]]


@within_range
def verify(
    manifold: AffineManifold,
    noise_matrix: float | ArrayLike | sparse.sparray | None = None,
    *,
    covariance: ArrayLike | None = None,
    law: Law = "gaussian",
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | None = None,
    check_against: Any = None,
) -> Guarantee:
    """Return what ``F x + Λ η`` promises to someone who knows the equations.

    Theorem 1 (Gaussian) and Theorem 2 (Laplace) of the paper, which are necessary and
    sufficient: unless the result says that it is a bound, nothing stronger is true.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    noise_matrix : float or array_like, shape (m, r), optional
        Λ; η is i.i.d. standard Gaussian, or Laplace L(0, 1), which has variance 2.  A
        number is i.i.d. noise of that scale on every output.
    covariance : array_like, shape (m, m), optional
        Covariance of Gaussian noise, in place of ``noise_matrix``.
    law : {"gaussian", "laplace"}
        The law of η.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, optional
        F, or the names of the entries to publish; the identity by default.
    adjacency : Adjacency, optional
        Other neighbours than those of Definition 4 with ``mu``.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.relations.forgotten.ForgottenEquationWarning` says so.  Nothing else
        depends on it.

    Returns
    -------
    Guarantee

    Examples
    --------
    Example 1 of the paper: i.i.d. Laplace noise for ε = 1 protects by 1 + k only.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, -4]])
    >>> round(adp.verify(M, 1.0, law="laplace").epsilon(), 9)
    5.0

    Noise that misses a direction promises nothing, and the leak is shown.

    >>> adp.verify(M, [[1], [1]]).leak
    array([-1.,  1.])
    """
    if law not in ("gaussian", "laplace"):
        raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    neighbours = resolve_adjacency(manifold, mu, adjacency)
    matrix, output_names = resolve_query(manifold, query)
    noise, error = _noise(noise_matrix, covariance, law, matrix.shape[0])
    warn_of_forgotten(manifold, check_against)
    return promise_of(neighbours, noise, matrix, law, output_names, error)


@within_range
def promise_of(
    adjacency: Adjacency,
    noise: Matrix,
    query: Matrix,
    law: Law,
    output_names: tuple[str, ...],
    noise_error: float = 0.0,
) -> Guarantee:
    """Return the guarantee of ``F x + Λ η`` from checked arguments.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    noise, query : matrices, shapes (m, r) and (m, n)
        Λ and F.
    law : {"gaussian", "laplace"}
        The law of η.
    output_names : tuple of str
        Names of the m outputs.
    noise_error : float
        Relative error of Λ, where it had to be computed.
    """
    if not np.all(np.isfinite(noise.data if is_sparse(noise) else noise)):
        raise AffineDPError("the noise is too large for double precision: choose another unit")
    unit = output_units(query, adjacency)
    whitened = whiten(unit @ noise, unit @ query)
    leak = find_leak(whitened, unit @ query, adjacency)
    exact = exact_whitening(adjacency.manifold, noise, query) if noise_error == 0.0 else None
    everyone = type(adjacency) is CircuitAdjacency and bool(np.all(adjacency.mu > 0))
    if exact is not None and everyone and exact.bare is not None:
        leak = exact.bare @ _inverse(unit)
    theorem = "Theorem 1" if law == "gaussian" else "Theorem 2"
    shared: dict[str, Any] = {
        "law": law,
        "neighbours": adjacency.neighbours,
        "neighbours_key": adjacency.key,
        "unit": adjacency.unit,
        "names": adjacency.manifold.names,
        "output_names": output_names,
    }
    if leak is not None:
        return Guarantee(
            sensitivity=math.inf,
            exact=True,
            basis=f"{theorem}: the noise does not cover the range of the query",
            curve=NoPromise(),
            leak=_normalised(leak @ unit),
            **shared,
        )
    norm: Norm = 2 if law == "gaussian" else 1
    rational = exact.query if exact is not None and exact.bare is None else None
    decided = adjacency.exact_sensitivity(rational, norm) if rational is not None else None
    if decided is not None:
        found, upper = decided, decided.upper
        lower = math.nextafter(decided.value, 0.0)
    else:
        found = adjacency.sensitivity(whitened.query, norm)
        # the error of Λ⁺F is relative to its terms, which may cancel along v
        terms = np.asarray(abs(whitened.query) @ np.abs(found.direction)).ravel()
        spread = whitened.error * float(column_norms(terms[:, None], norm)[0])
        relative = whitened.error + noise_error
        upper = found.upper * (1 + relative) + spread
        lower = max(0.0, found.value * (1 - relative) - spread)
    exact_value = found.exact
    curve: Curve
    if law == "gaussian":
        curve = GaussianCurve(upper)
    else:
        curve = LaplaceCurve(upper, _shifts(adjacency, whitened, upper))
        if not whitened.full_column_rank:
            exact_value = False
            theorem += " on all the noise that is drawn; its projection promises at least that"
    return Guarantee(
        sensitivity=upper,
        sensitivity_lower=min(lower, upper),
        exact=exact_value,
        basis=theorem,
        curve=curve,
        worst_direction=found.direction,
        method=found.method,
        warnings=found.warnings,
        **shared,
    )


def resolve_adjacency(
    manifold: AffineManifold, mu: float | ArrayLike | None, adjacency: Adjacency | None
) -> Adjacency:
    """Return the adjacency that was given, or Definition 4 with ``mu`` (1 by default)."""
    if not isinstance(manifold, AffineManifold):
        raise AffineDPError(f"the first argument must be an AffineManifold, not {manifold!r}")
    if adjacency is None:
        return CircuitAdjacency(manifold, 1.0 if mu is None else mu)
    if mu is not None:
        raise AffineDPError("give mu or adjacency, not both: the adjacency has its own scale")
    if not isinstance(adjacency, Adjacency):
        raise AffineDPError(f"adjacency must be an Adjacency, not {adjacency!r}")
    if adjacency.manifold is not manifold and (
        adjacency.manifold.fingerprint != manifold.fingerprint
    ):
        raise AffineDPError("the adjacency is about another manifold")
    return adjacency


def resolve_query(
    manifold: AffineManifold, query: ArrayLike | sparse.sparray | Sequence[str] | None
) -> tuple[Matrix, tuple[str, ...]]:
    """Return F and the names of its outputs."""
    import scipy.sparse as sparse

    n = manifold.n
    if query is None:
        return sparse.csr_array(sparse.eye_array(n)), manifold.names
    if isinstance(query, Sequence) and query and all(isinstance(name, str) for name in query):
        place = {name: i for i, name in enumerate(manifold.names)}
        unknown = [str(name) for name in query if name not in place]
        if unknown:
            raise AffineDPError(f"the query names {unknown[0]!r}, which is no entry")
        rows = [place[str(name)] for name in query]
        return sparse.csr_array(sparse.eye_array(n, format="csr")[rows]), tuple(map(str, query))
    matrix = real_matrix(query, "query")
    if matrix.shape[1] != n or matrix.shape[0] == 0:
        raise AffineDPError(f"the query has shape {matrix.shape}, but x has {n} entries")
    return matrix, tuple(f"y{i + 1}" for i in range(matrix.shape[0]))


def _noise(
    noise_matrix: float | ArrayLike | sparse.sparray | None,
    covariance: ArrayLike | None,
    law: Law,
    outputs: int,
) -> tuple[Matrix, float]:
    """Λ from what was given (diagonal noise stays sparse), and its relative error."""
    import scipy.sparse as sparse

    if (noise_matrix is None) == (covariance is None):
        raise AffineDPError("give either noise_matrix or covariance")
    if covariance is not None:
        if law != "gaussian":
            raise AffineDPError("covariance is for Gaussian noise: give noise_matrix")
        return _root(real_array(covariance, "covariance", 2), outputs)
    if np.ndim(noise_matrix) == 0 and not is_sparse(noise_matrix):  # type: ignore[arg-type]
        scale = float(real_array(noise_matrix, "noise_matrix"))  # type: ignore[arg-type]
        if scale <= 0:
            raise AffineDPError(f"the scale of the noise must be positive, not {scale}")
        return sparse.csr_array(scale * sparse.eye_array(outputs)), 0.0
    matrix = real_matrix(noise_matrix, "noise_matrix")
    if matrix.shape[0] != outputs or matrix.shape[1] == 0:
        raise AffineDPError(
            f"noise_matrix has shape {matrix.shape}, but there are {outputs} outputs: give one row "
            "per output, or one number for i.i.d. noise"
        )
    return matrix, 0.0


def _root(covariance: FloatArray, outputs: int) -> tuple[FloatArray, float]:
    """Λ with ΛΛᵀ equal to the covariance, and its relative error.

    Small eigenvalues are off by eps times the largest one.
    """
    if covariance.shape != (outputs, outputs):
        raise AffineDPError(
            f"covariance has shape {covariance.shape}, but there are {outputs} outputs"
        )
    deviation = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    unit = np.where(deviation > 0, deviation, 1.0)
    correlation = covariance / unit[:, None] / unit
    if np.abs(correlation - correlation.T).max() > 1e-9:
        raise AffineDPError("covariance is not symmetric")
    values, vectors = np.linalg.eigh((correlation + correlation.T) / 2)
    # zero eigenvalues come out as rounding of either sign
    dust = 16 * outputs * EPS * max(float(values[-1]), 0.0)
    if values[0] < -max(dust, 1e-12) or np.any(covariance[deviation == 0]):
        raise AffineDPError(
            f"covariance is not positive semidefinite (relative eigenvalue {values[0]:.2g})"
        )
    kept = values > dust
    if not kept.any():
        raise AffineDPError("covariance is zero: there is no noise")
    error = ROUNDINGS * outputs * EPS * float(values[-1] / values[kept][0])
    if error > 1e-3:
        raise AffineDPError(
            "covariance is too close to singular to tell what it promises (relative eigenvalue "
            f"{values[kept][0] / values[-1]:.1e}). Give the noise_matrix that it was made from"
        )
    return unit[:, None] * vectors[:, kept] * np.sqrt(values[kept]), error


def moved_outputs(query: Matrix, adjacency: Adjacency) -> FloatArray:
    """Return ``F`` on vectors that span the neighbour directions, without rounding dust.

    An output that the equations fix moves by 0; floating point leaves a little.
    """
    return dense(_moved(query, adjacency))


def _moved(query: Matrix, adjacency: Adjacency) -> Matrix:
    """The same, sparse where the query and the manifold are."""
    import scipy.sparse as sparse

    span = adjacency.span()
    moved, terms = query @ span, abs(query) @ abs(span)
    share = 64 * EPS + adjacency.manifold.kernel_error
    if not is_sparse(moved):
        return np.where(np.abs(moved) <= share * terms, 0.0, moved)
    clear = sparse.csr_array(abs(moved) > share * terms)
    return sparse.csr_array(moved * clear)


def output_units(query: Matrix, adjacency: Adjacency) -> Matrix:
    """Return diagonal powers of two that make neighbours move every output by about 1.

    The promise does not change, and an output in small units cannot hide a leak.
    """
    import scipy.sparse as sparse

    moved = abs(_moved(query, adjacency))
    size = dense(moved.max(axis=1)).ravel() if moved.shape[1] else np.zeros(moved.shape[0])
    # a power of two that is itself a number, also for moves that are not normal numbers
    exponent = np.clip(np.where(size > 0, np.frexp(size)[1], 0), -1000, 1000)
    return sparse.csr_array(sparse.diags_array(np.ldexp(1.0, -exponent)))


def whiten(noise: Matrix, query: Matrix) -> Whitened:
    """Return the query in units of the noise, block by block of outputs that share noise."""
    import scipy.sparse as sparse

    diagonal = _positive_diagonal(noise)
    if diagonal is not None:
        inverse = sparse.dia_array((1 / diagonal[None], [0]), shape=noise.shape)
        powers_of_two = np.all(np.frexp(diagonal)[0] == 0.5)
        return Whitened(inverse @ query, 0.0 if powers_of_two else 4 * EPS, True, [])
    blocks = _noise_blocks(noise)
    parts, ranges, places = [], [], []
    error, full_column_rank = 0.0, True
    for rows, columns in blocks:
        if len(columns) == 0:
            ranges.append((rows, np.zeros((len(rows), 0))))
            continue
        part = _whiten_block(dense(noise[rows][:, columns]), query[rows])
        parts.append(part.query)
        places.append(columns)
        ranges.extend((rows, covered) for _, covered in part.ranges)
        error = max(error, part.error)
        full_column_rank &= part.full_column_rank
    if not parts:
        raise AffineDPError("noise_matrix is zero: there is no noise")
    if len(blocks) == 1:
        return Whitened(parts[0], error, full_column_rank, ranges)
    stacked = sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in parts]))
    order = np.argsort(np.concatenate(places))
    return Whitened(stacked[order], error, full_column_rank, ranges)


def _noise_blocks(noise: Matrix) -> list[tuple[IntArray, IntArray]]:
    """Outputs and noises that are connected through Λ; one block when Λ is dense."""
    from scipy.sparse.csgraph import connected_components

    m, r = noise.shape
    if not is_sparse(noise):
        return [(np.arange(m), np.arange(r))]
    import scipy.sparse as sparse

    links = sparse.block_array([[None, noise], [noise.T, None]], format="csr")
    label = connected_components(links, directed=False)[1]
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return [(group[group < m], group[group >= m] - m) for group in groups if group[0] < m]


def _whiten_block(noise: FloatArray, query: Matrix) -> Whitened:
    """Whiten by singular values; columns are scaled first, so that small noise counts too."""
    if noise.shape[0] * float(max(noise.shape[1], query.shape[1])) > MOST_DENSE:
        raise AffineDPError(
            f"a noise matrix of shape {noise.shape} on {query.shape[1]} entries is too large to "
            "factor; noise in blocks (a sparse matrix) has no such limit"
        )
    rows = np.arange(noise.shape[0])
    largest = np.abs(noise).max(axis=0)
    if not largest.any():
        raise AffineDPError("noise_matrix is zero: there is no noise")
    # squares of tiny or huge noise must not leave the range of floating point
    with np.errstate(over="ignore"):
        size = largest * np.linalg.norm(noise / np.where(largest > 0, largest, 1.0), axis=0)
    if not math.isfinite(float(size.sum())):  # LAPACK might never return
        raise AffineDPError("the noise is too large for double precision: choose another unit")
    full = bool(np.all(size > 0))
    if full:
        left, values, right = _singular_values(noise / size)
        full = len(values) == noise.shape[1]
        right = right / size
    if not full:
        # for Gaussian noise any root of the same covariance will do, and the pseudo-inverse
        # bounds the 1-norm of Laplace noise too
        left, values, right = _singular_values(noise)
    covered = left.T @ query
    inverse = right.T @ (covered / values[:, None])
    error = ROUNDINGS * EPS * float(values[0] / values[-1])
    if error > MOST_ERROR:
        raise AffineDPError(
            "the noise matrix is too ill-conditioned to tell what it promises (singular values "
            f"{values[0]:.1e} to {values[-1]:.1e}). Leave out noise that is huge or tiny"
        )
    if len(values) == noise.shape[0]:  # noise in every direction covers everything
        return Whitened(inverse, error, full, [])
    return Whitened(inverse, error, full, [(rows, left)])


def _singular_values(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The singular value decomposition without what is zero up to rounding."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = values > 16 * max(matrix.shape) * EPS * values[0]
    return left[:, kept], values[kept], right[kept]


def _positive_diagonal(noise: Matrix) -> FloatArray | None:
    """The diagonal, if the noise is independent on every output."""
    if noise.shape[0] != noise.shape[1]:
        return None
    diagonal = np.asarray(noise.diagonal())
    entries = noise.count_nonzero() if is_sparse(noise) else np.count_nonzero(noise)
    return np.abs(diagonal) if np.all(diagonal != 0) and entries == len(diagonal) else None


def find_leak(whitened: Whitened, query: Matrix, adjacency: Adjacency) -> FloatArray | None:
    """Return a combination of outputs with no noise in which neighbours differ, or None."""
    if not whitened.ranges:
        return None
    return _uncovered(whitened, moved_outputs(query, adjacency))


def _uncovered(whitened: Whitened, moved: FloatArray) -> FloatArray | None:
    """A combination of outputs without noise in which some of these vectors are not zero."""
    for rows, covered in whitened.ranges:
        whole = moved[rows]
        bare = whole - covered @ (covered.T @ whole)
        size = np.abs(whole).max(axis=0, initial=0.0)
        relative = bare[:, size > 0] / size[size > 0]
        if relative.size == 0 or np.abs(relative).max() <= max(LEAK, 32 * whitened.error):
            continue
        combination = np.zeros(len(moved))
        # what is bare has no noise in it; of equally large parts, the first movement's
        combination[rows] = relative[:, first_largest(column_norms(relative, 2))]
        combination[np.abs(combination) < 1e-9 * np.abs(combination).max()] = 0.0
        return combination
    return None


def covers(whitened: Whitened, outputs: FloatArray) -> bool:
    """Whether the noise reaches every combination of outputs that these vectors span.

    Parameters
    ----------
    whitened : Whitened
        The query in units of the noise.
    outputs : array, shape (m, k)
        Vectors of outputs, in the units in which the noise was whitened.
    """
    return _uncovered(whitened, outputs) is None


def _inverse(diagonal: Matrix) -> Matrix:
    import scipy.sparse as sparse

    return sparse.csr_array(sparse.diags_array(1 / diagonal.diagonal()))


def _normalised(vector: FloatArray) -> FloatArray:
    """Scale to a largest entry of 1, the last nonzero one positive."""
    last = vector[np.flatnonzero(vector)[-1]]
    return np.asarray(vector / math.copysign(np.abs(vector).max(), last)) + 0.0


def _shifts(adjacency: Adjacency, whitened: Whitened, upper: float) -> FloatArray | None:
    """|Λ⁺F v| for every direction, where there are few enough to list."""
    try:
        directions = adjacency.directions(LISTED_FOR_CURVE)
    except TooManyCircuitsError:
        return None
    if directions.shape[1] * 2.0 ** min(whitened.query.shape[0], 12) > MOST_SIGN_VECTORS:
        return None
    shifts = np.abs(np.asarray(whitened.query @ directions)).T
    # listed directions are less accurate than the worst one, which was evaluated again
    largest = float(shifts.sum(axis=1).max(initial=0.0))
    if largest > 0:
        shifts = shifts * max(1 + whitened.error + 4 * EPS * len(directions), upper / largest)
    return np.unique(np.sort(shifts, axis=1), axis=0)
