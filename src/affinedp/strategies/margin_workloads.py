"""What is asked about the values of one attribute, and bases in which noise for it is white.

A margin that has the attribute asks for ``W x`` along it, one that has not for the total ``1ᵀx``.
Every precision matrix on n values is ``t 11ᵀ + M`` with ``M g = 0`` and ``1ᵀg = 1``: the total is
measured, and contrasts beside it.  The total is spread over values by g, and M is ``E Eᵀ`` for
whole contrasts E, but for a power of two.  For the values themselves, g is 1/n and E are the
Helmert contrasts; prefixes and ranges have less noise in other bases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import wide_product
from affinedp.exact.numbers import check_squares, real_matrix
from affinedp.parts import Part, frozen

# Numbers that the matrix of one attribute may have.
MOST_ENTRIES = 5e7


@dataclass(frozen=True, eq=False)
class Workload(Part):
    """Which sums over the values of an attribute are asked for.

    Examples
    --------
    >>> Workload(3, "prefix").matrix.tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    >>> Workload(3, "ranges").ends
    [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    """

    kind = "workload"
    # how many values there are
    size: int
    form: Literal["prefix", "ranges", "own"]
    # one row per sum, one column per value; only for a form of one's own
    own: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.form not in ("prefix", "ranges", "own"):
            raise AffineDPError(f"a workload is 'prefix', 'ranges' or a matrix, not {self.form!r}")
        if (self.own is not None) != (self.form == "own"):
            raise AffineDPError("a matrix is given for a workload of one's own, and only there")
        if float(self.rows) * self.size > MOST_ENTRIES:
            raise AffineDPError(
                f"{self.rows:,} sums of {self.size:,} values do not fit in memory: group values"
            )
        if self.own is not None:
            own = np.asarray(frozen(self.own), dtype=float)
            if own.ndim != 2 or own.shape[1] != self.size or not len(own):
                raise AffineDPError(
                    f"a workload needs one column for each of the {self.size} values: its matrix "
                    f"has the shape {own.shape}"
                )
            if not np.isfinite(own).all() or not np.abs(own).max(axis=1).min() > 0:
                raise AffineDPError("a workload needs finite numbers, and no row without any")
            check_squares(np.abs(own), "a workload has the number", "its rows")
            object.__setattr__(self, "own", np.asarray(frozen(own)))

    @classmethod
    def of(cls, given: Any, size: int) -> Workload:
        """Return a workload as people write it: a word, or a matrix."""
        if isinstance(given, str):
            return cls(size, given)  # type: ignore[arg-type]
        matrix: Any = real_matrix(given, "workload")
        return cls(size, "own", matrix.toarray() if hasattr(matrix, "toarray") else matrix)

    @property
    def rows(self) -> int:
        """How many sums there are."""
        if self.form == "own":
            return len(self.own)
        return self.size if self.form == "prefix" else self.size * (self.size + 1) // 2

    @property
    def ends(self) -> list[tuple[int, int]]:
        """The first and the last value of every range."""
        return [(a, b) for a in range(self.size) for b in range(a, self.size)]

    @cached_property
    def matrix(self) -> FloatArray:
        """One row per sum, one column per value."""
        if self.form == "own":
            return np.array(self.own)
        if self.form == "prefix":
            return np.tri(self.size)
        first, last = np.array(self.ends).T[:, :, None]
        values = np.arange(self.size)
        return np.asarray((first <= values) & (values <= last), dtype=float)

    @cached_property
    def gram(self) -> FloatArray:
        """WᵀW."""
        return np.asarray(self.matrix.T @ self.matrix)


@dataclass(frozen=True, eq=False)
class Basis(Part):
    """Whole contrasts of the values of an attribute, which are measured beside the total."""

    kind = "basis"
    # one row per value, one column per contrast: whole numbers below 2³¹
    rows: Any = field(repr=False)
    # contrasts are in units of 2^bits
    bits: int

    def __post_init__(self) -> None:
        rows = np.asarray(frozen(self.rows))
        if rows.ndim != 2 or rows.dtype.kind != "i" or not 0 <= self.bits <= 60:
            raise AffineDPError("a basis is a matrix of whole numbers, in units of 2^bits")
        if rows.size and not np.abs(rows).max() < 1 << 31:
            raise AffineDPError("contrasts must be below 2**31")
        if np.linalg.matrix_rank(self.inverse) < rows.shape[1] + 1:
            raise AffineDPError("contrasts must be independent of each other and of the total")
        object.__setattr__(self, "rows", rows)

    @property
    def sides(self) -> int:
        """How many contrasts there are."""
        return int(self.rows.shape[1])

    @cached_property
    def inverse(self) -> FloatArray:
        """What makes values of the total and of contrasts in units."""
        rows = np.asarray(self.rows, dtype=float) / 2.0**self.bits
        return np.asarray(np.linalg.pinv(np.hstack([np.ones((len(rows), 1)), rows]).T))

    @property
    def centre(self) -> FloatArray:
        """By what the total is spread over values."""
        return np.asarray(self.inverse[:, 0])

    @property
    def back(self) -> FloatArray:
        """What makes values of whole contrasts."""
        return np.asarray(self.inverse[:, 1:] / 2.0**self.bits)

    @cached_property
    def diagonal(self) -> tuple[int, ...]:
        """What a person at every value adds to the sum of squared contrasts, times 4^bits."""
        wide = np.asarray(self.rows).astype(object)
        return tuple(int(value) for value in (wide * wide).sum(axis=1))

    def determines(self, workload: Workload) -> bool:
        """Return whether all sums follow from the total and the contrasts."""
        own = workload.matrix
        total = np.vstack([np.ones(len(self.rows)), np.asarray(self.rows).T / 2.0**self.bits])
        off = np.abs(own @ self.inverse @ total - own).max(axis=1)
        return bool((off <= 1e-7 * np.abs(own).max(axis=1)).all())

    def contrasts(self, turned: NDArray[Any], absolute: bool, most: int) -> NDArray[Any]:
        """Return contrasts along the first axis, exactly for whole numbers of at most ``most``."""
        matrix = np.asarray(self.rows).T
        matrix = np.abs(matrix) if absolute else matrix
        flat = turned.reshape(len(turned), -1)
        whole = turned.dtype.kind in "iO"
        found = wide_product(matrix, flat, most) if whole else matrix @ flat
        return np.asarray(found.reshape(-1, *turned.shape[1:]))


def along(matrix: FloatArray, table: NDArray[Any], axis: int) -> FloatArray:
    """Return a table after a matrix was applied along one axis."""
    return np.moveaxis(np.tensordot(matrix, table, (1, axis)), 0, axis)


def answer_variances(
    workload: Workload | None, basis: Basis | None, n: int
) -> tuple[FloatArray, FloatArray]:
    """Return the variances of all that is asked, by white noise on contrasts and on the total."""
    if workload is None:
        return np.array([(n - 1) / n]), np.array([1 / n**2])
    own = workload.matrix
    if basis is None:
        beside = own.sum(axis=1) ** 2 / n**2
        return (own**2).sum(axis=1) - beside * n, beside
    return ((own @ basis.inverse[:, 1:]) ** 2).sum(axis=1), (own @ basis.centre) ** 2
