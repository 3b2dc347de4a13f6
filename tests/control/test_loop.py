"""The closed loop against python-control, against its equations solved at once, and by chance."""

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag, solve_discrete_are

import control
from affinedp.control.by_time import sample_noise
from affinedp.control.closed_loop import ClosedLoop, sweep
from affinedp.control.output_noise import trajectory_neighbours
from affinedp.domains.dynamics import dynamics_of
from affinedp.errors import AffineDPError
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.strategies.trajectory import Fresh, Trajectory

TS = 0.1
VEHICLE = (np.array([[1, TS], [0, 1]]), np.array([[TS**2 / 2], [TS]]), np.array([[1.0, 0.0]]))
GAINS = ([[3.4240, 4.3095]], [[0.8266], [0.6973]])


def structured(dynamics, root):
    """Noise with any root; what it promises does not matter here."""
    neighbours = trajectory_neighbours(dynamics, 1.0, "time-local")
    return Mechanism(neighbours, Trajectory(dynamics, root), Gaussian())


def fresh(dynamics, sigma):
    neighbours = trajectory_neighbours(dynamics, 1.0, "time-local")
    return Mechanism(neighbours, Fresh(dynamics, sigma), Gaussian())


def paid(cost, noise):
    return np.trace(cost @ noise.strategy.start @ noise.strategy.start.T)


def vehicle_reference(t):
    return np.tanh(t), 1 - abs(np.tanh(t - 9))


def vehicle_loop(**more):
    return ClosedLoop(VEHICLE, *GAINS, vehicle_reference, x0=[-20, 0], **more)


def random_loop(seed=3, n=3, k=2, m=2):
    """Feedthrough, several inputs and outputs, a reference that moves, an observer that is off."""
    generator = np.random.default_rng(seed)
    A = np.linalg.qr(generator.normal(size=(n, n)))[0]
    B, C, D = (generator.normal(size=shape) for shape in ((n, k), (m, n), (m, k)))
    return ClosedLoop.lqg(
        control.ss(A, B, C, D, True),
        np.cumsum(generator.normal(size=(40, n)), axis=0),
        state_cost=1.0,
        input_cost=2.0,
        process_covariance=1.0,
        measurement_covariance=3.0,
        x0=generator.normal(size=n),
        xhat0=generator.normal(size=n),
    )


LOOPS = {"vehicle": vehicle_loop, "random": random_loop}


@pytest.fixture(params=LOOPS)
def loop(request):
    return LOOPS[request.param]()


def equations(loop, steps):
    """Return the map from what drives the loop to (x, x̂, u) at all times, by one solve.

    Unknowns are x(0..steps), x̂(0..steps), u(0..steps−1); the equations are the loop's, as written.
    Columns: constant part, γ by (time, output), w by (time, state).
    """
    plant, K, L = loop.plant, loop.feedback, loop.observer
    A, B, C, D = plant.A, plant.B, plant.C, plant.D
    n, k, m = plant.states, plant.inputs, plant.outputs
    x = np.arange((steps + 1) * n).reshape(steps + 1, n)
    hat = x.size + x
    u = 2 * x.size + np.arange(steps * k).reshape(steps, k)
    size = 2 * x.size + u.size
    left, right = np.eye(size), np.zeros((size, 1 + steps * (m + n)))
    right[x[0], 0], right[hat[0], 0] = loop.x0, loop.xhat0
    references = loop.references(steps)
    for t in range(steps):
        gamma = 1 + t * m + np.arange(m)
        w = 1 + steps * m + t * n + np.arange(n)
        left[np.ix_(u[t], hat[t])] += K
        right[u[t], 0] = K @ references[t]
        left[np.ix_(x[t + 1], x[t])] -= A
        left[np.ix_(x[t + 1], u[t])] -= B
        right[x[t + 1], w] = 1.0
        # x̂(t+1) = A x̂ + B u + L (C x + D u + γ − C x̂ − D u)
        left[np.ix_(hat[t + 1], hat[t])] -= A - L @ C
        left[np.ix_(hat[t + 1], u[t])] -= B + L @ D - L @ D
        left[np.ix_(hat[t + 1], x[t])] -= L @ C
        right[np.ix_(hat[t + 1], gamma)] = L
    solved = np.linalg.solve(left, right)
    parts = np.split(solved, [x.size, 2 * x.size])
    return [part.reshape(-1, width, right.shape[1]) for part, width in zip(parts, (n, n, k))]


