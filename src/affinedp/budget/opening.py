"""Find a ledger by its path or address, make a new one, or move one from a file to a server."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from affinedp.budget.ledger_file import FileStore, create_file
from affinedp.budget.server import ServerStore
from affinedp.budget.server_tables import (
    copy_to_server,
    create_on_server,
    exists_on_server,
    is_server,
    without_password,
)
from affinedp.budget.state import LedgerError, Row, chained, now
from affinedp.budget.store import Store

# ε, δ, adaptive and whom it protects
New = tuple[float | None, float, bool, str | None]
# What people write for other libraries, or Path makes of an address: as a file it would be a budget
# that no other machine knows, and its name would show a password.
_OTHER_ADDRESS = re.compile(r"\s*[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_WORDS_OF_LIBPQ = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|service)\s*=")


def open_store(path: str | os.PathLike[str], wanted: New | None) -> Store:
    """The ledger at a path or an address; a new one if there is none and one is wanted."""
    if is_server(path):
        url = str(path)
        if not exists_on_server(url):
            create_on_server(url, *_checked_new(wanted, without_password(url)))
        return ServerStore(url)
    real = _real_path(path)
    if not os.path.lexists(real):
        create_file(real, *_checked_new(wanted, str(real)))
    return FileStore(real)


def _checked_new(wanted: New | None, name: str) -> tuple[float, float, bool, str]:
    if wanted is None:
        raise LedgerError(f"there is no ledger {name}")
    epsilon, delta, adaptive, protects = wanted
    if epsilon is None:
        raise LedgerError(f"there is no ledger {name}: give epsilon to create one")
    if protects is None:
        raise LedgerError(
            f"there is no ledger {name}: say whom the new one protects, as in "
            "protects='one person'. All that is charged to it adds up for that one secret"
        )
    return epsilon, delta, adaptive, protects


def _real_path(path: str | os.PathLike[str]) -> Path:
    if isinstance(path, str | os.PathLike):
        _refuse_other_addresses(os.fsdecode(path))
    try:
        real = Path(os.path.realpath(path))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"{path!r} is not a path: {error}") from None
    if not real.parent.is_dir():
        raise LedgerError(f"there is no directory {real.parent} for the ledger")
    return real


def _refuse_other_addresses(text: str) -> None:
    words = _WORDS_OF_LIBPQ.match(text) and ("/" not in text or re.search(r"\s", text))
    if words or _OTHER_ADDRESS.match(text):
        raise LedgerError(
            "the address of a ledger on a server is a text that begins with postgresql://, and "
            "this one is of another form; of a file with such a name say ./ first"
        )


def ledger_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a ledger, or anything else, at a path or address."""
    return exists_on_server(str(path)) if is_server(path) else os.path.lexists(_real_path(path))


def move_to_server(store: Store, url: str) -> None:
    """Copy a ledger from its file to a server; the file is closed for charges first.

    In this order no charge can be lost: a crash in between leaves a ledger that nobody can
    charge, and moving it again to the same address goes on from there.
    """
    if not isinstance(store, FileStore) or not is_server(url):
        raise LedgerError("a ledger is moved from a file to a postgresql:// address")
    target = without_password(url)
    if exists_on_server(url):
        done = _is_copied(store, url, target)
        words = "it is this one, so open it there" if done else "name another one after #"
        raise LedgerError(f"there is a ledger at this address; {words}")
    with store.writing():
        if store.state.exported not in (None, target):
            raise LedgerError(f"{store.name} was moved to {store.state.exported} before")
        if store.state.arrived:
            raise LedgerError(
                f"{store.name} was moved to {target}, and is not there any more: this file does "
                "not know what was charged there since, so bring back the server's own"
            )
        if store.state.place != store.place():
            raise LedgerError(
                f"{store.name} was moved or copied itself, and charges may be missing here: if "
                "they are not, call acknowledge_move() first"
            )
        if store.state.exported is None:
            store.append({"kind": "export", "time": now(), "to": target})
    with store.reading():
        number, head = store.state.events + 1, store.state.head

    def last(place: str) -> Row:
        body = json.dumps({"kind": "import", "time": now(), "place": place})
        return number, body, chained(head, number, body)

    copy_to_server(url, store.state.header, store.rows(), last)
    _note_arrival(store, target)


def _note_arrival(store: Store, target: str) -> None:
    """From now on the server may know of charges that the file does not."""
    with store.writing():
        if not store.state.arrived:
            store.append({"kind": "export", "time": now(), "to": target, "arrived": True})


def _is_copied(store: Store, url: str, target: str) -> bool:
    """Whether an earlier move came to its end, and nobody heard of it."""
    with store.reading():
        if store.state.exported != target:
            return False
    there = ServerStore(url)
    try:
        same = there.state.header == store.state.header
    finally:
        there.close()
    if same:
        _note_arrival(store, target)
    return same
