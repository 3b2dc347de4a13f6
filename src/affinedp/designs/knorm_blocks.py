"""Blocks of a K-norm design in coordinates in which moves are short numbers, or whole ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, rank_of
from affinedp.designs.separate import Block, with_floor
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.lattice import Columns, image_lattice, whole_kernel
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import dot, inverse
from affinedp.neighbours.adjacency import Adjacency, Sensitivity
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.whole import whole_move

# Numbers in a kernel that is looked through for fractions.
MOST_NUMBERS = 4e6
# Short fractions have denominators up to this, and are convergents before this many.
MOST_PARTS = 1_000
CONVERGENTS = 20
# Moves are fractions with denominators up to this, where whole ones are looked for.
MOST_DENOMINATOR = 10**6


@dataclass(frozen=True, eq=False)
class Cell:
    """One block, ready for bodies."""

    outputs: IntArray  # its outputs
    basis: FloatArray  # what makes outputs of coordinates; shape (outputs, r)
    moves: FloatArray  # the moves of neighbours, one per row; shape (K, r)
    cost: FloatArray  # cost of noise, positive definite; shape (r, r)
    key: str  # equal for equal blocks


def real_cell(block: Block) -> Cell:
    """Return a block in coordinates that are outputs, so that decimal moves stay what they are."""
    from scipy.linalg import qr

    _, _, order = qr(block.basis.T / np.abs(block.basis).max(), mode="economic", pivoting=True)
    places = np.sort(order[: block.basis.shape[1]])
    basis = short_numbers(block.basis @ np.linalg.inv(block.basis[places]))
    basis[places] = np.eye(len(places))
    moves = _image(block)[places].T
    return Cell(block.outputs, basis, moves, _cost(block, basis, moves), block.key)


def whole_cells(manifold: AffineManifold, query: Matrix) -> Callable[[Block], Cell]:
    """Return what puts blocks into coordinates of their lattices of whole points."""
    kernel = _whole_kernel(manifold)

    def cell(block: Block) -> Cell:
        rows = [_row(query, output) for output in block.outputs.tolist()]
        lattice = image_lattice(kernel, rows)
        if len(lattice) != block.basis.shape[1]:
            raise AffineDPError(
                "neighbours move a part of what the query reveals about whole numbers: treat the "
                "data as real"
            )
        places = [next(i for i, c in enumerate(column) if c) for column in lattice]
        back = inverse([[column[i] for column in lattice] for i in places])
        assert back is not None  # a staircase
        shown = [rows[i] for i in places]
        moves: dict[tuple[int, ...], None] = {}
        for column in dense(block.moves).T:
            move = whole_move({int(j): _fraction(column[j]) for j in np.flatnonzero(column)})
            read = [dot(row, move) for row in shown]
            point = tuple(int(sum(a * b for a, b in zip(row, read))) for row in back)
            if any(point):
                moves[point] = None
        basis = np.array([[float(c) for c in column] for column in lattice]).T
        whole = np.array(list(moves), dtype=float).reshape(len(moves), len(lattice))
        if rank_of(whole) < len(lattice):
            raise AffineDPError(
                "whole neighbours do not move everything that the query reveals: μ is below what "
                "whole numbers move by. Treat the data as real, or enlarge mu"
            )
        return Cell(block.outputs, basis, whole, _cost(block, basis, whole), block.key)

    return cell


def farthest_whole(
    adjacency: Adjacency, query: Matrix, found: Sensitivity
) -> tuple[float, int] | None:
    """Return the lattice step of one output, and of how many the farthest whole move is.

    None where the farthest move of all is not whole.
    """
    move = isinstance(adjacency, CircuitAdjacency) and adjacency.exact_direction(found.direction)
    if not move:
        return None
    row = _row(query, 0)
    ((unit,),) = image_lattice(_whole_kernel(adjacency.manifold), [row])
    steps = abs(dot(row, whole_move(move)) / unit)
    if not steps or steps < found.upper / unit:
        return None
    return float(unit), int(steps)


def _fraction(value: float) -> Fraction:
    """The short fraction that a computed number stands for."""
    return Fraction(float(value)).limit_denominator(MOST_DENOMINATOR)


def _row(query: Matrix, output: int) -> dict[int, Fraction]:
    line = dense(query[[output]]).ravel()
    return {int(j): meaning(float(line[j])) for j in np.flatnonzero(line)}


def _whole_kernel(manifold: AffineManifold) -> Columns:
    """The whole points of the kernel; at once where the free entries may be any whole numbers."""
    if float(manifold.n) * manifold.dim <= MOST_NUMBERS:
        kernel = dense(manifold.kernel)
        if np.all(kernel == np.rint(kernel)) and manifold.kernel_error == 0:
            return [[int(c) for c in column] for column in kernel.T.tolist()]
    return whole_kernel(manifold.D, manifold.exact_rows)


def _image(block: Block) -> FloatArray:
    return short_numbers(block.basis @ block.directions.T)


def _cost(block: Block, basis: FloatArray, moves: FloatArray) -> FloatArray:
    back = np.linalg.pinv(block.basis) @ basis
    weight = back.T @ block.weight @ back
    return with_floor((weight + weight.T) / 2, np.abs(moves).max(axis=0))[0]


def short_numbers(values: FloatArray) -> FloatArray:
    """Replace numbers that differ from a short fraction by rounding only, in units of their row."""
    near = np.broadcast_to(1e-13 * np.abs(values).max(axis=-1, keepdims=True), values.shape)
    both, place = np.unique(values + 1j * near, return_inverse=True)
    flat, near = both.real, both.imag
    found = _short_fractions(flat, near)
    left = np.isnan(found)
    decimal = np.array([float(f"{value:.10g}") for value in flat[left].tolist()])
    found[left] = np.where(np.abs(decimal - flat[left]) <= near[left], decimal, flat[left])
    return np.asarray(found[place].reshape(values.shape)) + 0.0


def _short_fractions(values: FloatArray, near: FloatArray) -> FloatArray:
    """The first convergent of each number that is as near and has a short denominator, or NaN."""
    found = np.full(len(values), np.nan)
    numerator, before = np.floor(values), np.ones(len(values))
    denominator, below = np.ones(len(values)), np.zeros(len(values))
    rest = values - numerator
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # of numbers that ended
        for _ in range(CONVERGENTS):
            share = numerator / denominator
            hit = np.isnan(found) & (denominator <= MOST_PARTS) & (np.abs(share - values) <= near)
            found[hit] = share[hit]
            whole = np.floor(1 / rest)
            rest = 1 / rest - whole
            numerator, before = whole * numerator + before, numerator
            denominator, below = whole * denominator + below, denominator
    return found


@dataclass(frozen=True, eq=False)
class OneSum:
    """Moves that take a fixed amount from one of r + 1 entries and give it to another."""

    # the last entry is minus the sum of the others times their signs; shape (r + 1,)
    signs: FloatArray
    width: float  # the amount

    def spread(self, basis: FloatArray) -> FloatArray:
        """Return what makes outputs of all r + 1 entries."""
        others = self.signs[:-1]
        wide = np.hstack([basis, np.zeros((len(basis), 1))])
        times = basis[:, :1] / others[0]
        last = np.all(basis == times * others, axis=1) & np.any(basis != 0, axis=1)
        if len(others) > 1:  # a row that is a multiple of the signs shows the last entry alone
            wide[last, :-1] = 0.0
            wide[last, -1] = -times[last, 0]
        return wide

    def spread_cost(self, cost: FloatArray) -> FloatArray:
        """Return the cost of noise in all r + 1 entries."""
        return np.pad(cost, ((0, 1), (0, 1)))

    def treats_alike(self, cost: FloatArray) -> bool:
        """Whether noise costs the same in all r + 1 entries: then no better body is known."""
        others = self.signs[:-1]
        alike = (np.eye(len(others)) + np.outer(others, others)) * (cost[0, 0] / 2)
        return bool(np.allclose(cost, alike, rtol=1e-9, atol=0.0))


def as_one_sum(moves: FloatArray) -> OneSum | None:
    """Recognise the moves under one public sum, or return None.

    Examples
    --------
    >>> as_one_sum(np.array([[1.0, 0], [0, 1], [1, -1]])).signs.tolist()
    [1.0, 1.0, 1.0]
    >>> as_one_sum(np.array([[1.0, 0], [0, 1]])) is None
    True
    """
    size = moves.shape[1]
    width = float(np.abs(moves).max())
    if size < 2 or len(moves) < size * (size + 1) // 2 or not width:
        return None
    if not np.all((moves == 0) | (np.abs(moves) == width)):
        return None
    count = (moves != 0).sum(axis=1)
    single = set(np.flatnonzero((moves[count == 1] != 0).any(axis=0)).tolist())
    double = moves[count == 2]
    if len(single) != size or np.any(count > 2) or np.any(count == 0):
        return None
    first = np.argmax(double != 0, axis=1)
    second = size - 1 - np.argmax(double[:, ::-1] != 0, axis=1)
    product = np.sign(
        double[np.arange(len(double)), first] * double[np.arange(len(double)), second]
    )
    found = set(zip(first.tolist(), second.tolist(), product.tolist()))
    pairs = {(i, j): value for i, j, value in found}
    if not len(found) == len(pairs) == size * (size - 1) // 2:  # each pair, with one sign
        return None
    signs = np.array([1.0] + [-pairs[0, j] for j in range(1, size)])
    if any(value != -signs[i] * signs[j] for (i, j), value in pairs.items()):
        return None
    return OneSum(np.append(signs, 1.0), width)
