"""A ledger is one budget for one secret: nothing gets a cap of its own."""

import warnings

import mpmath as mp
import networkx as nx
import numpy as np
import pytest

import affinedp as adp
from affinedp import flows
from affinedp.budget.ledger import (
    BudgetExceededError,
    Ledger,
    LedgerError,
)
from affinedp.consensus import AgentNoise, PrivateConsensus
from affinedp.control import design_output_noise
from affinedp.errors import AffineDPError
from affinedp.neighbours.circuit_adjacency import DEFINITION_4
from ledgers import CAP

CELLS = ["cells_in + cells_out = cells_total"]
VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


def noise(equations=CELLS, mu=1.0, epsilon=0.4, **others):
    M = adp.AffineManifold.from_equations(equations)
    return adp.design_gaussian(M, epsilon=epsilon, delta=1e-6, mu=mu, **others)


def exact_delta(epsilon, sensitivities):
    """δ of Gaussian releases together, from √Σs², in high precision."""
    with mp.workdps(40):
        s = mp.sqrt(mp.fsum(mp.mpf(one) ** 2 for one in sensitivities))
        return mp.ncdf(s / 2 - epsilon / s) - mp.exp(epsilon) * mp.ncdf(-s / 2 - epsilon / s)


# ---------------------------------------------------------------------- never a fresh cap


FOUR = ["a + b = c", "c + d = e", "e + f = g", "a + h = i"]
# Releases about the same people, none of which has a cap of its own.
KINDS = {
    "another mu": lambda k: noise(mu=10 - k / 100),
    "an added column": lambda k: noise(CELLS + [f"a{i} + b{i} = cells_in" for i in range(k)]),
    "another order": lambda k: noise(FOUR[k % 4 :] + FOUR[: k % 4]),
    "another way to write it": lambda k: noise(
        [f"{k + 1} cells_in + {k + 1} cells_out = {k + 1} cells_total"]
    ),
    "other names": lambda k: noise([f"in{k} + out{k} = total{k}"]),
}


@pytest.mark.parametrize("what", KINDS)
def test_the_cap_is_never_passed(path, what):
    charged = []
    with warnings.catch_warnings(), Ledger(path, **CAP) as ledger:
        warnings.simplefilter("error")  # added without a word
        with pytest.raises(BudgetExceededError) as refusal:  # noqa: PT012
            for m in map(KINDS[what], range(8)):
                m.release(m.manifold.point, ledger=ledger)
                charged.append(m.guarantee.sensitivity)
        refused = m.guarantee.sensitivity
        assert exact_delta(1.0, charged) <= 1e-6 < exact_delta(1.0, [*charged, refused])
        assert exact_delta(ledger.spent, charged) <= 1e-6
        assert ledger.remaining == refusal.value.remaining == 1.0 - ledger.spent
        assert len(charged) == 5, "of ε = 0.4 each, five fit"
        assert len({entry.neighbours_key for entry in ledger.history()}) > 1 or "write" in what
        assert {entry.unit for entry in ledger.history()} == {ledger.unit} == {DEFINITION_4}
        assert not any(entry.same_secret for entry in ledger.history())


def test_two_tables_about_the_same_people(path):
    pd = pytest.importorskip("pandas")
    from affinedp.tables import TableRelease

    first = pd.DataFrame({"women": [30], "men": [70], "all": [100]})
    second = pd.DataFrame({"young": [60], "old": [25], "middle": [15], "everyone": [100]})
    about = {"epsilon": 0.6, "delta": 1e-6, "adjacency": "person", "law": "gaussian"}
    one = TableRelease(totals={"all": ["women", "men"]}, **about)
    other = TableRelease(totals={"everyone": ["young", "middle", "old"]}, mu=2.0, **about)
    with Ledger(path, **CAP) as ledger:
        one.release(first, ledger=ledger)
        other.release(second, ledger=ledger)
        assert [entry.unit for entry in ledger.history()] == [ledger.unit] * 2
        charged = [entry.losses[0][1] for entry in ledger.history()]
        assert exact_delta(ledger.spent, charged) <= 1e-6
        assert ledger.spent > 0.8
        for release, table in ((one, first), (other, second)):
            with pytest.raises(BudgetExceededError):
                release.release(table, ledger=ledger)


def test_what_the_sum_promises(path):
    """Any pair of neighbours, one for each release, is within √Σs²; by listing all of them."""
    first, second = noise(), noise(["a + b = c", "c + d = e"], mu=[1, 2, 1, 3, 1])
    with Ledger(path, **CAP) as ledger:
        for m in (first, second):
            ledger.charge(m.guarantee, fingerprint="f")
        squares = []
        for m in (first, second):
            moves = m.dense.query @ m.adjacency.directions()
            inverse = np.linalg.pinv(m.covariance, hermitian=True)
            squares.append(np.einsum("ik,ij,jk->k", moves, inverse, moves))
        together = np.sqrt(squares[0][:, None] + squares[1][None, :])
        spent = ledger.spent
        for s in together.ravel():
            assert exact_delta(spent, [s]) <= 1e-6 * (1 + 1e-9)
        assert exact_delta(spent * (1 - 1e-6), [together.max()]) > 1e-6


# ---------------------------------------------------------------------- units


