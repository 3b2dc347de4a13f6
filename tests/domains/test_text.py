"""Text equations: what is read, what is refused, and where."""

from __future__ import annotations

import pickle
import re
import unicodedata
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from affinedp.domains.text import (
    MAX_BITS,
    MAX_CHARACTERS,
    MAX_NESTING,
    LinearEquations,
    format_equation,
    parse_equations,
)
from affinedp.errors import AffineDPError, EquationError


def one(text: str, names: list[str] | None = None) -> tuple[dict[str, Fraction], Fraction]:
    """One equation as {name: coefficient} and offset."""
    found = parse_equations([text], names)
    (row,), (offset,) = found.coefficients, found.offsets
    assert all(isinstance(value, Fraction) and value != 0 for value in row.values())
    assert isinstance(offset, Fraction)
    return {found.names[column]: value for column, value in row.items()}, offset


@pytest.mark.parametrize(
    ("text", "row", "offset"),
    [
        ("a + b = c", {"a": 1, "b": 1, "c": -1}, 0),
        ("0.1*v = p", {"v": "1/10", "p": -1}, 0),
        ("2 a = 3b", {"a": 2, "b": -3}, 0),
        ("1e-3*a = 1E+2", {"a": "1/1000"}, -100),
        ("1/3*a = b/4", {"a": "1/3", "b": "-1/4"}, 0),
        ("1/3 a = 1/2 (b + 1)", {"a": "1/3", "b": "-1/2"}, "-1/2"),
        ("2*(a - b) = 0", {"a": 2, "b": -2}, 0),
        ("2(a - 3(b - 1)) = 0", {"a": 2, "b": -6}, 6),
        ("(a - b)*2/4 = 0", {"a": "1/2", "b": "-1/2"}, 0),
        ("(1/2) a = (2)(b)", {"a": "1/2", "b": -2}, 0),
        ("-a = --b", {"a": -1, "b": -1}, 0),
        ("a*-2 = 1/-4", {"a": -2}, "1/4"),
        ("- 2 a - (-b) = +1", {"a": -2, "b": 1}, -1),
        ("a + b = 100", {"a": 1, "b": 1}, -100),
        (".5a = 1.", {"a": "1/2"}, -1),
        ("5 = a", {"a": -1}, 5),
        ("a - a = b", {"b": -1}, 0),
        ("a = a", {}, 0),
        ("0 = 5", {}, -5),
        ("0*a = 0", {}, 0),
        ("(a - a)*b = c", {"c": -1}, 0),
        ("2*3*a/6 = 1", {"a": 1}, -1),
        ("a/2/2 = 1", {"a": "1/4"}, -1),
        ("a/(1/2) = 1", {"a": 2}, -1),
        ("2`e` = `_x`", {"e": 2, "_x": -1}, 0),
        ("`GDP (total)` = 2 `p(0)`", {"GDP (total)": 1, "p(0)": -2}, 0),
        ("`a``b` = 1", {"a`b": 1}, -1),
        ("`a` = 2*a + b", {"a": -1, "b": -1}, 0),
        ("naïve + größe = 速度 + हिन्दी", {"naïve": 1, "größe": 1, "速度": -1, "हिन्दी": -1}, 0),
        (" a\t+\n b=c ", {"a": 1, "b": 1, "c": -1}, 0),
        ("1e400*a/1e400 = 0", {"a": 1}, 0),
        ("1/2 (a)(3) = 0", {"a": "3/2"}, 0),
        (" + ".join(["(a)"] * 60) + " = 0", {"a": 60}, 0),
        ("lambda = None", {"lambda": 1, "None": -1}, 0),
    ],
)
def test_reads(text: str, row: dict[str, int | str], offset: int | str) -> None:
    assert one(text) == ({name: Fraction(value) for name, value in row.items()}, Fraction(offset))


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "no '='"),
        ("   ", 3, "no '='"),
        ("a + b", 5, "no '='"),
        ("a = b = c", 6, "one '='"),
        ("a = = c", 4, "one '='"),
        ("a == b", 2, "one '='"),
        ("= 3", 0, "empty"),
        ("a =", 3, "empty"),
        ("a = ", 4, "empty"),
        ("=", 0, "empty"),
        ("a*b = 1", 2, "product"),
        ("2 a (b) = 1", 4, "'*'"),
        ("2 (a) b = 1", 6, "product"),
        ("(a + 1)*(b + 1) = 1", 8, "product"),
        ("a*a = 1", 2, "product"),
        ("1/a = 1", 2, "division by an entry"),
        ("b/(a + 1) = 1", 2, "division by an entry"),
        ("a/a = 1", 2, "division by an entry"),
        ("a/0 = 1", 2, "by zero"),
        ("a/(1 - 1) = 1", 2, "by zero"),
        ("1/(a - a) = b", 2, "by zero"),
        ("a/-0.0 = 1", 2, "by zero"),
        ("a**2 = 1", 1, "powers"),
        ("2**3 = a", 1, "powers"),
        ("a^2 = 1", 1, "CIRCUMFLEX"),
        ("a − b = 0", 2, "MINUS SIGN"),
        ("a = b; c = d", 5, "SEMICOLON"),
        ("a ≤ b", 2, "LESS-THAN"),
        ("a <= b", 2, "LESS-THAN"),
        ("a = 1,000", 5, "COMMA"),
        ("x² = 1", 1, "SUPERSCRIPT"),
        ("٣ = a", 0, "ARABIC"),
        ("a\0 = 1", 1, "U+0000"),
        ("a b = 1", 2, "'*'"),
        ("a 2 = 1", 2, "'*'"),
        ("1 000 = a", 2, "'*'"),
        ("1.000.000 = a", 5, "'*'"),
        ("p(0) = 1", 1, "backticks"),
        ("(a) 2 = 1", 4, "'*'"),
        ("a/2(3) = 1", 3, "divisor"),
        ("6/2(1 + 2) = a", 3, "divisor"),
        ("1_000 a = 1", 0, "not a number"),
        ("a = 0x10", 4, "not a number"),
        ("1e -3*a = 1", 0, "not a number"),
        ("a + = 1", 4, "missing"),
        ("a = 1 +", 7, "missing"),
        ("* a = 1", 0, "missing"),
        ("a */ b = 1", 3, "missing"),
        ("() = 1", 1, "missing"),
        ("(a = b)", 0, "not closed"),
        ("a = 2*((b)", 6, "not closed"),
        ("a) = b", 1, "not opened"),
        ("a = b)", 5, "not opened"),
        ("`a = 1", 0, "not closed"),
        ("`` = 1", 0, "empty"),
        ("`a`` = 1", 0, "not closed"),
        ("a = 1e999999999", 4, "exponent"),
        ("a = 1e-401", 4, "exponent"),
        ("a = 1e400", 2, "floats"),
        ("1e-400 a = 1", 9, "floats"),
    ],
)
def test_refuses_with_the_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(EquationError) as caught:
        parse_equations(["a = b", text])
    assert caught.value.text == text
    assert caught.value.position == position
    assert reason in str(caught.value).splitlines()[0]


