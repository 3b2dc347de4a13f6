"""Linear algebra in fractions: the fuzzer's own idea of manifolds and neighbours."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

from oracles import rank, reduced

Vector = tuple[Fraction, ...]


@dataclass(frozen=True)
class Equations:
    """``rows · x = right``, exactly."""

    rows: tuple[Vector, ...]
    right: Vector
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    def solved_for(self, pivots):
        """The coefficients of the other entries and the constants, one row per pivot; or None."""
        others = [j for j in range(self.n) if j not in pivots]
        table = [
            [*(row[j] for j in pivots), *(-row[j] for j in others), right]
            for row, right in zip(self.rows, self.right)
        ]
        table = reduced(table, len(pivots))
        if table is None:
            return None
        return [(dict(zip(others, row[len(pivots) : -1])), row[-1]) for row in table]

    def point(self, free: dict[int, Fraction]) -> Vector:
        """The only point with these free entries."""
        pivots = [j for j in range(self.n) if j not in free]
        x = dict(free)
        solved = self.solved_for(pivots)
        assert solved is not None
        for j, (row, constant) in zip(pivots, solved):
            x[j] = constant + sum(value * free[k] for k, value in row.items())
        return tuple(x[j] for j in range(self.n))

    def bases(self):
        """Every set of free entries with its kernel basis: entry i moves by 1, others follow."""
        q = rank(self.rows)
        for pivots in itertools.combinations(range(self.n), q):
            solved = self.solved_for(pivots)
            if solved is None:
                continue
            free = [j for j in range(self.n) if j not in pivots]
            kernel = {}
            for i in free:
                v = [Fraction(0)] * self.n
                v[i] = Fraction(1)
                for j, (row, _) in zip(pivots, solved):
                    v[j] = row[i]
                kernel[i] = tuple(v)
            yield tuple(free), kernel


@dataclass(frozen=True)
class Move:
    """Neighbours differ by ``t · direction`` with ``|t| ≤ reach``."""

    direction: Vector
    reach: Fraction

    def step(self, start: dict[int, Fraction]) -> Fraction | None:
        """About the largest t for which the moved entries of ``start`` are still doubles."""
        common = math.lcm(*(self.direction[j].denominator for j in start))
        finest = math.frexp(float(self.reach / common))[1] - 20
        for exponent in range(finest, finest + 21):
            unit = common * Fraction(2) ** exponent
            t = self.reach // unit * unit
            if t and all(is_double(x + t * self.direction[j]) for j, x in start.items()):
                return t
        return None


def is_double(value: Fraction) -> bool:
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False
