"""Rows and columns that are sums of others must be said to be: nothing is charged before."""

import warnings
from dataclasses import replace

import pandas as pd
import pytest

from affinedp.budget.ledger import Ledger
from affinedp.errors import AffineDPWarning
from affinedp.tables import TableRelease, from_crosstab, with_total_rows
from affinedp.tables.refusals import TableError


def written(table, **others):
    return from_crosstab(table, epsilon=1.0, labels="public", say=lambda text: None, **others)


def surveyed():
    cells = pd.DataFrame({"f": [123, 304, 57], "m": [91, 287, 62]}, index=["Nord", "Süd", "West"])
    cells.loc["Zs."] = cells.sum()
    return cells.assign(ZS=cells.sum(axis=1))


def test_a_total_of_unknown_name_is_refused_before_any_charge(tmp_path):
    """Column and row are sums, and each is said, or the promise would be about half a person."""
    ledger = Ledger(tmp_path / "budget.db", epsilon=1.0, protects="one person")
    with pytest.raises(
        TableError, match=r"column 'ZS' is the sum of .*totals={'ZS': \['f', 'm'\]}"
    ):
        written(surveyed()).release(surveyed(), ledger=ledger)
    half = written(surveyed(), totals={"ZS": ["f", "m"]})
    with pytest.raises(TableError, match=r"row 'Zs\.' is the sum of .*row_totals={'Zs\.': "):
        half.release(surveyed(), ledger=ledger)
    with pytest.raises(TableError, match="is the sum"):
        half.design(surveyed()).ready(surveyed())
    assert ledger.spent == 0
    whole = written(
        surveyed(), totals={"ZS": ["f", "m"]}, row_totals={"Zs.": ["Nord", "Süd", "West"]}
    )
    assert "in one cell of the table" in whole.release(surveyed()).guarantee.neighbours


def test_a_sum_by_chance_is_said_and_a_small_one_is_only_warned_of():
    release = written(surveyed(), by_chance=["ZS", "Zs."])
    assert release.release(surveyed(), ledger=None).guarantee.holds(1.0)
    assert 'by_chance = ["ZS", "Zs."]' in release.toml()
    with pytest.raises(TableError, match="by_chance names 'Z'"):
        written(surveyed(), by_chance=["Z"]).release(surveyed())
    small = pd.DataFrame({"a": [3, 4], "b": [5, 6], "c": [8, 10]}, index=["x", "y"])
    with pytest.warns(AffineDPWarning, match="column 'c' is the sum of the columns 'a' and 'b'"):
        written(small).release(small)


@pytest.mark.parametrize("total", ["Insgesamt", "Summe", "Alle", "Ensemble", "Total général",
                                   "All persons", "Everyone"])  # fmt: skip
def test_totals_are_recognised_by_their_usual_names(total):
    table = surveyed().rename(index={"Zs.": total}, columns={"ZS": total})
    release = written(table)
    assert release.totals == {total: ["f", "m"]}
    assert release.row_totals == {total: ["Nord", "Süd", "West"]}


@pytest.mark.parametrize("empty", [[], [1], [0, 3]])
def test_what_was_said_in_another_way_is_not_found_again(empty):
    """The grand total is the sum of all districts, of those with people too."""
    places = pd.DataFrame(
        {"region": ["n", "n", "s", "s"], "district": list("abcd"), "k": [123, 41, 307, 66],
         "l": [88, 91, 130, 19], "m": [2051, 977, 1418, 3306]}
    )  # fmt: skip
    places.loc[empty, ["k", "l", "m"]] = 0
    table = with_total_rows(places, ["region", "district"])
    release = TableRelease(hierarchy=["region", "district"], epsilon=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release.release(table)


def test_an_empty_column_makes_no_other_sum():
    """With nobody in l the total is k + m + y, too; what nobody said is still found."""
    table = pd.DataFrame({"k": [310, 41, 98, 77, 120, 533, 207, 64], "l": 0,
                          "m": [31, 411, 59, 265, 358, 97, 93, 23],
                          "y": [7, 11, 213, 17, 69, 301, 44, 58]})  # fmt: skip
    table = table.assign(x=table.k + table.m, all=table.k + table.m + table.y)
    totals = {"x": ["k", "l", "m"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableRelease(totals={**totals, "all": ["x", "y"]}, epsilon=1.0).release(table)
    with pytest.raises(TableError, match="column 'all' is the sum of"):
        TableRelease(totals=totals, columns=[*table], at_most=1, epsilon=1.0).release(table)


def test_people_who_are_counted_in_every_column_are_covered_whatever_adds_up():
    """Without at_most a person is counted in each part that no equation ties."""
    columns = surveyed().drop(index="Zs.")
    free = TableRelease(equations=[], columns=list(columns), rows="separate", epsilon=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        free.release(columns)
        replace(free, at_most=2).release(columns)
    with pytest.raises(TableError, match="column 'ZS' is the sum"):
        replace(free, at_most=1).release(columns)
    with pytest.raises(TableError, match="row 'Zs.' is the sum"):
        free.release(surveyed())


def test_zeros_and_copies_of_rows_are_no_evidence():
    table = pd.DataFrame({"a": [1] * 90, "b": [0] * 90, "t": [1] * 90})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0).release(table)
        copies = pd.DataFrame({"a": [123] * 5, "b": [0] * 5, "t": [123] * 5}, index=list("vwxyz"))
        written(copies).release(copies)


def with_empty_labels():
    """A town and a ward that everybody knows, and where nobody is."""
    cells = pd.DataFrame({"f": [123, 304, 57, 0], "m": [91, 287, 62, 0], "x": 0},
                         index=["Nord", "Süd", "West", "Ost"])  # fmt: skip
    cells.loc["All"] = cells.sum()
    return cells.assign(All=cells.sum(axis=1))


def test_a_total_of_which_one_part_is_empty_was_said(tmp_path):
    """Labels that are public occur without people, too."""
    table = with_empty_labels()
    long = table.drop(index="All", columns="All").rename_axis("ward").reset_index()
    long = with_total_rows(long.assign(town=["n", "n", "n", "s"]), ["town", "ward"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written(table).release(table)
        written(table, margins="public", delta=1e-6).release(table)
        TableRelease(totals={"All": ["f", "m", "x"]}, epsilon=1.0).release(table.drop(index="All"))
        TableRelease(hierarchy=["town", "ward"], epsilon=1.0).release(long)


def test_a_total_of_which_one_part_is_empty_and_that_nobody_said_is_refused():
    table = with_empty_labels().rename(index={"All": "R"}, columns={"All": "Q"})
    with pytest.raises(TableError, match=r"\['f', 'm'\]} \(.*belongs to it of 'x', where nobody"):
        written(table).release(table)
    with pytest.raises(TableError, match=r"row 'R' is the sum .* of 'Ost', where nobody is; leave"):
        written(table, totals={"Q": ["f", "m", "x"]}).release(table)
    told = written(
        table, totals={"Q": ["f", "m", "x"]}, row_totals={"R": ["Nord", "Süd", "West", "Ost"]}
    )
    assert "in one cell of the table" in told.release(table).guarantee.neighbours
