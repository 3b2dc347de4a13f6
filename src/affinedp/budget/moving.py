"""Move a ledger from its file to a server: never two of them that can be charged.

The name on the server is held first, in a transaction that tries everything that may be refused,
so that a wrong address costs nothing.  Then the file is closed for charges, and says where it goes:
not only by the address, which leaves much to the surroundings (PGDATABASE, a service), but by what
the server itself says.  Then the copy is kept.  A crash in between leaves a ledger that nobody can
charge, and moving it again to the same place goes on from there.
"""

from __future__ import annotations

import json

from affinedp.budget.address import is_server, without_password
from affinedp.budget.ledger_file import FileStore
from affinedp.budget.server_tables import NewLedger, new_on_server, target_on_server
from affinedp.budget.state import LedgerError, Row, State, chained, now
from affinedp.budget.store import Store


def move_to_server(store: Store, url: str) -> None:
    """Copy a ledger from its file to a server; the file is closed for charges first.

    Parameters
    ----------
    store : Store
        The ledger.
    url : str
        ``postgresql://…``, where the ledger of this name does not exist yet.
    """
    if not isinstance(store, FileStore) or not is_server(url):
        raise LedgerError("a ledger is moved from a file to a postgresql:// address")
    shown = without_password(url)
    with new_on_server(url, store.state.header) as new:
        if new.found is not None:
            raise LedgerError(_already_there(store, new, shown))
        _close_file(store, new, shown)
        new.fill([*store.rows(), _last(store, new.place)])
    _note_arrival(store, new, shown)


def _already_there(store: FileStore, new: NewLedger, shown: str) -> str:
    """Why nothing moves: the ledger is there, perhaps by a move of which nobody heard the end."""
    if new.found != store.state.header:
        return "there is a ledger at this address; name another one after #"
    with store.reading():
        exported, target = store.state.exported, store.state.target
    if exported is not None and target not in (None, new.target):
        return (
            f"there is a copy of this ledger at this address, and it was moved to {exported}: "
            "charge that one only"
        )
    if exported is not None:
        _note_arrival(store, new, shown)
        return "there is a ledger at this address; it is this one, so open it there"
    return (
        "there is a ledger at this address; it is this one, and the file is an older copy of it "
        "that does not know of its move: charge the one on the server only"
    )


def _close_file(store: FileStore, new: NewLedger, shown: str) -> None:
    """Close the file for charges, for this one target."""
    with store.writing():
        state = store.state
        if state.exported is not None and state.arrived:
            raise LedgerError(_arrived_before(store, new))
        if state.place != store.place():
            raise LedgerError(
                f"{store.name} was moved or copied itself, and charges may be missing here: if "
                "they are not, call acknowledge_move() first"
            )
        if state.exported is not None and state.target == new.target and state.exported == shown:
            return
        if state.exported is not None:
            _prove_absent(store, state.exported, new)
        store.append({"kind": "export", "time": now(), "to": shown, "target": new.target})


def _arrived_before(store: FileStore, new: NewLedger) -> str:
    state = store.state
    if state.target not in (None, new.target):
        return f"{store.name} was moved to {state.exported} before ({state.target})"
    return (
        f"{store.name} was moved to {state.exported}, and is not there any more: this file does "
        "not know what was charged there since, so bring back the server's own"
    )


def _prove_absent(store: FileStore, first: str, new: NewLedger) -> None:
    """Refuse another target, unless the first one says that it does not have the ledger.

    The file is held meanwhile, so that nobody goes on with the first move.
    """
    doubt = _doubt(first, store.state, new)
    if doubt:
        raise LedgerError(
            f"{store.name} was moved to {first} before "
            f"({store.state.target or 'by an older version'}): another target is taken only if the "
            f"first one can be asked and does not have the ledger, but {doubt}"
        )


def _doubt(first: str, state: State, new: NewLedger) -> str:
    """Why the first target may have the ledger; nothing if it certainly does not."""
    if state.target is None:
        return "that version did not note which server it was: finish the move with it"
    try:
        # looked at before it is held: it may be the new target, which is held already
        target, same_server = target_on_server(first, new)
        if target != state.target:
            return "that address leads elsewhere now"
        if same_server and target == new.target:
            return ""  # another spelling of it; a copy of a whole server is another one
        with new_on_server(first, state.header) as there:
            raise _Seen(there)
    except _Seen as seen:
        return "" if seen.new.found is None else "it is there: open it there"
    except LedgerError as error:
        return str(error)


class _Seen(Exception):
    """Ends the transaction that held a name without keeping anything."""

    def __init__(self, new: NewLedger) -> None:
        self.new = new


def _last(store: FileStore, place: str) -> Row:
    """The event that says where the ledger is from now on."""
    with store.reading():
        number, head = store.state.events + 1, store.state.head
    body = json.dumps({"kind": "import", "time": now(), "place": place})
    return number, body, chained(head, number, body)


def _note_arrival(store: Store, new: NewLedger, shown: str) -> None:
    """From now on the server may know of charges that the file does not."""
    event = {"kind": "export", "time": now(), "to": shown, "target": new.target, "arrived": True}
    with store.writing():
        if not store.state.arrived:
            store.append(event)
