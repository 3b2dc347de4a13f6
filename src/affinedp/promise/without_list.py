"""What Gaussian noise promises to all circuits at once, without a list of them.

Let every circuit have entries that differ by a factor of at most κ̄ (1 for network
equations, whose circuits are ±1 up to the scales of the entries).  For weights y ≥ 0 and
``Σ = F K (Kᵀ diag(y) K)⁻¹ Kᵀ Fᵀ`` every scaled circuit v of a component has

    ‖Λ⁺F v‖² ≤ Σ_i y_i v_i² ≤ (κ̄ max μ)² · (sum of the q + 1 largest y_i),

because it has at most q + 1 entries there, q being the component's rank.  No list is
needed; the price is that the bound need not be attained.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.domains.network import Network, network_of
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.laws.curves import GaussianCurve
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.circuits.ask import WAYS_OUT
from affinedp.promise.domination import domination_factor, top_sum
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.whitening import find_leak, output_units, whiten

ROUNDING = 1e-10


@dataclass(frozen=True)
class UnlistedPart:
    """A component whose circuits are ±1 in entries multiplied by ``scale``, up to κ̄."""

    entries: IntArray
    kernel: FloatArray
    rank: int
    scale: FloatArray
    reach: float  # κ̄ times the largest scaled μ
    network: Network | None = None
    imbalance: float | None = None


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
    for part in unlisted_parts(adjacency, float(certificate[0]) or None, None):
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
        neighbours=adjacency.words,
        basis="Theorem 1 with a certified bound over all circuits, none of which was listed",
        curve=GaussianCurve(sensitivity),
        names=adjacency.manifold.names,
        output_names=names,
        method="certified bound",
        warnings=_assumption(float(certificate[0])),
        neighbours_key=adjacency.key,
        unit=adjacency.unit,
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
    parts = unlisted_parts(adjacency, float(certificate[0]) or None, None)
    return max((part.rank + 1) * part.reach / float(part.scale.min()) for part in parts)


def unlisted_parts(
    adjacency: Adjacency, imbalance: float | None, cause: TooManyCircuitsError | None
) -> list[UnlistedPart]:
    """The components with what is known about their circuits; refuse what is not known."""
    if type(adjacency) is not CircuitAdjacency:
        raise cause or AffineDPError("imbalance is about the circuits of Definition 4")
    if imbalance is not None and not (np.isfinite(imbalance) and imbalance >= 1):
        raise AffineDPError(f"imbalance is a factor of at least 1, not {imbalance!r}")
    mu = adjacency.mu
    parts = [
        UnlistedPart(np.array([i]), np.ones((1, 1)), 0, np.ones(1), float(mu[i]))
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
            UnlistedPart(
                component.entries, kernel, component.rank, scale, reach, network, imbalance
            )
        )
    return [part for part in parts if part.reach > 0]
