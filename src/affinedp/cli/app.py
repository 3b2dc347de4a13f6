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


app.command()(discover.discover)
app.command()(verify.verify)
app.command()(design.design)
app.command()(report.report)
app.command()(release.release)
app.command()(audit.audit)
app.command()(reproduce.reproduce)
app.command()(doctor.doctor)
app.command()(studio.studio)
app.add_typer(ledger.ledger_app, name="ledger")
app.add_typer(control_app, name="control")
app.add_typer(consensus_app, name="consensus")
app.add_typer(tables_app, name="tables")


def main() -> None:
    """Run the command line; one clear line and an exit code for whatever goes wrong."""
    exits.run(app)
