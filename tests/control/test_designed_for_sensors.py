"""Noise that is designed for sensors with steps: what is stated is what is sent; who listens."""

import json
import math
import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from affinedp.control import (
    ClosedLoop,
    Dither,
    Gateway,
    design_input_noise,
    design_output_noise,
    eavesdropper,
    independent_output_noise,
    noise_by_time,
)
from affinedp.control.by_time import sample_noise
from affinedp.control.gateway import StepError
from affinedp.control.gateway_path import with_sensors
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.show.plot import shown_noise
from affinedp.strategies.base import Sent
from affinedp.stream.run import Run, RunError

OFFICE = ([[0.99]], [[0.9]], [[1.0]])
VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


def office(steps, resolution=0.1, **words):
    words |= {"mu": 0.1, "horizon": steps, "resolution": resolution}
    return design_input_noise(OFFICE, 1.0, 1e-4, **words)


@pytest.mark.parametrize(("steps", "noise"), [(672, 8.89), (35_040, 60.4)])
def test_a_thermometer_over_a_week_and_a_year(steps, noise):
    m = office(steps)
    assert noise_by_time(m).shape == (steps, 1)
    assert noise_by_time(m)[-1, 0] == pytest.approx(noise, rel=0.01)
    assert noise_by_time(office(steps, None))[-1, 0] == pytest.approx(0.613, rel=0.01)
    assert f"sends noise of standard deviation {noise:.3g}" in m.notes[-2]
    assert re.search(r"\(every=\d+, or every in \[sensors\] of a file\)", m.notes[-1])


def test_remedies_leave_less_noise():
    """Where early noise dominates, a shorter run or fewer steps have more of it per step."""
    plant = ([[0.9, 0.08], [0.02, 0.97]], [[1, 0]])
    words = {"epsilon": 1.0, "delta": 1e-4, "mu": 0.5, "resolution": 0.1, "law": "knorm"}
    note = design_output_noise(plant, 40, **words).notes[-1]
    now, helps = re.search(
        r"noise of standard deviation (\S+).*the cheapest first: (.*)", note
    ).groups()
    assert re.fullmatch(r"4 more bits, of the converter or by Dither\(4, …\): \S+", helps)
    assert float(helps.split()[-1]) < float(now)


LOOP = ClosedLoop(
    ([[1, 0.1], [0, 1]], [[0.005], [0.1]], [[1, 0]]), [[3.4, 4.3]], [[0.8], [0.7]], [0.0, 0.0]
)


@pytest.mark.parametrize(("step", "least"), [(1e-4, "knorm"), (0.01, "gaussian")])
@pytest.mark.parametrize("cost", [None, LOOP])
def test_laws_are_compared_as_they_are_sent(step, least, cost):
    def made(law):
        return design_output_noise(
            VEHICLE, 50, 1.0, 0.01, mu=[1, 0.1], cost=cost, law=law, resolution=step
        )

    def paid(m):
        if cost is None:
            return (noise_by_time(m) ** 2).sum()
        return (LOOP.mean_square_error(m, 50) - LOOP.mean_square_error(None, 50)).sum()

    best, costs = made("auto"), {law: paid(made(law)) for law in ("gaussian", "knorm")}
    assert best.law == least == min(costs, key=costs.get)
    assert paid(best) == costs[least]
    for law, value in costs.items():
        assert f"{law} {value / costs[least]:.3g}" in best.notes[-1]


def test_a_matrix_says_nothing_about_fresh_noise():
    with pytest.raises(AffineDPError, match="name a law"):
        design_output_noise(VEHICLE, 9, 1.0, 0.01, cost=np.eye(2), law="auto", resolution=0.01)


