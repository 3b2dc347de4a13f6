"""Several events, and what one still tells later: bounds from the same certificate."""

from __future__ import annotations

import math

from affinedp.control.stationary.certificate import Energy, upper
from affinedp.control.stationary.promise import whitened_energy
from affinedp.control.stationary.record import StationaryNoise
from affinedp.errors import AffineDPError


def leak_after(noise: StationaryNoise, steps: int) -> float:
    """Return which share of s² an event can still tell, some steps after it.

    Parameters
    ----------
    noise : StationaryNoise
        For all time, with window 1.
    steps : int
        How many outputs were seen since.
    """
    proof = _proof(noise)
    count = _whole(steps, "steps")
    mu, s = noise.neighbours.mu, noise.guarantee.sensitivity * noise.scale
    later = max(mu[i] ** 2 * proof.later(i, count) for i in range(len(mu)))
    return float(min(1.0, later / s**2))


def events_sensitivity(noise: StationaryNoise, events: int, apart: int) -> float:
    """Return a bound on the sensitivity to several events that are some steps apart.

    ``‖Σ_j d(· − t_j)‖²`` has the products ``R_k`` of responses at lag k, and
    ``|R_k| ≤ ‖d‖ · √(energy still to come k steps after an event)``, for every pair of inputs.

    Parameters
    ----------
    noise : StationaryNoise
        For all time, with window 1.
    events : int
        How many.
    apart : int
        At least so many steps between two of them.
    """
    proof = _proof(noise)
    count, gap = _whole(events, "events"), _whole(apart, "apart")
    mu = noise.neighbours.mu
    inputs = range(len(mu))
    largest = max(mu[i] ** 2 * upper(proof.of(i)) for i in inputs)
    total = float(count)
    for j in range(1, count):
        later = max(mu[i] ** 2 * proof.later(i, j * gap) for i in inputs)
        share = math.sqrt(later / largest)
        total += 2 * (count - j) * share
        if share < 1e-12:  # all that follow are smaller
            total += 2 * share * count * (count - j)
            break
    s = noise.guarantee.sensitivity
    return s * min(float(count), math.sqrt(total) * (1 + 1e-12))


def _proof(noise: StationaryNoise) -> Energy:
    if not noise.endless or noise.neighbours.window != 1:
        raise AffineDPError("this is for noise for all time that hides single steps (window=1)")
    return whitened_energy(noise.neighbours, noise.shaper, noise.place)


def _whole(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise AffineDPError(f"{name} must be a whole number, at least 1, not {value!r}")
    return value
