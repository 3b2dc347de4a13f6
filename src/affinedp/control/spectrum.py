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

from dataclasses import dataclass

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
        _, sizes, turned = np.linalg.svd(K, full_matrices=False)
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
        return _Step(bound, worst, np.array(values), powers, matrices)

    def output(self, step: _Step) -> ComplexArray:
        """Q^-½ (Q^½ H P H* Q^½)^½ Q^-½, with a floor."""
        K = self.root @ self.response * np.sqrt(step.powers)[:, None, :]
        left, sizes, _ = np.linalg.svd(K, full_matrices=False)
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
            moved = [matrix @ b for matrix, b in zip(step.matrices, patterns)]
            patterns = [b / np.linalg.norm(b) for b in moved]
        weights = weights * step.values / step.bound
        weights = np.maximum(weights / weights.sum(), 1e-12)
    return weights, patterns


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
