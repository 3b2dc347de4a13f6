"""Privacy filters: whether all releases together keep (ε, δ), also if the analyst adapts."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.laws.calibration import gaussian_delta, gaussian_epsilon
from affinedp.laws.curves import EPS, ComposedCurve
from affinedp.laws.pure_curves import dominating_gaussian, is_pure, pair_of

# Privacy-loss accounting takes seconds beyond these; the other bounds serve then.
MOST_ACCOUNTED, MOST_ACCOUNTED_LOSS = 100, 20.0

# How often each (law, sensitivity) was charged.
Losses = Counter[tuple[str, float]]


class LedgerWarning(UserWarning):
    """Something that a person must judge: a moved or copied ledger, or one of an older version."""


def _pure_and_gaussian(losses: Losses) -> tuple[Fraction, float]:
    """Σε of the pure parts, without rounding, and √Σs² of the Gaussian ones, rounded up."""
    pure = sum((Fraction(s) * k for (law, s), k in losses.items() if is_pure(law)), Fraction())
    return pure, _root_of_squares({s: k for (law, s), k in losses.items() if law == "gaussian"})


def _as_gaussian(losses: Losses) -> float:
    """The sensitivity of one Gaussian mechanism that dominates them all, rounded up."""
    parts: Counter[float] = Counter()
    for (law, s), count in losses.items():
        pair = pair_of(law, s)
        if pair is not None:
            parts[dominating_gaussian(pair)] += count
        else:
            parts[_dominating_gaussian(s) if law == "laplace" else s] += count
    return _root_of_squares(parts)


def _root_of_squares(counts: Mapping[float, int]) -> float:
    # hypot neither overflows nor loses tiny parts, as a sum of squares would
    total = math.hypot(*(s * math.sqrt(count) for s, count in counts.items()))
    return math.nextafter(total * (1 + 8 * EPS), math.inf) if total else 0.0


def _dominating_gaussian(a: float) -> float:
    """The s with κ(0, s) = 1 − e^{−a/2}, rounded up: then κ(ε, s) is at least Laplace's δ(ε).

    For Laplace noise log(1 − δ) is the line (ε − a)/2 up to ε = a.  1 − κ is the integral of
    min(p, e^ε q) over two Gaussian densities, so log(1 − κ) is concave in ε (Prékopa); at ε = 0
    its slope is Φ(−s/2)/(1 − κ(0, s)) = 1/2 too, so it stays below the line.
    """
    from scipy import special

    if a < 1e-8:  # the limit √(π/2) a is an upper bound
        s = 1.2533141374 * a
    elif a < 1.0:
        s = 2 * math.sqrt(2.0) * float(special.erfinv(-math.expm1(-a / 2)))
    else:
        s = 2 * math.sqrt(2.0) * float(special.erfcinv(math.exp(-a / 2)))
    return math.nextafter(s * (1 + 1e-13), math.inf) if a else 0.0


def allows(losses: Losses, epsilon: float, delta: float, adaptive: bool) -> bool:
    """Whether all these releases together are (ε, δ)-private.

    For ``adaptive`` only two rules count: pure ε add up to ε at most, or the dominating Gaussian
    is (ε, δ)-private.  Both are privacy filters, and so is "either": along every course of events
    that passes by the first rule the likelihood ratio is at most e^ε, so it adds nothing to δ.
    The best bound for each course of events would be no filter: an analyst who picks the course
    by what was shown can double δ.
    """
    pure, gaussian = _pure_and_gaussian(losses)
    if gaussian == 0.0 and pure <= Fraction(epsilon):
        return True
    if delta == 0.0:
        return False
    if gaussian_delta(epsilon, _as_gaussian(losses)) <= delta:
        return True
    if adaptive:
        return False
    left = -_rounded_up(pure - Fraction(epsilon))
    if left >= 0.0 and gaussian_delta(left, gaussian) <= delta:
        return True
    return _accounted(losses, lambda curve: curve.delta(epsilon)) <= delta


def spent_epsilon(losses: Losses, delta: float, adaptive: bool) -> float:
    """The least ε at δ by the rules of :func:`allows`."""
    pure, gaussian = _pure_and_gaussian(losses)
    bounds = [_rounded_up(pure) if gaussian == 0.0 else math.inf]
    if delta > 0.0:
        bounds.append(float(gaussian_epsilon(delta, _as_gaussian(losses))))
    if delta > 0.0 and not adaptive:
        simple = _rounded_up(pure) + float(gaussian_epsilon(delta, gaussian))
        bounds.append(math.nextafter(simple, math.inf))
        bounds.append(_accounted(losses, lambda curve: curve.epsilon(delta)))
    return min(bounds)


def _accounted(losses: Losses, ask: Callable[[ComposedCurve], float]) -> float:
    """What privacy-loss accounting answers; inf where it cannot."""
    pure, gaussian = _pure_and_gaussian(losses)
    chosen = {loss: count for loss, count in losses.items() if is_pure(loss[0]) and loss[1] > 0.0}
    if not chosen or sum(chosen.values()) > MOST_ACCOUNTED or pure > MOST_ACCOUNTED_LOSS:
        return math.inf
    parts = [loss for loss, count in chosen.items() for _ in range(count)]
    try:
        return ask(ComposedCurve((("gaussian", gaussian), *parts)))
    except MissingExtraError as error:
        warnings.warn(f"simple composition is used instead: {error}", LedgerWarning, stacklevel=2)
    except AffineDPError:
        pass  # too weak for it
    return math.inf


def _rounded_up(value: Fraction) -> float:
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return number if Fraction(number) >= value else math.nextafter(number, math.inf)


def multiplied(losses: list[tuple[str, float]], releases: int) -> Losses:
    """Count each loss once per release; what cannot be a loss is refused."""
    total: Losses = Counter()
    for law, s in losses:
        if not (law == "gaussian" or is_pure(law)) or not 0.0 <= s < math.inf:
            raise AffineDPError(f"a loss of law {law!r} and sensitivity {s!r} cannot be charged")
        total[law, s] += releases
    return total
