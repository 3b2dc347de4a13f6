"""Whole noise on intervals of values: less for prefixes, ranges and other sums than on values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains.crossed import Counted, bits_of
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.laplace import geometric_variance
from affinedp.laws.reach import Alike, alike
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.people import People
from affinedp.parts import frozen, locked
from affinedp.strategies.base import Largest, largest_listed
from affinedp.strategies.margin_blocks import centred
from affinedp.strategies.margin_workloads import along
from affinedp.strategies.margins import MOST_COEFFICIENTS, OfMargins, WholeCells

# By what share of a count an estimate may be off because of rounding.
LARGEST_BIAS = 1e-9


def crossed_rows(each: Sequence[FloatArray]) -> FloatArray:
    """Return what is asked along several attributes, from what is asked along each."""
    found = np.ones((1, 1))
    for rows in each:
        found = np.asarray(np.kron(found, rows), dtype=float)
    return found


def grouping(sizes: Sequence[int], widths: Sequence[int]) -> FloatArray:
    """Return what adds up neighbouring values: one row per box of intervals.

    Examples
    --------
    >>> grouping([3], [2]).tolist()
    [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    each = [
        (np.arange(n) // width == np.arange(-(-n // width))[:, None]).astype(float)
        for n, width in zip(sizes, widths)
    ]
    return crossed_rows(each)


@dataclass(frozen=True, eq=False)
class CountedIntervals(WholeCells, OfMargins):
    """Whole noise on the cells of all attributes, several times with neighbouring values added up.

    Along attributes with a workload values are grouped in intervals.  With Gᵢ for what adds them
    up, least squares give the values of these attributes, for every cell of the others by itself,
    the precision ``X = Σ wᵢ GᵢᵀGᵢ``.  Attributes in rules (``tied``) stand beside them, with
    intervals of one value; combinations that nobody can have are left out of Gᵢ.
    """

    kind = "counted intervals"
    # of the intervals along every attribute with a workload; one row for every table that is noisy
    widths: Any = field(repr=False)
    # how much each of these tables counts
    weights: Any = field(repr=False)
    # other attributes whose combinations with these somebody can have or not
    tied: tuple[int, ...] = ()
    # which combinations of grouped attributes somebody can have, in one row; None for all of them
    possible: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = np.asarray(frozen(np.asarray(self.widths, dtype=np.int64)))
        if self.domain.public or not any(self.workloads):
            raise AffineDPError("intervals are for attributes with a workload, and people who join")
        if widths.shape != (len(widths), len(self.grouped)) or widths.min(initial=1) < 1:
            raise AffineDPError("intervals need a width for every attribute with a workload")
        if not (widths == 1).all(axis=1).any():
            raise AffineDPError("values that get no noise themselves do not follow from intervals")
        object.__setattr__(self, "widths", widths)
        self._keep_positive("weights", (len(widths),), "table of intervals needs a positive weight")
        cells = math.prod(self.sizes[j] for j in self.grouped)
        able = np.ones(cells, bool) if self.possible is None else np.asarray(frozen(self.possible))
        if able.shape != (cells,) or able.dtype != bool:
            raise AffineDPError("one truth value says of every combination whether it is possible")
        object.__setattr__(self, "possible", locked(able))
        _ = self.gains  # what is too far apart is refused before anything is charged

    @property
    def measured(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        """All attributes, once for every table that is noisy."""
        return (tuple(range(len(self.sizes))),) * len(self.widths)

    @cached_property
    def grouped(self) -> tuple[int, ...]:
        """The attributes with a workload, and those in rules."""
        asked = {j for j, one in enumerate(self.workloads) if one is not None}
        return tuple(sorted(asked.union(self.tied)))

    @cached_property
    def _shapes(self) -> list[list[int]]:
        """The sides of every table that is noisy."""
        width = [dict(zip(self.grouped, row)) for row in self.widths.tolist()]
        return [[-(-n // one.get(j, 1)) for j, n in enumerate(self.sizes)] for one in width]

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """How many numbers of every table get noise."""
        return tuple(map(math.prod, self._shapes))

    @property
    def cells_alone(self) -> bool:
        """Sums follow from intervals, too."""
        return False

    # -------------------------------------------------------------- the promise

    def _added_up(self, table: NDArray[Any]) -> list[NDArray[Any]]:
        """The table of all attributes by intervals; a last axis may follow."""
        found = []
        for widths in self.widths.tolist():
            part = table
            for j, width in zip(self.grouped, widths):
                part = np.add.reduceat(part, np.arange(0, self.sizes[j], width), axis=j)
            found.append(part)
        return found

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return what is measured of differences of the cells of a small table."""
        table = dense(moves).reshape(*self.sizes, -1)
        return np.vstack([one.reshape(-1, table.shape[-1]) for one in self._added_up(table)])

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the sum of all rates, in fractions: a person is in one cell of every table."""
        rates = self.rates(law)
        if type(adjacency) is not People or adjacency.move != "person" or rates is None:
            return largest_listed(self, adjacency, law)
        upper = sum(map(Fraction, rates), Fraction(0)) * adjacency.size
        return Largest(
            upper, upper, True, "sum over the tables of intervals, in fractions",
            because=" for independent whole noise on intervals of values; the estimates are "
            "computed from what is published",
        )  # fmt: skip

    def counted(self, data: Counted, bound: float | None) -> NDArray[Any]:
        """Return the cells of all tables."""
        found = self._added_up(data(tuple(range(len(self.sizes)))))
        return np.concatenate([one.reshape(-1, 1) for one in found])

    # -------------------------------------------------------------- least squares

    @cached_property
    def gains(self) -> tuple[FloatArray, ...]:
        """What values of grouped attributes take of the boxes of every table."""
        sizes = [self.sizes[j] for j in self.grouped]
        each = [grouping(sizes, row) * self.possible for row in self.widths.tolist()]
        precision: Any = sum(float(w) * G.T @ G for w, G in zip(self.weights, each))
        able = self.possible
        inverse = np.zeros(precision.shape)
        inverse[np.ix_(able, able)] = np.linalg.pinv(precision[able][:, able], hermitian=True)
        found = tuple(float(w) * inverse @ G.T for w, G in zip(self.weights, each))
        off = sum(gain @ G for gain, G in zip(found, each)) - np.diag(able.astype(float))
        if not np.abs(off).max() < LARGEST_BIAS:
            raise AffineDPError("weights of intervals are too far apart for double precision")
        return locked(found)

    def _last(self, table: NDArray[Any]) -> NDArray[Any]:
        """A table with grouped attributes last, as one axis."""
        others = tuple(j for j in range(len(self.sizes)) if j not in self.grouped)
        found = table.transpose(*others, *self.grouped)
        return found.reshape(*found.shape[: len(others)], -1)

    def _back(self, values: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """The same with every attribute in its place."""
        order = [*(j for j in range(len(shape)) if j not in self.grouped), *self.grouped]
        return values.reshape([shape[j] for j in order]).transpose(np.argsort(order))

    def estimated(
        self, seen: Sequence[FloatArray], shared: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """Return residuals by least squares from noisy intervals."""
        each = zip(seen, self._shapes, self.gains)
        values: Any = sum(self._last(part.reshape(sides)) @ gain.T for part, sides, gain in each)
        table = self._back(values, self.sizes)
        found = {}
        for B in self.blocks.tolist():
            out = tuple(j for j in range(len(self.sizes)) if not B >> j & 1)
            found[B] = centred(table.sum(axis=out))
        return found

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise on intervals combinations of outputs are made."""
        rows = []
        for combination in self._every(combinations):
            taken = np.zeros(self.sizes)
            for A, given in self._split(combination):
                part = given
                for j, workload in enumerate(self.workloads):
                    if not A >> j & 1:
                        part = np.expand_dims(part, j)
                    elif workload is not None:
                        part = along(workload.matrix.T, part, j)
                taken += part
            values = self._last(taken)
            each = zip(self.gains, self._shapes)
            rows.append(np.concatenate([self._back(values @ g, to).ravel() for g, to in each]))
        return np.array(rows)

    # -------------------------------------------------------------- the errors

    def _asked_rows(self, chosen: tuple[int, ...]) -> FloatArray:
        """What a margin asks for along grouped attributes, one row per number."""
        each = []
        for j in self.grouped:
            workload, n = self.workloads[j], self.sizes[j]
            own = np.eye(n) if workload is None else workload.matrix
            each.append(own if j in chosen else np.ones((1, n)))
        return crossed_rows(each)

    def _beside(self, chosen: tuple[int, ...]) -> int:
        """How many cells of the other attributes a number of a margin adds up."""
        out = set(range(len(self.sizes))) - {*self.grouped, *chosen}
        return math.prod(self.sizes[j] for j in out)

    def _in_cells(self, rows: FloatArray, chosen: tuple[int, ...]) -> FloatArray:
        """Numbers that are asked along grouped attributes, for all cells of a margin."""
        if not any(j in self.grouped for j in chosen):
            return rows
        sides = [self.asked[j] if j in self.grouped else 1 for j in chosen]
        return np.broadcast_to(rows.reshape(sides), self.shape(chosen)).reshape(1, -1)

    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin, or one row where cells differ."""
        A = bits_of(chosen)
        if not any(A & ~other == 0 for other in self.sets.tolist()):
            raise AffineDPError(f"the margin {chosen} is not released")
        rows, found = self._asked_rows(chosen), np.zeros(())
        for gain, rate in zip(self.gains, self.known_rates(law)):
            found = found + geometric_variance(rate) * ((rows @ gain) ** 2).sum(axis=1)
        return self._in_cells(self._beside(chosen) * found, chosen)

    def cell_variances(self, law: Law) -> FloatArray:
        """Return the mean variance of what every margin asks for."""
        return np.array([self.node_variances(law, chosen).mean() for chosen in self.margins])

    def block_variances(self, law: Law) -> FloatArray:
        """Refuse: this noise is white on no block."""
        raise AffineDPError("noise on intervals of values has no one variance for a block")

    def node_reaches(self, law: Law, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far the numbers of a margin are from the truth, from the law of sums."""
        rough = self.reach_of(law, self.node_variances(law, chosen), outside)
        rows = self._asked_rows(chosen)
        if len(rows) * float(sum(gain.shape[1] for gain in self.gains)) > MOST_COEFFICIENTS:
            return rough
        key = chosen, self.known_rates(law)
        if key not in self._sums:
            counts = [gain.shape[1] for gain in self.gains]
            times = np.full(sum(counts), float(self._beside(chosen)))
            columns = np.hstack([rows @ gain for gain in self.gains])
            self._sums[key] = alike(np.repeat(key[1], counts), times, columns)
        return np.minimum(rough, self._in_cells(self._sums[key].reach(outside), chosen))

    @cached_property
    def _sums(self) -> dict[Any, Alike]:
        return {}
