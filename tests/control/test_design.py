"""Output noise for trajectories, against the generic design and verification."""

import json
import math
import re
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import affinedp as adp
from affinedp.control import (
    design_output_noise,
    independent_output_noise,
    noise_by_time,
)
from affinedp.control.by_time import noise_block
from affinedp.control.least_draw import least_body
from affinedp.domains.dynamics import dynamics_of
from affinedp.domains.powers import HorizonTooLongError
from affinedp.errors import AffineDPWarning
from affinedp.parts import StorageError
from oracles import exact_directions
from plants import recorded

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])
KINDS = ["time-local", "manifold"]
# Noise so much larger at one time than at another leaves the generic path few digits.
UNEVEN = 1e10


def directions_by_hand(A: np.ndarray, horizon: int, mu: np.ndarray) -> np.ndarray:
    """Theorem 3: differences of whole trajectories, by solving for x(0)."""
    n = len(A)
    powers = [np.linalg.matrix_power(A, t) for t in range(horizon)]
    found = []
    for t in range(horizon):
        for k in range(n):
            start = np.linalg.solve(powers[t], mu[t, k] * np.eye(n)[k])
            found.append(np.concatenate([power @ start for power in powers]))
    return np.array(found).T


@pytest.mark.parametrize("kind", KINDS)
def test_the_design_is_the_generic_optimum(kind: str) -> None:
    m = design_output_noise(VEHICLE, 12, 1.0, 0.01, adjacency=kind)
    same = recorded(m)
    assert same.guarantee.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-10)
    assert same.guarantee.unit == m.guarantee.unit
    best = adp.design_gaussian(
        same.manifold, epsilon=1.0, delta=0.01, query=same.dense.query, adjacency=same.adjacency
    )
    assert m.expected_squared_error == pytest.approx(best.expected_squared_error, rel=1e-7)
    assert m.guarantee.holds(1.0, 0.01)
    assert m.guarantee.exact
    assert m.gap is not None
    assert m.gap <= 1e-8


def test_time_local_promises_agree_with_directions_by_hand() -> None:
    rng = np.random.default_rng(3)
    A = np.array([[0.9, 0.3, 0.0], [-0.3, 0.9, 0.2], [0.0, 0.1, 1.0]])
    C = rng.normal(size=(2, 3))
    mu = rng.uniform(0.5, 2.0, size=(8, 3))
    m = design_output_noise((A, C), 8, 0.7, 1e-5, mu=mu)
    trajectories = directions_by_hand(A, 8, mu)
    outputs = np.kron(np.eye(8), C) @ trajectories
    lengths = np.linalg.norm(np.linalg.pinv(m.noise_matrix) @ outputs, axis=0)
    assert m.guarantee.sensitivity == pytest.approx(lengths.max(), rel=1e-9)
    assert m.guarantee.sensitivity >= lengths.max() * (1 - 1e-9)
    iid = independent_output_noise((A, C), 8, 0.7, 1e-5, mu=mu)
    longest = np.linalg.norm(outputs, axis=0).max()
    assert iid.guarantee.sensitivity == pytest.approx(longest / iid.strategy.sigma, rel=1e-9)
    assert iid.guarantee.holds(0.7, 1e-5)


def test_the_paper_protects_positions_only() -> None:
    m = design_output_noise(VEHICLE, 100, 1.0, 0.01, mu=[1, 0])
    scalar = design_output_noise(([[1]], [[1]]), 100, 1.0, 0.01)
    sigma = adp.gaussian_sigma(1.0, 0.01)
    for found in (m, scalar):
        assert noise_by_time(found) == pytest.approx(sigma, rel=1e-9)
    assert m.strategy.start[1].tolist() == [0.0]  # velocities come out as they are


def test_definition_4_costs_ten_times_as_much_on_the_double_integrator() -> None:
    local = design_output_noise(VEHICLE, 100, 1.0, 0.01)
    full = design_output_noise(VEHICLE, 100, 1.0, 0.01, adjacency="manifold")
    ratio = noise_by_time(full) / noise_by_time(local)
    assert ratio == pytest.approx(10.0, rel=1e-6)
    assert "Theorem 3" in local.guarantee.basis
    assert "time-local" in local.guarantee.neighbours
    assert "Definition 4" in full.guarantee.basis
    with pytest.raises(adp.AffineDPError, match="different neighbours"):
        adp.compose([local.guarantee, full.guarantee])


