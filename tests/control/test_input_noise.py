"""Noise for private inputs against dense covariances, published bounds and plain designs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special

import affinedp as adp
from affinedp.control import (
    ClosedLoop,
    aware_controller,
    design_input_noise,
    design_output_noise,
    eavesdropper,
    events_sensitivity,
    leak_after,
    noise_by_time,
)
from affinedp.control.by_time import sample_noise
from affinedp.exact.systems import LinearSystem
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.privacy.guarantee import promise
from affinedp.strategies.filter import Filter
from plants import building, quarter_car, room

EPSILON, DELTA = 1.0, 1e-4
LIMIT = float(adp.gaussian_sensitivity(EPSILON, DELTA))
PLANTS = {"room": room, "building": building, "quarter car": quarter_car}
Matrices = tuple[np.ndarray, ...]


def variance(m: Mechanism) -> float:
    """The mean over time, of all outputs together."""
    return m.strategy.mean_variance(m.noise)


def least(m: Mechanism) -> float:
    """Below which no stationary noise with this promise costs."""
    assert m.gap is not None
    return variance(m) / (1 + m.gap)


def others(m: Mechanism) -> dict[str, float]:
    """What the designs that everyone knows cost."""
    return {other.reason: other.error for other in m.alternatives}


@pytest.fixture(scope="module")
def designs() -> dict[str, Mechanism]:
    return {name: design_input_noise(plant(), EPSILON, DELTA) for name, plant in PLANTS.items()}


def response(plant: Matrices, steps: int) -> np.ndarray:
    """y after an impulse on each input, shape (steps, p, m), by hand."""
    A, E, C = plant
    found, state = [np.zeros((len(C), E.shape[1]))], E
    for _ in range(steps - 1):
        found.append(C @ state)
        state = A @ state
    return np.array(found)


def covariance(m: Mechanism, steps: int) -> np.ndarray:
    """Of γ(0), …, γ(steps − 1), from the filter's matrices, with a stationary start."""
    made = m.strategy.noise
    P = scipy.linalg.solve_discrete_lyapunov(made.A, made.B @ made.B.T)
    lags = [made.C @ P @ made.C.T + made.D @ made.D.T]
    reach = made.A @ P @ made.C.T + made.B @ made.D.T
    for _ in range(steps - 1):
        lags.append(made.C @ reach)
        reach = made.A @ reach
    p = made.outputs
    found = np.zeros((steps * p, steps * p))
    for t in range(steps):
        for s in range(steps):
            block = lags[t - s] if t >= s else lags[s - t].T
            found[t * p : (t + 1) * p, s * p : (s + 1) * p] = block
    return found * m.strategy.scale**2


@pytest.mark.parametrize(
    ("name", "wanted", "white"),
    [("room", 3.70, 40.70), ("building", 3.361, 8.295), ("quarter car", 0.51, 7.050)],
)
def test_variances(designs: dict[str, Mechanism], name: str, wanted: float, white: float) -> None:
    m = designs[name]
    assert m.guarantee.sensitivity <= LIMIT
    assert m.guarantee.holds(EPSILON, DELTA)
    assert variance(m) * LIMIT**2 <= wanted * 1.0005
    assert others(m)["white output noise"] * LIMIT**2 == pytest.approx(white, rel=1e-3)
    assert m.gap is not None
    assert m.gap <= 0.005


