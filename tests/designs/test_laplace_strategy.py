from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from affinedp.arrays import FloatArray
from affinedp.designs.laplace_strategy import (
    Problem,
    _effort,
    _smoothed_cost,
    best_scales,
    least_laplace,
    strategy_value,
)
from affinedp.errors import AffineDPError


def sum_constraint(n: int) -> tuple[FloatArray, FloatArray]:
    """Neighbours e_i − e_j of n entries with a known sum, and the orthonormal basis they are in."""
    basis = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]
    pairs = itertools.combinations(range(n), 2)
    return np.array([basis[i] - basis[j] for i, j in pairs]), basis


def exact_norm(strategy: FloatArray, directions: FloatArray) -> Fraction:
    """max_k ‖S n_k‖₁ in rational arithmetic."""
    rows = [[Fraction(float(x)) for x in row] for row in strategy]
    columns = [[Fraction(float(x)) for x in direction] for direction in directions]
    return max(
        sum(abs(sum(s * n for s, n in zip(row, direction, strict=True))) for row in rows)
        for direction in columns
    )


def plain_value(strategy: FloatArray, directions: FloatArray, weight: FloatArray) -> float:
    norm = max(float(np.abs(strategy @ direction).sum()) for direction in directions)
    return 2.0 * norm**2 * float(np.trace(weight @ np.linalg.pinv(strategy.T @ strategy)))


# --- the smoothed cost -------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "sharpness"), [(3, 3.0), (3, 200.0), (5, 25.0), (6, 1e3)])
def test_gradient_agrees_with_finite_differences(rows: int, sharpness: float) -> None:
    rng = np.random.default_rng(rows)
    directions, factor = rng.normal(size=(9, 3)), rng.normal(size=(3, 3))
    weight = factor @ factor.T + 0.1 * np.eye(3)
    entries = rng.normal(size=rows * 3) / 10

    def cost(point: FloatArray) -> float:
        return _smoothed_cost(point, (rows, 3), directions, weight, sharpness)[0]

    step = 1e-6
    differences = [
        (cost(entries + step * unit) - cost(entries - step * unit)) / (2 * step)
        for unit in np.eye(len(entries))
    ]
    gradient = _smoothed_cost(entries, (rows, 3), directions, weight, sharpness)[1]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())


def test_smoothed_cost_is_an_upper_bound_that_tightens() -> None:
    rng = np.random.default_rng(1)
    directions, strategy = rng.normal(size=(20, 3)), rng.normal(size=(4, 3))
    true = np.log(plain_value(strategy, directions, np.eye(3)) / 2)
    costs = [
        _smoothed_cost(strategy.ravel(), (4, 3), directions, np.eye(3), sharpness)[0]
        for sharpness in (1.0, 10.0, 100.0, 1e4)
    ]
    assert costs == sorted(costs, reverse=True)
    assert true <= costs[-1] <= true + 1e-3


# --- what a strategy costs ---------------------------------------------------------------------


def test_value_is_the_squared_error_of_the_mechanism() -> None:
    """Draw z = Sξ + η and estimate ξ by least squares, many times."""
    directions, basis = sum_constraint(4)
    weight = np.diag([1.0, 2.0, 3.0])
    found = least_laplace(directions, weight, tall_starts={"outputs": basis}, starts=2)
    rng = np.random.default_rng(0)
    secret = np.array([0.3, -2.0, 5.0])
    noisy = found.strategy @ secret + rng.laplace(size=(200_000, len(found.strategy)))
    errors = np.linalg.lstsq(found.strategy, noisy.T, rcond=None)[0].T - secret
    assert np.mean(np.sum(errors @ weight * errors, axis=1)) == pytest.approx(found.value, rel=0.02)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_strategy_value_is_the_formula_whatever_the_scales(scale: float) -> None:
    rng = np.random.default_rng(2)
    directions, strategy = rng.normal(size=(12, 4)), rng.normal(size=(6, 4))
    weight = np.diag([1.0, 4.0, 0.5, 2.0])
    expected = plain_value(strategy, directions, weight)
    assert strategy_value(strategy * scale, directions, weight) == pytest.approx(expected)
    scaled = strategy_value(strategy, directions * scale, weight)
    assert scaled / scale**2 == pytest.approx(expected)


# --- known optima ------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "target"), [(3, 14), (4, 24), (5, 32), (7, 48)])
def test_one_sum_constraint_reaches_the_known_values(n: int, target: float) -> None:
    """And cannot fall below 8(n−1)²/n, which averaging over the directions proves."""
    directions, basis = sum_constraint(n)
    assert strategy_value(basis, directions) == pytest.approx(8 * (n - 1))
    found = least_laplace(directions, tall_starts={"outputs": basis}, starts=4)
    assert 8 * (n - 1) ** 2 / n <= found.value <= target * (1 + 1e-6)
    assert found.lower_bound == pytest.approx(4 * (n - 1), rel=2e-3)


