"""Noise of a sensor's own, before its converter (docs/explanation/sensors.md).

A reading is ``Q(y + n)`` with n Gaussian of standard deviation at least a, fresh at every reading
and independent of the data, and the gateway adds fresh Gaussian noise of scale τ.  With
σ² = a² + τ² and ``E_k = exp(−2π²k²a²τ²/(q²σ²))`` the sum is within

    TV ≤ Σ_{k≥1} E_k min(1, (2q/(π²k)) (√(2/π)/σ + 2πk a²/(qσ²)))

of y plus noise that depends on nothing, in total variation.  So the step of the converter needs no
noise of its own; δ grows by (1 + e^ε) times the sum over all readings instead.
"""

from __future__ import annotations

import math

from affinedp.errors import AffineDPError

# Terms beyond fall below the smallest double long before.
MOST_TERMS = 200
# The search for τ is within this factor of the least.
FINE = 1.001


def rounding_distance(analog: float, fresh: float, step: float) -> float:
    """Return a bound on how far one reading is, in total variation, from a sensor without steps.

    Parameters
    ----------
    analog : float
        a, the least standard deviation of the noise before the converter.
    fresh : float
        τ, the fresh noise after it.
    step : float
        q, the step of the converter.

    Examples
    --------
    >>> rounding_distance(0.1, 0.1, 0.1) < 1e-4, rounding_distance(0.2, 0.2, 0.1) < 1e-17
    (True, True)
    """
    if not (analog > 0 and fresh > 0 and step > 0):
        raise AffineDPError("noise and step must be positive")
    a, tau = analog / step, fresh / step
    variance = a * a + tau * tau
    # a² τ² / σ², without overflow for large τ
    damping = a * a * (tau * tau / variance)
    total = 0.0
    for k in range(1, MOST_TERMS):
        size = math.exp(-2 * math.pi**2 * k * k * damping)
        near = 2 / (math.pi**2 * k) * math.sqrt(2 / math.pi / variance)
        near += 4 / math.pi * (a * a / variance)
        total += size * min(1.0, near)
        if size < 1e-300:
            break
    else:
        return 1.0  # so little noise that the sum has not converged: nothing is promised
    return min(1.0, total * (1 + 1e-12))


def fresh_noise_for(analog: float, step: float, distance: float) -> float:
    """Return the least τ with which one reading is within a distance, up to a part in a thousand.

    Parameters
    ----------
    analog, step : float
        As for :func:`rounding_distance`.
    distance : float
        What is wanted.

    Raises
    ------
    AffineDPError
        If no τ does, because the sensor's own noise is too small.

    Examples
    --------
    >>> tau = fresh_noise_for(0.2, 0.1, 1e-17)
    >>> rounding_distance(0.2, tau, 0.1) <= 1e-17 < rounding_distance(0.2, 0.99 * tau, 0.1)
    True
    """
    high = 1e6 * (analog + step)
    if rounding_distance(analog, high, step) > distance:
        raise AffineDPError(
            f"a sensor noise of {analog:g} is too little to hide steps of {step:g}: about "
            f"{step * math.sqrt(-math.log(distance) / (2 * math.pi**2)):.2g} is needed. Leave "
            "analog_noise out, or declare a finer sensor"
        )
    low = 1e-6 * step
    while high > low * FINE:
        middle = math.sqrt(low * high)
        if rounding_distance(analog, middle, step) > distance:
            low = middle
        else:
            high = middle
    return high
