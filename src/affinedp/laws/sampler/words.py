"""Where randomness comes from: the operating system, or a key that gives the same words again.

There is no generator, no seed and no pool in this process: what a call does not use is dropped, and
a fork cannot make two processes draw the same numbers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from affinedp.errors import AffineDPError

WORD_BITS = 32
# A key's stream is made in blocks of so many bytes.
BLOCK_BYTES = 1 << 16
FEW_BYTES = 256
LEAST_SECRET = 16

Words = NDArray[np.uint32]
LongWords = NDArray[np.uint64]
# How many bytes are wanted -> that many, independent and uniform.
Source = Callable[[int], bytes]
# How many random bits are wanted -> that many, as a number.
RandomBits = Callable[[int], int]


def system_bytes(count: int) -> bytes:
    """Return bytes from the operating system's cryptographic generator."""
    return os.urandom(count)


@dataclass(frozen=True)
class Random:
    """Words, bits and whole numbers from a source of bytes, little-endian on every machine."""

    source: Source = system_bytes  # gives bytes

    def words(self, count: int) -> Words:
        """Return words of 32 bits."""
        return np.frombuffer(self.source(count * 4), dtype="<u4")

    def long_words(self, count: int) -> LongWords:
        """Return words of 64 bits."""
        return np.frombuffer(self.source(count * 8), dtype="<u8")

    def bits(self, count: int) -> int:
        """Return so many bits as a number."""
        size = -(-count // 8)
        return int.from_bytes(self.source(size), "little") >> (8 * size - count)

    def below(self, limit: int) -> int:
        """Return a uniform whole number from 0 to limit − 1."""
        length = (limit - 1).bit_length()
        while True:
            found = self.bits(length)
            if found < limit:
                return found


SYSTEM = Random()


@dataclass(frozen=True)
class Key:
    """A secret that gives the same bytes again for the same place, and others for others.

    The bytes of a place are SHAKE-256 of the secret, the place and the number of a block.  Who has
    the secret knows all noise that was drawn with it: where an engine's task graph or log holds a
    key, they are as secret as the data.
    """

    secret: bytes = field(repr=False)  # at least 16

    def __post_init__(self) -> None:
        if not isinstance(self.secret, bytes) or len(self.secret) < LEAST_SECRET:
            raise AffineDPError(f"a key is at least {LEAST_SECRET} bytes that nobody can guess")

    def source(self, *place: int | str | bytes) -> Source:
        """Return the bytes of a place, from their beginning on."""
        return _Stream(b"affinedp key 1" + _typed((self.secret, *place)), BLOCK_BYTES).take


def hashed_bytes(seed: bytes) -> Source:
    """Return bytes that follow from a seed, a few at a time: the same for the same seed."""
    return _Stream(seed, FEW_BYTES).take


class _Stream:
    """Bytes one after the other, however they are asked for."""

    def __init__(self, seed: bytes, size: int) -> None:
        self._seed, self._size, self._block, self._left = seed, size, 0, b""

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        parts = [self._left]
        have = len(self._left)
        while have < count:
            number = self._block.to_bytes(8, "little")
            parts.append(hashlib.shake_256(self._seed + number).digest(self._size))
            self._block += 1
            have += self._size
        whole = b"".join(parts)
        self._left = whole[count:]
        return whole[:count]


def _typed(place: tuple[int | str | bytes, ...]) -> bytes:
    """A place as bytes in which nothing can be confused: type, length and value of every item."""
    found = []
    for item in place:
        if isinstance(item, bool) or not isinstance(item, int | str | bytes):
            raise AffineDPError(f"a place is made of whole numbers, texts and bytes, not {item!r}")
        value = item if isinstance(item, bytes) else str(item).encode()
        kind = {int: b"i", str: b"s", bytes: b"b"}[type(item)]
        found.append(kind + len(value).to_bytes(8, "little") + value)
    return b"".join(found)
