"""How much of everything: a few examples in ``make test``, many in ``make fuzz``."""

import pytest
from hypothesis import settings

ORDINARY = 100  # max_examples of hypothesis, and of the profile of all tests
FACTOR = max(1, settings.default.max_examples // ORDINARY)
# A whole run has a false alarm with probability 1e-6 at most: each of its tests (fewer than 50)
# divides this among its examples.
WHOLE_RUN = 1e-6 / 50


def examples(count):
    """Settings for ``count`` examples in the short run, and in proportion in the long one."""
    return settings(max_examples=count * FACTOR)


def alarm(count):
    """The probability of a false alarm that one of so many examples may have."""
    return WHOLE_RUN / (count * FACTOR)


# What the short run has no time for.
only_long = pytest.mark.skipif(FACTOR == 1, reason="takes long: make fuzz")
