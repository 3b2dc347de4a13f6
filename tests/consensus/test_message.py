"""What an agent computes from messages; names and weights."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.consensus.message import checked_name, checked_weights, next_message
from affinedp.errors import AffineDPError


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
