"""``affinedp … eavesdrop``: what anyone sees who may read at a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from affinedp.cli.broker_options import (
    Address,
    CaFile,
    CertFile,
    KeyFile,
    PasswordFile,
    Tls,
    Username,
    attended,
    public_broker,
)
from affinedp.cli.options import AsJson
from affinedp.cli.output import say_json


def eavesdrop(
    log: Annotated[Path, typer.Option(help="Where the messages are written, as JSON lines.")],
    broker: Address = "localhost:1883",
    topics: Annotated[list[str] | None, typer.Option(help="What to listen to.")] = None,
    username: Username = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Write down every message that a broker delivers, until Ctrl-C."""
    from affinedp.mqtt.listening import eavesdrop as listen

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    with attended() as stop:
        count = listen(public, topics or ["#"], log, stop)
    if as_json:
        say_json({"messages": count, "log": str(log)})
    else:
        typer.echo(f"eavesdropper: {count} messages in {log}")
