"""Text equations to exact coefficients.

``"cells_in + cells_out = cells_total"`` becomes one row of ``D`` and one entry of ``b`` in
``D x + b = 0`` (Section II of the paper), in rational arithmetic: ``0.1`` is one tenth.

The grammar, loosest first; whitespace only separates::

    equation  =  sum "=" sum
    sum       =  term { ("+" | "-") term }
    term      =  signed { ("*" | "/") signed | factor }     side by side means times, as in 2 a
    signed    =  { "+" | "-" } factor
    factor    =  number | name | "`" any name "`" | "(" sum ")"

A reading that could silently be another one than was meant (``a b``, ``p(0)``, ``1_000``,
``a/2(3)``) is refused: an equation that is misread is an equation that is not protected.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any, NamedTuple

from affinedp.errors import AffineDPError, EquationError

# Limits for hostile input.  Everything below takes time linear in the text as long as numbers
# stay short; the digits allowed in one number are those that MAX_BITS can hold.
MAX_CHARACTERS = 1_000_000
MAX_NESTING = 50
MAX_EXPONENT = 400
MAX_BITS = 4096
MAX_DIGITS = 1300
# What remains is exact, but must also survive as a float.
MIN_SIZE, MAX_SIZE = Fraction(math.ulp(0.0)), Fraction(sys.float_info.max)

_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUOTED = re.compile(r"`((?:[^`]|``)+)`(?!`)")
_SIGNS = "+-*/()="

Exact = int | Fraction  # integers stay int while they can: several times faster


NOT_A_RATE = (
    "division by an entry is not linear. If that entry is public, write its number (rate = 100 * "
    "sick / 5000); if not, leave the rate out and divide what is published, which is free"
)


@dataclass(frozen=True)
class LinearEquations:
    """The equations ``D x + b = 0``, exactly."""

    names: tuple[str, ...]  # one per entry of ``x``: the columns of ``D``
    # one per equation: the nonzero coefficients by column.  An empty row is an equation without
    # entries; with a nonzero offset it contradicts itself.
    coefficients: tuple[Mapping[int, Fraction], ...]
    offsets: tuple[Fraction, ...]  # the entries of ``b``


def parse_equations(
    equations: Sequence[str], names: Sequence[str] | None = None
) -> LinearEquations:
    """Read linear equations such as ``"2 a + 0.1*(b - c) = 100"``.

    Any other name than a plain identifier goes in backticks: ``"`GDP (total)` = a + b"``.
    A backtick inside such a name is doubled.  Equations that the public knows and that are
    missing here are not covered by any promise that is made later.
    """
    _refuse_no_list(equations, "equations")
    columns = {} if names is None else _given_columns(names)
    rows = []
    for text in equations:
        if not isinstance(text, str):
            raise AffineDPError(f"an equation must be a text, not {type(text).__name__}")
        rows.append(_Reader(text, columns, closed=names is not None).equation())
    return LinearEquations(
        tuple(columns if names is None else names),
        tuple({column: Fraction(c) for column, c in row.coefficients.items()} for row in rows),
        tuple(Fraction(row.constant) for row in rows),
    )


def format_equation(
    row: Mapping[int, Fraction | float], offset: Fraction | float, names: Sequence[str]
) -> str:
    """Write one row of ``D x + b = 0`` the way it would be typed.

    Reading the text back gives the same Fractions, and floats that are the same after rounding.
    """
    written = ""
    for column in sorted(row):
        if not 0 <= column < len(names):
            raise AffineDPError(f"column {column} has no name: there are {len(names)} names")
        sign, size = _sign_and_size(row[column])
        if size == "0":
            continue
        term = quoted(names[column]) if size == "1" else f"{size}*{quoted(names[column])}"
        if written:
            written += f" {sign or '+'} {term}"
        else:
            written = sign + term
    sign, size = _sign_and_size(-offset)
    return f"{written or '0'} = {sign}{size}"


def _refuse_no_list(given: Any, what: str) -> None:
    if isinstance(given, str):
        raise AffineDPError(f"{what} must be a list of texts, not one: write [...] around it")
    try:
        iter(given)  # an array of one number says that it can be gone through
    except TypeError:
        raise AffineDPError(f"{what} must be a list of texts, not {type(given).__name__}") from None


def _given_columns(names: Sequence[str]) -> dict[str, int]:
    _refuse_no_list(names, "names")
    columns: dict[str, int] = {}
    for column, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise AffineDPError(f"a name must be a text that is not empty, not {name!r}")
        if columns.setdefault(_same(name), column) != column:
            raise AffineDPError(f"the name {name!r} appears twice in names")
    return columns


def _same(name: str) -> str:
    """Accented letters have two encodings that look alike; they must not become two entries."""
    return unicodedata.normalize("NFC", name)


class _Token(NamedTuple):
    kind: str  # "number", "name", "end", or the sign itself
    text: str  # for a name: the name, without its backticks
    start: int
    end: int


class _Form(NamedTuple):
    """A sum of entries and a constant; no coefficient is zero."""

    coefficients: dict[int, Exact]
    constant: Exact


class _Reader:
    """One text, read from left to right."""

    def __init__(self, text: str, columns: dict[str, int], closed: bool) -> None:
        if len(text) > MAX_CHARACTERS:
            raise AffineDPError(
                f"an equation of {len(text)} characters is too long (at most {MAX_CHARACTERS}); "
                f"it begins with {text[:40]!r}"
            )
        self.text = text
        self.columns = columns
        self.closed = closed  # a new name is then an error, and not the next column
        self.tokens = list(self._tokens())
        self.next = 0
        self.nesting = 0

    def equation(self) -> _Form:
        """The whole text, as left minus right."""
        places = [token.start for token in self.tokens if token.kind == "="]
        if not places:
            raise self._error("this is not an equation: it has no '='", len(self.text))
        if len(places) > 1:
            raise self._error("one '=' only: write each equation by itself", places[1])
        left = self._sum()
        if self._peek().kind != "=":
            raise self._unexpected()
        self._take()
        right = self._sum()
        if self._peek().kind != "end":
            raise self._unexpected()
        form = self._combined([(1, left), (-1, right)], places[0])
        values: list[Exact] = [*form.coefficients.values(), form.constant]
        for value in values:
            if value and not MIN_SIZE <= abs(Fraction(value)) <= MAX_SIZE:
                raise self._error("a number is too large or too small for floats", places[0])
        return form

    def _sum(self) -> _Form:
        start = self._peek().start
        terms = [self._term()]
        while self._peek().kind in ("+", "-"):  # the term itself takes its sign
            terms.append(self._term())
        return self._combined(terms, start)

    def _term(self) -> tuple[Exact, _Form]:
        """A product: the number in it, and the one form that may hold entries.

        Kept apart so that a long product does not rescale a long form at every step.
        """
        one = _Form({}, 1)
        start = self._peek().start
        number, form = self._multiplied(1, one, *self._signed(), start)
        divided = False  # the last thing read was a divisor
        while True:
            sign = self._peek()
            if sign.kind in ("*", "/"):
                self._take()
                start = self._peek().start
                factor, operand = self._signed()
                divided = sign.kind == "/"
                if divided:
                    factor, operand = self._inverse(factor, operand, start), one
            elif self._side_by_side():
                start = sign.start
                factor, operand = 1, self._factor()
                if divided and not operand.coefficients:
                    raise self._error("is this a factor or part of the divisor? write '*'", start)
                divided = False
            else:
                return number, form
            number, form = self._multiplied(number, form, factor, operand, start)

    def _multiplied(
        self, number: Exact, form: _Form, factor: Exact, operand: _Form, start: int
    ) -> tuple[Exact, _Form]:
        """``number * form`` times ``factor * operand``, of which one must be a constant."""
        if not operand.coefficients:
            return self._checked(number * factor * operand.constant, start), form
        if form.coefficients:
            raise self._error("a product of two entries is not linear", start)
        # As long as the form holds no entries it is still the 1 it began with.
        return self._checked(number * factor, start), operand

    def _inverse(self, factor: Exact, operand: _Form, start: int) -> Exact:
        if operand.coefficients:
            raise self._error(NOT_A_RATE, start)
        if not operand.constant:
            raise self._error("division by zero", start)
        return Fraction(factor) / operand.constant  # the factor is a sign

    def _signed(self) -> tuple[Exact, _Form]:
        sign = 1
        while self._peek().kind in ("+", "-"):
            sign = -sign if self._take().kind == "-" else sign
        return sign, self._factor()

    def _factor(self) -> _Form:
        token = self._peek()
        if token.kind == "number":
            return _Form({}, self._number(self._take()))
        if token.kind == "name":
            return _Form({self._column(self._take()): 1}, 0)
        if token.kind != "(":
            raise self._unexpected()
        if self.nesting == MAX_NESTING:
            raise self._error(f"more than {MAX_NESTING} nested parentheses", token.start)
        self._take()
        self.nesting += 1
        inside = self._sum()
        self.nesting -= 1
        if self._peek().kind != ")":
            if self._peek().kind in ("=", "end"):
                raise self._error("this parenthesis is not closed", token.start)
            raise self._unexpected()
        self._take()
        return inside

    def _side_by_side(self) -> bool:
        """Whether a factor follows that a number or a parenthesis before it multiplies."""
        before, after = self.tokens[self.next - 1], self._peek()
        if before.kind not in ("number", ")") or after.kind not in ("name", "("):
            return False
        if before.kind == "number" and before.end == after.start and after.kind == "name":
            # 1_000, 0x10 and a broken exponent such as 1e are not products.
            name = self.text[after.start : after.end]
            if before.text == "0" or name[0] == "_" or name in ("e", "E"):
                reason = f"{before.text + name!r} is not a number; for a product write '*'"
                raise self._error(reason, before.start)
        return True

    def _column(self, token: _Token) -> int:
        name = _same(token.text)
        if self.closed and name not in self.columns:
            raise self._error(f"{token.text!r} is not among the given names", token.start)
        return self.columns.setdefault(name, len(self.columns))

    def _number(self, token: _Token) -> Exact:
        # Checked before anything is computed: 1e999999999 alone would fill the memory.
        if len(token.text) > MAX_DIGITS:
            raise self._error(f"a number of more than {MAX_DIGITS} characters", token.start)
        exponent = token.text.lower().partition("e")[2] or "0"
        if abs(int(exponent)) > MAX_EXPONENT:
            raise self._error(f"an exponent beyond ±{MAX_EXPONENT} is not read", token.start)
        return self._checked(
            int(token.text) if token.text.isdigit() else Fraction(token.text), token.start
        )

    def _combined(self, terms: list[tuple[Exact, _Form]], start: int) -> _Form:
        coefficients: dict[int, Exact] = {}
        constant: Exact = 0
        for number, form in terms:
            constant = self._checked(constant + number * form.constant, start)
            for column, coefficient in form.coefficients.items():
                total = coefficients.get(column, 0) + number * coefficient
                coefficients[column] = self._checked(total, start)
        return _Form({column: c for column, c in coefficients.items() if c}, constant)

    def _checked(self, value: Exact, start: int) -> Exact:
        if _bits(value) > MAX_BITS:
            raise self._error("a number gets too long to be kept exactly", start)
        return value

    def _tokens(self) -> Iterator[_Token]:
        text, start = self.text, 0
        while start < len(text):
            character, end = text[start], start + 1
            if character.isspace():
                pass
            elif text.startswith(("==", "**"), start):
                known = {"=": "write one '=' instead of two", "*": "powers are not read"}
                raise self._error(known[character], start)
            elif character in _SIGNS:
                yield _Token(character, character, start, end)
            elif number := _NUMBER.match(text, start):
                end = number.end()
                yield _Token("number", number[0], start, end)
            elif quoted := _QUOTED.match(text, start):
                end = quoted.end()
                yield _Token("name", quoted[1].replace("``", "`"), start, end)
            elif character.isidentifier():
                while end < len(text) and f"_{text[end]}".isidentifier():
                    end += 1
                yield _Token("name", text[start:end], start, end)
            elif character == "`":
                raise self._error("a name in backticks is empty or not closed", start)
            else:
                # Spelled out: the minus sign of a text editor looks like the one of the keyboard.
                spelled = unicodedata.name(character, f"U+{ord(character):04X}")
                point = ": write decimals with a point: 1.5" if character == "," else ""
                raise self._error(f"{character!r} ({spelled}) has no meaning here{point}", start)
            start = end
        yield _Token("end", "", len(text), len(text))

    def _peek(self) -> _Token:
        return self.tokens[self.next]

    def _take(self) -> _Token:
        self.next += 1
        return self.tokens[self.next - 1]

    def _unexpected(self) -> EquationError:
        """Why the next token cannot stand where it stands."""
        token = self._peek()
        before = self.tokens[self.next - 1].kind if self.next else "="
        if before in ("number", "name", ")"):
            if token.kind == ")":
                reason = "this parenthesis was not opened"
            elif before == "name" and token.kind == "name":
                first, second = self.tokens[self.next - 1].text, token.text
                reason = (
                    f"names have no spaces: write {first}_{second}, or `{first} {second}` in "
                    "backticks; between factors write '*'"
                )
            elif before == "name":
                reason = "write '*' between factors, and a name such as p(0) in backticks: `p(0)`"
            else:
                reason = "write '*' between factors"
        elif before == "=" and token.kind in ("=", "end"):
            reason = "this side of the equation is empty; write 0 if that is meant"
        else:
            reason = "a number, a name or a parenthesis is missing here"
        return self._error(reason, token.start)

    def _error(self, reason: str, position: int) -> EquationError:
        return EquationError(reason, self.text, position)


def _sign_and_size(value: Fraction | float) -> tuple[str, str]:
    """``"-"`` or nothing, and the absolute value as a number or a quotient of two."""
    sign = "-" if value < 0 else ""
    if not isinstance(value, Rational):
        size = abs(float(value))
        if not math.isfinite(size):
            raise AffineDPError(f"an equation cannot be written with the number {value}")
        return sign, repr(size).removesuffix(".0")
    exact = Fraction(abs(int(value.numerator)), int(value.denominator))
    if _bits(exact) > MAX_BITS:
        raise AffineDPError("an equation cannot be written: a number in it is too long")
    for digits in range(1, 7):
        if exact.denominator > 1 and 10**digits % exact.denominator == 0:
            shifted = str(int(exact * 10**digits)).rjust(digits + 1, "0")
            return sign, f"{shifted[:-digits]}.{shifted[-digits:]}"
    return sign, str(exact)


def _bits(value: Exact) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def quoted(name: str) -> str:
    """Return a name as equations write it: in backticks unless it is an identifier."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
