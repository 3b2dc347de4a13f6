"""Commands that run until they are done or stopped, over a broker."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from affinedp.errors import AffineDPError
from affinedp.files.visible import visible
from affinedp.wire.broker import Broker, password_from


def broker_of(
    address: str,
    username: str | None,
    password_file: Path | None,
    tls: bool,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
) -> Broker:
    """Return the broker that options describe.

    Parameters
    ----------
    address : str
        As host:port.
    username : str or None
        For the broker.
    password_file : Path or None
        Its first line is the password.
    tls : bool
        Whether to encrypt.
    ca_file, cert_file, key_file : Path or None
        Certificates to trust, our own, and its key.
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
        typer.echo(visible(self.format(record), lines=True), err=True)
