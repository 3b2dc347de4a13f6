"""What all neighbours share: words, moves, a key, and how far a matrix moves between them.

Different adjacencies are different promises.  Each names itself in ``words``, and guarantees about
different neighbours never mix.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, Norm, within_range
from affinedp.domains.base import Domain
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError, listed
from affinedp.exact.numbers import meaning, real_array, real_matrix
from affinedp.neighbours.definition import NeighbourAnswer, among_directions
from affinedp.neighbours.norms import EPS, TIED, ExactMatrix, largest_norm
from affinedp.parts import Part, StorageError, frozen

if TYPE_CHECKING:
    import scipy.sparse as sparse

Vector = Mapping[int, Fraction]
# How far things move: one number, one for each, or by name.
Distances = float | ArrayLike | Mapping[str, float]

# Moves that are listed unless more are asked for, and where a class has no quicker way.
LISTED = 200_000
MOST_LISTED = 10_000_000
# Moves of which the span is found in exact arithmetic.
MOST_SPANNED = 20_000
# What a class says about its moves in another way than by listing them.
ABOUT_MOVES = (
    "words", "unit", "measured", "exact_sensitivity", "sensitivity_by_entry", "are_neighbours",
    "span", "exact_span",
)  # fmt: skip
# Fields that are only said: neighbours are the same without them.
SAID = {"unit", "assumes", "words"}
TINY_COEFFICIENT = 1e-6
DENSE_NUMBERS = 4e8
# A bound closer than this to the value that was found is the value up to rounding.
ONLY_ROUNDING = 1e-9


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


@dataclass(frozen=True, eq=False)
class Columns:
    """Some moves between neighbours."""

    # one move in each column, as far as neighbours may differ along it; shape (n, K)
    values: FloatArray
    off: FloatArray  # how far off each number may be; shape (n, K)
    # the k-th move in rational numbers, entry to value; None where it is not known
    exact: Callable[[int], Vector | None]

    @classmethod
    def given(cls, values: ArrayLike) -> Columns:
        """Return moves whose numbers are meant as they are: short decimals, or doubles."""
        columns = real_array(values, "moves", 2)

        def exact(k: int) -> Vector:
            moved = np.flatnonzero(columns[:, k]).tolist()
            return {j: meaning(value) for j, value in zip(moved, columns[moved, k].tolist())}

        whole = (columns == np.rint(columns)) & (np.abs(columns) < 2.0**53)
        return cls(columns, np.where(whole, 0.0, EPS * np.abs(columns)), exact)

    def largest(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over these moves v."""
        found = largest_norm(matrix, self.values, self.off, norm, self.exact, numbers)
        direction = self.values[:, found.place].copy()
        return Sensitivity(found.value, found.upper, True, "", direction)


