"""How numbers are read, at every door and for every question.

Numbers are kept as doubles.  A double stands for one number, its :func:`meaning`: 0.1 is one tenth,
and 1/3 a third.  What is given in another type (integers, Decimal, Fraction, sparse matrices,
columns of pandas and polars) is taken if the double that keeps it means exactly that number, and
refused otherwise: nothing is rounded on the way in.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse
from affinedp.errors import AffineDPError

# Rows of a matrix: column to nonzero coefficient.
Rows = Sequence[Mapping[int, Fraction]]

# From here on a double is not the only whole number that it stands for.
LARGEST_WHOLE = 2.0**53
LARGEST_DOUBLE = Fraction(sys.float_info.max)
# Sums of 2^60 such counts are doubles.
LARGEST_COUNT = 2**960
# Numbers are squared, and their squares added up: they stay so far from the ends of the range.
MOST_SQUARED = 2.0**480
NOT_KEPT = "has more digits than double precision holds"
RAGGED = "is not a rectangular array of numbers"
WAY_OUT = "round it, or choose a larger unit"
# A double m·2^e with an odd m below this is exactly that.
SHORT_BINARY = 2**32
# Coefficients of equations are, below this too: five bits short of full length, they are not
# computed.  (Noise may be, and has few different numbers: some are short by chance.)
SHORT_COEFFICIENT = 2**48
# Beyond this, whole numbers are no sign that a number was written down by somebody.
LARGEST_MEANT = 1e12
# Decimals that a double stands for: people write up to 12 digits, and 15 always come back.
WRITTEN_DIGITS, KEPT_DIGITS = 12, 15
# Fractions that a double stands for.  No decimal of 12 digits has the same nearest double as
# another number p/q with q up to 4,000 (they differ by 1/(q·10^k), more than half a unit in the
# last place), and no two such fractions have, with p up to 10^12.
LARGEST_DENOMINATOR = 4_000
LARGEST_NUMERATOR = 10**12
# Text of a number is no longer, and its power of ten no larger.
MOST_TEXT, MOST_POWER = 1_000, 10_000
# Decimals after the point that are looked for in many numbers at once.
FEW_DECIMALS = 4


# ---------------------------------------------------------------------- what a double stands for


@lru_cache(maxsize=1 << 16)
def _short(value: float) -> Fraction | None:
    """The short binary number, decimal or fraction that a finite double stands for, if any."""
    exact = Fraction(value)
    if exact.denominator == 1 or abs(_odd(exact)) < SHORT_BINARY:
        return exact
    text = f"{value:.{WRITTEN_DIGITS}g}"
    if float(text) == value:
        return Fraction(text)
    short = exact.limit_denominator(LARGEST_DENOMINATOR)
    if abs(short.numerator) <= LARGEST_NUMERATOR and float(short) == value:
        return short
    text = f"{value:.{KEPT_DIGITS}g}"
    return Fraction(text) if float(text) == value else None


def meaning(value: float) -> Fraction:
    """Return the one number that a finite double stands for, whatever it is asked for.

    A whole or short binary number is itself.  Otherwise a double stands for the decimal (up to 15
    digits) or fraction (denominator up to 4,000) that it is the nearest double to, if there is one;
    and if there is none, for exactly the binary number that it is.
    """
    found = _short(value)
    return Fraction(value) if found is None else found


def rounded_up(value: float | Fraction) -> float:
    """Return the least double that is not below a number."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf if value > 0 else -float(np.finfo(float).max)
    return near if math.isinf(near) or Fraction(near) >= value else math.nextafter(near, math.inf)


def short_numbers(values: Iterable[float], longest: int = SHORT_BINARY) -> list[Fraction] | None:
    """Return what doubles stand for, or None if one of them is a binary number of full length."""
    found = []
    for value in values:
        short = _short(value)
        if short is None and abs(_odd(Fraction(value))) < longest:
            short = Fraction(value)
        if short is None:
            return None
        found.append(short)
    return found


