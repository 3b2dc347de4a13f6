"""Tables of rows about different people, released on engines: one charge, one draw for each row."""

from __future__ import annotations

import os
import pickle
import signal
from dataclasses import replace

import numpy as np
import pytest

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.laws.sampler.words import system_bytes
from affinedp.release.parts import PartError
from affinedp.tables import TableRelease
from affinedp.tables.publish import TableRows
from affinedp.tables.refusals import TableError

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
dask = pytest.importorskip("dask")
dataframe = pytest.importorskip("dask.dataframe")

CAP = {"epsilon": 1.0, "delta": 1e-5, "protects": "one person"}
RELEASE = TableRelease(
    totals={"all": ["women", "men"]},
    public=["year", "place"],
    rows="separate",
    epsilon=0.5,
    delta=1e-6,
    round_to=1,
)


def counts(rows: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    women, men = rng.integers(0, 10_000, (2, rows))
    frame = pandas.DataFrame({"year": np.arange(rows) % 7 + 2000, "women": women, "men": men})
    return frame.assign(all=women + men, place=[f"p{i}" for i in range(rows)])


def obeys(published) -> bool:
    return bool((published["all"] == published["women"] + published["men"]).all())


def in_dask(frame, parts: int = 5):
    return dataframe.from_pandas(frame, npartitions=parts, sort=False)


def test_a_dask_table_is_released_where_it_is(tmp_path):
    given = counts(2000)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger, dask.config.set(scheduler="threads"):
        out = RELEASE.release(in_dask(given), ledger=ledger, into=tmp_path / "out")
        assert [entry.status for entry in ledger.history()] == ["released"]
        assert ledger.history()[0].releases == 1
        found = out.table.compute()
    assert found.equals(out.table.compute())  # reading it again draws nothing
    assert list(found.columns) == list(given.columns)
    assert list(found.index) == list(given.index)
    assert found["place"].tolist() == given["place"].tolist()
    assert found["year"].tolist() == given["year"].tolist()
    assert obeys(found)
    assert found["all"].dtype == np.int64
    off = found[["women", "men", "all"]].to_numpy() - given[["women", "men", "all"]].to_numpy()
    assert off.std(axis=0) == pytest.approx(out.noise.to_numpy(), rel=0.15)
    assert (np.abs(off) <= out.half_width(0.95).to_numpy()).mean() > 0.93
    assert out.guarantee.holds(0.5, 1e-6)
    assert "ε" in str(out.report())


def test_the_design_is_that_of_a_table_in_one_place():
    given = counts(20)
    here, there = RELEASE.design(given), RELEASE.design(in_dask(given))
    assert here.mechanism.fingerprint == there.mechanism.fingerprint
    assert here.noise.equals(there.noise)


def test_a_lazy_table_is_released_part_by_part(tmp_path, monkeypatch):
    monkeypatch.setattr("affinedp.release.engines.AT_ONCE", 300)
    given = counts(1000)
    polars.from_pandas(given).write_parquet(tmp_path / "given.parquet")
    lazy = polars.scan_parquet(tmp_path / "given.parquet")
    out = RELEASE.release(lazy, into=tmp_path / "out")
    found = out.table.collect()
    assert found.columns == list(given.columns)
    assert found["place"].to_list() == given["place"].tolist()
    assert obeys(found)
    assert len(list((tmp_path / "out").glob("part-*"))) == 4


def test_polars_tables_in_memory_are_read_once():
    given = counts(30)
    looks = []

    def look(frame):
        looks.append(len(frame))
        return frame

    lazy = polars.from_pandas(given).lazy().map_batches(look)
    design = RELEASE.design(given)
    out = design.release(lazy).table
    assert len(looks) == 1
    assert isinstance(out, polars.DataFrame)
    assert obeys(out)


def test_any_other_engine_says_how_it_runs(tmp_path):
    frames = [counts(40, seed) for seed in range(3)]
    table = adp.Parts(lambda task: [task(i, frame) for i, frame in enumerate(frames)])
    out = RELEASE.release(table, into=tmp_path / "out")
    assert out.table == tmp_path / "out"
    assert obeys(pandas.read_parquet(out.table))
    assert len(pandas.read_parquet(out.table)) == 120


def test_rows_about_the_same_people_are_counted_on_the_engine(tmp_path):
    composed = TableRelease(
        totals={"all": ["women", "men"]},
        public=["year", "place"],
        rows="composed",
        epsilon=0.5,
        delta=1e-6,
    )
    given = counts(12)
    design = composed.design(in_dask(given))
    assert design.releases == 12
    assert design.noise.equals(composed.design(given).noise)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        design.release(in_dask(given), ledger=ledger, into=tmp_path / "out")
        assert ledger.history()[0].releases == 12
        with pytest.raises(TableError, match="12 rows"):
            design.release(in_dask(counts(13)), ledger=ledger, into=tmp_path / "other")
        assert len(ledger.history()) == 1
    lazy = polars.from_pandas(given).lazy()
    assert len(composed.release(lazy, into=tmp_path / "lazy").table.collect()) == 12


def test_whom_rows_are_about_must_be_said(tmp_path):
    unsaid = TableRelease(totals={"all": ["women", "men"]}, public=["year", "place"], epsilon=1.0)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(TableError, match="rows='separate'"):
            unsaid.release(in_dask(counts(20)), ledger=ledger, into=tmp_path / "out")
        assert ledger.history() == ()
    assert not (tmp_path / "out").exists()


def test_nothing_is_charged_for_a_table_that_is_unsound(tmp_path):
    broken = counts(20)
    broken.loc[17, "all"] += 1
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(adp.AffineDPError, match="women"):
            RELEASE.release(in_dask(broken), ledger=ledger, into=tmp_path / "out")
        with pytest.raises(adp.AffineDPError, match="into="):
            RELEASE.release(in_dask(counts(20)), ledger=ledger)
        with pytest.raises(adp.AffineDPError, match="for tables in parts"):
            RELEASE.release(counts(20), ledger=ledger, into=tmp_path / "out")
        with pytest.raises(adp.AffineDPError, match="sampler"):
            RELEASE.release(in_dask(counts(20)), into=tmp_path / "o", sampler="numpy")
        assert ledger.history() == ()


def test_a_table_that_is_one_data_set_is_not_released_in_parts(tmp_path):
    tied = TableRelease(row_totals={"all": ["a", "b"]}, epsilon=1.0)
    table = dataframe.from_pandas(
        pandas.DataFrame({"n": [1, 2, 3]}, index=["a", "b", "all"]), npartitions=2, sort=False
    )
    with pytest.raises(TableError, match="tie the rows"):
        tied.release(table, into=tmp_path / "out")
    with pytest.raises(TableError, match="tie the rows"):
        tied.design(table)


def test_all_parts_have_the_same_types(tmp_path):
    """Labels are whole numbers in one part and others elsewhere: readers want one type."""
    given = counts(40).astype({"year": float})
    given.loc[25, "year"] = 2000.5
    given.loc[30:, "place"] = None
    out = RELEASE.release(in_dask(given, 4), into=tmp_path / "out").table.compute()
    assert out["year"].tolist() == given["year"].tolist()
    assert out["place"].isna().sum() == 10
    lazy = polars.scan_parquet(tmp_path / "out" / "*.parquet").collect()  # it would refuse others
    assert lazy["year"].dtype == polars.Float64
    frames = [counts(3), counts(3).assign(year=["a", "b", "c"])]
    table = adp.Parts(lambda task: [task(i, frame) for i, frame in enumerate(frames)])
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(adp.AffineDPError, match="other types"):
            RELEASE.release(table, ledger=ledger, into=tmp_path / "mixed")
        assert ledger.history() == ()


def test_a_table_that_changes_is_refused_after_the_charge(tmp_path):
    looks = []

    def frames(task):
        looks.append(task)
        return [task(0, counts(10, seed=len(looks)))]

    design = RELEASE.design(counts(10))
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(PartError, match="other rows"):
            design.release(adp.Parts(frames), ledger=ledger, into=tmp_path / "out")
        assert [entry.status for entry in ledger.history()] == ["charged"]
    assert os.listdir(tmp_path / "out") == ["_incomplete"]


def test_what_is_sent_to_workers_can_be_sent(tmp_path):
    for options in ({}, {"nonnegative": True}, {"round_to": None, "law": "laplace", "delta": 0.0}):
        release = replace(RELEASE, **options)
        work = TableRows(release.design(counts(5)), None)
        there = pickle.loads(pickle.dumps(work))
        blank, out = there.check(counts(50)), there.publish(counts(50), system_bytes)
        assert blank.dtypes.equals(out.dtypes)
        assert (blank["place"] == counts(50)["place"]).all()
        assert not blank[["women", "men", "all"]].to_numpy().any()
        assert np.abs(out["all"] - out["women"] - out["men"]).max() < 1e-6


@pytest.mark.slow
def test_a_worker_that_is_killed_publishes_nothing_twice(tmp_path):
    distributed = pytest.importorskip("distributed")
    killed = tmp_path / "killed"

    def once(part):
        if "p150" in set(part["place"]) and not killed.exists():
            killed.write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    table = in_dask(counts(200), 4).map_partitions(once, meta=counts(1).iloc[:0])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 5}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as here,
        distributed.Client(here),
        adp.Ledger(tmp_path / "l.db", **CAP) as ledger,
    ):
        out = RELEASE.release(table, ledger=ledger, into=tmp_path / "out")
        assert [entry.status for entry in ledger.history()] == ["released"]
        found = out.table.compute()
    assert killed.exists()
    assert sorted(found["place"]) == sorted(counts(200)["place"])
    assert obeys(found)


