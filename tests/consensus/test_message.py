"""What agents publish: read as it was written, or refused; names and weights."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.consensus.agents.message import (
    AgentMessage,
    checked_name,
    checked_weights,
    decode,
    encode,
    next_message,
)
from affinedp.errors import AffineDPError
from affinedp.wire.messages import LARGEST_PAYLOAD, MalformedMessageError

numbers = st.floats(allow_nan=False, allow_infinity=False)


counts = st.integers(0, 2**53 - 1)


@pytest.mark.slow
@given(counts, counts, st.none() | counts, numbers, numbers, numbers)
def test_messages_survive(t, run, rounds, y, previous, weight):
    message = AgentMessage("é-1", "3", run, t, rounds, y, previous if t else None, weight)
    payload = encode(message)
    assert decode(payload, "é-1", "3") == message
    assert encode(decode(payload, "é-1", "3")) == payload


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
def test_malformed_messages(old, new):
    assert decode(GOOD.encode(), "1", "3").y == 2
    with pytest.raises(MalformedMessageError):
        decode(GOOD.replace(old, new).encode(), "1", "3")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(payload):
    try:
        message = decode(payload, "1", "3")
    except MalformedMessageError:
        return
    assert math.isfinite(message.y)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.01, 0.3)), min_size=1, max_size=6))
def test_next_message_does_not_depend_on_the_order(links):
    heard = {str(i): y for i, (y, _) in enumerate(links)}
    weights = {str(i): w for i, (_, w) in enumerate(links)}
    backwards = dict(reversed(list(weights.items())))
    found = next_message(3.0, heard, weights)
    assert found == next_message(3.0, heard, backwards)
    expected = 3.0 + sum(w * (y - 3.0) for y, w in links)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-6)


@pytest.mark.parametrize("heard", [1e308, -1e308])
def test_next_message_beyond_double_precision(heard):
    with pytest.raises(AffineDPError, match="beyond double precision"):
        next_message(-heard, {"1": heard}, {"1": 1.9})


# ---------------------------------------------------------------------- names and weights


@pytest.mark.parametrize("name", ["", "a/b", "a+", "#", "a,b", "a:b", "a b", "x" * 65, 3, None])
def test_names(name):
    with pytest.raises(AffineDPError, match="no name of an agent"):
        checked_name(name)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({}, "no neighbours"),
        (["1"], "no neighbours"),
        ({"3": 0.1}, "its own neighbours"),
        ({"1": 0.0}, "must be positive"),
        ({"1": -0.1}, "must be positive"),
        ({"1": math.nan}, "must be a number"),
        ({"1": "0.1"}, "must be a number"),
        ({"1": True}, "must be a number"),
        ({"1": 1.0, "2": 1.0}, "diverge"),
        ({1: 0.1, "2": 0.1}, "no name"),
    ],
)
def test_weights(weights, words):
    with pytest.raises(AffineDPError, match=words):
        checked_weights("3", weights)
