"""The reference of the command line, written from the commands themselves before each build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def command_reference() -> str:
    """Return the help of every command as one Markdown page."""
    import typer
    from typer.cli import get_docs_for_click

    from affinedp.cli.app import app

    command = typer.main.get_command(app)
    say_in_full(command)
    context = typer.Context(command)
    text = get_docs_for_click(obj=command, ctx=context, name="affinedp", title="Command line")
    # Typer quotes for HTML in code, where Markdown shows it as it is
    text = str(text).replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">")
    return re.sub(r"^(?<=:\n\n)(?:affinedp .*\n+)+", as_code, text, flags=re.MULTILINE)


def as_code(lines: re.Match[str]) -> str:
    """Return the examples below a command as a block of code."""
    examples = lines[0].replace("\n\n", "\n").replace("\\[", "[").rstrip()
    return f"```sh\n{examples}\n```\n\n"


def say_in_full(command: Any) -> None:
    """List subcommands with their first sentence, where Typer would cut it short."""
    for subcommand in getattr(command, "commands", {}).values():
        first = (subcommand.help or "").split("\n\n")[0]
        subcommand.short_help = " ".join(first.split())
        say_in_full(subcommand)


def write(app: Any) -> None:
    """Write the page, unless it is there already and the same."""
    page = Path(app.srcdir, "generated", "commands.md")
    page.parent.mkdir(exist_ok=True)
    text = command_reference()
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write the page when a build starts."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