def test_a_part_without_labels_has_the_types_of_the_others(tmp_path):
    frames = [counts(2).assign(place=[None, None]), counts(2)]
    table = adp.Parts(lambda task: [task(i, frame) for i, frame in enumerate(frames)])
    folder = RELEASE.release(table, into=tmp_path / "out").table
    assert pandas.read_parquet(folder)["place"].tolist() == [None, None, "p0", "p1"]
    assert polars.scan_parquet(folder / "*.parquet").collect()["place"].dtype == polars.String


def test_labels_that_are_lists_are_refused(tmp_path):
    table = adp.Parts(lambda task: [task(0, counts(2).assign(place=[[1], [2, 3]]))])
    with pytest.raises(adp.AffineDPError, match="lists"):
        RELEASE.release(table, into=tmp_path / "out")


def test_private_numbers_are_no_labels(tmp_path):
    """An index is published as it is: one that is called like a private column is data."""
    given = counts(4).set_index("women", drop=False)
    with pytest.raises(TableError, match="labels of the rows are called 'women'"):
        RELEASE.release(given)
    with pytest.raises(TableError, match="labels of the rows are called 'women'"):
        RELEASE.release(in_dask(given, 2), into=tmp_path / "out")


@pytest.mark.parametrize("options", [{}, {"delta": 1e-6}, {"law": "laplace"}, {"whole": False}])
def test_an_epsilon_that_is_a_whole_number_is_charged(tmp_path, options):
    """The bits of its rate are in the fingerprint, and an int has none to show."""
    release = TableRelease(totals={"c": ["a", "b"]}, rows="separate", epsilon=1, **options)
    frame = pandas.DataFrame({"a": [1, 1], "b": [2, 2], "c": [3, 3]})
    with adp.Ledger(tmp_path / "l.db", epsilon=2.0, delta=1e-5, protects="one person") as ledger:
        release.release(frame, ledger=ledger)
        assert len(ledger.history()) == 1
    same = TableRelease(totals={"c": ["a", "b"]}, rows="separate", epsilon=1.0, **options)
    one, other = (kind.design(frame).mechanism.fingerprint for kind in (release, same))
    assert one == other


