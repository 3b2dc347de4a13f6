"""Linear systems ``ξ(t+1) = A ξ + B v``, ``out = C ξ + D v``, in doubles and exactly, and proofs.

How much does an impulse do, and how fast does a system forget?  Let d be the response of a filter
(A, B, C, D) to an impulse.  If ``X ≻ 0`` and ``X − AᵀXA − CᵀC ≻ 0``, then along ``ξ(t+1) = A ξ(t)``
the number ``ξᵀXξ`` falls by at least ``‖Cξ‖²`` at every step, so that ``Σ_t ‖C Aᵗ b‖² ≤ bᵀXb``; and
as both are strict, A is stable.  X comes from floating point and is not trusted: both conditions
are decided in integers (:func:`~affinedp.exact.rational.positive_definite`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import rounded_up
from affinedp.exact.rational import RationalMatrix, positive_definite
from affinedp.parts import Part, frozen

ComplexArray = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class LinearSystem(Part):
    """A linear system in doubles: a plant, or a filter that colours noise."""

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

    def __repr__(self) -> str:
        shape = f"order={self.order}, inputs={self.inputs}, outputs={self.outputs}"
        return f"LinearSystem({shape})"

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
        return doubled_sum(self.A, self.B @ self.B.T, steps)

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


def doubled_sum(A: FloatArray, Q: FloatArray, steps: int) -> FloatArray:
    """Return ``Σ_{t<steps} Aᵗ Q (Aᵗ)ᵀ`` in log₂(steps) products."""
    total, shift = np.zeros_like(A), np.eye(len(A))
    while steps:
        if steps & 1:
            total, shift = total + shift @ Q @ shift.T, A @ shift
        steps >>= 1
        if steps:
            Q, A = Q + A @ Q @ A.T, A @ A
    return total


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


# ---------------------------------------------------------------------- proofs


# How much is added to make X strict, relative to its scaled size: the first that passes is taken.
SLACKS = tuple(10.0**k for k in range(-13, -1))
# How often units of coordinates are chosen again.
MOST_UNITS = 10
# A larger memory than this is not certified.
MOST_STATES = 120
# Rounding of eigenvalues and products in double precision, with room to spare.
ROUNDING = 1e-11


@dataclass(frozen=True, eq=False)
class Energy:
    """A proof of how much an impulse can do."""

    system: ExactSystem
    X: RationalMatrix

    def of(self, i: int) -> Fraction:
        """Return a bound on the energy of the response to a unit impulse on input i."""
        b = RationalMatrix(self.system.B.values[:, i : i + 1], self.system.B.over)
        d = RationalMatrix(self.system.D.values[:, i : i + 1], self.system.D.over)
        return (b.T @ self.X @ b).entry(0, 0) + (d.T @ d).entry(0, 0)

    def later(self, i: int, steps: int) -> float:
        """Return a bound on the energy that is still to come some steps after the impulse."""
        system, X = self.system.floats(), self.X.floats()
        state = np.linalg.matrix_power(system.A, steps - 1) @ system.B[:, i]
        return float(state @ X @ state) * (1 + 1e-9) + ROUNDING * rounded_up(self.of(i))


def energy_certificate(system: ExactSystem) -> Energy:
    """Return a proof of the energy of a filter's impulse responses, and of its stability."""
    n = system.A.shape[0]
    if n > MOST_STATES:
        raise AffineDPError(
            f"plant and noise filter have {n} states together; at most {MOST_STATES} are certified"
        )
    if n == 0:
        return Energy(system, RationalMatrix.of(np.zeros((0, 0))))
    A, C = system.A.floats(), system.C.floats()
    if not LinearSystem(A, system.B.floats(), C, system.D.floats()).radius < 1:
        raise AffineDPError("the response to an impulse does not die out")
    outputs = system.C.T @ system.C
    units = _units(A, C)
    for slack in SLACKS:
        X = _candidate(A, C, units, slack)
        if X is None:
            continue
        given = RationalMatrix.of(X)
        if _proves(given, system.A, outputs):
            return Energy(system, given)
    raise AffineDPError(
        "no certificate was found: the response to an impulse lasts too long, or units differ too "
        "much, for double precision"
    )


def _proves(X: RationalMatrix, A: RationalMatrix, outputs: RationalMatrix) -> bool:
    return positive_definite(X) and positive_definite(X - A.T @ X @ A - outputs)


def _units(A: FloatArray, C: FloatArray) -> FloatArray:
    """Powers of two that make the diagonal of X about one; changing to them is exact.

    What is added makes X positive, and hides how small a coordinate is: so again in the new units.
    """
    units = np.ones(len(A))
    for _ in range(MOST_UNITS):
        seen = C * units
        size = np.abs(seen).max(initial=0.0) ** 2
        added = np.eye(len(A)) * (1e-6 * size + 1e-280)
        X = lyapunov((A * units / units[:, None]).T, seen.T @ seen + added)
        diagonal = np.sqrt(np.maximum(np.diagonal(X), 1e-280))
        again = np.ldexp(1.0, -np.frexp(diagonal)[1])
        units = units * again
        if again.max() <= 2 * again.min():
            break
    return np.asarray(units, dtype=np.float64)


def _candidate(A: FloatArray, C: FloatArray, units: FloatArray, slack: float) -> FloatArray | None:
    """X of ``X = AᵀXA + CᵀC + slack``, solved in other units."""
    scaled, seen = A * units / units[:, None], C * units
    added = slack * max(float(np.trace(seen.T @ seen)) / len(A), 1e-280)
    try:
        X = lyapunov(scaled.T, seen.T @ seen + added * np.eye(len(A)))
    except (np.linalg.LinAlgError, ValueError):
        return None
    if not np.all(np.isfinite(X)):
        return None
    return np.asarray((X + X.T) / 2 / units / units[:, None])


