"""``affinedp reproduce``: the numbers and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json, say_table


def reproduce(
    part: Annotated[
        Literal["all", "examples", "control", "consensus"], typer.Argument(help="What of it.")
    ] = "all",
    out: Annotated[Path | None, typer.Option(help="Folder for figures and results.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the paper's numbers again, print them beside the paper's, draw its figures.

    With --out the figures (PNG and SVG), results.json and report.html go into that folder.
    """
    from rich.console import Console

    from affinedp.paper.parts import parts_named
    from affinedp.paper.parts import reproduce as compute

    names = parts_named(part)
    with Console(stderr=True).status("starting") as status:
        found = compute(names, out, lambda text: status.update(text))
    if as_json:
        keys = ("what", "paper", "ours", "verdict", "how")
        say_json([dict(zip(keys, claim.row())) for one in found for claim in one.claims])
        return
    for one in found:
        say_table(
            ("claim", "paper", "affinedp", "verdict"),
            (claim.row()[:4] for claim in one.claims),
            title=one.title,
            right=("paper", "affinedp"),
        )
    if out is not None:
        say(f"open {out / 'report.html'}; the figures and results.json lie beside it")
