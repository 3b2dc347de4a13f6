"""A large table of rows on two Dask workers against one process, and the share that is sampling.

Each setting runs in processes of its own, so that the largest memory is that of the setting.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROWS_OF_A_PART = 100_000
PARTS = int(os.environ.get("PARTS", "100"))


def _used() -> tuple[float, float]:
    """Processor seconds of this process so far, and its largest memory in gigabytes."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime, use.ru_maxrss / 2**20


def _warm(design, rows) -> None:
    """Load what tasks need: processes that have just started are not what is measured."""
    design.release(rows)


def _data(folder: Path) -> None:
    """The real table over and over, one file for each part."""
    from bench_tables import _large_table

    folder.mkdir()
    first = folder / "part-00000.parquet"
    _large_table().iloc[:ROWS_OF_A_PART].reset_index(drop=True).to_parquet(first)
    for part in range(1, PARTS):
        shutil.copy(first, folder / f"part-{part:05d}.parquet")


def _design(columns):
    from affinedp.tables import read_release
    from bench_tables import EXAMPLE

    release = read_release(EXAMPLE).release
    return replace(release, round_to=None, rows="separate").design(columns)


def _released(place: Path, workers: int) -> str:
    """Release in a cluster of so many workers, or in this process alone."""
    import dask
    import dask.dataframe

    from affinedp.release import publish

    table = dask.dataframe.read_parquet(str(place / "data"))
    design, into = _design(table), place / f"out-{workers}"
    spent = []

    def timed(draw):
        def timing(*arguments):
            start = time.process_time()
            found = draw(*arguments)
            spent.append(time.process_time() - start)
            return found

        return timing

    if workers:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as here,
            Client(here) as client,
        ):
            client.run(_warm, design, table.head(10))
            before, start = client.run(_used), time.perf_counter()
            design.release(table, into=into)
            wall, after = time.perf_counter() - start, client.run(_used)
        busy = sum(after[one][0] - before[one][0] for one in after)
        memory, share = max(memory for _, memory in after.values()), "–"
    else:
        _warm(design, table.head(10))
        publish.drawn = timed(publish.drawn)
        with dask.config.set(scheduler="sync"):
            before, start = _used(), time.perf_counter()
            design.release(table, into=into)
            wall, after = time.perf_counter() - start, _used()
        busy, memory = after[0] - before[0], after[1]
        share = f"{sum(spent) / busy:.0%}"
    rows = sum(1 for _ in into.glob("part-*")) * ROWS_OF_A_PART
    shutil.rmtree(into)
    where = f"{workers} Dask workers" if workers else "one process"
    return f"| {where} | {rows:,} | {wall:.0f} | {busy:.0f} | {share} | {memory:.2f} |"


def run() -> str:
    """Return the Markdown section."""
    load = os.getloadavg()[0]
    lines = [
        "## Tables in parts",
        "",
        "The table of `examples/us_employment.toml` again, over and over, in files of "
        f"{ROWS_OF_A_PART:,} rows",
        "of 22 columns: checked and counted, then drawn, each part written once",
        "(`TableDesign.release(…, into=…)`). Seconds, and processor seconds of all processes,",
        "include reading twice and writing. Sampling: its share of the processor seconds. Memory:",
        f"the largest of one process. {os.cpu_count()} cores; load of the machine at the start: "
        f"{load:.0f}.",
        "",
        "| where | rows | seconds | processor seconds | sampling | memory (GB) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as place:
        _data(Path(place) / "data")
        for workers in (2, 0):
            command = [sys.executable, __file__, place, str(workers)]
            lines.append(subprocess.check_output(command, text=True).strip())
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(_released(Path(sys.argv[1]), int(sys.argv[2])))
    else:
        print(run())