def window_energy(proof: Energy, i: int, length: int) -> float:
    """Return a bound on the energy of the response to any unit pattern of some steps on input i.

    The first ``length`` steps are put together in full, and what comes later is bounded by X: the
    largest eigenvalue of a matrix of that size.
    """
    if length == 1:
        return rounded_up(proof.of(i))
    states, seen = _responses(proof.system, i, length)
    X = proof.X.floats()
    p = seen.shape[1]
    # column j: the pattern's step j; rows: outputs at steps 0, …, length − 1
    table = np.zeros((length * p, length))
    for j in range(length):
        table[j * p :, j] = seen[: length - j].ravel()
    last = states[::-1].T  # what step j leaves at time `length`
    gram = table.T @ table + last.T @ X @ last
    size = np.abs(table).T @ np.abs(table) + np.abs(last).T @ np.abs(X) @ np.abs(last)
    spill = ROUNDING * float(np.linalg.norm(size))
    return float(np.linalg.eigvalsh((gram + gram.T) / 2)[-1]) + spill


def _responses(system: ExactSystem, i: int, length: int) -> tuple[FloatArray, FloatArray]:
    """States after 1, …, length steps and outputs at 0, …, length − 1, each rounded once."""
    bits = 256 + max(0, system.B.over.bit_length())
    state = [_fixed(int(v), system.B.over, bits) for v in system.B.values[:, i]]
    outputs = [system.D.floats()[:, i]]
    states = [np.array([_double(v, bits) for v in state])]
    C = system.C.floats()
    for _ in range(length - 1):
        outputs.append(C @ states[-1])
        moved = [int(sum(a * x for a, x in zip(row, state))) for row in system.A.values]
        state = [_fixed(v, system.A.over, 0) for v in moved]
        states.append(np.array([_double(v, bits) for v in state]))
    return np.array(states), np.array(outputs)


def _fixed(value: int, over: int, bits: int) -> int:
    return (value << bits) // over


def _double(value: int, bits: int) -> float:
    return float(Fraction(value, 1 << bits))


@dataclass(frozen=True, eq=False)
class Start:
    """A proof that a draw covers all that happened before the start."""

    covariance: RationalMatrix
    root: FloatArray


def start_certificate(noise: ExactSystem) -> Start:
    """Return the draw of a noise filter's memory with which it starts.

    An event k steps before the start moves the memory by ``a = Σ A^(k−1−t) B d(t)``, and
    ``aᵀP⁻¹a ≤ Σ_(t<k) ‖d(t)‖²``.
    """
    P = energy_certificate(noise.transposed()).X
    n = P.shape[0]
    if n == 0:
        return Start(P, np.zeros((0, 0)))
    near = P.floats()
    for share in (1e-14, 1e-12, 1e-10, 1e-8, 1e-6):
        try:
            more = near + share * np.diag(np.diagonal(near))
            root: FloatArray = np.asarray(np.linalg.cholesky(more), dtype=np.float64)
        except np.linalg.LinAlgError:
            continue
        given = RationalMatrix.of(root)
        if positive_definite(given @ given.T - P):
            return Start(P, root)
    raise AffineDPError("the draw of the noise filter's memory could not be certified")


def checked_start(noise: ExactSystem, root: FloatArray) -> None:
    """Refuse a root that is too small for :func:`start_certificate`."""
    n = noise.A.shape[0]
    if root.shape != (n, n):
        raise AffineDPError(f"the start has shape {root.shape}, not {(n, n)}")
    given = RationalMatrix.of(root)
    covariance = given @ given.T
    if n == 0 or _proves(covariance, noise.A.T, noise.B @ noise.B.T):
        return
    # or it is at least a covariance that was proved to be enough
    if not positive_definite(covariance - energy_certificate(noise.transposed()).X):
        raise AffineDPError(
            "the noise starts with less than its stationary covariance: events before the start "
            "would not be covered"
        )


@dataclass(frozen=True)
class Decay:
    """How fast a filter forgets: in the norm of P⁻¹ its memory shrinks by √(1 − rate) a step."""

    covariance: FloatArray
    floor: float
    rate: float

    def reach(self, row: FloatArray) -> float:
        """Return a bound on ``Σ_k |row Aᵏ f|`` over all unit vectors f."""
        size = math.sqrt(float(row @ self.covariance @ row) / self.floor)
        return size / (1 - math.sqrt(1 - self.rate)) * (1 + ROUNDING)


def decay_certificate(A: RationalMatrix) -> Decay:
    """Return a proof of how fast a stable matrix forgets.

    Examples
    --------
    >>> decay_certificate(RationalMatrix.of(np.array([[0.5]]))).reach(np.array([1.0])) >= 2
    True
    """
    n = A.shape[0]
    if n == 0:
        return Decay(np.zeros((0, 0)), 1.0, 0.5)
    near = A.floats()
    radius = float(np.abs(np.linalg.eigvals(near)).max())
    for share in (4, 16, 64, 1024):
        rate = (1 - min(radius, 1.0) ** 2) / share
        if rate <= 0:
            break
        P = lyapunov(near / math.sqrt(1 - rate), np.eye(n))
        P = (P + P.T) / 2
        if not np.all(np.isfinite(P)):
            continue
        floor = 0.5
        given = RationalMatrix.of(P)
        kept = given.times(1 - Fraction(rate / 2)) - A @ given @ A.T
        above = given - RationalMatrix.identity(n).times(Fraction(floor))
        if positive_definite(kept) and positive_definite(above):
            return Decay(P, floor, rate / 2)
    raise AffineDPError("it could not be proved that the noise filter forgets")
