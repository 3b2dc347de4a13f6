"""Messages as bytes: read as they were written, or refused; what is none is dropped quietly."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.consensus.agent import AgentMessage
from affinedp.errors import AffineDPError
from affinedp.mqtt import agent_process
from affinedp.mqtt.loop_process import decode, encode
from affinedp.mqtt.messages import LARGEST_PAYLOAD, Dropped, printable

# ---------------------------------------------------------------------- a control loop


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.integers(0, 2**53 - 1))
def test_doubles_survive(values, step):
    payload = encode("a", step, "y", np.array(values, dtype=float))
    found = decode(payload, "y", len(values))
    assert (found.run, found.step, found.word) == ("a", step, "")
    assert found.values.tobytes() == np.array(values, dtype=float).tobytes()
    assert encode("a", found.step, "y", found.values) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"17",
        b"{}",
        b'{"run": "a", "step": 1}',
        b'{"run": "a", "y": [1]}',
        b'{"step": 1, "y": [1]}',
        b'{"run": 7, "step": 1, "y": [1]}',
        b'{"run": "a b", "step": 1, "y": [1]}',
        b'{"run": "a", "step": 1, "missing": 7}',
        b'{"run": "a", "step": 1, "u": [1]}',
        b'{"run": "a", "step": true, "y": [1]}',
        b'{"run": "a", "step": 1.0, "y": [1]}',
        b'{"run": "a", "step": -1, "y": [1]}',
        b'{"run": "a", "step": "1", "y": [1]}',
        b'{"run": "a", "step": 9007199254740992, "y": [1]}',
        b'{"run": "a", "step": ' + b"9" * 5000 + b', "y": [1]}',
        b'{"run": "a", "step": 1, "y": 1}',
        b'{"run": "a", "step": 1, "y": []}',
        b'{"run": "a", "step": 1, "y": [1, 2]}',
        b'{"run": "a", "step": 1, "y": [true]}',
        b'{"run": "a", "step": 1, "y": [null]}',
        b'{"run": "a", "step": 1, "y": ["1"]}',
        b'{"run": "a", "step": 1, "y": [[1]]}',
        b'{"run": "a", "step": 1, "y": [NaN]}',
        b'{"run": "a", "step": 1, "y": [-Infinity]}',
        b'{"run": "a", "step": 1, "y": [1e999]}',
        b'{"run": "a", "step": 1, "y": [' + b"9" * 400 + b"]}",
        b'{"run": "a", "step": 1, "step": 2, "y": [1]}',
        b'{"run": "a", "step": 1, "y": [1]} x',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"run": "a", "step": 1, "y": [1]' + b" " * LARGEST_PAYLOAD + b"}",
    ],
    ids=lambda payload: ascii(payload[:30]),
)
def test_malformed_messages_are_refused(payload):
    """Where run and step can be read, whoever sent it can be told."""
    try:
        said = decode(payload, "y", 1)
    except AffineDPError:
        assert (
            not payload.startswith(b'{"run": "a", "step": 1, "y": ')
            or payload[-1:] != b"}"
            or (len(payload) > LARGEST_PAYLOAD)
        )
    else:
        assert (said.run, said.step, said.word) == ("a", 1, "malformed")
        assert not len(said.values)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(payload):
    try:
        found = decode(payload, "y", 1)
    except AffineDPError:
        return
    assert found.step >= 0
    assert np.isfinite(found.values).all()


def test_other_keys_are_ignored():
    assert decode(b'{"time": 1.5, "y": [2], "step": 3, "run": "a"}', "y", 1).step == 3


@pytest.mark.parametrize("value", ["1e999", "9" * 400, "9" * 5000])
def test_numbers_beyond_doubles_are_the_nearest_where_asked(value):
    payload = f'{{"run": "a", "step": 1, "y": [{value}]}}'.encode()
    assert decode(payload, "y", 1, nearest=True).values.tolist() == [sys.float_info.max]
    said = decode(payload, "y", 1)
    assert (said.run, said.step, said.word) == ("a", 1, "malformed")
    assert "beyond double" in said.reason


def test_numbers_that_are_none_are_not_written():
    with pytest.raises(ValueError, match="JSON"):
        encode("a", 0, "y", np.array([np.nan]))


# ---------------------------------------------------------------------- agents

numbers = st.floats(allow_nan=False, allow_infinity=False)


counts = st.integers(0, 2**53 - 1)


@pytest.mark.slow
@given(counts, counts, st.none() | counts, numbers, numbers, numbers)
def test_agents_survive(t, run, rounds, y, previous, weight):
    message = AgentMessage("é-1", "3", run, t, rounds, y, previous if t else None, weight)
    payload = agent_process.encode(message)
    assert agent_process.decode(payload, "é-1", "3") == message
    assert agent_process.encode(agent_process.decode(payload, "é-1", "3")) == payload


GOOD = '{"agent":"1","to":"3","run":1,"round":1,"rounds":7,"y":2,"previous":3,"weight":0.25}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (GOOD, ""),
        (GOOD, "hello"),
        (GOOD, "[]"),
        (GOOD, "[" * 60_000),
        (GOOD, GOOD + " " * LARGEST_PAYLOAD),
        ('"agent":"1"', '"agent":"2"'),
        ('"agent":"1"', '"agent":1'),
        ('"agent":"1",', ""),
        ('"agent":"1"', '"agent":"1","agent":"1"'),
        ('"round":1', '"round":true'),
        ('"round":1', '"round":1.0'),
        ('"round":1', '"round":-1'),
        ('"round":1', '"round":9007199254740992'),
        ('"round":1', '"round":0'),
        ('"previous":3', '"previous":null'),
        ('"previous":3', '"previous":"3"'),
        ('"y":2', '"y":NaN'),
        ('"y":2', '"y":1e999'),
        ('"y":2', '"y":[2]'),
        ('"y":2', '"y":' + "9" * 400),
        ('"y":2', '"y":false'),
        ('"weight":0.25', '"weight":[0.25]'),
        ('"weight":0.25', '"weight":"0.25"'),
        ('"weight":0.25', '"weight":Infinity'),
        ('"weight":0.25', '"weight":null'),
        ('"to":"3"', '"to":"4"'),
        ('"to":"3",', ""),
        ('"run":1', '"run":null'),
        ('"run":1', '"run":-1'),
        ('"rounds":7', '"rounds":7.5'),
        ('"rounds":7', '"rounds":"7"'),
    ],
)
def test_malformed_agents(old, new):
    assert agent_process.decode(GOOD.encode(), "1", "3").y == 2
    with pytest.raises(AffineDPError):
        agent_process.decode(GOOD.replace(old, new).encode(), "1", "3")


@given(st.binary(max_size=200))
def test_any_bytes_are_no_agent(payload):
    try:
        message = agent_process.decode(payload, "1", "3")
    except AffineDPError:
        return
    assert math.isfinite(message.y)


# ---------------------------------------------------------------------- what is dropped


@given(st.binary(max_size=1000))
def test_what_is_logged_is_short_and_printable(payload):
    text = printable(payload)
    assert text.isprintable()
    assert len(text) <= 61


def test_trouble_is_mentioned_once_in_a_while(caplog):
    dropped = Dropped("cloud")
    for _ in range(1000):
        dropped.add("malformed", "it is not JSON", b"\x1b[2Jx" * 100)
    dropped.add("late", "step 3")
    assert dropped.counts == {"malformed": 1000, "late": 1}
    assert len(caplog.messages) == 2
    assert "\x1b" not in caplog.text