def test_redundant_rows_are_found_without_being_given() -> None:
    directions, _ = sum_constraint(5)  # the best basis costs 34
    found = least_laplace(directions, seed=1, starts=8)
    assert found.value <= 32 * (1 + 1e-6)
    assert found.strategy.shape == (5, 4)
    assert found.start.endswith("optimised")


def test_a_given_start_that_is_not_improved_is_kept_as_it_is() -> None:
    directions, basis = sum_constraint(4)
    found = least_laplace(
        directions, tall_starts={"axes": 2 * np.eye(3), "outputs": basis}, starts=0
    )
    assert found.start == "outputs"
    largest = np.unravel_index(np.abs(basis).argmax(), basis.shape)
    ratio = found.strategy[largest] / basis[largest]
    np.testing.assert_allclose(found.strategy, ratio * basis, rtol=1e-14)


def test_unit_vectors_meet_the_lower_bound() -> None:
    weight = np.diag([1.0, 5.0, 0.2])
    found = least_laplace(np.diag([1.0, 2.0, 3.0]), weight, starts=2)
    assert found.value == pytest.approx(2 * (1 + 5 * 4 + 0.2 * 9), rel=1e-4)
    assert found.lower_bound == pytest.approx(found.value, rel=2e-3)


@pytest.mark.parametrize("ratio", [1.0, 1e-2, 1e-8, 1e-20])
def test_a_very_uneven_weight(ratio: float) -> None:
    directions = np.array([[1.0, 1.0], [1.0, -1.0]])
    known = min(4 * (1 + ratio), 2 * (1 + ratio ** (1 / 3)) ** 3)
    found = least_laplace(directions, np.diag([1.0, ratio]), starts=2)
    assert found.value <= known * (1 + 1e-6)


def test_one_dimension_has_a_closed_form() -> None:
    found = least_laplace([[1.0], [-3.0], [2.0]], [[5.0]], tall_starts={"twice": [[1.0], [1.0]]})
    assert found.strategy.shape == (1, 1)
    assert found.value == pytest.approx(2 * 9 * 5)
    assert found.lower_bound <= found.value
    assert (found.start, found.agreement) == ("orthonormal", 1.0)


def test_no_square_strategy_on_a_fine_grid_is_better_in_the_plane() -> None:
    """Up to its scale a 2×2 strategy is two angles and a ratio of lengths."""
    rng = np.random.default_rng(4)
    directions = rng.normal(size=(8, 2)) * [1.0, 3.0]
    angles = np.linspace(0, np.pi, 121)[:-1]
    ratios = np.geomspace(0.05, 20, 81)
    images = np.abs(directions @ [np.cos(angles), np.sin(angles)])  # direction × angle
    least = np.inf
    for ratio in ratios:
        norm = np.max(images[:, :, None] + ratio * images[:, None, :], axis=0)
        sine = np.sin(angles[:, None] - angles) ** 2
        with np.errstate(divide="ignore"):
            least = min(least, float(np.min(2 * norm**2 * (1 + ratio**2) / (ratio**2 * sine))))
    assert least_laplace(directions, starts=5).value <= least


# --- what is promised --------------------------------------------------------------------------

entries = st.integers(-4, 4)


@st.composite
def problems(draw: st.DrawFn) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    size = draw(st.integers(1, 3))

    def matrix(rows: int) -> FloatArray:
        row = st.lists(entries, min_size=size, max_size=size)
        return np.array(draw(st.lists(row, min_size=rows, max_size=rows)), dtype=np.float64)

    directions, factor = matrix(draw(st.integers(size, 8))), matrix(size)
    tall = matrix(draw(st.integers(size, 6)))
    assume(np.linalg.matrix_rank(directions) == size)
    assume(np.linalg.matrix_rank(tall) == size)
    return directions / 3, factor @ factor.T + np.eye(size), [tall]


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(problems())
def test_never_worse_than_a_start_and_scaled_on_the_safe_side(
    problem: tuple[FloatArray, FloatArray, list[FloatArray]],
) -> None:
    directions, weight, tall = problem
    size = directions.shape[1]
    orthonormal = np.tril(np.ones((size, size)))
    named = {str(place): start for place, start in enumerate(tall)}
    found = least_laplace(directions, weight, tall_starts=named, orthonormal=orthonormal, starts=1)
    for start in (*tall, orthonormal):
        assert found.value <= plain_value(start, directions, weight) * (1 + 1e-10)
    assert found.value == pytest.approx(plain_value(found.strategy, directions, weight), rel=1e-9)
    assert found.lower_bound <= found.value
    assert 1 - Fraction(1, 10**12) <= exact_norm(found.strategy, directions) <= 1
    assert found.starts == (3 if size > 1 else 2)
    assert 0.0 <= found.agreement <= 1.0


@pytest.mark.parametrize("scale", [1e-12, 1 / 3, 1e12])
def test_the_promise_holds_in_any_unit(scale: float) -> None:
    directions, _ = sum_constraint(4)
    found = least_laplace(directions * scale, starts=2)
    assert found.value == pytest.approx(24 * scale**2, rel=1e-5)
    assert 1 - Fraction(1, 10**12) <= exact_norm(found.strategy, directions * scale) <= 1


