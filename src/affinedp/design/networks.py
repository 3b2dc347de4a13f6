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

from affinedp._arrays import FloatArray, IntArray, Matrix, dense
from affinedp.adjacency import Adjacency, CircuitAdjacency
from affinedp.circuits import WAYS_OUT, Component
from affinedp.curves import GaussianCurve
from affinedp.design.blocks import range_basis
from affinedp.design.least_trace import least_trace
from affinedp.design.unlisted import certified_weights, domination_factor, top_sum
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.guarantee import Guarantee
from affinedp.mechanism import Mechanism
from affinedp.network import recognise_network
from affinedp.progress import Progress
from affinedp.verification import whiten

# Beyond this many noises the lower bound for comparison would take minutes.
MOST_COMPARED = 400
COMPARED_BASES = 4
ROUNDING = 1e-10


@dataclass(frozen=True)
class _Part:
    """A component whose circuits are ±1 in entries multiplied by ``scale``, up to κ̄."""

    entries: IntArray
    kernel: FloatArray
    rank: int
    scale: FloatArray
    reach: float  # κ̄ times the largest scaled μ


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
            certificate[1 + part.entries] = (
                found.weights * part.scale**2 * (limit / part.reach) ** 2
            )
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
    whitened = whiten(noise, query)
    span = dense(query @ adjacency.span())
    for rows, uncovered in whitened.uncovered:
        bare = dense(uncovered @ adjacency.span())
        if np.abs(bare).max(initial=0.0) > 1e-9 * np.abs(span[rows]).max(initial=0.0):
            raise AffineDPError("the noise does not cover what the query reveals")
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
        neighbours_key=adjacency.key,
    )


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
        scale, factor = _known_scale(component, imbalance)
        if scale is None:
            raise TooManyCircuitsError(
                f"the circuits of a component with {len(component.entries)} entries cannot be "
                "listed, and it is no network, so nothing bounds them. If you know how much the "
                f"entries of a circuit differ at most, pass imbalance=. {WAYS_OUT}",
                cause.estimate if cause is not None else np.inf,
                cause.limit if cause is not None else 0,
            )
        reach = factor * float((mu[component.entries] * scale).max())
        parts.append(_Part(component.entries, component.kernel(), component.rank, scale, reach))
    return [part for part in parts if part.reach > 0]


def _known_scale(component: Component, imbalance: float | None) -> tuple[FloatArray | None, float]:
    if imbalance is not None:
        return np.ones(len(component.entries)), imbalance
    network = recognise_network(component.equations)
    return (None, 1.0) if network is None else (np.abs(network.coefficient), 1.0)


def _compared(mechanism: Mechanism, parts: list[_Part], limit: float, weights: Matrix) -> Mechanism:
    """Say how far from the least possible this can be, against some of the circuits."""
    noise = mechanism.noise_matrix
    cost = float((noise * dense(weights @ noise)).sum())
    note = "a promise for circuits that were not listed: conservative"
    rank = mechanism.basis.shape[1]
    if rank > MOST_COMPARED:
        return replace(mechanism, notes=(f"{note} (too large to say by how much)",))
    directions = np.hstack([_some_directions(part, mechanism.adjacency) for part in parts])
    image = dense(mechanism.query @ directions)
    weight = mechanism.basis.T @ dense(weights @ mechanism.basis)
    below = least_trace((mechanism.basis.T @ image).T / limit, weight, tol=1e-2).lower_bound
    return replace(
        mechanism,
        gap=cost / below - 1,
        notes=(f"{note}, at most {cost / below:.2f} times the least possible squared error",),
    )


def _some_directions(part: _Part, adjacency: Adjacency) -> FloatArray:
    """Fundamental circuits of a few bases, scaled as neighbours: a fixed choice."""
    from scipy.linalg import qr

    assert isinstance(adjacency, CircuitAdjacency)
    generator = np.random.default_rng(0)
    mu = adjacency.mu[part.entries]
    found = []
    for _ in range(COMPARED_BASES):
        preference = generator.uniform(0.01, 1.0, len(part.entries))
        free = qr((part.kernel * preference[:, None]).T, mode="r", pivoting=True)[1]
        free = free[: part.kernel.shape[1]]
        circuits = part.kernel @ np.linalg.inv(part.kernel[free])
        circuits[np.abs(circuits) < 1e-9] = 0.0
        size = np.abs(circuits)
        # only what certainly is a neighbour may count in a lower bound
        reach = np.divide(mu[:, None], size, out=np.zeros_like(size), where=size > 0).max(axis=0)
        block = np.zeros((adjacency.manifold.n, circuits.shape[1]))
        block[part.entries] = circuits * reach
        found.append(block)
    return np.hstack(found)
