"""Sensors with steps: what is declared, what it costs, what is noticed."""

import math
import stat
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from scipy.stats import kstest

from affinedp.control import (
    Dither,
    Gateway,
    Reach,
    design_input_noise,
    design_output_noise,
    independent_output_noise,
    noise_by_time,
)
from affinedp.control.gateway import StepError
from affinedp.control.gateway_path import Sending
from affinedp.control.gateway_plan import white_plan
from affinedp.control.recordings import GridWatch, common_step, study
from affinedp.control.sensors import sensor_of
from affinedp.domains.dynamics import dynamics_of
from affinedp.errors import AffineDPError

STEP = 0.1


def only_start(states, horizon, mu):
    """μ by time for neighbours that differ in x(0) and follow the equations."""
    return np.vstack([np.full((1, states), mu), np.zeros((horizon - 1, states))])


def facts(mechanism):
    return Sending.of(mechanism, "exact").facts


def room():
    """A scalar plant, 96 steps of a quarter of an hour."""
    system, horizon = ([[0.99]], [[1.0]]), 96
    return design_output_noise(system, horizon, 1.0, 1e-4, mu=only_start(1, horizon, 1.0))


def building(horizon=672):
    """Three zones with heavy walls, a week in quarters of an hour; °C."""
    capacity = np.array([1e6, 1.2e6, 0.9e6, 8e6, 1e7, 9e6])
    links = np.zeros((6, 6))
    for i, j, g in [(0, 1, 60), (1, 2, 60), (0, 3, 150), (1, 4, 150), (2, 5, 150), (3, 4, 30)]:
        links[i, j] = links[j, i] = g
    outside = np.array([10, 8, 12, 40, 35, 45.0])
    rates = (links - np.diag(links.sum(axis=1) + outside)) / capacity[:, None]
    system = scipy.linalg.expm(rates * 900.0), np.eye(6)[:3]
    return design_output_noise(system, horizon, 1.0, 1e-4, mu=only_start(6, horizon, 0.5))


@pytest.fixture(scope="module")
def scalar():
    return room()


# ---------------------------------------------------------------------- shares


def bounds(mechanism, step):
    """The least total variance of any covariance, from below and above, by the dual."""
    A, C = mechanism.domain.A, mechanism.domain.C
    rows = [C]
    for _ in range(mechanism.domain.horizon - 1):
        rows.append(rows[-1] @ A)
    O = np.vstack(rows)
    s = mechanism.guarantee.sensitivity
    own = s * math.sqrt((noise_by_time(mechanism) ** 2).sum())
    mean = O @ mechanism.strategy.start @ mechanism.strategy.start.T @ O.T
    # M_v = s² / c0² Σ_v²: equality in the dual of the least trace
    spread = s * np.linalg.eigvalsh(mean).clip(0) / math.sqrt(np.trace(mean))
    lower = np.sqrt(spread**2 + step**2).sum() ** 2
    return lower / own**2, (own + len(O) * step) ** 2 / own**2


def test_shares_are_near_the_least_of_any_covariance(scalar, tmp_path):
    with Gateway(scalar, state=tmp_path / "s", resolution=STEP) as gateway:
        total = 1 + gateway.added_variance[0]
    lower, upper = bounds(scalar, STEP)
    assert 6.0 < lower < total < upper * (1 + 1e-2)
    assert total == pytest.approx(6.08, rel=0.01)  # with shares of a half and powers of two: 15.3
    assert Sending.of(scalar, STEP).cost() == pytest.approx(upper, rel=0.01)