def test_simulation_and_agent_have_one_unit(path):
    pc = PrivateConsensus(nx.path_graph(3), law="gaussian", epsilon=0.5, delta=1e-6)
    more = PrivateConsensus(nx.path_graph(9), law="laplace", epsilon=0.1, mu=2.0)
    agents = [
        AgentNoise(epsilon=0.2, delta=1e-6).mechanism(),
        AgentNoise(law="laplace", sigma=50.0, mu=3.0).mechanism(),
    ]
    given = [pc.guarantee, pc.agent_guarantee(1), more.guarantee]
    given += [m.guarantee for m in agents]
    # an agent by itself has the neighbours of a network in which all move alike
    assert len({one.neighbours_key for one in given}) == 4
    with Ledger(path, epsilon=2.0, delta=1e-6, protects="agent 1") as ledger:
        for one in given:
            ledger.charge(one, fingerprint="f")
        assert ledger.unit == "the value of one agent"


def test_trajectories(path):
    local = design_output_noise(VEHICLE, 20, epsilon=0.3, delta=1e-6)
    farther = design_output_noise(VEHICLE, 30, epsilon=0.3, delta=1e-6, mu=[2.0, 1.0])
    full = design_output_noise(VEHICLE, 20, epsilon=0.3, delta=1e-6, adjacency="manifold")
    assert full.guarantee.unit == DEFINITION_4
    with Ledger(path, epsilon=1.0, delta=1e-6, protects="one vehicle") as ledger:
        ledger.charge(local.guarantee, fingerprint="f")
        ledger.charge(farther.guarantee, fingerprint="f")
        assert "time-local" in ledger.unit
        with pytest.raises(LedgerError, match="same_secret=True"):
            # a weaker promise is not taken for the stronger one
            ledger.charge(full.guarantee, fingerprint="f")


def test_units_of_all_neighbours():
    M = adp.AffineManifold([[1, 1, -1]], names=["a", "b", "t"])
    other = adp.AffineManifold([[-2, -2, 2]], names=["a", "b", "t"])
    assert adp.CircuitAdjacency(M).unit == adp.CircuitAdjacency(other, 5.0).unit == DEFINITION_4
    assert adp.CircuitAdjacency(M, unit="one person").unit == "one person"
    free = adp.FreeSetAdjacency(M, [["a", "b"]])
    assert free.unit == adp.FreeSetAdjacency(other, [["b", "a"]], mu=3.0).unit
    assert free.unit != adp.FreeSetAdjacency(M, [["a", "t"]]).unit
    assert free.unit != adp.FreeSetAdjacency(M, [["a", "b"], ["a", "t"]]).unit
    joins, moves = [[1, 0], [0, 1], [1, 1]], [[1], [-1], [0]]
    given = adp.DirectionAdjacency(M, joins)
    assert given.unit == adp.DirectionAdjacency(M, joins).unit
    assert given.unit != adp.DirectionAdjacency(M, moves).unit
    assert adp.DirectionAdjacency(M, joins, unit=" one person joins ").unit == "one person joins"
    ring = nx.cycle_graph(3)
    nx.set_edge_attributes(ring, 0.1, "x")
    flow = flows.from_graph(ring, reactance="x")
    assert flow.circuits().unit == DEFINITION_4
    assert flows.injection_neighbours(flow, balance=0).unit == "one injection of a flow network"
    for bad in ("", "  ", "a\nb", "x" * 201, 7, b"one"):
        with pytest.raises(AffineDPError, match="unit must say"):
            adp.CircuitAdjacency(M, unit=bad)


def test_units_survive_everything_that_is_done_with_a_guarantee(tmp_path):
    M = adp.AffineManifold([[1, 1, -1]], names=["a", "b", "t"])
    joins = [[1, 0], [0, 1], [1, 1]]
    for adjacency in (
        adp.CircuitAdjacency(M, unit="one person"),
        adp.FreeSetAdjacency(M, [["a", "b"]]),
        adp.DirectionAdjacency(M, joins, unit="one person joins"),
        adp.DirectionAdjacency(M, joins),
    ):
        m = adp.design_gaussian(M, epsilon=0.5, delta=1e-6, adjacency=adjacency)
        assert m.guarantee.unit == adjacency.unit
        assert adp.compose([m.guarantee, m.guarantee]).unit == adjacency.unit
        assert m.stack(m).guarantee.unit == adjacency.unit
        m.save(tmp_path / "m.json")
        for reverify in (True, False):
            again = adp.Mechanism.load(tmp_path / "m.json", reverify=reverify)
            assert again.guarantee.unit == again.adjacency.unit == adjacency.unit
    leaking = adp.verify(M, [[1.0], [0.0], [1.0]])
    assert leaking.leak is not None
    assert leaking.unit == DEFINITION_4


def test_releases_through_a_ledger_that_says_same_secret(path):
    M = adp.AffineManifold([[1, 1, -1]], names=["a", "b", "t"])
    joins = adp.DirectionAdjacency(M, [[1, 0], [0, 1], [1, 1]], unit="one person joins")
    m = adp.design_gaussian(M, epsilon=0.4, delta=1e-6, adjacency=joins)
    with Ledger(path, **CAP) as ledger:
        noise().release([30, 70, 100], ledger=ledger)
        with pytest.raises(LedgerError, match="one person joins"):
            m.release([1, 2, 3], ledger=ledger)
        assert len(ledger.history()) == 1
    with Ledger(path, same_secret=True) as ledger:
        m.release([1, 2, 3], ledger=ledger)
        assert [entry.status for entry in ledger.history()] == ["released"] * 2
