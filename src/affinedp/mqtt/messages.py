"""Messages as small JSON objects, and what becomes of bytes that are none.

Doubles survive the way there and back bit for bit.  NaN and Infinity, which are no JSON but which
many programs write, are read as NaN, and numbers beyond double precision as ∞: whoever asked is
then told that its numbers are none.  Other bytes are counted, mentioned once in a while, and
dropped.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from affinedp.errors import AffineDPError

logger = logging.getLogger(__name__)

LARGEST_PAYLOAD = 1 << 16
LARGEST_COUNT = (1 << 53) - 1  # the largest whole number that every JSON parser keeps
SHOWN = 60  # characters of a payload in the log
QUIET = 5.0  # seconds between two mentions of the same trouble


def read_object(payload: bytes, keys: Sequence[str]) -> dict[str, Any]:
    """Read a JSON object that has some keys; other keys are ignored."""
    if len(payload) > LARGEST_PAYLOAD:
        raise AffineDPError(f"it has more than {LARGEST_PAYLOAD} bytes")
    try:
        record = _READER.decode(payload.decode("utf-8"))
    except AffineDPError:
        raise
    except RecursionError:
        raise AffineDPError("it is nested too deeply") from None
    except ValueError:  # of JSON or of UTF-8
        raise AffineDPError("it is not JSON") from None
    if not isinstance(record, dict) or not record.keys() >= set(keys):
        raise AffineDPError(f"it must be an object with {', '.join(keys)}")
    return record


def write_object(record: dict[str, Any]) -> bytes:
    """Write a JSON object; the same object always gives the same bytes."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def read_count(value: Any, key: str) -> int:
    """Return a whole number that counts something, or refuse it."""
    # bool is a subclass of int, so the types are compared
    if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
        raise AffineDPError(f"{key} must be a whole number, at least 0")
    return value


def read_number(value: Any, key: str) -> float:
    """Return a finite number, or refuse it."""
    if type(value) not in (float, int) or math.isnan(value):
        raise AffineDPError(f"{key} holds something that is no number")
    if math.isinf(value):
        raise AffineDPError(f"{key} holds a number beyond double precision")
    return float(value)


def _whole(text: str) -> int | float:
    """A whole number; one that no count can be is rounded to a double, or to ∞."""
    return int(text) if len(text) < 20 else float(text)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise AffineDPError("a key appears twice")
    return found


_READER = json.JSONDecoder(
    parse_constant=lambda name: math.nan, parse_int=_whole, object_pairs_hook=_no_repeats
)


class Dropped:
    """Messages that were dropped: counted by reason, and mentioned once in a while."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._counts: Counter[str] = Counter()
        self._mentioned: dict[str, float] = {}

    @property
    def counts(self) -> dict[str, int]:
        """How many, by reason."""
        return dict(self._counts)

    def count(self, reason: str) -> None:
        """Count a dropped message without mentioning it: that happens in good order."""
        self._counts[reason] += 1

    def add(self, reason: str, detail: str, payload: bytes = b"") -> None:
        """Count a dropped message, and say once in a while what is wrong with it."""
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
    """Return the beginning of a payload as text that no terminal acts on."""
    text = payload[: 4 * SHOWN].decode("utf-8", "backslashreplace")
    safe = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return safe[:SHOWN] + ("…" if len(safe) > SHOWN or len(payload) > 4 * SHOWN else "")