def test_the_noise_beats_fresh_noise() -> None:
    m = design_output_noise(VEHICLE, 100, 1.0, 0.01)
    iid = independent_output_noise(VEHICLE, 100, 1.0, 0.01)
    assert m.expected_squared_error < iid.expected_squared_error / 10


def test_unobservable_systems_and_short_horizons_need_less_noise() -> None:
    velocity = design_output_noise(([[1, 0.1], [0, 1]], [[0, 1]]), 30, 1.0, 1e-6)
    assert velocity.strategy.start.shape == (2, 1)
    assert velocity.guarantee.exact
    short = design_output_noise(VEHICLE, 1, 1.0, 1e-6)
    assert short.strategy.start.shape == (2, 1)
    for m in (velocity, short):
        generic = recorded(m).guarantee
        assert generic.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_what_outputs_reveal_is_in_the_order_of_the_states(kind: str) -> None:
    """Sparse rows are eliminated first; noise and what it is measured by keep one order."""
    C, mu = np.array([[1.4, -1.8, 0.6], [0.0, -1.4, 1.9]]), np.array([2.0, 2.1, 2.4])
    m = design_output_noise((np.eye(3), C), 1, 1.0, 1e-3, mu=mu, adjacency=kind)
    whitened = np.linalg.solve(C @ m.strategy.start, C * mu)
    found = np.linalg.norm(whitened, axis=0).max()
    assert found <= m.guarantee.sensitivity * (1 + 1e-12)
    assert found == pytest.approx(m.guarantee.sensitivity, rel=1e-6)


def test_combinations_that_outputs_reveal() -> None:
    # only x1 + x2 is ever seen, and it is all that counts
    A, C = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[1.0, 1.0]])
    m = design_output_noise((A, C), 10, 1.0, 1e-6)
    assert m.strategy.start.shape == (2, 1)
    same = recorded(m).guarantee
    assert same.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-9)


def test_singular_dynamics_have_no_time_local_neighbours() -> None:
    system = ([[0.5, 1.0], [0.0, 0.0]], [[1, 0]])
    with pytest.raises(adp.AffineDPError, match="Theorem 3.*manifold"):
        design_output_noise(system, 5, 1.0, 0.01)
    m = design_output_noise(system, 5, 1.0, 0.01, adjacency="manifold")
    generic = recorded(m).guarantee
    assert generic.leak is None
    assert generic.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-9)


def test_contracting_dynamics_warn_with_the_noise_by_time() -> None:
    with pytest.warns(AffineDPWarning, match=r"at t = 0.*at t = 29") as said:
        m = design_output_noise(([[0.5]], [[1]]), 30, 1.0, 0.01)
    assert {one.filename for one in said} == {__file__}  # the caller's line, not one of ours
    assert noise_by_time(m)[0, 0] == pytest.approx(noise_by_time(m)[29, 0] * 2.0**29, rel=1e-12)
    assert any("uneven" in note for note in m.notes)
    fading = 0.5 ** np.arange(30)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calm = design_output_noise(([[0.5]], [[1]]), 30, 1.0, 0.01, mu=fading)
    assert noise_by_time(calm)[0, 0] == pytest.approx(adp.gaussian_sigma(1.0, 0.01), rel=1e-9)


@pytest.mark.parametrize(("horizon", "law"), [(30, "gaussian"), (110, "laplace")])
def test_noise_that_starts_huge_warns(horizon: int, law: str) -> None:
    """62 rad, and 5·10⁸ rad that stay large, where a state moves by 0.1 rad."""
    delta = 0.01 if law == "gaussian" else 0.0
    with pytest.warns(AffineDPWarning, match="the noise is (uneven|huge) over time"):
        design_output_noise(MOTOR, horizon, 1.0, delta, mu=[0.1, 1.0], law=law)


