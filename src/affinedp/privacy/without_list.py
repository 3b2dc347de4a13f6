"""What Gaussian noise promises to all circuits at once, without a list of them.

Let every circuit have entries that differ by a factor of at most κ̄ (1 for network
equations, whose circuits are ±1 up to the scales of the entries).  For weights y ≥ 0 and
``Σ = F K (Kᵀ diag(y) K)⁻¹ Kᵀ Fᵀ`` every scaled circuit v of a component has

    ‖Λ⁺F v‖² ≤ Σ_i y_i v_i² ≤ (κ̄ max μ)² · (sum of the ``longest`` largest y_i),

because it has no more entries there: one more than the component's rank, and in a network whose
edges go between two sides twice as many as the smaller side has nodes.  No list is needed; the
price is that the bound need not be attained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, dense, one_thread
from affinedp.domains.component import Network, network_of
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.exact.rounding import UNIT_ROUNDOFF, gamma, row_exponents
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.circuits.search import WAYS_OUT
from affinedp.parts import frozen
from affinedp.strategies.base import Largest, Proof, Strategy
from affinedp.strategies.coverage import Span
from affinedp.strategies.dense import Dense
from affinedp.strategies.matrices import in_output_units, whiten

NEGLIGIBLE = 1e-200  # relative; far above what underflow can do, far below what rounding does
NORM_ROUNDING = 1.01  # covers the rounding of a norm of small numbers


def top_sum(weights: ArrayLike, most: int) -> float:
    """Return the sum of the ``most`` largest weights, rounded up.

    No circuit with that many entries, all of size at most 1, has a larger ``Σ_i y_i v_i²``: what
    replaces the maximum over circuits in Theorem 1 of the paper when they cannot be listed.
    """
    values, count = nonnegative_weights(weights), whole_number(most, "most")
    try:
        return math.nextafter(math.fsum(np.sort(values)[::-1][:count]), math.inf)
    except OverflowError:
        raise AffineDPError("the weights are too large to be added: change their units") from None


def domination_factor(kernel: ArrayLike, weights: ArrayLike, whitened: ArrayLike) -> float:
    """Bound the least c with ``‖W v‖² ≤ c Σ_i y_i v_i²`` for all v in the range of the kernel.

    With W the whitened query ``Λ⁺F`` of a Gaussian mechanism (Theorem 1 of the paper), ``√(c ·
    top_sum(y, most))`` bounds its sensitivity to every circuit whose entries are at most 1 in size.
    """
    points, _ = balanced_kernel(real_array(kernel, "kernel", 2))
    values, query = nonnegative_weights(weights), real_array(whitened, "whitened", 2)
    if values.shape != (len(points),) or query.shape[1] != len(points):
        raise AffineDPError(
            f"a kernel with {len(points)} rows needs as many weights (not {values.size}) and"
            f" columns of the whitened query (not {query.shape[1]})"
        )
    if not query.any():
        return 0.0
    # Exact scalings; a smaller weight only makes the factor larger.
    weight_exponent = int(row_exponents(values[None])[0])
    query_exponent = int(row_exponents(query.reshape(1, -1))[0])
    values = np.ldexp(values, -weight_exponent)
    values[values < NEGLIGIBLE] = 0.0
    query = np.ldexp(query, -query_exponent)
    with one_thread():
        inverse, shrink = inverse_root(points, values)
        product = query @ points @ inverse.T
        error = norm_bound(np.abs(query) @ np.abs(points) @ np.abs(inverse.T))
        error = gamma(sum(points.shape) + 20) * error + NEGLIGIBLE
        factor = (math.sqrt(_squared_norm_bound(product)) + error) ** 2 / shrink
    factor *= 1.0 + 10.0 * UNIT_ROUNDOFF
    return times_power_of_two(factor, 2 * query_exponent - weight_exponent)


def nonnegative_weights(weights: ArrayLike) -> FloatArray:
    """Return the weights as a vector, or refuse them."""
    values = real_array(weights, "weights", 1)
    if np.any(values < 0.0):
        place = int(np.argmax(values < 0.0))
        raise AffineDPError(f"weights[{place}] is {values[place]}: weights are nonnegative")
    return values


def balanced_kernel(points: FloatArray) -> tuple[FloatArray, IntArray]:
    """Bring every column to size 1 by powers of two."""
    if points.shape[1] == 0 or len(points) < points.shape[1]:
        raise AffineDPError(
            f"kernel has shape {points.shape}: it needs at least one column, and not more columns"
            " than rows"
        )
    exponents = row_exponents(points.T)
    return np.ldexp(points, -exponents), exponents


def times_power_of_two(value: float, exponent: int) -> float:
    """Multiply by a power of two, or refuse to where that would round."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = float(np.ldexp(value, exponent))
    if not np.finfo(float).tiny <= scaled < math.inf:
        raise AffineDPError(
            "the result leaves the range of double precision: the numbers are too large or too"
            " small; change their units"
        )
    return scaled


def norm_bound(matrix: FloatArray) -> float:
    """Bound the Frobenius norm, and with it the spectral norm, from above."""
    return NORM_ROUNDING * float(np.linalg.norm(matrix))


