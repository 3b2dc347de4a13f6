"""The accounting of a gateway, computed again in high precision."""

import math
import warnings
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import affinedp as adp
from affinedp.control import design_output_noise, noise_by_time
from affinedp.control.gateway_path import Sending
from affinedp.control.gateway_plan import GatewayPlan
from affinedp.errors import AffineDPError, AffineDPWarning
from affinedp.exact.numbers import meaning
from affinedp.parts import restored

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


def designs():
    rng = np.random.default_rng(0)
    coupled = rng.normal(size=(3, 3))
    coupled *= 1.02 / np.abs(np.linalg.eigvals(coupled)).max()
    return {
        "scalar": design_output_noise(([[1]], [[1]]), 100, epsilon=1, delta=0.01),
        "vehicle": design_output_noise(VEHICLE, 100, epsilon=1, delta=1e-6),
        "both": design_output_noise((VEHICLE[0], np.eye(2)), 1000, epsilon=0.1, delta=1e-9),
        "stable": design_output_noise(([[0.9]], [[1e-3]]), 30, epsilon=3, delta=1e-3),
        "coupled": design_output_noise(
            (coupled, rng.normal(size=(2, 3))), 12, epsilon=1, delta=1e-3
        ),
        "manifold": design_output_noise(
            VEHICLE, 6, epsilon=1, delta=1e-3, adjacency="manifold", mu=1e-4
        ),
        "varying": design_output_noise(
            (np.linspace(0.7, 1.3, 9)[:, None, None], [[2.0]]), 10, epsilon=1, delta=1e-3
        ),
        "hidden state": design_output_noise(
            ([[1, 0.1], [0, 1]], [[0, 1]]), 10, epsilon=1, delta=1e-3
        ),
    }


with warnings.catch_warnings():
    warnings.simplefilter("ignore", AffineDPWarning)
    DESIGNS = designs()
SETTINGS = [
    {},
    {"fresh_noise": 0.25},
    {"measurement_error": 1e-5},
    {"measurement_error": 1e-12},
    {"fresh_noise": 1e3, "measurement_error": 1e-4},
]


def gateway_plan(mechanism, fresh_noise=None, measurement_error=None):
    words = {"fresh_noise": fresh_noise, "measurement_error": measurement_error}
    return Sending.of(mechanism, "exact", **words).plan()


def exact_loadings(mechanism):
    """Γ(t) in rational arithmetic."""
    exact = np.vectorize(lambda value: meaning(float(value)), otypes=[object])
    given = np.vectorize(lambda value: Fraction(float(value)), otypes=[object])
    product, dynamics = given(mechanism.strategy.start), mechanism.domain
    for t in range(dynamics.horizon):
        yield exact(dynamics.output_matrix(t)) @ product
        if t + 1 < dynamics.horizon:
            product = exact(dynamics.state_matrix(t)) @ product


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", DESIGNS)
def test_the_stated_promise_covers_everything(name, settings):
    """√((s/c)² + T Σ (2e/τ)²) ≤ s/(1 + 2⁻³⁰), and e covers all that is not exact."""
    m = DESIGNS[name]
    plan = gateway_plan(m, **settings)
    with mpmath.workprec(300):
        s = mpmath.mpf(m.guarantee.sensitivity)
        total = (s / plan.noise_factor) ** 2
        for scale, exponent, deviation in zip(
            plan.fresh_scales, plan.fresh_exponents, plan.deviation
        ):
            fresh = scale * mpmath.mpf(2) ** (exponent - 56)
            total += m.domain.horizon * (2 * mpmath.mpf(deviation) / fresh) ** 2
        limit = s / (1 + mpmath.mpf(2) ** -30)
        assert mpmath.sqrt(total) <= limit
        # and no more noise than that takes
        assert mpmath.sqrt(total) >= limit * (1 - mpmath.mpf(10) ** -11)
    largest = [max(sum(map(abs, row)) for row in rows) for rows in zip(*exact_loadings(m))]
    for i, exponent in enumerate(plan.fresh_exponents):
        fresh = Fraction(2) ** exponent
        rounding = fresh / 2**56  # y and γ, half a step of the grid each
        rounding += fresh / 2**60  # the path
        rounding += largest[i] / 2**57  # η, half a step of its grid
        error = Fraction(plan.measurement_error[i])
        assert rounding + error <= Fraction(plan.deviation[i])
        if "measurement_error" in settings:
            assert error >= Fraction(settings["measurement_error"]) * (1 - Fraction(1, 10**10))
        else:
            assert error >= Fraction(plan.deviation[i]) / 2 * (1 - Fraction(1, 10**10))
        # a measurement of the largest size is rounded by at most half of the error
        assert Fraction(plan.largest[i]) / 2**53 <= error / 2


def test_lattice_costs_less_than_the_room():
    """(1 + e^ε)(r + T m) g²/24 in δ, against what s/(1 + 2⁻³⁰) leaves."""
    for epsilon in (0.01, 1.0, 10.0):
        for delta in (1e-15, 1e-6, 0.1):
            s = adp.gaussian_sensitivity(epsilon, delta)
            left = adp.gaussian_delta(epsilon, s) - adp.gaussian_delta(epsilon, s / (1 + 2.0**-30))
            for draws in (1, 10**7):
                condition = delta >= 1e-26 * draws * (1 + math.exp(epsilon))
                lattice = (1 + math.exp(epsilon)) * draws * 2.0**-112 / 24
                assert lattice < left or not condition


