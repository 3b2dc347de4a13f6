"""The command line: one command per question, one file for each group of commands.

Exit codes: 0 fine, 1 the promise that was asked for does not hold, 2 bad input, 3 the budget does
not allow it, 4 and up something unexpected (:mod:`affinedp.cli.exits`).  A command is loaded when
it is asked for, and what it needs when it runs.
"""

from __future__ import annotations

from typer import Exit, Option, Typer, echo

from affinedp.cli import exits
from affinedp.cli.commands import group_of

# Modules that commands are written in, each in a function of the command's name.
COMMANDS = {
    "discover": "problems",
    "verify": "problems",
    "design": "problems",
    "report": "release",
    "release": "release",
    "audit": "tools",
    "reproduce": "tools",
    "doctor": "doctor",
    "studio": "tools",
}
# Groups of commands, each with what it is for.
GROUPS = {
    "ledger": (
        "Start a privacy budget, look at it, check it, move it to a server.",
        dict.fromkeys(("create", "show", "history", "check", "export"), "ledger"),
    ),
    "control": (
        "Private cloud control: design output noise, and run the loop over MQTT.",
        {
            **dict.fromkeys(("design", "gateway", "cloud", "plant"), "control"),
            "trial": "trials",
            "broker": "trials",
            "sensor": "control",
            "eavesdrop": "trials",
        },
    ),
    "consensus": (
        "Private average consensus: agents as processes, over MQTT.",
        {
            "agent": "consensus",
            "readout": "consensus",
            "eavesdrop": "trials",
            "launch": "trials",
            "keys": "consensus",
        },
    ),
    "tables": (
        "Tables: preview accuracy, guess a description.",
        {"preview": "tables", "guess": "tables"},
    ),
}
_HELP = "Differential privacy for data that obeys known linear equations."

app = Typer(
    cls=group_of(COMMANDS, GROUPS),
    help=_HELP,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from affinedp import __version__

        echo(f"affinedp {__version__}")
        raise Exit


@app.callback(help=_HELP)
def _root(
    version: bool = Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; one clear line and an exit code for whatever goes wrong."""
    exits.run(lambda: app(prog_name="affinedp"))
