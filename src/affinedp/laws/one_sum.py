"""One public sum of n entries: K = hull(e_i − e_j), the gauge is half the 1-norm on Σ z = 0.

On integers ``z = G − G'`` with G and G' uniform among the ways to write the same s as a sum of n
numbers, s with weight C(s+n−1, n−1)² e^(−rate s).  docs/explanation/knorm.md has the proofs.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError

EPS = float(np.finfo(float).eps)
# Terms of a series that are still added up; beyond, the rate is too small for the integers.
MOST_TERMS = 20_000_000


def continuous_error(n: int, rate: float) -> float:
    """Return E |z|² of the law e^(−rate ‖z‖₁ / 2) on {z ∈ R^n, Σ z = 0}."""
    return 4 * (n - 1) * (2 * n - 1) / ((n + 1) * rate**2)


def integer_error(n: int, rate: float) -> float:
    """Return E |z|² of the law e^(−rate ‖z‖₁ / 2) on {z ∈ Z^n, Σ z = 0}.

    Given s, two uniform compositions have E|G − G'|² = 2 s (s+n) (n−1) / (n (n+1)).
    """
    if n == 2:  # geometric noise
        return 1 / math.sinh(rate / 2) ** 2
    weights, s = _sizes(n, rate)
    mean = float((weights * s * (s + n)).sum() / weights.sum())
    return 2 * mean * (n - 1) / (n * (n + 1.0))


def largest_loss_probability(n: int, rate: float) -> float:
    """Return, rounded up, the probability of the loss +rate between neighbours on integers.

    a = Σ C(k+n−2, n−2)² q^k / ((1−q)² Σ C(k+n−1, n−1)² q^k) with q = e^(−rate): the law has the
    loss +rate where z_i ≥ 0 ≥ z_j.
    """
    bound = 1 / (1 + math.exp(-rate))  # that of randomised response
    try:
        (upper, _), (lower, _) = (_sizes(m, rate) for m in (n - 1, n))
    except AffineDPError:
        return math.nextafter(bound, 1.0)
    log = _log_total(upper, n - 1, rate) - _log_total(lower, n, rate)
    found = math.exp(log - 2 * math.log(-math.expm1(-rate)))
    # sums of logarithms of gamma functions: relative 1e-13 each, and far fewer than 1e3 of them
    return min(found * (1 + 1e-10), math.nextafter(bound, 1.0))


def _log_weight(s: FloatArray, n: int, rate: float) -> FloatArray:
    from scipy.special import gammaln

    return np.asarray(2 * (gammaln(s + n) - gammaln(s + 1)) - rate * s)


def _top(n: int, rate: float) -> int:
    """Where C(s+n−1, n−1)² e^(−rate s) is about largest."""
    return max(0, int((n - 1) / math.expm1(rate / 2)))


def _sizes(n: int, rate: float) -> tuple[FloatArray, FloatArray]:
    """Weights of the sizes s, the largest about 1, and s; what is left out is below 1e-20."""
    top = _top(n, rate)
    spread = math.sqrt((top + 1.0) * (top + n)) / math.sqrt(n)
    low = max(0, math.floor(top - 12 * spread - 60 / rate))
    high = top + math.ceil(14 * spread + 120 / rate)
    if high - low > MOST_TERMS:
        raise AffineDPError(
            f"noise of rate {rate:g} on {n:,} integers is spread too widely to add up its law; "
            "treat the data as real numbers"
        )
    s = np.arange(low, high + 1, dtype=float)
    logs = _log_weight(s, n, rate)
    return np.exp(logs - _log_weight(np.array([float(top)]), n, rate)[0]), s


def _log_total(weights: FloatArray, n: int, rate: float) -> float:
    """log Σ C(s+n−1, n−1)² e^(−rate s)."""
    at_top = float(_log_weight(np.array([float(_top(n, rate))]), n, rate)[0])
    return math.log(math.fsum(weights)) + at_top - 2 * math.lgamma(n)


def sample(
    n: int, rate: float, integers: bool, size: int, generator: np.random.Generator
) -> FloatArray:
    """Draw z for simulation, shape (size, n)."""
    shares = generator.standard_exponential((2, size, n))
    shares /= shares.sum(axis=2, keepdims=True)
    if not integers:
        s = generator.gamma(2 * n - 1, 1 / rate, size)
        return np.asarray(s[:, None] * (shares[0] - shares[1]))
    weights, sizes = _sizes(n, rate)
    chosen = generator.choice(sizes, size, p=weights / weights.sum()).astype(np.int64)
    # uniform shares make a multinomial a uniform composition
    drawn = [generator.multinomial(chosen, part) for part in shares]
    return np.asarray(drawn[0] - drawn[1], dtype=float)
