"""The gateway: what it sends, once, and what it refuses."""

import ast
import copy
import dataclasses
import math
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
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
from affinedp.budget.ledger import BudgetExceededError, Ledger
from affinedp.control import Gateway, design_output_noise, independent_output_noise
from affinedp.control.gateway import integer_noise, kinds
from affinedp.control.gateway import state as gateway_state
from affinedp.control.gateway.refusals import (
    HorizonError,
    LateStepError,
    RepeatedStepError,
)
from affinedp.control.gateway.state import GatewayStateError
from affinedp.errors import AffineDPError
from affinedp.files.sqlite import building, put_into_place
from affinedp.once import state as drawn_state
from affinedp.once.record import Draw, Head
from affinedp.once.writing import write_state

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


@pytest.fixture
def folder(tmp_path):
    """A folder where writing to the disk is quick, if there is one."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def files(path):
    return sorted(p.name for p in path.parent.iterdir() if p.name != "budget.db")


# ---------------------------------------------------------------------- what is sent


class Known:
    """Fresh noise that the test knows."""

    def __init__(self, numbers, outputs):
        self.numbers = list(numbers)
        self.outputs = outputs

    def take(self):
        taken, self.numbers = self.numbers[: self.outputs], self.numbers[self.outputs :]
        return taken


def exact_noise(mechanism, draw):
    """γ(t) in rational arithmetic."""
    exact = np.vectorize(lambda value: Fraction(float(value)), otypes=[object])
    dynamics = mechanism.dynamics
    state = exact(mechanism.root) @ np.array([Fraction(n, 2**56) for n in draw], dtype=object)
    for t in range(mechanism.horizon):
        yield exact(dynamics.output_matrix(t)) @ state
        if t + 1 < mechanism.horizon:
            state = exact(dynamics.state_matrix(t)) @ state


@pytest.mark.parametrize("mechanism", [HOLD, MOVING, GROWING], ids=["hold", "moving", "growing"])
def test_sends_the_measurement_with_the_noise_of_the_definition(path, mechanism):
    rng = np.random.default_rng(1)
    with Gateway(mechanism, state=path, resolution="exact") as gateway:
        fresh = [int(v) for v in rng.normal(size=mechanism.horizon * mechanism.outputs) * 2.0**56]
        gateway._noise._fresh, kept = Known(fresh, mechanism.outputs), iter(fresh)
        grid = [Fraction(float(tau)) / 4 for tau in gateway.fresh_noise]
        draw = gateway._state.draw.numbers
        for noise in exact_noise(mechanism, draw):
            y = rng.normal(size=mechanism.outputs) * 100
            sent = gateway.send(y)
            for i, value in enumerate(sent):
                expected = Fraction(float(y[i])) + noise[i] + next(kept) * grid[i] * 4 / 2**56
                assert abs(Fraction(float(value)) - expected) <= grid[i] / 2 * (
                    1 + Fraction(1, 10**9)
                )
                assert (Fraction(float(value)) / grid[i]).denominator == 1


def test_neighbours_with_the_same_sum_send_the_same(path, monkeypatch):
    """x(0) + d with η − h sends what x(0) with η sends, where R h = d: one cell apart at most."""
    m, rng = MOVING, np.random.default_rng(3)
    drawn, shift = [int(v) for v in rng.normal(size=2) * 2.0**56], [2**54, -(3**30)]
    sent = []
    for name, sign in (("one", 0), ("two", 1)):
        numbers = tuple(a - sign * b for a, b in zip(drawn, shift))
        monkeypatch.setattr(kinds, "drawn_once", lambda *_, n=numbers: n)
        extra = list(exact_noise(m, [sign * b for b in shift]))
        with Gateway(m, state=path.with_name(name), resolution="exact") as gateway:
            gateway._noise._fresh = Known([0] * 100, 2)
            rng = np.random.default_rng(4)
            sent.append(
                [gateway.send([float(v) for v in rng.normal(size=2) + extra[t]]) for t in range(50)]
            )
            cell = gateway.fresh_noise / 4
    assert np.all(np.abs(np.subtract(*sent)) <= cell * (1 + 1e-12))
    assert np.mean(np.array(sent[0]) == np.array(sent[1])) > 0.9


@pytest.mark.slow
def test_law_of_what_is_sent(folder):
    """Real noise: over many gateways, of the right law, and the same draw at all times."""
    count, errors = 150, []
    for i in range(count):
        with Gateway(
            MOVING, state=folder / f"{i}.db", resolution="exact", fresh_noise=0.01
        ) as gateway:
            errors.append([gateway.send([1.0, 2.0], step=t) - [1.0, 2.0] for t in (0, 1, 40)])
    errors, fresh = np.array(errors), gateway.fresh_noise[0]
    # γ(0) = R η for outputs that are the whole state
    scores = np.linalg.solve(MOVING.root, errors[:, 0].T)
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-6
    assert abs(np.corrcoef(scores)[0, 1]) < 6 / math.sqrt(count)
    # later outputs are moved by A and differ only by fresh noise
    moved = errors[:, 0] @ np.linalg.matrix_power(np.array(VEHICLE[0]), 40).T
    left = (errors[:, 2] - moved) / (fresh * np.hypot(1, [math.hypot(1, 4), 1]))
    assert stats.kstest(left.ravel(), "norm").pvalue > 1e-6
    left = (errors[:, 1, 1] - errors[:, 0, 1]) / (fresh * math.sqrt(2))
    assert stats.kstest(left, "norm").pvalue > 1e-6
    np.testing.assert_allclose(errors.std(axis=0), MOVING.noise_by_time[[0, 1, 40]], rtol=0.35)


def test_fresh_noise_is_never_used_twice(path):
    taken = []
    scales = [2**56, 3 * 2**55, 2**57 - 1]
    noise = integer_noise.FreshNoise(scales)
    for _ in range(3 * integer_noise.BLOCK):
        taken.append(noise.take())
    assert len({number for row in taken for number in row}) == 9 * integer_noise.BLOCK
    scores = np.array(taken, dtype=float) / np.array(scales, dtype=float)
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("same_number", [False, True])
def test_fresh_noise_drawn_ahead_is_not_shared_by_a_fork(monkeypatch, same_number):
    """Nor where both are number 1, as in containers, or a number is given again."""
    if same_number:
        monkeypatch.setattr(os, "getpid", lambda: 1)
    noise = integer_noise.FreshNoise([2**56])
    noise.take()  # the rest of a block is drawn
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr([noise.take() for _ in range(4)]).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as said:
        others = {tuple(row) for row in ast.literal_eval(said.read())}
    ours = {tuple(noise.take()) for _ in range(2 * integer_noise.BLOCK)}
    assert len(others) == 4
    assert not others & ours


def pickled(one):
    return pickle.loads(pickle.dumps(one))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_fresh_noise_drawn_ahead_is_not_shared_by_copies(path, copied):
    noise = integer_noise.FreshNoise([2**56])
    noise.take()
    other = copied(noise)
    ours, others = ({tuple(one.take()) for _ in range(80)} for one in (noise, other))
    assert len(ours | others) == 160
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        gateway.send([1.0])
        with pytest.raises(AffineDPError, match="not copied"):
            copied(gateway)


def test_two_gateways_in_one_process_share_no_noise(tmp_path):
    """One mechanism, two states, taken in turns: what they add is as far apart as two draws are."""
    with (
        Gateway(HOLD, state=tmp_path / "a", resolution="exact") as first,
        Gateway(HOLD, state=tmp_path / "b", resolution="exact") as second,
    ):
        taken = [gateway._noise._fresh.take()[0] for _ in range(100) for gateway in (first, second)]
        assert len(set(taken)) == 200
        assert first.commitment != second.commitment
        assert first._state.draw.numbers != second._state.draw.numbers


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


def test_adversary_who_steers_the_inputs(folder):
    """Rounding alone gives away where in its cell the sensor's input is; fresh noise does not."""
    step, cell, rng = Fraction(1, 1000), 64.0, np.random.default_rng(5)
    m = design_output_noise(([[1]], [[1]]), 40, epsilon=1, delta=1e-3)
    naive = ours = 0
    count = 60
    for i in range(count):
        x = Fraction(int(rng.integers(10**9)), 10**8)
        truth = (x / step + Fraction(1, 2)) % 1 >= Fraction(1, 2)
        noise = Fraction(float(rng.normal() * m.root[0, 0]))

        def sensed(offset, x=x):
            return round((x + offset) / step) * step

        naive += truth == bisect(
            lambda offset, noise=noise: round((sensed(offset) + noise) / 64) * 64, step, cell
        )
        with Gateway(
            m, state=folder / f"{i}.db", resolution="exact", measurement_error=0.5e-3
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
                with pytest.raises(RepeatedStepError, match="another reading.*new run") as error:
                    gateway.send(y, step=t)
                assert error.value.step == t
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


def test_restart_continues_the_noise(path):
    """A gateway that is opened anew for every step sends the noise of one draw."""
    m = GROWING
    with Gateway(m, state=path, resolution="exact") as gateway:
        noise = list(exact_noise(m, gateway._state.draw.numbers))
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
        with pytest.raises(LateStepError, match="step 1 was skipped .*the next is 4") as late:
            gateway.send([0], step=1)
        assert (late.value.step, late.value.next_step) == (1, 4)
    with Gateway(HOLD, state=path, resolution="exact") as gateway, pytest.raises(LateStepError):
        gateway.send([0], step=0)


def test_horizon(path):
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        assert gateway.horizon == 12
        for step in (12, 13, 10**30):
            with pytest.raises(HorizonError, match="beyond the horizon of 12") as error:
                gateway.send([0], step=step)
            assert error.value.horizon == 12
        assert gateway.next_step == 0
        last = gateway.send([0], step=11)
        assert gateway.next_step == 12
        with pytest.raises(HorizonError):
            gateway.send([0])
        assert gateway.send([0], step=11).tobytes() == last.tobytes()
    with Gateway(HOLD, state=path, resolution="exact") as gateway, pytest.raises(HorizonError):
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
                with pytest.raises(RepeatedStepError):
                    gateway.send([0.25], step)
            else:
                with pytest.raises(AffineDPError):
                    gateway.send(y, step)
        elif number < 0 or (operation == "bad" and following <= number < 12):
            with pytest.raises(AffineDPError):
                gateway.send(y, step)
        elif number < following:
            with pytest.raises(LateStepError if operation == "send" else AffineDPError):
                gateway.send(y, step)
        elif number >= 12:
            with pytest.raises(HorizonError):
                gateway.send(y, step)
        else:
            sent[number] = gateway.send(y, step).tobytes()
            following = number + 1
        assert gateway.next_step == following
    gateway.close()


# ---------------------------------------------------------------------- killed at any moment

SENDING = """
    import sys
    from affinedp.control import Gateway, TrajectoryMechanism
    mechanism = TrajectoryMechanism.load(sys.argv[1])
    with Gateway(mechanism, state=sys.argv[2], resolution="exact") as gateway:
        while True:
            step = gateway.next_step
            print(step, gateway.send([1.0]).tobytes().hex(), flush=True)
"""


@pytest.mark.slow
def test_killed_while_sending(tmp_path, path):
    """SIGKILL again and again: what came out comes out again, and nothing else does."""
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
        for step, sent in seen.items():
            assert gateway.send([1.0], step=step).tobytes().hex() == sent


CREATING = """
    import os, sys
    from affinedp.control import Gateway, TrajectoryMechanism
    from affinedp.control.gateway import kinds
    from affinedp.once import draw
    from affinedp.budget.ledger import Ledger

    def after(place, name):
        real = getattr(place, name)
        def dies(*given, **named):
            real(*given, **named)
            os._exit(9)
        setattr(place, name, dies)

    mechanism = TrajectoryMechanism.load(sys.argv[1])
    ledger = Ledger(sys.argv[3])
    after(*{
        "charged": (Ledger, "charge"),
        "drawn": (kinds, "drawn_once"),
        "written": (draw, "write_state"),
        "marked": (draw, "mark"),
        "linked": (os, "link"),
        "settled": (Ledger, "settle"),
    }[sys.argv[4]])
    Gateway(mechanism, state=sys.argv[2], resolution="exact", ledger=ledger)
"""


@pytest.mark.parametrize("moment", ["charged", "drawn", "written", "marked", "linked", "settled"])
def test_killed_while_drawing(tmp_path, path, ledger, moment):
    HOLD.save(tmp_path / "m.json")
    found = run(CREATING, tmp_path / "m.json", path, tmp_path / "budget.db", moment)
    assert found.returncode == 9, found.stderr
    assert len(ledger.history()) == 1
    if moment in ("written", "marked", "linked", "settled"):
        # the draw was on the disk, whole: it is put into place and used
        with Gateway(HOLD, state=path, resolution="exact", ledger=ledger) as gateway:
            gateway.send([0])
        assert [entry.status for entry in ledger.history()] == ["released"]
        return
    # nothing was kept, and without the ledger nobody knows of the draw, which was never used
    with pytest.raises(GatewayStateError, match="second release"):
        Gateway(HOLD, state=path, resolution="exact", ledger=ledger)
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger, redraw=True) as gateway:
        gateway.send([0])
    assert [entry.status for entry in ledger.history()] == ["charged", "released"]


