"""Independent, slow and obvious computations that the tests compare with."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction

import numpy as np


def fundamental_directions(D, mu):
    """Definition 4 word by word: every basis, every free entry; exact rational arithmetic.

    Yields (support, difference of neighbours as floats).
    """
    q, n = np.shape(D)
    D = exact_numbers(D)
    for basis in itertools.combinations(range(n), q):
        solved = _solve([[row[j] for j in basis] for row in D], D)
        if solved is None:
            continue
        for i in range(n):
            if i in basis:
                continue
            v = [Fraction(0)] * n
            v[i] = Fraction(1)
            for row, j in enumerate(basis):
                v[j] = -solved[row][i]
            support = tuple(j for j in range(n) if v[j] != 0)
            yield support, np.array([float(x) for x in v]) * mu[i]


def exact_directions(D, mu, kept=None):
    """Definition 4 in exact numbers: for every circuit's entries its difference of neighbours.

    ``kept`` are the independent ones of the equations.
    """
    found = {}
    rows = exact_numbers(D)
    rows = rows if kept is None else [rows[i] for i in kept]
    q, n = len(rows), np.shape(D)[1]
    for basis in itertools.combinations(range(n), q):
        solved = _solve([[row[j] for j in basis] for row in rows], rows)
        if solved is None:
            continue
        for i in set(range(n)) - set(basis):
            v = {i: mu[i]} | {j: -solved[r][i] * mu[i] for r, j in enumerate(basis) if solved[r][i]}
            support = tuple(sorted(v))
            size = max(abs(x) for x in v.values())
            if support not in found or size > max(abs(x) for x in found[support].values()):
                found[support] = v
    return found


def exact_numbers(D):
    """What every number stands for, one by one."""
    return [[stands_for(value) for value in row] for row in np.asarray(D, dtype=float).tolist()]


@functools.cache
def stands_for(value):
    """Whole and short binary numbers, decimals, small fractions by search; other doubles as is."""
    bits = int(value.hex().split("p")[0].split(".")[1], 16) if value else 0
    if value.is_integer() or bits % 2**21 == 0:
        return Fraction(value)
    fractions = ((round(value * q), q) for q in range(2, 4001))
    simple = next((Fraction(p, q) for p, q in fractions if p / q == value), None)
    text = repr(value)
    digits = len(text.split("e")[0].replace(".", "").replace("-", "").strip("0"))
    if digits > 12 and simple is not None and abs(simple.numerator) <= 10**12:
        return simple
    return Fraction(text) if digits <= 15 else Fraction(value)


def _solve(square, right):
    """square⁻¹ right over the rationals, or None if singular."""
    table = reduced([[*a, *b] for a, b in zip(square, right)], len(square))
    return None if table is None else [row[len(square) :] for row in table]


def reduced(table, count):
    """Gauss–Jordan on the first columns, dropping rows that say nothing; None if singular."""
    rows = [list(row) for row in table]
    done = 0
    for column in range(count):
        pivot = next((r for r in range(done, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return None
        rows[done], rows[pivot] = rows[pivot], rows[done]
        lead = rows[done][column]
        rows[done] = [value / lead for value in rows[done]]
        for r, row in enumerate(rows):
            if r != done and row[column]:
                factor = row[column]
                rows[r] = [a - factor * b for a, b in zip(row, rows[done])]
        done += 1
    return rows[:done]


def rank(rows):
    """By elimination over the rationals."""
    left = [list(row) for row in rows]
    found = 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((r for r in range(found, len(left)) if left[r][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        for r in range(found + 1, len(left)):
            factor = left[r][column] / left[found][column]
            if factor:
                left[r] = [a - factor * b for a, b in zip(left[r], left[found])]
        found += 1
    return found


def brute_force_sensitivity(D, matrix, norm, mu):
    """The largest norm over Definition 4, and the number of different circuits."""
    best, supports = 0.0, set()
    for support, v in fundamental_directions(D, mu):
        supports.add(support)
        best = max(best, float(np.linalg.norm(matrix @ v, ord=norm)))
    return best, len(supports)


def gridded_laplace_delta(shift, epsilon, step=5e-4):
    """δ between L(0,1)^r and its shift by convolving losses on a grid, to about the step."""
    masses, start = np.array([1.0]), 0
    for a in shift:
        half = int(np.ceil(a / step))
        grid = np.arange(-half, half + 1) * step
        mass = np.zeros(2 * half + 1)
        mass[-1] += 0.5
        mass[0] += 0.5 * np.exp(-a)
        edges = np.clip(np.append(grid - step / 2, grid[-1] + step / 2), -a, a)
        mass += np.diff(0.5 * np.exp((edges - a) / 2))
        masses = np.convolve(masses, mass)
        start += half
    losses = (np.arange(len(masses)) - start) * step
    return float((masses * np.maximum(0.0, 1 - np.exp(epsilon - losses))).sum())


def trajectory_equations(A, horizon, scale=1):
    """D of x(t+1) = A x(t) over a horizon, with integer coefficients times ``scale``."""
    A = np.rint(np.asarray(A) * scale).astype(int)
    m = len(A)
    D = np.zeros((m * (horizon - 1), m * horizon), dtype=int)
    for t in range(horizon - 1):
        D[m * t : m * t + m, m * t : m * t + m] = A
        D[m * t : m * t + m, m * t + m : m * t + 2 * m] = -scale * np.eye(m, dtype=int)
    return D
