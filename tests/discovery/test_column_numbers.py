"""Numbers are read as they were written, or named as what they are."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.discovery.column_numbers import Numbers, read_numbers
from affinedp.discovery.exact_table import exact_table


def values(numbers: Numbers) -> list[Fraction]:
    return [int(x) * numbers.unit for x in numbers.whole]


@given(st.lists(st.decimals(-(10**9), 10**9, places=3), min_size=1, max_size=30))
def test_decimals_in_doubles_are_those_decimals(given_values):
    read = read_numbers(np.array([float(x) for x in given_values]))
    assert values(read) == [Fraction(x) for x in given_values]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_every_double_is_kept(given_values):
    """As the decimal that was written, or exactly as it is, but for dust."""
    read = read_numbers(np.array(given_values))
    dust = 8 * math.ulp(max(map(abs, given_values))) if read.notes else 0.0
    assert [float(x) for x in values(read)] == pytest.approx(given_values, rel=1e-15, abs=dust)


@given(st.lists(st.integers(-(10**40), 10**40), min_size=1, max_size=20))
def test_integers_of_any_length(given_values):
    objects = np.empty(len(given_values), dtype=object)
    objects[:] = given_values
    assert values(read_numbers(objects)) == given_values


@given(st.lists(st.fractions(-1000, 1000, max_denominator=60), min_size=1, max_size=20))
def test_fractions(given_values):
    objects = np.empty(len(given_values), dtype=object)
    objects[:] = given_values
    assert values(read_numbers(objects)) == given_values


def test_sums_of_decimals_lose_their_dust():
    read = read_numbers(np.array([0.1 + 0.2, 1.1 + 2.2, 5.0]))
    assert values(read) == [Fraction(3, 10), Fraction(33, 10), 5]
    assert read.notes == ("rounding of doubles beyond 1 decimals removed",)


def test_computed_doubles_are_binary():
    read = read_numbers(np.array([np.pi, 1 / 3, -2.5]))
    assert not read.written
    assert values(read) == [Fraction(np.pi), Fraction(1 / 3), Fraction(-5, 2)]


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
def test_extreme_sizes(size):
    given_values = [size, 2 * size, 3.5 * size]
    read = read_numbers(np.array(given_values))
    assert values(read) == [Fraction(repr(x)) for x in given_values]


def test_extreme_sizes_in_one_column():
    read = read_numbers(np.array([1e-300, 1e300, 1.0]))
    assert values(read) == [Fraction(1, 10**300), 10**300, 1]


def test_missing_and_infinite():
    read = read_numbers(np.array([1.5, np.nan, np.inf, -np.inf]))
    assert read.missing.tolist() == [False, True, True, True]
    assert read.notes == ("2 infinite values taken as missing",)


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [
        (["1,234.5", "-7", "n/a"], [Fraction(2469, 2), -7, 0]),
        (["12 %", "0.5%"], [12, Fraction(1, 2)]),
        (["1e3", " 2 "], [1000, 2]),
        ([Decimal("1.10"), None], [Fraction(11, 10), 0]),
        ([True, 2, 2.5], [1, 2, Fraction(5, 2)]),
    ],
)
def test_objects(given_values, expected):
    objects = np.empty(len(given_values), dtype=object)
    objects[:] = given_values
    assert values(read_numbers(objects)) == expected


@pytest.mark.parametrize(
    ("given_values", "why"),
    [
        (["a", "1"], "text"),
        (["007", "123"], "text"),  # a code
        ([None, None], "nothing but missing values"),
        ([{}, 1], "values of type dict"),
        ([Decimal("1e9999"), 1], "numbers too long to be kept exactly"),
    ],
)
def test_what_is_no_number(given_values, why):
    objects = np.empty(len(given_values), dtype=object)
    objects[:] = given_values
    assert read_numbers(objects) == why


def test_other_kinds():
    assert read_numbers(np.array([1 + 2j])) == "complex numbers"
    assert read_numbers(np.array(["2020-01-01"], dtype="datetime64[D]")) == "dates or times"
    assert read_numbers(np.ones((2, 2))) == "more than one value per row"
    assert values(read_numbers(np.array([2**64 - 1], dtype=np.uint64))) == [2**64 - 1]
    assert values(read_numbers(np.array([-(2**63), 3]))) == [-(2**63), 3]


class TestTables:
    def test_names_that_repeat_or_are_empty(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame([[1, 2, 3, 4]], columns=["a", "a", "", "a (2)"])
        table = exact_table(frame)
        assert table.names == ("a", "a (2)", "column 3", "a (2) (2)")
        assert any("appears again" in note for note in table.notes)

    def test_accents_in_two_encodings_are_one_name(self):
        table = exact_table({"é": [1], "e\u0301": [2]})
        assert len(set(table.names)) == 2

    def test_pandas_kinds(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(
            {
                "whole": pandas.array([1, None, 2**60 + 1], dtype="Int64"),
                "yes": pandas.array([True, None, False], dtype="boolean"),
                "kind": pandas.Categorical(["a", "b", None]),
                "day": pandas.to_datetime(["2020-01-01", None, "2021-01-01"]),
                "size": pandas.array([0.5, 1.5, None], dtype="Float64"),
            },
            index=["x", "y", "z"],
        )
        table = exact_table(frame)
        assert table.names == ("whole", "yes", "size")
        assert [label.name for label in table.labels] == ["kind", "day"]
        assert table.row_name(1) == "y"
        assert int(table.columns[0].whole[2]) * table.columns[0].unit == 2**60 + 1

    def test_polars(self):
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame(
            {"town": ["A", None], "n": [1, None], "x": [0.5, 1.5], "d": [Decimal("1.1"), None]}
        )
        table = exact_table(frame)
        assert table.names == ("n", "x", "d")
        assert table.columns[0].missing.tolist() == [False, True]
        assert table.columns[2].unit == Fraction(11, 10)

    def test_lists_do_not_lose_digits(self):
        table = exact_table([[2**70, 1.5], [1, None]])
        assert int(table.columns[0].whole[0]) == 2**70
        assert table.columns[1].missing.tolist() == [False, True]

    def test_masked_and_structured_arrays(self):
        masked = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [False, False]])
        assert exact_table(masked).columns[1].missing.tolist() == [True, False]
        structured = np.array([(1, 2.5)], dtype=[("a", int), ("b", float)])
        assert exact_table(structured).names == ("a", "b")

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ({}, "nothing to look at"),
            (np.zeros((0, 3)), "nothing to look at"),
            (np.zeros(3), "rows and columns"),
            ({"a": [1], "b": [1, 2]}, "differ in length"),
        ],
    )
    def test_refusals(self, table, words):
        with pytest.raises(ValueError, match=words):
            exact_table(table)

    def test_names_go_with_arrays(self):
        with pytest.raises(ValueError, match="names go with an array"):
            exact_table({"a": [1]}, names=["b"])
        with pytest.raises(ValueError, match="1 names for 2 columns"):
            exact_table(np.zeros((3, 2)), names=["b"])