def brute_mean_squares(loop, steps, gamma_covariance=None, w_covariance=None):
    """Mean squares from the solved equations; covariances over all times together."""
    states = equations(loop, steps)[0]
    mean = states[..., 0] - loop.references(steps)
    n, m = loop.plant.states, loop.plant.outputs
    covariance = block_diag(
        np.zeros((steps * m, steps * m)) if gamma_covariance is None else gamma_covariance,
        np.zeros((steps * n, steps * n)) if w_covariance is None else w_covariance,
    )
    gain = states[..., 1:]
    return mean**2 + np.einsum("tia,ab,tib->ti", gain, covariance, gain)


def random_noise(loop, horizon, seed=0, states=3, rank=2, time_varying=False):
    """Structured noise whose dynamics are not the plant's."""
    generator = np.random.default_rng(seed)
    many = (horizon,) if time_varying else ()
    A = generator.normal(size=(*many, states, states)) * 0.6
    C = generator.normal(size=(*many, loop.plant.outputs, states))
    root = np.zeros((states, rank))
    root[:rank] = generator.normal(size=(rank, rank))
    return structured(dynamics_of((A, C), horizon), root)


def noise_covariance(noise, steps):
    """Covariance of γ(0), …, γ(steps − 1), from products of the dynamics' matrices."""
    product, rows = noise.strategy.start, []
    for t in range(steps):
        rows.append(noise.domain.output_matrix(t) @ product)
        if t < noise.domain.horizon - 1:
            product = noise.domain.state_matrix(t) @ product
    loading = np.concatenate(rows)
    return loading @ loading.T


# ---------------------------------------------------------------------- python-control


def test_forced_response_of_the_assembled_loop(loop):
    plant, steps = loop.plant, 30
    n, m = plant.states, plant.outputs
    noise = np.random.default_rng(1).normal(size=(4, steps, m))
    found = loop.simulate(noise, steps, 4, 0)
    pull, correction = plant.B @ loop.feedback, loop.observer @ plant.C
    whole = control.ss(
        np.block([[plant.A, -pull], [correction, plant.A - pull - correction]]),
        np.block([[pull, np.zeros((n, m))], [pull, loop.observer]]),
        np.eye(2 * n),
        0,
        True,
    )
    for run in range(4):
        drive = np.vstack([loop.references(steps).T, np.pad(noise[run], ((0, 1), (0, 0))).T])
        response = control.forced_response(
            whole, np.arange(steps + 1), drive, np.concatenate([loop.x0, loop.xhat0])
        )
        assert_allclose(found.states[run].T, response.states[:n], rtol=0, atol=1e-10)
        assert_allclose(found.estimates[run].T, response.states[n:], rtol=0, atol=1e-10)


def test_input_output_response_of_connected_blocks(loop):
    """Plant and controller as blocks of their own, wired by python-control."""
    plant, steps = loop.plant, 12
    n, k, m = plant.states, plant.inputs, plant.outputs
    K, L = loop.feedback, loop.observer
    names = {letter: [f"{letter}{i}" for i in range(9)] for letter in "uyrgz"}
    block = control.ss(
        plant.A, plant.B, plant.C, plant.D, True,
        name="plant", inputs=names["u"][:k], outputs=names["y"][:m],
    )  # fmt: skip
    adder = control.ss(
        [], [], [], np.hstack([np.eye(m)] * 2), True,
        name="sent", inputs=[*names["y"][:m], *names["g"][:m]], outputs=names["z"][:m],
    )  # fmt: skip
    forced = plant.B - L @ plant.D  # the cloud subtracts what it fed through
    controller = control.ss(
        plant.A - forced @ K - L @ plant.C, np.hstack([L, forced @ K]),
        -K, np.hstack([np.zeros((k, m)), K]), True,
        name="cloud", inputs=[*names["z"][:m], *names["r"][:n]], outputs=names["u"][:k],
    )  # fmt: skip
    whole = control.interconnect(
        [block, adder, controller],
        inputs=[*names["g"][:m], *names["r"][:n]],
        outputs=[*names["z"][:m], *names["u"][:k]],
    )
    noise = np.random.default_rng(2).normal(size=(1, steps, m))
    found = loop.simulate(noise, steps, 1, 0)
    response = control.input_output_response(
        whole,
        np.arange(steps),
        np.vstack([noise[0].T, loop.references(steps)[:-1].T]),
        np.concatenate([loop.x0, loop.xhat0]),
    )
    assert_allclose(found.outputs[0].T, response.outputs[:m], rtol=0, atol=1e-10)
    assert_allclose(found.inputs[0].T, response.outputs[m:], rtol=0, atol=1e-10)
    assert_allclose(found.states[0, :-1].T, response.states[:n], rtol=0, atol=1e-10)


