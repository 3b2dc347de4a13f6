"""Releases in parts: one charge, one draw for each row, whatever the engine does."""

from __future__ import annotations

import os
import pickle
import signal

import numpy as np
import pytest

import affinedp as adp
from affinedp.release.parts import HIDDEN, PartError, ReleaseInParts

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
dask = pytest.importorskip("dask")
dataframe = pytest.importorskip("dask.dataframe")

CAP = {"epsilon": 1.0, "delta": 1e-5, "protects": "one household"}


@pytest.fixture(scope="module")
def mechanism():
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    return adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)


def rows(count: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 1000, count), rng.integers(0, 1000, count)
    return pandas.DataFrame({"a": a, "b": b, "c": a + b}, index=[f"h{i}" for i in range(count)])


def job(mechanism, folder):
    return ReleaseInParts.start(mechanism, mechanism.release_plan(), folder)


def test_a_dask_table_is_released_once(mechanism, tmp_path):
    table = dataframe.from_pandas(rows(1000), npartitions=7, sort=False)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger, dask.config.set(scheduler="threads"):
        out = mechanism.release(table, ledger=ledger, rows="different", into=tmp_path / "out")
        assert len(ledger.history()) == 1
        assert ledger.history()[0].status == "released"
        first, again = out.compute(), out.compute()
    assert first.equals(again)  # reading it twice draws nothing
    assert list(first.columns) == ["a", "b", "c"]
    assert list(first.index) == list(rows(1000).index)
    assert np.abs(first["a"] + first["b"] - first["c"]).max() < 1e-9
    noise = (first - rows(1000)).to_numpy()
    assert noise.std(axis=0) == pytest.approx(np.sqrt(mechanism.expected_squared_errors), rel=0.15)
    assert not (tmp_path / "out" / HIDDEN).exists()


def test_rows_about_the_same_are_charged_each(mechanism, tmp_path):
    table = dataframe.from_pandas(rows(50), npartitions=3, sort=False)
    with adp.Ledger(tmp_path / "l.db", **(CAP | {"epsilon": 100.0})) as ledger:
        mechanism.release(table, ledger=ledger, rows="same", into=tmp_path / "out")
        assert ledger.history()[0].releases == 50
    with (
        adp.Ledger(tmp_path / "l2.db", **CAP) as ledger,
        pytest.raises(adp.AffineDPError, match="50 rows"),
    ):
        mechanism.release(table, ledger=ledger, into=tmp_path / "out2")


def test_nothing_is_charged_or_drawn_for_bad_rows(mechanism, tmp_path):
    broken = rows(100)
    broken.loc["h77", "c"] += 1
    table = dataframe.from_pandas(broken, npartitions=4, sort=False)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(adp.AffineDPError, match="does not obey"):
            mechanism.release(table, ledger=ledger, rows="different", into=tmp_path / "out")
        assert ledger.history() == ()
    assert not list((tmp_path / "out").glob("part-*"))


def test_no_folder_no_release(mechanism, tmp_path):
    table = dataframe.from_pandas(rows(10), npartitions=2, sort=False)
    with pytest.raises(adp.AffineDPError, match="into="):
        mechanism.release(table)
    (tmp_path / "other").write_text("x")
    with pytest.raises(adp.AffineDPError, match="not empty"):
        mechanism.release(table, into=tmp_path)
    with pytest.raises(adp.AffineDPError, match="for tables in parts"):
        mechanism.release([1, 2, 3], into=tmp_path / "new")


def test_an_empty_part_is_an_empty_file(mechanism, tmp_path):
    table = dataframe.from_pandas(rows(40), npartitions=4, sort=False)
    table = table[table["a"] >= 0].map_partitions(
        lambda part: part if "h0" in part.index else part.iloc[:0], meta=rows(1).iloc[:0]
    )
    out = mechanism.release(table, into=tmp_path / "out")
    assert len(out.compute()) == 10
    nothing = table[table["a"] < 0]
    with pytest.raises(adp.AffineDPError, match="no rows"):
        mechanism.release(nothing, into=tmp_path / "none")


def test_a_part_is_written_once(mechanism, tmp_path):
    work = job(mechanism, tmp_path / "out")
    name = work.part(0, rows(20))
    first = pandas.read_parquet(tmp_path / "out" / name)
    elsewhere = pickle.loads(pickle.dumps(work))  # as on another worker
    assert elsewhere.part(0, rows(20)) == name
    assert pandas.read_parquet(tmp_path / "out" / name).equals(first)
    with pytest.raises(PartError, match="other rows") as refused:
        elsewhere.part(0, rows(20, seed=1))
    assert refused.value.part == 0
    with pytest.raises(adp.AffineDPError, match="1 of 2 parts are missing"):
        work.finish(2)
    work.part(1, rows(5, seed=2))
    work.finish(2)
    assert sorted(os.listdir(tmp_path / "out")) == ["part-00000.parquet", "part-00001.parquet"]


def test_of_two_runs_at_once_one_stays(mechanism, tmp_path):
    """Both draw; the second finds the first in place, and throws its own away."""
    import threading

    work = job(mechanism, tmp_path / "out")
    runs = [threading.Thread(target=work.part, args=(0, rows(2000))) for _ in range(6)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    left = [name for name in os.listdir(tmp_path / "out" / HIDDEN) if "rows" not in name]
    assert left == []
    assert len(list((tmp_path / "out").glob("part-*"))) == 1


def test_what_a_part_leaves_tells_nothing(mechanism, tmp_path):
    """The hash of the rows is keyed: the same rows leave another trace in another release."""
    traces = []
    for folder in "ab":
        job(mechanism, tmp_path / folder).part(0, rows(20))
        traces.append((tmp_path / folder / HIDDEN / "rows-00000").read_text())
    assert traces[0] != traces[1]


@pytest.mark.slow
def test_workers_that_are_killed_publish_nothing_twice(mechanism, tmp_path):
    distributed = pytest.importorskip("distributed")
    table = dataframe.from_pandas(rows(4000), npartitions=40, sort=False)
    killed = tmp_path / "killed"

    def slowly(part):
        import time

        time.sleep(0.05)
        if "h2000" in part.index and not killed.exists():
            killed.write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    slow = table.map_partitions(slowly, meta=rows(1).iloc[:0])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 5}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as here,
        distributed.Client(here),
        adp.Ledger(tmp_path / "l.db", **CAP) as ledger,
    ):
        out = mechanism.release(slow, ledger=ledger, rows="different", into=tmp_path / "out")
        assert [entry.status for entry in ledger.history()] == ["released"]
        found = out.compute()
    assert killed.exists()
    assert sorted(found.index) == sorted(rows(4000).index)
