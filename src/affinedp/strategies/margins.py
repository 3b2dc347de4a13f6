"""White noise on the residuals of margins of a table that is never formed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
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
    blocks_of,
    cells_of,
    margin_sets,
    members,
    subsets,
)
from affinedp.errors import AffineDPError
from affinedp.exact.scaled import Integers, Scaled, SideBySide
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.reach import Reach
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.people import People
from affinedp.parts import frozen
from affinedp.strategies.base import (
    Drawer,
    Largest,
    Prepared,
    Promised,
    Strategy,
    largest_listed,
)
from affinedp.strategies.contrasts import centred, contrasts, residual, squared_lengths
from affinedp.strategies.margin_blocks import exact_square, rounded_root, variance_shares
from affinedp.strategies.margin_tables import MarginTables, checked_margin
from affinedp.strategies.rounded_plan import GRID_BITS, SHARE

# Scales are made smaller by this before they are rounded down: it pays for doubles on the way.
SPARE = 2.0**-46
# Numbers of outputs, or of coefficients, that are still written down.
MOST_NUMBERS = 2e8


@dataclass(frozen=True, eq=False)
class OfMargins(Strategy):
    """What strategies for margins have in common: which they are, and their outputs side by side.

    Attributes
    ----------
    domain : Crossed
        The table of all attributes.
    margins : tuple of tuples of int
        The margins that are published.
    """

    domain: Crossed
    margins: tuple[tuple[int, ...], ...] = field(repr=False)

    def __post_init__(self) -> None:
        sets = margin_sets(len(self.domain.sizes), self.margins)
        object.__setattr__(self, "margins", tuple(members(A) for A in sets.tolist()))

    @cached_property
    def sets(self) -> Sets:
        """The margins as bits."""
        return margin_sets(len(self.domain.sizes), self.margins)

    @cached_property
    def blocks(self) -> Sets:
        """Sets of attributes whose residuals carry noise; smaller ones are public."""
        return blocks_of(self.sets.tolist(), self.domain.public)

    @cached_property
    def public_blocks(self) -> tuple[int, ...]:
        """Sets of attributes whose residuals are published as they are."""
        own = {B for A in self.sets.tolist() for B in subsets(A)}
        return tuple(sorted(B for B in own if B.bit_count() < self.domain.public))

    @property
    def outputs(self) -> int:
        """How many numbers are published."""
        return sum(cells_of(self.domain.sizes, A) for A in self.sets.tolist())

    @property
    def names(self) -> Any:
        """One name per number, of which there may be very many."""
        return Numbered("number", self.outputs)

    # -------------------------------------------------------------- outputs

    def shape(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sides of the table of a margin at one place."""
        return tuple(self.domain.sizes[j] for j in chosen)

    def flat(self, y: Any) -> FloatArray:
        """Return all margins of a release in one row."""
        if not isinstance(y, Mapping):
            return np.asarray(y, dtype=float)
        missing = [A for A in self.margins if A not in y]
        if missing:
            raise AffineDPError(f"the margin {missing[0]} is missing")
        return self.row(y)

    def row(self, combination: Mapping[Any, Any]) -> FloatArray:
        """Return coefficients by margin and cell in one row, 0 where none are given."""
        own = {checked_margin(A, len(self.domain.sizes)): v for A, v in combination.items()}
        unknown = [A for A in own if A not in self.margins]
        if unknown:
            raise AffineDPError(f"the margin {unknown[0]} is not released")
        parts = []
        for A in self.sets.tolist():
            shape = self.domain.shape(A)
            part = np.asarray(own.get(members(A), np.zeros(shape)), dtype=float)
            if part.shape != shape:
                raise AffineDPError(
                    f"there must be one number per cell of the margin {members(A)}: {shape}"
                )
            parts.append(part.ravel())
        return np.concatenate(parts)

    def present(self, row: FloatArray) -> dict[tuple[int, ...], FloatArray]:
        """Return a row of outputs margin by margin."""
        return {members(A): part for A, part in self._split(row)}

    def _split(self, row: FloatArray) -> Iterator[tuple[int, FloatArray]]:
        start = 0
        for A in self.sets.tolist():
            shape = self.domain.shape(A)
            stop = start + math.prod(shape)
            yield A, np.reshape(row[start:stop], shape)
            start = stop

    def groups(self) -> Iterator[tuple[str, Any]]:
        """Yield the places of every margin."""
        start = 0
        for A in self.sets.tolist():
            stop = start + cells_of(self.domain.sizes, A)
            yield f"margin of {', '.join(map(str, members(A))) or 'nothing'}", slice(start, stop)
            start = stop

    # -------------------------------------------------------------- the errors

    def block_variances(self, law: Law) -> FloatArray:
        """Return one over the precision of every block."""
        raise NotImplementedError

    def cell_variances(self, law: Law) -> FloatArray:
        """Return the variance of a cell of every margin."""
        shares = variance_shares(self.domain.sizes, self.sets, self.blocks)
        return np.asarray(shares @ self.block_variances(law))

    def cell_variance(self, law: Law, chosen: tuple[int, ...]) -> float:
        """Return the variance of a cell of one margin, or of one that follows from others."""
        A = sum(1 << j for j in chosen)
        if not any(A & ~other == 0 for other in self.sets.tolist()):
            raise AffineDPError(f"the margin {chosen} is not released")
        shares = variance_shares(self.domain.sizes, np.array([A]), self.blocks)
        return float((shares @ self.block_variances(law))[0])

    def cell_reach(self, law: Law, chosen: tuple[int, ...], outside: float) -> float:
        """Return how far a cell of a margin is from the truth."""
        raise NotImplementedError

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every cell of every margin."""
        cells = [cells_of(self.domain.sizes, A) for A in self.sets.tolist()]
        return np.repeat(self.cell_variances(law), cells)

    def reach(self, law: Law, combinations: Matrix | None, outside: float, together: bool) -> Reach:
        """Return half widths of all cells, or of combinations of them."""
        if combinations is not None:
            rows = self.loadings(combinations)
            return law.reach_together(rows, outside) if together else law.reach(rows, outside)
        cells = [cells_of(self.domain.sizes, A) for A in self.sets.tolist()]
        noisy = sum(count for A, count in zip(self.margins, cells) if len(A) >= self.domain.public)
        each = law.each(outside, noisy if together else 1)
        found = [self.cell_reach(law, chosen, each) for chosen in self.margins]
        return np.repeat(found, cells), "from the law of the noise; never too short"

    def _totals(self, combination: FloatArray) -> dict[int, FloatArray]:
        """What a combination of outputs takes of the residual of every block."""
        total = {B: np.zeros(self.domain.shape(B)) for B in self.blocks.tolist()}
        for A, part in self._split(combination):
            for B in subsets(A):
                if B in total:
                    out = tuple(i for i, j in enumerate(members(A)) if not B >> j & 1)
                    total[B] = total[B] + part.mean(axis=out)
        return total

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

    def _residuals_from(self, noise: FloatArray) -> dict[int, FloatArray]:
        """Residuals of blocks from one row of coordinates, in units of the noise."""
        raise NotImplementedError

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, one row per row of η."""
        return np.array([self.flat(self.tables(self._residuals_from(row))) for row in drawn])

    def tables(self, residuals: Mapping[int, FloatArray], whole: bool = False) -> MarginTables:
        """Return margins that are put together from residuals; public ones that are missing are 0.

        Parameters
        ----------
        residuals : mapping
            From sets of attributes, as bits.
        whole : bool
            Whether all margins are whole numbers.
        """
        still = {B: np.zeros(self.domain.shape(B)) for B in self.public_blocks}
        return MarginTables(self.domain.sizes, self.margins, {**still, **residuals}, whole)

    # -------------------------------------------------------------- the promise and what is public

    def check_public(self, adjacency: Adjacency) -> None:
        """Refuse neighbours who may move what is published as it is."""
        if self.domain.public == 0:
            return
        if type(adjacency) is not People or (self.domain.public > 1 and adjacency.move != "swaps"):
            raise AffineDPError(
                "some margins are published as they are, and these neighbours could move them"
            )

    def shared(self, counts: Counted) -> FloatArray:
        """Return the residuals that are public, side by side."""
        found = [centred(counts(members(B)).astype(float)).ravel() for B in self.public_blocks]
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
    """White noise of precision t on the residuals of margins.

    Attributes
    ----------
    domain : Crossed
        The table of all attributes.
    margins : tuple of tuples of int
        The margins that are published.
    t : array
        The precision of every block that carries noise, in their order (``blocks``).
    """

    kind = "margins"
    t: Any = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        t = np.asarray(frozen(np.asarray(self.t, dtype=float)))
        if t.shape != self.blocks.shape or not (t > 0).all() or not np.isfinite(t).all():
            raise AffineDPError("every block needs a positive precision")
        object.__setattr__(self, "t", t)

    @property
    def coordinates(self) -> int:
        """How many contrasts there are."""
        return sum(math.prod(n - 1 for n in self.domain.shape(B)) for B in self.blocks.tolist())

    def _inverses(self) -> Iterator[tuple[int, FloatArray]]:
        """One over the deviation of the noise on every contrast, block by block."""
        for B, t in zip(self.blocks.tolist(), self.t.tolist()):
            lengths = squared_lengths(tuple(n - 1 for n in self.domain.shape(B)))
            yield B, np.sqrt(t / lengths)

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return scaled contrasts of differences of the cells of a small table."""
        table = dense(moves).reshape(*self.domain.sizes, -1)
        parts = []
        for B, inverse in self._inverses():
            out = tuple(j for j in range(len(self.domain.sizes)) if not B >> j & 1)
            margin = np.moveaxis(table.sum(axis=out), -1, 0)
            found = contrasts(margin, first=1, absolute=absolute) * inverse
            parts.append(found.reshape(len(margin), -1).T)
        return np.vstack(parts)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest norm of the move of people, in integers; else moves are listed."""
        self.check_public(adjacency)
        if type(adjacency) is not People or type(law) is not Gaussian:
            return largest_listed(self, adjacency, law)
        if adjacency.move == "circuits":
            return largest_listed(self, adjacency, law)
        move = "replace" if adjacency.move == "person" and self.domain.public else adjacency.move
        root = rounded_root(exact_square(self.domain.sizes, self.blocks, self.t, move))
        upper = root * adjacency.size
        return Largest(
            upper, upper, True, "all sets of differing attributes, in integers",
            because=" for white noise on the residuals of margins; margins are computed from "
            "what is published",
        )  # fmt: skip

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise on contrasts combinations of cells are made."""
        rows = []
        for combination in self._every(combinations):
            total = self._totals(combination)
            rows.append(
                np.concatenate(
                    [
                        (contrasts(total[B]) / squared_lengths(inverse.shape) / inverse).ravel()
                        for B, inverse in self._inverses()
                    ]
                )
            )
        return np.array(rows)

    def block_variances(self, law: Law) -> FloatArray:
        """Return one over the precision of every block."""
        return np.asarray(law.variance / self.t)

    def cell_reach(self, law: Law, chosen: tuple[int, ...], outside: float) -> float:
        """Return how far a cell of a margin is from the truth."""
        variance = np.array(self.cell_variance(law, chosen))
        return float(law.reach_by_variance(variance, outside))

    def _residuals_from(self, noise: FloatArray) -> dict[int, FloatArray]:
        found, start = {}, 0
        for B, inverse in self._inverses():
            stop = start + inverse.size
            found[B] = residual(noise[start:stop].reshape(inverse.shape) / inverse)
            start = stop
        return found

    def scaled(self, factor: float) -> Margins:
        """Return the same with noise that is larger by a factor."""
        return replace(self, t=self.t / factor**2)

    def scales(self) -> Iterator[tuple[int, Integers]]:
        """Yield q of every contrast, block by block: the noise on it has scale 2⁵⁶/q.

        ``q² |h|² ≤ 4⁵⁶ t`` holds exactly: the four roundings on the way are together less than
        a part in 2⁵⁰, and q is made smaller by a part in 2⁴⁶ before it is rounded down.
        """
        for B, inverse in self._inverses():
            q = np.floor(np.ldexp(inverse * (1 - SPARE), GRID_BITS))
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
        return MarginsPlan(self, law, dict(self.scales()), bound)


@dataclass(frozen=True, eq=False)
class MarginsPlan(Prepared):
    """Releases of contrasts, which are whole: only the noise lives on a grid.

    Attributes
    ----------
    strategy : Margins
        What is measured.
    law : Law
        Of the noise.
    scales : mapping
        q of every contrast, by block.
    bound : float or None
        A public bound on the number of people: where contrasts of so many could overflow 64 bits,
        wider integers are used.
    """

    strategy: Margins
    law: Law
    scales: Mapping[int, Integers] = field(repr=False)
    bound: float | None = None
    factor: float = 1.0 + SHARE

    @property
    def unit(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.factor) * (1 << GRID_BITS))

    def steps(self, data: tuple[Counted]) -> Any:
        """Return q times the contrasts of every block."""
        (counts,), parts = data, []
        people = MOST_PEOPLE if self.bound is None else math.ceil(self.bound)
        for B, q in self.scales.items():
            margin = counts(members(B))
            # a contrast is at most its largest coefficient times the number of people
            if people * math.prod(self.strategy.domain.shape(B)) >= 1 << 62:
                margin = margin.astype(object)
            parts.append(Scaled(contrasts(margin).reshape(-1, 1), q.reshape(-1, 1)))
        return SideBySide(tuple(parts))

    def shared(self, data: tuple[Counted]) -> FloatArray:
        """Return the residuals that are public."""
        return self.strategy.shared(data[0])

    def draw(self, count: int, drawer: Drawer) -> NDArray[Any]:
        """Return noise in grid steps."""
        return drawer.narrow(self.law, self.unit, (self.strategy.coordinates, count))

    def reconstruct(self, noisy: Any, shared: FloatArray) -> MarginTables:
        """Return all margins, put together on demand."""
        found, start = self.strategy.public_residuals(shared), 0
        for B, q in self.scales.items():
            found[B] = residual(noisy[start : start + q.size, 0].reshape(q.shape))
            start += q.size
        return self.strategy.tables(found)


def chosen_margins(sets: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return sets of bits as tuples of attributes."""
    return tuple(members(A) for A in sets)
