"""The gateway: what it sends, once, and what it refuses."""

import copy
import math
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import affinedp as adp
from affinedp.budget.ledger import Ledger
from affinedp.control import (
    Gateway,
    design_output_noise,
    independent_output_noise,
    noise_by_time,
)
from affinedp.control import gateway_path as sending
from affinedp.control.by_time import noise_block
from affinedp.control.gateway import StepError
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.stream.run import Run, RunError

VEHICLE = ([[1, 0.1], [0, 1]], np.eye(2))
HOLD = design_output_noise(([[1]], [[1]]), 12, epsilon=1, delta=1e-3)
MOVING = design_output_noise(VEHICLE, 50, epsilon=1, delta=1e-3)
GROWING = design_output_noise(([[1.2, 0.3], [-0.1, 0.9]], [[1, 1]]), 20, epsilon=2, delta=1e-6)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db", epsilon=3.0, delta=1e-2, protects="one vehicle") as ledger:
        yield ledger


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def files(path):
    return sorted(p.name for p in path.parent.iterdir() if p.name != "budget.db")


# ---------------------------------------------------------------------- what is sent


class Known:
    """Fresh noise of all outputs that the test knows."""

    def __init__(self, numbers):
        self.numbers = list(numbers)

    def draw(self, words):
        return self.numbers.pop(0)


@pytest.fixture
def draws(monkeypatch):
    """What was drawn once, or is to be."""
    numbers = []

    def drawn(law, scale, count):
        if not numbers:
            numbers.extend(true_draw(law, scale, count).tolist())
        return np.array(numbers, dtype=object)

    true_draw = sending.draw_integers
    monkeypatch.setattr(sending, "draw_integers", drawn)
    return numbers


def exact_noise(mechanism, draw):
    """γ(t) in rational arithmetic."""
    exact = np.vectorize(lambda value: meaning(float(value)), otypes=[object])
    binary = np.vectorize(lambda value: Fraction(float(value)), otypes=[object])
    dynamics = mechanism.domain
    state = binary(mechanism.strategy.start) @ np.array(
        [Fraction(n, 2**56) for n in draw], dtype=object
    )
    for t in range(mechanism.domain.horizon):
        yield exact(dynamics.output_matrix(t)) @ state
        if t + 1 < mechanism.domain.horizon:
            state = exact(dynamics.state_matrix(t)) @ state


@pytest.mark.parametrize("mechanism", [HOLD, MOVING, GROWING], ids=["hold", "moving", "growing"])
def test_sends_the_measurement_with_the_noise_of_the_definition(path, mechanism, draws):
    rng = np.random.default_rng(1)
    with Gateway(mechanism, state=path, resolution="exact") as gateway:
        count = mechanism.domain.horizon * mechanism.domain.outputs
        fresh = [int(v) for v in rng.normal(size=count) * 2.0**56]
        gateway._fresh, kept = [Known(fresh)] * mechanism.domain.outputs, iter(list(fresh))
        grid = [Fraction(float(tau)) / 4 for tau in gateway.fresh_noise]
        for noise in exact_noise(mechanism, draws):
            y = rng.normal(size=mechanism.domain.outputs) * 100
            sent = gateway.send(y)
            for i, value in enumerate(sent):
                expected = Fraction(float(y[i])) + noise[i] + next(kept) * grid[i] * 4 / 2**56
                assert abs(Fraction(float(value)) - expected) <= grid[i] / 2 * (
                    1 + Fraction(1, 10**9)
                )
                assert (Fraction(float(value)) / grid[i]).denominator == 1


def test_neighbours_with_the_same_sum_send_the_same(path, draws):
    """x(0) + d with η − h sends what x(0) with η sends, where R h = d: one cell apart at most."""
    m, rng = MOVING, np.random.default_rng(3)
    drawn, shift = [int(v) for v in rng.normal(size=2) * 2.0**56], [2**54, -(3**30)]
    sent = []
    for name, sign in (("one", 0), ("two", 1)):
        draws[:] = [a - sign * b for a, b in zip(drawn, shift)]
        extra = list(exact_noise(m, [sign * b for b in shift]))
        with Gateway(m, state=path.with_name(name), resolution="exact") as gateway:
            gateway._fresh = [Known([0] * 100)] * 2
            rng = np.random.default_rng(4)
            sent.append(
                [gateway.send([float(v) for v in rng.normal(size=2) + extra[t]]) for t in range(50)]
            )
            cell = gateway.fresh_noise / 4
    assert np.all(np.abs(np.subtract(*sent)) <= cell * (1 + 1e-12))
    assert np.mean(np.array(sent[0]) == np.array(sent[1])) > 0.9


