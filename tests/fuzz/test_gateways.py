"""Both questions about all that a gateway sends over its horizon."""

import math
import tempfile
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from affinedp.control import Gateway, design_output_noise
from affinedp.control.gateway_path import Sending, Walk
from affinedp.control.sensors import Sensor, sensor_of
from fuzz.effort import alarm, examples, only_long
from fuzz.exact import is_double
from fuzz.noise import seeded
from fuzz.questions import Broken, ask_coverage, ask_distinguishing, attempted, demand

GRID = 2**56


EXACT = Sensor((), ())


def gateway_plan(mechanism, sensor=EXACT):
    return replace(Sending.of(mechanism, "exact"), sensor=sensor).plan()


@dataclass(frozen=True)
class Drive:
    """A system of dyadic numbers, so that its trajectories are exact."""

    A: tuple[tuple[Fraction, ...], ...]
    C: tuple[tuple[Fraction, ...], ...]
    horizon: int
    mu: tuple[float, ...]
    neighbours: str
    epsilon: float
    delta: float
    error: float | None

    def mechanism(self):
        system = tuple(
            np.array([[float(v) for v in row] for row in matrix]) for matrix in (self.A, self.C)
        )
        return design_output_noise(
            system, self.horizon, self.epsilon, self.delta, np.array(self.mu), self.neighbours
        )

    def powers(self):
        """C A^t for every step, in fractions."""
        product = [[Fraction(i == j) for j in range(len(self.A))] for i in range(len(self.A))]
        for _ in range(self.horizon):
            yield times(self.C, product)
            product = times(self.A, product)


def times(left, right):
    return [
        [sum((a * b for a, b in zip(row, column)), Fraction(0)) for column in zip(*right)]
        for row in left
    ]


@st.composite
def drives(draw):
    states = draw(st.integers(1, 2))
    entry = st.sampled_from([0, 0, 1, -1, Fraction(1, 2), Fraction(1, 8), Fraction(-3, 4)])
    A = [[Fraction(draw(entry)) for _ in range(states)] for _ in range(states)]
    for i in range(states):
        A[i][i] = Fraction(draw(st.sampled_from([1, 1, Fraction(1, 2), Fraction(5, 4)])))
    outputs = draw(st.integers(1, states))
    C = [
        [Fraction(i == j or draw(st.integers(0, 1))) for j in range(states)] for i in range(outputs)
    ]
    scale = draw(st.sampled_from([1.0, 3.0])) * 2.0 ** draw(st.sampled_from([-40, -3, 0, 3, 40]))
    mu = [scale * draw(st.sampled_from([1.0, 1.0, 0.1, 0.0])) for _ in range(states)]
    return Drive(
        tuple(map(tuple, A)),
        tuple(map(tuple, C)),
        draw(st.integers(1, 6)),
        tuple(mu),
        draw(st.sampled_from(["time-local", "manifold"])),
        draw(st.sampled_from([0.1, 1.0, 10.0])),
        draw(st.sampled_from([1e-9, 1e-3, 0.1])),
        draw(st.sampled_from([None, None, 1e-3, 0.1])),
    )


@dataclass
class Recording:
    """Known η and known fresh noise; what the fresh noise is added to is seen."""

    draw: tuple[int, ...]
    fresh: list[int] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)


@dataclass
class _Source:
    """Stands for the fresh noise of one output."""

    recording: Recording

    def draw(self, words):
        return _Fresh(self.recording)


class _Fresh(int):
    """Stands for a drawn integer: sees what it is added to, and chooses the sum if asked to."""

    def __new__(cls, recording):
        made = super().__new__(cls, 0)
        made.recording = recording
        return made

    def __radd__(self, total):
        recording = self.recording
        recording.totals.append(int(total))
        place = len(recording.totals) - 1
        return recording.fresh[place] if recording.fresh else int(total)


