"""Loops under stationary noise: exact errors against simulation and published tables."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import affinedp as adp
from affinedp.control import (
    ClosedLoop,
    ControlledPlant,
    Dither,
    aware_controller,
    design_input_noise,
    design_output_noise,
)
from affinedp.errors import AffineDPWarning
from affinedp.exact.systems import LinearSystem
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import private_inputs
from affinedp.strategies.filter import Filter
from plants import building, quarter_car, quarter_car_actuator, room

LIMIT = float(adp.gaussian_sensitivity(1.0, 1e-4))


def white(plant: tuple[np.ndarray, ...], mu: float) -> Mechanism:
    """White output noise with the same promise."""
    neighbours = private_inputs(plant, mu)
    shaper = LinearSystem.static(np.eye(len(plant[2])))
    made = Filter(neighbours.domain, shaper, start=np.zeros((0, 0)))
    unit = Mechanism(neighbours, made, Gaussian()).guarantee.sensitivity
    return Mechanism(neighbours, made.scaled(unit / LIMIT), Gaussian())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("room", (59.1, 5.47, 6.30, 4.30)),
        ("building", (3.69, 1.49, 2.16, 1.49)),
        ("car", (7075, 4.46, 16.8, 4.24)),
    ],
)
def test_what_the_loop_pays(name: str, wanted: tuple[float, ...]) -> None:
    """M's table: cost relative to the loop without privacy, unaware and aware."""
    private, mu, sw, r0, ru = {
        "room": (room(), 0.1, 0.2, 1e-4, 0.1),
        "building": (building(), 0.1, 0.2, 1e-4, 0.1),
        "car": (quarter_car(), 0.01, 0.01, 1e-8, 1e-5),
    }[name]
    A, E, C = private
    plant = quarter_car_actuator() if name == "car" else private
    Q = C.T @ C + 1e-9 * np.eye(len(A))
    if name == "car":
        Q[0, 0] += 1e-3
    V = E @ E.T * sw**2
    R = ru * np.eye(plant[1].shape[1])

    def cost(known: Mechanism | None, noise: Mechanism | None) -> float:
        controller = aware_controller(
            plant, known, state_cost=Q, input_cost=R,
            process_covariance=V, measurement_covariance=r0,
        )  # fmt: skip
        loop = ControlledPlant(plant, controller, state_cost=Q, input_cost=R)
        return loop.errors(noise, process_noise=V, sensor_noise=np.sqrt(r0)).cost

    base = cost(None, None)
    plain, shaped = white(private, mu), design_input_noise(private, 1.0, 1e-4, mu=mu)
    found = [cost(known, noise) / base for noise in (plain, shaped) for known in (None, noise)]
    assert found == pytest.approx(wanted, rel=0.05)
    assert found[2] <= wanted[2] * 1.03
    assert found[3] <= wanted[3] * 1.01


def test_what_a_thermometer_with_steps_costs_as_the_page_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "loops.md"
    said = re.search(
        r"controller there pays ([\d.]+) times, and ([\d.]+) times with", page.read_text("utf-8")
    )
    assert said
    settings = {"state_cost": 1, "input_cost": 0.1, "measurement_covariance": 1e-4}

    def cost(noise: Mechanism | None) -> float:
        aware = aware_controller(room(), noise, process_covariance=0.18**2, **settings)
        loop = ControlledPlant(room(), aware, state_cost=1, input_cost=0.1)
        return loop.errors(noise, process_noise=0.18, sensor_noise=0.01).cost

    for number, steps in zip(said.groups(), (0.1, Dither(6, 0.1)), strict=True):
        week = design_input_noise(room(), 1.0, 1e-4, mu=0.1, horizon=672, resolution=steps)
        assert cost(week) / cost(None) == pytest.approx(float(number), abs=0.05)


@pytest.mark.parametrize("place", ["output", "input"])
def test_exact_errors_agree_with_simulation(place: str) -> None:
    A, E, C = building()
    private = (A, E, C) if place == "output" else (A, E[:, :1], C)
    m = design_input_noise(private, 1.0, 1e-4, mu=0.2)
    assert m.strategy.place == place
    loop = ClosedLoop.lqg(
        (A, E, C), np.zeros(6), state_cost=1, input_cost=0.1,
        process_covariance=E @ E.T * 0.04 + 1e-6 * np.eye(6), measurement_covariance=0.01,
        x0=np.ones(6),
    )  # fmt: skip
    exact = loop.mean_square_error(m, 40, process_noise=0.05)
    runs = loop.simulate(m, 40, 4000, seed=1, process_noise=0.05)
    apart = np.abs(runs.mean_square_error - exact)[1:] / runs.standard_error[1:]
    assert apart.max() < 5.5
    late = loop.mean_square_error(m, 4000, process_noise=0.05)[-1]
    assert loop.stationary_error(m, process_noise=0.05) == pytest.approx(late, rel=1e-6)


