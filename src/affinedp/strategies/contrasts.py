"""Integer Helmert contrasts: coordinates of a residual that are whole numbers.

Along an attribute with n values, h_k = (1, …, 1, −k, 0, …) for k = 1 … n − 1 are orthogonal, with
|h_k|² = k (k + 1), and orthogonal to the constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray


def contrasts(margin: NDArray[Any], first: int = 0, absolute: bool = False) -> NDArray[Any]:
    """Return the coordinates of the residual of a margin: integers, one axis value fewer each.

    Parameters
    ----------
    margin : array of integers
        The margin.
    first : int
        Axes before this one are left alone: they are not attributes.
    absolute : bool
        Whether with the sizes of all coefficients.

    Examples
    --------
    >>> contrasts(np.array([5, 3, 1])).tolist()          # 5 − 3, and 5 + 3 − 2 · 1
    [2, 6]
    """
    found = margin
    for axis in range(first, found.ndim):
        turned = np.moveaxis(found, axis, 0)
        k = np.arange(1, len(turned)).reshape((-1, *[1] * (found.ndim - 1)))
        last = -k * turned[1:] if not absolute else k * turned[1:]
        found = np.moveaxis(np.cumsum(turned, 0)[:-1] + last, 0, axis)
    return found


def residual(coordinates: FloatArray, first: int = 0) -> FloatArray:
    """Return the residual that has these coordinates.

    Parameters
    ----------
    coordinates : array
        As :func:`contrasts` gives them, with noise.
    first : int
        Axes before this one are left alone: they are not attributes.

    Examples
    --------
    >>> residual(contrasts(np.array([5.0, 3.0, 1.0]))).tolist()
    [2.0, 0.0, -2.0]
    """
    found = np.asarray(coordinates, dtype=float)
    for axis in range(first, found.ndim):
        turned = np.moveaxis(found, axis, 0)
        k = np.arange(1.0, len(turned) + 1).reshape((-1, *[1] * (found.ndim - 1)))
        share = turned / (k * (k + 1))
        out = np.zeros((len(turned) + 1, *turned.shape[1:]))
        out[1:] = -k * share
        out[:-1] += np.cumsum(share[::-1], 0)[::-1]
        found = np.moveaxis(out, 0, axis)
    return found


def squared_lengths(shape: tuple[int, ...]) -> FloatArray:
    """Return |h|² of every coordinate: Π k (k + 1).

    Parameters
    ----------
    shape : tuple of int
        Of the coordinates: n − 1 along every attribute.
    """
    found = np.ones(shape)
    for axis, n in enumerate(shape):
        k = np.arange(1.0, n + 1)
        found = found * (k * (k + 1)).reshape((-1, *[1] * (len(shape) - axis - 1)))
    return found


def centred(values: FloatArray) -> FloatArray:
    """Return an array without its means along every axis.

    Parameters
    ----------
    values : array
        Of any number of axes.
    """
    found = np.asarray(values, dtype=float)
    for axis in range(found.ndim):
        found = found - found.mean(axis=axis, keepdims=True)
    return found