@pytest.mark.parametrize(
    ("options", "exact"),
    [
        ({"law": "gaussian", "delta": 1e-6}, True),
        ({"law": "gaussian", "delta": 1e-6, "round_to": 5}, False),
        ({"law": "laplace"}, False),
        ({"round_to": 1}, False),
    ],
)
def test_sums_over_rows_lie_as_far_as_is_said(tmp_path, options, exact):
    release = TableRelease(totals={"c": ["a", "b"]}, rows="separate", epsilon=1.0, **options)
    sums, rows = 1000, 20
    numbers = np.arange(sums * rows) % 7 * (5 if options.get("round_to") == 5 else 1)
    frame = pandas.DataFrame({"a": numbers, "b": numbers, "c": 2 * numbers})
    out = release.release(dataframe.from_pandas(frame, npartitions=2), into=tmp_path / "out")
    off = (out.table.compute().to_numpy() - frame.to_numpy()).reshape(sums, rows, 3).sum(axis=1)
    inside = (np.abs(off) <= out.half_width_of_sum(rows, 0.9).to_numpy()).mean(axis=0)
    assert (inside > 0.9 - 4 * 0.3 / np.sqrt(sums)).all()
    if exact:
        assert (inside < 0.9 + 4 * 0.3 / np.sqrt(sums)).all()
    assert out.half_width_of_sum(1).equals(out.half_width())


def test_sums_that_nothing_can_be_said_about_are_refused():
    release = TableRelease(totals={"c": ["a", "b"]}, rows="separate", epsilon=1.0, nonnegative=True)
    design = release.design(pandas.DataFrame({"a": [1], "b": [1], "c": [2]}))
    with pytest.raises(TableError, match="moved up to 0"):
        design.half_width_of_sum(3, 0.95)
    with pytest.raises(AffineDPError, match="at least 1"):
        design.half_width_of_sum(0, 0.95)
