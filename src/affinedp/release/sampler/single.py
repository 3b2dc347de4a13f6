"""One number at a time, from given words, by the comparisons of ``bulk`` in Python integers."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np

from affinedp.release.sampler.bulk import (
    CELLS,
    FALLING,
    LARGEST,
    PARTS,
    REST_BITS,
    SERIES,
    SLACK,
    Thresholds,
)
from affinedp.release.sampler.law import IntegerLaw
from affinedp.release.sampler.reference import proposal, row_length
from affinedp.release.sampler.words import WORD_BITS, Source, Words

_FALLING = tuple(int(value) for value in FALLING)
_AT_ONCE = 64  # words


class SingleNoise:
    """Draws what :class:`~affinedp.release.sampler.IntegerNoise` would from the same words.

    A few numbers take a tenth of the time that arrays do.  As there, how many proposals are
    rejected is independent of the number, and all take the same steps.
    """

    def __init__(self, law: str, scale: int | Fraction) -> None:
        self._law = IntegerLaw.of(law, scale)
        made = Thresholds.of(self._law)
        self._tops = tuple(int(value) for value in made.tops)
        self._half, self._quadratic = int(made.half), made.quadratic
        self._length = row_length(self._law)

    def draw(self, source: Source) -> int:
        """Return one integer of the law."""
        while True:
            number = self._proposal(source(self._length).tolist(), source)
            if number is not None:
                return number

    def _proposal(self, row: list[int], source: Source) -> int | None:
        first, bits = row[0], self._law.cell_bits
        k = CELLS - (~first & (LARGEST >> 1)).bit_length()
        j = 0
        for word in row[1:-1]:
            j = (j << WORD_BITS) | word
        j >>= WORD_BITS * (len(row) - 2) - bits
        x = j >> (bits - WORD_BITS) if bits >= WORD_BITS else j << (WORD_BITS - bits)
        threshold = self._threshold(min(k, CELLS - 1), x)
        size = (k << bits) + j
        if k == CELLS or size == 0 or abs(row[-1] - threshold) <= SLACK:
            return proposal(self._law, row, lambda: int(source(1)[0]))
        if row[-1] > threshold:
            return None
        return -size if first >> (WORD_BITS - 1) else size

    def _threshold(self, k: int, x: int) -> int:
        """As :meth:`Thresholds.at`."""
        part = (x * self._half) >> WORD_BITS
        g = ((part * x) >> WORD_BITS) + part * 2 * k if self._quadratic else 2 * part
        r = g & ((1 << REST_BITS) - 1)
        power = SERIES[-1]
        for coefficient in SERIES[-2::-1]:
            power = coefficient - ((power * r) >> WORD_BITS)
        power = (power * _FALLING[min(g >> REST_BITS, PARTS - 1)]) >> WORD_BITS
        return (power * self._tops[k]) >> WORD_BITS


def hashed_words(seed: bytes) -> Source:
    """Return words that follow from a seed, by SHAKE-256: the same for the same seed."""
    words: Words = np.zeros(0, dtype=np.uint32)
    blocks = 0

    def source(count: int) -> Words:
        nonlocal words, blocks
        while len(words) < count:
            block = hashlib.shake_256(blocks.to_bytes(8, "big") + seed)
            more = np.frombuffer(block.digest(4 * _AT_ONCE), dtype="<u4").astype(np.uint32)
            words, blocks = np.concatenate([words, more]) if len(words) else more, blocks + 1
        taken, words = words[:count], words[count:]
        return taken

    return source
