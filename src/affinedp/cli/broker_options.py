"""What commands that speak to a broker share: their options, and how they listen to Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from affinedp.errors import AffineDPError
from affinedp.mqtt.broker import PASSWORD_VARIABLE, Broker, password_from

Address = Annotated[str, typer.Option("--broker", help="Public broker, host:port.")]
Username = Annotated[str | None, typer.Option(help="For the broker.")]
PasswordFile = Annotated[
    Path | None, typer.Option(help=f"Its first line is the password (or set {PASSWORD_VARIABLE}).")
]
Tls = Annotated[bool, typer.Option("--tls", help="Encrypt, and check the broker's certificate.")]
CaFile = Annotated[Path | None, typer.Option(help="Certificates to trust, PEM.")]
CertFile = Annotated[Path | None, typer.Option(help="Our own certificate, PEM.")]
KeyFile = Annotated[Path | None, typer.Option(help="Its key, PEM.")]
Wait = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for brokers at the start.", min=0.0)
]


def public_broker(
    address: str,
    username: str | None,
    password_file: Path | None,
    tls: bool,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
) -> Broker:
    """Return the broker that the options of a command name.

    Parameters
    ----------
    address : str
        As ``host:port``.
    username, password_file, tls, ca_file, cert_file, key_file
        The options of the same names.
    """
    if password_file is not None and username is None:
        raise AffineDPError("--password-file goes with --username")
    return Broker.parse(
        address,
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
    """Return the broker on the plant's side: the public one, or one with credentials of its own.

    Parameters
    ----------
    public : Broker
        From :func:`public_broker`; with TLS, the other one takes its certificates too.
    address : str or None
        None for the public one.
    username, password_file
        For the other broker alone.
    plain : bool
        No TLS to the other one.
    """
    if (username is None) != (password_file is None):
        raise AffineDPError("the broker on the plant's side takes a username and a password file")
    if address is None:
        if username is not None or plain:
            raise AffineDPError("options for the broker on the plant's side go with its address")
        return public
    own = {
        "username": username,
        "password": None if password_file is None else password_from(password_file),
    }
    if not public.tls or plain:
        return Broker.parse(address, **own)
    files = {name: getattr(public, name) for name in ("ca_file", "cert_file", "key_file")}
    return Broker.parse(address, tls=True, **own, **files)


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
