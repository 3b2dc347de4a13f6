"""What stationary noise is and tells over time: its variance, an event later, several events."""

from __future__ import annotations

import math

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.energy import upper
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import Inputs
from affinedp.strategies.filter import Filter


def stationary_variance(mechanism: Mechanism) -> FloatArray:
    """Return the variance of stationary noise on each output.

    Over a horizon, at its last step, where it is largest.

    Parameters
    ----------
    mechanism : Mechanism
        Of :func:`~affinedp.control.design_input_noise`, or for ``"forward"`` neighbours.

    Returns
    -------
    array, shape (outputs,)

    Examples
    --------
    >>> from affinedp.control import design_input_noise, stationary_variance
    >>> m = design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4)
    >>> (stationary_variance(m) ** 0.5).round(2).tolist()
    [6.13]
    """
    return filter_of(mechanism).last_variances(mechanism.noise)


def leak_after(mechanism: Mechanism, steps: int) -> float:
    """Return which share of s² an event can still tell, some steps after it.

    It is about someone who saw everything before.  Who starts to watch then learns more, so do
    not give budget back by this number.

    Parameters
    ----------
    mechanism : Mechanism
        For all time, with window 1.
    steps : int
        How many outputs were seen since the event.

    Returns
    -------
    float

    Examples
    --------
    >>> from affinedp.control import design_input_noise, leak_after
    >>> m = design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4)
    >>> bool(leak_after(m, 96) < 0.01)                           # a day of quarters of an hour
    True
    """
    made, mu = _proved(mechanism)
    count = _whole(steps, "steps")
    s = mechanism.guarantee.sensitivity * made.scale
    later = max(mu[i] ** 2 * made.energy.later(i, count) for i in range(len(mu)))
    return float(min(1.0, later / s**2))


def events_sensitivity(mechanism: Mechanism, events: int, apart: int) -> float:
    """Return a bound on the sensitivity to several events that are some steps apart.

    Far apart, K events cost little more than √K times one: this says how much.  For events that
    are close together K times one is always right, and the bound is never more.
    (``‖Σ_j d(· − t_j)‖²`` has the products ``R_k`` of responses at lag k, and ``|R_k|`` is at most
    ‖d‖ times the root of the energy that is still to come k steps after an event.)

    Parameters
    ----------
    mechanism : Mechanism
        For all time, with window 1.
    events : int
        How many events, on any private inputs.
    apart : int
        At least so many steps between two of them.

    Returns
    -------
    float

    Examples
    --------
    >>> from affinedp.control import design_input_noise, events_sensitivity
    >>> m = design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4)
    >>> ratio = events_sensitivity(m, 30, apart=96) / m.guarantee.sensitivity
    >>> 30**0.5 < ratio < 6.2
    True
    """
    made, mu = _proved(mechanism)
    proof, inputs = made.energy, range(len(mu))
    count, gap = _whole(events, "events"), _whole(apart, "apart")
    largest = max(mu[i] ** 2 * upper(proof.of(i)) for i in inputs)
    total = float(count)
    for j in range(1, count):
        later = max(mu[i] ** 2 * proof.later(i, j * gap) for i in inputs)
        share = math.sqrt(later / largest)
        total += 2 * (count - j) * share
        if share < 1e-12:  # all that follow are smaller
            total += 2 * share * count * (count - j)
            break
    s = mechanism.guarantee.sensitivity
    return s * min(float(count), math.sqrt(total) * (1 + 1e-12))


def filter_of(mechanism: Mechanism) -> Filter:
    """Return the filter of stationary noise, or refuse other noise."""
    strategy = getattr(mechanism, "strategy", None)
    if not isinstance(strategy, Filter):
        raise AffineDPError(
            "the noise must be stationary (design_input_noise, or design_output_noise with "
            "neighbours='forward')"
        )
    return strategy


def _proved(mechanism: Mechanism) -> tuple[Filter, FloatArray]:
    made, neighbours = filter_of(mechanism), mechanism.adjacency
    if made.domain.horizon is not None or type(neighbours) is not Inputs or neighbours.window != 1:
        raise AffineDPError("this is for noise for all time that hides single steps (window=1)")
    return made, neighbours.mu


def _whole(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise AffineDPError(f"{name} must be a whole number, at least 1, not {value!r}")
    return value
