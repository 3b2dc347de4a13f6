"""Whole numbers that add up, near what was released, and at least 0 if asked: from the top down.

Everything here is computed from what is published: it costs no budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.exact.lattice import Integers, Lattice, kernel_lattice
from affinedp.mechanism import Mechanism
from affinedp.strategies.margins import OfMargins
from affinedp.strategies.places import OfPlaces, Product
from affinedp.strategies.tree import Tree, public_below
from affinedp.tables.refusals import TableError

if TYPE_CHECKING:
    from affinedp.tables.layout import Layout

# Beyond it doubles are no longer next to each other in whole numbers.
LARGEST = 2.0**53


def whole(mechanism: Mechanism, y: Any, *, nonnegative: bool = False) -> Any:
    """Return whole numbers near a release that add up exactly, as the true numbers do.

    They are rounded from the top down, with one uniform shift for every split: given the total,
    what comes out for every branch has its target as expectation.

    Parameters
    ----------
    mechanism : Mechanism
        Noise on a tree of totals, or on margins, also in many places.
    y : array, or mapping
        What it released.
    nonnegative : bool
        Whether nothing below 0 comes out; cells are then biased, small ones upwards.

    Returns
    -------
    array of int, or mapping from margins to arrays
        In the form of ``y``; for trees :func:`rounding_reach` says how far from it.  Every margin
        adds up by itself and over places; margins agree with each other before rounding only.

    Examples
    --------
    >>> import affinedp as adp
    >>> m = adp.design_tree([-1, 0, 0, 0], epsilon=1.0, delta=1e-6)
    >>> numbers = whole(m, m.release([0, 30, 41, 29]))          # the total is not read
    >>> int(numbers[0]) == int(numbers[1:].sum())
    True
    """
    strategy = mechanism.strategy
    if isinstance(strategy, OfMargins | OfPlaces):
        rows = {chosen: (-1, math.prod(strategy.shape(chosen))) for chosen in strategy.margins}
        return {
            chosen: whole_margin(
                strategy, np.reshape(y[chosen], rows[chosen]), nonnegative
            ).reshape(np.shape(y[chosen]))
            for chosen in strategy.margins
        }
    if not isinstance(strategy, Tree):
        raise AffineDPError(f"{mechanism.domain.words} are not made whole here: round them")
    tree = strategy.domain
    estimates = strategy.flat(y)
    if estimates.ndim != 1:
        raise AffineDPError("one release is made whole at a time")
    if np.abs(estimates).max() >= LARGEST:
        raise AffineDPError("numbers beyond 2^53 are not known to the last digit")
    given = estimates[tree.order][:, None]
    known = tree.known[:, None]
    fixed = np.where(known, np.rint(given), 0).astype(np.int64)
    below = public_below(tree, fixed)  # is known, and stays as it is
    left = np.where(known, fixed - below, 0)
    coins = np.random.default_rng().random((tree.n + 1, 1))  # public coins, not those of the noise
    if not tree.known[0]:
        left[0, 0] = math.floor(float(given[0, 0] - below[0, 0]) + coins[0, 0])
        left[0, 0] = max(left[0, 0], 0) if nonnegative else left[0, 0]
    found = whole_tables(tree, strategy.inverse**2, given - below, left, coins, nonnegative)
    return np.asarray(tree.outside(np.where(known, fixed, found + below))[:, 0])


def published_whole(mechanism: Mechanism) -> bool:
    """Return whether what is published is whole before any rounding: sums of whole noisy cells."""
    return mechanism.noise.whole and bool(getattr(mechanism.strategy, "cells_alone", True))


def rounding_reach(mechanism: Mechanism) -> float:
    """Return how far whole numbers are from what was released, at most: 1 / (1 − r) in a tree.

    Parameters
    ----------
    mechanism : Mechanism
        Noise on a tree of totals, or on margins at places; numbers may be negative.

    Examples
    --------
    >>> import affinedp as adp
    >>> m = adp.design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6, law="gaussian")
    >>> 1 <= rounding_reach(m) <= 2
    True
    """
    strategy = mechanism.strategy
    if published_whole(mechanism):
        return 0.0
    if isinstance(strategy, OfPlaces):
        # a cell at the top is off by less than 1, and by half of what its total is off by; every
        # step down keeps at most what the cell above is off by, and adds less than 1
        return float(strategy.tree.depth.max()) + 1.5
    if not isinstance(strategy, Tree):
        return 0.0
    tree = strategy.domain
    s, S = _spreads(tree, strategy.inverse**2)
    private = ~tree.known
    counts = np.bincount(tree.parent[1:][private[1:]], minlength=tree.n)
    chosen = np.flatnonzero(private & (tree.parent >= 0))
    chosen = chosen[counts[tree.parent[chosen]] > 1]
    if not len(chosen):
        return 1.0
    r = float((s[chosen] / S[tree.parent[chosen]]).max())
    return min(1.0 / max(1.0 - r, 1e-12), float(tree.depth.max() + 1))


def whole_margin(
    strategy: OfMargins | OfPlaces, estimates: FloatArray, nonnegative: bool
) -> Integers:
    """Return whole numbers near the estimates of one margin; every cell adds up over places.

    The table of the root is rounded first, so that it adds up to its total, and then every
    cell is split among the children of a node, from the top down.
    """
    if isinstance(strategy, OfMargins):
        tree, y = Totals.of([-1]), np.ones(1)
    else:
        tree = strategy.tree
        y = strategy.y if isinstance(strategy, Product) else tree.leaf.astype(float)
    seen = np.asarray(tree.inside(estimates), dtype=float)
    generator = np.random.default_rng()  # public coins, not those of the noise
    total = float(seen[0].sum())
    nearest = round(total)
    # a public total is whole up to rounding, and stays as it is
    top = nearest if abs(total - nearest) < 1e-6 else math.floor(total + generator.random())
    coins = generator.random((tree.n + 1, seen.shape[1]))
    totals = np.zeros(seen.shape, np.int64)
    top = max(top, 0) if nonnegative else top
    split(top, seen[0].copy(), np.ones(seen.shape[1]), coins[0, 0], nonnegative, totals[0])
    found = whole_tables(tree, y, seen, totals, coins, nonnegative)
    return np.asarray(tree.outside(found), dtype=np.int64)


def whole_tables(
    tree: Totals,
    y: FloatArray,
    estimates: FloatArray,
    totals: Integers,
    coins: FloatArray,
    at_least_zero: bool,
) -> Integers:
    """Return whole numbers near the estimates; every column adds up over the tree."""
    s, _ = _spreads(tree, y)
    out = totals.astype(np.int64)
    seen = np.ascontiguousarray(estimates, dtype=float)
    _down(tree.first, tree.children, tree.known, s, seen, coins, at_least_zero, out)
    return out


def _spreads(tree: Totals, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    s, S = np.zeros((2, tree.n))
    passes.up(*tree.arrays, y, s, S)
    return s, S


@compiled
def split(total, targets, spread, u, at_least_zero, out):  # type: ignore[no-untyped-def]
    """Write whole numbers near the targets, which add up to the whole number ``total``."""
    m = len(targets)
    off = float(total) - targets.sum()
    whole = spread.sum()
    least = 0.0
    for i in range(m):
        targets[i] += spread[i] * (off / whole)
        least = min(least, targets[i])
    if at_least_zero and total >= 0 and least < 0.0:
        # max(0, x + s θ) with the θ for which they add up: sort where terms begin
        begins = -targets / spread
        rank = np.argsort(begins)
        sum_x = 0.0
        sum_s = 0.0
        theta = 0.0
        for j in range(m):
            sum_x += targets[rank[j]]
            sum_s += spread[rank[j]]
            theta = (float(total) - sum_x) / sum_s
            if j == m - 1 or theta <= begins[rank[j + 1]]:
                break
        for i in range(m):
            targets[i] = max(0.0, targets[i] + spread[i] * theta)
    run = 0.0
    before = 0
    for i in range(m):
        run += targets[i]
        now = total if i == m - 1 else math.floor(run + u)
        if at_least_zero and total >= 0:
            now = min(max(now, before), total)
        out[i] = now - before
        before = now


@compiled
def _down(first, children, known, spread, estimates, coins, at_least_zero, out):  # type: ignore[no-untyped-def]
    """Split the number of every node among its private children, from the top down."""
    n, columns = estimates.shape
    most = children.max() + 1
    place = np.empty(most, np.int64)
    targets = np.empty(most)
    spreads = np.empty(most)
    found = np.empty(most, np.int64)
    for v in range(n):
        m = 0
        for i in range(first[v], first[v] + children[v]):
            if not known[i]:
                place[m] = i
                m += 1
        if m == 0:
            continue
        for k in range(columns):
            for j in range(m):
                targets[j] = estimates[place[j], k]
                spreads[j] = spread[place[j]]
            split(out[v, k], targets[:m], spreads[:m], coins[1 + v, k], at_least_zero, found[:m])
            for j in range(m):
                out[place[j], k] = found[j]


# Larger multiples than this are not exact in doubles: they are found in whole numbers of any size.
MOST_STEPS = 2.0**50
# Sums of whole numbers below this are exact in doubles.
EXACT = 2.0**53
# Noise beyond this many standard deviations does not happen.
FAR = 1e3
# Each pass leaves 10⁻¹⁰ or less of a large number, so a few are enough for any double.
PASSES = 50
# What 64-bit integers hold, with room for the numbers themselves, which stay below 2^53.
MOST_WHOLE = 2.0**62


@dataclass(frozen=True, eq=False)
class Multiples:
    """Points whose private entries are whole multiples of ``step`` and obey the equations."""

    step: Fraction
    lattice: Lattice
    basis: Integers
    scales: tuple[int, ...]
    orthogonal: FloatArray
    triangle: FloatArray

    def rounded(self, points: FloatArray, origin: Integers) -> Integers:
        """Return whole numbers of steps near each point, exactly on the equations."""
        size = np.abs(points) / float(self.step) + np.abs(origin).astype(float)
        amplified = np.abs(np.linalg.solve(self.triangle, self.orthogonal.T))
        large = np.maximum(size.max(axis=1), (size @ amplified.T).max(axis=1)) > MOST_STEPS
        if not large.any():
            return self._in_doubles(points, origin)
        found = np.empty(origin.shape, dtype=object)
        if not large.all():
            found[~large] = self._in_doubles(points[~large], origin[~large])
        for place in np.flatnonzero(large):
            found[place] = self._in_whole_numbers(points[place], origin[place])
        return found

    def _in_doubles(self, points: FloatArray, origin: Integers) -> Integers:
        """The nearest plane for many points at once, none of them large."""
        basis = self.basis
        target = points / float(self.step) - origin.astype(float)
        times = self._times(target)
        moved = _exact_product(basis, times)
        # once more: what is left after the first time is small, and so is its rounding
        again = self._times(target - moved.T)
        if again.any():
            moved = _exact_product(basis, times + again)
        return np.asarray(origin.astype(np.int64) + moved.T)

    def _in_whole_numbers(self, point: FloatArray, origin: Integers) -> Integers:
        """The nearest plane for one point of any size: what is left is computed exactly."""
        basis = self.basis.astype(object)
        target = [Fraction(x) / self.step - int(o) for x, o in zip(point.tolist(), origin)]
        moved = np.zeros(len(target), dtype=object)
        for _ in range(PASSES):
            left = np.array([float(t - m) for t, m in zip(target, moved)])
            times = self._times(left[None])[:, 0]
            if not times.any():
                break
            moved = moved + basis @ np.array([int(t) for t in times], dtype=object)
        return np.asarray(moved + np.array([int(o) for o in origin], dtype=object))

    def _times(self, target: FloatArray) -> FloatArray:
        """How often each column of the basis goes into each point, from the last to the first."""
        left = self.orthogonal.T @ target.T
        times = np.zeros_like(left)
        for j in range(len(left) - 1, -1, -1):
            times[j] = np.rint(left[j] / self.triangle[j, j])
            left[: j + 1] -= np.outer(self.triangle[: j + 1, j], times[j])
        return times

    def refuse_too_much_noise(self, deviations: FloatArray, layout: Layout) -> None:
        """Refuse noise that goes beyond what 64-bit integers hold."""
        if self.step.denominator == 1 and FAR * float(deviations.max()) > MOST_WHOLE:
            name = layout.names[int(np.argmax(deviations))]
            raise TableError(
                f"the noise on {name!r} is too large for whole numbers of 64 bits: publish in "
                "larger units"
            )

    def values(self, steps: Integers) -> Integers | FloatArray:
        """Return the multiples: int64 where the step is whole, else each the nearest double."""
        small = float(np.abs(steps).max()) * self.step.numerator < MOST_STEPS
        exact = steps.astype(np.int64 if small else object) * self.step.numerator
        if self.step.denominator == 1:
            return np.asarray(exact.astype(np.int64))
        return np.asarray((exact / self.step.denominator).astype(np.float64))

    @property
    def variances(self) -> FloatArray:
        """About how much rounding adds to the variance of each entry (as if it were uniform)."""
        sides = self.orthogonal * np.diagonal(self.triangle)
        return np.asarray((sides**2).sum(axis=1) / 12 * float(self.step) ** 2)

    @property
    def farthest(self) -> FloatArray:
        """How far rounding moves each entry at most."""
        sides = np.abs(self.orthogonal * np.diagonal(self.triangle))
        return np.asarray(sides.sum(axis=1) / 2 * float(self.step) * (1 + 1e-9))

    def origin(self, layout: Layout, public: FloatArray) -> Integers:
        """Return a public point of whole numbers of steps for each data set."""
        entries = np.flatnonzero(~layout.is_private)
        in_steps = public / float(self.step)
        whole = np.rint(in_steps).astype(object)
        for row, column in np.argwhere(np.abs(in_steps) > MOST_STEPS).tolist():
            whole[row, column] = round(Fraction(repr(float(public[row, column]))) / self.step)
        off = np.abs(in_steps - whole.astype(float)) > 1e-9 * np.maximum(1.0, np.abs(in_steps))
        if off.any():
            place = int(entries[int(np.argwhere(off)[0][1])])
            name = layout.name(place) if place < layout.cells else "a public sum"
            raise TableError(
                f"{name!r} is public but no multiple of round_to = {float(self.step):g}, so no "
                "such multiples obey the equations"
            )
        if not len(entries):  # nothing public: one point serves all
            public = public[:1]
        amount = {
            int(entry): np.array([int(one) for one in whole[:, i]], dtype=object)
            for i, entry in enumerate(entries)
        }
        right = np.zeros((len(public), len(layout.relations)), dtype=object)
        for i, (relation, scale) in enumerate(zip(layout.relations, self.scales)):
            constant = relation.offset * scale / self.step
            if constant.denominator != 1:
                raise TableError(
                    f"no multiples of round_to = {float(self.step):g} obey {relation.words}"
                )
            right[:, i] -= constant.numerator
            for entry, value in relation.coefficients.items():
                if entry in amount:
                    right[:, i] -= amount[entry] * int(value * scale)
        found = self.lattice.solve(right)
        if found is None:
            raise TableError(
                f"no multiples of round_to = {float(self.step):g} obey the equations with these "
                "public numbers"
            )
        if not len(entries):
            kind = np.int64 if np.abs(found).max(initial=0) < MOST_STEPS else object
            return np.repeat(found.astype(kind), len(in_steps), axis=0)
        return found


def _exact_product(basis: Integers, times: FloatArray) -> Integers:
    """``basis @ times`` for whole numbers, in doubles where no partial sum rounds."""
    if float(np.abs(basis).sum(axis=1).max()) * float(np.abs(times).max(initial=0.0)) < EXACT:
        return np.asarray((basis.astype(float) @ times).astype(np.int64))
    return np.asarray(basis @ times.astype(np.int64))


def multiples_of(step: float, layout: Layout) -> Multiples:
    """Prepare rounding of a table's private entries to multiples of ``step``."""
    exact = Fraction(str(step))
    place = {int(entry): i for i, entry in enumerate(layout.private)}
    rows, scales = [], []
    for relation in layout.relations:
        scale = math.lcm(*(value.denominator for value in relation.coefficients.values()))
        scales.append(scale)
        rows.append(
            {place[j]: int(v * scale) for j, v in relation.coefficients.items() if j in place}
        )
    lattice = kernel_lattice(rows, len(place))
    if not lattice.vectors:
        raise TableError("the equations leave nothing private")
    basis = lattice.short_basis()
    orthogonal, triangle = np.linalg.qr(basis.astype(float))
    return Multiples(exact, lattice, basis, tuple(scales), orthogonal, triangle)


