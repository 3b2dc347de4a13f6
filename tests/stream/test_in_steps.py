"""Releases in steps: the same law as at once, exactly the same function of the noisy secret."""

import json
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import affinedp as adp
from affinedp.domains.dynamics import dynamics_of
from affinedp.laws.sampler import IntegerNoise
from affinedp.neighbours.trajectory import trajectory_manifold
from affinedp.stream.in_steps import ReleaseInSteps, followings, step_plan

UNIT = 1 << 56


@pytest.fixture
def noise(monkeypatch):
    """Noise that the test chooses, in units of the scale."""
    chosen = []

    def draw(self, size, source):
        assert (len(chosen),) == size
        return np.array(chosen, dtype=object)

    monkeypatch.setattr(IntegerNoise, "draw", draw)
    return chosen


def chain(steps, names=None):
    """x(t+1) = x(t) + b(t)."""
    D = np.eye(steps - 1, steps) - np.eye(steps - 1, steps, 1)
    return adp.AffineManifold(D, names=names or [f"x{t}" for t in range(steps)])


def play(run, x, policy):
    """Go through all steps; data moves by offsets that a policy makes of what was published."""
    seen = []
    while run.next_step < len(run.steps):
        due = run.equations_due
        b = {e: policy(e, seen) for e in due}
        seen.append(run.send({name: x(name, seen) for name in run.needs}, b))
    return np.concatenate(seen)


def test_feedback_keeps_the_law_of_the_noisy_secret(tmp_path, noise):
    """Two data sets with the same noisy secret publish the same, whatever the feedback makes of it.

    All that is published is then a function of the noisy secret.
    """
    M = adp.AffineManifold([[1, -1, 0, 0, 0], [0, 0, 1, -1, 0]], names=list("abcde"))
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-3)
    steps = [["a", "c"], ["b"], ["e"], ["d"]]

    def policy(e, seen):
        return float(np.sin(1e6 * np.concatenate(seen)).sum() * 100)  # anything at all

    published = []
    first = dict(zip("abcde", [3.0, 0, 7.25, 0, -2.5]))
    other = dict(zip("abcde", [4.0, 0, 7.25, 0, -2.5]))
    noise[:] = [11 * UNIT + 5, -UNIT // 3, 12345]
    with m.in_steps(steps, state=tmp_path / "first") as run:
        plan = run._plan
        published.append(play(run, lambda name, seen: first[name], policy))
    place = {name: i for i, name in enumerate("abcde")}
    entries = [{place[n]: Fraction(v) for n, v in data.items()} for data in (first, other)]
    z = [[plan.noisy(j, data, 0) for j in range(3)] for data in entries]
    moved = [a - b for a, b in zip(*z)]
    noise[:] = [n + shift for n, shift in zip(noise, moved)]
    with m.in_steps(steps, state=tmp_path / "other") as run:
        published.append(play(run, lambda name, seen: other[name], policy))
    assert published[0].tobytes() == published[1].tobytes()
    distance = np.linalg.norm([float(shift) for shift in moved]) / plan.scale
    assert 0 < distance <= m.guarantee.sensitivity


@pytest.mark.parametrize("seed", range(6))
def test_the_covariance_is_that_of_the_mechanism(tmp_path, noise, seed):
    rng = np.random.default_rng(seed)
    D = rng.integers(-2, 3, (2, 5))
    try:
        M = adp.AffineManifold(D)
        query = rng.integers(-1, 3, (4 + seed % 3, 5)).astype(float)
        m = adp.design_gaussian(M, epsilon=1.0, delta=1e-3, query=query)
    except adp.AffineDPError:
        pytest.skip("not a problem")
    order = rng.permutation(len(query))
    steps = [[m.output_names[i]] for i in order]
    rank = np.linalg.matrix_rank(m.covariance / np.sqrt(m.expected_squared_errors).max() ** 2)
    columns = []
    for j in range(-1, rank):
        noise[:] = [UNIT * (i == j) for i in range(rank)]
        with m.in_steps(steps, state=tmp_path / f"{j}") as run:
            columns.append(play(run, lambda name, seen: 0.0, lambda e, seen: 0))
    assert not columns[0].any()
    found = np.array(columns[1:]).T
    assert np.allclose(found @ found.T, m.covariance[np.ix_(order, order)], rtol=1e-8, atol=1e-9)


def test_data_that_moves_by_feedback_is_published(tmp_path, noise):
    """Without noise the outputs are the data, also those that are never read."""
    M = chain(30)
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-3)
    noise[:] = [0]
    x = [17.5]
    with m.in_steps(state=tmp_path / "s") as run:
        assert run.needs == ("x0",)
        assert run.equations_due == ()
        (seen,) = run.send([17.5])
        for t in range(1, 30):
            assert run.needs == ()
            assert run.equations_due == (t - 1,)
            move = 0.25 - seen / 8
            x.append(x[-1] + move)
            (seen,) = run.send(b={t - 1: move})
            assert seen == pytest.approx(x[-1], rel=1e-12)
    assert run._plan.noise_factor < 1 + 1e-6