def test_caret_stands_under_the_place() -> None:
    with pytest.raises(EquationError) as caught:
        parse_equations(["a = b = c"])
    _, text, caret = str(caught.value).splitlines()
    assert text[caret.index("^")] == "="
    assert caret.index("^") == text.rindex("=")


def test_names_in_order_of_appearance_also_when_they_cancel() -> None:
    found = parse_equations(["c - c + a = b", "d = a"])
    assert found.names == ("c", "a", "b", "d")
    assert found.coefficients == ({1: 1, 2: -1}, {3: 1, 1: -1})
    assert found.offsets == (0, 0)


def test_given_names_fix_the_order_and_may_be_free() -> None:
    found = parse_equations(["a = b"], ["free", "b", "a"])
    assert found == LinearEquations(("free", "b", "a"), ({2: 1, 1: -1},), (Fraction(0),))
    assert parse_equations([], ["x"]) == LinearEquations(("x",), (), ())
    assert parse_equations([]) == LinearEquations((), (), ())


def test_a_name_that_was_not_given() -> None:
    with pytest.raises(EquationError, match="'b2' is not among") as caught:
        parse_equations(["a = 2*b2"], ["a", "b"])
    assert caught.value.position == 6


def test_two_encodings_of_a_letter_are_one_name() -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    assert parse_equations([f"{composed} = 2 {decomposed}"]).names == (composed,)
    found = parse_equations([f"{composed} = 2 `{decomposed}`"], [decomposed])
    assert found.names == (decomposed,)
    assert found.coefficients == ({0: -1},)
    with pytest.raises(AffineDPError, match="twice"):
        parse_equations([], [composed, decomposed])


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""], ["a", 1], "ab", [None]])
def test_bad_names(names: object) -> None:
    with pytest.raises(AffineDPError, match="name"):
        parse_equations(["a = 1"], names)  # type: ignore[arg-type]


