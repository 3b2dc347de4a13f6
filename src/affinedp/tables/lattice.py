"""Whole numbers that obey linear equations: the integer kernel lattice, in exact integers.

Column operations with determinant ±1 bring the equations to lower triangular form ``D V = [H 0]``
(Hermite's form without its last normalisation).  The columns of V behind the zeros are a basis of
all whole-number vectors of the kernel; the others solve ``D x = b`` in whole numbers, or show
that no whole numbers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError

# Shorter bases are looked for up to this many dimensions.
MOST_REDUCED = 60
REDUCTIONS = 20_000
LOVASZ = 0.99

Integers = NDArray[Any]  # int64, or Python integers in an object array
SparseVector = dict[int, int]


@dataclass(frozen=True, eq=False)
class Lattice:
    """All whole-number solutions of linear equations with whole coefficients.

    Attributes
    ----------
    basis : array of int64, shape (n, k)
        Every whole-number vector of the kernel is a combination of the columns with whole
        coefficients.
    steps : tuple
        For each independent equation (its place, pivot, the coefficients of the earlier pivots'
        columns, the column that goes with the pivot): forward substitution.
    checks : tuple
        The equations that follow from earlier ones, with their coefficients.
    """

    basis: Integers
    steps: tuple[tuple[int, int, SparseVector, SparseVector], ...]
    checks: tuple[tuple[int, SparseVector], ...]

    def solve(self, right: Integers) -> Integers | None:
        """Return whole numbers x with ``D x = right`` for each row, or None if there are none.

        Parameters
        ----------
        right : array of int, shape (rows, equations)
            Right sides.
        """
        count, n = len(right), len(self.basis)
        found = np.zeros((count, n), dtype=object)
        amounts = np.zeros((count, len(self.steps)), dtype=object)
        for place, (equation, pivot, earlier, column) in enumerate(self.steps):
            left = right[:, equation].astype(object)
            for other, value in earlier.items():
                left = left - amounts[:, other] * value
            if (left % pivot != 0).any():
                return None
            amounts[:, place] = left // pivot
            for entry, value in column.items():
                found[:, entry] += amounts[:, place] * value
        for equation, coefficients in self.checks:
            left = right[:, equation].astype(object)
            for other, value in coefficients.items():
                left = left - amounts[:, other] * value
            if (left != 0).any():
                return None
        return found


def kernel_lattice(equations: Sequence[Mapping[int, int]], n: int) -> Lattice:
    """Return the whole-number solutions of ``D x = 0``, and how to solve ``D x = b``.

    Parameters
    ----------
    equations : sequence of mappings
        The rows of D: nonzero whole coefficients by entry.
    n : int
        Number of entries.

    Examples
    --------
    >>> kernel_lattice([{0: 2, 1: 3}], 2).basis.T.tolist() in ([[3, -2]], [[-3, 2]])
    True
    """
    # column j: what D makes of it (by equation), and which combination of entries it is
    images: dict[int, SparseVector] = {j: {} for j in range(n)}
    for i, row in enumerate(equations):
        for j, value in row.items():
            images[j][i] = value
    combinations: dict[int, SparseVector] = {j: {j: 1} for j in range(n)}
    placed: list[tuple[int, int]] = []
    steps, checks = [], []
    for i in range(len(equations)):
        earlier = {p: images[j][i] for p, (_, j) in enumerate(placed) if i in images[j]}
        column = _eliminate(i, images, combinations, {j for _, j in placed})
        if column is None:
            checks.append((i, earlier))
            continue
        steps.append((i, images[column][i], earlier, combinations[column]))
        placed.append((i, column))
    pivots = {j for _, j in placed}
    free = [combinations[j] for j in range(n) if j not in pivots]
    return Lattice(_array(shortened(free, n), n), tuple(steps), tuple(checks))


def _eliminate(
    i: int,
    images: dict[int, SparseVector],
    combinations: dict[int, SparseVector],
    placed: set[int],
) -> int | None:
    """Leave equation i in at most one of the columns that are not placed yet, by Euclid."""
    active = [j for j, image in images.items() if i in image and j not in placed]
    while len(active) > 1:
        # the smallest coefficient, then the shortest column: others change the least
        pivot = min(active, key=lambda j: (abs(images[j][i]), len(combinations[j])))
        for j in active:
            if j != pivot:
                times = _nearest_quotient(images[j][i], images[pivot][i])
                _subtract(images[j], images[pivot], times)
                _subtract(combinations[j], combinations[pivot], times)
        active = [j for j in active if i in images[j]]
    return active[0] if active else None


def _nearest_quotient(value: int, divisor: int) -> int:
    return (2 * value + divisor) // (2 * divisor)


def _subtract(vector: SparseVector, other: SparseVector, times: int) -> None:
    for place, value in other.items():
        left = vector.get(place, 0) - times * value
        if left:
            vector[place] = left
        else:
            vector.pop(place, None)


def shortened(vectors: Sequence[SparseVector], n: int) -> list[SparseVector]:
    """Return a basis of the same lattice with shorter vectors (Lenstra, Lenstra, Lovász).

    The basis changes in exact integers; floating point only decides what to try, so the lattice
    stays the same whatever it decides.

    Parameters
    ----------
    vectors : sequence of mappings
        A basis.
    n : int
        Number of entries.
    """
    basis = [dict(vector) for vector in vectors]
    if not 1 < len(basis) <= MOST_REDUCED:
        return basis
    k = 1
    for _ in range(REDUCTIONS):
        if k >= len(basis):
            break
        lengths, shares = _orthogonalised(basis[: k + 1], n)
        for j in range(k - 1, -1, -1):
            times = round(shares[j])
            if times:
                _subtract(basis[k], basis[j], times)
                lengths, shares = _orthogonalised(basis[: k + 1], n)
        if lengths[k] >= (LOVASZ - shares[k - 1] ** 2) * lengths[k - 1]:
            k += 1
        else:
            basis[k - 1], basis[k] = basis[k], basis[k - 1]
            k = max(1, k - 1)
    return basis


def _orthogonalised(basis: Sequence[SparseVector], n: int) -> tuple[FloatArray, FloatArray]:
    """Squared lengths after orthogonalisation, and the last vector's share of the others."""
    triangle = np.asarray(np.linalg.qr(_array(basis, n).astype(float), mode="r"))
    diagonal = np.diagonal(triangle)
    return diagonal**2, triangle[:, -1] / diagonal


def _array(vectors: Sequence[SparseVector], n: int) -> Integers:
    array = np.zeros((n, len(vectors)), dtype=np.int64)
    for j, vector in enumerate(vectors):
        for i, value in vector.items():
            if abs(value) > 2**40:
                raise AffineDPError(
                    "the coefficients of the equations are too large to publish whole numbers"
                )
            array[i, j] = value
    return array
