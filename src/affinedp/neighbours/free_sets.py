"""Neighbours for chosen free sets: one of their entries moves, the rest follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, Norm, dense, linked, within_range
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import NAMED, AffineDPError, TooManyCircuitsError, counted, listed
from affinedp.exact.canonical import exact_directions, exchange_work
from affinedp.exact.numbers import meaning
from affinedp.neighbours.adjacency import (
    LISTED,
    ONLY_ROUNDING,
    Adjacency,
    Columns,
    Distances,
    ExactMatrix,
    Sensitivity,
    Vector,
    alone,
    as_float,
    checked_manifold,
    checked_mu,
    checked_unit,
    mu_words,
    positions,
    still,
    tiny_coefficient,
)
from affinedp.neighbours.definition import NeighbourAnswer, among_free_sets
from affinedp.neighbours.people import UNITS
from affinedp.parts import digest, frozen

if TYPE_CHECKING:
    import scipy.sparse as sparse

# Characters up to which a unit names all entries.
LONGEST_UNIT = 120
# Rational operations up to which the directions of free sets are computed exactly.
EXACT_EXCHANGES = 200_000
# Cells up to which sums among them are looked for, and what counts as 0 there.
MOST_CELLS = 1000
NOTHING = 1e-9
# A set whose kernel rows have a smaller condition is free, whatever rounding does.
WELL_CONDITIONED = 1e10


class FreeSetAdjacency(Adjacency):
    """Neighbours for chosen bases only: the free entries move one at a time, the rest follows.

    Theorem 3 of the paper is of this kind: there the free entries are the whole state at
    one time ("time-local" neighbours).  This is a weaker promise than Definition 4.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    free_sets : sequence of sequences
        Each a set of ``manifold.dim`` entries (names or positions) that determine x.
    mu : float, array_like of shape (n,), or mapping
        How far an entry moves: one number, one per entry, or by name (others do not move first).
    unit : str, optional
        What moves between neighbours, in a few words, for a ledger; unless given, sets of the
        same names have the same unit.

    Examples
    --------
    >>> M = AffineManifold([[1, -2, 0]])
    >>> FreeSetAdjacency(M, [["x1", "x3"]]).directions()
    array([[1. , 0. ],
           [0.5, 0. ],
           [0. , 1. ]])
    """

    kind = "free sets"

    @within_range
    def __init__(
        self,
        manifold: AffineManifold,
        free_sets: Sequence[Sequence[int | str]],
        mu: Distances = 1.0,
        *,
        unit: str | None = None,
    ) -> None:
        self.domain = checked_manifold(manifold)
        self._mu = checked_mu(mu, manifold.names)
        self._unit = checked_unit(unit)
        if isinstance(free_sets, str) or not isinstance(free_sets, Sequence) or manifold.dim == 0:
            raise AffineDPError("free_sets must be a list of sets of entries that determine x")
        self._sets = tuple(frozen(_entry_positions(manifold, entries)) for entries in free_sets)
        if not self._sets:
            raise AffineDPError("free_sets is empty: give at least one set of free entries")
        for entries in self._sets:
            if not self._is_free(entries):
                names = ", ".join(manifold.names[i] for i in entries)
                raise AffineDPError(
                    f"the entries {names} are not free together: the equations tie them to each "
                    "other (or do so within rounding). Choose entries that determine x"
                )

    def fields(self) -> dict[str, Any]:
        """Return what makes these neighbours, by argument of the constructor."""
        unit = {"unit": self._unit} if self._unit else {}
        sets = self.free_sets
        return {"manifold": self.manifold, "free_sets": sets, "mu": self._mu, **unit}

    @property
    def mu(self) -> FloatArray:
        """How far each entry moves."""
        return self._mu

    @property
    def free_sets(self) -> tuple[tuple[int, ...], ...]:
        """The chosen sets, as positions."""
        return tuple(tuple(int(i) for i in entries) for entries in self._sets)

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        names = self.manifold.names
        sets = [listed([names[i] for i in entries]) for entries in self._sets[:NAMED]]
        if len(self._sets) == 1:
            which = f"{'one of ' if len(self._sets[0]) > 1 else ''}{sets[0]}"
        else:
            more = "; …" if len(self._sets) > NAMED else ""
            which = f"one of a free set ({'; '.join(sets)}{more})"
        if self._unit:
            then = "; the rest follows"
            if len(self._sets) == 1:
                others = np.setdiff1d(np.arange(len(names)), self._sets[0]).tolist()
                then = f"; with {listed([names[i] for i in others])}" if others else ""
            return f"{self._unit}, in {which}, by at most {mu_words(self._mu)}{then}"
        return f"{which} moves alone, by at most {mu_words(self._mu)}, and the rest follows"

    @property
    def unit(self) -> str:
        """What moves between neighbours: one entry of these sets, known by their names."""
        names = sorted(sorted(self.manifold.names[i] for i in entries) for entries in self._sets)
        said = " or of ".join(
            repr(each)[1:-1] for each in names
        )  # quoted, so that no two read alike
        if len(said) > LONGEST_UNIT:
            said = f"{said[:LONGEST_UNIT]}… ({counted(len(names), 'set')}, {digest(names)[:12]})"
        return self._unit or f"one of {said}, and the rest follows"

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        sets = sorted({tuple(entries) for entries in self.free_sets})
        return self.key_of({"manifold": self.manifold, "free_sets": sets, "mu": self._mu})

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        count = len(self._sets) * self.manifold.dim
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        work = 0.0
        for entries in self._sets:
            work += exchange_work(self.manifold.canonical, entries)
            if work <= EXACT_EXCHANGES and self._is_rational:
                yield self._exact_block(entries)
            else:
                yield self._block(entries)

    def span(self) -> Matrix:
        """Return the directions of sets that span everything that moves."""
        found = [columns.values for columns in self._spanning().moves(10**9)]
        return np.hstack(found)

    def exact_span(self) -> list[Vector]:
        """Return the same in rational numbers."""
        if self._mu[self._sets[0]].all():
            return list(self.manifold.exact_kernel)
        return [v for entries in self._sets for v in self._exact_vectors(entries) if v]

    def _spanning(self) -> FreeSetAdjacency:
        """The first set alone, where all of its entries move; else all sets."""
        if not self._mu[self._sets[0]].all():
            return self
        other = copy(self)
        other._sets = self._sets[:1]
        return other

    @within_range
    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        found = [self._block(entries).largest(matrix, norm, None) for entries in self._sets]
        numbers = numbers or ExactMatrix.of(matrix)
        # the sets that may be the worst in view of rounding are measured again, exactly
        certain, work = 0.0, 0.0
        for place in sorted(range(len(found)), key=lambda p: -found[p].upper):
            entries = self._sets[place]
            work += exchange_work(self.manifold.canonical, entries)
            if found[place].upper <= certain or work > EXACT_EXCHANGES or not self._is_rational:
                break
            found[place] = self._exact_block(entries).largest(matrix, norm, numbers)
            certain = max(certain, found[place].value)
        best = found[0]
        for other in found[1:]:
            best = best.worse(other)
        exact = best.upper <= best.value * (1 + ONLY_ROUNDING)
        warnings = tiny_coefficient(best.direction, self.manifold.names)
        method = f"{counted(len(self._sets), 'free set')}, closed form"
        return replace(best, exact=exact, method=method, warnings=warnings)

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        return among_free_sets(self.manifold, self._sets, self._mu, x, y)

    def sensitivity_by_entry(
        self, matrix: ArrayLike | sparse.sparray, norm: Norm
    ) -> tuple[Sensitivity, ...]:
        return tuple(
            still(self.manifold.n) if mu is None else self._only(mu).sensitivity(matrix, norm)
            for mu in alone(self._mu, {int(i) for entries in self._sets for i in entries})
        )

    def _only(self, mu: FloatArray) -> FreeSetAdjacency:
        """The same sets with another μ; those in which nothing moves are left out."""
        other = copy(self)
        other._mu = mu
        other._sets = tuple(entries for entries in self._sets if mu[entries].any())
        return other

    # ------------------------------------------------------------------ inside

    @property
    def _is_rational(self) -> bool:
        return self.manifold.canonical.exact_rows is not None

    def _is_free(self, entries: IntArray) -> bool:
        """Whether the entries determine x; decided exactly where that is not too much work."""
        if self._condition(entries) < WELL_CONDITIONED:
            return True
        cheap = exchange_work(self.manifold.canonical, entries) <= EXACT_EXCHANGES
        if not (self._is_rational and cheap):
            return False
        return exact_directions(self.manifold.canonical, entries) is not None

    def _square(self, entries: IntArray) -> tuple[FloatArray, FloatArray]:
        """The kernel's rows of the set, each divided by its largest entry, and those."""
        square = dense(self.manifold.kernel[entries])
        size = np.abs(square).max(axis=1, initial=0.0)
        return square / np.where(size > 0, size, 1.0)[:, None], size

    def _condition(self, entries: IntArray) -> float:
        square, size = self._square(entries)
        return math.inf if np.any(size == 0) else float(np.linalg.cond(square))

    def _block(self, entries: IntArray) -> Columns:
        """The set's scaled directions in floating point, and how far off each number may be.

        A computed inverse C of A with ``A C = I − R`` is off by ``C R (I − R)⁻¹``, so a row of it
        by its largest number times ``ρ/(1 − ρ)``, ρ being the largest column sum of |R|.
        """
        square, size = self._square(entries)
        if not self._condition(entries) < WELL_CONDITIONED:
            return self._exact_block(entries)
        inverse = np.linalg.inv(square)
        rounding = (len(entries) + 8) * EPS + self.manifold.kernel_error
        residual = np.abs(np.eye(len(entries)) - square @ inverse)
        residual += 2 * rounding * (np.abs(square) @ np.abs(inverse))
        worst = float(residual.sum(axis=0).max())
        if not worst < 0.5:
            raise AffineDPError(
                "a free set is too ill-conditioned to list its directions: give exact (integer, "
                "decimal or text) coefficients, or other free sets"
            )
        unit = self._mu[entries] / size
        largest = np.abs(inverse).max(axis=1, keepdims=True)
        off = (worst / (1 - worst) * largest + 2 * rounding * np.abs(inverse)) * unit
        kernel = self.manifold.kernel
        values, off = np.asarray(kernel @ (inverse * unit)), np.asarray(abs(kernel) @ (2 * off))
        if not self._is_rational:
            return Columns(values, off, lambda k: None)
        vectors = cache(lambda: self._exact_vectors(entries))
        return Columns(values, off, lambda k: vectors()[k], solved=True)

    def _exact_vectors(self, entries: IntArray) -> list[dict[int, Fraction]]:
        found = exact_directions(self.manifold.exact_canonical, entries)
        assert found is not None  # checked when it was given
        return [
            {j: value * mu for j, value in found[i].items() if mu}
            for i in entries.tolist()
            for mu in [meaning(float(self._mu[i]))]
        ]

    def _exact_block(self, entries: IntArray) -> Columns:
        block, vectors = np.zeros((self.manifold.n, len(entries))), self._exact_vectors(entries)
        for k, vector in enumerate(vectors):
            for j, value in vector.items():
                block[j, k] = as_float(value)
        return Columns(block, EPS * np.abs(block), lambda k: vectors[k], solved=True)


