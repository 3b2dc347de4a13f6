"""What is refused in parts is refused before the charge, says where, and leaves nothing behind."""

from __future__ import annotations

import datetime
import multiprocessing
import os
from decimal import Decimal

import numpy as np
import pytest

import affinedp as adp
from affinedp.domains.manifold import OffManifoldError
from affinedp.errors import AffineDPError
from affinedp.tables import TableRelease

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
dataframe = pytest.importorskip("dask.dataframe")
pytest.importorskip("pyarrow")

CAP = {"epsilon": 5.0, "delta": 1e-4, "protects": "one household"}
FRAME = pandas.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6], "c": [5, 7, 9]})
OFF = FRAME.assign(c=[6, 7, 9])
LABELLED = TableRelease(
    totals={"c": ["a", "b"]}, rows="separate", epsilon=0.1, delta=1e-7, round_to=1, public=["w"]
)


def mechanism():
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    return adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)


def in_parts(frames):
    return adp.Parts(lambda task: [task(i, frame) for i, frame in enumerate(frames)])


def labelled(*parts):
    numbers = {"a": 1, "b": 2, "c": 3}
    return in_parts([pandas.DataFrame({"w": labels}).assign(**numbers) for labels in parts])


def refused(work, table, tmp_path, words, **options):
    """The refusal: nothing was charged, and no folder is left."""
    folder = tmp_path / "new" / "out"
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(AffineDPError, match=words) as found:
            work.release(table, ledger=ledger, into=folder, **options)
        assert ledger.history() == ()
    assert not folder.parent.exists()
    return found.value


@pytest.mark.parametrize("engine", ["parts", "polars", "dask"])
def test_whole_noise_refuses_what_is_not_whole_before_the_charge(tmp_path, monkeypatch, engine):
    monkeypatch.setattr("affinedp.release.engines.AT_ONCE", 3)
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    whole = adp.design_knorm(manifold, epsilon=1.0, integers=True)
    half = FRAME.assign(a=[1.5, 2, 3], c=[5.5, 7, 9])
    both = pandas.concat([FRAME.astype(float), half], ignore_index=True)
    table = {
        "parts": in_parts([FRAME, half]),
        "polars": polars.from_pandas(both).lazy(),
        "dask": dataframe.from_pandas(both, npartitions=2),
    }[engine]
    refused(whole, table, tmp_path, "part 1 .*whole numbers", rows="different")


def test_data_that_has_no_place_in_the_noise_is_refused_before_the_charge(tmp_path):
    """Also of a table in one place: it was charged, and refused by the mechanism that draws."""
    release = TableRelease(
        totals={"c": ["a", "b"]}, rows="separate", epsilon=0.5, delta=1e-6, law="gaussian"
    )
    huge = pandas.DataFrame({"a": [1e300], "b": [0.0], "c": [1e300]})
    with adp.Ledger(tmp_path / "here.db", **CAP) as ledger:
        with pytest.raises(AffineDPError):
            release.release(huge, ledger=ledger)
        assert ledger.history() == ()
    refused(release, in_parts([FRAME, huge]), tmp_path, "part 1")


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([Decimal("1.10")], [1], "other types"),
        ([Decimal("1.10")], [1.5], "other types"),
        ([b"x"], ["x"], "other types"),
        ([datetime.date(2020, 1, 1)], [datetime.datetime(2020, 1, 1, 5)], "other types"),
        ([pandas.Timestamp("2020", tz="UTC")], [pandas.Timestamp("2020")], "other types"),
        ([pandas.Timestamp(1)], [datetime.datetime(9999, 12, 31)], "nanoseconds in one part"),
        ([Decimal(10) ** 37], [Decimal("0.0000000001")], "other types"),
        ([pandas.DateOffset(months=1)], [pandas.DateOffset(months=2)], "part 0 .*Parquet"),
        ([1], np.array([2**63 + 5], dtype=np.uint64), "part 1 .*texts"),
        ([2**70], [1], "part 0 .*texts"),
        (["x"], ["\ud800"], "part 1 .*Parquet"),
        ([b"x", "x"], [b"x", "y"], "part 0 .*at once"),
        ([Decimal("1.5"), 2], [Decimal("1.5"), 2], "part 0 .*at once"),
        ([Decimal("1.5"), 2.5], [Decimal("1.5"), 2], "part 0 .*at once"),
    ],
)
def test_labels_that_meet_in_no_type_are_refused_before_the_charge(tmp_path, first, second, words):
    refused(LABELLED, labelled(first, second), tmp_path, words)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([pandas.Timestamp("2020-01-01")], [datetime.datetime(9999, 12, 31)]),
        (
            [pandas.Timestamp("2020", tz="UTC")],
            [datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)],
        ),
        ([datetime.timedelta(1)], [datetime.timedelta(days=200_000)]),
        ([Decimal("1.10")], [Decimal("12345.1")]),
        ([Decimal("1.10"), None], [None, None]),
        ([1, 2], [2.5, None]),
        (["x"], [None]),
    ],
)
def test_labels_that_meet_come_back_as_they_are(tmp_path, first, second):
    out = LABELLED.release(labelled(first, second), into=tmp_path / "out").table
    found = pandas.read_parquet(out)["w"].tolist()
    for one, other in zip(found, [*first, *second], strict=True):
        assert one == other or (pandas.isna(one) and other is None)