@pytest.mark.slow
def test_law_of_what_is_sent(tmp_path):
    """Real noise: over many gateways, of the right law, and the same draw at all times."""
    count, errors = 150, []
    for i in range(count):
        with Gateway(
            MOVING, state=tmp_path / f"{i}.db", resolution="exact", fresh_noise=0.01
        ) as gateway:
            errors.append([gateway.send([1.0, 2.0], step=t) - [1.0, 2.0] for t in (0, 1, 40)])
    errors, fresh = np.array(errors), gateway.fresh_noise[0]
    # γ(0) = R η for outputs that are the whole state
    scores = np.linalg.solve(MOVING.strategy.start, errors[:, 0].T)
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-6
    assert abs(np.corrcoef(scores)[0, 1]) < 6 / math.sqrt(count)
    # later outputs are moved by A and differ only by fresh noise
    moved = errors[:, 0] @ np.linalg.matrix_power(np.array(VEHICLE[0]), 40).T
    left = (errors[:, 2] - moved) / (fresh * np.hypot(1, [math.hypot(1, 4), 1]))
    assert stats.kstest(left.ravel(), "norm").pvalue > 1e-6
    left = (errors[:, 1, 1] - errors[:, 0, 1]) / (fresh * math.sqrt(2))
    assert stats.kstest(left, "norm").pvalue > 1e-6
    np.testing.assert_allclose(errors.std(axis=0), noise_by_time(MOVING)[[0, 1, 40]], rtol=0.35)


def test_fresh_noise_is_hedged(tmp_path, monkeypatch):
    """Two that go on from one snapshot have one system randomness: readings tell them apart."""

    def sent(name, y, words=None):
        with Gateway(HOLD, state=tmp_path / name, resolution="exact", moved=True) as gateway:
            if words is not None:
                monkeypatch.setattr(os, "urandom", lambda count: bytes(count))
            found = [float(gateway.send([y])[0]) - y for _ in range(12)]
            monkeypatch.undo()
            return found

    Gateway(HOLD, state=tmp_path / "s", resolution="exact").close()
    for name in "abcd":
        shutil.copy(tmp_path / "s", tmp_path / name)
    same = sent("a", 1.0, b""), sent("b", 1.0, b"")
    assert same[0] == same[1], "the same in all is the same"
    assert sent("c", 2.0, b"") != same[0]
    assert sent("d", 1.0) != same[0]


def test_two_gateways_in_one_process_share_no_noise(tmp_path):
    with (
        Gateway(HOLD, state=tmp_path / "a", resolution="exact") as first,
        Gateway(HOLD, state=tmp_path / "b", resolution="exact") as second,
    ):
        assert first.commitment != second.commitment
        assert first._last != second._last


def bisect(sends, plant_step, cell):
    """The adversary of docs/explanation/streaming.md: finds x(0) within a step of its sensor."""
    start = round(float(sends(Fraction(0))) / cell)
    low, high = 0, int(cell / plant_step) + 1  # in steps of the sensor
    while high - low > 1:
        middle = (low + high) // 2
        same = round(float(sends(middle * plant_step)) / cell) == start
        low, high = (middle, high) if same else (low, middle)
    half = sends(low * plant_step + plant_step / 2)
    return round(float(half) / cell) != start