def test_what_is_stated_is_what_a_gateway_sends(tmp_path):
    for i, m in enumerate(
        (
            office(96),
            design_output_noise(VEHICLE, 50, 1.0, 0.01, resolution=0.05),
            design_output_noise(VEHICLE, 50, 1.0, mu=[1, 0.1], law="knorm", resolution=0.05),
            design_output_noise(([[0.9]], [[1]]), 50, 1.0, 0.01, adjacency="forward", resolution=1),
        )
    ):
        m.save(tmp_path / f"{i}.json")
        loaded = Mechanism.load(tmp_path / f"{i}.json")
        with Gateway(loaded, state=tmp_path / f"{i}.db") as gateway:
            plain = m.strategy.deviations(m.noise, m.strategy.horizon)
            sent = (plain**2).mean(axis=0) * (1 + gateway.added_variance)
            assert (noise_by_time(loaded) ** 2).mean(axis=0) == pytest.approx(sent, rel=1e-6)
            assert gateway.sensor.steps == m.design.sent.resolution
        with pytest.raises(RunError, match="other sensors"):
            Gateway(loaded, state=tmp_path / f"{i}.db", resolution=0.01)
    drawn = sample_noise(m, 4000, 50, seed=0)
    assert drawn.std(axis=0) == pytest.approx(noise_by_time(m), rel=0.06)


SENSORS = {"resolution": [0.05], "measurement_error": 0.01, "every": 4}


@pytest.mark.parametrize(
    "more",
    [{}, {"measurement_error": 0.02}, {"every": 3}, SENSORS, SENSORS | {"fresh_noise": 9.0}],
    ids=["steps", "errors", "every", "both", "chosen"],
)
@pytest.mark.parametrize(
    ("design", "moves"),
    [
        (
            lambda **words: design_output_noise(VEHICLE, 11, 1.0, 0.01, **words),
            [[0.1 * (t - s) for t in range(11)] for s in range(11)] + [[1.0] * 11],
        ),
        (
            lambda **words: design_input_noise(OFFICE, 1.0, 1e-4, mu=0.1, horizon=11, **words),
            [[0.09 * 0.99 ** (t - s - 1) * (t > s) for t in range(11)] for s in range(-9, 11)],
        ),
    ],
    ids=["one draw", "filter"],
)
def test_the_covariance_that_is_stated_keeps_the_promise(design, moves, more, tmp_path):
    """By brute force: what neighbours differ by, and any rounding beside it, against C⁻¹."""
    words = {"resolution": 0.05} | more
    m = design(**words)
    m.save(tmp_path / "noise.json")
    m = Mechanism.load(tmp_path / "noise.json")
    every, error = words.get("every", 1), 0.025 + words.get("measurement_error", 0.0)
    with Gateway(m, state=tmp_path / "s") as gateway:
        sent = gateway.mechanism.design.sent
        assert gateway.measurement_error[0] >= error * (1 - 1e-9)
        assert (sent.every, sent.factor) == (every, gateway.noise_factor)
        assert sent.added[0] == pytest.approx(gateway.fresh_noise[0] ** 2, rel=0.01)
        assert gateway.send([1.0], step=every).shape == (1,)
    sends = range(0, 11, every)
    rows = np.asarray(m.strategy.loadings())[list(sends)]
    # what is rounded off when it is published is not counted here, and need not be
    covariance = sent.factor**2 * rows @ rows.T + gateway.fresh_noise[0] ** 2 * np.eye(len(rows))
    assert noise_by_time(m)[:, 0] == pytest.approx(np.sqrt(covariance.diagonal()), rel=0.01)
    white = np.linalg.inv(np.linalg.cholesky(covariance))
    # the box of errors: whoever steers chooses the signs, here those that add most
    longest = 0.0
    for move in np.array(moves)[:, list(sends)]:
        signs = np.sign(white.T @ (white @ move)) + (white @ move == 0)
        for _ in range(5):
            signs = np.sign(white.T @ (white @ (move + 2 * error * signs))) + 0.0
        longest = max(longest, float(np.linalg.norm(white @ (move + 2 * error * signs))))
    assert longest <= m.guarantee.sensitivity * (1 + 1e-9)


