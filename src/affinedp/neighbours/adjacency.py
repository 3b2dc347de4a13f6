"""Who is a neighbour: all circuits, chosen free sets, or given directions.

Different adjacencies are different promises.  Each names itself in ``neighbours``, and
guarantees about different neighbours never mix.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import (
    FloatArray,
    IntArray,
    Matrix,
    Norm,
    dense,
    real_array,
    real_matrix,
    within_range,
)
from affinedp.equations.decimals import decimal_or_double, exact_numbers
from affinedp.equations.manifold import ON_MANIFOLD, AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.definition import (
    NeighbourAnswer,
    among_directions,
    among_free_sets,
)
from affinedp.neighbours.exchange import exact_directions, exchange_work
from affinedp.neighbours.norms import (
    EPS,
    TIED,
    ExactMatrix,
    as_float,
    column_norms,
    first_largest,
    in_integers,
    largest_norm,
    overflow,
)

if TYPE_CHECKING:
    import scipy.sparse as sparse

TINY_COEFFICIENT = 1e-6
DENSE_NUMBERS = 4e8
# Rational operations up to which the directions of free sets are computed exactly.
EXACT_EXCHANGES = 200_000
# A bound closer than this to the value that was found is the value up to rounding.
ONLY_ROUNDING = 1e-9
# A set whose kernel rows have a smaller condition is free, whatever rounding does.
WELL_CONDITIONED = 1e10


@dataclass(frozen=True)
class Sensitivity:
    """The largest ``‖matrix · v‖`` over neighbour directions v.

    Attributes
    ----------
    value : float
        The largest value found.
    upper : float
        What it is certainly at most; promises are computed from this.
    exact : bool
        Whether every direction was covered, so that ``upper`` is ``value`` up to rounding.
    method : str
        How the maximum was found.
    direction : array, shape (n,)
        A direction that attains ``value`` up to rounding, scaled as far as neighbours may differ;
        its first entry is positive.  Of several, the one that was met first.
    warnings : tuple of str
        What a careful reader should know.
    """

    value: float
    upper: float
    exact: bool
    method: str
    direction: FloatArray
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        moved = np.flatnonzero(self.direction)
        if len(moved) and self.direction[moved[0]] < 0:
            object.__setattr__(self, "direction", -self.direction + 0.0)

    def worse(self, other: Sensitivity) -> Sensitivity:
        """Return the worse of two, and this one if they are equal up to rounding.

        Parameters
        ----------
        other : Sensitivity
            Over other directions.
        """
        shown = other if other.value > self.value * (1 + TIED) else self
        upper, value = max(self.upper, other.upper), max(self.value, other.value)
        return replace(shown, value=value, upper=upper, exact=self.exact and other.exact)


class Adjacency(ABC):
    """Directions in which neighbours on a manifold may differ."""

    manifold: AffineManifold
    _unit: str | None = None

    @property
    @abstractmethod
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""

    @property
    def unit(self) -> str:
        """What moves between neighbours, in a few words: not how far, nor by which equations.

        A ledger adds up releases with the same unit without asking.  Where nobody said it, only
        these very neighbours have it.
        """
        return self._unit or f"neighbours {self.key[:12]}"

    @abstractmethod
    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest 1-norm or 2-norm of ``matrix @ v`` over neighbour directions v.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return the same for a matrix of rational numbers, or None where it is not decided.

        Parameters
        ----------
        matrix : ExactMatrix
            One column for each entry.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        return None

    @abstractmethod
    def blocks(self, limit: int) -> Iterator[FloatArray]:
        """Yield the directions, n×K at a time.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """

    def listed(self, limit: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield the directions, n×K at a time, and how far off each of their numbers may be.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        share = 64 * EPS + self.manifold.kernel_error
        for block in self.blocks(limit):
            yield block, share * np.abs(block)

    @within_range
    def directions(self, limit: int = 200_000) -> FloatArray:
        """Return all neighbour directions as columns, scaled by μ.

        Parameters
        ----------
        limit : int
            Raise rather than return more than this many.

        Returns
        -------
        array, shape (n, K)

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -2, 0]])          # Example 2 of the paper
        >>> adp.CircuitAdjacency(M).directions()
        array([[0., 2.],
               [0., 1.],
               [1., 0.]])
        """
        found: list[FloatArray] = []
        count = 0
        for block in self.blocks(limit):
            count += block.shape[1]
            if count * float(self.manifold.n) > DENSE_NUMBERS:
                raise TooManyCircuitsError(
                    f"the directions do not fit in memory: {self.manifold.n:,} entries times more "
                    f"than {count:,}",
                    count,
                    DENSE_NUMBERS / self.manifold.n,
                )
            found.append(block)
        return np.hstack(found) if found else np.zeros((self.manifold.n, 0))

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        """Return whether x and y are neighbours, decided in rational arithmetic, and why.

        Parameters
        ----------
        x, y : sequences of numbers
            Two data sets that obey the equations.  A float is read as the decimal that it prints
            as; integers, ``Decimal``, ``Fraction`` and texts such as ``"1/3"`` as they are.
            (Neighbours whose *records* are off by rounding are what ``bound`` of
            :meth:`affinedp.Mechanism.release` is for.)

        Returns
        -------
        NeighbourAnswer

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold.from_equations(["east + west = total"])
        >>> print(adp.CircuitAdjacency(M).are_neighbours([3, 4, 7], [2, 5, 7]))
        neighbours: east moves by 1, at most μ = 1; of the free {east, total} no other; west follows
        >>> print(adp.FreeSetAdjacency(M, [["east", "west"]]).are_neighbours([3, 4, 7], [2, 5, 7]))
        no neighbours: more than one entry of the free set {east, west} moves: east, west
        >>> one_moves = adp.DirectionAdjacency(M, [[1], [-1], [0]])
        >>> print(one_moves.are_neighbours([3, 4, 7], [1, 6, 7]))
        no neighbours: the difference is 2 times direction 1 (counting from 1), more than once
        """
        raise AffineDPError(
            f"{type(self).__name__} does not say of two data sets whether they are neighbours: "
            "give it a method are_neighbours"
        )

    def sensitivity_by_entry(
        self, matrix: ArrayLike | sparse.sparray, norm: Norm
    ) -> tuple[Sensitivity, ...]:
        """Return the largest norm of ``matrix @ v`` over the neighbours that one entry makes.

        With ``matrix = Λ⁺F`` these are the paper's Δ_i (times μ_i), whose largest is
        :meth:`sensitivity`: they say which entry sets the noise.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.

        Returns
        -------
        tuple of Sensitivity
            One per entry; 0 for an entry that never moves first.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -4]])                  # Example 1 of the paper, k = 4
        >>> found = adp.CircuitAdjacency(M).sensitivity_by_entry([[1, 0], [0, 1]], norm=1)
        >>> [one.value for one in found]                       # 1 + 1/k and 1 + k
        [1.25, 5.0]
        """
        raise AffineDPError(
            "given directions do not say which entry moves first, so there is no sensitivity by "
            "entry. Ask for sensitivity, or use CircuitAdjacency or FreeSetAdjacency"
        )

    @abstractmethod
    def span(self) -> Matrix:
        """Return vectors, about as long as neighbours differ, that span all directions."""

    def checked_matrix(self, matrix: ArrayLike | sparse.sparray) -> Matrix:
        """Return a matrix with one column per entry, dense or CSR, or refuse it.

        Parameters
        ----------
        matrix : array_like or sparse matrix
            What was given.
        """
        checked = real_matrix(matrix, "matrix")
        if checked.shape[1] != self.manifold.n:
            raise AffineDPError(
                f"the matrix has {checked.shape[1]} columns, but the manifold has "
                f"{self.manifold.n} entries"
            )
        return checked


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
    mu : float or array_like, shape (n,)
        How far an entry moves, one number or one per entry.
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

    @within_range
    def __init__(
        self,
        manifold: AffineManifold,
        free_sets: Sequence[Sequence[int | str]],
        mu: float | ArrayLike = 1.0,
        *,
        unit: str | None = None,
    ) -> None:
        self.manifold = manifold
        self._mu = checked_mu(mu, manifold.n)
        self._unit = checked_unit(unit)
        if isinstance(free_sets, str) or not isinstance(free_sets, Sequence) or manifold.dim == 0:
            raise AffineDPError("free_sets must be a list of sets of entries that determine x")
        self._sets = tuple(_entry_positions(manifold, entries) for entries in free_sets)
        if not self._sets:
            raise AffineDPError("free_sets is empty: give at least one set of free entries")
        for entries in self._sets:
            if not self._is_free(entries):
                names = ", ".join(manifold.names[i] for i in entries)
                raise AffineDPError(
                    f"the entries {names} are not free together: the equations tie them to each "
                    "other (or do so within rounding). Choose entries that determine x"
                )

    @property
    def mu(self) -> FloatArray:
        """How far each entry moves."""
        return self._mu.copy()

    @property
    def free_sets(self) -> tuple[tuple[int, ...], ...]:
        """The chosen sets, as positions."""
        return tuple(tuple(int(i) for i in entries) for entries in self._sets)

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        sets = f"{len(self._sets)} chosen free sets" if len(self._sets) > 1 else "a chosen free set"
        return f"one entry of {sets} moves by at most {mu_words(self._mu)}"

    @property
    def unit(self) -> str:
        """What moves between neighbours: one entry of these sets, known by their names."""
        names = sorted(sorted(self.manifold.names[i] for i in entries) for entries in self._sets)
        return self._unit or f"one entry of the free sets {hashed(repr(names))[:12]}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        sets = sorted({tuple(sorted(s.tolist())) for s in self._sets})
        return hashed("free sets", self.manifold.fingerprint, self._mu, repr(sets))

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the scaled directions of one free set at a time.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        for block, _ in self.listed(limit):
            yield block

    def listed(self, limit: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield the directions of one free set at a time, and how far off their numbers may be.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        count = len(self._sets) * self.manifold.dim
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        work = 0.0
        for entries in self._sets:
            work += exchange_work(self.manifold.canonical, entries)
            if work <= EXACT_EXCHANGES and self._is_rational:
                block = self._exact_block(entries)
                yield block, EPS * np.abs(block)
            else:
                yield self._block(entries)

    def span(self) -> Matrix:
        """Return the directions of the first set, which span the kernel."""
        return next(iter(self.blocks(len(self._sets) * self.manifold.dim)))

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over the directions of the chosen sets.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        check_norm(norm)
        return self._sensitivity(self.checked_matrix(matrix), norm, None)

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return the same for a matrix of rational numbers.

        Parameters
        ----------
        matrix : ExactMatrix
            One column for each entry.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        return self._sensitivity(matrix.floats(self.manifold.n), norm, matrix)

    @within_range
    def _sensitivity(self, checked: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        found = [self._measured(checked, entries, norm) for entries in self._sets]
        # the sets that may be the worst in view of rounding are measured again, exactly
        certain, work = 0.0, 0.0
        for place in sorted(range(len(found)), key=lambda p: -found[p].upper):
            entries = self._sets[place]
            work += exchange_work(self.manifold.canonical, entries)
            if found[place].upper <= certain or work > EXACT_EXCHANGES or not self._is_rational:
                break
            found[place] = self._measured_exactly(checked, entries, norm, numbers)
            certain = max(certain, found[place].value)
        best = found[0]
        for other in found[1:]:
            best = best.worse(other)
        exact = best.upper <= best.value * (1 + ONLY_ROUNDING)
        warnings = tiny_coefficient(best.direction, self.manifold.names)
        method = f"{len(self._sets)} free sets, closed form"
        return replace(best, exact=exact, method=method, warnings=warnings)

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        """Return whether one entry of a chosen set makes x and y neighbours, and why.

        Parameters
        ----------
        x, y : sequences of numbers
            Two data sets that obey the equations, as for :meth:`Adjacency.are_neighbours`.
        """
        return among_free_sets(self.manifold, self._sets, self._mu, x, y)

    def sensitivity_by_entry(
        self, matrix: ArrayLike | sparse.sparray, norm: Norm
    ) -> tuple[Sensitivity, ...]:
        """Return the largest norm of ``matrix @ v`` over the neighbours that one entry makes.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
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

    def _block(self, entries: IntArray) -> tuple[FloatArray, FloatArray]:
        """The set's scaled directions in floating point, and how far off each number may be.

        A computed inverse C of A with ``A C = I − R`` is off by ``C R (I − R)⁻¹``, so a row of it
        by its largest number times ``ρ/(1 − ρ)``, ρ being the largest column sum of |R|.
        """
        square, size = self._square(entries)
        if not self._condition(entries) < WELL_CONDITIONED:
            block = self._exact_block(entries)
            return block, EPS * np.abs(block)
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
        return np.asarray(kernel @ (inverse * unit)), np.asarray(abs(kernel) @ (2 * off))

    def _exact_vectors(self, entries: IntArray) -> list[dict[int, Fraction]]:
        found = exact_directions(self.manifold.canonical, entries)
        assert found is not None  # checked when it was given
        return [
            {j: value * decimal_or_double(float(self._mu[i])) for j, value in found[i].items()}
            for i in entries.tolist()
        ]

    def _exact_block(self, entries: IntArray) -> FloatArray:
        block = np.zeros((self.manifold.n, len(entries)))
        for k, vector in enumerate(self._exact_vectors(entries)):
            for j, value in vector.items():
                block[j, k] = as_float(value)
        return block

    def _measured(self, matrix: Matrix, entries: IntArray, norm: Norm) -> Sensitivity:
        """What one set amounts to in floating point."""
        vectors, off = self._block(entries)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = column_norms(matrix @ vectors, norm)
            off = off + 2 * self.manifold.n * EPS * np.abs(vectors)
            upper = lengths + column_norms(abs(matrix) @ off, norm)
        if not np.all(np.isfinite(upper)):
            raise overflow()
        place = first_largest(lengths)
        direction = vectors[:, place]
        return Sensitivity(float(lengths[place]), float(upper.max()), True, "", direction)

    def _measured_exactly(
        self, matrix: Matrix, entries: IntArray, norm: Norm, numbers: ExactMatrix | None
    ) -> Sensitivity:
        """What one set amounts to, from its directions in rational arithmetic."""
        vectors = self._exact_vectors(entries)
        block = self._exact_block(entries)
        largest = largest_norm(matrix, block, norm, lambda k: in_integers(vectors[k]), numbers)
        return Sensitivity(largest.value, largest.upper, True, "", block[:, largest.place])


