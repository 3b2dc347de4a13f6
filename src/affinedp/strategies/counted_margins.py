"""Whole noise on the cells of some margins, and all margins from them by least squares.

Independent noise on the cells of margin A, weighted by w_A, gives the residual of block B the
weight ``t_B = Σ_{A ⊇ B} w_A / Π_{A∖B} n_j``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains.crossed import Counted, Sets, cells_of, margin_sets, members, subsets
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.geometrics import Geometrics
from affinedp.laws.laplace import Geometric, geometric_variance
from affinedp.laws.reach_whole import whole_reach, whole_sum_reach
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.people import People
from affinedp.parts import frozen
from affinedp.strategies.base import Drawer, Largest, Prepared, Promised, largest_listed
from affinedp.strategies.contrasts import centred
from affinedp.strategies.margin_tables import MarginTables
from affinedp.strategies.margins import OfMargins


@dataclass(frozen=True, eq=False)
class CountedMargins(OfMargins):
    """Noise on the cells of some margins; the others are computed from them.

    Attributes
    ----------
    domain : Crossed
        The table of all attributes.
    margins : tuple of tuples of int
        The margins that are published.
    measured : tuple of tuples of int
        The margins whose cells get noise.
    weights : array
        How much each of them counts.
    """

    kind = "counted margins"
    measured: tuple[tuple[int, ...], ...] = field(repr=False)
    weights: Any = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = np.asarray(frozen(np.asarray(self.weights, dtype=float)))
        named = margin_sets(len(self.domain.sizes), self.measured).tolist()
        if tuple(members(A) for A in named) != self.measured or weights.shape != (len(named),):
            raise AffineDPError("margins that are measured need a weight each, in their order")
        if not (weights > 0).all() or not np.isfinite(weights).all():
            raise AffineDPError("weights must be positive")
        object.__setattr__(self, "weights", weights)
        if not (self.t > 0).all():
            raise AffineDPError("the margins that are measured do not determine those released")

    @cached_property
    def measured_sets(self) -> Sets:
        """The margins that get noise, as bits."""
        return margin_sets(len(self.domain.sizes), self.measured)

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """How many cells each of them has."""
        return tuple(cells_of(self.domain.sizes, A) for A in self.measured_sets.tolist())

    @property
    def coordinates(self) -> int:
        """How many cells get noise."""
        return sum(self.cells)

    @cached_property
    def t(self) -> FloatArray:
        """The weight of every block."""
        return np.asarray(
            self.weights @ spreads(self.domain.sizes, self.measured_sets, self.blocks)
        )

    @property
    def cells_alone(self) -> bool:
        """Whether only the table of all attributes gets noise, and margins are sums of its cells.

        Where the number of people is public, cells are moved to fit it, and are not whole.
        """
        full = tuple(range(len(self.domain.sizes)))
        return self.domain.public == 0 and self.measured == (full,)

    # -------------------------------------------------------------- the promise

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return the measured margins of differences of the cells of a small table."""
        table = dense(moves).reshape(*self.domain.sizes, -1)
        parts = []
        for A in self.measured_sets.tolist():
            out = tuple(j for j in range(len(self.domain.sizes)) if not A >> j & 1)
            parts.append(table.sum(axis=out).reshape(-1, table.shape[-1]))
        return np.vstack(parts)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the sum over the margins, in fractions; else moves are listed.

        A person who joins is seen once in every margin, one who moves twice in all but the total.
        """
        self.check_public(adjacency)
        rates = self._rates(law)
        known = type(adjacency) is People and adjacency.move in ("person", "replace")
        if not known or rates is None:
            return largest_listed(self, adjacency, law)
        if self.domain.public == 0:
            one = sum(map(Fraction, rates), Fraction(0))
        else:
            seen = (Fraction(rate) for A, rate in zip(self.measured, rates) if A)
            one = 2 * sum(seen, Fraction(0))
        assert isinstance(adjacency, People)
        upper = one * adjacency.size
        return Largest(
            upper, upper, True, "sum over the margins, in fractions",
            because=" for independent whole noise on margins; the estimates are computed from "
            "what is published",
        )  # fmt: skip

    def _rates(self, law: Law) -> tuple[float, ...] | None:
        """The rate of the noise on every measured margin, if the law is known to have them."""
        if type(law) is Geometric:
            return (law.rate,) * len(self.measured)
        return law.rates if type(law) is Geometrics and law.times == self.cells else None

    # -------------------------------------------------------------- the errors

    def _shares(self, A: int) -> Iterator[tuple[int, float]]:
        """What the residual of every block takes of a sum over cells of a measured margin."""
        weight = float(self.weights[self.measured_sets.tolist().index(A)])
        for B, t in zip(self.blocks.tolist(), self.t.tolist()):
            if B & ~A == 0:
                yield B, weight / cells_of(self.domain.sizes, A & ~B) / t

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise on measured cells combinations of cells are made."""
        rows = []
        for combination in self._every(combinations):
            total = {B: centred(part) for B, part in self._totals(combination).items()}
            parts = []
            for A in self.measured_sets.tolist():
                found = np.zeros(self.domain.shape(A))
                for B, share in self._shares(A):
                    shape = [self.domain.sizes[j] if B >> j & 1 else 1 for j in members(A)]
                    found += share * total[B].reshape(shape)
                parts.append(found.ravel())
            rows.append(np.concatenate(parts))
        return np.array(rows)

    def _known_rates(self, law: Law) -> tuple[float, ...]:
        rates = self._rates(law)
        if rates is None:
            raise AffineDPError(f"cells of margins have geometric noise, not {law.words} noise")
        return rates

    def block_variances(self, law: Law) -> FloatArray:
        """Return one over the precision of every block."""
        each = np.array([geometric_variance(rate) for rate in self._known_rates(law)])
        between = spreads(self.domain.sizes, self.measured_sets, self.blocks)
        return np.asarray((self.weights**2 * each) @ between / self.t**2)

    def cell_reach(self, law: Law, chosen: tuple[int, ...], outside: float) -> float:
        """Return how far a cell of a margin is from the truth, from the law of sums."""
        sizes, A = self.domain.sizes, sum(1 << j for j in chosen)
        rates = self._known_rates(law)
        if not self.cell_variance(law, chosen) > 0:
            return 0.0
        if self.cells_alone:
            terms = math.prod(n for j, n in enumerate(sizes) if j not in chosen)
            return whole_reach(1 / rates[0] * (1 + 2.0**-52), terms, outside)
        factors, speeds, times = [], [], []
        for C, rate in zip(self.measured_sets.tolist(), rates):
            # what a block makes of the noise on margin C, spread over the cells of A
            share = {
                B: value / cells_of(sizes, A & ~B) for B, value in self._shares(C) if B & ~A == 0
            }
            found, count = _alike(sizes, A & C, share)
            factors.append(np.abs(found))
            speeds.append(np.full(len(found), rate))
            times.append(count * cells_of(sizes, C & ~A))
        terms_of = np.concatenate(factors), np.concatenate(speeds), np.concatenate(times)
        return whole_sum_reach(*terms_of, outside)

    def _residuals_from(self, noise: FloatArray) -> dict[int, FloatArray]:
        ends = np.cumsum(self.cells)[:-1]
        return self.residuals(np.split(noise, ends))

    def residuals(self, seen: Sequence[FloatArray]) -> dict[int, FloatArray]:
        """Return residuals by least squares from noisy cells of the measured margins.

        Parameters
        ----------
        seen : sequence of arrays
            One per measured margin.
        """
        found = {B: np.zeros(self.domain.shape(B)) for B in self.blocks.tolist()}
        for A, part in zip(self.measured_sets.tolist(), seen):
            table = part.reshape(self.domain.shape(A))
            for B, share in self._shares(A):
                out = tuple(i for i, j in enumerate(members(A)) if not B >> j & 1)
                found[B] = found[B] + share * centred(table.sum(axis=out))
        return found

    # -------------------------------------------------------------- releases

    def scaled(self, factor: float) -> CountedMargins:
        """Refuse: whole noise is made larger by its rate."""
        raise AffineDPError("whole noise has a rate in place of a scale")

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        self._known_rates(law)
        return CountedPlan(self, law, bound)


