"""What every message has in common: small JSON objects, and what becomes of those that are none.

Doubles survive the way there and back bit for bit.  Everything that is not such a message is
counted, mentioned once in a while, and dropped.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from affinedp.errors import AffineDPError

logger = logging.getLogger(__name__)

LARGEST_PAYLOAD = 1 << 16
LARGEST_STEP = (1 << 53) - 1  # the largest whole number that every JSON parser keeps
SHOWN = 60  # characters of a payload in the log
QUIET = 5.0  # seconds between two mentions of the same trouble


class MalformedMessageError(AffineDPError):
    """A payload that is no message."""


def read_object(payload: bytes, keys: Sequence[str]) -> dict[str, Any]:
    """Read a JSON object that has some keys, or refuse it; other keys are ignored.

    Parameters
    ----------
    payload : bytes
        What arrived.
    keys : sequence of str
        What it must have.

    Returns
    -------
    dict

    Raises
    ------
    MalformedMessageError

    Examples
    --------
    >>> read_object(b'{"step": 17, "y": [0.1]}', ["step"])["step"]
    17
    >>> read_object(b'[17]', ["step"])
    Traceback (most recent call last):
    affinedp.wire.messages.MalformedMessageError: it must be an object with step
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
    if not isinstance(record, dict) or not record.keys() >= set(keys):
        raise MalformedMessageError(f"it must be an object with {', '.join(keys)}")
    return record


def read_count(value: Any, key: str) -> int:
    """Return a whole number that counts something, or refuse it.

    Parameters
    ----------
    value : object
        What a message holds.
    key : str
        Under which name.

    Examples
    --------
    >>> read_count(17, "step")
    17
    """
    # bool is a subclass of int, so the types are compared
    if type(value) is not int or not 0 <= value <= LARGEST_STEP:
        raise MalformedMessageError(f"{key} must be a whole number, at least 0")
    return value


def read_number(value: Any, key: str) -> float:
    """Return a finite number, or refuse it.

    Parameters
    ----------
    value : object
        What a message holds.
    key : str
        Under which name.

    Examples
    --------
    >>> read_number(2, "y")
    2.0
    """
    if type(value) not in (float, int):
        raise MalformedMessageError(f"{key} holds something that is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise MalformedMessageError(f"{key} holds a number beyond double precision")
    return number


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
