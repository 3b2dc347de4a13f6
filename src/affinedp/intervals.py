"""How far noise reaches with a given probability: confidence intervals for true numbers.

The law of the noise is public, so intervals cost no budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, dense, is_sparse
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, real_matrix
from affinedp.exact.rounding import careful_product
from affinedp.laws.reach import each_of
from affinedp.record import MechanismRecord

# What rounding of doubles may add to an end, relatively.
END_SLACK = 1e-11


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

    low: Any = field(repr=False)
    high: Any = field(repr=False)
    level: float
    simultaneous: bool
    how: str = ""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.low, self.high))


def interval_of(
    mechanism: MechanismRecord,
    y: Any,
    combination: Any = None,
    level: float = 0.95,
    simultaneous: bool = False,
    factor: float = 1.0,
) -> Interval:
    """Return where the true outputs, or combinations of them, lie.

    Parameters
    ----------
    mechanism : MechanismRecord
        What released y.
    y : array_like, shape (m,) or (rows, m), or pandas Series or DataFrame
        What was released.
    combination : mapping or array_like, shape (m,) or (k, m), optional
        Coefficients by output, or rows of them; every output by itself if left out.
    level : float
        Such as 0.95.
    simultaneous : bool
        For all numbers and rows at once.
    factor : float
        How much larger the release made the noise.
    """
    level = checked_level(level)
    given = _numbers(y, mechanism.output_names)
    matrix, single = _combinations(combination, mechanism.output_names)
    matrix, powers = _scaled(matrix)
    rows = _noise_rows(mechanism, matrix)
    outside = 1 - level
    if simultaneous:
        # data sets have noise of their own: all hold with the product of their probabilities
        outside = each_of(outside, 1 if given.ndim == 1 else len(given))
        reach, how = mechanism.noise.reach_together(rows, outside)
    else:
        reach, how = mechanism.noise.reach(rows, outside)
    center, width = _centers(given, matrix, powers), _enlarged(reach, factor, powers)
    if single:
        center, width = center[..., 0], width[..., 0]
    return Interval(center - width, center + width, level, simultaneous, how)


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

    Parameters
    ----------
    low, high : arrays
        The ends.

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


def _numbers(y: Any, names: tuple[str, ...]) -> FloatArray:
    """What was released, by position or by name."""
    if hasattr(y, "reindex"):  # pandas
        labels = list(y.index if y.ndim == 1 else y.columns)
        if set(labels) != set(names) or len(labels) != len(names):
            raise AffineDPError("y must have exactly the outputs of the mechanism as its names")
        y = (y[list(names)]).to_numpy()
    given = np.asarray(y, dtype=float)
    if given.ndim not in (1, 2) or given.shape[-1] != len(names) or not np.isfinite(given).all():
        raise AffineDPError(f"y must hold {len(names)} finite numbers, one per output")
    return given


def _combinations(combination: Any, names: tuple[str, ...]) -> tuple[Any, bool]:
    """One row of coefficients per wanted number, and whether a single one was asked for."""
    if combination is None:
        return None, False
    if isinstance(combination, Mapping):
        place = {name: i for i, name in enumerate(names)}
        unknown = [name for name in combination if name not in place]
        if unknown:
            raise AffineDPError(f"combination names {unknown[0]!r}, which is no output")
        row = np.zeros((1, len(names)))
        for name, value in combination.items():
            row[0, place[name]] = real_array(value, f"combination[{name!r}]", 0)
        return row, True
    single = not is_sparse(combination) and np.ndim(combination) == 1
    matrix = real_array(combination, "combination", 1)[None] if single else combination
    matrix = real_matrix(matrix, "combination")
    if matrix.shape[1] != len(names):
        raise AffineDPError(f"combination must have {len(names)} coefficients, one per output")
    return matrix, single


def _noise_rows(mechanism: MechanismRecord, matrix: Any) -> Any:
    """The combinations in terms of noise whose coordinates are free: no row but 0 has no noise.

    Digits that cancel against a public equation are kept, so that what is left of the noise is
    not taken for a rounding.
    """
    body = mechanism.noise.size is not None
    if matrix is None:
        return mechanism.dense.range(mechanism.noise) if body else dense(mechanism.noise_matrix)
    if body:
        return careful_product(matrix, mechanism.dense.range(mechanism.noise))
    found = careful_product(matrix, mechanism.dense.basis)
    root = mechanism.dense.root
    return dense(found if root is None else careful_product(found, root))
