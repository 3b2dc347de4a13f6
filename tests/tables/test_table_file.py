"""The file that a statistician writes, and the release from file to file."""

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from employment import TOTALS, employment

import affinedp as adp
from affinedp.cli.release import release_file
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import exact_number
from affinedp.files import data
from affinedp.tables import MarginRelease, TableRelease, from_crosstab, prefix, ranges, read_release

TEXT = """
index = "day"
public = ["town"]

[totals]
all = ["women", "men"]

[privacy]
mu = 1
epsilon = 1.0
delta = 1e-6

[output]
round_to = 1
noise = "noise.csv"
report = "report.html"
"""
CSV = "day,town,women,men,all\nmon,X,30,70,100\ntue,Y,41,44,85\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "table.toml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "data.csv").write_text(CSV, encoding="utf-8")
    return tmp_path


def released(folder, **options):
    said = []
    files = (folder / "table.toml", folder / "data.csv", folder / "out.csv")
    answer, said = release_file(*files, **options)
    return pd.read_csv(folder / "out.csv"), "\n".join(said), answer


@pytest.mark.slow
def test_from_file_to_file(folder):
    out, said, answer = released(folder)
    numbers = [
        f"{name}{end}" for name in ("women", "men", "all") for end in ("", "_lower", "_upper")
    ]
    assert list(out.columns) == ["day", "town", *numbers]
    assert (out["all_lower"] < out["all"]).all()
    assert (out["all"] < out["all_upper"]).all()
    assert out[["day", "town"]].equals(pd.DataFrame({"day": ["mon", "tue"], "town": ["X", "Y"]}))
    assert (out["all"] == out["women"] + out["men"]).all()
    assert all(out.dtypes[["women", "men", "all"]] == "int64")
    assert "released 2 rows" in said
    assert "asked for    ε = 1 at δ = 1e-06: kept" in said
    assert answer["promise"]["asked"] == {"epsilon": 1.0, "delta": 1e-6, "holds": True}
    assert answer["budget_left"] is None
    noise = pd.read_csv(folder / "out-noise.csv")
    assert list(noise.columns) == ["column", "standard_deviation", "half_width_95_percent"]
    assert list(noise["column"]) == ["women", "men", "all"]
    assert "<!doctype html>" in (folder / "out-report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("town", "kind"),
    [("X\x07", "xlsx"), (1, "parquet"), (pd.Timestamp("2026-01-01", tz="UTC"), "xlsx")],
)
def test_labels_that_the_output_cannot_hold_are_refused_before_any_charge(
    folder, town, kind, monkeypatch
):
    table = pd.read_csv(folder / "data.csv")
    table["town"] = pd.Series([town, "Y"], dtype=object)
    monkeypatch.setattr(data, "read_table", lambda path: table)
    with adp.Ledger(folder / "budget.db", epsilon=1.0, delta=1e-6, protects="one person"):
        pass
    files = (folder / "table.toml", folder / "data.csv", folder / f"out.{kind}")
    with pytest.raises(AffineDPError, match=f"out.{kind} cannot be written"):
        release_file(*files, str(folder / "budget.db"))
    with adp.Ledger(folder / "budget.db") as ledger:
        assert list(ledger.history()) == []


def test_with_a_ledger(folder):
    with adp.Ledger(folder / "budget.db", epsilon=1.2, delta=1e-6, protects="one person"):
        pass
    with pytest.raises(AffineDPError, match="whom they are about"):
        released(folder, ledger=folder / "budget.db")
    file = folder / "table.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("mu = 1", 'mu = 1\nrows = "separate"'), encoding="utf-8")
    _, _, answer = released(folder, ledger=folder / "budget.db", label="March")
    assert 0.0 <= answer["budget_left"] < 1.2
    with adp.Ledger(folder / "budget.db") as ledger:
        assert [entry.label for entry in ledger.history()] == ["March"]
    with pytest.raises(AffineDPError, match=r"out-noise\.csv exists already.*--force"):
        released(folder, ledger=folder / "budget.db")
    with pytest.raises(adp.BudgetExceededError):
        released(folder, ledger=folder / "budget.db", force=True)


def test_the_files_of_each_month_have_names_of_their_own(folder):
    for month in ("january", "february"):
        place = folder / f"{month}.csv"
        release_file(folder / "table.toml", folder / "data.csv", place)
    written = {path.name for path in folder.iterdir()}
    assert written >= {"january-noise.csv", "february-noise.csv", "february-report.html"}