def test_building_pays_a_fifth_of_what_it_did(tmp_path):
    m = building()
    with Gateway(m, state=tmp_path / "s", resolution=STEP) as gateway:
        base = (noise_by_time(m) ** 2).mean(axis=0)
        total = (base * (1 + gateway.added_variance)).sum() / base.sum()
        said = " ".join(gateway.guarantee.warnings)
    assert total == pytest.approx(1864, rel=0.01)  # it was 8951; no covariance has less than 1855
    assert f"deviation {math.sqrt(total * base.mean()):.3g} where exact" in said
    assert "cheapest first: 10 more bits, of the converter or by Dither(10, …)" in said
    assert "one step of" in said
    assert "a run of" in said
    assert Sending.of(m, Dither(10, STEP)).cost() < 1.1


def test_the_promise_holds_for_every_corner_of_the_box():
    """Σ of the whole horizon against all signs of the rounding errors, T = 10, exactly."""
    m = design_output_noise(([[0.9]], [[1.0]]), 10, 1.0, 1e-4, mu=only_start(1, 10, 1.0))
    plan = Sending.of(m, STEP).plan()
    v = 0.9 ** np.arange(10)
    covariance = plan.noise_factor**2 * m.strategy.start[0, 0] ** 2 * np.outer(v, v)
    inverse = np.linalg.inv(covariance + plan.fresh_noise[0] ** 2 * np.eye(10))
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 10)).reshape(10, -1)
    shifts = v[:, None] + STEP * signs
    worst = np.einsum("ij,ik,kj->j", shifts, inverse, shifts).max()
    assert worst <= m.guarantee.sensitivity**2
    assert worst > 0.98 * m.guarantee.sensitivity**2


def test_the_attack_on_a_sensor_with_steps(scalar, tmp_path):
    """Least squares on what the steps leave outside the range of the noise finds x(0), or not."""
    v = 0.99 ** np.arange(96)
    grid = np.arange(15.0, 25.0, 2e-3)
    left = np.round(np.outer(grid, v) / STEP) * STEP
    left -= np.outer(left @ v, v) / (v @ v)

    def guess(sent):
        outside = sent - v * (sent @ v) / (v @ v)
        return grid[np.argmin(((outside - left) ** 2).sum(axis=1))]

    rng = np.random.default_rng(0)
    errors = {"exact": [], STEP: []}
    for k in range(12):
        x0 = rng.uniform(16, 24)
        readings = np.round(x0 * v / STEP) * STEP
        for resolution, found in errors.items():
            path = tmp_path / f"{resolution}{k}"
            with Gateway(scalar, state=path, resolution=resolution) as gateway:
                found.append(abs(guess(np.array([gateway.send([y])[0] for y in readings])) - x0))
                assert bool(gateway.alarms) == (resolution == "exact")
    assert np.median(errors["exact"]) < 0.01
    assert np.median(errors[STEP]) > 0.3


# ---------------------------------------------------------------------- dither


@pytest.mark.parametrize("bits", [1, 3, 6])
def test_dither_leaves_an_error_that_does_not_depend_on_the_measurement(bits):
    """All levels of the offset at once: the identity of the proof, in fractions."""
    dither = Dither(bits, 0.1)
    step, fine = Fraction(0.1), Fraction(0.1) / 2**bits
    for y in (Fraction(0), Fraction("0.013"), Fraction("-7.7731"), Fraction("21.05")):
        errors = []
        for level in range(-(2 ** (bits - 1)), 2 ** (bits - 1)):
            code = math.floor((y + level * fine) / step + Fraction(1, 2))
            reading = dither.subtract([float(code * step)], [float(level * fine)])
            assert abs(Fraction(float(reading[0])) - (code * step - level * fine)) < 1e-14
            errors.append((code * step - level * fine) - math.floor(y / fine) * fine)
        half = 2 ** (bits - 1)
        assert sorted(e / fine for e in errors) == list(range(-half + 1, half + 1))


