"""Stationary noise through a gateway: the promise under feedback, restarts, skips, memory."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import scipy.linalg
from scipy import stats

from affinedp.budget.ledger import Ledger
from affinedp.control import Gateway, Reach, noise_by_time
from affinedp.control import gateway_path as sending
from affinedp.control.gateway import FARTHEST, StepError
from affinedp.control.gateway_path import draw_bits
from affinedp.errors import AffineDPError
from affinedp.exact.systems import LinearSystem, start_certificate
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import private_inputs
from affinedp.strategies.filter import Filter
from affinedp.stream.run import Run, RunError

ROOM = ([[0.99]], [[0.9]], [[1.0]])
SHAPER = LinearSystem([[0.97, 0.0], [0.1, 0.7]], [[0.5], [0.1]], [[0.4, 0.3]], [[1.0]])
SCALE = 1.5


def room_noise(shaper=SHAPER, scale=SCALE):
    room = private_inputs(ROOM, mu=1.0)
    start = start_certificate(shaper.exact()).root
    return Mechanism(room, Filter(room.domain, shaper, "output", scale, start), Gaussian())


NOISE = room_noise()


def test_a_memory_is_never_drawn_again(tmp_path, monkeypatch):
    """After a crash the noise goes on behind all that may have been sent, bounded in memory."""
    monkeypatch.setattr(Run, "block", lambda self, step, most: step + 5)
    crashed = Gateway(NOISE, state=tmp_path / "s", resolution="exact")
    for _ in range(13):
        crashed.send([0.0])
        assert len(crashed._run.memory["path"]) == 2, "bounded"
    again = Gateway(NOISE, state=tmp_path / "s", resolution="exact")
    assert again.next_step == 15
    assert again._last == crashed._last
    white = room_noise(LinearSystem.static(np.eye(1)), 64.0)
    with Gateway(white, state=tmp_path / "white", resolution="exact") as gateway:
        gateway.send([0.0])
        assert gateway._last == ()


def test_what_a_memory_that_is_drawn_again_would_cost():
    """Why: one output sent, lost, and followed by others from the memory before it."""
    T, f = 100, NOISE.strategy.noise
    g = f.impulse(T)[:, 0, 0] * NOISE.strategy.scale
    G = scipy.linalg.toeplitz(g, np.zeros(T))
    v = 0.9 * 0.99 ** np.arange(T)
    first, later = (v[0] / G[0, 0]) ** 2, G[1:] @ G[1:].T
    again = first + v[1:] @ np.linalg.solve(later, v[1:])
    assert again > 1.1 * NOISE.guarantee.sensitivity**2


class Known:
    """Numbers that the test knows, then zeros; counts how many were taken."""

    def __init__(self, numbers):
        self.numbers = list(numbers)
        self.taken = 0

    def draw(self, shape):
        found = (self.numbers[self.taken :] + [0] * shape[0])[: shape[0]]
        self.taken += shape[0]
        return np.array(found, dtype=object).reshape(shape)


class Seen(int):
    """Stands for fresh noise: notes what it is added to, and makes the sum what was asked for."""

    def __new__(cls, noting):
        made = super().__new__(cls, 0)
        made.noting = noting
        return made

    def __radd__(self, total):
        totals, sums = self.noting.totals, self.noting.sums
        totals.append(int(total))
        return sums[len(totals) - 1] if sums else int(total)


class Noting:
    """Fresh noise that notes what it is added to."""

    def __init__(self, sums=()):
        self.totals, self.sums = [], sums

    def draw(self, words):
        return Seen(self)


def opened(path, eta, **words):
    """A gateway whose one draw is known."""
    with mock.patch.object(sending, "draw_integers", return_value=np.array(eta, dtype=object)):
        return Gateway(NOISE, state=path, **{"resolution": "exact", **words})


def integers(rng, count):
    return [round(float(v) * SCALE * 2 ** draw_bits(SCALE)) for v in rng.normal(size=count)]


def run(path, inputs, eta, zeta, before, sensor, sums=(), **words):
    """The room under feedback; what the fresh noise was added to, and the plan."""
    with opened(path, eta, **words) as gateway:
        gateway._walk._drawn, gateway._fresh = Known(zeta), [Noting(sums)]
        x = 20.0
        for w in before:
            x = 0.99 * x + 0.9 * w
        sent = []
        for w in inputs:
            out = float(gateway.send([sensor(x)])[0])
            sent.append(out)
            u = ((out * 3) % 7 - 3) / 8  # steered by what was sent
            x = 0.99 * x + 0.9 * (w + u)
        return gateway._fresh[0].totals, sent, gateway._plan


@pytest.mark.parametrize("event", [-12, 0, 25])
@pytest.mark.parametrize("step", [None, 0.1])
def test_neighbours_are_as_near_as_promised_under_feedback(tmp_path, event, step):
    """ζ and η are shifted by what the event whitens to; what is left is hidden by fresh noise.

    √(‖shift‖²/(c·scale)² + Σ(left/τ)²) ≤ s, with the inputs steered by what was sent.
    """
    rng = np.random.default_rng(8)
    steps, bits = 60, draw_bits(SCALE)
    before, inputs = 0.2 * rng.normal(size=20), 0.2 * rng.normal(size=steps)
    moved_before, moved = before.copy(), inputs.copy()
    (moved_before if event < 0 else moved)[event] += 1.0
    eta, zeta = integers(rng, 2), integers(rng, steps)
    d = NOISE.strategy.whitened.floats()
    d = d.impulse(steps + 20)[:, 0, 0]
    lead = max(0, -event)
    memory = np.zeros(2)
    for t in range(lead):
        memory = SHAPER.A @ memory + SHAPER.B[:, 0] * -d[t]
    eta_shift = np.linalg.solve(NOISE.strategy.start, memory)
    zeta_shift = np.zeros(steps)
    first = max(event, 0)
    zeta_shift[first:] = -d[lead : lead + steps - first]
    eta_two = [e + round(float(v) * 2**bits) for e, v in zip(eta, eta_shift)]
    zeta_two = [e + round(float(v) * 2**bits) for e, v in zip(zeta, zeta_shift)]

    def sensor(x):
        return x if step is None else float(np.floor(x / step + 0.5)) * step

    words = {} if step is None else {"resolution": step, "horizon": steps}
    one, sent, plan = run(tmp_path / "a", inputs, eta, zeta, before, sensor, **words)
    # the same is published: the fresh noise makes up for what is left
    two, again, _ = run(
        tmp_path / "b", moved, eta_two, zeta_two, moved_before, sensor, one, **words
    )
    assert sent == again
    left = np.array([float(b - a) for a, b in zip(one, two)]) / plan.fresh_scales[0]
    fresh = float((left**2).sum())
    drawn = ((eta_shift**2).sum() + (zeta_shift**2).sum()) / (SCALE * plan.noise_factor) ** 2
    stated = NOISE.guarantee.sensitivity**2
    assert fresh + drawn <= stated
    if step is None:
        assert fresh < 1e-9 * stated
        assert plan.noise_factor < 1 + 1e-8
    else:
        assert np.abs(left).max() * plan.fresh_noise[0] <= step * (1 + 1e-9)


def test_sends_the_noise_of_the_definition(tmp_path):
    rng = np.random.default_rng(2)
    eta, zeta = integers(rng, 2), integers(rng, 40)
    bits = draw_bits(SCALE)
    exact = [
        [[Fraction(float(v)) for v in row] for row in m] for m in (SHAPER.A, NOISE.strategy.start)
    ]
    state = [sum(r * e for r, e in zip(row, eta)) / Fraction(2) ** bits for row in exact[1]]
    with opened(tmp_path / "s", eta) as gateway:
        gateway._walk._drawn, gateway._fresh = Known(zeta), [Noting()]
        unit = Fraction(2) ** gateway._plan.grid_exponents[0]
        for t in range(40):
            y = float(rng.normal() * 20)
            gateway.send([y])
            drawn = Fraction(zeta[t]) / Fraction(2) ** bits
            wanted = Fraction(y) + drawn
            wanted += sum(Fraction(float(c)) * x for c, x in zip(SHAPER.C[0], state))
            assert abs(gateway._fresh[0].totals[-1] * unit - wanted) <= 2 * unit
            state = [
                sum(a * x for a, x in zip(row, state)) + Fraction(float(b)) * drawn
                for row, b in zip(exact[0], SHAPER.B[:, 0])
            ]


def test_restarts_and_skipped_steps_go_on_with_the_same_noise(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "block", lambda self, step, most: step + 1)
    rng = np.random.default_rng(3)
    eta, zeta = integers(rng, 2), integers(rng, 30)
    wanted = [0, 1, 4, 5, 17, 29]  # the steps between are skipped, and draw all the same

    def totals(path, reopen):
        found, taken = [], 0
        gateway = opened(path, eta)
        for step in wanted:
            if reopen:
                gateway.close()
                gateway = Gateway(NOISE, state=path, resolution="exact")
            gateway._walk._drawn = Known(zeta[taken:])
            gateway._fresh = [Noting()]
            gateway.send([20.0], step)
            taken += gateway._walk._drawn.taken
            found.append(gateway._fresh[0].totals[0])
        gateway.close()
        assert taken == 30
        return found

    assert totals(tmp_path / "a", reopen=False) == totals(tmp_path / "b", reopen=True)


@pytest.mark.slow
def test_law_of_what_is_sent(tmp_path):
    """Real draws: stationary from the first step on, with the filter's correlation."""
    count = 120
    errors = []
    for i in range(count):
        with Gateway(NOISE, state=tmp_path / f"{i}", resolution="exact") as gateway:
            errors.append([gateway.send([5.0], step)[0] - 5.0 for step in (0, 1, 6)])
    errors = np.array(errors) / noise_by_time(NOISE)[0, 0]
    for column in errors.T:
        assert stats.kstest(column, "norm").pvalue > 1e-6
    g = SHAPER.impulse(4000)[:, 0, 0]
    for lag, (a, b) in {1: (0, 1), 5: (1, 2)}.items():
        expected = float(g[:-lag] @ g[lag:] / (g @ g))
        assert abs(np.corrcoef(errors[:, a], errors[:, b])[0, 1] - expected) < 6 / np.sqrt(count)