@pytest.mark.slow
def test_both_kinds_of_loops_agree() -> None:
    A, E, C = building()
    m = design_input_noise((A, E, C), 1.0, 1e-4, mu=0.2)
    V = E @ E.T * 0.04 + 1e-6 * np.eye(6)
    controller = aware_controller(
        (A, E, C), None, state_cost=1, input_cost=0.1,
        process_covariance=V, measurement_covariance=0.01,
    )  # fmt: skip
    general = ControlledPlant((A, E, C), controller)
    own = ClosedLoop.lqg(
        (A, E, C), np.zeros(6), state_cost=1, input_cost=0.1,
        process_covariance=V, measurement_covariance=0.01,
    )  # fmt: skip
    assert general.errors(m).states == pytest.approx(own.stationary_error(m), rel=1e-9)
    by_time = own.mean_square_error(m, 30)
    assert general.mean_square_error(m, 30) == pytest.approx(by_time, rel=1e-9, abs=1e-12)
    for loop in (general, own):
        designed = design_input_noise((A, E, C), 1.0, 1e-4, mu=0.2, cost=loop)
        assert designed.guarantee.holds(1.0, 1e-4)
        moved = loop.errors if isinstance(loop, ControlledPlant) else loop.stationary_error
        after = moved(designed)
        total = np.sum(after.states if isinstance(loop, ControlledPlant) else after)
        assert designed.design.error == pytest.approx(total, rel=1e-3)
        assert total <= general.errors(m).states.sum() * (1 + 1e-6)
        assert designed.gap is not None


def test_integral_action_and_feedforward() -> None:
    """A constant load is integrated away; references and feedforward enter as is known."""
    control = pytest.importorskip("control")
    plant = ([[0.9]], [[0.5]], [[1.0]])
    m = design_input_noise(plant, 1.0, 1e-4, mu=0.1)
    controller = aware_controller(
        plant, m, state_cost=np.diag([1.0, 0.1]), input_cost=0.1,
        process_covariance=0.01, measurement_covariance=1e-4, integral_action=[[1.0]],
    )  # fmt: skip
    assert controller.ninputs == 3
    assert ControlledPlant(plant, controller).warnings == ()
    x, state, load = 0.0, np.zeros(controller.nstates), 0.3
    for _ in range(3000):
        given = np.array([x, 2.0, 0.2])  # ŷ, x_d, u_d
        u = float((controller.C @ state + controller.D @ given)[0])
        x, state = 0.9 * x + 0.5 * (u + load), controller.A @ state + controller.B @ given
    # x̂ is integrated to x_d; what is left is the observer's own offset under an unmodelled load
    estimate = state[0]
    assert estimate == pytest.approx(2.0, abs=1e-6)
    assert isinstance(controller, control.StateSpace)


def test_a_controller_does_not_move_private_inputs() -> None:
    """One plant with heating, people and weather: a controller moves the heating alone."""
    control = pytest.importorskip("control")
    named = {"inputs": ["heating", "people", "weather"], "dt": True}
    plant = control.ss(np.diag([0.9, 0.8]), np.ones((2, 3)), [[1, 1]], np.zeros((1, 3)), **named)
    noise = design_input_noise(plant, 1.0, 1e-4, mu=0.1, inputs=["people"])
    costs = {"state_cost": np.eye(2), "input_cost": 0.1, "process_covariance": 0.01 * np.eye(2)}
    with pytest.raises(adp.AffineDPError, match="'people', which no controller moves"):
        aware_controller(plant, noise, **costs)
    assert aware_controller(plant[:, ["heating"]], noise, **costs).noutputs == 1