# ---------------------------------------------------------------------- one draw, charged


def test_ledger_is_charged_before_the_draw(path, ledger, monkeypatch):
    real = kinds.drawn_once

    def drawn(*given):
        assert [entry.status for entry in ledger.history()] == ["charged"]
        assert not path.exists()
        return real(*given)

    monkeypatch.setattr(kinds, "drawn_once", drawn)
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger, label="March") as gateway:
        (entry,) = ledger.history()
        assert entry.status == "released"
        assert entry.label.startswith("March (gateway state ")
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


def test_budget_exceeded(tmp_path, path, monkeypatch):
    def never(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(kinds, "drawn_once", never)
    with Ledger(tmp_path / "budget.db", epsilon=0.01, delta=1e-9, protects="one vehicle") as ledger:
        with pytest.raises(BudgetExceededError):
            Gateway(HOLD, state=path, resolution="exact", ledger=ledger)
        assert ledger.history() == ()
    assert files(path) == []


def test_two_trajectories_in_one_ledger(tmp_path, ledger):
    with Gateway(HOLD, state=tmp_path / "a.db", resolution="exact", ledger=ledger):
        pass
    with Gateway(HOLD, state=tmp_path / "b.db", resolution="exact", ledger=ledger):
        pass
    assert len(ledger.history()) == 2
    (tmp_path / "c").mkdir()
    with pytest.raises(GatewayStateError, match="charged for 'gateway a.db'.*another label"):
        Gateway(HOLD, state=tmp_path / "c" / "a.db", resolution="exact", ledger=ledger)
    with Gateway(
        HOLD, state=tmp_path / "c" / "a.db", resolution="exact", ledger=ledger, label="another"
    ):
        pass


def test_lost_state(path, ledger):
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger) as gateway:
        gateway.send([0])
        first = gateway.commitment
    path.unlink()
    for settings_ in ({}, {"redraw": True}, {"ledger": ledger}):
        with pytest.raises(GatewayStateError, match="run.db is lost.*second release"):
            Gateway(HOLD, state=path, resolution="exact", **settings_)
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger, redraw=True) as gateway:
        assert gateway.next_step == 0
        assert gateway.commitment != first
        assert any("2 draws were made" in warning for warning in gateway.guarantee.warnings)
    assert len(ledger.history()) == 2
    # both lost, the state and its marker
    for file in (path, path.with_name("run.db.drawn")):
        file.unlink()
    for settings_ in ({}, {"ledger": ledger}):
        with pytest.raises(GatewayStateError, match="affinedp-drawn says it was drawn"):
            Gateway(HOLD, state=path, resolution="exact", **settings_)
    # and the register of the folder
    path.with_name(".affinedp-drawn").unlink()
    with pytest.raises(GatewayStateError, match="the ledger was charged for"):
        Gateway(HOLD, state=path, resolution="exact", ledger=ledger)


