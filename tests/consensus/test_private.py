"""From the simulation to agents: one network, one promise, one file."""

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import affinedp as adp
from affinedp.consensus import AgentNoise, PrivateConsensus, read_network
from affinedp.errors import AffineDPError
from agents import EDGES, VALUES, WEIGHT

PAPER = nx.Graph(EDGES)


def paper(**more):
    settings = {"law": "gaussian", "epsilon": 1.0, "delta": 0.01, "mu": 10.0, **more}
    return PrivateConsensus(PAPER, weights=WEIGHT, **settings)


@pytest.mark.parametrize(
    "noise",
    [
        {"law": "gaussian", "epsilon": 1.0, "delta": 0.01, "mu": 10.0},
        {"law": "laplace", "epsilon": 0.3, "mu": 7.0},
        {"law": "gaussian", "sigma": 2.5244},
        {"law": "laplace", "sigma": 3.7, "mu": 1.3},
    ],
)
def test_the_same_promise(noise, tmp_path):
    network = PrivateConsensus(PAPER, weights=WEIGHT, **noise)
    with network.agent(3, state=tmp_path / "3.db", value=20.0) as agent:
        ours, theirs = network.agent_guarantee(3), agent.guarantee
        assert (agent.name, agent.weights) == ("3", {"2": WEIGHT, "4": WEIGHT})
        for name in ("neighbours", "neighbours_key", "unit", "basis", "law"):
            assert getattr(ours, name) == getattr(theirs, name)
        delta = noise.get("delta", 0.01 if noise["law"] == "gaussian" else 0.0)
        assert theirs.epsilon(delta) == pytest.approx(ours.epsilon(delta), rel=1e-12)
        if "epsilon" in noise:
            assert theirs.holds(noise["epsilon"], delta)
        # two releases of one agent add up, whichever of the two states the promise
        both = adp.compose([ours, theirs])
        assert both.epsilon(delta) <= 2 * ours.epsilon(delta / 2) if delta else True
        assert network.noise_of(3).scale == pytest.approx(network.sigma[2], rel=1e-12)


def test_a_ledger_pays_once(tmp_path):
    network = paper()
    with adp.Ledger(tmp_path / "b.db", epsilon=1.0, delta=0.01, protects="agent 3") as ledger:
        for more in ({"value": 20.0}, {}, {"rerun": True}):
            with network.agent(3, state=tmp_path / "3.db", ledger=ledger, **more) as agent:
                y = agent.y
        (entry,) = ledger.history()
        assert entry.status == "released"
        with (
            pytest.raises(adp.BudgetExceededError),
            network.agent(3, state=tmp_path / "other.db", value=20.0, ledger=ledger),
        ):
            pass
    with network.agent(3, state=tmp_path / "3.db") as agent:
        assert (agent.y, agent.run) == (y, 2)


def test_agents_do_what_the_simulation_does(tmp_path):
    """The rounds of agents are P^t y(0) with the P of the network."""
    network = PrivateConsensus(nx.path_graph(3), law="laplace", epsilon=1.0)
    agents = [network.agent(i, state=tmp_path / f"{i}", value=float(i)) for i in range(3)]
    y = np.array([agent.y for agent in agents])
    for t in range(4):
        sent = [agent.message_to(other) for agent in agents for other in agent.weights]
        for message in sent:
            agents[int(message.to)].hear(message)
        assert all(agent.advance() for agent in agents)
        y = network.network.transition @ y
        np.testing.assert_allclose([agent.y for agent in agents], y, rtol=1e-12)
        assert agents[0].round == t + 1
    for agent in agents:
        agent.close()


def test_names(tmp_path):
    with pytest.raises(AffineDPError, match="1 and '1' are the same as text"):
        PrivateConsensus(nx.Graph([(1, "1")]), law="laplace", epsilon=1.0).agent(1, state="x")
    with pytest.raises(AffineDPError, match="no name of an agent"):
        PrivateConsensus(nx.Graph([("a b", "c")]), law="laplace", epsilon=1.0).agent("c", state="x")
    with pytest.raises(AffineDPError, match="no agent 'x'"):
        paper().agent("x", state=tmp_path / "x")
    with pytest.raises(AffineDPError, match="must be a Ledger, not str"):
        paper().agent(3, state=tmp_path / "x", value=1.0, ledger="budget.db")
    bare = PrivateConsensus(nx.path_graph(3), law="laplace", epsilon=1.0, mu=[0, 1, 1])
    with pytest.raises(AffineDPError, match="agent 0 sends its value without noise"):
        bare.agent(0, state=tmp_path / "x", value=1.0)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "noise",
    [
        {"law": "gaussian", "epsilon": 1.0, "delta": 0.01, "mu": 10.0},
        {"law": "laplace", "epsilon": np.linspace(0.1, 1, 10), "mu": np.linspace(1, 2, 10)},
        {"law": "laplace", "sigma": 3.7, "mu": 1.3},
    ],
)
def test_files_survive(noise, tmp_path):
    network = PrivateConsensus(PAPER, weights=WEIGHT / 3, **noise)
    values = dict(zip(range(1, 11), VALUES))
    network.write(tmp_path / "n.toml", rounds=30, values=values)
    assert (tmp_path / "n.toml").stat().st_mode & 0o777 == 0o600
    found = read_network(tmp_path / "n.toml")
    assert found.rounds == 30
    assert found.values == {str(name): value for name, value in values.items()}
    assert "100.0" not in repr(found)
    again = found.consensus
    for name in PAPER:
        assert again.links_of(str(name)) == network.links_of(name)
        assert again.noise_of(str(name)) == network.noise_of(name)
    with pytest.raises(AffineDPError, match="cannot be written"):
        network.write(tmp_path / "n.toml")
    with pytest.raises(AffineDPError, match="must end in .toml"):
        network.write(tmp_path / "n.yaml")


