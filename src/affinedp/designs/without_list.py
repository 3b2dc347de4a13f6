"""Gaussian design for neighbours that cannot be listed, with a certified bound.

The best weights are searched for here; :mod:`affinedp.privacy.without_list` proves what they
promise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.designs.bounds import COORDINATES
from affinedp.designs.circuit_weights import certified_weights
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import NOTHING_TO_HIDE, range_basis, with_floor
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.privacy.design import LeastProof
from affinedp.privacy.guarantee import promise
from affinedp.privacy.without_list import UnlistedCircuits, UnlistedPart, unlisted_parts
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
            found = certified_weights(scaled, cost, part.rank + 1, progress=show)
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
