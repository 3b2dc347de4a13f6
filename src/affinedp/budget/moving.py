"""Move a ledger from its file to a server: never two of them that can be charged.

The name on the server is held first, in a transaction that tries everything that may be refused,
so that a wrong address costs nothing.  Then the file is closed for charges, and says where it goes:
not only by the address, which leaves much to the surroundings (PGDATABASE, a service), but by what
the server itself says.  Then the copy is kept.  A crash in between leaves a ledger that nobody can
charge, and moving it again to the same place goes on from there.
"""

from __future__ import annotations

from affinedp.budget.address import is_server, without_password
from affinedp.budget.events import Events, LedgerError, State, next_row
from affinedp.budget.postgres import NewLedger, new_on_server, target_on_server
from affinedp.budget.sqlite import FileStore


def move_to_server(events: Events, url: str) -> None:
    """Copy a ledger from its file to ``postgresql://…``; the file is closed for charges first."""
    if not isinstance(events.store, FileStore) or not is_server(url):
        raise LedgerError("a ledger is moved from a file to a postgresql:// address")
    shown = without_password(url)
    with new_on_server(url, events.state.header) as new:
        if new.found is not None:
            raise LedgerError(_already_there(events, new, shown))
        _close_file(events, new, shown)
        _copy(events, new)
    _note_arrival(events, new, shown)


def _already_there(events: Events, new: NewLedger, shown: str) -> str:
    """Why nothing moves: the ledger is there, perhaps by a move of which nobody heard the end."""
    if new.found != events.state.header:
        return "there is a ledger at this address; name another one after #"
    with events.reading():
        exported, target = events.state.exported, events.state.target
    if exported is None:
        return (
            "there is a ledger at this address; it is this one, and the file is an older copy of "
            "it that does not know of its move: charge the one on the server only"
        )
    if target != new.target:
        return (
            f"there is a copy of this ledger at this address, and it was moved to {exported}: "
            "charge that one only"
        )
    _note_arrival(events, new, shown)
    return "there is a ledger at this address; it is this one, so open it there"


def _close_file(events: Events, new: NewLedger, shown: str) -> None:
    """Close the file for charges, for this one target."""
    with events.writing() as now:
        state = events.state
        if state.arrived:
            raise LedgerError(_arrived_before(events, new))
        if state.place != now.place():
            raise LedgerError(
                f"{events.store.name} was moved or copied itself, and charges may be missing here: "
                "if they are not, call acknowledge_move() first"
            )
        if (state.exported, state.target) == (shown, new.target):
            return
        if state.exported is not None and (doubt := _doubt(state.exported, state, new)):
            raise LedgerError(
                f"{events.store.name} was moved to {state.exported} before ({state.target}): "
                "another target is taken only if the first one can be asked and does not have the "
                f"ledger, but {doubt}"
            )
        events.append(now, "export", to=shown, target=new.target, arrived=False)


def _arrived_before(events: Events, new: NewLedger) -> str:
    state, name = events.state, events.store.name
    if state.target != new.target:
        return f"{name} was moved to {state.exported} before ({state.target})"
    return (
        f"{name} was moved to {state.exported}, and is not there any more: this file does not know "
        "what was charged there since, so bring back the server's own"
    )


def _doubt(first: str, state: State, new: NewLedger) -> str:
    """Why the first target may have the ledger; nothing if it certainly does not.

    The file is held meanwhile, so that nobody goes on with the first move.
    """
    try:
        # looked at before it is held: it may be the new target, which is held already
        target, same_server = target_on_server(first, new)
        if target != state.target:
            return "that address leads elsewhere now"
        if same_server and target == new.target:
            return ""  # another spelling of it; a copy of a whole server is another one
        with new_on_server(first, state.header) as there:
            raise _Seen(there.found)
    except _Seen as seen:
        return "" if seen.found is None else "it is there: open it there"
    except LedgerError as error:
        return str(error)


class _Seen(Exception):
    """Ends the transaction that held a name without keeping anything."""

    def __init__(self, found: str | None) -> None:
        self.found = found


def _copy(events: Events, new: NewLedger) -> None:
    """Write all events, and one that says where the ledger is from now on."""
    with events.reading() as now:
        last = next_row(events.state, "import", place=new.now.place())
        new.now.add_all([*now.rows(0)[0], last])


def _note_arrival(events: Events, new: NewLedger, shown: str) -> None:
    """From now on the server may know of charges that the file does not."""
    with events.writing() as now:
        if not events.state.arrived:
            events.append(now, "export", to=shown, target=new.target, arrived=True)
