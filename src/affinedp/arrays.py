"""The array types, and checks that every entry point shares."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.errors import AffineDPError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
# A dense array or a SciPy sparse array: what the linear algebra here accepts.
Matrix: TypeAlias = Any
# The norm of the difference of neighbours: 1 for Laplace, 2 for Gaussian noise.
Norm = Literal[1, 2]
# From here on a double is not the only whole number that it stands for.
LARGEST_WHOLE = 2.0**53
NOT_KEPT = "has more digits than double precision holds"


P = ParamSpec("P")
R = TypeVar("R")


def yes_or_no(value: object, name: str) -> bool:
    """Return a bool, and refuse what is merely like one: the text "no" is true.

    Parameters
    ----------
    value : bool
        What was given.
    name : str
        What it is called in the refusal.
    """
    if not isinstance(value, bool | np.bool_):
        raise AffineDPError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def within_range(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse, in words, what LAPACK and Python refuse with errors of their own.

    Numbers near the ends of double precision overflow or vanish in the middle of a computation;
    the caller can do something about it, and must not be shown an error about eigenvalues.
    """

    @wraps(function)
    def guarded(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except AffineDPError:
            raise
        except MemoryError as error:
            raise AffineDPError(
                "the problem does not fit in memory: split it, or leave entries out"
            ) from error
        except (ArithmeticError, np.linalg.LinAlgError, ValueError) as error:
            if type(error) is ValueError and "infs or NaNs" not in str(error):
                raise
            raise AffineDPError(
                f"the numbers leave the range of double precision ({error}): they are too large, "
                "too small or too different in size. Choose other units for the entries"
            ) from error

    return guarded


def is_sparse(value: object) -> bool:
    """Whether ``value`` is a SciPy sparse matrix or array, without importing SciPy for others."""
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def real_matrix(value: object, name: str) -> Matrix:
    """Return ``value`` as a finite float64 matrix of its own, dense or CSR as it came."""
    if not is_sparse(value):
        return real_array(value, name, 2)  # type: ignore[arg-type]
    import scipy.sparse as sparse

    given: Any = value
    if given.dtype.kind not in "iuf" or given.ndim != 2:
        raise AffineDPError(f"{name} must be a matrix of real numbers, not {given.dtype}")
    matrix = sparse.csr_array(given, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    check_finite(matrix.data, f"{name}.data")
    return matrix


def dense(matrix: Matrix) -> FloatArray:
    """Return a matrix as a dense array."""
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix)


def rank_of(matrix: FloatArray) -> int:
    """Return the numerical rank, also of a matrix without rows, which NumPy 1 refuses."""
    return int(np.linalg.matrix_rank(matrix)) if matrix.size else 0


def real_array(value: ArrayLike, name: str, ndim: int | None = None) -> FloatArray:
    """Return ``value`` as a finite float64 array of its own, or refuse it by ``name``."""
    if np.ma.is_masked(value):
        raise AffineDPError(f"{name} has masked values: fill them or leave them out")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise AffineDPError(f"{name} is not a rectangular array of numbers: {error}") from None
    if array.dtype.kind == "O":
        array = _numbers_from_objects(array, name)
    if array.dtype.kind not in "iuf":
        raise AffineDPError(f"{name} must hold real numbers, not {array.dtype}")
    if array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > 2**53:
        raise AffineDPError(
            f"{name} holds integers beyond 2^53, which a double cannot hold exactly"
        )
    array = np.array(array, dtype=np.float64)
    if ndim is not None and array.ndim != ndim:
        shape = {1: "a vector", 2: "a matrix"}.get(ndim, f"{ndim}-dimensional")
        raise AffineDPError(f"{name} must be {shape}, but has shape {array.shape}")
    check_finite(array, name)
    return array


def _numbers_from_objects(array: NDArray[Any], name: str) -> FloatArray:
    """Exact numbers (int, Fraction, Decimal) arrive as objects; anything else is refused."""
    for place, item in np.ndenumerate(array):
        if not is_number(item):
            # what it says may be private; what it is helps as much
            kind = _kind_words(item)
            raise AffineDPError(f"{_at(name, place)} is not a real number but {kind}")
        if isinstance(item, numbers.Integral) and not _keeps_integer(item):
            raise AffineDPError(f"{_at(name, place)} {NOT_KEPT}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise AffineDPError(f"{name} holds a number too large for double precision") from None


def check_finite(array: FloatArray, name: str) -> None:
    """Refuse NaN and infinity, naming the first place."""
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AffineDPError(f"{_at(name, place)} is {array[place]}: every number must be finite")


# ---------------------------------------------------------------------- data, which nothing changes


def exact_doubles(values: object, name: str) -> FloatArray:
    """Return data as a finite float64 array of its own; refuse what a double does not hold.

    Whole numbers and fractions must be doubles, as they are.  A decimal (0.1) must be what its
    double says in as many digits, so that no two of them become one.  The refusal names the
    place; the value stays out of it, because it may be private.

    Parameters
    ----------
    values : array-like
        Numbers of any kind: NumPy's, pandas', int, float, Decimal, Fraction.
    name : str
        For messages.

    Examples
    --------
    >>> from decimal import Decimal
    >>> exact_doubles([3, Decimal("0.1")], "x")
    array([3. , 0.1])
    >>> exact_doubles([3, 2**53 + 1], "x")
    Traceback (most recent call last):
        ...
    affinedp.errors.AffineDPError: x[1] has more digits than double precision holds: round it, or \
choose a larger unit
    """
    if np.ma.is_masked(values):
        raise AffineDPError(f"{name} has masked values: fill them or leave them out")
    array = _as_given(values, name)
    if array.dtype.kind == "O":
        for place, item in np.ndenumerate(array):
            if not is_number(item):
                kind = _kind_words(item)
                raise AffineDPError(f"{_at(name, place)} is not a real number but {kind}")
    elif array.dtype.kind not in "iuf":
        raise AffineDPError(f"{name} must hold real numbers, not {array.dtype}")
    doubles, changed = nearest_doubles(array)
    if changed.any():
        place = tuple(int(i) for i in np.argwhere(changed)[0])
        raise AffineDPError(f"{_at(name, place)} {NOT_KEPT}: round it, or choose a larger unit")
    check_finite(doubles, name)
    return doubles


def _as_given(values: Any, name: str) -> NDArray[Any]:
    """The numbers as an array of a type that changes none of them."""
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):  # a DataFrame
        return np.asarray(values.to_numpy(dtype=object))
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype):  # a Series, a memory view
        return np.asarray(values)
    try:
        # NumPy makes doubles of [2**64 + 1, 0.5], and of pandas' integers with gaps
        array = np.array(values, dtype=object)
        if any(isinstance(item, list | tuple | np.ndarray) for item in array.flat):
            raise ValueError
    except ValueError:
        raise AffineDPError(f"{name} is not a rectangular array of numbers") from None
    return array


