"""Privacy filters: whether all releases together keep (ε, δ), also if the analyst adapts.

Three rules may accept a charge of a ledger whose analyst looks at what was released:

* **pure**: there is no Gaussian noise, and all ε add up to the cap at most;
* **one Gaussian**: one Gaussian mechanism that dominates all releases keeps the cap with its share
  of δ; every pure release counts as the Gaussian one that dominates it;
* **apart**: pure ε add up to a number A at most, and the Gaussian releases keep ε − A with the
  share of δ of that A, for one of ``STEPS`` numbers A.

Each rule alone is a filter for its own share of δ.  With p and q the likelihoods of a course of
events under two neighbours, what courses that end within a rule add to ∫ (p − e^ε q)₊ is:

* pure: nothing, since p ≤ e^ε q on each of them;
* one Gaussian: at most its share, by composition with a budget that was fixed (Smith and Thakurta
  2022; Dong, Roth and Su 2022);
* apart: let q' be the likelihood with the Gaussian noise of q and the pure noise of p.  Then
  q' ≤ e^A q, and p and q' differ in Gaussian noise alone, so (p − e^(ε−A) q')₊ integrates to the
  share of A at most, and (p − e^ε q)₊ to no more.

Totals only grow, so a course that ends within a rule was within it all along: a filter of that rule
alone would have let the very same course pass.  Every course that is let pass ends within some
rule; each is counted for one of them, and together they add at most the sum of all shares, which is
δ.  *The best rule for each course* with all of δ each would be no filter: an analyst who picks the
course by what was shown can nearly double δ.

The shares, and the numbers A, follow from the cap and the first charge, which is chosen before
anything was shown.  If it has Gaussian noise, all of δ belongs to "one Gaussian".  If it is pure,
half of δ belongs to that rule, and half to the numbers A, which go up from the ε of the first
charge in equal steps.

If nothing is chosen by what was shown (``adaptive=False``), every bound may use all of δ.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from affinedp.arrays import EPS
from affinedp.errors import AffineDPError, MissingExtraError, outside
from affinedp.exact.numbers import rounded_up
from affinedp.laws.calibration import gaussian_delta, gaussian_epsilon
from affinedp.laws.curves import ComposedCurve, dominating_gaussian, is_pure, pair_of

# Numbers A of the rule "apart".
STEPS = 16
# Privacy-loss accounting takes seconds beyond these; the other bounds serve then.
MOST_ACCOUNTED, MOST_ACCOUNTED_LOSS = 100, 20.0

# How often each (law, sensitivity) was charged.
Losses = Counter[tuple[str, float]]


class LedgerWarning(UserWarning):
    """Something that a person must judge, such as a ledger that was moved or copied."""


class Bound(NamedTuple):
    """What one rule says: Σε of pure noise and √Σs² of Gaussian noise, with a share of δ."""

    rule: str
    pure: Fraction
    gaussian: float
    share: float

    def allows(self, epsilon: float) -> bool:
        """Whether it keeps ε with its share of δ."""
        left = -rounded_up(self.pure - Fraction(epsilon))
        if left < 0.0 or self.gaussian == 0.0:
            return left >= 0.0
        return self.share > 0.0 and bool(gaussian_delta(left, self.gaussian) <= self.share)

    def spent(self) -> float:
        """The least ε that it keeps, rounded up."""
        pure = rounded_up(self.pure)
        if self.gaussian == 0.0:
            return pure
        if self.share == 0.0:
            return math.inf
        more = float(gaussian_epsilon(self.share, self.gaussian))
        return math.nextafter(pure + more, math.inf) if pure else more


@dataclass(frozen=True)
class Filter:
    """The rules of one ledger: its cap, and whether later charges may depend on what was shown."""

    epsilon: float
    delta: float
    adaptive: bool

    def allows(self, losses: Losses, first: Losses) -> bool:
        """Whether all these releases together are (ε, δ)-private; ``first`` was charged first."""
        if any(bound.allows(self.epsilon) for bound in self.bounds(losses, first)):
            return True
        if self.adaptive or self.delta == 0.0:
            return False
        return _accounted(losses, lambda curve: curve.delta(self.epsilon)) <= self.delta

    def spent(self, losses: Losses, first: Losses) -> float:
        """The least ε at δ by the rules that allow charges."""
        found = [bound.spent() for bound in self.bounds(losses, first)]
        if not self.adaptive and self.delta > 0.0:
            found.append(_accounted(losses, lambda curve: curve.epsilon(self.delta)))
        return min(found, default=math.inf)

    def bounds(self, losses: Losses, first: Losses) -> Iterator[Bound]:
        """What each rule says of these releases; the one that takes longest comes last."""
        pure, gaussian = _pure_and_gaussian(losses)
        if gaussian == 0.0:
            yield Bound("the sum of pure ε", pure, 0.0, 0.0)
        if self.delta == 0.0:
            return
        begun, gaussian_first = _pure_and_gaussian(first)
        share = self.delta
        if not self.adaptive:
            yield Bound("pure and Gaussian noise apart", pure, gaussian, self.delta)
        elif gaussian_first == 0.0:
            # rounded down: all shares together are δ at most
            share, part = (math.nextafter(self.delta / n, 0.0) for n in (2, 2 * STEPS))
            step = (Fraction(self.epsilon) - begun) / STEPS
            place = math.ceil((pure - begun) / step) if step > 0 else STEPS
            if place < STEPS:
                yield Bound("pure and Gaussian noise apart", begun + place * step, gaussian, part)
        yield Bound("one Gaussian for all", Fraction(), _as_gaussian(losses), share)

    def room(self, losses: Losses, first: Losses, more: Losses) -> float:
        """ε alone of the largest charge like ``more``, with more noise, that would be allowed."""

        def with_noise(share: float) -> Losses:
            return Counter({(law, s * share): count for (law, s), count in more.items()})

        def fits(share: float) -> bool:
            added = with_noise(share)
            bounds = self.bounds(losses + added, first or added)
            return any(bound.allows(self.epsilon) for bound in bounds)

        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        alone = with_noise(low)
        return min((bound.spent() for bound in self.bounds(alone, alone)), default=0.0)


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
        warnings.warn(
            f"simple composition is used instead: {error}", LedgerWarning, stacklevel=outside()
        )
    except AffineDPError:
        pass  # too weak for it
    return math.inf


def multiplied(losses: list[tuple[str, float]], releases: int) -> Losses:
    """Count each loss once per release; what cannot be a loss is refused."""
    total: Losses = Counter()
    for law, s in losses:
        if not (law == "gaussian" or is_pure(law)) or not 0.0 <= s < math.inf:
            raise AffineDPError(f"a loss of law {law!r} and sensitivity {s!r} cannot be charged")
        total[law, s] += releases
    return total
