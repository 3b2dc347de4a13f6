"""The command line: one command per question, one file for each group of commands.

Exit codes: 0 fine, 1 the promise that was asked for does not hold, 2 bad input, 3 the budget does
not allow it, 4 and up something unexpected (:mod:`affinedp.cli.exits`).  A command is loaded when
it is asked for, and what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from affinedp.cli import exits
from affinedp.cli.commands import Place, group_of

COMMANDS = {
    "discover": Place(
        "discover",
        "discover",
        (
            "affinedp discover data.csv",
            "affinedp discover data.csv --given 'women + men = all' --toml",
        ),
    ),
    "verify": Place(
        "verify",
        "verify",
        (
            "affinedp verify problem.toml",
            "affinedp verify problem.toml --epsilon 1 --delta 1e-6 && echo kept",
        ),
    ),
    "design": Place(
        "design",
        "design",
        (
            "affinedp design problem.toml -o mechanism.json --epsilon 1 --delta 1e-6",
            "affinedp design problem.toml --preview",
        ),
    ),
    "report": Place(
        "report",
        "report",
        (
            "affinedp report mechanism.json",
            "affinedp report mechanism.json --html report.html",
        ),
    ),
    "release": Place(
        "release",
        "release",
        (
            "affinedp release mechanism.json data.csv -o out.csv --ledger budget.db "
            "--rows different",
            "affinedp release table.toml data.csv -o out-2026-01.csv --ledger budget.db",
        ),
    ),
    "audit": Place("audit", "audit", ("affinedp audit mechanism.json --runs 20000",)),
    "reproduce": Place(
        "reproduce",
        "reproduce",
        ("affinedp reproduce examples", "affinedp reproduce all --out paper"),
    ),
    "doctor": Place(
        "doctor",
        "doctor",
        ("affinedp doctor", "affinedp doctor --broker localhost:1883 --json"),
    ),
    "studio": Place(
        "studio",
        "studio",
        ("affinedp studio", "affinedp studio --port 8642 --no-open"),
    ),
    "ledger": Place("ledger", "ledger_app"),
    "control": Place("control", "control_app"),
    "consensus": Place("consensus", "consensus_app"),
    "tables": Place("table_commands", "tables_app"),
}

app = typer.Typer(
    cls=group_of(COMMANDS),
    help="Differential privacy for data that obeys known linear equations.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from affinedp import __version__

        typer.echo(f"affinedp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Differential privacy for data that obeys known linear equations."""


def main() -> None:
    """Run the command line; one clear line and an exit code for whatever goes wrong."""
    exits.run(lambda: app(prog_name="affinedp"))