@pytest.mark.parametrize(("name", "steps"), [("room", 300), ("building", 70), ("quarter car", 250)])
def test_no_event_exceeds_the_promise(designs: dict[str, Mechanism], name: str, steps: int) -> None:
    """Brute force over all times of the event, before the start too, in dense linear algebra."""
    m = designs[name]
    h = response(PLANTS[name](), 3 * steps)
    inverse = np.linalg.inv(covariance(m, steps))
    worst = 0.0
    for event in range(-steps, steps - 1, max(1, steps // 40)):
        for i in range(h.shape[2]):
            seen = np.zeros((steps, h.shape[1]))
            first = max(event, 0)
            seen[first:] = h[first - event : steps - event, :, i]
            v = seen.ravel()
            worst = max(worst, math.sqrt(v @ inverse @ v))
    assert worst <= m.guarantee.sensitivity * (1 + 1e-6)
    assert worst >= 0.9 * m.guarantee.sensitivity


def test_skipped_steps_only_tell_less(designs: dict[str, Mechanism]) -> None:
    m, steps = designs["room"], 150
    full, h = covariance(m, steps), response(room(), steps)[:, 0, 0]
    rng = np.random.default_rng(0)
    for _ in range(10):
        kept = rng.random(steps) < 0.5
        v = h[kept]
        inside = v @ np.linalg.solve(full[np.ix_(kept, kept)], v)
        assert inside <= m.guarantee.sensitivity**2


def test_simulated_noise_has_the_stated_covariance(
    designs: dict[str, Mechanism],
) -> None:
    m = designs["building"]
    drawn = sample_noise(m, 20_000, 4, seed=0).reshape(20_000, -1)
    wanted = covariance(m, 4)
    assert np.abs(np.cov(drawn.T) - wanted).max() < 0.05 * wanted.max()
    rows = m.strategy.loadings(np.eye(12))
    assert np.allclose(rows @ rows.T, wanted, rtol=1e-6, atol=1e-9 * wanted.max())
    assert np.allclose(m.strategy.deviations(m.noise, 4) ** 2, noise_by_time(m)[-1] ** 2)


@pytest.mark.parametrize(("window", "wanted"), [(4, 9.29), (16, 20.3), (96, 37.6)])
def test_windows_of_bounded_energy(window: int, wanted: float) -> None:
    m = design_input_noise(room(), EPSILON, DELTA, window=window)
    assert least(m) * LIMIT**2 == pytest.approx(wanted, rel=2e-3)
    assert variance(m) <= min(1.04 * least(m), 1.0001 * others(m)["input perturbation"])
    # brute force: the worst pattern of the window, in dense linear algebra
    steps = window + 260
    h = response(room(), steps)[:, 0, 0]
    table = np.array([np.concatenate([np.zeros(j), h[: steps - j]]) for j in range(window)]).T
    square = table.T @ np.linalg.solve(covariance(m, steps), table)
    worst = math.sqrt(np.linalg.eigvalsh(square)[-1])
    assert 0.9 * m.guarantee.sensitivity <= worst <= m.guarantee.sensitivity * (1 + 1e-6)


def test_any_number_of_steps_is_input_perturbation() -> None:
    m = design_input_noise(building(), EPSILON, DELTA, window=math.inf)
    assert m.strategy.place == "input"
    assert variance(m) * LIMIT**2 == pytest.approx(7.256, rel=1e-3)
    assert m.guarantee.sensitivity == pytest.approx(LIMIT, rel=1e-12)


def test_fewer_private_inputs_than_outputs() -> None:
    A, E, C = building()
    m = design_input_noise((A, E[:, :1], C), EPSILON, DELTA)
    assert m.strategy.place == "input"
    assert least(m) * LIMIT**2 == pytest.approx(1.1995, rel=1e-3)
    assert variance(m) <= 1.003 * least(m)
    # the noise is the plant's answer to coloured noise: whiten at the input
    whitened = np.linalg.norm(m.strategy.shaper.inverse().impulse(3000).ravel()) / m.strategy.scale
    assert whitened == pytest.approx(m.guarantee.sensitivity, rel=1e-6)
    by_name = design_input_noise((A, E, C), EPSILON, DELTA, mu={"w1": 1.0})
    assert by_name.domain.names == ("w1",)
    assert variance(by_name) == pytest.approx(variance(m), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [1, "w2", [1], np.array([1]), range(1, 2)])
def test_inputs_by_number_or_name(chosen: Any) -> None:
    plant = ([[0.9]], [[1.0, 2.0]], [[1.0]])
    assert design_input_noise(plant, EPSILON, DELTA, inputs=chosen).adjacency.domain.names == (
        "w2",
    )


@pytest.mark.parametrize("chosen", [2, True, 1.0, None, "w3", []])
def test_inputs_that_are_not_there(chosen: Any) -> None:
    plant = ([[0.9]], [[1.0, 2.0]], [[1.0]])
    with pytest.raises(adp.AffineDPError, match="input"):
        design_input_noise(plant, EPSILON, DELTA, inputs=[chosen] if chosen is None else chosen)


@pytest.mark.parametrize("wrong", [None, 1.0, "noise.json", adp.iid_noise])
def test_what_is_no_noise(wrong: Any) -> None:
    loop = ClosedLoop(room(), [[0.5]], [[0.3]], [0.0], x0=[0.0])
    for take in (eavesdropper, noise_by_time, loop.plot, loop.report):
        with pytest.raises(adp.AffineDPError, match="noise on the outputs of a system"):
            take(wrong)


def test_forward_jumps_of_the_state() -> None:
    A, _, C = building()
    m = design_output_noise((A, C), math.inf, EPSILON, DELTA, mu=0.5, adjacency="forward")
    assert math.sqrt(variance(m) / 3) == pytest.approx(2.18, abs=0.005)
    assert m.adjacency.forward
    same = design_input_noise((A, np.eye(6), C), EPSILON, DELTA, mu=0.5)
    assert variance(same) == pytest.approx(variance(m), rel=1e-6)
    one = design_output_noise(room()[::2], 1000, EPSILON, DELTA, adjacency="forward")
    assert noise_by_time(one)[-1, 0] == pytest.approx(6.81, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 10, 100])
def test_forward_jumps_of_the_first_state_over_a_horizon(steps: int) -> None:
    """A jump of x(0) shows in all outputs, one more than an input at the first step."""
    m = design_output_noise(([[1.0]], [[1.0]]), steps, EPSILON, DELTA, adjacency="forward")
    g = m.strategy.noise.impulse(steps)[:, 0, 0] * m.strategy.scale
    d = scipy.linalg.solve_triangular(
        scipy.linalg.toeplitz(g, np.zeros(steps)), np.ones(steps), lower=True
    )
    assert np.linalg.norm(d) <= m.guarantee.sensitivity <= LIMIT
    assert np.linalg.norm(d) == pytest.approx(m.guarantee.sensitivity, rel=1e-6)


@pytest.mark.parametrize("plant", [room, building])
def test_forward_jumps_of_the_first_state_for_all_time(plant) -> None:
    """x(0) alone differs: all outputs show it, and noise in its stationary state hides it."""
    A, _, C = plant()
    steps, mu = 60, 0.5
    m = design_output_noise((A, C), math.inf, EPSILON, DELTA, mu=mu, adjacency="forward")
    G = m.strategy.noise
    start = scipy.linalg.solve_discrete_lyapunov(G.A, G.B @ G.B.T)
    shown = np.vstack([G.C @ np.linalg.matrix_power(G.A, t) for t in range(steps)])
    g = G.impulse(steps)
    p = len(C)
    past = np.zeros((steps * p, steps * g.shape[2]))
    for t in range(steps):
        for k in range(t + 1):
            past[t * p : (t + 1) * p, k * g.shape[2] : (k + 1) * g.shape[2]] = g[t - k]
    covariance = m.strategy.scale**2 * (shown @ start @ shown.T + past @ past.T)
    jumps = mu * np.vstack([C @ np.linalg.matrix_power(A, t) for t in range(steps)])
    found = np.linalg.norm(
        scipy.linalg.solve_triangular(np.linalg.cholesky(covariance), jumps, lower=True), axis=0
    )
    assert found.max() <= m.guarantee.sensitivity <= LIMIT
    assert found.max() > 0.5 * m.guarantee.sensitivity, "there is no output before to compare with"
    text = " ".join(str(m).split())
    assert "of the first state too" in text
    assert "all inputs and disturbances are the same for both" in text


@pytest.mark.slow
def test_weighted_outputs() -> None:
    plain = design_input_noise(building(), EPSILON, DELTA)
    weighted = design_input_noise(building(), EPSILON, DELTA, cost=[100.0, 1.0, 1.0])
    weights = np.array([100.0, 1.0, 1.0])
    assert weights @ noise_by_time(weighted)[-1] ** 2 < weights @ noise_by_time(plain)[-1] ** 2
    assert weighted.gap is not None
    assert weighted.gap <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "wanted"), [(256, 6.86), (4096, 12.4)])
