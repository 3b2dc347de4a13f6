"""One circuit and its scale in rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from affinedp.neighbours.norms import in_integers

# Values found in floating point are trusted if their estimated error is below this share of the
# smallest one; otherwise the circuit is computed here.
ACCURATE = 1e-7


def exact_circuit(columns: Sequence[Mapping[int, Fraction]]) -> list[int] | None:
    """Return a vector of integers that these columns map to zero, or None if they are no circuit.

    Parameters
    ----------
    columns : sequence of mappings
        The equations' coefficients of each entry of the circuit: equation to coefficient.

    Returns
    -------
    list of int or None
        One nonzero value for every column.
    """
    rows: dict[int, dict[int, Fraction]] = {}
    for j, column in enumerate(columns):
        for i, value in column.items():
            rows.setdefault(i, {})[j] = value
    found = null_vector([coprime(row) for row in rows.values()], len(columns))
    return found if found is not None and all(found) else None


def null_vector(rows: Sequence[Mapping[int, int]], width: int) -> list[int] | None:
    """Return the vector of integers that these rows map to zero, or None if it is not unique.

    Parameters
    ----------
    rows : sequence of mappings
        Column to nonzero coefficient.
    width : int
        Number of columns.
    """
    left = [dict(row) for row in rows if row]
    done: dict[int, dict[int, int]] = {}
    while left:
        row = min(left, key=len)
        left.remove(row)
        # the column that fewest others share keeps the rows short
        pivot = min(row, key=lambda j: (sum(j in other for other in left), j))
        for others in (left, list(done.values())):
            for other in others:
                if pivot in other:
                    _clear(other, row, pivot)
        done[pivot] = row
        left = [other for other in left if other]
    (*free,) = set(range(width)) - done.keys()
    if len(free) != 1:
        return None
    unit = math.lcm(*(row[pivot] for pivot, row in done.items())) if done else 1
    values = [unit] * width
    for pivot, row in done.items():
        values[pivot] = -row.get(free[0], 0) * (unit // row[pivot])
    return values


def coprime(row: Mapping[int, Fraction]) -> dict[int, int]:
    """Return a multiple of the row with coprime integers.

    Parameters
    ----------
    row : mapping
        Column to nonzero coefficient.
    """
    unit = math.lcm(*(value.denominator for value in row.values()))
    whole = {j: int(value * unit) for j, value in row.items()}
    content = math.gcd(*whole.values())
    return {j: value // content for j, value in whole.items()}


def _clear(row: dict[int, int], by: Mapping[int, int], pivot: int) -> None:
    """Subtract a multiple of ``by`` so that the pivot column vanishes; keep integers coprime."""
    common = math.gcd(row[pivot], by[pivot])
    keep, take = by[pivot] // common, row[pivot] // common
    for j in row:
        row[j] *= keep
    for j, value in by.items():
        after = row.get(j, 0) - take * value
        if after:
            row[j] = after
        else:
            row.pop(j, None)
    if row:
        content = math.gcd(*row.values())
        if content > 1:
            for j in row:
                row[j] //= content


def farthest(values: Sequence[int], mu: Sequence[Fraction]) -> Fraction:
    """Return how far along a circuit neighbours may differ: the largest μ_i / |v_i|.

    Parameters
    ----------
    values : sequence of int
        The circuit.
    mu : sequence of Fraction
        How far each of its entries moves.
    """
    whole, unit = in_integers(dict(enumerate(mu)))
    best, best_size = 0, 1
    for i, far in whole.items():
        size = abs(values[i])
        if far * best_size > best * size:
            best, best_size = far, size
    return best * unit / best_size
