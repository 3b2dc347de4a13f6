"""How much an impulse does, how fast a system forgets: proofs in rational arithmetic.

Let d be the response of a filter (A, B, C, D) to an impulse.  If ``X ≻ 0`` and
``X − AᵀXA − CᵀC ≻ 0``, then along ``ξ(t+1) = A ξ(t)`` the number ``ξᵀXξ`` falls by at least
``‖Cξ‖²`` at every step, so that ``Σ_t ‖C Aᵗ b‖² ≤ bᵀXb``; and as both are strict, A is stable.
X comes from floating point and is not trusted: both conditions are decided in integers
(:func:`~affinedp.exact.rational.positive_definite`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.rational import RationalMatrix, positive_definite
from affinedp.exact.systems import ExactSystem, LinearSystem, lyapunov

# How much is added to make X strict, relative to its scaled size: the first that passes is taken.
SLACKS = tuple(10.0**k for k in range(-13, -1))
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
        return float(state @ X @ state) * (1 + 1e-9) + ROUNDING * upper(self.of(i))


def energy_certificate(system: ExactSystem) -> Energy:
    """Return a proof of the energy of a filter's impulse responses, and of its stability.

    Examples
    --------
    >>> proof = energy_certificate(LinearSystem([[0.5]], [[1.0]], [[1.0]], [[0.0]]).exact())
    >>> float(proof.of(0)) >= 4 / 3, round(float(proof.of(0)), 9)
    (True, 1.333333333)
    """
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
    """Powers of two that make the diagonal of X about one; changing to them is exact."""
    size = np.abs(C).max(initial=0.0) ** 2
    X = _solved(A, C.T @ C + np.eye(len(A)) * (1e-6 * size + 1e-280))
    diagonal = np.sqrt(np.maximum(np.diagonal(X), 1e-280))
    return np.ldexp(1.0, -np.frexp(diagonal)[1])


def _candidate(A: FloatArray, C: FloatArray, units: FloatArray, slack: float) -> FloatArray | None:
    """X of ``X = AᵀXA + CᵀC + slack``, solved in other units."""
    scaled, seen = A * units / units[:, None], C * units
    added = slack * max(float(np.trace(seen.T @ seen)) / len(A), 1e-280)
    try:
        X = _solved(scaled, seen.T @ seen + added * np.eye(len(A)))
    except (np.linalg.LinAlgError, ValueError):
        return None
    if not np.all(np.isfinite(X)):
        return None
    return np.asarray((X + X.T) / 2 / units / units[:, None])


def _solved(A: FloatArray, Q: FloatArray) -> FloatArray:
    return lyapunov(A.T, Q)


def window_energy(proof: Energy, i: int, length: int) -> float:
    """Return a bound on the energy of the response to any unit pattern of some steps on input i.

    The first ``length`` steps are put together in full, and what comes later is bounded by X: the
    largest eigenvalue of a matrix of that size.
    """
    if length == 1:
        return upper(proof.of(i))
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
        P = _solved(near.T / math.sqrt(1 - rate), np.eye(n))
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


def upper(value: Fraction) -> float:
    """Return a double that is at least this number."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
