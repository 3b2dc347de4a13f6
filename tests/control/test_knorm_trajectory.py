"""K-norm noise for trajectories: the vehicle, long horizons, files, recorded trajectories."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

import affinedp as adp
from affinedp import AffineDPError
from affinedp.control import (
    design_output_noise,
    independent_output_noise,
    noise_by_time,
    once_then_predict,
)
from affinedp.privacy.least_error import least_variance
from plants import recorded

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


@functools.cache
def vehicle(horizon=100, **options):
    return design_output_noise(VEHICLE, horizon, epsilon=1.0, mu=[1, 0.1], **options)


def test_the_vehicle_needs_less_noise_without_delta():
    pure = vehicle(law="knorm")
    assert pure.law == "knorm"
    assert pure.expected_squared_error <= 263.05
    assert 1 - 1e-9 <= pure.guarantee.epsilon() <= 1.0
    assert pure.guarantee.exact
    for delta, times in ((1e-2, 1.488), (1e-6, 7.53)):
        gaussian = vehicle(delta=delta)
        assert gaussian.expected_squared_error / pure.expected_squared_error >= times
    laplace = vehicle(law="laplace")
    assert pure.expected_squared_error <= laplace.expected_squared_error


def test_the_promise_covers_every_neighbour():
    """Every difference of x(0), listed and measured with the gauge itself."""
    for kind in ("time-local", "manifold"):
        pure = design_output_noise(VEHICLE, 12, 0.5, mu=[1, 0.1], law="knorm", adjacency=kind)
        gauges = pure.noise.gauges(pure.adjacency.differences().T)
        assert gauges.upper.max() == pytest.approx(0.5, rel=1e-9)
        assert pure.guarantee.epsilon() <= 0.5


@pytest.mark.slow
def test_long_horizons():
    pure = vehicle(10**6, law="knorm")
    assert pure.guarantee.epsilon() <= 1.0
    pure = vehicle(10**4, law="knorm")
    assert vehicle(10**4, delta=1e-2).expected_squared_error > 1.6 * pure.expected_squared_error


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.3])
def test_auto_takes_the_least(delta):
    best = vehicle(delta=delta, law="auto")
    others = [vehicle(law="knorm"), vehicle(law="laplace")]
    if delta:
        others.append(vehicle(delta=delta))
    least = min(other.expected_squared_error for other in others)
    assert best.expected_squared_error == pytest.approx(least, rel=1e-9)
    assert best.law == ("gaussian" if delta == 0.3 else "knorm")
    assert best.guarantee.holds(1.0, delta)
    assert "the law of least cost" in best.notes[-1]


def test_samples_have_the_stated_noise():
    pure = vehicle(law="knorm")
    drawn = pure.sample(4000, seed=1)
    np.testing.assert_allclose(drawn.std(axis=0)[:, 0], noise_by_time(pure)[:, 0], rtol=0.1)
    assert np.trace(pure.covariance) == pytest.approx(pure.expected_squared_error)


def test_files_and_recorded_trajectories(tmp_path):
    pure = vehicle(20, law="knorm")
    pure.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert again.fingerprint == pure.fingerprint
    assert again.guarantee.epsilon() == pure.guarantee.epsilon()
    assert again.expected_squared_error == pytest.approx(pure.expected_squared_error)
    text = (tmp_path / "m.json").read_text()
    (tmp_path / "bad.json").write_text(text.replace(f'"rate": {pure.noise.rate}', '"rate": 1.5'))
    with pytest.raises(AffineDPError, match="altered|does not keep"):
        adp.Mechanism.load(tmp_path / "bad.json")
    same = recorded(pure)
    assert same.guarantee.epsilon() == pytest.approx(1.0)
    assert same.expected_squared_error == pytest.approx(pure.expected_squared_error)


def test_reports_name_the_law():
    text = str(vehicle(law="knorm").report())
    asked, title, *_ = text.splitlines()
    assert asked == "Keeps ε = 1 at δ = 0, as was asked"
    assert title.startswith("K-norm noise on 1 output over 100 steps")
    assert "triangle inequality" in text


def test_the_state_once():
    noise = design_output_noise(([[0.9]], [[1.0]]), 50, 1.0, adjacency="initial", law="knorm")
    assert once_then_predict(noise).guarantee.epsilon() == pytest.approx(1.0)


@pytest.mark.parametrize("law", ["knorm", "laplace"])
def test_what_keeps_epsilon_keeps_epsilon_and_delta(law):
    pure, asked = vehicle(20, law=law), vehicle(20, law=law, delta=0.01)
    assert asked.expected_squared_error == pure.expected_squared_error
    assert str(asked.guarantee.asked) == "ε = 1 at δ = 0.01"
    price = dict(asked.report().opening)["What it costs"]
    assert price == dict(pure.report().opening)["What it costs"]
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(AffineDPError, match="delta"):
            vehicle(20, law=law, delta=delta)


def test_unknown_laws_are_refused():
    with pytest.raises(AffineDPError, match="law must be"):
        vehicle(law="cauchy")


def test_no_law_goes_below_the_bound(tmp_path):
    """212.98 and 168.34 are V times the least Gaussian noise of sensitivity 1, as for tables."""
    pure, gaussian = vehicle(law="knorm"), vehicle(delta=0.01)
    best = vehicle(delta=0.01, law="auto")
    least = gaussian.expected_squared_error * adp.gaussian_sensitivity(1.0, 0.01) ** 2
    for found, delta in ((pure, 0.0), (gaussian, 0.01), (best, 0.01)):
        assert found.least.delta == delta
        assert found.lower_bound == pytest.approx(
            least * least_variance(1.0, delta, "real"), rel=1e-5
        )
        assert found.lower_bound * found.excess >= found.expected_squared_error
        assert found.least.sentence()[:40] in " ".join(str(found.report()).split())
    assert best.law == "knorm"
    pure.save(tmp_path / "pure.json")
    back = adp.Mechanism.load(tmp_path / "pure.json")
    assert back.lower_bound is None  # what a file says is not proved


def test_the_bound_is_that_of_the_same_problem_as_a_manifold():
    found = vehicle(10, law="knorm")
    ordinary = recorded(found)
    again = adp.design_knorm(
        ordinary.manifold,
        epsilon=1.0,
        adjacency=ordinary.adjacency,
        query=ordinary.dense.query,
    )
    same = least_variance(1.0, 0.0, "real") / least_variance(1.0, 0.0, "any")
    assert found.lower_bound == pytest.approx(again.lower_bound * same, rel=1e-5)


def test_a_cost_of_ones_own_has_no_bound():
    assert vehicle(20, law="knorm").lower_bound is not None
    own = design_output_noise(VEHICLE, 20, 1.0, 0.01, mu=[1, 0.1], cost=np.eye(2))
    assert own.lower_bound is None
    assert own.excess is None


def test_other_noise_has_its_own_promise():
    pure = vehicle(law="knorm")
    with pytest.raises(AffineDPError, match="does not keep"):
        replace(pure, noise=pure.noise.at_rate(2.0)).guarantee  # noqa: B018
    unasked = pure.with_design(asked=None)
    assert replace(unasked, noise=pure.noise.at_rate(2.0)).guarantee.epsilon() == pytest.approx(2.0)


@pytest.mark.parametrize("law", ["laplace", "knorm"])
@pytest.mark.parametrize(
    ("kind", "said"),
    [("initial", "weaker promise than time-local"), ("time-local", "weaker promise than Def")],
)
def test_the_basis_is_not_a_stronger_promise(law, kind, said):
    noise = design_output_noise(
        ([[1, 0.1], [0, 1]], [[1, 0]]), 20, 1.0, mu=[1.0, 0.1], adjacency=kind, law=law
    )
    assert said in noise.guarantee.basis


@pytest.mark.parametrize("law", ["gaussian", "auto"])
def test_a_report_is_about_all_steps_and_compares_what_was_asked(law):
    noise = vehicle(delta=0.01, law=law)
    report = noise.report()
    typical = np.sqrt((noise_by_time(noise) ** 2).mean())
    assert dict(report.opening)["How far off numbers are"].startswith(
        f"typically by {typical:.3g} "
    )
    # fresh Gaussian noise for (1, 0.01), whatever the law of the design
    fresh = independent_output_noise(VEHICLE, 100, 1.0, 0.01, mu=[1, 0.1])
    assert report.baseline.deviation == pytest.approx(noise_by_time(fresh)[0, 0], rel=1e-9)