def test_an_integrator_over_a_horizon(steps: int, wanted: float) -> None:
    integrator = ([[1.0]], [[1.0]], [[1.0]])
    m = design_input_noise(integrator, EPSILON, DELTA, horizon=steps + 1)
    assert m.guarantee.sensitivity <= LIMIT
    # y(0) does not see w: `steps` outputs do
    squares = (m.strategy.deviations(m.noise, steps) ** 2).sum(axis=1)
    assert squares.mean() * LIMIT**2 <= wanted
    assert squares[-1] <= noise_by_time(m)[-1, 0] ** 2
    # brute force: whiten the answer to an impulse at the first step
    g = m.strategy.noise.impulse(steps)[:, 0, 0] * m.strategy.scale
    d = scipy.linalg.solve_triangular(
        scipy.linalg.toeplitz(g, np.zeros(steps)), np.ones(steps), lower=True
    )
    assert np.linalg.norm(d) == pytest.approx(m.guarantee.sensitivity, rel=1e-6)
    assert others(m)["white output noise"] * LIMIT**2 == pytest.approx(steps)


@pytest.mark.parametrize("objective", ["sum", "largest"])
@pytest.mark.parametrize(
    ("plant", "least"),
    [
        ((np.eye(2), np.eye(2), np.eye(2), np.eye(2)), 2.0),
        (([[1.0]], [[1.0]], [[1.0], [3.0]], [[1.0], [3.0]]), 2.0),
        ((np.diag([1, 0.5]), [[1.0], [1.0]], np.eye(2), [[0.0], [1.0]]), 1.7),
    ],
    ids=["two totals", "one input", "two poles"],
)
def test_several_outputs_over_a_horizon(plant: Matrices, least: float, objective: Any) -> None:
    """The covariance of all outputs against every impulse; far less than white noise."""
    steps = 6
    m = design_input_noise(plant, EPSILON, DELTA, horizon=steps, objective=objective)
    rows = np.asarray(m.strategy.loadings())
    A, E, C, F = (np.array(part, dtype=float) for part in plant)
    taps = [F, *(C @ np.linalg.matrix_power(A, t) @ E for t in range(steps - 1))]
    longest = 0.0
    for start in range(steps):
        moves = np.vstack([np.zeros_like(F)] * start + taps[: steps - start])
        seen = np.linalg.lstsq(rows, moves, rcond=1e-9)[0]
        assert rows @ seen == pytest.approx(moves, abs=1e-9), "no move is without noise"
        longest = max(longest, *(seen**2).sum(axis=0))
    assert math.sqrt(longest) <= m.guarantee.sensitivity <= math.sqrt(longest) * (1 + 1e-6)
    variances = noise_by_time(m) ** 2
    own = variances.sum(axis=1).mean() if objective == "sum" else variances.max()
    assert others(m)["white output noise"] > least * own


