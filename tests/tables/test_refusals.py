"""Every refusal names the row and the column; nothing is charged and nothing is drawn."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.tables import MarginRelease, TableRelease, count_people, with_total_rows
from affinedp.tables.refusals import TableError

ATTRIBUTES = {"attributes": {"sex": ["f", "m"]}}
TOTALS = {"all": ["women", "men"]}


def table(**columns):
    values = {"women": [30, 41, 12], "men": [70, 44, 8], "all": [100, 85, 20]}
    return pd.DataFrame({**values, **columns}, index=pd.Index(["mon", "tue", "wed"], name="day"))


def doubled(frame):
    return pd.concat([frame, frame[["men"]]], axis=1)


CASES = {
    "broken total": (
        table(all=[100, 86, 20]),
        TableError,
        ["day tue", "all = women + men", "does not hold"],
    ),
    "missing": (table(men=[70, np.nan, 8]), TableError, ["day tue", "'men' is missing"]),
    "missing in a nullable column": (
        table(men=pd.array([70, None, 8], dtype="Int64")),
        TableError,
        ["day tue", "'men' is missing"],
    ),
    "infinite": (table(men=[70.0, np.inf, 8.0]), TableError, ["day tue", "'men' is infinite"]),
    "text": (table(men=[70, "4,4", 8]), TableError, ["'men'", "day tue", "holds text"]),
    "bool": (table(men=[True, False, True]), TableError, ["'men'", "bool"]),
    "dates": (
        table(men=pd.to_datetime(["2020-01-01"] * 3)),
        TableError,
        ["'men'", "datetime"],
    ),
    "complex": (table(men=[70 + 0j, 44, 8]), TableError, ["'men'", "complex"]),
    "too large": (table(men=[2**60, 44, 8]), TableError, ["day mon", "2^53"]),
    "duplicated name": (doubled(table()), TableError, ["'men' occurs twice"]),
    "empty": (table().iloc[:0], TableError, ["no rows"]),
    "no columns": (table()[[]], TableError, ["no columns"]),
    "unknown column": (
        table().rename(columns={"all": "al"}),
        TableError,
        ["'all'", "did you mean 'al'"],
    ),
    "undeclared column": (table(region=["x", "y", "z"]), TableError, ["'region'", "public"]),
    "two names with one text": (
        table(region=[1, 2, 3]).rename(columns={"men": 7, "region": "7"}),
        TableError,
        ["two columns are called '7', as 'int' and 'str'"],
    ),
    "no table": ({"women": [1]}, TableError, ["DataFrame"]),
}


@pytest.fixture
def nothing_happens(tmp_path, monkeypatch):
    """A ledger that must stay empty, and noise that must not be drawn."""

    def drawn(*arguments, **options):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(Mechanism, "release", drawn)
    with adp.Ledger(tmp_path / "budget.db", epsilon=10.0, protects="one person") as ledger:
        yield ledger
        assert ledger.history() == ()


@pytest.mark.parametrize("name", CASES)
def test_bad_tables(name, nothing_happens):
    frame, kind, words = CASES[name]
    with pytest.raises(kind) as refusal:
        TableRelease(totals=TOTALS, epsilon=1.0).release(frame, ledger=nothing_happens)
    for word in words:
        assert word in str(refusal.value)


def test_a_design_refuses_bad_tables_too(nothing_happens):
    design = TableRelease(totals=TOTALS, epsilon=1.0, delta=1e-6).design(table())
    with pytest.raises(TableError, match="day tue"):
        design.release(table(all=[100, 86, 20]), ledger=nothing_happens)
    with pytest.raises(TableError, match="other columns"):
        design.release(table()[["all", "men", "women"]], ledger=nothing_happens)
    with pytest.raises(TableError, match="larger than the declared bound"):
        design.release(table(), ledger=nothing_happens, bound=50.0)
    with pytest.raises(AffineDPError, match="bound must be"):
        design.release(table(), ledger=nothing_happens, bound=-1.0)


def test_a_budget_that_is_too_small_draws_nothing(tmp_path, nothing_happens):
    with adp.Ledger(tmp_path / "small.db", epsilon=0.5, delta=1e-6, protects="one person") as small:
        with pytest.raises(adp.BudgetExceededError):
            TableRelease(totals=TOTALS, epsilon=1.0, delta=1e-6, rows="separate").release(
                table(), ledger=small
            )
        assert small.history() == ()


def test_rows_without_names_are_counted():
    frame = table(all=[100, 86, 20]).reset_index(drop=True)
    with pytest.raises(TableError, match=r"row 1 \(counting from 0\)"):
        TableRelease(totals=TOTALS, epsilon=1.0).release(frame)


def test_whole_numbers_are_added_exactly():
    """One unit in 10¹⁵ is found although it is below the rounding of relative checks."""
    large = 10**15
    frame = pd.DataFrame({"all": [2 * large + 1], "a": [large], "b": [large]})
    with pytest.raises(TableError, match="all = a [+] b does not hold"):
        TableRelease(totals={"all": ["a", "b"]}, epsilon=1.0).release(frame)
    assert TableRelease(totals={"all": ["a", "b"]}, epsilon=1.0).check(frame)["off"].tolist() == [1]
    tenths = pd.DataFrame({"all": [0.3], "a": [0.1], "b": [0.2]})  # 0.1 + 0.2 is not 0.3 in doubles
    assert len(TableRelease(totals={"all": ["a", "b"]}, epsilon=1.0).check(tenths)) == 0


DESCRIPTIONS = [
    ({"epsilon": 1.0}, "say what the public knows"),
    ({"epsilon": -1.0, "totals": TOTALS}, "epsilon must be at least 0"),
    ({"epsilon": float("nan"), "totals": TOTALS}, "epsilon is nan"),
    ({"epsilon": "1", "totals": TOTALS}, "epsilon is not a real number"),
    ({"epsilon": 1.0, "delta": 1.0, "totals": TOTALS}, "delta must be at least 0 and below 1"),
    ({"epsilon": 1.0, "law": "gaussian", "totals": TOTALS}, "needs δ > 0"),
    ({"epsilon": 1.0, "delta": 0.1, "law": "laplace", "totals": TOTALS}, "δ = 0"),
    ({"epsilon": 1.0, "law": "cauchy", "totals": TOTALS}, "law must be one of"),
    ({"epsilon": 1.0, "rows": "apart", "totals": TOTALS}, "rows must be one of"),
    ({"epsilon": 1.0, "rows": "together", "totals": TOTALS}, "no equation ties different rows"),
    ({"epsilon": 1.0, "rows": "separate", "hierarchy": ["a"]}, "tie the rows"),
    ({"epsilon": 1.0, "adjacency": "swaps", "totals": TOTALS}, "margins='public'"),
    ({"epsilon": 1.0, "adjust": ["men"], "totals": TOTALS}, "within"),
    ({"epsilon": 1.0, "adjust": "men", "within": 1, "totals": TOTALS}, "list of columns"),
    ({"epsilon": 1.0, "equations": "a = b"}, "must be a list"),
    ({"epsilon": 1.0, "round_to": 0, "totals": TOTALS}, "round_to must be positive"),
    ({"epsilon": 1.0, "public_rows": ["mon"], "totals": TOTALS}, "public_rows"),
    ({"epsilon": 1.0, "cells": ["men"], "totals": TOTALS, "adjacency": "circuits"}, "cells goes"),
    ({"epsilon": 1.0, "household": 0, "totals": TOTALS}, "household must be"),
    ({"epsilon": 1.0, "at_most": 1.5, "totals": TOTALS}, "at_most must be"),
    ({"epsilon": 1.0, "at_most": 2, "totals": TOTALS, "adjacency": "replace"}, "less often"),
    ({"epsilon": 1.0, "household": 2, "totals": TOTALS, "adjacency": "circuits"}, "about people"),
    ({"epsilon": 1.0, "weights": "rows", "totals": TOTALS}, "weights must be"),
    ({"epsilon": 1.0, "weights": 1, "totals": TOTALS}, "weights must be"),
    ({"epsilon": 1.0, "weights": [1], "totals": TOTALS}, "weights must be"),
    ({"epsilon": 1.0, "weights": {"men": "1"}, "totals": TOTALS}, "weights: 'men' is not a real"),
    ({"epsilon": 1.0, "nonnegative": "yes", "totals": TOTALS}, "nonnegative must be"),
    ({"epsilon": 1.0, "margins": "public", "unknown": "totals"}, "leave out"),
]


@pytest.mark.parametrize(("arguments", "words"), DESCRIPTIONS)
def test_descriptions_that_make_no_sense(arguments, words):
    with pytest.raises(AffineDPError, match=words):
        TableRelease(**arguments)


@pytest.mark.parametrize("name", ["epsilon", "delta", "round_to"])
@pytest.mark.parametrize("given", [10**400, Fraction(10**400, 3), Decimal("1e500")])
def test_numbers_beyond_double_precision(name, given):
    promise = {"epsilon": 1.0, name: given}
    for made, about in ((TableRelease, {"totals": TOTALS}), (MarginRelease, ATTRIBUTES)):
        with pytest.raises(AffineDPError, match=name):
            made(**about, **promise)


def test_a_step_of_a_third():
    third = TableRelease(totals=TOTALS, epsilon=1.0, round_to=Fraction(1, 3))
    assert third.round_to == TableRelease(totals=TOTALS, epsilon=1.0, round_to=1 / 3).round_to
    assert third.design(table()).guarantee.holds(1.0)


@pytest.mark.parametrize("margins", [0.5, None, np.nan, Decimal(1), True, np.array(1.0), [1]])
def test_margins_that_are_none(margins):
    with pytest.raises(AffineDPError, match="margins must be a whole number|no attribute 1"):
        _ = MarginRelease(**ATTRIBUTES, margins=margins, epsilon=1.0).design()


def test_people_called_by_lists():
    people = pd.DataFrame({"sex": ["f", "m"], "who": [[1], 2]})
    with pytest.raises(TableError, match="list or a set"):
        MarginRelease(**ATTRIBUTES, epsilon=1.0).release(people, person="who")
    with pytest.raises(TableError, match="list or a set"):
        count_people(people, ["sex"], cells=ATTRIBUTES["attributes"], person="who", at_most=1)


AGES = {"attributes": {"age": [0, 1]}, "margins": 1, "epsilon": 1.0}


@pytest.mark.parametrize("ages", [[True, False], pd.Series([1, True], dtype=object), ["0", "1"]])
def test_labels_of_another_type(ages):
    with pytest.raises(TableError, match="not among the public ones"):
        MarginRelease(**AGES).release(pd.DataFrame({"age": ages}))
    with pytest.raises(TableError, match="no cell"):
        count_people(pd.DataFrame({"age": ages}), ["age"], cells={"age": [0, 1]})


@pytest.mark.parametrize("age", ["0", True])
def test_impossible_labels_of_another_type(age):
    with pytest.raises(AffineDPError, match="no cell of the table"):
        MarginRelease(**AGES, impossible=[{"age": age}])


def test_a_column_twice():
    ages = pd.DataFrame([[0, 1], [1, 1]], columns=["age", "age"])
    with pytest.raises(TableError, match="'age' occurs twice"):
        MarginRelease(**AGES).release(ages)
    with pytest.raises(TableError, match="by names 'age' twice"):
        count_people(ages[["age"]], ["age", "age"], cells={"age": [0, 1]})


@pytest.mark.parametrize("mu", [{"women": 1, "all": 1, "men": 0}, {"women": (0, 1), "men": (0, 0)}])
def test_a_private_column_that_nobody_moves(mu):
    with pytest.raises(TableError, match="mu is 0 for 'men'.*name it in public"):
        TableRelease(totals=TOTALS, mu=mu, epsilon=1.0).release(table())


TABLES = [
    ({"totals": {"all": ["women", "all"]}}, "sum of other columns"),
    ({"totals": {"all": "women"}}, "list of columns"),
    ({"totals": TOTALS, "public": ["men", "women"]}, "'all' can be computed"),
    ({"totals": TOTALS, "public": ["men"], "columns": ["men", "women", "all"]}, "both private and"),
    ({"totals": TOTALS, "public": ["men", "women", "all"]}, "nothing to protect"),
    ({"totals": TOTALS, "mu": {"men": 1.0}}, "mu says nothing about"),
    ({"totals": TOTALS, "mu": {"children": 1.0}}, "no private column"),
    ({"totals": TOTALS, "weights": {"children": 1.0}}, "no private column"),
    ({"totals": TOTALS, "unknown": ["children"]}, "no private column"),
    ({"totals": TOTALS, "unknown": ["men", "women"]}, "cannot be computed"),
    ({"equations": ["all = women + children"]}, "'children'"),
    ({"totals": TOTALS, "public": ["day"]}, "'day'"),
    ({"row_totals": {"wed": ["mon", "thu"]}}, "'thu', which is no row"),
    ({"row_totals": {"wed": ["mon"]}, "public_rows": ["thu"]}, "'thu', which is no row"),
]


@pytest.mark.parametrize(("arguments", "words"), TABLES)
def test_descriptions_that_do_not_fit_the_table(arguments, words):
    with pytest.raises(AffineDPError, match=words):
        TableRelease(epsilon=1.0, **arguments).release(table())


@pytest.mark.parametrize(
    "equation", ["all = 2 women + men", "all = women + men", "men = all - women"]
)
@pytest.mark.parametrize(
    ("neighbours", "words"),
    [("person", "in which numbers a person is counted"), ("replace", "equations are totals")],
)
def test_equations_that_count_nobody(equation, neighbours, words):
    release = TableRelease(equations=[equation], adjacency=neighbours, epsilon=1.0)
    with pytest.raises(TableError, match=words):
        release.design(table())
    assert (
        TableRelease(equations=["all = 2 women + men"], cells=["women", "men"], epsilon=1.0)
        .design(table())
        .guarantee.holds(1.0)
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ward": ["1", "1", "1"]}, "twice"),
        ({"ward": ["1", None, "1"]}, "no label"),
        ({"n": [3.0, np.nan, 5.0]}, "missing"),
    ],
)
def test_totals_are_not_made_of_uncertain_cells(change, words):
    cells = pd.DataFrame({"city": ["A", "A", "B"], "ward": ["1", "2", "1"], "n": [3, 40, 5]})
    assert with_total_rows(cells, ["city", "ward"], ["n"])["n"].tolist() == [48, 43, 5, 3, 40, 5]
    with pytest.raises(TableError, match=words):
        with_total_rows(cells.assign(**change), ["city", "ward"], ["n"])
