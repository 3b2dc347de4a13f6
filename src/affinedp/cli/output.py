"""What commands say: text for people, JSON for programs, nothing that a terminal would act on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

import typer

from affinedp.files.visible import visible

LEAST_WIDTH = 40  # columns of a table for people, however few a terminal claims to have


def say(text: object) -> None:
    """Print lines for people.

    Parameters
    ----------
    text : object
        Anything with a text.
    """
    typer.echo(visible(str(text), lines=True))


def for_people(epsilon: float) -> str:
    """Return an ε that is left as people read it: what only rounding left is nothing.

    Parameters
    ----------
    epsilon : float
        As programs get it.

    Examples
    --------
    >>> for_people(2.9976e-15), for_people(0.25)
    ('0', '0.25')
    """
    return f"{round(epsilon, 12):.6g}"


def say_json(answer: object) -> None:
    """Print an answer for programs, in ASCII, so that no console is too small for it.

    Parameters
    ----------
    answer : object
        Of plain values.
    """
    typer.echo(json.dumps(answer, indent=2))


def complain(text: object) -> None:
    """Print one refusal on standard error, if there is one.

    Parameters
    ----------
    text : object
        What is wrong.
    """
    with suppress(OSError):  # the exit code still says it
        typer.echo(f"affinedp: {visible(str(text), lines=True)}", err=True)


def warn(text: object) -> None:
    """Print something to beware of on standard error, so that no answer is spoilt by it.

    Parameters
    ----------
    text : object
        One sentence.
    """
    with suppress(OSError):
        typer.echo(f"affinedp: note: {visible(str(text), lines=True)}", err=True)


def say_rich(thing: object) -> None:
    """Print something of rich, such as a table, at least as wide as words are.

    Parameters
    ----------
    thing : object
        What rich can print.
    """
    from rich.console import Console

    console = Console()
    if console.width < LEAST_WIDTH:  # COLUMNS=0 or 1 would leave nothing of it
        console = Console(width=LEAST_WIDTH)
    console.print(thing)


def say_table(
    headings: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    title: str | None = None,
    right: Iterable[str] = (),
) -> None:
    """Print a table.

    Parameters
    ----------
    headings : iterable of str
        Of the columns.
    rows : iterable of iterables of str
        The cells.
    title : str, optional
        Stands above.
    right : iterable of str
        Columns of numbers.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title and visible(title), box=box.SIMPLE)
    numbers = set(right)
    for heading in headings:
        # a long name is told in full, over several lines
        justify: Literal["left", "right"] = "right" if heading in numbers else "left"
        table.add_column(visible(heading), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    say_rich(table)


def finite(value: float) -> float | None:
    """Return a number that JSON can hold: infinity is None.

    Parameters
    ----------
    value : float
        Any number.
    """
    return value if math.isfinite(value) else None


def by_name(vector: Any, names: tuple[str, ...]) -> dict[str, float] | None:
    """Return the entries of a vector that are not zero, by name.

    Parameters
    ----------
    vector : array or None
        One number for each name.
    names : tuple of str
        The names.
    """
    if vector is None:
        return None
    return {name: float(value) for name, value in zip(names, vector) if value != 0.0}
