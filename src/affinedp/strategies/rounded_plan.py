"""Releases with noise in a norm: coordinates on a grid, and all that rounding adds.

docs/explanation/floating-point.md gives the argument step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, dense, rank_of
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import LARGEST, FixedPoint, RationalRow, nearest_steps
from affinedp.exact.numbers import given_rows
from affinedp.exact.rational import BigIntegers, Echelon, reduce_exactly
from affinedp.laws.base import Law
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.base import GRID_BITS, SHARE, Promised
from affinedp.strategies.matrices import (
    DensePlan,
    Matrices,
    Row,
    SharedPart,
    in_output_units,
    shared_part,
    whiten,
)

# Numbers that are still eliminated in rational arithmetic.
MOST_EXACT = 40_000


def seen_combinations(
    strategy: Matrices, slope: FloatArray, shared: SharedPart | None
) -> dict[int, RationalRow] | None:
    """Return the combinations t that the query sees, or None where it sees every hidden entry.

    A query such as a single total sees less than the data: noise hides ``t = Q ξ`` with a rational
    matrix Q of full row rank.  By place: of the hidden entries at these places each is in one
    combination alone, with the coefficient 1, so that the outputs are ``slope[:, places] @ t``.
    Also None where they cannot be found in exact arithmetic; the plan then limits the data.
    """
    manifold = strategy.domain
    size = np.abs(slope).max(axis=1, initial=0.0)
    scaled = slope[size > 0] / size[size > 0, None]
    if rank_of(scaled) == slope.shape[1]:
        return None
    if manifold.exact_rows is None or slope.size > MOST_EXACT:
        return None
    rows = _exact_slope(strategy, shared)
    reduced = reduce_exactly([row for row in rows if row])
    return {place: RationalRow.of(row) for place, row in sorted(reduced, key=lambda one: one[0])}


def _exact_slope(strategy: Matrices, shared: SharedPart | None) -> list[Row]:
    """F K (or F K U) by row, in rational numbers."""
    manifold = strategy.domain
    assert manifold.exact_rows is not None
    pivots, free = manifold.canonical.pivots.tolist(), manifold.canonical.free.tolist()
    place = {entry: i for i, entry in enumerate([*pivots, *free])}
    # the equations solved for the pivots, which come first
    space = Echelon(len(pivots))
    for row in manifold.exact_rows:
        space.add({place[j]: value for j, value in row.items()})
    slope = []
    for row in given_rows(strategy.query):
        rest = space.rest({manifold.n: 1, **{place[j]: value for j, value in row.items()}})
        unit = rest.pop(manifold.n)
        slope.append({j - len(pivots): Fraction(value, unit) for j, value in rest.items()})
    return slope if shared is None else shared.on_hidden(slope)


# A bias that cannot be ruled out stays below this share of the noise.
BIAS = 2.0**-20
# Rounding may make noise larger than it is said to be by this share, and no more.
NOTICED = 1e-4
# What is left of the coordinates is as small as noise, or is taken out once more.
SMALL = 2.0**16
ROUNDS = 4
MOST_NUMBERS = 2e8
HUGE = 1e290


@dataclass(frozen=True, eq=False)
class RoundedPlan(DensePlan):
    """Releases whose coordinates ``z = coordinates @ t`` are rounded, t being what is hidden."""

    # how much larger than stated the noise is, for all that rounding adds
    factor: float
    # the entries of x that noise hides
    hidden: IntArray
    # t as combinations of the hidden entries; None where t are the hidden entries
    combinations: tuple[RationalRow, ...] | None
    # from steps of t to grid steps of z; shape (p, r)
    coordinates: FixedPoint
    # t is read on the grid ``2**step_exponent``
    step_exponent: int
    # of the noise
    law: Law
    # slope, spread: the outputs per unit of t, and Λ
    slope: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    # from z to t, nearly; shape (r, p)
    back: FloatArray = field(repr=False)

    @property
    def unit(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.factor) * (1 << GRID_BITS))

    def steps(self, data: FloatArray) -> BigIntegers:
        """Return z on the noise's grid, exactly, one column per row of data."""
        entries = data[:, self.hidden].T
        if self.combinations is None:
            # doubles beyond are farther apart than steps: their decimals are read exactly
            limit = math.ldexp(2.0**53, self.step_exponent)
            far = np.abs(entries).max(axis=0, initial=0.0) >= limit
            found: BigIntegers = np.empty((self.coordinates.limbs[0].shape[0], len(far)), object)
            steps = np.rint(np.ldexp(entries[:, ~far], -self.step_exponent))
            found[:, ~far] = self._grid(steps)
            if far.any():
                found[:, far] = self._grid(nearest_steps(entries[:, far], self.step_exponent))
            return found
        read = [row.rounded(entries.T, self.step_exponent) for row in self.combinations]
        return self._grid(np.array(read, dtype=object))

    def _grid(self, steps: FloatArray | BigIntegers) -> BigIntegers:
        exponent = self.coordinates.exponent + self.step_exponent + GRID_BITS
        return self.coordinates.times(steps, exponent)

    def reconstruct(self, noisy: BigIntegers, shared: FloatArray) -> FloatArray:
        """Return the outputs from noisy grid steps: public quantities and nothing else.

        ``slope @ t̂ + spread @ (z̃ − coordinates @ t̂)`` has the same mean for every t̂ in exact
        arithmetic.  A t̂ near t makes the second term as small as noise, so that the rounding of
        Λ⁺ does not grow with the data.
        """
        estimate = np.zeros((self.slope.shape[1], noisy.shape[1]))
        left = noisy
        for _ in range(ROUNDS):
            small = np.ldexp(left.astype(np.float64), -GRID_BITS)
            if np.abs(small).max(initial=0.0) <= SMALL * self.factor:
                break
            estimate = estimate + np.rint(np.ldexp(self.back @ small, -self.step_exponent))
            left = noisy - self._grid(estimate)
        small = np.ldexp(left.astype(np.float64), -GRID_BITS)
        moved = self.slope @ np.ldexp(estimate, self.step_exponent) + self.spread @ small
        return self.published(shared + moved.T)


