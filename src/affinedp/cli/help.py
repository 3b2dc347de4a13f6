"""What ``--help`` says: paragraphs that flow, names in brackets as they are, and examples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer


def add(
    app: typer.Typer, function: Callable[..., Any], *examples: str, name: str | None = None
) -> None:
    """Register a command with its help and examples.

    Parameters
    ----------
    app : Typer
        The group.
    function : callable
        The command; its docstring is the help.
    *examples : str
        Lines to try, as one would type them.
    name : str, optional
        If it is not that of the function.
    """
    lines = ["Examples:" if len(examples) > 1 else "Example:", *examples]
    app.command(name, help=flowing(inspect.getdoc(function) or ""), epilog=as_lines(lines))(
        function
    )


def flowing(text: str) -> str:
    """Return paragraphs without the line breaks of the source, safe from markup.

    Parameters
    ----------
    text : str
        A docstring.

    Examples
    --------
    >>> flowing("One.\\n\\nTwo [privacy]\\nlines.")
    'One.\\n\\nTwo \\\\[privacy] lines.'
    """
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(paragraphs).replace("[", "\\[")


def as_lines(lines: list[str]) -> str:
    """Return lines that stay lines in the end of a help text.

    Parameters
    ----------
    lines : list of str
        Examples.
    """
    return "\n\n".join(lines).replace("[", "\\[")
