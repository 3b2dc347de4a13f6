"""``affinedp discover data.csv``: the equations that data obeys, and what they would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.file_kinds import expect
from affinedp.cli.output import say, say_table
from affinedp.errors import AffineDPError


def discover(
    data: Path = Argument(..., help="Private data, CSV or Parquet.", show_default=False),
    given: list[str] | None = Option(None, help="An equation that is known already; repeatable."),
    design: Path | None = Option(None, help="Saved mechanism whose loss is told."),
    law: Literal["gaussian", "laplace"] | None = Option(None, help="Of the noise (default: by δ)."),
    epsilon: float = Option(1.0, help="What independent noise was meant for."),
    delta: float = Option(0.0, help="δ that goes with it."),
    mu: float = Option(1.0, help="How far one number may move."),
    rows: bool = Option(True, help="Look for equations between rows too."),
    lag: list[int] | None = Option(None, help="Rows to look back; repeatable."),
    order: str = Option("", help="Column that orders the rows in time."),
    by: list[str] | None = Option(None, help="Column that labels groups of rows; repeatable."),
    chance: float = Option(1e-4, help="Equations by chance that are accepted."),
    seed: int = Option(0, help="Which rows and columns are looked at."),
    as_toml: bool = Option(False, "--toml", help="Print TOML to paste."),
) -> Answer:
    """Find the linear equations that DATA obeys, and what each would cost if it were known.

    The promise covers the equations that were given; this looks for those that were forgotten.
    It reads private data: what it prints is for whoever holds them.

    Examples
    --------
    affinedp discover data.csv
    affinedp discover data.csv --given 'women + men = all' --toml
    """
    from affinedp.discovery.discover import discover as equations_of
    from affinedp.files.data import read_table
    from affinedp.mechanism import Mechanism

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

    def show() -> None:
        if found.equations:
            headings = found.headings()
            say_table(headings, found.table(), right=headings[2:])
        for line in found.summary():
            say(line)

    return Answer(None, found.toml()) if as_toml else Answer(found.to_dict(), show)