def rounded_plan(
    strategy: Matrices, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
) -> RoundedPlan:
    """Prepare releases with noise in a norm: grids, and what they round."""
    query, manifold = strategy.query, strategy.domain
    noise = dense(strategy.noise)
    if float(noise.size) > MOST_NUMBERS:
        raise AffineDPError("the noise matrix is too large to release with")
    free = manifold.canonical.free
    shared = shared_part(strategy, adjacency, law)
    if shared is not None and bound is not None:
        raise AffineDPError(
            "some combinations are published without noise because neighbours agree in them "
            "exactly; with bound= they agree up to rounding only. Leave out bound, or protect "
            "these combinations too (see Mechanism.published_without_noise)"
        )
    kernel = dense(query @ manifold.kernel)
    slope, hidden = kernel, free
    if shared is not None:
        slope, hidden = _product(kernel, shared.spread(len(free))), free[shared.hidden]
    combinations = seen_combinations(strategy, slope, shared)
    if combinations is not None:
        slope = slope[:, list(combinations)]
    if not slope.any():
        raise AffineDPError(
            "the query does not depend on what neighbours differ in: it is public, and there is "
            "nothing to release with noise"
        )
    along = dense(manifold.kernel)
    if shared is not None:
        along = along @ shared.spread(len(free))
    if combinations is not None:
        along = along[:, list(combinations)]
    whitened = whiten(*in_output_units(strategy.noise, query, adjacency))
    # Λ⁺F is known up to this, here and where the guarantee was computed
    relative = 2 * whitened.error + 2 * (manifold.n + len(free)) * EPS
    doubt = relative * float((np.abs(dense(whitened.query)) @ np.abs(along)).max())
    rows = None if combinations is None else tuple(combinations.values())
    grids = _Grids(strategy, adjacency, law, promised, dense(whitened.query @ along), doubt, slope,
                   noise, rows, hidden)  # fmt: skip
    return grids.plan(bound, shared)


