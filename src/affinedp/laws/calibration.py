"""Gaussian calibration: δ, sensitivity, σ and ε, exact up to rounding to the safe side.

A Gaussian mechanism whose neighbours lie at most s noise units apart is (ε, κ(ε, s))-private, and
for no smaller δ, where (Theorem 1 of the paper, tight)

    κ(ε, s) = Φ(s/2 − ε/s) − e^ε Φ(−s/2 − ε/s).

Write m = ε/s, h = s/2, a = m − h, b = m + h, let φ be the normal density and
R(x) = Φ(−x)/φ(x) the Mills ratio.  Because φ(a) = e^ε φ(b),

    κ     = φ(a) (R(a) − R(b)),     ∂κ/∂s = φ(a),
    1 − κ = φ(a) (R(−a) + R(b)),    ∂κ/∂ε = −φ(a) R(b).

Plain code loses its digits in the first difference; :func:`_mills_drop` does not.  As functions
of s, and of ε, log κ and log(1 − κ) are concave (Prékopa: κ integrates the log-concave
φ(u/2 − ε/u) over u ≤ s), so Newton's method on them converges from one side without a bracket.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.errors import AffineDPError

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]

_ROUNDING = 2.0**-53
_TINY = float(np.finfo(np.float64).tiny)
_SQRT_TWO = float(np.sqrt(2.0))
_SQRT_TWO_PI = float(np.sqrt(2.0 * np.pi))

# How far κ and the inverses are moved to the safe side, relatively.  Against 60 digits
# _mills_drop is off by at most 1e-14, and erfcx, log, exp, ndtri add a few roundings of 1.1e-16.
# A relative error of κ (or 1 − κ) reaches s multiplied by κ/(s ∂κ/∂s) < 1.2, and reaches ε as
# at most 2.5 (ε + min(s, 1)) of it; roundings of m and h reach either once.  3e-14 covers all.
_DELTA_MARGIN = 5e-14
_MARGIN = 1e-13
# A Newton step squares an error of log κ: the step from this error is the last one needed.
# Within the limits below at most 12 steps get there.
_LAST_ERROR = 1e-8
_MAX_STEPS = 30
# Beyond these the paper's bound, which is safe, is relatively only 1/(2ε) < 1e-12 off.
_EPSILON_LIMIT = 1e12
_SENSITIVITY_LIMIT = 2e6

# Least and largest value of each argument, and the same in words.
_RANGES = {
    "epsilon": (0.0, float(np.finfo(np.float64).max), "finite and at least 0"),
    "delta": (_TINY, 1.0 - _ROUNDING, f"at least {_TINY:.3g} and less than 1"),
    "sensitivity": (0.0, float("inf"), "at least 0"),
}


def gaussian_delta(epsilon: ArrayLike, sensitivity: ArrayLike) -> float | FloatArray:
    """Return the least δ of a Gaussian mechanism at ε: κ(ε, s) of Theorem 1.

    Parameters
    ----------
    epsilon : array_like
        ε, finite and at least 0.
    sensitivity : array_like
        The distance s of the farthest neighbours in units of the noise; infinity gives 1.

    Returns
    -------
    float or ndarray
        κ(ε, s), never below the true value and at most 1; a float unless an argument is an array.
        The relative excess is at most 1e-12 for ε up to 1000.  Where s > 0 and κ is below the
        smallest normal number 2.2e-308, that number is returned.

    Examples
    --------
    >>> from affinedp.laws.calibration import gaussian_delta
    >>> round(gaussian_delta(1.0, 0.5), 12)
    0.006829594983
    >>> gaussian_delta([0.0, 1.0], 0.0).tolist()
    [0.0, 0.0]
    """
    (eps, s), shape = _checked(epsilon=epsilon, sensitivity=sensitivity)
    with np.errstate(all="ignore"):  # np.where drops the form that overflows
        # Beyond 1e100 nothing changes any more; the limits only keep infinities away.
        m = np.minimum(eps / np.where(s > 0.0, s, 1.0), 1e100)
        h = np.minimum(s / 2.0, 1e100)
        a, b = m - h, m + h
        # The rounding of m and of m − h leaves a off by at most ``off``; that changes a²/2 by
        # |a| off + off²/2 and the logarithm of either sum of Mills ratios by less than 8 off.
        off = _ROUNDING * (m + np.abs(a))
        exponent = -a * (a / 2.0)
        spread = _DELTA_MARGIN + off * (8.0 + np.abs(a) + off) - _ROUNDING * exponent
        direct = np.exp(exponent + spread) * _mills_drop(m, h) / _SQRT_TWO_PI
        rest = np.exp(exponent - spread) * (_mills_ratio(-a) + _mills_ratio(b)) / _SQRT_TWO_PI
        delta = np.where((a <= 0.0) & (h > 0.5), 1.0 - rest, direct)
    delta = np.clip(np.nextafter(delta, np.inf), _TINY, 1.0)
    return _shaped(np.where(s > 0.0, delta, 0.0), shape)


def gaussian_sensitivity(epsilon: ArrayLike, delta: ArrayLike) -> float | FloatArray:
    """Return the largest s with κ(ε, s) ≤ δ: the sensitivity that (ε, δ) allows unit noise.

    Parameters
    ----------
    epsilon : array_like
        ε, finite and at least 0.
    delta : array_like
        δ, at least 2.2e-308 and less than 1.

    Returns
    -------
    float or ndarray
        The inverse in s of Theorem 1's κ, never above the true value and relatively at most
        1e-12 below it; a float unless an argument is an array.

    Examples
    --------
    >>> from affinedp.laws.calibration import gaussian_sensitivity
    >>> round(gaussian_sensitivity(1.0, 0.01), 10)
    0.5325166485
    """
    (eps, target), shape = _checked(epsilon=epsilon, delta=delta)
    return _shaped(_largest_sensitivity(eps, target), shape)


def gaussian_sigma(
    epsilon: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike = 1.0
) -> float | FloatArray:
    """Return the least noise scale σ that makes a Gaussian mechanism (ε, δ)-private.

    Parameters
    ----------
    epsilon, delta : array_like
        The promise, as for :func:`gaussian_sensitivity`.
    sensitivity : array_like
        The distance of the farthest neighbours in the units of the data, at least 0.

    Returns
    -------
    float or ndarray
        ``sensitivity`` / :func:`gaussian_sensitivity` (Theorem 1, tight), never below the true
        value and relatively at most 1e-12 above it; a float unless an argument is an array.

    Examples
    --------
    >>> from affinedp.laws.calibration import gaussian_sigma
    >>> round(gaussian_sigma(1.0, 0.01), 10)
    1.8778755609
    """
    (eps, target, distance), shape = _checked(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    return _shaped(_scale(distance, _largest_sensitivity(eps, target)), shape)


def gaussian_sigma_bound(
    epsilon: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike = 1.0
) -> float | FloatArray:
    """Return the paper's sufficient noise scale: only an upper bound on the least σ.

    sensitivity / (Φ⁻¹(δ) + √(Φ⁻¹(δ)² + 2ε)) is what κ without its second term asks for, and what
    the paper's numerical examples use.  It is infinite at ε = 0 unless δ > 1/2.
    :func:`gaussian_sigma` is the least scale itself.

    Parameters
    ----------
    epsilon, delta, sensitivity : array_like
        As for :func:`gaussian_sigma`.

    Returns
    -------
    float or ndarray
        The bound, never below its true value and relatively at most 1e-12 above it; a float
        unless an argument is an array.

    Examples
    --------
    >>> from affinedp.laws.calibration import gaussian_sigma_bound
    >>> gaussian_sigma_bound([1.0, 0.1, 0.01], 0.01).round(4).tolist()
    [2.5244, 23.4765, 232.8495]
    """
    (eps, target, distance), shape = _checked(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    s = _sensitivity_at_quantile(eps, _upper_quantile(target)) * (1.0 - _MARGIN)
    return _shaped(_scale(distance, s), shape)


def gaussian_epsilon(delta: ArrayLike, sensitivity: ArrayLike) -> float | FloatArray:
    """Return the least ε ≥ 0 with κ(ε, s) ≤ δ.

    Parameters
    ----------
    delta : array_like
        δ, at least 2.2e-308 and less than 1.
    sensitivity : array_like
        The distance s of the farthest neighbours in units of the noise; infinity gives infinity.

    Returns
    -------
    float or ndarray
        The inverse in ε of Theorem 1's κ; 0 if κ(0, s) ≤ δ; a float unless an argument is an
        array.  Never below the true value, and above it by at most 1e-12 max(ε, min(s, 1)): a
        smaller ε is not in the data, since one rounding of s moves it by min(s, 1) roundings.

    Examples
    --------
    >>> from affinedp.laws.calibration import gaussian_epsilon
    >>> round(gaussian_epsilon(0.01, 1 / 1.8778755609), 8)
    1.0
    >>> gaussian_epsilon(0.4, 1.0)
    0.0
    """
    from scipy import special  # loaded when it is needed: that takes longer than most answers

    (target, s), shape = _checked(delta=delta, sensitivity=sensitivity)
    tail, low = _smaller_tail(target)
    root = s / (2.0 * _SQRT_TWO)
    is_zero = np.where(
        low,
        special.erf(root) * (1.0 + 8.0 * _ROUNDING) <= tail,
        special.erfc(root) * (1.0 - 8.0 * _ROUNDING) >= tail,
    )
    with np.errstate(over="ignore"):
        # κ ≤ Φ(−a), so the a with Φ(−a) = δ gives an upper bound to start from.
        eps = np.maximum(s * (_upper_quantile(target) + s / 2.0), 0.0)
        left = np.flatnonzero(~is_zero & (s <= _SENSITIVITY_LIMIT))
        for _ in range(_MAX_STEPS):
            m, h = eps[left] / s[left], s[left] / 2.0
            error, change = _newton_step(m, h, tail[left], low[left])
            eps[left] = np.maximum(eps[left] + change / _mills_ratio(m + h), 0.0)
            left = left[np.abs(error) > _LAST_ERROR]
            if not left.size:
                break
        eps = np.nextafter(eps + _MARGIN * (eps + np.minimum(s, 1.0)), np.inf)
    return _shaped(np.where(is_zero, 0.0, eps), shape)


def _largest_sensitivity(eps: FloatArray, delta: FloatArray) -> FloatArray:
    """Return the largest s with κ(ε, s) ≤ δ, rounded down."""
    from scipy import special

    tail, low = _smaller_tail(delta)
    # Two lower bounds to start from: κ ≤ Φ(−a), and κ(ε, s) ≤ κ(0, s) = erf(s/√8).
    at_zero = 2.0 * _SQRT_TWO * np.where(low, special.erfinv(tail), special.erfcinv(tail))
    s = np.maximum(at_zero, _sensitivity_at_quantile(eps, _upper_quantile(delta)))
    left = np.flatnonzero(eps <= _EPSILON_LIMIT)
    for _ in range(_MAX_STEPS):
        m, h = eps[left] / s[left], s[left] / 2.0
        error, change = _newton_step(m, h, tail[left], low[left])
        s[left] -= change
        left = left[np.abs(error) > _LAST_ERROR]
        if not left.size:
            break
    rounded_down: FloatArray = s * (1.0 - _MARGIN)
    return rounded_down


def _newton_step(
    m: FloatArray, h: FloatArray, tail: FloatArray, low: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the error of log κ, or of log(1 − κ) if not ``low``, and how far s must decrease.

    ε would have to increase by that divided by R(b).
    """
    a, b = m - h, m + h
    factor = np.empty_like(a)
    factor[low] = _mills_drop(m[low], h[low])
    factor[~low] = _mills_ratio(-a[~low]) + _mills_ratio(b[~low])
    # One logarithm of the quotient: two would each lose digits when δ is tiny and a is not large.
    error = np.log(factor / (_SQRT_TWO_PI * tail)) - a * (a / 2.0)
    return error, np.where(low, error, -error) * factor