TIME_LIMIT = 60.0


def at_least_zero(
    layout: Layout,
    points: FloatArray,
    public: FloatArray,
    deviations: FloatArray,
    step: float | None,
) -> tuple[Any, bool]:
    """Return the nearest points without negative numbers, and whether all were found.

    The distance is the sum of absolute changes, each in units of its noise.  Where there is no
    such point (public numbers that leave none), the row stays as it was.
    """
    result = points.copy()
    complete = True
    matrix = layout.matrix[:, layout.private].tocsr()
    seen = np.diff(matrix.indptr) > 0
    known = layout.matrix[:, ~layout.is_private]
    unit = 1.0 if step is None else step
    weight = 1.0 / np.where(deviations > 0, deviations, 1.0)
    for row in np.flatnonzero((points < 0).any(axis=1)).tolist():
        right = -(known @ public[row] + layout.offsets)[seen] / unit
        found = _nearest(matrix[seen], right, points[row] / unit, weight, step is not None)
        if found is None:
            complete = False
        elif step is None:
            result[row] = found
        else:
            result[row] = np.rint(found) * unit
    return result, complete


def _nearest(
    matrix: Any, right: FloatArray, target: FloatArray, weight: FloatArray, whole: bool
) -> FloatArray | None:
    """x ≥ 0 on the equations with the least weighted sum of |x − target|."""
    from scipy import optimize, sparse

    n = len(target)
    identity = sparse.eye_array(n)
    # x − up + down = target
    rows = sparse.block_array(
        [[matrix, sparse.csr_array((matrix.shape[0], 2 * n))],
         [identity, sparse.hstack([-identity, identity])]], format="csr",
    )  # fmt: skip
    sides = np.concatenate([right, target])
    # decimals in units of the largest: a vertex then obeys the equations up to rounding, and the
    # solver gets no slack, which it would use up
    size = 1.0 if whole else max(1.0, float(np.abs(sides).max()))
    found = optimize.milp(
        np.concatenate([np.zeros(n), weight, weight]),
        constraints=optimize.LinearConstraint(rows, sides / size, sides / size),
        integrality=np.concatenate([np.full(n, int(whole)), np.zeros(2 * n)]),
        bounds=optimize.Bounds(0, np.inf),
        options={"time_limit": TIME_LIMIT},
    )
    if found.x is None:
        return None
    x = np.asarray(found.x[:n]) * size
    if whole:
        x = np.rint(x)
        if (x < 0).any() or np.abs(matrix @ x - right).max(initial=0.0) > 1e-6:
            return None
    return np.asarray(np.maximum(x, 0.0))
