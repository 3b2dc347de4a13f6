"""What no mechanism of any law can go below, and the laws that were compared.

The bound: averaged over translations of the data, the error of any mechanism has a second moment
``M ⪰ V n_k n_kᵀ`` for every move n_k, because each combination of its outputs is a mechanism for
one number, whose error is at least V (:mod:`affinedp.privacy.least_error`).  Least weighted trace
under that is the Gaussian design problem, and its dual value at sensitivity 1 times V is the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from affinedp.arrays import Matrix
from affinedp.errors import AffineDPError
from affinedp.parts import Part
from affinedp.privacy.least_error import Data, least_sum_of_three, least_variance
from affinedp.privacy.least_proof import LeastProof

Objective = Literal["sum", "largest"]
# What rounding of the error may hide.
UP = 1 + 1e-12


@dataclass(frozen=True)
class LeastPossible(Part):
    """What no mechanism with the same promise can go below, and what this one costs.

    Attributes
    ----------
    dual : float
        Certified dual value of the Gaussian design at sensitivity 1, rounded down.
    error : float
        What the mechanism costs: its weighted expected squared error, or its largest variance.
    epsilon, delta : float
        The promise of one release that is compared.
    data : {"any", "real", "integer"}
        ``"any"`` holds for real numbers, and for whole ones where all moves are whole;
        ``"real"`` for real numbers only; ``"integer"`` where only whole numbers occur.
    objective : {"sum", "largest"}
        What ``error`` counts.
    sum_of_three : float
        The weight that all outputs share, where they are three whole numbers with one public sum,
        moved by one; 0 elsewhere.  There the least is known.
    weights : matrix, shape (m, m), or None
        What squared error costs.
    proof : LeastProof or None
        Why ``dual`` holds; both are for files, which are checked when they are read.
    """

    kind = "least possible"
    dual: float
    error: float
    epsilon: float
    delta: float = 0.0
    data: Data = "any"
    objective: Objective = "sum"
    sum_of_three: float = 0.0
    weights: Matrix | None = field(default=None, repr=False, compare=False)
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
    """Another law for the same promise, and what it would have cost.

    Attributes
    ----------
    law : str
        ``"gaussian"``, ``"laplace"``, ``"knorm"`` or ``"staircase"``.
    error : float
        Weighted expected squared error, or largest variance, of one release; where the law was
        not designed, what it costs at least.
    designed : bool
        Whether it was designed; if not, ``reason`` says why.
    reason : str
        Why it was not designed; otherwise which way to add noise it is, if that has a name.
    """

    kind = "alternative"
    law: str
    error: float
    designed: bool = True
    reason: str = ""

    @property
    def words(self) -> str:
        """The law, and which way to add noise it is."""
        return f"{self.reason} ({self.law})" if self.designed and self.reason else self.law


def _rounded_up(value: float) -> str:
    """Two digits after the point, more than the value unless only rounding is dropped."""
    return f"{math.ceil(value * 100 * (1 - 1e-9)) / 100:.2f}" if value < 1e6 else f"{value:.3g}"