@pytest.mark.parametrize("steps", [4, 20])
@pytest.mark.parametrize(
    "plant",
    [
        ([[1.0]], [[1.0]], [[1.0], [2.0]]),
        ([[1.0, 1.0], [0.0, 1.0]], [[0.0], [1.0]], np.eye(2)),
        (np.diag([1.0, 0.9]), np.eye(2), [[1.0, 0.3], [0.0, 1.0]]),
    ],
    ids=["one state twice", "place and speed", "two inputs"],
)
def test_outputs_that_private_inputs_move_together(plant: Matrices, steps: int) -> None:
    """Near the least of all covariances, for which any weights of the events give a bound."""
    m = design_input_noise(plant, EPSILON, DELTA, horizon=steps)
    A, E, C = (np.array(part, dtype=float) for part in plant)
    taps = [0 * C @ E, *(C @ np.linalg.matrix_power(A, t) @ E for t in range(steps - 1))]
    moves = np.hstack([
        np.vstack([np.zeros_like(taps[0])] * start + taps[: steps - start])
        for start in range(steps - 1)
    ])  # fmt: skip
    weights = np.full(moves.shape[1], 1 / moves.shape[1])
    for _ in range(300):
        _, sizes, right = np.linalg.svd(moves * np.sqrt(weights), full_matrices=False)
        weights = np.einsum("ki,k,ki->i", right, sizes, right) / sizes.sum()
    least = (sizes.sum() / LIMIT) ** 2
    assert least < (noise_by_time(m) ** 2).sum() < 1.15 * least


