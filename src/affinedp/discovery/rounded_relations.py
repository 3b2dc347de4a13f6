"""Relations that rounding alone breaks: found by regression, made simple, verified on every row.

In units of what each column is rounded to, a relation between rounded numbers is a direction in
which the table varies by less than one.  Those directions are a space; solving for random sets of
columns and dropping what is not significant gives its short relations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.column_numbers import Numbers
from affinedp.discovery.exact_relations import MARGIN, span_of
from affinedp.discovery.relation import (
    FITS,
    MOST_MISSES,
    Found,
    Relation,
    Terms,
    bits,
    check,
    simplest,
)

FloatArray = NDArray[np.float64]

# A column must vary by this many of its units for rounding to be small against it.
COARSE = 5.0
# Standard errors that a coefficient may be off.
SIGNIFICANT = 5.0
# Variation, in units of rounding, below which a direction is a relation: rounding alone makes 0.29.
ROUNDING = 0.75
ROWS_PER_TERM = 2
TRIALS = 8
ROUNDS = 4
DRAWS = 7
# The share of a relation that no other one explains.
APART = 1e-2
PRUNINGS = 12
# A change of a number by this part of its unit cannot be seen.
UNSEEN = 0.1
# The error that a solver may leave in computed numbers, in their units.
BIAS = 0.5
# Digits of a relation for which no simpler form is looked for.
PLAIN = 8.0
# With more different coefficients than this, nobody knows long ones.
MANY = 5
# No more digits than a coefficient that somebody knows.
MOST_DIGITS = 40.0


@dataclass(frozen=True, eq=False)
class _Sample:
    """Some rows, in units of rounding, without their mean."""

    terms: list[int]
    unit: list[Fraction]
    mean: list[Fraction]  # in the numbers' own units
    values: FloatArray  # (rows, terms)
    computed: list[bool]


def nearly_relations(
    terms: Terms,
    rows: NDArray[np.intp],
    rng: np.random.Generator,
    known: Iterable[Relation],
) -> tuple[list[Found], int]:
    """Return further relations, which rounding or the last digits of doubles break.

    Beside them, in how many more directions the table seems to vary by no more than rounding.  No
    term may be missing in the rows; known relations are not found again.
    """
    known = list(known)
    usable = _usable(terms, rows)
    if len(usable) < 2 or len(rows) < enough_rows(len(usable)):
        return [], 0
    inside = span_of([one for one in known if set(one.support) <= set(usable)], len(terms))
    pool: dict[tuple[object, ...], Found] = {}
    found: list[Found] = []
    quiet = 0
    for draw in range(DRAWS):
        # many rows tell small coefficients, few rows leave out one that is wrong
        count = max(2000, 4 * len(usable)) if draw == 0 else 3 * len(usable) // 2 + 20
        count = min(count, len(rows))
        chosen = rows if count == len(rows) else np.sort(rng.choice(rows, count, replace=False))
        sample = _sample(terms, usable, chosen)
        space = _quiet_space(sample)
        if draw == 0 and len(np.unique(sample.values, axis=0)) >= len(usable) + MARGIN:
            quiet = space.shape[1]
        for _ in range(ROUNDS):
            before = len(found)
            plain = draw > 0 or all(one.relation.digits <= PLAIN for one in found)
            if space.shape[1] <= len(inside) + before and plain:
                break
            for relation in _candidates(sample, space, rng):
                key = (tuple(sorted(relation.coefficients.items())), relation.offset)
                if key not in pool:
                    pool[key] = check(relation, terms)
            found = _independent(pool.values(), terms, known)
            if len(found) == before and plain:
                break
    return _shortened(found, terms, known), max(0, quiet - len(inside) - len(found))


def _shortened(found: list[Found], terms: Terms, known: list[Relation]) -> list[Found]:
    """Subtract what is known where that makes a relation shorter and rows obey it as well."""
    out = list(found)
    for i, one in enumerate(out):
        others = [*known, *(other.relation for k, other in enumerate(out) if k != i)]
        relation = one.relation
        for other in others:
            relation = _shorter(relation, other)
        if relation is one.relation:
            continue
        again = check(relation.scaled(), terms)
        if again.missed <= one.missed:
            out[i] = again
    return out


def _shorter(relation: Relation, other: Relation) -> Relation:
    ratios = Counter(
        relation.coefficients[j] / value
        for j, value in other.coefficients.items()
        if j in relation.coefficients
    )
    for ratio, shared in ratios.most_common(1):
        if 2 * shared <= len(other.coefficients):
            break
        values = dict(relation.coefficients)
        for j, value in other.coefficients.items():
            values[j] = values.get(j, Fraction(0)) - ratio * value
        left = {j: value for j, value in values.items() if value}
        if left:
            return Relation(left, relation.offset - ratio * other.offset)
    return relation


def enough_rows(terms: int) -> int:
    """Return how many rows a search for rounded relations between so many terms needs."""
    return ROWS_PER_TERM * terms + 20


def _usable(terms: Terms, rows: NDArray[np.intp]) -> list[int]:
    """Terms that vary by several of their units."""
    out = []
    for j, column in enumerate(terms.columns):
        unit = terms.resolution(j)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(np.std(_from_first(column, rows, unit)[0])) if unit > 0 else 0.0
        if np.isfinite(spread) and spread >= COARSE:
            out.append(j)
    return out


def _sample(terms: Terms, usable: list[int], rows: NDArray[np.intp]) -> _Sample:
    unit = [terms.resolution(j) for j in usable]
    parts = [_from_first(terms.columns[j], rows, u) for j, u in zip(usable, unit)]
    scaled = np.stack([values for values, _ in parts], axis=1)
    middle = scaled.mean(axis=0)
    scaled -= middle
    mean = [first + Fraction(float(m)) * u for (_, first), m, u in zip(parts, middle, unit)]
    computed = [not terms.columns[j].written for j in usable]
    return _Sample(usable, unit, mean, scaled, computed)


def _from_first(
    column: Numbers, rows: NDArray[np.intp], unit: Fraction
) -> tuple[FloatArray, Fraction]:
    """Differences from the first number in units, so that long numbers keep their last digits.

    And the first number.  Units may lie outside the doubles, what is measured in them does not.
    """
    if column.source.dtype.kind == "f":
        first = float(column.source[rows[0]])
        rest, power = _mantissa(unit)
        places = power.numerator.bit_length() - power.denominator.bit_length()
        halves = np.ldexp(column.source[rows], -1) - first / 2  # huge numbers of both signs
        return np.ldexp(halves / rest, 1 - places), Fraction(first)
    whole = column.whole_at(rows)
    start = int(whole[0])
    if column.largest >= FITS // 2:
        whole = whole.astype(object)
    try:
        return (whole - start).astype(float) * float(column.unit / unit), start * column.unit
    except OverflowError:
        return np.full(len(whole), np.inf), Fraction(0)  # too long for a regression


def _mantissa(value: Fraction) -> tuple[float, Fraction]:
    """A number near 1 and a power of two whose product is the value, which may be no double."""
    power = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length())
    return float(value / power), power


def _quiet_space(sample: _Sample) -> FloatArray:
    """Orthonormal directions in which the table varies by no more than rounding."""
    _, sizes, directions = np.linalg.svd(sample.values, full_matrices=False)
    quiet = sizes <= ROUNDING * np.sqrt(len(sample.values))
    return np.asarray(directions[quiet].T)


def _candidates(sample: _Sample, space: FloatArray, rng: np.random.Generator) -> list[Relation]:
    from scipy.linalg import qr

    found: list[Relation] = []
    n, d = space.shape
    for _ in range(TRIALS):
        weight = np.exp(2.0 * rng.standard_normal(n))
        order = qr(space.T * weight, mode="r", pivoting=True)[1]
        solved, others = order[:d], np.sort(order[d:])
        if not len(others):
            others = order[d - 1 :]
            solved = order[: d - 1]
        wide = _least_squares(sample.values[:, others], sample.values[:, solved])
        for place, target in enumerate(solved):
            fit = (wide[0][:, place], wide[1][:, place], float(wide[2][place]))
            relation = _regressed(sample, int(target), others, fit)
            if relation is not None:
                found.append(relation)
    return found


Fit = tuple[FloatArray, FloatArray, float]


def _regressed(sample: _Sample, target: int, others: NDArray[np.intp], fit: Fit) -> Relation | None:
    """One column from others, only those that matter, with coefficients that are simple."""
    y = sample.values[:, target]
    kept = others
    coefficients, errors, spread = fit
    for _ in range(PRUNINGS):
        if spread > ROUNDING * np.hypot(1.0, np.linalg.norm(coefficients)):
            return None
        size = np.hypot(1.0, np.linalg.norm(coefficients))
        seen = np.abs(coefficients) * np.abs(sample.values[:, kept]).max(axis=0) > size
        matters = seen & (np.abs(coefficients) > SIGNIFICANT * errors)
        if matters.all():
            break
        kept = kept[matters]
        if not len(kept):
            return None
        again = _least_squares(sample.values[:, kept], y[:, None])
        coefficients, errors, spread = again[0][:, 0], again[1][:, 0], float(again[2][0])
    else:
        return None
    values: dict[int, Fraction] = {sample.terms[target]: Fraction(-1)}
    level = sample.mean[target]
    bias = BIAS if sample.computed[target] else 0.0
    different: dict[Fraction, float] = {}
    for j, raw, error in zip(kept, coefficients, errors):
        unit, power = _mantissa(sample.unit[j] / sample.unit[target])
        middle = Fraction(float(raw) / unit) / power
        # what changes no number by more than a part of its unit may as well be simple
        share = BIAS if sample.computed[j] or sample.computed[target] else UNSEEN
        unseen = share / float(np.abs(sample.values[:, j]).max())
        off = max(SIGNIFICANT * float(error), unseen * (1 + abs(float(raw)))) / unit
        bias += BIAS * abs(float(raw)) * bool(sample.computed[j])
        simple = simplest(middle - Fraction(off) / power, middle + Fraction(off) / power)
        different[abs(simple)] = bits(simple) if simple else 0.0
        too_long = len(different) > MANY and sum(different.values()) > 2 * MOST_DIGITS
        if not simple or too_long:
            return None
        values[sample.terms[j]] = simple
        level -= simple * sample.mean[j]
    width = SIGNIFICANT * spread / np.sqrt(len(y)) + UNSEEN
    # a solver leaves the same small error in every row
    slack = Fraction(float(width + bias)) * sample.unit[target]
    # the constant is simple in the form that is written: 1.8 c + 32, not 5/9 f - 17.8
    plain = Relation(values).scaled()
    scale = plain.coefficients[sample.terms[target]] / values[sample.terms[target]]
    offset = simplest((level - slack) * scale, (level + slack) * scale)
    relation = Relation(plain.coefficients, offset)
    return relation if relation.digits <= MOST_DIGITS else None


def _least_squares(matrix: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Coefficients, their standard errors, and what is left, for each column of y."""
    from scipy.linalg import solve_triangular

    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    q, r = np.linalg.qr(matrix / scale)
    if np.abs(np.diagonal(r)).min() < 1e-13:
        shape = (matrix.shape[1], y.shape[1])
        return np.zeros(shape), np.ones(shape), np.full(y.shape[1], np.inf)
    coefficients = solve_triangular(r, q.T @ y)
    left = y - (matrix / scale) @ coefficients
    freedom = max(len(y) - matrix.shape[1] - 1, 1)
    # rounding is at least what doubles leave
    spread = np.sqrt((left * left).sum(axis=0) / freedom) + 1e-15 * np.abs(y).max(axis=0)
    inverse = np.linalg.norm(solve_triangular(r, np.eye(len(r))), axis=1)
    return coefficients / scale[:, None], np.outer(inverse / scale, spread), spread


