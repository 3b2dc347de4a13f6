"""Tracking errors over a range of privacy levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class Sweep:
    """Exact mean-square tracking errors for several ε.

    Attributes
    ----------
    epsilons : array, shape (count,)
        The privacy levels, as they were given.
    mean_square_errors : array, shape (count, steps + 1, n)
        For each level, step and state.
    state_names : tuple of str
        What to call the states.
    """

    epsilons: FloatArray
    mean_square_errors: FloatArray = field(repr=False)
    state_names: tuple[str, ...]

    def table(self) -> dict[str, NDArray[np.generic]]:
        """Return columns of equal length, one row per level, step and state.

        ``pandas.DataFrame(sweep.table())`` makes a tidy table of them.
        """
        count, times, states = self.mean_square_errors.shape
        return {
            "epsilon": np.repeat(self.epsilons, times * states),
            "step": np.tile(np.repeat(np.arange(times), states), count),
            "state": np.tile(np.array(self.state_names), count * times),
            "mean_square_error": self.mean_square_errors.ravel(),
        }


def sweep(
    loop: ClosedLoop,
    noise: Callable[[float], Mechanism],
    epsilons: Sequence[float],
    steps: int,
    *,
    n_jobs: int = 1,
) -> Sweep:
    """Return the exact mean-square tracking errors for several privacy levels.

    Parameters
    ----------
    loop : ClosedLoop
        What is controlled.
    noise : function of ε
        Designs the noise; for processes, anything that joblib's backend can send to them.
    epsilons : sequence of float
        The privacy levels.
    steps : int
        How many outputs are sent.
    n_jobs : int
        Workers of joblib; ``joblib.parallel_config`` chooses where they run.

    Returns
    -------
    Sweep

    Examples
    --------
    >>> from affinedp.control import ClosedLoop, independent_output_noise
    >>> from affinedp.control.loop.sweeps import sweep
    >>> loop = ClosedLoop(([[1.0]], [[1.0]], [[1.0]]), [[0.5]], [[0.5]], reference=[0.0])
    >>> def noise(epsilon):
    ...     return independent_output_noise(([[1.0]], [[1.0]]), 9, epsilon=epsilon, delta=0.01)
    >>> found = sweep(loop, noise, [1.0, 10.0], steps=9)
    >>> found.mean_square_errors.shape, found.mean_square_errors[:, -1, 0].round(3).tolist()
    ((2, 10, 1), [5.874, 0.204])
    """
    from joblib import Parallel, delayed

    levels = real_array(list(epsilons), "epsilons", 1)
    if len(levels) == 0:
        raise AffineDPError("epsilons is empty: give at least one privacy level")
    jobs = [delayed(_one)(loop, noise, float(level), steps) for level in levels]
    errors = np.array(Parallel(n_jobs=n_jobs)(jobs))
    return Sweep(levels, errors, loop.plant.state_names)


def _one(
    loop: ClosedLoop, noise: Callable[[float], Mechanism], epsilon: float, steps: int
) -> FloatArray:
    return loop.mean_square_error(noise(epsilon), steps)
