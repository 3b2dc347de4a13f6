"""One agent of private average consensus (section VI of the paper), without the network.

Agent i sends y_i(t) = x_i(t) + γ_i with one draw γ_i, and x_i moves by Σ_j w_ij (y_j(t) − y_i(t)).
Subtracting the constant γ_i on both sides,

    y_i(t+1) = y_i(t) + Σ_j w_ij (y_j(t) − y_i(t)):

a message follows from messages that everyone has seen.  So only y_i(0) is a release.  It is made
once, safe in floating point, and the agent computes all later messages from published numbers
alone: whatever the horizon, and however the other agents behave, nothing else about its value gets
out, not even through rounding.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from affinedp.arrays import yes_or_no
from affinedp.budget.ledger import Ledger
from affinedp.consensus.one_draw import AgentNoise
from affinedp.consensus.runs import Readout, noise_share
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_number, whole_number
from affinedp.privacy.guarantee import Guarantee
from affinedp.stream.run import Asked, Beginning, Held, Memory, Owner, Run, RunError

LONGEST_NAME = 64
LARGEST_RUN = (1 << 53) - 1  # the largest whole number that every JSON parser keeps
FREE = "The draw is kept, and to begin again with it (rerun) costs nothing"
Heard = Literal["new", "repeated", "late", "own", "of an earlier run"]

# a copy that is used too gives nothing away: all that it can say follows from published messages
AGENT = Owner("agent", "value", copies_leak=False)
FIRST_RUN = 1


@dataclass(frozen=True)
class AgentMessage:
    """What an agent says to a neighbour, in public."""

    agent: str
    to: str
    run: int
    round: int
    rounds: int | None
    y: float
    previous: float | None
    weight: float

    def __post_init__(self) -> None:
        checked_name(self.agent)
        checked_name(self.to)
        whole_number(self.run, "run", 0, LARGEST_RUN)
        t = whole_number(self.round, "round", 0, LARGEST_RUN)
        if self.rounds is not None:
            whole_number(self.rounds, "rounds", 0, LARGEST_RUN)
        said = [self.y, self.weight, *([] if self.previous is None else [self.previous])]
        if not all(type(value) is float and math.isfinite(value) for value in said):
            raise AffineDPError(f"agent {self.agent!r} sent what is no number in round {t}")
        if t == 0 and self.previous is not None:
            raise AffineDPError("there is no message before that of round 0")


def next_message(own: float, heard: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return y_i(t+1) = y_i(t) + Σ_j w_ij (y_j(t) − y_i(t)) (section VI of the paper).

    The sum is rounded once, so the order of the neighbours does not matter.

    >>> next_message(10.0, {"1": 2.0, "5": 6.0}, {"1": 0.25, "5": 0.25})
    7.0
    """
    try:
        moved = math.fsum([own, *(weights[agent] * (heard[agent] - own) for agent in weights)])
    except (OverflowError, ValueError):  # beyond double precision, or ∞ − ∞
        moved = math.inf
    if not math.isfinite(moved):
        raise AffineDPError(
            "the messages grow beyond double precision: the weights are too large for this "
            f"network, or a neighbour's message was forged. {FREE}"
        )
    return moved


def checked_name(name: str) -> str:
    """Return the name of an agent, or refuse it."""
    is_text = isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME
    if not is_text or not all(c.isalnum() or c in "_-." for c in name):
        raise AffineDPError(
            f"{str(name)[:LONGEST_NAME]!r} is no name of an agent: use 1 to {LONGEST_NAME} "
            "letters, digits, _, - and ."
        )
    return name