@pytest.mark.parametrize("equations", ["a = b", [1], [None], [["a = b"]]])
def test_bad_lists_of_equations(equations: object) -> None:
    with pytest.raises(AffineDPError, match="equation"):
        parse_equations(equations)  # type: ignore[arg-type]


def test_is_a_plain_value() -> None:
    found = parse_equations(["a = 0.1*b"])
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(AttributeError):
        found.names = ()  # type: ignore[misc]


def test_nesting_up_to_the_limit() -> None:
    for depth in (MAX_NESTING, MAX_NESTING + 1):
        text = "(" * depth + "a" + ")" * depth + " = 1"
        if depth == MAX_NESTING:
            assert one(text) == ({"a": 1}, -1)
        else:
            with pytest.raises(EquationError, match="nested") as caught:
                parse_equations([text])
            assert caught.value.position == MAX_NESTING


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + "a=1",
        "a" + "*3" * 50_000 + "=1",
        "+".join(f"1/{n}" for n in range(1, 5000)) + "=a",
        "9" * 100_000 + "=a",
        "a=0." + "9" * 100_000,
        "a=1e" + "9" * 100_000,
        "`" * 99_999 + "=a",
        "a=1" + " " * MAX_CHARACTERS,
    ],
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(AffineDPError):
        parse_equations([text])


@pytest.mark.parametrize("text", ["-" * 50_000 + "a=1", "a" + "+1-1" * 10_000 + "=1"])
def test_long_texts_are_read(text: str) -> None:
    assert one(text) == ({"a": 1}, -1)


def test_many_entries() -> None:
    names = [f"x{i}" for i in range(5_000)]
    found = parse_equations([" + ".join(names) + " = total"])
    assert found.names == (*names, "total")
    assert len(found.coefficients[0]) == 5_001


# Random equations, against Python's own reading of the same text.

VARIABLES = ("a", "b", "long_name")
numbers = st.one_of(
    st.integers(0, 50).map(str),
    st.decimals(0, 100, places=3).map(lambda d: f"{d:f}"),
    st.tuples(st.integers(0, 9), st.integers(-5, 5)).map(lambda t: f"{t[0]}e{t[1]}"),
)
positive = st.integers(1, 20).map(str)


def sums(factors: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    term = st.one_of(
        factors,
        st.tuples(numbers, factors).map("*".join),
        st.tuples(factors, numbers).map(" * ".join),
        st.tuples(factors, positive).map("/".join),
        st.tuples(positive, positive, factors).map(lambda t: f"{t[0]}/{t[1]}*{t[2]}"),
        factors.map("-{}".format),
    )
    rest = st.lists(st.tuples(st.sampled_from([" + ", "-", " - -"]), term), max_size=3)
    return st.tuples(term, rest).map(lambda t: t[0] + "".join(s + x for s, x in t[1]))


expressions = st.recursive(
    st.one_of(st.sampled_from(VARIABLES), numbers),
    lambda inner: sums(inner).map("({})".format),
    max_leaves=12,
).flatmap(lambda text: sums(st.just(text)))

values = st.fractions(-100, 100, max_denominator=50)


def evaluated(text: str, point: dict[str, Fraction]) -> Fraction:
    """Python's value of a text in which every number literal is made exact."""
    exact = re.sub(r"(?<![\w.])[0-9][0-9.]*(?:e-?[0-9]+)?", r"F('\g<0>')", text)
    return Fraction(eval(exact, {"__builtins__": {}, "F": Fraction}, dict(point)))


@pytest.mark.slow
@given(expressions, expressions, st.tuples(values, values, values))
def test_value_is_that_of_python(left: str, right: str, at: tuple[Fraction, ...]) -> None:
    point = dict(zip(VARIABLES, at, strict=True))
    row, offset = one(f"{left} = {right}", list(VARIABLES))
    found = sum((c * point[name] for name, c in row.items()), offset)
    assert found == evaluated(left, point) - evaluated(right, point)


@given(expressions, st.sampled_from(VARIABLES), st.sampled_from(VARIABLES))
def test_products_of_entries_are_refused_anywhere(text: str, first: str, second: str) -> None:
    with pytest.raises(EquationError):
        parse_equations([f"{text} + {first}*{second} = 0"])


anything = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="ab12.e+-*/()=` \n_", max_size=40),
    st.lists(
        st.sampled_from(["a", "b", "2", "1e5", "/", "*", "+", "-", "(", ")", "=", " ", "`", "0"]),
        max_size=30,
    ).map("".join),
)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(anything, max_size=3), st.none() | st.lists(st.text(max_size=3), max_size=4))
@example(["=\ud800"], None)
def test_any_text_is_read_or_refused(texts: list[str], names: list[str] | None) -> None:
    try:
        found = parse_equations(texts, names)
    except AffineDPError as error:
        refusal = error
    else:
        assert len(found.coefficients) == len(found.offsets) == len(texts)
        written = [
            format_equation(row, offset, found.names)
            for row, offset in zip(found.coefficients, found.offsets, strict=True)
        ]
        assert parse_equations(written, found.names) == found
        return
    if isinstance(refusal, EquationError):
        assert refusal.text in texts
        assert 0 <= refusal.position <= len(refusal.text)


