"""The state of an agent: its value, its one draw, and all messages that it used in this run.

The draw is kept apart from the run: a run can begin again from round 0 with the same first message,
which was released already, so that costs nothing.

The first message is on the disk before it is sent, and so is every later one: after a crash the
agent says what it said before.  How the draw is made once and kept is told in
:mod:`affinedp.once`.  A copy of a state that is used too gives nothing away: all that it can say
follows from published messages.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from affinedp.budget.ledger import Ledger
from affinedp.consensus.agents.message import LARGEST_RUN
from affinedp.consensus.agents.noise import AgentNoise
from affinedp.consensus.agents.refusals import FREE
from affinedp.errors import AffineDPError
from affinedp.once.draw import Drawn, Request, header_of, obtain
from affinedp.once.owner import Owner
from affinedp.once.record import Draw, Head
from affinedp.once.state import DrawnState

FIRST_RUN = 1

_HEADER = {"agent", "weights", "noise", "charged"}


class AgentStateError(AffineDPError):
    """A state that is lost or does not fit: nothing is sent."""


class DamagedAgentStateError(AgentStateError):
    """A state whose draw or rounds cannot be trusted any more."""


AGENT = Owner(
    name="agent",
    article="an",
    subject="value",
    occasion="run",
    form="affinedp agent state",
    copies_leak=False,
    error=AgentStateError,
    damaged=DamagedAgentStateError,
)


@dataclass(frozen=True)
class Wanted:
    """What the owner of an agent asks for.

    Attributes
    ----------
    agent : str
        Its name.
    weights : mapping of str to float
        Its neighbours and the weights of the links to them.
    value : float or None
        Secret: x(0).  None if a state holds it already.
    noise : AgentNoise or None
        None takes what the state was drawn with.
    rerun : bool
        Begin the next run.
    run : int or None
        Which run it must be.
    """

    agent: str
    weights: Mapping[str, float]
    value: float | None = field(repr=False)
    noise: AgentNoise | None
    rerun: bool = False
    run: int | None = None

    def next_run(self, now: int) -> int | None:
        """Return the number of the run that begins, or None if the one of the state goes on.

        Parameters
        ----------
        now : int
            The run of the state.
        """
        if self.run is not None:
            return None if self.run == now else self.run
        return now + 1 if self.rerun else None


class AgentState:
    """The state of an agent, open.

    Parameters
    ----------
    file : DrawnState
        It holds the value and the first message, and belongs to this object from now on.
    """

    def __init__(self, file: DrawnState) -> None:
        self._file = file
        # what was read or written last: a hub is asked for it by every one of its neighbours
        self._recent: dict[int, Any] = {}
        try:
            self.header = header_of(file)
            _refuse_incomplete(file, self.header)
            self.value, self.first = (_double(number) for number in file.draw.numbers)
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

    @property
    def run(self) -> int:
        """Which run it is, with the same draw."""
        return _run_of(self._file)

    @property
    def weights(self) -> dict[str, float]:
        """The neighbours and weights of this run."""
        return _weights_of(self._file, self.header)

    def begin(self, run: int, weights: Mapping[str, float]) -> None:
        """Begin another run from round 0: the draw, and with it the first message, stays.

        All that follows is computed from messages, whatever the weights, so this gives nothing more
        away.

        Parameters
        ----------
        run : int
            Its number.
        weights : mapping of str to float
            The neighbours and weights from now on.
        """
        if run > LARGEST_RUN:
            raise AgentStateError(
                f"{self.path} is in run {self.run}, and no number is left for the next one: say "
                "which run to begin (run), such as 1, at all agents"
            )
        self._recent = {}
        self._file.restart(Head(1, (run,)), json.dumps({"weights": dict(weights)}).encode())

    def own(self, number: int) -> float:
        """Return y(t), our message of a round up to the last one.

        Parameters
        ----------
        number : int
            t.
        """
        return self.first if number == 0 else float(self._step(number)["y"])

    def heard(self, number: int, agent: str) -> float:
        """Return the message of a neighbour in a round before the last one.

        Parameters
        ----------
        number : int
            t.
        agent : str
            Its name.
        """
        return float(self._step(number + 1)["heard"][agent])

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
        step = {"y": y, "heard": dict(heard)}
        outputs = json.dumps(step, allow_nan=False).encode()
        # an agent that lost two rounds to a power cut could not catch up with its neighbours
        self._file.record(number, outputs, Head(number + 1, (self.run,)), wait=True)
        self._recent = {number - 1: self._recent.get(number - 1), number: step}

    def close(self) -> None:
        """Close the file and let others open it."""
        self._file.close()

    def _step(self, number: int) -> Any:
        step = self._recent.get(number)
        if step is None:
            outputs = self._file.sent(number)
            assert outputs is not None, "asked for a round that was not reached"
            step = json.loads(outputs)
            if number >= self.round - 1:
                self._recent[number] = step
        return step


def obtain_state(
    wanted: Wanted, path: Path, *, ledger: Ledger | None, label: str, redraw: bool
) -> AgentState:
    """Open the state of an agent, or draw it.

    Parameters
    ----------
    wanted : Wanted
        Whose state it must be.
    path : Path
        Its real path.
    ledger, label, redraw
        As for :class:`~affinedp.once.draw.Request`.
    """

    def draw(label: str) -> Drawn:
        return _draw(wanted, path, ledger, label)

    def check(state: DrawnState, header: dict[str, Any]) -> None:
        _check(wanted, state, header)

    return AgentState(obtain(Request(AGENT, path, ledger, label, redraw, False, draw, check)))


def read_links(path: Path) -> tuple[str, dict[str, float]]:
    """Return whose state it is, and the neighbours and weights of its run.

    Parameters
    ----------
    path : Path
        Its real path.
    """
    state = AgentState(DrawnState(AGENT, path))
    try:
        return state.header["agent"], state.weights
    finally:
        state.close()


def _draw(wanted: Wanted, path: Path, ledger: Ledger | None, label: str) -> Drawn:
    """Charge and draw the first message; what is refused is refused before that."""
    value, noise = wanted.value, wanted.noise
    if value is None:
        raise AgentStateError(f"there is no state {path} yet: give the value to protect")
    if noise is None:
        raise AgentStateError(f"there is no state {path} yet: say which noise to draw")
    mechanism = noise.mechanism(wanted.agent)
    (first,) = mechanism.release([value], ledger=ledger, label=label, bound=noise.bound)
    header = {
        "agent": wanted.agent,
        "weights": dict(wanted.weights),
        "noise": noise.record(),
        "charged": ledger is not None,
    }
    return Drawn(header, (_bits(value), _bits(first)), Head(1, (FIRST_RUN,)))


def _refuse_incomplete(state: DrawnState, header: dict[str, Any]) -> None:
    if len(state.draw.numbers) != 2 or not set(header) >= _HEADER:
        raise DamagedAgentStateError(f"{state.path}: neither header nor draw of an agent")


def _check(wanted: Wanted, state: DrawnState, header: dict[str, Any]) -> None:
    """Refuse a state that is not the one of this agent, its value and its noise."""
    path = state.path
    _refuse_incomplete(state, header)
    if header["agent"] != wanted.agent:
        raise AgentStateError(
            f"{path} is the state of agent {header['agent']!r}, not of {wanted.agent!r}"
        )
    weights = _weights_of(state, header)
    if weights != dict(wanted.weights) and wanted.next_run(_run_of(state)) is None:
        links = ",".join(f"{agent}:{weight!r}" for agent, weight in weights.items())
        raise AgentStateError(
            f"run {_run_of(state)} of {path} was begun with the neighbours {links}: they do not "
            f"change within a run. {FREE}, also with others"
        )
    if wanted.value is not None and wanted.value != _double(state.draw.numbers[0]):
        raise AgentStateError(
            f"the value is not the one for which {path} was drawn.  The run goes on with the old "
            "one; a new value needs a new state, which is a new release"
        )
    given = {} if wanted.noise is None else wanted.noise.given()
    for name, asked in given.items():
        if header["noise"].get(name) != asked:
            raise AgentStateError(
                f"{path} was drawn with {name} = {header['noise'].get(name)}, not {asked}"
            )


def _run_of(state: DrawnState) -> int:
    numbers = state.head.numbers
    return numbers[0] if numbers else FIRST_RUN


def _weights_of(state: DrawnState, header: dict[str, Any]) -> dict[str, float]:
    """Those of the run; the first one has those of the draw."""
    begun = state.sent(0)
    return dict(header["weights"] if begun is None else json.loads(begun)["weights"])


def _bits(value: float) -> int:
    """The bits of a double as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
