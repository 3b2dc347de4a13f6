"""Release: exact coordinates, integer noise, and refusals that cost nothing."""

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

import affinedp as adp
from affinedp.domains.manifold import OffManifoldError
from affinedp.errors import AffineDPError
from affinedp.release import publish as module
from affinedp.strategies.base import GRID_BITS, SHARE

MANIFOLD = adp.AffineManifold.from_equations(["a + b = c", "c + 0.5*d = 10"])


@pytest.fixture(scope="module")
def mechanisms():
    return {
        "gaussian": adp.design_gaussian(MANIFOLD, epsilon=1, delta=1e-6),
        "laplace": adp.design_laplace(MANIFOLD, epsilon=1, effort="quick"),
        "iid": adp.iid_noise(MANIFOLD, law="laplace", epsilon=1),
        "query": adp.design_gaussian(MANIFOLD, epsilon=1, delta=1e-6, query=["c", "d"]),
    }


def on_manifold(rows, seed=0, scale=10.0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows)) * scale
    c = a + b
    return np.column_stack([a, b, c, (10 - c) / 0.5])


def exact_coordinates(plan, x):
    """z in Fractions, straight from the definition."""
    matrix = plan.coordinates.values()
    step = Fraction(2) ** plan.step_exponent
    read = [Fraction(float(v)) for v in x[plan.hidden]]
    if plan.combinations is not None:
        sums = ((zip(row.places, row.numerators), row.denominator) for row in plan.combinations)
        read = [sum(c * read[j] for j, c in terms) / below for terms, below in sums]
    read = [round(v / step) * step for v in read]
    return [sum(Fraction(float(m)) * v for m, v in zip(row, read)) for row in matrix]


@pytest.mark.parametrize("name", ["gaussian", "laplace", "iid", "query"])
def test_coordinates_are_exact_and_right(mechanisms, name):
    m = mechanisms[name]
    plan = m.prepared()
    for x in on_manifold(5):
        steps = plan.steps(x[None])[:, 0]
        for found, expected in zip(steps, exact_coordinates(plan, x)):
            assert abs(found - expected * 2**GRID_BITS) <= Fraction(1, 2)
        noise = m.noise_matrix.toarray() if hasattr(m.noise_matrix, "toarray") else m.noise_matrix
        z = np.array([float(v) for v in steps]) * 2.0**-GRID_BITS
        published = m.dense.query @ MANIFOLD.point + noise @ z
        np.testing.assert_allclose(published, m.dense.query @ x, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "iid"])
def test_drawn_sensitivity_is_within_the_promise(mechanisms, name):
    """Neighbours on the grid differ by less than the noise was made for."""
    m = mechanisms[name]
    plan = m.prepared()
    limit = m.guarantee.sensitivity * plan.factor / (1 + SHARE)
    base = on_manifold(1)[0]
    for direction in m.adjacency.directions().T:
        moved = base + direction
        apart = plan.steps(moved[None]) - plan.steps(base[None])
        z = np.array([float(v) for v in apart[:, 0]]) * 2.0**-GRID_BITS
        # the data itself was rounded here when direction was added
        slack = 1e-12
        assert np.linalg.norm(z, 1 if m.law == "laplace" else 2) <= limit + slack
    assert 1 + SHARE <= plan.factor <= 1 + 1e-6


def test_published_is_a_function_of_the_noisy_coordinates(mechanisms, monkeypatch):
    """Two different x with the same z̃ give bit-identical outputs."""
    m = mechanisms["gaussian"]
    plan = m.prepared()
    target = np.array([[123456789 << 40], [-(987654321 << 40)]], dtype=object)
    outputs = []
    for x in on_manifold(2):
        steps = plan.steps(x[None])
        monkeypatch.setattr(module, "drawn", lambda *_, s=steps: target - s)
        outputs.append(m.release(x))
    assert outputs[0].tobytes() == outputs[1].tobytes()


@pytest.mark.parametrize("name", ["gaussian", "laplace", "iid", "query"])
def test_moments(mechanisms, name):
    m = mechanisms[name]
    x = on_manifold(1)[0]
    released = m.release(np.tile(x, (6000, 1)))
    error = released - m.dense.query @ x
    deviation = np.sqrt(np.diag(m.covariance))
    assert np.all(np.abs(error.mean(axis=0)) < 6 * deviation / math.sqrt(6000))
    assert np.all(np.abs(np.cov(error.T) - m.covariance) < 0.25 * np.outer(deviation, deviation))


def test_outputs_obey_the_equations(mechanisms):
    released = mechanisms["gaussian"].release(on_manifold(50))
    assert MANIFOLD.contains(released)
    sums = mechanisms["query"].release(on_manifold(50))
    np.testing.assert_allclose(sums[:, 0] + 0.5 * sums[:, 1], 10, rtol=1e-9)


