"""Whole numbers times whole scales, kept apart: 64 bits are enough for nearly all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scaled:
    """The integers ``q X``, to which noise Z is added; what comes out is ``(q X + Z) / q``.

    Examples
    --------
    >>> (Scaled(np.array([3, 5]), np.array([4, 2])) + np.array([2, -1])).tolist()
    [3.5, 4.5]
    """

    counts: NDArray[Any] = field(repr=False)  # X, exact: int64, or Python integers of any size
    q: Integers = field(repr=False)  # positive, of the same shape

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the integers."""
        return self.counts.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self.counts.astype(object) * self.q.astype(object))

    def __add__(self, drawn: NDArray[Any]) -> FloatArray:
        """Return ``(q X + Z) / q`` from its whole part and its remainder.

        They say no more than q X + Z does: with Z = a q + r and 0 ≤ r < q, the whole part is X + a
        and the remainder r, and nothing wider than X is formed.  (If X + a left the range of 64
        bits it would wrap around, still as a function of q X + Z alone.)
        """
        counts, q = self.counts, self.q
        if counts.dtype.kind == "O" or drawn.dtype.kind == "O":
            drawn, wide = drawn.astype(object), q.astype(object)
            whole = drawn // wide
            rest = drawn - whole * wide
            whole = whole + counts.astype(object)
        else:
            whole = drawn // q
            rest = drawn - whole * q
            whole = whole + counts
        return np.asarray(whole.astype(float) + rest.astype(float) / q)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Several of them below each other: those that need wide integers do not widen the others."""

    parts: tuple[Scaled, ...] = field(repr=False)  # each of shape (p, 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the integers."""
        return (sum(len(part.q) for part in self.parts), 1)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.concatenate([np.asarray(part) for part in self.parts])

    def __add__(self, drawn: NDArray[Any]) -> FloatArray:
        ends = np.cumsum([len(part.q) for part in self.parts])[:-1]
        return np.concatenate([part + own for part, own in zip(self.parts, np.split(drawn, ends))])


def wide_product(matrix: Integers, table: NDArray[Any], most: int) -> NDArray[Any]:
    """Return ``matrix @ table`` exactly, for whole numbers of at most ``most`` in the table.

    Wider numbers are taken some bits at a time, so that nothing overflows; how many times is said
    by the bound, and not by the table.

    Examples
    --------
    >>> wide_product(np.array([[3, -2]]), np.array([[2**80], [7]], dtype=object), 2**80).tolist()
    [[3626777458843887524118514]]
    """
    largest = int(np.abs(matrix).max(initial=1))
    step = 62 - largest.bit_length() - len(table).bit_length()
    bits = most.bit_length()
    if bits <= step:
        return np.asarray(matrix @ table.astype(np.int64))
    found: NDArray[Any] = np.zeros((len(matrix), table.shape[1]), dtype=object)
    wide = table.astype(object)
    for shift in range(0, bits, step):
        part = wide >> shift
        if shift + step < bits:
            part = part & ((1 << step) - 1)
        found = found + ((matrix @ part.astype(np.int64)).astype(object) << shift)
    return found
