"""How a gateway divides its promise between the correlated noise and the fresh noise.

Neighbours differ by what the equations allow, which the correlated noise hides, and by up to
``E_i`` in output i at every step for what is not exact: the step of a sensor above all.  With the
correlated noise enlarged by c and fresh noise τ_i the promise is

    (s/c)² + T Σ_i (E_i/τ_i)² ≤ s²,     and the total variance  c² V + T Σ_i τ_i²,

where V is that of the correlated noise over the horizon.  By Cauchy–Schwarz the least total is
``(c₀ + T Σ E_i)²/s²`` with ``c₀ = s √V``, at

    c² = (c₀ + T Σ E)/c₀,     τ_i² = E_i (c₀ + T Σ E)/s².

Against differences that fill their box no covariance does much better: the least of all is at least
``(tr(M_v + diag(E²))^½)²/s²``.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray

# So much of the promise may go to a declared error at most; then the noise is 32 times as large.
MOST_SHARE = 0.999


def least_fresh_noise(
    sensitivity: float, variance: float, steps: int, differences: FloatArray
) -> FloatArray:
    """Return the fresh noise τ_i with which the total variance is least.

    Parameters
    ----------
    sensitivity : float
        s, positive.
    variance : float
        V, the variance of the correlated noise summed over outputs and steps; 0 if there is none.
    steps : int
        T.
    differences : array, shape (m,)
        E_i.

    Examples
    --------
    >>> tau = least_fresh_noise(0.3, 400.0, 96, np.array([0.1]))
    >>> c0, box = 0.3 * 20.0, 96 * 0.1
    >>> bool(np.isclose(tau[0] ** 2, 0.1 * (c0 + box) / 0.3**2))
    True
    """
    reach = sensitivity * math.sqrt(variance) + steps * float(differences.sum())
    return np.asarray(np.sqrt(differences * reach) / sensitivity)


def least_total(sensitivity: float, variance: float, steps: int, differences: FloatArray) -> float:
    """Return the least total variance over the horizon, relative to the correlated noise alone.

    Parameters
    ----------
    sensitivity, variance, steps, differences
        As for :func:`least_fresh_noise`.

    Examples
    --------
    >>> round(least_total(0.3, 400.0, 96, np.array([0.1])), 6)
    6.76
    """
    alone = sensitivity * math.sqrt(variance)
    return ((alone + steps * float(differences.sum())) / alone) ** 2


def least_pure_noise(
    sensitivity: float, variance: float, steps: int, differences: FloatArray
) -> FloatArray:
    """Return the scales τ_i of fresh Laplace noise with which the total variance is least.

    Losses add up: ``s/c + T Σ E_i/τ_i ≤ s``, and the total is ``c² V + 2 T Σ τ_i²``.  For a share u
    of the promise τ_i is in proportion to the cube root of E_i, the total is
    ``V/(1 − u)² + B/u²`` with ``B = 2 (T Σ E^⅔)³/s²``, and least where ``u/(1 − u) = (B/V)^⅓``.

    Parameters
    ----------
    sensitivity, variance, steps, differences
        As for :func:`least_fresh_noise`.

    Examples
    --------
    >>> tau = least_pure_noise(1.0, 400.0, 96, np.array([0.1]))
    >>> u = 96 * 0.1 / tau[0]                                  # of the promise
    >>> B = 2 * (96 * 0.1 ** (2 / 3)) ** 3
    >>> bool(np.isclose(u / (1 - u), (B / 400) ** (1 / 3)))
    True
    """
    box = steps * float((differences ** (2 / 3)).sum())
    if box == 0.0:
        return np.zeros_like(differences)
    fresh = (2 * box**3 / sensitivity**2) ** (1 / 3)
    share = fresh / (fresh + variance ** (1 / 3))
    return np.asarray(differences ** (1 / 3) * box / (share * sensitivity))


def least_pure_total(
    sensitivity: float, variance: float, steps: int, differences: FloatArray
) -> float:
    """Return the least total variance with fresh Laplace noise, relative to what is correlated.

    Parameters
    ----------
    sensitivity, variance, steps, differences
        As for :func:`least_fresh_noise`.

    Examples
    --------
    >>> least_pure_total(1.0, 400.0, 96, np.array([0.0]))
    1.0
    """
    box = steps * float((differences ** (2 / 3)).sum())
    fresh = 2 * box**3 / sensitivity**2
    return float((1 + (fresh / variance) ** (1 / 3)) ** 3)
