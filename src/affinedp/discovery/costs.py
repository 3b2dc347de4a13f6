"""What an equation costs: the ε that noise really gives if the public knows one more equation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Norm
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import LinearEquations
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import meaning, rounded_up
from affinedp.laws.base import Law, law_named
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.strategies.dense import Dense

# One equation: coefficients by name, and the constant on their side.
Row = tuple[Mapping[str, Fraction], Fraction]

# Entries over which equations that tie rows are verified together.
MOST_ENTRIES = 240
# Numbers of one column over which sums of rows are verified together.
MOST_COMPONENT = 60


@dataclass(frozen=True)
class Cost:
    """What is really kept where an equation is known, or None, and why it may be more."""

    epsilon: float | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Promise:
    """The promise whose loss is told: that of a design, or of independent noise."""

    law: str
    epsilon: float  # what it was meant for
    delta: float
    mu: float | Mapping[str, float] = 1.0  # how far a number may move; 1 if not named
    given: tuple[Row, ...] = ()  # the equations that were taken into account
    design: Any = None

    @property
    def words(self) -> str:
        """What the costs are about, for people."""
        at = f" at δ = {self.delta:g}" if self.delta else ""
        if self.design is not None:
            return f"the given design, which keeps ε = {self.epsilon:.4g}{at}"
        law = "Gaussian" if self.law == "gaussian" else "Laplace"
        return f"independent {law} noise meant for ε = {self.epsilon:g}{at}"

    def moves(self, names: Sequence[str]) -> FloatArray:
        """Return μ by name; ``people@3``, a number at row 3, has the μ of its column."""
        if not isinstance(self.mu, Mapping):
            return np.full(len(names), float(self.mu))
        mu = self.mu
        return np.array(
            [float(mu.get(name, mu.get(name.rpartition("@")[0], 1.0))) for name in names]
        )

    def cost(self, rows: Sequence[Row]) -> Cost:
        """Return the ε that is kept if the public knows these equations between columns too."""
        try:
            if self.design is not None:
                return self._cost_of_design(rows)
            return self._cost_of_independent(rows)
        except TooManyCircuitsError:
            return Cost(None, "too many ways to move for an exact answer")
        except AffineDPError as error:
            return Cost(None, str(error).split(". ")[0])

    def _cost_of_design(self, rows: Sequence[Row]) -> Cost:
        assert self.design is not None
        old = self.design.manifold
        outside = sorted({name for row, _ in rows for name in row} - set(old.names))
        if outside:
            return Cost(None, f"the design is not about {outside[0]}")
        known = [*_rows_of(old), *rows]
        manifold = _manifold(known, old.names)
        adjacency = self.design.adjacency
        note = ""
        mu = np.ones(old.n)
        if isinstance(adjacency, CircuitAdjacency):
            mu = adjacency.mu
        else:
            note = "for the neighbours of Definition 4 with μ = 1"
        strategy = replace(self.design.strategy, domain=manifold)
        return Cost(_kept(strategy, self.design.noise, mu, self.delta), note)

    def _cost_of_independent(self, rows: Sequence[Row]) -> Cost:
        names, related = self._related({name for row, _ in rows for name in row})
        mu = self.moves(names)
        manifold = _manifold([*related, *rows], names)
        if manifold.dim == 0 or len(manifold.public_entries) == len(names):
            return Cost(None, "nothing is left to protect: publish it as it is")
        law = law_named(self.law)()
        scale = mu / law.limit(self.epsilon, self.delta)
        if related:
            meant = CircuitAdjacency(_manifold(related, names), mu)
            norm: Norm = 2 if self.law == "gaussian" else 1
            farthest = meant.sensitivity(np.eye(len(names)), norm).upper
            scale = np.full(len(names), farthest / law.limit(self.epsilon, self.delta))
        strategy = Dense(manifold, np.eye(len(names)), np.diag(scale), tuple(names))
        return Cost(_kept(strategy, law, mu, self.delta))

    def _related(self, names: set[str]) -> tuple[list[str], list[Row]]:
        """The given equations that touch these columns, also through others, and all columns."""
        found: list[Row] = []
        waiting = list(self.given)
        while near := [row for row in waiting if set(row[0]) & names]:
            found += near
            waiting = [row for row in waiting if row not in near]
            names = names | {name for row, _ in near for name in row}
        # leaving some out would make the cost too small
        if found and len(names) > MOST_ENTRIES:
            raise AffineDPError(f"given equations tie {len(names)} columns together: too many")
        return sorted(names), found


def _kept(strategy: Dense, law: Law, mu: FloatArray, delta: float) -> float:
    """The ε that noise keeps for the neighbours of Definition 4."""
    found = strategy.largest(CircuitAdjacency(strategy.domain, mu), law)
    if found.leak is not None:
        return math.inf
    return float(law.curve(rounded_up(found.upper), found.moves).epsilon(delta))


def _rows_of(manifold: AffineManifold) -> list[Row]:
    """The equations of a manifold, exactly where they are."""
    offsets = manifold.b
    exact = manifold.exact_rows
    if exact is None:
        raise AffineDPError("the design's equations are not rational")
    return [
        ({manifold.names[j]: value for j, value in row.items()}, meaning(float(offset)))
        for row, offset in zip(exact, offsets)
    ]


def _manifold(rows: Sequence[Row], names: Sequence[str]) -> AffineManifold:
    place = {name: j for j, name in enumerate(names)}
    return AffineManifold.from_equations(
        LinearEquations(
            tuple(names),
            tuple({place[name]: value for name, value in row.items()} for row, _ in rows),
            tuple(offset for _, offset in rows),
        ),
        public_entries="allow",
    )


def cost_between_rows(promise: Promise, rows: Sequence[Row], total: int = 0) -> Cost:
    """Return the cost of equations between numbers that are named ``column@row``.

    A design and given equations are about one row.  Where these equations are some of ``total``
    such ones, or too many together, the cost is at least what is told.
    """
    if promise.design is not None:
        return Cost(None, "the design is for one row; this equation ties rows")
    alone = replace(promise, given=())
    found, count = alone.cost(rows), len(rows)
    if found.epsilon is None and count > 1:
        found, count = alone.cost(rows[:1]), 1
    if found.epsilon is not None and count < max(total, len(rows)):
        return Cost(found.epsilon, f"at least: for {count} of {max(total, len(rows))} equations")
    return found


def cost_over_rows(promise: Promise, now: Row, lag: int, rows: int) -> Cost:
    """Return the cost of an equation with an earlier row when so many rows are published together.

    Names end in ``@0`` for a row and in ``@1`` for the one a lag earlier.
    """
    columns = len({name[:-2] for name in now[0]})
    steps = min(rows, max(MOST_ENTRIES // columns, lag + 1))
    written = [
        (
            {f"{name[:-2]}@{t - lag * int(name[-1])}": value for name, value in now[0].items()},
            now[1],
        )
        for t in range(lag, steps)
    ]
    found = cost_between_rows(promise, written, rows - lag)
    return found if found.note else Cost(found.epsilon, f"for all {rows} rows together")


def cost_of_sums(promise: Promise, sums: Sequence[tuple[int, Sequence[int]]], column: str) -> Cost:
    """Return the cost of total rows, each with the rows that it is the sum of, in one column."""
    rows: list[Row] = []
    entries: set[int] = set()
    for total, parts in sums:
        entries |= {total, *parts}
        if rows and len(entries) > MOST_COMPONENT:
            break
        values = {f"{column}@{total}": Fraction(1)}
        rows.append((values | {f"{column}@{part}": Fraction(-1) for part in parts}, Fraction(0)))
    return cost_between_rows(promise, rows, len(sums))


def upward(value: float) -> str:
    """Return ε with three digits, rounded up."""
    if not math.isfinite(value) or value == 0:
        return "∞" if value else "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    shown = math.ceil(value * 10.0**digits * (1 - 1e-9)) / 10.0**digits
    return f"{shown:.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{shown:.0f}"
