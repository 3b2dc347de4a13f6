"""Options that several commands share, so that they mean and say the same; brokers and Ctrl-C."""

from __future__ import annotations

import _thread
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer import Argument, Option

from affinedp.errors import AffineDPError
from affinedp.mqtt.broker import PASSWORD_VARIABLE, Broker, password_from

# Panels of --help: what is used every day stands first, outside of them.
recovery = partial(Option, rich_help_panel="Recovery")
passwords = partial(Option, rich_help_panel="Passwords and TLS")

LEDGER = Option(None, help="Budget that pays for the draw: a file, or postgresql://…#name.")
LABEL = Option(None, help="For the ledger.")
SAME_SECRET = Option(
    False,
    "--same-secret",
    help="A change of the ledger's secret is one of these neighbours, too.",
)
REDRAW = recovery(False, "--redraw", help="Draw again for a lost state; needs a ledger.")
LOOP = Argument(..., help="Loop file, TOML or JSON.", show_default=False)
NETWORK = Argument(..., help="Network file, .toml or .json.", show_default=False)
PERIOD = Option(0.0, metavar="SECONDS", help="Seconds per step, at least.", min=0.0)
OWN_BROKER = Option(
    None,
    help="Broker on the plant's side, for the measurements (default: the public one, where all who "
    "listen read them without noise).",
)
OWN_PASSWORD = passwords(None, help="First line: password for the plant's broker (default: none).")


def public_broker(
    broker: str = Option(
        "localhost:1883", help="Public broker: host:port, or mqtts://USER@host:port for TLS."
    ),
    password_file: Path | None = passwords(
        None, help=f"Its first line is the password (or set {PASSWORD_VARIABLE})."
    ),
    ca_file: Path | None = passwords(None, help="Certificates to trust, PEM."),
    cert_file: Path | None = passwords(None, help="Our own certificate, PEM."),
    key_file: Path | None = passwords(None, help="Its key, PEM."),
) -> Broker:
    """Return the broker that the options of a command name."""
    files = {"ca_file": ca_file, "cert_file": cert_file, "key_file": key_file}
    return _broker(broker, password_file, files)


def own_side_broker(public: Broker, address: str | None, password_file: Path | None) -> Broker:
    """Return the broker on the plant's side: the public one, or one with credentials of its own."""
    if address is None:
        if password_file is not None:
            raise AffineDPError("a password for the plant's broker goes with its address")
        return public
    own = Broker.parse(address)
    if (own.username is None) != (password_file is None):  # never the public broker's password
        raise AffineDPError("the plant's broker takes a username (USER@host:port) and a password")
    files = {name: getattr(public, name) for name in ("ca_file", "cert_file", "key_file")}
    return _broker(address, password_file, files if own.tls else {})


def _broker(address: str, password_file: Path | None, files: dict[str, Path | None]) -> Broker:
    found = Broker.parse(address)
    if found.username is None and password_file is not None:
        raise AffineDPError("a password file goes with a username: write USER@host:port")
    password = None if found.username is None else password_from(password_file)
    return Broker.parse(address, password=password, **files)


@contextmanager
def attended() -> Iterator[threading.Event]:
    """Log to standard error; Ctrl-C and SIGTERM set the event, a second Ctrl-C breaks off."""
    stop = threading.Event()

    def end(number: int, frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        # not from here: this thread may be waiting for the event, and hold its lock
        _thread.start_new_thread(stop.set, ())

    handler = _OnStderr()
    package = logging.getLogger("affinedp")
    before = package.level
    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        yield stop
    finally:
        package.removeHandler(handler)
        package.setLevel(before)
        for number, action in previous.items():
            signal.signal(number, action)


class _OnStderr(logging.Handler):
    """Lines on standard error as it is now: a progress bar puts them above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)