def test_parquet(folder):
    pd.read_csv(folder / "data.csv").to_parquet(folder / "data.parquet")
    release_file(folder / "table.toml", folder / "data.parquet", folder / "out.parquet")
    out = pd.read_parquet(folder / "out.parquet")
    assert (out["all"] == out["women"] + out["men"]).all()


def test_a_broken_row_writes_nothing(folder):
    (folder / "data.csv").write_text(CSV.replace("85", "86"), encoding="utf-8")
    with pytest.raises(AffineDPError, match="day tue: all = women [+] men does not hold"):
        released(folder)
    assert not (folder / "out.csv").exists()


def test_the_private_table_is_not_overwritten(folder):
    with pytest.raises(AffineDPError, match="the private table itself"):
        release_file(folder / "table.toml", folder / "data.csv", folder / "data.csv")


@pytest.mark.parametrize(
    ("said", "wrong", "message"),
    [
        ("noise.csv", "noise.json", "data files end in"),
        ("noise.csv", "no/noise.csv", "no such folder"),
        ("noise.csv", "sub.csv", "it is a folder"),
        ("noise.csv", "data.csv", "the private table itself"),
        ("noise.csv", "report.html", "data files end in"),
        ("report.html", "noise.csv", "files of their own"),
        ("report.html", "report.pdf", r"name it \.html"),
        ("report.html", "no/report.html", "no such folder"),
        ('"report.html"', '"report.html"\nlevel = 2.0', "level"),
    ],
)
def test_every_output_is_checked_before_the_charge(folder, said, wrong, message):
    file, data = folder / "table.toml", folder / "out-data.csv"
    text = TEXT.replace("mu = 1", 'mu = 1\nrows = "separate"').replace(said, wrong)
    file.write_text(text, encoding="utf-8")
    data.write_text(CSV, encoding="utf-8")
    (folder / "out-sub.csv").mkdir()
    with adp.Ledger(folder / "budget.db", epsilon=1.2, delta=1e-6, protects="one person") as ledger:
        with pytest.raises(AffineDPError, match=message):
            release_file(file, data, folder / "out.csv", ledger=folder / "budget.db", force=True)
        assert not ledger.history()
    assert not (folder / "out.csv").exists()


def test_labels_from_files_match_rows_of_any_type(tmp_path):
    (tmp_path / "t.toml").write_text(
        'index = "year"\n[row_totals]\nboth = ["2019", "2020"]\n'
        "[privacy]\nmu = 1\nepsilon = 1.0\ndelta = 1e-6\n[output]\nround_to = 1\nnoise = 'n.csv'\n"
    )
    (tmp_path / "d.csv").write_text("year,n\n2019,4\n2020,5\nboth,9\n")
    release_file(tmp_path / "t.toml", tmp_path / "d.csv", tmp_path / "o.csv")
    out = pd.read_csv(tmp_path / "o.csv")["n"]
    assert out[2] == out[0] + out[1]
    assert list(pd.read_csv(tmp_path / "o-n.csv").columns)[:2] == ["row", "column"]


WRONG = [
    ("mu = 1\n", "", "mu is missing"),
    ("epsilon = 1.0\n", "", "epsilon is missing"),
    ("epsilon = 1.0", "epsilom = 1.0", "did you mean 'epsilon'"),
    ('index = "day"', 'round_to = 1\nindex = "day"', r"belongs in \[output\]"),
    ("mu = 1\n", "mu = 1\ntotals = 1\n", "belongs before the first"),
    ("round_to = 1", 'round_to = "1"', "must be a number"),
    ('public = ["town"]', 'public = "town"', "must be a list of texts"),
    ("mu = 1\n", 'mu = 1\nrows = "apart"\n', "rows must be one of"),
    ("epsilon = 1.0", f"epsilon = 1{'0' * 400}", "epsilon has more digits"),
    ("epsilon = 1.0", "epsilon = -1.0", "epsilon must be at least 0"),
    ("[totals]", "[totals", "not valid TOML"),
]


@pytest.mark.parametrize(("old", "new", "words"), WRONG)
def test_what_is_wrong_is_named(tmp_path, old, new, words):
    file = tmp_path / "table.toml"
    assert old in TEXT
    file.write_text(TEXT.replace(old, new), encoding="utf-8")
    with pytest.raises(AffineDPError, match=words) as refusal:
        read_release(file)
    assert "table.toml" in str(refusal.value)


def test_an_index_that_is_no_column(folder):
    (folder / "table.toml").write_text(TEXT.replace('"day"', '"days"'), encoding="utf-8")
    with pytest.raises(AffineDPError, match="index names 'days'.*did you mean 'day'"):
        released(folder)