@pytest.mark.parametrize(
    "plant", [([[1.0]], [[1.0], [3.0]]), ([[1.0, 0.1], [0.0, 1.0]], np.eye(2))]
)
def test_a_jump_of_the_first_state_is_hidden_on_several_outputs(plant: Matrices) -> None:
    """Noise that drives the plant would begin after it."""
    A, C = (np.array(part, dtype=float) for part in plant)
    steps = 5
    m = design_output_noise(plant, steps, EPSILON, DELTA, adjacency="forward")
    rows = np.asarray(m.strategy.loadings())
    moves = np.vstack([C @ np.linalg.matrix_power(A, t) for t in range(steps)])
    seen = np.linalg.lstsq(rows, moves, rcond=1e-9)[0]
    assert rows @ seen == pytest.approx(moves, abs=1e-9)
    assert np.linalg.norm(seen, axis=0).max() <= m.guarantee.sensitivity * (1 + 1e-9)
    driven = Filter(m.adjacency.domain, LinearSystem.static(4 * np.eye(len(A))), "input")
    with pytest.raises(adp.AffineDPError, match="jump of the first state"):
        promise(m.adjacency, driven, Gaussian())


def test_noise_that_moves_as_an_integrator_does() -> None:
    """It is drawn by time, where it has no spectrum, and no constant gain takes it off again."""
    plant = (np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]]), np.eye(2))
    m = design_input_noise(plant, EPSILON, DELTA, horizon=30)
    assert m.strategy.place == "input"
    axes = m.plot().axes[-1]
    drawn = np.array([line.get_ydata() for line in axes.lines[:2]]).T
    assert drawn == pytest.approx(noise_by_time(m))
    with pytest.raises(adp.AffineDPError, match="forgets nothing"):
        aware_controller(plant, m, state_cost=1, input_cost=1, process_covariance=0.01)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_the_unit_of_the_output_does_not_matter(unit: float) -> None:
    plain = design_input_noise(([[0.9]], [[1.0]], [[1.0]], [[0.5]]), EPSILON, DELTA)
    m = design_input_noise(([[0.9]], [[1.0]], [[unit]], [[0.5 * unit]]), EPSILON, DELTA)
    assert noise_by_time(m) == pytest.approx(unit * noise_by_time(plain), rel=1e-9)


@pytest.mark.parametrize(
    ("F", "mu"),
    [([[0.0, 1.0]], 1.0), ([[0.0, 2e-27, -1e-14]], 1.0), ([[1e-30], [2e-37], [2e24]], 1e57)],
    ids=["nothing", "hardly anything", "huge"],
)
def test_inputs_that_do_nothing_or_much(F: Any, mu: float) -> None:
    shape = np.shape(F)
    plant = (np.zeros((1, 1)), np.zeros((1, shape[1])), np.zeros((shape[0], 1)), np.array(F))
    words = {"mu": mu, "window": 2, "horizon": 1, "objective": "largest"}
    m = design_input_noise(plant, EPSILON, DELTA, **words)
    largest = mu * float(np.linalg.norm(F, axis=0).max()) / LIMIT
    assert noise_by_time(m).max() == pytest.approx(largest, rel=1e-9)


