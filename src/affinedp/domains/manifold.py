"""The affine manifold: public equations ``D x + b = 0`` in canonical form.

The promise of everything built on a manifold is about the equations that were given.
An equation that the public knows and that was left out is not covered.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import (
    FloatArray,
    IntArray,
    Matrix,
    dense,
    groups,
    is_identity,
    is_sparse,
    linked,
    within_range,
)
from affinedp.domains.base import Domain
from affinedp.domains.reading import Wrap, read_rows
from affinedp.domains.text import (
    MAX_BITS,
    MAX_SIZE,
    MIN_SIZE,
    LinearEquations,
    format_equation,
    parse_equations,
)
from affinedp.errors import (
    AffineDPError,
    AffineDPWarning,
    IdentifiableEntriesError,
    listed,
    outside,
)
from affinedp.exact.canonical import (
    Canonical,
    balancing_units,
    check_consistent,
    eliminate_dense,
    eliminate_exactly,
    eliminate_sparse,
    in_float_range,
    solve_basis,
)
from affinedp.exact.modular import ModularForm, modular_form, not_implied
from affinedp.exact.numbers import (
    SHORT_COEFFICIENT,
    given_rows,
    meaning,
    no_floats,
    nonzeros,
    real_array,
    real_matrix,
    real_number,
    short_numbers,
)
from affinedp.exact.rational import combination, dot, transposed
from affinedp.parts import ReadOnlyDict, StorageError, frozen, locked

if TYPE_CHECKING:
    import scipy.sparse as sparse

PublicEntries = Literal["refuse", "allow"]
ExactRow = Mapping[int, Fraction]
ExactRows = tuple[ExactRow, ...]
# coefficients and offsets
ExactEquations = tuple[Sequence[Mapping[int, Fraction]], Sequence[Fraction]]

# What to do about numbers that rounding would make other equations of.
AS_TEXT = "give the equations as text to AffineManifold.from_equations, which reads it exactly"
# Up to this many coefficients times the number of equations, exact elimination takes well under a
# second.
EXACT_WORK = 400_000
# The same for doubles of full length, whose products are long numbers.
EXACT_FLOAT_WORK = 5_000
# The same where floating point is known to be mistaken about a zero.
EXACT_WORK_IN_DOUBT = 50_000
# Text equations with more places than this make a sparse matrix.
DENSE_EQUATIONS = 4e6
# An x this far off, relative to the size of the terms, still lies on the manifold.
ON_MANIFOLD = 1e-9
# Share of the data that equations couple which counts as a term of each of them.
COUPLED = 1e-3


class OffManifoldError(AffineDPError):
    """Data that does not obey the equations."""

    def __init__(self, message: str, rows: Sequence[int]) -> None:
        self.rows = tuple(rows)
        super().__init__(message)


class AffineManifold(Domain):
    """Data ``x`` in R^n that obeys the public equations ``D x + b = 0``.

    Redundant equations are dropped, contradictions are refused by name, and so are
    entries that the equations alone reveal.  Then ``x = point + kernel @ ξ``: only ξ is
    secret.  This is the manifold C_d of the paper (section II-C).

    Parameters
    ----------
    D : array_like or sparse matrix, shape (q, n)
        Coefficients.  Integers, decimals of up to 15 digits and small fractions such as 1/3 are
        taken as exact rationals, other doubles as the binary numbers that they are.
    b : array_like, shape (q,), optional
        Offsets; zero if not given.  May be a public *causal* function of what was
        already released (feedback): the promises then still hold
        (:meth:`affinedp.Mechanism.in_steps` releases such data).
    names : sequence of str, optional
        One name per entry; ``x1``, ``x2``, … if not given.
    public_entries : {"refuse", "allow"}
        What to do with entries that the equations alone reveal.
    rank_tolerance : float, optional
        Relative pivot below which an equation counts as dependent.  By default the rank
        is exact for rational coefficients and decided by the gap in the pivots otherwise.

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, 1, -1]], names=["in", "out", "total"])
    >>> M.n, M.dim
    (3, 2)
    >>> M.contains([3, 4, 7])
    True
    """

    kind = "manifold"

    def __init__(
        self,
        D: ArrayLike | sparse.sparray,
        b: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        public_entries: PublicEntries = "refuse",
        rank_tolerance: float | None = None,
    ) -> None:
        matrix = real_matrix(D, "D", AS_TEXT)
        offsets = np.zeros(matrix.shape[0]) if b is None else real_array(b, "b", 1, AS_TEXT)
        rows = rational_rows(matrix, no_floats(D)) if rank_tolerance is None else None
        exact = None if rows is None else (rows, [meaning(value) for value in offsets.tolist()])
        self._build(matrix, offsets, exact, names, public_entries, rank_tolerance)

    @classmethod
    def from_equations(
        cls,
        equations: Sequence[str] | LinearEquations,
        names: Sequence[str] | None = None,
        public_entries: PublicEntries = "refuse",
    ) -> AffineManifold:
        """Build a manifold from text equations, with exact coefficients.

        Parameters
        ----------
        equations : sequence of str or LinearEquations
            One linear equation each, such as ``"0.1*v + p = q"``, or what
            ``parse_equations`` made of them.
        names : sequence of str, optional
            The order of the entries; order of appearance if not given.
        public_entries : {"refuse", "allow"}
            What to do with entries that the equations alone reveal.

        Returns
        -------
        AffineManifold

        Examples
        --------
        >>> M = AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
        >>> M.names
        ('cells_in', 'cells_out', 'cells_total')
        """
        if not isinstance(equations, LinearEquations):
            equations = parse_equations(equations, names)
        manifold = cls.__new__(cls)
        manifold._from_text(equations, public_entries)
        return manifold

    def _from_text(
        self, parsed: LinearEquations, public_entries: PublicEntries, as_sparse: bool = False
    ) -> None:
        shape = (len(parsed.coefficients), len(parsed.names))
        places = [(i, j) for i, row in enumerate(parsed.coefficients) for j in row]
        row_of, column_of = np.array(places, dtype=np.intp).reshape(-1, 2).T
        values = np.array([in_float_range(parsed.coefficients[i][j]) for i, j in places])
        matrix: Matrix
        if as_sparse or float(shape[0]) * shape[1] > DENSE_EQUATIONS:
            import scipy.sparse as sparse

            matrix = sparse.csr_array((values, (row_of, column_of)), shape=shape)
        else:
            matrix = np.zeros(shape)
            matrix[row_of, column_of] = values
        offsets = np.array([float(value) for value in parsed.offsets])
        exact = parsed.coefficients, parsed.offsets
        self._build(matrix, offsets, exact, parsed.names, public_entries, None)

    @within_range
    def _build(
        self,
        matrix: Matrix,
        offsets: FloatArray,
        exact: ExactEquations | None,
        names: Sequence[str] | None,
        public_entries: PublicEntries,
        rank_tolerance: float | None,
    ) -> None:
        q, n = matrix.shape
        if n == 0:
            raise AffineDPError("there are no entries: D has no columns (or no name was given)")
        if len(offsets) != q:
            raise AffineDPError(f"b has {len(offsets)} entries, but D has {q} equations")
        if public_entries not in ("refuse", "allow"):
            raise AffineDPError(
                f"public_entries must be 'refuse' or 'allow', not {public_entries!r}"
            )
        if rank_tolerance is not None and not 0 < real_number(rank_tolerance, "rank_tolerance") < 1:
            raise AffineDPError(f"rank_tolerance must lie in (0, 1), not {rank_tolerance!r}")
        self.names = checked_names(names, n)
        contradicting: tuple[int, ...] | None = None
        if exact is not None and q * sum(map(len, exact[0])) <= EXACT_WORK:
            canonical, contradicting = eliminate_exactly(*exact, n)
            if len(canonical.rows) < q:
                # files hold independent equations only: solve these, as whoever reads them does
                kept = canonical.rows
                alone, _ = eliminate_exactly(
                    [exact[0][i] for i in kept], [exact[1][i] for i in kept], n
                )
                canonical = replace(alone, rows=kept)
        elif is_sparse(matrix):
            canonical = eliminate_sparse(matrix, rank_tolerance)
        else:
            canonical = eliminate_dense(np.asarray(matrix), rank_tolerance, keep_dust=True)
        self._canonical = canonical
        self._matrix: Matrix = frozen(matrix[canonical.rows])
        self._offsets: FloatArray = frozen(offsets[canonical.rows])
        self._exact: ExactRows | None = None
        self._exact_offsets: tuple[Fraction, ...] = ()
        if exact is not None:
            self._exact = tuple(ReadOnlyDict(exact[0][i]) for i in canonical.rows)
            self._exact_offsets = tuple(exact[1][i] for i in canonical.rows)
        check_consistent(matrix, offsets, canonical, contradicting, ON_MANIFOLD)
        if canonical.exact_rows is None:
            self._certify_zeros()
            if rank_tolerance is None:
                dropped = np.setdiff1d(np.arange(q), canonical.rows)
                self._doubt_dropped(matrix[dropped], exact and [exact[0][i] for i in dropped])
        if public_entries == "refuse":
            self._refuse_identifiable()
        rows = _read_only(self._canonical.exact_rows)
        self._canonical = locked(replace(self._canonical, exact_rows=rows), own=False)

    # ------------------------------------------------------------------ as a part

    def fields(self) -> dict[str, Any]:
        """Return names and independent equations: exact numbers where they are known, or D."""
        if self._exact is None:
            return {
                "names": self.names,
                "b": self.b,
                "D": self.D,
                "rank_tolerance": self.rank_tolerance,
            }
        places = [(i, j) for i, row in enumerate(self._exact) for j in row]
        values = [value for row in self._exact for value in row.values()]
        return {
            "names": self.names,
            "places": np.array(places, dtype=np.int64).reshape(-1, 2),
            "numerators": tuple(value.numerator for value in values),
            "denominators": tuple(value.denominator for value in values),
            "offsets": self._exact_offsets,
            "sparse": is_sparse(self._matrix),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the manifold that :meth:`fields` described.

        Parameters
        ----------
        fields : mapping
            From a file: nothing in it is trusted.
        """
        given = dict(fields)
        try:
            names = given.pop("names")
            if "D" in given:
                tolerance = float(given.pop("rank_tolerance")) or None
                found = cls(given.pop("D"), given.pop("b"), names, "allow", tolerance)
            else:
                equations, as_sparse = _saved_equations(names, given)
                found = cls.__new__(cls)
                found._from_text(equations, "allow", as_sparse)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise StorageError(f"a manifold is not one that is read here ({error})") from None
        if given:
            raise StorageError(f"a manifold has no field {next(iter(given))!r}")
        return found

    def read(self, x: Any) -> tuple[FloatArray, Wrap]:
        """Return data that obeys the equations as rows, and how results are handed back.

        Parameters
        ----------
        x : array_like or a table
            One data set, or one per row; columns of tables are matched by name.
        """
        rows, wrap = read_rows(self.names, x)
        if len(rows) == 0:
            raise AffineDPError("there are no rows to release")
        self.check(rows)
        return rows, wrap

    def check(self, rows: FloatArray) -> None:
        """Refuse rows that do not obey the equations.

        Parameters
        ----------
        rows : array, shape (rows, n)
            The data.
        """
        residual = self.residual(rows)
        bad = np.flatnonzero((residual > ON_MANIFOLD).any(axis=1))
        if len(bad):
            equation = self.equations()[int(np.argmax(residual[bad[0]]))]
            raise OffManifoldError(
                f"row {bad[0]} (counting from 0) does not obey {equation}; {len(bad)} rows in "
                "all. Nothing was released",
                [int(i) for i in bad],
            )

    # ------------------------------------------------------------------ what it is

    @property
    def n(self) -> int:
        """Number of entries of ``x``."""
        return int(self._matrix.shape[1])

    @property
    def dim(self) -> int:
        """Dimension of the manifold: entries minus independent equations."""
        return len(self._canonical.free)

    @property
    def D(self) -> Matrix:
        """The independent equations' coefficients, of full row rank."""
        return self._matrix

    @property
    def b(self) -> FloatArray:
        """The independent equations' offsets."""
        return self._offsets

    @property
    def rank_tolerance(self) -> float:
        """Relative pivot at which the rank was cut; 0 when the arithmetic was exact."""
        return self._canonical.tolerance

    @property
    def exact_rows(self) -> ExactRows | None:
        """The equations as exact rationals, or None when the coefficients are not rational."""
        return self._exact

    @cached_property
    def rational_rows(self) -> Sequence[ExactRow]:
        """The equations as they were given: exact rationals, or the doubles that they are."""
        return given_rows(self._matrix) if self._exact is None else self._exact

    @property
    def canonical(self) -> Canonical:
        """The reduced form ``x[pivots] = -X x[free] - offset``."""
        return self._canonical

    @cached_property
    def modular(self) -> ModularForm:
        """The reduced form modulo primes: where it is zero is certain."""
        return modular_form(self._matrix, self._exact, self._canonical)

    def exact_column(self, entry: int) -> dict[int, Fraction]:
        """Return the coefficients of one entry, by equation, as rationals.

        The equations are solved for the pivots where that was done exactly, which keeps what is
        computed from them short.  Elsewhere they are as given: a decimal or small fraction is
        itself, and any other double the exact number that it is.

        Parameters
        ----------
        entry : int
            Position of the entry.
        """
        return self._exact_columns[entry]

    @cached_property
    def _exact_columns(self) -> list[dict[int, Fraction]]:
        rows, exact = self.rational_rows, self._canonical.exact_rows
        if exact is not None:
            pivots = self._canonical.pivots.tolist()
            rows = [{pivot: Fraction(1), **row} for pivot, row in zip(pivots, exact)]
        return transposed(rows, self.n)

    @cached_property
    def public_entries(self) -> tuple[str, ...]:
        """Names of the entries that the equations alone reveal."""
        return tuple(self.names[i] for i in self._identifiable())

    @cached_property
    def point(self) -> FloatArray:
        """One public point of the manifold, computed from D and b alone."""
        x: FloatArray = np.zeros(self.n)
        if self._canonical.exact_offset is not None:
            x[self._canonical.pivots] = [_rounded(-b) for b in self._canonical.exact_offset]
        elif self._offsets.any():
            x[self._canonical.pivots] = solve_basis(self._matrix, self._canonical, -self._offsets)
        return np.asarray(frozen(x))

    @cached_property
    def kernel(self) -> Matrix:
        """A basis of the directions along the manifold (the paper's D^⊥), n×dim.

        The entries ``canonical.free`` are the coordinates: those rows are the identity.
        Sparse when D was sparse.
        """
        reduced, n, k = self._canonical.reduced, self.n, self.dim
        if is_sparse(self._matrix):
            import scipy.sparse as sparse

            stacked = sparse.vstack([-sparse.csr_array(reduced), sparse.eye_array(k)], format="csr")
            order = np.argsort(np.concatenate([self._canonical.pivots, self._canonical.free]))
            return frozen(sparse.csr_array(stacked[order]))
        basis = np.zeros((n, k))
        basis[self._canonical.free] = np.eye(k)
        basis[self._canonical.pivots] = -np.asarray(reduced)
        return frozen(basis)

    @cached_property
    def exact_canonical(self) -> Canonical:
        """The reduced form of the equations as they were given, in rational arithmetic."""
        if self._canonical.exact_rows is not None:
            return self._canonical
        work = self._matrix.shape[0] * float(nonzeros(self._matrix)[2].size)
        exact = self._reduced_exactly() if work <= EXACT_WORK else self._canonical
        if exact.exact_rows is None:
            raise AffineDPError(
                "the equations cannot be solved in exact arithmetic: give integers, decimals or "
                "text, or fewer equations"
            )
        return replace(exact, exact_rows=_read_only(exact.exact_rows))

    @cached_property
    def exact_kernel(self) -> tuple[ExactRow, ...]:
        """The columns of a basis of the kernel in rational arithmetic, entry to value.

        They are those of the equations as they were given: no zero in them is a rounding.
        """
        canonical = self.exact_canonical
        assert canonical.exact_rows is not None
        columns = {j: {j: Fraction(1)} for j in canonical.free.tolist()}
        for pivot, row in zip(canonical.pivots.tolist(), canonical.exact_rows):
            for j, value in row.items():
                columns[j][pivot] = -value
        return tuple(map(ReadOnlyDict, columns.values()))

    def exactly_along(self, vector: ExactRow) -> ExactRow:
        """Return a direction along the manifold, exactly: its free entries say what it is.

        Parameters
        ----------
        vector : mapping of int to Fraction
            A direction that obeys the equations up to rounding, entry to value.
        """
        if not any(dot(row, vector) for row in self.rational_rows):
            return vector
        columns = zip(self.exact_canonical.free.tolist(), self.exact_kernel)
        return combination((vector[j], column) for j, column in columns if j in vector)

    @property
    def offset(self) -> FloatArray:
        """The public point from which releases start."""
        return self.point

    @property
    def kernel_error(self) -> float:
        """Relative rounding error of the kernel; 0 where it was computed exactly."""
        return self._canonical.error

    @cached_property
    def components(self) -> tuple[IntArray, ...]:
        """The entries of each matroid component, identifiable entries left out.

        A circuit lies in one component; entries in different components never have to
        move together.
        """
        import scipy.sparse as sparse

        reduced = sparse.coo_array(self._canonical.reduced)
        reduced.eliminate_zeros()
        pivots, free = self._canonical.pivots, self._canonical.free
        label = linked(pivots[reduced.row], free[reduced.col], self.n)
        loose = set(self._identifiable().tolist())
        return tuple(group for group in groups(label) if int(group[0]) not in loose)

    @cached_property
    def key(self) -> str:
        """A hash of the names and equations (up to their order and scale), offsets left out.

        Two manifolds with the same key have the same neighbours.
        """
        rows = []
        for row in self.rational_rows:
            lead = row[min(row)]
            # long equations have few different coefficients, each of them one object
            texts = {id(value): value for value in row.values()}
            said = {place: str(value / lead) for place, value in texts.items()}
            rows.append([[j, said[id(row[j])]] for j in sorted(row)])
        # JSON keeps names and numbers apart, whatever is in them
        text = json.dumps([self.names, sorted(rows)])
        return hashlib.sha256(text.encode()).hexdigest()

    def equations(self) -> tuple[str, ...]:
        """Return the independent equations in words, in the entries' names."""
        return tuple(
            format_equation(
                self._exact[i] if self._exact is not None else self._row(i),
                float(self._offsets[i]),
                self.names,
            )
            for i in range(self._matrix.shape[0])
        )

    # ------------------------------------------------------------------ points on it

    def residual(self, x: ArrayLike) -> FloatArray:
        """Return ``D x + b`` relative to the size of its terms, one value per equation.

        Numbers carry the rounding of what they were computed with: where all terms of an
        equation are tiny, a small share of the data that the equations couple counts as a term.

        Parameters
        ----------
        x : array_like, shape (n,) or (rows, n)
            One point, or one per row.
        """
        points = self._points(x)
        with np.errstate(over="ignore", invalid="ignore"):  # such data is off, and refused
            value = points @ self._matrix.T + self._offsets
            scale = np.abs(points) @ abs(self._matrix.T) + np.abs(self._offsets)
            scale = scale + COUPLED * self._coupled_size(points)
            found = np.asarray(np.abs(value) / np.where(scale > 0, scale, 1.0))
        return np.where(np.isfinite(found), found, np.inf)

    def _coupled_size(self, points: FloatArray) -> FloatArray:
        """The largest entry that each equation is coupled with, in units of the equation."""
        row_unit, column_unit, group = self._couplings
        size = np.abs(points) / column_unit
        largest = np.zeros((int(group.max(initial=-1)) + 1, *points.shape[:-1]))
        np.maximum.at(largest, group[: self.n], size.T)
        return np.asarray(largest[group[self.n :]].T / row_unit)

    @cached_property
    def _couplings(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Units of equations and entries, and which of them hang together: entries first."""
        import scipy.sparse as sparse

        pattern = sparse.coo_array(self._matrix)
        label = linked(pattern.col, self.n + pattern.row, self.n + pattern.shape[0])
        return *balancing_units(self._matrix), label

    def contains(self, x: ArrayLike, tolerance: float = ON_MANIFOLD) -> bool:
        """Whether ``x`` (or every row of it) obeys the equations, up to rounding.

        Parameters
        ----------
        x : array_like, shape (n,) or (rows, n)
            One point, or one per row.
        tolerance : float
            Allowed residual relative to the size of the terms of each equation.
        """
        return bool(np.all(self.residual(x) <= tolerance))

    @within_range
    def project(self, x: ArrayLike) -> FloatArray:
        """Return the nearest point of the manifold.

        Parameters
        ----------
        x : array_like, shape (n,) or (rows, n)
            One point, or one per row.

        Examples
        --------
        >>> AffineManifold([[1.0, 1.0]], b=[-2.0]).project([1.0, 2.0])
        array([0.5, 1.5])
        """
        points = self._points(x)
        if self._matrix.shape[0] == 0:
            return points
        excess = points @ self._matrix.T + self._offsets
        if is_sparse(self._matrix):
            import scipy.sparse as sparse
            from scipy.sparse.linalg import splu

            solve = splu(sparse.csc_array(self._matrix @ self._matrix.T)).solve
            return np.asarray(points - (self._matrix.T @ solve(excess.T)).T)
        from scipy.linalg import lstsq

        return np.asarray(points - lstsq(np.asarray(self._matrix), excess.T)[0].T)

    def __repr__(self) -> str:
        equations = self.n - self.dim
        return f"AffineManifold({self.n} entries, {equations} independent equations)"

    # ------------------------------------------------------------------ inside

    def _points(self, x: ArrayLike) -> FloatArray:
        points = real_array(x, "x")
        if points.ndim not in (1, 2) or points.shape[-1] != self.n:
            raise AffineDPError(
                f"x has shape {points.shape}, but has {self.n} entries: {listed(self.names)}"
            )
        return points

    def _row(self, i: int) -> dict[int, float]:
        values = dense(self._matrix[[i]])[0]
        return {int(j): float(values[j]) for j in np.flatnonzero(values)}

    def _identifiable(self) -> IntArray:
        """Pivot entries that depend on no free entry: zero rows of the kernel."""
        reduced: Any = self._canonical.reduced
        nonzero = (reduced != 0).sum(axis=1) if reduced.shape[1] else np.zeros(reduced.shape[0])
        return np.sort(self._canonical.pivots[np.asarray(nonzero).ravel() == 0])

    def _refuse_identifiable(self) -> None:
        entries = self.public_entries
        if entries:
            verb = "is" if len(entries) == 1 else "are"
            raise IdentifiableEntriesError(
                f"{listed(entries)} {verb} fixed by the equations alone; no noise can protect "
                "such an entry. Drop it, or pass public_entries='allow'",
                entries,
            )

    def _certify_zeros(self) -> None:
        """See to it that the reduced form is zero exactly where the equations say so.

        Now that the rank is known it is computed again in rational arithmetic, if that is not too
        much work; otherwise it keeps its rounding, but no zero is mistaken.
        """
        canonical = self._canonical
        work = self._matrix.shape[0] * float(nonzeros(self._matrix)[2].size)
        if work <= EXACT_FLOAT_WORK:
            canonical = self._reduced_exactly()
        form = modular_form(self._matrix, self._exact, canonical)
        if not form.agrees(canonical.reduced) and work <= EXACT_WORK_IN_DOUBT:
            canonical = self._reduced_exactly()
            form = modular_form(self._matrix, self._exact, canonical)
        elif not form.agrees(canonical.reduced) and not is_sparse(canonical.reduced):
            certain = np.where(form.residues[0].toarray() != 0, canonical.reduced, 0.0)
            canonical = replace(canonical, reduced=certain)
        if not form.agrees(canonical.reduced):
            raise AffineDPError(
                "some coefficients of the reduced equations cannot be told from zero in floating "
                "point. Round the coefficients to a few digits, or give them as integers, "
                "decimals or text: those are exact"
            )
        self._canonical = canonical
        self.__dict__["modular"] = form

    def _doubt_dropped(self, matrix: Matrix, exact: Sequence[ExactRow] | None) -> None:
        """Look at equations that count as dependent: as their numbers stand, are they?"""
        found = not_implied(matrix, exact, self._canonical, self.modular)
        if not found:
            return
        words = f"{matrix.shape[0]} of {self._matrix.shape[0] + matrix.shape[0]} equations count as"
        words += f" dependent up to the rounding of their coefficients; as these stand, {found} are"
        if exact is not None:
            raise AffineDPError(
                f"{words} not. Leave them out, or round the coefficients to fewer digits"
            )
        warnings.warn(
            f"{words} not. If they were computed, say so by rank_tolerance=1e-9; if not, give them "
            "as decimals, fractions or text",
            AffineDPWarning,
            stacklevel=outside(),
        )

    def _reduced_exactly(self) -> Canonical:
        """The canonical form of the independent equations in rational arithmetic."""
        rows = self.rational_rows
        offsets = [meaning(value) for value in self._offsets.tolist()]
        exact, _ = eliminate_exactly(rows, offsets, self.n)
        if len(exact.rows) < len(rows):
            return self._canonical
        return replace(exact, rows=self._canonical.rows, tolerance=self._canonical.tolerance)


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise AffineDPError(
            "the point of the manifold is too large for floating point: rescale the entries"
        ) from None


def _read_only(rows: Sequence[ExactRow] | None) -> ExactRows | None:
    """Rows that nobody can change."""
    return None if rows is None else tuple(map(ReadOnlyDict, rows))


def _saved_equations(names: Any, given: dict[str, Any]) -> tuple[LinearEquations, bool]:
    """The exact equations of a file, which is not trusted, and whether they are sparse."""
    places, offsets, as_sparse = given.pop("places"), given.pop("offsets"), given.pop("sparse")
    if not isinstance(as_sparse, bool) or any(type(b) not in (int, Fraction) for b in offsets):
        raise ValueError("offsets are exact numbers, and sparse is true or false")
    values = [
        Fraction(up, down)
        for up, down in zip(given.pop("numerators"), given.pop("denominators"), strict=True)
    ]
    rows: list[dict[int, Fraction]] = [{} for _ in offsets]
    for (i, j), value in zip(places.tolist(), values, strict=True):
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        if bits > MAX_BITS or not MIN_SIZE <= abs(value) <= MAX_SIZE:
            raise ValueError("a coefficient is no number that is read here")
        if not (0 <= i < len(rows) and 0 <= j < len(names)) or j in rows[i]:
            raise ValueError("a coefficient has no place")
        rows[i][j] = value
    exact = tuple(Fraction(value) for value in offsets)
    return LinearEquations(checked_names(names, len(names)), tuple(rows), exact), as_sparse


# ---------------------------------------------------------------------- as given


# Doubles below this have fewer digits, and may stand for several decimals.
SMALLEST = 2.0**-1022
# Up to this many coefficients exact elimination takes well under a second.
EXACT_COEFFICIENTS = 20_000


def rational_rows(matrix: Matrix, exactly: bool = False) -> list[dict[int, Fraction]] | None:
    """The rows as rationals; None if there are too many numbers, or some look computed.

    Binary numbers of full length do, unless they were given ``exactly``.
    """
    values = nonzeros(matrix)[2]
    if len(values) > EXACT_COEFFICIENTS or np.any(np.abs(values) < SMALLEST):
        return None
    if not exactly and short_numbers(values.tolist(), SHORT_COEFFICIENT) is None:
        return None
    return given_rows(matrix)


def checked_names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """One name for each entry: those given, or x1, x2, …"""
    if names is None:
        return tuple(f"x{i + 1}" for i in range(n))
    several = isinstance(names, Iterable) and not isinstance(names, str)
    names = tuple(names) if several else ()
    if not several or not all(isinstance(name, str) for name in names):
        raise AffineDPError("names must be a sequence of strings, one per entry")
    if len(names) != n:
        raise AffineDPError(f"there are {len(names)} names for {n} entries")
    repeated = (
        sorted({name for name in names if list(names).count(name) > 1})
        if (len(set(names)) < n)
        else []
    )
    if repeated:
        raise AffineDPError(f"names are used twice: {listed(repeated)}")
    return tuple(names)


# ---------------------------------------------------------------------- outputs


MOST_OUTPUTS = 2_000


def output_equations(
    manifold: AffineManifold, query: Matrix, basis: Matrix, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return independent equations of all ``F x + basis @ z``, in words."""
    import scipy.sparse as sparse

    outputs = query.shape[0]
    if outputs > MOST_OUTPUTS or basis.shape[1] == outputs:
        return ()  # too many to write down, or noise in every direction
    whole = is_identity(sparse.csr_array(query), manifold.n) and basis.shape[1] == manifold.dim
    if whole and _along(manifold, basis):
        return manifold.equations()
    # y − F x_p lies in what x and the noise span together: eliminate the transposed system
    spanned = np.hstack([dense(basis), dense(query @ manifold.kernel)])
    canonical = eliminate_dense(np.ascontiguousarray(spanned.T), 1e-10)
    point = np.asarray(query @ manifold.point).ravel()
    found = []
    for column, free in enumerate(canonical.free):
        row: dict[int, float] = {int(free): 1.0}
        coefficients: FloatArray = np.asarray(canonical.reduced)[:, column]
        for pivot, value in zip(canonical.pivots, coefficients):
            if value != 0.0:
                row[int(pivot)] = -_tidy(float(value))
        sign = 1.0 if row[min(row)] > 0 else -1.0
        row = {i: sign * value for i, value in sorted(row.items())}
        offset = -sum(value * point[i] for i, value in row.items())
        found.append(format_equation(row, _tidy(float(offset)), names))
    return tuple(found)


def _along(manifold: AffineManifold, basis: Matrix) -> bool:
    """Whether the noise stays on the manifold."""
    off = dense(abs(manifold.D @ basis)).max(initial=0.0)
    return bool(off <= 1e-10 * dense(abs(manifold.D) @ abs(basis)).max(initial=0.0))


def _tidy(value: float) -> float:
    """Round away what floating point left behind: 0.9999999999999998 is 1."""
    return float(f"{value:.12g}") if abs(value) > 1e-12 else 0.0