@pytest.mark.parametrize("engine", ["parts", "polars", "dask"])
def test_a_refusal_says_in_which_part(tmp_path, monkeypatch, engine):
    monkeypatch.setattr("affinedp.release.engines.AT_ONCE", 3)
    both = pandas.concat([FRAME, OFF], ignore_index=True)
    table = {
        "parts": in_parts([FRAME, OFF]),
        "polars": polars.from_pandas(both).lazy(),
        "dask": dataframe.from_pandas(both, npartitions=2),
    }[engine]
    found = refused(mechanism(), table, tmp_path, "^part 1 .*row 0 ", rows="different")
    assert isinstance(found, OffManifoldError)
    assert found.rows == (0,)
    plain = TableRelease(totals={"c": ["a", "b"]}, rows="separate", epsilon=0.1, delta=1e-7)
    found = refused(plain, table, tmp_path, "^part 1 ")
    assert found.broken


def test_a_refusal_comes_back_from_other_processes(tmp_path):
    """It could not be unpickled: a pool waited for it for ever."""

    def pool(task):
        with multiprocessing.get_context("fork").Pool(2) as workers:
            return workers.starmap(task, list(enumerate([FRAME, OFF])))

    found = refused(mechanism(), adp.Parts(pool), tmp_path, "^part 1 ", rows="different")
    assert isinstance(found, OffManifoldError)


def test_labels_that_are_called_like_columns_are_refused(tmp_path):
    named = FRAME.assign(w=[7, 8, 9]).set_index("w", drop=False)
    table = dataframe.from_pandas(named, npartitions=2)
    refused(LABELLED, table, tmp_path, "called 'w', as a column is")
    twice = FRAME.set_index([pandas.Index([1, 2, 3], name="q")] * 2)
    refused(mechanism(), in_parts([twice]), tmp_path, "as others are", rows="different")


def test_rows_with_several_labels_are_refused_on_dask(tmp_path):
    several = FRAME.set_index(
        [pandas.Index([1, 2, 3], name="q"), pandas.Index([1, 2, 3], name="r")]
    )
    plain = dataframe.from_pandas(FRAME, npartitions=1)
    table = plain.map_partitions(
        lambda frame: several.loc[frame.index.map(lambda i: (i + 1, i + 1))]
    )
    refused(mechanism(), table, tmp_path, "several labels", rows="different")


