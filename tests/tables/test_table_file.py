"""The file that a statistician writes, and the release from file to file."""

from pathlib import Path

import pandas as pd
import pytest
from employment import TOTALS, employment

import affinedp as adp
from affinedp.cli.release import release_file
from affinedp.errors import AffineDPError
from affinedp.tables import read_release

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
    ("epsilon = 1.0", "epsilon = -1.0", "ε must be"),
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