def test_a_vehicle_follows_from_two_outputs(tmp_path, noise):
    vehicle = trajectory_manifold(dynamics_of(([[1, 0.1], [0, 1]], [[1, 0]]), 12))
    positions = vehicle.names[::2]
    m = adp.design_gaussian(vehicle, epsilon=1.0, delta=0.01, query=positions)
    noise[:] = [3 * UNIT, -UNIT]
    p, v, forces = 5.0, 2.0, []
    with m.in_steps(state=tmp_path / "s") as run:
        seen = [run.send([p])[0]]
        for _ in range(11):
            forces.append(-0.1 * seen[-1])
            # p' = p + 0.1 v, v' = v + force: rows of D come in pairs
            p, v = p + 0.1 * v, v + forces[-1]
            due = {e: (forces[e // 2] if e % 2 else 0) for e in run.equations_due}
            seen.append(run.send([p] if run.needs else [], due)[0])
    # the trajectory from a noisy start, with the same forces
    start = np.array([5.0, 2.0]) + vehicle_noise_at_start(m, noise)
    expected = []
    for force in [*forces, 0.0]:
        expected.append(start[0])
        start = np.array([start[0] + 0.1 * start[1], start[1] + force])
    assert np.allclose(seen, expected, atol=1e-8)


def vehicle_noise_at_start(m, drawn):
    _, upper = np.linalg.qr(m.noise_matrix[:2].T)
    root = np.tril(upper.T)
    root = root * np.where(np.diagonal(root) < 0, -1, 1)
    first, second = root @ [n / UNIT for n in drawn]
    return np.array([first, (second - first) / 0.1])


def test_independent_noise_reads_every_output(tmp_path, noise):
    m = adp.iid_noise(chain(3), law="laplace", epsilon=1.0)
    noise[:] = [UNIT, 0, -UNIT]
    with m.in_steps(state=tmp_path / "s") as run:
        assert np.allclose(run.send([1.0]), 1 + 3)
        assert run.needs == ("x1",)
        assert np.allclose(run.send({"x1": 5.0}), 5)
        assert np.allclose(run.send([6.0]), 6 - 3)
        with pytest.raises(adp.AffineDPError, match="all 3 steps"):
            run.send()


def test_laplace_noise_in_the_order_of_the_steps(tmp_path, noise):
    M = adp.AffineManifold.from_equations(["a + b = t"])
    basis = [[1, 0], [1, 1], [2, 1]]
    m = adp.design_laplace(M, epsilon=1.0, method="algorithm2", basis=basis)
    noise[:] = [UNIT, 2 * UNIT]
    with m.in_steps(state=tmp_path / "s") as run:
        y = play(run, lambda name, seen: 0.0, lambda e, seen: 0)
    assert np.allclose(y, m.noise_matrix @ [1, 2])
    backwards = [["b"], ["a"], ["t"]]
    with pytest.raises(adp.AffineDPError, match="triangular in the order of the steps"):
        m.in_steps(backwards, state=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_followings_are_exact():
    M = adp.AffineManifold.from_equations(["q = p + 0.1*v", "r = q + 0.1*v"], ["p", "v", "q", "r"])
    read, follow = followings(M, np.eye(4), [0, 2, 3, 1])
    assert read == (0, 2)
    assert follow[3].coefficients == {0: -1, 2: 2}
    assert follow[1].coefficients == {0: -10, 2: 10}
    # F_i x = Σ c F_j x + Σ a b on data of any offsets
    b = [Fraction(3), Fraction(-2)]
    rows = M.exact_rows
    p, v = Fraction(7), Fraction(11)
    # q = p + 0.1 v − b0/s0 with the signs of the stored rows
    q = -(rows[0][0] * p + rows[0][1] * v + b[0]) / rows[0][2]
    r = -(rows[1][1] * v + rows[1][2] * q + b[1]) / rows[1][3]
    x = [p, v, q, r]
    for i, one in follow.items():
        total = sum(c * x[j] for j, c in one.coefficients.items())
        assert total + sum(a * b[e] for e, a in one.offsets.items()) == x[i]


def test_offsets_are_settled_once(tmp_path):
    m = adp.design_gaussian(chain(4), epsilon=1.0, delta=1e-3)
    with m.in_steps(state=tmp_path / "s") as run:
        run.send([1.0], {1: 5})
        with pytest.raises(adp.AffineDPError, match="causal"):
            run.send(b={1: 6})
        run.send(b={0: 2})
        with pytest.raises(adp.AffineDPError, match="causal"):
            run.send(b={0: 6})
        for bad in ({7: 1}, {"x": 1}, {True: 1}, {2: float("nan")}, [1]):
            with pytest.raises(adp.AffineDPError):
                run.send(b=bad)
        y2, y3 = run.send(), run.send()
        y0, y1 = run.published[:2]
        assert np.allclose([y1 - y0, y2 - y1, y3 - y2], [[2], [5], [0]])


def test_malformed_data_costs_nothing(tmp_path):
    m = adp.design_gaussian(chain(3), epsilon=1.0, delta=1e-3)
    with m.in_steps(state=tmp_path / "s", bound=100.0) as run:
        for bad in ([], [1, 2], {"x1": 1.0}, {}, [float("nan")], [1e6], ["a"]):
            with pytest.raises(adp.AffineDPError):
                run.send(bad)
        assert run.next_step == 0
        run.send({"x0": 1.0})
        with pytest.raises(adp.AffineDPError, match="reads nothing"):
            run.send([1.0])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([["x0"], ["x1"]], "exactly one step"),
        ([["x0", "x1", "x2", "x2"]], "exactly one step"),
        ([["x0"], ["x1"], ["y"]], "no output 'y'"),
        (["x0", "x1", "x2"], "list of names"),
        ([["x0"], [], ["x1", "x2"]], "list of names"),
    ],
)
def test_bad_steps(tmp_path, steps, message):
    m = adp.design_gaussian(chain(3), epsilon=1.0, delta=1e-3)
    with pytest.raises(adp.AffineDPError, match=message):
        m.in_steps(steps, state=tmp_path / "s")


@pytest.mark.slow
def test_what_cannot_be_certified_is_refused(tmp_path):
    M = adp.AffineManifold.from_equations(["a + b = t"])
    moves = adp.DirectionAdjacency(M, [[1], [-1], [0]])
    shared = adp.design_gaussian(M, epsilon=1.0, delta=1e-3, adjacency=moves)
    with pytest.raises(adp.AffineDPError, match="not released in steps"):
        shared.in_steps(state=tmp_path / "s")
    tall = adp.design_laplace(adp.AffineManifold(np.ones((1, 5))), epsilon=1.0)
    assert tall.dense.root.shape == (4, 5)
    with pytest.raises(adp.AffineDPError):
        tall.in_steps(state=tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_one_charge_and_one_draw(tmp_path):
    m = adp.design_gaussian(chain(3), epsilon=1.0, delta=1e-3)
    with adp.Ledger(tmp_path / "ledger", epsilon=1.5, delta=1e-3, protects="a run") as ledger:
        with m.in_steps(state=tmp_path / "s", ledger=ledger) as run:
            first = run.send([4.0])
            commitment = run.commitment
        with m.in_steps(state=tmp_path / "s", ledger=ledger) as run:
            assert run.next_step == 1
            assert run.commitment == commitment
            assert (run.published[0] == first).all()
            assert np.allclose(run.send(b={0: 1}), first + 1)
            assert not any("no ledger" in text for text in run.guarantee.warnings)
        assert [entry.status for entry in ledger.history()] == ["released"]
        with pytest.raises(adp.BudgetExceededError):
            m.in_steps(state=tmp_path / "another", ledger=ledger)
        other = adp.design_gaussian(chain(3), epsilon=0.5, delta=1e-3)
        with pytest.raises(adp.AffineDPError, match="another mechanism"):
            other.in_steps(state=tmp_path / "s", ledger=ledger)
        with pytest.raises(adp.AffineDPError, match="another steps"):
            m.in_steps([["x0", "x1"], ["x2"]], state=tmp_path / "s", ledger=ledger)
        os.remove(tmp_path / "s")
        with pytest.raises(adp.AffineDPError, match="second release"):
            m.in_steps(state=tmp_path / "s")


KILLED = """
import os, sys, json
import affinedp as adp
import numpy as np
D = np.eye(5, 6) - np.eye(5, 6, 1)
M = adp.AffineManifold(D, names=[f"x{t}" for t in range(6)])
m = adp.design_gaussian(M, epsilon=1.0, delta=1e-3)
run = m.in_steps(state=sys.argv[1])
while run.next_step < 6:
    step = run.next_step
    y = run.send([1.0] if run.needs else [], {e: 0.5 for e in run.equations_due})
    print(json.dumps([step, y[0]]), flush=True)
    os.kill(os.getpid(), 9)
"""


def test_killed_after_every_step(tmp_path):
    seen = {}
    for _ in range(6):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path / "s")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        step, value = json.loads(done.stdout)
        assert step not in seen
        seen[step] = value
    assert np.allclose(np.diff([seen[t] for t in range(6)]), 0.5)


def test_nothing_secret_is_shown_or_copied(tmp_path):
    import pickle

    m = adp.design_gaussian(chain(3), epsilon=1.0, delta=1e-3)
    with m.in_steps(state=tmp_path / "s") as run:
        assert isinstance(run, ReleaseInSteps)
        assert repr(run).endswith("step 0 of 3)")
        assert "no ledger" in " ".join(run.guarantee.warnings)
        with pytest.raises(adp.AffineDPError, match="not copied"):
            pickle.dumps(run)
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0
    with pytest.raises(adp.AffineDPError, match="closed"):
        run.send([1.0])


def test_the_law_by_chance(tmp_path):
    """Twenty real draws: errors of the size that the guarantee was made for."""
    m = adp.design_gaussian(chain(2), epsilon=1.0, delta=1e-3)
    errors = []
    for i in range(20):
        with m.in_steps(state=tmp_path / f"{i}") as run:
            errors.append(run.send([1e3])[0] - 1e3)
    sigma = float(np.sqrt(m.expected_squared_errors[0]))
    # χ² with 20 degrees lies outside of these once in 10⁸
    assert 1.3 < np.sum(np.square(errors)) / sigma**2 < 85


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("seed", range(4))
def test_no_neighbours_are_farther_apart_than_the_guarantee_says(seed, law):
    """In exact integers, over all neighbour directions and data of any size."""
    rng = np.random.default_rng(seed)
    M = adp.AffineManifold.from_equations(["a + b = s", "2 b + c = t", "0.5*c + d = u"])
    if law == "gaussian":
        m = adp.design_gaussian(M, epsilon=1.0, delta=1e-3)
    else:
        m = adp.iid_noise(M, law="laplace", epsilon=1.0)
    plan = step_plan(m, list(rng.permutation(7)), None)
    for v in adp.CircuitAdjacency(M).directions().T:
        # multiples of 2⁻²⁰, so that the sum is exact
        x = np.rint(rng.normal(size=7) * 2.0 ** rng.integers(20, 40)) / 2**20
        pair = [{j: Fraction(float(value)) for j, value in enumerate(p)} for p in (x, x + v)]
        z = [[plan.noisy(j, data, 0) for j in range(len(plan.read))] for data in pair]
        shift = [float(b - a) / plan.scale for a, b in zip(*z)]
        distance = np.linalg.norm(shift, ord=2 if law == "gaussian" else 1)
        assert distance <= m.guarantee.sensitivity * (1 - 1e-10)