def test_to_control_is_signal_by_time():
    found = random_loop().simulate(None, 7, 3, 0)
    response = found.to_control(2)
    assert_allclose(response.states, found.states[2, :-1].T)
    assert_allclose(response.outputs, found.outputs[2].T)
    assert_allclose(response.inputs, found.inputs[2].T)
    assert response.time.tolist() == list(range(7))
    with pytest.raises(AffineDPError, match="no run 3"):
        found.to_control(3)


def test_to_control_keeps_labels_and_seconds():
    plant = control.ss(*VEHICLE, 0, TS, states=["p", "v"], inputs="u", outputs="where")
    loop = ClosedLoop(plant, *GAINS, [0, 0])
    response = loop.simulate(None, 5, 1, 0).to_control()
    assert_allclose(response.time, TS * np.arange(5))
    assert list(response.state_labels) == ["p", "v"]
    assert list(response.output_labels) == ["where"]


def test_lqg_gains_are_those_of_the_riccati_equations():
    loop = ClosedLoop.lqg(
        VEHICLE,
        [0, 0],
        state_cost=20,
        input_cost=1,
        process_covariance=2,
        measurement_covariance=1,
    )
    A, B, C = VEHICLE
    P = solve_discrete_are(A, B, 20 * np.eye(2), np.eye(1))
    assert_allclose(loop.feedback, np.linalg.solve(1 + B.T @ P @ B, B.T @ P @ A), rtol=1e-10)
    P = solve_discrete_are(A.T, C.T, 2 * np.eye(2), np.eye(1))
    predicted = A @ P @ C.T / (1 + C @ P @ C.T)
    assert_allclose(loop.observer, predicted, rtol=1e-10)
    assert_allclose(loop.observer, control.dlqr(A.T, C.T, 2 * np.eye(2), 1)[0].T, rtol=1e-10)
    assert_allclose(loop.feedback, GAINS[0], atol=6e-5)
    assert_allclose(loop.observer, GAINS[1], atol=6e-5)


# ---------------------------------------------------------------------- the equations at once


def test_simulation_solves_the_equations(loop):
    steps, runs = 15, 2
    noise = np.random.default_rng(4).normal(size=(runs, steps, loop.plant.outputs))
    found = loop.simulate(noise, steps, runs, 0)
    drive = np.zeros((runs, 1 + steps * (loop.plant.outputs + loop.plant.states)))
    drive[:, 0] = 1.0
    drive[:, 1 : 1 + noise[0].size] = noise.reshape(runs, -1)
    for ours, solved in zip(
        (found.states, found.estimates, found.inputs), equations(loop, steps), strict=True
    ):
        assert_allclose(ours, np.einsum("tia,ra->rti", solved, drive), rtol=0, atol=1e-9)
    y = found.states[:, :-1] @ loop.plant.C.T + found.inputs @ loop.plant.D.T
    assert_allclose(found.outputs, y + noise, rtol=0, atol=1e-10)
    assert_allclose(found.tracking_errors, found.states - loop.references(steps))


@pytest.mark.parametrize("time_varying", [False, True])
def test_structured_noise_exactly(loop, time_varying):
    noise = random_noise(loop, 20, time_varying=time_varying)
    for steps in (1, 13, 20):
        wanted = brute_mean_squares(loop, steps, noise_covariance(noise, steps))
        assert_allclose(loop.mean_square_error(noise, steps), wanted, rtol=1e-9, atol=1e-9)


