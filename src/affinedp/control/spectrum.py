"""The least stationary noise for private inputs, frequency by frequency.

Noise with spectrum S costs ``∫ tr(Q S)``, and a pattern δ of changes moves what is sent by
``∫ (H δ̂)* S⁻¹ (H δ̂)`` in squared units of the noise.  For any distribution on patterns, with
``P = E δ̂ δ̂*``, no stationary noise of sensitivity s costs less than
``(∫ tr (Q^½ H P H* Q^½)^½)² / s²``, and ``S ∝ Q^-½ (Q^½ H P H* Q^½)^½ Q^-½`` attains it for the P
that maximises it.  For one input and one output that is ``S ∝ |H|``.  Every iterate gives a bound
and noise that keeps the promise; no promise rests on any of this, since the filter is certified by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.exact.systems import ComplexArray, LinearSystem
from affinedp.neighbours.inputs import Inputs

# Frequencies: enough for the slowest pole, but not more.
LEAST_POINTS, MOST_POINTS = 1 << 11, 1 << 16
COARSE_POINTS = 1 << 11
MOST_ITERATIONS = 600
GAP = 1e-5
# Spectra are kept above this share of their mean: where H is zero noise has none of its own.
FLOOR = 1e-5
# Steps of a horizon whose best response is computed, and points at which it is looked at.
MOST_TAPS, MOST_BITS = 20_000, 22
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class LeastSpectrum:
    """What no stationary noise goes below, and the spectra that come close."""

    bound: float
    resolved: bool
    gap: float
    output: ComplexArray
    input: ComplexArray | None


def least_spectrum(neighbours: Inputs, weight: LinearSystem) -> LeastSpectrum:
    """Return the least cost of stationary noise, and its spectrum.

    Examples
    --------
    >>> from affinedp.neighbours.inputs import private_inputs
    >>> room = private_inputs(([[0.99]], [[0.9]], [[1.0]]), mu=1.0)
    >>> round(least_spectrum(room, LinearSystem.static(np.eye(1))).bound, 3)      # (∫|H|)²
    3.699
    """
    wanted = _wanted(neighbours, weight)
    points = min(MOST_POINTS, 1 << int(np.ceil(np.log2(wanted))))
    coarse = _Problem.of(neighbours, weight, min(points, COARSE_POINTS))
    weights, patterns = _iterated(coarse, neighbours)
    problem = coarse if points <= COARSE_POINTS else _Problem.of(neighbours, weight, points)
    step = problem.step(weights, patterns)
    return LeastSpectrum(
        step.bound**2,
        wanted <= MOST_POINTS,
        step.worst / step.bound - 1,
        problem.output(step),
        problem.input(step),
    )


# Weights of the outputs that make the largest variance least: how often they are made better, how
# fast, and how near is near.
MOST_ROUNDS, FAST, NEAR = 12, 2.0, 1.002


def least_largest_spectra(neighbours: Inputs) -> list[LeastSpectrum]:
    """Return noise whose largest variance of an output is small, with a bound on the least.

    The first is the noise of the least sum, the last that of nearly the least largest variance: a
    filter may come nearer to the one than to the other.  For weights of the outputs that sum to one
    the largest variance is at least the weighted one, so the least weighted one is a bound.
    Weights grow where the variance is large.
    """
    p = neighbours.domain.system.outputs
    spectra: list[LeastSpectrum] = []
    weights, bound, least = np.full(p, 1 / p), 0.0, np.inf
    for _ in range(MOST_ROUNDS):
        found = least_spectrum(neighbours, LinearSystem.static(np.diag(np.sqrt(weights))))
        spread = np.diagonal(found.output, axis1=1, axis2=2).real.mean(axis=0)
        variances = spread * (1 + found.gap) * np.sqrt(found.bound)
        bound = max(bound, found.bound)
        if variances.max() < least:
            spectra, least = [*spectra[:1], found], float(variances.max())
        if least <= NEAR * bound or p == 1:
            break
        weights = weights * (variances / variances.max()) ** FAST
        weights = np.maximum(weights / weights.sum(), 1e-5)
        weights = weights / weights.sum()
    return [replace(one, bound=bound) for one in spectra]


@dataclass(frozen=True, eq=False)
class SquareRoot:
    """Noise over a horizon whose largest variance is the least of all filters'."""

    taps: FloatArray  # its impulse response; shape (steps, 1, 1)
    bound: float  # the least largest variance, times the squared sensitivity, rounded down