def test_offsets_are_uniform_fresh_and_on_their_levels():
    dither = Dither(12, 0.5)
    drawn = dither.draw(4000)
    assert drawn.min() >= -0.25
    assert drawn.max() < 0.25
    levels = drawn / dither.grid
    assert np.array_equal(levels, np.rint(levels))
    assert kstest((drawn + 0.25) / 0.5, "uniform").pvalue > 1e-6
    assert not np.array_equal(drawn, dither.draw(4000))
    with pytest.raises(AffineDPError, match="drawn for it"):
        dither.subtract([0.5], [0.0001])


def test_dither_hides_from_the_attack_what_rounding_shows(scalar, tmp_path):
    dither, v = Dither(8, STEP), 0.99 ** np.arange(96)
    with Gateway(scalar, state=tmp_path / "s", resolution=dither) as gateway:
        assert 1 + gateway.added_variance[0] < 1.1
        for y in 20 * v:
            offset = dither.draw(1)
            code = np.floor((y + offset) / STEP + 0.5) * STEP
            gateway.send(dither.subtract(code, offset))
        assert gateway.alarms == ()


def test_dither_that_is_not_there_is_noticed(scalar, tmp_path):
    with Gateway(scalar, state=tmp_path / "s", resolution=Dither(8, STEP)) as gateway:
        for t in range(96):
            gateway.send([round((20 + 3 * math.sin(t)) / STEP) * STEP])
        (alarm,) = gateway.alarms
        assert "grid of 0.1, coarser than declared" in alarm


@pytest.mark.parametrize(
    "words", [(0, 0.1), (41, 0.1), (4.0, 0.1), (4, 0.0), (4, -1), (4, math.nan), (4, 0.1, -1)]
)
def test_dither_refuses(words):
    with pytest.raises(AffineDPError):
        Dither(*words)


# ---------------------------------------------------------------------- grids of readings


@pytest.mark.parametrize("step", [0.1, 0.5, 1.0, 0.0625, 3e-4, 1 / 3, 25.0])
@pytest.mark.parametrize("offset", [0.0, 20.0, -1000.03])
def test_steps_are_found(step, offset):
    rng = np.random.default_rng(1)
    readings = offset + step * rng.integers(-500, 500, 40)
    assert common_step(readings.tolist()) == pytest.approx(step, rel=1e-6)


def test_computed_numbers_have_no_step():
    rng = np.random.default_rng(2)
    for scale in (1e-12, 1.0, 1e9):
        assert common_step((scale * rng.normal(size=50)).tolist()) is None
    assert common_step([1.0]) is None
    assert common_step([1.0, 1.0]) is None


def test_a_watch_says_so_once_and_never_without_reason():
    rng = np.random.default_rng(3)
    for _ in range(200):
        watch = GridWatch(0.1)
        assert not any(watch.take(0.1 * n) for n in rng.integers(0, 2000, 60))
    watch = GridWatch(0.0)
    assert not any(watch.take(value) for value in rng.normal(size=200))
    found = [watch.take(0.25 * n) for n in range(60)]
    assert [f for f in found if f] == [0.25]


def test_a_short_simulation_in_decimals_is_no_sensor():
    """The first numbers of x(t+1) = A x(t) are short decimals when A and x(0) are."""
    watch, state = GridWatch(0.0), [5.0, 1.0]
    for _ in range(100):
        assert watch.take(state[0]) is None
        state = [0.9 * state[0] + 0.1 * state[1], 0.8 * state[1]]


def test_a_sensor_that_was_called_exact_is_noticed_when_readings_come_again():
    watch = GridWatch(0.0)
    found = [watch.take(20.0 + 0.1 * (n % 12)) for n in range(100)]
    assert [f for f in found if f] == [pytest.approx(0.1, rel=1e-9)]


def printed(step, digits):
    """A wandering temperature, rounded to a step and printed with some digits."""
    rng = np.random.default_rng(4)
    room = 20 + np.cumsum(rng.normal(size=800)) * 0.07
    return [round(float(v), digits) for v in np.floor(room / step + 0.5) * step]


