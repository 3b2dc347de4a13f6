"""Who is a neighbour: all circuits, chosen free sets, or given directions.

Different adjacencies are different promises.  Each names itself in ``neighbours``, and
guarantees about different neighbours never mix.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Matrix, Norm, dense, real_array, real_matrix
from affinedp.equations.manifold import ON_MANIFOLD, AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError

if TYPE_CHECKING:
    import scipy.sparse as sparse

EPS = float(np.finfo(float).eps)
# Norms that differ by less than this share are equal: the direction that came first is shown.
TIED = 1e-11
TINY_COEFFICIENT = 1e-6
DENSE_NUMBERS = 4e8
# Products up to which a norm is computed in rational arithmetic.
EXACT_PRODUCTS = 4_000


@dataclass(frozen=True)
class Sensitivity:
    """The largest ``‖matrix · v‖`` over neighbour directions v.

    Attributes
    ----------
    value : float
        The largest value found.
    upper : float
        What it is certainly at most; promises are computed from this.
    exact : bool
        Whether every direction was covered, so that ``upper`` is ``value`` up to rounding.
    method : str
        How the maximum was found.
    direction : array, shape (n,)
        A direction that attains ``value`` up to rounding, scaled as far as neighbours may differ;
        its first entry is positive.  Of several, the one that was met first.
    warnings : tuple of str
        What a careful reader should know.
    """

    value: float
    upper: float
    exact: bool
    method: str
    direction: FloatArray
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        moved = np.flatnonzero(self.direction)
        if len(moved) and self.direction[moved[0]] < 0:
            object.__setattr__(self, "direction", -self.direction + 0.0)

    def worse(self, other: Sensitivity) -> Sensitivity:
        """Return the worse of two, and this one if they are equal up to rounding.

        Parameters
        ----------
        other : Sensitivity
            Over other directions.
        """
        shown = other if other.value > self.value * (1 + TIED) else self
        upper, value = max(self.upper, other.upper), max(self.value, other.value)
        return replace(shown, value=value, upper=upper, exact=self.exact and other.exact)


class Adjacency(ABC):
    """Directions in which neighbours on a manifold may differ."""

    manifold: AffineManifold

    @property
    @abstractmethod
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""

    @abstractmethod
    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest 1-norm or 2-norm of ``matrix @ v`` over neighbour directions v.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """

    @abstractmethod
    def blocks(self, limit: int) -> Iterator[FloatArray]:
        """Yield the directions, n×K at a time.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """

    def directions(self, limit: int = 200_000) -> FloatArray:
        """Return all neighbour directions as columns, scaled by μ.

        Parameters
        ----------
        limit : int
            Raise rather than return more than this many.

        Returns
        -------
        array, shape (n, K)

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -2, 0]])          # Example 2 of the paper
        >>> adp.CircuitAdjacency(M).directions()
        array([[0., 2.],
               [0., 1.],
               [1., 0.]])
        """
        found: list[FloatArray] = []
        count = 0
        for block in self.blocks(limit):
            count += block.shape[1]
            if count * float(self.manifold.n) > DENSE_NUMBERS:
                raise TooManyCircuitsError(
                    f"the directions do not fit in memory: {self.manifold.n:,} entries times more "
                    f"than {count:,}",
                    count,
                    DENSE_NUMBERS / self.manifold.n,
                )
            found.append(block)
        return np.hstack(found) if found else np.zeros((self.manifold.n, 0))

    @abstractmethod
    def span(self) -> Matrix:
        """Return vectors, about as long as neighbours differ, that span all directions."""

    def checked_matrix(self, matrix: ArrayLike | sparse.sparray) -> Matrix:
        """Return a matrix with one column per entry, dense or CSR, or refuse it.

        Parameters
        ----------
        matrix : array_like or sparse matrix
            What was given.
        """
        checked = real_matrix(matrix, "matrix")
        if checked.shape[1] != self.manifold.n:
            raise AffineDPError(
                f"the matrix has {checked.shape[1]} columns, but the manifold has "
                f"{self.manifold.n} entries"
            )
        return checked


