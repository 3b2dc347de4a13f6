"""Products ``A(t−1) … A(0)`` and their inverses over long horizons, with rigorous errors.

Floating point loses everything in a million steps.  Here the products are carried in wide
fixed-point integers, with so many bits F that what rounding does to them over the whole horizon
is a known number far below anything that counts; the results are rounded to doubles at the end.

*The bound.*  Let M ≥ 1 be at least the norm of every product from s to t.  Integers are cut to
whole units and factors are off by less than two units in every entry, so that a step adds at most
``u (1 + M)`` with ``u = 2n · 2^−F``, and what a step adds arrives multiplied by at most M.  Long
horizons multiply a power below B with a power of the B-th power, which in all costs at most
``4 T u (1 + M)⁵``.  M comes from the computed products: if that bound, with M twice the largest
computed norm times one more factor, is less than the largest computed norm, then by induction over
the steps no true norm is more than twice that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.exact.rational import BigIntegers, RationalMatrix
from affinedp.progress import Progress

# Absolute accuracy of every entry, before it is rounded to a double.
ACCURACY_BITS = 80
# Products up to 2^LARGEST: their squares are still doubles.
LARGEST = 480
# Steps up to which integers do all the work; limbs do more for at most MOST_LIMB_STATES states,
# so that sums of products of limbs stay below 2^53.
SHORT = 20_000
MOST_LIMB_STATES = 32
LIMB_BITS = 24
MOST_LIMBS = 6
# What leaving out limbs may cost is this much more than what the integers cost.
LIMB_SHARE = 30
BLOCK = 1024
# A state matrix with a larger condition number counts as singular.
MOST_CONDITION = 1e12
SINGULAR = (
    "Time-local neighbours (Theorem 3) need that; use adjacency='manifold' (Definition 4), which "
    "does without"
)

# Called with the time of the first product and a stack of products; time 0 starts anew.
Visit = Callable[[int, FloatArray], None]


class HorizonTooLongError(AffineDPError):
    """Dynamics that stretch so much over a horizon that rounding hides what noise promises."""

    def __init__(self, message: str, horizon: int | None = None) -> None:
        self.horizon = horizon
        super().__init__(message)


@dataclass(frozen=True)
class Scan:
    """What is certain about the products that were visited."""

    error: float  # every entry is off by at most this, besides one rounding of its own size
    growth_exponent: int  # ``2**growth_exponent`` is at least the norm of every product from s to t


def scan_transitions(dynamics: Dynamics, visit: Visit, scale: float = 1.0) -> Scan:
    """Visit ``Φ_t = A(t−1) … A(0)`` for t = 0, …, T−1, a stack at a time."""
    return _scan(dynamics, False, visit, max(0, math.frexp(scale)[1]))


def scan_inverse_transitions(dynamics: Dynamics, visit: Visit) -> Scan:
    """Visit ``Φ_t⁻¹``: how x(0) differs when x(t) differs by a unit vector."""
    return _scan(dynamics, True, visit)


def growth_exponent(dynamics: Dynamics) -> int:
    """Return k with ``‖A(t−1)…A(s)‖ ≤ 2^k`` for all s ≤ t in the horizon."""
    return scan_transitions(dynamics, lambda start, block: None).growth_exponent


def _scan(dynamics: Dynamics, inverse: bool, visit: Visit, extra: int = 0) -> Scan:
    n, horizon = dynamics.states, dynamics.horizon
    if horizon == 1:  # no step is made, whatever A is
        visit(0, np.eye(n)[None])
        return Scan(0.0, 0)
    estimate = _estimated_exponent(dynamics, inverse)
    crude = _crude_growth(dynamics, inverse)
    accuracy = ACCURACY_BITS + extra
    long = dynamics.A.ndim == 2 and horizon > SHORT and n <= MOST_LIMB_STATES
    limbs = _limbs_needed(2 * estimate + n + accuracy - LIMB_SHARE) if long else 0
    bits = accuracy + 5 * max(estimate + 3, 0) + 2 * horizon.bit_length() + 32
    for _ in range(5):
        largest = _visited(dynamics, inverse, bits, limbs, visit)
        if not largest <= 2.0 ** (LARGEST + 20):
            raise AffineDPError(
                "the products of the state matrices leave the range of floating point over this "
                "horizon: shorten it, or use other units for the states"
            )
        # log2 of M: for constant A, products from s to t are among those from 0
        growth = crude.product if dynamics.A.ndim == 3 else math.log2(largest) + 1
        norm = max(growth, math.log2(largest) + 1) + crude.factor + 1
        spare = bits - math.log2(8.0 * horizon * n) - 5 * (norm + 1)
        error = 2.0 ** -min(spare, 1000.0) if spare > 0 else math.inf
        left_out = _left_out(limbs, n, largest)
        if error <= 2.0**-accuracy and error + left_out <= largest:
            if left_out <= 2.0 ** (LIMB_SHARE - accuracy):
                return Scan((error + left_out) * (1 + 1e-9), math.ceil(growth))
            limbs = limbs + 1 if limbs < MOST_LIMBS else 0
            continue
        bits = accuracy + bits + math.ceil(max(0.0, -spare))
    raise AffineDPError(
        "the products of the state matrices cannot be computed reliably over this horizon: "
        "shorten it"
    )


def _limbs_needed(bits: int) -> int:
    """How many limbs a product needs, or 0 if that is too many."""
    limbs = max(2, math.ceil((bits + 8) / LIMB_BITS))
    return limbs if limbs <= MOST_LIMBS else 0


def _left_out(limbs: int, n: int, largest: float) -> float:
    """A bound on the limbs that are left out of a product, and on what compensation leaves."""
    if limbs == 0:
        return 0.0
    return float(n * (2 * largest) ** 2 * (2.0 ** (6 - LIMB_BITS * limbs) + 2.0**-94))


@dataclass(frozen=True)
class _Growth:
    """log2 of bounds (at least 0): on one factor, and on any product of consecutive factors."""

    factor: float
    product: float


def _crude_growth(dynamics: Dynamics, inverse: bool) -> _Growth:
    stacked = dynamics.A.reshape(-1, dynamics.states, dynamics.states)
    if inverse:
        stacked = np.array([inverted(matrix) for matrix in stacked])
    norms = np.linalg.norm(stacked, ord=2, axis=(1, 2)) * (1 + 1e-3)
    logarithms = np.log2(np.maximum(norms, 1.0))
    return _Growth(float(logarithms.max()), float(logarithms.sum()) + 1.0)


def _visited(dynamics: Dynamics, inverse: bool, bits: int, limbs: int, visit: Visit) -> float:
    """Visit all products; a bound on the largest computed norm, at least 1."""
    start, largest = 0, 1.0
    with np.errstate(over="ignore"), Progress("powers of the state matrix") as progress:
        for block in _blocks(dynamics, inverse, bits, limbs):
            visit(start, block)
            start += len(block)
            largest = max(largest, float(np.einsum("tij,tij->t", block, block).max()) ** 0.5)
            progress.update(start / dynamics.horizon)
    return largest * (1 + 1e-9)


def _blocks(dynamics: Dynamics, inverse: bool, bits: int, limbs: int) -> Iterator[FloatArray]:
    n, horizon = dynamics.states, dynamics.horizon
    current: BigIntegers = _identity(n, bits)
    if dynamics.A.ndim == 3:
        yield _doubles(current, bits)[None]
        for t in range(horizon - 1):
            factor = _factor(dynamics.A[t], inverse, bits)
            # Φ_{t+1} = A Φ_t, but Φ_{t+1}⁻¹ = Φ_t⁻¹ A⁻¹
            current = (current @ factor if inverse else factor @ current) >> bits
            yield _doubles(current, bits)[None]
        return
    factor = _factor(dynamics.A, inverse, bits)
    count = min(horizon, BLOCK)
    powers = [current]
    for _ in range(count):
        powers.append((powers[-1] @ factor) >> bits)
    small = np.array(powers[:-1]).reshape(count * n, n)
    small_limbs = _limbs(small, limbs) if limbs else None
    giant = current
    for start in range(0, horizon, count):
        if small_limbs is not None:
            block = _limb_product(small_limbs, _limbs(giant, limbs), bits)
        else:
            block = _doubles((small @ giant) >> bits, bits)
        yield block.reshape(count, n, n)[: horizon - start]
        giant = (giant @ powers[-1]) >> bits


def _limb_product(
    left: tuple[list[FloatArray], int], right: tuple[list[FloatArray], int], bits: int
) -> FloatArray:
    """A product by limbs that multiply without rounding, summed with compensation."""
    (first, first_exponent), (second, second_exponent) = left, right
    high = np.zeros((len(first[0]), second[0].shape[1]))
    low = np.zeros_like(high)
    for level in reversed(range(len(first))):
        for i in range(level + 1):
            term = np.ldexp(first[i] @ second[level - i], -LIMB_BITS * level)
            total = high + term
            part = total - high
            low += (high - (total - part)) + (term - part)
            high = total
    return np.ldexp(high + low, first_exponent + second_exponent - 2 * bits)


def _limbs(matrix: BigIntegers, count: int) -> tuple[list[FloatArray], int]:
    """The leading limbs of integers, largest first, and the exponent of the first."""
    largest = max(abs(int(v)) for v in (matrix.max(), matrix.min()))
    shift = largest.bit_length() - LIMB_BITS * count
    rest: BigIntegers = matrix >> shift if shift >= 0 else matrix << -shift
    limbs = []
    for i in range(count):
        below = LIMB_BITS * (count - 1 - i)
        limb: BigIntegers = rest >> below
        limbs.append(limb.astype(np.float64))
        rest = rest - (limb << below)
    return limbs, largest.bit_length() - LIMB_BITS


def _identity(n: int, bits: int) -> BigIntegers:
    found: BigIntegers = RationalMatrix.identity(n).values << bits
    return found


def _fixed(matrix: FloatArray, bits: int) -> BigIntegers:
    """The numbers that doubles stand for in units of ``2**-bits``, rounded to the nearest."""
    exact = RationalMatrix.meant(matrix)
    rounded: BigIntegers = ((exact.values << (bits + 1)) + exact.over) // (2 * exact.over)
    return rounded


def _factor(matrix: FloatArray, inverse: bool, bits: int) -> BigIntegers:
    """A, or its inverse by Newton's iteration, off by less than two units in every entry."""
    if not inverse:
        return _fixed(matrix, bits)
    n = len(matrix)
    start = inverted(matrix)
    # the error is wanted below a unit after multiplication with the inverse, twice
    guard = 2 * max(0, math.frexp(np.abs(start).max())[1]) + 2 * n.bit_length() + 16
    wide = bits + guard
    given, identity = _fixed(matrix, wide), _identity(n, wide)
    found = _fixed(start, wide)
    for _ in range(wide.bit_length() + 2):
        residual: BigIntegers = identity - ((given @ found) >> wide)
        found = found + ((found @ residual) >> wide)
    size = max(abs(int(v)) for v in residual.ravel())
    scale = max(abs(int(v)) for v in found.ravel())
    if (size + 2) * scale * n * n >> wide > 1 << (guard - 1):
        raise AffineDPError(f"the state matrix is too nearly singular to invert. {SINGULAR}")
    rounded: BigIntegers = found >> guard
    return rounded