@pytest.mark.parametrize(
    ("readings", "declared", "step"),
    [
        ([20.0 + 0.1 * (n % 12) for n in range(100)], 0.01, 0.1),  # in a range of one degree
        (printed(0.0625, 2), 0.01, 0.06),
        (printed(100 / 4096, 3), 0.001, 0.024),
        ([float(np.float32(v)) for v in printed(0.1, 1)], 1e-6, 0.1),
    ],
)
def test_coarse_steps_in_a_small_range_or_printed_with_digits_are_noticed(readings, declared, step):
    watch = GridWatch(declared)
    found = [f for f in map(watch.take, readings) if f]
    assert found == [pytest.approx(step, rel=1e-3)]


def test_a_watch_is_quiet_about_sensors_as_declared():
    rng = np.random.default_rng(5)
    for _ in range(100):
        watch = GridWatch(0.01)
        room = 20 + np.cumsum(rng.normal(size=400)) * rng.choice([0.01, 0.1])
        assert not any(map(watch.take, np.round(room, 2).tolist()))
        ramp = GridWatch(0.0)
        assert not any(ramp.take(20 + 0.0123 * t + 1e-4 * rng.normal()) for t in range(100))


@pytest.mark.parametrize(
    ("readings", "true"),
    [
        (printed(0.0625, 2), 0.0625 + 0.01),
        (printed(100 / 4096, 3), 100 / 4096 + 0.001),
        ([float(np.float32(v)) for v in printed(0.1, 1)], 0.1),
    ],
)
def test_the_step_of_the_digits_is_not_taken_for_that_of_the_sensor(readings, true):
    found = study("room", readings)
    assert true <= found.resolution <= 1.15 * true
    assert "not of the sensor" in str(found)
    assert study("room", printed(0.1, 1)).resolution == pytest.approx(0.1)


def test_what_is_to_be_declared_is_rounded_up():
    third = [(n * n % 60) / 3 for n in range(100)] + [n / 3 for n in range(60)]
    declared = str(study("thirds", third)).split("--resolution ")[1].split()[0]
    assert 1 / 3 <= float(declared) < 0.33334


def test_a_coarser_sensor_is_noticed_in_a_file_for_the_owner_alone(scalar, tmp_path, caplog):
    path = tmp_path / "run.db"
    with Gateway(scalar, state=path, resolution=0.001) as gateway:
        for t in range(96):
            gateway.send([round(20 + 3 * math.sin(t), 1)])
        (alarm,) = gateway.alarms
    assert "grid of 0.1, coarser than declared (0.001)" in alarm
    kept = path.with_name("run.db.alarms")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert alarm in kept.read_text()
    assert caplog.text == "", "a log may be collected by others"


def test_an_alarm_that_cannot_be_written_tells_nobody(scalar, tmp_path):
    path = tmp_path / "run.db"
    path.with_name("run.db.alarms").mkdir()
    with Gateway(scalar, state=path, resolution=0.001) as gateway:
        for t in range(96):
            gateway.send([round(20 + 3 * math.sin(t), 1)])
        assert len(gateway.alarms) == 1


def test_exact_is_said_at_the_start(scalar, tmp_path, caplog):
    with Gateway(scalar, state=tmp_path / "s", resolution="exact") as gateway:
        assert "exact, which only a simulation's are" in caplog.text
        assert any("only a simulation" in warning for warning in gateway.guarantee.warnings)
    with pytest.raises(AffineDPError, match="resolution is missing"):
        Gateway(scalar, state=tmp_path / "t")


# ---------------------------------------------------------------------- range