@pytest.mark.parametrize("every", [3, 7])
def test_memory_is_bounded_where_steps_are_skipped(tmp_path, monkeypatch, every):
    """What is old is forgotten whichever steps are sent."""
    monkeypatch.setattr(Run, "block", lambda self, step, most: step + 1)
    monkeypatch.setattr(sending, "KEPT", 16)
    with Gateway(NOISE, state=tmp_path / "s", resolution="exact") as gateway:
        for step in range(1, 200 * every, 4 * every):  # no multiple of four
            gateway.send([20.0], step)
    assert kept(tmp_path / "s") <= 6


def kept(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT COUNT(*) FROM sent").fetchone()[0]


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "block", lambda self, step, most: step + 1)
    monkeypatch.setattr(sending, "KEPT", 16)
    path = tmp_path / "s"
    with Gateway(NOISE, state=path, resolution="exact") as gateway:
        assert gateway.horizon == 2**40
        sent = [gateway.send([20.0]) for _ in range(120)]
        assert kept(path) <= 16 + 1
        numbers = max(abs(number).bit_length() for number in gateway._last)
        assert numbers < gateway._plan.path_bits + 20
        assert np.array_equal(gateway.send([20.0], 110), sent[110])
        with pytest.raises(StepError, match="was skipped"):
            gateway.send([20.0], 3)
        with pytest.raises(AffineDPError, match="at most"):
            gateway.send([20.0], 200 + FARTHEST)
        assert any("4e-14 (1 + e^ε)" in warning or "e-14" in warning
                   for warning in gateway.guarantee.warnings)  # fmt: skip