@pytest.mark.parametrize(
    ("plant", "steps"),
    [
        (([[1.0]], [[1.0]], [[1.0]], [[1.0]]), 9),
        (([[1.0]], [[1.0]], [[1.0]]), 12),
        (([[1.0, 0.5], [0.0, 0.4]], [[0.0], [1.0]], [[1.0, 0.8]]), 10),
        (([[1.0, 0.2], [0.0, -0.6]], [[0.0], [1.0]], [[1.0, 1.0]]), 11),
    ],
)
def test_the_least_largest_variance_of_a_filter(plant: Matrices, steps: int) -> None:
    """No impulse response, free in every tap, does better than the bound; the best comes near."""
    mu = 0.7
    m = design_input_noise(plant, EPSILON, DELTA, mu, horizon=steps, objective="largest")
    largest = noise_by_time(m).max() ** 2
    assert m.gap is not None
    assert m.design.error == pytest.approx(largest, rel=1e-6)
    least = m.design.error / (1 + m.gap) * LIMIT**2
    A, E, C = (np.array(part) for part in plant[:3])
    taps = [0.0 if len(plant) == 3 else 1.0]
    taps += [(C @ np.linalg.matrix_power(A, k) @ E).item() for k in range(steps - 1)]
    h = mu * np.array(taps[np.flatnonzero(taps)[0] :])

    def cost(free: np.ndarray) -> float:
        g = np.concatenate([[1.0], free])
        matrix = scipy.linalg.toeplitz(g, np.zeros(len(h)))
        d = scipy.linalg.solve_triangular(matrix, h, lower=True)
        return float(g @ g) * float(d @ d)

    rng = np.random.default_rng(0)
    found = min(
        scipy.optimize.minimize(cost, rng.normal(size=len(h) - 1) * size).fun
        for size in (0.0, 0.1, 0.3, 0.5)
    )
    assert least * (1 - 1e-9) <= found <= least * (1 + 1e-5)
    assert m.gap <= 0.05, "the noise of so few steps, too, is made by a filter of low order"


def test_largest_variances_without_a_bound() -> None:
    """Where the root of the response has zeros in the unit disc none is claimed."""
    plant = ([[1.0, 0.0], [0.0, -0.9]], [[1.0], [1.0]], [[1.0, -1.5]])
    m = design_input_noise(plant, EPSILON, DELTA, horizon=16, objective="largest")
    assert m.gap is None
    assert m.design.error == pytest.approx(noise_by_time(m).max() ** 2, rel=1e-6)
    assert m.design.error <= others(m)["white output noise"]
    summed = design_input_noise(plant, EPSILON, DELTA, horizon=16)
    assert noise_by_time(m).max() <= noise_by_time(summed).max()


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "blt"), [(256, 8.014852), (1024, 10.709813)])
def test_running_totals_with_the_least_largest_variance(steps: int, blt: float) -> None:
    """Beside jax-privacy's BLT of order 5, and Landau's constant."""
    totals = ([[1.0]], [[1.0]], [[1.0]], [[1.0]])
    m = design_input_noise(totals, EPSILON, DELTA, horizon=steps, objective="largest")
    places = np.arange(steps)
    landau = (scipy.special.binom(-0.5, places) ** 2).sum() ** 2
    own = noise_by_time(m).max() ** 2 * m.guarantee.sensitivity**2
    assert m.guarantee.sensitivity <= LIMIT
    assert landau <= own <= min(landau * (1 + 1e-5), blt * (1 + 1e-6))


def test_the_least_largest_variance_of_several_outputs() -> None:
    """Noise that is the same at all times: the worst output has less than with the least sum."""
    A, E, C = building()
    plant = (A, E, np.diag([1.0, 3.0, 0.3]) @ C)
    summed = design_input_noise(plant, EPSILON, DELTA)
    even = design_input_noise(plant, EPSILON, DELTA, objective="largest")
    largest = noise_by_time(even).max()
    assert largest <= noise_by_time(summed).max()
    assert even.design.error == pytest.approx(largest**2, rel=1e-6)
    # no noise does better on the second output alone
    alone = design_input_noise((A, E, plant[2][1:2]), EPSILON, DELTA)
    assert least(alone) <= largest**2 * (1 + 1e-9)
    assert even.gap is not None
    assert even.gap < 0.01
    with pytest.raises(adp.AffineDPError, match="objective='sum'"):
        design_input_noise(plant, EPSILON, DELTA, cost=[1, 1, 1], objective="largest")
    with pytest.raises(adp.AffineDPError, match="'largest'"):
        design_input_noise(plant, EPSILON, DELTA, objective="mean")


