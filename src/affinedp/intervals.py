"""How far noise reaches with a given probability: confidence intervals for true numbers.

The law of the noise is public, so intervals cost no budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, dense, is_sparse
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import dimensions, real_array, real_matrix
from affinedp.exact.rounding import careful_product
from affinedp.laws.reach import each_of
from affinedp.record import MechanismRecord
from affinedp.strategies.base import Strategy

# What rounding of doubles may add to an end, relatively.
END_SLACK = 1e-11
# Roundings in a number that is published, and in a combination of such.
ROUNDED = 4


@dataclass(frozen=True, eq=False)
class Interval:
    """Where true numbers lie; unpacks into its two ends.

    Attributes
    ----------
    low, high : float or array
        The ends.
    level : float
        With at least this probability.
    simultaneous : bool
        Whether all of them hold at once with it, or each by itself.
    how : str
        How they were computed, and what that says about the probability.
    """

    low: Any
    high: Any
    level: float
    simultaneous: bool
    how: str = ""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.low, self.high))

    def __getitem__(self, place: Any) -> Interval:
        """Return the interval of some of the numbers: a place, or a margin."""
        return replace(self, low=self.low[place], high=self.high[place])


def interval_of(
    mechanism: MechanismRecord,
    y: Any,
    combination: Any = None,
    level: float = 0.95,
    simultaneous: bool = False,
    factor: float = 1.0,
) -> Interval:
    """Return where the true outputs, or combinations of them, lie."""
    level = checked_level(level)
    strategy = mechanism.strategy
    given = strategy.flat(y)
    matrix, single = _combinations(combination, strategy)
    matrix, powers = _scaled(matrix)
    outside = 1 - level
    if simultaneous:
        # data sets have noise of their own: all hold with the product of their probabilities
        outside = each_of(outside, 1 if given.ndim == 1 else len(given))
    reach, how = strategy.reach(mechanism.noise, matrix, outside, simultaneous)
    center, width = _centers(given, matrix, powers), _enlarged(reach, factor, powers)
    # what was published is rounded, and so is the sum
    terms = None if matrix is None else abs(matrix)
    width = width + ROUNDED * EPS * _centers(np.abs(given), terms, powers)
    if single:
        center, width = center[..., 0], width[..., 0]
    low, high = center - width, center + width
    if matrix is None and given.ndim == 1:
        low, high = strategy.present(low), strategy.present(high)
    return Interval(low, high, level, simultaneous, how)


def _scaled(matrix: Any) -> tuple[Any, Any]:
    """The combinations with coefficients of at most 1, and the powers of two that this took off.

    Squares of coefficients such as 1e-170 are no doubles.
    """
    if matrix is None:
        return None, 0
    largest = abs(matrix).max(axis=1)
    largest = np.asarray(largest.toarray() if is_sparse(largest) else largest, dtype=float).ravel()
    powers = np.frexp(largest)[1]
    if not is_sparse(matrix):
        return np.ldexp(matrix, -powers[:, None]), powers
    found = matrix.tocsr().astype(float)
    found.data = np.ldexp(found.data, np.repeat(-powers, np.diff(found.indptr)))
    return found, powers


def _centers(given: FloatArray, matrix: Any, powers: Any) -> FloatArray:
    """The combinations of what was released."""
    if matrix is None:
        return given
    found = dense(careful_product(np.atleast_2d(given), matrix.T))
    return np.asarray(np.ldexp(found if given.ndim == 2 else found[0], powers))


def _enlarged(reach: FloatArray, factor: float, powers: Any) -> FloatArray:
    """Half widths in the units of the question, not rounded to nothing."""
    width = np.ldexp(reach * factor, powers)
    return np.asarray(np.where((reach > 0) & (width < 1e-307), np.nextafter(width, 1.0), width))


def checked_level(level: Any) -> float:
    """Return a probability strictly between 0 and 1, or refuse it."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise AffineDPError(f"level must lie in (0, 1), not {level!r}")
    return float(level)


def whole_ends(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the whole numbers at the ends of intervals for numbers that are known to be whole.

    What rounding of doubles may have cut off is given back first, so no whole number is lost.
    An interval that holds none at all gets those around it.

    Examples
    --------
    >>> low, high = whole_ends(np.array([2965.999999999972, 0.2]), np.array([2969.5, 0.7]))
    >>> low.tolist(), high.tolist()
    ([2966.0, 0.0], [2969.0, 1.0])
    """
    first = np.ceil(low - END_SLACK * (1 + np.abs(low)))
    last = np.floor(high + END_SLACK * (1 + np.abs(high)))
    none = first > last
    return np.where(none, np.floor(low), first), np.where(none, np.ceil(high), last)


def _combinations(combination: Any, strategy: Strategy) -> tuple[Any, bool]:
    """One row of coefficients per wanted number, and whether a single one was asked for."""
    if combination is None:
        return None, False
    if isinstance(combination, Mapping):
        return strategy.row(combination)[None], True
    single = not is_sparse(combination) and dimensions(combination, "combination") == 1
    matrix = real_array(combination, "combination", 1)[None] if single else combination
    matrix = real_matrix(matrix, "combination")
    count = len(strategy.names)
    if matrix.shape[1] != count:
        raise AffineDPError(f"combination must have {count} coefficients, one per output")
    return matrix, single