class FreeSetAdjacency(Adjacency):
    """Neighbours for chosen bases only: the free entries move one at a time, the rest follows.

    Theorem 3 of the paper is of this kind: there the free entries are the whole state at
    one time ("time-local" neighbours).  This is a weaker promise than Definition 4.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    free_sets : sequence of sequences
        Each a set of ``manifold.dim`` entries (names or positions) that determine x.
    mu : float or array_like, shape (n,)
        How far an entry moves, one number or one per entry.

    Examples
    --------
    >>> M = AffineManifold([[1, -2, 0]])
    >>> FreeSetAdjacency(M, [["x1", "x3"]]).directions()
    array([[1. , 0. ],
           [0.5, 0. ],
           [0. , 1. ]])
    """

    def __init__(
        self,
        manifold: AffineManifold,
        free_sets: Sequence[Sequence[int | str]],
        mu: float | ArrayLike = 1.0,
    ) -> None:
        self.manifold = manifold
        self._mu = checked_mu(mu, manifold.n)
        if isinstance(free_sets, str) or not isinstance(free_sets, Sequence) or manifold.dim == 0:
            raise AffineDPError("free_sets must be a list of sets of entries that determine x")
        self._sets = tuple(_entry_positions(manifold, entries) for entries in free_sets)
        if not self._sets:
            raise AffineDPError("free_sets is empty: give at least one set of free entries")
        for entries in self._sets:
            self._coordinates(entries)

    @property
    def mu(self) -> FloatArray:
        """How far each entry moves."""
        return self._mu.copy()

    @property
    def free_sets(self) -> tuple[tuple[int, ...], ...]:
        """The chosen sets, as positions."""
        return tuple(tuple(int(i) for i in entries) for entries in self._sets)

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        sets = f"{len(self._sets)} chosen free sets" if len(self._sets) > 1 else "a chosen free set"
        return f"one entry of {sets} moves by at most {mu_words(self._mu)}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        sets = sorted({tuple(sorted(s.tolist())) for s in self._sets})
        return hashed("free sets", self.manifold.fingerprint, self._mu, repr(sets))

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the scaled directions of one free set at a time.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        count = len(self._sets) * self.manifold.dim
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        for entries in self._sets:
            coordinates, _ = self._coordinates(entries)
            yield np.asarray(self.manifold.kernel @ coordinates)

    def span(self) -> Matrix:
        """Return the directions of the first set, which span the kernel."""
        return np.asarray(self.manifold.kernel @ self._coordinates(self._sets[0])[0])

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over the directions of the chosen sets.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        check_norm(norm)
        checked = self.checked_matrix(matrix)
        image = dense(checked @ self.manifold.kernel)
        best = Sensitivity(0.0, 0.0, True, "", np.zeros(self.manifold.n))
        for entries in self._sets:
            coordinates, condition = self._coordinates(entries)
            lengths = column_norms(image @ coordinates, norm)
            spread = column_norms(np.abs(image) @ np.abs(coordinates), norm)
            upper = (
                lengths + (8 * len(entries) * EPS + self.manifold.kernel_error) * condition * spread
            )
            place = first_largest(lengths)
            direction = np.asarray(self.manifold.kernel @ coordinates[:, place])
            warnings = tiny_coefficient(direction, self.manifold.names)
            value, high = float(lengths[place]), float(upper.max())
            best = best.worse(Sensitivity(value, high, True, "", direction, warnings))
        return replace(best, method=f"{len(self._sets)} free sets, closed form")

    def _coordinates(self, entries: IntArray) -> tuple[FloatArray, float]:
        """Kernel coordinates of the set's scaled directions, and the condition of the set."""
        square = dense(self.manifold.kernel[entries])
        size = np.abs(square).max(axis=1, initial=0.0)
        condition = np.inf if np.any(size == 0) else np.linalg.cond(square / size[:, None])
        if not condition < 1e10:
            names = ", ".join(self.manifold.names[i] for i in entries)
            raise AffineDPError(
                f"the entries {names} are not free together: the equations tie them to each other "
                "(or do so within rounding). Choose entries that determine x"
            )
        inverse = np.linalg.inv(square / size[:, None]) / size
        return inverse * self._mu[entries], float(condition)


