"""The stream of stationary noise against exact arithmetic and the promise it was certified for."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from affinedp.errors import AffineDPError
from affinedp.exact.systems import LinearSystem, energy_certificate, start_certificate
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Laplace
from affinedp.neighbours.inputs import Inputs, private_inputs
from affinedp.privacy.guarantee import promise
from affinedp.strategies.filter import Filter

ROOM = ([[0.99]], [[0.9]], [[1.0]])
SHAPER = LinearSystem([[0.97, 0.0], [0.1, 0.7]], [[0.5], [0.1]], [[0.4, 0.3]], [[1.0]])


def room_noise(shaper: LinearSystem = SHAPER, scale: float = 1.5) -> Filter:
    start = start_certificate(shaper.exact()).root
    return Filter(private_inputs(ROOM, mu=1.0).domain, shaper, "output", scale, start)


def sensitivity(made: Filter) -> float:
    return promise(Inputs(made.domain, np.ones(1)), made, Gaussian()).sensitivity


def test_whitening_that_explodes_is_refused() -> None:
    """G = 1 − 2z⁻¹ has no stable inverse, whatever a reduced realisation says."""
    explodes = LinearSystem([[0.0]], [[1.0]], [[-2.0]], [[1.0]])
    with pytest.raises(AffineDPError):
        sensitivity(room_noise(explodes))
    # also where the plant has a zero that would cancel the pole in a reduced realisation
    plant = private_inputs(([[0.0]], [[1.0]], [[-2.0]], [[1.0]]), mu=1.0)
    with pytest.raises(AffineDPError, match="die out"):
        promise(plant, Filter(plant.domain, explodes, start=[[2.0]]), Gaussian())


def test_energy_is_a_bound_and_nearly_the_sum() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        A = rng.normal(size=(5, 5))
        A *= 0.95 / np.abs(np.linalg.eigvals(A)).max()
        system = LinearSystem(A, rng.normal(size=(5, 2)), rng.normal(size=(3, 5)), np.ones((3, 2)))
        proof = energy_certificate(system.exact())
        summed = (system.impulse(3000) ** 2).sum(axis=(0, 1))
        for i in range(2):
            assert summed[i] * (1 - 1e-9) <= float(proof.of(i)) <= summed[i] * (1 + 1e-6)


def test_a_start_below_the_stationary_law_is_refused() -> None:
    made = room_noise()
    with pytest.raises(AffineDPError, match="before the start"):
        sensitivity(replace(made, start=made.start * 0.999))
    with pytest.raises(AffineDPError, match="at rest"):
        sensitivity(replace(made, start=None))


def test_stream_follows_the_exact_filter() -> None:
    noise = room_noise()
    exponents, draw_bits = [-70], 20
    path = noise.path(noise.path_bits(exponents))
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
    assert max(map(abs, numbers)).bit_length() < noise.path_bits(exponents) + 20


@pytest.mark.parametrize("event", [-25, -3, 0, 40])
def test_replay_under_a_neighbour(event: int) -> None:
    """The same published integers under another w: what ζ and η would have been, under feedback.

    For a scalar output D = 1, so the published integer determines ζ of the neighbour.
    """
    noise = room_noise()
    draw_bits, exponents, steps = 56, [-56], 700
    path = noise.path(noise.path_bits([-80]))
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
    whitener = noise.whitened.floats()
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
    assert total <= sensitivity(noise) * (1 + 1e-9)
    if event >= 0:
        assert total > 0.999 * sensitivity(noise)


def test_loading_bounds_every_sum_of_responses() -> None:
    noise = room_noise()
    made = noise.noise
    assert noise.start is not None
    sums = np.abs(made.impulse(4000)).sum(axis=(0, 2))
    power, at_start = np.eye(2), 0.0
    for _ in range(4000):
        at_start = max(at_start, float(np.abs(made.C @ power @ noise.start).sum()))
        power = made.A @ power
    assert np.all(noise.loading() >= sums + at_start)


@pytest.mark.parametrize("steps", [1, 7, 60])
def test_loading_over_a_horizon_where_nothing_is_forgotten(steps: int) -> None:
    """Every number ever drawn, and every rounding of the memory in its worst direction."""
    plant = ([[1.0, 0.1], [0.0, 1.0]], [[0.005], [0.1]], [[1.0, 0.0], [3.0, 1.0]], [[0.0], [2.0]])
    domain = private_inputs(plant, mu=1.0, horizon=steps).domain
    noise = Filter(domain, LinearSystem([[0.9]], [[1.0]], [[-0.5]], [[1.0]]), "input")
    made = noise.noise
    rows = [made.C @ np.linalg.matrix_power(made.A, k) for k in range(steps)]
    rounded = np.linalg.norm(rows, axis=2).sum(axis=0)
    assert np.all(rounded <= noise.response_bound)
    assert np.all(noise.response_bound <= 10 * max(steps, 10) * rounded)
    assert np.all(noise.loading() >= np.abs(made.impulse(steps)).sum(axis=(0, 2)))


def test_what_is_measured_and_of_which_noise_outputs_are_made() -> None:
    """Over some steps: the noise that undoes an event, and outputs that are made of noise."""
    noise, steps = room_noise(), 8
    move = np.zeros((steps, 1))
    move[2] = 1.0
    moved = np.zeros(steps)
    moved[3:] = 0.9 * 0.99 ** np.arange(steps - 3)
    rows = noise.loadings(np.eye(steps))[:, noise.noise.order :]
    assert np.allclose(rows @ noise.measure(move)[:, 0], moved)
    assert np.all(noise.measure(np.abs(move), absolute=True) >= np.abs(noise.measure(move)))
    with pytest.raises(AffineDPError, match="certified for private inputs"):
        promise(Inputs(noise.domain, np.ones(1)), noise, Laplace())


def test_a_subclass_that_moves_more_is_not_answered_by_its_parent() -> None:
    class More(Inputs):
        pass

    made = room_noise()
    with pytest.raises(AffineDPError, match="certified for private inputs"):
        promise(More(made.domain, np.ones(1)), made, Gaussian())