def checked_weights(name: str, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of the links of an agent, sorted by neighbour, or refuse them."""
    if not isinstance(weights, Mapping) or not weights:
        raise AffineDPError(f"agent {name!r} has no neighbours: give their names and weights")
    found = {}
    for agent in sorted(weights, key=str):
        if checked_name(agent) == name:
            raise AffineDPError(f"agent {name!r} is among its own neighbours: leave it out")
        what = f"the weight of agent {agent!r}"
        found[agent] = real_number(weights[agent], what, positive=True)
    total = math.fsum(found.values())
    if total >= 2:
        # the largest eigenvalue of the Laplacian exceeds its largest diagonal entry
        raise AffineDPError(
            f"the weights of agent {name!r} add up to {total:g}; from 2 on the messages diverge. "
            "Below 1 at every agent they certainly do not"
        )
    return found


class Agent(Held):
    """An agent that knows its value and draws its noise once.

    Parameters
    ----------
    name : str
        Its name, also a part of its topic.
    weights : mapping of str to float
        Its neighbours, and the weight of the link to each; both ends use the same.
    state : str or Path
        Its file.  It is created, for its owner only, if it does not exist.  It is secret, and
        losing it ends the run.
    value : float, optional
        x(0); may be left out if the state exists.
    noise : AgentNoise, optional
        The noise to draw; may be left out if the state exists.
    ledger : Ledger, optional
        Charged once, before the draw.  Without one nothing keeps count.
    label : str, optional
        What the ledger calls this run; by default the names of the agent and the file.
    redraw : bool
        Draw again if the state is lost or damaged.  That is a second release: it needs a ledger,
        which is charged again.
    rerun : bool
        Begin again from round 0 with the same draw, as the next run.  It says the same first
        message, and all others follow from messages, so this is free, also with other neighbours
        or weights.  All neighbours must do so.
    run : int, optional
        Which run it must be: another one than the state is in begins from round 0, the same one
        goes on.  For agents that count their runs differently, and for commands that are repeated.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> noise = AgentNoise(epsilon=1.0, delta=0.01)
    >>> one = Agent("1", {"2": 0.5}, state=f"{folder.name}/1.db", value=10.0, noise=noise)
    >>> two = Agent("2", {"1": 0.5}, state=f"{folder.name}/2.db", value=30.0, noise=noise)
    >>> sent = one.message_to("2"), two.message_to("1")
    >>> two.hear(sent[0]), one.hear(sent[1]), one.advance(), two.advance()
    ('new', 'new', True, True)
    >>> abs(one.y - two.y) < 1e-9
    True
    >>> round(one.readout("state") + two.readout("state"), 9)
    40.0
    >>> one.close(), two.close()
    (None, None)
    """

    def __init__(
        self,
        name: str,
        weights: Mapping[str, float],
        *,
        state: str | os.PathLike[str],
        value: float | None = None,
        noise: AgentNoise | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        redraw: bool = False,
        rerun: bool = False,
        run: int | None = None,
    ) -> None:
        yes_or_no(rerun, "rerun")
        if run is not None and (rerun or type(run) is not int or not 0 < run <= LARGEST_RUN):
            raise AffineDPError("run is a whole number from 1 on, without rerun")
        if not isinstance(noise, AgentNoise | None):
            raise AffineDPError(f"noise must be an AgentNoise, not {type(noise).__name__}")
        if not isinstance(state, str | os.PathLike):
            raise AffineDPError(f"state must be a path, not {type(state).__name__}")
        again = rerun and os.path.exists(state)
        self._name = checked_name(name)
        if label is None:
            label = f"agent {self._name}, {Path(state).name}"
        asked = Asked(ledger, label, redraw)
        self._weights = checked_weights(self._name, weights)
        secret = None if value is None else real_number(value, "the value")

        def begin() -> Beginning:
            return _beginning(self._name, self._weights, secret, noise)

        def check(settings: Mapping[str, Any], memory: Memory) -> None:
            _check_noise(self._name, secret, noise, settings, memory)
            if memory["weights"] != self._weights and _next_run(memory["run"], again, run) is None:
                links = ",".join(f"{one}:{weight!r}" for one, weight in memory["weights"].items())
                raise RunError(
                    f"run {memory['run']} was begun with the neighbours {links}: they do not "
                    f"change within a run. {FREE}, also with others"
                )

        self._set_up(Run(state, AGENT, begin, check, asked))
        begun = _next_run(self.run, again, run)
        if begun is not None:
            if begun > LARGEST_RUN:
                self.close()
                raise RunError(
                    f"{self._run.path} is in run {self.run}, and no number is left for the next "
                    "one: say which run to begin (run), such as 1, at all agents"
                )
            memory = {**self._run.memory, "run": begun, "weights": dict(self._weights)}
            self._run.commit(1, memory, forget=self._run.until)
        self._y = self._own(self.round)

    def _set_up(self, run: Run) -> None:
        self._run = run
        # what was read or written last: a hub is asked for it by every one of its neighbours
        self._recent: dict[int, Any] = {}
        self._heard: dict[tuple[str, int], float] = {}  # of this round and the next
        self._rounds: dict[str, int] = {}

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def weights(self) -> Mapping[str, float]:
        """Its neighbours, and the weight of the link to each."""
        return dict(self._weights)

    @property
    def round(self) -> int:
        """The last round whose message is ready."""
        return self._run.until - 1

    @property
    def run(self) -> int:
        """Which run it is in; all runs of a state have the same draw."""
        return int(self._run.memory["run"])

    @property
    def y(self) -> float:
        """y(t), the public number of this round."""
        return self._y

    def message_to(self, neighbour: str, rounds: int | None = None) -> AgentMessage:
        """Return what to publish for a neighbour: the same however often it is asked for.

        Parameters
        ----------
        neighbour : str
            Its name.
        rounds : int, optional
            How many rounds this agent goes, so that the two can compare.
        """
        t = self.round
        previous = self._own(t - 1) if t else None
        weight = self._weights.get(checked_name(neighbour), 0.0)
        return AgentMessage(self._name, neighbour, self.run, t, rounds, self._y, previous, weight)

    @property
    def missing(self) -> tuple[str, ...]:
        """The neighbours whose messages of this round have not come yet."""
        t = self.round
        return tuple(agent for agent in self._weights if (agent, t) not in self._heard)

    @property
    def noise(self) -> AgentNoise:
        """What was drawn with, as the state says."""
        return AgentNoise(**self._run.settings["noise"])

    @property
    def guarantee(self) -> Guarantee:
        """What all messages together promise, however long it runs (Theorem 4)."""
        promise = self.noise.mechanism(self._name).guarantee
        warnings = ["it is about messages: a state or a corrected read-out reveals the draw"]
        warnings += self._run.warnings
        return replace(promise, warnings=(*promise.warnings, *warnings))

    def hear(self, message: AgentMessage) -> Heard:
        """Take note of a message; what was heard before, or comes late, changes nothing.

        Parameters
        ----------
        message : AgentMessage
            Of a neighbour, or one that came back from the broker.

        Returns
        -------
        {"new", "repeated", "late", "own", "of an earlier run"}
            A message is late if it is of a round before ours: its sender may wait for our message.

        Raises
        ------
        AffineDPError
            If it contradicts what its sender said before or cannot be, or if its sender uses
            another weight for the link between us, or is in a later run.
        """
        if not isinstance(message, AgentMessage):
            raise AffineDPError(f"an agent hears an AgentMessage, not {type(message).__name__}")
        if message.agent == self._name:
            if message.run >= self.run:
                self._check_own(message)
            return "own"
        if message.to != self._name:
            raise AffineDPError(f"this message is for agent {message.to!r}, not {self._name!r}")
        if message.run < self.run:
            return "of an earlier run"
        if message.run > self.run:
            raise AffineDPError(
                f"agent {message.agent!r} is in run {message.run}, this one in run {self.run}: "
                f"begin run {message.run} here too (--run {message.run}). {FREE}"
            )
        self._check_weight(message)
        if message.round > self.round + 1:
            raise AffineDPError(
                f"agent {message.agent!r} is at round {message.round}, which it cannot reach "
                f"without our message of round {message.round - 1}; we are at round {self.round}. "
                f"{self._run.path} is an old copy, the other one belongs to another run, or the "
                f"message is forged. {FREE}"
            )
        known = (message.agent, message.round) in self._heard
        self._note(message.agent, message.round, message.y)
        if message.previous is not None:
            self._note(message.agent, message.round - 1, message.previous)
        self._rounds[message.agent] = max(message.round, self._rounds.get(message.agent, 0))
        if message.round < self.round:
            return "late"
        return "repeated" if known else "new"

    def advance(self) -> bool:
        """Go to the next round, if all neighbours were heard; its message is on the disk then.

        Returns
        -------
        bool
            Whether there is a new message to publish.
        """
        t = self.round
        if not all((agent, t) in self._heard for agent in self._weights):
            return False
        heard = {agent: self._heard[agent, t] for agent in self._weights}
        y = next_message(self._y, heard, self._weights)
        step = {"y": y, "heard": heard}
        with self._run.turn():
            self._run.keep(t + 1, json.dumps(step, allow_nan=False).encode())
            # an agent that lost two rounds to a power cut could not catch up with its neighbours
            self._run.commit(t + 2, self._run.memory)
        self._recent = {t: self._recent.get(t), t + 1: step}
        self._y = y
        for agent in heard:
            del self._heard[agent, t]
        return True

    def all_reached(self, number: int) -> bool:
        """Whether all neighbours were heard in this round or a later one.

        Parameters
        ----------
        number : int
            The round.
        """
        return all(self._rounds.get(agent, -1) >= number for agent in self._weights)

    def readout(self, readout: Readout, agents: int | None = None) -> float:
        """Return the estimate of the average, for the owner of this agent.

        Only the message may be shown to anyone: the others reveal the draw, and with it the value.

        Parameters
        ----------
        readout : {"state", "message", "corrected"}
            x_i as in the paper; y_i; or y_i − γ_i/n, which has the least mean-square error.
        agents : int, optional
            n, for the corrected one.
        """
        n = 2
        if isinstance(readout, str) and readout == "corrected":
            n = whole_number(agents, "for the corrected read-out the number of agents", 2)
        share = noise_share(readout, min(n, LARGEST_RUN))
        memory = self._run.memory
        drawn = float.fromhex(memory["first"]) - float.fromhex(memory["value"])
        return self._y - share * drawn

    def __repr__(self) -> str:
        where = f"run {self.run}, round {self.round}"
        return f"Agent({self._name!r}, state={str(self._run.path)!r}, {where})"

    def _check_own(self, message: AgentMessage) -> None:
        """Somebody else under our name, or a state that was swapped, shows here."""
        said = [(message.round, message.y), (message.round - 1, message.previous)]
        for t, y in said:
            later = message.run > self.run or t > self.round
            if t >= 0 and (later or self._own(t) != y):
                raise AffineDPError(
                    f"somebody publishes round {t} as agent {self._name!r} with a value that is "
                    "not ours: it runs twice, its state is an old copy, or someone else uses its "
                    "name"
                )

    def _check_weight(self, message: AgentMessage) -> None:
        ours, theirs = self._weights.get(message.agent, 0.0), message.weight
        if ours == theirs and ours > 0:
            return
        raise AffineDPError(
            f"agent {self._name!r} uses the weight {ours!r} for its link with agent "
            f"{message.agent!r}, which uses {theirs!r} (0 without a link): with different weights "
            f"the average is not kept. Give both the same. {FREE}"
        )

    def _own(self, t: int) -> float:
        """y(t), our message of a round up to the last one."""
        return float(self._round(t)["y"]) if t else float.fromhex(self._run.memory["first"])

    def _said(self, t: int, agent: str) -> float:
        """The message of a neighbour in a round before the last one."""
        return float(self._round(t + 1)["heard"][agent])

    def _round(self, t: int) -> Any:
        step = self._recent.get(t)
        if step is None:
            kept = self._run.sent(t)
            assert kept is not None, "asked for a round that was not reached"
            step = json.loads(kept)
            if t >= self.round - 1:
                self._recent[t] = step
        return step

    def _note(self, agent: str, t: int, y: float) -> None:
        known = self._heard.get((agent, t)) if t >= self.round else self._said(t, agent)
        if known is not None and known != y:
            raise AffineDPError(
                f"agent {agent!r} said {known!r} in round {t}, and now says {y!r}: it lost its "
                "state, someone else uses its name, or it cheats. All agents can begin again; "
                f"{FREE[0].lower()}{FREE[1:]}. Keys keep forged messages out"
            )
        if t >= self.round:
            self._heard[agent, t] = y


def read_state(state: str | os.PathLike[str], value: float | None = None) -> Agent:
    """Return the agent of an existing state as it is; one that runs goes on."""
    run = Run.look(state, AGENT)
    agent = Agent.__new__(Agent)
    agent._name, agent._weights = run.settings["agent"], dict(run.memory["weights"])
    _check_noise(agent._name, value, None, run.settings, run.memory)
    agent._set_up(run)
    agent._y = agent._own(agent.round)
    return agent


def _beginning(
    agent: str, weights: Mapping[str, float], value: float | None, noise: AgentNoise | None
) -> Beginning:
    """What is drawn: the first message; what is refused is refused before that."""
    if value is None:
        raise RunError("there is no state yet: give the value to protect")
    if noise is None:
        raise RunError("there is no state yet: say which noise to draw")
    mechanism = noise.mechanism(agent)

    def draw(ledger: Ledger | None, label: str) -> Memory:
        (first,) = mechanism.release([value], ledger=ledger, label=label, bound=noise.bound)
        return {
            "value": value.hex(),
            "first": float(first).hex(),
            "run": FIRST_RUN,
            "weights": dict(weights),
        }

    settings = {"agent": agent, "noise": noise.record()}
    return Beginning(settings, draw, until=1)


def _check_noise(
    agent: str,
    value: float | None,
    noise: AgentNoise | None,
    settings: Mapping[str, Any],
    memory: Memory,
) -> None:
    """Refuse a state that is not the one of this agent, its value and its noise."""
    if settings["agent"] != agent:
        raise RunError(f"this is the state of agent {settings['agent']!r}, not of {agent!r}")
    if value is not None and value.hex() != memory["value"]:
        raise RunError(
            "the value is not the one for which this state was drawn.  The run goes on with the "
            "old one; a new value needs a new state, which is a new release"
        )
    for name, asked in ({} if noise is None else noise.given()).items():
        drawn = settings["noise"].get(name)
        if drawn != asked:
            raise RunError(f"this state was drawn with {name} = {drawn}, not {asked}")


def _next_run(now: int, again: bool, run: int | None) -> int | None:
    """The number of the run that begins, or None if the one of the state goes on."""
    if run is not None:
        return None if run == now else run
    return now + 1 if again else None