def test_redraw_stops_at_the_cap(tmp_path, path):
    cap = HOLD.guarantee.epsilon(1e-3) * 1.2
    with Ledger(tmp_path / "budget.db", epsilon=cap, delta=1e-3, protects="one vehicle") as ledger:
        with Gateway(HOLD, state=path, resolution="exact", ledger=ledger):
            pass
        path.write_bytes(b"damaged")
        before = files(path)
        with pytest.raises(BudgetExceededError):
            Gateway(HOLD, state=path, resolution="exact", ledger=ledger, redraw=True)
        assert files(path) == before
        assert path.read_bytes() == b"damaged"


def test_damaged_state_is_kept_aside(path, ledger):
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger) as gateway:
        gateway.send([0])
    content = bytearray(path.read_bytes())
    place = bytes(content).index(HOLD.fingerprint.encode())
    content[place] ^= 1
    path.write_bytes(content)
    for settings_ in ({}, {"redraw": True}, {"ledger": ledger}):
        with pytest.raises(GatewayStateError, match="not the one that was committed to.*second"):
            Gateway(HOLD, state=path, resolution="exact", **settings_)
        assert path.read_bytes() == content
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger, redraw=True) as gateway:
        assert gateway.next_step == 0
        gateway.send([0])
    (aside,) = path.parent.glob("run.db.aside-*")
    assert aside.read_bytes() == content
    assert len(ledger.history()) == 2
    # asking for it does not draw again while the state is well
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger, redraw=True) as gateway:
        assert gateway.next_step == 1
    assert len(ledger.history()) == 2


