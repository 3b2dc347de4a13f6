"""``affinedp tables …``: look at a table before it is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from affinedp.cli.file_kinds import about, expect
from affinedp.cli.help import add
from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json
from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.tables.margin_release import MarginDesign
    from affinedp.tables.table_design import TableDesign
    from affinedp.tables.table_file import TableFile

tables_app = typer.Typer(
    help="Tables: preview accuracy, guess a description.", no_args_is_help=True
)


def preview(
    description: Annotated[
        Path, typer.Argument(help="Description of a table (.toml).", show_default=False)
    ],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="The table, CSV, Parquet or Excel; only its labels are used. Margins need none.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Show how accurate every level of a table would be; nothing is spent or published.

    The noise is designed from the description, the labels of the rows and public columns.  No
    private number is read.
    """
    preview_table(description, data, level, as_json)


def preview_table(
    description: Path, data: Path | None, level: float = 0.95, as_json: bool = False
) -> None:
    """Print how accurate every level of a table would be.

    Parameters
    ----------
    description : Path
        Of the table.
    data : Path or None
        The table, for its labels; not needed where every row is a data set of its own.
    level : float
        Of the intervals.
    as_json : bool
        For programs.
    """
    from affinedp.cli.answers import promise_as_json
    from affinedp.cli.tables import labelled_table
    from affinedp.tables.margin_file import describes_margins, read_margin_release
    from affinedp.tables.table_file import read_table_release

    expect(description, "table description")
    design: TableDesign | MarginDesign
    if describes_margins(description):
        design = read_margin_release(description).release.design()
    elif data is None:
        read = read_table_release(description)
        design = read.release.design(_columns_only(read, description))
    else:
        read = read_table_release(description)
        expect(data, "data")
        table = labelled_table(data, read.index)
        with about(data):
            design = read.release.design(table)
    found = design.levels(level)
    if as_json:
        rows = [{"level": name, **row} for name, row in found.to_dict("index").items()]
        promise = promise_as_json(design.guarantee)
        say_json({**promise, "confidence": level, "levels": rows})
        return
    say(str(design.guarantee))
    say("")
    percent = f"{level * 100:g} %"
    heads = ["level", "numbers", "noise", f"± ({percent}, one)", f"± ({percent}, all at once)"]
    lines = [
        [str(name), f"{int(row['numbers']):,}", *(f"{row[key]:.4g}" for key in SHOWN)]
        for name, row in found.iterrows()
    ]
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    for line in [heads, *lines]:
        cells = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:]))]
        say("  ".join(cells).rstrip())
    say("")
    for label, text in design.report().totals:
        if label.startswith("against"):
            say(f"{label}: {text}")
    if data is None:
        say(f"columns that the description does not name are not counted: {_whole(description)}")
    say("nothing was spent")


def _whole(description: Path) -> str:
    return f"affinedp tables preview {description} DATA counts them (its labels, no private number)"


def _columns_only(read: TableFile, description: Path) -> Any:
    """A table of the columns that the description names, without any row of data."""
    import pandas

    told = read.release
    apart = told.row_mode == "separate" and told.hierarchy is None and told.margins is None
    named = list(dict.fromkeys([*_parts(told), *(told.columns or ())]))
    if not apart or not named or told.equations:
        raise AffineDPError(
            f"how accurate this table is depends on its rows: {_whole(description)}"
        )
    return pandas.DataFrame({name: [0] for name in named})


def _parts(told: Any) -> Iterator[str]:
    for total, parts in (told.totals or {}).items():
        yield total
        for part in parts:
            yield from (part,) if isinstance(part, str) else part


SHOWN = ("noise", "half_width", "all_at_once")


def guess(
    data: Annotated[
        Path, typer.Argument(help="A cross-tabulation, CSV, Parquet or Excel.", show_default=False)
    ],
    index: Annotated[str, typer.Option(help="Column that labels the rows.")],
    epsilon: Annotated[float, typer.Option(help="ε of the promise.")],
    delta: Annotated[float, typer.Option(help="δ of the promise.")] = 0.0,
    releases: Annotated[
        int, typer.Option(help="Planned releases that keep the promise together.")
    ] = 1,
    public_margins: Annotated[
        bool, typer.Option("--public-margins", help="Publish the totals as they are.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a description of a cross-tabulation, guessed from its labels, to check and correct."""
    from affinedp.cli.tables import labelled_table
    from affinedp.tables.crosstab import from_crosstab
    from affinedp.tables.table_file import table_toml

    expect(data, "data")
    table = labelled_table(data, (index,))
    words = [str(name) for name, kind in table.dtypes.items() if not _counts(kind)]
    if words:
        raise AffineDPError(
            f"{data}: the column {words[0]!r} holds labels, not numbers, and this guesses "
            f"cross-tabulations only. For totals of places in rows write a description that begins "
            f'hierarchy = ["{index}", "{words[0]}"]'
        )
    release = from_crosstab(
        table,
        epsilon=epsilon,
        delta=delta,
        margins="public" if public_margins else "private",
        labels="public",  # the text below asks for it
        ask=None,
        say=lambda text: None,
        releases=releases,
    )
    text = table_toml(release, [index]).rstrip()
    if as_json:
        import tomllib

        say_json(tomllib.loads(text))
        return
    say("# guessed from the labels: check every line before anything is released")
    say("# labels are published as they are: with other people in the data they must be the same")
    say(text)
    if not release.totals and len(table.columns) > 2:
        parts = ", ".join(f'"{name}"' for name in table.columns[:-1])
        say("\n# no column is called a total; if one adds up others, say so before anything else:")
        say(f'# [totals]\n# "{table.columns[-1]}" = [{parts}]')


def _counts(kind: Any) -> bool:
    from pandas.api.types import is_numeric_dtype

    return bool(is_numeric_dtype(kind))


add(
    tables_app,
    preview,
    "affinedp tables preview table.toml data.csv",
    "affinedp tables preview table.toml data.csv --level 0.9 --json",
)
add(tables_app, guess, "affinedp tables guess counts.csv --index region --epsilon 1 > table.toml")