TOTALS = ([[1.0]], [[1.0]], [[1.0]], [[1.0]])


@pytest.fixture(scope="module")
def twelve() -> adp.Mechanism:
    """The noise of twelve running totals."""
    return design_input_noise(TOTALS, EPSILON, DELTA, horizon=12)


@pytest.mark.parametrize("horizon", [2, 3, 5, 8])
def test_few_running_totals(horizon: int, twelve: adp.Mechanism) -> None:
    """The square root of the sum has the least largest variance over any number of steps."""
    even = design_input_noise(TOTALS, EPSILON, DELTA, horizon=horizon, objective="largest")
    square = sum((math.comb(2 * k, k) / 4**k) ** 2 for k in range(horizon)) ** 2
    limit = even.guarantee.sensitivity**2
    assert noise_by_time(even).max() ** 2 * limit == pytest.approx(square, rel=1e-4)
    summed = design_input_noise(TOTALS, EPSILON, DELTA, horizon=horizon)
    prefix = (noise_by_time(twelve)[:horizon] ** 2).mean()  # holds for the first steps, too
    assert summed.design.error <= prefix * (1 + 1e-6)


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e12])
def test_the_units_of_inputs_and_states_do_not_matter(unit: float) -> None:
    A, C = [[0.98, 0.1], [0.0, 0.5]], [[1.0, 0.0]]
    wanted = noise_by_time(design_input_noise((A, [[0.0], [0.5]], C), EPSILON, DELTA, mu=0.1))
    inputs = design_input_noise((A, [[0.0], [0.5 * unit]], C), EPSILON, DELTA, mu=0.1 / unit)
    hidden = [[0.98, 0.1 / unit], [0.0, 0.5]], [[0.0], [0.5 * unit]], C
    states = design_input_noise(hidden, EPSILON, DELTA, mu=0.1)
    for m in (inputs, states):
        assert noise_by_time(m) == pytest.approx(wanted, rel=1e-6)


