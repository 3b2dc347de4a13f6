"""How likely a relation would be if the columns had nothing to do with each other.

If the rows of one of its columns were shuffled, how often would the relation still hold in as
many rows?  The number of such orders is the permanent of a matrix of zeros and ones, at most
``Π (k_i!)^(1/k_i)`` (Brègman 1973) where ``k_i`` values fit row ``i``.  Every column of the
relation must pass, so the column that says least decides.  Then comes how many relations as short
as this one there are to try.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from affinedp.exact.modular import residues
from affinedp.relations.numbers import Numbers
from affinedp.relations.relation import Checked, Relation, Terms
from affinedp.relations.steady import log10_beyond_steady

LOG10 = math.log(10.0)
# A row that differs from all others makes a relation at most this much less likely (log10), and
# up to so many rows are compared: copies of rows confirm nothing.
CONFIRMS = 2.0
LOOKED_AT = 2000
# With more rows than this, shuffling tells enough.
SMALL = 40


def log10_chance(
    found: Checked, terms: Terms, tried: int | None = None, choices: float | None = None
) -> float:
    """Return the decimal logarithm of a bound on the number of such relations by chance.

    Parameters
    ----------
    found : Checked
        The relation and how the rows obey it.
    terms : Terms
        What it is about.
    tried : int, optional
        How many terms there were to choose from; all by default.
    choices : float, optional
        log10 of how many relations were tried, where somebody named them.

    Examples
    --------
    Ten different numbers are the sum of two others in every row.

    >>> from affinedp.relations.columns import exact_table
    >>> from affinedp.relations.relation import check
    >>> a, b = np.arange(10) ** 2, np.arange(10) ** 3 % 17
    >>> table = exact_table({"a": a, "b": b, "c": a + b})
    >>> terms = Terms(table.names, table.columns)
    >>> from fractions import Fraction
    >>> one = Fraction(1)
    >>> round(log10_chance(check(Relation({0: one, 1: one, 2: -one}), terms), terms), 1)
    -8.9
    """
    relation = found.relation
    if len(relation.coefficients) == 1:
        # the rule of succession: the next row differs with this probability
        return -math.log10(found.rows + 1)
    held = found.zero if found.exact else found.within
    missed = found.rows - held
    by_size = max(_by_size(terms, j, relation, found, missed) for j in relation.coefficients)
    shuffled = max(_shuffled(terms, j, relation, found, missed) for j in relation.coefficients)
    if choices is None:
        choices = log10_choices(relation, tried or len(terms))
    best = min(shuffled, by_size) + choices
    supports = log10_supports(relation, tried or len(terms))
    if found.exact:
        fitted = max(_fitted(terms, j, relation, found) for j in relation.coefficients)
        best = min(best, fitted + supports)
    # any yardstick would do, so the best of the three counts three times
    return max(min(best + math.log10(3.0), 0.0), _confirmed(terms, found, choices, supports))


def _shuffled(terms: Terms, j: int, relation: Relation, found: Checked, missed: int) -> float:
    """log10 of the share of orders of column j that fit as many rows."""
    column = terms.columns[j]
    rows = found.rows
    whole = rows == terms.rows
    there = ~np.any([terms.columns[i].missing for i in relation.coefficients], axis=0)
    if found.exact:
        fits = column.multiplicities if whole else column.take(np.flatnonzero(there)).multiplicities
    else:
        # a row fits within w, so another value fits it only within 2 w of its own
        width = 2 * float(found.rounding / abs(relation.coefficients[j]))
        values = np.sort(column.approximate[there])
        slack = width * (1 + 1e-9) + 1e-15 * float(np.abs(values).max(initial=0.0))
        upper = np.searchsorted(values, values + slack, side="right")
        fits = upper - np.searchsorted(values, values - slack, side="left")
    if missed:
        # which rows miss is free, and anything fits there: leave out those that say most
        fits = np.sort(fits)
        fits[:missed] = rows
    orders = float(np.sum(gammaln(fits + 1.0) / fits))
    choose = gammaln(rows + 1.0) - gammaln(missed + 1.0) - gammaln(rows - missed + 1.0)
    return min(0.0, (orders + float(choose) - float(gammaln(rows + 1.0))) / LOG10)


def _fitted(terms: Terms, j: int, relation: Relation, found: Checked) -> float:
    """log10 of the share of orders of column j in which coefficients that some rows gave fit all.

    As many rows as there are coefficients give them, whatever these are; each other row then asks
    for one number, which at most so many rows hold as hold the most frequent one.
    """
    there = ~np.any([terms.columns[i].missing for i in relation.coefficients], axis=0)
    most = int(terms.columns[j].take(np.flatnonzero(there)).multiplicities.max(initial=1))
    rows = found.rows - len(relation.coefficients) + (relation.offset == 0)
    orders = rows * float(gammaln(most + 1.0)) / most - float(gammaln(max(rows, 0) + 1.0))
    return min(0.0, orders / LOG10) if rows > 0 else 0.0


def _confirmed(terms: Terms, found: Checked, choices: float, supports: float) -> float:
    """log10 of how many relations different rows leave, whatever else they hold.

    Either all of them speak for one choice of coefficients, or those beyond the ones that any
    coefficients could have been fitted to.
    """
    relation = found.relation
    missing = np.any([terms.columns[j].missing for j in relation.coefficients], axis=0)
    rows = np.flatnonzero(~missing)
    rows = rows[:: max(1, len(rows) // LOOKED_AT)]
    keys = [residues(terms.columns[j].whole_at(rows)) for j in relation.coefficients]
    if _one_of_several(terms, relation, keys):
        return _marks(terms, rows, len(keys))
    different = np.unique(np.stack(keys, axis=1), axis=0)
    beyond = max(len(different) - (len(keys) + (relation.offset != 0) - 1), 0)
    # where numbers repeat, a row says no more than which of them it holds
    values = min(len(np.unique(key)) for key in different.T)
    says = min(CONFIRMS, math.log10(values) if 2 * values < len(different) else CONFIRMS)
    if not found.exact and found.rounding:
        says = min(says, *(_told_apart(terms, j, found, rows) for j in relation.coefficients))
    missed = found.rows - (found.zero if found.exact else found.within)
    steady = _beyond_steady(terms, found, says, missed)
    held = found.rows - missed
    # where all moves steadily, how far it moves is one number more
    far = _how_far(terms, relation, rows) if found.exact else 0.0
    evidence = min(max(held * steady, far), len(different) * says)
    further = min(held * steady, beyond * says)
    return min(0.0, choices - evidence, supports - further)


def _beyond_steady(terms: Terms, found: Checked, most: float, missed: int) -> float:
    """log10 of what a row tells apart where columns move steadily; most, if more than that.

    Columns that have nothing to do with each other meet the relation no more often than the one
    that is hardest to foretell takes a given value.
    """
    relation = found.relation
    missing = np.any([terms.columns[j].missing for j in relation.coefficients], axis=0)
    rows = np.flatnonzero(~missing)
    says = 0.0
    for j, value in relation.coefficients.items():
        if says >= most:
            break
        column = terms.columns[j]
        width = 1.0
        if not found.exact:
            off = found.rounding / (abs(value) * column.unit)
            width = max(float(2 * off), 2.0 * math.floor(off) + 1)
        says = max(says, log10_beyond_steady(column.whole_at(rows), width, most, missed))
    return min(says, most)


def _how_far(terms: Terms, relation: Relation, rows: NDArray[np.intp]) -> float:
    """log10 of the units that the column moves which moves most."""
    wholes = (terms.columns[j].whole_at(rows) for j in relation.coefficients)
    return max(math.log10(int(whole.max()) - int(whole.min()) + 1) for whole in wholes)


def _told_apart(terms: Terms, j: int, found: Checked, rows: NDArray[np.intp]) -> float:
    """log10 of how many numbers of column j rounding lets a row tell apart."""
    whole = terms.columns[j].whole_at(rows)
    span = (int(whole.max()) - int(whole.min())) * terms.columns[j].unit
    apart = abs(found.relation.coefficients[j]) * span / (2 * found.rounding)
    return math.log10(min(apart, Fraction(10**9))) if apart > 1 else 0.0


def _one_of_several(terms: Terms, relation: Relation, keys: list[NDArray[np.int64]]) -> bool:
    """Whether these are marks of which every row has one: few rows can differ then."""
    values = {value * terms.columns[j].unit for j, value in relation.coefficients.items()}
    marks = all(set(np.unique(key).tolist()) <= {0, 1} for key in keys)
    return marks and len(values) == 1 and values.pop() == -relation.offset


def _marks(terms: Terms, rows: NDArray[np.intp], size: int) -> float:
    """log10 of how many sets of coins would show one head in every row that differs anywhere."""
    key = np.zeros(len(rows), dtype=np.int64)
    for column in terms.columns:
        _, place = np.unique(residues(column.whole_at(rows)), return_inverse=True)
        _, key = np.unique(key * len(rows) + place, return_inverse=True)
    supports = math.log10(math.comb(len(terms), size))
    return min(0.0, supports - (int(key.max()) + 1) * (size * math.log10(2.0) - math.log10(size)))


def _by_size(terms: Terms, j: int, relation: Relation, found: Checked, missed: int) -> float:
    """log10 of the chance that column j hits what the others demand, going by sizes alone."""
    column = terms.columns[j]
    if not column.written or found.rows > SMALL:
        return 0.0
    there = ~np.any([terms.columns[i].missing for i in relation.coefficients], axis=0)
    whole = column.whole_at(np.flatnonzero(there))
    unit = float(column.unit * abs(relation.coefficients[j]))
    width = 0.0 if found.exact else float(found.rounding) / unit
    if missed:
        # the rows that say most are left out, and which rows miss is free
        order = np.argsort(np.abs(whole.astype(float)), kind="stable")
        whole = whole[order[: len(whole) - missed]]
    free = gammaln(found.rows + 1.0) - gammaln(missed + 1.0) - gammaln(found.rows - missed + 1.0)
    return min(0.0, log10_by_size(whole, width, collision_share(column)) + float(free) / LOG10)


def log10_choices(relation: Relation, terms: int) -> float:
    """Return log10 of how many relations with as many terms and digits there are.

    Parameters
    ----------
    relation : Relation
        The relation.
    terms : int
        How many terms there are to choose from.
    """
    signs = len(relation.coefficients) - 1 + (relation.offset != 0)
    digits = (signs + 2 * relation.digits) * math.log10(2.0)
    return log10_supports(relation, terms) + digits


def log10_supports(relation: Relation, terms: int) -> float:
    """Return log10 of how many sets of as many terms there are.

    Parameters
    ----------
    relation : Relation
        The relation.
    terms : int
        How many terms there are to choose from.
    """
    size = len(relation.coefficients)
    supports = gammaln(terms + 1.0) - gammaln(size + 1.0) - gammaln(max(terms - size, 0) + 1.0)
    return float(supports) / LOG10


def log10_by_size(totals: NDArray[np.generic], width: float, collision: float) -> float:
    """Return log10 of the chance that sums hit the given totals, going by their size alone.

    Where a few rows are sums of others there is nothing to shuffle.  A total of ``v`` units could
    as well have been any other number of units up to twice its size; where numbers repeat, the
    share of equal pairs is the chance instead.

    Parameters
    ----------
    totals : array of int
        The totals, in units of their column.
    width : float
        How many units off still counts.
    collision : float
        Share of pairs of rows with equal numbers in the column.

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
    """Return the share of pairs of rows that hold the same number.

    Parameters
    ----------
    column : Numbers
        The column.
    """
    rows = len(column.multiplicities)
    return float((column.multiplicities - 1).sum()) / (rows * (rows - 1)) if rows > 1 else 0.0
