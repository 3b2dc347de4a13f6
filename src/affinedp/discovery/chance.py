"""How likely a relation would be if the columns had nothing to do with each other.

If the rows of one of its columns were shuffled, how often would the relation still hold in as
many rows?  The number of such orders is the permanent of a matrix of zeros and ones, at most
``Π (k_i!)^(1/k_i)`` (Brègman 1973) where ``k_i`` values fit row ``i``.  Every column of the
relation must pass, so the column that says least decides.  Then comes how many relations as short
as this one there are to try.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from affinedp.discovery.column_numbers import Numbers
from affinedp.discovery.relation import Found, Relation, Terms
from affinedp.discovery.steady import log10_beyond_steady
from affinedp.exact.modular import residues

LOG10 = math.log(10.0)
# A row that differs from all others makes a relation at most this much less likely (log10), and
# up to so many rows are compared: copies of rows confirm nothing.
CONFIRMS = 2.0
LOOKED_AT = 2000
# With more rows than this, shuffling tells enough.
SMALL = 40


def log10_chance(found: Found, terms: Terms, choices: float | None = None) -> float:
    """Return the decimal logarithm of a bound on the number of such relations by chance.

    ``choices`` is log10 of how many relations there were to try, if somebody named them.

    Examples
    --------
    Ten different numbers are the sum of two others in every row.

    >>> from affinedp.discovery.exact_table import exact_table
    >>> from affinedp.discovery.relation import check
    >>> a, b = np.arange(10) ** 2, np.arange(10) ** 3 % 17
    >>> terms = exact_table({"a": a, "b": b, "c": a + b}).terms
    >>> one = Fraction(1)
    >>> round(log10_chance(check(Relation({0: one, 1: one, 2: -one}), terms), terms), 1)
    -8.9
    """
    relation = found.relation
    if len(relation.coefficients) == 1:
        # the rule of succession: the next row differs with this probability
        return -math.log10(found.rows + 1)
    evidence = _Evidence(found, terms)
    by_size, shuffled = evidence.least(evidence.by_size), evidence.least(evidence.shuffled)
    choices = log10_choices(relation, len(terms)) if choices is None else choices
    supports = log10_supports(relation, len(terms))
    best = min(shuffled, by_size) + choices
    if found.exact:
        best = min(best, evidence.least(evidence.fitted) + supports)
    # any yardstick would do, so the best of the three counts three times
    return max(min(best + math.log10(3.0), 0.0), evidence.confirmed(choices, supports))


class _Evidence:
    """What the rows of a relation say, column by column."""

    def __init__(self, found: Found, terms: Terms) -> None:
        self.found = found
        self.terms = terms
        self.relation = found.relation
        self.there = terms.complete(self.relation.coefficients)
        missed = found.missed
        choose = gammaln(found.rows + 1.0) - gammaln(missed + 1.0)
        # which rows miss is free
        self.free = float(choose - gammaln(found.rows - missed + 1.0))

    def least(self, yardstick: Callable[[int], float]) -> float:
        """What the column says that says least."""
        return max(yardstick(j) for j in self.relation.coefficients)

    def shuffled(self, j: int) -> float:
        """log10 of the share of orders of column j that fit as many rows."""
        column, rows = self.terms.columns[j], self.found.rows
        if self.found.exact:
            whole = rows == self.terms.rows
            fits = (column if whole else column.take(self.there)).multiplicities
        else:
            # a row fits within w, so another value fits it only within 2 w of its own
            width = 2 * float(self.found.rounding / abs(self.relation.coefficients[j]))
            values = np.sort(column.approximate[self.there])
            slack = width * (1 + 1e-9) + 1e-15 * float(np.abs(values).max(initial=0.0))
            upper = np.searchsorted(values, values + slack, side="right")
            fits = upper - np.searchsorted(values, values - slack, side="left")
        if self.found.missed:
            # anything fits where a row misses: leave out those that say most
            fits = np.sort(fits)
            fits[: self.found.missed] = rows
        orders = float(np.sum(gammaln(fits + 1.0) / fits))
        return min(0.0, (orders + self.free - float(gammaln(rows + 1.0))) / LOG10)

    def fitted(self, j: int) -> float:
        """log10 of the share of orders of column j in which coefficients from some rows fit all.

        As many rows as there are coefficients give them, whatever these are; each other row then
        asks for one number, which at most so many rows hold as hold the most frequent one.
        """
        most = int(self.terms.columns[j].take(self.there).multiplicities.max(initial=1))
        rows = self.found.rows - len(self.relation.coefficients) + (self.relation.offset == 0)
        orders = rows * float(gammaln(most + 1.0)) / most - float(gammaln(max(rows, 0) + 1.0))
        return min(0.0, orders / LOG10) if rows > 0 else 0.0

    def by_size(self, j: int) -> float:
        """log10 of the chance that column j hits what the others demand, going by sizes alone."""
        column = self.terms.columns[j]
        if not column.written or self.found.rows > SMALL:
            return 0.0
        whole = column.whole_at(self.there)
        unit = float(column.unit * abs(self.relation.coefficients[j]))
        width = 0.0 if self.found.exact else float(self.found.rounding) / unit
        if self.found.missed:
            # the rows that say most are left out
            order = np.argsort(np.abs(whole.astype(float)), kind="stable")
            whole = whole[order[: len(whole) - self.found.missed]]
        return min(0.0, log10_by_size(whole, width, collision_share(column)) + self.free / LOG10)

    def confirmed(self, choices: float, supports: float) -> float:
        """log10 of how many relations different rows leave, whatever else they hold.

        Either all of them speak for one choice of coefficients, or those beyond the ones that any
        coefficients could have been fitted to.
        """
        relation, found = self.relation, self.found
        rows = self.there[:: max(1, len(self.there) // LOOKED_AT)]
        wholes = {j: self.terms.columns[j].whole_at(rows) for j in relation.coefficients}
        keys = [residues(whole) for whole in wholes.values()]
        if self._one_of_several(keys):
            return _marks(self.terms, rows, len(keys))
        different = np.unique(np.stack(keys, axis=1), axis=0)
        beyond = max(len(different) - (len(keys) + (relation.offset != 0) - 1), 0)
        # where numbers repeat, a row says no more than which of them it holds
        values = min(len(np.unique(key)) for key in different.T)
        says = min(CONFIRMS, math.log10(values) if 2 * values < len(different) else CONFIRMS)
        moves = {j: int(whole.max()) - int(whole.min()) for j, whole in wholes.items()}
        if not found.exact and found.rounding:
            says = min(says, *(self._told_apart(j, move) for j, move in moves.items()))
        held = found.within * self._beyond_steady(says)
        # where all moves steadily, how far it moves is one number more
        far = max(math.log10(move + 1) for move in moves.values()) if found.exact else 0.0
        evidence = min(max(held, far), len(different) * says)
        return min(0.0, choices - evidence, supports - min(held, beyond * says))

    def _beyond_steady(self, most: float) -> float:
        """log10 of what a row tells apart where columns move steadily; most, if more than that.

        Columns that have nothing to do with each other meet the relation no more often than the
        one that is hardest to foretell takes a given value.
        """
        says = 0.0
        for j, value in self.relation.coefficients.items():
            if says >= most:
                break
            column = self.terms.columns[j]
            width = 1.0
            if not self.found.exact:
                off = self.found.rounding / (abs(value) * column.unit)
                width = max(float(2 * off), 2.0 * math.floor(off) + 1)
            whole = column.whole_at(self.there)
            says = max(says, log10_beyond_steady(whole, width, most, self.found.missed))
        return min(says, most)

    def _told_apart(self, j: int, move: int) -> float:
        """log10 of how many numbers of column j rounding lets a row tell apart."""
        span = move * self.terms.columns[j].unit
        apart = abs(self.relation.coefficients[j]) * span / (2 * self.found.rounding)
        return math.log10(min(apart, Fraction(10**9))) if apart > 1 else 0.0

    def _one_of_several(self, keys: list[NDArray[np.int64]]) -> bool:
        """Whether these are marks of which every row has one: few rows can differ then."""
        values = {c * self.terms.columns[j].unit for j, c in self.relation.coefficients.items()}
        marks = all(set(np.unique(key).tolist()) <= {0, 1} for key in keys)
        return marks and len(values) == 1 and values.pop() == -self.relation.offset


def _marks(terms: Terms, rows: NDArray[np.intp], size: int) -> float:
    """log10 of how many sets of coins would show one head in every row that differs anywhere."""
    key = np.zeros(len(rows), dtype=np.int64)
    for column in terms.columns:
        _, place = np.unique(residues(column.whole_at(rows)), return_inverse=True)
        _, key = np.unique(key * len(rows) + place, return_inverse=True)
    supports = math.log10(math.comb(len(terms), size))
    return min(0.0, supports - (int(key.max()) + 1) * (size * math.log10(2.0) - math.log10(size)))


def log10_choices(relation: Relation, terms: int) -> float:
    """Return log10 of how many relations with as many terms and digits there are."""
    signs = len(relation.coefficients) - 1 + (relation.offset != 0)
    digits = (signs + 2 * relation.digits) * math.log10(2.0)
    return log10_supports(relation, terms) + digits


def log10_supports(relation: Relation, terms: int) -> float:
    """Return log10 of how many sets of as many terms there are."""
    size = len(relation.coefficients)
    supports = gammaln(terms + 1.0) - gammaln(size + 1.0) - gammaln(max(terms - size, 0) + 1.0)
    return float(supports) / LOG10


def log10_by_size(totals: NDArray[np.generic], width: float, collision: float) -> float:
    """Return log10 of the chance that sums hit the given totals, going by their size alone.

    Where a few rows are sums of others there is nothing to shuffle.  A total of ``v`` units could
    as well have been any other number of units up to twice its size (``width`` units off count as
    the same); where numbers repeat, the share of equal pairs is the chance instead.

    Examples
    --------
    >>> round(log10_by_size(np.array([500, 0, 50]), 0.0, 0.0), 1)
    -5.0
    """
    if not len(totals):
        return 0.0
    size = np.array([min(abs(int(value)), 10**15) for value in totals], dtype=float)
    share = np.minimum(1.0, np.maximum((2 * width + 1) / (2 * size + 1), collision))
    return float(np.log10(share).sum())


def collision_share(column: Numbers) -> float:
    """Return the share of pairs of rows that hold the same number."""
    rows = len(column.multiplicities)
    return float((column.multiplicities - 1).sum()) / (rows * (rows - 1)) if rows > 1 else 0.0