def test_a_budget_that_is_spent_leaves_no_folder(tmp_path):
    with (
        adp.Ledger(tmp_path / "l.db", epsilon=0.1, delta=1e-9, protects="one") as ledger,
        pytest.raises(AffineDPError),
    ):
        mechanism().release(
            in_parts([FRAME]), ledger=ledger, rows="different", into=tmp_path / "new" / "out"
        )
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(OffManifoldError):
        mechanism().release(in_parts([OFF]), into=tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == []  # it was there before


ODD_NAMES = ["v[1]", "w*", "o?t", "year=2020", "a=5", "{x,y}", "a b", "a#b", "a%20b", "ü"]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("engine", ["polars", "dask"])
def test_a_folder_of_any_name_comes_back_as_it_is_or_is_refused(tmp_path, engine, name):
    def table(frame):
        if engine == "polars":
            return polars.from_pandas(frame).lazy()
        return dataframe.from_pandas(frame, npartitions=2)

    for decoy in ("v1", "ww", "oxt", "x"):  # what the patterns would find
        mechanism().release(table(FRAME[:1]), into=tmp_path / decoy)
    if engine == "dask" and set(name) & set("*?["):
        with pytest.raises(AffineDPError, match="pattern"):
            mechanism().release(table(FRAME), into=tmp_path / name)
        assert not (tmp_path / name).exists()
        return
    out = mechanism().release(table(FRAME), into=tmp_path / name)
    found = out.collect().to_pandas() if engine == "polars" else out.compute()
    assert list(found.columns) == ["a", "b", "c"]
    assert len(found) == 3
    written = pandas.concat(
        [pandas.read_parquet(file, partitioning=None) for file in (tmp_path / name).iterdir()]
    )
    assert sorted(found["a"]) == sorted(written["a"])


def test_a_release_that_cannot_be_read_back_says_that_it_is_complete(tmp_path, monkeypatch):
    def broken(*args, **options):
        raise OSError("no such store")

    monkeypatch.setattr(polars, "scan_parquet", broken)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(AffineDPError, match="complete, in .*out; do not release again"):
            mechanism().release(
                polars.from_pandas(FRAME).lazy(),
                ledger=ledger,
                rows="different",
                into=tmp_path / "out",
            )
        assert [entry.status for entry in ledger.history()] == ["released"]
    assert os.listdir(tmp_path / "out") == ["part-00000.parquet"]


def test_a_folder_in_an_older_release_is_refused(tmp_path):
    mechanism().release(in_parts([FRAME]), into=tmp_path / "out")
    for inside in ("b", "b/c"):
        with pytest.raises(AffineDPError, match="release already"):
            mechanism().release(in_parts([FRAME]), into=tmp_path / "out" / inside)
    assert os.listdir(tmp_path / "out") == ["part-00000.parquet"]


def test_two_columns_of_one_name_are_told_in_words(tmp_path):
    frame = pandas.DataFrame([[1, 1, 4, 5]], columns=["a", "a", "b", "c"])
    table = dataframe.from_pandas(FRAME, npartitions=1).map_partitions(lambda part: frame)
    refused(mechanism(), table, tmp_path, "two columns are called 'a'", rows="different")


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize(
    "kind",
    [
        polars.Datetime("us"),
        polars.Datetime("ns"),
        polars.Datetime("ns", "Europe/Berlin"),
        polars.Duration("us"),
        polars.Duration("ns"),
    ],
    ids=str,
)
def test_times_of_polars_come_back_with_gaps_and_nanoseconds(tmp_path, lazy, kind):
    """``out.table`` failed after the charge where a time was missing."""
    step = 10**9 * 86_400 + 1 if kind.time_unit == "ns" else 10**6 * 86_400 + 1
    labels = polars.Series([step, None, 2 * step]).cast(polars.Int64).cast(kind)
    table = polars.DataFrame({"w": labels, "a": [1] * 3, "b": [2] * 3, "c": [3] * 3})
    if lazy:
        found = LABELLED.release(table.lazy(), into=tmp_path / "out").table.collect()
    else:
        found = LABELLED.release(table).table
    given, back = (one["w"].cast(type(kind)("ns") if lazy else kind) for one in (table, found))
    assert back.to_physical().to_list() == given.to_physical().to_list()


def test_a_column_without_any_label_keeps_its_type(tmp_path):
    for number, kind in enumerate((polars.String, polars.Int64, polars.Date, polars.Boolean)):
        nothing = polars.Series([None] * 3, dtype=kind)
        table = polars.from_pandas(FRAME).with_columns(w=nothing)
        found = LABELLED.release(table.lazy(), into=tmp_path / f"{number}").table.collect()
        assert found["w"].dtype == kind
        assert found["w"].null_count() == 3