def test_adversary_who_steers_the_inputs(tmp_path):
    """Rounding alone gives away where in its cell the sensor's input is; fresh noise does not."""
    step, cell, rng = Fraction(1, 1000), 64.0, np.random.default_rng(5)
    m = design_output_noise(([[1]], [[1]]), 40, epsilon=1, delta=1e-3)
    naive = ours = 0
    count = 60
    for i in range(count):
        x = Fraction(int(rng.integers(10**9)), 10**8)
        truth = (x / step + Fraction(1, 2)) % 1 >= Fraction(1, 2)
        noise = Fraction(float(rng.normal() * m.strategy.start[0, 0]))

        def sensed(offset, x=x):
            return round((x + offset) / step) * step

        naive += truth == bisect(
            lambda offset, noise=noise: round((sensed(offset) + noise) / 64) * 64, step, cell
        )
        with Gateway(
            m, state=tmp_path / f"{i}.db", resolution="exact", measurement_error=0.5e-3
        ) as gateway:
            ours += truth == bisect(
                lambda offset: gateway.send([float(sensed(offset))])[0], step, cell
            )
    assert naive == count
    assert abs(ours - count / 2) < 5 * math.sqrt(count) / 2


# ---------------------------------------------------------------------- steps


def test_a_step_is_sent_once(path):
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        first = [gateway.send([t, -t]) for t in range(5)]
        assert gateway.next_step == 5
        for t in range(5):
            assert gateway.send([t, -float(t)], step=t).tobytes() == first[t].tobytes()
            for y in ([9, 9], [1e5, 1.0], [t, -t + 1e-15]):
                with pytest.raises(StepError, match="another reading.*new run") as error:
                    gateway.send(y, step=t)
                assert error.value.why == "repeated"
            for y in ("rubbish", [np.nan] * 7, None):
                with pytest.raises(AffineDPError):
                    gateway.send(y, step=t)
        again = gateway.send([2, -2], step=2)
        again[:] = 0  # the caller's own
        assert gateway.send([2, -2], step=2).tobytes() == first[2].tobytes()
        assert gateway.next_step == 5
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        assert gateway.next_step == 5
        assert gateway.send([4, -4], step=4).tobytes() == first[4].tobytes()
        assert gateway.send([9, 9]).shape == (2,)


def test_restart_continues_the_noise(path, draws):
    """A gateway that is opened anew for every step sends the noise of one draw."""
    m = GROWING
    with Gateway(m, state=path, resolution="exact") as gateway:
        noise = list(exact_noise(m, draws))
        fresh = gateway.fresh_noise[0]
    for t in range(0, 20, 3):
        with Gateway(m, state=path, resolution="exact") as gateway:
            sent = gateway.send([0.0], step=t)
            assert abs(sent[0] - float(noise[t][0])) < 9 * fresh
            assert gateway.next_step == t + 1


def test_skipped_steps_are_gone(path):
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        gateway.send([0], step=np.int64(3))
        assert gateway.next_step == 4
        with pytest.raises(StepError, match="step 1 was skipped, or may .*the next is 4") as late:
            gateway.send([0], step=1)
        assert late.value.why == "late"
    with (
        Gateway(HOLD, state=path, resolution="exact") as gateway,
        pytest.raises(StepError, match="was skipped"),
    ):
        gateway.send([0], step=0)


def test_horizon(path):
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        assert gateway.horizon == 12
        for step in (12, 13, 10**30):
            with pytest.raises(StepError, match="beyond the horizon of 12") as error:
                gateway.send([0], step=step)
            assert error.value.why == "horizon"
        assert gateway.next_step == 0
        last = gateway.send([0], step=11)
        assert gateway.next_step == 12
        with pytest.raises(StepError, match="beyond the horizon"):
            gateway.send([0])
        assert gateway.send([0], step=11).tobytes() == last.tobytes()
    with (
        Gateway(HOLD, state=path, resolution="exact") as gateway,
        pytest.raises(StepError, match="beyond the horizon"),
    ):
        gateway.send([0])


@pytest.mark.parametrize("step", [-1, 1.0, True, np.True_, "1", [1], np.nan, 1j], ids=str)
def test_malformed_steps(path, step):
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        with pytest.raises(AffineDPError, match="step must be"):
            gateway.send([0], step=step)
        assert gateway.next_step == 0


@pytest.mark.parametrize(
    "y",
    [
        [], [1], [1, 2, 3], [[1, 2]], 1, None, "ab", ["1", "2"], [np.nan, 0], [0, np.inf],
        [1j, 0], [True, False], {"a": 1}, [[1], [2]], [None, 1],
    ],
    ids=str,
)  # fmt: skip
def test_malformed_measurements_cost_nothing(path, y):
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        gateway._noise = None  # no noise is drawn for them
        for step in (None, 0, 7):
            with pytest.raises(AffineDPError):
                gateway.send(y, step=step)
        assert gateway.next_step == 0