def _doubles(integers: BigIntegers, bits: int) -> FloatArray:
    """Nearest doubles of integers in units of ``2**-bits``, of any size."""
    size = max(abs(int(v)) for v in (integers.max(), integers.min())).bit_length()
    # so few bits that conversion cannot overflow, and so many that small entries keep theirs
    shift = max(0, size - 900)
    return np.ldexp((integers >> shift).astype(np.float64), shift - bits)


def _estimated_exponent(dynamics: Dynamics, inverse: bool) -> int:
    """About log₂ of the largest product; refuses those that would leave the doubles."""
    if dynamics.A.ndim == 2:
        factor = inverted(dynamics.A) if inverse else dynamics.A
        found = log_growth(factor, dynamics.horizon - 1)
        if found <= LARGEST:
            return math.ceil(found)
        fits = _bisect(lambda steps: log_growth(factor, steps) <= LARGEST, dynamics.horizon)
        raise _too_long(dynamics.horizon, fits + 1, inverse)
    current, exponent, largest = np.eye(dynamics.states), 0, 0.0
    for t in range(dynamics.horizon - 1):
        factor = inverted(dynamics.A[t]) if inverse else dynamics.A[t]
        current = current @ factor if inverse else factor @ current
        shift = math.frexp(np.abs(current).max())[1]
        current, exponent = np.ldexp(current, -shift), exponent + shift
        largest = max(largest, exponent + 1.0)
        if largest > LARGEST:
            raise _too_long(dynamics.horizon, t + 1, inverse)
    return math.ceil(largest)


