"""The command line: one command per question, one file for each group of commands.

Exit codes: 0 fine, 1 the promise that was asked for does not hold, 2 bad input, 3 the budget does
not allow it, 4 and up something unexpected (:mod:`affinedp.cli.exits`).  A command is loaded when
it is asked for, and what it needs when it runs.
"""

from __future__ import annotations

from typer import Exit, Option, Typer, echo

from affinedp.cli import exits
from affinedp.cli.commands import Place, group_of

_CONTROL = "affinedp control"
_GATEWAY = f"{_CONTROL} gateway --mechanism noise.json --state run.db --resolution 0.1"
_AGENT = "affinedp consensus agent --id 3 --state 3.db --value-file 3.txt"
# Groups of commands, each with what it is for, and its commands with lines to try.
GROUPS: dict[str, tuple[str, dict[str, Place]]] = {
    "ledger": (
        "Start a privacy budget, look at it, check it, move it to a server.",
        {
            "create": Place(
                "ledger",
                "affinedp ledger create budget.db --epsilon 2 --delta 1e-6 --protects 'one person'",
            ),
            "show": Place("ledger", "affinedp ledger show budget.db"),
            "history": Place("ledger", "affinedp ledger history budget.db --json"),
            "check": Place("ledger", "affinedp ledger check budget.db"),
            "export": Place(
                "ledger",
                "affinedp ledger export budget.db 'postgresql://budgets.example/privacy#people'",
            ),
        },
    ),
    "control": (
        "Private cloud control: design output noise, and run the loop over MQTT.",
        {
            "design": Place(
                "control", f"{_CONTROL} design loop.toml -o noise.json --epsilon 1 --delta 0.01"
            ),
            "gateway": Place(
                "control",
                f"{_GATEWAY} --ledger budget.db --broker broker.example:8883 --tls "
                "--in-broker localhost:1883",
                f"{_GATEWAY} --limits limits.toml",
            ),
            "cloud": Place("control", f"{_CONTROL} cloud loop.toml --broker localhost:1883"),
            "plant": Place(
                "control", f"{_CONTROL} plant loop.toml --broker localhost:1883 --log plant.jsonl"
            ),
            "trial": Place(
                "trials",
                f"{_CONTROL} trial loop.toml",
                f"{_CONTROL} trial loop.toml --broker localhost:1883 --period 0.1",
            ),
            "broker": Place("trials", f"{_CONTROL} broker --port 1883"),
            "sensor": Place("sensor", f"{_CONTROL} sensor recording.csv"),
            "eavesdrop": Place(
                "trials", f"{_CONTROL} eavesdrop --log seen.jsonl --topics 'cloud/#'"
            ),
        },
    ),
    "consensus": (
        "Private average consensus: agents as processes, over MQTT.",
        {
            "agent": Place(
                "consensus",
                f"{_AGENT} --network ring.toml --broker localhost:1883 --ledger budget.db",
                f"{_AGENT} --neighbours 2:0.25,4:0.25 --epsilon 1 --delta 0.01 --rounds 100",
            ),
            "readout": Place("consensus", "affinedp consensus readout --state 3.db --agents 6"),
            "eavesdrop": Place("trials", "affinedp consensus eavesdrop --log seen.jsonl"),
            "launch": Place("trials", "affinedp consensus launch ring.toml --rounds 50"),
            "keys": Place("consensus", "affinedp consensus keys ring.toml --folder keys"),
        },
    ),
    "tables": (
        "Tables: preview accuracy, guess a description.",
        {
            "preview": Place(
                "tables",
                "affinedp tables preview table.toml data.csv",
                "affinedp tables preview table.toml data.csv --level 0.9 --json",
            ),
            "guess": Place(
                "tables",
                "affinedp tables guess counts.csv --index region --epsilon 1 > table.toml",
            ),
        },
    ),
}
COMMANDS = {
    "discover": Place(
        "discover",
        "affinedp discover data.csv",
        "affinedp discover data.csv --given 'women + men = all' --toml",
    ),
    "verify": Place(
        "problems",
        "affinedp verify problem.toml",
        "affinedp verify problem.toml --epsilon 1 --delta 1e-6 && echo kept",
    ),
    "design": Place(
        "problems",
        "affinedp design problem.toml -o mechanism.json --epsilon 1 --delta 1e-6",
        "affinedp design problem.toml --preview",
    ),
    "report": Place(
        "release",
        "affinedp report mechanism.json",
        "affinedp report mechanism.json --html report.html",
    ),
    "release": Place(
        "release",
        "affinedp release mechanism.json data.csv -o out.csv --ledger budget.db --rows different",
        "affinedp release table.toml data.csv -o out-2026-01.csv --ledger budget.db",
    ),
    "audit": Place("audit", "affinedp audit mechanism.json --runs 20000"),
    "reproduce": Place(
        "reproduce", "affinedp reproduce examples", "affinedp reproduce all --out paper"
    ),
    "doctor": Place("doctor", "affinedp doctor", "affinedp doctor --broker localhost:1883 --json"),
    "studio": Place("studio", "affinedp studio", "affinedp studio --port 8642 --no-open"),
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
