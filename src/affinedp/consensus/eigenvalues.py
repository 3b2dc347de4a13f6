"""How fast differences die out: λ₂ and λ_n of the Laplacian, and α = max(|1−λ₂|, |1−λ_n|).

Up to DENSE_AGENTS agents all eigenvalues are computed.  Beyond, Lanczos gives values that are
close but never proved, so bounds and numbers of steps use ``alpha_bound``, which is proved, in one
of two ways.

**By a polynomial.**  Let A be symmetric with eigenvalues at least ``low`` on the vectors of mean
zero, and let T_k be the Chebyshev polynomial, moved so that it is at most 1 between ``low`` and
``guess``.  Take one vector g of independent standard normal numbers without their mean.  If the
largest eigenvalue a has the unit eigenvector v, then T_k(a) |v·g| ≤ ‖T_k(A) g‖, and |v·g| < τ has
probability at most τ √(2/π).  Beyond ``guess`` T_k grows exponentially, so an observed norm bounds
a from above.

**By a factorisation.**  On long rings, paths and grids Lanczos on P needs as many products as a
message needs steps from one end to the other.  But such networks are thin: with linked agents next
to each other the Laplacian L has a narrow band, and L − μI is factored as G D Gᵀ at once, with G
lower triangular and D diagonal.  Lanczos on the inverse then finds λ₂ in a few products.  And the
signs of D prove a bound: by Sylvester's law G D Gᵀ has as many negative eigenvalues as D.  If that
is one, the second eigenvalue of L − μI is at least −‖E‖, where E = L − μI − G D Gᵀ is what rounding
left over; so λ₂ ≥ μ − ‖E‖.  The norm is bounded by k vectors g of independent standard normal
numbers: ‖E g‖ < τ ‖E‖ has probability at most τ √(2/π) for each of them, and the rounding of E g
itself is bounded by the products with absolute values.

All modes are found also where some differences hardly die out.  Two groups that are joined by a
weight of 1e-14 have a second eigenvalue of that size, and LAPACK does not tell its eigenvector from
the constant one.  So the constant vector is moved to the upper end of the spectrum first, and the
eigenvalues of slow modes are found again on their own subspace: there λ = σ² for the singular
values σ of √w_ij (u_i − u_j), one row for each link, which loses half as many digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix
from affinedp.consensus.graph import Network, listed
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

# Up to here all eigenvalues (and eigenvectors, for error curves) are computed: about two seconds.
DENSE_AGENTS = 2_000
# Probability, over the coins of the certificate alone, that a bound beyond DENSE_AGENTS is wrong.
FAILURE = 1e-9
# Products with the matrix that Lanczos, and each certificate, may take.
MOST_PRODUCTS = 20_000
MOST_WORK = 2e10
LANCZOS_ACCURACY = 0.01
# A certificate takes as many products as bring it this close, as a share of 1 − eigenvalue.
CLOSE = 0.05
# As a share of λ_n: a λ₂ below is lost in rounding, whatever is done.
RESOLVED = 1e-24
# Weight sums this close to 1 count as 1, since decimals such as 0.1 do not add up exactly.
ABOUT_ONE = 1e-12
# Modes slower than this share of the fastest are refined; the same again among them.
SLOW = 1e-3
# Rows of the links that are put through one QR at a time.
ROWS_AT_ONCE = 1 << 16
# Numbers between the diagonal and the first link of every row; the factor has no more.
MOST_IN_BAND = 2e7
PROBES = 8
# How far below the value of Lanczos a bound is tried.
SHARES = (1 - 1e-3, 0.98, 0.9, 0.5)
UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues that decide how fast consensus is reached.

    Attributes
    ----------
    lambda_2, lambda_n : float
        The smallest and the largest eigenvalue of the Laplacian, without the zero of the average.
    alpha : float
        max(|1−λ₂|, |1−λ_n|), the factor by which differences shrink in one step.
    alpha_bound : float
        Never below α: what bounds and numbers of steps are computed from.
    exact : bool
        Whether the values are eigenvalues up to rounding.
    method : {"all eigenvalues", "Lanczos", "bound"}
        How they were found.  With "bound" Lanczos did not converge: λ₂ is at least, and λ_n at
        most, what is given.
    failure : float
        The probability, over the coins of the method alone, that a bound is wrong.
    lambda_2_bound, lambda_n_bound : float
        λ₂ is not below the first, λ_n not above the second.
    """

    lambda_2: float
    lambda_n: float
    alpha: float
    alpha_bound: float
    exact: bool
    method: str
    failure: float = 0.0
    lambda_2_bound: float = 0.0
    lambda_n_bound: float = math.inf


