"""Formulas of published numbers: read from a text or traced through a function, never executed.

A formula is a tree of sums, products, quotients, powers and a few functions over affine forms.
It can be evaluated at many points, bounded over boxes with rounding on the safe side, and
recognised as a ratio of two linear forms.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError

MAX_CHARACTERS = 10_000
EPS = float(np.finfo(float).eps)
_QUOTED = re.compile(r"`((?:[^`]|``)+)`(?!`)")


@dataclass(frozen=True, eq=False)
class Formula:
    """One node: an affine form, or an operation on other nodes.

    NumPy calls its methods for arrays of formulas, so an ordinary function can be traced; whatever
    would look at a value is refused.
    """

    kind: str = "affine"
    parts: tuple[Formula, ...] = ()
    # of an affine form: coefficients by place and the constant; of a power: the exponent
    coefficients: Mapping[int, float] = field(default_factory=dict)
    number: float = 0.0

    @property
    def is_constant(self) -> bool:
        """Whether it is a number."""
        return self.kind == "affine" and not self.coefficients

    def __add__(self, other: Any) -> Formula:
        other = as_formula(other)
        if self.kind == other.kind == "affine":
            merged = dict(self.coefficients)
            for place, value in other.coefficients.items():
                merged[place] = merged.get(place, 0.0) + value
            kept = {place: value for place, value in merged.items() if value}
            return Formula(coefficients=kept, number=self.number + other.number)
        terms = [*(self.parts if self.kind == "sum" else (self,))]
        terms += other.parts if other.kind == "sum" else (other,)
        return Formula("sum", tuple(terms))

    def __mul__(self, other: Any) -> Formula:
        other = as_formula(other)
        one, rest = (self, other) if self.is_constant else (other, self)
        if not one.is_constant:
            return Formula("times", (self, other))
        if rest.kind != "affine":
            return Formula("times", (one, rest))
        scaled = {i: one.number * v for i, v in rest.coefficients.items() if one.number * v}
        return Formula(coefficients=scaled, number=one.number * rest.number)

    def __truediv__(self, other: Any) -> Formula:
        other = as_formula(other)
        if other.is_constant and other.number and self.kind == "affine":
            divided = {i: v / other.number for i, v in self.coefficients.items()}
            return Formula(coefficients=divided, number=self.number / other.number)
        return Formula("over", (self, other))

    def __pow__(self, other: Any) -> Formula:
        exponent = as_formula(other)
        if not exponent.is_constant:
            raise TypeError("an exponent must be a number")
        return self if exponent.number == 1 else Formula("power", (self,), number=exponent.number)

    def __neg__(self) -> Formula:
        return self * -1.0

    def __pos__(self) -> Formula:
        return self

    def __sub__(self, other: Any) -> Formula:
        return self + -as_formula(other)

    def __rsub__(self, other: Any) -> Formula:
        return as_formula(other) - self

    def __rtruediv__(self, other: Any) -> Formula:
        return as_formula(other) / self

    def __rpow__(self, other: Any) -> Formula:
        raise TypeError("an exponent must be a number")

    __radd__, __rmul__ = __add__, __mul__

    def __abs__(self) -> Formula:
        return Formula("abs", (self,))

    # NumPy asks objects for functions by these names
    def log(self) -> Formula:
        """Return np.log of it."""
        return Formula("log", (self,))

    def exp(self) -> Formula:
        """Return np.exp of it."""
        return Formula("exp", (self,))

    def sqrt(self) -> Formula:
        """Return np.sqrt of it."""
        return Formula("sqrt", (self,))

    def _refused(self, *others: Any) -> bool:
        raise TypeError("a formula has no value to look at")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __hash__ = None  # type: ignore[assignment]

    def places(self) -> set[int]:
        """Return which numbers it reads."""
        return set(self.coefficients).union(*(part.places() for part in self.parts))


def entry(place: int) -> Formula:
    """Return the number at a place."""
    return Formula(coefficients={place: 1.0})


def as_formula(value: Any) -> Formula:
    """Return a formula, or a real number as one."""
    if isinstance(value, Formula):
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.floating | np.integer):
        raise TypeError(f"{type(value).__name__} is no number")
    return Formula(number=float(value))


# ------------------------------------------------------------------ from a text

_CALLS: dict[str, Callable[..., Formula]] = {
    "log": Formula.log, "exp": Formula.exp, "sqrt": Formula.sqrt, "abs": Formula.__abs__,
    "min": lambda *parts: Formula("min", parts), "max": lambda *parts: Formula("max", parts),
}  # fmt: skip
_OPERATORS: dict[type[ast.AST], Callable[..., Formula]] = {
    ast.Add: Formula.__add__, ast.Sub: Formula.__sub__, ast.Mult: Formula.__mul__,
    ast.Div: Formula.__truediv__, ast.Pow: Formula.__pow__,
    ast.UAdd: Formula.__pos__, ast.USub: Formula.__neg__,
}  # fmt: skip


def read_formula(text: str, named: Callable[[str], Formula], names: Container[str] = ()) -> Formula:
    """Return the formula that a text such as ``"women / all"`` states; nothing is executed.

    Names that are no plain identifiers stand in backticks, as in equations.  A number that is
    among the ``names``, as years are, is refused without them.

    Examples
    --------
    >>> found = read_formula("`a (old)` / (b + 1)", lambda name: entry(len(name)))
    >>> found.kind, sorted(found.places())
    ('over', [1, 7])
    """
    quoted: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        quoted.append(match[1].replace("``", "`"))
        return f" quoted_{len(quoted) - 1}_ "

    def read(node: ast.expr) -> Formula:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            number = str(node.value)
            if number in names:
                raise TypeError(
                    f"{number} is a number, and the name of an output: write `{number}` if the "
                    f"output is meant, {float(number)} if not"
                )
            return as_formula(node.value)
        if isinstance(node, ast.Name):
            place = re.fullmatch(r"quoted_(\d+)_", node.id)
            return named(quoted[int(place[1])] if place else node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](read(node.left), read(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](read(node.operand))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            called = _CALLS.get(node.func.id)
            count = len(node.args)
            if called is not None and (count == 1 or (count > 1 and node.func.id in "min max")):
                return called(*map(read, node.args))
        raise TypeError(
            f"{ast.unparse(node)!r} is no arithmetic: write numbers, names, + - * / **, and "
            f"{', '.join(_CALLS)}; names with other signs stand in backticks"
        )

    if len(text) > MAX_CHARACTERS:
        raise AffineDPError(f"a formula has at most {MAX_CHARACTERS:,} characters")
    if "quoted_" in text:
        raise AffineDPError("write names that contain 'quoted_' in another way: it is used here")
    try:
        return read(ast.parse(_QUOTED.sub(placeholder, text).strip(), mode="eval").body)
    except (TypeError, OverflowError, ZeroDivisionError) as error:
        raise AffineDPError(f"the formula {text!r} is not read: {error}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, AffineDPError):
            raise
        raise AffineDPError(
            f"the formula {text[:80]!r} is not read ({error}): write it as in 'a / (a + b)'; names "
            "that are no plain identifiers stand in backticks"
        ) from None


# ------------------------------------------------------------------ values, and ranges over boxes


def evaluate(formula: Formula, points: FloatArray) -> FloatArray:
    """Return its values at points, one per row; NaN where it is undefined."""
    parts = [evaluate(part, points) for part in formula.parts]
    with np.errstate(all="ignore"):
        if formula.kind == "affine":
            places, values = _terms(formula)
            return np.asarray(points[..., places] @ values + formula.number)
        if formula.kind == "sum":
            return np.asarray(np.sum(parts, axis=0))
        if formula.kind == "power":
            return np.asarray(np.power(parts[0], formula.number))
        if formula.kind in ("min", "max"):
            chosen = np.minimum if formula.kind == "min" else np.maximum
            return np.asarray(chosen.reduce(parts))
        one = {"times": np.multiply, "over": np.divide, "log": np.log, "exp": np.exp,
               "sqrt": np.sqrt, "abs": np.abs}[formula.kind]  # fmt: skip
        return np.asarray(one(*parts))


def _terms(formula: Formula) -> tuple[IntArray, FloatArray]:
    """Places and coefficients of an affine form."""
    count = len(formula.coefficients)
    places = np.fromiter(formula.coefficients.keys(), dtype=np.intp, count=count)
    return places, np.fromiter(formula.coefficients.values(), dtype=float, count=count)


Range = tuple[FloatArray, FloatArray]


def range_over(formula: Formula, low: FloatArray, high: FloatArray) -> Range:
    """Return bounds of its values over boxes, one per row, never too narrow.

    Where it is undefined on part of a box they are infinite.  Library functions are taken to be
    right to 4 units in the last place, as those of NumPy are.
    """
    parts = [range_over(part, low, high) for part in formula.parts]
    with np.errstate(all="ignore"):
        bottom, top, ulps = _OF_KIND[formula.kind](formula, parts, low, high)
    bad = np.isnan(bottom) | np.isnan(top)
    bottom, top = np.where(bad, -np.inf, bottom), np.where(bad, np.inf, top)
    for _ in range(ulps):
        bottom, top = np.nextafter(bottom, -np.inf), np.nextafter(top, np.inf)
    return bottom, top


Bounds = tuple[Any, Any, int]
Boxes = FloatArray


def _affine(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
    places, values = _terms(formula)
    ends = np.stack([values * low[..., places], values * high[..., places]])
    slack = (len(places) + 4) * EPS * (np.abs(ends).max(axis=0).sum(-1) + abs(formula.number))
    bottom = ends.min(axis=0).sum(-1) + formula.number - slack
    return bottom, ends.max(axis=0).sum(-1) + formula.number + slack, 1


def _sum(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
    bottoms, tops = (np.stack(ends) for ends in zip(*parts))
    slack = len(parts) * EPS * np.maximum(np.abs(bottoms), np.abs(tops)).sum(axis=0)
    return bottoms.sum(axis=0) - slack, tops.sum(axis=0) + slack, 1


def _corners(pairs: Sequence[FloatArray]) -> Bounds:
    return np.min(pairs, axis=0), np.max(pairs, axis=0), 1


def _times(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
    first, second = parts
    return _corners([a * b for a in first for b in second])


def _over(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
    first, (a, b) = parts
    bottom, top, ulps = _corners([one / other for one in first for other in (a, b)])
    apart = (a > 0) | (b < 0)
    return np.where(apart, bottom, np.nan), np.where(apart, top, np.nan), ulps


def _power(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
    (a, b), k = parts[0], formula.number
    if k == int(k) and k < 0:
        inverse = Formula("over", (Formula(number=1.0), Formula("power", (entry(0),), {}, -k)))
        bottom, top = range_over(inverse, a[..., None], b[..., None])
        return bottom, top, 1
    bottom, top, _ = _corners([a**k, b**k])
    if k == int(k):
        through = (a < 0) & (b > 0) & (k % 2 == 0)
        return np.where(through, 0.0, bottom), top, 4
    return np.where(a >= 0, bottom, np.nan), top, 4


def _absolute(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
    a, b = parts[0]
    through = (a < 0) & (b > 0)
    return (np.where(through, 0.0, np.minimum(abs(a), abs(b))), np.maximum(abs(a), abs(b)), 0)


def _rising(of: Callable[[Any], Any], least: float) -> Callable[..., Bounds]:
    def bounds(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
        a, b = parts[0]
        return np.where(a >= least, of(a), np.nan), of(b), 4

    return bounds


def _extreme(of: Any) -> Callable[..., Bounds]:
    def bounds(formula: Formula, parts: Sequence[Range], low: Boxes, high: Boxes) -> Bounds:
        return of.reduce([a for a, _ in parts]), of.reduce([b for _, b in parts]), 0

    return bounds


_OF_KIND: dict[str, Callable[..., Bounds]] = {
    "affine": _affine, "sum": _sum, "times": _times, "over": _over, "power": _power,
    "abs": _absolute, "log": _rising(np.log, 0.0), "sqrt": _rising(np.sqrt, 0.0),
    "exp": _rising(np.exp, -math.inf), "min": _extreme(np.minimum), "max": _extreme(np.maximum),
}  # fmt: skip


# ------------------------------------------------------------------ ratios of linear forms

Ratio = tuple[Formula, Formula]


def as_ratio(formula: Formula) -> Ratio | None:
    """Return affine forms whose quotient it is, or None."""
    if formula.kind == "affine":
        return formula, Formula(number=1.0)
    found = [as_ratio(part) for part in formula.parts]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found) or formula.kind not in ("sum", "times", "over"):
        return None
    total = parts[0]
    for part in parts[1:]:
        joined = _JOIN[formula.kind](*total, *part)
        if joined is None:
            return None
        total = joined
    return total


def _same(one: Formula, other: Formula) -> bool:
    return one.number == other.number and one.coefficients == other.coefficients


def _add(p: Formula, q: Formula, r: Formula, s: Formula) -> Ratio | None:
    if _same(q, s):
        return p + r, q
    if q.is_constant or s.is_constant:
        return _affine_only(p * s + r * q, q * s)
    return None


def _multiply(p: Formula, q: Formula, r: Formula, s: Formula) -> Ratio | None:
    if _same(p, s):
        return r, q
    if _same(q, r):
        return p, s
    return _affine_only(p * r, q * s)


def _divide(p: Formula, q: Formula, r: Formula, s: Formula) -> Ratio | None:
    return _multiply(p, q, s, r)


def _affine_only(above: Formula, below: Formula) -> Ratio | None:
    return (above, below) if above.kind == below.kind == "affine" else None


_JOIN = {"sum": _add, "times": _multiply, "over": _divide}