def _mills_ratio(x: FloatArray) -> FloatArray:
    """Return R(x) = Φ(−x)/φ(x)."""
    from scipy import special

    ratio: FloatArray = _SQRT_TWO_PI / 2.0 * special.erfcx(x / _SQRT_TWO)
    return ratio


def _mills_drop(m: FloatArray, h: FloatArray) -> FloatArray:
    """Return R(m − h) − R(m + h) for m, h ≥ 0 without cancellation.

    R(x) = ∫₀^∞ exp(−xt − t²/2) dt, so the drop is 2 Σ_{k odd} h^k J_k(m) with
    J_k(m) = ∫₀^∞ t^k/k! exp(−mt − t²/2) dt: positive terms.  J₋₁ = 1, J₀ = R(m) and
    (k+1) J_{k+1} = J_{k−1} − m J_k.  The series is summed where the two ratios are close.
    """
    close = h <= 0.5 + m / 8.0
    small = m <= 2.5
    drop = np.empty_like(m)
    for where, method in (
        (~close, _drop_direct),
        (close & small, _drop_forward),
        (close & ~small, _drop_backward),
    ):
        if where.any():
            drop[where] = method(m[where], h[where])
    return drop


def _drop_direct(m: FloatArray, h: FloatArray) -> FloatArray:
    """Subtract; where the series is not used this loses a factor of 5 at most."""
    return _mills_ratio(m - h) - _mills_ratio(m + h)


