"""Symmetries of the equations, and the least Gaussian noise that has them, without a list of moves.

A signed permutation that keeps the equations, μ and the weights takes moves to moves.  The problem
of least noise is convex, so some least noise is the same under all of them: the worst move counts
with all its images, and a few of these stand for a list that is too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, is_identity
from affinedp.designs.bounds import COORDINATES, LeastGaussian
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import UNITS
from affinedp.exact.numbers import check_squares
from affinedp.exact.rational import coprime
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.privacy.design import LeastProof

# Entries up to which symmetries are looked for, and refinements that this may take.
MOST_ENTRIES = 60
MOST_REFINED = 2_000
# Whole numbers of equations and kernels up to which their products are exact in doubles.
MOST_WHOLE = 2.0**20
# Numbers of the projector that are closer are equal; what is found is checked exactly.
DIGITS = 9
# An odd number of 64 bits that spreads others, so that sums of them tell sets apart.
SPREAD = np.uint64(0x9E3779B97F4A7C15)
# Random products of so many symmetries take a move to its images, of which so many per unknown.
WALK = 30
IMAGES = 3
# Moves that are added in turn until none sticks out by more than this share.
ROUNDS = 8
STICKS_OUT = 1e-6
ROUNDED = 1e-9


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A signed permutation: entry i goes to ``to[i]``, times ``signs[i]``."""

    to: IntArray
    signs: FloatArray

    def image(self, rows: FloatArray) -> FloatArray:
        """Return where rows of entries go."""
        found = np.empty_like(rows)
        found[:, self.to] = rows * self.signs
        return found


@dataclass(frozen=True, eq=False)
class Symmetries:
    """Signed permutations that generate a group, and the averages over it."""

    generators: list[Symmetry]

    def images(self, move: FloatArray, most: int, generator: np.random.Generator) -> FloatArray:
        """Return some of the images of a move, as rows that differ by more than a sign."""
        found = np.repeat(move[None], most, axis=0)
        for _ in range(WALK):
            chosen = generator.integers(len(self.generators) + 1, size=most)
            for i, one in enumerate(self.generators):
                found[chosen == i] = one.image(found[chosen == i])
        lead = found[np.arange(most), np.argmax(found != 0, axis=1)]
        return np.unique(np.vstack([move, found * np.sign(lead)[:, None]]), axis=0)

    @cached_property
    def _orbitals(self) -> tuple[IntArray, FloatArray]:
        """Classes of pairs of entries that go to each other, and signs; 0 where signs cancel."""
        size = len(self.generators[0].to)
        label, sign = np.full(size * size, -1), np.zeros(size * size)
        steps = [
            (
                (one.to[:, None] * size + one.to).ravel().tolist(),
                np.outer(one.signs, one.signs).ravel().tolist(),
            )
            for one in self.generators
        ]
        cancelled = set()
        for start in range(size * size):
            if label[start] >= 0:
                continue
            label[start], sign[start], waiting = start, 1.0, [start]
            while waiting:
                pair = waiting.pop()
                for to, signs in steps:
                    other, value = to[pair], sign[pair] * signs[pair]
                    if label[other] < 0:
                        label[other], sign[other] = start, value
                        waiting.append(other)
                    elif sign[other] != value:
                        cancelled.add(start)
        sign[np.isin(label, list(cancelled))] = 0.0
        return label, sign

    def average(self, matrix: FloatArray) -> FloatArray:
        """Return the mean of a matrix over the group."""
        label, sign = self._orbitals
        total = np.bincount(label, sign * matrix.ravel(), matrix.size)
        count = np.maximum(np.bincount(label, minlength=matrix.size), 1)
        return np.asarray((sign * (total / count)[label]).reshape(matrix.shape))


def symmetries_of(adjacency: Adjacency, query: Matrix, weights: Matrix) -> Symmetries | None:
    """Return the symmetries of a problem that publishes every entry; None where there are none."""
    manifold = adjacency.manifold
    size = manifold.n
    if type(adjacency) is not CircuitAdjacency or size > MOST_ENTRIES:
        return None
    costs = dense(weights)
    if not is_identity(query, size) or np.count_nonzero(costs - np.diag(np.diagonal(costs))):
        return None
    kernel, equations = dense(manifold.kernel), np.zeros(manifold.D.shape)
    for own, row in zip(equations, manifold.rational_rows):
        whole = coprime(row)
        own[list(whole)] = [float(value) for value in whole.values()]
    for numbers in (kernel, equations):
        if np.any(numbers != np.rint(numbers)) or np.abs(numbers).max(initial=0) > MOST_WHOLE:
            return None
    if not kernel.shape[1] or np.any(equations @ kernel):
        return None
    basis = np.linalg.qr(kernel)[0]
    colours = np.unique(
        np.column_stack([adjacency.mu, np.diagonal(costs)]), axis=0, return_inverse=True
    )[1].ravel()
    found = [
        one
        for one in _Search(basis @ basis.T).generators(colours)
        if not np.any(equations @ one.image(kernel.T).T)
    ]
    return Symmetries(found) if found else None