def test_fresh_noise_exactly(loop):
    m, n = loop.plant.outputs, loop.plant.states
    sigma = 1.5
    noise = fresh(dynamics_of((np.eye(1), np.ones((m, 1))), 20), sigma)
    wanted = brute_mean_squares(loop, 20, np.kron(np.eye(20), sigma**2 * np.eye(m)))
    assert_allclose(loop.mean_square_error(noise, 20), wanted, rtol=1e-9, atol=1e-9)
    process = np.full((n, n), 0.3) + np.diag(np.arange(1.0, n + 1))
    wanted = brute_mean_squares(
        loop, 20, np.kron(np.eye(20), (sigma**2 + 4.0) * np.eye(m)), np.kron(np.eye(20), process)
    )
    found = loop.mean_square_error(noise, 20, process_noise=process, sensor_noise=2.0)
    assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_structured_noise_beside_disturbances(loop):
    noise = random_noise(loop, 10)
    steps, n = 10, loop.plant.states
    deviations = 0.5 + np.arange(n)
    wanted = brute_mean_squares(
        loop, steps, noise_covariance(noise, steps), np.kron(np.eye(steps), np.diag(deviations**2))
    )
    found = loop.mean_square_error(noise, steps, process_noise=deviations)
    assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_mean_is_the_run_without_noise(loop):
    mean = loop.mean(25)
    assert_allclose(mean, loop.simulate(None, 25, 1, 0).tracking_errors[0], rtol=0, atol=1e-10)
    assert_allclose(loop.mean_square_error(None, 25), mean**2)
    assert_allclose(mean[0], loop.x0 - loop.references(25)[0])


@pytest.mark.parametrize("time_varying", [False, True])
def test_noise_cost_is_the_cost_of_noise(loop, time_varying):
    noise = random_noise(loop, 18, rank=3, time_varying=time_varying)
    n = loop.plant.states
    generator = np.random.default_rng(8)
    root = generator.normal(size=(n, n))
    weight = root @ root.T
    for steps in (18, 7):
        gain = equations(loop, steps)[0][..., 1 : 1 + steps * loop.plant.outputs]
        wanted = np.einsum(
            "tia,ij,tjb,ab->", gain, weight, gain, noise_covariance(noise, steps), optimize=True
        )
        found = loop.noise_cost(noise.domain, weight, steps)
        assert_allclose(paid(found, noise), wanted, rtol=1e-9)
        assert_allclose(found, found.T)


def test_noise_cost_uses_the_loops_own_weight_and_the_whole_horizon():
    loop = vehicle_loop(state_weight=[2.0, 3.0])
    noise = random_noise(loop, 30)
    found = loop.noise_cost(noise.domain)
    more = loop.mean_square_error(noise, 30) - loop.mean_square_error(None, 30)
    assert_allclose(paid(found, noise), np.sum(more @ [2.0, 3.0]))


# ---------------------------------------------------------------------- by chance


def test_structured_noise_by_chance():
    loop = random_loop()
    noise = random_noise(loop, 15)
    found = loop.simulate(noise, 15, 20_000, 5)
    apart = found.mean_square_error - loop.mean_square_error(noise, 15)
    assert np.all(np.abs(apart) <= 4 * found.standard_error + 1e-12)


def test_fresh_noise_and_disturbances_by_chance():
    loop = random_loop()
    noise = fresh(dynamics_of((np.eye(1), np.ones((2, 1))), 15), 1.5)
    extra = {"process_noise": [[2, 1, 0], [1, 2, 0], [0, 0, 0]], "sensor_noise": [0.5, 3.0]}
    found = loop.simulate(noise, 15, 20_000, 6, **extra)
    apart = found.mean_square_error - loop.mean_square_error(noise, 15, **extra)
    assert np.all(np.abs(apart) <= 4 * found.standard_error + 1e-12)


def test_disturbances_have_the_covariance_that_was_asked_for():
    loop = random_loop()
    plant = loop.plant
    process = np.array([[2.0, 1, 0], [1, 2, 0], [0, 0, 0]])
    found = loop.simulate(None, 20, 3_000, 7, process_noise=process, sensor_noise=[0.5, 3.0])
    w = found.states[:, 1:] - found.states[:, :-1] @ plant.A.T - found.inputs @ plant.B.T
    v = found.outputs - found.states[:, :-1] @ plant.C.T - found.inputs @ plant.D.T
    both = np.concatenate([w, v], axis=2).reshape(-1, 5)
    wanted = block_diag(process, np.diag([0.25, 9.0]))
    # a sample covariance has standard error √((c_ii c_jj + c_ij²)/N)
    error = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / len(both))
    assert np.all(np.abs(both.T @ both / len(both) - wanted) <= 4.5 * error + 1e-12)
    # white over time
    lagged = np.einsum("rti,rtj->ij", w[:, 1:], w[:, :-1]) / (19 * 3_000)
    assert np.all(np.abs(lagged) <= 4.5 * 2.0 / np.sqrt(19 * 3_000))


