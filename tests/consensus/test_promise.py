"""What the messages promise: against the generic verification on the real manifold."""

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import affinedp as adp
from affinedp.budget.ledger import Ledger
from affinedp.consensus import AgentNoise, PrivateConsensus, PrivatePushSum
from affinedp.consensus.one_draw import divide_up
from affinedp.errors import AffineDPError

PATH = nx.path_graph(["a", "b", "c"])


def trajectories(agents, steps):
    """x_i(t+1) − x_i(t) is public given the messages: one equation per agent and step."""
    rows = []
    for agent in range(agents):
        for t in range(steps - 1):
            row = np.zeros(agents * steps)
            row[agent * steps + t], row[agent * steps + t + 1] = 1, -1
            rows.append(row)
    return adp.AffineManifold(np.reshape(rows, (-1, agents * steps)))


def generic(consensus, steps):
    """The same messages as F x + Λη, verified with no knowledge of consensus."""
    noise = np.kron(np.diag(consensus.sigma), np.ones((steps, 1)))
    mu = np.repeat(consensus.mu, steps)
    return adp.verify(trajectories(consensus.n, steps), noise, law=consensus.law, mu=mu)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("steps", range(2, 7))
def test_guarantee_is_that_of_verify_for_any_running_time(law, steps):
    consensus = PrivateConsensus(PATH, law=law, sigma=[2.0, 3.0, 0.7], mu=[1.0, 2.5, 0.3])
    ours, theirs = consensus.guarantee, generic(consensus, steps)
    assert theirs.exact
    assert ours.exact
    assert ours.curve_exact
    assert_allclose(ours.sensitivity, 2.5 / 3.0, rtol=1e-15)
    assert_allclose(theirs.sensitivity, ours.sensitivity, rtol=1e-12)
    epsilons = np.linspace(0, 1.2, 7)
    assert_allclose(theirs.delta(epsilons), ours.delta(epsilons), rtol=1e-9, atol=1e-14)
    for delta in (1e-6, 0.01, 0.3):
        assert_allclose(theirs.epsilon(delta), ours.epsilon(delta), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_one_step_without_equations(law):
    consensus = PrivateConsensus(PATH, law=law, sigma=2.0)
    manifold = adp.AffineManifold(np.zeros((0, 3)))
    found = adp.verify(manifold, 2.0, law=law)
    assert_allclose(found.sensitivity, consensus.guarantee.sensitivity, rtol=1e-12)


def test_fresh_noise_at_every_step_would_promise_less():
    """The oracle notices: independent draws give √T as much."""
    found = adp.verify(trajectories(2, 4), 2.0)
    assert_allclose(found.sensitivity, 1.0, rtol=1e-12)


def test_it_is_the_same_however_fast_the_network():
    slow = PrivateConsensus(nx.path_graph(9), law="gaussian", epsilon=1, delta=0.01)
    fast = PrivateConsensus(nx.complete_graph(9), law="gaussian", epsilon=1, delta=0.01)
    assert slow.guarantee.sensitivity == fast.guarantee.sensitivity
    assert slow.guarantee.neighbours_key == fast.guarantee.neighbours_key


positive = st.floats(1e-3, 1e3)


@given(epsilon=st.floats(0, 50), delta=st.floats(1e-12, 0.9), mu=positive)
@settings(max_examples=150)
def test_gaussian_design_holds_and_is_tight(epsilon, delta, mu):
    made = PrivateConsensus(PATH, law="gaussian", epsilon=epsilon, delta=delta, mu=mu)
    assert made.guarantee.holds(epsilon, delta)
    assert Fraction(made.guarantee.sensitivity) * Fraction(made.sigma[0]) >= Fraction(mu)
    assert_allclose(made.sigma, adp.gaussian_sigma(epsilon, delta, mu), rtol=0)
    less = made.with_noise(sigma=made.sigma * (1 - 1e-9))
    assert not less.guarantee.holds(epsilon, delta)


@given(epsilons=st.tuples(positive, positive, positive), mu=st.tuples(positive, positive, positive))
@settings(max_examples=150)
def test_laplace_design_holds_exactly(epsilons, mu):
    made = PrivateConsensus(PATH, law="laplace", epsilon=epsilons, mu=mu)
    for agent, epsilon, step, sigma in zip("abc", epsilons, mu, made.sigma):
        assert Fraction(step) <= Fraction(epsilon) * Fraction(sigma)
        assert Fraction(math.nextafter(sigma, 0)) * Fraction(epsilon) < Fraction(step)
        assert made.agent_guarantee(agent).holds(epsilon)
    assert made.guarantee.epsilon() == max(made.agent_guarantee(a).epsilon() for a in "abc")
    assert made.guarantee.holds(max(epsilons))


@given(st.lists(st.tuples(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300)), min_size=1))
def test_divide_up_is_the_least_double_above(pairs):
    top, bottom = np.array(pairs).T
    for a, b, q in zip(top, bottom, divide_up(top, bottom)):
        exact = Fraction(a) / Fraction(b)
        if math.isinf(q):
            assert exact > Fraction(np.finfo(float).max)
        else:
            assert Fraction(q) >= exact
            if q > np.finfo(float).tiny:
                assert Fraction(math.nextafter(q, 0)) < exact