def test_a_horizon_that_is_too_long_names_one_that_works() -> None:
    A = np.diag([1.0, 0.1]) + np.array([[0.0, 0.3], [0.2, 0.0]])
    with pytest.raises(HorizonTooLongError) as refused:
        design_output_noise((A, [[1, 0]]), 3000, 1.0, 0.01)
    works = refused.value.horizon
    assert 1 <= works < 3000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AffineDPWarning)
        assert design_output_noise((A, [[1, 0]]), works, 1.0, 0.01).guarantee.holds(1.0, 0.01)


MOTOR = ([[1, 0.01813], [0, 0.8187]], [[1, 0]])  # angle and speed, which fades


@pytest.mark.parametrize("horizon", [40, 80, 100, 110])
def test_noise_near_the_longest_horizon_in_exact_numbers(horizon: int) -> None:
    """The promise holds, and late noise is what a late state needs, though early noise is huge."""
    mu = [0.1, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AffineDPWarning)
        m = design_output_noise(MOTOR, horizon, 1.0, 0.01, mu=mu)
    (a, b), (c, d) = [[Fraction(str(v)) for v in row] for row in MOTOR[0]]
    one = a * d - b * c
    back = [[d / one, -b / one], [-c / one, a / one]]
    (p, q), (r, s) = [[Fraction(float(v)) for v in row] for row in m.strategy.start]
    two = p * s - q * r
    white = [[s / two, -q / two], [-r / two, p / two]]  # R⁻¹ A⁻ᵗ
    squares = []
    for _ in range(horizon):
        squares += [(white[0][i] ** 2 + white[1][i] ** 2) * Fraction(mu[i]) ** 2 for i in (0, 1)]
        white = [[sum(row[k] * back[k][j] for k in (0, 1)) for j in (0, 1)] for row in white]
    limit = Fraction(m.guarantee.sensitivity) ** 2
    assert max(squares) <= limit
    assert max(squares) > limit * (1 - Fraction(1, 1000))
    state = [[p, q], [r, s]]
    for _ in range(horizon - 1):
        state = [[a * x + b * y for x, y in zip(*state)], [c * x + d * y for x, y in zip(*state)]]
    late = math.sqrt(state[0][0] ** 2 + state[0][1] ** 2)
    assert late == pytest.approx(noise_by_time(m)[-1, 0], rel=1e-5)
    assert late == pytest.approx(0.1 / m.guarantee.sensitivity, rel=0.05), "0.1 rad at the end"
    # no noise with this promise does with less than what hides the last speed alone
    least = sum(float(back_then) ** 2 for back_then in _outputs_of_the_last_speed(horizon))
    found = float((noise_by_time(m)[:, 0] ** 2).sum()) * float(limit)
    assert 1 - 1e-9 <= found / least <= (1 + m.gap) * (1 + horizon * 0.01 / least) + 1e-9


def _outputs_of_the_last_speed(horizon: int) -> list[Fraction]:
    """The angle at every time if the last speed differs by 1 and the last angle does not."""
    slow, gain = Fraction(str(MOTOR[0][1][1])), Fraction(str(MOTOR[0][0][1]))
    angle, speed, found = Fraction(0), Fraction(1), [Fraction(0)]
    for _ in range(horizon - 1):
        speed = speed / slow
        angle = angle - gain * speed
        found.append(angle)
    return found


def test_what_is_said_of_a_horizon_that_is_too_long() -> None:
    with pytest.raises(HorizonTooLongError) as refused:
        design_output_noise(MOTOR, 200, 1.0, 0.01, mu=[0.1, 1.0])
    said, works = str(refused.value), refused.value.horizon
    wanted = (
        r"a horizon of 200 steps is too long for adjacency='time-local': .* was one of about "
        rf"10\^18 in the first.* longest that works is {works}, with noise of .* at t = 0\. "
        r".*'initial' or 'forward'"
    )
    assert re.match(wanted, said)
    for other in ("initial", "forward"):
        made = design_output_noise(MOTOR, 200, 1.0, 0.01, mu=[0.1, 1.0], adjacency=other)
        assert made.guarantee.holds(1.0, 0.01)
    with pytest.raises(HorizonTooLongError, match="expand.*works.*close a local loop") as refused:
        design_output_noise(([[16.0]], [[1.0]]), 400, 1.0, 0.01)
    assert "'forward'" not in str(refused.value)
    changing = (np.tile(np.array([[[0.1]]]), (199, 1, 1)), [[1.0]])
    with pytest.raises(HorizonTooLongError, match="works.*'initial'") as refused:
        design_output_noise(changing, 200, 1.0, 0.01)
    assert "'forward'" not in str(refused.value)


