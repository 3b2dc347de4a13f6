"""The command line: one command per question, one file for each group of commands.

Exit codes: 0 fine, 1 the promise that was asked for does not hold, 2 bad input, 3 the budget does
not allow it, 4 and up something unexpected (:mod:`affinedp.cli.exits`).  What a command needs is
loaded when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from affinedp import __version__
from affinedp.cli import (
    audit,
    design,
    discover,
    doctor,
    exits,
    ledger,
    release,
    report,
    reproduce,
    studio,
    verify,
)
from affinedp.cli.consensus import consensus_app
from affinedp.cli.control import control_app
from affinedp.cli.help import add
from affinedp.cli.table_commands import tables_app

app = typer.Typer(
    help="Differential privacy for data that obeys known linear equations.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
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


add(
    app,
    discover.discover,
    "affinedp discover data.csv",
    "affinedp discover data.csv --given 'women + men = all' --toml",
)
add(
    app,
    verify.verify,
    "affinedp verify problem.toml",
    "affinedp verify problem.toml --epsilon 1 --delta 1e-6 && echo kept",
)
add(
    app,
    design.design,
    "affinedp design problem.toml -o mechanism.json --epsilon 1 --delta 1e-6",
    "affinedp design problem.toml --preview",
)
add(
    app,
    report.report,
    "affinedp report mechanism.json",
    "affinedp report mechanism.json --html report.html",
)
add(
    app,
    release.release,
    "affinedp release mechanism.json data.csv -o out.csv --ledger budget.db --rows different",
    "affinedp release table.toml data.csv -o out-2026-01.csv --ledger budget.db",
)
add(app, audit.audit, "affinedp audit mechanism.json --runs 20000")
add(
    app,
    reproduce.reproduce,
    "affinedp reproduce examples",
    "affinedp reproduce all --out paper",
)
add(app, doctor.doctor, "affinedp doctor", "affinedp doctor --broker localhost:1883 --json")
add(app, studio.studio, "affinedp studio", "affinedp studio --port 8642 --no-open")
app.add_typer(ledger.ledger_app, name="ledger")
app.add_typer(control_app, name="control")
app.add_typer(consensus_app, name="consensus")
app.add_typer(tables_app, name="tables")


def main() -> None:
    """Run the command line; one clear line and an exit code for whatever goes wrong."""
    exits.run(lambda: app(prog_name="affinedp"))
