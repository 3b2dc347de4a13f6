"""Find a ledger by its path or address, or make a new one."""

from __future__ import annotations

import os
from pathlib import Path

from affinedp.budget.address import checked_path, is_server
from affinedp.budget.ledger_file import FileStore, create_file
from affinedp.budget.server import ServerStore
from affinedp.budget.server_tables import create_on_server, exists_on_server, missing_on_server
from affinedp.budget.state import LedgerError
from affinedp.budget.store import Store

# ε, δ, adaptive and whom it protects
New = tuple[float | None, float, bool, str | None]


def open_store(path: str | os.PathLike[str], wanted: New | None) -> Store:
    """The ledger at a path or an address; a new one if there is none and one is wanted."""
    if is_server(path):
        url = str(path)
        if not exists_on_server(url):
            create_on_server(url, *_checked_new(wanted, url))
        return ServerStore(url)
    real = _real_path(path)
    if not os.path.lexists(real):
        create_file(real, *_checked_new(wanted, real))
    return FileStore(real)


def _checked_new(wanted: New | None, at: str | Path) -> tuple[float, float, bool, str]:
    if wanted is None:
        raise LedgerError(missing(at))
    epsilon, delta, adaptive, protects = wanted
    if epsilon is None:
        raise LedgerError(
            f"{missing(at)}. If this is the right name, and a NEW budget is to begin here, which "
            "knows of no earlier charge, give epsilon and protects"
        )
    if protects is None:
        raise LedgerError(
            f"{missing(at)}: say whom the new one protects, as in "
            "protects='one person'. All that is charged to it adds up for that one secret"
        )
    return epsilon, delta, adaptive, protects


def missing(at: str | os.PathLike[str]) -> str:
    """Say that there is no ledger at a path or address, and which one may be meant.

    Parameters
    ----------
    at : str or Path
        Where there is none.
    """
    return missing_on_server(str(at)) if is_server(at) else f"there is no ledger {at}"


def _real_path(path: str | os.PathLike[str]) -> Path:
    text = checked_path(path)
    try:
        real = Path(os.path.realpath(text))
    except ValueError as error:
        raise LedgerError(f"{text!r} is not a path: {error}") from None
    if not real.parent.is_dir():
        raise LedgerError(f"there is no directory {real.parent} for the ledger")
    return real


def ledger_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a ledger, or anything else, at a path or address."""
    return exists_on_server(str(path)) if is_server(path) else os.path.lexists(_real_path(path))
