"""A ledger is one budget for one secret: nothing gets a cap of its own."""

import json
import subprocess
import sys
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
    OtherUnitError,
)
from affinedp.consensus import AgentNoise, PrivateConsensus
from affinedp.control import design_output_noise
from affinedp.errors import AffineDPError
from affinedp.laws.curves import LaplaceCurve
from affinedp.neighbours.circuit_adjacency import DEFINITION_4
from affinedp.promise.guarantee import Guarantee

CAP = {"epsilon": 1.0, "delta": 1e-6, "protects": "one person"}
CELLS = ["cells_in + cells_out = cells_total"]
VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def laplace(sensitivity, key="k", neighbours="one entry moves", unit="one entry"):
    curve = LaplaceCurve(sensitivity)
    return Guarantee(
        "laplace", sensitivity, True, neighbours, "by hand", curve, neighbours_key=key, unit=unit
    )


def noise(equations=CELLS, mu=1.0, epsilon=0.4, **others):
    M = adp.AffineManifold.from_equations(equations)
    return adp.design_gaussian(M, epsilon=epsilon, delta=1e-6, mu=mu, **others)


def exact_delta(epsilon, sensitivities):
    """δ of Gaussian releases together, from √Σs², in high precision."""
    with mp.workdps(40):
        s = mp.sqrt(mp.fsum(mp.mpf(one) ** 2 for one in sensitivities))
        return mp.ncdf(s / 2 - epsilon / s) - mp.exp(epsilon) * mp.ncdf(-s / 2 - epsilon / s)


# ---------------------------------------------------------------------- never a fresh cap


def kinds(what):
    """Releases about the same people that used to have a cap each."""
    if what == "another mu":
        return [noise(mu=10 - i / 100) for i in range(8)]
    if what == "an added column":
        more = ["a{0} + b{0} = cells_in"]
        return [
            noise(CELLS + [text.format(i) for text in more for i in range(k)]) for k in range(8)
        ]
    if what == "another order":
        four = ["a + b = c", "c + d = e", "e + f = g", "a + h = i"]
        return [noise(four[k % 4 :] + four[: k % 4]) for k in range(8)]
    if what == "another way to write it":
        return [noise([f"{k} cells_in + {k} cells_out = {k} cells_total"]) for k in range(1, 9)]
    if what == "other names":
        return [noise([f"in{k} + out{k} = total{k}"]) for k in range(8)]
    raise AssertionError(what)


@pytest.mark.parametrize(
    "what",
    ["another mu", "an added column", "another order", "another way to write it", "other names"],
)
def test_the_cap_is_never_passed(path, what):
    charged = []
    with warnings.catch_warnings(), Ledger(path, **CAP) as ledger:
        warnings.simplefilter("error")  # added without a word
        with pytest.raises(BudgetExceededError) as refusal:  # noqa: PT012
            for m in kinds(what):
                data = m.manifold.point
                m.release(data, ledger=ledger)
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
    about = {"epsilon": 0.6, "delta": 1e-6, "neighbours": "person", "law": "gaussian"}
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
    assert len({one.neighbours_key for one in given}) == 5
    with Ledger(path, epsilon=2.0, delta=1e-6, protects="agent 1") as ledger:
        for one in given:
            ledger.charge(one, fingerprint="f")
        assert ledger.unit == "the value of one agent"


def test_trajectories(path):
    local = design_output_noise(VEHICLE, 20, epsilon=0.3, delta=1e-6)
    farther = design_output_noise(VEHICLE, 30, epsilon=0.3, delta=1e-6, mu=[2.0, 1.0])
    full = design_output_noise(VEHICLE, 20, epsilon=0.3, delta=1e-6, neighbours="manifold")
    assert full.guarantee.unit == DEFINITION_4
    with Ledger(path, epsilon=1.0, delta=1e-6, protects="one vehicle") as ledger:
        ledger.charge(local.guarantee, fingerprint="f")
        ledger.charge(farther.guarantee, fingerprint="f")
        assert "time-local" in ledger.unit
        with pytest.raises(OtherUnitError):  # a weaker promise is not taken for the stronger one
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
        # files of older versions do not say it
        stored = json.loads((tmp_path / "m.json").read_text())
        del stored["adjacency"]["unit"]
        (tmp_path / "old.json").write_text(json.dumps(stored))
        assert adp.Mechanism.load(tmp_path / "old.json").guarantee.unit
    leaking = adp.verify(M, [[1.0], [0.0], [1.0]])
    assert leaking.leak is not None
    assert leaking.unit == DEFINITION_4


# ---------------------------------------------------------------------- other neighbours