def meant_numbers(values: FloatArray) -> bool:
    """Whether somebody wrote all these numbers down: short ones, whatever the units.

    A large double is whole by itself; one that is meant has few digits, or few bits.

    Examples
    --------
    >>> meant_numbers(np.array([0.1, 2.0**80])), meant_numbers(np.array([2**0.5 * 2**80]))
    (True, False)
    """
    met = np.unique(values).tolist()
    return short_numbers(met) is not None and all(
        abs(value) < LARGEST_MEANT
        or abs(_odd(Fraction(value))) < SHORT_BINARY
        or float(f"{value:.{WRITTEN_DIGITS}g}") == value
        for value in met
    )


def _odd(whole: Fraction) -> int:
    """The numerator without its powers of two."""
    return whole.numerator // (whole.numerator & -whole.numerator) if whole else 0


def nonzeros(matrix: Matrix) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows, columns and values of the nonzero coefficients."""
    if is_sparse(matrix):
        entries = matrix.tocoo()
        kept = entries.data != 0
        return entries.row[kept], entries.col[kept], entries.data[kept]
    row, column = np.nonzero(matrix)
    return row, column, matrix[row, column]


def given_rows(matrix: Matrix) -> list[dict[int, Fraction]]:
    """Return the rows of a matrix of doubles as the numbers that they stand for."""
    rows: list[dict[int, Fraction]] = [{} for _ in range(matrix.shape[0])]
    row, column, values = (part.tolist() for part in nonzeros(matrix))
    known = {value: meaning(value) for value in set(values)}  # a few stand for a million
    for i, j, value in zip(row, column, values):
        rows[i][j] = known[value]
    return rows


def over_one_denominator(values: FloatArray) -> tuple[NDArray[Any], int]:
    """Return integers and one denominator: exactly the numbers that the doubles stand for.

    The integers have 64 bits where they fit, and are Python's otherwise.
    """
    if np.array_equal(values, np.rint(values)) and np.abs(values).max(initial=0.0) < 2.0**62:
        return values.astype(np.int64), 1
    for decimals in range(1, FEW_DECIMALS + 1):
        power = 10.0**decimals
        with np.errstate(over="ignore"):
            whole = np.rint(values * power)
        # a quotient of whole doubles is rounded once: it is the double nearest to that decimal
        if np.abs(whole).max(initial=0.0) < 1e12 and np.array_equal(whole / power, values):
            return whole.astype(np.int64), 10**decimals
    exact = [meaning(value) for value in values.ravel().tolist()]
    below = math.lcm(1, *(value.denominator for value in exact))
    found = np.empty(len(exact), dtype=object)
    found[:] = [value.numerator * (below // value.denominator) for value in exact]
    return found.reshape(values.shape), below


def exact_number(value: Any) -> Fraction:
    """Return one number of any type, or text such as ``"1/3"``, exactly; a float as it is meant."""
    found = None
    if isinstance(value, str) and len(value) <= MOST_TEXT:
        value = value.strip()
        _, _, power = value.lower().partition("e")
        digits = power.lstrip("+-")
        if not digits or (digits.isdigit() and int(digits) < MOST_POWER):
            with suppress(ValueError, ZeroDivisionError):
                found = Fraction(value)
    elif is_number(value):
        found = _exactly(value)
    if found is None:
        raise AffineDPError(f"{value!r} is not a finite number")
    if abs(found) > LARGEST_DOUBLE:
        raise AffineDPError("a number is beyond double precision: choose a larger unit")
    return found


# ---------------------------------------------------------------------- what is given


def is_number(item: object) -> bool:
    """Whether ``item`` is one real number (and no truth value)."""
    return isinstance(item, numbers.Real | Decimal) and not isinstance(item, bool | np.bool_)


def whole_number(value: Any, name: str, least: int = 1, most: int | None = None) -> int:
    """Return one whole number in a range, or refuse it by ``name``."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        wanted = f", at least {least}" if most is None else f" from {least} to {most:,}"
        raise AffineDPError(f"{name} must be a whole number{wanted}, not {value!r}")
    return int(value)


def generator_of(seed: Any, name: str = "seed") -> np.random.Generator:
    """Return the generator of a seed, a new one for None, or refuse the seed by ``name``."""
    if seed is None or isinstance(seed, np.random.Generator):
        return np.random.default_rng(seed)
    return np.random.default_rng(whole_number(seed, name, 0))