def test_measurements_up_to_the_largest(path):
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        assert np.all(np.abs(gateway.send(gateway.largest) / gateway.largest - 1) < 1e-3)
        assert np.all(np.abs(gateway.send(-gateway.largest) / gateway.largest + 1) < 1e-3)
        assert gateway.alarms == ()
        assert np.all(np.isfinite(gateway.send([5e-324, -5e-324])))


@pytest.mark.parametrize(
    "y",
    [
        2**60 + 1,
        10**400,
        Fraction(1, 3),
        Decimal("0.12345678901234567890"),
        Decimal("1e500"),
        np.longdouble("1e400"),
    ],
)
def test_numbers_that_no_double_holds_are_sent_too(path, y):
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        assert np.all(np.isfinite(gateway.send([y, -y])))


@pytest.mark.parametrize("size", [1.01, 1e30, 1e300])
def test_no_reading_is_refused_for_its_value(path, size):
    """A refusal is seen by all, and would say that a reading was beyond some size."""
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        for i in range(2):
            y = np.zeros(2)
            y[i] = min(gateway.largest[i] * size, 1.7e308)
            sent = gateway.send(y)
            assert np.all(np.isfinite(sent))
            assert sent[i] > 0.9 * y[i]
        assert gateway.next_step == 2
        assert [alarm[:2] for alarm in gateway.alarms] == ["y1", "y2"]
    kept = path.with_name("run.db.alarms")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_text().count("larger than") == 2


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.none() | st.integers(-1, 14)),
            st.tuples(st.just("bad"), st.none() | st.integers(-1, 14)),
            st.tuples(st.just("reopen"), st.none()),
        ),
        max_size=25,
    )
)
def test_any_sequence(tmp_path_factory, operations):
    """Against a model: a dictionary of what was sent, and the next step."""
    path = tmp_path_factory.mktemp("sequence") / "run.db"
    sent, following = {}, 0
    gateway = Gateway(HOLD, state=path, resolution="exact")
    for operation, step in operations:
        if operation == "reopen":
            gateway.close()
            gateway = Gateway(HOLD, state=path, resolution="exact")
            continue
        number = following if step is None else step
        y = [math.nan] if operation == "bad" else [0.5]
        if number in sent:
            if operation == "send":
                assert gateway.send(y, step).tobytes() == sent[number]
                with pytest.raises(StepError, match="another reading"):
                    gateway.send([0.25], step)
            else:
                with pytest.raises(AffineDPError):
                    gateway.send(y, step)
        elif number < 0 or (operation == "bad" and following <= number < 12):
            with pytest.raises(AffineDPError):
                gateway.send(y, step)
        elif number < following:
            with pytest.raises(StepError if operation == "send" else AffineDPError):
                gateway.send(y, step)
        elif number >= 12:
            with pytest.raises(StepError, match="beyond the horizon"):
                gateway.send(y, step)
        else:
            sent[number] = gateway.send(y, step).tobytes()
            following = number + 1
        assert gateway.next_step == following
    gateway.close()


# ---------------------------------------------------------------------- killed at any moment

SENDING = """
    import sys
    from affinedp import Mechanism
    from affinedp.control import Gateway
    mechanism = Mechanism.load(sys.argv[1])
    with Gateway(mechanism, state=sys.argv[2], resolution="exact") as gateway:
        while True:
            step = gateway.next_step
            print(step, gateway.send([1.0]).tobytes().hex(), flush=True)
"""


@pytest.mark.slow
def test_killed_while_sending(tmp_path, path):
    """SIGKILL again and again: what came out comes out again or not at all."""
    m = design_output_noise(([[1]], [[1]]), 3000, epsilon=1, delta=1e-3)
    m.save(tmp_path / "m.json")
    seen = {}
    for lines in (1, 7, 30):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SENDING), tmp_path / "m.json", path],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        printed = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        printed += process.communicate()[0].splitlines(keepends=True)
        for step, sent in (line.split() for line in printed if line.endswith("\n")):
            assert int(step) not in seen
            seen[int(step)] = sent
    with Gateway(m, state=path, resolution="exact") as gateway:
        assert gateway.next_step >= max(seen) + 1
        again = 0
        for step, sent in seen.items():
            try:
                assert gateway.send([1.0], step=step).tobytes().hex() == sent
                again += 1
            except StepError:
                assert step > 0, "the first of a block is on the disk"
        assert again


