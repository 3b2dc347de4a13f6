"""Options that several commands share, so that they mean and say the same."""

from __future__ import annotations

from typer import Argument, Option

LEDGER = Option(None, help="Budget that pays for the draw: a file, or postgresql://…#name.")
LABEL = Option(None, help="For the ledger.")
SAME_SECRET = Option(
    False,
    "--same-secret",
    help="A change of the ledger's secret is one of these neighbours, too.",
)
FRESH_NOISE = Option(
    None,
    help="Scale of the noise that is fresh at every step, one or one per output with commas "
    "(default: what the sensors need).",
)
LOOP = Argument(..., help="Loop file, TOML or JSON.", show_default=False)
NETWORK = Argument(..., help="Network file, .toml or .json.", show_default=False)
