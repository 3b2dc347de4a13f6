"""Linear filters ``ξ(t+1) = A ξ + B v``, ``out = C ξ + D v``, in doubles and exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.rational import RationalMatrix

ComplexArray = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Filter:
    """A linear filter in doubles.

    Attributes
    ----------
    A, B, C, D : arrays, shapes (n, n), (n, k), (p, n), (p, k)
        The matrices.

    Examples
    --------
    >>> half = Filter.of([[0.5]], [[1.0]], [[1.0]], [[1.0]])
    >>> half.impulse(4).ravel().tolist(), half.inverse().impulse(4).ravel().tolist()
    ([1.0, 1.0, 0.5, 0.25], [1.0, -1.0, 0.5, -0.25])
    """

    A: FloatArray = field(repr=False)
    B: FloatArray = field(repr=False)
    C: FloatArray = field(repr=False)
    D: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        for matrix in (self.A, self.B, self.C, self.D):
            matrix.flags.writeable = False

    @classmethod
    def of(cls, A: object, B: object, C: object, D: object) -> Filter:
        """Return a filter with matrices of its own.

        Parameters
        ----------
        A, B, C, D : array_like
            The matrices.
        """
        return cls(*(np.array(matrix, dtype=float) for matrix in (A, B, C, D)))

    @classmethod
    def static(cls, D: FloatArray) -> Filter:
        """Return a filter without memory.

        Parameters
        ----------
        D : array, shape (p, k)
            Its gain.
        """
        p, k = D.shape
        return cls(np.zeros((0, 0)), np.zeros((0, k)), np.zeros((p, 0)), np.array(D, dtype=float))

    @property
    def order(self) -> int:
        """How many numbers it remembers."""
        return len(self.A)

    @property
    def inputs(self) -> int:
        """How many numbers enter at a step."""
        return int(self.D.shape[1])

    @property
    def outputs(self) -> int:
        """How many numbers leave at a step."""
        return int(self.D.shape[0])

    @property
    def radius(self) -> float:
        """Largest modulus of the poles; 0 without memory."""
        return float(np.abs(np.linalg.eigvals(self.A)).max()) if self.order else 0.0

    def inverse(self) -> Filter:
        """Return the filter that undoes this one; D must be square and nonsingular."""
        D: FloatArray = np.asarray(np.linalg.inv(self.D), dtype=np.float64)
        return Filter(self.A - self.B @ D @ self.C, self.B @ D, -D @ self.C, D)

    def after(self, first: Filter) -> Filter:
        """Return the series ``self ∘ first``, unreduced.

        Parameters
        ----------
        first : Filter
            What acts first.
        """
        nothing = np.zeros((first.order, self.order))
        return Filter(
            np.block([[first.A, nothing], [self.B @ first.C, self.A]]),
            np.vstack([first.B, self.B @ first.D]),
            np.hstack([self.D @ first.C, self.C]),
            self.D @ first.D,
        )

    def scaled(self, factor: float) -> Filter:
        """Return the filter for a larger input: B and D times a factor.

        Parameters
        ----------
        factor : float
            A power of two, where the result must be exact.
        """
        return Filter(self.A, self.B * factor, self.C, self.D * factor)

    def impulse(self, steps: int) -> FloatArray:
        """Return the response to a unit impulse, shape (steps, p, k).

        Parameters
        ----------
        steps : int
            How many.
        """
        found = np.empty((steps, *self.D.shape))
        state = self.B
        for t in range(steps):
            found[t] = self.C @ state if t else self.D
            state = self.A @ state if t else state
        return found

    def covariance(self) -> FloatArray:
        """Return the stationary covariance of the memory under unit white noise."""
        if not self.order:
            return np.zeros((0, 0))
        return lyapunov(self.A, self.B @ self.B.T)

    def output_covariance(self) -> FloatArray:
        """Return the stationary covariance of the output under unit white noise."""
        return np.asarray(self.C @ self.covariance() @ self.C.T + self.D @ self.D.T)

    def energies(self) -> FloatArray:
        """Return the energy of the response to a unit impulse on each input, shape (k,)."""
        turned = Filter(self.A.T, self.C.T, self.B.T, self.D.T)
        return np.asarray(np.diagonal(turned.output_covariance()))

    def spectrum(self, points: int) -> ComplexArray:
        """Return the response at z = exp(2πi j/points), complex, shape (points, p, k).

        Parameters
        ----------
        points : int
            How many frequencies.
        """
        z = np.exp(2j * np.pi * np.arange(points) / points)
        found = np.empty((points, *self.D.shape), dtype=complex)
        chunk = max(1, 2_000_000 // max(1, self.order**2))
        for start in range(0, points, chunk):
            part = z[start : start + chunk, None, None] * np.eye(self.order) - self.A
            found[start : start + chunk] = self.C @ np.linalg.solve(part, self.B[None]) + self.D
        return found

    def exact(self) -> ExactFilter:
        """Return the same filter with its doubles as exact numbers."""
        return ExactFilter(
            *(RationalMatrix.of(matrix) for matrix in (self.A, self.B, self.C, self.D))
        )


def lyapunov(A: FloatArray, Q: FloatArray) -> FloatArray:
    """Return X with ``X = A X Aᵀ + Q``, as well as double precision can.

    Parameters
    ----------
    A, Q : arrays, shape (n, n)
        A stable matrix, and a symmetric one.
    """
    import warnings

    from scipy.linalg import LinAlgWarning, solve_discrete_lyapunov

    with warnings.catch_warnings():  # nothing rests on it: whoever needs certainty proves it
        warnings.simplefilter("ignore", LinAlgWarning)
        return np.asarray(solve_discrete_lyapunov(A, Q))


@dataclass(frozen=True, eq=False)
class ExactFilter:
    """A linear filter with rational numbers.

    Attributes
    ----------
    A, B, C, D : RationalMatrix
        The matrices.
    """

    A: RationalMatrix
    B: RationalMatrix
    C: RationalMatrix
    D: RationalMatrix

    def inverse(self) -> ExactFilter:
        """Return the filter that undoes this one."""
        D = self.D.inverse()
        if D is None:
            raise AffineDPError("the noise filter passes some direction of its input on late")
        gain = self.B @ D
        return ExactFilter(self.A - gain @ self.C, gain, -(D @ self.C), D)

    def after(self, first: ExactFilter) -> ExactFilter:
        """Return the series ``self ∘ first``, unreduced.

        Parameters
        ----------
        first : ExactFilter
            What acts first.
        """
        nothing = RationalMatrix.zeros(first.A.shape[0], self.A.shape[0])
        return ExactFilter(
            RationalMatrix.block([[first.A, nothing], [self.B @ first.C, self.A]]),
            RationalMatrix.block([[first.B], [self.B @ first.D]]),
            RationalMatrix.block([[self.D @ first.C, self.C]]),
            self.D @ first.D,
        )

    def transposed(self) -> ExactFilter:
        """Return the filter with inputs and outputs exchanged."""
        return ExactFilter(self.A.T, self.C.T, self.B.T, self.D.T)

    def floats(self) -> Filter:
        """Return the nearest filter in doubles."""
        return Filter(*(matrix.floats() for matrix in (self.A, self.B, self.C, self.D)))