def inverse_root(points: FloatArray, weights: FloatArray) -> tuple[FloatArray, float]:
    """Return X and a number s > 0 such that ``M(y)⁻¹ ⪯ XᵀX / s``, and nearly equal.

    With ``A = diag(√y) K`` and ``V = A Xᵀ``, ``X M Xᵀ = VᵀV ⪰ s I`` for ``s = σ_min(V)²``.  The
    rounding of V and the distance of ``VᵀV`` from the identity are bounded, so whether X is a good
    inverse is checked, not assumed.
    """
    from scipy.linalg import LinAlgError, solve_triangular

    scaled = points * np.sqrt(weights)[:, None]
    smallest = 0.0
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            triangle = np.linalg.qr(scaled, mode="r")
            inverse = solve_triangular(triangle, np.eye(len(triangle)), trans="T")
            if np.abs(inverse).max() < NEGLIGIBLE**-0.5:  # so that underflow stays negligible
                smallest = _smallest_singular_value(scaled, inverse)
    except LinAlgError:
        pass
    if not smallest > 0.5:
        raise AffineDPError(
            "kernelᵀ diag(weights) kernel is singular to working precision, so the weights do not"
            " bound every direction of the kernel: make more of them positive, or pass a better"
            " conditioned kernel"
        )
    return inverse, smallest**2 * (1.0 - 4.0 * UNIT_ROUNDOFF)


def _smallest_singular_value(scaled: FloatArray, inverse: FloatArray) -> float:
    """Bound the smallest singular value of ``scaled @ inverse.T`` from below."""
    count, size = scaled.shape
    product = scaled @ inverse.T
    departure = norm_bound(product.T @ product - np.eye(size))
    departure += gamma(count + 20) * (norm_bound(product) ** 2 + size)
    error = gamma(size + 20) * norm_bound(np.abs(scaled) @ np.abs(inverse.T)) + NEGLIGIBLE
    if not departure < 1.0:
        return 0.0
    return math.sqrt(1.0 - departure) * (1.0 - 4.0 * UNIT_ROUNDOFF) - error


def _squared_norm_bound(matrix: FloatArray) -> float:
    """Bound the largest eigenvalue of ``matrix.T @ matrix`` from above, and closely.

    From ``G = V diag(λ) Vᵀ + E`` follows ``‖G‖ ≤ max λ · (1 + ‖VᵀV − I‖) + ‖E‖``, for any V and λ.
    """
    if len(matrix) > matrix.shape[1]:
        matrix = matrix.T
    size = len(matrix)
    gram = matrix @ matrix.T
    values, vectors = np.linalg.eigh(gram)
    largest = float(np.max(np.abs(values)))
    rounding = gamma(size + 20) * (norm_bound(vectors) ** 2 + size)
    spread = norm_bound(vectors.T @ vectors - np.eye(size)) + rounding
    residual = norm_bound(gram - (vectors * values) @ vectors.T) + 2.0 * rounding * largest
    formed = gamma(matrix.shape[1] + 20) * norm_bound(matrix) ** 2
    return (largest * (1.0 + spread) + residual + formed) * (1.0 + 10.0 * UNIT_ROUNDOFF)


ROUNDING = 1e-10
# Bases whose circuits are asked whether an imbalance is possible.
TRIED_BASES = 12


@dataclass(frozen=True)
class UnlistedPart:
    """A component whose circuits are ±1 in entries multiplied by ``scale``, up to κ̄."""

    entries: IntArray
    kernel: FloatArray
    longest: int  # how many entries a circuit has at most
    scale: FloatArray
    reach: float  # κ̄ times the largest scaled μ
    network: Network | None = None
    imbalance: float | None = None


@dataclass(frozen=True, eq=False)
class UnlistedCircuits(Proof):
    """Weights that bound Gaussian noise for all circuits at once."""

    kind = "unlisted circuits"
    # y; shape (n,)
    weights: np.ndarray = field(repr=False)
    # κ̄ as somebody gave it; 0 where networks are recognised
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
        whitened = whiten(*in_output_units(strategy.noise, query, adjacency))
        if strategy.leak(law, Span.of(adjacency)) is not None:
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
            most = top_sum(y / part.scale**2, part.longest)
            square = max(square, factor * most * part.reach**2)
        upper = float(np.sqrt(square)) * (1 + ROUNDING) * (1 + whitened.error)
        return Largest(
            0.0, upper, False, "certified bound", warnings=_assumption(self.imbalance),
            because=" with a certified bound over all circuits, none of which was listed",
        )  # fmt: skip

    def longest(self, adjacency: Adjacency) -> float:
        """Return a bound on ``Σ|v_i|`` over all neighbour directions v, none of them listed."""
        parts = unlisted_parts(adjacency, self.imbalance or None, None)
        return max(part.longest * part.reach / float(part.scale.min()) for part in parts)

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
    """Refuse an imbalance that circuits of some bases contradict."""
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
        UnlistedPart(np.array([i]), np.ones((1, 1)), 1, np.ones(1), float(mu[i]))
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
        longest = component.rank + 1
        if imbalance is None and network is not None:
            scale, longest = np.abs(network.coefficient), network.longest
        reach = factor * float((mu[component.entries] * scale).max())
        kernel = component.kernel()
        parts.append(
            UnlistedPart(component.entries, kernel, longest, scale, reach, network, imbalance)
        )
    return [part for part in parts if part.reach > 0]