# ---------------------------------------------------------------------- one draw, charged


def test_ledger_is_charged_before_the_draw(path, ledger, monkeypatch):
    real = sending.draw_integers

    def drawn(*given):
        assert [entry.status for entry in ledger.history()] == ["charged"]
        return real(*given)

    monkeypatch.setattr(sending, "draw_integers", drawn)
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger, label="March") as gateway:
        (entry,) = ledger.history()
        assert entry.status == "released"
        assert entry.label.startswith("March (run ")
        assert entry.fingerprint == HOLD.fingerprint
        assert entry.losses == (("gaussian", HOLD.guarantee.sensitivity),)
        for _ in range(5):
            gateway.send([0])
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger):
        pass
    assert len(ledger.history()) == 1
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        assert gateway.send([0]).shape == (1,)
        assert not any("ledger" in warning for warning in gateway.guarantee.warnings)


def test_two_trajectories_in_one_ledger(tmp_path, ledger):
    with Gateway(HOLD, state=tmp_path / "a.db", resolution="exact", ledger=ledger):
        pass
    with Gateway(HOLD, state=tmp_path / "b.db", resolution="exact", ledger=ledger):
        pass
    assert len(ledger.history()) == 2
    (tmp_path / "c").mkdir()
    with pytest.raises(RunError, match="charged for 'gateway a.db'.*another label"):
        Gateway(HOLD, state=tmp_path / "c" / "a.db", resolution="exact", ledger=ledger)
    with Gateway(
        HOLD, state=tmp_path / "c" / "a.db", resolution="exact", ledger=ledger, label="another"
    ):
        pass


def test_state_of_another_mechanism(path, ledger):
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger):
        pass
    other = design_output_noise(([[1]], [[1]]), 12, epsilon=2, delta=1e-3)
    for settings_ in ({}, {"ledger": ledger, "redraw": True}):
        with pytest.raises(RunError, match="another mechanism"):
            Gateway(other, state=path, resolution="exact", **settings_)
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger):
        pass


def test_settings_of_a_state_do_not_change(path):
    with Gateway(HOLD, state=path, resolution="exact", fresh_noise=0.25):
        pass
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        assert gateway.fresh_noise.tolist() == [0.25]
    with Gateway(HOLD, state=path, resolution="exact", fresh_noise=[0.25]):
        pass
    with pytest.raises(RunError, match="another fresh_noise"):
        Gateway(HOLD, state=path, resolution="exact", fresh_noise=0.5)
    with pytest.raises(RunError, match="drawn for other sensors"):
        Gateway(HOLD, state=path, resolution="exact", measurement_error=0.5)


def test_noise_that_does_not_keep_its_guarantee_is_not_sent(path):
    weaker = replace(HOLD, strategy=HOLD.strategy.scaled(0.5))
    weaker.__dict__["guarantee"] = HOLD.guarantee
    with pytest.raises(adp.AffineDPError, match="belong together"):
        Gateway(weaker, state=path, resolution="exact")


