"""``affinedp discover data.csv``: the equations that data obeys, and what they would cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table

if TYPE_CHECKING:
    from affinedp.discovery.found import Discovery

# Whole numbers from here on do not survive in a column of doubles.
WHOLE_DOUBLES = 2.0**53


def discover_command(
    data: Annotated[Path, typer.Argument(help="Private data, CSV or Parquet.", show_default=False)],
    given: Annotated[
        list[str] | None, typer.Option(help="An equation that is known already; repeatable.")
    ] = None,
    design: Annotated[Path | None, typer.Option(help="Saved mechanism whose loss is told.")] = None,
    law: Annotated[str, typer.Option(help="gaussian or laplace (default: by δ).")] = "",
    epsilon: Annotated[float, typer.Option(help="What independent noise was meant for.")] = 1.0,
    delta: Annotated[float, typer.Option(help="δ that goes with it.")] = 0.0,
    mu: Annotated[float, typer.Option(help="How far one number may move.")] = 1.0,
    rows: Annotated[bool, typer.Option(help="Look for equations between rows too.")] = True,
    lag: Annotated[list[int] | None, typer.Option(help="Rows to look back; repeatable.")] = None,
    order: Annotated[str, typer.Option(help="Column that orders the rows in time.")] = "",
    by: Annotated[
        list[str] | None, typer.Option(help="Column that labels groups of rows; repeatable.")
    ] = None,
    chance: Annotated[float, typer.Option(help="Equations by chance that are accepted.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Which rows and columns are looked at.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    as_toml: Annotated[bool, typer.Option("--toml", help="Print TOML to paste.")] = False,
) -> None:
    """Find the linear equations that DATA obeys, and what each would cost if it were known.

    The promise covers the equations that were given; this looks for those that were forgotten.
    It reads private data: what it prints is for whoever holds them.
    """
    from affinedp.discovery.ask import discover
    from affinedp.mechanism import Mechanism

    if as_json and as_toml:
        raise AffineDPError("--json and --toml: choose one")
    found = discover(
        read_exactly(data),
        given=given or (),
        design=None if design is None else Mechanism.load(design),
        law=_law(law),
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        between_rows=rows,
        lags=lag or (1,),
        order=order or None,
        by=by or None,
        chance=chance,
        seed=seed,
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False, indent=2))
    elif as_toml:
        typer.echo(found.toml())
    else:
        show(found)


def _law(law: str) -> Literal["gaussian", "laplace"] | None:
    if law not in ("", "gaussian", "laplace"):
        raise AffineDPError(f"law must be gaussian or laplace, not {law!r}")
    return law or None  # type: ignore[return-value]


def read_exactly(path: Path) -> Any:
    """Read a CSV or Parquet file without losing digits of large whole numbers.

    Parameters
    ----------
    path : Path
        ``.csv`` or ``.parquet``.
    """
    table = read_table(path)
    if path.suffix.lower() != ".csv":
        return table
    large = [
        place
        for place, dtype in enumerate(table.dtypes)
        if getattr(dtype, "kind", "O") == "f"
        and bool((table.iloc[:, place].abs() >= WHOLE_DOUBLES).any())
    ]
    if large:
        import pandas

        texts = pandas.read_csv(path, usecols=large, dtype=str, skipinitialspace=True)
        for place, column in zip(large, texts.columns):
            table[table.columns[place]] = texts[column]
    return table


def show(found: Discovery) -> None:
    """Print what was found as a table for people.

    Parameters
    ----------
    found : Discovery
        What was found.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if found.equations:
        table = Table(box=box.SIMPLE, pad_edge=False)
        headings = found.headings()
        table.add_column(headings[0], overflow="fold", ratio=1)
        for heading in headings[1:]:
            table.add_column(heading, justify="left" if heading == "what" else "right")
        for row in found.table():
            table.add_row(*(Text(text) for text in row))
        console.print(table)
    for line in found.summary():
        console.print(Text(line))
