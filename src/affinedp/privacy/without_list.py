"""What Gaussian noise promises to all circuits at once, without a list of them.

Let every circuit have entries that differ by a factor of at most κ̄ (1 for network
equations, whose circuits are ±1 up to the scales of the entries).  For weights y ≥ 0 and
``Σ = F K (Kᵀ diag(y) K)⁻¹ Kᵀ Fᵀ`` every scaled circuit v of a component has

    ‖Λ⁺F v‖² ≤ Σ_i y_i v_i² ≤ (κ̄ max μ)² · (sum of the q + 1 largest y_i),

because it has at most q + 1 entries there, q being the component's rank.  No list is
needed; the price is that the bound need not be attained.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from affinedp.arrays import FloatArray, IntArray, dense
from affinedp.domains.network import Network, network_of
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.circuits.ask import WAYS_OUT
from affinedp.parts import frozen
from affinedp.privacy.domination import domination_factor, top_sum
from affinedp.strategies.base import Largest, Proof, Strategy
from affinedp.strategies.coverage import Span, bare_combination, noise_range
from affinedp.strategies.dense import Dense
from affinedp.strategies.whitening import output_units, whiten

ROUNDING = 1e-10
# Bases whose circuits are asked whether an imbalance is possible.
TRIED_BASES = 12


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


@dataclass(frozen=True, eq=False)
class UnlistedCircuits(Proof):
    """Weights that bound Gaussian noise for all circuits at once.

    Attributes
    ----------
    weights : array, shape (n,)
        y.
    imbalance : float
        κ̄ as somebody gave it; 0 where networks are recognised.
    """

    kind = "unlisted circuits"
    weights: np.ndarray = field(repr=False)
    imbalance: float = 0.0

    def __post_init__(self) -> None:
        weights = frozen(self.weights)
        object.__setattr__(self, "weights", weights)
        if weights.ndim != 1 or not np.all(np.isfinite(weights)) or np.any(weights < 0):
            raise AffineDPError("weights that prove a promise are numbers of at least 0")

    def largest(self, strategy: Strategy, adjacency: Adjacency, law: Law) -> Largest:
        """Return the bound that the weights prove, by checking the proof."""
        if type(strategy) is not Dense or type(law) is not Gaussian:
            raise AffineDPError("weights on circuits prove Gaussian noise of matrices only")
        if self.weights.shape != (adjacency.manifold.n,):
            raise AffineDPError("the weights do not fit the manifold")
        query = strategy.query
        unit = output_units(query, adjacency)
        whitened = whiten(unit @ strategy.noise, unit @ query)
        bare = noise_range(strategy, law)
        if bare_combination(bare, query, Span.of(adjacency), strategy.error) is not None:
            raise AffineDPError(
                "the noise does not cover what the query reveals; rescale the outputs"
            )
        square = 0.0
        for part in unlisted_parts(adjacency, self.imbalance or None, None):
            if part.imbalance is not None:
                refuse_imbalance(part, part.imbalance)
            image = dense(whitened.query[:, part.entries])
            if not image.any():
                continue
            y = self.weights[part.entries]
            factor = domination_factor(part.kernel, y, image)
            most = top_sum(y / part.scale**2, part.rank + 1)
            square = max(square, factor * most * part.reach**2)
        upper = float(np.sqrt(square)) * (1 + ROUNDING) * (1 + whitened.error)
        return Largest(
            0.0, upper, False, "certified bound", warnings=_assumption(self.imbalance),
            because=" with a certified bound over all circuits, none of which was listed",
        )  # fmt: skip

    def longest(self, adjacency: Adjacency) -> float:
        """Return a bound on ``Σ|v_i|`` over all neighbour directions v, none of them listed."""
        parts = unlisted_parts(adjacency, self.imbalance or None, None)
        return max((part.rank + 1) * part.reach / float(part.scale.min()) for part in parts)

    def scaled(self, factor: float) -> UnlistedCircuits:
        """Return the proof for noise that is larger by a factor."""
        return replace(self, weights=self.weights / factor**2)


def _assumption(imbalance: float) -> tuple[str, ...]:
    if not imbalance:
        return ()
    return (
        f"rests on imbalance = {imbalance:g} as it was given: no entry of a circuit is more than "
        "that many times another one; this was not verified",
    )


def refuse_imbalance(part: UnlistedPart, imbalance: float) -> None:
    """Refuse an imbalance that circuits of some bases contradict.

    Parameters
    ----------
    part : UnlistedPart
        A component.
    imbalance : float
        κ̄ as it was given.
    """
    from scipy.linalg import qr

    generator = np.random.default_rng(0)  # a fixed choice: the same answer every time
    for _ in range(TRIED_BASES):
        preference = generator.uniform(0.01, 1.0, len(part.entries))
        order = qr((part.kernel * preference[:, None]).T, mode="r", pivoting=True)[1]
        circuits = part.kernel @ np.linalg.inv(part.kernel[order[: part.kernel.shape[1]]])
        size = np.abs(circuits)
        size[size < 1e-9] = 0.0
        least = np.where(size > 0, size, np.inf).min(axis=0)
        found = float((size.max(axis=0) / least).max(initial=1.0))
        if found > imbalance * (1 + 1e-9):
            raise AffineDPError(
                f"imbalance = {imbalance:g} is too small: a circuit has entries that differ by a "
                f"factor of {found:.6g}"
            )


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
