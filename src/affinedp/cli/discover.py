"""``affinedp discover data.csv``: the equations that data obeys, and what they would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json, say_table
from affinedp.errors import AffineDPError


def discover(
    data: Annotated[Path, typer.Argument(help="Private data, CSV or Parquet.", show_default=False)],
    given: Annotated[
        list[str] | None, typer.Option(help="An equation that is known already; repeatable.")
    ] = None,
    design: Annotated[Path | None, typer.Option(help="Saved mechanism whose loss is told.")] = None,
    law: Annotated[
        Literal["gaussian", "laplace"] | None,
        typer.Option(help="Of the noise (default: by δ)."),
    ] = None,
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
    as_json: AsJson = False,
    as_toml: Annotated[bool, typer.Option("--toml", help="Print TOML to paste.")] = False,
) -> None:
    """Find the linear equations that DATA obeys, and what each would cost if it were known.

    The promise covers the equations that were given; this looks for those that were forgotten.
    It reads private data: what it prints is for whoever holds them.
    """
    from affinedp.discovery.discover import discover as equations_of
    from affinedp.files.data import read_table
    from affinedp.mechanism import Mechanism

    if as_json and as_toml:
        raise AffineDPError("--json and --toml: choose one")
    expect(data, "data")
    if design is not None:
        expect(design, "mechanism")
    found = equations_of(
        read_table(data, long_numbers="text"),
        given=given or (),
        design=None if design is None else Mechanism.load(design),
        law=law,
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
    if not found.columns:
        raise AffineDPError(
            f"no column of {data.name} holds numbers; columns are separated by commas, and "
            "decimals have a point"
        )
    if as_json:
        say_json(found.to_dict())
        return
    if as_toml:
        say(found.toml())
        return
    if found.equations:
        headings = found.headings()
        say_table(headings, found.table(), right=headings[2:])
    for line in found.summary():
        say(line)
