"""Neighbours that may differ in several parts at once: one move of each part.

One person who is counted once in each of several tables moves one cell in each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from affinedp.arrays import EPS, FloatArray, Matrix, Norm, dense
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.rational import combination
from affinedp.neighbours.adjacency import (
    LISTED,
    ONLY_ROUNDING,
    Adjacency,
    Columns,
    ExactMatrix,
    Sensitivity,
    Vector,
    checked_unit,
)


class _Move(NamedTuple):
    """One move of a part."""

    values: FloatArray
    off: FloatArray
    exact: Callable[[], Vector | None]


class JointAdjacency(Adjacency):
    """Data sets that differ by at most one move of each of several parts, in either direction.

    Noise that is independent from part to part has the sensitivity ``√(Σ s²)`` (Gaussian) or
    ``Σ s`` (Laplace) of the parts' own s, and that is attained.  For other noise the sum of the
    parts' sensitivities is a bound.
    """

    kind = "joint"

    def __init__(self, parts: Sequence[Adjacency], *, unit: str | None = None) -> None:
        self.parts = tuple(parts)
        if not self.parts or not all(isinstance(part, Adjacency) for part in self.parts):
            raise AffineDPError("give at least one part, each an Adjacency")
        self.domain = self.parts[0].domain
        if any(part.domain.key != self.domain.key for part in self.parts):
            raise AffineDPError("the parts are about different manifolds")
        self._unit = checked_unit(unit)

    def fields(self) -> dict[str, Any]:
        """Return what makes these neighbours, by argument of the constructor."""
        return {"parts": self.parts, **({"unit": self._unit} if self._unit else {})}

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        inner = "; ".join(dict.fromkeys(part.words for part in self.parts))
        return f"at most one move in each of {len(self.parts)} parts ({inner})"

    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        found = [part.measured(matrix, norm, numbers) for part in self.parts]
        apart = self._apart(matrix)
        squares_add = norm == 2 and apart
        values, uppers = [one.value for one in found], [one.upper for one in found]
        value = math.hypot(*values) if squares_add else math.fsum(values)
        upper = math.hypot(*uppers) if squares_add else math.fsum(uppers)
        upper *= 1 + 4 * EPS
        direction = np.asarray(sum(one.direction for one in found))
        if not apart:
            moved = np.asarray(matrix @ direction)
            value = float(np.abs(moved).sum() if norm == 1 else np.linalg.norm(moved))
        exact = apart and all(one.exact for one in found)
        return Sensitivity(
            value,
            upper,
            exact and upper <= value * (1 + ONLY_ROUNDING),
            f"one move in each of {len(found)} parts ({found[0].method})",
            direction,
            tuple(dict.fromkeys(text for one in found for text in one.warnings)),
        )

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> None:
        return None  # sums of parts are not decided exactly

    def _apart(self, matrix: Matrix) -> bool:
        """Whether no row of the matrix sees moves of two parts."""
        seen = np.zeros(matrix.shape[0], dtype=int)
        for part in self.parts:
            seen += dense((abs(matrix) @ abs(part.span())).sum(axis=1)).ravel() > 0
        return bool(seen.max(initial=0) <= 1)

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        parts = [_listed(part, limit) for part in self.parts]
        count = (math.prod(2 * len(part) + 1 for part in parts) - 1) // 2
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        steps = [[(), *([(sign, one)] for one in part for sign in (1, -1))] for part in parts]
        # one of every pair ±v: the first part that moves does so forwards
        together = (list(itertools.chain(*choice)) for choice in itertools.product(*steps))
        chosen = [choice for choice in together if choice and choice[0][0] > 0]
        if chosen:
            values = [sum(sign * one.values for sign, one in choice) for choice in chosen]
            off = [sum(one.off for _, one in choice) for choice in chosen]
            yield Columns(np.column_stack(values), np.column_stack(off), lambda k: _sum(chosen[k]))

    def span(self) -> Matrix:
        """Return vectors that span the moves of all parts."""
        return np.hstack([dense(part.span()) for part in self.parts])

    def exact_span(self) -> list[Vector]:
        """Return vectors that span the moves of all parts, in rational numbers."""
        return [vector for part in self.parts for vector in part.exact_span()]


def _listed(part: Adjacency, limit: int) -> list[_Move]:
    """The moves of a part, one by one."""
    return [
        _Move(columns.values[:, k], columns.off[:, k], partial(columns.exact, k))
        for columns in part.moves(limit)
        for k in range(columns.values.shape[1])
    ]


def _sum(choice: Sequence[tuple[int, _Move]]) -> Vector | None:
    """Moves that are made together, in rational numbers."""
    known = [(sign, vector) for sign, one in choice if (vector := one.exact()) is not None]
    return combination(known) if len(known) == len(choice) else None
