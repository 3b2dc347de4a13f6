"""Tables in the shapes that people hold: pandas of every kind, polars, files."""

import math

import numpy as np
import pandas as pd
import pytest

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table, write_table
from affinedp.tables import (
    MarginRelease,
    TableRelease,
    count_people,
    from_crosstab,
    read_release,
    with_total_rows,
)
from affinedp.tables.crosstab import COUNTED_ONCE
from affinedp.tables.refusals import TableError
from affinedp.tables.report import draw_bars

PROMISE = {"epsilon": 1.0}
LEVELS = ["state", "county"]


def people(seed=0, count=300):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "sex": generator.choice(["f", "m"], count),
            "age": generator.choice([20, 40, 60], count),
            "state": generator.choice(["A", "B"], count),
        }
    ).assign(county=lambda p: p["state"] + generator.choice(["1", "2", "3"], count))


def guessed(table, **others):
    shown = []
    release = from_crosstab(table, **PROMISE, labels="public", ask=None, say=shown.append, **others)
    return release, shown[0]


def test_crosstab_with_margins_and_whole_numbers_for_labels():
    given = people()
    counts = pd.crosstab(given["sex"], given["age"], margins=True)
    release, _ = guessed(counts, round_to=1)
    out = release.release(counts).table
    assert out.columns.tolist() == [20, 40, 60, "All"]
    assert (out.columns.name, out.index.name) == (None, "sex")  # of the columns, labels only
    assert out.index.equals(counts.index)
    assert (out["All"] == out[[20, 40, 60]].sum(axis=1)).all()
    assert (out.loc["All"] == out.loc[["f", "m"]].sum()).all()
    lower, upper = release.release(counts).interval()
    assert lower.columns.tolist() == out.columns.tolist()
    assert (upper.loc["f", 20] - lower.loc["f", 20]) > 0


def test_public_margins_of_a_table_that_has_them():
    given = people()
    counts = pd.crosstab(given["sex"], given["age"], margins=True)
    design = TableRelease(margins="public", round_to=1, **PROMISE).design(counts)
    out = design.release(counts).table
    assert out["All"].tolist() == counts["All"].tolist()
    assert out.loc["All"].tolist() == counts.loc["All"].tolist()
    assert (out["All"] == out[[20, 40, 60]].sum(axis=1)).all()
    # whole noise is 0 at times, but not 40 times in a row
    assert not all(design.release(counts).table.equals(counts) for _ in range(40))
    said, _ = guessed(counts, margins="public", round_to=1)
    assert said.release(counts).table["All"].tolist() == counts["All"].tolist()
    renamed = counts.rename(index={"All": "Total"})
    with pytest.raises(TableError, match="looks like a margin"):
        TableRelease(margins="public", **PROMISE).release(renamed)


def test_categories_and_pivot_tables():
    given = people().astype({"sex": "category", "age": "category"})
    counts = pd.crosstab(given["sex"], given["age"])
    release = TableRelease(margins="public", round_to=1, **PROMISE)
    out = release.release(counts).table
    assert not isinstance(out.columns, pd.CategoricalIndex)
    assert out.sum().tolist() == counts.sum().tolist()
    pivot = given.assign(n=1).pivot_table(
        index="sex", columns="age", values="n", aggfunc="sum", margins=True, observed=False
    )
    found, _ = guessed(pivot)
    assert found.release(pivot).table.columns.tolist() == [20, 40, 60, "All"]


def test_a_grouped_sum_with_levels_in_the_index():
    cells = people().groupby(LEVELS, as_index=False).size()
    whole = with_total_rows(cells, LEVELS, ["size"]).set_index(LEVELS)["size"]
    release, text = guessed(whole, round_to=1)
    assert 'hierarchy = ["state", "county"]' in text
    out = release.release(whole)
    assert isinstance(out.table, pd.Series)
    assert out.table.name == "size"
    assert out.table.index.names == LEVELS
    assert out.table.iloc[0] == out.table.iloc[1] + out.table.iloc[2]
    assert isinstance(out.unrounded, pd.Series)
    lower, upper = out.interval()
    assert (lower <= out.unrounded).all()
    assert (upper.index == whole.index).all()


