"""What a control loop says on the wire: ``{"step": 17, "y": [1.5, -2.0]}``, and nothing else."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.wire.messages import MalformedMessageError, read_count, read_number, read_object

Signal = Literal["y", "u"]


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
    affinedp.wire.messages.MalformedMessageError: NaN is no number
    """
    record = read_object(payload, ("step", signal))
    return read_count(record["step"], "step"), _values(record[signal], signal, size)


def _values(value: Any, signal: str, size: int) -> FloatArray:
    if not isinstance(value, list) or len(value) != size:
        raise MalformedMessageError(f"{signal} must be a list of {size} numbers")
    return np.array([read_number(number, signal) for number in value])
