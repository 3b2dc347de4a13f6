"""What is to be designed: the promise, the releases it is for, and what counts as error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import Matrix, yes_or_no
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.designs.separate import checked_weights
from affinedp.errors import AffineDPError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.privacy.least_error import Data
from affinedp.privacy.least_possible import Objective
from affinedp.record import MechanismRecord, error_under
from affinedp.strategies.rounded_plan import GRID_BITS

MOST_RELEASES = 10**9


@dataclass(frozen=True)
class Problem:
    """What is to be designed, checked.

    Attributes
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    query, names : matrix and tuple of str
        F, and the names of its outputs.
    weights : matrix, shape (m, m)
        What squared error costs.
    epsilon, delta, releases : float, float and int
        The promise that so many releases keep together.
    objective : {"sum", "largest"}
        What is to be least.
    integers : bool
        Whether the data is whole.
    imbalance : float or None
        For moves that cannot be listed.
    """

    adjacency: Adjacency
    query: Matrix
    names: tuple[str, ...]
    weights: Matrix
    epsilon: float
    delta: float
    releases: int
    objective: Objective
    integers: bool
    imbalance: float | None

    @property
    def data(self) -> Data:
        """Which numbers the bound is about."""
        return "integer" if self.integers else "real"

    @property
    def pure_epsilon(self) -> float:
        """What one release of a pure law promises: they add up to ε, rounding included."""
        return pure_share(self.epsilon, self.releases)

    @property
    def sensitivity(self) -> float:
        """What one Gaussian release may have: squares add up, rounding included."""
        return gaussian_share(self.epsilon, self.delta, self.releases)

    def error(self, mechanism: MechanismRecord) -> float:
        """Return what is to be least.

        Parameters
        ----------
        mechanism : MechanismRecord
            The noise.
        """
        return error_under(mechanism, self.weights, self.objective)


def pure_share(epsilon: float, releases: int) -> float:
    """Return what one of several releases of a pure law may promise: they add up to ε.

    Parameters
    ----------
    epsilon : float
        The promise of all together.
    releases : int
        How many there are.
    """
    return epsilon if releases == 1 else epsilon / releases * (1 - 2e-15)


def gaussian_share(epsilon: float, delta: float, releases: int) -> float:
    """Return the sensitivity that one of several Gaussian releases may have: squares add up.

    Parameters
    ----------
    epsilon, delta : float
        The promise of all together.
    releases : int
        How many there are.
    """
    whole = largest_sensitivity(epsilon, delta)
    return whole if releases == 1 else whole / math.sqrt(releases) * (1 - 2e-15)


def checked_releases(releases: Any) -> int:
    """Return how many releases are planned, or refuse what is no such number.

    Parameters
    ----------
    releases : int
        At least 1.
    """
    if isinstance(releases, bool) or not isinstance(releases, int | np.integer):
        raise AffineDPError(f"releases must be a whole number, not {releases!r}")
    if not 1 <= releases <= MOST_RELEASES:
        raise AffineDPError(f"releases must be 1 to {MOST_RELEASES:,}, not {releases}")
    return int(releases)


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
    """Return the problem, or refuse what cannot be.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    asked : tuple
        F and the names of its outputs.
    weights, epsilon, delta, releases, objective, integers, imbalance
        As for :func:`affinedp.design`.
    """
    releases = checked_releases(releases)
    if objective not in ("sum", "largest"):
        raise AffineDPError(f"objective must be 'sum' or 'largest', not {objective!r}")
    if objective == "largest" and weights is not None:
        raise AffineDPError(
            "weights go with objective='sum'; scale the outputs in the query instead, so that "
            "their largest variance is what matters"
        )
    if not 0.0 <= delta < 1.0 or not 0.0 <= epsilon < math.inf or epsilon == delta == 0.0:
        raise AffineDPError(f"ε must be at least 0 and δ in [0, 1), not {epsilon}, {delta}")
    query, names = asked
    return Problem(
        adjacency, query, names, checked_weights(weights, query.shape[0]), epsilon, delta,
        int(releases), objective, yes_or_no(integers, "integers"), imbalance,
    )  # fmt: skip


def check_grid(epsilon: float, delta: float, changed: int) -> None:
    """Refuse a δ so small that Gaussian noise on a grid could be told from noise on the line.

    The discrete law of one number is within 4⁻ᵏ/24 of the rounded Gaussian, and only numbers that
    neighbours change count: δ grows by at most (1 + e^ε) · changed · 4⁻ᵏ/24.  The share 2⁻³⁰ of
    the noise pays for 10⁻¹⁰ of δ and more.

    Parameters
    ----------
    epsilon, delta : float
        The promise.
    changed : int
        How many noisy numbers two neighbours can change.
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
