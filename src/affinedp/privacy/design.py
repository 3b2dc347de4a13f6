"""What is said about a design beside its promise: bounds, what was compared, what was asked.

What no mechanism of any law goes below is in :mod:`affinedp.privacy.least_error`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from affinedp.arrays import Matrix
from affinedp.errors import AffineDPError
from affinedp.parts import Part
from affinedp.privacy.guarantee import Asked
from affinedp.privacy.least_error import Data, least_sum_of_three, least_variance
from affinedp.privacy.least_proof import LeastProof
from affinedp.strategies.base import Sent

Objective = Literal["sum", "largest"]
# What rounding of the error may hide.
UP = 1 + 1e-12


@dataclass(frozen=True)
class LeastPossible(Part):
    """What no mechanism with the same promise can go below, and what this one costs."""

    kind = "least possible"
    # certified dual value of the Gaussian design at sensitivity 1, rounded down
    dual: float
    # what the mechanism costs: its weighted expected squared error, or its largest variance
    error: float
    # epsilon, delta: the promise of one release that is compared
    epsilon: float
    delta: float = 0.0
    # ``"any"`` holds for real numbers, and for whole ones where all moves are whole; ``"real"`` for
    # real numbers only; ``"integer"`` where only whole numbers occur
    data: Data = "any"
    # what ``error`` counts
    objective: Objective = "sum"
    # the weight that all outputs share, where they are three whole numbers with one public sum,
    # moved by one; 0 elsewhere.  There the least is known
    sum_of_three: float = 0.0
    # what squared error costs; shape (m, m)
    weights: Matrix | None = field(default=None, repr=False, compare=False)
    # why ``dual`` holds; both are for files, which are checked when they are read
    proof: LeastProof | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = (self.dual, self.error, self.epsilon, self.delta, self.sum_of_three)
        if not all(math.isfinite(number) and number >= 0.0 for number in numbers):
            raise AffineDPError(f"a least possible error cannot have the numbers {numbers}")
        if self.objective not in ("sum", "largest"):
            raise AffineDPError("a least possible error is about the sum or the largest variance")
        if self.error * UP < self.bound:
            raise AffineDPError(
                f"an error of {self.error!r} is below the least that is possible, {self.bound!r}"
            )

    @cached_property
    def bound(self) -> float:
        """What no mechanism goes below; see :meth:`sentence` for which mechanisms and data."""
        general = least_variance(self.epsilon, self.delta, self.data) * self.dual * (1 - 1e-15)
        if self._three_is_known:
            return max(general, least_sum_of_three(self.epsilon) * self.sum_of_three * (1 - 1e-15))
        return general

    @property
    def excess(self) -> float:
        """How many times the bound the error is at most, rounded up; inf where the bound is 0."""
        return self.error / self.bound * UP if self.bound > 0.0 else math.inf

    @property
    def _three_is_known(self) -> bool:
        return self.sum_of_three > 0.0 and self.delta == 0.0 and self.data == "integer"

    @property
    def scope(self) -> str:
        """Which data the bound is about, in words."""
        kind = {"any": "data", "real": "real data", "integer": "whole numbers"}[self.data]
        return f"{kind} anywhere on the manifold; data that is confined is not covered"

    def sentence(self) -> str:
        """Say how near to the least possible this is, for whom, and under which promise."""
        what = "squared error" if self.objective == "sum" else "largest variance"
        promise = f"ε = {self.epsilon:.6g}" + (f", δ = {self.delta:.3g}" if self.delta else "")
        times = _rounded_up(self.excess)
        near = "the least" if times == "1.00" else f"at most {times} times the least"
        return f"{what} {near} that any mechanism with {promise} can do ({self.scope})"


@dataclass(frozen=True)
class Alternative(Part):
    """Another law for the same promise, and what it would have cost."""

    kind = "alternative"
    # ``"gaussian"``, ``"laplace"``, ``"knorm"`` or ``"staircase"``
    law: str
    # weighted expected squared error, or largest variance, of one release; where the law was not
    # designed, what it costs at least
    error: float
    # whether it was designed; if not, ``reason`` says why
    designed: bool = True
    # why it was not designed; otherwise which way to add noise it is, if that has a name
    reason: str = ""

    @property
    def words(self) -> str:
        """The law, and which way to add noise it is."""
        return f"{self.reason} ({self.law})" if self.designed and self.reason else self.law


def _rounded_up(value: float) -> str:
    """Two digits after the point, more than the value unless only rounding is dropped."""
    return f"{math.ceil(value * 100 * (1 - 1e-9)) / 100:.2f}" if value < 1e6 else f"{value:.3g}"


@dataclass(frozen=True, eq=False)
class Design(Part):
    """How a mechanism came about; nothing in it decides what is released or promised."""

    kind = "design"
    # certified relative distance of the (weighted) error to the least possible of this law; None
    # where there is no certificate
    gap: float | None = None
    # what a reader should know
    notes: tuple[str, ...] = ()
    # what no mechanism of any law with this promise can go below; None where it is not known
    least: LeastPossible | None = None
    # what else was compared, with its error
    alternatives: tuple[Alternative, ...] = ()
    # what it costs where it was compared: its weighted squared error
    error: float | None = None
    # what somebody asked for; the mechanism keeps it
    asked: Asked | None = None
    # of noise on a plant's outputs: the steps of the sensors that it was designed for
    resolution: tuple[float, ...] = ()
    # what is sent with these sensors
    sent: Sent | None = None