def test_time_varying_systems() -> None:
    rng = np.random.default_rng(5)
    A = np.eye(2) + 0.2 * rng.normal(size=(6, 2, 2))
    C = rng.normal(size=(7, 1, 2))
    m = design_output_noise((A, C), 7, 1.0, 1e-4)
    generic = recorded(m).guarantee
    assert generic.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-9)
    by_function = design_output_noise((lambda t: A[t], lambda t: C[t]), 7, 1.0, 1e-4)
    assert np.array_equal(by_function.strategy.start, m.strategy.start)


def test_a_python_control_system() -> None:
    control = pytest.importorskip("control")
    system = control.ss([[1, 0.1], [0, 1]], [[0.005], [0.1]], [[1, 0]], 0, dt=0.1,
                        states=["p", "v"], outputs=["gps"])  # fmt: skip
    m = design_output_noise(system, 20, 1.0, 0.01)
    assert m.domain.state_names == ("p", "v")
    assert m.domain.output_names == ("gps",)
    assert m.guarantee.names == ("p(0)", "v(0)")
    plain = design_output_noise(VEHICLE, 20, 1.0, 0.01)
    assert np.array_equal(m.strategy.start, plain.strategy.start)
    with pytest.raises(adp.AffineDPError, match="sample_system"):
        design_output_noise(control.ss([[0]], [[1]], [[1]], 0), 20, 1.0, 0.01)


def test_a_cost_matrix_changes_the_noise_and_not_the_promise() -> None:
    plain = design_output_noise(VEHICLE, 30, 1.0, 0.01)
    weight = np.diag([1.0, 50.0])
    other = design_output_noise(VEHICLE, 30, 1.0, 0.01, cost=weight)
    assert other.guarantee.holds(1.0, 0.01)

    def paid(m: adp.Mechanism) -> float:
        return float(np.trace(weight @ m.strategy.start @ m.strategy.start.T))

    assert paid(other) < paid(plain) * 0.999
    assert plain.expected_squared_error < other.expected_squared_error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 0}, "horizon"),
        ({"horizon": True}, "horizon"),
        ({"horizon": 2.0}, "horizon"),
        ({"mu": -1.0}, "mu"),
        ({"mu": [1.0, 1.0, 1.0]}, "one per time and state"),
        ({"mu": 0.0}, "mu"),
        ({"mu": math.nan}, "finite"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"adjacency": "all"}, "adjacency"),
        ({"system": ([[1, 2]], [[1, 0]])}, "square"),
        ({"system": ([[1]], [[1, 0]])}, "column"),
        ({"system": "vehicle"}, "system"),
        ({"system": 3}, "system"),
        ({"cost": [[1.0]]}, "cost"),
        ({"system": ([[1, 0.1], [0, 1]], [[0, 0]])}, "no noise is needed"),
    ],
)
def test_bad_input_is_refused(change: dict, message: str) -> None:
    given = {"system": VEHICLE, "horizon": 5, "epsilon": 1.0, "delta": 0.01} | change
    with pytest.raises(adp.AffineDPError, match=message):
        design_output_noise(**given)


def test_sampled_noise_has_the_stated_covariance() -> None:
    m = design_output_noise(VEHICLE, 6, 1.0, 0.01)
    noise = m.sample(40_000, seed=1)[:, :, 0]
    found = np.cov(noise.T)
    assert found == pytest.approx(m.covariance, rel=0.05, abs=0.02 * m.covariance.max())
    assert np.array_equal(m.sample(2, seed=7), m.sample(2, seed=7))
    assert m.strategy.shortened(4).over_time == pytest.approx(m.strategy.over_time[:4])


