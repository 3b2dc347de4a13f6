"""The stream of stationary noise against exact arithmetic and the promise it was certified for."""

from fractions import Fraction

import numpy as np
import pytest

from affinedp.control.stationary.certificate import (
    NoCertificateError,
    energy_certificate,
    start_certificate,
)
from affinedp.control.stationary.filters import Filter
from affinedp.control.stationary.inputs import private_inputs
from affinedp.control.stationary.path import StationaryPath, loading, path_bits
from affinedp.control.stationary.promise import stationary_promise, whitened
from affinedp.control.stationary.record import StationaryNoise

ROOM = ([[0.99]], [[0.9]], [[1.0]])
SHAPER = Filter.of([[0.97, 0.0], [0.1, 0.7]], [[0.5], [0.1]], [[0.4, 0.3]], [[1.0]])


def room_noise(shaper: Filter = SHAPER, scale: float = 1.5) -> StationaryNoise:
    room = private_inputs(ROOM, mu=1.0)
    start = start_certificate(shaper.exact()).root
    promise = stationary_promise(room, shaper, "output", scale, start)
    return StationaryNoise(room, promise, shaper, "output", scale, start)


def test_whitening_that_explodes_is_refused() -> None:
    """G = 1 − 2z⁻¹ has no stable inverse, whatever a reduced realisation says."""
    explodes = Filter.of([[0.0]], [[1.0]], [[-2.0]], [[1.0]])
    with pytest.raises(NoCertificateError):
        room_noise(explodes)
    # also where the plant has a zero that would cancel the pole in a reduced realisation
    plant = private_inputs(([[0.0]], [[1.0]], [[-2.0]], [[1.0]]), mu=1.0)
    with pytest.raises(NoCertificateError, match="die out"):
        stationary_promise(plant, explodes, "output", 1.0, np.array([[2.0]]))


def test_energy_is_a_bound_and_nearly_the_sum() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        A = rng.normal(size=(5, 5))
        A *= 0.95 / np.abs(np.linalg.eigvals(A)).max()
        system = Filter.of(A, rng.normal(size=(5, 2)), rng.normal(size=(3, 5)), np.ones((3, 2)))
        proof = energy_certificate(system.exact())
        summed = (system.impulse(3000) ** 2).sum(axis=(0, 1))
        for i in range(2):
            assert summed[i] * (1 - 1e-9) <= float(proof.of(i)) <= summed[i] * (1 + 1e-6)


def test_a_start_below_the_stationary_law_is_refused() -> None:
    room, start = private_inputs(ROOM, mu=1.0), start_certificate(SHAPER.exact()).root
    with pytest.raises(NoCertificateError, match="before the start"):
        stationary_promise(room, SHAPER, "output", 1.5, start * 0.999)
    with pytest.raises(NoCertificateError, match="at rest"):
        stationary_promise(room, SHAPER, "output", 1.5, None)


def test_stream_follows_the_exact_filter() -> None:
    noise = room_noise()
    exponents, draw_bits = [-70], 20
    path = StationaryPath(noise, path_bits(noise, exponents))
    rng = np.random.default_rng(1)
    eta = [int(v) for v in rng.integers(-(2**21), 2**21, path.once)]
    numbers = path.begin(eta, draw_bits)
    assert noise.start is not None
    state = [
        sum(Fraction(float(r)) * e for r, e in zip(row, eta)) / 2**draw_bits for row in noise.start
    ]
    exact = [[[Fraction(float(v)) for v in row] for row in m] for m in (SHAPER.A, SHAPER.B)]
    for t in range(300):
        zeta = [int(rng.integers(-(2**21), 2**21))]
        drawn = Fraction(zeta[0], 2**draw_bits)
        wanted = sum(Fraction(float(c)) * x for c, x in zip(SHAPER.C[0], state)) + drawn
        found = path.row(t, numbers, zeta, draw_bits, exponents)
        assert abs(found[0] - wanted * 2**70) <= 1.5
        numbers = path.advance(t, numbers, zeta, draw_bits)
        state = [
            sum(a * x for a, x in zip(row, state)) + b[0] * drawn
            for row, b in zip(exact[0], exact[1])
        ]
    assert max(map(abs, numbers)).bit_length() < path_bits(noise, exponents) + 20


@pytest.mark.parametrize("event", [-25, -3, 0, 40])
def test_replay_under_a_neighbour(event: int) -> None:
    """The same published integers under another w: what ζ and η would have been, under feedback.

    For a scalar output D = 1, so the published integer determines ζ of the neighbour.
    """
    noise = room_noise()
    draw_bits, exponents, steps = 56, [-56], 700
    path = StationaryPath(noise, path_bits(noise, [-80]))
    rng = np.random.default_rng(7)
    w = {t: 0.2 * float(rng.normal()) for t in range(-40, steps)}
    moved = {**w, event: w[event] + 1.0}
    eta = [round(float(v) * 1.5 * 2**draw_bits) for v in rng.normal(size=path.once)]
    drawn = [round(float(v) * 1.5 * 2**draw_bits) for v in rng.normal(size=steps)]

    def run(
        inputs: dict[int, float], eta: list[int], published: list[int] | None
    ) -> tuple[list[int], list[int]]:
        x = Fraction(20)
        for t in range(-40, 0):
            x = Fraction(0.99) * x + Fraction(0.9) * Fraction(inputs[t])
        numbers, sent, used, u = path.begin(eta, draw_bits), [], [], 0
        for t in range(steps):
            y = round(x * 2**56)
            rest = path.row(t, numbers, [0], draw_bits, exponents)[0]
            zeta = drawn[t] if published is None else published[t] - y - rest
            out = y + rest + zeta
            numbers = path.advance(t, numbers, [zeta], draw_bits)
            sent.append(out)
            used.append(zeta)
            u = -(out >> 57) % 7  # steered by what was sent
            x = Fraction(0.99) * x + Fraction(0.9) * (Fraction(inputs[t]) + Fraction(u, 8))
            x = Fraction(round(x * 2**90), 2**90)
        return sent, used

    published, first = run(w, eta, None)
    # before the start: what the event would have done to ζ then moves the memory now
    whitener = whitened(noise.neighbours, noise.shaper, "output").floats()
    d = whitener.impulse(max(0, -event) + 1)[:, 0, 0]
    shift = np.zeros(2)
    for t in range(max(0, -event)):
        shift = SHAPER.A @ shift + SHAPER.B[:, 0] * -d[t]
    assert noise.start is not None
    eta_shift = np.linalg.solve(noise.start, shift)
    eta_moved = [e + round(float(v) * 2**draw_bits) for e, v in zip(eta, eta_shift)]
    again, second = run(moved, eta_moved, published)
    assert again == published
    change = np.array([float(b - a) for a, b in zip(first, second)]) / 2**draw_bits
    total = np.sqrt((change**2).sum() + (eta_shift**2).sum()) / noise.scale
    assert total <= noise.guarantee.sensitivity * (1 + 1e-9)
    if event >= 0:
        assert total > 0.999 * noise.guarantee.sensitivity


def test_loading_bounds_every_sum_of_responses() -> None:
    noise = room_noise()
    made = noise.filter
    assert noise.start is not None
    sums = np.abs(made.impulse(4000)).sum(axis=(0, 2))
    power, at_start = np.eye(2), 0.0
    for _ in range(4000):
        at_start = max(at_start, float(np.abs(made.C @ power @ noise.start).sum()))
        power = made.A @ power
    assert np.all(loading(noise) >= sums + at_start)