def _bisect(fits: Callable[[int], bool], high: int) -> int:
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _too_long(horizon: int, works: int, inverse: bool) -> HorizonTooLongError:
    what = "inverses of the" if inverse else "the"
    reason = "the dynamics contract" if inverse else "the dynamics expand"
    return HorizonTooLongError(
        f"over a horizon of {horizon:,} the powers of {what} state matrices leave the range of "
        f"floating point ({reason}). A horizon of up to {works:,} works",
        works,
    )


def inverted(matrix: FloatArray) -> FloatArray:
    """Return the inverse of a state matrix, roughly; refuses one that is nearly singular."""
    # rows in their own units: a unit is no singularity
    size = np.abs(matrix).max(axis=1)
    scaled = matrix / np.where(size > 0, size, 1.0)[:, None]
    condition = np.linalg.cond(scaled) if np.all(size > 0) else math.inf
    if not condition < MOST_CONDITION:
        raise AffineDPError(
            "the state matrix is singular, or too nearly so (condition number "
            f"{condition:.1e}): the state at a later time does not determine the earlier ones. "
            f"{SINGULAR}"
        )
    return np.asarray(np.linalg.inv(scaled) / size)


def log_growth(matrix: FloatArray, steps: int) -> float:
    """Return about log₂ of the largest power, from the powers on the binary way there.

    Examples
    --------
    >>> log_growth(np.array([[2.0]]), 100)
    101.0
    """
    power, exponent, largest = matrix, 0, 0.0
    reached: FloatArray | None = None
    reached_exponent = 0
    while steps:
        size = np.abs(power).max()
        if size == 0:
            break
        shift = math.frexp(size)[1]
        power, exponent = np.ldexp(power, -shift), exponent + shift
        if steps & 1:
            reached = power if reached is None else reached @ power
            shift = math.frexp(np.abs(reached).max())[1]
            reached, reached_exponent = (
                np.ldexp(reached, -shift),
                reached_exponent + exponent + shift,
            )
            largest = max(largest, float(reached_exponent))
        steps >>= 1
        if steps:
            largest = max(largest, float(exponent))
            power, exponent = power @ power, 2 * exponent
    return largest + math.log2(len(matrix))