def test_limits_that_hold_are_those_of_brute_force():
    rng = np.random.default_rng(4)
    A, B, C = rng.normal(size=(2, 2)) * 0.5, rng.normal(size=(2, 1)), rng.normal(size=(1, 2))
    reach = Reach(start=([-1, 0], [2, 1]), B=B, inputs=([-0.5], [1.0]))
    low, high = reach.outputs(dynamics_of((A, C), 5))
    found = []
    for x in ((a, b) for a in (-1, 2) for b in (0, 1)):
        for inputs in np.array(np.meshgrid(*[[-0.5, 1.0]] * 4)).reshape(4, -1).T:
            state = np.array(x, dtype=float)
            found.append((C @ state)[0])
            for u in inputs:
                state = A @ state + B[:, 0] * u
                found.append((C @ state)[0])
    assert low[0] == pytest.approx(min(found), rel=1e-6)
    assert high[0] == pytest.approx(max(found), rel=1e-6)
    varying = dynamics_of((np.repeat(A[None], 4, axis=0), C), 5)
    with pytest.raises(AffineDPError, match="do not change over time"):
        reach.outputs(varying)


def test_a_sensor_that_can_saturate_is_refused(scalar, tmp_path):
    words = {"resolution": 0.001, "state": tmp_path / "s"}
    inside = Reach(start=([10.0], [30.0]), B=[[0.1]], inputs=([0.0], [1.0]))
    with pytest.raises(AffineDPError, match="saturates when someone steers.*reach"):
        Gateway(scalar, range=(0.0, 50.0), **words)
    with pytest.raises(AffineDPError, match=r"y1 can go from .* outside of the sensor's range"):
        Gateway(scalar, range=(15.0, 50.0), reach=inside, **words)
    with pytest.raises(AffineDPError, match="goes with a range"):
        Gateway(scalar, reach=inside, **words)
    for bad in ((50.0, 0.0), 5, (0.0,), ([0, 1], [2, 3])):
        with pytest.raises(AffineDPError):
            Gateway(scalar, range=bad, reach=inside, **words)
    assert list(tmp_path.iterdir()) == []
    with Gateway(scalar, range=(0.0, 50.0), reach=inside, **words) as gateway:
        gateway.send([50.0])
        assert "end of the declared range" in gateway.alarms[0]
        assert not any("saturates" in warning for warning in gateway.guarantee.warnings)
    with Gateway(scalar, resolution=0.001, state=tmp_path / "t") as gateway:
        assert any("no sensor saturates" in warning for warning in gateway.guarantee.warnings)


SPRING = (
    np.array([[0.98045908, 0.09641338], [-0.38565353, 0.92261105]]),
    np.array([[0.00244262], [0.04820669]]),
    np.array([[1.0, 0.0], [2.0, -1.0]]),
)


@pytest.mark.parametrize("mu", [[0.05, 0.2], [0.05, 0.0], [0.0, 0.2]])
def test_the_range_has_room_for_the_jump_of_a_neighbour(tmp_path, mu):
    """The worst trajectory within the limits, driven again with the worst jump of its state."""
    A, B, C = SPRING
    steps, first, most = 30, np.array([0.15, 0.1]), 0.5
    m = design_output_noise((A, C), steps, 4.0, 1e-3, mu=mu, adjacency="forward")
    alone, jumped = np.zeros(2), np.zeros(2)
    for i in range(2):
        for end in range(steps):
            rows = [C[i] @ np.linalg.matrix_power(A, k) for k in range(end + 1)]
            state = first * np.sign(rows[end])
            for t in range(end):
                state = A @ state + B[:, 0] * most * np.sign(rows[end - 1 - t] @ B[:, 0])
            alone[i] = max(alone[i], C[i] @ state)
            for k in range(end + 1):
                after = [C[i] @ state + abs(rows[k][j]) * mu[j] for j in range(2)]
                jumped[i] = max(jumped[i], *after)
    # both reach their worst at times of their own: the bound may add them up
    moves = [np.linalg.matrix_power(A, k)[:, j] * mu[j] for k in range(steps) for j in range(2)]
    bound = alone + np.abs(C @ np.array(moves).T).max(axis=1)
    assert np.all(alone < jumped)
    assert np.all(jumped <= bound)
    limits = Reach(start=(-first, first), B=B, inputs=(-most, most))
    words = {"resolution": 1e-3, "reach": limits}
    for tight in (alone, np.array([alone[0], bound[1]]), np.array([bound[0], alone[1]])):
        wide = tight * 1.001
        with pytest.raises(AffineDPError, match="for the jump of a neighbour, .*outside"):
            Gateway(m, state=tmp_path / "s", range=(-wide, wide), **words)
    with pytest.raises(AffineDPError, match="for the jump of a neighbour, .*outside"):
        Gateway(m, state=tmp_path / "s", range=(-jumped * 0.9999, jumped * 0.9999), **words)
    assert list(tmp_path.iterdir()) == []
    Sending.of(m, 1e-3, limits=(-bound * 1.001, bound * 1.001)).check_range(limits)


