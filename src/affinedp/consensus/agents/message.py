"""What an agent publishes, and how the next message follows from it.

An agent speaks to each of its neighbours on a topic of its own, so that a message stays small,
however many there are.  On the wire it is ``{"agent":"3","to":"1","run":1,"round":4,"rounds":30,
"y":1.5,"previous":2.0,"weight":0.25}``.  Doubles survive the way there and back bit for bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from affinedp.consensus.agents.refusals import FREE
from affinedp.errors import AffineDPError
from affinedp.wire.messages import MalformedMessageError, read_count, read_number, read_object

LONGEST_NAME = 64

_KEYS = ("agent", "to", "run", "round", "rounds", "y", "previous", "weight")


@dataclass(frozen=True)
class AgentMessage:
    """What an agent says to a neighbour, in public.

    Attributes
    ----------
    agent : str
        Who.
    to : str
        To whom.
    run : int
        Which run; one that begins again with the same draw has a higher number.
    round : int
        t.
    rounds : int or None
        How many rounds the sender goes; None for no end.
    y : float
        y(t), the same for all neighbours.
    previous : float or None
        y(t−1), for neighbours that are one round behind; None in round 0.
    weight : float
        The weight of the link between the two, so that they can compare; 0 if there is none.
    """

    agent: str
    to: str
    run: int
    round: int
    rounds: int | None
    y: float
    previous: float | None
    weight: float


def next_message(own: float, heard: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return y_i(t+1) = y_i(t) + Σ_j w_ij (y_j(t) − y_i(t)) (section VI of the paper).

    The sum is rounded once, so the order of the neighbours does not matter.

    Parameters
    ----------
    own : float
        y_i(t).
    heard : mapping of str to float
        y_j(t) of every neighbour.
    weights : mapping of str to float
        w_ij of every neighbour.

    Returns
    -------
    float

    Examples
    --------
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


def encode(message: AgentMessage) -> bytes:
    """Write a message; the same message always gives the same bytes.

    Parameters
    ----------
    message : AgentMessage
        What to write.

    Returns
    -------
    bytes

    Examples
    --------
    >>> encode(AgentMessage("3", "1", 1, 0, None, 1.5, None, 0.25)).decode()
    '{"agent":"3","to":"1","run":1,"round":0,"rounds":null,"y":1.5,"previous":null,"weight":0.25}'
    """
    record = {key: getattr(message, key) for key in _KEYS}
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()


def decode(payload: bytes, agent: str, to: str) -> AgentMessage:
    """Read a message, or refuse it.

    Parameters
    ----------
    payload : bytes
        What arrived.
    agent, to : str
        Who must have sent it, to whom; keys that a message does not have are ignored.

    Returns
    -------
    AgentMessage

    Raises
    ------
    MalformedMessageError

    Examples
    --------
    >>> start = b'{"agent":"3","to":"1","run":1,"round":0,"rounds":9,"previous":null,"weight":1,'
    >>> decode(start + b'"y":2}', "3", "1").y
    2.0
    >>> decode(start + b'"y":NaN}', "3", "1")
    Traceback (most recent call last):
    affinedp.wire.messages.MalformedMessageError: NaN is no number
    """
    return read_message(read_object(payload, _KEYS), agent, to)


def read_message(record: Mapping[str, Any], agent: str, to: str) -> AgentMessage:
    """Read a message from a JSON object, or refuse it.

    Parameters
    ----------
    record : mapping of str to object
        What arrived.
    agent, to : str
        As for :func:`decode`.
    """
    if not record.keys() >= set(_KEYS):
        raise MalformedMessageError(f"it must be an object with {', '.join(_KEYS)}")
    if record["agent"] != agent or record["to"] != to:
        raise MalformedMessageError(f"it is not of agent {agent!r} to {to!r}, whose topic it is on")
    t = read_count(record["round"], "round")
    if (record["previous"] is None) != (t == 0):
        raise MalformedMessageError("previous must be a number, and null in round 0")
    rounds = record["rounds"]
    return AgentMessage(
        agent,
        to,
        read_count(record["run"], "run"),
        t,
        None if rounds is None else read_count(rounds, "rounds"),
        read_number(record["y"], "y"),
        None if t == 0 else read_number(record["previous"], "previous"),
        read_number(record["weight"], "weight"),
    )


# ---------------------------------------------------------------------- names and weights


def checked_name(name: str) -> str:
    """Return the name of an agent, or refuse it.

    Parameters
    ----------
    name : str
        Letters, digits, ``_``, ``-`` and ``.``: it is a part of a topic and of lists.

    Returns
    -------
    str

    Examples
    --------
    >>> checked_name("agent-3")
    'agent-3'
    """
    is_text = isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME
    if not is_text or not all(c.isalnum() or c in "_-." for c in name):
        raise AffineDPError(
            f"{str(name)[:LONGEST_NAME]!r} is no name of an agent: use 1 to {LONGEST_NAME} "
            "letters, digits, _, - and ."
        )
    return name


def checked_weights(name: str, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of the links of an agent, sorted by neighbour, or refuse them.

    Parameters
    ----------
    name : str
        The agent.
    weights : mapping of str to float
        One positive weight for each neighbour.

    Returns
    -------
    dict of str to float

    Examples
    --------
    >>> checked_weights("3", {"5": 0.25, "1": 0.5})
    {'1': 0.5, '5': 0.25}
    """
    if not isinstance(weights, Mapping) or not weights:
        raise AffineDPError(f"agent {name!r} has no neighbours: give their names and weights")
    found = {}
    for agent in sorted(weights, key=str):
        if checked_name(agent) == name:
            raise AffineDPError(f"agent {name!r} is among its own neighbours: leave it out")
        number = checked_number(weights[agent], f"the weight of agent {agent!r}")
        if not number > 0:
            raise AffineDPError(f"the weight of agent {agent!r} must be positive, not {number:g}")
        found[agent] = number
    total = math.fsum(found.values())
    if total >= 2:
        # the largest eigenvalue of the Laplacian exceeds its largest diagonal entry
        raise AffineDPError(
            f"the weights of agent {name!r} add up to {total:g}; from 2 on the messages diverge. "
            "Below 1 at every agent they certainly do not"
        )
    return found


def checked_number(value: float, what: str) -> float:
    """Return a finite number, or refuse it without showing it.

    Parameters
    ----------
    value : float
        It may be secret.
    what : str
        What to call it.

    Returns
    -------
    float

    Examples
    --------
    >>> checked_number(3, "the value")
    3.0
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        number = math.inf
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise AffineDPError(f"{what} must be a number within double precision")
    return number
