"""``affinedp tables …``: look at a table before it is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.file_kinds import about, expect
from affinedp.cli.output import promise_as_json, say, say_table
from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.tables.files import TableFile

SHOWN_PARTS = 6
SHOWN = ("noise", "half_width", "all_at_once")


def preview(
    description: Path = Argument(..., help="Description of a table (.toml).", show_default=False),
    data: Path | None = Argument(
        None,
        help="The table, CSV, Parquet or Excel; only its labels are used. Margins need none.",
        show_default=False,
    ),
    level: float = Option(0.95, help="Of the intervals."),
) -> Answer:
    """Show how accurate every level of a table would be; nothing is spent or published.

    The noise is designed from the description, the labels of the rows and public columns.  No
    private number is read.

    Examples
    --------
    affinedp tables preview table.toml data.csv
    affinedp tables preview table.toml data.csv --level 0.9 --json
    """
    from affinedp.files.data import read_table
    from affinedp.tables.files import MarginFile, read_release

    expect(description, "table description")
    design: Any
    read = read_release(description)
    if isinstance(read, MarginFile):
        design = read.release.design()
    elif data is None:
        design = read.release.design(_columns_only(read, description))
    else:
        expect(data, "data")
        table = read_table(data)
        with about(data):
            design = read.release.design(read.table(table, data.name))
    found = design.levels(level)
    rows = [{"level": name, **row} for name, row in found.to_dict("index").items()]
    promise = promise_as_json(design.guarantee)
    lines = []
    for label, text in design.report().totals:
        if label.startswith("against") or label in ("hint", "note"):
            lines.append((label.partition(" ")[0], text))
    if data is None:
        lines.append(
            ("left out", f"columns that the description does not name: {_whole(description)}")
        )
    lines.append(("cost", "nothing was spent"))

    def show() -> str:
        from affinedp.privacy.guarantee import labelled_lines

        say(design.guarantee)
        percent = f"{level * 100:g} %"
        heads = ["level", "numbers", "noise", f"± ({percent}, one)", f"± ({percent}, all at once)"]
        table = (
            [str(row["level"]), f"{int(row['numbers']):,}", *(f"{row[key]:.4g}" for key in SHOWN)]
            for row in rows
        )
        say_table(heads, table, right=heads[1:])
        return labelled_lines(lines)

    return Answer({**promise, "confidence": level, "levels": rows}, show)


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


def labelled_table(data: Path, index: tuple[str, ...]) -> Any:
    """Return the table in a file with the columns that label its rows as its index."""
    from affinedp.files.data import read_table
    from affinedp.tables.files import labelled

    return labelled(read_table(data), index, data.name)


def guess(
    data: Path = Argument(
        ..., help="A cross-tabulation, CSV, Parquet or Excel.", show_default=False
    ),
    index: list[str] = Option(
        ..., metavar="COLUMN", help="Column that labels the rows; repeatable."
    ),
    epsilon: float = Option(..., help="ε of the promise."),
    delta: float = Option(0.0, help="δ of the promise."),
    releases: int = Option(1, help="Planned releases that keep the promise together."),
    public_margins: bool = Option(
        False, "--public-margins", help="Publish the totals as they are."
    ),
    output: Path | None = Option(None, "--output", "-o", help="File to write (default: print)."),
) -> Answer:
    """Guess the description of a cross-tabulation from its labels, to check and correct.

    Examples
    --------
    affinedp tables guess counts.csv --index region --epsilon 1 -o table.toml
    affinedp tables guess counts.csv --index region --index age --epsilon 1 -o table.toml
    """
    import tomllib
    from shlex import quote

    from pandas.api.types import is_numeric_dtype

    from affinedp.files.writing import write_text
    from affinedp.tables.crosstab import from_crosstab, notes
    from affinedp.tables.refusals import label_words

    expect(data, "data")
    table = labelled_table(data, tuple(index))
    words = [str(name) for name, kind in table.dtypes.items() if not is_numeric_dtype(kind)]
    if words:
        said = " ".join(f"--index {quote(name)}" for name in (*index, words[0]))
        raise AffineDPError(
            f"{data}: the column {words[0]!r} holds texts. If they label rows, say {said}; if they "
            "are counts, write a number everywhere (0 where nobody is counted)"
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
    text = release.toml().rstrip()
    lines = [
        "# guessed from the labels: check every line before anything is released",
        "# labels are published as they are: with other people in the data they must be the same",
        *notes(release),
        text,
    ]
    if not release.totals and len(table.columns) > 2:
        parts = ", ".join(f'"{name}"' for name in table.columns[:-1])
        lines += [
            "\n# no column is called a total; if one adds up others, say so before anything else:",
            f'# [totals]\n# "{table.columns[-1]}" = [{parts}]',
        ]
    if not release.ties_rows and len(table) > 2:
        labels = [label_words(label) for label in table.index.tolist()]
        parts = ", ".join(f'"{label}"' for label in labels[: min(len(labels) - 1, SHOWN_PARTS)])
        more = ", …" if len(labels) - 1 > SHOWN_PARTS else ""
        lines += [
            "\n# no row is called a total; if one adds up others, say so before anything else:",
            f'# [row_totals]\n# "{labels[-1]}" = [{parts}{more}]',
        ]
    said = "\n".join(lines)
    if output is not None:
        if output.exists():
            raise AffineDPError(f"{output} exists already: choose another name")
        write_text(output, f"{said}\n")
        said = f"wrote {output}: check every line before anything is released"
    return Answer(tomllib.loads(text), said)
