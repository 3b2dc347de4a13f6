"""Margins of a table that is never formed: white noise on residuals, whole noise on cells."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains.base import Numbered
from affinedp.domains.crossed import (
    MOST_PEOPLE,
    Counted,
    Crossed,
    Sets,
    bits_of,
    blocks_of,
    cells_of,
    margin_sets,
    members,
    subsets,
)
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import Integers, Scaled, SideBySide
from affinedp.laws.base import Law, Sampler, sampler_of_law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Geometric, Geometrics, geometric_variance
from affinedp.laws.reach import Alike, Reach, Steps, alike, laplace_spread, sum_reach
from affinedp.laws.sampler import StackedNoise
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.people import People
from affinedp.parts import frozen, locked
from affinedp.strategies.base import (
    GRID_BITS,
    SHARE,
    CountsPlan,
    Largest,
    Prepared,
    Promised,
    Strategy,
    largest_listed,
    released_numbers,
    sum_reaches,
)
from affinedp.strategies.margin_blocks import (
    UNIT_BITS,
    MarginTables,
    adjoint,
    centred,
    checked_margin,
    contrasts,
    exact_square,
    residual,
    rounded_root,
    squared_lengths,
    variance_shares,
)
from affinedp.strategies.margin_workloads import Basis, Workload, along, answer_variances

# Scales are made smaller by this before they are rounded down: it pays for doubles on the way.
SPARE = 2.0**-46
# Numbers of outputs, or of coefficients, that are still written down.
MOST_NUMBERS = 2e8
# Coefficients of all numbers of one margin from which the law of their noise is computed.
MOST_COEFFICIENTS = 5e6


@dataclass(frozen=True, eq=False)
class MarginOutputs(Strategy):
    """Margins that are published, in one place or in many, with their outputs side by side."""

    domain: Any
    # the margins that are published, everywhere
    margins: tuple[tuple[int, ...], ...] = field(repr=False)

    def __post_init__(self) -> None:
        sets = margin_sets(len(self.sizes), self.margins)
        object.__setattr__(self, "margins", tuple(members(A) for A in sets.tolist()))

    def _keep_positive(self, name: str, shape: tuple[int, ...], what: str) -> None:
        """Keep numbers of one field, each positive, or refuse them."""
        values = np.asarray(frozen(np.asarray(getattr(self, name), dtype=float)))
        if values.shape != shape or not (values > 0).all() or not np.isfinite(values).all():
            raise AffineDPError(f"every {what}")
        object.__setattr__(self, name, values)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of every attribute."""
        found: tuple[int, ...] = self.domain.sizes
        return found

    @property
    def lead(self) -> tuple[int, ...]:
        """How many places there are, as the first axes of a table of a margin."""
        return ()

    @cached_property
    def sets(self) -> Sets:
        """The margins as bits."""
        return margin_sets(len(self.sizes), self.margins)

    @cached_property
    def blocks(self) -> Sets:
        """All parts of the margins whose residuals carry noise."""
        return blocks_of(self.sets.tolist(), 0)

    @property
    def asked(self) -> tuple[int, ...]:
        """How many numbers are asked for along every attribute: its values."""
        return self.sizes

    @property
    def outputs(self) -> int:
        """How many numbers are published."""
        each = sum(cells_of(self.asked, A) for A in self.sets.tolist())
        return math.prod(self.lead) * each

    @property
    def names(self) -> Any:
        """One name per number, of which there may be very many."""
        return Numbered("number", self.outputs)

    # -------------------------------------------------------------- outputs

    def shape(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sides of the table of a margin at one place."""
        return tuple(self.asked[j] for j in chosen)

    def flat(self, y: Any) -> FloatArray:
        """Return all margins of a release in one row."""
        if not isinstance(y, Mapping):
            return released_numbers(y)
        missing = [A for A in self.margins if A not in y]
        if missing:
            raise AffineDPError(f"the margin {missing[0]} is missing")
        return self.row(y)

    def row(self, combination: Mapping[Any, Any]) -> FloatArray:
        """Return coefficients by margin (and node) and cell in one row, 0 where none are given."""
        self._check_outputs()
        own = {checked_margin(A, len(self.sizes)): v for A, v in combination.items()}
        unknown = [A for A in own if A not in self.margins]
        if unknown:
            raise AffineDPError(f"the margin {unknown[0]} is not released")
        parts = []
        for chosen in self.margins:
            shape = self.lead + self.shape(chosen)
            part = np.asarray(own.get(chosen, np.zeros(shape)), dtype=float)
            if part.shape != shape:
                raise AffineDPError(
                    f"there must be one number per {'node and ' if self.lead else ''}cell of the "
                    f"margin {chosen}: {shape}"
                )
            parts.append(part.ravel())
        return np.concatenate(parts)

    def _check_outputs(self) -> None:
        if self.outputs > MOST_NUMBERS:
            raise AffineDPError(
                f"{self.outputs:,} numbers do not fit in memory at once: take one margin at a time"
            )

    def present(self, row: FloatArray) -> dict[tuple[int, ...], FloatArray]:
        """Return a row of outputs margin by margin, with nodes in the given order."""
        return {members(A): part for A, part in self._split(row)}

    def _split(self, row: FloatArray) -> Iterator[tuple[int, FloatArray]]:
        start = 0
        for A, chosen in zip(self.sets.tolist(), self.margins):
            shape = self.lead + self.shape(chosen)
            stop = start + math.prod(shape)
            yield A, np.reshape(row[start:stop], shape)
            start = stop

    # -------------------------------------------------------------- the errors

    @abstractmethod
    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin at every place, in the given order.

        One number per place, or one row where cells differ.
        """

    def node_reaches(self, law: Law, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far a cell of one margin is from the truth at every place."""
        return law.reach_by_variance(self.node_variances(law, chosen), outside)

    @abstractmethod
    def each_block(self, law: Law, A: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield one over the precision of every block of a margin, at every place."""

    def reach_of(self, law: Law, variances: FloatArray, outside: float) -> FloatArray:
        """Return how far numbers of these variances are from the truth."""
        return law.reach_by_variance(variances, outside)

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every output."""
        return self._for_cells(lambda chosen: self.node_variances(law, chosen))

    def reach(self, law: Law, combinations: Matrix | None, outside: float, together: bool) -> Reach:
        """Return half widths of all numbers, or of combinations of them."""
        if combinations is not None:
            rows = self.loadings(combinations)
            return law.reach_together(rows, outside) if together else law.reach(rows, outside)
        each = law.each(outside, self._noisy if together else 1)
        found = self._for_cells(lambda chosen: self.node_reaches(law, chosen, each))
        return found, "from the law of the noise; never too short"

    @property
    def _noisy(self) -> int:
        """How many outputs have noise."""
        return self.outputs

    def _for_cells(self, of: Callable[[tuple[int, ...]], FloatArray]) -> FloatArray:
        """What all cells of a margin at a place have in common, or every one has, as outputs."""
        self._check_outputs()
        parts = []
        for chosen in self.margins:
            found = np.asarray(of(chosen)).reshape(math.prod(self.lead), -1)
            shape = len(found), math.prod(self.shape(chosen))
            parts.append(np.broadcast_to(found, shape).ravel())
        return np.concatenate(parts)

    def _every(self, combinations: Matrix | None) -> FloatArray:
        """Combinations as rows; every output by itself if they are left out."""
        if combinations is not None:
            return np.atleast_2d(dense(combinations))
        if float(self.outputs) * float(self.coordinates) > MOST_NUMBERS:
            raise AffineDPError(
                f"the noise of {self.outputs:,} numbers does not fit in memory as a matrix: ask "
                "for some combinations"
            )
        return np.eye(self.outputs)

    # -------------------------------------------------------------- simulation and releases

    @abstractmethod
    def tables(self, parts: Mapping[int, FloatArray], whole: bool = False) -> MarginTables:
        """Return margins that are put together from what is known of every block."""

    @abstractmethod
    def parts_from(self, noise: FloatArray) -> dict[int, FloatArray]:
        """Return what one row of noise makes of every block."""

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, one row per row of η."""
        return np.array([self.flat(self.tables(self.parts_from(row))) for row in drawn])

    @abstractmethod
    def shared(self, data: Any) -> FloatArray:
        """Return what is public, and published as it is."""


@dataclass(frozen=True, eq=False)
class MarginPlan(CountsPlan):
    """Releases of margins."""

    strategy: Any

    def shared(self, data: tuple[Any]) -> FloatArray:
        """Return what is public."""
        found: FloatArray = self.strategy.shared(data[0])
        return found


class WholeCells(MarginOutputs):
    """Whole noise on cells of some margins, from which all margins follow by least squares."""

    measured: tuple[tuple[int, ...], ...]
    weights: Any

    def _check_weights(self) -> None:
        margin_sets(len(self.sizes), self.measured)  # refuses what is no attribute
        if any(members(bits_of(A)) != A for A in self.measured):
            raise AffineDPError("margins that are measured have attributes in rising order")
        measured = "margin that is measured needs a positive weight"
        self._keep_positive("weights", (len(self.measured),), measured)

    @property
    @abstractmethod
    def cells(self) -> tuple[int, ...]:
        """How many cells of everything that is measured get noise."""

    @property
    def coordinates(self) -> int:
        """How many cells get noise."""
        return sum(self.cells)

    @property
    @abstractmethod
    def cells_alone(self) -> bool:
        """Whether all numbers are sums of noisy cells, which nothing public corrects."""

    def rates(self, law: Law) -> tuple[float, ...] | None:
        """Return the rate of the noise on all that is measured, if the law is known to have it."""
        if type(law) is Geometric:
            return (law.rate,) * len(self.measured)
        return law.rates if type(law) is Geometrics and law.times == self.cells else None

    def known_rates(self, law: Law) -> tuple[float, ...]:
        """Return the same, or refuse any other law."""
        rates = self.rates(law)
        if rates is None:
            raise AffineDPError(f"cells of margins have geometric noise, not {law.words} noise")
        return rates

    def reach_of(self, law: Law, variances: FloatArray, outside: float) -> FloatArray:
        """Return how far numbers of these variances are off: Laplace noise is this and more."""
        each = ((rate, geometric_variance(rate)) for rate in self.known_rates(law))
        wider = max(2 / rate**2 / variance for rate, variance in each)
        return np.asarray(laplace_spread(outside) * np.sqrt(variances * wider))

    def reach_of_sums(self, law: Law, terms: NDArray[Any], outside: float) -> FloatArray:
        """Return how far sums of so many cells are from the truth, where cells alone have noise."""
        return sum_reaches(self.known_rates(law)[0], terms, outside)

    @abstractmethod
    def counted(self, data: Any, bound: float | None) -> NDArray[Any]:
        """Return the cells of data that get noise, as one column."""

    @abstractmethod
    def estimated(
        self, seen: Sequence[FloatArray], shared: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """Return what is known of every block, by least squares from noisy cells."""

    def parts_from(self, noise: FloatArray, shared: FloatArray | None = None) -> Any:
        """Return what one row of noisy cells makes of every block."""
        return self.estimated(np.split(noise, np.cumsum(self.cells)[:-1]), shared)

    def scaled(self, factor: float) -> Strategy:
        """Refuse: whole noise is made larger by its rate."""
        raise AffineDPError("whole noise has a rate in place of a scale")

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        self.known_rates(law)
        return CellsPlan(self, law, bound)


@dataclass(frozen=True, eq=False)
class CellsPlan(MarginPlan):
    """Releases of counts with whole noise: nothing is rounded."""

    strategy: WholeCells
    unit = 1

    def steps(self, data: tuple[Any]) -> NDArray[Any]:
        """Return the cells that get noise."""
        return self.strategy.counted(data[0], self.bound)

    def reconstruct(self, noisy: NDArray[Any], shared: FloatArray) -> MarginTables:
        """Return all margins, put together on demand."""
        own = self.strategy
        return own.tables(own.parts_from(noisy[:, 0].astype(float), shared), own.cells_alone)


@dataclass(frozen=True, eq=False)
class OfMargins(MarginOutputs):
    """Margins of one table; residuals of few attributes may be public."""

    domain: Crossed
    # what is asked about the values of every attribute; None for the values themselves
    workloads: tuple[Workload | None, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = [n if one is None else one.size for one, n in zip(self.workloads, self.sizes)]
        if self.workloads and (tuple(sizes), len(self.workloads)) != (self.sizes, len(sizes)):
            raise AffineDPError("workloads must fit the sizes of their attributes, one for each")

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """How many numbers are asked for along every attribute."""
        if not self.workloads:
            return self.sizes
        return tuple(one.rows if one else n for one, n in zip(self.workloads, self.sizes))

    def basis(self, B: int, j: int) -> Basis | None:
        """Return in which basis the values of an attribute are measured beside those of B."""
        return None

    def centre(self, B: int, j: int) -> FloatArray:
        """Return how the residual of B is spread over the values of another attribute."""
        basis = self.basis(B, j)
        return np.full(self.sizes[j], 1 / self.sizes[j]) if basis is None else basis.centre

    def answers(self, B: int, j: int) -> tuple[FloatArray, FloatArray]:
        """Return what j adds to the variance of every number that is asked, in B and beside it."""
        basis = self.basis(B, j)
        key = j, id(basis)
        if key not in self._answers:
            found = answer_variances(self.workloads[j], basis, self.sizes[j])
            self._answers[key] = locked(found)
        return self._answers[key]

    @cached_property
    def _answers(self) -> dict[tuple[int, int], tuple[FloatArray, FloatArray]]:
        return {}

    def shares(self, margins: Sets) -> Any:
        """Return what every block adds to the mean variance of what margins ask for."""

        def mean(B: int, j: int) -> tuple[float, float]:
            inside, outside = self.answers(B, j)
            return float(inside.mean()), float(outside.mean())

        return variance_shares(self.sizes, margins, self.blocks, mean if self.workloads else None)

    @cached_property
    def blocks(self) -> Sets:
        """Sets of attributes whose residuals carry noise; smaller ones are public."""
        return blocks_of(self.sets.tolist(), self.domain.public)

    @cached_property
    def public_blocks(self) -> tuple[int, ...]:
        """Sets of attributes whose residuals are published as they are."""
        own = {B for A in self.sets.tolist() for B in subsets(A)}
        return tuple(sorted(B for B in own if B.bit_count() < self.domain.public))

    def groups(self) -> Iterator[tuple[str, Any]]:
        """Yield the places of every margin."""
        start = 0
        for chosen in self.margins:
            stop = start + math.prod(self.shape(chosen))
            yield f"margin of {', '.join(map(str, chosen)) or 'nothing'}", slice(start, stop)
            start = stop

    # -------------------------------------------------------------- the errors

    @abstractmethod
    def block_variances(self, law: Law) -> FloatArray:
        """Return one over the precision of every block."""

    def each_block(self, law: Law, A: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield one over the precision of every block of a margin, at one place."""
        for B, variance in zip(self.blocks.tolist(), self.block_variances(law).tolist()):
            if B & ~A == 0:
                yield B, np.array([variance])

    def cell_variances(self, law: Law) -> FloatArray:
        """Return the variance of a cell of every margin; their mean, where cells differ."""
        return np.asarray(self.shares(self.sets) @ self.block_variances(law))

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every cell of every margin."""
        if self.workloads:
            return super().variances(law)
        own = dict(zip(self.margins, self.cell_variances(law)))
        return self._for_cells(own.__getitem__)

    def total_variance(self, law: Law) -> float:
        """Return the sum of the variances of all outputs."""
        cells = [cells_of(self.asked, A) for A in self.sets.tolist()]
        return math.fsum(self.cell_variances(law) * np.array(cells, dtype=float))

    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin, or of one that follows from others."""
        A = bits_of(chosen)
        if not any(A & ~other == 0 for other in self.sets.tolist()):
            raise AffineDPError(f"the margin {chosen} is not released")
        return self._variances(self.block_variances(law), chosen)

    def _variances(self, blocks: FloatArray, chosen: tuple[int, ...]) -> FloatArray:
        """The variance of a cell of one margin, or of each, from those of the blocks."""
        A = bits_of(chosen)
        if not any(self.workloads[j] for j in chosen if self.workloads):
            return np.asarray(self.shares(np.array([A])) @ blocks)
        total = np.zeros([1] * len(chosen))
        for B, variance in zip(self.blocks.tolist(), blocks.tolist()):
            if B & ~A == 0:
                found = np.array(variance)
                for j in chosen:
                    found = found[..., None] * self.answers(B, j)[0 if B >> j & 1 else 1]
                total = total + found
        return np.broadcast_to(total, self.shape(chosen)).reshape(1, -1)

    @property
    def _noisy(self) -> int:
        noisy = (A for A in self.margins if len(A) >= self.domain.public)
        return sum(math.prod(self.shape(chosen)) for chosen in noisy)

    def _totals(self, combination: FloatArray) -> dict[int, FloatArray]:
        """What a combination of outputs takes of the residual of every block."""
        total = {B: np.zeros(self.domain.shape(B)) for B in self.blocks.tolist()}
        for A, given in self._split(combination):
            part = given
            for axis, j in enumerate(members(A) if self.workloads else ()):
                workload = self.workloads[j]
                part = part if workload is None else along(workload.matrix.T, part, axis)
            for B in subsets(A):
                if B in total:
                    found = part
                    for axis, j in reversed(list(enumerate(members(A)))):
                        if not B >> j & 1:
                            found = np.tensordot(found, self.centre(B, j), (axis, 0))
                    total[B] = total[B] + found
        return total

    def tables(self, parts: Mapping[int, FloatArray], whole: bool = False) -> MarginTables:
        """Return margins that are put together from residuals; missing public ones are 0."""
        still = {B: np.zeros(self.domain.shape(B)) for B in self.public_blocks}
        known, centre = {**still, **parts}, self.centre if self.workloads else None
        return MarginTables(self.sizes, self.margins, known, whole, self.workloads, centre)

    # -------------------------------------------------------------- the promise and what is public

    def check_public(self, adjacency: Adjacency) -> None:
        """Refuse neighbours who may move what is published as it is."""
        if self.domain.public == 0:
            return
        if type(adjacency) is not People or (self.domain.public > 1 and adjacency.move != "swaps"):
            raise AffineDPError(
                "some margins are published as they are, and these neighbours could move them"
            )

    def shared(self, data: Counted) -> FloatArray:
        """Return the residuals that are public, side by side."""
        found = [centred(data(members(B)).astype(float)).ravel() for B in self.public_blocks]
        return np.concatenate([*found, np.zeros(0)])

    def public_residuals(self, shared: FloatArray) -> dict[int, FloatArray]:
        """Return them by block."""
        found, start = {}, 0
        for B in self.public_blocks:
            shape = self.domain.shape(B)
            stop = start + math.prod(shape)
            found[B], start = np.reshape(shared[start:stop], shape), stop
        return found


@dataclass(frozen=True, eq=False)
class Margins(OfMargins):
    """White noise of precision t on the residuals of margins."""

    kind = "margins"
    # the precision of every block that carries noise, in their order (``blocks``)
    t: Any = field(repr=False)
    # bases of attributes with a workload
    bases: tuple[Basis, ...] = field(default=(), kw_only=True, repr=False)
    # which of them, by set of the other attributes (``beside``) and attribute; −1 for none
    uses: Any = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep_positive("t", self.blocks.shape, "block needs a positive precision")
        if self.bases:
            self._check_bases()

    def _check_bases(self) -> None:
        uses = np.asarray(frozen(np.asarray(self.uses, dtype=np.int64)))
        if self.domain.public or uses.shape != (len(self.beside), len(self.sizes)):
            raise AffineDPError("bases need one row for every set of attributes beside them")
        if uses.max() >= len(self.bases) or ((uses >= 0) & ~np.array(self.turned)).any():
            raise AffineDPError("bases are for attributes with a workload")
        for j, workload in enumerate(self.workloads):
            for basis in {self.bases[k] for k in uses[:, j].tolist() if k >= 0}:
                assert workload is not None
                if len(basis.rows) != self.sizes[j] or not basis.determines(workload):
                    raise AffineDPError(
                        f"contrasts of attribute {j} do not determine what is asked about it"
                    )
        object.__setattr__(self, "uses", uses)

    @property
    def turned(self) -> tuple[bool, ...]:
        """Which attributes may have bases."""
        return tuple(map(bool, self.workloads)) if self.bases else (False,) * len(self.sizes)

    @cached_property
    def _others(self) -> int:
        """The attributes that have no bases, as bits."""
        return bits_of(j for j, one in enumerate(self.turned) if not one)

    @cached_property
    def beside(self) -> tuple[int, ...]:
        """What blocks have of the other attributes, as bits."""
        return tuple(np.unique(self.blocks & self._others).tolist())

    @cached_property
    def _place(self) -> dict[int, int]:
        return {S: i for i, S in enumerate(self.beside)}

    def basis(self, B: int, j: int) -> Basis | None:
        """Return in which basis the values of an attribute are measured beside those of B."""
        if not self.bases or not self.turned[j]:
            return None
        use = int(self.uses[self._place[B & self._others], j])
        return self.bases[use] if use >= 0 else None

    def along(self, B: int) -> tuple[Basis | None, ...]:
        """Return the bases of the attributes of a block."""
        return tuple(self.basis(B, j) for j in members(B))

    def sides(self, B: int) -> tuple[int, ...]:
        """Return how many contrasts a block has along each of its attributes."""
        bases = zip(self.along(B), self.domain.shape(B))
        return tuple(basis.sides if basis else n - 1 for basis, n in bases)

    def finer(self, B: int) -> int:
        """Return by how many bits contrasts are finer than counts."""
        return sum(basis.bits for basis in self.along(B) if basis)

    @property
    def coordinates(self) -> int:
        """How many contrasts there are."""
        return sum(math.prod(self.sides(B)) for B in self.blocks.tolist())

    def _inverses(self) -> Iterator[tuple[int, FloatArray]]:
        """One over the deviation of the noise on every contrast, block by block."""
        for B, t in zip(self.blocks.tolist(), self.t.tolist()):
            yield B, np.sqrt(t / squared_lengths(self.sides(B), self.along(B)))

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return scaled contrasts of differences of the cells of a small table."""
        table = dense(moves).reshape(*self.sizes, -1)
        parts = []
        for B, inverse in self._inverses():
            out = tuple(j for j in range(len(self.sizes)) if not B >> j & 1)
            margin = np.moveaxis(table.sum(axis=out), -1, 0)
            found = contrasts(margin, first=1, absolute=absolute, bases=self.along(B)) * inverse
            parts.append(found.reshape(len(margin), -1).T)
        return np.vstack(parts)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest norm of the move of people, in integers; else moves are listed."""
        self.check_public(adjacency)
        if type(adjacency) is not People or type(law) is not Gaussian:
            return largest_listed(self, adjacency, law)
        if adjacency.move == "circuits" or (self.bases and adjacency.move != "person"):
            return largest_listed(self, adjacency, law)
        move = "replace" if adjacency.move == "person" and self.domain.public else adjacency.move
        low, high = (rounded_root(one) * adjacency.size for one in self.squares(move))
        method = "all sets of differing attributes, in integers"
        if self.bases:
            method = "all values of attributes with bases, in integers"
        return Largest(
            low, high, float(high) <= float(low) * (1 + 1e-9), method,
            because=" for white noise on the residuals of margins; margins are computed from "
            "what is published",
        )  # fmt: skip

    def squares(self, move: str) -> tuple[Fraction, Fraction]:
        """Return bounds on the squared sensitivity to one person, exact but for several bases.

        With bases, a person adds the diagonal of their Gram matrices at the values of the person.
        All values of the first attribute are looked at; of others the least and the largest.
        """
        if not self.bases:
            exact = exact_square(self.sizes, self.blocks, self.t, move)
            return exact, exact
        first = self.turned.index(True)
        totals: list[Any] = [
            np.zeros(self.sizes[first], object),
            np.zeros(self.sizes[first], object),
        ]
        for B, value in zip(self.blocks.tolist(), self.t.tolist()):
            weight, row = Fraction(value), np.full(self.sizes[first], 1, object)
            ends = [Fraction(1), Fraction(1)]
            for j, basis in zip(members(B), self.along(B)):
                if basis is None:
                    weight *= Fraction(self.sizes[j] - 1, self.sizes[j])
                    continue
                weight /= 1 << 2 * basis.bits
                if j == first:
                    row = np.array(basis.diagonal, dtype=object)
                else:
                    ends = [ends[0] * min(basis.diagonal), ends[1] * max(basis.diagonal)]
            totals[0] = totals[0] + row * math.floor(weight * ends[0] * (1 << UNIT_BITS))
            totals[1] = totals[1] + row * math.ceil(weight * ends[1] * (1 << UNIT_BITS))
        low, high = (Fraction(int(max(one)), 1 << UNIT_BITS) for one in totals)
        return low, high

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise on contrasts combinations of cells are made."""
        rows = []
        for combination in self._every(combinations):
            total = self._totals(combination)
            parts = [adjoint(total[B], self.along(B)) / inverse for B, inverse in self._inverses()]
            rows.append(np.concatenate([part.ravel() for part in parts]))
        return np.array(rows)

    def block_variances(self, law: Law) -> FloatArray:
        """Return one over the precision of every block."""
        return np.asarray(law.variance / self.t)

    def parts_from(self, noise: FloatArray) -> dict[int, FloatArray]:
        """Return the residual that noise on contrasts makes of every block."""
        found, start = {}, 0
        for B, inverse in self._inverses():
            stop = start + inverse.size
            own = noise[start:stop].reshape(inverse.shape) / inverse
            found[B] = residual(own, bases=self.along(B))
            start = stop
        return found

    def scaled(self, factor: float) -> Margins:
        """Return the same with noise that is larger by a factor."""
        return replace(self, t=self.t / factor**2)

    def scales(self) -> Iterator[tuple[int, Integers]]:
        """Yield q of every contrast, block by block: the noise on it has scale 2⁵⁶/q.

        ``q² |h|² ≤ 4⁵⁶ t`` holds exactly: the four roundings on the way are together less than
        a part in 2⁵⁰, and q is made smaller by a part in 2⁴⁶ before it is rounded down.  The grid
        of contrasts that are finer than counts is finer by as many bits.
        """
        for B, inverse in self._inverses():
            q = np.floor(np.ldexp(inverse * (1 - SPARE), GRID_BITS + self.finer(B)))
            if not q.max() < 2.0**62:
                raise AffineDPError("the noise is too small for its grid: epsilon is too large")
            if q.min() < 1:
                raise AffineDPError(
                    f"the noise of the attributes {members(B)} is too large for its grid: epsilon "
                    "is too small, or a weight"
                )
            yield B, q.astype(np.int64)

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        if law.whole or law.size is not None:
            raise AffineDPError(f"contrasts of margins are not released with {law.words} noise")
        return MarginsPlan(self, law, bound, 1.0 + SHARE, dict(self.scales()))


@dataclass(frozen=True, eq=False)
class MarginsPlan(MarginPlan):
    """Releases of contrasts, which are whole: only the noise lives on a grid.

    Where contrasts of as many people as the bound says could overflow 64 bits, wider integers are
    used.
    """

    strategy: Margins
    # q of every contrast, by block
    scales: Mapping[int, Integers] = field(default_factory=dict, repr=False)

    def steps(self, data: tuple[Counted]) -> Any:
        """Return q times the contrasts of every block."""
        (counts,), parts = data, []
        people = MOST_PEOPLE if self.bound is None else math.ceil(self.bound)
        for B, q in self.scales.items():
            margin = counts(members(B))
            # a contrast is at most its largest coefficient times the number of people
            finer = any(self.strategy.along(B))
            if people * math.prod(self.strategy.domain.shape(B)) >= 1 << 62 or finer:
                margin = margin.astype(object)
            found = contrasts(margin, bases=self.strategy.along(B), most=people)
            parts.append(Scaled(found.ravel(), q.ravel()))
        return SideBySide(tuple(parts))

    @cached_property
    def noise(self) -> Sampler:
        """What draws noise in the steps of every block's grid."""
        parts = []
        for finer, blocks in itertools.groupby(self.scales, self.strategy.finer):
            size = sum(self.scales[B].size for B in blocks)
            parts.append((sampler_of_law(self.law, self.unit << finer), size))
        return StackedNoise(tuple(parts))

    def reconstruct(self, noisy: Any, shared: FloatArray) -> MarginTables:
        """Return all margins, put together on demand."""
        found = self.strategy.public_residuals(shared)
        for own, (B, q) in zip(noisy, self.scales.items()):
            found[B] = residual(own.reshape(q.shape), bases=self.strategy.along(B))
        return self.strategy.tables(found)


def chosen_margins(sets: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return sets of bits as tuples of attributes."""
    return tuple(members(A) for A in sets)


@dataclass(frozen=True, eq=False)
class CountedMargins(WholeCells, OfMargins):
    """Whole noise on the cells of some margins, and all margins from them by least squares.

    Independent noise on the cells of margin A, weighted by w_A, gives the residual of block B the
    weight ``t_B = Σ_{A ⊇ B} w_A / Π_{A∖B} n_j``.
    """

    kind = "counted margins"
    # the margins whose cells get noise
    measured: tuple[tuple[int, ...], ...] = field(repr=False)
    # how much each of them counts
    weights: Any = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_weights()
        if chosen_margins(self.measured_sets.tolist()) != self.measured:
            raise AffineDPError("margins that are measured stand in their order, each once")
        if not (self.t > 0).all():
            raise AffineDPError("the margins that are measured do not determine those released")

    @cached_property
    def measured_sets(self) -> Sets:
        """The margins that get noise, as bits."""
        return margin_sets(len(self.sizes), self.measured)

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """How many cells each of them has."""
        return tuple(cells_of(self.sizes, A) for A in self.measured_sets.tolist())

    @cached_property
    def t(self) -> FloatArray:
        """The weight of every block."""
        return np.asarray(self.weights @ self._spreads)

    @cached_property
    def _spreads(self) -> FloatArray:
        return locked(spreads(self.sizes, self.measured_sets, self.blocks))

    @cached_property
    def cells_alone(self) -> bool:
        """Whether only the table of all attributes gets noise, and outputs are sums of its cells.

        Where the number of people is public, cells are moved to fit it, and are not whole.
        """
        full = tuple(range(len(self.sizes)))
        sums = all(np.isin(asked.matrix, (0, 1)).all() for asked in self.workloads if asked)
        return self.domain.public == 0 and self.measured == (full,) and sums

    # -------------------------------------------------------------- the promise

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return the measured margins of differences of the cells of a small table."""
        table = dense(moves).reshape(*self.sizes, -1)
        parts = []
        for A in self.measured_sets.tolist():
            out = tuple(j for j in range(len(self.sizes)) if not A >> j & 1)
            parts.append(table.sum(axis=out).reshape(-1, table.shape[-1]))
        return np.vstack(parts)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the sum over the margins, in fractions; else moves are listed.

        A person who joins is seen once in every margin, one who moves twice in all but the total.
        """
        self.check_public(adjacency)
        rates = self.rates(law)
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

    # -------------------------------------------------------------- the errors

    def _shares(self, A: int) -> Iterator[tuple[int, float]]:
        """What the residual of every block takes of a sum over cells of a measured margin."""
        place = self.measured_sets.tolist().index(A)
        shares = self.weights[place] * self._spreads[place] / self.t
        for i in np.flatnonzero(shares).tolist():
            yield int(self.blocks[i]), float(shares[i])

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise on measured cells combinations of cells are made."""
        rows = []
        for combination in self._every(combinations):
            total = {B: centred(part) for B, part in self._totals(combination).items()}
            parts = []
            for A in self.measured_sets.tolist():
                found = np.zeros(self.domain.shape(A))
                for B, share in self._shares(A):
                    shape = [self.sizes[j] if B >> j & 1 else 1 for j in members(A)]
                    found += share * total[B].reshape(shape)
                parts.append(found.ravel())
            rows.append(np.concatenate(parts))
        return np.array(rows)

    def block_variances(self, law: Law) -> FloatArray:
        """Return one over the precision of every block."""
        each = np.array([geometric_variance(rate) for rate in self.known_rates(law)])
        return np.asarray((self.weights**2 * each) @ self._spreads / self.t**2)

    def node_reaches(self, law: Law, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far a cell of a margin is from the truth, from the law of sums."""
        if not any(self.workloads[j] for j in chosen if self.workloads):
            return np.array([self._cell_reach(law, chosen, outside)])
        if not self.cells_alone:
            asked = bits_of(j for j in chosen if self.workloads[j])
            variances = partial(self.node_variances, law, chosen)
            return self.reach_in_margin(
                law, chosen, asked, partial(self._taken, asked), variances, outside
            )
        terms = np.array(math.prod(n for j, n in enumerate(self.sizes) if j not in chosen))
        for j in chosen:
            one = self.workloads[j]
            own = np.ones(self.sizes[j]) if one is None else one.matrix.sum(axis=1)
            terms = np.multiply.outer(terms, own)
        return self.reach_of_sums(law, terms.reshape(1, -1), outside)

    def _taken(self, asked: int, beside: int) -> dict[int, FloatArray]:
        """What numbers that are asked about some attributes take of blocks with others beside."""
        found = {}
        for own in subsets(asked):
            total = np.ones((1, 1))
            for j in members(asked):
                workload = self.workloads[j]
                assert workload is not None
                mean = workload.matrix.mean(axis=1, keepdims=True)
                total = np.kron(total, workload.matrix - mean if own >> j & 1 else mean)
            found[own | beside] = total
        return found

    def reach_in_margin(
        self,
        law: Law,
        chosen: tuple[int, ...],
        own: int,
        taken: Callable[[int], Mapping[int, FloatArray]],
        variances: Callable[[], FloatArray],
        outside: float,
    ) -> FloatArray:
        """Return how far the numbers of a margin are from the truth, one row.

        ``taken`` says what numbers take of blocks along some attributes (``own``), one row per
        number, for all blocks that have the same others beside; along others, cells are asked for.
        Numbers too many for the law of their noise have a bound that knows their variances.
        """
        key = chosen, own, self.known_rates(law)
        numbers = math.prod(self.asked[j] for j in chosen if own >> j & 1)
        widths = (cells_of(self.sizes, C & own) << (C & ~own).bit_count()
                  for C in self.measured_sets.tolist())  # fmt: skip
        if numbers * float(sum(widths)) > MOST_COEFFICIENTS:
            return self.reach_of(law, variances(), outside)
        if key not in self._sums:
            each = tuple(slice(None) if own >> j & 1 else 0 for j in chosen)
            variance = variances().reshape(self.shape(chosen))[each].ravel()
            self._sums[key] = variance, self._noise_of(law, chosen, own, taken, variance > 0)
        shape = [self.asked[j] if own >> j & 1 else 1 for j in chosen]
        variance, noise = self._sums[key]
        found = np.minimum(self.reach_of(law, variance, outside), noise.reach(outside))
        return np.broadcast_to(found.reshape(shape), self.shape(chosen)).reshape(1, -1)

    @cached_property
    def _sums(self) -> dict[Any, tuple[FloatArray, Alike]]:
        return {}

    def _noise_of(
        self,
        law: Law,
        chosen: tuple[int, ...],
        own: int,
        taken: Callable[[int], Mapping[int, FloatArray]],
        noisy: NDArray[np.bool_],
    ) -> Alike:
        """The sums of noise on cells that the numbers of a margin are off by."""
        numbers = len(noisy)
        sizes, others = self.sizes, bits_of(chosen) & ~own
        parts = {S: taken(S) for S in subsets(others)}
        columns, times, rates = [], [], []
        for C, rate in zip(self.measured_sets.tolist(), self.known_rates(law)):
            inside, beside, shares = members(C & own), members(C & others), dict(self._shares(C))
            sides = [sizes[j] for j in inside], [2] * len(beside)
            total = np.zeros((numbers, *sides[0], *sides[1]))
            for S in subsets(C & others):
                # cells that agree with the one asked for along an attribute, and those that do not
                ends = np.full(sides[1], 1 / cells_of(sizes, others & ~S))
                for axis, j in enumerate(beside):
                    if S >> j & 1:
                        one = np.array([1 - 1 / sizes[j], -1 / sizes[j]])
                        ends = ends * one.reshape(
                            [2 if i == axis else 1 for i in range(len(beside))]
                        )
                for B, part in parts[S].items():
                    if B in shares:
                        shape = [sizes[j] if B >> j & 1 else 1 for j in inside]
                        spread = part.reshape(numbers, *shape, *[1] * len(beside))
                        total += shares[B] * spread * ends
            count = np.full(1, float(cells_of(sizes, C & ~own & ~others)))
            for j in beside:
                count = np.kron(count, np.array([1.0, sizes[j] - 1.0]))
            columns.append(total.reshape(numbers, -1))
            times.append(np.tile(count, math.prod(sides[0])))
            rates.append(np.full(len(times[-1]), rate))
        rows = np.where(noisy[:, None], np.hstack(columns), 0.0)  # where rules leave nobody
        return alike(np.concatenate(rates), np.concatenate(times), rows)

    def _cell_reach(self, law: Law, chosen: tuple[int, ...], outside: float) -> float:
        sizes, A = self.sizes, bits_of(chosen)
        rates = self.known_rates(law)
        if not self.node_variances(law, chosen) > 0:
            return 0.0
        if self.cells_alone:
            terms = math.prod(n for j, n in enumerate(sizes) if j not in chosen)
            return float(self.reach_of_sums(law, np.array(terms), outside))
        terms_of: dict[tuple[Steps, float], float] = {}
        for C, rate in zip(self.measured_sets.tolist(), rates):
            # what a block makes of the noise on margin C, spread over the cells of A
            share = {
                B: value / cells_of(sizes, A & ~B) for B, value in self._shares(C) if B & ~A == 0
            }
            found, count = _alike(sizes, A & C, share)
            law_of_each = Steps(1.0, 1.0, rate, True)
            for factor, times in zip(np.abs(found).tolist(), count.tolist()):
                alike = law_of_each, factor
                terms_of[alike] = terms_of.get(alike, 0.0) + times * cells_of(sizes, C & ~A)
        return sum_reach(terms_of, outside)

    def counted(self, data: Counted, bound: float | None) -> NDArray[Any]:
        """Return the cells of the measured margins."""
        return np.concatenate([data(A).reshape(-1, 1) for A in self.measured])

    def estimated(
        self, seen: Sequence[FloatArray], shared: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """Return residuals by least squares from noisy cells of the measured margins."""
        found = {B: np.zeros(self.domain.shape(B)) for B in self.blocks.tolist()}
        for A, part in zip(self.measured_sets.tolist(), seen):
            table = part.reshape(self.domain.shape(A))
            for B, share in self._shares(A):
                out = tuple(i for i, j in enumerate(members(A)) if not B >> j & 1)
                found[B] = found[B] + share * centred(table.sum(axis=out))
        return found if shared is None else {**self.public_residuals(shared), **found}


def spreads(sizes: Sequence[int], measured: Sets, blocks: Sets) -> FloatArray:
    """Return Z[A, B] = 1 / Π_{A∖B} n_j where B ⊆ A, and 0 elsewhere."""
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
