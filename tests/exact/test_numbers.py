"""How numbers are read."""

import math
from fractions import Fraction

from affinedp.exact.numbers import readable


def test_numbers_are_read_as_what_they_stand_for():
    assert readable(2 / 3) == Fraction(2, 3)
    assert readable(0.07) == Fraction(7, 100)
    assert readable(math.pi) == Fraction(math.pi)