def nearest_doubles(array: NDArray[Any]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the double next to every number, and where that is another number.

    Parameters
    ----------
    array : array
        Integers, floats, or numbers as objects.
    """
    if array.dtype.kind in "iu":
        doubles = np.array(array, dtype=np.float64)
        changed = np.asarray(np.abs(doubles) >= LARGEST_WHOLE)
        for place in np.argwhere(changed):
            at = tuple(place)
            changed[at] = int(doubles[at]) != int(array[at])
        return doubles, changed
    if array.dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore"):
            doubles = np.array(array, dtype=np.float64)
        same = (doubles.astype(array.dtype) == array) | np.isnan(array)
        return doubles, np.asarray(~same)
    doubles = np.empty(array.shape)
    changed = np.zeros(array.shape, dtype=np.bool_)
    for at, item in np.ndenumerate(array):
        doubles[at] = _nearest(item)
        changed[at] = not _keeps(float(doubles[at]), item)
    return doubles, changed


def is_number(item: object) -> bool:
    """Whether ``item`` is one real number (and no truth value)."""
    return isinstance(item, numbers.Real | Decimal) and not isinstance(item, bool | np.bool_)


def says_decimal(double: float, decimal: Decimal) -> bool:
    """Whether a decimal is what a double says in as many digits.

    Parameters
    ----------
    double : float
        The double.
    decimal : Decimal
        As it was written.

    Examples
    --------
    >>> from decimal import Decimal
    >>> says_decimal(0.1, Decimal("0.1")), says_decimal(0.1, Decimal("0.10000000000000001"))
    (True, True)
    >>> says_decimal(0.1, Decimal("0.10000000000000002"))
    False
    """
    if not decimal.is_finite() or not math.isfinite(double):
        return not decimal.is_finite()
    # no double has more than 767 digits
    digits = min(len(decimal.as_tuple().digits), 800)
    return Decimal(f"{double:.{max(digits, 1) - 1}e}") == decimal or Decimal(double) == decimal


def _nearest(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:
        return math.inf if item > 0 else -math.inf
    except ValueError:  # Decimal knows a NaN that no float can be
        return math.nan


def _keeps(double: float, item: Any) -> bool:
    """Whether a double says the same number as the item that it was made of."""
    if isinstance(item, float):
        return True
    if isinstance(item, numbers.Integral):
        return _keeps_integer(item)
    if isinstance(item, Decimal):
        return says_decimal(double, item)
    if isinstance(item, numbers.Rational):
        return math.isfinite(double) and item in (Fraction(double), Fraction(repr(double)))
    return bool(type(item)(double) == item) or math.isnan(double)


def _keeps_integer(item: Any) -> bool:
    double = _nearest(int(item))
    return math.isfinite(double) and int(double) == int(item)


def _kind_words(item: object) -> str:
    return "text" if isinstance(item, str) else type(item).__name__


def _at(name: str, place: tuple[int, ...]) -> str:
    if name.endswith(" row"):
        return f"{name} {place[0]} (counting from 0)"
    return f"{name}{list(place)}" if place else name


def linked(first: IntArray, second: IntArray, count: int) -> IntArray:
    """Say which of some nodes hang together: equal labels, counted from 0 by their first nodes.

    SciPy's ``connected_components`` gives the same, but to load it takes longer than most answers.

    Parameters
    ----------
    first, second : array of int
        The two ends of each link.
    count : int
        How many nodes there are.

    Returns
    -------
    array of int, shape (count,)

    Examples
    --------
    >>> linked(np.array([0, 3]), np.array([2, 4]), 5)
    array([0, 1, 0, 2, 2])
    """
    root = np.arange(count)
    while True:
        one, other = root[first], root[second]
        low = np.minimum(one, other)
        found = root.copy()
        np.minimum.at(found, one, low)
        np.minimum.at(found, other, low)
        while not np.array_equal(found[found], found):
            found = found[found]
        if np.array_equal(found, root):
            return np.asarray(np.unique(root, return_inverse=True)[1])
        root = found


def some(items: Sequence[str], most: int = 8) -> str:
    """List a few items in words."""
    shown = [*items[:most], f"{len(items) - most} more"] if len(items) > most else list(items)
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]