def test_default_adds_next_to_nothing():
    for name in ("scalar", "vehicle", "both"):
        m = DESIGNS[name]
        plan = gateway_plan(m)
        assert 1 + 2.0**-30 <= plan.noise_factor <= 1 + 2.0**-29
        assert np.all(plan.fresh_noise <= 2.0**-10 * np.median(noise_by_time(m), axis=0))
        assert np.all(plan.fresh_noise >= 2.0**-11 * noise_by_time(m).min(axis=0))


def test_declared_error_is_hidden_at_about_the_least_cost():
    """Against a search over all scales."""
    m = DESIGNS["scalar"]
    s, sigma, horizon = m.guarantee.sensitivity, noise_by_time(m)[0, 0], m.domain.horizon

    def added(fresh, error):
        share = horizon * (2 * error / fresh) ** 2 / s**2
        return 1 / (1 - share) - 1 + fresh**2 / sigma**2 if share < 1 else math.inf

    for error in (1e-4, 1e-3, 1e-2, 1.0):
        plan = gateway_plan(m, measurement_error=error)
        best = min(added(2 ** (k / 64), error) for k in range(-20 * 64, 12 * 64))
        assert added(plan.fresh_noise[0], error) <= (1 + 1e-4) * best
        assert plan.noise_factor**2 - 1 < best


def test_fresh_noise_is_what_was_asked_for():
    m = DESIGNS["both"]
    plan = gateway_plan(m, fresh_noise=[0.3, 4.0])
    assert plan.fresh_exponents == (-2, 2)
    assert plan.fresh_noise.tolist() == [0.3, 4.0]
    coarse, fine = gateway_plan(m, fresh_noise=1.0), gateway_plan(m, fresh_noise=0.5)
    ratio = np.array(coarse.measurement_error) / np.array(fine.measurement_error)
    np.testing.assert_allclose(ratio, 2, rtol=0.1)


def test_record():
    plan = gateway_plan(DESIGNS["both"], measurement_error=[1e-3, 1e-5])
    assert restored(plan.record(), GatewayPlan) == plan
    assert plan.grid_exponents == tuple(e - 56 for e in plan.fresh_exponents)
    assert plan.published_exponents == tuple(e - 2 for e in plan.fresh_exponents)


@pytest.mark.filterwarnings("ignore::affinedp.errors.AffineDPWarning")
def test_uneven_noise_is_refused_with_fresh_noise_that_works():
    m = design_output_noise(([[0.5]], [[1]]), 44, epsilon=1, delta=1e-6)
    with pytest.raises(AffineDPError, match="differs so much over time.*at least") as refusal:
        gateway_plan(m)
    least = float(str(refusal.value).split("at least ")[1].split(")")[0])
    assert gateway_plan(m, fresh_noise=least)
    with pytest.raises(AffineDPError, match="differs so much"):
        gateway_plan(m, fresh_noise=least / 8)
    # a declared error says what precision matters
    assert gateway_plan(m, measurement_error=1e-9 * noise_by_time(m).max())


def test_public_output_needs_fresh_noise():
    system = (np.diag([1.0, 0.5]), np.eye(2))
    m = design_output_noise(system, 5, epsilon=1, delta=1e-6, mu=[1.0, 0.0])
    if np.any(noise_by_time(m)[:, 1] > 0):
        pytest.skip("this design puts noise on everything")
    with pytest.raises(AffineDPError, match="'y2' has no noise at any time.*fresh_noise"):
        gateway_plan(m)
    assert gateway_plan(m, fresh_noise=0.01).fresh_exponents == (-7, -7)
    assert gateway_plan(m, measurement_error=1e-6)


@pytest.mark.parametrize("name", ["fresh_noise", "measurement_error"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "a", [1, 2, 3], [[1]], 1e300, True])
def test_refused_settings(name, value):
    with pytest.raises(AffineDPError):
        gateway_plan(DESIGNS["both"], **{name: value})


def test_too_large_an_error_for_the_resolution():
    with pytest.raises(AffineDPError, match="larger fresh_noise"):
        gateway_plan(DESIGNS["scalar"], fresh_noise=1e-3, measurement_error=1e-3)


def test_no_promise_no_gateway():
    m = DESIGNS["scalar"]
    for broken in (
        replace(m.guarantee, leak=np.ones(1)),
        replace(m.guarantee, sensitivity=math.inf),
        replace(m.guarantee, sensitivity=0.0),
    ):
        forged = replace(m)
        forged.__dict__["guarantee"] = broken
        with pytest.raises(AffineDPError, match="promises nothing"):
            gateway_plan(forged)
    forged = replace(m)
    forged.__dict__["guarantee"] = replace(m.guarantee, sensitivity=m.guarantee.sensitivity / 2)
    with pytest.raises(AffineDPError, match="do not belong together"):
        gateway_plan(forged)


@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1e12, 1e100])
def test_units_do_not_matter(scale):
    """Outputs in other units: the same plan in those units, as far as powers of two allow."""
    m = design_output_noise(([[1]], [[scale]]), 10, epsilon=1, delta=1e-6)
    plan = gateway_plan(m)
    assert 2.0**-12 < plan.fresh_noise[0] / noise_by_time(m)[0, 0] <= 2.0**-10
    assert plan.noise_factor < 1 + 2.0**-29


def test_numbers_beyond_double_precision_are_refused():
    for scale in (1e-130, 1e130):
        m = design_output_noise(([[1]], [[1]]), 10, epsilon=1, delta=1e-6, mu=scale)
        with pytest.raises(AffineDPError, match="rescale"):
            gateway_plan(m)