def real_number(
    value: Any,
    name: str,
    least: float = -math.inf,
    below: float = math.inf,
    *,
    positive: bool = False,
) -> float:
    """Return one number in a range, exactly as it was given, or refuse it by ``name``."""
    found = float(real_array(value, name, 0))
    if found < least or found >= below or (positive and found <= 0):
        wanted = "positive" if positive else f"at least {least:g}"
        end = "" if below == math.inf else f" and below {below:g}"
        raise AffineDPError(f"{name} must be {wanted}{end}, not {value!r}")
    return found


def whole_array(value: Any, name: str) -> NDArray[Any]:
    """Return counts exactly as given: in their own type, in 64 bits, or in Python's integers.

    Only counts whose sums would be no doubles are refused for their size.
    """
    given = _as_given(value, name, doubles=False)
    if given.dtype.kind in "iu" and given.dtype != np.uint64:
        return given
    if given.dtype.kind not in "uO":
        raise AffineDPError(f"{name} must be whole numbers, not {given.dtype}")
    given = given.astype(object)
    for place, item in np.ndenumerate(given):
        if not isinstance(item, numbers.Integral) or isinstance(item, bool):
            raise AffineDPError(f"{name} must be whole numbers, and {_at(name, place)} is not")
        if abs(int(item)) > LARGEST_COUNT:
            raise AffineDPError(f"{_at(name, place)} is beyond double precision: {WAY_OUT}")
    try:
        return given.astype(np.int64)
    except OverflowError:
        return given


def real_array(
    value: ArrayLike, name: str, ndim: int | None = None, way_out: str = WAY_OUT
) -> FloatArray:
    """Return numbers as a finite float64 array of its own that means exactly what was given.

    The refusal names the place; the value stays out of it, because it may be private.
    """
    if np.ma.is_masked(value):
        raise AffineDPError(f"{name} has masked values: fill them or leave them out")
    array = _as_given(value, name)
    if array.dtype.kind == "O":
        for place, item in np.ndenumerate(array):
            if not is_number(item):
                # what it says may be private; what it is helps as much
                kind = "text" if isinstance(item, str) else type(item).__name__
                raise AffineDPError(f"{_at(name, place)} is not a real number but {kind}")
    elif array.dtype.kind not in "iuf":
        raise AffineDPError(f"{name} must hold real numbers, not {array.dtype}")
    doubles, changed = nearest_doubles(array)
    if changed.any():
        place = tuple(int(i) for i in np.argwhere(changed)[0])
        raise AffineDPError(f"{_at(name, place)} {NOT_KEPT}: {way_out}")
    check_finite(doubles, name)
    if ndim is not None and doubles.ndim != ndim:
        shape = {0: "one number", 1: "a vector", 2: "a matrix"}.get(ndim, f"{ndim}-dimensional")
        raise AffineDPError(f"{name} must be {shape}, but has shape {doubles.shape}")
    return doubles


def dimensions(value: Any, name: str) -> int:
    """Return how many dimensions numbers have that were given, or refuse a ragged list."""
    try:
        return np.ndim(value)
    except ValueError:
        raise AffineDPError(f"{name} {RAGGED}") from None


def no_floats(value: Any) -> bool:
    """Whether all numbers are integers, Fractions or Decimals: none was computed by rounding."""
    if is_sparse(value):
        return bool(value.dtype.kind in "iu")
    array = _as_given(value, "numbers")
    return array.dtype.kind in "iu" or (
        array.dtype.kind == "O"
        and not any(isinstance(item, float | np.floating) for item in array.flat)
    )