def test_noise_that_starts_anew_is_a_new_release(tmp_path):
    path = tmp_path / "s"
    with Ledger(tmp_path / "b.db", epsilon=9.0, delta=1e-2, protects="occupancy") as ledger:
        with Gateway(NOISE, state=path, resolution="exact", ledger=ledger) as gateway:
            gateway.send([20.0])
        path.unlink()
        with pytest.raises(RunError, match="second release"):
            Gateway(NOISE, state=path, resolution="exact", ledger=ledger)
        with Gateway(NOISE, state=path, resolution="exact", ledger=ledger, redraw=True) as gateway:
            assert any("2 draws" in warning for warning in gateway.guarantee.warnings)
        assert len(ledger.history()) == 2


def test_steps_of_a_sensor_cost_more_the_longer_it_runs(tmp_path):
    """(√V s + q √T)² relative to V s², as for white noise on every reading."""
    s, deviation = NOISE.guarantee.sensitivity, noise_by_time(NOISE)[0, 0]
    for steps in (96, 672):
        words = {"resolution": 0.1, "horizon": steps}
        with Gateway(NOISE, state=tmp_path / f"{steps}", **words) as gateway:
            wanted = (1 + 0.1 * np.sqrt(steps) / (s * deviation)) ** 2
            assert 1 + gateway.added_variance[0] == pytest.approx(wanted, rel=1e-2)
            assert gateway.horizon == steps
    with pytest.raises(RunError, match="drawn with horizon = 96"):
        Gateway(NOISE, state=tmp_path / "96", resolution=0.1, horizon=95)
    with pytest.raises(AffineDPError, match="whole number"):
        Gateway(NOISE, state=tmp_path / "x", resolution=0.1, horizon=0)


def test_noise_that_does_not_keep_its_promise_is_not_sent(tmp_path):
    weaker = room_noise(SHAPER, SCALE / 2)
    weaker.__dict__["guarantee"] = NOISE.guarantee  # as one that is read on trust states it
    with pytest.raises(AffineDPError, match="belong together"):
        Gateway(weaker, state=tmp_path / "s", resolution="exact")