def test_grid_is_fine_enough():
    """The lattice costs (1 + e^ε) p g²/24 in δ; the larger noise leaves far more than that."""
    for epsilon in (0.01, 1.0, 10.0):
        for delta in (1e-15, 1e-6, 0.1):
            s = adp.gaussian_sensitivity(epsilon, delta)
            left = adp.gaussian_delta(epsilon, s) - adp.gaussian_delta(epsilon, s / (1 + SHARE))
            for coordinates in (1, 1000):
                lattice = (1 + math.exp(epsilon)) * coordinates * 2.0 ** (-2 * GRID_BITS) / 24
                assert lattice < left


def test_pandas_is_matched_by_name(mechanisms):
    pandas = pytest.importorskip("pandas")
    m = mechanisms["gaussian"]
    data = pandas.DataFrame(on_manifold(3), columns=list("abcd"), index=list("uvw"))
    shuffled = data[["d", "b", "a", "c"]]
    released = m.release(shuffled)
    assert list(released.columns) == list("abcd")
    assert list(released.index) == list("uvw")
    one = m.release(shuffled.iloc[0])
    assert list(one.index) == list("abcd")
    assert one.name == "u"
    for broken, message in (
        (data.drop(columns="a"), "there is no column 'a'"),
        (data.assign(e=1), "does not know the column 'e'"),
        (data.assign(a=[1, None, 2]), "'a' has missing"),
        (data.assign(a=["x", "y", "z"]), "real number"),
        (data.assign(a=pandas.to_datetime(["2020"] * 3)), "'a' has values of type"),
        (pandas.concat([data, data[["a"]]], axis=1), "twice"),
        (data.iloc[:0], "no rows"),
    ):
        with pytest.raises(AffineDPError, match=message):
            m.release(broken)


class Purse(adp.Ledger):
    """A ledger that only counts."""

    def __init__(self):
        self.events = []

    def charge(self, guarantee, *, fingerprint, label=None, releases=1):
        self.events.append(("charge", label, releases) if releases > 1 else ("charge", label))
        return len(self.events)

    def settle(self, entry):
        self.events.append(("settle", entry))


def test_ledger_is_charged_before_the_noise_and_settled_after(mechanisms, monkeypatch):
    m, purse = mechanisms["gaussian"], Purse()
    real = module.drawn

    def noise(*words):
        assert purse.events == [("charge", "first")]
        return real(*words)

    monkeypatch.setattr(module, "drawn", noise)
    m.release(on_manifold(1)[0], ledger=purse, label="first")
    assert purse.events == [("charge", "first"), ("settle", 1)]


def test_a_batch_says_whom_its_rows_are_about(mechanisms, tmp_path):
    m, rows = mechanisms["gaussian"], on_manifold(3)
    alone = m.guarantee.sensitivity
    cap = {"epsilon": 3.0, "delta": 1e-6, "protects": "one person"}
    with adp.Ledger(tmp_path / "budget.db", **cap) as ledger:
        with pytest.raises(AffineDPError, match="3 rows.*rows='same'.*3 times.*rows='different'"):
            m.release(rows, ledger=ledger)
        for wrong in ("each", True, "separate"):
            with pytest.raises(AffineDPError, match="rows must be 'same' or 'different'"):
                m.release(rows, ledger=ledger, rows=wrong)
            with pytest.raises(AffineDPError, match="rows must be"):
                m.release(rows, rows=wrong)
        assert ledger.history() == ()
        assert m.release(rows, ledger=ledger, rows="different").shape[0] == 3
        m.release(rows[:1], ledger=ledger)  # one row is one release
        m.release(rows[0], ledger=ledger, rows="same")
        m.release(rows, ledger=ledger, rows="same")
        assert [entry.releases for entry in ledger.history()] == [1, 1, 1, 3]
        spent = math.sqrt(6) * alone
        assert ledger.spent == pytest.approx(float(adp.gaussian_epsilon(1e-6, spent)), rel=1e-9)
        # all rows or none: some of them would fit
        many = on_manifold(50)
        assert ledger.fits(m.guarantee)
        before = ledger.head
        with pytest.raises(adp.BudgetExceededError):
            m.release(many, ledger=ledger, rows="same")
        assert ledger.head == before
        assert m.release(many, ledger=ledger, rows="different").shape[0] == 50
    # nothing is charged without a ledger, so nothing needs to be said
    for said in (None, "same", "different"):
        assert m.release(rows, rows=said).shape[0] == 3


@pytest.mark.parametrize(
    "x",
    [
        [1, 2, 4, 12],
        [1, 2, np.nan, 14],
        [1, 2, np.inf, 14],
        [1, 2, 3],
        [[1, 2, 3]],
        [],
        [[]],
        None,
        "abcd",
        ["1", "2", "3", "14"],
        [True, True, False, False],
        [1j, 2, 3, 14],
        np.zeros((0, 4)),
        np.zeros((1, 1, 4)),
        [[1, 2, 3, 14], [1, 2, 3, 15]],
        [2**60, 1, 2**60 + 1, 20 - 2 * (2**60 + 1)],
    ],
    ids=str,
)
def test_refused_data_costs_nothing(mechanisms, monkeypatch, x):
    def never(*_):
        raise AssertionError("noise was drawn")

    purse = Purse()
    monkeypatch.setattr(module, "drawn", never)
    with pytest.raises(AffineDPError):
        mechanisms["gaussian"].release(x, ledger=purse)
    assert purse.events == []