def real_matrix(value: object, name: str, way_out: str = WAY_OUT) -> Matrix:
    """Return numbers as :func:`real_array` does, as a matrix: dense or CSR as it came."""
    if not is_sparse(value):
        return real_array(value, name, 2, way_out)  # type: ignore[arg-type]
    import scipy.sparse as sparse

    given: Any = value
    if given.dtype.kind not in "iuf" or given.ndim != 2:
        raise AffineDPError(f"{name} must be a matrix of real numbers, not {given.dtype}")
    entries = given.tocoo()
    data = real_array(entries.data, f"{name}.data", 1, way_out)
    at = (np.asarray(entries.row), np.asarray(entries.col))
    matrix = sparse.csr_array((data, at), shape=entries.shape)
    matrix.sum_duplicates()
    if matrix.nnz < len(data) and not _whole_sums(data):
        raise AffineDPError(
            f"{name} has several numbers for one place, and adding them up would round: give each "
            "place one number"
        )
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def _whole_sums(data: FloatArray) -> bool:
    whole = bool(np.all(data == np.rint(data)))
    return whole and float(np.abs(data).sum()) < LARGEST_WHOLE


def check_finite(array: FloatArray, name: str) -> None:
    """Refuse NaN and infinity, naming the first place."""
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AffineDPError(f"{_at(name, place)} is {array[place]}: every number must be finite")


def check_squares(sizes: FloatArray, what: str, units: str) -> None:
    """Refuse sizes whose squares, which noise is made of, are no ordinary doubles."""
    for extreme in (sizes.max(initial=1.0), sizes[sizes > 0].min(initial=1.0)):
        if not 1 / MOST_SQUARED < extreme < MOST_SQUARED:
            raise AffineDPError(
                f"{what} {extreme:.1e}, the square of which is beyond double precision: change the "
                f"units of {units}"
            )


def _as_given(values: Any, name: str, doubles: bool = True) -> NDArray[Any]:
    """The numbers as an array of a type that changes none of them."""
    if isinstance(values, np.ndarray) or isinstance(getattr(values, "dtype", None), np.dtype):
        return np.asarray(values)
    if hasattr(values, "columns"):  # a DataFrame of polars or pandas
        values = values.rows() if hasattr(values, "rows") else values.to_numpy(dtype=object)
    elif hasattr(values, "to_list"):  # a Series, which NumPy would make doubles of
        values = values.to_list()
    try:
        # NumPy makes doubles of [2**64 + 1, 0.5] and of [True, 0.5], and of pandas' integers
        array = np.array(values, dtype=object)
        if any(isinstance(item, list | tuple | np.ndarray) for item in array.flat):
            raise ValueError
    except ValueError:
        raise AffineDPError(f"{name} {RAGGED}") from None
    if doubles and set(map(type, array.flat)) <= {float, int}:
        try:
            found = array.astype(np.float64)
        except OverflowError:
            return array
        if not np.any(np.abs(found) >= LARGEST_WHOLE):  # whole numbers below are doubles
            return found
    return array


def nearest_doubles(array: NDArray[Any]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the double next to every number, and where that means another number."""
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
        changed[at] = not _means(float(doubles[at]), item)
    return doubles, changed


def says_decimal(double: float, decimal: Decimal) -> bool:
    """Whether a decimal is what a double says in as many digits: text of a file.

    Examples
    --------
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


def _means(double: float, item: Any) -> bool:
    """Whether a double stands for the number that it was made of; what is not finite stays so."""
    if isinstance(item, float) or not (math.isfinite(double) or _is_finite(item)):
        return True
    exact = _exactly(item) if math.isfinite(double) else None
    return exact is not None and meaning(double) == exact


def _is_finite(item: Any) -> bool:
    return item.is_finite() if isinstance(item, Decimal) else bool(item - item == 0)


def _exactly(item: Any) -> Fraction | None:
    """One number exactly, a float as it is meant; None if it is not finite or far too long."""
    if isinstance(item, numbers.Rational):
        return Fraction(int(item.numerator), int(item.denominator))
    if isinstance(item, Decimal) and (not item.is_finite() or abs(item.adjusted()) > MOST_POWER):
        return Fraction(0) if not (item.is_nan() or item) else None
    if not isinstance(item, Decimal):
        double = float(item)
        if not math.isfinite(double):
            return None
        if double == item:
            return meaning(double)
    try:
        return Fraction(*item.as_integer_ratio())
    except (AttributeError, OverflowError, ValueError):
        return None


def _at(name: str, place: tuple[int, ...]) -> str:
    if name.endswith(" row"):
        return f"{name} {place[0]} (counting from 0)"
    return f"{name}{list(place)}" if place else name
