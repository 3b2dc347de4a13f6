"""The same on Spark, in its local mode; for ``make test-cluster``."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

import affinedp as adp

pyspark = pytest.importorskip("pyspark", reason="Spark is tested by make test-cluster")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]

CAP = {"epsilon": 1.0, "delta": 1e-5, "protects": "one household"}


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2, 4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_a_spark_table_is_released_once(spark, tmp_path):
    import pandas

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
