"""Noise that hides x(0) alone, against the generic design and closed forms."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest

import affinedp as adp
from affinedp.control import (
    design_output_noise,
    independent_output_noise,
    noise_by_time,
    once_then_predict,
    predict,
)
from plants import building, quarter_car, recorded

LIMIT = float(adp.gaussian_sensitivity(1.0, 1e-4))
VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


def observed(A: np.ndarray, C: np.ndarray, steps: int) -> np.ndarray:
    rows, power = [], np.eye(len(A))
    for _ in range(steps):
        rows.append(C @ power)
        power = A @ power
    return np.vstack(rows)


def test_the_design_is_the_generic_optimum() -> None:
    m = design_output_noise(VEHICLE, 12, 1.0, 0.01, mu=[1, 0.5], adjacency="initial")
    same = recorded(m)
    assert same.guarantee.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-12)
    assert same.guarantee.unit == m.guarantee.unit
    best = adp.design_gaussian(
        same.manifold, epsilon=1.0, delta=0.01, query=same.dense.query, adjacency=same.adjacency
    )
    assert m.expected_squared_error == pytest.approx(best.expected_squared_error, rel=1e-7)
    assert m.guarantee.holds(1.0, 0.01)


def test_sensitivity_is_that_of_whole_trajectories() -> None:
    A, _, C = building()
    m = design_output_noise((A, C), 60, 1.0, 1e-4, mu=0.5, adjacency="initial")
    O = observed(A, C, 60)
    inverse = np.linalg.pinv(m.covariance, rcond=1e-14, hermitian=True)
    moved = O * 0.5
    lengths = np.sqrt(np.einsum("ij,ik,kj->j", moved, inverse, moved))
    assert lengths.max() == pytest.approx(m.guarantee.sensitivity, rel=1e-3)
    assert m.guarantee.sensitivity <= LIMIT


@pytest.mark.parametrize("horizon", [96, 10**6, 10**9, math.inf])
def test_any_horizon(horizon: float) -> None:
    A, _, C = building()
    m = design_output_noise((A, C), horizon, 1.0, 1e-4, mu=0.5, adjacency="initial")
    assert m.guarantee.holds(1.0, 1e-4)
    assert m.gap is not None
    assert m.gap < 1e-7
    if horizon > 1000:  # the limit of a stable plant, from an independent Lyapunov equation
        from scipy.linalg import solve_discrete_lyapunov

        W = solve_discrete_lyapunov(A.T, C.T @ C)
        root = m.strategy.start
        assert m.expected_squared_error == pytest.approx(np.trace(W @ root @ root.T), rel=1e-9)
        # M: independent entries cost 1.26 times as much
        assert (np.diagonal(W).sum() * 0.25 / LIMIT**2) / m.expected_squared_error == (
            pytest.approx(1.26, abs=0.01)
        )
    assert "initial" in str(m.report())


def test_unstable_plants_need_a_horizon() -> None:
    with pytest.raises(adp.AffineDPError, match="stable plant"):
        design_output_noise(VEHICLE, math.inf, 1.0, 0.01, adjacency="initial")
    with pytest.raises(adp.AffineDPError, match="'initial' or 'forward'"):
        design_output_noise(([[0.9]], [[1]]), math.inf, 1.0, 0.01)
    m = design_output_noise(VEHICLE, 10**6, 1.0, 0.01, adjacency="initial")
    assert m.guarantee.holds(1.0, 0.01)


def test_distances_at_the_first_step_alone_are_no_longer_refused() -> None:
    A, _, C = quarter_car()
    mu = np.zeros((20_000, 4))
    mu[0] = [0.01, 0.1, 0.01, 0.1]
    m = design_output_noise((A, C), 20_000, 1.0, 1e-4, mu=mu)
    same = design_output_noise((A, C), 20_000, 1.0, 1e-4, mu=mu[0], adjacency="initial")
    assert m.guarantee.neighbours == same.guarantee.neighbours
    assert m.expected_squared_error == pytest.approx(same.expected_squared_error, rel=1e-9)
    mu[5] = 1.0
    with pytest.raises(adp.AffineDPError, match="later times"):
        design_output_noise((A, C), 20_000, 1.0, 1e-4, mu=mu, adjacency="initial")


def test_singular_dynamics_and_states_that_do_not_show() -> None:
    shift = ([[0, 1, 0], [0, 0, 0], [0, 0, 0.5]], [[1, 0, 0]])  # x3 never shows
    m = design_output_noise(shift, 10**5, 1.0, 0.01, adjacency="initial")
    assert m.strategy.start.shape == (3, 2)
    assert not m.strategy.start[2].any()
    assert predict(m, [1.0, 2.0], 4).ravel().tolist() == [1.0, 2.0, 0.0, 0.0]


def test_names_and_refusals() -> None:
    by_name = design_output_noise(VEHICLE, 50, 1.0, 0.01, mu={"x1": 1.0}, adjacency="initial")
    by_place = design_output_noise(VEHICLE, 50, 1.0, 0.01, mu=[1, 0], adjacency="initial")
    assert by_name.fingerprint == by_place.fingerprint
    with pytest.raises(adp.AffineDPError, match="names 'speed'"):
        design_output_noise(VEHICLE, 50, 1.0, 0.01, mu={"speed": 1.0})


def test_once_then_predict_is_the_same_noise() -> None:
    A, _, C = building()
    m = design_output_noise((A, C), 200, 1.0, 1e-4, mu=0.5, adjacency="initial")
    once = once_then_predict(m)
    assert once.guarantee.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-9)
    assert once.guarantee.neighbours_key == m.guarantee.neighbours_key
    x0 = np.linspace(18, 23, 6)
    released = once.release(x0)
    assert np.abs(released - x0).max() < 50
    offsets = np.random.default_rng(0).normal(size=(9, 6))
    state, by_hand = released, []
    for t in range(10):
        by_hand.append(C @ state)
        state = A @ state + (offsets[t] if t < 9 else 0)
    assert np.allclose(predict(m, released, 10, offsets), by_hand)
    drawn = once.sample(4000, seed=0) @ observed(A, C, 5).T
    assert np.allclose(drawn.var(axis=0), noise_by_time(m)[:5].ravel() ** 2, rtol=0.12)
    for fresh in (independent_output_noise(VEHICLE, 10, 1.0, 0.01), None):
        with pytest.raises(adp.AffineDPError, match="one draw|independent_output_noise"):
            once_then_predict(fresh)


@pytest.mark.parametrize("law", ["gaussian", "laplace", "knorm"])
@pytest.mark.parametrize("neighbours", ["time-local", "manifold", "initial"])
def test_a_recorded_trajectory_is_released_by_its_first_state(law: str, neighbours: str) -> None:
    options = {"delta": 0.01} if law == "gaussian" else {}
    m = design_output_noise(VEHICLE, 9, 1.0, mu=[1, 0.1], law=law, adjacency=neighbours, **options)
    once = once_then_predict(m)
    assert once.guarantee.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-5)
    assert once.guarantee.neighbours_key == m.guarantee.neighbours_key
    published = m.release([1e6, 20.0])
    assert published.shape == (9, 1)
    assert np.diff(published, 2, axis=0) == pytest.approx(0.0, abs=1e-6)  # a trajectory again
    low, high = m.interval(published, level=1 - 1e-9)
    truth = (1e6 + 2.0 * np.arange(9))[:, None]
    assert low.shape == (9, 1)
    assert ((low <= truth) & (truth <= high)).all()


def test_states_that_are_public_are_published_as_they_are() -> None:
    m = design_output_noise(VEHICLE, 5, 1.0, 0.01, mu=[1, 0])
    assert np.diff(m.release([3.0, 0.7]), axis=0) == pytest.approx(0.07)


def test_saved_and_loaded(tmp_path: Path) -> None:
    m = design_output_noise(VEHICLE, 10**6, 1.0, 0.01, adjacency="initial")
    m.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert again.fingerprint == m.fingerprint
    assert again.guarantee.sensitivity == m.guarantee.sensitivity


def test_where_theorem_3_asks_too_much_the_message_says_what_to_do() -> None:
    A, _, C = building()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(adp.AffineDPError, match="works.*'initial' or 'forward'") as refusal:
            design_output_noise((A, C), 2_000, 1.0, 1e-4, mu=0.5)
        works = getattr(refusal.value, "horizon", 0)
        assert design_output_noise((A, C), works, 1.0, 1e-4, mu=0.5).guarantee.holds(1.0, 1e-4)
