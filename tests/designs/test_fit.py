"""Noise of any law is scaled to what was asked for: never less, and not noticeably more."""

from dataclasses import dataclass

import numpy as np
import pytest

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.laws.base import NOTHING_KNOWN, Law
from affinedp.laws.curves import ThreeAtoms
from affinedp.laws.laplace import Geometric, Geometrics, Laplace
from affinedp.strategies.base import Strategy
from affinedp.strategies.dense import Dense

PAIR = adp.AffineManifold([[1, -1]], names=["a", "b"])
FREE = adp.AffineManifold(np.zeros((0, 3)), names=["x", "y", "z"])


@dataclass(frozen=True, eq=False)
class Bins(Strategy):
    """Whole noise on every bin."""

    kind = "test.bins"
    domain: adp.AffineManifold
    names = property(lambda self: self.domain.names)
    coordinates = property(lambda self: self.domain.n)

    def measure(self, moves, absolute=False):
        return moves

    def loadings(self, combinations=None):
        return np.eye(self.domain.n) if combinations is None else combinations

    def scaled(self, factor):
        raise AffineDPError("whole noise is not scaled")


def laplace_delta(epsilon, scale):
    """δ of two independent Laplace numbers that both move by 1: a sum over a fine grid."""
    x = (np.arange(-8000, 12_000) + 0.5) / 400 * scale * 2
    here, there = np.exp(-np.abs(x) / scale), np.exp(-np.abs(x - 1) / scale)
    cell = (x[1] - x[0]) / (2 * scale)
    found = 0.0
    for p, q in zip(here, there):
        found += np.maximum(p * here - np.exp(epsilon) * q * there, 0.0).sum()
    return found * cell**2


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.01), (1.0, 0.05)])
def test_a_positive_delta_is_used_up(epsilon, delta):
    """Both entries move together, each with noise of its own: less than the sum of both."""
    strategy = Dense(PAIR, np.eye(2), np.eye(2), PAIR.names)
    made = adp.fit(adp.CircuitAdjacency(PAIR), strategy, Laplace(), epsilon=epsilon, delta=delta)
    assert epsilon * (1 - 1e-5) <= made.guarantee.epsilon(delta) <= epsilon
    assert made.guarantee.holds(epsilon, delta)
    scale = float(made.noise_matrix[0, 0])
    assert laplace_delta(epsilon, scale) == pytest.approx(delta, rel=5e-3)
    # from the sensitivity alone it would be as large as this
    assert scale < 0.97 * 2 / Laplace().limit(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_geometric_noise_is_fitted_by_its_rate(epsilon):
    """One bin moves by 1: e^(−rate) between neighbouring counts is the promise itself."""
    made = adp.fit(adp.CircuitAdjacency(FREE), Bins(FREE), Geometric(7.0), epsilon=epsilon)
    assert made.guarantee.epsilon() <= epsilon
    assert made.noise.rate == pytest.approx(epsilon, rel=1e-9)
    assert made.noise.rate <= epsilon


def test_geometric_noise_of_several_rates_keeps_their_ratio():
    law = Geometrics((0.5, 2.0), (1, 2))
    made = adp.fit(adp.CircuitAdjacency(FREE), Bins(FREE), law, epsilon=1.0)
    assert made.noise.rates == pytest.approx((0.25, 1.0), rel=1e-9)
    assert made.noise.times == (1, 2)
    assert made.guarantee.epsilon() <= 1.0


def test_a_law_of_ones_own_is_fitted_by_its_rate_if_it_has_one():
    @dataclass(frozen=True, eq=False)
    class Counts(Law):
        kind = "test.counts"
        words, theorem = "counting", "the triangle inequality"
        norm, whole = 1, True
        rate: float = 1.0

        def curve(self, sensitivity, moves=NOTHING_KNOWN):
            return ThreeAtoms(sensitivity)

    @dataclass(frozen=True, eq=False)
    class Fixed(Law):
        kind = "test.fixed"
        words, theorem = "fixed", "the triangle inequality"
        norm, whole = 1, True
        curve = Counts.curve

    made = adp.fit(adp.CircuitAdjacency(FREE), Bins(FREE), Counts(), epsilon=0.25)
    assert made.noise.rate == pytest.approx(0.25, rel=1e-9)
    with pytest.raises(AffineDPError, match="fixed noise has no rate"):
        adp.fit(adp.CircuitAdjacency(FREE), Bins(FREE), Fixed(), epsilon=0.25)


def test_design_says_who_fits_a_law_of_ones_own():
    for law in ("test.counts", Geometric(0.5)):
        with pytest.raises(AffineDPError, match=r"law must be one of auto.*affinedp\.fit"):
            adp.design(FREE, epsilon=1.0, law=law)


def test_a_report_counts_the_outputs_and_not_the_data():
    @dataclass(frozen=True, eq=False)
    class Two(Bins):
        kind = "test.two_outputs"
        names = ("all", "first")

        def loadings(self, combinations=None):
            rows = np.array([[1.0, 1, 1], [1, 0, 0]])
            return rows if combinations is None else combinations @ rows

    made = adp.fit(adp.CircuitAdjacency(FREE), Two(FREE), Geometric(), epsilon=1.0)
    assert made.report().title == "Geometric noise on integers on 2 outputs"
