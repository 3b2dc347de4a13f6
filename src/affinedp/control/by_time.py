"""Noise on outputs over time: how large it is, a block of python-control that adds it, what
remains to be learned of an event later."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.checks import causal, filter_of
from affinedp.control.gateway_path import sent
from affinedp.domains.dynamics import ENDLESS
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.exact.numbers import whole_number
from affinedp.exact.systems import upper
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import Inputs
from affinedp.strategies.causal import Causal
from affinedp.strategies.filter import Filter


def noise_by_time(mechanism: Mechanism, steps: int | None = None) -> FloatArray:
    """Return the standard deviation of the noise on every output, step by step.

    Noise that was designed for sensors with steps (``resolution=``) comes with all that a gateway
    adds to hide these.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.
    steps : int, optional
        How many, from the first on; the whole horizon by default.  Stationary noise without an end
        is the same at every step: then one row.

    Returns
    -------
    array, shape (steps, outputs)

    Examples
    --------
    >>> from affinedp.control import design_output_noise, noise_by_time
    >>> m = design_output_noise(([[0.5]], [[1]]), 4, 1.0, 0.01, adjacency="initial")
    >>> (noise_by_time(m) / noise_by_time(m)[0]).ravel().tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    strategy = causal(mechanism)
    if steps is None and isinstance(strategy, Filter) and strategy.horizon >= ENDLESS:
        steps = 1
    made, added = sent(mechanism)
    return np.sqrt(made.deviations(mechanism.noise, _steps(strategy, steps)) ** 2 + added)


def sample_noise(
    mechanism: Mechanism,
    size: int,
    steps: int | None = None,
    seed: int | np.random.Generator | None = None,
) -> FloatArray:
    """Draw noise for simulation.  Never send data with it.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.
    size : int
        How many runs.
    steps : int, optional
        How many steps of each; the whole horizon by default.
    seed : int, Generator or None
        Seed or generator; the same seed gives the same noise.

    Returns
    -------
    array, shape (size, steps, outputs)

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> from affinedp.control.by_time import sample_noise
    >>> m = design_output_noise(([[1]], [[1]]), 50, epsilon=1.0, delta=0.01)
    >>> noise = sample_noise(m, 3, seed=0)
    >>> noise.shape, bool((noise[0] == noise[0, 0]).all())
    ((3, 50, 1), True)
    """
    strategy = causal(mechanism)
    generator, runs = np.random.default_rng(seed), whole_number(size, "size")
    made, added = sent(mechanism)
    found = made.simulated(mechanism.noise, generator, runs, _steps(strategy, steps))
    return found + np.sqrt(added) * generator.standard_normal(found.shape) if added.any() else found


def noise_block(
    mechanism: Mechanism,
    steps: int | None = None,
    seed: int | np.random.Generator | None = None,
    dt: float | bool = True,
) -> Any:
    """Return a python-control block that adds simulated noise to y(t).

    The noise is drawn once, here, so that the block is a function of the time: a block that drew
    in its output function would look like an algebraic loop.  It is simulation noise; real data
    goes through :class:`~affinedp.control.Gateway`.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.
    steps : int, optional
        How long the simulation is; the whole horizon by default.  After that the block refuses.
    seed : int, Generator or None
        Seed or generator; the same seed gives the same noise.
    dt : float or True
        Sampling time; True leaves it open.

    Returns
    -------
    control.NonlinearIOSystem
        Discrete-time with inputs ``y…`` and outputs ``yhat…``.

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> from affinedp.control.by_time import noise_block
    >>> m = design_output_noise(([[1]], [[1]]), 50, epsilon=1.0, delta=0.01)
    >>> noise_block(m, seed=0).ninputs
    1
    """
    noise = sample_noise(mechanism, 1, steps, seed)[0]
    names = causal(mechanism).step_names
    try:
        import control
    except ImportError:
        raise MissingExtraError("control", "control") from None
    step = 1.0 if dt is True else float(dt)

    def add(t: float, x: Any, u: Any, params: Any) -> Any:
        index = round(t / step)
        if not 0 <= index < len(noise):
            raise AffineDPError(
                f"the noise ends after {len(noise)} steps; time {t:g} is past the horizon"
            )
        return u + noise[index]

    return control.NonlinearIOSystem(
        None, add, inputs=list(names), outputs=[f"{name}hat" for name in names], dt=dt,
        name="private_outputs",
    )  # fmt: skip


def _steps(strategy: Causal, steps: int | None) -> int:
    if steps is None:
        return strategy.horizon
    if whole_number(steps, "steps") > strategy.horizon:
        raise AffineDPError(f"{steps} steps are more than the horizon of {strategy.horizon}")
    return int(steps)


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
    count = whole_number(steps, "steps")
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
    count, gap = whole_number(events, "events"), whole_number(apart, "apart")
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


def _proved(mechanism: Mechanism) -> tuple[Filter, FloatArray]:
    made, neighbours = filter_of(mechanism), mechanism.adjacency
    if made.domain.horizon is not None or type(neighbours) is not Inputs or neighbours.window != 1:
        raise AffineDPError("this is for noise for all time that hides single steps (window=1)")
    return made, neighbours.mu