def square_root_response(neighbours: Inputs) -> SquareRoot | None:
    """Return the impulse response s with ``s ∗ s = h`` over a horizon, where no filter does better.

    One fresh number a step and a filter g, at rest: the largest variance is ``‖g‖²``, the last, and
    an impulse at the first step moves the numbers by d with ``g ∗ d = μ h`` over the horizon n.  By
    Cauchy and Schwarz ``‖g‖ ‖d‖`` is at least the mean of ``|f|`` over the unit circle, f = g d.
    Let s be a polynomial without zeros in the closed unit disc whose square is h up to a remainder
    r over the horizon, and s* the same with its coefficients in reverse.  Then s*/s is analytic and
    of modulus one on the circle, so that ``mean |f|`` is at least coefficient n − 1 of ``f s*/s``,
    which is ``μ (‖s‖² − …)`` with at most ``Σ |r|`` for the rest.  (Landau's argument: for the
    integrator ‖s‖² is his constant, and s is optimal.)  None for several inputs, and where s has a
    zero in the disc or may have one.

    Examples
    --------
    >>> from affinedp.neighbours.inputs import private_inputs
    >>> sums = private_inputs(([[1.0]], [[1.0]], [[1.0]], [[1.0]]), mu=1.0, horizon=3)
    >>> square_root_response(sums).taps.ravel().tolist()
    [1.0, 0.5, 0.375]
    >>> round(square_root_response(sums).bound, 9), (1 + 0.5**2 + 0.375**2) ** 2
    (1.933837891, 1.933837890625)
    """
    system, horizon = neighbours.domain.system, int(neighbours.domain.horizon or 1)
    if system.inputs > 1 or system.outputs > 1:
        return None
    response = system.impulse(min(horizon, neighbours.steps_to_remember + 1)).ravel()
    shown = np.flatnonzero(response)
    if not len(shown) or len(response) - shown[0] > MOST_TAPS:
        return None
    h = response[shown[0] :] / response[shown[0]]  # a delay costs nothing
    root = np.ones(len(h))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(1, len(h)):
            root[k] = (h[k] - root[1:k] @ root[k - 1 : 0 : -1]) / 2
        if not np.isfinite(root @ root) or not _without_zeros(root):
            return None
        rest = np.convolve(root, root)[: len(h)] - h
        size = np.convolve(np.abs(root), np.abs(root))[: len(h)]
    off = float(np.abs(rest).sum() + 4 * len(h) * EPS * size.sum())
    least = max(0.0, float(root @ root) * (1 - 1e-12) - off)
    scale = float(neighbours.mu[0] * abs(response[shown[0]]))
    return SquareRoot(root[:, None, None], (scale * least) ** 2)


def _without_zeros(polynomial: FloatArray) -> bool:
    """Whether a polynomial certainly has no zero in the closed unit disc."""
    steepest = float(np.abs(polynomial) @ np.arange(len(polynomial)))
    for bits in range(12, MOST_BITS):
        points = 1 << bits
        if points < len(polynomial):
            continue
        values = np.fft.fft(polynomial, points)
        # between two points it moves by less than this, and less than what keeps it off zero
        if np.abs(values).min() > 1.1 * np.pi / points * steepest + 1e-9:
            turned = np.angle(np.roll(values, -1) / values).sum()
            return bool(abs(turned) < 1)
    return False


def _wanted(neighbours: Inputs, weight: LinearSystem) -> float:
    """How many frequencies the slowest pole needs."""
    slowest = 1 - max(neighbours.domain.system.radius, weight.radius, 0.9)
    return max(LEAST_POINTS, 32 / max(slowest, 1e-12), 8 * (neighbours.window or 1))


@dataclass(frozen=True, eq=False)
class _Step:
    """One distribution on patterns."""

    bound: float  # ∫ tr (Q^½ H P H* Q^½)^½
    worst: float  # the largest constraint, for noise of that cost
    values: FloatArray  # what each input's own pattern does
    powers: FloatArray  # (points, m): P, which is diagonal
    matrices: list[FloatArray]  # what every pattern of the window does, per input
    middle: tuple[ComplexArray, FloatArray]  # U and Σ of Q^½ H P^½ = U Σ V*


