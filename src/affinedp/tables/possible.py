"""Margins in which some combinations of labels are impossible: what is published is fitted to it.

Noise is designed for the table of all combinations, so neighbours who differ in possible ones only
are among those of the promise.  What is published then is made of noisy contrasts θ of blocks B.
True ones lie in the span of the contrasts of possible combinations, and least squares take θ there:
``θ − Σ N (NᵀΣN)⁻¹ Nᵀ θ``, N orthogonal to the span and Σ the variances.  That is unbiased, and no
linear function of it has more variance than before.  It acts on attributes that rules name (and
those with bases), alike for every residual of the others, so that few contrasts are ever listed.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.crossed import members, subsets
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.parts import Locked
from affinedp.strategies.margin_blocks import MarginTables, PlaceTables, contrasts, residual
from affinedp.strategies.margin_workloads import along
from affinedp.strategies.margins import CountedMargins, OfMargins
from affinedp.strategies.places import CountedPlaces, OfPlaces

# Combinations of attributes that rules name together; contrasts, and numbers, of one fit.
MOST_COMBINATIONS, MOST_CONTRASTS, MOST_NUMBERS = 1_000_000, 2_000, 50_000_000
# Eigenvalues of correlations below the first are 0; in between, nobody can tell.
ZERO, DOUBTFUL = 1e-11, 1e-8
# Rows of contrasts at places that are worked on at once.
BLOCK = 1 << 12
# One rule: by attribute, which of its values.
Rule = Mapping[int, NDArray[np.bool_]]
Group = tuple[tuple[int, ...], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Possible(Locked):
    """Which combinations somebody can have."""

    sizes: tuple[int, ...]
    rules: tuple[Rule, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if any(not possible.any() for _, possible in self.groups):
            raise AffineDPError("impossible: every combination is, and there is nobody to count")

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Attributes that rules name together, and their possible combinations."""
        found: list[int] = []
        for rule in self.rules:
            bits = sum(1 << j for j in rule)
            bits |= sum(one for one in found if one & bits)
            found = [one for one in found if not one & bits] + [bits]
        return tuple(self._group(members(bits)) for bits in found)

    def _group(self, attributes: tuple[int, ...]) -> Group:
        shape = tuple(self.sizes[j] for j in attributes)
        if math.prod(shape) > MOST_COMBINATIONS:
            raise AffineDPError(
                f"impossible: rules tie {len(attributes)} attributes of {math.prod(shape):,} "
                f"combinations together, more than {MOST_COMBINATIONS:,}: leave out some"
            )
        possible = np.ones(shape, bool)
        for rule in self.rules:
            if all(j in attributes for j in rule):
                possible[
                    np.ix_(*(rule.get(j, np.ones(n, bool)) for j, n in zip(attributes, shape)))
                ] = False
        return attributes, possible

    def counts(self, chosen: Sequence[int]) -> FloatArray:
        """Return how many possible combinations of attributes in rules every cell stands for."""
        found = np.ones([self.sizes[j] for j in chosen])
        for attributes, possible in self.groups:
            out = tuple(i for i, j in enumerate(attributes) if j not in chosen)
            shape = [self.sizes[j] if j in attributes else 1 for j in chosen]
            found = found * possible.sum(axis=out, dtype=float).reshape(shape)
        return found

    def nobody(self, codes: Sequence[IntArray]) -> NDArray[np.bool_]:
        """Return which records are impossible, from the values of every attribute."""
        found = np.zeros(len(codes[0]), bool)
        for rule in self.rules:
            found |= np.logical_and.reduce([values[codes[j]] for j, values in rule.items()])
        return found

    def with_cells(self, strategy: OfMargins | OfPlaces) -> OfMargins | OfPlaces:
        """Return a strategy with all cells among its outputs, where only they have noise.

        Cells in which nobody can be have no noise then, and sums of the others have less.
        """
        if not isinstance(strategy, CountedMargins | CountedPlaces) or not strategy.cells_alone:
            return strategy
        named = {j for attributes, _ in self.groups for j in attributes}
        asked = (j for j, one in enumerate(getattr(strategy, "workloads", ())) if one)
        if math.prod(self.sizes[j] for j in named.union(asked)) > MOST_CONTRASTS:
            return strategy
        every = tuple(range(len(self.sizes)))
        return replace(strategy, margins=tuple({*strategy.margins, every}))


@dataclass(frozen=True, eq=False)
class _Fit:
    """Least squares for the contrasts of the blocks that have one part beside the rules."""

    widths: dict[int, slice]  # of blocks
    normal: FloatArray  # N
    gain: FloatArray  # Σ N (NᵀΣN)⁻¹


