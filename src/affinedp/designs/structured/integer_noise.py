"""Noise as it is drawn: integers, with a promise that is checked in integers.

A number X gets noise of scale 2^k / q with a whole number q: what is kept of it is the integer
``q X + Z``, with Z of the discrete law of scale 2^k.  Everything after that is a function of these
integers and of what is public.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.laws.named import LawName
from affinedp.laws.sampler import IntegerNoise, Sampler
from affinedp.laws.sampler.opendp import opendp_integers
from affinedp.strategies.rounded_plan import GRID_BITS

# The drawn noise is larger than the stated promise needs by this share: it pays for the grid.
SHARE = Fraction(1, 1 << 30)
# Rounding in doubles, before anything is checked in integers.
SPARE = 2.0**-46
LARGEST_Q = 2.0**62
# Numbers drawn at once: Python integers take memory.
BLOCK = 1 << 19
Integers = NDArray[np.int64]


def drawn_limit(law: LawName, sensitivity: float) -> int:
    """Return what the heaviest path of q² (Gaussian) or q (Laplace) may weigh, exactly.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise.
    sensitivity : float
        The stated promise: neighbours are at most this far apart in units of the noise.
    """
    exact = Fraction(sensitivity)
    if law == "laplace":
        return math.floor(exact * (1 << GRID_BITS))
    exact *= 1 - Fraction(1, 1 << 50)  # the root is rounded up when the promise is stated
    return math.floor((exact / (1 + SHARE)) ** 2 * (1 << 2 * GRID_BITS))


def whole_scales(law: LawName, y: FloatArray, shrink: float = 1.0) -> Integers:
    """Return q, rounded down: never less noise than y asks for.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise.
    y : array
        Precisions (Gaussian), or one over the scales (Laplace).
    shrink : float
        A factor of at most 1 on one over the scales.
    """
    inverse = np.sqrt(y) if law == "gaussian" else y
    inverse = inverse * (shrink * (1 - SPARE))
    if law == "gaussian":
        inverse = inverse / float(1 + SHARE)
    if not np.isfinite(inverse).all() or inverse.max(initial=0.0) * 2.0**GRID_BITS > LARGEST_Q:
        raise AffineDPError("the noise is too small for its grid: epsilon is too large")
    return np.floor(np.ldexp(inverse, GRID_BITS)).astype(np.int64)


def precisions(law: LawName, q: Integers) -> FloatArray:
    """Return one over the variance of the noise of every number.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise.
    q : array of int
        Whole numbers; 0 where nothing is measured.
    """
    inverse = np.ldexp(q.astype(float), -GRID_BITS)
    return np.asarray(inverse**2 if law == "gaussian" else inverse**2 / 2)


def stated_sensitivity(law: LawName, heaviest: int, household: int) -> float:
    """Return the promise of what is drawn, rounded up.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise.
    heaviest : int
        The heaviest sum of q² or q that one move meets.
    household : int
        How many moves are made at once, at most.
    """
    if law == "laplace":
        exact = Fraction(heaviest * household, 1 << GRID_BITS)
    else:
        root = math.isqrt(heaviest)
        root += root * root < heaviest
        exact = Fraction(root * household, 1 << GRID_BITS) * (1 + SHARE)
    found = float(exact)
    return found if Fraction(found) >= exact else math.nextafter(found, math.inf)


def check_grid(law: LawName, epsilon: float, delta: float, changed: int) -> None:
    """Refuse a δ so small that noise on a grid could be told from noise on the line.

    The discrete law of one number is within 4⁻ᵏ/24 of the rounded Gaussian, and only numbers that
    neighbours change count: δ grows by at most (1 + e^ε) · changed · 4⁻ᵏ/24.  The share 2⁻³⁰ of
    the noise pays for 10⁻¹⁰ of δ and more.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise; the discrete Laplace law needs no correction.
    epsilon, delta : float
        The promise.
    changed : int
        How many noisy numbers two neighbours can change.
    """
    if law == "laplace":
        return
    try:
        added = (1 + math.exp(epsilon)) * changed * 4.0**-GRID_BITS / 24
    except OverflowError:
        added = math.inf
    if not added <= 1e-10 * delta:
        raise AffineDPError(
            f"delta = {delta:g} is too small, or epsilon = {epsilon:g} too large, for noise on the "
            f"grid of 2^-{GRID_BITS}: it could add {added:.1e} to delta"
        )


def noisy(law: LawName, counts: NDArray[Any], q: Integers, sampler: Sampler = "bulk") -> FloatArray:
    """Return counts with noise; what is returned depends on the integers q X + Z only.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise.
    counts : array of integers
        Exact: int64, or Python integers of any size.
    q : array of int
        Positive, of the shape of ``counts``.
    sampler : {"bulk", "opendp"}
        Who draws.
    """
    flat, scales = counts.ravel(), q.ravel()
    found = np.empty(len(flat))
    noise = _grid_noise(law)
    for start in range(0, len(flat), BLOCK):
        block = slice(start, start + BLOCK)
        size = len(flat[block])
        if sampler == "opendp":
            drawn = opendp_integers(law, 1 << GRID_BITS, size)
        else:
            drawn = noise.draw_narrow(size)
        found[block] = _quotients(flat[block], scales[block], drawn)
    return found.reshape(counts.shape)


def whole_share(inverse: float) -> float:
    """Return the variance of whole Laplace noise as a share of that on the line, 2 scale².

    With x = 1/scale it is x²/4 / sinh²(x/2): whole numbers keep the same promise with less noise.

    Parameters
    ----------
    inverse : float
        One over the scale.
    """
    half = min(inverse, LARGEST_Q / 2.0**GRID_BITS) / 2
    return (half / math.sinh(half)) ** 2 if half > 0 else 1.0


def whole_precisions(q: Integers) -> FloatArray:
    """Return one over the variance of whole Laplace noise of scales 2⁵⁶/q: 2 sinh²(q/2⁵⁷).

    Parameters
    ----------
    q : array of int
        Whole numbers; 0 where nothing is measured.
    """
    return np.asarray(2 * np.sinh(np.ldexp(q.astype(float), -GRID_BITS - 1)) ** 2)


def noisy_whole(counts: NDArray[Any], q: int, sampler: Sampler = "bulk") -> FloatArray:
    """Return counts with whole Laplace noise of scale 2⁵⁶/q: P(i) ∝ exp(−q |i| / 2⁵⁶).

    People who come or go change a count by whole numbers, so the promise is that of ``noisy``.

    Parameters
    ----------
    counts : array of integers
        Exact: int64, or Python integers of any size.
    q : int
        Positive.
    sampler : {"bulk", "opendp"}
        Who draws.
    """
    scale, flat = Fraction(1 << GRID_BITS, q), counts.ravel()
    found = np.empty(len(flat))
    for start in range(0, len(flat), BLOCK):
        block = flat[start : start + BLOCK]
        if sampler == "opendp":
            drawn = opendp_integers("laplace", _float_above(scale), len(block))
        else:
            drawn = _whole_noise(scale).draw_narrow(len(block))
        found[start : start + BLOCK] = (block + drawn).astype(float)
    return found.reshape(counts.shape)


def _float_above(scale: Fraction) -> Fraction:
    """The least float that is not below: OpenDP takes floats, and more noise keeps the promise."""
    near = float(scale)
    return Fraction(near if Fraction(near) >= scale else math.nextafter(near, math.inf))


@functools.lru_cache(maxsize=8)
def _whole_noise(scale: Fraction) -> IntegerNoise:
    return IntegerNoise("laplace", scale)


def _quotients(counts: NDArray[Any], q: Integers, drawn: NDArray[Any]) -> FloatArray:
    """(q X + Z) / q from its whole part and its remainder, which say no more than q X + Z does.

    With Z = a q + r and 0 ≤ r < q, the whole part is X + a and the remainder r: nothing wider than
    X is formed.  (If X + a left the range of 64 bits it would wrap around, still as a function of
    q X + Z alone.)
    """
    if counts.dtype.kind == "O" or drawn.dtype.kind == "O":
        drawn, wide = drawn.astype(object), q.astype(object)
        whole = drawn // wide
        rest = drawn - whole * wide
        whole = whole + counts.astype(object)
    else:
        whole = drawn // q
        rest = drawn - whole * q
        whole = whole + counts
    return np.asarray(whole.astype(float) + rest.astype(float) / q)


@functools.lru_cache(maxsize=2)
def _grid_noise(law: LawName) -> IntegerNoise:
    """The one law that is drawn from; nothing is kept from one draw to the next."""
    return IntegerNoise(law, 1 << GRID_BITS)