def _drop_forward(m: FloatArray, h: FloatArray) -> FloatArray:
    """Sum the series upwards; cancellation costs a factor 1/J₁(m), about 8 at m = 2.5."""
    even = _mills_ratio(m)
    odd = 1.0 - m * even
    power = h
    total = power * odd
    for k in range(2, 22, 2):
        even = (even - m * odd) / k
        odd = (odd - m * even) / (k + 1)
        power = power * h * h
        total = total + power * odd
    return 2.0 * total


def _drop_backward(m: FloatArray, h: FloatArray) -> FloatArray:
    """Sum the series downwards by the ratios r_k = J_k/J_{k−1} = 1/(m + (k+1) r_{k+1}).

    All terms are positive, so rounding does not grow.  The start is nearly the fixed point of
    the ratio; its error of about 1e-4 shrinks by exp(−2m√44) or better until r₁.
    """
    ratio = 2.0 / (m + np.sqrt(m * m + (4 * 44 + 6)))
    total = np.ones_like(m)
    for k in range(44, 0, -2):
        even_ratio = 1.0 / (m + (k + 1) * ratio)
        total = 1.0 + h * h * ratio * even_ratio * total
        ratio = 1.0 / (m + k * even_ratio)
    return 2.0 * h * ratio / (m + ratio) * total