def test_a_loop_that_gets_some_steps_alone_is_not_computed():
    m = office(96, every=8)
    loop = ClosedLoop(OFFICE, [[0.3]], [[0.3]], reference=[0.0])
    assert noise_by_time(m).shape == (12, 1)
    assert m.report().outputs[0].deviation == pytest.approx(noise_by_time(m)[0, 0])
    for use in (lambda: loop.mean_square_error(m, 96), lambda: loop.simulate(m, 9, 1, 0)):
        with pytest.raises(AffineDPError, match="one step of 8"):
            use()
    with pytest.raises(AffineDPError, match="cost is about"):
        office(96, cost=loop, every=2)
    with pytest.raises(AffineDPError, match="give the resolution"):
        office(96, None, every=2)
    with pytest.raises(AffineDPError, match="is Gaussian"):
        office(96, law="laplace")


def test_loops_pay_for_the_noise_that_is_sent():
    loop, m = ClosedLoop(OFFICE, [[0.3]], [[0.3]], reference=[0.0]), office(96)
    exact = loop.mean_square_error(m, 96)[-1, 0]
    found = loop.simulate(m, 96, 4000, seed=1)
    assert abs(found.mean_square_error[-1, 0] - exact) < 4 * found.standard_error[-1, 0]
    assert exact > 10 * loop.mean_square_error(office(96, None), 96)[-1, 0]


@pytest.mark.parametrize("steps", [(-1.0,), (math.nan,), (0.1, 0.1), (1e200,)], ids=str)
def test_a_file_with_other_sensors_is_not_believed(steps, tmp_path):
    made = office(96)
    edited = made.with_design(sent=replace(made.design.sent, resolution=steps))
    for use in (noise_by_time, lambda m: Gateway(m, state=tmp_path / "s")):
        with pytest.raises(AffineDPError):
            use(edited)
    assert list(tmp_path.iterdir()) == []


def test_sensors_with_steps_need_a_horizon():
    for design in (
        lambda: design_input_noise(OFFICE, 1.0, 1e-4, resolution=0.1),
        lambda: design_output_noise(
            ([[0.9]], [[1]]), math.inf, 1.0, 0.01, adjacency="forward", resolution=0.1
        ),
    ):
        with pytest.raises(AffineDPError, match="give a horizon"):
            design()


def test_a_horizon_is_kept(tmp_path):
    """Of a stable plant too, whose noise is that for all time."""
    m = design_output_noise(([[0.9]], [[1.0]]), 200, 1.0, 0.01, adjacency="forward")
    with Gateway(m, state=tmp_path / "s", resolution=0.1) as gateway:
        assert gateway.horizon == 200
    endless = design_output_noise(([[0.9]], [[1.0]]), math.inf, 1.0, 0.01, adjacency="forward")
    assert endless.guarantee.sensitivity == m.guarantee.sensitivity
    assert noise_by_time(endless).tolist() == noise_by_time(m)[:1].tolist()
    assert m.expected_squared_error == pytest.approx(200 * noise_by_time(m)[0, 0] ** 2)


