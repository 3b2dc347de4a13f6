"""The shortest vectors of a space: the equations that a person would have written.

A space of equations has one basis that reads well and endless ones that do not.  Solving for a
random set of columns makes every equation as short as that set allows (a circuit), so many random
sets show the shortest circuits there are; this is Prange's information-set decoding.  Wide ones are
shortened further by subtracting multiples of others.  Taking the shortest independent ones first is
optimal, because independent sets form a matroid.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from affinedp.exact.modular import PRIME, Residues, Span, inverses, reduced

TRIALS = 24
ROUNDS = 12
PATIENCE = 3
# Work (entries touched) after which the search ends, however it goes.
MOST_WORK = 2e9
THOROUGH_WORK = 5e7


def short_vectors(
    basis: Residues, rng: np.random.Generator, thorough: bool = False
) -> list[Residues]:
    """Return many short vectors of a space, the shortest first, at least a basis among them.

    Examples
    --------
    ``t = a + b + c`` and ``t = s + c`` come from ``s = a + b``, which is shorter.

    >>> basis = np.array([[1, 1, 1, 0, -1], [0, 0, 1, 1, -1]]) % PRIME
    >>> found = short_vectors(basis, np.random.default_rng(0))
    >>> [np.flatnonzero(vector).tolist() for vector in found[:2]]
    [[0, 1, 3], [2, 3, 4]]
    """
    d, n = basis.shape
    pool: dict[bytes, Residues] = {}
    if d == 0:
        return []
    _collect(pool, reduced(basis)[0])
    if d == 1:
        return list(pool.values())
    best, waited, work = float("inf"), 0, 0.0
    for _ in range(ROUNDS):
        for _ in range(TRIALS):
            _collect(pool, reduced(basis, rng.permutation(n))[0])
            work += d * d * n
        if thorough:
            if work > THOROUGH_WORK:
                break
            continue
        chosen = shortest_basis(pool.values(), n, d)
        chosen = _shortened(chosen)
        _collect(pool, np.array(chosen))
        total = sum(int(np.count_nonzero(vector)) for vector in chosen)
        waited = 0 if total < best else waited + 1
        best = min(best, total)
        if waited >= PATIENCE or work > MOST_WORK:
            break
    return sorted(pool.values(), key=np.count_nonzero)


def shortest_basis(vectors: Iterable[Residues], size: int, rank: int) -> list[Residues]:
    """Return independent vectors, the shortest first."""
    span = Span(size)
    chosen: list[Residues] = []
    for vector in sorted(vectors, key=np.count_nonzero):
        if span.add(vector):
            chosen.append(vector)
            if len(chosen) == rank:
                break
    return chosen


def _collect(pool: dict[bytes, Residues], vectors: Residues) -> None:
    """Keep each vector once, scaled so that its first entry is 1."""
    lead = vectors[np.arange(len(vectors)), (vectors != 0).argmax(axis=1)]
    unit = vectors * inverses(lead)[:, None] % PRIME
    for vector in unit:
        pool.setdefault(vector.tobytes(), vector)


def _shortened(vectors: list[Residues]) -> list[Residues]:
    """Subtract from each vector the multiple of another that removes most of its entries."""
    chosen = [vector.copy() for vector in vectors]
    order = np.argsort([np.count_nonzero(vector) for vector in chosen], kind="stable")
    table = np.array([chosen[i] for i in order])
    inverted = inverses(table)
    for i in range(len(table) - 1, 0, -1):
        vector = table[i]
        size = int(np.count_nonzero(vector))
        both = (table != 0) & (vector != 0)
        # a shared part of one entry cannot shorten
        for j in np.flatnonzero(both.sum(axis=1) > 1):
            if j == i:
                continue
            shared = (table[j] != 0) & (vector != 0)
            if not shared.any():
                continue
            ratios = vector[shared] * inverted[j][shared] % PRIME
            values, counts = np.unique(ratios, return_counts=True)
            shorter = (vector - int(values[counts.argmax()]) * table[j]) % PRIME
            left = int(np.count_nonzero(shorter))
            if left < size:
                vector, size = shorter, left
        table[i] = vector
        inverted[i] = inverses(vector)
    return list(table)