def _entry_positions(manifold: AffineManifold, entries: Sequence[int | str]) -> IntArray:
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise AffineDPError(f"a free set is a list of entries, not {entries!r}")
    found = positions(entries, manifold.names, "entry")
    if len(set(found)) != manifold.dim or len(found) != manifold.dim:
        raise AffineDPError(
            f"a free set must have {manifold.dim} different entries (the dimension of the "
            f"manifold), not {len(set(found))}"
        )
    return np.array(sorted(found), dtype=np.intp)


# ---------------------------------------------------------------------- one person


def person_of(manifold: AffineManifold, mu: Distances = 1.0) -> FreeSetAdjacency:
    """Return neighbours that differ by one person: one cell moves, and its totals follow.

    Every equation must say which of its entries is the total of the others: the one whose sign
    differs from theirs, all in one unit.  Two entries that are equal hold the same people.
    """
    equations: list[tuple[int, list[int]]] = []
    for row in manifold.rational_rows:
        positive = [j for j, value in row.items() if value > 0]
        negative = [j for j, value in row.items() if value < 0]
        few, many = sorted((positive, negative), key=len)
        if len(few) != 1 or len({abs(value) for value in row.values()}) != 1:
            names = listed([manifold.names[j] for j in row])
            raise _no_person(f"an equation of {names} says no total and its parts")
        equations.append((few[0], many))
    same = [(total, own[0]) for total, own in equations if len(own) == 1]
    first, second = np.array(same, dtype=np.intp).reshape(-1, 2).T
    held = linked(first, second, manifold.n)
    parts: dict[int, set[int]] = {}
    for total, own in equations:
        if len(own) > 1:
            parts.setdefault(int(held[total]), set()).update(held[own].tolist())
    try:
        TopologicalSorter(parts).prepare()
    except CycleError as error:
        raise _no_person("a total is a part of itself") from error
    people, place = np.unique(held, return_index=True)
    cells = [j for group, j in zip(people.tolist(), place.tolist()) if group not in parts]
    if len(cells) > manifold.dim:
        cells = _without_totals(manifold, cells)
    if len(cells) != manifold.dim:
        raise _no_person("its cells are tied by more equations than those of their totals")
    return FreeSetAdjacency(manifold, [cells], mu, unit=UNITS["person"])