@dataclass(frozen=True, eq=False)
class Fitted:
    """The noise of margins after they are fitted to what is possible."""

    strategy: OfMargins | OfPlaces
    law: Law
    possible: Possible
    # what reports say beside what the noise is compared with
    remark: ClassVar[str] = (
        "; this and what follows is said of noise for all combinations of labels: fitted to those "
        "that are possible there is less, which is not certified to be the least"
    )

    def __post_init__(self) -> None:
        _ = self.fits  # what cannot be fitted is refused when noise is designed

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Those of the rules, and every attribute with a basis by itself."""
        named = {j for attributes, _ in self.possible.groups for j in attributes}
        alone = [
            ((j,), np.ones(n, bool))
            for j, n in enumerate(self.strategy.sizes)
            if j not in named and self._workload(j) is not None
        ]
        return (*self.possible.groups, *alone)

    @cached_property
    def own(self) -> int:
        """The attributes of all groups, as bits."""
        return sum(1 << j for attributes, _ in self.groups for j in attributes)

    @cached_property
    def sums_of_cells(self) -> bool:
        """Whether only cells of the whole table have noise, so that impossible ones lose theirs."""
        strategy = self.strategy
        if not isinstance(strategy, CountedMargins | CountedPlaces):
            return False
        return strategy.cells_alone and tuple(range(len(strategy.sizes))) in strategy.margins

    def _workload(self, j: int) -> Any:
        asked = getattr(self.strategy, "workloads", ())
        return asked[j] if asked else None

    def _turns(self, B: int, j: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """From values to contrasts of B along an attribute, back, and how others are spread."""
        n, strategy = self.strategy.sizes[j], self.strategy
        basis = strategy.basis(B, j) if isinstance(strategy, OfMargins) else None
        if basis is None:
            k = np.arange(1, n)[:, None]
            rows = ((np.arange(n) < k) - k * (np.arange(n) == k)) / np.sqrt(k * (k + 1))
            return rows, rows.T, np.full(n, 1 / n)
        return np.asarray(basis.rows.T / 2.0**basis.bits), basis.inverse[:, 1:], basis.centre

    # -------------------------------------------------------------- least squares

    @cached_property
    def fits(self) -> dict[int, _Fit]:
        """By what blocks have beside the attributes of groups, where anything is to be fitted."""
        every = {B for A in self.strategy.sets.tolist() for B in subsets(A)}
        full = (1 << len(self.strategy.sizes)) - 1
        variances = {B: float(one.sum()) for B, one in self.strategy.each_block(self.law, full)}
        found = {}
        for S in sorted({B & ~self.own for B in every}):
            blocks = sorted(B for B in every if B & ~self.own == S)
            touched = functools.reduce(operator.or_, blocks)
            if any(touched >> j & 1 for group, _ in self.possible.groups for j in group):
                one = self._fit(blocks, variances)
                if one is not None:
                    found[S] = one
        return found

    def _fit(self, blocks: list[int], variances: Mapping[int, float]) -> _Fit | None:
        points = self._points(blocks)
        parts = [self._contrasts(B, points) for B in blocks]
        ends = np.cumsum([0, *(len(part) for part in parts)])
        widths = {B: slice(a, b) for B, a, b in zip(blocks, ends, ends[1:])}
        rows = np.vstack(parts)
        length = np.linalg.norm(rows, axis=1)
        length[length == 0] = 1.0
        rows /= length[:, None]
        values, vectors = np.linalg.eigh(rows @ rows.T)
        zero = values < ZERO * values[-1]
        if (values[~zero] < DOUBTFUL * values[-1]).any():
            raise AffineDPError(
                "impossible: it cannot be told which sums of published numbers follow from these "
                "rules: leave out margins or rules"
            )
        each = np.concatenate(
            [np.full(len(p), variances.get(B, 0.0)) for B, p in zip(blocks, parts)]
        )
        normal = np.linalg.qr(vectors[:, zero] / length[:, None])[0]
        # what is public obeys the rules already
        _, share, turned = np.linalg.svd(normal[each > 0], full_matrices=False)
        normal = normal @ turned[share > 1e-6].T
        if not normal.size:
            return None
        deviation = np.sqrt(each)[:, None]
        q, r = np.linalg.qr(deviation * normal)
        return _Fit(widths, normal, deviation * np.linalg.solve(r, q.T).T)

    def _points(self, blocks: list[int]) -> IntArray:
        """Possible combinations that span those of all: few groups at a time are off the first.

        A sum of functions of few groups each is 0 everywhere if it is 0 where all other groups
        are as in one fixed combination.
        """
        touched = [
            frozenset(
                i for i, (group, _) in enumerate(self.groups) if any(B >> j & 1 for j in group)
            )
            for B in blocks
        ]
        places = [np.argwhere(possible) for _, possible in self.groups]
        lists, total = [], 0
        sides = (
            math.prod(self.strategy.sizes[j] - 1 for j in members(B & self.own)) for B in blocks
        )
        count = sum(sides)
        for at_once in {one for one in touched if not any(one < other for other in touched)}:
            each = [one if i in at_once else one[:1] for i, one in enumerate(places)]
            total += math.prod(map(len, each))
            if count > MOST_CONTRASTS or total * count > MOST_NUMBERS:
                raise AffineDPError(
                    f"impossible: {count:,} contrasts of the attributes that rules name, and "
                    f"of those with prefixes or sums, are fitted together, more than "
                    f"{MOST_CONTRASTS:,}: leave out margins or labels of them"
                )
            lists.append(np.array([np.concatenate(one) for one in itertools.product(*each)]))
        found = np.zeros((sum(map(len, lists)), len(self.strategy.sizes)), np.int64)
        found[:, [j for group, _ in self.groups for j in group]] = np.concatenate(lists)
        return np.unique(found, axis=0)

    def _contrasts(self, B: int, points: IntArray) -> FloatArray:
        """The contrasts of one person in each of these combinations."""
        found = np.ones((1, len(points)))
        for j in members(B & self.own):
            one = self._turns(B, j)[0][:, points[:, j]]
            found = (found[:, None] * one).reshape(-1, len(points))
        return found

    # -------------------------------------------------------------- what is published

    def tables(self, released: MarginTables) -> MarginTables:
        """Return released margins, fitted."""
        parts, at_places = dict(released.parts), isinstance(released, PlaceTables)
        for fit in self.fits.values():
            found = {B: self._turned(B, parts[B], at_places) for B in fit.widths}
            for start in range(0, len(next(iter(found.values()))), BLOCK):
                own = {B: one[start : start + BLOCK] for B, one in found.items()}
                theta = np.concatenate([*own.values()], axis=2)
                theta = theta - (theta @ fit.normal) @ fit.gain.T
                for B, width in fit.widths.items():
                    own[B][...] = theta[..., width]
            parts |= {B: self._returned(B, one, at_places) for B, one in found.items()}
        return replace(released, parts=parts, whole=released.whole and self.sums_of_cells)

    def _turned(self, B: int, part: FloatArray, at_places: bool) -> FloatArray:
        """Contrasts of a block: places, what it has beside the groups, and what of them."""
        table = part[None]
        if at_places:
            sides = [self.strategy.sizes[j] - 1 for j in members(B)]
            table = residual(part.reshape(-1, *sides), first=1)
        for axis, j in self._axes(B):
            table = along(self._turns(B, j)[0], table, axis)
        axes = [axis for axis, _ in self._axes(B)]
        table = np.moveaxis(table, axes, range(-len(axes), 0))
        own = table.shape[table.ndim - len(axes) :]
        return table.reshape(len(table), -1, math.prod(own)).copy()

    def _returned(self, B: int, found: FloatArray, at_places: bool) -> FloatArray:
        """What is kept of the contrasts of a block: the way back."""
        backs = [self._turns(B, j)[1] for _, j in self._axes(B)]
        beside = [self.strategy.sizes[j] for j in members(B & ~self.own)]
        table = found.reshape(len(found), *beside, *(back.shape[1] for back in backs))
        axes = [axis for axis, _ in self._axes(B)]
        table = np.moveaxis(table, range(-len(axes), 0), axes)
        for axis, back in zip(axes, backs):
            table = along(back, table, axis)
        return contrasts(table, first=1).reshape(len(table), -1) if at_places else table[0]

    def _axes(self, B: int) -> list[tuple[int, int]]:
        """The axes of tables at places that belong to attributes of groups, with these."""
        return [(axis, j) for axis, j in enumerate(members(B), 1) if self.own >> j & 1]

    # -------------------------------------------------------------- the errors

    def variances(self, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of every cell of a margin, one row per place."""
        A, sizes = sum(1 << j for j in chosen), self.strategy.sizes
        inside = members(A & self.own)
        blocks = dict(self.strategy.each_block(self.law, A | self.own))
        total = np.zeros((math.prod(self.strategy.lead), 1))
        for S in subsets(A & ~self.own):
            beside = math.prod(1 - 1 / sizes[j] for j in members(S))
            beside /= math.prod(sizes[j] for j in members(A & ~self.own & ~S)) ** 2
            for B, square in self._squares(S, inside):
                if B in blocks:
                    total = total + blocks[B][:, None] * (square * beside)
        shape = [self.strategy.asked[j] if j in inside else 1 for j in chosen]
        full = np.broadcast_to(
            total.reshape(-1, *shape), (len(total), *self.strategy.shape(chosen))
        )
        return np.where(self.nobody(chosen), 0.0, full.reshape(len(total), -1))

    def _squares(self, S: int, inside: tuple[int, ...]) -> Iterator[tuple[int, FloatArray]]:
        """What every block adds to the variance of what is asked about attributes of groups."""
        fit = self.fits.get(S)
        if fit is not None:
            for B, part in self._taken(inside, S).items():
                yield B, (part**2).sum(axis=1)
            return
        for C in subsets(sum(1 << j for j in inside)):
            squares = [(one**2).sum(axis=1) for one in self._asked(S | C, inside)]
            yield S | C, _crossed(squares, np.ones(1))

    def _asked(self, B: int, inside: tuple[int, ...]) -> list[FloatArray]:
        """What all that is asked about attributes of groups takes of the contrasts of a block."""
        rows = []
        for j in inside:
            _, back, centre = self._turns(B, j)
            one, asked = back if B >> j & 1 else centre[:, None], self._workload(j)
            rows.append(one if asked is None else asked.matrix @ one)
        return rows

    def _taken(self, inside: tuple[int, ...], S: int) -> dict[int, FloatArray]:
        """The same, fitted, for all blocks with one part beside the groups."""
        fit, alone = self.fits.get(S), np.ones((1, 1))
        found = {
            S | C: _crossed(self._asked(S | C, inside), alone)
            for C in subsets(sum(1 << j for j in inside))
        }
        if fit is None:
            return found
        through = sum((one @ fit.gain[fit.widths[B]] for B, one in found.items()))
        return {
            B: found.get(B, 0.0) - through @ fit.normal[width].T for B, width in fit.widths.items()
        }

    def _taken_of_values(self, inside: tuple[int, ...], S: int) -> dict[int, FloatArray]:
        """The same by values in place of contrasts."""
        found = {}
        for B, part in self._taken(inside, S).items():
            axes = members(B & self.own)
            table = part.reshape(len(part), *(self.strategy.sizes[j] - 1 for j in axes))
            for axis, j in enumerate(axes, 1):
                table = along(self._turns(B, j)[0].T, table, axis)
            found[B] = table
        return found

    def nobody(self, chosen: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return which of the numbers of a margin nobody can be counted in."""
        return np.asarray(self._counts(chosen) == 0)

    def _counts(self, chosen: tuple[int, ...]) -> FloatArray:
        """How many possible combinations of attributes in rules every number stands for."""
        found = self.possible.counts(chosen)
        for axis, j in enumerate(chosen):
            asked = self._workload(j)
            found = found if asked is None else along(np.abs(asked.matrix), found, axis)
        return found.ravel()

    def reaches(self, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far every cell of a margin is from the truth, one row per place."""
        strategy = self.strategy
        if isinstance(strategy, CountedMargins) and not self.sums_of_cells:
            inside = tuple(j for j in chosen if self.own >> j & 1)
            taken = functools.partial(self._taken_of_values, inside)
            variances = functools.partial(self.variances, chosen)
            return strategy.reach_in_margin(self.law, chosen, self.own, taken, variances, outside)
        if not isinstance(strategy, CountedMargins | CountedPlaces) or not self.sums_of_cells:
            return strategy.reach_of(self.law, self.variances(chosen), outside)
        named = {j for group, _ in self.possible.groups for j in group}
        others = math.prod(
            n for j, n in enumerate(strategy.sizes) if j not in named and j not in chosen
        )
        terms = self._counts(chosen) * others
        below = (
            strategy.tree.leaves_below if isinstance(strategy, CountedPlaces) else np.ones(1, int)
        )
        return strategy.reach_of_sums(self.law, np.outer(below, terms), outside)


@dataclass(frozen=True, eq=False)
class Obeyed(Fitted):
    """Noise whose estimates leave out what is impossible: nothing is fitted."""

    remark = (
        "; what it is compared with was not fitted to the combinations that are possible, "
        "and has less noise then"
    )

    @property
    def fits(self) -> dict[int, _Fit]:
        """Nothing."""
        return {}

    def variances(self, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of every cell of a margin."""
        return self._somebody(chosen, self.strategy.node_variances(self.law, chosen))

    def reaches(self, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far every cell of a margin is from the truth."""
        return self._somebody(chosen, self.strategy.node_reaches(self.law, chosen, outside))

    def _somebody(self, chosen: tuple[int, ...], found: FloatArray) -> FloatArray:
        nobody = self.nobody(chosen)
        return np.where(nobody, 0.0, np.broadcast_to(found.reshape(1, -1), (1, len(nobody))))


def _crossed(parts: Sequence[FloatArray], start: FloatArray) -> FloatArray:
    """The Kronecker product."""
    kron: Any = np.kron
    return np.asarray(functools.reduce(kron, parts, start))
