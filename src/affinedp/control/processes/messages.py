"""What crosses the network: ``{"step": 17, "y": [1.5, -2.0]}``, and nothing else.

Doubles survive the way there and back bit for bit.  Everything that is not such a message is
counted, mentioned once in a while, and dropped.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from typing import Any, Literal, NoReturn

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError

logger = logging.getLogger(__name__)

Signal = Literal["y", "u"]

LARGEST_PAYLOAD = 1 << 16
LARGEST_STEP = (1 << 53) - 1  # the largest whole number that every JSON parser keeps
SHOWN = 60  # characters of a payload in the log
QUIET = 5.0  # seconds between two mentions of the same trouble


class MalformedMessageError(AffineDPError):
    """A payload that is no message."""


def encode(step: int, signal: Signal, values: FloatArray) -> bytes:
    """Write a message; the same numbers always give the same bytes.

    Parameters
    ----------
    step : int
        t.
    signal : "y" or "u"
        What the values are.
    values : array
        Finite numbers.

    Returns
    -------
    bytes

    Examples
    --------
    >>> encode(17, "y", np.array([0.1, -2.0]))
    b'{"step":17,"y":[0.1,-2.0]}'
    """
    record = {"step": step, signal: np.asarray(values, dtype=np.float64).tolist()}
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()


def decode(payload: bytes, signal: Signal, size: int) -> tuple[int, FloatArray]:
    """Read a message, or refuse it.

    Parameters
    ----------
    payload : bytes
        What arrived.
    signal : "y" or "u"
        What the values must be; other keys are ignored.
    size : int
        How many there must be.

    Returns
    -------
    step, values : int, array

    Raises
    ------
    MalformedMessageError

    Examples
    --------
    >>> decode(b'{"step": 17, "y": [0.1, -2]}', "y", 2)
    (17, array([ 0.1, -2. ]))
    >>> decode(b'{"step": 17, "y": [NaN, 1]}', "y", 2)
    Traceback (most recent call last):
    affinedp.control.processes.messages.MalformedMessageError: NaN is no number
    """
    if len(payload) > LARGEST_PAYLOAD:
        raise MalformedMessageError(f"it has more than {LARGEST_PAYLOAD} bytes")
    try:
        record = _READER.decode(payload.decode("utf-8"))
    except MalformedMessageError:
        raise
    except RecursionError:
        raise MalformedMessageError("it is nested too deeply") from None
    except ValueError:  # of JSON, of UTF-8, of a number with thousands of digits
        raise MalformedMessageError("it is not JSON") from None
    if not isinstance(record, dict) or "step" not in record or signal not in record:
        raise MalformedMessageError(f"it must be an object with step and {signal}")
    return _step(record["step"]), _values(record[signal], signal, size)


def _step(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_STEP:
        raise MalformedMessageError("step must be a whole number, at least 0")
    return value


def _values(value: Any, signal: str, size: int) -> FloatArray:
    if not isinstance(value, list) or len(value) != size:
        raise MalformedMessageError(f"{signal} must be a list of {size} numbers")
    # bool is a subclass of int, so the types are compared
    if not all(type(number) in (float, int) for number in value):
        raise MalformedMessageError(f"{signal} holds something that is no number")
    try:
        numbers = [float(number) for number in value]
    except OverflowError:
        numbers = [math.inf]
    if not all(map(math.isfinite, numbers)):
        raise MalformedMessageError(f"{signal} holds a number beyond double precision")
    return np.array(numbers)


def _no_constant(name: str) -> NoReturn:
    raise MalformedMessageError(f"{name} is no number")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MalformedMessageError("a key appears twice")
    return found


_READER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_repeats)


class Dropped:
    """Messages that were dropped: counted by reason, and mentioned once in a while.

    Examples
    --------
    >>> dropped = Dropped("gateway")
    >>> dropped.add("malformed", "it is not JSON", b"hello")
    >>> dropped.counts
    {'malformed': 1}
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._counts: Counter[str] = Counter()
        self._mentioned: dict[str, float] = {}

    @property
    def counts(self) -> dict[str, int]:
        """How many, by reason."""
        return dict(self._counts)

    def count(self, reason: str) -> None:
        """Count a dropped message without mentioning it: that happens in good order.

        Parameters
        ----------
        reason : str
            A word to count it under.
        """
        self._counts[reason] += 1

    def add(self, reason: str, detail: str, payload: bytes = b"") -> None:
        """Count a dropped message.

        Parameters
        ----------
        reason : str
            A word to count it under.
        detail : str
            What is wrong with this one.
        payload : bytes
            The message itself, of which the beginning is shown.
        """
        self.count(reason)
        now = time.monotonic()
        if now - self._mentioned.get(reason, -math.inf) < QUIET:
            return
        self._mentioned[reason] = now
        shown = f": {printable(payload)}" if payload else ""
        count = self._counts[reason]
        logger.warning(
            "%s: dropped a message (%s, %d so far): %s%s", self._who, reason, count, detail, shown
        )


def printable(payload: bytes) -> str:
    """Return the beginning of a payload as text that no terminal acts on.

    Parameters
    ----------
    payload : bytes
        Anything.

    Returns
    -------
    str

    Examples
    --------
    >>> printable(b"caf\\xc3\\xa9 \\x1b[31m")
    'café \\\\x1b[31m'
    """
    text = payload[: 4 * SHOWN].decode("utf-8", "backslashreplace")
    safe = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return safe[:SHOWN] + ("…" if len(safe) > SHOWN or len(payload) > 4 * SHOWN else "")
