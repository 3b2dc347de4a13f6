"""The promise that was asked for: what people look for first in a report."""

from __future__ import annotations

import math
from dataclasses import dataclass

from affinedp.errors import AffineDPError
from affinedp.parts import Part

MOST_RELEASES = 10**9


@dataclass(frozen=True)
class Asked(Part):
    """(ε, δ) as somebody asked for it, for some releases together.

    It is no promise: whether it is kept is always computed from the noise.

    Attributes
    ----------
    epsilon, delta : float
        ε ≥ 0 and δ in [0, 1).
    releases : int
        How many releases about the same secret keep it together.

    Examples
    --------
    >>> print(Asked(1.0, 0.01))
    ε = 1 at δ = 0.01
    >>> print(Asked(1.0, 1e-6, releases=12))
    ε = 1 at δ = 1e-06 for 12 releases together
    """

    kind = "asked"
    epsilon: float
    delta: float = 0.0
    releases: int = 1

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise AffineDPError(f"{name} must be a number, not {value!r}")
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0 and 0 <= self.delta < 1):
            raise AffineDPError(
                f"ε must be at least 0 and δ in [0, 1), not ε = {self.epsilon}, δ = {self.delta}"
            )
        count = self.releases
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_RELEASES:
            raise AffineDPError(f"releases must be a whole number from 1 on, not {count!r}")

    def __str__(self) -> str:
        together = f" for {self.releases:,} releases together" if self.releases > 1 else ""
        return f"ε = {as_given(self.epsilon)} at δ = {as_given(self.delta)}{together}"


def as_given(value: float) -> str:
    """Write a number in full, and short where that is the same.

    Parameters
    ----------
    value : float
        Any number.

    Examples
    --------
    >>> as_given(1.0), as_given(0.1234567891)
    ('1', '0.1234567891')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