def test_privacy_noise_is_that_of_sample_and_the_sensors_is_another():
    loop = vehicle_loop()
    noise = fresh(dynamics_of((np.eye(1), np.eye(1)), 9), 1.0)
    quiet = loop.simulate(noise, 8, 4, 11)
    again = loop.simulate(sample_noise(noise, 4, 8, 11), 8, 4, 999)
    assert_allclose(quiet.states, again.states)
    assert_allclose(quiet.outputs, loop.simulate(noise, 8, 4, 11).outputs)
    sensor = loop.simulate(None, 8, 4, 11, sensor_noise=1.0)
    drawn = sensor.outputs - sensor.states[:, :-1, :1]
    assert np.abs(drawn - sample_noise(noise, 4, 8, 11)).min() > 1e-9


# ---------------------------------------------------------------------- references, sweeps


def test_references_in_three_forms():
    table = [vehicle_reference(t) for t in range(31)]
    by_table = ClosedLoop(VEHICLE, *GAINS, table, x0=[-20, 0])
    assert_allclose(by_table.mean(30), vehicle_loop().mean(30), rtol=0, atol=0)
    constant = ClosedLoop(VEHICLE, *GAINS, [1.0, 0.5])
    tiled = ClosedLoop(VEHICLE, *GAINS, np.tile([1.0, 0.5], (9, 1)))
    assert_allclose(constant.mean(8), tiled.mean(8), rtol=0, atol=0)
    with pytest.raises(AffineDPError, match="ends at t = 8, but 9 steps"):
        tiled.mean(9)


UNIT = dynamics_of((np.eye(1), np.eye(1)), 30)


def unit_noise(epsilon):
    return fresh(UNIT, 1 / epsilon)


def test_sweep_is_each_level_by_itself():
    loop = vehicle_loop()
    levels = [0.1, 1.0, 10.0]
    alone = sweep(loop, unit_noise, levels, 30)
    for level, errors in zip(levels, alone.mean_square_errors):
        assert_allclose(errors, loop.mean_square_error(unit_noise(level), 30))
    with joblib.parallel_config(backend="threading"):
        together = sweep(loop, unit_noise, levels, 30, n_jobs=2)
    assert np.array_equal(together.mean_square_errors, alone.mean_square_errors)
    table = alone.table()
    assert {len(column) for column in table.values()} == {3 * 31 * 2}
    row = 31 * 2 + 5 * 2 + 1  # ε = 1, t = 5, second state
    assert (table["epsilon"][row], table["step"][row], table["state"][row]) == (1.0, 5, "x2")
    assert table["mean_square_error"][row] == alone.mean_square_errors[1, 5, 1]
    with pytest.raises(AffineDPError, match="at least one"):
        sweep(loop, unit_noise, [], 30)


# ---------------------------------------------------------------------- what is refused


def test_a_loop_cannot_be_changed():
    loop = vehicle_loop()
    with pytest.raises(AttributeError):
        loop.x0 = np.zeros(2)
    for array in (loop.x0, loop.feedback, loop.plant.A, loop.state_weight):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
    given = np.zeros(2)
    loop = ClosedLoop(VEHICLE, *GAINS, given)
    given[0] = 5.0
    assert loop.references(1)[0, 0] == 0.0


