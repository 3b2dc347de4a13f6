"""The public part of a release: grids, exact coordinates, and all that rounding adds.

docs/explanation/floating-point.md gives the argument step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, IntArray, dense
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import LARGEST, FixedPoint, nearest_steps
from affinedp.exact.numbers import real_array
from affinedp.exact.rational import BigIntegers
from affinedp.promise.shared import SharedPart, shared_part
from affinedp.promise.whitening import output_units, whiten
from affinedp.promise.without_list import longest_move
from affinedp.record import MechanismRecord
from affinedp.release.combinations import Combinations, seen_combinations

# The noise lives on multiples of 2^-GRID_BITS of its own scale.
GRID_BITS = 56
# All that rounding adds to the sensitivity may be this share of it; the noise is made larger by
# the same share.
SHARE = 2.0**-30
# A bias that cannot be ruled out stays below this share of the noise.
BIAS = 2.0**-20
# Rounding may make noise larger than it is said to be by this share, and no more.
NOTICED = 1e-4
# What is left of the coordinates is as small as noise, or is taken out once more.
SMALL = 2.0**16
ROUNDS = 4
MOST_NUMBERS = 2e8
HUGE = 1e290
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything about releases of a mechanism that is public: made once, used for all rows.

    With t the hidden coordinates of x, ``z = coordinates @ t`` is what noise is added to.

    Attributes
    ----------
    free, hidden : arrays of int
        The entries of x that are read (the others follow from the equations), and those of
        them that noise hides.
    shared : SharedPart or None
        What neighbours have in common and is published as it is; None where noise hides all.
    combinations : Combinations or None
        t as combinations of the hidden entries; None where t are the hidden entries.
    coordinates : FixedPoint, shape (p, r)
        From steps of t to grid steps of z.
    step_exponent : int
        t is read on the grid ``2**step_exponent``.
    noise_factor : float
        How much larger than unit the noise is, for all that rounding adds.
    offset, kernel, slope, spread : arrays
        F x_p, F K, the outputs per unit of t, and Λ.
    back : array, shape (r, p)
        From z to t, nearly.
    largest : float
        Data beyond this is refused.
    law : str
        Law of the noise.
    bound : float or None
        The public bound on the data.
    """

    free: IntArray
    hidden: IntArray
    shared: SharedPart | None
    combinations: Combinations | None
    coordinates: FixedPoint
    step_exponent: int
    noise_factor: float
    offset: FloatArray
    kernel: FloatArray
    slope: FloatArray
    spread: FloatArray
    back: FloatArray
    largest: float
    law: str
    bound: float | None

    @property
    def scale(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.noise_factor) * (1 << GRID_BITS))

    def grid_steps(self, points: FloatArray) -> BigIntegers:
        """Return z on the noise's grid, exactly, one column per row of ``points``."""
        entries = points[:, self.hidden].T
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
        return self._grid(self.combinations.steps(entries, self.step_exponent))

    def _grid(self, steps: FloatArray | BigIntegers) -> BigIntegers:
        exponent = self.coordinates.exponent + self.step_exponent + GRID_BITS
        return self.coordinates.times(steps, exponent)

    def shared_outputs(self, points: FloatArray) -> FloatArray:
        """Return what is published without noise: equal for neighbours, bit for bit."""
        if self.shared is None:
            return self.offset
        return np.asarray(self.offset + self.shared.values(points[:, self.free]) @ self.kernel.T)

    def publish(self, noisy: BigIntegers) -> FloatArray:
        """Return the outputs from noisy grid steps: public quantities and nothing else.

        ``slope @ t̂ + spread @ (z̃ − coordinates @ t̂)`` has the same mean for every t̂ in exact
        arithmetic.  A t̂ near t makes the second term as small as noise, so that the rounding of
        Λ⁺ does not grow with the data.
        """
        estimate = np.zeros((self.slope.shape[1], noisy.shape[1]))
        left = noisy
        for _ in range(ROUNDS):
            small = np.ldexp(left.astype(np.float64), -GRID_BITS)
            if np.abs(small).max(initial=0.0) <= SMALL * self.noise_factor:
                break
            estimate = estimate + np.rint(np.ldexp(self.back @ small, -self.step_exponent))
            left = noisy - self._grid(estimate)
        small = np.ldexp(left.astype(np.float64), -GRID_BITS)
        return np.asarray(
            (self.slope @ np.ldexp(estimate, self.step_exponent) + self.spread @ small).T
        )


