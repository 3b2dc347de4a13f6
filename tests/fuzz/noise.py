"""Noise in the fuzzer's hands: known integers in place of drawn ones, and draws from a seed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import numpy as np

WORDS = "os.urandom"


@dataclass
class Seen:
    """What noise was asked for, and what it was added to: exact integers."""

    law: str
    scale: int
    steps: np.ndarray


@dataclass
class Steering:
    """Every request for noise so far; ``sums`` says what comes out in place of a noisy sum."""

    sums: object
    seen: list[Seen] = field(default_factory=list)

    def draw(self, law, scale, shape):
        return _Added(self, law, scale, shape)


class _Added:
    """Stands for drawn integers: whatever they are added to is seen, and the sum is chosen."""

    __array_ufunc__ = None  # numpy leaves the addition to this class

    def __init__(self, steering, law, scale, shape):
        self.steering, self.law, self.scale, self.shape = steering, law, scale, shape

    def __radd__(self, steps):
        assert steps.shape == self.shape
        assert all(type(value) is int for value in steps.ravel()), "noise is added to integers"
        seen = Seen(self.law, int(self.scale), steps)
        self.steering.seen.append(seen)
        return self.steering.sums(len(self.steering.seen) - 1, seen)

    __add__ = __radd__


def drawing(draw):
    """Releases inside draw with ``draw(law, scale, shape)``."""

    def drawn(prepared, noise, count, source):
        law = prepared.law.kind if hasattr(prepared, "law") else "knorm"
        return draw(law, prepared.unit, (prepared.size, count))

    return mock.patch("affinedp.release.publish.drawn", drawn)


@contextmanager
def steered(sums):
    """Releases inside get ``sums(call, seen)`` for the noisy integers."""
    steering = Steering(sums)
    with drawing(steering.draw):
        yield steering


def no_noise(call, seen):
    return seen.steps


def only(coordinate, times=1):
    """Noise of one scale on one coordinate, none on the others."""

    def sums(call, seen):
        noisy = seen.steps.copy()
        noisy[coordinate] = noisy[coordinate] + times * seen.scale
        return noisy

    return sums


def always(targets):
    """The same noisy integers whatever the data: ``targets`` is filled at the first release."""

    def sums(call, seen):
        if call == len(targets):
            rng = np.random.default_rng(call)
            noise = [int(v * 2**40) * seen.scale >> 40 for v in rng.normal(size=seen.steps.size)]
            targets.append(seen.steps + np.array(noise, dtype=object).reshape(seen.steps.shape))
        return targets[call]

    return sums


@contextmanager
def seeded(seed):
    """The sampler's words come from a seed, so that what is found can be found again."""
    rng = np.random.default_rng(seed)

    with mock.patch(WORDS, rng.bytes):
        yield