def spectrum_of(network: Network, seed: int = 0) -> Spectrum:
    """Return λ₂, λ_n and α of a connected network."""
    generator = np.random.default_rng(seed)
    if network.n <= DENSE_AGENTS:
        return _small_spectrum(network, generator)
    return _large_spectrum(network, generator)


def _small_spectrum(network: Network, generator: np.random.Generator) -> Spectrum:
    """All eigenvalues; a λ₂ that rounding would drown is looked at again."""
    values = np.linalg.eigvalsh(network.laplacian.toarray())
    first, last = float(values[1]), float(values[-1])
    # LAPACK's backward error is a small multiple of n eps ‖L‖
    rounding = 8 * network.n * EPS * max(1.0, last)
    sure, failure = first - rounding, 0.0
    if not rounding < 1e-6 * first:
        first = float(modes_of(network).values[0])
        sure = max(sure, _lambda_2_bound(network))
        if is_thin(network):
            proved = second_eigenvalue_bound(network, first, FAILURE, generator)
            sure, failure = max(sure, proved or 0.0), FAILURE
    alpha = max(1 - first, last - 1, 0.0)
    slowest = min(1 - sure + EPS, 1.0) if sure > 0 else 1 - sure
    bound = max(slowest, last + rounding - 1, alpha)
    exact = first > RESOLVED * last
    return Spectrum(
        first, last, alpha, bound, exact, "all eigenvalues", failure, sure, last + rounding
    )


def largest_eigenvalue_bound(network: Network) -> float:
    """Return max (d_i + d_j) over links, which is at least λ_n (Anderson and Morley)."""
    rows, columns, _ = network.links()
    pairs = network.weight_sums[rows] + network.weight_sums[columns]
    return float(pairs.max(initial=0.0)) * (1 + 64 * EPS)


def largest_eigenvalue(network: Network, seed: int = 0) -> float:
    """Return λ_n of any network, connected or not; by Lanczos if it is large."""
    if network.n <= DENSE_AGENTS:
        return float(np.linalg.eigvalsh(network.laplacian.toarray())[-1])
    P = network.transition
    start = np.random.default_rng(seed).normal(size=network.n)
    found = _lanczos(lambda x: P @ x, network.n, "SA", start, MOST_PRODUCTS)
    return largest_eigenvalue_bound(network) if found is None else 1.0 - found


def check_convergence(network: Network) -> tuple[str, ...]:
    """Refuse a connected network with α ≥ 1; return what to report about the weight sums.

    The paper asks for Σ_j w_ij < 1.  Convergence needs only λ_n < 2.
    """
    sums = network.weight_sums
    heavy = network.named(np.flatnonzero(sums >= 1 - ABOUT_ONE))
    if not heavy:
        return ()
    links = int(np.diff(network.transition.indptr).max())
    # further above 1 than decimals that do not add up exactly, P has negative entries
    if sums.max() <= 1 + 2 * links * EPS:
        # P has no negative entry, so −1 is an eigenvalue only of a two-sided swap
        if sums.min() >= 1 - ABOUT_ONE and _is_bipartite(network):
            raise AffineDPError(
                "every weight sum is 1 and the agents form two sides that only hear each other: "
                "messages would swap sides for ever (λ_n = 2). Use smaller weights, such as "
                "weights='metropolis'"
            )
        return (_heavy_note(heavy, "but no eigenvalue of the Laplacian reaches 2"),)
    # λ_n is more than the largest weight sum
    found = spectrum_of(network) if sums.max() < 2 else None
    # λ₂ > 0 of a connected network is known without any number
    if found is None or not found.lambda_n_bound < 2.0:
        worst = network.named(np.argsort(-sums)[: len(heavy)])
        largest = f"> {sums.max():.6g}" if found is None else f"= {found.lambda_n:.6g}"
        raise AffineDPError(
            f"differences do not die out: λ_n {largest}, and it must be below 2 "
            f"(weight sums up to {sums.max():.4g}, at {listed(worst)}). Use smaller weights, such "
            "as weights='metropolis'"
        )
    shown = f"{found.lambda_n:.6g}" if found.lambda_n < 2 - 1e-5 else repr(found.lambda_n)
    return (_heavy_note(heavy, f"but λ_n = {shown} < 2"),)


