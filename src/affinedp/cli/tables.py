"""``affinedp release table.toml data.csv -o out.csv``: a table from file to file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from affinedp.cli.answers import promise_as_json
from affinedp.cli.file_kinds import about
from affinedp.cli.pending import budget_left, settled_in_the_end
from affinedp.errors import AffineDPError
from affinedp.files.data import check_writable, read_table, write_table
from affinedp.files.writing import write_text
from affinedp.laws.sampler import Sampler
from affinedp.tables.margin_file import describes_margins, read_margin_release
from affinedp.tables.released_margins import ReleasedMarginTables
from affinedp.tables.released_table import ReleasedTable
from affinedp.tables.table_file import TableFile, labelled, read_table_release


def release_file(
    description: Path,
    data: Path,
    output: Path,
    *,
    ledger: str | None = None,
    label: str | None = None,
    bound: float | None = None,
    same_secret: bool = False,
    sampler: Sampler = "bulk",
    force: bool = False,
    say: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Publish the table in a file as a table file says, or all margins of people in it.

    Parameters
    ----------
    description : Path
        Table file, TOML or JSON.
    data : Path
        The private table, CSV or Parquet.
    output : Path
        Where the published table goes.
    ledger : str, optional
        Budget to charge first; it must exist.
    label : str, optional
        For the ledger.
    bound : float, optional
        Public bound on the numbers, in place of the one in the file.
    same_secret : bool
        Whether a change of the ledger's secret is one of these neighbours, whatever their unit.
    sampler : {"bulk", "opendp"}
        Who draws.
    force : bool
        Whether the noise and the report may replace files that exist.
    say : callable
        Takes what is to be told, line by line.

    Returns
    -------
    dict
        The same for programs.
    """
    if describes_margins(description):
        return _release_margins(
            description, data, output,
            ledger=ledger, label=label, same_secret=same_secret, force=force, say=say,
        )  # fmt: skip
    read = read_table_release(description)
    further = [path for path in (_beside(output, read.noise), _beside(output, read.report)) if path]
    check_writable(output)
    if output.resolve() == data.resolve():
        raise AffineDPError(f"{output} is the private table itself: choose another output")
    _check_further(further, force)
    table = labelled_table(data, read.index)
    limit = read.bound if bound is None else bound
    with settled_in_the_end(ledger, same_secret) as budget:
        with about(data):
            released = read.release.release(
                table, ledger=budget, label=label, bound=limit, sampler=sampler
            )
        write_table(released.table.reset_index() if read.index else released.table, output)
    say(f"released {len(table):,} rows to {output}")
    _write_noise(released, read, _beside(output, read.noise), say)
    report = _beside(output, read.report)
    if report is not None:
        _write_page(report, released, read.level, say)
    say(str(released.guarantee))
    return {
        "promise": promise_as_json(released.guarantee),
        "rows": len(table),
        "output": str(output),
        "further": [str(path) for path in further],
        **budget_left(budget),
    }


def _check_further(paths: list[Path], force: bool) -> None:
    for path in paths:
        if path.suffix.lower() == ".pdf":
            raise AffineDPError(f"{path}: a report is an HTML page, which prints: name it .html")
        if not path.parent.is_dir():
            raise AffineDPError(f"{path} cannot be written: no such folder")
        if path.exists() and not force:
            raise AffineDPError(f"{path} exists already: choose another -o, or give --force")


def _release_margins(
    description: Path,
    data: Path,
    output: Path,
    *,
    ledger: str | None,
    label: str | None,
    same_secret: bool,
    force: bool,
    say: Callable[[str], object],
) -> dict[str, Any]:
    """Publish all margins in one long file: labels, counts, the ends of intervals."""
    read = read_margin_release(description)
    report = _beside(output, read.report)
    check_writable(output)
    if output.resolve() == data.resolve():
        raise AffineDPError(f"{output} is the private table itself: choose another output")
    _check_further([] if report is None else [report], force)
    people = read_table(data)
    with settled_in_the_end(ledger, same_secret) as budget:
        with about(data):
            released = read.release.release(
                people, count=read.count, person=read.person, ledger=budget, label=label
            )
        table = released.tables(read.level, read.at)
        write_table(table, output)
    say(f"released {len(table):,} numbers to {output}")
    if report is not None:
        _write_page(report, released, read.level, say)
    say(str(released.guarantee))
    return {
        "promise": promise_as_json(released.guarantee),
        "rows": len(table),
        "output": str(output),
        "further": [] if report is None else [str(report)],
        **budget_left(budget),
    }


def _write_page(
    path: Path,
    released: ReleasedTable | ReleasedMarginTables,
    level: float,
    say: Callable[[str], object],
) -> None:
    write_text(path, released.report(level).page())
    say(f"wrote a report to {path}")


def _beside(output: Path, name: str | None) -> Path | None:
    """A file beside the published table, with its name: that of next month is another."""
    if name is None:
        return None
    place = output.parent / name
    return place.with_name(f"{output.stem}-{place.name}")


def labelled_table(data: Path, index: tuple[str, ...]) -> Any:
    """Return the table in a file with the columns that label its rows as its index.

    Parameters
    ----------
    data : Path
        CSV, Parquet or Excel.
    index : tuple of str
        The columns.
    """
    return labelled(read_table(data), index, data.name)


def _write_noise(
    released: ReleasedTable, read: TableFile, path: Path | None, say: Callable[[str], object]
) -> None:
    if path is None:
        return
    import pandas

    noise, width = released.noise, released.design.half_width(read.level)
    if hasattr(noise, "stack"):
        noise, width = noise.stack(), width.stack()
    heading = f"half_width_{read.level * 100:g}_percent"
    frame = pandas.DataFrame({"standard_deviation": noise, heading: width})
    frame.index = frame.index.set_names(["row", "column"][-frame.index.nlevels :])
    write_table(frame.reset_index(), path)
    say(f"wrote the noise to {path}")
