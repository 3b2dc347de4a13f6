"""How likely a relation would be if the columns had nothing to do with each other.

If the rows of one of its columns were shuffled, how often would the relation still hold in as
many rows?  The number of such orders is the permanent of a matrix of zeros and ones, at most
``Π (k_i!)^(1/k_i)`` (Brègman 1973) where ``k_i`` values fit row ``i``.  Every column of the
relation must pass, so the column that says least decides.  Then comes how many relations as short
as this one there are to try.

Trends, waves and curves agree by themselves: two lines, rounded, obey an equation up to rounding
whatever they are about, and rows of a table of trends are sums of one another.  So a row is
evidence only by the part of its number that the rows around it do not predict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from affinedp.discovery.column_numbers import Numbers
from affinedp.discovery.relation import Found, Relation, Terms
from affinedp.exact.modular import residues

FloatArray = NDArray[np.float64]

LOG10 = math.log(10.0)
# A row that differs from all others makes a relation at most this much less likely (log10), and
# up to so many rows are compared: copies of rows confirm nothing.
CONFIRMS = 2.0
LOOKED_AT = 2000
# With more rows than this, shuffling tells enough.
SMALL = 40
# How likely two numbers are the same, if they spread by σ like a normal law: 1/(2 √π σ).
EQUAL_PAIRS = 2.0 * math.sqrt(math.pi)
# What is taken off every row's evidence (log10), because a spread is estimated.
DOUBT = 0.1
# Half of a normal law lies within so many σ of each other.
QUARTILES = 1.349
# Nine tenths of it, those nearest to the middle, spread by so many σ.
USUAL, USUAL_SPREAD = 0.9, 0.789
FEW_MOVE = 1.3
# Weights of the rows before and after, which foretell lines, and cubic curves.
AROUND = ((0.5,), (4 / 6, -1 / 6))
POWERS = 4
# Rows for each number that is fitted.
ROWS_PER_FIT = 3
# Longer columns are looked at in part, and in full only where that says little.
LONG = 4000
# Lines through two rows so near foretell a number.
SURPRISE_REACH = 3
SURPRISE_ROWS_PER_FIT = 2


def log10_chance(found: Found, terms: Terms, choices: float | None = None) -> float:
    """Return the decimal logarithm of a bound on the number of such relations by chance.

    ``choices`` is log10 of how many relations there were to try, if somebody named them.
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


# ---------------------------------------------------------------------- steady movement