GOOD = """
rounds = 3
links = [["a", "b", 0.25], ["b", "c", 0.25]]
[noise]
law = "laplace"
epsilon = 1.0
[values]
a = 1.0
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"laplace"', '"cauchy"', "law"),
        ("epsilon = 1.0", "", "give epsilon"),
        ("epsilon = 1.0", "epsilon = -1", "epsilon is negative"),
        ("epsilon = 1.0", "epsilon = true", "must be a number"),
        ("epsilon = 1.0", "epsilon = {a = 1}", "missing for agents 'b' and 'c'"),
        ("rounds = 3", "rounds = 3.5", "rounds must be"),
        ("rounds = 3", "round = 3", "did you mean 'rounds'"),
        ("[noise]", "[nois]", "unknown key 'nois'"),
        ('["b", "c", 0.25]', '["b", "c"]', "a weight to every link"),
        ('["b", "c", 0.25]', '["b", "c", "x"]', "must be a number"),
        ('["b", "c", 0.25]', '["b"]', "link 2 must be two names"),
        ('["b", "c", 0.25]', '[["b"], "c", 0.25]', "must begin with two names"),
        ('["b", "c", 0.25]', '["b", "c", -0.25]', "not negative"),
        ('["b", "c", 0.25]', '["b", "c d", 0.25]', "no name of an agent"),
        ('["b", "c", 0.25]', '["c", "d", 0.25]', "falls into 2 parts"),
        ('["b", "c", 0.25]', '["b", "a", 0.25]', "more than once"),
        ("a = 1.0", "z = 1.0", "value for 'z', which has no link"),
        ("a = 1.0", 'a = "4711"', "value of 'a' must be a number$"),
        ('links = [["a", "b", 0.25], ["b", "c", 0.25]]', "links = []", "links must be a list"),
    ],
)
def test_files_that_are_wrong(old, new, words, tmp_path):
    file = tmp_path / "n.toml"
    file.write_text(GOOD)
    assert read_network(file).consensus.n == 3
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(AffineDPError, match=words) as refused:
        read_network(file)
    assert str(file) in str(refused.value)
    assert "4711" not in str(refused.value)


def test_a_file_may_leave_the_law_to_the_promise(tmp_path):
    file = tmp_path / "n.toml"
    file.write_text('links = [["a", "b"]]\n[noise]\nlaw = "auto"\nepsilon = 1.0\ndelta = 0.01\n')
    assert read_network(file).consensus.law == "laplace"
    file.write_text('links = [["a", "b"]]\n[noise]\nlaw = "best"\nepsilon = 1.0\n')
    with pytest.raises(AffineDPError, match="'auto'"):
        read_network(file)


@pytest.mark.parametrize(
    ("law", "text", "f"),
    [("gaussian", "1 / average", np.reciprocal), ("laplace", "log(average)", np.log)],
)
def test_functions_of_the_average_cover_it(law, text, f):
    sigma = np.linspace(0.5, 3.0, 12)
    consensus = PrivateConsensus(nx.cycle_graph(12), law=law, sigma=sigma)
    x0 = np.linspace(2.0, 9.0, 12)
    runs = 300
    run = consensus.run(x0, 40, runs=runs, seed=5)
    averages = run.messages[:, 3].mean(axis=1)  # long before they have settled
    truth, hits = f(x0.mean()), 0
    for one in averages:
        found = consensus.result.function([one], text, level=0.9)
        hits += any(low <= truth <= high for low, high in found.pieces)
    # about 0.9, up or down with a chance of 1e-6
    assert stats.binom.cdf(hits, runs, 0.87) > 1e-6
    assert stats.binom.sf(hits, runs, 0.94) > 1e-6
    assert consensus.result.expected_squared_error == pytest.approx(consensus.limit("message") / 12)


def test_the_average_promises_what_messages_do_and_is_not_released(tmp_path):
    consensus = PrivateConsensus(nx.path_graph(3), law="laplace", epsilon=[0.5, 1.0, 2.0])
    result = consensus.result
    assert result.guarantee.epsilon() == consensus.guarantee.epsilon() == 2.0
    with pytest.raises(AffineDPError, match="agents publish"):
        result.release([1.0])
    result.save(tmp_path / "result.json")
    again = adp.Mechanism.load(tmp_path / "result.json")
    assert again.interval([4.0]).high == result.interval([4.0]).high
    for mu, sigma in ((1.0, 3.7), (1e-6, 1e-7), (1e5, 2e9), (1.0, 1e-3)):
        for law in ("gaussian", "laplace"):
            agent = AgentNoise(law, mu=mu, sigma=sigma).mechanism()
            assert agent.prepared().factor <= result.prepared().factor
    with pytest.raises(AffineDPError, match="bound"):
        result.interval([4.0], bound=10.0)