class DirectionAdjacency(Adjacency):
    """Neighbours along directions that the caller gives, already scaled.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    directions : array_like, shape (n, K)
        Columns in ``ker D``: x and x' are neighbours if they differ by at most one of them.
    unit : str, optional
        What moves between neighbours, in a few words, for a ledger.  Columns of numbers do not
        say it: unless given, only the same columns have the same unit.

    Examples
    --------
    >>> M = AffineManifold([[1, 1, -1]])
    >>> adj = DirectionAdjacency(M, [[1, 0], [0, 1], [1, 1]])
    >>> adj.sensitivity([[1, 1, 1]], norm=1).value
    2.0
    """

    @within_range
    def __init__(
        self, manifold: AffineManifold, directions: ArrayLike, *, unit: str | None = None
    ) -> None:
        self.manifold = manifold
        self._unit = checked_unit(unit)
        vectors = real_array(directions, "directions", 2)
        if vectors.shape[0] != manifold.n or vectors.shape[1] == 0:
            raise AffineDPError(
                f"directions has shape {vectors.shape}, but must hold at least one column of "
                f"{manifold.n} entries"
            )
        off = np.abs(manifold.D @ vectors)
        scale = abs(manifold.D) @ np.abs(vectors)
        bad = np.flatnonzero(np.any(off > ON_MANIFOLD * scale, axis=0))
        if len(bad):
            raise AffineDPError(
                f"direction {bad[0] + 1} (counting from 1) leaves the manifold: D v must be 0. "
                "Neighbours must both obey the equations"
            )
        self._directions = vectors

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        count = self._directions.shape[1]
        return f"{count} given direction{'s' if count > 1 else ''}"

    @property
    def unit(self) -> str:
        """What moves between neighbours, as it was given."""
        return self._unit or f"the given directions {self.key[:12]}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        return hashed("directions", self.manifold.fingerprint, self._directions)

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        """Return whether x and y differ by at most one of the directions, and why.

        Parameters
        ----------
        x, y : sequences of numbers
            Two data sets that obey the equations, as for :meth:`Adjacency.are_neighbours`.
        """
        return among_directions(self.manifold, self._directions, x, y)

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the directions.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        count = self._directions.shape[1]
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        yield self._directions.copy()

    def span(self) -> Matrix:
        """Return vectors that span the directions."""
        return self._directions.copy()

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over the given directions.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        check_norm(norm)
        return self._sensitivity(self.checked_matrix(matrix), norm, None)

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return the same for a matrix of rational numbers.

        Parameters
        ----------
        matrix : ExactMatrix
            One column for each entry.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        return self._sensitivity(matrix.floats(self.manifold.n), norm, matrix)

    @within_range
    def _sensitivity(self, checked: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        vectors = self._directions

        def exact(k: int) -> tuple[dict[int, int], Fraction]:
            moved = np.flatnonzero(vectors[:, k]).tolist()
            values = exact_numbers(vectors[moved, k].tolist())
            return in_integers(dict(zip(moved, values)))

        largest = largest_norm(checked, vectors, norm, exact, numbers)
        return Sensitivity(
            largest.value,
            largest.upper,
            largest.upper <= largest.value * (1 + ONLY_ROUNDING),
            f"{vectors.shape[1]} directions, closed form",
            vectors[:, largest.place].copy(),
        )


# ---------------------------------------------------------------------- shared pieces


def checked_mu(mu: float | ArrayLike, n: int) -> FloatArray:
    """Return one μ per entry, none negative and not all zero."""
    values = real_array(mu, "mu")
    if values.ndim == 0:
        values = np.full(n, float(values))
    if values.shape != (n,):
        raise AffineDPError(
            f"mu has shape {values.shape}; give one number, or one for each of {n} entries"
        )
    if np.any(values < 0) or not np.any(values > 0):
        raise AffineDPError("mu must be positive (zero for some entries at most)")
    return values


def alone(mu: FloatArray, entries: Container[int]) -> Iterator[FloatArray | None]:
    """Yield, for every entry, the μ of that entry alone; None where it never moves first."""
    for i, reach in enumerate(mu):
        only = np.zeros_like(mu)
        only[i] = reach
        yield only if reach and i in entries else None


def still(n: int) -> Sensitivity:
    """Return the sensitivity to an entry that never moves first."""
    return Sensitivity(0.0, 0.0, True, "does not move first", np.zeros(n))


def checked_unit(unit: str | None) -> str | None:
    """Return what moves between neighbours, if it was said, in words that a ledger can keep."""
    if unit is None:
        return None
    if not isinstance(unit, str) or not unit.isprintable() or not 0 < len(unit.strip()) <= 200:
        raise AffineDPError(
            f"unit must say in a few words what moves between neighbours, not {unit!r:.60}"
        )
    return unit.strip()


def mu_words(mu: FloatArray) -> str:
    """Say how far entries move."""
    if np.all(mu == mu[0]):
        return f"μ = {mu[0]:g}"
    return f"its μ (from {mu.min():g} to {mu.max():g})"


def hashed(*parts: str | FloatArray) -> str:
    """Return one hash of several texts and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        data = (
            part.encode() if isinstance(part, str) else np.ascontiguousarray(part + 0.0).tobytes()
        )
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def check_norm(norm: int) -> None:
    """Refuse norms other than 1 and 2."""
    if norm not in (1, 2):
        raise AffineDPError(f"norm must be 1 (Laplace) or 2 (Gaussian), not {norm!r}")


def _entry_positions(manifold: AffineManifold, entries: Sequence[int | str]) -> IntArray:
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise AffineDPError(f"a free set is a list of entries, not {entries!r}")
    place = {name: i for i, name in enumerate(manifold.names)}
    found: list[int] = []
    for entry in entries:
        if isinstance(entry, str) and entry in place:
            found.append(place[entry])
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            if not 0 <= entry < manifold.n:
                raise AffineDPError(
                    f"there is no entry {entry}: they go from 0 to {manifold.n - 1}"
                )
            found.append(int(entry))
        else:
            raise AffineDPError(f"there is no entry {entry!r}")
    if len(set(found)) != manifold.dim or len(found) != manifold.dim:
        raise AffineDPError(
            f"a free set must have {manifold.dim} different entries (the dimension of the "
            f"manifold), not {len(set(found))}"
        )
    return np.array(sorted(found), dtype=np.intp)


def tiny_coefficient(direction: FloatArray, names: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if one entry of a direction is tiny against another."""
    size = np.abs(direction)
    if not size.any():
        return ()
    smallest = int(np.argmin(np.where(size > 0, size, np.inf)))
    if size[smallest] >= TINY_COEFFICIENT * size.max():
        return ()
    return (
        f"the promise rests on a tiny coefficient: in the worst direction {names[smallest]} moves "
        f"only {size[smallest] / size.max():.1e} as far as {names[int(np.argmax(size))]}. If that "
        "coefficient should be zero, correct the equations",
    )