def test_mechanisms_survive_the_disk(tmp_path) -> None:
    path = tmp_path / "m.json"
    for kind in KINDS:
        m = design_output_noise(VEHICLE, 9, 1.0, 0.01, adjacency=kind, mu=[1.0, 0.5])
        m.save(path)
        again = adp.Mechanism.load(path)
        assert again.fingerprint == m.fingerprint
        assert again.guarantee.sensitivity == m.guarantee.sensitivity
        assert again.guarantee.neighbours_key == m.guarantee.neighbours_key
        trusted = adp.Mechanism.load(path, reverify=False)
        assert "NOT verified" in trusted.guarantee.warnings[0]


def test_altered_files_are_refused(tmp_path) -> None:
    path = tmp_path / "m.json"
    m = design_output_noise(VEHICLE, 9, 1.0, 0.01)
    m.save(path)
    smaller = tmp_path / "smaller.json"
    replace(m.with_design(asked=None), strategy=m.strategy.scaled(0.9)).save(smaller)
    document, other = json.loads(path.read_text()), json.loads(smaller.read_text())
    saved = document["saved"]
    changes = [
        {"strategy": other["saved"]["strategy"]},
        {"strategy": saved["strategy"] | {"start": [[1.0, 0.0]]}},
        {"adjacency": saved["adjacency"] | {"mu": 2.0}},
        {"adjacency": saved["adjacency"] | {"kind": "whole trajectories"}},
        {"adjacency": saved["adjacency"] | {"domain": {}}},
    ]
    for horizon in (20, "9", -1):
        domain = saved["adjacency"]["domain"] | {"horizon": horizon}
        changes.append({"adjacency": saved["adjacency"] | {"domain": domain}})
    for change in changes:
        path.write_text(json.dumps(document | {"saved": saved | change}))
        with pytest.raises(StorageError):
            adp.Mechanism.load(path)


def test_reports_and_figures(tmp_path) -> None:
    m = design_output_noise(VEHICLE, 100, 1.0, 0.01)
    text = str(m)
    assert max(map(len, text.splitlines())) <= 80
    assert "time-local" in text
    assert "y1(99)" in text
    assert "<svg" in m.report().page()
    assert [axes.get_title() for axes in m.plot().axes] == ["Promise", "Noise by time"]
    assert "fresh at every step" in str(independent_output_noise(VEHICLE, 10, 1.0, 0.01))


def test_too_long_to_list() -> None:
    with pytest.raises(adp.AffineDPError, match="numbers"):
        design_output_noise(([[1]], [[1]]), 30_000, 1.0, 0.01).covariance  # noqa: B018


@given(
    st.integers(1, 3), st.integers(1, 2), st.integers(1, 7), st.integers(0, 2**32 - 1),
    st.sampled_from(KINDS),
)  # fmt: skip
@example(3, 2, 1, 1153, "manifold")
@example(2, 1, 7, 3763804523, "manifold")
def test_random_systems_agree_with_the_generic_path(
    n: int, m: int, horizon: int, seed: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    A = np.round(np.eye(n) + rng.normal(size=(n, n)), 2)
    C = np.round(rng.normal(size=(m, n)), 1)
    mu = rng.uniform(0.1, 3.0, size=n)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AffineDPWarning)
            found = design_output_noise((A, C), horizon, 1.0, 1e-3, mu=mu, adjacency=kind)
        generic = recorded(found).guarantee
    except adp.AffineDPError:
        return
    assert found.guarantee.holds(1.0, 1e-3)
    assert generic.leak is None
    # Rounding widens the generic answer on both sides of the truth, most for uneven noise.
    assert generic.sensitivity_lower <= found.guarantee.sensitivity * (1 + 1e-6)
    assert generic.sensitivity >= found.guarantee.sensitivity * (1 - 1e-6)
    deviations = noise_by_time(found)
    if deviations.max() > UNEVEN * deviations[deviations > 0].min():
        return
    centre = (generic.sensitivity_lower + generic.sensitivity) / 2
    assert centre == pytest.approx(found.guarantee.sensitivity, rel=1e-6)
    assert generic.sensitivity == pytest.approx(centre, rel=1e-4)


