"""Arguments and options that several commands share, so that they mean and say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProblemFile = Annotated[Path, typer.Argument(help="Problem in TOML or JSON.", show_default=False)]
MechanismFile = Annotated[Path, typer.Argument(help="Mechanism file.", show_default=False)]
LedgerFile = Annotated[
    str, typer.Argument(help="Ledger: a file, or postgresql://…#name.", show_default=False)
]
NewMechanism = Annotated[Path, typer.Option("--output", "-o", help="Mechanism file to write.")]
AskedEpsilon = Annotated[float | None, typer.Option(help="Ask whether this ε is kept.")]
AskedDelta = Annotated[float | None, typer.Option(help="δ that goes with it (default 0).")]
Tolerance = Annotated[
    float, typer.Option(help="Share by which ε may be exceeded, for rounding; 0 for none.")
]
KeptEpsilon = Annotated[float | None, typer.Option(help="ε to keep.")]
KeptDelta = Annotated[float | None, typer.Option(help="δ to keep (Gaussian).")]
CheckAgainst = Annotated[
    Path | None,
    typer.Option(help="Private data: say on stderr which equations it obeys that were not given."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
SameSecret = Annotated[
    bool,
    typer.Option(
        "--same-secret", help="A change of the ledger's secret is one of these neighbours, too."
    ),
]
