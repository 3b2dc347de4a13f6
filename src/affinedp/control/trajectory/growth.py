"""How far powers of a state matrix grow, roughly: nothing that is promised rests on it."""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError

# A state matrix with a larger condition number counts as singular.
MOST_CONDITION = 1e12


class SingularDynamicsError(AffineDPError):
    """State matrices that have no inverse."""


def inverted(matrix: FloatArray) -> FloatArray:
    """Return the inverse of a state matrix, roughly; refuses one that is nearly singular.

    Parameters
    ----------
    matrix : array, shape (n, n)
        A.
    """
    # rows in their own units: a unit is no singularity
    size = np.abs(matrix).max(axis=1)
    scaled = matrix / np.where(size > 0, size, 1.0)[:, None]
    condition = np.linalg.cond(scaled) if np.all(size > 0) else math.inf
    if not condition < MOST_CONDITION:
        raise SingularDynamicsError(
            "the state matrix is singular, or too nearly so (condition number "
            f"{condition:.1e}): the state at a later time does not determine the earlier ones"
        )
    return np.asarray(np.linalg.inv(scaled) / size)


def log_growth(matrix: FloatArray, steps: int) -> float:
    """Return about log₂ of the largest power, from the powers on the binary way there.

    Parameters
    ----------
    matrix : array, shape (n, n)
        What is multiplied with itself.
    steps : int
        How often at most.

    Examples
    --------
    >>> log_growth(np.array([[2.0]]), 100)
    101.0
    """
    power, exponent, largest = matrix, 0, 0.0
    reached: FloatArray | None = None
    reached_exponent = 0
    while steps:
        size = np.abs(power).max()
        if size == 0:
            break
        shift = math.frexp(size)[1]
        power, exponent = np.ldexp(power, -shift), exponent + shift
        if steps & 1:
            reached = power if reached is None else reached @ power
            shift = math.frexp(np.abs(reached).max())[1]
            reached, reached_exponent = (
                np.ldexp(reached, -shift),
                reached_exponent + exponent + shift,
            )
            largest = max(largest, float(reached_exponent))
        steps >>= 1
        if steps:
            largest = max(largest, float(exponent))
            power, exponent = power @ power, 2 * exponent
    return largest + math.log2(len(matrix))