def test_off_manifold_rows_are_named(mechanisms):
    data = on_manifold(4)
    data[2, 0] += 1
    with pytest.raises(OffManifoldError, match="row 2 .* a \\+ b - c = 0") as error:
        mechanisms["gaussian"].release(data)
    assert error.value.rows == (2,)


def test_bound(mechanisms):
    m = mechanisms["gaussian"]
    x = on_manifold(1)[0]
    assert m.release(x, bound=1e6).shape == (4,)
    assert m.prepared(1e6).factor > m.prepared().factor
    for bound in (1e-3, -1, 0, np.nan, "x"):
        with pytest.raises(AffineDPError, match="bound"):
            m.release(x, bound=bound)


def test_no_promise_no_release():
    M = adp.AffineManifold([[1, -4]])
    from affinedp.mechanism import build

    leaking = build(
        adp.CircuitAdjacency(M), np.eye(2), np.array([[1.0], [1.0]]), np.eye(1), "gaussian", M.names
    )
    with pytest.raises(AffineDPError, match="promises nothing"):
        leaking.release([4, 1])


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_extreme_scales(scale):
    M = adp.AffineManifold([[1, 1, -1]])
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, mu=scale)
    x = np.array([3.0, 4.0, 7.0]) * scale
    y = m.release(np.tile(x, (50, 1)))
    assert np.all(np.abs(y - x) < 100 * scale)
    assert M.contains(y)


def test_certified_mechanisms_release_too():
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(9, 9))
    M = adp.AffineManifold(nx.incidence_matrix(graph, oriented=True))
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6)
    flow = M.kernel @ np.arange(float(M.dim))
    assert M.contains(m.release(flow))


def test_opendp_measurement(mechanisms):
    for name, private in (("gaussian", "rho"), ("laplace", "epsilon")):
        m = mechanisms[name]
        measurement = m.make_measurement()
        assert len(measurement(on_manifold(1)[0].tolist())) == 4
        expected = m.guarantee.rho if private == "rho" else m.guarantee.epsilon()
        assert measurement.map(1.0) == pytest.approx(expected, rel=1e-12)
        factor = 4 if private == "rho" else 2
        assert measurement.map(2.0) == pytest.approx(factor * expected, rel=1e-12)


def test_opendp_measures_counts_of_a_tree_and_no_margins():
    measurement = adp.design_tree([-1, 0, 0], epsilon=1.0).make_measurement()
    whole, left, right = measurement([30, 10, 20])
    assert left + right == whole
    assert measurement.map(1) == pytest.approx(1.0, abs=1e-9)
    with pytest.raises(adp.AffineDPError, match="release margins and trajectories here"):
        adp.design_margins((2, 3), [(0,)], epsilon=1.0).make_measurement()


def test_dp_event(mechanisms):
    events = pytest.importorskip("dp_accounting").dp_event
    gaussian = mechanisms["gaussian"].dp_event()
    assert isinstance(gaussian, events.GaussianDpEvent)
    sensitivity = mechanisms["gaussian"].guarantee.sensitivity
    assert gaussian.noise_multiplier == pytest.approx(1 / sensitivity)
    assert isinstance(mechanisms["laplace"].dp_event(), events.LaplaceDpEvent)
    both = adp.compose([mechanisms[law].guarantee for law in ("gaussian", "laplace")])
    accountant = pytest.importorskip("dp_accounting.pld").PLDAccountant()
    accountant.compose(both.dp_event())
    assert accountant.get_epsilon(1e-6) == pytest.approx(both.epsilon(1e-6), rel=1e-3)
    leaking = adp.verify(MANIFOLD, np.eye(4)[:, :1], law="laplace")
    with pytest.raises(adp.AffineDPError, match="nothing is promised"):
        leaking.dp_event()


def test_fingerprint_tells_mechanisms_apart(mechanisms):
    assert len({m.fingerprint for m in mechanisms.values()}) == len(mechanisms)
    again = adp.design_gaussian(MANIFOLD, epsilon=1, delta=1e-6)
    assert again.fingerprint == mechanisms["gaussian"].fingerprint


def test_a_path_is_no_ledger(mechanisms):
    with pytest.raises(adp.AffineDPError, match="ledger must be a Ledger, not str"):
        mechanisms["gaussian"].release(on_manifold(1)[0], ledger="budget.db")


def test_data_of_two_shapes_gets_no_shared_draw():
    """What says that it is one row, and is read as four, would get one draw for all of them."""

    class Odd:
        shape = (3,)

        def __array__(self, dtype=None, copy=None):
            return np.array([[30.0, 70.0, 100.0]] * 4, dtype=dtype or float)

        def __len__(self):
            return 4

        def __getitem__(self, place):
            return [30.0, 70.0, 100.0]

    mechanism = adp.design(
        adp.AffineManifold.from_equations(["a + b = c"]), epsilon=1.0, integers=True
    )
    with pytest.raises(adp.AffineDPError, match="changed its shape"):
        mechanism.release(Odd())