def test_the_promise_holds_in_badly_conditioned_coordinates() -> None:
    directions, _ = sum_constraint(4)
    skewed = directions @ np.vander([1.0, 1.001, 1.002])
    assert exact_norm(least_laplace(skewed, starts=1).strategy, skewed) <= 1


@pytest.mark.slow
def test_many_directions_are_all_covered() -> None:
    """Only corners of the convex hull matter, so they alone must give the same value."""
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(4000, 3))
    found = least_laplace(directions, starts=3)
    assert exact_norm(found.strategy, directions) <= 1
    corners = directions[ConvexHull(np.vstack([directions, -directions])).vertices % 4000]
    alone = least_laplace(corners, starts=3)
    assert found.value == pytest.approx(alone.value, rel=5e-3)


def test_a_large_dimension() -> None:
    directions = np.eye(45) + 0.5 * np.eye(45, k=1)
    found = least_laplace(directions, starts=0)
    assert found.value <= 0.9 * strategy_value(np.eye(45), directions)
    assert exact_norm(found.strategy, directions) <= 1


def test_effort_falls_with_the_size() -> None:
    small, large = (_effort(Problem(np.ones((2 * r, r)), np.eye(r), np.eye(r))) for r in (5, 200))
    assert small == (14, 60)
    assert large[0] == 2
    assert 6 <= large[1] < 60


# --- what it does not depend on ----------------------------------------------------------------


@pytest.mark.slow
def test_seeds_agree() -> None:
    rng = np.random.default_rng(6)
    directions = rng.integers(-2, 3, size=(30, 5)).astype(np.float64)
    values = [least_laplace(directions, seed=seed, starts=10).value for seed in range(2)]
    assert max(values) <= 1.005 * min(values)


def test_the_same_seed_gives_the_same_strategy() -> None:
    directions, _ = sum_constraint(4)
    first, second = (least_laplace(directions, seed=7, starts=1) for _ in range(2))
    generator = np.random.default_rng(7)
    third = least_laplace(directions, seed=generator, starts=1)
    np.testing.assert_array_equal(first.strategy, second.strategy)
    np.testing.assert_array_equal(first.strategy, third.strategy)


@pytest.mark.slow
def test_the_value_does_not_depend_on_the_basis() -> None:
    rng = np.random.default_rng(8)
    directions, change = rng.normal(size=(15, 3)), rng.normal(size=(3, 3)) * [1.0, 10.0, 100.0]
    factor = rng.normal(size=(3, 3))
    weight = factor @ factor.T + 0.1 * np.eye(3)
    back = np.linalg.inv(change)
    moved_weight = back.T @ weight @ back
    here = least_laplace(directions, weight, starts=5)
    there = least_laplace(directions @ change.T, (moved_weight + moved_weight.T) / 2, starts=5)
    assert there.value == pytest.approx(here.value, rel=2e-3)
    assert there.lower_bound == pytest.approx(here.lower_bound, rel=2e-3)


def test_progress_counts_every_search() -> None:
    seen: list[tuple[int, int]] = []
    least_laplace(sum_constraint(3)[0], starts=2, progress=lambda *step: seen.append(step))
    total = len(seen)
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_the_result_cannot_be_changed() -> None:
    found = least_laplace(np.eye(2), starts=0)
    with pytest.raises(ValueError, match="read-only"):
        found.strategy[0, 0] = 2.0


# --- what is refused ---------------------------------------------------------------------------

PLANE = np.array([[1.0, 0.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"directions": np.array([[1.0, 1.0], [2.0, 2.0]])}, "span"),
        ({"directions": np.array([[1.0, 1.0]])}, "span"),
        ({"weight": np.ones((2, 2))}, "not positive definite"),
        ({"weight": np.diag([1.0, -1.0])}, "not positive definite"),
        ({"tall_starts": {"dependent": np.ones((3, 2))}}, "rescale"),
        ({"directions": PLANE * 1e-300}, "double precision"),
    ],
)
def test_what_has_no_noise_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(AffineDPError, match=message):
        least_laplace(**{"directions": PLANE, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "directions", "message"),
    [
        (np.ones((2, 2)), PLANE, "rescale"),
        (np.eye(2), np.zeros((1, 2)), "directions are all zero"),
        (np.eye(2), PLANE * 1e200, "rescale"),
    ],
)
def test_a_value_that_means_nothing_is_refused(
    strategy: FloatArray, directions: FloatArray, message: str
) -> None:
    with pytest.raises(AffineDPError, match=message):
        strategy_value(strategy, directions)


def test_a_search_that_fails_leaves_the_others_their_ends():
    """The second start is singular; from the first the sum of all is found not to be worth it."""
    groups, identity = [np.eye(3), np.ones((1, 3))], np.eye(3)
    alone, _ = best_scales(groups, identity, identity, np.array([[1.0, 1.0]]))
    both, _ = best_scales(groups, identity, identity, np.array([[1.0, 1.0], [1e-200, 1.0]]))
    assert both == alone < 3.01