def test_the_example_file_describes_the_real_table(tmp_path):
    read = read_release(Path(__file__).parents[2] / "examples" / "us_employment.toml")
    assert read.index == ("month",)
    assert {name: list(parts) for name, parts in read.release.totals.items()} == TOTALS
    table = employment()
    table.to_csv(tmp_path / "data.csv")
    out = read.release.release(pd.read_csv(tmp_path / "data.csv").set_index("month"))
    assert (
        out.table["private"] + out.table["government"] - out.table["nonfarm"]
    ).abs().max() < 1e-6


def test_a_release_of_margins_is_written_and_read_again(tmp_path):
    wards = pd.DataFrame({"city": ["A", "A"], "ward": ["A 1", "A 2"]})
    wards.to_csv(tmp_path / "wards.csv", index=False)
    sums = [[1, 1, 0], [0, 1.5, 1]]
    cases = [
        {"attributes": {"sex": ["f", "m"], "age": prefix(range(3))}, "delta": 1e-6, "margins": 2},
        {
            "attributes": {"age": ranges(["a", "b"]), "own": ([1, 2, 3], sums)},
            "objective": "largest",
        },
        {"attributes": {"s x": ["f", "m"]}, "places": wards, "weights": {"everywhere": 2.0}},
        {
            "attributes": {"sex": ["f", "m"], "age": [1, 2]},
            "margins": [["sex", "age"], ["sex"]],
            "impossible": [{"sex": "f", "age": [1]}],
            "household": 2,
            "nonnegative": True,
        },
    ]
    for case in cases:
        release = MarginRelease(epsilon=0.5, **case)
        text = release.toml("wards.csv" if "places" in case else None)
        found = read_release(tmp_path / "margins.toml", text).release
        for name in ("delta", "margins", "objective", "weights", "impossible", "household"):
            assert getattr(found, name) == getattr(release, name)
        assert found.design().mechanism.fingerprint == release.design().mechanism.fingerprint
        assert [one.rows for one in found.asked.values()] == [
            one.rows for one in release.asked.values()
        ]
    with pytest.raises(AffineDPError, match="name the file"):
        MarginRelease(epsilon=1.0, **cases[2]).toml()
    with pytest.raises(AffineDPError, match="has no places"):
        MarginRelease(epsilon=1.0, **cases[0]).toml("wards.csv")


def read_again(release, tmp_path):
    file = tmp_path / "again.toml"
    file.write_bytes(release.toml().encode())
    return read_release(file).release


ODD_TEXTS = ["a.b", 'q"', "", " s ", "[x]", "\\", "1", "nan", "e\u0301", "\u00a0", "\U0001f600"]


@pytest.mark.parametrize("odd", ODD_TEXTS)
def test_odd_texts_are_read_again_as_they_are(tmp_path, odd):
    table = TableRelease(
        totals={odd: ["w", "m"]}, row_totals={odd: [f"{odd}1", "r"]}, mu={odd: 2.0}, epsilon=1.0
    )
    found = read_again(table, tmp_path)
    assert (found.totals, found.row_totals) == (table.totals, table.row_totals)
    assert found.mu == table.mu
    margins = MarginRelease(attributes={odd: [f"{odd}1", "m\n\t"]}, epsilon=1.0)
    assert read_again(margins, tmp_path).attributes == margins.attributes


@pytest.mark.parametrize("odd", ["\x00", "\x1b", "\x7f", "\x9f", "\u2028", "\u202e", "\ud83d"])
def test_control_characters_are_refused_where_they_are_written(odd):
    label = f"label {odd}"
    for release in (
        TableRelease(totals={"all": [label, "m"]}, epsilon=1.0),
        TableRelease(totals={label: ["w", "m"]}, epsilon=1.0),
        TableRelease(row_totals={label: ["w", "m"]}, epsilon=1.0),
        TableRelease(totals={"all": ["w", "m"]}, weights={label: 2.0}, epsilon=1.0),
        MarginRelease(attributes={label: ["f", "m"]}, epsilon=1.0),
        MarginRelease(attributes={"sex": [label, "m"]}, epsilon=1.0),
    ):
        with pytest.raises(AffineDPError, match=r"label \\(x|u).*rename"):
            release.toml()