def test_the_guess_is_a_file_and_is_asked_about(tmp_path):
    given = people()
    counts = pd.crosstab(given["sex"], given["state"], margins=True)
    questions, shown = [], []

    def ask(question):
        questions.append(question)
        return answers.pop()

    answers = ["no"]
    with pytest.raises(TableError, match="not confirmed"):
        from_crosstab(counts, **PROMISE, ask=ask, say=shown.append)
    answers = ["y"]
    release = from_crosstab(counts, **PROMISE, ask=ask, say=shown.append)
    assert len(questions) == 2
    assert all(
        "labels and their order be the same with other people" in question for question in questions
    )
    file = tmp_path / "table.toml"
    file.write_text(shown[-1], encoding="utf-8")
    read = read_release(file).release
    assert read.totals == release.totals
    assert {k: list(v) for k, v in read.row_totals.items()} == release.row_totals
    assert shown[-1].partition("\n")[2] == f"{read.toml()}\n{COUNTED_ONCE}"  # after what it is


def test_a_table_without_totals_is_one_cell_per_person():
    given = people()
    counts = pd.crosstab(given["sex"], given["state"])
    release, text = guessed(counts)
    assert text.endswith("count\n# the rows first (count_people, or [labels] in a table file)")
    design = release.design(counts)
    q = math.exp(-1.0)  # per row, geometric noise on each cell
    assert design.mechanism.expected_squared_error == pytest.approx(2 * 2 * q / (1 - q) ** 2)
    assert "in at most 1 cell" in design.guarantee.neighbours


def test_labels_such_as_na(tmp_path):
    """Namibia is NA, and somebody is called None."""
    file = tmp_path / "countries.csv"
    file.write_text("country,name,n,m\nNA,None,3,\nZA,nan,5,NA\n,null,8,2.5\n", encoding="utf-8")
    table = read_table(file)
    assert table["country"].tolist()[:2] == ["NA", "ZA"]
    assert table["name"].tolist() == ["None", "nan", "null"]
    assert pd.isna(table["country"][2])
    assert table["m"].isna().tolist() == [True, True, False]  # numbers that are missing
    write_table(table, tmp_path / "again.csv")
    assert read_table(tmp_path / "again.csv").equals(table)


