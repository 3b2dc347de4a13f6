"""Noise on outputs by time: how large it is, and a block of python-control that adds it."""

from __future__ import annotations

from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.mechanism import Mechanism
from affinedp.strategies.causal import Causal


def noise_by_time(mechanism: Mechanism, steps: int | None = None) -> FloatArray:
    """Return the standard deviation of the noise on every output, step by step.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.
    steps : int, optional
        How many, from the first on; the whole horizon by default.

    Returns
    -------
    array, shape (steps, outputs)

    Examples
    --------
    >>> from affinedp.control import design_output_noise, noise_by_time
    >>> m = design_output_noise(([[0.5]], [[1]]), 4, 1.0, 0.01, neighbours="initial")
    >>> (noise_by_time(m) / noise_by_time(m)[0]).ravel().tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    strategy = causal(mechanism)
    return strategy.deviations(mechanism.noise, _steps(strategy, steps))


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
    >>> from affinedp.control import design_output_noise, sample_noise
    >>> m = design_output_noise(([[1]], [[1]]), 50, epsilon=1.0, delta=0.01)
    >>> noise = sample_noise(m, 3, seed=0)
    >>> noise.shape, bool((noise[0] == noise[0, 0]).all())
    ((3, 50, 1), True)
    """
    strategy = causal(mechanism)
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise AffineDPError(f"size must be a number of runs, not {size!r}")
    generator = np.random.default_rng(seed)
    return strategy.simulated(mechanism.noise, generator, int(size), _steps(strategy, steps))


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
    >>> from affinedp.control import design_output_noise, noise_block
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


def causal(mechanism: Any) -> Causal:
    """Return the strategy of a mechanism that makes noise step by step, or refuse it.

    Parameters
    ----------
    mechanism : Mechanism
        What was given.
    """
    if isinstance(mechanism, Mechanism) and isinstance(mechanism.strategy, Causal):
        return mechanism.strategy
    raise AffineDPError(
        "this needs noise on the outputs of a system, from design_output_noise, "
        "design_input_noise, independent_output_noise or verify_output_noise, not "
        f"{mechanism!r:.60}"
    )


def _steps(strategy: Causal, steps: int | None) -> int:
    if steps is None:
        return strategy.horizon
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise AffineDPError(f"steps must be a number of steps, not {steps!r}")
    if steps > strategy.horizon:
        raise AffineDPError(f"{steps} steps are more than the horizon of {strategy.horizon}")
    return int(steps)
