"""Formulas: what is read, what is refused, and ranges that are never too narrow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.functions.formula import as_ratio, entry, evaluate, range_over, read_formula

NAMES = {"a": 0, "b": 1, "c": 2}


def read(text):
    return read_formula(text, lambda name: entry(NAMES[name]))


@pytest.mark.parametrize(
    ("text", "value"),
    [("a / (b + 1)", 0.5), ("-a ** 2 + 3", -1.0), ("max(a, b, 1) * abs(-c)", 15.0),
     ("log(exp(a)) + sqrt(b + 1)", 4.0), ("`a` / 4", 0.5), ("2", 2.0),
     ("(a + b) * (a - b)", -5.0), ("a ** -1", 0.5)],
)  # fmt: skip
def test_texts_are_read(text, value):
    assert evaluate(read(text), np.array([[2.0, 3.0, 5.0]])) == pytest.approx([value])


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "a.real", "a[0]", "(lambda: 1)()", "a if b else c",
     "a == b", "open('x')", "a ** b", "True + a", "'x'", "1j * a", "a +", "a b", "log(a, b)",
     "log()", "-" * 9_000 + "a", "a+" * 4_000 + "a", "(" * 500 + "a" + ")" * 500, "a" * 20_000, "",
     "a // b", "a @ b", "{a}", "[a for a in b]", "quoted_0_", "`a", "9" * 400 + " ** 2 + a"],
)  # fmt: skip
def test_nothing_else_is_read(text):
    with pytest.raises(AffineDPError):
        evaluate(read(text), np.array([[2.0, 3.0, 5.0]]))


def test_a_number_that_is_a_name_too_is_asked_about():
    """Years are names of columns: 2023 / total would be a number over a column."""
    M = adp.AffineManifold.from_equations(["`2023` + `2024` = total"])
    m, y = adp.design_gaussian(M, epsilon=1.0, delta=1e-6), [1000.0, 3000.0, 4000.0]
    with pytest.raises(AffineDPError, match=r"write `2023` if the output is meant, 2023.0 if not"):
        m.function(y, "2023 / total")
    assert m.function(y, "`2023` / total").value == pytest.approx(0.25, rel=1e-3)
    assert m.function(y, "2023.0 / total + 2022").value == pytest.approx(2022 + 2023 / 4000)


TEXTS = (
    "a * b - c", "a / b", "(a - b) ** 2 / (c ** 2 + 1)", "exp(a / 10) * log(b)", "a ** 3 * c",
    "abs(a - c) ** 0.5", "sqrt(b) / (a - c)", "min(a, b) * max(b, c)", "b ** -2 + a * a",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_a_range_holds_all_values(text, seed):
    generator = np.random.default_rng(seed)
    low = generator.normal(0, 3, (1, 3))
    high = low + generator.exponential(1, (1, 3)) * generator.integers(0, 2, (1, 3))
    bottom, top = range_over(read(text), low, high)
    inside = low + (high - low) * generator.random((200, 3))
    values = evaluate(read(text), np.vstack([inside, low, high]))
    defined = values[np.isfinite(values)]
    assert (bottom[0] <= defined).all()
    assert (defined <= top[0]).all()
    if len(defined) < len(values):
        assert (bottom[0], top[0]) == (-np.inf, np.inf) or not np.isfinite(bottom[0] + top[0])


@pytest.mark.parametrize(
    "text", ["a/c", "1 - a/c", "100*a/(a + b)", "a/c/(b/c)", "a/c + b/c", "3*a - b"]
)
def test_ratios_are_recognised(text):
    above, below = as_ratio(read(text))
    points = np.random.default_rng(0).normal(size=(20, 3))
    assert evaluate(above, points) / evaluate(below, points) == pytest.approx(
        evaluate(read(text), points)
    )


@pytest.mark.parametrize("text", ["a*b/c", "a/b + b/c", "log(a)", "a**2", "abs(a)/c"])
def test_what_is_no_ratio(text):
    assert as_ratio(read(text)) is None