def checked_bound(bound: float | None) -> float | None:
    """Return a public bound on the data as a positive number, or None.

    Parameters
    ----------
    bound : float or None
        What was given.
    """
    if bound is None:
        return None
    limit = float(real_array(bound, "bound", 0))
    if not limit > 0:
        raise AffineDPError(f"bound must be positive, not {limit}")
    return limit


def plan_of(mechanism: MechanismRecord, bound: float | None) -> Plan:
    """Prepare releases with Gaussian or Laplace noise: grids, and what they round.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    bound : float or None
        If given, |x| is at most this, and neighbours may be off by the rounding of double
        precision; otherwise recorded neighbours differ exactly as the adjacency says.
    """
    guarantee, manifold = mechanism.guarantee, mechanism.manifold
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is released with it")
    noise = dense(mechanism.noise_matrix)
    if float(noise.size) > MOST_NUMBERS:
        raise AffineDPError("the noise matrix is too large to release with")
    free = manifold.canonical.free
    shared = shared_part(mechanism.adjacency, mechanism.query, mechanism.noise_matrix)
    if shared is not None and bound is not None:
        raise AffineDPError(
            "some combinations are published without noise because neighbours agree in them "
            "exactly; with bound= they agree up to rounding only. Leave out bound, or protect "
            "these combinations too (see Mechanism.published_without_noise)"
        )
    kernel = dense(mechanism.query @ manifold.kernel)
    slope, hidden = kernel, free
    if shared is not None:
        slope, hidden = _product(kernel, shared.spread(len(free))), free[shared.hidden]
    combinations = seen_combinations(mechanism, slope, shared)
    if combinations is not None:
        slope = slope[:, combinations.places]
    if not slope.any():
        raise AffineDPError(
            "the query does not depend on what neighbours differ in: it is public, and there is "
            "nothing to release with noise"
        )
    along = dense(manifold.kernel)
    if shared is not None:
        along = along @ shared.spread(len(free))
    if combinations is not None:
        along = along[:, combinations.places]
    unit = output_units(mechanism.query, mechanism.adjacency)
    whitened = whiten(unit @ mechanism.noise_matrix, unit @ mechanism.query)
    # Λ⁺F is known up to this, here and where the guarantee was computed
    relative = 2 * whitened.error + 2 * (manifold.n + len(free)) * EPS
    doubt = relative * float((np.abs(dense(whitened.query)) @ np.abs(along)).max())
    return _with_grids(
        mechanism, dense(whitened.query @ along), doubt, slope, noise, bound,
        free=free, hidden=hidden, shared=shared, combinations=combinations, kernel=kernel,
    )  # fmt: skip


