"""What is said about a design beside its promise: bounds, what was compared, what was asked.

What no mechanism of any law goes below is in :mod:`affinedp.privacy.least_error`.  A proof of what
no noise goes below is moves and shares, checked on their own: for shares λ of moves n_k between
neighbours, ``Σ λ_k = 1``, and weights ``W = L Lᵀ`` every noise of sensitivity 1 costs at least
``‖Lᵀ F N diag(√λ)‖_*²`` (the sum of singular values, squared), since with ``S = Σ λ_k n_k n_kᵀ`` it
has ``tr(Σ⁻¹ S) ≤ 1``, and ``tr(W Σ) tr(Σ⁻¹ S)`` is at least that by Cauchy and Schwarz.  Any shares
will do, so that a file may state them: what they prove is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from affinedp.arrays import FloatArray, Matrix, connected_parts, dense
from affinedp.errors import AffineDPError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.parts import Part
from affinedp.privacy.guarantee import Asked
from affinedp.privacy.least_error import Data, least_sum_of_three, least_variance
from affinedp.strategies.base import Sent
from affinedp.strategies.one_sum import dual_of_sum, is_one_sum

# Rounding of moves and of singular values is far below this share.
ROUNDING = 5e-10
# Moves in a file are those between neighbours up to this share.
SAME = 1e-12
# A support with a second null vector this near to one is no circuit for sure.
SINGULAR = 1e-9
# Shares that together are less than this are left out.
LEFT_OUT = 1e-10
MOST_NUMBERS = 2_000_000
# Words of notes that compare with noise which was designed, too, and is not kept.
COMPARING = (
    "of the laws compared",
    "no other law was compared",
    "the best of what was compared",
    "the law of least cost",
)


def compares(note: str) -> bool:
    """Return whether a note compares with other noise, which a file of one mechanism cannot prove.

    Examples
    --------
    >>> compares("the law of least cost, relative to it: gaussian 1, knorm 2"), compares("exact")
    (True, False)
    """
    return any(words in note for words in COMPARING)


@dataclass(frozen=True, eq=False)
class LeastProof(Part):
    """A lower bound on what Gaussian noise of sensitivity 1 costs, and its proof."""

    kind = "least proof"
    # the bound, rounded down
    value: float
    # differences of neighbours; None where the bound is in closed form; shape (n, K)
    moves: Matrix | None = None
    # how much each of them counts; shape (K,)
    shares: FloatArray | None = None
    # for the largest variance: weights of sum 1, whose weighted error it is at least; shape (m,)
    weights: FloatArray | None = None

    def kept(self) -> LeastProof:
        """Return the same bound with the moves that matter, or none if they are too many."""
        import scipy.sparse as sparse

        if self.moves is None or self.shares is None:
            return self
        order = np.argsort(-self.shares, kind="stable")
        left = self.shares.sum() - np.cumsum(self.shares[order])
        count = int(np.searchsorted(-left, -LEFT_OUT * self.shares.sum())) + 1
        chosen = np.sort(order[:count])
        moves = sparse.csc_array(self.moves[:, chosen])
        if moves.nnz > MOST_NUMBERS:
            return LeastProof(self.value, weights=self.weights)
        return LeastProof(self.value, moves, self.shares[chosen], self.weights)


def proven_value(
    proof: LeastProof, adjacency: Adjacency, query: Matrix, weights: Matrix, integers: bool
) -> float:
    """Return the bound that the moves and shares really prove; 0 where they prove none."""
    if proof.moves is None or proof.shares is None:
        known = dual_of_sum(adjacency, weights, integers) if is_one_sum(adjacency, query) else None
        return known or 0.0
    moves, shares = dense(proof.moves), proof.shares
    if moves.shape != (adjacency.manifold.n, len(shares)) or not moves.shape[1]:
        return 0.0
    if not (np.all(np.isfinite(moves)) and np.all(np.isfinite(shares)) and np.all(shares >= 0)):
        return 0.0
    if not shares.sum() > 0 or not all(is_move(adjacency, column) for column in moves.T):
        return 0.0
    image = dense(query @ (moves * np.sqrt(shares)))
    total = 0.0
    for left, right in _blocks(weights, image):
        total += float(np.linalg.svd(left.T @ right, compute_uv=False).sum())
    return total**2 / math.fsum(shares) * (1 - ROUNDING)


def _blocks(weights: Matrix, image: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """A factor L with ``L Lᵀ`` at most W, and the outputs, in parts that have nothing in common."""
    import scipy.sparse as sparse

    reach = sparse.csr_array(sparse.hstack([sparse.csr_array(weights), sparse.csr_array(image)]))
    found = []
    for outputs, columns in connected_parts(reach):
        moved = columns[columns >= len(image)] - len(image)
        if not len(outputs) or not len(moved):
            continue
        part = dense(weights[outputs][:, outputs])
        values, vectors = np.linalg.eigh((part + part.T) / 2)
        # smaller by more than the computed eigenvalues may be off
        low = np.maximum(values - 1e-14 * len(values) * max(values[-1], 0.0), 0.0)
        if np.count_nonzero(part - np.diag(np.diagonal(part))) == 0:
            vectors, low = np.eye(len(part)), np.diagonal(part).clip(min=0.0)
        found.append((vectors * np.sqrt(low), image[np.ix_(outputs, moved)]))
    return found


def is_move(adjacency: Adjacency, move: FloatArray) -> bool:
    """Whether neighbours differ by this vector, up to its rounding; False where that is unclear."""
    equations, size = adjacency.manifold.D, np.abs(move)
    off = np.abs(equations @ move) > SAME * (abs(equations) @ size)
    if not size.any() or np.any(off):
        return False
    if type(adjacency) is CircuitAdjacency:
        return _is_circuit(adjacency, move)
    if type(adjacency) is FreeSetAdjacency:
        small = SAME * size.max()
        moved = [[j for j in entries if size[j] > small] for entries in adjacency.free_sets]
        far = [entries[0] for entries in moved if len(entries) == 1]
        return any(size[j] <= adjacency.mu[j] * (1 + SAME) for j in far)
    listed = adjacency.directions(10**9)
    near = [np.abs(listed - side[:, None]).max(axis=0).min() for side in (move, -move)]
    return bool(min(near) <= SAME * size.max())


def _is_circuit(adjacency: CircuitAdjacency, move: FloatArray) -> bool:
    """Whether the entries that move are tied by one relation only, and move no farther than μ."""
    support = np.flatnonzero(move)
    size, mu = np.abs(move[support]), adjacency.mu[support]
    if not np.any((mu > 0) & (size <= mu * (1 + SAME))):
        return False
    if len(support) == 1:
        return True
    rows = dense(adjacency.manifold.D[:, support]) * size
    largest = np.abs(rows).max(axis=1)
    rows = rows[largest > 0] / largest[largest > 0, None]
    if len(rows) < len(support) - 1:
        return False
    values = np.linalg.svd(rows, compute_uv=False)
    return bool(values[len(support) - 2] > SINGULAR * values[0])


# ---------------------------------------------------------------------- what is said


Objective = Literal["sum", "largest"]
# What rounding of the error may hide.
UP = 1 + 1e-12


def is_weighted(weights: Matrix) -> bool:
    """Whether weights are others than 1 for every output."""
    import scipy.sparse as sparse

    return bool(abs(sparse.csr_array(weights) - sparse.eye_array(weights.shape[0])).max() > 0)


def error_words(objective: Objective, weighted: bool) -> str:
    """Return what is to be least, in words."""
    if objective == "largest":
        return "largest variance"
    return "weighted squared error" if weighted else "squared error"


@dataclass(frozen=True)
class LeastPossible(Part):
    """What no mechanism with the same promise can go below, and what this one costs."""

    kind = "least possible"
    # certified dual value of the Gaussian design at sensitivity 1, rounded down
    dual: float
    # what the mechanism costs: its weighted expected squared error, or its largest variance
    error: float
    # epsilon, delta: the promise of one release that is compared
    epsilon: float
    delta: float = 0.0
    # ``"any"`` holds for real numbers, and for whole ones where all moves are whole; ``"real"`` for
    # real numbers only; ``"integer"`` where only whole numbers occur
    data: Data = "any"
    # what ``error`` counts
    objective: Objective = "sum"
    # the weight that all outputs share, where they are three whole numbers with one public sum,
    # moved by one; 0 elsewhere.  There the least is known
    sum_of_three: float = 0.0
    # what squared error costs; shape (m, m)
    weights: Matrix | None = field(default=None, repr=False, compare=False)
    # why ``dual`` holds; both are for files, which are checked when they are read
    proof: LeastProof | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = (self.dual, self.error, self.epsilon, self.delta, self.sum_of_three)
        if not all(math.isfinite(number) and number >= 0.0 for number in numbers):
            raise AffineDPError(f"a least possible error cannot have the numbers {numbers}")
        if self.objective not in ("sum", "largest"):
            raise AffineDPError("a least possible error is about the sum or the largest variance")
        if self.error * UP < self.bound:
            raise AffineDPError(
                f"an error of {self.error!r} is below the least that is possible, {self.bound!r}"
            )

    @cached_property
    def bound(self) -> float:
        """What no mechanism goes below; see :meth:`sentence` for which mechanisms and data."""
        general = least_variance(self.epsilon, self.delta, self.data) * self.dual * (1 - 1e-15)
        if self._three_is_known:
            return max(general, least_sum_of_three(self.epsilon) * self.sum_of_three * (1 - 1e-15))
        return general

    @property
    def excess(self) -> float:
        """How many times the bound the error is at most, rounded up; inf where the bound is 0."""
        return self.error / self.bound * UP if self.bound > 0.0 else math.inf

    @property
    def is_weighted(self) -> bool:
        """Whether outputs count more or less than once each."""
        return self.weights is not None and is_weighted(self.weights)

    @property
    def what(self) -> str:
        """What the error counts, in words."""
        return error_words(self.objective, self.is_weighted)

    @property
    def _three_is_known(self) -> bool:
        return self.sum_of_three > 0.0 and self.delta == 0.0 and self.data == "integer"

    @property
    def scope(self) -> str:
        """Which data the bound is about, in words."""
        kind = {"any": "data", "real": "real data", "integer": "whole numbers"}[self.data]
        return f"{kind} anywhere on the manifold; data that is confined is not covered"

    def sentence(self) -> str:
        """Say how near to the least possible this is, for whom, and under which promise."""
        what = self.what
        promise = f"ε = {self.epsilon:.6g}" + (f", δ = {self.delta:.3g}" if self.delta else "")
        times = _rounded_up(self.excess)
        near = "the least" if times == "1.00" else f"at most {times} times the least"
        return f"{what} {near} that any mechanism with {promise} can do ({self.scope})"


@dataclass(frozen=True)
class Alternative(Part):
    """Another law for the same promise, and what it would have cost."""

    kind = "alternative"
    # ``"gaussian"``, ``"laplace"``, ``"knorm"`` or ``"staircase"``
    law: str
    # weighted expected squared error, or largest variance, of one release; where the law was not
    # designed, what it costs at least
    error: float
    # whether it was designed; if not, ``reason`` says why
    designed: bool = True
    # why it was not designed; otherwise which way to add noise it is, if that has a name
    reason: str = ""

    @property
    def words(self) -> str:
        """The law, and which way to add noise it is."""
        return f"{self.reason} ({self.law})" if self.designed and self.reason else self.law


def _rounded_up(value: float) -> str:
    """Two digits after the point, more than the value unless only rounding is dropped."""
    return f"{math.ceil(value * 100 * (1 - 1e-9)) / 100:.2f}" if value < 1e6 else f"{value:.3g}"


@dataclass(frozen=True, eq=False)
class Design(Part):
    """How a mechanism came about; nothing in it decides what is released or promised."""

    kind = "design"
    # certified relative distance of the (weighted) error to the least possible of this law; None
    # where there is no certificate
    gap: float | None = None
    # what a reader should know
    notes: tuple[str, ...] = ()
    # what no mechanism of any law with this promise can go below; None where it is not known
    least: LeastPossible | None = None
    # what else was compared, with its error
    alternatives: tuple[Alternative, ...] = ()
    # what it costs where it was compared: its weighted squared error
    error: float | None = None
    # what somebody asked for; the mechanism keeps it
    asked: Asked | None = None
    # of noise on a plant's outputs: what is sent with the sensors that it was designed for
    sent: Sent | None = None
