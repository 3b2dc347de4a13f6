"""``affinedp reproduce``: the numbers and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.output import say, say_table
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.paper.claims import Reproduced


def reproduce(
    part: Literal["all", "examples", "control", "consensus"] = Argument("all", help="What of it."),
    out: Path | None = Option(None, help="Folder for figures and results."),
    rows: bool = Option(False, "--rows", help="Print every number, even with --out."),
) -> Answer:
    """Compute the paper's numbers again, print them beside the paper's, draw its figures.

    With --out the figures (PNG and SVG), results.json and report.html go into that folder, and
    a summary is printed.

    Examples
    --------
    affinedp reproduce examples
    affinedp reproduce all --out paper
    """
    from affinedp.paper.parts import parts_named
    from affinedp.paper.parts import reproduce as compute

    with Progress("reproducing the paper:") as bar:
        found = compute(parts_named(part), out, bar.update)

    def show() -> None:
        if rows or out is None:
            for one in found:
                say_table(
                    ("claim", "paper", "affinedp", "verdict"),
                    (claim.row()[:4] for claim in one.claims),
                    title=one.title,
                    right=("paper", "affinedp"),
                )
        if out is not None:
            _say_summary(found, out)

    keys = ("what", "paper", "ours", "verdict", "how")
    return Answer([dict(zip(keys, claim.row())) for one in found for claim in one.claims], show)


def _say_summary(found: list[Reproduced], out: Path) -> None:
    from affinedp.paper.claims import counted

    counts = counted(found)
    say(f"{sum(counts.values())} numbers and claims of the paper, computed again:")
    say(f"  {counts['agrees']:3} agree")
    say(f"  {counts['corrected']:3} are corrected, each with the reason")
    say(f"  {counts['added']:3} are added, where the paper is silent or gives a bound")
    say(f"open {out / 'report.html'}: every number and figure, the paper's beside ours")