class _Search:
    """Individualise an entry, refine, and compare: what maps one colouring to another."""

    def __init__(self, projector: FloatArray) -> None:
        self.projector = np.round(projector, DIGITS)
        count = len(projector)
        self.edges = np.unique(np.abs(self.projector), return_inverse=True)[1].reshape(count, count)
        self.left = MOST_REFINED

    def generators(self, colours: IntArray) -> Iterator[Symmetry]:
        """Yield symmetries that fix more and more entries, one for every further image."""
        both = self._refined(colours, colours)
        while both is not None:
            own = both[0]
            sizes = np.bincount(own)
            if sizes.max() == 1:
                return
            entries = np.flatnonzero(own == np.argmax(sizes))
            first, reached = int(entries[0]), {int(entries[0])}
            level: list[Symmetry] = []
            for entry in entries[1:].tolist():
                if entry in reached:
                    continue
                one = self._mapping(_marked(own, first), _marked(own, entry))
                if one is not None:
                    yield one
                    level.append(one)
                    reached = _orbit(first, level)
            both = self._refined(_marked(own, first), _marked(own, first))

    def _mapping(self, one: IntArray, other: IntArray) -> Symmetry | None:
        both = self._refined(one, other)
        if both is None:
            return None
        one, other = both
        sizes = np.bincount(one)
        large = np.flatnonzero(sizes > 1)
        if not len(large):
            to = np.empty(len(one), dtype=np.intp)
            to[np.argsort(one)] = np.argsort(other)
            return self._signed(to)
        colour = large[np.argmin(sizes[large])]
        entry = int(np.flatnonzero(one == colour)[0])
        for image in np.flatnonzero(other == colour).tolist():
            found = self._mapping(_marked(one, entry), _marked(other, image))
            if found is not None:
                return found
        return None

    def _refined(self, one: IntArray, other: IntArray) -> tuple[IntArray, IntArray] | None:
        """Colours that tell what an entry is tied to; None where the two cannot be matched."""
        size = len(one)
        while self.left > 0:
            self.left -= 1
            rows = [self._seen(own) for own in (one, other)]
            label = np.unique(np.concatenate(rows), return_inverse=True)[1]
            first, second = label[:size], label[size:]
            if np.any(
                np.bincount(first, minlength=2 * size) != np.bincount(second, minlength=2 * size)
            ):
                return None
            _, first, counts = np.unique(label[:size], return_inverse=True, return_counts=True)
            second = np.searchsorted(np.unique(label[:size]), second)
            if len(counts) == len(np.unique(one)):
                return first, second
            one, other = first, second
        return None

    def _seen(self, own: IntArray) -> NDArray[np.uint64]:
        """Its colour and what every entry is tied to, as a number that hardly two others share."""
        mixed = (self.edges * (2 * len(own) + 1) + own).astype(np.uint64) * SPREAD
        mixed ^= mixed >> np.uint64(29)
        return np.asarray((mixed * SPREAD).sum(axis=1) * SPREAD + own.astype(np.uint64))

    def _signed(self, to: IntArray) -> Symmetry | None:
        """The permutation with signs that keep the projector, if there are some."""
        given, image = self.projector, self.projector[np.ix_(to, to)]
        if np.any(np.abs(given) != np.abs(image)):
            return None
        signs = np.zeros(len(to))
        for start in range(len(to)):
            if signs[start]:
                continue
            signs[start], waiting = 1.0, [start]
            while waiting:
                i = waiting.pop()
                for j in np.flatnonzero((given[i] != 0) & (signs == 0)).tolist():
                    signs[j] = signs[i] * np.sign(given[i, j] * image[i, j])
                    waiting.append(j)
        return Symmetry(to, signs)


def _marked(colours: IntArray, entry: int) -> IntArray:
    found = colours.copy()
    found[entry] = colours.max() + 1
    return found


def _orbit(start: int, generators: list[Symmetry]) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        entry = waiting.pop()
        for one in generators:
            image = int(one.to[entry])
            if image not in found:
                found.add(image)
                waiting.append(image)
    return found


def _unseen(moves: FloatArray) -> FloatArray:
    """A basis of what is orthogonal to all moves."""
    sizes, vectors = np.linalg.eigh(moves.T @ moves)
    return np.asarray(vectors[:, sizes <= ROUNDED * sizes[-1]])


def symmetric_noise(
    adjacency: Adjacency, query: Matrix, weights: Matrix, limit: float = 1.0
) -> LeastGaussian | None:
    """Return the least Gaussian noise that has the symmetries of a problem; None without any."""
    import scipy.sparse as sparse

    group = symmetries_of(adjacency, query, weights)
    if group is None:
        return None
    basis = np.linalg.qr(dense(adjacency.manifold.kernel))[0]
    rank = basis.shape[1]
    cost = basis.T @ dense(weights @ basis)
    most, generator = IMAGES * rank * (rank + 1) // 2, np.random.default_rng(0)
    longest = adjacency.sensitivity(query, 2)
    check_squares(np.array([longest.value]), "neighbours move an output by", UNITS)
    moves = group.images(longest.direction, most, generator)
    while (rest := _unseen(moves @ basis)).shape[1]:
        worst = adjacency.sensitivity((basis @ rest).T, 2).direction
        moves = np.vstack([moves, group.images(worst, most, generator)])
    for _ in range(ROUNDS):
        found = least_trace(moves @ basis, (cost + cost.T) / 2, tol=STICKS_OUT)
        spread = basis.T @ group.average(basis @ found.root @ found.root.T @ basis.T) @ basis
        root = np.linalg.cholesky((spread + spread.T) / 2)
        even = root[0, 0]
        if np.abs(root - even * np.eye(rank)).max() <= ROUNDED * even:  # one length for all
            root, far = even * np.eye(rank), replace(longest, value=longest.value / even)
        else:
            far = adjacency.sensitivity(np.linalg.solve(root, basis.T), 2)
        if far.value <= 1 + STICKS_OUT:
            break
        moves = np.vstack([moves, group.images(far.direction, most, generator)])
    root = root * (far.value * (1 + ROUNDED / 10))
    gap = float(np.sum((cost @ root) * root)) / found.lower_bound - 1
    moves = moves[: len(found.weights)]
    dual = LeastProof(
        found.lower_bound * COORDINATES, sparse.csc_array(moves.T), found.weights
    ).kept()
    return LeastGaussian(basis, root / limit, dual, max(gap, 0.0))
