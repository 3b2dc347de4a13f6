"""Relations as somebody would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from affinedp.relations.relation import Relation


def written_equation(relation: Relation, names: Sequence[str], alone: int | None = None) -> str:
    """Return a relation as somebody would write it: a total on the left, its parts on the right.

    Parameters
    ----------
    relation : Relation
        The relation.
    names : sequence of str
        One per term, quoted where needed.
    alone : int, optional
        The term that stands on the left by itself, where that is wanted.

    Examples
    --------
    >>> one = Fraction(1)
    >>> written_equation(Relation({0: one, 1: one, 2: -one}), ["a", "b", "total"])
    'total = a + b'
    >>> written_equation(Relation({0: one, 1: one}, Fraction(-100)), ["yes", "no"])
    'yes + no = 100'
    >>> written_equation(Relation({0: Fraction(195583, 100000), 1: -one}), ["eur", "dem"])
    'dem = 1.95583*eur'
    """
    relation = relation.scaled()
    if alone is None:
        left, scale = _left_side(relation)
    else:
        left, scale = {alone}, relation.coefficients[alone]
    values = {j: value / scale for j, value in relation.coefficients.items()}
    offset = relation.offset / scale
    here = {j: value for j, value in values.items() if j in left}
    there = {j: -value for j, value in values.items() if j not in left}
    return f"{_side(here, Fraction(0), names)} = {_side(there, -offset, names)}"


def _left_side(relation: Relation) -> tuple[set[int], Fraction]:
    """Which terms stand on the left, and what everything is divided by."""
    values = relation.coefficients
    plus = {j for j, value in values.items() if value > 0}
    minus = set(values) - plus
    if not plus or not minus:
        return set(values), Fraction(1 if plus else -1)
    alone = [side for side in (plus, minus) if len(side) == 1]
    if len(alone) == 2:
        # a = 2 b rather than b = 0.5 a
        first, second = sorted(values)
        other = min(
            (second, first), key=lambda j: abs(values[first + second - j] / values[j]).denominator
        )
        return {other}, values[other]
    left = alone[0] if alone else min(plus, minus, key=lambda side: (len(side), min(side)))
    if alone:
        return left, values[next(iter(left))]
    return left, Fraction(1 if left is plus else -1)


def _side(values: Mapping[int, Fraction], constant: Fraction, names: Sequence[str]) -> str:
    text = ""
    for j in sorted(values, key=lambda j: (values[j] < 0, j)):
        size = written_number(abs(values[j]))
        term = names[j] if size == "1" else f"{size}*{names[j]}"
        sign = "-" if values[j] < 0 else "+"
        text += f" {sign} {term}" if text else f"{'-' if sign == '-' else ''}{term}"
    if not text:
        return written_number(constant)
    if constant:
        text += f" {'-' if constant < 0 else '+'} {written_number(abs(constant))}"
    return text


def written_number(value: Fraction) -> str:
    """Return an exact number as a decimal where it is one, otherwise as a quotient.

    Parameters
    ----------
    value : Fraction
        The number.

    Examples
    --------
    >>> written_number(Fraction(5, 4)), written_number(Fraction(-1, 3)), written_number(Fraction(7))
    ('1.25', '-1/3', '7')
    """
    for digits in range(1, 19):
        if value.denominator > 1 and 10**digits % value.denominator == 0:
            whole = str(abs(int(value * 10**digits))).rjust(digits + 1, "0")
            return f"{'-' if value < 0 else ''}{whole[:-digits]}.{whole[-digits:]}"
    return str(value)


def quoted(name: str) -> str:
    """Return a name as equations write it: in backticks unless it is an identifier.

    Parameters
    ----------
    name : str
        Name of a column.
    """
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