def test_file_that_never_was_a_state_is_left_alone(path, ledger):
    path.write_bytes(b"my thesis")
    path.chmod(0o600)
    with pytest.raises(GatewayStateError, match="left as it is"):
        Gateway(HOLD, state=path, resolution="exact", ledger=ledger, redraw=True)
    assert path.read_bytes() == b"my thesis"
    assert ledger.history() == ()


def test_swapped_states_are_noticed(tmp_path, ledger):
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    with (
        Gateway(HOLD, state=a, resolution="exact", ledger=ledger),
        Gateway(HOLD, state=b, resolution="exact"),
    ):
        pass
    with pytest.raises(GatewayStateError, match="never charged to this ledger"):
        Gateway(HOLD, state=b, resolution="exact", ledger=ledger)
    os.replace(b, a)
    with pytest.raises(GatewayStateError, match="never charged to this ledger"):
        Gateway(HOLD, state=a, resolution="exact", ledger=ledger, redraw=True)
    with pytest.raises(GatewayStateError, match="not the state that a.db.drawn tells of"):
        Gateway(HOLD, state=a, resolution="exact")


def test_state_of_another_mechanism(path, ledger):
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger):
        pass
    other = design_output_noise(([[1]], [[1]]), 12, epsilon=2, delta=1e-3)
    for settings_ in ({}, {"ledger": ledger, "redraw": True}):
        with pytest.raises(GatewayStateError, match="another mechanism"):
            Gateway(other, state=path, resolution="exact", **settings_)
    with Gateway(HOLD, state=path, resolution="exact", ledger=ledger):
        pass


