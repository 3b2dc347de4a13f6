"""What a gateway must know of a mechanism to choose its grids and its fresh noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.files.proofs import AGREEMENT
from affinedp.mechanism import Mechanism
from affinedp.privacy.promise import promise
from affinedp.strategies.causal import Causal
from affinedp.strategies.filter import Filter
from affinedp.strategies.rounded_plan import GRID_BITS
from affinedp.strategies.trajectory import Trajectory

# Without a declared error, 2e/τ over all steps and outputs adds up to twice this share of s.
DEVIATION_SHARE = 2.0**-16
# τ is at most this share of the noise (the lower decile over time), unless the caller decides.
FRESH_SHARE = 2.0**-10
# The same for very many steps, each of which rounds: a part in a thousand of the variance.
FRESH_SHARE_ENDLESS, MANY_STEPS = 2.0**-5, 2**24
# ζ of stationary noise lives on multiples of 2^-STREAM_BITS of its scale: there are very many.
STREAM_BITS = 96
# For sums and roots in double precision; far more than they round.
SAFE = 1e-12
# Steps whose noise is listed to choose by.
MOST_STEPS = 20_000_000


@dataclass(frozen=True)
class Facts:
    """What the plan of a gateway follows from.

    Attributes
    ----------
    names : tuple of str
        Of the outputs.
    sensitivity : float
        s.
    steps : int
        T, how many are sent at most.
    loading : array, shape (m,)
        How far output i moves at most if every number that is drawn once moves by 2⁵⁶ steps of its
        grid.
    variance : float
        V, of the correlated noise, over all outputs and steps.
    usual : array, shape (m,)
        Fresh noise that is far below the noise; 0 for an output without any.
    pure : bool
        Whether δ = 0 is promised: losses add up, and the fresh noise is Laplace noise.
    """

    names: tuple[str, ...]
    sensitivity: float
    steps: int
    loading: FloatArray
    variance: float
    usual: FloatArray
    pure: bool = False

    @property
    def draws(self) -> int:
        """T m, the fresh ones."""
        return self.steps * len(self.names)

    def own_error(self, fresh: FloatArray) -> FloatArray:
        """Return a bound on all that is rounded: y and γ to the grid, the path, and the draws."""
        own = fresh * 2.0 ** -(GRID_BITS - 1) + self.loading * 2.0 ** -(GRID_BITS + 1)
        return np.asarray(own * (1 + SAFE))

    def free_deviation(self, fresh: FloatArray) -> FloatArray:
        """Return the deviation that costs next to nothing."""
        many = float(self.draws) if self.pure else math.sqrt(self.draws)
        return np.asarray(fresh * (self.sensitivity * DEVIATION_SHARE / many))

    def least_fresh(self) -> FloatArray | None:
        """Return the fresh noise from which our own rounding costs next to nothing, if any."""
        spare = float(self.free_deviation(np.array(1.0))) / 2
        spare -= 2.0 ** -(GRID_BITS - 1) * (1 + SAFE)
        if spare <= 0:
            return None
        return np.asarray(self.loading * 2.0 ** -(GRID_BITS + 1) / spare)


def facts_of(mechanism: Mechanism, strategy: Causal, steps: int) -> Facts:
    """Return the facts of noise with a memory, over the steps of a run."""
    if isinstance(strategy, Trajectory):
        return _of_one_draw(mechanism, strategy)
    if isinstance(strategy, Filter):
        return _of_filter(mechanism, strategy, steps)
    raise AffineDPError(f"a gateway does not know noise of a {type(strategy).__name__}")


def _of_one_draw(mechanism: Mechanism, strategy: Trajectory) -> Facts:
    """The facts of noise from one draw."""
    check_promise(mechanism)
    dynamics, law = strategy.domain, mechanism.noise
    if dynamics.horizon > MOST_STEPS:
        raise AffineDPError(
            f"a horizon of {dynamics.horizon:,} steps is too long to send one by one: give "
            "horizon=, how many steps this run has at most, or send once and predict "
            "(once_then_predict)"
        )
    deviations = strategy.deviations(law, dynamics.horizon)
    # these are doubles: each is off by at most (2n + 4) ulp of |C| |A…A| |R|
    rows = np.abs(dynamics.C.reshape(-1, *dynamics.C.shape[-2:])).max(axis=0)
    size = np.linalg.norm(rows, axis=1) * math.sqrt(np.trace(law.covariance(strategy.start)))
    size = size * math.ldexp(1.0, strategy.growth)
    largest = deviations.max(axis=0) + size * dynamics.states * 2.0**-40
    return Facts(
        dynamics.output_names,
        mechanism.guarantee.sensitivity,
        dynamics.horizon,
        math.sqrt(strategy.coordinates) * largest * (1 + SAFE),
        float((deviations**2).sum()),
        np.array([_usual(spread) for spread in deviations.T]),
        law.norm != 2,
    )


def _of_filter(mechanism: Mechanism, made: Filter, steps: int) -> Facts:
    """Return the facts of stationary noise."""
    check_promise(mechanism)
    moved = made.loading() * made.scale * 2.0 ** (GRID_BITS - STREAM_BITS) * (1 + SAFE)
    deviations = np.sqrt(made.last_variances(mechanism.noise))
    more = FRESH_SHARE_ENDLESS / FRESH_SHARE if steps > MANY_STEPS else 1.0
    facts = Facts(
        made.step_names,
        mechanism.guarantee.sensitivity,
        steps,
        moved,
        made.mean_variance(mechanism.noise) * steps,
        more * np.array([_usual(np.array([spread])) for spread in deviations]),
    )
    least = facts.least_fresh()
    if least is None:
        return facts
    # a long memory and many steps need a little more
    return Facts(
        facts.names,
        facts.sensitivity,
        steps,
        moved,
        facts.variance,
        np.maximum(facts.usual, 1.01 * least),
    )


def _usual(spread: FloatArray) -> float:
    noisy = spread[spread > 0]
    if not len(noisy):
        return 0.0
    usual = FRESH_SHARE * float(np.quantile(noisy, 0.1, method="lower"))
    return math.ldexp(1.0, math.frexp(usual)[1] - 1)


def check_promise(mechanism: Mechanism) -> None:
    """Refuse a guarantee that promises nothing, or more than its noise keeps."""
    guarantee = mechanism.guarantee
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is sent with it")
    found = promise(mechanism.adjacency, mechanism.strategy, mechanism.noise).sensitivity
    if not found <= guarantee.sensitivity * (1 + AGREEMENT):
        raise AffineDPError(
            f"the guarantee states a sensitivity of {guarantee.sensitivity!r}, but the noise gives "
            f"{found!r}: they do not belong together"
        )
