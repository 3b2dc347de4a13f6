"""Gaussian design for neighbours that cannot be listed, with a certified bound.

The best weights are searched for here; :mod:`affinedp.privacy.without_list` proves what they
promise.

The circuits over which the optimum of Algorithm 1 of "the paper" (Ren, Wang, Yuan, Shi,
"Differential Privacy on Affine Manifolds") ranges can be too many to list.  Let the columns of K
span the kernel, and let every circuit v have entries of size at most 1, at most ``most`` of them
nonzero.  For weights y ≥ 0, ``Σ = N (Kᵀ diag(y) K)⁻¹ Nᵀ`` gives every v = K ξ in the kernel

    (N ξ)ᵀ Σ⁻¹ (N ξ)  ≤  Σ_i y_i v_i²  ≤  the sum of the ``most`` largest y_i,  if v is a circuit,

the first since ``Nᵀ (N M⁻¹ Nᵀ)⁻¹ N ⪯ M`` for any positive definite M.  The weights of least

    f(y) = tr(C M(y)⁻¹),    M(y) = Kᵀ diag(y) K,    C = Nᵀ W N,

of which the ``most`` largest sum to at most 1, are found here, and certified: the search need not
be trusted.  Writing ``y = u + λ`` with u, λ ≥ 0 turns the budget into ``Σ u + most · λ ≤ 1``: an
A-optimal design with n atoms ``k_i k_iᵀ`` of price 1 and one atom ``KᵀK`` of price ``most``.

*The lower bound.*  Take any matrix Z, any root ``L Lᵀ = C`` and any feasible y.  By Cauchy–Schwarz

    tr(Lᵀ Z)² = ⟨M^-½ L, M^½ Z⟩²  ≤  tr(C M(y)⁻¹) · tr(Zᵀ M(y) Z)  =  f(y) · Σ_i y_i g_i

with ``g_i = ‖Zᵀ k_i‖²``.  Let λ be the ``most``-th largest y_i (0 if there are fewer) and u_i the
part of y_i above λ: then ``y ≤ u + λ`` and ``Σ u + most · λ ≤ 1``, so ``Σ y_i g_i ≤ Σ u_i g_i + λ Σ
g_i ≤ max(max_i g_i, Σ_i g_i / most)``, and f(y) is at least ``tr(Lᵀ Z)²`` divided by that.  With
``Z = M(y)⁻¹ L`` the numerator is ``f(y)²``, g is minus the gradient of f, ``Σ y_i g_i = f(y)``, and
at the optimum the bound is met.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, one_thread
from affinedp.designs.bounds import COORDINATES
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import NOTHING_TO_HIDE, range_basis, with_floor
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.exact.rounding import UNIT_ROUNDOFF, gamma
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.privacy.design import LeastProof
from affinedp.privacy.guarantee import promise
from affinedp.privacy.without_list import (
    NORM_ROUNDING,
    UnlistedCircuits,
    UnlistedPart,
    balanced_kernel,
    inverse_root,
    norm_bound,
    times_power_of_two,
    top_sum,
    unlisted_parts,
)
from affinedp.progress import Progress
from affinedp.strategies.dense import Dense

# Beyond this many noises the lower bound for comparison would take minutes.
MOST_COMPARED = 400
COMPARED_BASES = 12
COMPARED_ROUNDS = 5


def design_unlisted(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    weights: Matrix,
    imbalance: float | None,
    cause: TooManyCircuitsError | None = None,
) -> tuple[Mechanism, LeastProof | None]:
    """Return a Gaussian mechanism with certified sensitivity at most ``limit``, and a bound.

    The bound is on what Gaussian noise of sensitivity 1 costs; None where there is none.
    """
    parts = unlisted_parts(adjacency, imbalance, cause)
    certificate = np.zeros(adjacency.manifold.n)
    columns = []
    with Progress("certified noise") as progress:
        for i, part in enumerate(parts):
            image = dense(query[:, part.entries] @ part.kernel)
            cost = image.T @ dense(weights @ image)

            def show(stage: str, gap: float, i: int = i) -> None:
                progress.update(i / len(parts), f"(gap {gap:.0e})")

            if not cost.any():
                continue  # nothing of this component is published
            scaled = part.kernel * part.scale[:, None]
            found = certified_weights(scaled, cost, part.longest, progress=show)
            moment = scaled.T @ (found.weights[:, None] * scaled)
            root = np.linalg.inv(np.linalg.cholesky(moment)).T * (part.reach / limit)
            columns.append(image @ root)
            unit = part.scale * (limit / part.reach)
            certificate[part.entries] = found.weights * unit**2
    if not columns:
        raise AffineDPError(NOTHING_TO_HIDE)
    noise = np.hstack(columns)
    basis = range_basis(noise)
    root = np.linalg.qr((basis.T @ noise).T)[1].T
    strategy = Dense(adjacency.manifold, query, basis, names, root)
    proof = UnlistedCircuits(certificate, imbalance or 0.0)
    crude = promise(adjacency, strategy, Gaussian(), proof)
    factor = crude.sensitivity / limit * (1 + 4e-15)
    mechanism = Mechanism(adjacency, strategy.scaled(factor), Gaussian(), proof.scaled(factor))
    return _compared(mechanism, parts, limit, weights)


def _compared(
    mechanism: Mechanism, parts: list[UnlistedPart], limit: float, weights: Matrix
) -> tuple[Mechanism, LeastProof | None]:
    """Say how far from the least possible this can be, against some of the circuits.

    Least noise for some of the neighbours is a lower bound for all of them.  Circuits of many
    bases are tried, and those that the noise so far protects worst are added.
    """
    import scipy.sparse as sparse

    noise = mechanism.noise_matrix
    cost = float((noise * dense(weights @ noise)).sum())
    note = "a promise for circuits that were not listed: conservative"
    basis = mechanism.dense.basis
    if basis.shape[1] > MOST_COMPARED:
        return mechanism.with_design(notes=(f"{note} (too large to say by how much)",)), None
    weight, floor = with_floor(basis.T @ dense(weights @ basis))
    generator = np.random.default_rng(0)  # a fixed choice: the same design every time
    inverse: FloatArray = np.asarray(np.linalg.inv(mechanism.dense.root))
    chosen = np.zeros((0, basis.shape[1]))
    moves: Matrix = sparse.csc_array((mechanism.manifold.n, 0))
    proof = LeastProof(0.0)
    with Progress("lower bound") as progress:
        for turn in range(COMPARED_ROUNDS):
            tried, differences = [chosen], [moves]
            for part in parts:
                for _ in range(COMPARED_BASES):
                    circuits = _fundamental_circuits(part, mechanism.adjacency, generator)
                    whole = np.zeros((mechanism.manifold.n, circuits.shape[1]))
                    whole[part.entries] = circuits
                    differences.append(sparse.csc_array(whole))
                    tried.append(
                        (basis.T @ dense(mechanism.dense.query[:, part.entries] @ circuits)).T
                    )
            candidates = np.vstack(tried)
            moves = sparse.csc_array(sparse.hstack(differences))
            scores = np.linalg.norm(candidates @ inverse.T, axis=1)
            most = 4 * basis.shape[1]
            kept = np.argsort(-scores[len(chosen) :], kind="stable")[:most] + len(chosen)
            spanning = np.arange(len(chosen), len(candidates)) if turn == 0 else kept
            places = np.concatenate([np.arange(len(chosen)), spanning])
            chosen, moves = candidates[places], moves[:, places]
            found = least_trace(chosen / limit, weight, tol=1e-2)
            if found.lower_bound > proof.value:
                proof = LeastProof(found.lower_bound, moves, found.weights)
            inverse = np.asarray(np.linalg.inv(found.root))
            used = np.flatnonzero(found.weights > 0)
            chosen, moves = chosen[used], moves[:, used]
            progress.update((turn + 1) / COMPARED_ROUNDS)
    below = proof.value
    if cost < below:
        raise AffineDPError(
            "the imbalance is too small: some circuits have entries that differ by more, and the "
            "noise would not protect them"
        )
    compared = mechanism.with_design(
        gap=cost / below - 1,
        notes=(f"{note}, at most {cost / below:.2f} times the least possible squared error",),
    )
    return compared, None if floor else replace(proof, value=below * limit**2 * COORDINATES).kept()


def _fundamental_circuits(
    part: UnlistedPart, adjacency: Adjacency, generator: np.random.Generator
) -> FloatArray:
    """The circuits of one random basis, scaled as neighbours, local entries × free entries."""
    assert isinstance(adjacency, CircuitAdjacency)
    free = _free_of_a_tree(part, generator)
    mu = adjacency.mu[part.entries]
    circuits = part.kernel @ np.linalg.inv(part.kernel[free])
    circuits[np.abs(circuits) < 1e-9] = 0.0
    size = np.abs(circuits)
    reach = np.divide(mu[:, None], size, out=np.zeros_like(size), where=size > 0).max(axis=0)
    return np.asarray(circuits * reach)


def _free_of_a_tree(part: UnlistedPart, generator: np.random.Generator) -> IntArray:
    """Free entries of a random basis; depth-first trees of a network have long circuits."""
    from scipy.linalg import qr

    if part.network is None or generator.random() < 0.25:
        preference = generator.uniform(0.01, 1.0, len(part.entries))
        order = qr((part.kernel * preference[:, None]).T, mode="r", pivoting=True)[1]
        return np.asarray(order[: part.kernel.shape[1]])
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import depth_first_order

    nodes = part.network.nodes
    label = generator.permutation(nodes)
    tail, head = label[part.network.tail], label[part.network.head]
    ends = np.concatenate([[tail, head], [head, tail]], axis=1)
    graph = sparse.csr_array((np.ones(ends.shape[1]), tuple(ends)), shape=(nodes, nodes))
    before = depth_first_order(graph, int(tail[0]), directed=False)[1]
    edge_of = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(tail, head))}
    tree = {
        edge_of.get((int(node), int(parent)), edge_of.get((int(parent), int(node)), -1))
        for node, parent in enumerate(before)
        if parent >= 0
    }
    return np.array([i for i in range(len(part.entries)) if i not in tree], dtype=np.intp)


# ---------------------------------------------------------------------- weights of all circuits


MOST_STEPS = 2_000
# No share is less than this part of the tolerance.
LEAST_SHARE = 1e-2


@dataclass(frozen=True)
class CertifiedWeights:
    """Weights of nearly least error for all circuits of a component, with the proof of it."""

    # y, nonnegative; the ``most`` largest sum to at most 1, rounding included, and ``Kᵀ diag(y) K``
    # is certainly nonsingular; shape (n,)
    weights: FloatArray
    value: float  # ``f(y) = tr(C (Kᵀ diag(y) K)⁻¹)``, rounded up
    # no feasible weights have a smaller value, rounding included.  Noise that is not of this form
    # may still have a smaller trace.
    lower_bound: float
    gap: float  # ``value / lower_bound − 1``
    iterations: int  # steps of the search


def certified_weights(
    kernel: ArrayLike,
    cost: ArrayLike,
    most: SupportsIndex,
    *,
    tol: float = 1e-3,
    progress: Callable[[str, float], None] | None = None,
) -> CertifiedWeights:
    """Return the weights y of least ``tr(C (Kᵀ diag(y) K)⁻¹)`` with a bounded top sum.

    This serves the optimum of Algorithm 1 of the paper where its list of neighbours is out of
    reach; the module's docstring says why the promise then holds for all circuits.

    Notes
    -----
    If C is singular the infimum may not be attained; the weights returned come close to it and keep
    ``Kᵀ diag(y) K`` nonsingular.

    Examples
    --------
    Three shares of a fixed total; each circuit moves something from one share to another.  All
    weights are one half, and the trace 4 is that of the best noise for the listed circuits.

    >>> import numpy as np
    >>> from affinedp.designs.without_list import certified_weights
    >>> kernel = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> best = certified_weights(kernel, kernel.T @ kernel, most=2, tol=1e-6)
    >>> [round(float(y), 3) for y in best.weights], round(best.value, 4), best.gap <= 1e-6
    ([0.5, 0.5, 0.5], 4.0, True)
    """
    if not 1e-8 <= tol < 1.0:
        raise AffineDPError(f"tol is a relative gap, at least 1e-8 and less than 1, not {tol}")
    report = progress or (lambda stage, gap: None)
    points, count = real_array(kernel, "kernel", 2), whole_number(most, "most")
    with one_thread():
        points, exponents = balanced_kernel(points)
        _refuse_if_no_basis(points)
        root, cost_exponent = _root(real_array(cost, "cost", 2), exponents)
        near, dual, iterations = _search(points, root, count, tol, report)
        near = _within_budget(near, count)
        value = _upper_value(points, root, near)
        lower_bound = _lower_bound(points, root, count, dual)
    gap = value / lower_bound - 1.0 if lower_bound > 0.0 else math.inf
    if not gap <= tol:
        raise AffineDPError(
            f"the relative gap could be certified down to {gap:.1e} only, not to tol={tol:.1e}:"
            " pass a larger tol, or a better conditioned kernel (such as an orthonormal one)"
        )
    value, lower_bound = (times_power_of_two(v, cost_exponent) for v in (value, lower_bound))
    return CertifiedWeights(near, value, lower_bound, max(gap, 0.0), iterations)


# --- input ----------------------------------------------------------------------------------------


def _refuse_if_no_basis(points: FloatArray) -> None:
    """Refuse zero rows and dependent columns."""
    zero = np.flatnonzero(~points.any(axis=1))
    if zero.size:
        raise AffineDPError(
            f"row {zero[0]} of kernel is zero: that entry follows from the equations alone and no"
            " noise can protect it; drop it"
        )
    singular = np.linalg.svd(np.linalg.qr(points, mode="r"), compute_uv=False)
    rank = int(np.count_nonzero(singular > len(points) * np.finfo(float).eps * singular[0]))
    if rank < len(singular):
        raise AffineDPError(
            f"kernel has {len(singular)} columns but rank {rank}: pass independent columns"
        )


def _root(cost: FloatArray, exponents: IntArray) -> tuple[FloatArray, int]:
    """Return L with ``L Lᵀ = C / 2^e`` in the coordinates of the balanced kernel, and e."""
    size = len(exponents)
    if cost.shape != (size, size):
        raise AffineDPError(
            f"cost has shape {cost.shape}; a kernel with {size} columns needs ({size}, {size})"
        )
    scale = np.sqrt(np.abs(np.diag(cost)))
    if np.any(np.abs(cost - cost.T) > 1e-12 * np.outer(scale, scale)):
        raise AffineDPError("cost is not symmetric and positive semidefinite: pass (C + C.T) / 2")
    if not cost.any():
        raise AffineDPError("cost is zero: the query does not see this component; leave it out")
    shift = np.add.outer(exponents, exponents)
    cost_exponent = int(np.max((np.frexp(cost)[1] - shift)[cost != 0.0]))
    cost = np.ldexp(0.5 * (cost + cost.T), -shift - cost_exponent)
    values, vectors = np.linalg.eigh(cost)
    if values[0] < -1e-10 * values[-1]:
        raise AffineDPError(
            f"cost is not positive semidefinite: it has the eigenvalue {values[0]:.1e} next to"
            f" {values[-1]:.1e} (in units in which the largest entry is about 1)"
        )
    seen = values > size * np.finfo(float).eps * values[-1]
    root: FloatArray = vectors[:, seen] * np.sqrt(values[seen])
    return root, cost_exponent


# --- the search -----------------------------------------------------------------------------------


def _search(
    points: FloatArray,
    root: FloatArray,
    most: int,
    tol: float,
    report: Callable[[str, float], None],
) -> tuple[FloatArray, FloatArray, int]:
    """Return weights of nearly least value, weights whose gains bound it, and the steps taken.

    Since f is homogeneous of degree −1, its minimum under a budget is, up to scaling, that of
    ``f + prices · shares`` over shares ≥ 0: the only constraints left are signs.
    """
    from scipy.linalg import LinAlgError, cholesky, qr, solve_triangular
    from scipy.optimize import minimize

    basis, triangle = qr(points, mode="economic")
    seen = solve_triangular(triangle, root, trans="T")
    prices = np.append(np.ones(len(basis)), float(most))
    least, bound, steps = math.inf, 0.0, -1
    nearest = dual = np.ones(len(basis))

    def evaluate(shares: FloatArray) -> tuple[float, FloatArray]:
        """f, and minus its slope: the gains of the atoms."""
        scaled = basis * np.sqrt(shares[:-1] + shares[-1])[:, None]
        factor = cholesky(scaled.T @ scaled, lower=True)
        error = solve_triangular(factor, seen, lower=True)
        gains = ((basis @ solve_triangular(factor, error, lower=True, trans="T")) ** 2).sum(axis=1)
        return float(np.sum(error**2)), np.append(gains, gains.sum())

    def value_and_slope(shares: FloatArray) -> tuple[float, FloatArray]:
        nonlocal least, bound, steps, nearest, dual
        try:
            value, gains = evaluate(shares)
        except LinAlgError:
            return math.inf, np.zeros(len(shares))
        weights = shares[:-1] + shares[-1]
        reached = value * float(np.sort(weights)[::-1][:most].sum())
        lower = value**2 / float(np.max(gains / prices))
        if reached < least:
            least, nearest = reached, weights
        if lower > bound:
            bound, dual = lower, weights
        steps += 1
        report("certified weights", max(least / bound - 1.0, 0.0))
        return value + float(prices @ shares), prices - gains

    def until_found(_: FloatArray) -> None:
        # What rounding costs the certificate has to fit into the rest of the tolerance.
        if least / bound - 1.0 <= 0.9 * tol or steps >= MOST_STEPS:
            raise StopIteration

    shares = 0.5 / (prices * np.append(np.full(len(basis), len(basis)), 1.0))
    for _ in range(5):
        value, gains = evaluate(shares)
        shares = shares * np.sqrt(gains / prices)  # f never increases
        shares /= prices @ shares
    # no share is 0: what the cost does not see is measured too, a little
    lowest = LEAST_SHARE * tol / (len(prices) * prices)
    unit = math.sqrt(value)
    minimize(
        value_and_slope, np.maximum(shares, lowest) * unit, jac=True, method="L-BFGS-B",
        bounds=[(low * unit, None) for low in lowest.tolist()], callback=until_found,
        options={"maxiter": MOST_STEPS, "maxcor": 30, "ftol": 1e-16, "gtol": 1e-14},
    )  # fmt: skip
    return nearest, dual, steps


# --- the certificate ------------------------------------------------------------------------------


def _within_budget(weights: FloatArray, most: int) -> FloatArray:
    """Scale the weights until the ``most`` largest certainly sum to at most 1."""
    weights = weights / top_sum(weights, most)
    while top_sum(weights, most) > 1.0:
        weights = weights * (1.0 - 4.0 * UNIT_ROUNDOFF)
    return weights


def _upper_value(points: FloatArray, root: FloatArray, weights: FloatArray) -> float:
    """Return ``tr(L Lᵀ M(y)⁻¹) ≤ ‖X L‖² / s``, rounded up."""
    inverse, shrink = inverse_root(points, weights)
    product = inverse @ root
    error = gamma(len(root) + 20) * norm_bound(np.abs(inverse) @ np.abs(root))
    length = math.sqrt(math.fsum((product**2).ravel())) * (1.0 + 10.0 * UNIT_ROUNDOFF)
    return (length + error) ** 2 / shrink * (1.0 + 10.0 * UNIT_ROUNDOFF)


def _lower_bound(points: FloatArray, root: FloatArray, most: int, weights: FloatArray) -> float:
    """Return ``tr(Lᵀ Z)² / max(max g, Σ g / most)`` for Z near ``M(y)⁻¹ L``, rounded down.

    The inequality holds whatever Z is, so only the rounding of these products counts.
    """
    inverse, _ = inverse_root(points, weights)
    solution = inverse.T @ (inverse @ root)
    terms = (root * solution).ravel()
    trace = math.fsum(terms) - 4.0 * UNIT_ROUNDOFF * math.fsum(np.abs(terms))
    lengths = np.linalg.norm(points @ solution, axis=1)
    errors = np.linalg.norm(np.abs(points) @ np.abs(solution), axis=1)
    lengths += gamma(sum(root.shape) + 20) * NORM_ROUNDING * errors
    gains = lengths**2 * (1.0 + 10.0 * UNIT_ROUNDOFF)
    steepest = max(float(gains.max()), math.fsum(gains) / most)
    return max(trace, 0.0) ** 2 / steepest * (1.0 - 10.0 * UNIT_ROUNDOFF)