@pytest.mark.parametrize("header", ["", "[]", "{}", '{"format": "affinedp gateway state"}', "7"])
def test_forged_headers(path, header):
    """They are committed to, but by somebody else."""
    forged = Draw(header, b"s" * 64, (1,))
    kind = gateway_state.GATEWAY.kind
    with building(kind, path) as folder:
        file = write_state(gateway_state.GATEWAY, folder, path, forged, Head(0, (1,)))
        put_into_place(kind, file, path)
    with pytest.raises(GatewayStateError, match="header"):
        Gateway(HOLD, state=path, resolution="exact")


def test_settings_of_a_state_do_not_change(path):
    with Gateway(HOLD, state=path, resolution="exact", fresh_noise=0.25):
        pass
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        assert gateway.fresh_noise.tolist() == [0.25]
    with Gateway(HOLD, state=path, resolution="exact", fresh_noise=[0.25]):
        pass
    with pytest.raises(GatewayStateError, match="another fresh_noise"):
        Gateway(HOLD, state=path, resolution="exact", fresh_noise=0.5)
    with pytest.raises(GatewayStateError, match="drawn for other sensors"):
        Gateway(HOLD, state=path, resolution="exact", measurement_error=0.5)


def test_marker(path):
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        marker = path.with_name("run.db.drawn")
        assert stat.S_IMODE(marker.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = marker.read_text()
        assert gateway.commitment in text
        for number in gateway._state.draw.numbers:
            assert str(number) not in text
        assert gateway._state.draw.salt.hex() not in text
    assert files(path) == [".affinedp-drawn", "run.db", "run.db.drawn"]
    assert path.with_name(".affinedp-drawn").read_text() == text
    # cut short by a crash, or lost
    for spoil in (lambda: marker.write_text('{"commitment": "abc'), marker.unlink):
        spoil()
        with pytest.raises(GatewayStateError, match="moved=True"):
            Gateway(HOLD, state=path, resolution="exact")
        with Gateway(HOLD, state=path, resolution="exact", moved=True) as gateway:
            assert gateway.commitment in marker.read_text()
        Gateway(HOLD, state=path, resolution="exact").close()


def test_a_copy_of_a_state_is_not_used_beside_it(path):
    Gateway(HOLD, state=path, resolution="exact").close()
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    shutil.copy(path.with_name("run.db.drawn"), path.with_name("copy.db.drawn"))
    with pytest.raises(GatewayStateError, match="used twice"):
        Gateway(HOLD, state=copy, resolution="exact")


def test_noise_that_does_not_keep_its_guarantee_is_not_sent(path):
    with pytest.raises(adp.AffineDPError, match="about other noise"):
        dataclasses.replace(HOLD, root=HOLD.root * 0.5)
    weaker = copy.copy(HOLD)
    object.__setattr__(weaker, "root", HOLD.root * 0.5)  # what replace refuses, by force
    with pytest.raises(adp.AffineDPError, match="belong together"):
        Gateway(weaker, state=path, resolution="exact")


def test_refused_before_anything_is_charged(tmp_path, ledger):
    missing = tmp_path / "no" / "run.db"
    with pytest.raises(GatewayStateError, match="no directory"):
        Gateway(HOLD, state=missing, resolution="exact", ledger=ledger)
    with pytest.raises(GatewayStateError, match="not a file"):
        Gateway(HOLD, state=tmp_path, resolution="exact", ledger=ledger)
    if Path("/proc/self").is_dir():
        with pytest.raises(GatewayStateError, match="cannot be created"):
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
        {"analog_noise": 0.1},
    ):
        given = {
            "mechanism": HOLD, "state": tmp_path / "run.db", "ledger": ledger,
            "resolution": "exact", **bad,
        }  # fmt: skip
        with pytest.raises(AffineDPError):
            Gateway(given.pop("mechanism"), **given)
    broken = replace(HOLD, guarantee=replace(HOLD.guarantee, leak=np.ones(1)))
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
    with pytest.raises(GatewayStateError, match="closed"):
        gateway.send([0])
    gateway.close()