@pytest.mark.parametrize("adjacency", ["time-local", "manifold", "initial", "input"])
def test_limits_of_other_neighbours_hold_for_both(adjacency):
    """Both start within the limits and have inputs within them: nothing is added."""
    if adjacency == "input":
        m = design_input_noise(([[0.9]], [[1.0]], [[1.0]]), 1.0, 1e-3, horizon=8)
    else:
        m = design_output_noise(([[0.9]], [[1.0]]), 8, 1.0, 1e-3, adjacency=adjacency)
    limits = Reach(start=(-1.0, 1.0), B=[[1.0]], inputs=(-0.2, 0.2))
    most = max(0.9**t + 0.2 * sum(0.9**k for k in range(t)) for t in range(8))
    Sending.of(m, 1e-3, limits=(-most * 1.001, most * 1.001)).check_range(limits)
    with pytest.raises(AffineDPError, match="outside of the sensor's range"):
        Sending.of(m, 1e-3, limits=(-most * 0.999, most * 0.999)).check_range(limits)


def test_limits_that_leave_out_a_private_input_are_refused():
    A, B, C = SPRING
    E, F = np.array([[0.1], [0.3]]), np.array([[0.0], [0.5]])
    start = {"start": (-0.1, 0.1), "system": (A, C)}
    for through in (0 * F, F):
        m = design_input_noise((A, E, C, through), 1.0, 1e-3, horizon=20)
        checked = Sending.of(m, 1e-3, limits=(-500.0, 500.0))
        D = np.hstack([0 * F, through])
        bare = Reach(B=B, inputs=(-0.5, 0.5), D=0 * F, **start)
        with pytest.raises(AffineDPError, match="leave out the private input w1"):
            checked.check_range(bare)
        checked.check_range(Reach(B=np.hstack([B, E]), inputs=(-0.5, 0.5), D=D, **start))
        # in other units, which is another column and the same input
        scaled = np.hstack([8 * E, B]), np.hstack([8 * through, 0 * F])
        checked.check_range(Reach(B=scaled[0], inputs=(-0.5, 0.5), D=scaled[1], **start))
    everything = Reach(B=np.eye(2), inputs=(-0.5, 0.5), **start)
    m = design_input_noise((A, E, C), 1.0, 1e-3, horizon=20)
    Sending.of(m, 1e-3, limits=(-500.0, 500.0)).check_range(everything)


def test_independent_noise_is_recommended_only_where_there_is_some(scalar, tmp_path):
    words = {"resolution": 1e-3, "state": tmp_path / "s", "range": (-50.0, 50.0)}
    with pytest.raises(AffineDPError, match="independent_output_noise"):
        Gateway(scalar, **words)
    jumps = design_output_noise(([[0.9]], [[1.0]]), 8, 1.0, 1e-3, adjacency="forward")
    with pytest.raises(AffineDPError, match="Give reach") as refusal:
        Gateway(jumps, **words)
    assert "independent" not in str(refusal.value)
    with pytest.raises(AffineDPError, match=r"for design_output_noise also 'forward'"):
        independent_output_noise(([[0.9]], [[1.0]]), 8, 1.0, 1e-3, adjacency="forward")


