"""Keys: the same bytes for the same place, known to the last bit."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from affinedp.errors import AffineDPError
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import Geometric, Laplace
from affinedp.laws.sampler.words import BLOCK_BYTES, Key, Random
from affinedp.laws.staircase import Staircase

KEY = Key(bytes(range(32)))
LAWS = [
    (Gaussian(), 2**40),
    (Laplace(), Fraction(7, 2)),
    (Geometric(0.5), 1),
    (KNorm(np.array([[1.0, 0, 1], [0, 1, -1]]), 1.0, True), 1),
    (KNorm(np.ones((5, 1)), 0.3, True), 1),
    (KNorm(np.diag([1.0, 3.0]), 0.3, True), 1),
    (Staircase([3.0, 5.0], [2.0, 5.0], 1.0, True), 1),
]


def test_bytes_are_those_of_shake_256():
    """The construction, from hashlib alone, and one vector written out."""
    place = [(b"b", KEY.secret), (b"s", b"part"), (b"i", b"-3"), (b"b", b"\x00")]
    seed = b"affinedp key 1" + b"".join(
        kind + len(value).to_bytes(8, "little") + value for kind, value in place
    )
    expected = hashlib.shake_256(seed + bytes(8)).digest(BLOCK_BYTES)
    expected += hashlib.shake_256(seed + b"\x01" + bytes(7)).digest(BLOCK_BYTES)
    source = KEY.source("part", -3, b"\x00")
    assert b"".join(source(count) for count in (1, 0, 7, 70_000, 50_000)) == expected[:120_008]
    assert KEY.source("part", 1)(8).hex() == "e7259719480b5c6d"


def test_words_are_little_endian():
    source = Random(lambda count: bytes(range(1, count + 1)))
    assert source.words(1).tolist() == [0x04030201]
    assert source.long_words(1).tolist() == [0x0807060504030201]
    assert source.bits(12) == 0x0201 >> 4
    assert source.bits(64) == 0x0807060504030201


def test_places_are_not_confused():
    places = [("a", 1), ("a", "1"), ("a1",), (b"a", 1), ("a", 1, ""), ("a", 10), (1, "a"), ()]
    assert len({KEY.source(*place)(16) for place in places}) == len(places)
    assert Key(bytes(32)).source("a")(16) != KEY.source("a")(16)


@pytest.mark.parametrize("place", [1.0, None, True, ("a",)])
def test_other_places_are_refused(place):
    with pytest.raises(AffineDPError, match="place"):
        KEY.source(place)


def test_short_keys_are_refused():
    with pytest.raises(AffineDPError, match="at least 16"):
        Key(b"password")
    assert "0102" not in repr(KEY)


@pytest.mark.parametrize(("law", "unit"), LAWS, ids=lambda value: getattr(value, "kind", ""))
def test_a_key_gives_the_same_noise_again(law, unit):
    shape = (law.size or 2, 5)
    first, again = (law.sampler(unit).draw(shape, KEY.source("test", 7)) for _ in range(2))
    other = law.sampler(unit).draw((shape[0], 100), KEY.source("test", 8))
    assert first.shape == shape
    assert first.tolist() == again.tolist()
    assert other[:, :5].tolist() != first.tolist()
    assert len({tuple(column) for column in other.T.tolist()}) > 3


def test_known_draws():
    """A change of a sampler changes the noise of keys: it needs a new name for them."""
    for law, known in ((Gaussian(), [0, 14, -4, -12, -1]), (Laplace(), [0, 14, -4, -12, -44])):
        assert law.sampler(10).draw((5,), KEY.source("known")).tolist() == known