def sent(mechanism, rows, recording, error):
    """Everything that a gateway sends, with known noise."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(
            Walk, "beginning", lambda self, s: partial(self._path.begin, recording.draw, self._bits)
        ),
        Gateway(
            mechanism,
            state=Path(folder) / "run.db",
            resolution="exact",
            measurement_error=error,
        ) as gateway,
    ):
        gateway._fresh = [_Source(recording)] * mechanism.domain.outputs
        return np.array([gateway.send(row) for row in rows])


def trajectory(drive, start):
    return [[sum(c * x for c, x in zip(row, start)) for row in matrix] for matrix in drive.powers()]


@st.composite
def starts(draw, drive, direction, offsets=(0, 1, 1e6)):
    """x(0) and a neighbour in fractions, such that all measurements are doubles; or None."""
    scale = max(abs(float(v)) for v in direction) or 1.0
    size = draw(st.sampled_from(offsets)) * scale
    unit = Fraction(2) ** (math.frexp(size or scale)[1] - 10)
    first = [draw(st.integers(-(2**10), 2**10)) * unit for _ in direction]
    # towards zero on a grid that is coarse enough for exact sums
    fine = Fraction(2) ** (math.frexp(scale)[1] - 22)
    move = [Fraction(int(Fraction(float(v)) / fine)) * fine for v in direction]
    second = [a + b for a, b in zip(first, move)]
    rows = [trajectory(drive, start) for start in (first, second)]
    if all(is_double(v) for part in rows for row in part for v in row):
        return rows, move
    return None


@pytest.mark.slow
@examples(12)
@given(st.data(), drives())
def test_what_a_gateway_sends(data, drive):
    """No bias, the stated noise at every step, and neighbours within the promise, exactly."""
    if not any(drive.mu):
        return
    mechanism, refusal = attempted(drive.mechanism)
    if refusal:
        event(f"design refused: {refusal[1][:50]}")
        return
    error = None if drive.error is None else drive.error * max(drive.mu)
    plan, refusal = attempted(
        gateway_plan, mechanism, sensor_of(mechanism.domain.output_names, "exact", error)
    )
    if refusal:
        event(f"plan refused: {refusal[1][:50]}")
        return
    found = data.draw(starts(drive, mechanism.guarantee.worst_direction))
    if found is None:
        return
    (rows, rows_too), move = found
    r = mechanism.strategy.start.shape[1]
    tau = [Fraction(float(scale)) for scale in plan.fresh_noise]
    values = [[[float(v) for v in row] for row in part] for part in (rows, rows_too)]
    zero = (0,) * r
    still, refusal = attempted(sent, mechanism, values[0], Recording(zero), error)
    if refusal:
        _, refusal_too = attempted(sent, mechanism, values[1], Recording(zero), error)
        demand(refusal_too is not None, "one neighbour is refused and the other is not")
        event(f"refused: {refusal[1][:50]}")
        return
    _no_bias(still, rows, tau)
    _response(drive, mechanism, plan, values[0], still, tau, error)
    _near(drive, mechanism, plan, values, move, tau, error)
    event("sent")


def _no_bias(still, rows, tau):
    """Without noise the measurements come out, rounded to a quarter of the fresh noise."""
    for t, row in enumerate(rows):
        for i, exact in enumerate(row):
            off = abs(Fraction(float(still[t, i])) - exact)
            room = tau[i] / 8 + tau[i] / 2**20 + abs(exact) / 2**52
            demand(off <= room, f"step {t}, output {i}: off by {float(off / tau[i]):.3g} τ")


def _response(drive, mechanism, plan, values, still, tau, error):
    """One unit of η_k moves the outputs by C A^t R e_k, enlarged by c ≥ 1."""
    demand(plan.noise_factor >= 1, "the noise is smaller than stated")
    root = [[Fraction(float(v)) for v in row] for row in mechanism.strategy.start]
    for k in range(mechanism.strategy.start.shape[1]):
        unit = tuple(GRID if j == k else 0 for j in range(mechanism.strategy.start.shape[1]))
        moved = sent(mechanism, values, Recording(unit), error)
        for t, matrix in enumerate(drive.powers()):
            expected = times(matrix, [[row[k]] for row in root])
            for i, (value,) in enumerate(expected):
                off = abs(Fraction(float(moved[t, i])) - Fraction(float(still[t, i])) - value)
                room = tau[i] / 3 + (abs(value) + abs(Fraction(float(still[t, i])))) / 2**50
                demand(off <= room, f"step {t}: one unit of noise moves output {i} otherwise")


def _meeting(drive, mechanism, move):
    """The shift of η that undoes a difference of x(0) in all outputs, nearly."""
    root = [[Fraction(float(v)) for v in row] for row in mechanism.strategy.start]
    powers = [row for matrix in drive.powers() for row in matrix]
    seen = times(powers, root)
    left = [row[0] for row in times(powers, [[v] for v in move])]
    # outputs of all sizes count; what a first solution leaves is solved for once more
    weights = [
        1 / max((abs(v) for v in row), default=Fraction(0)) if any(row) else 0 for row in seen
    ]
    matrix = np.array([[float(w * v) for v in row] for w, row in zip(weights, seen)])
    shift = [Fraction(0)] * len(root[0])
    for _ in range(3):
        solved, *_ = np.linalg.lstsq(
            matrix, np.array([float(w * v) for w, v in zip(weights, left)]), rcond=1e-13
        )
        step = [Fraction(float(v)) for v in solved]
        shift = [a + b for a, b in zip(shift, step)]
        left = [v - sum(a * b for a, b in zip(row, step)) for v, row in zip(left, seen)]
    return [int(v * GRID) for v in shift]


def _near(drive, mechanism, plan, values, move, tau, error):
    """A shift of η makes neighbours nearly equal; what is left is hidden by fresh noise.

    Then all that is sent is post-processing of Gaussian noise whose centres are
    √(‖shift‖² / c² + Σ (left / τ)²) apart, which the stated sensitivity bounds.
    """
    shift = _meeting(drive, mechanism, move)
    one, other = Recording((0,) * len(shift)), Recording(tuple(-v for v in shift))
    sent(mechanism, values[0], one, error)
    sent(mechanism, values[1], other, error)
    outputs = len(tau)
    left = [
        Fraction(b - a, plan.fresh_scales[k % outputs])
        for k, (a, b) in enumerate(zip(one.totals, other.totals))
    ]
    demand(len(left) == len(values[0]) * outputs, "fresh noise is added once to every number")
    correlated = sum(Fraction(v, GRID) ** 2 for v in shift) / Fraction(plan.noise_factor) ** 2
    fresh = sum(v**2 for v in left)
    # the pair lies on a grid: a little off the direction that the guarantee names
    worst = [Fraction(float(v)) for v in mechanism.guarantee.worst_direction]
    off = _meeting(drive, mechanism, [a - b for a, b in zip(move, worst)])
    beside = math.hypot(*off) / GRID + 1e-10 * mechanism.guarantee.sensitivity
    stated = (Fraction(mechanism.guarantee.sensitivity) + Fraction(beside)) ** 2
    if correlated + fresh > stated:
        raise Broken(
            f"neighbours are {math.sqrt((correlated + fresh) / stated):.12g} times as far apart "
            f"as promised ({float(fresh / stated):.3g} of it by rounding)"
        )
    # and with the same noisy numbers everything sent is the same
    target = [a + (k * 7919 - 5000) * 2**40 for k, a in enumerate(one.totals)]
    same = [
        sent(mechanism, part, Recording((0,) * len(shift), list(target)), error) for part in values
    ]
    demand(same[0].tobytes() == same[1].tobytes(), "neighbours look different to the last bit")


@only_long
@examples(1)
@given(drives(), st.integers(0, 2**32))
def test_statistics_of_gateways(drive, seed):
    """The stated noise at every step, and the worst pair is not told apart."""
    if not any(drive.mu):
        return
    mechanism, refusal = attempted(drive.mechanism)
    if refusal or attempted(gateway_plan, mechanism)[1]:
        return
    direction = [Fraction(float(v)) for v in mechanism.guarantee.worst_direction]
    pair = [trajectory(drive, start) for start in ([Fraction(0)] * len(direction), direction)]
    plan = gateway_plan(mechanism)
    published = []
    with seeded(seed):
        for rows in pair:
            values = [[float(v) for v in row] for row in rows]
            published.append(np.array([_really_sent(mechanism, values) for _ in range(120)]))
    maps = [np.array([[float(v) for v in row] for row in m]) for m in drive.powers()]
    noise = np.vstack([m @ mechanism.strategy.start for m in maps]) * plan.noise_factor
    fresh = np.tile(plan.fresh_noise, drive.horizon)
    noise = np.hstack([noise, np.diag(fresh)])
    truth = [[v for row in rows for v in row] for rows in pair]
    for part, exact in zip(published, truth):
        for i in range(len(exact)):
            ask_coverage(
                part[:, i : i + 1] + _dither(seed, len(part), fresh[i]),
                exact[i : i + 1],
                noise[i : i + 1],
                "gaussian",
                1.0,
                alarm(1) / 20 / len(exact),
                0.0,
            )
    ask_distinguishing(published, truth, noise, mechanism.guarantee, alarm(1) / 4, seed)


def _dither(seed, runs, fresh):
    """What is sent are multiples of τ/4: uniform noise within one of them hides that."""
    return (np.random.default_rng(seed).random((runs, 1)) - 0.5) * fresh / 4


def _really_sent(mechanism, values):
    with (
        tempfile.TemporaryDirectory() as folder,
        Gateway(mechanism, state=Path(folder) / "run.db", resolution="exact") as gateway,
    ):
        return np.concatenate([gateway.send(row) for row in values])