@pytest.mark.parametrize("odd", ["a\nb", "a\tb", "a\rb"])
def test_a_name_of_several_lines_is_refused_and_not_changed(odd):
    with pytest.raises(AffineDPError, match=r"a\\[ntr]b.*rename"):
        TableRelease(totals={odd: ["w", "m"]}, epsilon=1.0).toml()
    with pytest.raises(AffineDPError, match=r"a\\[ntr]b.*rename"):
        MarginRelease(attributes={odd: ["f", "m"], "a b": ["x", "y"]}, epsilon=1.0).toml()


def test_numbers_of_numpy_are_the_numbers_that_they_are(tmp_path):
    labels = [np.int64(1), np.float64(0.5), np.bool_(False), np.str_("a"), 2, 2.5, 2**70, -math.inf]
    plain = [1, 0.5, False, "a", 2, 2.5, 2**70, -math.inf]
    found = read_again(MarginRelease(attributes={"k": labels}, epsilon=1.0), tmp_path)
    assert found.attributes["k"] == plain
    assert list(map(type, found.attributes["k"])) == list(map(type, plain))
    table = TableRelease(row_totals={"all": labels}, public_rows=labels[:1], epsilon=1.0)
    assert read_again(table, tmp_path).row_totals == {"all": plain}
    assert read_again(table, tmp_path).public_rows == [1]
    for mu in (np.float32(0.1), np.int64(2), Decimal("0.1"), Fraction(1, 3)):
        release = TableRelease(totals={"all": ["w", "m"]}, mu=mu, epsilon=1.0)
        assert exact_number(read_again(release, tmp_path).mu) == exact_number(mu)


@pytest.mark.parametrize(
    "odd",
    [
        (1, 2),
        b"a",
        frozenset([1]),
        Decimal("0.1"),
        Fraction(1, 3),
        pd.Timestamp("2020-01-01"),
        pd.Interval(0, 1),
        pd.Period("2020-01"),
    ],
)
def test_labels_of_margins_are_texts_and_numbers_in_a_file(odd):
    for attributes in ({"k": [odd, "b"]}, {"k": prefix([odd, "b"])}, {odd: ["a", "b"]}):
        with pytest.raises(AffineDPError, match=r"rename"):
            MarginRelease(attributes=attributes, epsilon=1.0).toml()


@pytest.mark.parametrize("odd", [None, math.nan, pd.NaT, b"a", frozenset([1])])
def test_rows_without_a_label_that_a_file_has_are_refused(odd):
    for described in (
        {"row_totals": {"all": [odd, "b"]}},
        {"row_totals": {odd: ["a", "b"]}},
        {"row_totals": {"all": ["a", "b"]}, "public_rows": [odd]},
        {"row_totals": {"all": ["a", "b"]}, "weights": {odd: 2.0}},
        {"row_totals": {"all": ["a", "b"]}, "impossible": [{"row": odd}]},
    ):
        with pytest.raises(AffineDPError, match=r"a file cannot hold .*rename"):
            TableRelease(epsilon=1.0, **described).toml()


def test_rows_are_found_again_by_the_words_of_their_labels(tmp_path):
    rows = [pd.Timestamp("2020-01-01"), pd.Interval(0, 1), pd.Period("2020-01"), ("a", 2)]
    index = pd.Index([*rows, "all"], dtype=object, tupleize_cols=False)
    table = pd.DataFrame({"n": [1, 2, 3, 4, 10]}, index=index)
    release = TableRelease(row_totals={"all": rows}, epsilon=1.0)
    found = read_again(release, tmp_path)
    assert found.row_totals == {"all": ["2020-01-01", "(0, 1]", "2020-01", "a / 2"]}
    fingerprints = {one.design(table).mechanism.fingerprint for one in (release, found)}
    assert len(fingerprints) == 1
    alike = {("a", "b / c"): ["x", "y"], ("a / b", "c"): ["z", "w"]}
    with pytest.raises(AffineDPError, match="the same in words: rename one"):
        TableRelease(row_totals=alike, epsilon=1.0).toml()
    with pytest.raises(AffineDPError, match="one spelling, 1, for two names"):
        TableRelease(row_totals={1: ["x", "y"], "1": ["z", "w"]}, epsilon=1.0).toml()


def test_a_crosstab_in_memory_may_have_labels_that_no_file_has():
    table = pd.DataFrame({"f\n": [1, 2], "m": [3, 4], "All\n": [4, 6]}, index=["a", "b"])
    said = []
    release = from_crosstab(table, epsilon=1.0, labels="public", ask=None, say=said.append)
    assert release.totals == {"All\n": ["f\n", "m"]}
    assert "totals = {'All\\n': ['f\\n', 'm']}" in said[0]