def test_independent_noise_does_not_mind_saturation(tmp_path):
    """Any factor in [0, 1] at each step, and any rounding: never further apart than promised."""
    m = independent_output_noise(([[0.99]], [[1.0]]), 60, 1.0, 1e-4, mu=only_start(1, 60, 1.0))
    plan = white_plan(m, m.strategy, sensor_of(m.domain.output_names, STEP))
    v, rng = 0.99 ** np.arange(60), np.random.default_rng(5)
    worst = np.linalg.norm(v + STEP) / plan.fresh_noise[0]
    assert worst <= m.guarantee.sensitivity
    assert worst > 0.99 * m.guarantee.sensitivity
    for _ in range(200):
        shift = rng.uniform(0, 1, 60) * v + STEP * rng.choice([-1, 1], 60)
        assert np.linalg.norm(shift) / plan.fresh_noise[0] <= m.guarantee.sensitivity
    with Gateway(m, state=tmp_path / "s", resolution=STEP, range=(-500.0, 500.0)) as gateway:
        sent = np.array([gateway.send([20.0])[0] for _ in range(60)])
        assert kstest((sent - 20) / gateway.fresh_noise[0], "norm").pvalue > 1e-6
        assert gateway.send([20.0], step=3) == sent[3]
    with pytest.raises(AffineDPError, match="fresh_noise out"):
        Gateway(m, state=tmp_path / "t", resolution=STEP, fresh_noise=1.0)


def test_a_sensor_that_carries_nothing_is_not_sent(tmp_path):
    m = building()
    start = Reach(start=(10.0, 30.0), B=np.zeros((6, 1)), inputs=(0.0, 0.0))
    words = {"range": (-10.0, 50.0), "reach": start}
    coarse = {"resolution": 0.3, "state": tmp_path / "s"}
    with pytest.raises(AffineDPError, match="carries nothing useful") as refusal:
        Gateway(m, **coarse, **words)
    assert "Dither(12, …)" in str(refusal.value)
    assert list(tmp_path.iterdir()) == []
    with Gateway(m, state=tmp_path / "s", resolution=Dither(12, 0.3), **words) as gateway:
        assert gateway.added_variance.max() < 0.2


# ---------------------------------------------------------------------- runs


def test_a_new_run_is_another_trajectory(scalar, tmp_path):
    path = tmp_path / "s"
    with Gateway(scalar, state=path, resolution=STEP) as gateway:
        assert gateway.run is None
        first = gateway.send([20.0], 0, run="monday")
        assert gateway.send([20.0], 0, run="monday") == first
        assert gateway.run == "monday"
    with Gateway(scalar, state=path, resolution=STEP) as gateway:
        assert gateway.run == "monday"
        for step in (0, 1, 7):
            with pytest.raises(StepError, match="belongs to run monday, not to tuesday") as e:
                gateway.send([20.0], step, run="tuesday")
        assert e.value.why == "run"
        assert gateway.next_step == 1
        gateway.send([19.8], 1)  # the caller does not say which
        assert gateway.run == "monday"
    with Gateway(scalar, state=tmp_path / "t", resolution=STEP) as gateway:
        gateway.send([20.0])
        with pytest.raises(StepError, match="belongs to run"):
            gateway.send([20.0], 1, run="monday")
        for bad in ("", "a b", "x" * 65, 7, "é"):
            with pytest.raises(AffineDPError):
                gateway.send([20.0], 1, run=bad)
    with Gateway(scalar, state=tmp_path / "u", resolution=STEP) as gateway:
        for bad in ("", "a b", "x" * 65, 7, "é"):  # the first one, too
            with pytest.raises(AffineDPError, match="a run is named by"):
                gateway.send([20.0], run=bad)
        assert (gateway.next_step, gateway.run) == (0, None)