def _smaller_tail(delta: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return min(δ, 1 − δ), which is exact, and where it is δ."""
    low = delta <= 0.5
    return np.where(low, delta, 1.0 - delta), low


def _upper_quantile(delta: FloatArray) -> FloatArray:
    """Return the a with Φ(−a) = δ."""
    from scipy import special

    tail, low = _smaller_tail(delta)
    quantile: FloatArray = np.where(low, -1.0, 1.0) * special.ndtri(tail)
    return quantile


def _sensitivity_at_quantile(eps: FloatArray, a: FloatArray) -> FloatArray:
    """Return the s with ε/s − s/2 = a, which is −a + √(a² + 2ε), without cancellation."""
    root = np.hypot(a, _SQRT_TWO * np.sqrt(eps))
    with np.errstate(divide="ignore", invalid="ignore"):  # in the form that is not used
        return np.where(a > 0.0, 2.0 * (eps / (root + a)), root - a)


def _scale(distance: FloatArray, s: FloatArray) -> FloatArray:
    """Return distance/s rounded up; no distance needs no noise."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        sigma = np.nextafter(distance / s, np.inf)
    return np.where(distance == 0.0, 0.0, sigma)


def _checked(**arguments: ArrayLike) -> tuple[list[FloatArray], tuple[int, ...] | None]:
    """Return the arguments broadcast and flattened, and the shape to give back.

    The shape is None if no argument is an array or a sequence: the answer is then a float.
    """
    arrays = {name: _real_array(name, value) for name, value in arguments.items()}
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} has {array.shape}" for name, array in arrays.items())
        raise AffineDPError(f"the shapes do not broadcast together: {shapes}") from None
    scalar = shape == () and not any(isinstance(v, np.ndarray) for v in arguments.values())
    flat = [np.broadcast_to(array, shape).ravel() for array in arrays.values()]
    return flat, None if scalar else shape


def _real_array(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as float64, or say why it cannot be the argument ``name``."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise AffineDPError(f"{name} is not a number or an array of numbers: {error}") from None
    # A longer float would be rounded here, perhaps to the unsafe side.
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise AffineDPError(
            f"{name} must be real (float64 or integer), got {value!r} of type {array.dtype}"
        )
    result = array.astype(np.float64)
    least, largest, requirement = _RANGES[name]
    good = (result >= least) & (result <= largest)
    if not np.all(good):
        index = tuple(np.argwhere(~good)[0].tolist())
        place = f" at index {index}" if index else ""
        raise AffineDPError(f"{name} must be {requirement}, got {float(result[index])!r}{place}")
    return result


def _shaped(values: FloatArray, shape: tuple[int, ...] | None) -> float | FloatArray:
    """Undo what :func:`_checked` did to the shape."""
    return float(values[0]) if shape is None else values.reshape(shape)