@dataclass(frozen=True, eq=False)
class _Grids:
    """Grids that add little to the sensitivity, and noise that pays for them."""

    strategy: Matrices
    adjacency: Adjacency
    law: Law
    promised: Promised
    coordinates: FloatArray
    doubt: float
    slope: FloatArray
    noise: FloatArray
    combinations: tuple[RationalRow, ...] | None
    hidden: IntArray

    def plan(self, bound: float | None, shared: SharedPart | None) -> RoundedPlan:
        """Return the plan."""
        sensitivity, combinations = self.promised.sensitivity, self.combinations
        p, r = self.coordinates.shape
        back = _left_inverse(self.slope, self.noise)
        moves, certain = self._longest_move(back)
        one_per_noise = self.law.box(p)
        room = sensitivity * SHARE / 8
        finest = _exponent_below(room / (one_per_noise * moves))
        fixed = FixedPoint.rounded(self.coordinates, finest)
        # what is drawn on differs from Λ⁺F by its own rounding and by that of Λ⁺F
        off = math.ldexp(1.0, fixed.exponent) + self.doubt
        total = sensitivity + one_per_noise * off * moves
        if total > sensitivity * (1 + NOTICED) and combinations is None:
            # a crude bound: look at what neighbours really make of it
            total = min(total, self._drawn_sensitivity(fixed, total))
        if total > sensitivity * (1 + NOTICED):
            raise AffineDPError(
                "the noise of some outputs is so much smaller than that of others that rounding "
                f"would make it {total / sensitivity:.3g} times larger than it is said to be. "
                "Rescale the outputs, or release them apart"
            )
        # a step of every coordinate moves z by at most this
        sums = np.abs(fixed.values()).sum(axis=1)[:, None]
        gain = float(self.law.gauges(sums).upper[0]) * (1 + r * EPS)
        step_exponent = _exponent_below(room / gain)
        total += 2 * gain * math.ldexp(1.0, step_exponent)
        total += one_per_noise * math.ldexp(1.0, -GRID_BITS)
        weights = [row.weight for row in combinations or ()]
        weight = math.nextafter(float(max(weights)), math.inf) if weights else 1.0
        if bound is not None:
            total += 2 * gain * weight * bound * EPS
        factor = max(1.0, total / sensitivity) * (1 + SHARE)
        # noisy integers and outputs must be doubles, also at 2^14 times the scale of the noise
        reach = max(math.ldexp(1.0, GRID_BITS), float(np.abs(self.noise).sum(axis=1).max()))
        if not factor * reach < 2.0**1010:
            raise AffineDPError(
                "the noise is too large for double precision: change the units"
                if bound is None
                else f"no noise covers rounding in data of size {bound:g}: give a smaller bound"
            )
        largest = self._largest(factor, certain)
        room_for_steps = math.ldexp(1.0, min(LARGEST // 2 + step_exponent, 1000))
        return RoundedPlan(
            self.strategy,
            bound,
            shared,
            np.asarray(self.strategy.query @ self.strategy.domain.point).ravel(),
            min(largest, room_for_steps) / weight,
            factor=factor,
            hidden=self.hidden,
            combinations=combinations,
            coordinates=fixed,
            step_exponent=step_exponent,
            law=self.law,
            slope=self.slope,
            spread=self.noise,
            back=back,
        )

    def _longest_move(self, back: FloatArray) -> tuple[float, bool]:
        """How far t moves between neighbours at most, in the 1-norm; and whether z determines t.

        If ``back @ coordinates`` is near the identity, then ``‖t‖ ≤ ‖back‖ ‖coordinates @ t‖`` up
        to that nearness, and the guarantee bounds ``‖coordinates @ t‖``.
        """
        coordinates, r = self.coordinates, self.coordinates.shape[1]
        terms = 4 * (r + len(coordinates)) * EPS * (np.abs(back) @ np.abs(coordinates))
        off = np.abs(back @ coordinates - np.eye(r)) + terms
        departure = float(off.sum(axis=0).max(initial=0.0))
        if departure < 0.5:
            if self.law.norm == 1:
                size = float(np.abs(back).sum(axis=0).max())
            else:
                size = float(np.linalg.norm(back, axis=1).sum())
            # the guarantee is about coordinates that differ by rounding; the factor 2 pays for it
            return 2 * size * self.promised.sensitivity / (1 - departure), True
        if self.combinations is not None:
            raise AffineDPError(
                "the noise is too ill-conditioned to release with: some outputs have far more "
                "noise than others. Rescale the outputs, or release them apart"
            )
        if self.promised.proof is not None:
            return self.promised.proof.longest(self.adjacency), False
        selection = _selection(self.hidden, self.strategy.domain.n)
        return self.adjacency.sensitivity(selection, 1).upper, False

    def _drawn_sensitivity(self, fixed: FixedPoint, crude: float) -> float:
        """The sensitivity of the fixed-point coordinates themselves, if it can be searched for."""
        if self.promised.proof is not None or self.law.norm is None:
            return crude
        drawn = fixed.values() @ _selection(self.hidden, self.strategy.domain.n)
        found = self.adjacency.sensitivity(drawn, self.law.norm)
        return self.law.rate * found.upper * (1 + 4 * EPS)

    def _largest(self, factor: float, certain: bool) -> float:
        """Up to which size data is published without a bias that could be seen.

        Where z determines t the bias is a rounding error of the outputs.  Elsewhere it grows with
        the data, by how much ``Λ Λ⁺ F K`` and ``F K`` differ.
        """
        sums = np.abs(self.coordinates).sum(axis=1).max() + np.abs(self.slope).sum(axis=1).max()
        largest = HUGE / max(float(sums), 1.0)
        if certain:
            return largest
        wide = np.longdouble
        drawn = self.noise.astype(wide) @ self.coordinates.astype(wide)
        off = np.abs(self.slope - drawn).astype(float) + 2 * EPS * np.abs(self.slope)
        deviation = factor * np.sqrt(self.law.variances(self.noise))
        seen = off.sum(axis=1) > 0
        if not seen.any():
            return largest
        return min(largest, BIAS * float((deviation[seen] / off[seen].sum(axis=1)).min()))


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    """``left @ right`` with zeros where there is nothing but rounding.

    An output that no neighbour moves has a row of zeros; what rounding leaves of them would
    look like an output with data and no noise.
    """
    product = left @ right
    rounding = 4 * len(right) * EPS * (np.abs(left) @ np.abs(right))
    return np.where(np.abs(product) > rounding, product, 0.0)


def _left_inverse(slope: FloatArray, noise: FloatArray) -> FloatArray:
    """A matrix that takes z to t nearly: ``slope⁺ Λ``."""
    alone = (slope != 0).sum(axis=1) == 1
    rows = np.flatnonzero(alone)
    place = np.argmax(slope[rows] != 0, axis=1)
    found, first = np.unique(place, return_index=True)
    if len(found) == slope.shape[1]:  # some outputs are the coordinates themselves
        chosen = rows[first]
        return np.asarray(noise[chosen] / slope[chosen, found][:, None])
    size = np.abs(slope).max(axis=1, initial=0.0)
    unit = np.where(size > 0, size, 1.0)[:, None]
    return np.asarray(np.linalg.pinv(slope / unit) @ (noise / unit))


def _selection(entries: IntArray, n: int) -> FloatArray:
    import scipy.sparse as sparse

    k = len(entries)
    return sparse.csr_array((np.ones(k), (np.arange(k), entries)), shape=(k, n))  # type: ignore[no-any-return]


def _exponent_below(size: float) -> int:
    """The largest e with 2^e at most ``size``."""
    if not 0 < size < math.inf:
        raise AffineDPError(
            "the noise and the data differ too much in size to release with: change their units"
        )
    return math.frexp(size)[1] - 1
