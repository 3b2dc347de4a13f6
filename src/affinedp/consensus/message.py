"""What an agent publishes, and how the next message follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from affinedp.errors import AffineDPError

LONGEST_NAME = 64
LARGEST_RUN = (1 << 53) - 1  # the largest whole number that every JSON parser keeps
FREE = "The draw is kept, and to begin again with it (rerun) costs nothing"


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


# ---------------------------------------------------------------------- names and weights


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
    """Return a finite number, or refuse it without showing it."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        number = math.inf
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise AffineDPError(f"{what} must be a number within double precision")
    return number