def _heavy_note(heavy: list[Any], but: str) -> str:
    one = len(heavy) == 1
    return (
        f"the weights of {listed(heavy)} sum to 1 or more, so the paper's condition Σ w < 1 does "
        f"not hold for {'it' if one else 'them'}; {but}, which is all that convergence needs"
    )


def _is_bipartite(network: Network) -> bool:
    """Whether two copies of the agents, linked only across, fall apart."""
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import connected_components

    W = network.weights
    return bool(connected_components(sparse.block_array([[None, W], [W, None]]))[0] > 1)


# ---------------------------------------------------------------------- too large for all of them


def _large_spectrum(network: Network, generator: np.random.Generator) -> Spectrum:
    """Lanczos at both ends, and a certificate for each end."""
    P, n = network.transition, network.n
    most = int(np.clip(MOST_WORK / P.nnz, 200, MOST_PRODUCTS))
    above = largest_eigenvalue_bound(network)
    start = generator.normal(size=n)
    with Progress("looking for the eigenvalues") as progress:
        second, sure = None, None
        if is_thin(network):
            second = second_eigenvalue(network, start)
            if second is not None:
                sure = second_eigenvalue_bound(network, second, FAILURE, generator)
        if second is None:
            # the constant vector has eigenvalue 1 of P; −1 hides it from the upper end
            top = _lanczos(lambda x: P @ x - 2 * x.mean(), n, "LA", start, most)
            second = None if top is None else 1.0 - top
        progress.update(0.25)
        last = _lanczos(lambda x: P @ x, n, "SA", start, most)
        progress.update(0.5)
        if sure is None:
            guess = None if second is None else 1.0 - second
            top = _certified_top(lambda x: P @ x, n, 1.0 - above, guess, generator, most)
            # to both sides of 1 it is exact
            sure = 1.0 - top if top < 1.0 else _lambda_2_bound(network)
        progress.update(0.75)
        bottom = -_certified_top(
            lambda x: -(P @ x), n, -1.0, None if last is None else -last, generator, most
        )
    largest = min(1.0 - bottom, above)
    proved = max(min(1.0 - sure + EPS, 1.0), largest - 1.0)
    bounds = {"failure": 2 * FAILURE, "lambda_2_bound": sure, "lambda_n_bound": largest}
    if second is None or last is None:
        return Spectrum(sure, largest, proved, proved, False, "bound", **bounds)
    alpha = max(1.0 - second, -last, 0.0)
    return Spectrum(second, 1 - last, alpha, max(alpha, proved), False, "Lanczos", **bounds)