def test_paper_values():
    for epsilon, least in ((1.0, 1.8778755609), (0.1, 9.5418230888), (0.01, 27.7008824556)):
        made = PrivateConsensus(PATH, law="gaussian", epsilon=epsilon, delta=0.01)
        assert_allclose(made.sigma, least, rtol=1e-10)
        assert PrivateConsensus(PATH, law="laplace", epsilon=epsilon).sigma[0] == 1 / epsilon


def test_guarantee_of_the_worst_agent():
    made = PrivateConsensus(PATH, law="gaussian", epsilon=[0.1, 2.0, 1.0], delta=0.01)
    assert_allclose(made.guarantee.epsilon(0.01), 2.0, rtol=1e-9)
    assert made.mechanism.output_names == ("the message of agent 'b'",)
    assert_allclose(made.agent_guarantee("a").epsilon(0.01), 0.1, rtol=1e-9)
    assert "'a'" in made.agent_guarantee("a").neighbours


@pytest.mark.parametrize("protocol", [PrivateConsensus, PrivatePushSum])
@pytest.mark.parametrize("mu", [1.0, {"a": 1, "b": 0, "c": 2}])
def test_the_mechanism_is_saved_and_loaded_like_any_other(tmp_path, protocol, mu):
    ring = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a")])
    graph = PATH if protocol is PrivateConsensus else ring
    made = protocol(graph, law="gaussian", epsilon=1.0, delta=1e-6, mu=mu).mechanism
    made.save(tmp_path / "m.json")
    loaded = adp.Mechanism.load(tmp_path / "m.json")
    assert loaded.fingerprint == made.fingerprint
    assert str(loaded.guarantee) == str(made.guarantee)
    assert loaded.expected_squared_errors[0] == made.strategy.sigma**2
    assert loaded.release([3.0]).shape == (1,)


def test_agents_without_protection():
    made = PrivateConsensus(PATH, law="laplace", epsilon=1.0, mu={"a": 1, "b": 0, "c": 2})
    assert made.sigma.tolist() == [1.0, 0.0, 2.0]
    assert "agent 'b'" in made.notes[-1]
    assert made.agent_guarantee("b").epsilon() == 0.0
    bare = PrivateConsensus(PATH, law="laplace", sigma={"a": 1, "b": 0, "c": 2})
    assert bare.guarantee.leak is not None
    assert math.isinf(bare.guarantee.epsilon())
    assert "NONE" in str(bare.guarantee)
    assert "agent 'b'" in str(bare.guarantee)


