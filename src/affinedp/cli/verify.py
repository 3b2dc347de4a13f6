"""``affinedp verify``: what noise really promises."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import typer

from affinedp.cli.answers import promise_as_json
from affinedp.cli.exits import NOT_KEPT
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import (
    AsJson,
    AskedDelta,
    AskedEpsilon,
    CheckAgainst,
    ProblemFile,
    Tolerance,
)
from affinedp.cli.output import say_json, say_rich
from affinedp.files.visible import visible

if TYPE_CHECKING:
    from rich.text import Text

    from affinedp.promise.guarantee import Guarantee


def verify(
    problem: ProblemFile,
    epsilon: AskedEpsilon = None,
    delta: AskedDelta = None,
    tolerance: Tolerance = 1e-12,
    check_against: CheckAgainst = None,
    as_json: AsJson = False,
) -> None:
    """Say what the noise in PROBLEM really promises once the equations are known.

    With --epsilon (or an epsilon in the problem) the exit code says whether that promise
    holds: 0 yes, up to --tolerance, 1 no.
    """
    from affinedp.cli.problems import asked_promise, say_forgotten, verify_problem
    from affinedp.files.problem import read_problem

    expect(problem, "problem")
    read = read_problem(problem)
    say_forgotten(read, check_against)
    asked = asked_promise(read, epsilon, delta)
    guarantee = verify_problem(read)
    holds = guarantee.holds(*asked, tolerance) if asked is not None else None
    if as_json:
        say_json(promise_as_json(guarantee, asked, holds))
    else:
        _say_promise(guarantee, asked, holds)
    if holds is False:
        raise typer.Exit(NOT_KEPT)


def _say_promise(
    guarantee: Guarantee, asked: tuple[float, float] | None, holds: bool | None
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    if asked is not None:
        table.add_row("asked", _verdict(guarantee, asked, holds))
    for label, text in guarantee.summary():
        alarming = label in ("leak", "warning") or (
            label == "promise" and guarantee.leak is not None
        )
        table.add_row(label, Text(visible(text), style="red" if alarming else ""))
    say_rich(table)


def _verdict(guarantee: Guarantee, asked: tuple[float, float], holds: bool | None) -> Text:
    from rich.text import Text

    kept = guarantee.epsilon(asked[1])
    instead = f"ε = {kept!r} does" if math.isfinite(kept) else "no ε does"
    over = kept / asked[0] - 1 if asked[0] > 0 else 0.0
    verdict = f"holds up to rounding ({over:.1e})" if over > 0 else "holds"
    verdict = verdict if holds else f"does NOT hold ({instead})"
    style = "green" if holds else "bold red"
    return Text(f"ε = {asked[0]:g}, δ = {asked[1]:g}: {verdict}", style=style)