class DirectionAdjacency(Adjacency):
    """Neighbours along directions that the caller gives, already scaled.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    directions : array_like, shape (n, K)
        Columns in ``ker D``: x and x' are neighbours if they differ by at most one of them.

    Examples
    --------
    >>> M = AffineManifold([[1, 1, -1]])
    >>> adj = DirectionAdjacency(M, [[1, 0], [0, 1], [1, 1]])
    >>> adj.sensitivity([[1, 1, 1]], norm=1).value
    2.0
    """

    def __init__(self, manifold: AffineManifold, directions: ArrayLike) -> None:
        self.manifold = manifold
        vectors = real_array(directions, "directions", 2)
        if vectors.shape[0] != manifold.n or vectors.shape[1] == 0:
            raise AffineDPError(
                f"directions has shape {vectors.shape}, but must hold at least one column of "
                f"{manifold.n} entries"
            )
        off = np.abs(manifold.D @ vectors)
        scale = abs(manifold.D) @ np.abs(vectors)
        bad = np.flatnonzero(np.any(off > ON_MANIFOLD * scale, axis=0))
        if len(bad):
            raise AffineDPError(
                f"direction {bad[0] + 1} (counting from 1) leaves the manifold: D v must be 0. "
                "Neighbours must both obey the equations"
            )
        self._directions = vectors

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        count = self._directions.shape[1]
        return f"{count} given direction{'s' if count > 1 else ''}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        return hashed("directions", self.manifold.fingerprint, self._directions)

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the directions.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        count = self._directions.shape[1]
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        yield self._directions.copy()

    def span(self) -> Matrix:
        """Return vectors that span the directions."""
        return self._directions.copy()

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over the given directions.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        check_norm(norm)
        checked: Any = self.checked_matrix(matrix)
        vectors = self._directions
        lengths = column_norms(checked @ vectors, norm)
        spread = column_norms(abs(checked) @ np.abs(vectors), norm)
        upper = lengths + 2 * self.manifold.n * EPS * spread
        place = first_largest(lengths)
        return Sensitivity(
            float(lengths[place]),
            float(upper.max()),
            True,
            f"{vectors.shape[1]} directions, closed form",
            vectors[:, place].copy(),
        )


# ---------------------------------------------------------------------- shared pieces


def checked_mu(mu: float | ArrayLike, n: int) -> FloatArray:
    """Return one μ per entry, none negative and not all zero."""
    values = real_array(mu, "mu")
    if values.ndim == 0:
        values = np.full(n, float(values))
    if values.shape != (n,):
        raise AffineDPError(
            f"mu has shape {values.shape}; give one number, or one for each of {n} entries"
        )
    if np.any(values < 0) or not np.any(values > 0):
        raise AffineDPError("mu must be positive (zero for some entries at most)")
    return values


def mu_words(mu: FloatArray) -> str:
    """Say how far entries move."""
    if np.all(mu == mu[0]):
        return f"μ = {mu[0]:g}"
    return f"its μ (from {mu.min():g} to {mu.max():g})"


def hashed(*parts: str | FloatArray) -> str:
    """Return one hash of several texts and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        data = (
            part.encode() if isinstance(part, str) else np.ascontiguousarray(part + 0.0).tobytes()
        )
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def check_norm(norm: int) -> None:
    """Refuse norms other than 1 and 2."""
    if norm not in (1, 2):
        raise AffineDPError(f"norm must be 1 (Laplace) or 2 (Gaussian), not {norm!r}")


def _entry_positions(manifold: AffineManifold, entries: Sequence[int | str]) -> IntArray:
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise AffineDPError(f"a free set is a list of entries, not {entries!r}")
    place = {name: i for i, name in enumerate(manifold.names)}
    found: list[int] = []
    for entry in entries:
        if isinstance(entry, str) and entry in place:
            found.append(place[entry])
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            if not 0 <= entry < manifold.n:
                raise AffineDPError(
                    f"there is no entry {entry}: they go from 0 to {manifold.n - 1}"
                )
            found.append(int(entry))
        else:
            raise AffineDPError(f"there is no entry {entry!r}")
    if len(set(found)) != manifold.dim or len(found) != manifold.dim:
        raise AffineDPError(
            f"a free set must have {manifold.dim} different entries (the dimension of the "
            f"manifold), not {len(set(found))}"
        )
    return np.array(sorted(found), dtype=np.intp)


def column_norms(matrix: FloatArray, norm: Norm) -> FloatArray:
    """Return the norm of every column, also where its square leaves the range of floats."""
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(np.linalg.norm(matrix / unit, ord=norm, axis=0) * unit)


def first_largest(values: FloatArray) -> int:
    """Return the place of the largest value; of those equal up to rounding, the first."""
    return int(np.flatnonzero(values >= values.max() * (1 - TIED))[0])


def tiny_coefficient(direction: FloatArray, names: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if one entry of a direction is tiny against another."""
    size = np.abs(direction)
    if not size.any():
        return ()
    smallest = int(np.argmin(np.where(size > 0, size, np.inf)))
    if size[smallest] >= TINY_COEFFICIENT * size.max():
        return ()
    return (
        f"the promise rests on a tiny coefficient: in the worst direction {names[smallest]} moves "
        f"only {size[smallest] / size.max():.1e} as far as {names[int(np.argmax(size))]}. If that "
        "coefficient should be zero, correct the equations",
    )
