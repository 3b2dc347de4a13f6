"""Open the state of one draw, or draw it once: charged, written, marked, and only then in place."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from affinedp.budget.events import LedgerEntry, now
from affinedp.budget.ledger import Ledger
from affinedp.errors import AffineDPError
from affinedp.files.sqlite import building, log_of, put_into_place
from affinedp.once.marker import (
    is_registered,
    mark,
    marked_draws,
    marked_places,
    marker_of,
    place_of,
    register_of,
)
from affinedp.once.owner import Owner
from affinedp.once.record import SALT_BYTES, Draw, Head, identity_of
from affinedp.once.state import DrawnState
from affinedp.once.writing import write_state


@dataclass(frozen=True)
class Drawn:
    """What was drawn, before it is kept.

    Attributes
    ----------
    header : mapping of str to object
        Public: what it was drawn for; becomes JSON.
    numbers : tuple of int
        Secret: what was drawn.
    head : Head
        Where to begin.
    """

    header: dict[str, Any]
    numbers: tuple[int, ...] = field(repr=False)
    head: Head


@dataclass(frozen=True)
class Request:
    """What the user of a gateway or an agent asks for.

    Attributes
    ----------
    owner : Owner
        Who draws.
    path : Path
        The real path of the state.
    ledger : Ledger or None
        Who keeps count.
    label : str
        What the ledger calls this occasion.
    redraw : bool
        Whether a lost or damaged state may be drawn again, at the ledger's expense.
    moved : bool
        Whether a state that was drawn elsewhere is taken as moved here.
    draw : callable
        Draws.  It is called with the label of the charge, and charges the ledger first.
    check : callable
        Refuses an open state, by its header, that was drawn for something else.
    """

    owner: Owner
    path: Path
    ledger: Ledger | None
    label: str
    redraw: bool
    moved: bool
    draw: Callable[[str], Drawn]
    check: Callable[[DrawnState, dict[str, Any]], None]


def obtain(request: Request) -> DrawnState:
    """Open the state that was asked for, or draw it.

    Parameters
    ----------
    request : Request
        What is wanted.
    """

    def rescue(file: Path) -> None:
        _rescue(request, file)

    with building(request.owner.kind, request.path, rescue) as folder:
        state = _existing(request)
        if state is None:
            _draw(request, folder)
            state = DrawnState(request.owner, request.path)
        try:
            _check(request, state)
        except BaseException:
            state.close()
            raise
    return state


def header_of(state: DrawnState) -> dict[str, Any]:
    """Return what a state was drawn for; one of another owner is refused.

    Parameters
    ----------
    state : DrawnState
        An open state.
    """
    owner = state.owner
    try:
        record = json.loads(state.draw.header)
        if record["format"] == owner.form:
            return dict(record)
    except (LookupError, TypeError, ValueError):
        pass
    raise owner.error(
        f"{state.path} is not the state of {owner.noun}: its header says something else; it is "
        "left as it is"
    )


def checked_path(owner: Owner, state: str | os.PathLike[str]) -> Path:
    """Return the real path of a state, or refuse it.

    Parameters
    ----------
    owner : Owner
        Whose state it is.
    state : str or Path
        Where.
    """
    try:
        real = Path(os.path.realpath(state))
    except (TypeError, ValueError) as error:
        raise AffineDPError(f"{state!r} is not a path: {error}") from None
    if not real.parent.is_dir():
        raise owner.error(f"there is no directory {real.parent} for the state")
    return real


def _existing(request: Request) -> DrawnState | None:
    """The state, or None if it may be drawn."""
    path, marker = request.path, marker_of(request.path)
    if os.path.lexists(path):
        try:
            return DrawnState(request.owner, path)
        except request.owner.damaged as damage:
            if not os.path.lexists(marker):
                raise request.owner.error(f"{damage}; it is left as it is") from None
            _refuse_redraw(request, str(damage))
            return None
    if os.path.lexists(marker):
        _refuse_redraw(request, f"{path} is lost: {marker.name} says it was drawn")
    elif traces := _traces(path):
        _refuse_redraw(request, f"{path} is lost with its marker: {traces[0]} tells of it")
    elif is_registered(path):
        _refuse_redraw(
            request, f"{path} is lost with its marker: {register_of(path)} says it was drawn"
        )
    elif _charges(request):
        _refuse_redraw(
            request,
            f"there is no state {path}, but the ledger was charged for {request.label!r} (give "
            f"another label if this is another {request.owner.occasion})",
        )
    return None


def _draw(request: Request, folder: Path) -> None:
    """Charge, draw, write, mark, and only then put the state into place."""
    owner, path = request.owner, request.path
    salt = secrets.token_bytes(SALT_BYTES)
    drawn = request.draw(request.label + _suffix(owner, identity_of(salt)))
    header = {"format": owner.form, "created": now(), **drawn.header}
    draw = Draw(json.dumps(header), salt, drawn.numbers)
    file = write_state(owner, folder, path, draw, drawn.head)
    mark(path, draw, owner.error)
    _put_aside(path)
    put_into_place(owner.kind, file, path)


def _rescue(request: Request, file: Path) -> None:
    """Take a state that was drawn and written whole when a crash came, and not yet in place.

    Nothing was sent with it, and it is paid for.  What is not whole holds no draw that was kept.
    """
    owner, path = request.owner, request.path
    if os.path.lexists(path):
        return
    try:
        state = DrawnState(owner, file)
    except owner.error:
        return
    draw = state.draw
    state.close()
    mark(path, draw, owner.error)
    _put_aside(path)
    put_into_place(owner.kind, file, path)


def _check(request: Request, state: DrawnState) -> None:
    """Refuse a state that is not the one that was asked for."""
    owner, path = request.owner, request.path
    request.check(state, header_of(state))
    if request.ledger is not None:
        ours = _suffix(owner, state.draw.identity)
        charges = [e for e in request.ledger.history() if (e.label or "").endswith(ours)]
        if not charges:
            raise owner.error(
                f"{path} was never charged to this ledger: it was swapped, or drawn without one"
            )
        for entry in charges:
            if entry.status == "charged":
                request.ledger.settle(entry.id)
    known = marked_draws(path)
    if known and state.draw.commitment not in known:
        raise owner.error(
            f"{path} is not the state that {marker_of(path).name} tells of: it was swapped. Put "
            "the right one there"
        )
    if place_of(path) in marked_places(path, state.draw.commitment):
        return
    if owner.copies_leak and not request.moved:
        raise owner.error(
            f"{path} was not drawn here, or its marker {marker_of(path).name} is lost: a copy "
            "of a state that is used twice gives its noise away. If it was moved, and no "
            "other copy is in use, give moved=True"
        )
    mark(path, state.draw, owner.error)


def _refuse_redraw(request: Request, reason: str) -> None:
    """Refuse to draw again, unless the caller asked for it and a ledger pays."""
    if request.redraw and request.ledger is not None:
        return
    raise request.owner.error(
        f"{reason}. Drawing again for the same {request.owner.subject} is a second release: put "
        "the state back, or ask for a redraw (redraw=True) with a ledger, which is charged again"
    )


def _traces(path: Path) -> list[str]:
    """What lies beside a place where a state was: its log, and states that were put aside."""
    aside = re.compile(
        re.escape(path.name) + r"(-wal)?\.aside-[0-9]+|" + re.escape(log_of(path).name)
    )
    return sorted(name for name in os.listdir(path.parent) if aside.fullmatch(name))


def _put_aside(path: Path) -> None:
    """Rename a damaged state, and a log that would be read into the new one, out of the way."""
    suffix = ".aside-" + re.sub(r"[^0-9]", "", now())[:20]
    for name in (path, log_of(path)):
        if os.path.lexists(name):
            os.rename(name, name.with_name(name.name + suffix))


def _charges(request: Request) -> list[LedgerEntry]:
    """Charges for this label, whatever was drawn for them."""
    if request.ledger is None:
        return []
    named = rf" \({request.owner.name} state [0-9a-f]{{32}}\)"
    pattern = re.compile(re.escape(request.label) + named)
    return [e for e in request.ledger.history() if pattern.fullmatch(e.label or "")]


def _suffix(owner: Owner, identity: str) -> str:
    """What a label ends with, to name the draw that was charged."""
    return f" ({owner.name} state {identity})"
