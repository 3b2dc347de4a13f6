"""Tables that engines keep in parts: Dask and Spark, each asked in its own words."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from affinedp.budget.charges import Rows, charged_releases, checked_rows
from affinedp.budget.ledger import Ledger
from affinedp.errors import AffineDPError
from affinedp.record import MechanismRecord
from affinedp.release.knorm_plan import KNormPlan
from affinedp.release.parts import ReleaseInParts
from affinedp.release.plan import Plan

Task = Callable[[int, Any], Any]


def engine_of(data: Any) -> str | None:
    """Return which engine keeps a table, or None; no engine is imported for that.

    Parameters
    ----------
    data : object
        Anything.
    """
    for kind in type(data).__mro__:
        module = kind.__module__.partition(".")[0]
        if kind.__name__ == "DataFrame" and module in ("dask", "dask_expr", "pyspark"):
            return "spark" if module == "pyspark" else "dask"
    return None


def publish_in_parts(
    mechanism: MechanismRecord,
    plan: Plan | KNormPlan,
    data: Any,
    *,
    into: str | os.PathLike[str] | None,
    ledger: Ledger | None = None,
    label: str | None = None,
    rows: Rows | None = None,
) -> Any:
    """Publish a table part by part; see :meth:`affinedp.Mechanism.release`.

    Parameters
    ----------
    mechanism : MechanismRecord
        What is published, with which noise.
    plan : Plan or KNormPlan
        The public part of its releases.
    data : Dask or Spark DataFrame
        The data.
    into : str or Path
        A new folder that all workers share.
    ledger : Ledger, optional
        Charged once, before any part is drawn.
    label : str, optional
        For the ledger.
    rows : {"same", "different"}, optional
        Whom the rows are about; needed with a ledger.

    Returns
    -------
    The published table, of the same engine, read from ``into``.
    """
    if into is None:
        raise AffineDPError(
            "a table in parts is computed when it is needed, perhaps more than once, and every "
            "time with new noise: give into=, a new folder that all workers share, where each part "
            "is written once"
        )
    if ledger is not None and not hasattr(ledger, "charge"):
        raise AffineDPError(f"ledger must be a Ledger, not {type(ledger).__name__}")
    if not hasattr(data, "mapInPandas") and not hasattr(data, "to_delayed"):
        raise AffineDPError("give a Spark DataFrame: to_spark() makes one of pandas on Spark")
    checked_rows(rows)
    run = _on_spark if engine_of(data) == "spark" else _on_dask
    job: ReleaseInParts = ReleaseInParts.start(mechanism, plan, into)
    entry = None
    try:
        counts = run(data, job.check)
        if not sum(counts):
            raise AffineDPError("there are no rows to release")
        if ledger is not None:
            entry = ledger.charge(
                mechanism.guarantee,
                fingerprint=mechanism.fingerprint,
                label=label,
                releases=charged_releases(sum(counts), rows),
            )
    except BaseException:
        job.close()
        raise
    try:
        # the rows that were checked and counted, and no others
        run(data, job.checked(len(counts)).part)
        job.finish(len(counts))
    except BaseException:
        job.abandon()
        raise
    if ledger is not None and entry is not None:
        ledger.settle(entry)
    return _read(data, str(job.folder))


def _on_dask(data: Any, task: Task) -> list[Any]:
    import dask

    run = dask.delayed(task, pure=False)
    tasks = [run(number, part) for number, part in enumerate(data.to_delayed())]
    return list(dask.compute(*tasks))


def _on_spark(data: Any, task: Task) -> list[Any]:
    empty = data.limit(0).toPandas()

    def whole_part(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        frames = list(batches)
        frame = pandas.concat(frames, ignore_index=True) if frames else empty
        yield pandas.DataFrame({"number": [number], "answer": [json.dumps(task(number, frame))]})

    answers = data.mapInPandas(whole_part, "number long, answer string").collect()
    return [json.loads(row["answer"]) for row in sorted(answers, key=lambda row: row["number"])]


def _read(data: Any, folder: str) -> Any:
    if engine_of(data) == "spark":
        return data.sparkSession.read.parquet(f"file://{folder}")  # not the cluster's own store
    import dask.dataframe

    return dask.dataframe.read_parquet(folder)