def test_control_block_shows_simulated_noise(path):
    pytest.importorskip("control")
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        secret = gateway.send([0.0])
        blocks = [gateway.to_control_block(seed=1) for _ in range(2)]
        shown = [block.output(0, [], [0.0]) for block in blocks]
        np.testing.assert_array_equal(*shown)
        assert abs(shown[0][0] - secret[0]) > gateway.fresh_noise[0]


def test_threads_take_turns(path):
    sent = {}

    def work(gateway, steps):
        for step in steps:
            sent[step] = sent.get(step, set()) | {gateway.send([0, 0], step=step).tobytes()}

    with Gateway(MOVING, state=path, resolution="exact") as gateway:
        for step in range(0, 50):
            gateway.send([0, 0], step=step)
        threads = [threading.Thread(target=work, args=(gateway, range(50))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(len(values) == 1 for values in sent.values())


def test_a_system_that_died_may_have_sent_what_was_reserved(path, monkeypatch):
    """Unwritten steps that were reserved count as skipped, also after another crash."""
    monkeypatch.setattr(drawn_state.DrawnState, "_ahead", lambda self, step, until: step + 8)
    gateway = Gateway(HOLD, state=path, resolution="exact")
    sent = [gateway.send([1.0]) for _ in range(3)]
    gateway._state._connection.close()  # as if killed: the reservation of 8 steps stays
    with Gateway(HOLD, state=path, resolution="exact") as again:
        assert again.next_step == 3  # the same system: everything written is there
        again._state._written = 0  # keep the reservation on the disk
    monkeypatch.setattr(drawn_state, "running_system", lambda: "another")
    crashed = Gateway(HOLD, state=path, resolution="exact")
    assert crashed.next_step == 9  # the first was waited for, and then 8 reserved
    assert np.array_equal(crashed.send([1.0], step=2), sent[2])
    with pytest.raises(LateStepError):
        crashed.send([1.0], step=5)
    monkeypatch.setattr(drawn_state.DrawnState, "record", killed)
    crashed._state._reserve(crashed._state._connection, 16)
    with pytest.raises(KeyboardInterrupt):
        crashed.send([1.0])
    crashed._state._connection.close()
    with Gateway(HOLD, state=path, resolution="exact") as last:
        assert last.next_step == 9
        with pytest.raises(LateStepError):
            last.send([1.0], step=5)


def killed(*_, **more):
    raise KeyboardInterrupt


def test_a_clean_end_loses_nothing(path, monkeypatch):
    monkeypatch.setattr(drawn_state.DrawnState, "_ahead", lambda self, step, until: step + 8)
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        gateway.send([1.0])
    monkeypatch.setattr(drawn_state, "running_system", lambda: "another")
    with Gateway(HOLD, state=path, resolution="exact") as gateway:
        assert gateway.next_step == 1
