"""Tables that engines keep in parts: Dask, Spark, lazy polars and any other, each in its own words.

Whatever the engine: all parts are checked and counted, the ledger is charged, and then the rows
that were counted are drawn, a part with the same noise however often it runs.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.budget.ledger import (
    Ledger,
    Rows,
    charged_releases,
    checked_ledger,
    checked_rows,
    paying,
)
from affinedp.domains.reading import engine_of, pandas_of_polars
from affinedp.errors import AffineDPError
from affinedp.laws.sampler import Sampler, checked_sampler
from affinedp.record import MechanismRecord
from affinedp.release.parts import PartError, PartFiles, ReleaseInParts, RowsToPublish
from affinedp.release.publish import MechanismRows, sampler_of
from affinedp.strategies.base import Prepared

Task = Callable[[int, Any], Any]

# Types of Spark by Arrow's names, but for points in time.
SPARK_TYPES = {
    "string": "string",
    "binary": "binary",
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date32",
}
# Rows of a lazy table that are in memory at once.
AT_ONCE = 100_000
# What is a pattern to an engine wherever it stands in a path, also in a list of files.
PATTERNS = {"dask": "*?[]", "spark": "*?[]{}\\"}


@dataclass(frozen=True)
class Parts:
    """A table in parts that any engine keeps: how a task is run on each of them.

    Attributes
    ----------
    run : callable
        Gets a task, runs ``task(number, frame)`` for every part, where the part is, and returns
        the answers in the order of the numbers 0, 1, ….  Frames are pandas DataFrames.  It is
        called twice; a task may run more often, and on the same rows of a part each time.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> import affinedp as adp
    >>> frames = [pd.DataFrame({"a": [1, 2], "b": [1, 2]}), pd.DataFrame({"a": [3], "b": [3]})]
    >>> table = adp.Parts(lambda task: [task(i, frame) for i, frame in enumerate(frames)])
    >>> m = adp.design_gaussian(adp.AffineManifold.from_equations(["a = b"]), epsilon=1, delta=1e-6)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = m.release(table, into=f"{folder}/published")
    ...     len(pd.read_parquet(out))
    3
    """

    run: Callable[[Task], Sequence[Any]]


def publish_rows_in_parts(
    mechanism: MechanismRecord,
    prepared: Prepared,
    data: Any,
    *,
    into: str | os.PathLike[str] | None,
    ledger: Ledger | None = None,
    label: str | None = None,
    rows: Rows | None = None,
    sampler: Sampler = "bulk",
) -> Any:
    """Publish a table part by part; see :meth:`affinedp.Mechanism.release`."""
    checked_rows(rows)
    checked_ledger(ledger)
    sampler_of(mechanism, prepared)  # made here, once, and sent along

    def paid(count: int) -> AbstractContextManager[None]:
        releases = 1 if ledger is None else charged_releases(count, rows)
        key = mechanism.fingerprint
        return paying(ledger, mechanism.guarantee, fingerprint=key, label=label, releases=releases)

    work = MechanismRows(mechanism, prepared)
    return publish_in_parts(work, data, into=into, paid=paid, sampler=sampler)


def publish_in_parts(
    work: RowsToPublish,
    data: Any,
    *,
    into: str | os.PathLike[str] | None,
    paid: Callable[[int], AbstractContextManager[None]],
    sampler: Sampler = "bulk",
) -> Any:
    """Check all parts, charge once, draw each part, and return the published table."""
    if into is None:
        raise AffineDPError(
            "a table in parts is published where its parts are: give into=, a new folder that all "
            "workers share, where each part is written"
        )
    if checked_sampler(sampler) != "bulk":
        raise AffineDPError(
            "a part that an engine runs twice must get the same noise again, and OpenDP draws anew "
            "each time: leave out sampler for tables in parts"
        )
    engine = engine_of(data) or ""
    _refuse_unfit(engine, data)
    _refuse_unreadable(engine, into)
    run = _RUNS[engine]
    # the rows of Spark and polars have no labels, only places, which the parts do not know
    labels = engine in ("dask", "parts")
    job = ReleaseInParts.start(work, into, PartFiles(labels, engine == "spark"))
    charged = ExitStack()
    try:
        answers = _answers(run(data, job.check))
        drawn = job.checked(answers, declared_types(engine, data))
        charged.enter_context(paid(sum(count for _, count, *_ in answers)))
    except BaseException:
        job.withdraw()
        raise
    try:
        # the rows that were checked and counted, and no others
        run(data, drawn.part)
        drawn.finish()
    except BaseException:
        job.abandon()
        raise
    try:
        charged.close()  # confirmed
    except AffineDPError as error:
        raise AffineDPError(
            f"the release is complete, in {drawn.folder}, but its ledger does not confirm what it "
            f"cost: {error}"
        ) from None
    return _read_back(engine, data, drawn.folder)


def _refuse_unfit(engine: str, data: Any) -> None:
    """Refuse tables that an engine holds, and cannot give to tasks or read back."""
    if engine == "spark" and not hasattr(data, "mapInArrow"):
        raise AffineDPError("give a Spark DataFrame: to_spark() makes one of pandas on Spark")
    if engine == "dask" and data._meta.index.nlevels > 1:
        raise AffineDPError(
            "the rows have several labels each, which Dask does not read from files: "
            "reset_index() makes columns of them, reset_index(drop=True) leaves them out"
        )
    names = data.columns if engine in ("dask", "spark") else ()
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise AffineDPError(f"two columns are called {twice[0]!r}: rename one, or leave it out")


def declared_types(engine: str, data: Any) -> Any:
    """Return the types of columns that an engine states, as Arrow says them; None without any."""
    if engine == "spark":
        import pyarrow

        times = {"timestamp": pyarrow.timestamp("us", "UTC"), "timestamp_ntz": "timestamp[us]"}
        kinds = {**SPARK_TYPES, **times}
        return pyarrow.schema([(name, kinds[kind]) for name, kind in data.dtypes if kind in kinds])
    if engine == "polars":
        import polars

        return polars.DataFrame(schema=data.collect_schema()).to_arrow().schema
    if engine == "dask":
        import pyarrow

        return pyarrow.Schema.from_pandas(data._meta, preserve_index=False)
    return None


def _answers(given: Sequence[Any]) -> list[tuple[int, int, str, str]]:
    try:
        return [(int(i), int(count), str(types), str(rows)) for i, count, types, rows in given]
    except (TypeError, ValueError):
        raise AffineDPError(
            "run must return a list of what the task returned for each part; nothing was charged"
        ) from None


def _on_dask(data: Any, task: Task) -> list[Any]:
    import dask

    run = dask.delayed(task, pure=False)
    tasks = [run(number, part) for number, part in enumerate(data.to_delayed())]
    return list(dask.compute(*tasks))


def _on_spark(data: Any, task: Task) -> list[Any]:
    def whole_part(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas
        import pyarrow
        from pyspark import TaskContext

        context: Any = TaskContext.get()  # there is one wherever a task runs
        number = context.partitionId()
        given, frame = list(batches), pandas.DataFrame()
        if given:
            # not doubles where a number is missing: they do not hold all whole numbers
            frame = pyarrow.Table.from_batches(given).to_pandas(integer_object_nulls=True)
        try:
            answer = {"answer": task(number, frame)}
        except PartError:
            raise  # a disk that is busy or a lost worker: Spark tries again
        except AffineDPError as error:
            answer = {"refused": pickle.dumps(error).hex()}
        text = json.dumps(answer)
        yield pyarrow.RecordBatch.from_pydict({"number": [number], "answer": [text]})

    try:
        rows = data.mapInArrow(whole_part, "number long, answer string").collect()
    except Exception as error:
        raise _refusal_on_spark(error) from error
    found = [json.loads(row["answer"]) for row in sorted(rows, key=lambda row: row["number"])]
    for one in found:
        if "refused" in one:
            raise pickle.loads(bytes.fromhex(one["refused"]))
    return [one["answer"] for one in found]


def _refusal_on_spark(error: Exception) -> Exception:
    """Return the refusal of a part that Spark tells as a text, or the error as it is."""
    found = re.search(r"affinedp\.release\.parts\.PartError: (part (\d+) .*)", str(error))
    return error if found is None else PartError(found[1].strip(), int(found[2]))


def _on_polars(data: Any, task: Task) -> list[Any]:
    """Some rows at a time, all in one go: a lazy table may be larger than memory.

    Slices would be computed one by one, and rows that are in no order of their own (equal in a
    sort, of a join) lie elsewhere each time: some would be in two slices, and some in none.
    """
    if not hasattr(data, "collect_batches"):
        raise AffineDPError("a lazy table in parts needs polars 1.34, which computes it in batches")
    answers: list[Any] = []
    rest = data.head(0).collect()
    for batch in data.collect_batches(chunk_size=AT_ONCE, maintain_order=True):
        rest = rest.vstack(batch)
        while len(rest) >= AT_ONCE:
            answers.append(task(len(answers), pandas_of_polars(rest[:AT_ONCE])))
            rest = rest[AT_ONCE:]
    answers.append(task(len(answers), pandas_of_polars(rest)))
    return answers


def _on_parts(data: Parts, task: Task) -> list[Any]:
    if not callable(data.run):
        raise AffineDPError(f"Parts needs a function, not {type(data.run).__name__}")
    found = data.run(task)
    return [] if found is None else list(found)


_RUNS = {"dask": _on_dask, "spark": _on_spark, "polars": _on_polars, "parts": _on_parts}


# ---------------------------------------------------------------------- reading back
# Readers take names of folders for patterns (``[1]``, ``*``) and for columns (``year=2020``).  So
# files are listed one by one, columns come from files alone, and a name that an engine cannot be
# told to take as it stands is refused before the charge.


def _refuse_unreadable(engine: str, folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that an engine would read as another one, or not at all."""
    place = os.path.abspath(folder)
    signs = sorted(set(PATTERNS.get(engine, "")) & set(place))
    if signs:
        raise AffineDPError(
            f"{place} has {signs[0]!r} in its name, which {engine.capitalize()} reads as a pattern "
            "of names: choose another folder"
        )


def _read_back(engine: str, data: Any, folder: Path) -> Any:
    """Return what lies in a folder as a table of the engine, or the folder."""
    files = [str(path) for path in sorted(folder.glob("part-*.parquet"))]
    try:
        if engine == "spark":
            reader = data.sparkSession.read.option("recursiveFileLookup", "true")
            return reader.parquet(*(f"file://{file}" for file in files))  # not the cluster's store
        if engine == "polars":
            import polars

            return polars.scan_parquet(files, glob=False, hive_partitioning=False)
        if engine == "dask":
            import dask.dataframe

            return dask.dataframe.read_parquet(files, dataset={"partitioning": None})
    except Exception as error:
        raise AffineDPError(
            f"the release is complete, in {folder}; do not release again: read it from there. "
            f"Reading it back failed: {error}"
        ) from error
    return folder
