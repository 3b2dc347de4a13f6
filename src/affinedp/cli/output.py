"""What commands say: text for people, JSON for programs, nothing that a terminal would act on."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import typer

from affinedp.files.values import visible

if TYPE_CHECKING:
    from affinedp.privacy.guarantee import Guarantee

WORD = 32  # what is longer, such as a path, is no word and may break
LEAST_WIDTH = 40  # columns of a table for people, however few a terminal claims to have


def say(text: object) -> None:
    """Print lines for people."""
    typer.echo(visible(str(text), lines=True))


def say_prose(text: str) -> None:
    """Print a line for people that ends between words, at the width of the terminal.

    What follows a heading and two spaces goes on below itself.
    """
    width = max(shutil.get_terminal_size().columns, LEAST_WIDTH)
    (head,) = re.findall(r"^ *(?:\S+ {2,})?", text)
    lines = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    lines.subsequent_indent = " " * len(head)
    say(lines.fill(text))


def say_lines(lines: Iterable[str]) -> None:
    """Print lines for people: whole ones for programs, at a terminal ones that break no word."""
    for line in lines:
        (say_prose if sys.stdout.isatty() else say)(line)


def say_json(answer: object) -> None:
    """Print an answer for programs, in ASCII, so that no console is too small for it."""
    typer.echo(json.dumps(answer, indent=2))


def complain(text: object) -> None:
    """Print one refusal on standard error, if there is one."""
    with suppress(OSError):  # the exit code still says it
        typer.echo(f"affinedp: {visible(str(text), lines=True)}", err=True)


def warn(text: object) -> None:
    """Print something to beware of on standard error, so that no answer is spoilt by it."""
    complain(f"note: {text}")


def say_table(
    headings: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    title: str | None = None,
    right: Iterable[str] = (),
) -> None:
    """Print a table, with columns of numbers to the right; row by row where words would break."""
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    names, numbers = [visible(heading) for heading in headings], set(right)
    cells = [[visible(cell) for cell in row] for row in rows]
    # COLUMNS=0 or 1 would leave nothing of it
    console = Console(width=max(Console().width, LEAST_WIDTH))
    widths = _widths([names, *cells], console.width)
    if widths is None:
        console.print(*([Text(visible(title))] if title else ()))
        for first, *others in cells:
            told = "; ".join(f"{name}: {cell}" for name, cell in zip(names[1:], others) if cell)
            console.print(Text(first), Padding(Text(told), (0, 0, 1, 4)))
        return
    table = Table(title=title and visible(title), box=box.SIMPLE)
    for name, width in zip(names, widths):
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(name, justify=justify, width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _widths(lines: list[list[str]], most: int) -> list[int] | None:
    """The widths of columns that fit, headings and then the widest narrowed first.

    None where a word would break.
    """
    from rich.cells import cell_len

    columns = list(zip(*lines))
    widths = [max(map(cell_len, column)) for column in columns]
    least = [
        max((min(cell_len(word), WORD) for cell in column for word in cell.split()), default=0)
        for column in columns
    ]
    room = most - 3 * len(widths) - 1  # with space around each
    if sum(widths) > room:
        widths = [max(low, *map(cell_len, cells)) for low, (_, *cells) in zip(least, columns)]
    while sum(widths) > room:
        open_ = [place for place, width in enumerate(widths) if width > least[place]]
        if not open_:
            return None
        widths[max(open_, key=widths.__getitem__)] -= 1
    return widths


def finite(value: float) -> float | None:
    """Return a number that JSON can hold: infinity is None."""
    return value if math.isfinite(value) else None


def by_name(vector: Any, names: tuple[str, ...]) -> dict[str, float] | None:
    """Return the entries of a vector that are not zero, by name."""
    if vector is None:
        return None
    return {name: float(value) for name, value in zip(names, vector) if value != 0.0}


def promise_as_json(
    guarantee: Guarantee, asked: tuple[float, float] | None = None, holds: bool | None = None
) -> dict[str, Any]:
    """Return a promise for programs: what was asked for first, and whether it is kept."""
    kept = guarantee.asked
    if asked is None and kept is not None:
        asked, holds = (kept.epsilon, kept.delta), guarantee.keeps_asked()
    first: dict[str, Any] = {}
    if asked is not None:
        first["asked"] = {"epsilon": asked[0], "delta": asked[1], "holds": holds}
        if kept is not None and kept.releases > 1:
            first["asked"]["releases"] = kept.releases
    deltas = (0.0, 1e-12, 1e-9, 1e-6, 1e-3)
    return {
        **first,
        "law": guarantee.law,
        "promise": guarantee.leak is None,
        "exact": guarantee.exact,
        "sensitivity": finite(guarantee.sensitivity),
        "epsilon_at_delta": {f"{d:g}": finite(guarantee.epsilon(d)) for d in deltas},
        "rho": finite(guarantee.rho),
        "neighbours": guarantee.neighbours,
        "rests_on": guarantee.basis,
        "method": guarantee.method,
        "worst_direction": by_name(guarantee.worst_direction, guarantee.names),
        "leak": by_name(guarantee.leak, guarantee.output_names),
        "warnings": list(guarantee.warnings),
    }


def mechanism_as_json(mechanism: Any) -> dict[str, Any]:
    """Return a mechanism's promise and cost for programs."""
    return {
        **promise_as_json(mechanism.guarantee),
        "expected_squared_error": finite(mechanism.expected_squared_error),
        "gap": mechanism.gap,
        "lower_bound": mechanism.lower_bound,
        "excess": mechanism.excess,
        "bound_certified": mechanism.least is not None,
        "alternatives": [asdict(other) for other in mechanism.alternatives],
        "notes": list(mechanism.notes),
    }


def outcome_as_json(outcome: Any) -> dict[str, Any]:
    """Return how a process of a loop or a network ended, for programs."""
    return {
        "finished": outcome.finished,
        "steps": outcome.steps,
        "reason": outcome.reason or None,
        "dropped": dict(sorted(outcome.dropped.items())),
    }


def dropped(outcome: Any) -> str:
    """Return what a process left out, for people."""
    found = ", ".join(f"{count} {why}" for why, count in sorted(outcome.dropped.items()))
    return found or "nothing"