def _lanczos(product: Any, n: int, end: str, start: FloatArray, most: int) -> float | None:
    """The eigenvalue at one end of the spectrum, or None if Lanczos does not converge."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
    kept = 30  # vectors, that is about as many products before each restart
    settings = {"k": 1, "which": end, "ncv": kept, "maxiter": most // kept}
    vector, tolerance = start, 1e-3
    while tolerance > 1e-12:
        try:
            values, vectors = eigsh(operator, v0=vector, tol=tolerance, **settings)
        except ArpackError:
            return None
        # the residual bounds the error; close to ±1 it has to be smaller
        if tolerance <= LANCZOS_ACCURACY * (1.0 - abs(values[0])):
            return float(values[0])
        vector, tolerance = vectors[:, 0], tolerance / 30
    return None


def _certified_top(
    product: Any,
    n: int,
    low: float,
    guess: float | None,
    generator: np.random.Generator,
    most: int,
) -> float:
    """An upper bound on the largest eigenvalue on vectors of mean zero (see the module).

    It holds for any guess.  It exceeds the eigenvalue, or the guess, by about
    ``width/4 · (c/k)²`` after k products.
    """
    unlikely = FAILURE * math.sqrt(math.pi / 2)
    c = math.log(4 * math.sqrt(n) / unlikely)
    if guess is None:
        guess = 1.0 - (1.0 - low) * (c / most) ** 2
    guess = max(guess, low)
    products = c * math.sqrt((guess - low) / (4 * CLOSE * max(1.0 - guess, EPS)))
    k = int(np.clip(math.ceil(products), 20, most))
    half, middle = (guess - low) / 2, (guess + low) / 2
    if half < 1e-3:  # nearly all eigenvalues are equal; a wider interval keeps T_k in range
        half, middle = 1e-3, low + 1e-3

    def moved(x: FloatArray) -> FloatArray:
        y = (product(x) - middle * x) / half
        return np.asarray(y - y.mean())

    before = generator.normal(size=n)
    before -= before.mean()
    now = moved(before)
    for _ in range(k - 1):
        before, now = now, 2 * moved(now) - before
    # twice the norm: far more than the recurrence can lose to rounding
    seen = 2 * float(np.linalg.norm(now)) / unlikely
    if not math.isfinite(seen):
        return math.inf
    return middle + half * math.cosh(math.acosh(max(seen, 1.0)) / k) + 64 * EPS


def _lambda_2_bound(network: Network) -> float:
    """Return 2 w_min / ((n−1) D), which is at most λ₂ for any network of diameter D.

    For x of mean zero n‖x‖² = Σ_{i<j} (x_i−x_j)², and each of the n(n−1)/2 squares is at most D
    times the sum over the links of a shortest path, hence at most D xᵀLx/w_min.
    """
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import dijkstra

    W = network.weights
    places = W.indices.astype(np.int32), W.indptr.astype(np.int32)  # what older SciPy takes
    links = sparse.csr_array((W.data, *places), W.shape)
    depth = float(dijkstra(links, indices=0, unweighted=True).max())
    # two agents are at most twice the depth apart
    return float(W.data.min()) / ((network.n - 1.0) * depth) * (1 - 1e-9)


@dataclass(frozen=True, eq=False)
class Modes:
    """The modes of a network that is not too large."""

    values: FloatArray = field(repr=False)
    vectors: FloatArray = field(repr=False)

    def powers(self, times: FloatArray) -> FloatArray:
        """Return (1 − λ)^t, shape (times, n − 1)."""
        left = 1.0 - self.values
        with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
            # log1p, since 1 − λ itself drops the digits of a small λ
            logs = np.where(left > 0.5, np.log1p(-self.values), np.log(np.abs(left)))
            exponents = times[:, None] * logs  # 0 · −∞ where λ = 1 and t = 0
        sizes = np.exp(np.where(times[:, None] == 0, 0.0, exponents))
        odd = (times % 2 == 1)[:, None] & (left < 0)
        return np.asarray(np.where(odd, -sizes, sizes))


def modes_of(network: Network) -> Modes:
    """Return all modes of a connected network."""
    n = network.n
    rows, columns, weights = network.links()
    # λ_n is at most twice the largest weight sum, so the constant vector is at the upper end
    matrix = network.laplacian.toarray() + 3 * network.weight_sums.max() / n
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[:-1].copy(), vectors[:, :-1].copy()
    vectors -= vectors.mean(axis=0)
    once = rows < columns
    links = (rows[once], columns[once], np.sqrt(weights[once]))
    scale, slow = float(values[-1]), n - 1
    while True:
        # the modes are ascending, so the slow ones come first
        fewer = int(np.sum(values[:slow] < SLOW * scale))
        if fewer in (0, slow):
            break
        slow = fewer
        values[:slow], vectors[:, :slow] = _refined(vectors[:, :slow], links)
        scale = float(values[slow - 1])
    return Modes(np.maximum(values, 0.0), vectors)


def _refined(
    vectors: FloatArray, links: tuple[IntArray, IntArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors within a subspace, ascending."""
    rows, columns, roots = links
    rank = vectors.shape[1]
    triangle: FloatArray = np.zeros((rank, rank))
    for first in range(0, len(roots), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        steps = roots[some, None] * (vectors[rows[some]] - vectors[columns[some]])
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, steps]), mode="r"))
    _, sizes, turned = np.linalg.svd(triangle, full_matrices=False)
    order = np.arange(rank)[::-1]
    return np.asarray(sizes[order] ** 2), np.asarray(vectors @ turned[order].T)


