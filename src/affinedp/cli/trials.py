"""What trials on one machine share: a folder, a broker, and processes that end with us."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.mqtt.broker import Broker

PATIENCE = 20.0  # seconds for a process to end when it is asked to


def folder_for_owner(folder: Path) -> Path:
    """Make a folder, for its owner only.

    Parameters
    ----------
    folder : Path
        Where; one that is there is taken.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AffineDPError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


@contextmanager
def named_or_own(address: str | None, home: Path) -> Iterator[Broker]:
    """Use the broker that was named, or start one for the trial.

    Parameters
    ----------
    address : str or None
        As ``host:port``.
    home : Path
        For what a broker of our own says.

    Yields
    ------
    Broker
    """
    from affinedp.mqtt.broker import Broker
    from affinedp.mqtt.local_broker import local_broker

    if address is not None:
        yield Broker.parse(address)
        return
    with local_broker(home) as started:
        yield started


def start(log: Path, words: Iterable[object]) -> subprocess.Popen[bytes]:
    """Start a command of affinedp as a process that ends when this one does, also if it is killed.

    Parameters
    ----------
    log : Path
        Where it says what, for its owner only.
    words : iterable
        The command and its options.
    """
    command = [sys.executable, "-m", "affinedp.cli.started", *map(str, words)]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as said:
        # a group of its own: Ctrl-C comes to us, and we end them
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
        )


def last_words(log: Path) -> str:
    """Return the last line of what a process said.

    Parameters
    ----------
    log : Path
        Where it said it.
    """
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return said[-1].removeprefix("affinedp: ") if said else "it said nothing"


def end_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ask those that still run to end; what does not is killed, and its draw is on the disk.

    Parameters
    ----------
    processes : iterable
        From :func:`start`.
    """
    left = list(processes)
    for process in left:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + PATIENCE
    for process in left:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
