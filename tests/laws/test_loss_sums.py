"""Releases whose losses have a few values, together: against all outcomes, one by one."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

import affinedp as adp
from affinedp.laws.curves import ComposedCurve, ThreeAtoms, loss_sum

mp = mpmath.mp.clone()
mp.dps = 60


def outcomes(pairs):
    """(probability under one neighbour, loss) of every outcome of independent releases."""
    single = []
    for epsilon, top in pairs:
        e = mp.mpf(epsilon)
        a = 1 / (1 + mp.exp(-e)) if top is None else mp.mpf(top)
        low = a * mp.exp(-e)
        single.append([(a, e), (1 - a - low, mp.mpf(0)), (low, -e)])
    for chosen in itertools.product(*single):
        yield mp.fprod(p for p, _ in chosen), mp.fsum(l for _, l in chosen)


def exact_delta(pairs, epsilon):
    terms = (p * (1 - mp.exp(epsilon - l)) for p, l in outcomes(pairs) if l > epsilon)
    return float(mp.fsum(terms))


def curve(pairs, *others):
    losses = [loss for e, top in pairs for loss in ThreeAtoms(e, top).losses()]
    return ComposedCurve((*losses, *others))


CASES = [
    [(0.5, 0.4)] * 7,
    [(0.1, None)] * 5 + [(0.3, 0.2)] * 2,
    [(0.1 + 0.07 * i, 0.45) for i in range(7)],
    [(1.0, 0.7), (1.1, None), (20.0, 0.9), (1e-7, 0.3)],
    [(30.0, 0.99)] * 4,
]


@pytest.mark.parametrize("pairs", CASES)
def test_delta_is_that_of_all_outcomes_and_never_below(pairs):
    total = sum(e for e, _ in pairs)
    composed = curve(pairs)
    for share in (0.0, 0.1, 0.37, 0.8, 0.99, 0.999999):
        exact = exact_delta(pairs, share * total)
        found = composed.delta(share * total)
        assert exact <= found <= exact * (1 + 1e-9) + 1e-11 * total
    assert composed.delta(total * (1 + 1e-9)) == 0.0
    assert composed.epsilon(0.0) == pytest.approx(total)


@pytest.mark.parametrize("pairs", CASES)
def test_epsilon_holds_and_nothing_less_does(pairs):
    composed = curve(pairs)
    for delta in (1e-9, 1e-3, 0.2):
        epsilon = composed.epsilon(delta)
        assert exact_delta(pairs, epsilon) <= delta
        if epsilon > 0:
            assert exact_delta(pairs, epsilon * (1 - 1e-8)) > delta


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_with_another_release_delta_is_the_integral_over_both(law):
    pairs, s = [(0.5, 0.4)] * 3 + [(0.8, None)], 0.6
    gaussian = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    noise = gaussian if law == "gaussian" else lambda x: math.exp(-abs(x)) / 2
    composed = curve(pairs, (law, s))
    for epsilon in (0.0, 0.4, 1.7):
        exact = 0.0
        for p, loss in outcomes(pairs):
            p, loss = float(p), float(loss)
            factor = math.exp(epsilon - loss)
            density = lambda x, f=factor: max(0.0, noise(x) - f * noise(x - s))  # noqa: E731
            ends = [-12, 0, s, (s + epsilon - loss) / 2, s / 2 - (epsilon - loss) / s, 12]
            ends = sorted(min(max(end, -12), 12) for end in ends)
            for a, b in itertools.pairwise(ends):
                exact += p * integrate.quad(density, a, b, epsabs=1e-13)[0]
        found = composed.delta(epsilon)
        assert found == pytest.approx(exact, abs=2e-5 if law == "laplace" else 1e-9)
        assert found >= exact - 1e-9
    epsilon = composed.epsilon(1e-4)
    assert composed.delta(epsilon) <= 1e-4 < composed.delta(epsilon * (1 - 1e-9))


def test_gaussian_noise_split_over_releases_is_one():
    pairs = [(0.3, 0.3)] * 4
    one, two = curve(pairs, ("gaussian", 0.5)), curve(pairs, ("gaussian", 0.3), ("gaussian", 0.4))
    assert one.delta(0.7) == pytest.approx(two.delta(0.7), rel=1e-12)


def test_many_alike_and_many_kinds():
    """A thousand stairs, against a binomial sum; a few too many kinds are left to accounting."""
    pair, count = ThreeAtoms(0.02), 1000
    p = 1 / (1 + math.exp(-0.02))
    plus = np.arange(count + 1)
    losses = 0.02 * (2 * plus - count)
    weights = stats.binom.pmf(plus, count, p)
    for epsilon in (0.5, 1.0, 2.5):
        exact = float((weights * np.maximum(0, 1 - np.exp(epsilon - losses))).sum())
        found = loss_sum({pair: count}).delta(epsilon)
        assert found == pytest.approx(exact, rel=1e-8)
    rng = np.random.default_rng(0)
    kinds = {ThreeAtoms(float(e), 0.4): 1 for e in rng.uniform(0.1, 1, 40)}
    assert loss_sum(kinds) is None
    assert loss_sum({pair: 10**6}) is None
    assert loss_sum({}) is None


@pytest.mark.parametrize("epsilon", [1.0, 30.0, 190.0])
def test_stairs_compose_at_any_epsilon(epsilon):
    """At large ε the loss is +ε nearly always, and that must not turn into another law."""
    manifold = adp.AffineManifold([[1.0, -1.0]])
    one = adp.design(manifold, epsilon=epsilon, law="staircase").guarantee
    ten = adp.compose([one] * 10)
    assert ten.epsilon() == pytest.approx(10 * epsilon)
    assert ten.epsilon(1e-6) < 10 * epsilon
    assert 0 < ten.delta(9 * epsilon) <= 1


def test_a_loss_of_no_known_law_is_refused():
    """It is not taken for Gaussian noise."""
    for law in ("three atoms zebra", "three atoms 0x1.8p+0", "cauchy"):
        with pytest.raises(adp.AffineDPError, match="no privacy loss is known"):
            ComposedCurve(((law, 1.0), ("gaussian", 0.5))).delta(1.0)
        with pytest.raises(adp.AffineDPError, match="no privacy loss is known"):
            ComposedCurve(((law, 1.0), ("gaussian", 0.5))).renyi(2.0)