def _independent(found: Iterable[Found], terms: Terms, known: list[Relation]) -> list[Found]:
    """The shortest independent relations, those that no row breaks beyond rounding first."""
    apart = _Apart([terms.resolution(j) for j in range(len(terms))])
    for relation in known:
        apart.add(relation)
    few = [one for one in found if one.missed <= max(1, MOST_MISSES * one.rows)]
    few.sort(key=lambda one: (one.missed, one.relation.complexity))
    return [one for one in few if apart.add(one.relation)]


class _Apart:
    """Relations that are numerically independent, in units of rounding."""

    def __init__(self, unit: list[Fraction]) -> None:
        self.unit = unit
        self.basis: list[FloatArray] = []

    def add(self, relation: Relation) -> bool:
        moves = {j: value * self.unit[j] for j, value in relation.coefficients.items()}
        largest = max((abs(move) for move in moves.values()), default=Fraction(0))
        if not largest:
            return False
        vector = np.zeros(len(self.unit))
        for j, move in moves.items():  # tiny or huge units would leave the doubles
            vector[j] = float(move / largest)
        vector /= float(np.linalg.norm(vector))
        for _ in range(2):  # once more for what rounding left
            for one in self.basis:
                vector -= (one @ vector) * one
        rest = float(np.linalg.norm(vector))
        if rest <= APART:
            return False
        self.basis.append(vector / rest)
        return True
