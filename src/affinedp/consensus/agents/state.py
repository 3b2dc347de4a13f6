"""The state of an agent: its value, its one draw, and all messages that it used.

The first message is on the disk before it is sent, and so is every later one: after a crash the
agent says what it said before.  A second draw for the same value is a second release.  So the
draw is charged to the ledger before it is made, and a marker beside the state says that it was
made: a state that is lost or damaged is not drawn again unless the owner asks for it and a ledger
pays.

The file is that of a gateway: for its owner only, locked while it is open, committed and sealed.
Unlike with a gateway, a copy that is used too gives nothing away: all that it can say follows
from published messages.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from affinedp.budget.ledger_file import now, sync_directory
from affinedp.consensus.agents.noise import AgentNoise
from affinedp.control.gateway.draw import identity_of, marked_draws
from affinedp.control.gateway.state import (
    SALT_BYTES,
    DamagedStateError,
    Draw,
    GatewayState,
    Head,
    create_state,
)
from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.budget.ledger import Ledger

FORMAT = "affinedp agent state"


class AgentStateError(AffineDPError):
    """A state that is lost or does not fit: nothing is sent."""


@dataclass(frozen=True)
class Request:
    """What the owner of an agent asks for.

    Attributes
    ----------
    agent : str
        Its name.
    weights : mapping of str to float
        Its neighbours and the weights of the links to them.
    path : Path
        The real path of the state.
    value : float or None
        Secret: x(0).  None if a state holds it already.
    noise : AgentNoise or None
        None takes what the state was drawn with.
    ledger : Ledger or None
        Who keeps count.
    label : str
        What the ledger calls this run.
    redraw : bool
        Whether a lost or damaged state may be drawn again, at the ledger's expense.
    """

    agent: str
    weights: Mapping[str, float]
    path: Path
    value: float | None = field(repr=False)
    noise: AgentNoise | None
    ledger: Ledger | None
    label: str
    redraw: bool

    @property
    def marker(self) -> Path:
        """The file that says that a draw was made."""
        return marker_of(self.path)


class AgentState:
    """An open state.

    Parameters
    ----------
    path : Path
        An existing state, its real path.
    """

    def __init__(self, path: Path) -> None:
        self._file = GatewayState(path)
        try:
            self.header = _header(self._file)
            self.value, self.first = (_double(number) for number in self._file.draw.numbers)
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._file.path

    @property
    def draw(self) -> Draw:
        """The draw, which is secret."""
        return self._file.draw

    @property
    def round(self) -> int:
        """The last round whose message is on the disk."""
        return self._file.head.next_step - 1

    def own(self, number: int) -> float:
        """Return y(t), our message of a round up to the last one.

        Parameters
        ----------
        number : int
            t.
        """
        return self.first if number == 0 else float(self._step(number)["y"])

    def heard(self, number: int) -> dict[str, float]:
        """Return the messages of all neighbours in a round before the last one.

        Parameters
        ----------
        number : int
            t.
        """
        return {agent: float(y) for agent, y in self._step(number + 1)["heard"].items()}

    def record(self, y: float, heard: Mapping[str, float]) -> None:
        """Put the message of the next round on the disk; send it only afterwards.

        Parameters
        ----------
        y : float
            The message.
        heard : mapping of str to float
            The messages of all neighbours in the round before, from which it follows.
        """
        number = self.round + 1
        outputs = json.dumps({"y": y, "heard": dict(heard)}, allow_nan=False).encode()
        self._file.record(number, outputs, Head(number + 1, ()))
        _to_disk(self.path)

    def close(self) -> None:
        """Close the file and let others open it."""
        self._file.close()

    def _step(self, number: int) -> Any:
        outputs = self._file.sent(number)
        assert outputs is not None, "asked for a round that was not reached"
        return json.loads(outputs)


def obtain_state(request: Request) -> AgentState:
    """Open the state that was asked for, or draw it.

    Parameters
    ----------
    request : Request
        What the owner wants.
    """
    damaged = False
    if os.path.lexists(request.path):
        try:
            state = AgentState(request.path)
        except DamagedStateError as damage:
            if not os.path.lexists(request.marker):
                raise AgentStateError(f"{damage}; it is left as it is") from None
            _refuse_redraw(request, str(damage))
            damaged = True
        else:
            try:
                _check(request, state)
            except BaseException:
                state.close()
                raise
            return state
    elif os.path.lexists(request.marker):
        _refuse_redraw(request, f"{request.path} is lost: {request.marker.name} says it was drawn")
    elif _charged(request):
        _refuse_redraw(
            request,
            f"there is no state {request.path}, but the ledger was charged for {request.label!r} "
            "(give another label if this is another run)",
        )
    return _draw(request, damaged)


def marker_of(path: Path) -> Path:
    """Return the file that says that a draw was made for a state."""
    return path.with_name(path.name + ".drawn")


def _draw(request: Request, damaged: bool) -> AgentState:
    """Charge, draw, mark, and only then put the state into place."""
    value, noise = request.value, request.noise
    if value is None:
        raise AgentStateError(f"there is no state {request.path} yet: give the value to protect")
    if noise is None:
        raise AgentStateError(f"there is no state {request.path} yet: say which noise to draw")
    mechanism = noise.mechanism()
    header = {
        "format": FORMAT,
        "created": now(),
        "agent": request.agent,
        "weights": dict(request.weights),
        "noise": noise.record(),
        "charged": request.ledger is not None,
    }

    def prepare() -> tuple[Draw, Head]:
        salt = secrets.token_bytes(SALT_BYTES)
        identity = identity_of(Draw("", salt, ()))
        (first,) = mechanism.release(
            [value],
            ledger=request.ledger,
            label=f"{request.label} (agent state {identity})",
            bound=noise.bound,
        )
        return Draw(json.dumps(header), salt, (_bits(value), _bits(first))), Head(1, ())

    def ready(draw: Draw) -> None:
        _mark(request.marker, draw)
        if damaged:
            _put_aside(request.path)

    create_state(request.path, prepare, ready)
    return AgentState(request.path)


def _check(request: Request, state: AgentState) -> None:
    """Refuse a state that is not the one of this agent, its value and its noise."""
    path, header = request.path, state.header
    if header["agent"] != request.agent:
        raise AgentStateError(
            f"{path} is the state of agent {header['agent']!r}, not of {request.agent!r}"
        )
    if header["weights"] != dict(request.weights):
        links = ",".join(f"{agent}:{weight!r}" for agent, weight in header["weights"].items())
        raise AgentStateError(f"{path} was begun with the neighbours {links}: they do not change")
    if request.value is not None and request.value != state.value:
        raise AgentStateError(
            f"the value is not the one for which {path} was drawn.  The run goes on with the old "
            "one; a new value needs a new state, which is a new release"
        )
    given = {} if request.noise is None else request.noise.given()
    for name, wanted in given.items():
        if header["noise"].get(name) != wanted:
            raise AgentStateError(
                f"{path} was drawn with {name} = {header['noise'].get(name)}, not {wanted}"
            )
    if request.ledger is not None:
        ours = f" (agent state {identity_of(state.draw)})"
        labels = [entry.label or "" for entry in request.ledger.history()]
        if not any(label.endswith(ours) for label in labels):
            raise AgentStateError(
                f"{path} was never charged to this ledger: it was swapped, or drawn without one"
            )
    known = marked_draws(request.marker)
    if not known:
        _mark(request.marker, state.draw)
    elif state.draw.commitment not in known:
        raise AgentStateError(
            f"{path} is not the state that {request.marker.name} tells of: it was swapped. Put the "
            "right one there"
        )


def _refuse_redraw(request: Request, reason: str) -> None:
    """Refuse to draw again, unless the owner asked for it and a ledger pays."""
    if request.redraw and request.ledger is not None:
        return
    raise AgentStateError(
        f"{reason}. Drawing again for the same value is a second release: put the state back, or "
        "ask for a redraw and give a ledger, which is charged again"
    )


def _charged(request: Request) -> bool:
    """Whether the ledger was charged for this label, whatever was drawn for it."""
    if request.ledger is None:
        return False
    pattern = re.compile(re.escape(request.label) + r" \(agent state [0-9a-f]{32}\)")
    return any(pattern.fullmatch(entry.label or "") for entry in request.ledger.history())


def _mark(marker: Path, draw: Draw) -> None:
    """Say beside the state that it was drawn; public, and on the disk before anything is sent."""
    line = {"commitment": draw.commitment, "state": identity_of(draw), "time": now()}
    try:
        with open(marker, "a", encoding="utf-8") as file:
            # the line before may have been cut short by a crash
            file.write(f"\n{json.dumps(line)}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise AgentStateError(f"{marker} cannot be written: {error.strerror}") from None
    sync_directory(marker.parent)


def _put_aside(path: Path) -> None:
    """Rename a damaged state, and its log, to a name that nothing has."""
    suffix = ".aside-" + re.sub(r"[^0-9]", "", now())[:20]
    for name in (path, _log_of(path)):
        if os.path.lexists(name):
            os.rename(name, name.with_name(name.name + suffix))


def _to_disk(path: Path) -> None:
    """Wait until the last round is on the disk.

    The file by itself waits for some steps together; a gateway may skip those that a power cut
    loses, but an agent that lost two rounds cannot catch up with its neighbours.
    """
    try:
        handle = os.open(_log_of(path), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise AgentStateError(f"{path} cannot be written: {error.strerror}") from None


def _log_of(path: Path) -> Path:
    """The log beside a state, which holds what was written last."""
    return path.with_name(path.name + "-wal")


def _header(file: GatewayState) -> dict[str, Any]:
    try:
        record = json.loads(file.draw.header)
        if record["format"] == FORMAT and len(file.draw.numbers) == 2:
            return dict(record)
    except (LookupError, TypeError, ValueError):
        pass
    raise AgentStateError(f"{file.path} is not the state of an agent; it is left as it is")


def _bits(value: float) -> int:
    """The bits of a double as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