def test_neighbours_key_and_unit_in_a_ledger(tmp_path):
    def key(graph, **settings):
        return PrivateConsensus(
            graph, law="laplace", sigma=1.0, **settings
        ).guarantee.neighbours_key

    # an agent's releases add up also when another joined or left
    assert key(PATH) == key(nx.path_graph(7)) == key(PATH, mu=[1, 1, 1])
    assert key(PATH) != key(PATH, mu=2.0)
    # by name, whatever the order
    back = nx.Graph([("c", "b"), ("b", "a")])
    assert key(PATH, mu={"a": 1, "b": 2, "c": 3}) == key(back, mu={"a": 1, "b": 2, "c": 3})
    assert key(PATH, mu=[1, 2, 3]) != key(back, mu=[1, 2, 3])
    assert key(nx.Graph([(0, 1), (1, 2)]), mu=[1, 2, 3]) == key(
        nx.Graph([(2, 1), (1, 0)]), mu=[3, 2, 1]
    )
    made = PrivateConsensus(PATH, law="gaussian", epsilon=0.5, delta=1e-6)
    assert made.guarantee.neighbours_key != made.agent_guarantee("a").neighbours_key
    with Ledger(tmp_path / "budget.db", epsilon=1.0, delta=1e-6, protects="one agent") as ledger:
        ledger.charge(made.guarantee, fingerprint="first")
        more = PrivateConsensus(nx.path_graph(4), law="gaussian", epsilon=0.5, delta=1e-6)
        ledger.charge(more.guarantee, fingerprint="second")
        assert not any(entry.same_secret for entry in ledger.history())
        assert 0.5 < ledger.spent <= 1.0
    both = adp.compose([made.guarantee, more.guarantee])
    assert_allclose(both.sensitivity, math.sqrt(2) * made.guarantee.sensitivity, rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"law": "gaussian", "epsilon": 1.0}, "needs delta"),
        ({"law": "gaussian", "epsilon": 1.0, "delta": 1.0}, "needs delta"),
        ({"law": "laplace", "epsilon": 1.0, "delta": 0.1}, "leave delta out"),
        ({"law": "gaussian", "epsilon": 1.0, "delta": math.nan}, "must be finite"),
        ({"law": "gaussian", "epsilon": 1.0, "delta": [0.1]}, "delta must be one number"),
        ({"law": "gaussian", "sigma": 1.0, "delta": "0.1"}, "delta is not a real number"),
        ({"law": "uniform", "epsilon": 1.0}, "law must be"),
        ({"law": "laplace"}, "give epsilon"),
        ({"law": "laplace", "epsilon": 1.0, "sigma": 1.0}, "give epsilon"),
        ({"law": "gaussian", "sigma": 1.0, "delta": 0.1}, "follows from sigma"),
        ({"law": "laplace", "epsilon": [1, 0, 1]}, "agent 'b'"),
        ({"law": "laplace", "epsilon": [1, -1, 1]}, "negative for agent 'b'"),
        ({"law": "laplace", "sigma": [1, -1, 1]}, "negative for agent 'b'"),
        ({"law": "laplace", "epsilon": 1.0, "mu": 0.0}, "nothing to protect"),
        ({"law": "laplace", "epsilon": math.nan}, "finite"),
        ({"law": "laplace", "epsilon": 1e-300, "mu": 1e300}, "infinite"),
        ({"law": "laplace", "epsilon": "1"}, "real number"),
    ],
)
def test_refusals(settings, what):
    with pytest.raises(AffineDPError, match=what):
        PrivateConsensus(PATH, **settings)


@pytest.mark.parametrize(
    ("epsilon", "delta", "law"),
    [(1.0, 1e-6, "laplace"), (1.0, 0.0, "laplace"), (0.01, 0.2, "gaussian")],
)
def test_the_law_with_the_least_error_is_taken(epsilon, delta, law):
    auto = PrivateConsensus(nx.cycle_graph(4), law="auto", epsilon=epsilon, delta=delta)
    assert auto.law == law
    assert auto.guarantee.holds(epsilon, delta)
    for other in ("gaussian", "laplace") if delta else ("laplace",):
        pays = delta if other == "gaussian" else 0.0
        named = PrivateConsensus(nx.cycle_graph(4), law=other, epsilon=epsilon, delta=pays)
        assert auto.noise.total_variance <= named.noise.total_variance


def test_auto_needs_a_promise():
    with pytest.raises(AffineDPError, match="name the law"):
        PrivateConsensus(nx.cycle_graph(4), law="auto", sigma=1.0)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("mu", [1e-300, 1e-150, 1e-100, 1e100, 1e150, 1e300])
def test_an_agent_releases_in_any_unit_or_says_why_not(law, mu):
    noise = AgentNoise(law, epsilon=0.7, delta=1e-6 if law == "gaussian" else None, mu=mu)
    mechanism = noise.mechanism()
    assert mechanism.guarantee.holds(0.7, noise.delta or 0.0)
    if mu in (1e-300, 1e300) and (law, mu) != ("laplace", 1e-300):
        with pytest.raises(AffineDPError, match="units?|exactly"):
            mechanism.release([3 * mu])
    elif law == "laplace" or 1e-140 < mu < 1e140:
        (released,) = mechanism.release([3 * mu])
        assert abs(released / mu - 3) < 500


def test_the_best_epsilon_in_any_unit():
    """Squares of μ are never taken: they would be 0 or infinite."""
    for mu in (1e-170, 1.0, 1e170):
        made = PrivateConsensus(PATH, law="laplace", epsilon=1.0, mu=mu)
        zeta = min(max(mu, 1e-150), 1e150) ** 2
        wanted = math.sqrt(2 * 3) * (mu / math.sqrt(zeta))
        assert made.optimal_epsilon(zeta) == pytest.approx(wanted, rel=1e-11)
