"""Margins of several attributes: the blocks that they consist of, and tables made of them.

A margin A (a set of attributes, written as bits) is the sum of residuals of all B ⊆ A, each
centred in every attribute of B.  White noise of precision t_B on the residual of B, seen from the
cells, has the precision matrix ``Σ_B t_B ⊗_{j∈B} (I − J/n_j) ⊗_{j∉B} J``, J all ones; its entry
between two cells depends on the set T of attributes in which they differ:

    G(T) = Σ_B t_B Π_{j∈B} (−1/n_j if j ∈ T else 1 − 1/n_j).

Coordinates of residuals are integer Helmert contrasts: along an attribute with n values,
h_k = (1, …, 1, −k, 0, …) for k = 1 … n − 1 are orthogonal, with |h_k|² = k (k + 1), and orthogonal
to the constants.  Attributes of which prefixes, ranges or other sums are asked for have bases of
their own (``margin_workloads.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.domains.crossed import MOST_PEOPLE, Sets, bits_of, members, subsets
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.strategies.margin_workloads import Basis, Workload, along

# One for every axis; None for Helmert contrasts.
Bases = Sequence[Basis | None]


def contrasts(
    margin: NDArray[Any],
    first: int = 0,
    absolute: bool = False,
    bases: Bases | None = None,
    most: int = MOST_PEOPLE,
) -> NDArray[Any]:
    """Return the coordinates of the residual of a margin of so many people: integers.

    Examples
    --------
    >>> contrasts(np.array([5, 3, 1])).tolist()          # 5 − 3, and 5 + 3 − 2 · 1
    [2, 6]
    """
    found = margin
    for axis in range(first, found.ndim):
        turned = np.moveaxis(found, axis, 0)
        basis = None if bases is None else bases[axis - first]
        if basis is None:
            k = np.arange(1, len(turned)).reshape((-1, *[1] * (found.ndim - 1)))
            last = -k * turned[1:] if not absolute else k * turned[1:]
            turned = np.cumsum(turned, 0)[:-1] + last
            most *= 1 + len(k)
        else:
            turned = basis.contrasts(turned, absolute, most)
            most <<= 31
        found = np.moveaxis(turned, 0, axis)
    return found


def residual(coordinates: FloatArray, first: int = 0, bases: Bases | None = None) -> FloatArray:
    """Return the residual that has these coordinates.

    Examples
    --------
    >>> residual(contrasts(np.array([5.0, 3.0, 1.0]))).tolist()
    [2.0, 0.0, -2.0]
    """
    found = np.asarray(coordinates, dtype=float)
    for axis in range(first, found.ndim):
        basis = None if bases is None else bases[axis - first]
        if basis is not None:
            found = along(basis.back, found, axis)
            continue
        turned = np.moveaxis(found, axis, 0)
        k = np.arange(1.0, len(turned) + 1).reshape((-1, *[1] * (found.ndim - 1)))
        share = turned / (k * (k + 1))
        out = np.zeros((len(turned) + 1, *turned.shape[1:]))
        out[1:] = -k * share
        out[:-1] += np.cumsum(share[::-1], 0)[::-1]
        found = np.moveaxis(out, 0, axis)
    return found


def adjoint(table: FloatArray, bases: Bases) -> FloatArray:
    """Return what a sum over a residual takes of its coordinates: the transpose of residual."""
    found = table
    for axis, basis in enumerate(bases):
        if basis is not None:
            found = along(basis.back.T, found, axis)
        else:
            own = np.moveaxis(contrasts(np.moveaxis(found, axis, -1), found.ndim - 1), -1, axis)
            lengths = squared_lengths((own.shape[axis],))
            found = own / lengths.reshape([-1 if i == axis else 1 for i in range(own.ndim)])
    return found


def squared_lengths(shape: tuple[int, ...], bases: Bases | None = None) -> FloatArray:
    """Return |h|² of every coordinate: Π k (k + 1), or the squared unit of a basis."""
    found = np.ones(shape)
    for axis, n in enumerate(shape):
        basis = None if bases is None else bases[axis]
        k = np.arange(1.0, n + 1)
        lengths = k * (k + 1) if basis is None else np.full(n, 4.0**basis.bits)
        found = found * lengths.reshape((-1, *[1] * (len(shape) - axis - 1)))
    return found


def centred(values: FloatArray) -> FloatArray:
    """Return an array without its means along every axis."""
    found = np.asarray(values, dtype=float)
    for axis in range(found.ndim):
        found = found - found.mean(axis=axis, keepdims=True)
    return found


MarginNeighbours = Literal["person", "replace", "swaps"]
# Blocks of fewer attributes than this are public under these neighbours.
LEAST = {"person": 0, "replace": 1, "swaps": 2}
MOST_ATTRIBUTES = {"person": 60, "replace": 20, "swaps": 17}
# Precisions are taken for whole multiples of this, rounded up.
UNIT_BITS = 120


def check_attributes(d: int, move: str) -> None:
    """Refuse more attributes than the worst pair of neighbours is looked for among."""
    if move not in LEAST:
        raise AffineDPError(f"adjacency must be one of {', '.join(LEAST)}, not {move!r}")
    if d > MOST_ATTRIBUTES[move]:
        raise AffineDPError(
            f"{d} attributes are too many for adjacency={move!r}: the worst pair is looked for "
            f"among all sets of up to {MOST_ATTRIBUTES[move]} attributes"
        )
    if move == "swaps" and d < 2:
        raise AffineDPError("people who swap values need at least two attributes")


def variance_shares(
    sizes: Sequence[int],
    margins: Sets,
    blocks: Sets,
    of: Callable[[int, int], tuple[float, float]] | None = None,
) -> Any:
    """Return the sparse matrix S: a cell of margin A has the variance Σ_B S[A, B] / t_B.

    ``of`` says what an attribute j in B, and one outside of it, adds on average over what is asked.
    """
    import scipy.sparse as sparse

    def cells(B: int, j: int) -> tuple[float, float]:
        # residuals have Π (n − 1) dimensions, and are spread over the cells of A
        return (sizes[j] - 1) / sizes[j], 1 / sizes[j] ** 2

    factor = of or cells
    place = {B: i for i, B in enumerate(blocks.tolist())}
    rows, columns, values = [], [], []
    for i, A in enumerate(margins.tolist()):
        for B in subsets(A):
            if B in place:
                share = 1.0
                for j in members(A):
                    share *= factor(B, j)[0 if B >> j & 1 else 1]
                rows.append(i)
                columns.append(place[B])
                values.append(share)
    shape = (len(margins), len(blocks))
    return sparse.csr_array((values, (rows, columns)), shape=shape)


def energies(
    sizes: Sequence[int], blocks: Sets, neighbours: str, types: Sequence[tuple[int, int]]
) -> FloatArray:
    """Return what one unit of t_B adds to the squared distance of neighbours, type by type."""
    kind = list(LEAST).index(neighbours)
    inverse = 1 / np.array(sizes, float)
    found = np.empty((len(types), len(blocks)))
    for row, (U, V) in zip(found, types):
        _energies(kind, U, V, inverse, blocks, row)
    return found


@compiled
def _energies(kind, U, V, inverse, blocks, out):  # type: ignore[no-untyped-def]
    for i in range(len(blocks)):
        B = blocks[i]
        rest = 1.0
        same_u = 1.0
        other_u = 1.0
        same_v = 1.0
        other_v = 1.0
        for j in range(len(inverse)):
            if B >> j & 1:
                if kind > 0 and U >> j & 1:
                    same_u *= 1.0 - inverse[j]
                    other_u *= -inverse[j]
                elif kind == 2 and V >> j & 1:
                    same_v *= 1.0 - inverse[j]
                    other_v *= -inverse[j]
                else:
                    rest *= 1.0 - inverse[j]
        if kind == 0:
            out[i] = rest
        elif kind == 1:
            out[i] = 2.0 * rest * (same_u - other_u)
        else:
            out[i] = 4.0 * rest * (same_u - other_u) * (same_v - other_v)


@compiled
def entry_table(inverse, blocks, t):  # type: ignore[no-untyped-def]
    """Return G(T) for all sets T, by one butterfly for every attribute."""
    d = len(inverse)
    g = np.zeros(1 << d)
    for i in range(len(blocks)):
        g[blocks[i]] = t[i]
    for j in range(d):
        bit = 1 << j
        for m in range(1 << d):
            if not m & bit:
                a = g[m]
                c = g[m | bit]
                g[m] = a + (1.0 - inverse[j]) * c
                g[m | bit] = a - inverse[j] * c
    return g


@compiled
def worst_swap(d, g, threshold, out):  # type: ignore[no-untyped-def]
    """Return the largest G(∅) − G(U) − G(V) + G(U ∪ V) over disjoint U and V, and where it is."""
    full = (1 << d) - 1
    best = -1e300
    best_u = 1
    best_v = 2
    found = 0
    for U in range(1, full):
        rest = full & ~U
        low = U & -U
        base = g[0] - g[U]
        V = rest
        while V:
            if low < (V & -V):
                value = base - g[V] + g[U | V]
                if value > best:
                    best = value
                    best_u = U
                    best_v = V
                if value > threshold and found < len(out):
                    out[found, 0] = U
                    out[found, 1] = V
                    found += 1
            V = (V - 1) & rest
    return best, best_u, best_v, found


def exact_square(sizes: Sequence[int], blocks: Sets, t: FloatArray, move: str) -> Fraction:
    """Return the squared sensitivity to one person exactly; for swaps rounded up."""
    units = [math.ceil(Fraction(value) * (1 << UNIT_BITS)) for value in t.tolist()]
    if move == "person":
        total = Fraction(0)
        for B, value in zip(blocks.tolist(), units):
            up = math.prod(sizes[j] - 1 for j in members(B))
            total += Fraction(value * up, math.prod(sizes[j] for j in members(B)))
        return total / (1 << UNIT_BITS)
    check_attributes(len(sizes), move)
    g = _integer_table(sizes, blocks, units)
    scale = Fraction(1, math.prod(sizes) << UNIT_BITS)
    if move == "replace":
        return Fraction(2 * (int(g[0]) - min(map(int, g)))) * scale
    # the entries in doubles, each rounded once; a sum of four of them is off by less than the slack
    doubles = np.array([float(value * scale) for value in map(int, g)])
    best = worst_swap(len(sizes), doubles, np.inf, np.empty((1, 2), np.int64))[0]
    slack = Fraction(float(np.abs(doubles).max())) / (1 << 48)
    return 4 * (Fraction(float(best)) + slack)


def rounded_root(square: Fraction) -> Fraction:
    """Return a number whose square is not below, and barely above."""
    return Fraction(math.isqrt(math.ceil(square * (1 << 2 * UNIT_BITS))) + 1, 1 << UNIT_BITS)


def _integer_table(sizes: Sequence[int], blocks: Sets, units: list[int]) -> Any:
    """G(T) for all T, times the number of all cells: whole numbers, by butterflies."""
    d = len(sizes)
    g = np.zeros(1 << d, dtype=object)
    g[:] = 0
    g[blocks] = units
    for j, n in enumerate(sizes):
        pairs = g.reshape(-1, 2, 1 << j)
        without, has = pairs[:, 0].copy(), pairs[:, 1].copy()
        pairs[:, 0] = n * without + (n - 1) * has
        pairs[:, 1] = n * without - has
    return g


@dataclass(frozen=True, eq=False)
class MarginTables(Mapping[tuple[int, ...], FloatArray]):
    """Noisy residuals, of which every margin is put together: margins agree with each other.

    A mapping from tuples of attributes, in rising order, to tables with one axis for each.

    Attributes
    ----------
    sizes : tuple of int
        Values of every attribute.
    margins : tuple of tuples of int
        What was released; smaller margins follow from them.
    parts : mapping
        From a set of attributes, as bits, to its residual; exact where it is public.
    whole : bool
        Whether every estimate is a whole number, but for rounding of doubles.
    workloads : tuple
        What is asked about the values of every attribute; None for the values themselves.
    centre : callable or None
        From a set of attributes and another attribute to how its residual is spread over the
        values of that one; evenly by default.
    """

    sizes: tuple[int, ...]
    margins: tuple[tuple[int, ...], ...] = field(repr=False)
    parts: Mapping[int, FloatArray] = field(repr=False)
    whole: bool = False
    workloads: tuple[Workload | None, ...] = field(default=(), repr=False)
    centre: Callable[[int, int], FloatArray] | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self.margins)

    def __len__(self) -> int:
        return len(self.margins)

    def __contains__(self, attributes: Any) -> bool:
        return attributes in self.margins

    def __getitem__(self, attributes: Iterable[int]) -> FloatArray:
        chosen = checked_margin(attributes, len(self.sizes))
        return self._table(chosen, self._part)

    def _part(self, B: int) -> FloatArray:
        return self.parts[B]

    def _table(self, chosen: tuple[int, ...], part: Any, lead: tuple[int, ...] = ()) -> FloatArray:
        """A margin, from the residuals of its subsets."""
        A = bits_of(chosen)
        if any(B not in self.parts for B in subsets(A)):
            raise AffineDPError(f"the margin {chosen} was not released")
        out = np.zeros([*lead, *(self.sizes[j] for j in chosen)])
        for B in subsets(A):
            shape = [self.sizes[j] if B >> j & 1 else 1 for j in chosen]
            found = np.reshape(part(B), [*lead, *shape])
            if self.centre is None:
                found = found / math.prod(self.sizes[j] for j in members(A & ~B))
            else:
                for axis, j in enumerate(chosen, len(lead)):
                    if not B >> j & 1:
                        sides = [1] * axis + [-1] + [1] * (out.ndim - axis - 1)
                        found = found * self.centre(B, j).reshape(sides)
            out += found
        out = np.rint(out) if self.whole else out
        for axis, j in enumerate(chosen if self.workloads else ()):
            asked = self.workloads[j]
            out = out if asked is None else along(asked.matrix, out, axis)
        return out


@dataclass(frozen=True, eq=False)
class PlaceTables(MarginTables):
    """Noisy contrasts at every node of a tree: margins add up over places and over attributes.

    A mapping from tuples of attributes to arrays of shape (nodes, n_j, …), nodes in the given
    order.

    Attributes
    ----------
    sizes, margins, whole
        As for :class:`MarginTables`.
    parts : mapping
        From a set of attributes, as bits, to contrasts at the nodes, breadth first.
    tree : Totals or None
        The places.
    """

    tree: Totals | None = field(default=None, repr=False)

    def __getitem__(self, attributes: Iterable[int]) -> FloatArray:
        return self.at(attributes)

    def at(self, attributes: Iterable[int], nodes: ArrayLike | None = None) -> FloatArray:
        """Return the tables of one margin at some nodes; at all by default.

        Parameters
        ----------
        attributes : iterable of int
            Which, in rising order.
        nodes : array of int, optional
            In the given order.
        """
        assert self.tree is not None
        place = np.empty(self.tree.n, np.int64)
        place[self.tree.order] = np.arange(self.tree.n)
        rows = place if nodes is None else place[np.asarray(nodes)]

        def part(B: int) -> FloatArray:
            sides = tuple(self.sizes[j] - 1 for j in members(B))
            return residual(self.parts[B][rows].reshape(-1, *sides), first=1)

        return self._table(checked_margin(attributes, len(self.sizes)), part, (len(rows),))


def checked_margin(attributes: Any, d: int) -> tuple[int, ...]:
    """Return a margin as a tuple of attributes in rising order, or refuse it."""
    try:
        chosen = tuple(attributes)
    except TypeError:
        raise AffineDPError(f"a margin is a tuple of attributes, not {attributes!r}") from None
    if list(chosen) != sorted(set(chosen)) or not all(j in range(d) for j in chosen):
        raise AffineDPError(f"attributes must be different and in rising order: {chosen}")
    return chosen
