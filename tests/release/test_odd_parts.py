"""Parts as lazy tables and careless callers make them: every row is drawn once, or nothing is."""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import replace

import numpy as np
import pytest

import affinedp as adp
from affinedp.budget.events import LedgerError
from affinedp.budget.ledger import LedgerWarning
from affinedp.release.parts import PartError
from affinedp.tables import TableRelease

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pytest.importorskip("pyarrow")

CAP = {"epsilon": 1.0, "delta": 1e-5, "protects": "one household"}
RELEASE = TableRelease(
    totals={"c": ["a", "b"]}, rows="separate", epsilon=1.0, delta=1e-6, round_to=1, public=["who"]
)


def households(count: int, seed: int):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, count), rng.integers(0, 9, count)
    return polars.DataFrame({"who": np.arange(count), "a": a, "b": b, "c": a + b})


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_drawn_twice_where_rows_have_no_order_of_their_own(tmp_path, monkeypatch, seed):
    """Slices of a table that is sorted by few values, taken one by one, overlap."""
    monkeypatch.setattr("affinedp.release.engines.AT_ONCE", 1000)
    table = households(3500, seed).lazy().sort(polars.col("who") % 5)
    found = RELEASE.release(table, into=tmp_path / "out").table.collect()
    assert sorted(found["who"]) == list(range(3500))
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 4
    assert (found["a"] + found["b"] == found["c"]).all()


def test_rows_that_lie_elsewhere_each_time_are_drawn_once_or_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("affinedp.release.engines.AT_ONCE", 1000)
    people = households(3500, 0)
    table = people.lazy().join(people.lazy().select("who"), on="who")
    drawn: list[int] = []
    with contextlib.suppress(PartError):
        RELEASE.release(table, into=tmp_path / "out")
    for written in (tmp_path / "out").glob("*.parquet"):
        drawn += polars.read_parquet(written)["who"].to_list()
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("rows", [0, 2, 3, 4])
def test_lazy_tables_of_any_length(tmp_path, monkeypatch, rows):
    monkeypatch.setattr("affinedp.release.engines.AT_ONCE", 2)
    table = households(4, 0).lazy().head(rows)
    if not rows:
        with pytest.raises(adp.AffineDPError, match="no rows"):
            RELEASE.release(table, into=tmp_path / "out")
        return
    found = RELEASE.release(table, into=tmp_path / "out").table.collect()
    assert found["who"].to_list() == list(range(rows))


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize(
    "labels", [[2**53 + 1, None], [datetime.date(2020, 1, 1), None], [True, None], ["x", None]]
)
def test_labels_of_polars_come_back_as_they_are(tmp_path, lazy, labels):
    """Pandas makes doubles of whole numbers beside a gap."""
    table = polars.DataFrame({"who": labels, "a": [1, 2], "b": [3, 4], "c": [4, 6]})
    if lazy:
        found = RELEASE.release(table.lazy(), into=tmp_path / "out").table.collect()
    else:
        found = RELEASE.release(table).table
    assert found["who"].to_list() == labels
    assert found["who"].dtype == table["who"].dtype


def test_wide_labels_keep_their_digits_where_other_labels_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("affinedp.release.engines.AT_ONCE", 2)
    release = replace(RELEASE, public=["who", "place"])
    wide = [2**53 + 1, None, 2**53 + 3, 5]
    numbers = {"a": [1] * 4, "b": [2] * 4, "c": [3] * 4}
    table = polars.DataFrame({"who": wide, "place": [None, None, "x", "y"], **numbers})
    found = release.release(table.lazy(), into=tmp_path / "out").table.collect()
    assert found["who"].to_list() == wide
    assert found["place"].to_list() == [None, None, "x", "y"]


def _one(frame):
    return lambda task: [task(0, frame)]


FRAME = pandas.DataFrame({"a": [1, 2], "b": [1, 2]})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda task: None, "no rows"),
        (lambda task: [None for _ in [task(0, FRAME)]], "run must return"),
        (lambda task: [1 for _ in [task(0, FRAME)]], "run must return"),
        (lambda task: [task("0", FRAME)], "numbered"),
        (lambda task: [task("../x", FRAME)], "numbered"),
        (lambda task: [task(0.0, FRAME)], "numbered"),
        (lambda task: [task(None, FRAME)], "numbered"),
        (lambda task: [task(-1, FRAME)], "numbered"),
        (3, "needs a function"),
        (_one(FRAME.astype(np.longdouble)), "cannot be told"),
    ],
)
def test_careless_runs_are_told_before_anything_is_charged(tmp_path, run, words):
    manifold = adp.AffineManifold.from_equations(["a = b"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(adp.AffineDPError, match=words):
            mechanism.release(
                adp.Parts(run), ledger=ledger, rows="different", into=tmp_path / "out"
            )
        assert ledger.history() == ()


def test_wide_numbers_of_a_lazy_table_are_refused_in_words(tmp_path):
    wide = polars.Series([2**100 + 1], dtype=polars.Int128)
    manifold = adp.AffineManifold.from_equations(["a = b"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    with pytest.raises(adp.AffineDPError, match="beyond|digits"):
        mechanism.release(polars.LazyFrame({"a": wide, "b": wide}), into=tmp_path / "out")


def test_a_ledger_that_went_away_in_the_end_does_not_hide_what_was_published(tmp_path, monkeypatch):
    manifold = adp.AffineManifold.from_equations(["a = b"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:

        def gone(entry):
            raise LedgerError("it cannot be reached; do not release", unreachable=True)

        monkeypatch.setattr(ledger, "settle", gone)
        with pytest.warns(LedgerWarning, match="is complete.*not confirmed"):
            mechanism.release(
                adp.Parts(_one(FRAME)), ledger=ledger, rows="different", into=tmp_path / "out"
            )
        assert [entry.status for entry in ledger.history()] == ["charged"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["part-00000.parquet"]
