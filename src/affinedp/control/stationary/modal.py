"""Scalar filters by their poles: a form with few, exact numbers that can be improved step by step.

A real pole λ is a block ``[λ]`` with input 1, a pair re ± i·im the block ``[[re, −im], [im, re]]``
with input (1, 0); D is 1.  Poles and gains are multiples of 2⁻⁴⁸, so that the whitening filter
``A − B C`` consists of doubles exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.exact.systems import LinearSystem

GRID = 2.0**48
# What a filter costs that is not stable, or whose inverse is not.
REFUSED = 1e6


@dataclass(frozen=True, eq=False)
class Modal:
    """A scalar filter by poles and gains."""

    reals: FloatArray
    pairs: FloatArray
    gains: FloatArray

    @classmethod
    def of(cls, given: LinearSystem) -> Modal:
        """Return a scalar filter, scaled to D = 1, by its poles."""
        poles, vectors = np.linalg.eig(given.A)
        residues = (given.C @ vectors).ravel() * np.linalg.solve(vectors, given.B).ravel()
        residues = residues / given.D[0, 0]
        real = np.abs(poles.imag) < 1e-13
        upper = poles.imag >= 1e-13
        gains = [residues[real].real]
        gains.append(np.column_stack([2 * residues[upper].real, -2 * residues[upper].imag]).ravel())
        pairs = np.column_stack([poles[upper].real, poles[upper].imag])
        return cls(poles[real].real, pairs, np.concatenate(gains))

    def filter(self) -> LinearSystem:
        """Return the filter, with numbers on the grid."""
        n = len(self.gains)
        A, B = np.zeros((n, n)), np.zeros((n, 1))
        for i, pole in enumerate(self.reals):
            A[i, i], B[i, 0] = pole, 1.0
        for k, (re, im) in enumerate(self.pairs):
            i = len(self.reals) + 2 * k
            A[i : i + 2, i : i + 2] = [[re, -im], [im, re]]
            B[i, 0] = 1.0
        return LinearSystem(_on_grid(A), B, _on_grid(self.gains[None, :]), np.eye(1))

    def numbers(self) -> FloatArray:
        """Return numbers without bounds from which :meth:`at` makes the filter."""
        radius = np.hypot(self.pairs[:, 0], self.pairs[:, 1])
        angle = np.arctan2(self.pairs[:, 1], self.pairs[:, 0])
        room = (*_distance(self.reals), *_distance(radius))
        return np.array([*room, *angle, *self.gains])

    def at(self, numbers: FloatArray) -> Modal:
        """Return the filter of the same form with other numbers."""
        r, k = len(self.reals), len(self.pairs)
        reals = np.tanh(numbers[:r])
        radius, angle = np.tanh(numbers[r : r + k]), numbers[r + k : r + 2 * k]
        pairs = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        return Modal(reals, pairs, numbers[r + 2 * k :])


def improved(start: LinearSystem, cost: Callable[[LinearSystem], float]) -> LinearSystem:
    """Return a scalar filter of the same order with less cost, by local descent."""
    from scipy.optimize import minimize

    form = Modal.of(start)

    def value(numbers: FloatArray) -> float:
        made = form.at(numbers).filter()
        if not acceptable(made):
            return REFUSED
        return cost(made)

    best = form.numbers()
    for method, options in (
        ("BFGS", {"maxiter": 60}),
        ("Nelder-Mead", {"maxfev": 30 * len(best), "xatol": 1e-6, "fatol": 1e-7}),
        ("BFGS", {"maxiter": 40}),
    ):
        with np.errstate(all="ignore"):
            found = minimize(value, best, method=method, options=options)
        if found.fun < value(best):
            best = found.x
    return form.at(best).filter()


def acceptable(made: LinearSystem) -> bool:
    """Whether a filter and its inverse are stable, by a margin."""
    if not all(np.all(np.isfinite(part)) for part in (made.A, made.B, made.C, made.D)):
        return False
    return made.radius < 1 - 1e-9 and made.inverse().radius < 1 - 1e-9


def _distance(radius: FloatArray) -> FloatArray:
    return np.arctanh(np.clip(radius, -1 + 1e-12, 1 - 1e-12))


def _on_grid(values: FloatArray) -> FloatArray:
    return np.round(values * GRID) / GRID