def _without_totals(manifold: AffineManifold, cells: list[int]) -> list[int]:
    """Leave out what is a sum of other cells: of equations that say something twice one is dropped.

    Sums of cells are the entries that cannot be negative because others cannot, whichever equation
    was dropped; that they are such sums is checked in exact arithmetic.
    """
    from scipy.linalg import null_space
    from scipy.optimize import nnls

    if len(cells) > MOST_CELLS:
        return cells
    rows = dense(manifold.kernel[cells])
    tied = np.flatnonzero(np.abs(null_space(rows.T)).max(axis=1, initial=0.0) > NOTHING)
    left = dict.fromkeys(tied.tolist())
    for one in tied.tolist():
        others = [other for other in left if other != one]
        parts, missed = nnls(rows[others].T, rows[one])
        if missed <= NOTHING and np.count_nonzero(parts > NOTHING) > 1:
            del left[one]
    dropped = {cells[one] for one in tied.tolist() if one not in left}
    kept = [cell for cell in cells if cell not in dropped]
    if len(kept) != manifold.dim:
        return cells
    moves = exact_directions(manifold.exact_canonical, np.array(kept, dtype=np.intp))
    sums = moves is not None and all(c in (0, 1) for v in moves.values() for c in v.values())
    return kept if sums else cells


def _no_person(reason: str) -> AffineDPError:
    return AffineDPError(
        f"the equations do not say where one person is counted: {reason}. Name the cells, "
        "FreeSetAdjacency(M, [cells]), or the moves, DirectionAdjacency(M, directions)"
    )
