"""Arguments and options that several commands share, so that they mean and say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from affinedp.wire.broker import PASSWORD_VARIABLE

ProblemFile = Annotated[Path, typer.Argument(help="Problem in TOML or JSON.", show_default=False)]
MechanismFile = Annotated[Path, typer.Argument(help="Mechanism file.", show_default=False)]
LedgerFile = Annotated[Path, typer.Argument(help="Ledger file.", show_default=False)]
NewMechanism = Annotated[Path, typer.Option("--output", "-o", help="Mechanism file to write.")]
AskedEpsilon = Annotated[float | None, typer.Option(help="Ask whether this ε is kept.")]
AskedDelta = Annotated[float | None, typer.Option(help="δ that goes with it (default 0).")]
KeptEpsilon = Annotated[float | None, typer.Option(help="ε to keep.")]
KeptDelta = Annotated[float | None, typer.Option(help="δ to keep (Gaussian).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

Address = Annotated[str, typer.Option("--broker", help="Public broker, host:port.")]
Username = Annotated[str | None, typer.Option(help="For the broker.")]
PasswordFile = Annotated[
    Path | None, typer.Option(help=f"Its first line is the password (or set {PASSWORD_VARIABLE}).")
]
Tls = Annotated[bool, typer.Option("--tls", help="Encrypt, and check the broker's certificate.")]
CaFile = Annotated[Path | None, typer.Option(help="Certificates to trust, PEM.")]
CertFile = Annotated[Path | None, typer.Option(help="Our own certificate, PEM.")]
KeyFile = Annotated[Path | None, typer.Option(help="Its key, PEM.")]
