"""What a control loop says: ``{"run": "a1b2", "step": 17, "y": [1.5, -2.0]}``, or u for inputs.

Where there are no numbers, ``"missing"`` says why instead (the gateway to the cloud), and
``"stop"`` ends the run (to whoever waits).  ``{"gone": "the gateway is gone"}`` is a last will.
Who waits is always answered, so that no loop stalls for ever.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.gateway import checked_run
from affinedp.errors import AffineDPError
from affinedp.mqtt.messages import read_count, read_number, read_object, write_object

Signal = Literal["y", "u"]
Word = Literal["missing", "stop", "gone", "malformed"]

LONGEST_REASON = 300


@dataclass(frozen=True)
class LoopMessage:
    """A message that was understood: numbers, or a word and its reason instead."""

    run: str
    step: int
    values: FloatArray = field(default_factory=lambda: np.empty(0))
    word: Word | Literal[""] = ""
    reason: str = ""


def encode(run: str, step: int, signal: Signal, values: FloatArray) -> bytes:
    """Write finite numbers; the same numbers always give the same bytes."""
    return write_object({"run": run, "step": step, signal: np.asarray(values, float).tolist()})


def encode_word(run: str, step: int, word: Literal["missing", "stop"], reason: str) -> bytes:
    """Write that there are no values at a step, or that the run ends.

    Nothing in the reason may depend on measurements.
    """
    return write_object({"run": run, "step": step, word: reason[:LONGEST_REASON]})


def decode(payload: bytes, signal: Signal, size: int, nearest: bool = False) -> LoopMessage:
    """Read a message with so many values; where these alone are wrong, its word is "malformed".

    With ``nearest`` a number that no double holds is read as the nearest one, as a gateway reads
    it in Python: to refuse it would tell of it.
    """
    record = read_object(payload, ())
    if "gone" in record and "run" not in record:
        return LoopMessage("", -1, word="gone", reason=_reason(record, "gone"))
    if not record.keys() >= {"run", "step"}:
        raise AffineDPError("it must be an object with run, step")
    run, step = checked_run(record["run"]), read_count(record["step"], "step")
    words: tuple[Word, ...] = ("missing", "stop")
    for word in words:
        if word in record:
            return LoopMessage(run, step, word=word, reason=_reason(record, word))
    if signal not in record:
        raise AffineDPError(f"it must be an object with {signal}")
    try:
        return LoopMessage(run, step, _values(record[signal], signal, size, nearest))
    except AffineDPError as error:
        return LoopMessage(run, step, word="malformed", reason=str(error))


def _values(value: Any, signal: str, size: int, nearest: bool) -> FloatArray:
    if not isinstance(value, list) or len(value) != size:
        raise AffineDPError(f"{signal} must be a list of {size} numbers")
    if nearest:
        value = [_nearest(number) for number in value]
    return np.array([read_number(number, signal) for number in value])


def _nearest(number: Any) -> Any:
    is_beyond = type(number) is float and math.isinf(number)
    return math.copysign(sys.float_info.max, number) if is_beyond else number


def _reason(record: dict[str, Any], word: str) -> str:
    """A reason that no terminal acts on."""
    reason = record[word]
    if not isinstance(reason, str):
        raise AffineDPError(f"{word} must be text")
    return "".join(c if c.isprintable() else "?" for c in reason[:LONGEST_REASON])