def test_excel_there_and_back(tmp_path):
    pytest.importorskip("openpyxl")
    table = pd.DataFrame({"country": ["NA", "ZA"], "n": [3, 5], "x": [0.5, 1.25]})
    write_table(table, tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx").equals(table)
    texts = pd.DataFrame({"=1+1": ["=cmd()", "@a"], "n": [1, 2]})  # texts, and no formulas
    write_table(texts, tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx").equals(texts)
    (tmp_path / "bad.xlsx").write_bytes(b"no workbook")
    with pytest.raises(AffineDPError, match="not a valid xlsx file"):
        read_table(tmp_path / "bad.xlsx")


# ---------------------------------------------------------------------- polars


@pytest.mark.parametrize("lazy", [False, True])
def test_polars_is_as_good_as_pandas(lazy, monkeypatch):
    polars = pytest.importorskip("polars")
    cells = people().groupby(LEVELS, as_index=False).size()
    whole = with_total_rows(cells, LEVELS, ["size"])
    given = polars.DataFrame(
        {name: [None if pd.isna(v) else v for v in whole[name].tolist()] for name in whole}
    )
    release = TableRelease(hierarchy=LEVELS, round_to=1, **PROMISE)
    first = release.design(whole)
    second = release.design(given.lazy() if lazy else given)
    assert first.mechanism.fingerprint == second.mechanism.fingerprint
    assert first.guarantee.neighbours == second.guarantee.neighbours
    out = second.release(given.lazy() if lazy else given)
    assert isinstance(out.table, polars.DataFrame)
    assert out.table.columns == given.columns
    assert out.table["state"].to_list() == given["state"].to_list()
    assert out.table.schema["size"] == polars.Int64
    assert out.table["size"][0] == out.table["size"][1] + out.table["size"][2]
    lower, upper = out.interval()
    assert (lower["size"] <= upper["size"]).all()
    assert isinstance(out.unrounded, polars.DataFrame)


def test_types_of_polars_columns_do_not_show():
    polars = pytest.importorskip("polars")
    release = TableRelease(totals={"t": ["a", "b"]}, **PROMISE)
    design = release.design(polars.DataFrame({"a": [1], "b": [2], "t": [3]}))
    for kind in (polars.Int8, polars.Float32, polars.Int64):
        table = polars.DataFrame({"a": [1], "b": [2], "t": [3]}).cast(kind)
        assert design.release(table).table.schema == dict.fromkeys("abt", polars.Float64)


# ---------------------------------------------------------------------- one row per person


def test_counting_people_over_public_cells():
    given = people()
    labels = {"sex": ["f", "m", "x"], "age": [20, 40, 60]}
    counts = count_people(given, ["sex", "age"], cells=labels)
    assert len(counts) == 9
    assert counts["count"].sum() == len(given)
    assert counts[counts["sex"] == "x"]["count"].sum() == 0
    with pytest.raises(TableError, match="cannot come from the data"):
        count_people(given, ["sex"])
    with pytest.raises(TableError, match="that are no cell"):
        count_people(given, ["sex"], cells={"sex": ["f"]})


LONER = pd.concat(
    [people(), pd.DataFrame([{"sex": "f", "age": 99, "state": "C", "county": "C1"}])],
    ignore_index=True,
)


@pytest.mark.parametrize("given", [people(), LONER], ids=["without", "with"])
def test_labels_that_only_the_data_knows_are_refused(given):
    """Somebody in a state of their own changes no label that is published: all else is refused."""
    made = given.astype({"state": "category"}).assign(age=pd.qcut(given["age"], 2))
    for by, cells in (
        (["state"], None),
        (["age"], None),
        (["state"], {"state": made["state"].cat.categories}),
        (["state"], {"state": given["state"].unique()}),
        (["state"], {"state": given["state"].drop_duplicates()}),
    ):
        with pytest.raises(TableError, match="come from the data"):
            count_people(made, by, cells=cells)
    for labels in (given["state"].unique(), made["age"].cat.categories, made["state"].cat):
        with pytest.raises(TableError, match="come from the data"):
            MarginRelease(attributes={"state": labels}, margins=1, epsilon=1.0)
    counts = pd.crosstab(given["sex"], given["state"], margins=True)
    with pytest.raises(TableError, match="labels='public'"):
        from_crosstab(counts, epsilon=1.0, ask=None, say=lambda text: None)
    known = {"sex": ["f", "m"], "state": list("ABC")}
    table = pd.crosstab(
        *(pd.Categorical(given[name], labels) for name, labels in known.items()),
        margins=True,
        dropna=False,
    )
    release, _ = guessed(table)
    assert release.totals == {"All": list("ABC")}
    assert count_people(given, ["state"], cells=known)["state"].tolist() == list("ABC")


def test_one_person_changes_at_most_what_was_said():
    """Every person in turn is left out: the counts differ by at most at_most, over all cells."""
    generator = np.random.default_rng(2)
    visits = pd.DataFrame(
        {"who": generator.integers(0, 12, 80), "ward": generator.choice(list("abc"), 80)}
    )
    count = {"by": ["ward"], "cells": {"ward": list("abc")}, "person": "who"}
    for most in (1, 2, 5):
        whole = count_people(visits, at_most=most, **count)["count"]
        for who in range(12):
            without = count_people(visits[visits["who"] != who], at_most=most, **count)["count"]
            assert (whole - without).abs().sum() <= most
    with pytest.raises(TableError, match="go together"):
        count_people(visits, ["ward"], cells={"ward": list("abc")}, person="who")


def test_totals_below_the_same_upper_label_are_found():
    """A pivot table of two values has an "All" column for each of them."""
    given = people()
    table = given.assign(n=1, m=2).pivot_table(
        index="sex", columns="age", values=["n", "m"], aggfunc="sum", margins=True, fill_value=0
    )
    release = from_crosstab(table, epsilon=1.0, labels="public", say=lambda text: None)
    assert set(release.totals) == {"m / All", "n / All"}
    assert all(part.startswith("n / ") for part in release.totals["n / All"])
    twice = table.rename(columns={"All": "Total"}, level=1).join(table.iloc[:, [3]])
    with pytest.raises(TableError, match="look like totals"):
        from_crosstab(twice, epsilon=1.0, labels="public", say=lambda text: None)


def test_a_crosstab_of_several_levels_with_both_margins_goes_out_and_back():
    rng = np.random.default_rng(0)
    kinds = {"ward": list("abc"), "sex": ["f", "m"], "age": ["old", "young"]}
    people = pd.DataFrame({k: pd.Categorical(rng.choice(v, 200), v) for k, v in kinds.items()})
    for rows, columns in ((["ward"], ["sex", "age"]), (["ward", "sex"], ["age"])):
        table = pd.crosstab(
            [people[k] for k in rows], [people[k] for k in columns], margins=True, dropna=False
        )
        shown = []
        release = from_crosstab(table, epsilon=1.0, labels="public", say=shown.append)
        out = release.release(table)
        assert out.table.columns.tolist() == table.columns.tolist()
        assert out.table.index.tolist() == table.index.tolist()
        total = out.table.columns[-1]
        assert np.allclose(out.table[total], out.table.drop(columns=[total]).sum(axis=1))
        low, high = out.interval()
        assert (low <= high).all(axis=None)
        assert low.columns.tolist() == table.columns.tolist()
        again = read_release("shown.toml", shown[0]).release
        assert again.design(table).guarantee.sensitivity == out.guarantee.sensitivity


def test_a_crosstab_of_several_levels_without_margins_does_not_add_up():
    """One person is in one cell: independent geometric noise, and the cells stay in their order."""
    rng = np.random.default_rng(0)
    kinds = {"ward": list("abc"), "sex": ["f", "m"], "age": ["old", "young"]}
    people = pd.DataFrame({k: pd.Categorical(rng.choice(v, 200), v) for k, v in kinds.items()})
    for table in (
        pd.crosstab([people["ward"], people["sex"]], people["age"], dropna=False),
        people.groupby(["ward", "sex"], observed=False).size(),
    ):
        release, said = guessed(table)
        assert "Nothing adds up" in said
        out = release.release(table)
        assert out.table.index.tolist() == table.index.tolist()
        geometric = np.sqrt(2 * np.exp(-1)) / (1 - np.exp(-1))  # of parameter exp(-ε)
        noise = release.design(table).levels(0.95)["noise"]
        assert noise.to_numpy() == pytest.approx(geometric)


def test_nobody_is_asked_in_a_script(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda question: pytest.fail("asked"))
    counts = pd.DataFrame({"a": [1, 2], "All": [1, 2]}, index=["x", "y"])
    with pytest.raises(TableError, match="labels='public'"):
        from_crosstab(counts, epsilon=1.0)


def test_labels_of_another_type_are_named_by_their_types():
    people = pd.DataFrame({"ward": [1, 2, 2], "sex": ["f", "m", "f"]})
    with pytest.raises(TableError, match="'ward' holds 'int', the public labels are 'str'"):
        count_people(people, ["ward"], cells={"ward": ["1", "2"]})
    release = MarginRelease(attributes={"ward": ["1", "2"], "sex": ["f", "m"]}, epsilon=1.0)
    with pytest.raises(TableError, match="'ward' holds 'int', the public labels are 'str'"):
        release.release(people)


def test_a_missing_label_is_called_missing_and_not_another_type():
    people = pd.DataFrame({"ward": [1, 2, np.nan], "sex": ["f", "m", "f"]})  # 1.0 and 2.0
    release = MarginRelease(attributes={"ward": [1, 2], "sex": ["f", "m"]}, epsilon=1.0)
    with pytest.raises(TableError, match="'ward' has rows without a label"):
        release.release(people)
    with pytest.raises(TableError, match="'ward' has rows without a label"):
        count_people(people, ["ward"], cells={"ward": [1, 2]})


def test_a_table_with_intervals_has_them_beside_its_numbers():
    table = pd.DataFrame({"n": [5, 6], "n_lower": ["x", "y"], "t": [5, 6]}, index=["r", "r"])
    release = TableRelease(totals={"t": ["n"]}, public=["n_lower"], rows="separate", epsilon=1.0)
    out = release.release(table)
    wide = out.with_intervals(0.9)
    names = ["n", "n_lower_", "n_upper", "n_lower", "t", "t_lower", "t_upper"]
    assert wide.columns.tolist() == names
    low, high = out.interval(0.9)
    assert wide["n_lower_"].tolist() == low["n"].tolist()
    assert wide["t_upper"].tolist() == high["t"].tolist()


def test_a_report_shows_what_was_published_and_says_nothing_twice():
    cells = pd.DataFrame({"ward": [f"w{i}" for i in range(12)], "n": range(12)})
    table = with_total_rows(cells, ["ward"], ["n"])
    out = TableRelease(hierarchy=["ward"], epsilon=1.0).release(table)
    report = out.report()
    assert report.title == "Published table: n in 13 rows"
    assert dict(report.opening)["Who is protected"].startswith(
        "any one person: whether they are in the table"
    )
    assert "weights='levels'" in dict(report.totals)["hint"]
    even = TableRelease(hierarchy=["ward"], weights="levels", epsilon=1.0).release(table)
    assert "hint" not in dict(even.report().totals)
    lines = [*report.promise, *report.totals]
    assert len(lines) == len(set(lines))
    (axes,) = report.picture()[0].axes
    assert len(axes.patches) == 13
    assert [text.get_text() for text in axes.get_yticklabels()][:2] == ["grand total", "w0"]


def test_totals_have_an_axis_of_their_own_where_theirs_would_hide_intervals():
    cells = pd.DataFrame({"ward": [f"w{i}" for i in range(12)], "n": range(1000, 1012)})
    table = with_total_rows(cells, ["ward"], ["n"])
    report = TableRelease(hierarchy=["ward"], epsilon=1.0).release(table).report()
    drawn = [figure.axes[0] for figure in report.picture()]
    names = [[text.get_text() for text in axes.get_yticklabels()] for axes in drawn]
    assert names == [[f"w{i}" for i in range(12)], ["grand total"]]
    assert [len(axes.patches) for axes in drawn] == [12, 1]


def test_a_page_says_that_real_numbers_are_shown_rounded_and_whole_ones_add_up():
    table = pd.DataFrame({"f": [1, 2], "m": [3, 4], "all": [4, 6]}, index=["a", "b"])
    asked = {"totals": {"all": ["f", "m"]}, "epsilon": 1.0, "delta": 1e-6, "rows": "separate"}
    rounded = "their sums may differ in the last digit"
    real = TableRelease(law="gaussian", **asked).release(table).report()
    whole = TableRelease(round_to=1, **asked).release(table).report()
    assert rounded in real.published.note
    assert rounded not in whole.published.note


def test_a_page_says_what_planned_releases_cost_together():
    """Gaussian noise adds up by the root of squares: twelve times one release is too much."""
    table = pd.DataFrame({"f": [1, 2], "m": [3, 4], "all": [4, 6]}, index=["a", "b"])
    asked = {"totals": {"all": ["f", "m"]}, "epsilon": 1.0, "delta": 1e-6, "releases": 12}
    out = TableRelease(law="gaussian", rows="separate", **asked).release(table)
    told = dict(out.report().opening)["What it costs"]
    assert told.startswith("12 releases together take ε = 1 at δ = 1e-06 from the budget")
    alone = float(out.guarantee.epsilon(1e-6))
    assert f"one by itself takes ε = {alone:.2f}" in told
    assert 12 * alone > 2


@pytest.mark.parametrize("units", [["People"], ["Women", "Men", "Everybody"]])
def test_nothing_in_the_figure_is_cut_off(units):
    names = [f"A district with a long name {i}" for i in range(60)]
    table = pd.DataFrame({f"{unit} who moved away": range(60) for unit in units}, index=names)
    table *= 1_000_000
    ends = {name: (table[name] - 5, table[name] + 5) for name in table}
    (figure,) = draw_bars(table, ends, 0.95, [list(table)])
    figure.draw_without_rendering()
    drawn, page = figure.get_tightbbox(), figure.get_size_inches()
    assert drawn.x0 >= 0
    assert drawn.y0 >= 0
    assert drawn.x1 <= page[0]
    assert drawn.y1 <= page[1]
    assert page[0] <= 4.0  # a phone of 390 px shows it as large as it is


def test_bars_of_long_names_have_different_ones():
    places = [f"{region} / {region}-A / {region}-A-school-{i}" for region in ("North", "South")
              for i in range(12)]  # fmt: skip
    table = pd.DataFrame({"people": range(24), "all $": range(24)}, index=places)
    ends = {name: (table[name], table[name]) for name in table}
    (figure,) = draw_bars(table, ends, 0.95, [["people", "all $"]])
    shown = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert len(set(shown)) == len(shown) == 40
    assert max(map(len, shown)) <= 26
    assert shown[1].endswith("-0: all $")
    figure.canvas.draw()  # a dollar is no formula


def test_a_sum_of_incomes_is_never_taken_for_a_count_in_silence():
    """Whole incomes look like counts: the size of one person stands with the promise."""
    cells = pd.DataFrame({"f": [4256, 1707, 5963], "m": [4013, 1718, 5731]}, ["N", "S", "All"])
    incomes = cells.assign(All=cells.sum(axis=1))
    release, text = guessed(incomes)
    assert COUNTED_ONCE in text
    out = release.release(incomes)
    size = "a person counts for at most 1 in a number"
    assert size in out.guarantee.neighbours
    assert size in dict(out.report().opening)["Who is protected"]
    with pytest.raises(TableError, match="sums of values.*bounds of one person's value in mu"):
        release.release(incomes / 100)
    with pytest.raises(TableError, match="sums of values.*means do not add up"):
        release.release(incomes.div([1.7, 1.3, 3.1], axis=0) + 0.1)
    bounded, text = guessed(incomes, mu={"f": (0, 200), "m": (0, 200)})
    assert "at most 1" not in text
    protected = dict(bounded.release(incomes).report().opening)["Who is protected"]
    assert "'f' between 0 and 200" in protected


def test_a_report_of_margins_has_bars_and_keeps_labels_on_one_line():
    people = pd.DataFrame({"age": ["18-39", "40-64"] * 9, "sex": ["f", "m", "m"] * 6})
    release = MarginRelease(attributes={"age": ["18-39", "40-64"], "sex": ["f", "m"]}, epsilon=1.0)
    report = release.release(people).report()
    assert report.picture is not None
    drawn = [text.get_text() for figure in report.picture() for axes in figure.axes
             for text in axes.get_yticklabels()]  # fmt: skip
    assert {"grand total", "18-39", "18-39 / f"} <= set(drawn)
    assert report.published is not None
    assert "grand total" in {row[0] for row in report.published.rows}
    page = report.page()
    assert "<span style='white-space:nowrap'>18-39</span>" in page
    assert "<svg" in page


def test_labels_in_a_column_are_not_taken_for_numbers():
    """A frame of polars, a file and rows of people have no index."""
    table = pd.DataFrame({"age": ["old", "young"], "n": [3, 4], "s": [5, 6], "All": [8, 10]})
    with pytest.raises(TableError, match=r"rows have no labels: .*set_index\(\['age'\]\)"):
        from_crosstab(table, epsilon=1.0, labels="public")
    with pytest.raises(TableError, match="people are counted first"):
        from_crosstab(table.drop(columns="age"), epsilon=1.0, labels="public")
    release = from_crosstab(
        table, epsilon=1.0, labels="public", public=["age"], totals={"All": ["n", "s"]},
        say=lambda text: None,
    )  # fmt: skip
    assert release.release(table).table["age"].tolist() == ["old", "young"]


def test_totals_below_the_same_upper_labels_are_understood_in_rows_and_columns():
    given = people()
    states = sorted(set(given["state"]))
    each = {
        state: pd.crosstab(given.sex, given.state == state, margins=True)[[True, "All"]].rename(
            columns={True: "here"}
        )
        for state in states
    }
    for axis in (0, 1):
        table = pd.concat(each, axis=axis)
        if axis == 0:
            table = table.rename_axis(index=["state", "sex"])
        release, _ = guessed(table)
        totals = release.row_totals if axis == 0 else release.totals
        assert len(totals) == len(states)
        assert all("All" not in str(parts) for parts in totals.values())
        release.design(table)
    whole = pd.concat(each, names=["state", "sex"])
    sexes = [label for label in whole.index if label[1] != "All"]
    whole.loc[("All", ""), :] = whole.loc[sexes].sum()
    release, _ = guessed(whole.astype(int))
    assert release.row_totals[("All", "")] == sexes


def test_a_total_of_one_category_is_a_total():
    """Whoever is counted there is counted twice, and the promise covers it."""
    table = pd.DataFrame({"n": [10, 20], "All": [10, 20]}, index=["a", "b"])
    release, _ = guessed(table)
    assert release.totals == {"All": ["n"]}
    found = release.release(table).table
    assert found["n"].tolist() == found["All"].tolist()