def test_dynamics_are_values() -> None:
    first = dynamics_of(VEHICLE, 10)
    assert dynamics_of(VEHICLE, 10).key == first.key
    assert dynamics_of(VEHICLE, 11).key != first.key
    assert dynamics_of(first, 5).horizon == 5
    with pytest.raises(adp.AffineDPError, match="horizon"):
        dynamics_of(first, 11)


def test_the_control_block_adds_fixed_noise() -> None:
    control = pytest.importorskip("control")
    m = design_output_noise(VEHICLE, 20, 1.0, 0.01)
    block = noise_block(m, seed=3)
    times = np.arange(20.0)
    response = control.input_output_response(block, times, np.ones((1, 20)))
    expected = 1.0 + m.sample(1, seed=3)[0, :, 0]
    assert response.outputs.ravel() == pytest.approx(expected)
    with pytest.raises(adp.AffineDPError, match="horizon"):
        control.input_output_response(block, np.arange(21.0), np.ones((1, 21)))


WEAK = 1e-7
WEAKLY_COUPLED = [[1, WEAK, 2 * WEAK], [3 * WEAK, 1, WEAK], [WEAK, 4 * WEAK, 1]]


@pytest.mark.parametrize(
    ("system", "horizon", "mu"),
    [
        ((WEAKLY_COUPLED, np.eye(3)), 3, 1.0),
        (([[1.000000001, 1e-13], [1e-16, 1.0000000000001]], np.eye(2)), 2, 1.0),
        (([[1.0000000000001, 3e-15], [3e-12, 1.0]], np.eye(2)), 3, [1, 0]),
        (([[1.0000000000001, 3e-15], [3e-15, 1.0]], [[1, 1]]), 3, [1, 0]),
    ],
)
def test_circuits_with_coefficients_too_small_for_floating_point_are_hidden(
    system, horizon, mu
) -> None:
    """Every circuit, in rational arithmetic, is within the limit of the noise that is designed."""
    A = np.array(system[0], dtype=float)
    n = len(A)
    noise = design_output_noise(system, horizon, 1.0, 1e-6, mu=mu, adjacency="manifold")
    assert any("tiny coefficient" in warning for warning in noise.guarantee.warnings)
    D = np.kron(np.eye(horizon - 1, horizon), A) - np.kron(
        np.eye(horizon - 1, horizon, 1), np.eye(n)
    )
    distance = [Fraction(repr(float(m))) for m in np.broadcast_to(mu, n).tolist()] * horizon
    # all outputs are O (x(0) + R η) and O is injective, so only x(0) counts
    unit = np.abs(noise.strategy.start).max(axis=1)
    limit = adp.gaussian_sensitivity(1.0, 1e-6)
    directions = exact_directions(D, distance)
    assert len(directions) > 3
    for v in directions.values():
        moved = np.array([float(v.get(i, 0)) for i in range(n)])
        z = np.linalg.solve(noise.strategy.start / unit[:, None], moved / unit)
        assert np.linalg.norm(z) <= limit * (1 + 1e-6)


def test_the_zeros_of_good_circuits_pass_the_exact_check() -> None:
    for A in (
        [[1, 0.1], [0, 1]],
        [[1, 0.1, 0.005], [0, 1, 0.1], [0, 0, 1]],
        [[0.3, 0.1], [0.2, 0.7]],
    ):
        C = np.eye(len(A))[:1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AffineDPWarning)
            assert design_output_noise((A, C), 7, 1.0, 0.01, adjacency="manifold").guarantee.exact


def test_a_coordinate_that_barely_moves_is_not_left_without_noise() -> None:
    with pytest.raises(adp.AffineDPError):
        design_output_noise(([[1, -1e-45], [0, 1]], [[1e45, 0], [0, 1]]), 5, 1.0, 1e-6, mu=[0, 1])


def test_what_is_sent_of_the_states_is_not_part_of_who_is_a_neighbour() -> None:
    first = design_output_noise(VEHICLE, 6, 1.0, 0.01).guarantee.neighbours_key
    A, C = np.array(VEHICLE[0]), np.array(VEHICLE[1])
    for system in ((A, 2 * C), (A, np.vstack([C, C])), (np.stack([A] * 5), C), (A, [[0, 1]])):
        assert design_output_noise(system, 6, 1.0, 0.01).guarantee.neighbours_key == first
    assert design_output_noise(VEHICLE, 7, 1.0, 0.01).guarantee.neighbours_key != first