@dataclass(frozen=True, eq=False)
class _Problem:
    response: ComplexArray  # H, (points, p, m)
    root: ComplexArray  # Q^½, (points, p, p)
    mu: FloatArray

    @classmethod
    def of(cls, neighbours: Inputs, weight: LinearSystem, points: int) -> _Problem:
        seen = (
            weight.spectrum(points)
            if weight.order
            else np.broadcast_to(weight.D.astype(complex), (1, *weight.D.shape))
        )
        square = seen.conj().transpose(0, 2, 1) @ seen
        values, vectors = np.linalg.eigh(square)
        values = np.maximum(values, 1e-6 * values.max())
        root = (vectors * np.sqrt(values)[:, None, :]) @ vectors.conj().transpose(0, 2, 1)
        whole = np.broadcast_to(root, (points, *root.shape[1:]))
        return cls(neighbours.domain.system.spectrum(points), whole, neighbours.mu)

    def step(self, weights: FloatArray, patterns: list[FloatArray]) -> _Step:
        points = len(self.response)
        seen = np.array([np.abs(np.fft.fft(b, points)) ** 2 for b in patterns]).T
        powers = np.maximum(seen, 1e-12) * weights * self.mu**2
        K = self.root @ self.response * np.sqrt(powers)[:, None, :]
        left, sizes, turned = np.linalg.svd(K, full_matrices=False)
        bound = float(sizes.sum(axis=1).mean())
        # [K* (KK*)^-½ K]_ii: what input i does with its pattern, by frequency
        shares = np.einsum("nki,nk,nki->ni", turned.conj(), sizes, turned).real
        matrices, values, worst = [], [], 0.0
        for i, pattern in enumerate(patterns):
            density = shares[:, i] / powers[:, i] * self.mu[i] ** 2
            lags = np.fft.ifft(density).real[: len(pattern)]
            matrix = _toeplitz(lags)
            matrices.append(matrix)
            values.append(float(pattern @ matrix @ pattern))
            worst = max(worst, float(np.linalg.eigvalsh(matrix)[-1]))
        return _Step(bound, worst, np.array(values), powers, matrices, (left, sizes))

    def output(self, step: _Step) -> ComplexArray:
        """Q^-½ (Q^½ H P H* Q^½)^½ Q^-½, with a floor."""
        left, sizes = step.middle
        middle = (left * sizes[:, None, :]) @ left.conj().transpose(0, 2, 1)
        back = np.linalg.inv(self.root)
        return _raised(back @ middle @ back)

    def input(self, step: _Step) -> ComplexArray | None:
        """K^-½ (K^½ P K^½)^½ K^-½ with K = H* Q H, where no output is missing."""
        if self.response.shape[2] > self.response.shape[1]:
            return None
        seen = self.root @ self.response
        square = seen.conj().transpose(0, 2, 1) @ seen
        root = _root(_raised(square))
        middle = _root((root * step.powers[:, None, :]) @ root)
        back = np.linalg.inv(root)
        return _raised(back @ middle @ back)


def _iterated(problem: _Problem, neighbours: Inputs) -> tuple[FloatArray, list[FloatArray]]:
    """Weights of the inputs and patterns of their windows that make the bound large."""
    m, length = len(neighbours.mu), neighbours.window or 1
    weights = np.full(m, 1 / m)
    patterns = [np.eye(1, length)[0] for _ in range(m)]
    if length > 1:
        first = problem.step(weights, patterns)
        patterns = [np.linalg.eigh(matrix)[1][:, -1] for matrix in first.matrices]
    for _ in range(MOST_ITERATIONS):
        step = problem.step(weights, patterns)
        if step.worst <= step.bound * (1 + GAP):
            break
        if length > 1:
            patterns = [_unit(matrix @ b, b) for matrix, b in zip(step.matrices, patterns)]
        weights = weights * step.values / step.bound
        weights = np.maximum(weights / weights.sum(), 1e-12)
    return weights, patterns


def _unit(moved: FloatArray, before: FloatArray) -> FloatArray:
    """A vector of length one; the one before for an input that does nothing."""
    length = np.linalg.norm(moved)
    return moved / length if length > 0 else before


def _toeplitz(lags: FloatArray) -> FloatArray:
    places = np.arange(len(lags))
    return np.asarray(lags[np.abs(places[:, None] - places)])


def _root(square: ComplexArray) -> ComplexArray:
    values, vectors = np.linalg.eigh(square)
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return np.asarray(scaled @ vectors.conj().transpose(0, 2, 1))


def _raised(square: ComplexArray) -> ComplexArray:
    """No eigenvalue below a share of the mean."""
    values, vectors = np.linalg.eigh((square + square.conj().transpose(0, 2, 1)) / 2)
    kept = np.maximum(values, FLOOR * float(values.mean()))
    return np.asarray((vectors * kept[:, None, :]) @ vectors.conj().transpose(0, 2, 1))