A, B, C = VEHICLE
REFUSED = {
    "continuous": (lambda: ClosedLoop(control.ss(A, B, C, 0), *GAINS, [0, 0]), "sample_system"),
    "transfer function": (lambda: ClosedLoop(control.tf(1, [1, 2], 1), *GAINS, 0), "control.ss"),
    "no B": (lambda: ClosedLoop((A, C), *GAINS, [0, 0]), r"\(A, B, C\)"),
    "text": (lambda: ClosedLoop("vehicle", *GAINS, [0, 0]), "not str"),
    "A by time": (lambda: ClosedLoop(([A, A], B, C), *GAINS, [0, 0]), "A must be a matrix"),
    "B": (lambda: ClosedLoop((A, B.T, C), *GAINS, [0, 0]), r"B has shape \(1, 2\)"),
    "empty B": (lambda: ClosedLoop((A, B[:, :0], C), *GAINS, [0, 0]), "no input"),
    "D": (lambda: ClosedLoop((A, B, C, np.eye(2)), *GAINS, [0, 0]), "D has shape"),
    "feedback": (lambda: ClosedLoop(VEHICLE, [3.4, 4.3], GAINS[1], [0, 0]), "feedback has shape"),
    "observer": (lambda: ClosedLoop(VEHICLE, GAINS[0], [[0.8, 0.7]], [0, 0]), "observer has shape"),
    "nan": (lambda: ClosedLoop(VEHICLE, [[np.nan, 0]], GAINS[1], [0, 0]), "finite"),
    "x0": (lambda: ClosedLoop(VEHICLE, *GAINS, [0, 0], x0=[1]), "x0 has shape"),
    "xhat0": (lambda: ClosedLoop(VEHICLE, *GAINS, [0, 0], xhat0=[np.inf, 0]), "xhat0.*finite"),
    "reference": (lambda: ClosedLoop(VEHICLE, *GAINS, np.zeros((2, 50))), "a function of t"),
    "function": (lambda: ClosedLoop(VEHICLE, *GAINS, lambda t: [t]).mean(3), r"reference\(0\)"),
    "weight": (lambda: vehicle_loop(state_weight=np.diag([1, -1])), "semidefinite"),
    "no weight": (lambda: vehicle_loop(state_weight=0), "must not be zero"),
    "skew weight": (lambda: vehicle_loop(state_weight=[[1, 1], [0, 1]]), "symmetric"),
    "negative weight": (lambda: vehicle_loop(state_weight=[-1, 1]), "negative"),
    "steps": (lambda: vehicle_loop().mean(0), "steps must be"),
    "half steps": (lambda: vehicle_loop().mean(2.5), "steps must be"),
    "runs": (lambda: vehicle_loop().simulate(None, 5, 0, 0), "runs must be"),
    "seed": (lambda: vehicle_loop().simulate(None, 5, 1, None), "seed must be"),
    "size": (lambda: vehicle_loop().simulate(None, 10**6, 10**6, 0), "fewer runs"),
    "noise": (lambda: vehicle_loop().simulate(np.zeros((5, 2, 1)), 5, 2, 0), "noise has shape"),
    "horizon": (lambda: vehicle_loop().mean_square_error(unit_noise(1.0), 31), "longer horizon"),
    "sampled horizon": (lambda: vehicle_loop().simulate(unit_noise(1.0), 31, 1, 0), "horizon"),
    "cost horizon": (lambda: vehicle_loop().noise_cost(UNIT, steps=31), "horizon"),
    "outputs": (lambda: random_loop().mean_square_error(unit_noise(1.0), 5), "1 outputs, but"),
    "process": (lambda: vehicle_loop().mean_square_error(None, 5, process_noise=[1] * 3), "3 entr"),
    "deviation": (lambda: vehicle_loop().simulate(None, 5, 1, 0, sensor_noise=-1), "deviations"),
    "lqg": (
        lambda: ClosedLoop.lqg(
            (2 * A, 0 * B, C), [0, 0], state_cost=1, input_cost=1,
            process_covariance=1, measurement_covariance=1,
        ),
        "stabilisable",
    ),
    "one run": (lambda: vehicle_loop().simulate(None, 5, 1, 0).standard_error, "one run"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(AffineDPError, match=message):
        call()


def test_unstable_loops_warn_and_overflow_is_refused():
    assert vehicle_loop().warnings == ()
    loose = ClosedLoop(VEHICLE, [[0, 0]], GAINS[1], [0, 0])
    assert len(loose.warnings) == 1
    assert "A − B K" in loose.warnings[0]
    assert len(ClosedLoop(VEHICLE, [[0, 0]], [[0], [0]], [0, 0]).warnings) == 2
    wild = ClosedLoop(([[9.0]], [[1.0]], [[1.0]]), [[0.0]], [[0.0]], [0.0], x0=[1.0])
    for call in (
        lambda: wild.mean(500),
        lambda: wild.simulate(None, 500, 1, 0),
        lambda: wild.noise_cost(dynamics_of(([[9.0]], [[1.0]]), 500)),
    ):
        with pytest.raises(AffineDPError, match="grows beyond double precision"):
            call()
    assert_allclose(wild.mean(3).ravel(), [1, 9, 81, 729])
