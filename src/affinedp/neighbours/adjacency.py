"""What all neighbours share: words, keys, and how far a matrix moves between them.

Different adjacencies are different promises.  Each names itself in ``neighbours``, and
guarantees about different neighbours never mix.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import (
    FloatArray,
    Matrix,
    Norm,
    real_array,
    real_matrix,
    within_range,
)
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.definition import (
    NeighbourAnswer,
)
from affinedp.neighbours.norms import (
    EPS,
    TIED,
    ExactMatrix,
)

if TYPE_CHECKING:
    import scipy.sparse as sparse

TINY_COEFFICIENT = 1e-6
DENSE_NUMBERS = 4e8
# A bound closer than this to the value that was found is the value up to rounding.
ONLY_ROUNDING = 1e-9


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
    _unit: str | None = None

    @property
    @abstractmethod
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""

    @property
    def unit(self) -> str:
        """What moves between neighbours, in a few words: not how far, nor by which equations.

        A ledger adds up releases with the same unit without asking.  Where nobody said it, only
        these very neighbours have it.
        """
        return self._unit or f"neighbours {self.key[:12]}"

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

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return the same for a matrix of rational numbers, or None where it is not decided.

        Parameters
        ----------
        matrix : ExactMatrix
            One column for each entry.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        return None

    @abstractmethod
    def blocks(self, limit: int) -> Iterator[FloatArray]:
        """Yield the directions, n×K at a time.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """

    def listed(self, limit: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield the directions, n×K at a time, and how far off each of their numbers may be.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        share = 64 * EPS + self.manifold.kernel_error
        for block in self.blocks(limit):
            yield block, share * np.abs(block)

    @within_range
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

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        """Return whether x and y are neighbours, decided in rational arithmetic, and why.

        Parameters
        ----------
        x, y : sequences of numbers
            Two data sets that obey the equations.  A float is read as the decimal that it prints
            as; integers, ``Decimal``, ``Fraction`` and texts such as ``"1/3"`` as they are.
            (Neighbours whose *records* are off by rounding are what ``bound`` of
            :meth:`affinedp.Mechanism.release` is for.)

        Returns
        -------
        NeighbourAnswer

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold.from_equations(["east + west = total"])
        >>> print(adp.CircuitAdjacency(M).are_neighbours([3, 4, 7], [2, 5, 7]))
        neighbours: east moves by 1, at most μ = 1; of the free {east, total} no other; west follows
        >>> print(adp.FreeSetAdjacency(M, [["east", "west"]]).are_neighbours([3, 4, 7], [2, 5, 7]))
        no neighbours: more than one entry of the free set {east, west} moves: east, west
        >>> one_moves = adp.DirectionAdjacency(M, [[1], [-1], [0]])
        >>> print(one_moves.are_neighbours([3, 4, 7], [1, 6, 7]))
        no neighbours: the difference is 2 times direction 1 (counting from 1), more than once
        """
        raise AffineDPError(
            f"{type(self).__name__} does not say of two data sets whether they are neighbours: "
            "give it a method are_neighbours"
        )

    def sensitivity_by_entry(
        self, matrix: ArrayLike | sparse.sparray, norm: Norm
    ) -> tuple[Sensitivity, ...]:
        """Return the largest norm of ``matrix @ v`` over the neighbours that one entry makes.

        With ``matrix = Λ⁺F`` these are the paper's Δ_i (times μ_i), whose largest is
        :meth:`sensitivity`: they say which entry sets the noise.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.

        Returns
        -------
        tuple of Sensitivity
            One per entry; 0 for an entry that never moves first.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -4]])                  # Example 1 of the paper, k = 4
        >>> found = adp.CircuitAdjacency(M).sensitivity_by_entry([[1, 0], [0, 1]], norm=1)
        >>> [one.value for one in found]                       # 1 + 1/k and 1 + k
        [1.25, 5.0]
        """
        raise AffineDPError(
            "given directions do not say which entry moves first, so there is no sensitivity by "
            "entry. Ask for sensitivity, or use CircuitAdjacency or FreeSetAdjacency"
        )

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


class MeasuredAdjacency(Adjacency):
    """Neighbours whose directions are measured in floating point, and where it counts exactly."""

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over the neighbour directions v.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.

        Returns
        -------
        Sensitivity
        """
        check_norm(norm)
        return self.measured(self.checked_matrix(matrix), norm, None)

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return the same for a matrix of rational numbers.

        Parameters
        ----------
        matrix : ExactMatrix
            One column for each entry.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        return self.measured(matrix.floats(self.manifold.n), norm, matrix)

    @abstractmethod
    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        """Return the largest norm over the directions.

        Parameters
        ----------
        matrix : array or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours, in floating point.
        norm : {1, 2}
            Which norm.
        numbers : ExactMatrix or None
            The same matrix in rational numbers; None if the floats are what is meant.
        """


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


def alone(mu: FloatArray, entries: Container[int]) -> Iterator[FloatArray | None]:
    """Yield, for every entry, the μ of that entry alone; None where it never moves first."""
    for i, reach in enumerate(mu):
        only = np.zeros_like(mu)
        only[i] = reach
        yield only if reach and i in entries else None


def still(n: int) -> Sensitivity:
    """Return the sensitivity to an entry that never moves first."""
    return Sensitivity(0.0, 0.0, True, "does not move first", np.zeros(n))


def checked_unit(unit: str | None) -> str | None:
    """Return what moves between neighbours, if it was said, in words that a ledger can keep."""
    if unit is None:
        return None
    if not isinstance(unit, str) or not unit.isprintable() or not 0 < len(unit.strip()) <= 200:
        raise AffineDPError(
            f"unit must say in a few words what moves between neighbours, not {unit!r:.60}"
        )
    return unit.strip()


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