@pytest.mark.parametrize("c", [1.0, 1e6, 1e12])
def test_units_change_neither_design_nor_baseline(c: float) -> None:
    system = ([[1, 1 / c], [0, 1]], [[c, 0], [0, 1]])
    m = design_output_noise(system, 5, 1.0, 1e-6, mu=[1 / c, 1])
    assert m.expected_squared_error == pytest.approx(1242.9, rel=1e-4)
    assert m.notes == ()
    iid = independent_output_noise((np.eye(2), [[c, 1]]), 5, 1.0, 1e-6, mu=[0, 1])
    assert iid.strategy.sigma == pytest.approx(9.4467, rel=1e-3)


def test_values_cannot_be_changed_under_a_guarantee() -> None:
    m = design_output_noise(VEHICLE, 5, 1.0, 0.01)
    for array in (m.strategy.start, m.domain.A, m.domain.C, m.adjacency.mu):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7.0


def test_extreme_input_is_refused() -> None:
    cycle = np.zeros((4, 4))
    cycle[[1, 2, 3, 0], [0, 1, 2, 3]] = [1e-200, 1e66, 1e66, 1e66]
    bad = [
        lambda: design_output_noise((cycle, np.eye(4)[:1]), 5, 1.0, 0.01),
        lambda: design_output_noise((np.zeros((0, 2, 2)), [[1, 0]]), 1, 1.0, 0.01),
        lambda: design_output_noise(VEHICLE, 10**12, 1.0, 0.01),
        lambda: design_output_noise(VEHICLE, 10**30, 1.0, 0.01),
        lambda: design_output_noise(VEHICLE, 9 * 10**8, 1.0, 0.01),
        lambda: design_output_noise(VEHICLE, 5, 1.0, 0.01, mu=1e308),
        lambda: design_output_noise(VEHICLE, 5, 1.0, 0.01, tol=2.0),
        lambda: design_output_noise(VEHICLE, 5, 1.0, 0.01, cost=-np.eye(2)),
        lambda: independent_output_noise(VEHICLE, 5, 1.0, 0.01, mu=1e-310),
        lambda: design_output_noise(VEHICLE, 5, 1.0, 0.01).strategy.shortened(0.5),
    ]
    for call in bad:
        with pytest.raises(adp.AffineDPError):
            call()
    # one output of a singular system: no step is made
    once = design_output_noise(([[1, 1], [1, 1]], [[1, 0]]), 1, 1.0, 0.01)
    assert once.strategy.start.shape == (2, 1)


def test_what_the_weaker_promise_cannot_hide_is_refused_before_circuits_are_listed(monkeypatch):
    """Definition 4 holds all time-local neighbours of a plant that contracts by 10³⁷."""

    def listed(*_):
        raise AssertionError("circuits were listed")

    monkeypatch.setattr("affinedp.neighbours.trajectory.WholeManifold.differences", listed)
    monkeypatch.setattr("affinedp.neighbours.trajectory.WholeManifold.moving", listed)
    building = ([[0.9, 0.08], [0.02, 0.97]], [[1, 0]])
    with pytest.raises(HorizonTooLongError, match="'manifold' hides all that 'time-local'"):
        design_output_noise(building, 672, 1.0, 1e-4, mu=0.5, adjacency="manifold")


def test_bodies_are_not_searched_for_horizons_that_are_only_tried(monkeypatch):
    starts = []
    monkeypatch.setattr(
        "affinedp.control.output_noise.least_body",
        lambda *words: starts.append(words[3]) or least_body(*words),
    )
    building = ([[0.9, 0.08], [0.02, 0.97]], [[1, 0]])
    with pytest.raises(HorizonTooLongError, match="The longest that works"):
        design_output_noise(building, 672, 1.0, 1e-4, mu=0.5, law="knorm")
    assert len(starts) > 3
    assert not any(starts[1:])