@pytest.mark.parametrize("block", [1, 5, 256])
@pytest.mark.parametrize("stationary", [True, False])
def test_each_call_is_one_reading(tmp_path, monkeypatch, block, stationary):
    """Also of those that are not sent, and over a restart anywhere between."""
    monkeypatch.setattr(Run, "block", lambda self, step, most: min(step + block, most))
    words = {"resolution": 0.1, "every": 8}
    m = office(45) if stationary else design_output_noise(VEHICLE, 45, 1.0, 0.01)
    sent, reading = [], 0
    for stay in (1, 2, 5, 3, 13, 2, 19):
        with Gateway(m, state=tmp_path / "s", **words) as gateway:
            assert (gateway.every, gateway.horizon) == (8, 45)
            for _ in range(stay):
                out = gateway.send([20.0 + reading])
                sent += [] if out is None else [reading]
                if out is not None:
                    assert gateway.send([20.0 + reading], step=reading) == out
                assert gateway.next_step == min(8 * (reading // 8 + 1), 45)
                reading += 1
    assert sent == list(range(0, 45, 8))
    with Gateway(m, state=tmp_path / "s", **words) as gateway, pytest.raises(StepError):
        gateway.send([20.0])


def test_one_step_of_some(tmp_path):
    m = office(96)
    words = {"state": tmp_path / "s", "resolution": 0.1}
    with Gateway(m, **words, every=8) as rare:
        assert rare.added_variance[0] < 10
        assert rare.send([20.0]).shape == (1,)
        assert rare.send([20.0], step=3) is None
        told = rare.added_variance
    with pytest.raises(RunError, match="every = 8"):
        Gateway(m, **words)
    with Gateway(m, state=tmp_path / "t", resolution=0.1) as all_steps:
        assert (told < all_steps.added_variance / 4).all()
    with Gateway(office(12), state=tmp_path / "u") as short:
        # a dozen steps are hidden, whether they come in a row or not
        assert told == pytest.approx(short.added_variance, rel=1e-6)


# ---------------------------------------------------------------------- who listens


@pytest.mark.parametrize("law", ["gaussian", "knorm"])
def test_one_draw_is_learned_once(law):
    m = design_output_noise(VEHICLE, 60, 1.0, [0.01, 0.0][law == "knorm"], mu=[1, 0.5], law=law)
    found = eavesdropper(m)
    drawn = m.noise.sample(np.random.default_rng(0), 20_000, 2) @ m.strategy.start.T
    assert np.cov(drawn.T) == pytest.approx(found.covariance, rel=0.1)
    assert np.isinf(found.deviations[0]).all()
    assert (found.deviations[1:] == found.deviations[1]).all()
    assert found.deviations[-1] == pytest.approx(np.sqrt(found.covariance.diagonal()))


def test_fresh_noise_is_averaged_away():
    m = independent_output_noise(VEHICLE, 60, 1.0, 0.01)
    found = eavesdropper(m)
    rows = np.array([[1, 0.1 * t] for t in range(60)])
    wanted = np.linalg.inv(rows.T @ rows) * m.strategy.sigma**2
    assert found.covariance == pytest.approx(wanted, rel=1e-9)
    assert found.deviations[-1] == pytest.approx(np.sqrt(wanted.diagonal()), rel=1e-9)
    assert (np.diff(found.deviations[1:], axis=0) < 0).all()


def test_an_event_is_as_uncertain_as_promised():
    """The best estimate of an event is off by μ/s: that is what the sensitivity says."""
    m = design_input_noise(OFFICE, 1.0, 1e-4, mu=0.1)
    found = eavesdropper(m)
    wanted = 0.1 / m.guarantee.sensitivity
    assert math.sqrt(found.covariance[0, 0]) == pytest.approx(wanted, rel=1e-6)
    assert found.deviations[-1, 0] == pytest.approx(wanted, rel=0.01)
    assert "an event on w1 at best within ± 0.319" in str(found)


def test_what_hides_the_steps_of_sensors_hides_from_listeners():
    """One draw, enlarged, and fresh noise that is averaged away: a regression by hand."""
    m = design_output_noise(VEHICLE, 60, 1.0, 0.01, mu=[1, 0.5], resolution=0.1)
    found, sent = eavesdropper(m), m.design.sent
    rows = np.array([[1, 0.1 * t] for t in range(0, 60, sent.every)])
    own = sent.factor**2 * m.strategy.start @ m.strategy.start.T
    wanted = own + np.linalg.inv(rows.T @ rows) * sent.added[0]
    assert found.covariance == pytest.approx(wanted, rel=1e-6)
    assert found.deviations[-1] == pytest.approx(np.sqrt(wanted.diagonal()), rel=1e-6)
    assert (wanted.diagonal() > eavesdropper(m.with_design(sent=None)).covariance.diagonal()).all()
    assert "steps of the sensors" in str(found)


def told_by_all(m, steps, times):
    """What the first steps tell of an event at each of some times: a regression on them all."""
    how, plant = m.design.sent, m.strategy.domain.system
    outputs, kept = plant.outputs, range(0, steps, how.every)
    rows = how.factor * np.asarray(m.strategy.loadings(np.eye(steps * outputs)))
    rows = rows.reshape(steps, outputs, -1)[:: how.every].reshape(len(kept) * outputs, -1)
    covariance = rows @ rows.T + np.diag(np.tile(how.added, len(kept)))
    shown = plant.impulse(steps)
    none = np.zeros_like(shown[0])
    events = [np.concatenate([shown[t - s] if t >= s else none for t in kept]) for s in times]
    return np.max([np.diagonal(one.T @ np.linalg.solve(covariance, one)) for one in events], axis=0)


@pytest.mark.parametrize("every", [1, 8])
def test_an_event_is_learned_best_by_who_has_always_listened(every):
    """In the middle of a long time; one at its beginning, when nothing was heard, tells less."""
    m = office(96, every=every)
    found, sent = eavesdropper(m), 96 // every
    assert len(found.deviations) == sent
    for outputs in (2, 3, sent):
        steps = 400 + every * outputs
        wanted = told_by_all(m, steps, range(401 - every, 401)) ** -0.5
        assert found.deviations[outputs - 1] == pytest.approx(wanted, rel=1e-6)
    assert found.covariance[0, 0] ** 0.5 == pytest.approx(wanted[0], rel=1e-6)
    within = told_by_all(m, 96, range(96))[0] ** -0.5
    assert wanted[0] < within < 1.1 * wanted[0]


@pytest.mark.parametrize("horizon", [3, 230])
def test_noise_that_starts_at_rest_tells_most_of_the_first_event(horizon):
    m = design_output_noise(VEHICLE, horizon, 1.0, 0.01, adjacency="forward", resolution=0.01)
    found = eavesdropper(m)
    assert m.strategy.start is None
    wanted = told_by_all(m, horizon, range(0, horizon, 2)) ** -0.5
    assert found.covariance.diagonal() ** 0.5 == pytest.approx(wanted, rel=1e-6)
    followed = min(horizon, 200)
    wanted = told_by_all(m, followed, [0]) ** -0.5
    assert found.deviations[-1] == pytest.approx(wanted, rel=1e-6)


def test_one_draw_over_more_steps_than_are_followed():
    m = design_output_noise(VEHICLE, 300, 1.0, 0.01, mu=[1, 0.5], resolution=0.1)
    rows = np.array([[1, 0.1 * t] for t in range(300)])
    own = m.design.sent.factor**2 * m.strategy.start @ m.strategy.start.T
    wanted = own + np.linalg.inv(rows.T @ rows) * m.design.sent.added[0]
    assert eavesdropper(m).covariance == pytest.approx(wanted, rel=1e-6)


def test_pictures():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    m = design_output_noise(VEHICLE, 60, 1.0, 0.01)
    assert len(eavesdropper(m).plot().axes[0].lines) == 4
    loop = ClosedLoop(
        (*VEHICLE[:1], [[0.005], [0.1]], VEHICLE[1]), [[3, 4]], [[0.8], [0.7]], [1, 0]
    )
    figure = loop.plot(m)
    assert len(figure.axes) == 2
    assert figure.axes[-1].get_xlabel() == "step"
    m = design_output_noise(VEHICLE, 500, 1.0, 0.01)
    for figure in (loop.plot(m), eavesdropper(m).plot()):
        assert figure.axes[-1].get_xlabel() == "step (first 200 of 500 steps)"
    assert pyplot.gcf() is figure
    pyplot.close("all")


@pytest.mark.parametrize(
    "m",
    [
        office(96),
        design_output_noise(VEHICLE, 50, 1.0, 0.01, resolution=0.05),
        design_output_noise(VEHICLE, 50, 1.0, mu=[1, 0.1], law="knorm", resolution=0.05),
        with_sensors(independent_output_noise(VEHICLE, 50, 1.0, 0.01), 0.05),
    ],
    ids=["filter", "one draw", "body", "fresh"],
)
def test_a_report_states_the_noise_that_is_sent(m, tmp_path):
    m.save(tmp_path / "noise.json")
    loaded = Mechanism.load(tmp_path / "noise.json")
    assert any("stated by the file" in note for note in loaded.notes)
    report, by_time = loaded.report(), noise_by_time(loaded)
    assert report.outputs[-1].deviation == pytest.approx(by_time[-1, 0], rel=1e-6)
    assert all(row.independent_deviation is None for row in report.outputs)
    typical = f"{math.sqrt(float((by_time**2).mean())):.3g}"
    assert f"typically by {typical} " in dict(report.opening)["How far off numbers are"]
    lines = shown_noise(loaded).lines()
    if lines.logarithmic:  # by period: the power of all periods is the variance
        assert (lines.values["y1"] ** 2).mean() == pytest.approx(by_time[-1, 0] ** 2, rel=0.02)
    else:
        assert lines.values["y1"] == pytest.approx(by_time[:, 0], rel=1e-6)
    assert dict(report.totals)["optimality"].endswith("for exact readings")


@pytest.mark.parametrize(("factor", "added"), [(math.nan, (0.0,)), (1.0, (-1.0,)), (0.5, (0.0,))])
def test_a_file_that_states_impossible_noise_is_refused(factor, added):
    with pytest.raises(AffineDPError, match="what is sent"):
        Sent(factor, added)
    with pytest.raises(AffineDPError, match="another number of outputs"):
        office(96).with_design(sent=Sent(1.0, (0.0, 0.0))).report()


def test_of_more_steps_than_a_run_has_the_first_is_sent(tmp_path):
    m = office(12, every=10**12)
    assert noise_by_time(m) == pytest.approx(noise_by_time(office(12, every=12)))
    assert len(eavesdropper(m).deviations) == 1
    with Gateway(m, state=tmp_path / "run.db") as gateway:
        assert [gateway.send([21.0]) is not None for _ in range(12)] == [True] + 11 * [False]
    with pytest.raises(AffineDPError, match="a run of 13 steps is longer than the 12"):
        Gateway(m, state=tmp_path / "longer.db", horizon=13)


@pytest.mark.parametrize("what", [{"factor": 1e308}, {"factor": 1e150, "added": [1e300]}])
def test_a_file_that_states_absurd_noise(what, tmp_path):
    """What is sent is computed again; the report says what the file states, or refuses it."""
    m, file = office(12), tmp_path / "noise.json"
    m.save(file)
    record = json.loads(file.read_text(encoding="utf-8"))
    record["saved"]["design"]["sent"] |= what
    file.write_text(json.dumps(record), encoding="utf-8")
    edited = Mechanism.load(file)
    assert noise_by_time(edited) == pytest.approx(noise_by_time(m))
    with suppress(AffineDPError):
        assert "y1" in str(edited.report())


@pytest.mark.parametrize("every", [1, 4])
def test_the_notes_state_noise_that_grows(every):
    """Noise that starts at rest is largest at the last step; what is said is the mean square."""
    plant = ([[1, 0.1], [0, 0.95]], [[1, 0]])
    words = {"mu": [1, 0.1], "adjacency": "forward", "every": every}
    m = design_output_noise(plant, 60, 1.0, 0.01, resolution=1.0, **words)
    sent = f"{np.sqrt((noise_by_time(m) ** 2).mean()):.3g}"
    assert f"sends noise of standard deviation {sent} " in m.notes[-2]
    bits, noise = re.search(r"Dither\((\d+), …\): ([0-9.]+)", m.notes[-1]).groups()
    finer = design_output_noise(plant, 60, 1.0, 0.01, resolution=Dither(int(bits), 1.0), **words)
    assert f"{np.sqrt((noise_by_time(finer) ** 2).mean()):.3g}" == noise


@pytest.mark.parametrize(("law", "fourth"), [("gaussian", 3.0), ("knorm", 5.6)])
def test_simulated_noise_has_the_law_of_what_is_sent(law, fourth):
    """Beside K-norm noise a gateway sends fresh Laplace noise: here it is nearly all."""
    delta = 0.01 if law == "gaussian" else 0.0
    m = design_output_noise(VEHICLE, 20, 1.0, delta, mu=[1, 0.1], law=law, resolution=5.0)
    drawn = sample_noise(m, 20_000, 1, seed=0).ravel() / noise_by_time(m)[0]
    assert (drawn**2).mean() == pytest.approx(1.0, abs=0.1)
    assert (drawn**4).mean() == pytest.approx(fourth, abs=1.0)
