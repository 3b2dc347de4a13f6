"""The same on Spark, in its local mode; for ``make test-cluster``."""

from __future__ import annotations

import datetime
import decimal
import os
import shutil
import signal
import sys

import numpy as np
import pytest

import affinedp as adp
from affinedp.domains.manifold import OffManifoldError
from affinedp.release.parts import PartError
from affinedp.tables import MarginRelease, TableRelease, count_people
from affinedp.tables.refusals import TableError

pandas = pytest.importorskip("pandas")
pyspark = pytest.importorskip("pyspark", reason="Spark is tested by make test-cluster")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TEST_CLUSTER") != "1", reason="run by make test-cluster"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]

CAP = {"epsilon": 1.0, "delta": 1e-5, "protects": "one household"}


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise workers take the python3 of the path
    session = (
        SparkSession.builder.master("local[2, 4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_a_spark_table_is_released_once(spark, tmp_path):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 1000, 3000), rng.integers(0, 1000, 3000)
    given = pandas.DataFrame({"a": a, "b": b, "c": a + b})
    given.to_parquet(tmp_path / "data.parquet")
    table = spark.read.parquet(str(tmp_path / "data.parquet")).repartition(5, "a").cache()
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        out = mechanism.release(table, ledger=ledger, rows="different", into=tmp_path / "out")
        assert [entry.status for entry in ledger.history()] == ["released"]
    first, again = out.toPandas(), out.toPandas()
    assert len(first) == 3000
    assert np.array_equal(np.sort(first["a"]), np.sort(again["a"]))
    assert np.abs(first["a"] + first["b"] - first["c"]).max() < 1e-9
    assert len(list((tmp_path / "out").glob("part-*"))) == 5


def test_a_worker_that_is_killed_publishes_nothing_twice(spark, tmp_path):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    marker, drawn = str(tmp_path / "killed"), str(tmp_path / "out")

    def once(batches):
        from pyspark import TaskContext

        yield from batches
        # while parts are drawn: others of this run are published already, or will be
        started = os.path.isdir(drawn) and any(n.startswith("part") for n in os.listdir(drawn))
        if TaskContext.get().partitionId() == 3 and started and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    table = spark.createDataFrame([(i, i, 2 * i) for i in range(400)], "a long, b long, c long")
    flaky = table.repartition(4, "a").mapInPandas(once, table.schema)
    out = mechanism.release(flaky, into=drawn)
    assert os.path.exists(marker)
    assert out.count() == 400
    assert len([name for name in os.listdir(drawn) if name.startswith("part")]) == 4


def test_rows_that_change_between_two_looks_are_refused(spark, tmp_path):
    from pyspark.sql import functions

    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    look = functions.udf(lambda a: a + int.from_bytes(os.urandom(2), "big"), "long")
    table = spark.range(100).select(look.asNondeterministic()("id").alias("a"))
    moving = table.select("a", functions.lit(0).alias("b"), functions.col("a").alias("c"))
    with (
        adp.Ledger(tmp_path / "l.db", **CAP) as ledger,
        pytest.raises(PartError, match="^part .* other rows"),
    ):
        mechanism.release(moving, ledger=ledger, rows="different", into=tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["_incomplete"]


def test_a_table_of_rows_is_released_on_spark(spark, tmp_path):
    rng = np.random.default_rng(0)
    women, men = rng.integers(0, 1000, (2, 600))
    given = pandas.DataFrame({"women": women, "men": men, "all": women + men})
    given["place"] = [f"p{i}" for i in range(600)]
    given.to_parquet(tmp_path / "data.parquet")
    table = spark.read.parquet(str(tmp_path / "data.parquet")).repartition(3, "place")
    release = TableRelease(
        totals={"all": ["women", "men"]}, public=["place"], rows="separate",
        epsilon=0.5, delta=1e-6, round_to=1,
    )  # fmt: skip
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        out = release.release(table, ledger=ledger, into=tmp_path / "out")
        assert [entry.releases for entry in ledger.history()] == [1]
    found = out.table.toPandas()
    assert sorted(found["place"]) == sorted(given["place"])
    assert (found["all"] == found["women"] + found["men"]).all()


def test_people_are_counted_on_spark(spark):
    rng = np.random.default_rng(0)
    visits = pandas.DataFrame(
        {"who": rng.integers(0, 60, 500), "ward": rng.choice(list("ab"), 500)}
    )
    there = spark.createDataFrame(visits)
    cells = {"ward": ["a", "b", "c"]}
    counts = count_people(there, ["ward"], cells=cells)["count"]
    assert counts.tolist() == [*visits["ward"].value_counts().sort_index(), 0]
    first = visits.sort_values(["who", "ward"])
    first = first[first.groupby("who").cumcount() < 3]
    limited = count_people(there, ["ward"], cells=cells, person="who", at_most=3)["count"]
    assert limited.tolist() == [*first["ward"].value_counts().sort_index(), 0]


def test_a_task_that_fails_is_run_again_and_published_once(spark, tmp_path):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    marker = str(tmp_path / "failed")

    def once(batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1 and not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("a worker is lost")

    table = spark.createDataFrame([(i, i, 2 * i) for i in range(400)], "a long, b long, c long")
    flaky = table.repartition(4).mapInPandas(once, table.schema)
    out = mechanism.release(flaky, into=tmp_path / "out")
    assert os.path.exists(marker)
    assert out.count() == 400


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("long", [2**53 + 1, None]),
        ("timestamp", [datetime.datetime(2020, 1, 1, 3), None]),
        ("date", [datetime.date(2020, 1, 1), None]),
        *((kind, [None, None]) for kind in ("string", "binary", "tinyint", "timestamp_ntz")),
        ("timestamp_ntz", [datetime.datetime(2020, 1, 1, 3), None]),
        ("timestamp", [datetime.datetime(2020, 1, 1), datetime.datetime(9999, 12, 31)]),
        ("decimal(38,18)", [decimal.Decimal("1.5"), None]),
    ],
)
def test_labels_of_spark_come_back_as_they_are(spark, tmp_path, kind, labels):
    release = TableRelease(
        totals={"c": ["a", "b"]}, rows="separate", epsilon=1, delta=1e-6, public=["label"]
    )
    rows = [(1, 2, 3, label) for label in labels]
    table = spark.createDataFrame(rows, f"a long, b long, c long, label {kind}").coalesce(1)
    found = release.release(table, into=tmp_path / "out").table
    if "decimal" not in kind:  # as many digits as the labels have
        assert found.schema["label"].dataType == table.schema["label"].dataType
    assert [row["label"] for row in found.collect()] == labels


def test_a_refusal_on_spark_is_the_one_of_the_part(spark, tmp_path):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    rows = spark.sparkContext.parallelize([(1, 2, 3), (1, 2, 4)], 2)
    table = spark.createDataFrame(rows, "a long, b long, c long")
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        with pytest.raises(OffManifoldError, match="^part 1 .*row 0 ") as refused:
            mechanism.release(table, ledger=ledger, rows="different", into=tmp_path / "out")
        assert ledger.history() == ()
    assert refused.value.rows == (0,)
    assert not (tmp_path / "out").exists()
    twice = table.select("a", "a", "b", "c")
    with pytest.raises(adp.AffineDPError, match="two columns are called 'a'"):
        mechanism.release(twice, into=tmp_path / "out")


def test_lengths_of_time_are_refused_on_spark(spark, tmp_path):
    release = TableRelease(
        totals={"c": ["a", "b"]}, rows="separate", epsilon=1, delta=1e-6, public=["label"]
    )
    kinds = "a long, b long, c long, label interval day to second"
    table = spark.createDataFrame([(1, 2, 3, datetime.timedelta(1))], kinds)
    with pytest.raises(adp.AffineDPError, match="lengths of time"):
        release.release(table, into=tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["v[1]", "{x,y}", "w*", "year=2020", "a=5", "a b", "a#b", "a%20b", "ü"]
)
def test_a_folder_of_any_name_comes_back_on_spark_or_is_refused(spark, tmp_path, name):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    table = spark.createDataFrame([(1, 2, 3), (2, 2, 4)], "a long, b long, c long")
    if set(name) & set("[]{}*"):
        with pytest.raises(adp.AffineDPError, match="pattern"):
            mechanism.release(table, into=tmp_path / name)
        assert not (tmp_path / name).exists()
        return
    out = mechanism.release(table, into=tmp_path / name)
    assert (out.columns, out.count()) == (["a", "b", "c"], 2)


def test_margins_with_a_person_are_counted_on_spark(spark):
    rng = np.random.default_rng(0)
    visits = pandas.DataFrame(
        {"who": rng.integers(0, 60, 500), "ward": rng.choice(list("ab"), 500)}
    )
    release = MarginRelease(
        attributes={"ward": ["a", "b"]}, margins=[["ward"]], epsilon=60.0, at_most=2
    )
    found = release.release(spark.createDataFrame(visits), person="who").margin("ward")
    first = visits.sort_values(["who", "ward"])
    first = first[first.groupby("who").cumcount() < 2]
    assert found["count"].round().tolist() == first["ward"].value_counts().sort_index().tolist()
    nobody = spark.createDataFrame([(1, "a"), (None, "b")], "who long, ward string")
    with pytest.raises(TableError, match="nobody"):
        release.release(nobody, person="who")
