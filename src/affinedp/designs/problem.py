"""What is to be designed: the promise, the releases it is for, and what counts as error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from affinedp.arrays import Matrix, yes_or_no
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.designs.least_trace import LeastTrace
from affinedp.designs.separate import LISTED, NOTHING_TO_HIDE, Block, checked_weights, split
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import real_number, whole_number
from affinedp.neighbours.adjacency import Adjacency, Sensitivity
from affinedp.privacy.design import Objective
from affinedp.privacy.least_error import Data
from affinedp.record import MechanismRecord, error_under
from affinedp.strategies.base import GRID_BITS

MOST_RELEASES = 10**9


@dataclass(frozen=True)
class Problem:
    """What is to be designed, checked."""

    adjacency: Adjacency  # whom the promise is about
    query: Matrix  # query, names: F, and the names of its outputs
    names: tuple[str, ...]
    weights: Matrix  # what squared error costs; shape (m, m)
    epsilon: float  # epsilon, delta, releases: the promise that so many releases keep together
    delta: float
    releases: int
    objective: Objective  # what is to be least
    integers: bool  # whether the data is whole
    imbalance: float | None  # for moves that cannot be listed
    # whether the user said what data is; if not, a bound must hold for whole numbers too
    is_told: bool = True

    @property
    def data(self) -> Data:
        """Which numbers the bound is about."""
        return "integer" if self.integers else "real" if self.is_told else "any"

    @property
    def pure_epsilon(self) -> float:
        """What one release of a pure law promises: they add up to ε, rounding included."""
        return pure_share(self.epsilon, self.releases)

    @property
    def sensitivity(self) -> float:
        """What one Gaussian release may have: squares add up, rounding included."""
        return gaussian_share(self.epsilon, self.delta, self.releases)

    def blocks(self, weights: Matrix, limit: int = LISTED) -> list[Block]:
        """Return the blocks under these weights, from a list of so many moves at most."""
        key = id(weights)
        if key not in self._blocks:
            for tried, error in self._too_many.items():
                if limit <= tried:
                    raise error
            try:
                self._blocks[key] = list(split(self.adjacency, self.query, weights, limit))
            except TooManyCircuitsError as error:
                self._too_many[limit] = error
                raise
        if not self._blocks[key]:
            raise AffineDPError(NOTHING_TO_HIDE)
        return self._blocks[key]

    @property
    def listed(self) -> list[Block]:
        """The blocks of all moves that were listed so far."""
        return [block for blocks in self._blocks.values() for block in blocks]

    def can_be_listed(self, limit: int) -> bool:
        """Whether there are so many moves at most."""
        try:
            self.blocks(self.weights, limit)
        except TooManyCircuitsError:
            return False
        return True

    @cached_property
    def real(self) -> Problem:
        """The same problem with noise that may be real: its promise is about more neighbours."""
        if not self.integers:
            return self
        made = replace(self, integers=False)
        for known in ("_blocks", "_too_many", "solved"):  # what was listed is not listed again
            made.__dict__[known] = getattr(self, known)
        return made

    @cached_property
    def farthest(self) -> Sensitivity:
        """The farthest move of a single output, in either norm."""
        return self.adjacency.sensitivity(self.query, 1)

    @cached_property
    def solved(self) -> dict[str, LeastTrace]:
        """What was found about the least Gaussian noise of blocks, by their keys."""
        return {}

    @cached_property
    def _blocks(self) -> dict[int, list[Block]]:
        return {}

    @cached_property
    def _too_many(self) -> dict[int, TooManyCircuitsError]:
        return {}

    def error(self, mechanism: MechanismRecord) -> float:
        """Return what is to be least."""
        return error_under(mechanism, self.weights, self.objective)


def pure_share(epsilon: float, releases: int) -> float:
    """Return what one of several releases of a pure law may promise: they add up to ε."""
    return epsilon if releases == 1 else epsilon / releases * (1 - 2e-15)


def gaussian_share(epsilon: float, delta: float, releases: int) -> float:
    """Return the sensitivity that one of several Gaussian releases may have: squares add up."""
    whole = largest_sensitivity(epsilon, delta)
    return whole if releases == 1 else whole / math.sqrt(releases) * (1 - 2e-15)


def checked_releases(releases: Any) -> int:
    """Return how many releases are planned, or refuse what is no such number."""
    return whole_number(releases, "releases", most=MOST_RELEASES)


def checked_problem(
    adjacency: Adjacency,
    asked: tuple[Matrix, tuple[str, ...]],
    weights: Any,
    epsilon: float,
    delta: float,
    releases: int,
    objective: Objective,
    integers: bool,
    imbalance: float | None,
) -> Problem:
    """Return the problem, or refuse what cannot be."""
    releases = checked_releases(releases)
    if objective not in ("sum", "largest"):
        raise AffineDPError(f"objective must be 'sum' or 'largest', not {objective!r}")
    if objective == "largest" and weights is not None:
        raise AffineDPError(
            "weights go with objective='sum'; scale the outputs in the query instead, so that "
            "their largest variance is what matters"
        )
    epsilon, delta = checked_promise(epsilon, delta)
    if epsilon == delta == 0.0:
        raise AffineDPError("epsilon must be at least 0 and delta in [0, 1), not both 0")
    query, names = asked
    return Problem(
        adjacency, query, names, checked_weights(weights, query.shape[0]), epsilon, delta,
        int(releases), objective, yes_or_no(integers, "integers"), imbalance,
    )  # fmt: skip


def checked_promise(epsilon: Any, delta: Any) -> tuple[float, float]:
    """Return ε and δ exactly as they were given, or refuse what is no promise."""
    return real_number(epsilon, "epsilon", 0.0), real_number(delta, "delta", 0.0, 1.0)


def check_law(law: str, epsilon: float, delta: float, gaussian_only: bool = False) -> None:
    """Refuse what is no law, Gaussian noise without a δ, and Laplace noise without an ε."""
    if law not in ("auto", "gaussian", "laplace"):
        raise AffineDPError(f"law must be 'auto', 'gaussian' or 'laplace', not {law!r}")
    if gaussian_only and law == "laplace":
        raise AffineDPError("only Gaussian noise is made for these neighbours: leave law out")
    if not delta > 0 and (law == "gaussian" or gaussian_only):
        raise AffineDPError("Gaussian noise keeps no promise at delta = 0: give a delta above 0")
    if not epsilon > 0 and (law == "laplace" or delta == 0):
        raise AffineDPError("Laplace noise keeps no promise at epsilon = 0: give one above 0")


def check_grid(epsilon: float, delta: float, changed: int) -> None:
    """Refuse a δ so small that Gaussian noise on a grid could be told from noise on the line.

    The discrete law of one number is within 4⁻ᵏ/24 of the rounded Gaussian, and only numbers that
    neighbours change count: δ grows by at most (1 + e^ε) · changed · 4⁻ᵏ/24.  The share 2⁻³⁰ of
    the noise pays for 10⁻¹⁰ of δ and more.
    """
    try:
        added = (1 + math.exp(epsilon)) * changed * 4.0**-GRID_BITS / 24
    except OverflowError:
        added = math.inf
    if not added <= 1e-10 * delta:
        raise AffineDPError(
            f"delta = {delta:g} is too small, or epsilon = {epsilon:g} too large, for noise on the "
            f"grid of 2^-{GRID_BITS}: it could add {added:.1e} to delta"
        )
