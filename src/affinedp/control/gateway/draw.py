"""One draw for one trajectory: open the state of a gateway, or draw it once, charged and marked.

A second draw for the same trajectory is a second release.  So the draw is charged to the ledger
before it is made, and a marker beside the state says that it was made: a state that is lost or
damaged is not drawn again unless the caller asks for it and a ledger pays.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from affinedp.budget.ledger_file import now, sync_directory
from affinedp.control.gateway.integer_noise import drawn_once
from affinedp.control.gateway.noise_path import NoisePath
from affinedp.control.gateway.plan import GatewayPlan, gateway_plan, per_output
from affinedp.control.gateway.state import (
    SALT_BYTES,
    DamagedStateError,
    Draw,
    GatewayState,
    GatewayStateError,
    Head,
    create_state,
)
from affinedp.errors import AffineDPError
from affinedp.release.plan import GRID_BITS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from affinedp.budget.ledger import Ledger
    from affinedp.control.trajectory.noise import TrajectoryMechanism

FORMAT = "affinedp gateway state"
_HEADER = {"fingerprint", "charged", "resolution", "measurement_error", "plan"}


@dataclass(frozen=True)
class Request:
    """What a caller of a gateway asks for.

    Attributes
    ----------
    mechanism : TrajectoryMechanism
        The noise.
    path : Path
        The real path of the state.
    ledger : Ledger or None
        Who keeps count.
    label : str
        What the ledger calls this trajectory.
    redraw : bool
        Whether a lost or damaged state may be drawn again, at the ledger's expense.
    moved : bool
        Whether a state that was drawn elsewhere is taken as moved here.
    resolution, measurement_error : array_like or None
        As for :func:`~affinedp.control.gateway.plan.gateway_plan`.
    """

    mechanism: TrajectoryMechanism
    path: Path
    ledger: Ledger | None
    label: str
    redraw: bool
    moved: bool
    resolution: ArrayLike | None
    measurement_error: ArrayLike | None

    @property
    def settings(self) -> dict[str, list[str] | None]:
        """What decides the plan, as text."""
        given = {"resolution": self.resolution, "measurement_error": self.measurement_error}
        found: dict[str, list[str] | None] = {}
        for name, value in given.items():
            values = per_output(value, name, self.mechanism)
            found[name] = None if values is None else [float(v).hex() for v in values]
        return found

    @property
    def marker(self) -> Path:
        """The file that says that a draw was made."""
        return self.path.with_name(self.path.name + ".drawn")


def obtain_state(request: Request) -> GatewayState:
    """Open the state that was asked for, or draw it.

    Parameters
    ----------
    request : Request
        What the caller wants.
    """
    damaged = False
    if os.path.lexists(request.path):
        try:
            state = GatewayState(request.path)
        except DamagedStateError as damage:
            if not _marked(request):
                raise GatewayStateError(f"{damage}; it is left as it is") from None
            _refuse_redraw(request, str(damage))
            damaged = True
        else:
            try:
                _check(request, state)
            except BaseException:
                state.close()
                raise
            return state
    elif _marked(request):
        _refuse_redraw(request, f"{request.path} is lost: {request.marker.name} says it was drawn")
    elif _charges(request):
        _refuse_redraw(
            request,
            f"there is no state {request.path}, but the ledger was charged for {request.label!r} "
            "(give another label if this is another trajectory)",
        )
    return _draw(request, damaged)


def plan_of(state: GatewayState) -> GatewayPlan:
    """Return the plan with which a state was drawn.

    Parameters
    ----------
    state : GatewayState
        An open state.
    """
    try:
        return GatewayPlan.from_record(_header_of(state)["plan"])
    except (LookupError, TypeError) as error:
        raise DamagedStateError(f"{state.path}: its header cannot be read ({error})") from None


def was_charged(state: GatewayState) -> bool:
    """Whether a ledger paid for the draw of a state.

    Parameters
    ----------
    state : GatewayState
        An open state.
    """
    return bool(_header_of(state)["charged"])


def _header_of(state: GatewayState) -> dict[str, Any]:
    try:
        record = json.loads(state.draw.header)
        if record["format"] == FORMAT and set(record) >= _HEADER:
            return dict(record)
    except (LookupError, TypeError, ValueError):
        pass
    raise DamagedStateError(f"{state.path}: its header is not that of a gateway")


def identity_of(draw: Draw) -> str:
    """Return what the ledger calls the draw: a hash of its salt, which is known before the draw."""
    return _identity_of_salt(draw.salt)


def marked_draws(marker: Path) -> list[str]:
    """Return the commitments of all draws that a marker tells of.

    Parameters
    ----------
    marker : Path
        The file beside the state.
    """
    try:
        lines = marker.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = (re.search(r'"commitment": "([0-9a-f]{64})"', line) for line in lines)
    return [match[1] for match in found if match]


def _marked_places(marker: Path, commitment: str) -> set[str]:
    """Where a draw was made, or moved to, by what its marker tells."""
    try:
        lines = marker.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    found = (re.search(r'"place": "([0-9a-f]{64})"', line) for line in lines if commitment in line)
    return {match[1] for match in found if match}


def _place_of(path: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()


def _check(request: Request, state: GatewayState) -> None:
    """Refuse a state that is not the one of this gateway."""
    path, record = request.path, _header_of(state)
    if record["fingerprint"] != request.mechanism.fingerprint:
        raise GatewayStateError(
            f"{path} is the state of another mechanism: with one draw for two, the noise would "
            "cancel. Give each its own state"
        )
    for name, value in request.settings.items():
        if value is not None and value != record[name]:
            raise GatewayStateError(f"{path} was drawn with another {name}: leave it out")
    if request.ledger is not None:
        charges = [entry for entry in request.ledger.history() if _names(entry.label, state.draw)]
        if not charges:
            raise GatewayStateError(
                f"{path} was never charged to this ledger: it was swapped, or drawn without one"
            )
        for entry in charges:
            if entry.status == "charged":
                request.ledger.settle(entry.id)
    known = marked_draws(request.marker)
    if known and state.draw.commitment not in known:
        raise GatewayStateError(
            f"{path} is not the state that {request.marker.name} tells of: it was swapped. Put the "
            "right one there"
        )
    if _place_of(path) not in _marked_places(request.marker, state.draw.commitment):
        if not request.moved:
            raise GatewayStateError(
                f"{path} was not drawn here, or its marker {request.marker.name} is lost: a copy "
                "of a state that is used twice gives its noise away. If it was moved, and no "
                "other copy is in use, give moved=True"
            )
        _mark(request, state.draw)


def _draw(request: Request, damaged: bool) -> GatewayState:
    """Charge, draw, mark, and only then put the state into place."""
    mechanism, ledger = request.mechanism, request.ledger
    plan = gateway_plan(mechanism, request.resolution, request.measurement_error)
    entry = None

    def prepare() -> tuple[Draw, Head]:
        nonlocal entry
        salt = secrets.token_bytes(SALT_BYTES)
        if ledger is not None:
            entry = ledger.charge(
                mechanism.guarantee,
                fingerprint=mechanism.fingerprint,
                label=f"{request.label} (gateway state {_identity_of_salt(salt)})",
            )
        numbers = drawn_once(plan.noise_factor, mechanism.root.shape[1])
        path = NoisePath(mechanism.dynamics, mechanism.root, plan.path_bits)
        head = Head(0, path.start(numbers, GRID_BITS))
        return Draw(_header(request, plan), salt, numbers), head

    def ready(draw: Draw) -> None:
        _mark(request, draw)
        if damaged:
            _put_aside(request.path)

    create_state(request.path, prepare, ready)
    state = GatewayState(request.path)
    if ledger is not None and entry is not None:
        ledger.settle(entry)
    return state


def _header(request: Request, plan: GatewayPlan) -> str:
    record: dict[str, Any] = {
        "format": FORMAT,
        "created": now(),
        "fingerprint": request.mechanism.fingerprint,
        "charged": request.ledger is not None,
        **request.settings,
        "plan": plan.to_record(),
    }
    return json.dumps(record)


def _refuse_redraw(request: Request, reason: str) -> None:
    """Refuse to draw again, unless the caller asked for it and a ledger pays."""
    if request.redraw and request.ledger is not None:
        return
    raise GatewayStateError(
        f"{reason}. Drawing again for the same trajectory is a second release: put the state back, "
        "or give redraw=True and a ledger, which is charged again"
    )


def _marked(request: Request) -> bool:
    return os.path.lexists(request.marker)


def _mark(request: Request, draw: Draw) -> None:
    """Say beside the state that it was drawn; public, and on the disk before anything is sent."""
    line = {
        "commitment": draw.commitment,
        "place": _place_of(request.path),
        "state": identity_of(draw),
        "time": now(),
    }
    try:
        handle = os.open(request.marker, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # the line before may have been cut short by a crash
            os.write(handle, f"\n{json.dumps(line)}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise GatewayStateError(f"{request.marker} cannot be written: {error.strerror}") from None
    sync_directory(request.marker.parent)


def _put_aside(path: Path) -> None:
    """Rename a damaged state, and its log, to a name that nothing has."""
    suffix = ".aside-" + re.sub(r"[^0-9]", "", now())[:20]
    for name in (path, path.with_name(path.name + "-wal")):
        if os.path.lexists(name):
            os.rename(name, name.with_name(name.name + suffix))


def _charges(request: Request) -> list[Any]:
    """Charges for this label, whatever was drawn for them."""
    if request.ledger is None:
        return []
    pattern = re.compile(re.escape(request.label) + r" \(gateway state [0-9a-f]{32}\)")
    history = request.ledger.history()
    return [entry for entry in history if entry.label and pattern.fullmatch(entry.label)]


def _names(label: str | None, draw: Draw) -> bool:
    return label is not None and label.endswith(f" (gateway state {identity_of(draw)})")


def _identity_of_salt(salt: bytes) -> str:
    return hashlib.sha256(b"identity" + salt).hexdigest()[:32]


def checked_path(state: str | os.PathLike[str]) -> Path:
    """Return the real path of a state, or refuse it."""
    try:
        real = Path(os.path.realpath(state))
    except (TypeError, ValueError) as error:
        raise AffineDPError(f"{state!r} is not a path: {error}") from None
    if not real.parent.is_dir():
        raise GatewayStateError(f"there is no directory {real.parent} for the state")
    return real
