"""Linear systems ``ξ(t+1) = A ξ + B v``, ``out = C ξ + D v``, in doubles and exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.rational import RationalMatrix
from affinedp.parts import Part, frozen

ComplexArray = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class LinearSystem(Part):
    """A linear system in doubles: a plant, or a filter that colours noise.

    Examples
    --------
    >>> half = LinearSystem([[0.5]], [[1.0]], [[1.0]], [[1.0]])
    >>> half.impulse(4).ravel().tolist(), half.inverse().impulse(4).ravel().tolist()
    ([1.0, 1.0, 0.5, 0.25], [1.0, -1.0, 0.5, -0.25])
    """

    kind = "linear system"
    A: FloatArray = field(repr=False)
    B: FloatArray = field(repr=False)
    C: FloatArray = field(repr=False)
    D: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        for name in "ABCD":
            object.__setattr__(self, name, frozen(np.asarray(getattr(self, name), dtype=float)))
        n, p, k = len(self.A), *np.shape(self.D)
        if (self.A.shape, self.B.shape, self.C.shape) != ((n, n), (n, k), (p, n)) or not p * k:
            raise AffineDPError("the matrices of a linear system do not fit together")

    @classmethod
    def static(cls, D: FloatArray) -> LinearSystem:
        """Return a system without memory, of which D is the gain."""
        p, k = D.shape
        return cls(np.zeros((0, 0)), np.zeros((0, k)), np.zeros((p, 0)), D)

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

    def inverse(self) -> LinearSystem:
        """Return the filter that undoes this one; D must be square and nonsingular."""
        D: FloatArray = np.asarray(np.linalg.inv(self.D), dtype=np.float64)
        return LinearSystem(self.A - self.B @ D @ self.C, self.B @ D, -D @ self.C, D)

    def after(self, first: LinearSystem) -> LinearSystem:
        """Return the series ``self ∘ first``, unreduced."""
        nothing = np.zeros((first.order, self.order))
        return LinearSystem(
            np.block([[first.A, nothing], [self.B @ first.C, self.A]]),
            np.vstack([first.B, self.B @ first.D]),
            np.hstack([self.D @ first.C, self.C]),
            self.D @ first.D,
        )

    def scaled(self, factor: float) -> LinearSystem:
        """Return the filter for a larger input: B and D times a factor."""
        return LinearSystem(self.A, self.B * factor, self.C, self.D * factor)

    def impulse(self, steps: int) -> FloatArray:
        """Return the response to a unit impulse, shape (steps, p, k)."""
        found = np.empty((steps, *self.D.shape))
        state = self.B
        for t in range(steps):
            found[t] = self.C @ state if t else self.D
            state = self.A @ state if t else state
        return found

    def covariance(self, steps: int | None = None) -> FloatArray:
        """Return the memory's covariance under unit white noise, stationary or after some steps."""
        if not self.order:
            return np.zeros((0, 0))
        if steps is None:
            return lyapunov(self.A, self.B @ self.B.T)
        found, shift = np.zeros_like(self.A), np.eye(self.order)
        doubled, power = self.B @ self.B.T, self.A
        while steps:
            if steps & 1:
                found, shift = found + shift @ doubled @ shift.T, power @ shift
            doubled, power, steps = doubled + power @ doubled @ power.T, power @ power, steps >> 1
        return found

    def output_covariance(self, steps: int | None = None) -> FloatArray:
        """Return the output's covariance under unit white noise, stationary or at the last step."""
        memory = self.covariance(None if steps is None else max(steps - 1, 0))
        return np.asarray(self.C @ memory @ self.C.T + self.D @ self.D.T)

    def energies(self, steps: int | None = None) -> FloatArray:
        """Return the energy of the response to a unit impulse on each input, over some steps."""
        turned = LinearSystem(self.A.T, self.C.T, self.B.T, self.D.T)
        return np.asarray(np.diagonal(turned.output_covariance(steps)))

    def spectrum(self, points: int) -> ComplexArray:
        """Return the response at z = exp(2πi j/points), complex, shape (points, p, k)."""
        z = np.exp(2j * np.pi * np.arange(points) / points)
        found = np.empty((points, *self.D.shape), dtype=complex)
        chunk = max(1, 2_000_000 // max(1, self.order**2))
        for start in range(0, points, chunk):
            part = z[start : start + chunk, None, None] * np.eye(self.order) - self.A
            found[start : start + chunk] = self.C @ np.linalg.solve(part, self.B[None]) + self.D
        return found

    @property
    def matrices(self) -> tuple[FloatArray, ...]:
        """A, B, C and D."""
        return self.A, self.B, self.C, self.D

    def exact(self) -> ExactSystem:
        """Return the same system with its doubles as exact numbers."""
        return ExactSystem(*map(RationalMatrix.of, self.matrices))


def lyapunov(A: FloatArray, Q: FloatArray) -> FloatArray:
    """Return X with ``X = A X Aᵀ + Q``, as well as double precision can."""
    import warnings

    from scipy.linalg import LinAlgWarning, solve_discrete_lyapunov

    with warnings.catch_warnings():  # nothing rests on it: whoever needs certainty proves it
        warnings.simplefilter("ignore", LinAlgWarning)
        return np.asarray(solve_discrete_lyapunov(A, Q))


@dataclass(frozen=True, eq=False)
class ExactSystem:
    """A linear filter with rational numbers."""

    A: RationalMatrix
    B: RationalMatrix
    C: RationalMatrix
    D: RationalMatrix

    def inverse(self) -> ExactSystem:
        """Return the filter that undoes this one."""
        D = self.D.inverse()
        if D is None:
            raise AffineDPError("the noise filter passes some direction of its input on late")
        gain = self.B @ D
        return ExactSystem(self.A - gain @ self.C, gain, -(D @ self.C), D)

    def after(self, first: ExactSystem) -> ExactSystem:
        """Return the series ``self ∘ first``, unreduced."""
        nothing = RationalMatrix.zeros(first.A.shape[0], self.A.shape[0])
        return ExactSystem(
            RationalMatrix.block([[first.A, nothing], [self.B @ first.C, self.A]]),
            RationalMatrix.block([[first.B], [self.B @ first.D]]),
            RationalMatrix.block([[self.D @ first.C, self.C]]),
            self.D @ first.D,
        )

    def transposed(self) -> ExactSystem:
        """Return the filter with inputs and outputs exchanged."""
        return ExactSystem(self.A.T, self.C.T, self.B.T, self.D.T)

    @property
    def matrices(self) -> tuple[RationalMatrix, ...]:
        """A, B, C and D."""
        return self.A, self.B, self.C, self.D

    def floats(self) -> LinearSystem:
        """Return the nearest system in doubles."""
        return LinearSystem(*(matrix.floats() for matrix in self.matrices))