def test_the_first_output_shows_what_came_before() -> None:
    late = ([[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], [[1.0, 0.0]])
    for plant in (([[0.9]], [[1.0]], [[1.0]]), late):
        first = design_input_noise(plant, EPSILON, DELTA, horizon=1)
        always = design_input_noise(plant, EPSILON, DELTA)
        assert noise_by_time(first) == pytest.approx(noise_by_time(always))


def test_a_horizon_that_shows_nothing() -> None:
    with pytest.raises(adp.AffineDPError, match="no noise is needed"):
        design_input_noise(([[1.0]], [[1.0]], [[1.0]]), EPSILON, DELTA, horizon=1)
    design_input_noise(([[1.0]], [[1.0]], [[1.0]], [[1.0]]), EPSILON, DELTA, horizon=1)


def test_plants_for_which_there_is_no_such_noise() -> None:
    unstable = ([[1.05]], [[1.0]], [[1.0]])
    with pytest.raises(adp.AffineDPError, match=r"1\.05.*local loop"):
        design_input_noise(unstable, EPSILON, DELTA)
    with pytest.raises(adp.AffineDPError, match="horizon"):
        design_input_noise(([[1.0]], [[1.0]], [[1.0]]), EPSILON, DELTA)
    with pytest.raises(adp.AffineDPError, match="no noise is needed"):
        design_input_noise(([[0.5, 0], [0, 0.5]], [[1.0], [0]], [[0.0, 1]]), EPSILON, DELTA)
    # an unstable mode that no private input reaches, or no output shows, does no harm
    for plant in (
        ([[0.5, 0], [0, 1.1]], [[1.0], [0]], [[1.0, 1.0]]),
        ([[0.5, 0], [0.3, 1.1]], [[1.0], [0]], [[1.0, 0.0]]),
    ):
        assert design_input_noise(plant, EPSILON, DELTA).guarantee.holds(EPSILON, DELTA)
    for wrong in (
        {"window": 0},
        {"mu": -1},
        {"inputs": ["w7"]},
        {"mu": {"q": 1}},
    ):
        with pytest.raises(adp.AffineDPError):
            design_input_noise(room(), EPSILON, DELTA, **wrong)


def test_never_worse_than_white_or_input_perturbation() -> None:
    rng = np.random.default_rng(5)
    for _ in range(6):
        n, m, p = rng.integers(1, 5), rng.integers(1, 3), rng.integers(1, 3)
        A = rng.normal(size=(n, n))
        A *= rng.uniform(0.3, 0.97) / np.abs(np.linalg.eigvals(A)).max()
        plant = (A, rng.normal(size=(n, m)), rng.normal(size=(p, n)))
        found = design_input_noise(plant, EPSILON, DELTA, mu=rng.uniform(0.5, 2, m))
        assert found.guarantee.sensitivity <= LIMIT
        assert variance(found) <= min(others(found).values()) * (1 + 1e-9)
        assert found.gap is not None


def test_saved_and_certified_again(designs: dict[str, Mechanism], tmp_path: Path) -> None:
    for name, m in designs.items():
        file = tmp_path / f"{name}.json"
        m.save(file)
        again = Mechanism.load(file)
        assert again.fingerprint == m.fingerprint
        assert again.guarantee.sensitivity == m.guarantee.sensitivity
        trusted = Mechanism.load(file, reverify=False)
        assert any("NOT verified" in warning for warning in trusted.guarantee.warnings)
    text = file.read_text(encoding="utf-8")
    smaller = text.replace(repr(m.strategy.scale), repr(m.strategy.scale * 0.9))
    assert smaller != text
    file.write_text(smaller, encoding="utf-8")
    with pytest.raises(adp.AffineDPError):
        Mechanism.load(file)


def test_several_events(designs: dict[str, Mechanism]) -> None:
    m = designs["room"]
    s = m.guarantee.sensitivity
    h, steps = response(room(), 900)[:, 0, 0], 900
    inverse = np.linalg.inv(covariance(m, steps))
    for events, apart in ((2, 1), (5, 24), (8, 96)):
        v = sum(
            np.concatenate([np.zeros(j * apart), h[: steps - j * apart]]) for j in range(events)
        )
        truth = math.sqrt(v @ inverse @ v)
        assert truth <= events_sensitivity(m, events, apart) <= events * s
    assert leak_after(m, 96) == pytest.approx(0.008, abs=0.001)
    assert leak_after(m, 1) <= 1.0


def test_each_input_is_certified(designs: dict[str, Mechanism]) -> None:
    """The energies of the whitened responses, from a long simulation in floating point."""
    m = designs["building"]
    h = response(building(), 6000)
    found = m.strategy.squared_sensitivities(m.adjacency)
    undone = m.strategy.shaper.inverse()
    if m.strategy.place == "input":
        seen = (undone.impulse(6000) ** 2).sum(axis=(0, 1))
    else:
        state, seen = np.zeros((undone.order, 3)), np.zeros(3)
        for t in range(6000):
            seen += ((undone.C @ state + undone.D @ h[t]) ** 2).sum(axis=0)
            state = undone.A @ state + undone.B @ h[t]
    assert np.all(found >= seen * (1 - 1e-12))
    assert found == pytest.approx(seen, rel=1e-5)


def test_reports(designs: dict[str, Mechanism]) -> None:
    text = " ".join(str(designs["building"]).split())
    for words in ("hidden", "shared", "needs", "feedback lemma", "also before the first", "zCDP"):
        assert words in text
    assert designs["room"].plot().axes