def test_loops_warn() -> None:
    unstable = ([[1.2]], [[1.0]], [[1.0]])
    loop = ClosedLoop(unstable, [[0.6]], [[0.6]], reference=[0.0])
    noise = design_output_noise(([[1.2]], [[1.0]]), 100, 1.0, 0.01)
    with pytest.warns(AffineDPWarning, match="local loop"):
        assert loop.mean_square_error(noise, 100).max() > 1e8
    assert "local loop" in " ".join(str(loop.report(noise)).split())
    open_loop = ClosedLoop(unstable, [[0.0]], [[0.6]], reference=[0.0])
    with pytest.warns(AffineDPWarning, match="not asymptotically stable"):
        open_loop.mean_square_error(None, 10)
    with pytest.raises(adp.AffineDPError, match="not stable"):
        open_loop.stationary_error(None)
    stable = ClosedLoop(([[0.9]], [[1.0]], [[1.0]]), [[0.3]], [[0.3]], reference=[0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = design_input_noise(([[0.9]], [[1.0]], [[1.0]]), 1.0, 1e-4)
        stable.mean_square_error(m, 100)
    text = " ".join(str(stable.report(m)).split())
    assert "root mean square error" in text
    assert "without, after a long time" in text
    assert "the loop's own" not in text  # without noise it has no error
    warm = ClosedLoop(([[0.9]], [[1.0]], [[1.0]]), [[0.3]], [[0.3]], reference=[1.0])
    text = " ".join(str(warm.report(m)).split())
    assert "what is left without noise is the loop's own: its offset, and disturbances" in text


def tracking(report: object) -> list[tuple[float, float, str]]:
    """Error with noise and without of each state in a report, and over which time."""
    text = " ".join(str(report).split())
    number = r"(\S+) with this noise, (\S+) without, (after a long time\S*|over [\d,]+ steps?)"
    found = re.findall("root mean square error " + number, text)
    return [(float(after), float(before), words) for after, before, words in found]


@pytest.mark.slow
def test_a_report_stays_within_the_horizon() -> None:
    """A motor: far beyond the 200 steps of its noise the error would be 700 times larger."""
    motor = ([[1, 0.01813], [0, 0.8187]], [[0.0], [0.18]], [[1.0, 0.0]])
    loop = ClosedLoop.lqg(
        motor, [0, 0], state_cost=1, input_cost=1, process_covariance=1, measurement_covariance=1
    )
    noise = design_output_noise(motor, 200, 1.0, 0.01, mu=[0.1, 1.0], adjacency="forward")
    found = tracking(loop.report(noise))
    wanted = np.sqrt(loop.mean_square_error(noise, 200).mean(axis=0))
    assert [row[0] for row in found] == pytest.approx(wanted, rel=1e-3)
    assert [row[2] for row in found] == ["over 200 steps"] * 2
    assert found == tracking(loop.report(noise, 200))
    for ask in (loop.stationary_error, _aware_motor(motor).errors):
        with pytest.raises(adp.AffineDPError, match=r"horizon of 200 .*mean_square_error"):
            ask(noise)


def _aware_motor(motor: tuple[list[list[float]], ...]) -> ControlledPlant:
    costs = {"state_cost": 1, "input_cost": 1, "process_covariance": 1}
    return ControlledPlant(motor, aware_controller(motor, None, measurement_covariance=1, **costs))


def test_a_report_for_all_time() -> None:
    """No −0, and a mean error that stays is part of the root mean square."""
    m = design_input_noise(room(), 1.0, 1e-4)
    for reference, words in (([0.0], ""), ([2.0], ""), (lambda t: [t % 2], ",")):
        loop = ClosedLoop(room(), [[0.3]], [[0.3]], reference=reference)
        report = loop.report(m)
        ((after, before, time),) = tracking(report)
        assert "-0" not in str(report).split()
        assert time == f"after a long time{words}"
        if not words:
            late = np.sqrt(loop.mean_square_error(m, 3000)[-1, 0])
            assert after == pytest.approx(late, rel=1e-3)
            rest = abs(loop.mean(3000)[-1, 0])
            assert before == pytest.approx(rest, rel=1e-3, abs=1e-12)
            assert (rest > 0.01) == (reference != [0.0])


def test_refusals() -> None:
    m = design_input_noise(room(), 1.0, 1e-4)
    A, E, C = building()
    with pytest.raises(adp.AffineDPError, match="outputs"):
        aware_controller((A, E, C), m, state_cost=1, input_cost=1, process_covariance=1)
    controller = aware_controller(room(), m, state_cost=1, input_cost=1, process_covariance=1)
    with pytest.raises(adp.AffineDPError, match="controller"):
        ControlledPlant((A, E, C), controller)
    with pytest.raises(adp.AffineDPError, match="StateSpace of python-control.*not tuple"):
        ControlledPlant(room(), ([[0.5]], [[1.0]], [[0.3]], [[0.0]]))
    one_draw = design_output_noise(([[0.9]], [[1.0]]), 10, 1.0, 0.01, adjacency="initial")
    with pytest.raises(adp.AffineDPError, match="stationary"):
        ControlledPlant(room(), controller).errors(one_draw)  # type: ignore[arg-type]
    loop = ClosedLoop(room(), [[0.3]], [[0.3]], reference=[0.0])
    with pytest.raises(adp.AffineDPError, match="one draw"):
        loop.stationary_error(one_draw)  # type: ignore[arg-type]
