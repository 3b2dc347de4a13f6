"""What all neighbours share: words, moves, a key, and how far a matrix moves between them.

Different adjacencies are different promises.  Each names itself in ``words``, and guarantees about
different neighbours never mix.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import EPS, FloatArray, Matrix, Norm, dense, is_sparse, within_range
from affinedp.domains.base import Domain
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError, listed
from affinedp.exact.numbers import meaning, nonzeros, real_array, real_matrix
from affinedp.neighbours.definition import NeighbourAnswer, among_directions
from affinedp.parts import Part, StorageError, frozen

if TYPE_CHECKING:
    import scipy.sparse as sparse

Vector = Mapping[int, Fraction]
# How far things move: one number, one for each, or by name.
Distances = float | ArrayLike | Mapping[str, float]

# Nonzero numbers in a matrix up to which norms are computed in rational arithmetic.
EXACT_NUMBERS = 20_000
# Directions that are measured again exactly because floating point cannot tell them apart.
MEASURED_AGAIN = 64
# Norms that differ by less than this share are equal: the direction that came first is shown.
TIED = 1e-11
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
LIBRARY = __name__.partition(".")[0]
# Kept by an adjacency whose moves were all seen to obey the equations.
OBEYED = "_moves_obey"
WORDLESS = "{} must say in words who is a neighbour: words"
# Fields that are only said: neighbours are the same without them.
SAID = {"unit", "assumes", "words"}
TINY_COEFFICIENT = 1e-6
# A move that was given with a longer denominator may be a rounding of what is meant.
LONGEST_GIVEN = 10**12
DENSE_NUMBERS = 4e8
# A bound closer than this to the value that was found is the value up to rounding.
ONLY_ROUNDING = 1e-9


# ---------------------------------------------------------------------- norms of images of moves


@dataclass(frozen=True)
class ExactMatrix:
    """A matrix of doubles, which are rational numbers."""

    rows: list[dict[int, int]]  # column to integer
    unit: Fraction  # what the integers are multiples of

    @classmethod
    def of(cls, matrix: Matrix) -> ExactMatrix | None:
        """Return the matrix in exact numbers, or None if it has too many."""
        if (matrix.nnz if is_sparse(matrix) else matrix.size) > EXACT_NUMBERS:
            return None
        row, column, values = (part.tolist() for part in nonzeros(matrix))
        ratios = [value.as_integer_ratio() for value in values]
        unit = max((down for _, down in ratios), default=1)  # all are powers of two
        rows: dict[int, dict[int, int]] = {}
        for i, j, (up, down) in zip(row, column, ratios):
            rows.setdefault(i, {})[j] = up * (unit // down)
        return cls(list(rows.values()), Fraction(1, unit))

    @classmethod
    def of_rationals(cls, rows: Sequence[Mapping[int, Fraction]]) -> ExactMatrix:
        """Return a matrix of rational numbers."""
        unit = math.lcm(*(value.denominator for row in rows for value in row.values()))
        whole = [
            {j: value.numerator * (unit // value.denominator) for j, value in row.items() if value}
            for row in rows
        ]
        return cls(whole, Fraction(1, unit))

    def part(self, columns: Sequence[int]) -> ExactMatrix:
        """Return some of the columns, in this order."""
        place = {j: c for c, j in enumerate(columns)}
        rows = [{place[j]: a for j, a in row.items() if j in place} for row in self.rows]
        return ExactMatrix([row for row in rows if row], self.unit)

    def floats(self, columns: int) -> FloatArray:
        """Return the matrix in floating point."""
        found = np.zeros((len(self.rows), columns))
        for i, row in enumerate(self.rows):
            for j, a in row.items():
                found[i, j] = as_float(a * self.unit)
        return found

    def norm(self, vector: Mapping[int, int], scale: Fraction, norm: Norm) -> tuple[float, float]:
        """Return the norm of ``scale * matrix @ vector``, and the next float not below it."""
        total = 0
        for row in self.rows:
            entry = sum(a * vector[j] for j, a in row.items() if j in vector)
            total += abs(entry) if norm == 1 else entry * entry
        return rounded_root(total * (self.unit * scale) ** norm, norm)


def rounded_root(power: Fraction, norm: Norm) -> tuple[float, float]:
    """Return the norm-th root of a rational number as a float, and the next float not below it."""
    try:
        value = upper = float(power) if norm == 1 else _square_root(power)
    except OverflowError:
        return math.inf, math.inf
    while Fraction(upper) ** norm < power:
        upper = math.nextafter(upper, math.inf)
        if upper == math.inf:
            break
    return value, upper


def _square_root(square: Fraction) -> float:
    """The square root of a rational number of any size, to the last bit or next to it."""
    if square == 0:
        return 0.0
    # 120 bits or more in the integer root, whatever the size of the number
    shift = 120 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square * Fraction(2) ** (2 * shift)
    return math.ldexp(math.isqrt(scaled.numerator // scaled.denominator), -shift)


def column_norms(matrix: FloatArray, norm: Norm) -> FloatArray:
    """Return the norm of every column, also where its square leaves the range of floats."""
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(np.linalg.norm(matrix / unit, ord=norm, axis=0) * unit)


def first_largest(values: FloatArray) -> int:
    """Return the place of the largest value; of those equal up to rounding, the first."""
    return int(np.flatnonzero(values >= values.max() * (1 - TIED))[0])


def norm_with_bound(matrix: FloatArray, vector: FloatArray, norm: Norm) -> tuple[float, float]:
    """Return the norm of ``matrix @ vector``, and what it is at most in view of rounding.

    Products and sums are carried in extended precision, so what remains is the rounding
    of the vector itself (a few eps per entry, also in its scale) and of the result.
    """
    wide = matrix.astype(np.longdouble) @ vector.astype(np.longdouble)
    value = float(np.abs(wide).sum() if norm == 1 else np.sqrt((wide * wide).sum()))
    spread = float(np.linalg.norm(np.abs(matrix) @ np.abs(vector), ord=norm))
    return value, value * (1 + 2 * EPS) + 4 * EPS * spread


def in_integers(vector: Mapping[int, Fraction]) -> tuple[dict[int, int], Fraction]:
    """Return a rational vector as integers, and what they are multiples of."""
    unit = math.lcm(*(value.denominator for value in vector.values())) if vector else 1
    whole = {i: value.numerator * (unit // value.denominator) for i, value in vector.items()}
    return whole, Fraction(1, unit)


def as_float(value: Fraction) -> float:
    """Return a rational as a float that is zero only if the rational is, or refuse."""
    try:
        number = float(value)
    except OverflowError:
        raise overflow() from None
    if value and number == 0.0:
        raise AffineDPError(
            "the entries of a neighbour direction differ so much in size that they leave the "
            "range of floating point. Rescale the entries"
        )
    return number


def overflow() -> AffineDPError:
    """A refusal where the differences of neighbours are too large for floating point."""
    return AffineDPError(
        "the neighbours' differences overflow floating point: the coefficients of the "
        "equations or of the noise differ too much in size. Rescale the entries"
    )


# ---------------------------------------------------------------------- neighbours


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
    solved: bool = False  # whether those follow from the equations, whatever rounding did

    def __post_init__(self) -> None:
        if np.ndim(self.values) != 2 or np.shape(self.off) != np.shape(self.values):
            raise AffineDPError(
                "moves are the columns of a matrix, and off has the same shape: not "
                f"{np.shape(self.values)} and {np.shape(self.off)}. Columns.given(values) fills in "
                "off for numbers that are meant as they are"
            )

    def certain(self, k: int) -> Vector | None:
        """Return the k-th move if it is known to be the move itself, and not one rounded."""
        move = self.exact(k)
        if move is None or self.solved:
            return move
        return None if any(c.denominator > LONGEST_GIVEN for c in move.values()) else move

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
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = column_norms(matrix @ self.values, norm)
            spread = column_norms(abs(matrix) @ np.abs(self.values), norm)
            error = 2 * (len(self.values) + 2) * EPS * spread
            if self.off.any():
                error = error + 2 * column_norms(abs(matrix) @ self.off, norm)
        if not np.all(np.isfinite(lengths + error)):
            raise overflow()
        low, high = lengths.copy(), lengths + error
        # those that may be the worst, in view of rounding
        doubtful = np.flatnonzero(high >= (lengths - error).max())
        if numbers is not None:
            for k in doubtful[np.argsort(-high[doubtful], kind="stable")][:MEASURED_AGAIN].tolist():
                if high[k] <= low.max():
                    continue
                vector = self.exact(k)
                if vector is not None:
                    low[k], high[k] = numbers.norm(*in_integers(vector), norm)
        if not np.all(np.isfinite(high)):
            raise overflow()
        place = first_largest(low)
        value, upper = float(low[place]), float(max(high.max(), low[place]))
        return Sensitivity(value, upper, True, "", self.values[:, place].copy())


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
        if "moves" in cls.__dict__ and cls.__module__.partition(".")[0] != LIBRARY:
            cls.moves = _obeying(cls.moves)  # type: ignore[method-assign]
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
        raise AffineDPError(WORDLESS.format(type(self).__name__))

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
        if norm not in (1, 2):
            raise AffineDPError(f"norm must be 1 (Laplace) or 2 (Gaussian), not {norm!r}")
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


def _obeying(moves: Callable[..., Iterator[Columns]]) -> Callable[..., Iterator[Columns]]:
    """The moves of a class outside of the library, looked at once: they must obey the equations."""

    @wraps(moves)
    def looked_at(self: Adjacency, *limit: Any, **limits: Any) -> Iterator[Columns]:
        first, anything = 1, bool(vars(self).get(OBEYED))
        if not isinstance(self.words, str) or not self.words.strip():
            raise AffineDPError(WORDLESS.format(type(self).__name__))
        for columns in moves(self, *limit, **limits) or ():
            if not isinstance(columns, Columns):
                raise AffineDPError(
                    f"{type(self).__name__}.moves must yield Columns, not "
                    f"{type(columns).__name__}: write yield Columns.given(values)"
                )
            if isinstance(self.domain, AffineManifold) and not vars(self).get(OBEYED):
                _refuse_leaving(self, columns, first)
                first += columns.values.shape[1]
            anything = anything or bool(dense(columns.values).any())
            yield columns
        if not anything:
            raise AffineDPError(
                f"{type(self).__name__} lists no move, so its promise would be about nobody"
            )
        vars(self)[OBEYED] = True

    return looked_at


def _refuse_leaving(adjacency: Adjacency, columns: Columns, first: int) -> None:
    """Refuse moves with D v ≠ 0, exactly where they are exact, otherwise in view of rounding."""
    manifold, moves = adjacency.manifold, columns.values
    if moves.shape[0] != manifold.n:
        raise AffineDPError(
            f"{type(adjacency).__name__} lists moves of {moves.shape[0]} entries, but data has "
            f"{manifold.n}"
        )
    D, numbers = manifold.D, dense(moves)
    size = abs(D) @ np.abs(numbers)
    doubt = abs(D) @ dense(columns.off) + (manifold.n + 4) * EPS * size
    leaving = (np.abs(D @ numbers) > doubt).any(axis=0)
    # sums of whole numbers up to here do not round
    whole = bool(np.all(nonzeros(D)[2] == np.rint(nonzeros(D)[2]))) and (size < 2.0**53).all(axis=0)
    sure = whole & (numbers == np.rint(numbers)).all(axis=0) & ~dense(columns.off).any(axis=0)
    for k in np.flatnonzero(~leaving & ~sure).tolist() if manifold.exact_rows else ():
        move = columns.certain(k) or {}
        leaving[k] = any(
            sum(value * move[j] for j, value in row.items() if j in move)
            for row in manifold.rational_rows
        )
    if leaving.any():
        raise AffineDPError(
            f"move {first + int(np.argmax(leaving))} (counting from 1) of "
            f"{type(adjacency).__name__} leaves the manifold: D v must be 0. Neighbours must both "
            "obey the equations: move what follows from the others, too, or say in `off` how far "
            "the numbers may be off"
        )


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


def positions(given: Iterable[Any], names: Sequence[str], noun: str) -> list[int]:
    """Return the places of things that are named, or counted from 0."""
    place, found = {name: i for i, name in enumerate(names)}, []
    for one in given:
        counted = isinstance(one, int | np.integer) and not isinstance(one, bool)
        if isinstance(one, str) and one in place:
            found.append(place[one])
        elif counted and 0 <= one < len(names):
            found.append(int(one))
        else:
            raise AffineDPError(
                f"there is no {noun} {one!r}: there are {listed(names)}, counted from 0"
            )
    return found


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
