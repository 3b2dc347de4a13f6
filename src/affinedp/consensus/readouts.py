"""What an agent reads off as its estimate of the average, and who may see it.

Every read-out is y_i − c γ_i, the message minus a share c of the agent's own draw:

* ``"state"``      c = 1    x_i itself, as in the paper;
* ``"message"``    c = 0    y_i, which everyone sees anyway;
* ``"corrected"``  c = 1/n  private to agent i, and the least mean-square error of the three.

The messages run plain consensus, y(t+1) = P y(t) with P = I − L, so a read-out with share c ends
at a mean-square error of ((1−c)²/n + c²(1−1/n)) times the total variance of the noise.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, NoReturn

from affinedp.errors import AffineDPError

Readout = Literal["state", "message", "corrected"]

READOUTS: tuple[Readout, ...] = ("state", "message", "corrected")


def noise_share(readout: str, n: int) -> float:
    """Return c, the share of its own draw that an agent takes off its message.

    >>> [noise_share(readout, 10) for readout in READOUTS]
    [1.0, 0.0, 0.1]
    """
    shares = {"state": 1.0, "message": 0.0, "corrected": 1.0 / n}
    if not isinstance(readout, Hashable) or readout not in shares:
        raise AffineDPError(f"readout must be one of {', '.join(READOUTS)}, not {readout!r}")
    return shares[readout]


def limit_factor(readout: str, n: int) -> float:
    """Return the mean-square error in the limit, in units of the total variance of the noise.

    >>> [round(limit_factor(readout, 10), 12) for readout in READOUTS]
    [0.9, 0.1, 0.09]
    """
    share = noise_share(readout, n)
    return (1 - share) ** 2 / n + share**2 * (1 - 1 / n)


def refuse_to_publish(readout: str) -> NoReturn:
    """Say why a simulated read-out is not published.

    >>> refuse_to_publish("message")
    Traceback (most recent call last):
        ...
    affinedp.errors.AffineDPError: a simulated message must not be \
published: its noise comes from a generator that can be guessed and from doubles that leak. Let \
PrivateConsensus.agent draw it
    """
    noise_share(readout, 2)
    if readout == "state":
        raise AffineDPError(
            "a state must not be published: the message y_i is already public, and y_i − x_i = γ_i "
            "is the one draw of agent i, which reveals x_i(0). Publish the message of an agent"
        )
    if readout == "corrected":
        raise AffineDPError(
            "a corrected read-out must stay with its agent: the message y_i is already public, "
            "and n times their difference is γ_i, which reveals x_i(0). Publish the message of an "
            "agent"
        )
    raise AffineDPError(
        "a simulated message must not be published: its noise comes from a generator that can be "
        "guessed and from doubles that leak. Let PrivateConsensus.agent draw it"
    )