@dataclass(frozen=True, eq=False)
class CountedPlan(Prepared):
    """Releases of counts with whole noise: nothing is rounded.

    Attributes
    ----------
    strategy : CountedMargins
        What is measured.
    law : Law
        Of the noise.
    """

    strategy: CountedMargins
    law: Law
    bound: float | None = None
    factor: float = 1.0

    def steps(self, data: tuple[Counted]) -> NDArray[Any]:
        """Return the cells of the measured margins."""
        (counts,) = data
        return np.concatenate([counts(A).reshape(-1, 1) for A in self.strategy.measured])

    def shared(self, data: tuple[Counted]) -> FloatArray:
        """Return the residuals that are public."""
        return self.strategy.shared(data[0])

    def draw(self, count: int, drawer: Drawer) -> NDArray[Any]:
        """Return whole noise."""
        return drawer.narrow(self.law, 1, (self.strategy.coordinates, count))

    def reconstruct(self, noisy: NDArray[Any], shared: FloatArray) -> MarginTables:
        """Return all margins, put together on demand."""
        own = self.strategy
        ends = np.cumsum(own.cells)[:-1]
        found = own.residuals(np.split(noisy[:, 0].astype(float), ends))
        return own.tables({**own.public_residuals(shared), **found}, own.cells_alone)


def spreads(sizes: Sequence[int], measured: Sets, blocks: Sets) -> FloatArray:
    """Return Z[A, B] = 1 / Π_{A∖B} n_j where B ⊆ A, and 0 elsewhere.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    measured, blocks : arrays of int
        Sets of attributes.
    """
    found = np.zeros((len(measured), len(blocks)))
    for i, A in enumerate(measured.tolist()):
        for j in np.flatnonzero((blocks & ~A) == 0):
            found[i, j] = 1 / cells_of(sizes, A & ~int(blocks[j]))
    return found


def _alike(
    sizes: Sequence[int], common: int, share: Mapping[int, float]
) -> tuple[FloatArray, FloatArray]:
    """The coefficients for one cell, and how many cells of the common margin have each.

    The residual of block B takes ``share_B`` times the centred sum over the cells that agree in B,
    so that a noisy cell has the coefficient ``Σ_B share_B Π_{j∈B} ([agrees in j] − 1/n_j)``.
    """
    scales, times = [], []
    for same in subsets(common):
        scale = 0.0
        for B, value in share.items():
            scale += value * math.prod(
                (1 if same >> j & 1 else 0) - 1 / sizes[j] for j in members(B)
            )
        scales.append(scale)
        times.append(float(math.prod(sizes[j] - 1 for j in members(common & ~same))))
    return np.array(scales), np.array(times)