class Adjacency(Part):
    """Who counts as a neighbour: in words, and as the moves between data sets.

    A class of one's own needs ``words`` and ``moves`` (and ``kind``, to be saved).  The other
    methods go through the moves unless a class has a quicker way.  A class that lists other moves
    than its parent inherits nothing that its parent says about them.

    Attributes
    ----------
    domain : Domain
        What data is.
    """

    domain: Domain
    _unit: str | None = None
    # Whether neighbours differ by whole numbers anyway.
    is_whole: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        listing = _depth(cls, "moves")
        for name in ABOUT_MOVES:
            if listing < _depth(cls, name):
                setattr(cls, name, Adjacency.__dict__[name])
        if "__init__" in cls.__dict__ and "fields" not in cls.__dict__:
            cls.fields = Adjacency.fields  # type: ignore[method-assign]

    def fields(self) -> dict[str, Any]:
        """Return what makes these neighbours, by argument of the constructor."""
        if not dataclasses.is_dataclass(self):
            raise AffineDPError(
                f"{type(self).__name__} does not say what it is made of: make it a frozen "
                "dataclass, or give it a method fields"
            )
        return super().fields()

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the neighbours that :meth:`fields` described.

        Parameters
        ----------
        fields : mapping
            From a file: nothing in it is trusted.
        """
        if dataclasses.is_dataclass(cls):
            return super().from_fields(fields)
        for name in fields:
            if name not in inspect.signature(cls).parameters:
                raise StorageError(f"{cls.kind} has no field {name!r}")
        try:
            return cls(**fields)
        except (TypeError, ValueError, OverflowError) as error:
            raise StorageError(f"{cls.kind} cannot be made of these fields ({error})") from None

    @property
    def manifold(self) -> AffineManifold:
        """The domain, where it is a manifold."""
        if isinstance(self.domain, AffineManifold):
            return self.domain
        raise AffineDPError(f"{type(self).__name__} is not about a manifold, but {self.domain!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.words!r})"

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        raise AffineDPError(f"{type(self).__name__} must say in words who is a neighbour: words")

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same domain."""
        return self.key_of({name: v for name, v in self.fields().items() if name not in SAID})

    @property
    def unit(self) -> str:
        """What moves between neighbours, in a few words: not how far, nor by which equations.

        A ledger adds up releases with the same unit without asking.  Where nobody said it, only
        these very neighbours have it.
        """
        return self._unit or f"neighbours {self.key[:12]}"

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Yield the moves between neighbours, up to sign, some at a time.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        raise AffineDPError(f"{type(self).__name__} must list the moves between neighbours: moves")

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest 1-norm or 2-norm of ``matrix @ v`` over the moves v.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.

        Returns
        -------
        Sensitivity
        """
        check_norm(norm)
        return self.measured(self.checked_matrix(matrix), norm, None)

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return the same for a matrix of rational numbers, or None where it is not decided.

        Parameters
        ----------
        matrix : ExactMatrix
            One column for each entry.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        return self.measured(matrix.floats(len(self.domain.names)), norm, matrix)

    @within_range
    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        """Return the largest norm over the moves, by listing them.

        Parameters
        ----------
        matrix : array or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours, in floating point.
        norm : {1, 2}
            Which norm.
        numbers : ExactMatrix or None
            The same matrix in rational numbers; None if the floats are what is meant.
        """
        numbers = numbers or ExactMatrix.of(matrix)
        best, count = still(matrix.shape[1]), 0
        for columns in self.moves(MOST_LISTED):
            if columns.values.shape[1]:
                count += columns.values.shape[1]
                best = best.worse(columns.largest(matrix, norm, numbers))
        return replace(
            best,
            exact=best.upper <= best.value * (1 + ONLY_ROUNDING),
            method=f"{count:,} directions, closed form",
        )

    @within_range
    def directions(self, limit: int = LISTED) -> FloatArray:
        """Return all moves between neighbours as columns.

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
        n, found, count = len(self.domain.names), [], 0
        for columns in self.moves(limit):
            count += columns.values.shape[1]
            if count * float(n) > DENSE_NUMBERS:
                raise TooManyCircuitsError(
                    f"the directions do not fit in memory: {n:,} entries times more than {count:,}",
                    count,
                    DENSE_NUMBERS / n,
                )
            found.append(columns.values)
        return np.hstack(found) if found else np.zeros((n, 0))

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
        return among_directions(self.manifold, self._exact_moves(), x, y)

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

    def span(self) -> Matrix:
        """Return vectors, about as long as neighbours differ, that span all moves."""
        return self.directions(MOST_LISTED)

    def exact_span(self) -> list[Vector]:
        """Return vectors that span all moves, in rational numbers: entry to value.

        They are decided on the numbers that were given, so that rank and zero are certain; where
        those miss the equations by a rounding, their free entries count.
        """
        moves = self._exact_moves(MOST_SPANNED)
        if isinstance(self.domain, AffineManifold):
            moves = [self.domain.exactly_along(move) for move in moves]
        return moves

    def _exact_moves(self, limit: int = MOST_LISTED) -> list[Vector]:
        found: list[Vector] = []
        for columns in self.moves(limit):
            for k in range(columns.values.shape[1]):
                move = columns.exact(k)
                if move is None:
                    raise AffineDPError(
                        "the moves between neighbours are not known in exact numbers: give "
                        "integers, decimals or text"
                    )
                found.append(move)
        return found

    def checked_matrix(self, matrix: ArrayLike | sparse.sparray) -> Matrix:
        """Return a matrix with one column per entry, dense or CSR, or refuse it.

        Parameters
        ----------
        matrix : array_like or sparse matrix
            What was given.
        """
        checked, n = real_matrix(matrix, "matrix"), len(self.domain.names)
        if checked.shape[1] != n:
            raise AffineDPError(
                f"the matrix has {checked.shape[1]} columns, but the manifold has {n} entries"
            )
        return checked


def _depth(cls: type, name: str) -> int:
    """How far up the classes a name is defined."""
    return next(i for i, one in enumerate(cls.__mro__) if name in one.__dict__)


# ---------------------------------------------------------------------- shared pieces


def checked_manifold(manifold: Any) -> AffineManifold:
    """Return a manifold, or refuse what is none."""
    if not isinstance(manifold, AffineManifold):
        raise AffineDPError(f"the first argument must be an AffineManifold, not {manifold!r:.60}")
    return manifold


def checked_mu(mu: Distances, names: Sequence[str]) -> FloatArray:
    """Return how far each of some named things moves: one number, one each, or by name."""
    values = real_array(named(mu, names), "mu")
    if values.shape not in ((), (len(names),)):
        raise AffineDPError(
            f"mu has shape {values.shape}; give one number, one for each of {listed(names)}, or a "
            "mapping from names to numbers"
        )
    if np.any(values < 0) or not np.any(values > 0):
        raise AffineDPError("mu must be positive (zero for some entries at most)")
    return np.asarray(frozen(np.broadcast_to(values, (len(names),))))


def named(mu: Distances, names: Sequence[str]) -> float | ArrayLike:
    """Return distances that may be given by name as numbers in order."""
    if not isinstance(mu, Mapping):
        return mu
    unknown = [name for name in mu if name not in names]
    if unknown:
        raise AffineDPError(f"mu names {unknown[0]!r}, but there are only {', '.join(names)}")
    return [mu.get(name, 0.0) for name in names]


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


def check_norm(norm: int) -> None:
    """Refuse norms other than 1 and 2."""
    if norm not in (1, 2):
        raise AffineDPError(f"norm must be 1 (Laplace) or 2 (Gaussian), not {norm!r}")


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
