"""The array types, and checks that every entry point shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from affinedp.errors import AffineDPError

FloatArray = NDArray[np.float64]
# The distance from 1 to the next double.
EPS = float(np.finfo(float).eps)
IntArray = NDArray[np.intp]
# A dense array or a SciPy sparse array: what the linear algebra here accepts.
Matrix: TypeAlias = Any
# The norm of the difference of neighbours: 1 for Laplace, 2 for Gaussian noise.
Norm = Literal[1, 2]


P = ParamSpec("P")
R = TypeVar("R")


def yes_or_no(value: object, name: str) -> bool:
    """Return a bool, and refuse what is merely like one: the text "no" is true."""
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


@cache
def _threads() -> Any:
    """What tells the libraries of linear algebra how many threads to use: slow to find."""
    import scipy.linalg  # noqa: F401 (it brings one of them)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra on one thread, in a block or, as a decorator, in a function.

    More threads than idle cores cost far more than they gain, and change the last digits.
    """
    with _threads().limit(limits=1, user_api="blas"):
        yield


def is_sparse(value: object) -> bool:
    """Whether ``value`` is a SciPy sparse matrix or array, without importing SciPy for others."""
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def dense(matrix: Matrix) -> FloatArray:
    """Return a matrix as a dense array."""
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix)


def squared(matrix: Matrix) -> Matrix:
    """Return the squares of all entries."""
    return matrix.multiply(matrix) if is_sparse(matrix) else matrix * matrix


def squares_across(rows: Matrix, signs: FloatArray) -> FloatArray:
    """Return the squared lengths of rows across a vector of signs, none below zero.

    Examples
    --------
    >>> squares_across(np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([1.0, 1.0])).tolist()
    [0.0, 2.0]
    """
    mean = np.asarray(rows @ signs).ravel() / len(signs)
    if not is_sparse(rows):
        return np.asarray(((rows - np.outer(mean, signs)) ** 2).sum(axis=1))
    entries = rows.tocoo()
    own = (entries.data - mean[entries.row] * signs[entries.col]) ** 2
    found = np.bincount(entries.row, own, minlength=len(mean))
    # what is not stored is zero
    stored = np.bincount(entries.row, minlength=len(mean))
    return np.asarray(found + (len(signs) - stored) * mean**2)


def semidefinite_root(matrix: FloatArray) -> FloatArray:
    """Return R with RᵀR equal to a symmetric matrix without what is negative in it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def rank_of(matrix: FloatArray) -> int:
    """Return the numerical rank, also of a matrix without rows, which NumPy 1 refuses."""
    return int(np.linalg.matrix_rank(matrix)) if matrix.size else 0


def linked(first: IntArray, second: IntArray, count: int) -> IntArray:
    """Say which of some nodes hang together: equal labels, counted from 0 by their first nodes.

    SciPy's ``connected_components`` gives the same, but to load it takes longer than most answers.
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


def groups(label: IntArray) -> list[IntArray]:
    """Return the places of every label, in rising order."""
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1)


def connected_parts(matrix: Matrix) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows and columns of a matrix that are connected by entries; one may be empty."""
    import scipy.sparse as sparse

    entries, count = sparse.coo_array(matrix), matrix.shape[0]
    for group in groups(linked(entries.row, count + entries.col, sum(matrix.shape))):
        yield group[group < count], group[group >= count] - count


def is_identity(matrix: Matrix, size: int) -> bool:
    """Whether a sparse matrix is the identity."""
    if not is_sparse(matrix) or matrix.shape != (size, size) or matrix.nnz != size:
        return False
    entries = matrix.tocoo()
    return bool(np.all(entries.row == entries.col) and np.all(entries.data == 1.0))
