"""Releases in parts: one charge, one draw for each row, whatever the engine does."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

import affinedp as adp
from affinedp.release.parts import PartError, PartFiles, ReleaseInParts
from affinedp.release.publish import MechanismRows

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


def job(mechanism, folder, *frames):
    """A release of these parts that was checked and may be drawn."""
    rows = MechanismRows(mechanism, mechanism.prepared())
    work = ReleaseInParts.start(rows, folder, PartFiles(labels=True, for_spark=False))
    return work.checked([work.check(i, frame) for i, frame in enumerate(frames)])


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
    assert all(name.startswith("part-") for name in os.listdir(tmp_path / "out"))


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


def test_an_empty_part_is_left_out(mechanism, tmp_path):
    table = dataframe.from_pandas(rows(40), npartitions=4, sort=False)
    table = table[table["a"] >= 0].map_partitions(
        lambda part: part if "h0" in part.index else part.iloc[:0], meta=rows(1).iloc[:0]
    )
    out = mechanism.release(table, into=tmp_path / "out")
    assert len(out.compute()) == 10
    named = rows(40).rename_axis("house")
    last = dataframe.from_pandas(named, npartitions=4, sort=False).map_partitions(
        lambda part: part if "h39" in part.index else part.iloc[:0], meta=named.iloc[:0]
    )
    assert list(mechanism.release(last, into=tmp_path / "last").compute().index)[-1] == "h39"
    nothing = table[table["a"] < 0]
    with pytest.raises(adp.AffineDPError, match="no rows"):
        mechanism.release(nothing, into=tmp_path / "none")


def bodies():
    return adp.design_knorm(
        adp.AffineManifold.from_equations(["a + b = c"]), epsilon=1.0, weights=[1, 1, 100]
    )


@pytest.mark.parametrize("kind", ["gaussian", "knorm"])
def test_a_part_that_runs_again_has_the_same_bytes(mechanism, tmp_path, kind):
    """On another worker, after the first or at once; other parts and releases have other noise."""
    mechanism = mechanism if kind == "gaussian" else bodies()
    work = job(mechanism, tmp_path / "out", rows(20), rows(20), rows(0))
    name = work.part(0, rows(20))
    first = (tmp_path / "out" / name).read_bytes()
    elsewhere = pickle.loads(pickle.dumps(work))
    runs = [threading.Thread(target=elsewhere.part, args=(0, rows(20))) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert (tmp_path / "out" / name).read_bytes() == first
    with pytest.raises(PartError, match="other rows") as refused:
        elsewhere.part(0, rows(20, seed=1))
    assert refused.value.part == 0
    with pytest.raises(adp.AffineDPError, match="1 of 3 parts are missing"):
        work.finish()
    work.part(1, rows(20))
    work.part(2, rows(0))
    (tmp_path / "out" / ".part-00000-lost").write_text("of a worker that was killed")
    work.finish()
    assert sorted(os.listdir(tmp_path / "out")) == ["part-00000.parquet", "part-00001.parquet"]
    another = job(mechanism, tmp_path / "another", rows(20))
    another.part(0, rows(20))
    drawn = [
        pandas.read_parquet(tmp_path / place)["a"].to_numpy()
        for place in ("out/part-00000.parquet", "out/part-00001.parquet", "another")
    ]
    assert len(np.unique(np.concatenate(drawn))) == 60


@pytest.mark.parametrize("labelled", [True, False])
def test_the_order_of_rows_may_change_and_their_noise_does_not(mechanism, tmp_path, labelled):
    given = rows(20) if labelled else rows(20).reset_index(drop=True)
    back = given.iloc[::-1] if labelled else given.iloc[::-1].reset_index(drop=True)
    work = job(mechanism, tmp_path / "out", given)
    file = tmp_path / "out" / work.part(0, given)
    first = pandas.read_parquet(file)
    work.part(0, back)
    again = pandas.read_parquet(file)
    assert list(again.index) == list(back.index)
    assert np.array_equal(again.to_numpy(), first.to_numpy()[::-1])
    with pytest.raises(PartError, match="other rows"):
        work.part(0, given.iloc[:19])


def test_what_is_told_of_rows_says_nothing_about_them(mechanism, tmp_path):
    """Their digest is keyed: the same rows have another one in another release."""
    assert job(mechanism, tmp_path / "a", rows(9)).digests != (
        job(mechanism, tmp_path / "b", rows(9)).digests
    )


def test_a_worker_with_another_version_draws_nothing(mechanism, tmp_path):
    """It may make other noise of the same key."""
    work = replace(job(mechanism, tmp_path / "out", rows(2)), version="0.0")
    for task in (work.check, work.part):
        with pytest.raises(adp.AffineDPError, match="install one version everywhere"):
            task(0, rows(2))


def test_opendp_draws_no_parts(mechanism, tmp_path):
    with pytest.raises(adp.AffineDPError, match="same noise again"):
        mechanism.release(given_parts(rows(2)), into=tmp_path / "out", sampler="opendp")
    assert not (tmp_path / "out").exists()


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


@pytest.mark.parametrize("change", ["more rows", "other rows", "another part"])
def test_what_is_drawn_is_what_was_checked_and_charged(mechanism, tmp_path, change, monkeypatch):
    """Tables are computed twice: once to check and count, once to draw."""
    looks = []

    def read(part):
        looks.append(len(part))
        if len(looks) <= 2 or change == "another part":
            return part
        return rows(50) if change == "more rows" else rows(len(part), seed=1)

    table = dataframe.from_pandas(rows(4), npartitions=2, sort=False)
    changing = table.map_partitions(read, meta=rows(1).iloc[:0])
    if change == "another part":
        parts = changing.to_delayed()
        answers = iter([parts, [*parts, *parts]])
        monkeypatch.setattr(type(changing), "to_delayed", lambda self: next(answers))
    with (
        adp.Ledger(tmp_path / "l.db", **(CAP | {"epsilon": 100.0})) as ledger,
        dask.config.set(scheduler="sync"),
    ):
        with pytest.raises(PartError, match="other rows|was not there"):
            mechanism.release(changing, ledger=ledger, rows="same", into=tmp_path / "out")
        assert ledger.history()[0].releases == 4
        assert ledger.history()[0].status == "charged"
    with pytest.raises(adp.AffineDPError, match="not empty"):
        mechanism.release(table, into=tmp_path / "out")


def test_a_refusal_leaves_the_folder_for_the_next_try(mechanism, tmp_path):
    broken = rows(10)
    broken.loc["h7", "c"] += 1
    with pytest.raises(adp.AffineDPError, match="does not obey"):
        mechanism.release(
            dataframe.from_pandas(broken, npartitions=2, sort=False), into=tmp_path / "out"
        )
    table = dataframe.from_pandas(rows(10), npartitions=2, sort=False)
    assert len(mechanism.release(table, into=tmp_path / "out")) == 10


def test_data_is_no_label(mechanism, tmp_path):
    given = rows(6).set_index("a", drop=False)
    with pytest.raises(adp.AffineDPError, match="labels"):
        mechanism.release(given)
    table = dataframe.from_pandas(given, npartitions=2, sort=False)
    with pytest.raises(adp.AffineDPError, match="labels"):
        mechanism.release(table, into=tmp_path / "out")


def test_labels_that_cannot_be_written_cost_nothing(mechanism, tmp_path):
    given = rows(3)
    given.index = pandas.Index([1, "x", 2.5], dtype=object)
    with pytest.raises(adp.AffineDPError, match="Parquet"):
        job(mechanism, tmp_path / "out", given)


def test_an_address_is_no_folder(mechanism, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = dataframe.from_pandas(rows(6), npartitions=2, sort=False)
    with pytest.raises(adp.AffineDPError, match="address"):
        mechanism.release(table, into="s3://bucket/out")
    assert not list(tmp_path.iterdir())
    with pytest.raises(adp.AffineDPError, match="must be a Ledger"):
        mechanism.release(table, into="out", ledger="l.db", rows="different")
    with pytest.raises(adp.AffineDPError, match="rows must be"):
        mechanism.release(table, into="out", rows="all")


def given_parts(*frames):
    return adp.Parts(lambda task: [task(i, frame) for i, frame in enumerate(frames)])


LEVELS = pandas.MultiIndex.from_tuples([("x", 1), ("y", 2)])
UNUSABLE = {
    "labels of other names": (
        given_parts(rows(2).set_axis(LEVELS), rows(2).set_axis(LEVELS.rename(["p", "q"]))),
        "other names",
    ),
    "whole numbers that other parts would round": (
        given_parts(rows(2).set_axis([2**53 + 1, 2]), rows(2).set_axis([0.5, 2.0])),
        "too large for doubles",
    ),
    "a number twice": (adp.Parts(lambda task: [task(0, rows(2)), task(0, rows(2))]), "each once"),
    "numbers from one": (adp.Parts(lambda task: [task(1, rows(2)), task(2, rows(2))]), "each once"),
    "no pandas": (given_parts({"a": [1], "b": [2], "c": [3]}), "must be a pandas DataFrame"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_parts_that_do_not_fit_cost_nothing(mechanism, tmp_path, name):
    table, match = UNUSABLE[name]
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(adp.AffineDPError, match=match):
            mechanism.release(table, ledger=ledger, rows="different", into=tmp_path / "out")
        assert ledger.history() == ()
    assert not (tmp_path / "out").exists()


def test_a_folder_that_workers_do_not_share_costs_nothing(mechanism, tmp_path):
    """Where a worker writes to a folder of its own, that is seen before the charge."""

    def run(task):
        elsewhere = task.__self__
        alone = replace(elsewhere, folder=tmp_path / "worker")
        return [task(0, rows(2)), getattr(alone, task.__name__)(1, rows(2))]

    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(adp.AffineDPError, match="share the folder"):
            mechanism.release(
                adp.Parts(run), ledger=ledger, rows="different", into=tmp_path / "out"
            )
        assert ledger.history() == ()


def test_a_folder_is_marked_before_anything_is_drawn(mechanism, tmp_path):
    """Whoever draws may be killed at any moment, and marks nothing then."""
    marked = []

    def run(task):
        marked.append((tmp_path / "out" / "_incomplete").exists())
        return [task(0, rows(2))]

    out = mechanism.release(adp.Parts(run), into=tmp_path / "out")
    assert marked == [True, True]
    assert os.listdir(out) == ["part-00000.parquet"]