def test_saturation_of_coloured_and_white_noise(tmp_path):
    words = {"resolution": 0.01, "range": (-1e4, 1e4)}
    with pytest.raises(AffineDPError, match=r"saturates when someone steers.*Give reach"):
        Gateway(NOISE, state=tmp_path / "c", horizon=100, **words)
    reach = Reach(start=([0], [40]), B=[[0.9]], inputs=([-10], [10]))
    with pytest.raises(AffineDPError, match="give horizon="):
        Gateway(NOISE, state=tmp_path / "a", reach=reach, **words)
    with Gateway(NOISE, state=tmp_path / "a", reach=reach, horizon=100, **words) as gateway:
        gateway.send([20.0])
    white = room_noise(LinearSystem.static(np.eye(1)), 20.0)
    with Gateway(white, state=tmp_path / "b", horizon=100, **words) as gateway:
        gateway.send([20.0])


def test_limits_count_what_enters_the_outputs_at_once(tmp_path):
    """Inputs that pass straight through, and states that private inputs do not move."""
    words = {"resolution": "exact", "range": (-1.0, 3.0), "horizon": 50}

    def white(system):
        neighbours, shaper = (
            private_inputs(system, mu=1.0),
            LinearSystem([[0.5]], [[1.0]], [[1]], [[64]]),
        )
        start = start_certificate(shaper.exact()).root
        made = Filter(neighbours.domain, shaper, "output", 1.0, start)
        return Mechanism(neighbours, made, Gaussian())

    limits = {"start": (0.0, 0.0), "B": [[1.0]], "inputs": (0.0, 1.0)}
    direct = white(([[0.5]], [[1.0]], [[1.0]], [[10.0]]))  # y = x + 10 w up to 12
    with pytest.raises(AffineDPError, match="at once"):
        Gateway(direct, state=tmp_path / "a", reach=Reach(**limits), **words)
    with pytest.raises(AffineDPError, match="from -1.2e-08 to 12, outside"):
        Gateway(direct, state=tmp_path / "a", reach=Reach(**limits, D=[[10.0]]), **words)
    A, C = np.diag([0.5, 0.5]), [[1.0, 1.0]]  # the second state is moved by public inputs alone
    two = white((A, [[1.0], [0.0]], C))
    limits = {"start": (0.0, 0.0), "B": np.eye(2), "inputs": ([0.0, 0.0], [1.0, 100.0])}
    with pytest.raises(AffineDPError, match="whole plant"):
        Gateway(two, state=tmp_path / "b", reach=Reach(**limits), **words)
    with pytest.raises(AffineDPError, match="to 202, outside"):
        Gateway(two, state=tmp_path / "b", reach=Reach(**limits, system=(A, C)), **words)
    with pytest.raises(AffineDPError, match="D has shape"):
        Gateway(two, state=tmp_path / "b", reach=Reach(**limits, D=[[1.0]], system=(A, C)), **words)
    with pytest.raises(AffineDPError, match="has 2 outputs"):
        Gateway(two, state=tmp_path / "b", reach=Reach(**limits, system=(A, A)), **words)


@pytest.mark.parametrize("gains", [[[1.0], [1.0]], [[1.0], [2.0]], [[1, 0.5], [0, 1], [1, 1]]])
def test_fewer_private_inputs_than_outputs(tmp_path, gains):
    """Noise of lower rank is not white: one number in several outputs does not hide saturation."""
    F = np.array(gains, dtype=float)
    p, m = F.shape
    for A in (np.zeros((m, m)), 0.5 * np.eye(m)):
        neighbours = private_inputs((A, np.eye(m), F if A.any() else 0 * F, F), mu=1.0)
        shaper = LinearSystem.static(8 * np.eye(m))
        made = Filter(neighbours.domain, shaper, "input")
        made = replace(made, start=start_certificate(made.exact_noise).root)
        noise = Mechanism(neighbours, made, Gaussian())
        words = {"resolution": 0.01, "horizon": 50, "state": tmp_path / f"{A.any()}"}
        with Gateway(noise, **words) as gateway:
            assert gateway.send(np.zeros(p)).shape == (p,)
            assert any("no sensor saturates" in warning for warning in gateway.guarantee.warnings)
        with pytest.raises(AffineDPError, match="this noise does not hide where it did"):
            Gateway(noise, range=(-1e4, 1e4), **words)


def test_noise_beyond_double_precision_is_refused_in_words(tmp_path):
    with pytest.raises(AffineDPError, match="Choose other units"):
        Gateway(room_noise(scale=1e200), state=tmp_path / "s", resolution=0.1, horizon=5)
    assert not (tmp_path / "s").exists(), "nothing was drawn"
