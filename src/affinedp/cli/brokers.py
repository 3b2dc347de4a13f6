"""The options of commands that speak to a broker, and how they listen to Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer import Option

from affinedp.errors import AffineDPError
from affinedp.mqtt.broker import PASSWORD_VARIABLE, Broker, password_from


def public_broker(
    broker: str = Option("localhost:1883", help="Public broker, host:port."),
    username: str | None = Option(None, help="For the broker."),
    password_file: Path | None = Option(
        None, help=f"Its first line is the password (or set {PASSWORD_VARIABLE})."
    ),
    tls: bool = Option(False, "--tls", help="Encrypt, and check the broker's certificate."),
    ca_file: Path | None = Option(None, help="Certificates to trust, PEM."),
    cert_file: Path | None = Option(None, help="Our own certificate, PEM."),
    key_file: Path | None = Option(None, help="Its key, PEM."),
) -> Broker:
    """Return the broker that the options of a command name."""
    if password_file is not None and username is None:
        raise AffineDPError("--password-file goes with --username")
    return Broker.parse(
        broker,
        username=username,
        password=None if username is None else password_from(password_file),
        tls=tls,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
    )


def own_side_broker(
    public: Broker,
    address: str | None,
    username: str | None,
    password_file: Path | None,
    plain: bool,
) -> Broker:
    """Return the broker on the plant's side: the public one, or one with credentials of its own."""
    if (username is None) != (password_file is None):
        raise AffineDPError("the broker on the plant's side takes a username and a password file")
    if address is None:
        if username is not None or plain:
            raise AffineDPError("options for the broker on the plant's side go with its address")
        return public
    own: dict[str, Any] = {
        "username": username,
        "password": None if password_file is None else password_from(password_file),
    }
    if public.tls and not plain:  # with the public one's certificates
        own |= {name: getattr(public, name) for name in ("tls", "ca_file", "cert_file", "key_file")}
    return Broker.parse(address, **own)


@contextmanager
def attended() -> Iterator[threading.Event]:
    """Log to standard error; Ctrl-C and SIGTERM set the event, a second Ctrl-C breaks off."""
    stop = threading.Event()

    def end(number: int, frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    handler = _OnStandardError()
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


class _OnStandardError(logging.Handler):
    """Lines on standard error as it is now: a progress bar puts them above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)