# ---------------------------------------------------------------------- thin networks


def is_thin(network: Network) -> bool:
    """Whether the Laplacian can be factored within little memory."""
    matrix, _ = network.ordered
    first = matrix.indices[matrix.indptr[:-1]]  # its indices are sorted
    return float(np.sum(np.arange(network.n) - first, dtype=np.float64)) <= MOST_IN_BAND


def _factored(network: Network, shift: float) -> tuple[Matrix, Any] | None:
    """L + shift · I with linked agents next to each other, and its factors; None without any."""
    import scipy.sparse as sparse
    from scipy.sparse.linalg import splu

    matrix, order = network.ordered
    A = sparse.csc_array(-matrix)
    A.setdiag(network.weight_sums[order] + shift)
    symmetric = {"SymmetricMode": True, "Equil": False}
    try:
        return A, splu(A, permc_spec="NATURAL", diag_pivot_thresh=0.0, options=symmetric)
    except (RuntimeError, MemoryError):  # a pivot that is exactly zero
        return None


def second_eigenvalue(network: Network, start: FloatArray) -> float | None:
    """Return λ₂ by Lanczos on the inverse, or None if it does not converge."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    # without a shift the constant vector makes it singular
    shift = 1e-13 * float(network.weight_sums.max())
    made = _factored(network, shift)
    if made is None:
        return None

    def solved(x: FloatArray) -> FloatArray:
        y = made[1].solve(x - x.mean())
        return np.asarray(y - y.mean())

    operator = LinearOperator((network.n, network.n), matvec=solved, dtype=np.float64)
    try:
        (found,) = eigsh(
            operator, k=1, which="LA", v0=start - start.mean(), tol=1e-5, return_eigenvectors=False
        )
    except ArpackError:
        return None
    value = 1.0 / float(found) - shift
    return value if math.isfinite(value) and value > 0 else None


def second_eigenvalue_bound(
    network: Network, guess: float, failure: float, generator: np.random.Generator
) -> float | None:
    """Return a number that λ₂ is not below, close to the guess if that is right."""
    best = None
    for share in SHARES:
        found = _proved(network, share * guess, failure / len(SHARES), generator)
        if found is not None and (best is None or found > best):
            best = found
        if best is not None and best >= 0.95 * share * guess:
            return best
    return best


def _proved(
    network: Network, mu: float, failure: float, generator: np.random.Generator
) -> float | None:
    """μ − ‖E‖ if L − μI has one negative pivot, else None."""
    made = _factored(network, -mu)
    if made is None:
        return None
    A, factor = made
    if not np.array_equal(factor.perm_r, factor.perm_c):
        return None
    G, D = factor.L, factor.U.diagonal()
    if not np.isfinite(D).all() or not np.all(D != 0) or int(np.sum(D < 0)) != 1:
        return None
    place = np.argsort(factor.perm_c)
    A = A[place][:, place]
    terms = int(np.diff(G.indptr).max()) + int(np.diff(G.tocsr().indptr).max()) + 8
    gamma = terms * UNIT_ROUNDOFF / (1 - terms * UNIT_ROUNDOFF)
    seen = 0.0
    sizes, sure = abs(A), abs(G)
    for _ in range(PROBES):
        g = generator.normal(size=network.n)
        left = float(np.linalg.norm(A @ g - G @ (D * (G.T @ g))))
        rounding = sizes @ np.abs(g) + sure @ (np.abs(D) * (sure.T @ np.abs(g)))
        seen = max(seen, left + 4 * gamma * float(np.linalg.norm(rounding)))
    likely = failure ** (1 / PROBES) * math.sqrt(math.pi / 2)
    # the diagonal itself: sums of as many weights as an agent has links, and − μ
    links = int(np.diff(network.transition.indptr).max())
    diagonal = 4 * (links + 2) * UNIT_ROUNDOFF * float(network.weight_sums.max())
    found = mu - (seen / likely + diagonal) * (1 + 1e-9)
    return found if found > 0 else None
