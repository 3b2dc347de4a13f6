"""Gaussian design for neighbours that cannot be listed, with a certified bound.

Let every circuit have entries that differ by a factor of at most κ̄ (1 for network
equations, whose circuits are ±1 up to the scales of the entries).  For weights y ≥ 0 and
``Σ = F K (Kᵀ diag(y) K)⁻¹ Kᵀ Fᵀ`` every scaled circuit v of a component has

    ‖Λ⁺F v‖² ≤ Σ_i y_i v_i² ≤ (κ̄ max μ)² · (sum of the q + 1 largest y_i),

because it has at most q + 1 entries there, q being the component's rank.  No list is
needed; the price is that the bound need not be attained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.designs.circuit_weights import certified_weights, domination_factor, top_sum
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import NOTHING_TO_HIDE, range_basis, with_floor
from affinedp.equations.incidence import Network, network_of
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.circuits.ask import WAYS_OUT
from affinedp.progress import Progress
from affinedp.promise.curves import GaussianCurve
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.verification import find_leak, output_units, whiten

# Beyond this many noises the lower bound for comparison would take minutes.
MOST_COMPARED = 400
COMPARED_BASES = 12
COMPARED_ROUNDS = 5
ROUNDING = 1e-10


@dataclass(frozen=True)
class _Part:
    """A component whose circuits are ±1 in entries multiplied by ``scale``, up to κ̄."""

    entries: IntArray
    kernel: FloatArray
    rank: int
    scale: FloatArray
    reach: float  # κ̄ times the largest scaled μ
    network: Network | None = None
    imbalance: float | None = None


def design_unlisted(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    weights: Matrix,
    imbalance: float | None,
    cause: TooManyCircuitsError | None = None,
) -> Mechanism:
    """Return a Gaussian mechanism with certified sensitivity at most ``limit``.

    Parameters
    ----------
    adjacency : Adjacency
        Definition 4; other neighbours can be listed.
    query : matrix, shape (m, n)
        F.
    names : tuple of str
        Names of the outputs.
    limit : float
        The sensitivity that the promise allows.
    weights : matrix, shape (m, m)
        What squared error costs.
    imbalance : float or None
        κ̄ for all circuits; None to recognise networks.
    cause : TooManyCircuitsError, optional
        Why the circuits were not listed, to be raised again if nothing else works.
    """
    parts = _parts(adjacency, imbalance, cause)
    certificate = np.zeros(adjacency.manifold.n + 1)
    certificate[0] = imbalance or 0.0
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
            found = certified_weights(scaled, cost, part.rank + 1, progress=show)
            moment = scaled.T @ (found.weights[:, None] * scaled)
            root = np.linalg.inv(np.linalg.cholesky(moment)).T * (part.reach / limit)
            columns.append(image @ root)
            unit = part.scale * (limit / part.reach)
            certificate[1 + part.entries] = found.weights * unit**2
    if not columns:
        raise AffineDPError(NOTHING_TO_HIDE)
    noise = np.hstack(columns)
    basis = range_basis(noise)
    root = np.linalg.qr((basis.T @ noise).T)[1].T
    guarantee = certified_promise(adjacency, basis @ root, query, names, certificate)
    factor = guarantee.sensitivity / limit * (1 + 4e-15)
    root = root * factor
    certificate[1:] /= factor**2
    guarantee = certified_promise(adjacency, basis @ root, query, names, certificate)
    mechanism = Mechanism(
        adjacency, query, basis, root, "gaussian", guarantee, names, certificate=certificate
    )
    return _compared(mechanism, parts, limit, weights)


def certified_promise(
    adjacency: Adjacency,
    noise: Matrix,
    query: Matrix,
    names: tuple[str, ...],
    certificate: FloatArray,
) -> Guarantee:
    """Return the guarantee that the weights in ``certificate`` prove, by checking the proof.

    Parameters
    ----------
    adjacency : Adjacency
        Definition 4.
    noise, query : matrices, shapes (m, r) and (m, n)
        Λ and F.
    names : tuple of str
        Names of the outputs.
    certificate : array, shape (n + 1,)
        κ̄ (0 where the network is recognised), then y.
    """
    if certificate.shape != (adjacency.manifold.n + 1,) or np.any(certificate < 0):
        raise AffineDPError("the certificate does not fit the manifold")
    unit = output_units(query, adjacency)
    whitened = whiten(unit @ noise, unit @ query)
    if find_leak(whitened, unit @ query, adjacency) is not None:
        raise AffineDPError("the noise does not cover what the query reveals; rescale the outputs")
    square = 0.0
    for part in _parts(adjacency, float(certificate[0]) or None, None):
        image = dense(whitened.query[:, part.entries])
        if not image.any():
            continue
        y = certificate[1 + part.entries]
        factor = domination_factor(part.kernel, y, image)
        most = top_sum(y / part.scale**2, part.rank + 1)
        square = max(square, factor * most * part.reach**2)
    sensitivity = float(np.sqrt(square)) * (1 + ROUNDING) * (1 + whitened.error)
    return Guarantee(
        law="gaussian",
        sensitivity=sensitivity,
        exact=False,
        neighbours=adjacency.neighbours,
        basis="Theorem 1 with a certified bound over all circuits, none of which was listed",
        curve=GaussianCurve(sensitivity),
        names=adjacency.manifold.names,
        output_names=names,
        method="certified bound",
        warnings=_assumption(float(certificate[0])),
        neighbours_key=adjacency.key,
    )


def _assumption(imbalance: float) -> tuple[str, ...]:
    if not imbalance:
        return ()
    return (
        f"rests on imbalance = {imbalance:g} as it was given: no entry of a circuit is more than "
        "that many times another one; this was not verified",
    )


def longest_move(adjacency: Adjacency, certificate: FloatArray) -> float:
    """Return a bound on ``Σ|v_i|`` over all neighbour directions v, none of them listed.

    Parameters
    ----------
    adjacency : Adjacency
        Definition 4.
    certificate : array, shape (n + 1,)
        As for :func:`certified_promise`.
    """
    parts = _parts(adjacency, float(certificate[0]) or None, None)
    return max((part.rank + 1) * part.reach / float(part.scale.min()) for part in parts)


def _parts(
    adjacency: Adjacency, imbalance: float | None, cause: TooManyCircuitsError | None
) -> list[_Part]:
    """The components with what is known about their circuits; refuse what is not known."""
    if not isinstance(adjacency, CircuitAdjacency):
        raise cause or AffineDPError("imbalance is about the circuits of Definition 4")
    if imbalance is not None and not (np.isfinite(imbalance) and imbalance >= 1):
        raise AffineDPError(f"imbalance is a factor of at least 1, not {imbalance!r}")
    mu = adjacency.mu
    parts = [
        _Part(np.array([i]), np.ones((1, 1)), 0, np.ones(1), float(mu[i]))
        for i in adjacency.loose_entries
    ]
    for component in adjacency.bound_components:
        network = network_of(component)
        if imbalance is None and network is None:
            raise TooManyCircuitsError(
                f"the circuits of a component with {len(component.entries)} entries cannot be "
                "listed, and it is no network, so nothing bounds them. If you know how much the "
                f"entries of a circuit differ at most, pass imbalance=. {WAYS_OUT}",
                cause.estimate if cause is not None else np.inf,
                cause.limit if cause is not None else 0,
            )
        scale, factor = np.ones(len(component.entries)), imbalance or 1.0
        if imbalance is None and network is not None:
            scale = np.abs(network.coefficient)
        reach = factor * float((mu[component.entries] * scale).max())
        kernel = component.kernel()
        parts.append(
            _Part(component.entries, kernel, component.rank, scale, reach, network, imbalance)
        )
    return [part for part in parts if part.reach > 0]


def _compared(mechanism: Mechanism, parts: list[_Part], limit: float, weights: Matrix) -> Mechanism:
    """Say how far from the least possible this can be, against some of the circuits.

    Least noise for some of the neighbours is a lower bound for all of them.  Circuits of many
    bases are tried, and those that the noise so far protects worst are added.
    """
    noise = mechanism.noise_matrix
    cost = float((noise * dense(weights @ noise)).sum())
    note = "a promise for circuits that were not listed: conservative"
    basis = mechanism.basis
    if basis.shape[1] > MOST_COMPARED:
        return replace(mechanism, notes=(f"{note} (too large to say by how much)",))
    weight, _ = with_floor(basis.T @ dense(weights @ basis))
    generator = np.random.default_rng(0)  # a fixed choice: the same design every time
    inverse: FloatArray = np.asarray(np.linalg.inv(mechanism.root))
    chosen = np.zeros((0, basis.shape[1]))
    below = 0.0
    with Progress("lower bound") as progress:
        for turn in range(COMPARED_ROUNDS):
            tried = [chosen]
            for part in parts:
                for _ in range(COMPARED_BASES):
                    moves = _fundamental_circuits(part, mechanism.adjacency, generator)
                    tried.append((basis.T @ dense(mechanism.query[:, part.entries] @ moves)).T)
            candidates = np.vstack(tried)
            scores = np.linalg.norm(candidates @ inverse.T, axis=1)
            most = 4 * basis.shape[1]
            kept = np.argsort(-scores[len(chosen) :], kind="stable")[:most] + len(chosen)
            spanning = np.arange(len(chosen), len(candidates)) if turn == 0 else kept
            chosen = candidates[np.concatenate([np.arange(len(chosen)), spanning])]
            found = least_trace(chosen / limit, weight, tol=1e-2)
            below = max(below, found.lower_bound)
            inverse = np.asarray(np.linalg.inv(found.root))
            chosen = chosen[found.weights > 0]
            progress.update((turn + 1) / COMPARED_ROUNDS)
    if cost < below:
        raise AffineDPError(
            "the imbalance is too small: some circuits have entries that differ by more, and the "
            "noise would not protect them"
        )
    return replace(
        mechanism,
        gap=cost / below - 1,
        notes=(f"{note}, at most {cost / below:.2f} times the least possible squared error",),
    )


def _fundamental_circuits(
    part: _Part, adjacency: Adjacency, generator: np.random.Generator
) -> FloatArray:
    """The circuits of one random basis, scaled as neighbours, local entries × free entries."""
    assert isinstance(adjacency, CircuitAdjacency)
    free = _free_of_a_tree(part, generator)
    mu = adjacency.mu[part.entries]
    circuits = part.kernel @ np.linalg.inv(part.kernel[free])
    circuits[np.abs(circuits) < 1e-9] = 0.0
    size = np.abs(circuits)
    if part.imbalance is not None:
        _refuse_imbalance(size, part.imbalance)
    reach = np.divide(mu[:, None], size, out=np.zeros_like(size), where=size > 0).max(axis=0)
    return np.asarray(circuits * reach)


def _refuse_imbalance(size: FloatArray, imbalance: float) -> None:
    """Refuse an imbalance that a circuit at hand contradicts."""
    least = np.where(size > 0, size, np.inf).min(axis=0)
    found = float((size.max(axis=0) / least).max(initial=1.0))
    if found > imbalance * (1 + 1e-9):
        raise AffineDPError(
            f"imbalance = {imbalance:g} is too small: a circuit has entries that differ by a "
            f"factor of {found:.6g}"
        )


def _free_of_a_tree(part: _Part, generator: np.random.Generator) -> IntArray:
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