def log10_beyond_steady(
    whole: NDArray[np.generic], width: float, enough: float, missed: int = 0
) -> float:
    """Return log10 of how many numbers a row tells apart, of those that its neighbours leave.

    ``whole`` is a column in units, in the order of its rows; ``width`` neighbouring numbers count
    as the same; more than ``enough`` need not be known; ``missed`` rows, those that say most, count
    for nothing.
    """
    if len(whole) > LONG:
        start = (len(whole) - LONG // 2) // 2
        some = log10_beyond_steady(whole[start : start + LONG // 2], width, enough, missed)
        if some >= enough:
            return enough
    values = _from_first(whole)
    size = float(np.abs(values).max(initial=0.0))
    if not np.isfinite(size):
        return enough
    if size == 0.0 or len(values) < 3:
        return 0.0 if size == 0.0 else enough
    told = min(_told(left / size, width / size, missed) for left in remainders(values))
    return min(told, enough)


def _from_first(whole: NDArray[np.generic]) -> FloatArray:
    """Differences from the first number: long numbers keep their last digits."""
    if whole.dtype.kind == "f":
        return np.asarray(whole - whole[0], dtype=float)
    first = int(whole[0])
    try:
        return np.array([int(x) - first for x in whole.tolist()], dtype=float)
    except OverflowError:
        return np.full(len(whole), np.inf)


def _told(left: FloatArray, width: float, missed: int) -> float:
    """log10 of how many numbers of this spread can be told apart; the better of two yardsticks."""
    low, high = np.percentile(left, [25.0, 75.0])
    usual = np.sort(np.abs(left))[: math.ceil(USUAL * len(left))]
    spread = float(np.sqrt(np.mean(usual * usual))) / USUAL_SPREAD
    # what moves in few rows only has no spread in this sense
    spread = min(spread, FEW_MOVE * float(high - low) / QUARTILES)
    apart = math.log10(max(EQUAL_PAIRS * spread / width, 1e-300)) - DOUBT
    # a column that seldom moves, but then by much, speaks in the rows where it does
    ordered = np.sort(left)
    wide = width * (1 + 1e-9)
    pairs = np.searchsorted(ordered, ordered + wide, side="right")
    pairs = pairs - np.searchsorted(ordered, ordered - wide, side="left")
    rows = np.sort(np.maximum(np.log10(len(left) / pairs) - DOUBT, 0.0))
    return max(apart, float(rows[: max(len(left) - missed, 0)].sum()) / len(left))


def remainders(values: FloatArray) -> list[FloatArray]:
    """Return what kinds of steady movement leave of a column, as large as noise would be."""
    rows = len(values)
    out = [values - values.mean()]
    for weights in AROUND:
        reach = len(weights)
        if rows < 2 * reach + 2:
            continue
        left = values[reach : rows - reach].copy()
        for step, weight in enumerate(weights, start=1):
            left -= weight * _both(values, step, reach)
        out.append(left / math.sqrt(1 + 2 * sum(weight**2 for weight in weights)))
    out += [left for _, left in _regressions(values, ROWS_PER_FIT)]
    return out


def _regressions(values: FloatArray, rows_per_fit: int) -> Iterator[tuple[slice, FloatArray]]:
    """Rows, and what curves and waves leave of them."""
    rows = len(values)
    time = np.linspace(-1.0, 1.0, rows)
    for power in range(1, POWERS):
        if rows >= rows_per_fit * (power + 1):
            yield slice(0, rows), _left(np.vander(time, power + 1), values)
    inner = slice(2, rows - 2)
    if rows - 4 >= rows_per_fit * 4:
        # one or two waves of any length
        around = [_both(values, step, 2) for step in (1, 2)]
        wave = np.column_stack([np.ones(rows - 4), time[inner], *around])
        yield inner, _left(wave, values[inner])


def _both(values: FloatArray, step: int, reach: int) -> FloatArray:
    rows = len(values)
    earlier = values[reach - step : rows - reach - step]
    return np.asarray(earlier + values[reach + step : rows - reach + step])


def _left(fit: FloatArray, values: FloatArray) -> FloatArray:
    """What a regression leaves, enlarged by what it took away of plain noise."""
    coefficients = np.linalg.lstsq(fit, values, rcond=None)[0]
    rows, count = fit.shape
    return np.asarray((values - fit @ coefficients) * math.sqrt(rows / (rows - count)))


def least_surprises(whole: NDArray[np.generic]) -> FloatArray:
    """Return how far each number is from what the numbers around it foretell, at least."""
    values = _from_first(whole)
    rows = len(values)
    size = float(np.abs(values).max(initial=0.0))
    if not np.isfinite(size) or rows < 3:
        return np.abs(values)
    least = np.full(rows, np.inf)
    steps = np.arange(-SURPRISE_REACH, SURPRISE_REACH + 1)
    for first in steps[steps != 0]:
        for second in steps[steps > first]:
            if second == 0:
                continue
            # the line through two rows near by
            here = np.arange(max(0, -first), min(rows, rows - second))
            here = here[(here + first < rows) & (here + second >= 0)]
            a, b = values[here + first], values[here + second]
            line = a + (b - a) * (-first / (second - first))
            least[here] = np.minimum(least[here], np.abs(values[here] - line))
    for where, left in _regressions(values, SURPRISE_ROWS_PER_FIT):
        least[where] = np.minimum(least[where], np.abs(left))
    return least
