"""``affinedp tables …``: look at a table before it is published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from affinedp.cli.output import say

tables_app = typer.Typer(
    help="Tables: preview accuracy, guess a description.", no_args_is_help=True
)


@tables_app.command()
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
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show how accurate every level of a table would be; nothing is spent or published.

    The noise is designed from the description, the labels of the rows and public columns.  No
    private number is read.
    """
    from affinedp.cli.tables import previewed

    design = previewed(description, data)
    found = design.levels(level)
    if as_json:
        import json

        rows = [{"level": name, **row} for name, row in found.to_dict("index").items()]
        say(json.dumps({"neighbours": design.guarantee.neighbours, "levels": rows}))
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
    say("nothing was spent")


SHOWN = ("noise", "half_width", "all_at_once")


@tables_app.command()
def guess(
    data: Annotated[
        Path, typer.Argument(help="A cross-tabulation, CSV, Parquet or Excel.", show_default=False)
    ],
    index: Annotated[str, typer.Option(help="Column that labels the rows.")],
    epsilon: Annotated[float, typer.Option(help="ε of the promise.")],
    delta: Annotated[float, typer.Option(help="δ of the promise.")] = 0.0,
    public_margins: Annotated[
        bool, typer.Option("--public-margins", help="Publish the totals as they are.")
    ] = False,
) -> None:
    """Print a description of a cross-tabulation, guessed from its labels, to check and correct."""
    from affinedp.cli.tables import labelled_table
    from affinedp.tables.crosstab import from_crosstab
    from affinedp.tables.table_file import table_toml

    release = from_crosstab(
        labelled_table(data, (index,)),
        epsilon=epsilon,
        delta=delta,
        margins="public" if public_margins else "private",
        ask=None,
        say=lambda text: None,
    )
    say("# guessed from the labels: check every line before anything is released")
    say(table_toml(release, [index]).rstrip())
