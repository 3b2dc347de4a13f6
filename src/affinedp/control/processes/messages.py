"""What a control loop says on the wire.

A measurement or an input is ``{"run": "a1b2", "step": 17, "y": [1.5, -2.0]}``.  Where there is
none, ``"missing"`` says why instead (the gateway to the cloud), and ``"stop"`` ends the run (to
whoever waits).  Who waits is always answered, so that no loop stalls for ever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.gateway.gateway import checked_run
from affinedp.errors import AffineDPError
from affinedp.wire.messages import MalformedMessageError, read_count, read_number, read_object

Signal = Literal["y", "u"]
Word = Literal["missing", "stop"]

LONGEST_REASON = 300


class WrongValuesError(MalformedMessageError):
    """A message of a known step whose values are none, such as of a wrong dimension.

    Attributes
    ----------
    run : str
        Of which run.
    step : int
        Of which step.
    """

    def __init__(self, message: str, run: str, step: int) -> None:
        self.run = run
        self.step = step
        super().__init__(message)


@dataclass(frozen=True)
class Spoken:
    """A message that was understood.

    Attributes
    ----------
    run : str
        Of which run.
    step : int
        t.
    values : array
        y(t) or u(t); empty if there is none.
    word : "missing", "stop" or ""
        What is said instead of values.
    reason : str
        Why.
    """

    run: str
    step: int
    values: FloatArray
    word: Literal["missing", "stop", ""] = ""
    reason: str = ""


def encode(run: str, step: int, signal: Signal, values: FloatArray) -> bytes:
    """Write a message; the same numbers always give the same bytes.

    Parameters
    ----------
    run : str
        Which run.
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
    >>> encode("a1b2", 17, "y", np.array([0.1, -2.0]))
    b'{"run":"a1b2","step":17,"y":[0.1,-2.0]}'
    """
    return _bytes({"run": run, "step": step, signal: np.asarray(values, np.float64).tolist()})


def encode_word(run: str, step: int, word: Word, reason: str) -> bytes:
    """Write that there are no values at a step, or that the run ends.

    Parameters
    ----------
    run : str
        Which run.
    step : int
        t.
    word : "missing" or "stop"
        Which of the two.
    reason : str
        Why; nothing in it may depend on measurements.

    Examples
    --------
    >>> encode_word("a1b2", 17, "missing", "it was lost")
    b'{"run":"a1b2","step":17,"missing":"it was lost"}'
    """
    return _bytes({"run": run, "step": step, word: reason[:LONGEST_REASON]})


def decode(payload: bytes, signal: Signal, size: int) -> Spoken:
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
    Spoken

    Raises
    ------
    WrongValuesError
        If run and step are right, and the values are not.
    MalformedMessageError
        If it is no message.

    Examples
    --------
    >>> decode(b'{"run": "a", "step": 17, "y": [0.1, -2]}', "y", 2).values
    array([ 0.1, -2. ])
    >>> decode(b'{"run": "a", "step": 17, "y": [NaN, 1]}', "y", 2)
    Traceback (most recent call last):
    affinedp.wire.messages.MalformedMessageError: NaN is no number
    >>> decode(b'{"run": "a", "step": 17, "y": [1]}', "y", 2)
    Traceback (most recent call last):
    affinedp.control.processes.messages.WrongValuesError: y must be a list of 2 numbers
    """
    record = read_object(payload, ("run", "step"))
    try:
        run = checked_run(record["run"])
    except AffineDPError as error:
        raise MalformedMessageError(str(error)) from None
    step = read_count(record["step"], "step")
    words: tuple[Word, ...] = ("missing", "stop")
    for word in words:
        if word in record:
            reason = record[word]
            if not isinstance(reason, str):
                raise MalformedMessageError(f"{word} must be text")
            return Spoken(run, step, np.empty(0), word, _plain(reason))
    if signal not in record:
        raise MalformedMessageError(f"it must be an object with {signal}")
    try:
        return Spoken(run, step, _values(record[signal], signal, size))
    except MalformedMessageError as error:
        raise WrongValuesError(str(error), run, step) from None


def _values(value: Any, signal: str, size: int) -> FloatArray:
    if not isinstance(value, list) or len(value) != size:
        raise MalformedMessageError(f"{signal} must be a list of {size} numbers")
    return np.array([read_number(number, signal) for number in value])


def _plain(reason: str) -> str:
    """A reason that no terminal acts on."""
    return "".join(c if c.isprintable() else "?" for c in reason[:LONGEST_REASON])


def _bytes(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