def test_refused_before_anything_is_charged(tmp_path, ledger):
    missing = tmp_path / "no" / "run.db"
    with pytest.raises(RunError, match="no directory"):
        Gateway(HOLD, state=missing, resolution="exact", ledger=ledger)
    with pytest.raises(RunError, match="not a file"):
        Gateway(HOLD, state=tmp_path, resolution="exact", ledger=ledger)
    if Path("/proc/self").is_dir():
        with pytest.raises(RunError, match="cannot be created"):
            Gateway(HOLD, state="/proc/self/run.db", resolution="exact", ledger=ledger)
    baseline = independent_output_noise(([[1]], [[1]]), 12, epsilon=1, law="laplace")
    for bad in (
        {"mechanism": baseline},
        {"mechanism": None},
        {"state": 7.5},
        {"state": "a\0b"},
        {"label": 3},
        {"redraw": "yes"},
        {"ledger": "budget.db"},
        {"resolution": -1},
        {"resolution": "fine"},
        {"resolution": None},
        {"measurement_error": np.nan},
        {"resolution": [1, 2]},
        {"fresh_noise": [1, 2]},
    ):
        given = {
            "mechanism": HOLD, "state": tmp_path / "run.db", "ledger": ledger,
            "resolution": "exact", **bad,
        }  # fmt: skip
        with pytest.raises(AffineDPError):
            Gateway(given.pop("mechanism"), **given)
    broken = replace(HOLD)
    broken.__dict__["guarantee"] = replace(HOLD.guarantee, leak=np.ones(1))
    with pytest.raises(AffineDPError, match="promises nothing"):
        Gateway(broken, state=tmp_path / "run.db", resolution="exact", ledger=ledger)
    assert ledger.history() == ()
    assert [p.name for p in tmp_path.iterdir()] == ["budget.db"]


# ---------------------------------------------------------------------- what it tells


def test_guarantee(path, tmp_path):
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        found, stated = gateway.guarantee, MOVING.guarantee
        assert found.epsilon(1e-3) == stated.epsilon(1e-3)
        assert found.neighbours_key == stated.neighbours_key
        assert found.exact == stated.exact
        first, _, second = found.warnings[-3:]
        assert "off the equations by at most y1: " in first
        assert f"{gateway.measurement_error[1]:.3g}" in first
        assert f"{gateway.largest[0]:.3g}" in first
        assert "nothing keeps count" in second
        assert np.all(gateway.added_variance < 2.0**-19)
        assert np.all(gateway.added_variance > 0)
    with Gateway(
        MOVING, state=tmp_path / "b.db", resolution="exact", measurement_error=0.01
    ) as gateway:
        assert not gateway.guarantee.exact
        assert np.all(gateway.measurement_error >= 0.01 * (1 - 1e-9))


def test_nothing_secret_is_shown_or_copied(path):
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        assert repr(gateway) == f"Gateway(state={str(path)!r}, step 0 of 12)"
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(AffineDPError, match="not copied"):
                attempt(gateway)
    assert "step 0" in repr(gateway)
    with pytest.raises(RunError, match="closed"):
        gateway.send([0])
    gateway.close()


def test_control_block_shows_simulated_noise(path):
    pytest.importorskip("control")
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        secret = gateway.send([0.0])
        blocks = [noise_block(HOLD, seed=1) for _ in range(2)]
        shown = [block.output(0, [], [0.0]) for block in blocks]
        np.testing.assert_array_equal(*shown)
        assert abs(shown[0][0] - secret[0]) > gateway.fresh_noise[0]


def test_after_a_crash_the_rest_of_a_block_is_skipped(path, monkeypatch):
    monkeypatch.setattr(Run, "block", lambda self, step, most: min(step + 8, most))
    crashed = Gateway(HOLD, state=path, resolution="exact")
    sent = [crashed.send([1.0], run="r") for _ in range(3)]
    with Gateway(HOLD, state=path, resolution="exact") as again:
        assert (again.next_step, again.run) == (8, "r")
        assert np.array_equal(again.send([1.0], step=0), sent[0])
        with pytest.raises(StepError, match="may have been sent before a crash"):
            again.send([1.0], step=2)
        crashed.send([1.0])  # of the block that was its own: nobody else sends that step
        with pytest.raises(RunError, match="goes on there"):
            crashed.send([1.0], step=8)


def test_a_clean_end_loses_nothing(path, monkeypatch, draws):
    monkeypatch.setattr(Run, "block", lambda self, step, most: min(step + 8, most))
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        sent = [gateway.send([0.0, 0.0])]
    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        assert gateway.next_step == 1
        sent += [gateway.send([0.0, 0.0]) for _ in range(20)]
        assert np.array_equal(gateway.send([0.0, 0.0], step=0), sent[0])
        fresh = gateway.fresh_noise
    for found, noise in zip(sent, exact_noise(MOVING, draws)):
        assert np.all(np.abs(found - noise.astype(float)) < 9 * fresh)