# Writing equations back.


@pytest.mark.parametrize(
    ("row", "offset", "text"),
    [
        ({0: 1, 1: 1, 2: -1}, 0, "a + b - c d = 0"),
        ({0: -1, 1: 2}, -100, "-a + 2*b = 100"),
        ({1: Fraction(1, 10)}, Fraction(1, 3), "0.1*b = -1/3"),
        ({0: Fraction(-1, 3), 1: Fraction(-5, 4)}, Fraction(1, 2), "-1/3*a - 1.25*b = -0.5"),
        ({}, 0, "0 = 0"),
        ({0: 0}, 5, "0 = -5"),
        ({0: 0.1, 1: -2.0}, -0.0, "0.1*a - 2*b = 0"),
        ({1: 1e-7}, 1e300, "1e-07*b = -1e+300"),
    ],
)
def test_writes(row: dict[int, Fraction], offset: Fraction, text: str) -> None:
    written = format_equation(row, offset, ["a", "b", "c d"])
    assert written == text.replace("c d", "`c d`")


names_of_any_kind = st.lists(
    st.text(min_size=1, max_size=6)
    | st.sampled_from(["a", "e", "E5", "_", "`", "a`", "p(0)", "if", "=", "x y", "é"]),
    min_size=1,
    max_size=5,
    unique_by=lambda name: unicodedata.normalize("NFC", name),
)
huge = 2**MAX_BITS - 1
coefficients = st.one_of(
    st.fractions(),
    st.integers(-3, 3).map(Fraction),
    st.builds(
        Fraction, st.integers(-(10**9), 10**9), st.sampled_from([2, 5, 8, 1000, 10**6, 10**7])
    ),
    st.just(Fraction(huge, huge - 2)),
)


@given(names_of_any_kind, st.data())
def test_fractions_come_back_exactly(names: list[str], data: st.DataObject) -> None:
    columns = st.integers(0, len(names) - 1)
    row = data.draw(st.dictionaries(columns, coefficients))
    offset = data.draw(coefficients)
    found = parse_equations([format_equation(row, offset, names)], names)
    assert found.names == tuple(names)
    assert found.coefficients == ({column: c for column, c in row.items() if c},)
    assert found.offsets == (offset,)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e9, 1e9))
def test_floats_come_back_as_the_same_floats(coefficient: float, offset: float) -> None:
    found = parse_equations([format_equation({0: coefficient}, offset, ["a"])], ["a"])
    assert float(found.coefficients[0].get(0, Fraction(0))) == coefficient
    assert float(found.offsets[0]) == offset


@pytest.mark.parametrize(
    ("row", "offset"),
    [
        ({0: float("nan")}, 0),
        ({0: 1}, float("inf")),
        ({1: 1}, 0),
        ({-1: 1}, 0),
        ({0: Fraction(2**5000)}, 0),
        ({0: 1}, Fraction(1, 10**5000)),
    ],
)
def test_what_cannot_be_written(row: dict[int, float], offset: float) -> None:
    with pytest.raises(AffineDPError):
        format_equation(row, offset, ["a"])


def test_numpy_numbers_are_written_plainly() -> None:
    row = {0: np.float64(0.5), 1: np.int64(2**62 + 1)}
    assert format_equation(row, np.float64(0), ["a", "b"]) == f"0.5*a + {2**62 + 1}*b = 0"


def test_names_with_spaces_are_told_how_names_are_written():
    with pytest.raises(EquationError, match="write women_north, or `women north` in backticks"):
        parse_equations(["women north + men = all"])
