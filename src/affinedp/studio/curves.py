"""What an attacker sees of the worst pair: two distributions that should look alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, dense
from affinedp.record import MechanismRecord

POINTS = 121
REACH = 4.5
DRAWS = 200_000
MOST_NUMBERS = 8e6
SMOOTH = np.array([1, 4, 6, 4, 1]) / 16


def pair_curve(mechanism: MechanismRecord) -> dict[str, Any] | None:
    """Return the density of the most telling combination of outputs, and how far it moves.

    Of all linear combinations of the outputs it is the one that moves most between the worst
    neighbours, in units of its noise.  For other laws than Gaussian its density is simulated.

    Parameters
    ----------
    mechanism : MechanismRecord
        Noise and worst pair.

    Returns
    -------
    dict or None
        ``x`` and ``density`` for noise of variance 1, ``shift`` between the neighbours; None
        where there is no noise to draw.

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["a + b = c"])
    >>> m = adp.design_gaussian(M, epsilon=1.0, delta=0.01)
    >>> round(pair_curve(m)["shift"] / m.guarantee.sensitivity, 6)
    1.0
    """
    worst = mechanism.guarantee.worst_direction
    if worst is None or mechanism.guarantee.leak is not None or len(worst) > 1000:
        return None
    move = np.asarray(mechanism.dense.query @ worst).ravel()
    telling = np.linalg.pinv(dense(mechanism.covariance), hermitian=True) @ move
    shift = math.sqrt(max(float(telling @ move), 0.0))
    if not shift > 0.0:
        return None
    x = np.linspace(-REACH, REACH, POINTS)
    if mechanism.law == "gaussian":
        density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    else:
        density = _simulated(mechanism, telling / shift, x)
    return {"x": x.tolist(), "density": density.tolist(), "shift": shift}


def _simulated(mechanism: MechanismRecord, telling: FloatArray, x: FloatArray) -> FloatArray:
    """A histogram of draws, which are as often positive as negative."""
    draws = int(max(2_000, min(DRAWS, MOST_NUMBERS / len(telling))))
    seen = mechanism.sample(draws, seed=0) @ telling
    step = x[1] - x[0]
    edges = np.append(x - step / 2, x[-1] + step / 2)
    counts, _ = np.histogram(np.concatenate([seen, -seen]), edges)
    density = np.asarray(counts / (2 * draws * step))
    # chance of the draws, which would only unsettle the eye
    return np.asarray(np.convolve(np.pad(density, 2, mode="edge"), SMOOTH, mode="valid"))
