"""What a loop is to follow: a constant, a table or a function of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.loop.numbers import shaped
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

Reference: TypeAlias = Callable[[int], ArrayLike] | ArrayLike


def checked_reference(reference: Reference, n: int) -> Reference:
    """Return a reference that fits n states, arrays as read-only copies, or refuse it.

    Parameters
    ----------
    reference : array of shape (n,) or (time, n), or function of t
        What was given.
    n : int
        How many states there are.
    """
    if callable(reference):
        return reference
    array = np.atleast_1d(real_array(reference, "reference"))
    if array.ndim > 2 or array.shape[-1] != n:
        raise AffineDPError(
            f"reference has shape {array.shape}, but must be a constant of shape ({n},), an array "
            f"of shape (time, {n}), or a function of t"
        )
    return shaped(array, array.shape, "reference")


def references_until(reference: Reference, steps: int, n: int) -> FloatArray:
    """Return x_r(0), …, x_r(steps), shape (steps + 1, n).

    Parameters
    ----------
    reference : array or function
        As :func:`checked_reference` returned it.
    steps : int
        The last t.
    n : int
        How many states there are.
    """
    if callable(reference):
        return np.array([shaped(reference(t), (n,), f"reference({t})") for t in range(steps + 1)])
    given = np.asarray(reference, dtype=np.float64)
    if given.ndim == 1:
        return np.tile(given, (steps + 1, 1))
    if len(given) <= steps:
        raise AffineDPError(
            f"the reference ends at t = {len(given) - 1}, but {steps} steps need it up to "
            f"t = {steps}: give more of it, or a function of t"
        )
    return given[: steps + 1].copy()