def test_other_neighbours_are_refused_and_named(path):
    first = laplace(0.25, unit="the initial state", neighbours="x(0) moves")
    second = laplace(0.25, key="other", unit="one input", neighbours="u(3) moves")
    with Ledger(path, epsilon=1.0, protects="one plant") as ledger:
        ledger.charge(first, fingerprint="f")
        before = ledger.head
        assert not ledger.fits(second)
        with pytest.raises(OtherUnitError) as refusal:
            ledger.charge(second, fingerprint="f")
        assert (refusal.value.unit, refusal.value.given) == ("the initial state", "one input")
        for words in ("budget.db", "'the initial state'", "u(3) moves", "one plant", "same_secret"):
            assert words in str(refusal.value)
        assert isinstance(refusal.value, LedgerError)
        assert ledger.head == before
        assert ledger.fits(second, same_secret=True)
        ledger.charge(second, fingerprint="f", same_secret=True)
        ledger.charge(first, fingerprint="f", same_secret=True)  # not needed, and not marked
        assert [entry.same_secret for entry in ledger.history()] == [False, True, False]
        assert [entry.unit for entry in ledger.history()][1] == "one input"
        assert [entry.neighbours for entry in ledger.history()][1] == "u(3) moves"
        assert (ledger.spent, ledger.unit) == (0.75, "the initial state")
        with pytest.raises(OtherUnitError):  # said of that release, not of all
            ledger.charge(second, fingerprint="f")
    with Ledger(path, same_secret=True) as ledger:
        assert ledger.fits(second)
        assert not ledger.fits(second, same_secret=False)
        ledger.charge(second, fingerprint="f")
        assert [entry.same_secret for entry in ledger.history()] == [False, True, False, True]
        for one in (first, second):  # it adds up like the others
            with pytest.raises(BudgetExceededError):
                ledger.charge(one, fingerprint="f")
        assert ledger.check() == ()


def test_releases_through_a_ledger_that_says_same_secret(path):
    M = adp.AffineManifold([[1, 1, -1]], names=["a", "b", "t"])
    joins = adp.DirectionAdjacency(M, [[1, 0], [0, 1], [1, 1]], unit="one person joins")
    m = adp.design_gaussian(M, epsilon=0.4, delta=1e-6, adjacency=joins)
    with Ledger(path, **CAP) as ledger:
        noise().release([30, 70, 100], ledger=ledger)
        with pytest.raises(OtherUnitError, match="one person joins"):
            m.release([1, 2, 3], ledger=ledger)
        assert len(ledger.history()) == 1
    with Ledger(path, same_secret=True) as ledger:
        m.release([1, 2, 3], ledger=ledger)
        assert [entry.status for entry in ledger.history()] == ["released"] * 2


def test_the_very_same_neighbours_need_no_name(path):
    """A file of an older version may have lost the unit's name, but not the neighbours."""
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
        ledger.charge(laplace(0.25, unit="one person joins"), fingerprint="f")
        ledger.charge(laplace(0.25, unit="the given directions"), fingerprint="f")
        assert not any(entry.same_secret for entry in ledger.history())


def test_whom_it_protects_does_not_change(path):
    with Ledger(path, **CAP) as ledger:
        assert ledger.protects == "one person"
    for words in ("one person", " one person "):
        Ledger(path, protects=words).close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="protects 'one person', not 'one household'"):
        Ledger(path, protects="one household")
    assert path.read_bytes() == before
    with pytest.raises(LedgerError, match="say whom the new one protects"):
        Ledger(path.with_name("new.db"), epsilon=1.0)
    assert not path.with_name("new.db").exists()


# ---------------------------------------------------------------------- races


RACE = """
import os, sys
from affinedp.budget.ledger import BudgetExceededError, Ledger, OtherUnitError
from affinedp.laws.curves import LaplaceCurve
from affinedp.promise.guarantee import Guarantee


def race(path, units, **same):
    ready, go = os.pipe()
    children = []
    for i in range(8):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            own = Guarantee("laplace", 0.25, True, "n", "b", LaplaceCurve(0.25),
                            neighbours_key=f"k{i}", unit=units[i])
            with Ledger(path, epsilon=1.0, protects="one person") as ledger:
                try:
                    ledger.settle(ledger.charge(own, fingerprint="f", **same))
                    os._exit(0)
                except BudgetExceededError:
                    os._exit(7)
                except OtherUnitError:
                    os._exit(8)
        children.append(child)
    os.close(go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(sorted(codes))
    os.close(ready)

path = sys.argv[1]
units = [f"u{i}" for i in range(8)]
race(path + "1", ["u"] * 8)
race(path + "2", units)
race(path + "3", units, same_secret=True)
"""


@pytest.mark.slow
def test_races_with_other_neighbours(path):
    """Eight processes with eight kinds of neighbours: of one unit they share the cap."""
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str([0] * 4 + [7] * 4),
        str([0] + [8] * 7),
        str([0] * 4 + [7] * 4),
    ]
    for i, marks in ((1, 0), (2, 0), (3, 3)):
        with Ledger(f"{path}{i}") as ledger:
            assert ledger.spent == (0.25 if i == 2 else 1.0)
            assert sum(entry.same_secret for entry in ledger.history()) == marks
            assert ledger.check() == ()
