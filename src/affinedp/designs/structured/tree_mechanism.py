"""Noise on a tree of totals: what it promises, how large it is, and how it is released."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger, paying
from affinedp.designs.structured.integer_noise import (
    Integers,
    noisy,
    noisy_whole,
    precisions,
    whole_share,
)
from affinedp.designs.structured.intervals import half_widths
from affinedp.designs.structured.reports import noise_report
from affinedp.designs.structured.tree_promise import drawn_whole
from affinedp.designs.structured.whole_numbers import public_below, rounding_reach, whole_numbers
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals, TreeNeighbours
from affinedp.errors import AffineDPError
from affinedp.intervals import Interval
from affinedp.laws.named import LawName
from affinedp.laws.sampler import Sampler, checked_sampler
from affinedp.privacy.guarantee import Guarantee
from affinedp.show.page import Report
from affinedp.strategies.rounded_plan import GRID_BITS


@dataclass(frozen=True, eq=False)
class ReleasedTree:
    """What was published of a tree, in the order in which its nodes were given.

    Attributes
    ----------
    estimates : array
        Unbiased estimates that add up, but for rounding of doubles; exact at public nodes.
    whole : array of int, or None
        Whole numbers near them that add up exactly, if they were asked for.
    nonnegative : bool
        Whether the whole numbers are at least 0; cells are then biased, small ones upwards.
    """

    estimates: FloatArray = field(repr=False)
    whole: Integers | None = field(repr=False)
    nonnegative: bool


@dataclass(frozen=True, eq=False)
class TreeMechanism:
    """Independent noise on the numbers of a tree, then weighted least squares, in O(n).

    Every number v is published as an estimate from integers ``q_v X_v + Z``; Z has scale 2⁵⁶.
    :func:`~affinedp.designs.structured.trees.design_tree` makes one.  Arrays are in the order in
    which the nodes were given.

    Attributes
    ----------
    tree : Totals
        The numbers, and which of them are public.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    law : {"gaussian", "laplace"}
        Law of the noise.
    scales : array of int
        q, breadth first; 0 where a number is not measured.
    guarantee : Guarantee
        What is promised.
    gap : float or None
        Computed distance, relative, of the weighted squared error to what no Gaussian noise goes
        below (widened by 10⁻⁶); None for Laplace noise.
    alternatives : tuple of (str, float)
        What other ways to keep the same promise cost, as multiples of this one.
    notes : tuple of str
        What a reader should know about the design.
    """

    tree: Totals = field(repr=False)
    neighbours: TreeNeighbours
    household: int
    law: LawName
    scales: Integers = field(repr=False)
    guarantee: Guarantee
    gap: float | None = None
    alternatives: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def precisions(self) -> FloatArray:
        """One over the variance of noise of these scales on the line, breadth first."""
        return precisions(self.law, self.scales)

    @cached_property
    def whole_cells(self) -> bool:
        """Whether the cells alone get noise, Laplace of one scale: it is drawn whole, and less."""
        return drawn_whole(self.tree, self.law, self.scales)

    @property
    def _share(self) -> float:
        """The variance of what is drawn, as a share of that on the line."""
        return whole_share(float(self.scales.max()) / 2.0**GRID_BITS) if self.whole_cells else 1.0

    @cached_property
    def expected_squared_errors(self) -> FloatArray:
        """Variance of every estimate; 0 where a number is public."""
        inside = passes.variances(*self.tree.arrays, self.precisions) * self._share
        return np.asarray(self.tree.outside(inside), dtype=float)

    @property
    def expected_squared_error(self) -> float:
        """Expected squared error of all numbers together."""
        return math.fsum(self.expected_squared_errors)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is released."""
        digest = hashlib.sha256(f"{self.guarantee.neighbours_key} {self.law}".encode())
        digest.update(self.scales.astype("<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def rounding_reach(self) -> float:
        """How far whole numbers are from the estimates, at most (without non-negativity)."""
        return 0.0 if self.whole_cells else rounding_reach(self.tree, self.precisions)

    def level_summary(self) -> tuple[tuple[int, int, float], ...]:
        """Return (level, private numbers, root mean square noise) from the top down.

        Examples
        --------
        >>> from affinedp.designs.structured.trees import design_tree
        >>> m = design_tree([-1, 0, 0, 1, 1, 2, 2], epsilon=1.0, delta=1e-6)
        >>> [(level, numbers) for level, numbers, noise in m.level_summary()]
        [(0, 1), (1, 2), (2, 4)]
        """
        squares = self.expected_squared_errors[self.tree.order]
        rows = []
        for level, (start, stop) in enumerate(self.tree.level_slices):
            private = ~self.tree.known[start:stop]
            count = int(private.sum())
            mean = float(squares[start:stop][private].mean()) if count else 0.0
            rows.append((level, count, math.sqrt(mean)))
        return tuple(rows)

    def report(self) -> Report:
        """Return what people want to read: the promise, the noise by level, other ways."""
        noise = ((f"level {level} ({count:,} numbers)", size)
                 for level, count, size in self.level_summary() if count)  # fmt: skip
        law = "Gaussian" if self.law == "gaussian" else "Laplace"
        title = f"{law} noise on a tree of {self.tree.n:,} numbers"
        return noise_report(title, self.guarantee, noise, self.gap, self.alternatives, self.notes)

    def __str__(self) -> str:
        return str(self.report())

    def covariance_with(self, combination: ArrayLike) -> FloatArray:
        """Return the covariance of a linear function of the numbers with every number, in O(n).

        Parameters
        ----------
        combination : array
            One coefficient per node.
        """
        given = np.asarray(combination, dtype=float)
        if given.shape != (self.tree.n,) or not np.isfinite(given).all():
            raise AffineDPError(f"combination must be {self.tree.n:,} numbers, one per node")
        tree = self.tree
        on_cells = np.asarray(given[tree.order])
        passes.passed_down(tree.parent, on_cells)
        cells = tree.leaf & ~tree.known
        seen = np.zeros((tree.n, 1))
        seen[cells, 0] = on_cells[cells] / self.precisions[cells]
        # least squares of a_ℓ / y_ℓ on the cells and 0 elsewhere is P⁻¹ a
        passes.estimates(*tree.arrays, self.precisions, seen)
        return np.asarray(tree.outside(seen[:, 0] * self._share), dtype=float)

    def linear_variance(self, combination: ArrayLike) -> float:
        """Return the variance of a linear function of the estimates, in O(n).

        Parameters
        ----------
        combination : array
            One coefficient per node.

        Examples
        --------
        >>> from affinedp.designs.structured.trees import design_tree
        >>> m = design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6)
        >>> bool(abs(m.linear_variance([1, 0, 0]) / m.expected_squared_errors[0] - 1) < 1e-9)
        True
        """
        found = self.covariance_with(combination)
        return max(float(np.asarray(combination, dtype=float) @ found), 0.0)

    def interval(
        self,
        estimates: ArrayLike,
        *,
        combination: ArrayLike | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Interval:
        """Return where the true numbers, or a linear function of them, lie.

        Exact for Gaussian noise and one number; never too short otherwise.  It is about the
        estimates: whole numbers are at most :attr:`rounding_reach` away from them, and numbers
        that were made non-negative have no interval of their own (cut this one at 0).

        Parameters
        ----------
        estimates : array
            What was published before rounding.
        combination : array, optional
            One coefficient per node; every number by itself if it is left out.
        level : float
            With which probability.
        simultaneous : bool
            Whether for all numbers at once.

        Examples
        --------
        >>> from affinedp.designs.structured.trees import design_tree
        >>> m = design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6)
        >>> found = m.interval([100.0, 30.0, 70.0], combination=[0, 1, -1])
        >>> bool(found.low < -40 < found.high)
        True
        """
        center = np.asarray(estimates, dtype=float)
        if center.shape != (self.tree.n,):
            raise AffineDPError(f"estimates must be {self.tree.n:,} numbers, one per node")
        variances = self.expected_squared_errors
        if combination is not None:
            variances = np.array(self.linear_variance(combination))
            center = np.array(float(np.asarray(combination, dtype=float) @ center))
        # tail bounds hold for noise on the line, which is whole noise and some more
        spread = variances / self._share
        reach = half_widths(self.law, spread, level, simultaneous and combination is None)
        return Interval(center - reach, center + reach, level, simultaneous)

    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw noise of the estimates for simulation, shape (size, n).  Never publish with it.

        Parameters
        ----------
        size : int
            How many draws.
        seed : int, Generator or None
            The same seed gives the same noise.
        """
        generator = np.random.default_rng(seed)
        shape = (self.tree.n, int(size))
        inverse = np.sqrt(self.precisions)[:, None]
        measured = self.scales > 0
        seen = np.zeros(shape)
        draws = (int(measured.sum()), shape[1])
        if self.whole_cells:
            p = -math.expm1(-float(self.scales.max()) / 2.0**GRID_BITS)
            seen[measured] = generator.geometric(p, draws) - generator.geometric(p, draws)
        elif self.law == "gaussian":
            seen[measured] = generator.standard_normal(draws) / inverse[measured]
        else:
            drawn = generator.laplace(0.0, math.sqrt(0.5), draws)
            seen[measured] = drawn / inverse[measured]
        passes.estimates(*self.tree.arrays, self.precisions, seen)
        return np.asarray(self.tree.outside(seen), dtype=float).T

    def release(
        self,
        counts: ArrayLike,
        *,
        whole: bool = False,
        nonnegative: bool = False,
        ledger: Ledger | None = None,
        label: str | None = None,
        sampler: Sampler = "bulk",
    ) -> ReleasedTree:
        """Publish counts: the ledger is charged, then exact integer noise is drawn.

        Only the leaf cells are read; totals are added up from them, in integers of any size.  No
        count is compared with a range, clamped or refused: that would tell neighbours apart.

        Parameters
        ----------
        counts : array of int
            One whole number per node, in the order in which they were given.
        whole : bool
            Whether to publish whole numbers too, which add up exactly.
        nonnegative : bool
            Whether the whole numbers are at least 0.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        sampler : {"bulk", "opendp"}
            Who draws: affinedp's own sampler, or OpenDP's, which is the reference and slower.

        Examples
        --------
        >>> from affinedp.designs.structured.trees import design_tree
        >>> m = design_tree([-1, 0, 0, 0], epsilon=1.0, delta=1e-6)
        >>> out = m.release([0, 30, 41, 29], whole=True)          # the total is not read
        >>> int(out.whole[0]) == int(out.whole[1:].sum())
        True
        """
        draws = checked_sampler(sampler)
        totals = self._totals(counts)
        with paying(ledger, self.guarantee, fingerprint=self.fingerprint, label=label):
            return self._published(totals, whole or nonnegative, nonnegative, draws)

    def _totals(self, counts: ArrayLike) -> NDArray[Any]:
        """All numbers, added up from the cells: 64 bits where that is safe by type, else wide."""
        tree = self.tree
        given = np.asarray(counts)
        if given.shape != (tree.n,) or given.dtype.kind not in "iuO":
            raise AffineDPError(f"counts must be {tree.n:,} whole numbers, one per node")
        if given.dtype.kind == "O" and not all(
            isinstance(value, int | np.integer) for value in given[tree.order[tree.leaf]]
        ):
            raise AffineDPError("counts must be whole numbers")
        if given.dtype.itemsize <= 4 and given.dtype.kind != "O" and tree.n < 2**31:
            narrow = np.where(tree.leaf, given[tree.order].astype(np.int64), 0)[:, None].copy()
            passes.added_up(tree.parent, narrow)
            return narrow[:, 0]
        wide = given[tree.order].astype(object)
        wide[~tree.leaf] = 0
        for start, stop in reversed(tree.level_slices[1:]):
            np.add.at(wide, tree.parent[start:stop], wide[start:stop])
        return wide

    def _published(
        self, totals: NDArray[Any], whole: bool, nonnegative: bool, sampler: Sampler
    ) -> ReleasedTree:
        tree, y = self.tree, self.precisions
        private = ~tree.known
        measured = self.scales > 0
        part = public_below(tree, totals)
        left = totals - part
        seen = np.zeros((tree.n, 1))
        if self.whole_cells:
            seen[measured, 0] = noisy_whole(left[measured], int(self.scales.max()), sampler)
        else:
            seen[measured, 0] = noisy(self.law, left[measured], self.scales[measured], sampler)
        below = part.astype(float)
        found = None
        if whole:
            fixed = np.where(tree.known, left, 0).astype(np.int64)
            numbers = whole_numbers(tree, y, seen[:, 0], fixed, nonnegative)
            found = np.where(private, numbers + part, totals).astype(np.int64)
        seen[tree.known, 0] = left[tree.known].astype(float)
        if self.whole_cells:
            passes.added_up(tree.parent, seen)  # exactly
        else:
            passes.estimates(*tree.arrays, y, seen)
        estimates = np.where(private, seen[:, 0] + below, totals.astype(float))
        return ReleasedTree(
            np.asarray(tree.outside(estimates), dtype=float),
            None if found is None else np.asarray(tree.outside(found), dtype=np.int64),
            nonnegative,
        )