def _with_grids(
    mechanism: MechanismRecord,
    coordinates: FloatArray,
    doubt: float,
    slope: FloatArray,
    noise: FloatArray,
    bound: float | None,
    *,
    free: IntArray,
    hidden: IntArray,
    shared: SharedPart | None,
    combinations: Combinations | None,
    kernel: FloatArray,
) -> Plan:
    """The plan whose grids add little to the sensitivity, and whose noise pays for them."""
    law, sensitivity = mechanism.law, mechanism.guarantee.sensitivity
    p, r = coordinates.shape
    back = _left_inverse(slope, noise)
    moves, certain = _longest_move(mechanism, coordinates, back, combinations, hidden)
    one_per_noise = mechanism.noise.box(p)
    room = sensitivity * SHARE / 8
    fixed = FixedPoint.rounded(coordinates, _exponent_below(room / (one_per_noise * moves)))
    # what is drawn on differs from Λ⁺F by its own rounding and by that of Λ⁺F
    total = sensitivity + one_per_noise * (math.ldexp(1.0, fixed.exponent) + doubt) * moves
    if total > sensitivity * (1 + NOTICED) and combinations is None:
        # a crude bound: look at what neighbours really make of it
        total = min(total, _drawn_sensitivity(mechanism, fixed, hidden, total))
    if total > sensitivity * (1 + NOTICED):
        raise AffineDPError(
            "the noise of some outputs is so much smaller than that of others that rounding would "
            f"make it {total / sensitivity:.3g} times larger than it is said to be. Rescale the "
            "outputs, or release them apart"
        )
    # a step of every coordinate moves z by at most this
    sums = np.abs(fixed.values()).sum(axis=1)
    gain = float(mechanism.noise.gauges(sums[:, None]).upper[0]) * (1 + r * EPS)
    step_exponent = _exponent_below(room / gain)
    total += 2 * gain * math.ldexp(1.0, step_exponent)
    total += one_per_noise * math.ldexp(1.0, -GRID_BITS)
    weight = 1.0 if combinations is None else combinations.weight
    if bound is not None:
        total += 2 * gain * weight * bound * EPS
    factor = max(1.0, total / sensitivity) * (1 + SHARE)
    # noisy integers and outputs must be doubles, also at 2^14 times the scale of the noise
    reach = max(math.ldexp(1.0, GRID_BITS), float(np.abs(noise).sum(axis=1).max()))
    if not factor * reach < 2.0**1010:
        raise AffineDPError(
            "the noise is too large for double precision: change the units"
            if bound is None
            else f"no noise covers rounding in data of size {bound:g}: give a smaller bound"
        )
    largest = _largest(slope, coordinates, noise, mechanism, factor, certain)
    room_for_steps = math.ldexp(1.0, min(LARGEST // 2 + step_exponent, 1000))
    return Plan(
        free=free,
        hidden=hidden,
        shared=shared,
        combinations=combinations,
        coordinates=fixed,
        step_exponent=step_exponent,
        noise_factor=factor,
        offset=np.asarray(mechanism.query @ mechanism.manifold.point).ravel(),
        kernel=kernel,
        slope=slope,
        spread=noise,
        back=back,
        largest=min(largest, room_for_steps) / weight,
        law=law,
        bound=bound,
    )


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


def _longest_move(
    mechanism: MechanismRecord,
    coordinates: FloatArray,
    back: FloatArray,
    combinations: Combinations | None,
    hidden: IntArray,
) -> tuple[float, bool]:
    """How far t moves between neighbours at most, in the 1-norm; and whether z determines t.

    If ``back @ coordinates`` is near the identity, then ``‖t‖ ≤ ‖back‖ ‖coordinates @ t‖`` up to
    that nearness, and the guarantee bounds ``‖coordinates @ t‖``.
    """
    r = coordinates.shape[1]
    terms = 4 * (r + len(coordinates)) * EPS * (np.abs(back) @ np.abs(coordinates))
    off = np.abs(back @ coordinates - np.eye(r)) + terms
    departure = float(off.sum(axis=0).max(initial=0.0))
    if departure < 0.5:
        if mechanism.noise.norm == 1:
            size = float(np.abs(back).sum(axis=0).max())
        else:
            size = float(np.linalg.norm(back, axis=1).sum())
        # the guarantee is about coordinates that differ by rounding; the factor 2 pays for it
        return 2 * size * mechanism.guarantee.sensitivity / (1 - departure), True
    if combinations is not None:
        raise AffineDPError(
            "the noise is too ill-conditioned to release with: some outputs have far more noise "
            "than others. Rescale the outputs, or release them apart"
        )
    if mechanism.certificate is not None:
        return longest_move(mechanism.adjacency, mechanism.certificate), False
    selection = _selection(hidden, mechanism.manifold.n)
    return mechanism.adjacency.sensitivity(selection, 1).upper, False


def _drawn_sensitivity(
    mechanism: MechanismRecord, fixed: FixedPoint, hidden: IntArray, crude: float
) -> float:
    """The sensitivity of the fixed-point coordinates themselves, where it can be searched for."""
    if mechanism.certificate is not None:
        return crude
    norm = mechanism.noise.norm or 2
    drawn = fixed.values() @ _selection(hidden, mechanism.manifold.n)
    return mechanism.adjacency.sensitivity(drawn, norm).upper * (1 + 4 * EPS)


def _largest(
    slope: FloatArray,
    coordinates: FloatArray,
    noise: FloatArray,
    mechanism: MechanismRecord,
    factor: float,
    certain: bool,
) -> float:
    """Up to which size data is published without a bias that could be seen.

    Where z determines t the bias is a rounding error of the outputs.  Elsewhere it grows with the
    data, by how much ``Λ Λ⁺ F K`` and ``F K`` differ.
    """
    most = float(np.abs(coordinates).sum(axis=1).max() + np.abs(slope).sum(axis=1).max())
    largest = HUGE / max(most, 1.0)
    if certain:
        return largest
    wide = np.longdouble
    off = np.abs(slope - noise.astype(wide) @ coordinates.astype(wide)).astype(float)
    off += 2 * EPS * np.abs(slope)
    deviation = factor * np.sqrt(mechanism.expected_squared_errors)
    seen = off.sum(axis=1) > 0
    if not seen.any():
        return largest
    return min(largest, BIAS * float((deviation[seen] / off[seen].sum(axis=1)).min()))


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
