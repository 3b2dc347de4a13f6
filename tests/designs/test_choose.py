"""The choice of the law, and the bound below all of them, against brute force and known optima."""

import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.parts import StorageError
from affinedp.privacy.design import LeastPossible, LeastProof
from affinedp.privacy.least_error import least_sum_of_three, least_variance
from affinedp.strategies.one_sum import exchange_gauge
from dense import table

SUM = adp.AffineManifold.from_equations(["a + b = c"])
GROUPS = adp.AffineManifold.from_equations(["a + b = g", "c + d = h", "g + h = t"])


def test_total_of_two_parts_by_law():
    gaussian = adp.design(SUM, epsilon=1.0, delta=1e-6, law="gaussian")
    laplace = adp.design(SUM, epsilon=1.0, law="laplace")
    assert gaussian.expected_squared_error == pytest.approx(71.39, abs=0.01)
    assert laplace.expected_squared_error == pytest.approx(14.0, rel=1e-6)
    assert gaussian.lower_bound == pytest.approx(4 * least_variance(1.0, 1e-6), rel=1e-7)
    assert laplace.lower_bound == pytest.approx(4 * 1.918103, rel=1e-6)
    assert laplace.excess == pytest.approx(14 / (4 * 1.918103), rel=1e-6)
    assert gaussian.alternatives == laplace.alternatives == ()


def test_bound_of_gaussian_and_laplace_designs_is_for_whole_numbers_too():
    """Their users do not say what the data is: the weaker bound holds for both."""
    assert adp.design_laplace(SUM, epsilon=1.0).lower_bound == pytest.approx(
        4 * least_variance(1.0), rel=1e-6
    )
    m = adp.design_gaussian(SUM, epsilon=1.0, delta=1e-6)
    assert m.least.data == "any"
    assert adp.iid_noise(SUM, law="laplace", epsilon=1.0).lower_bound is None


def least_of_lattice_laws(epsilon, cost, moves, reach):
    """Least expected cost of any law on a box of Z² that is ε-private for the moves: an LP.

    Steps that leave the box ask nothing and mass on its edge is charged too little, so the value
    is below that of every private law on the whole lattice.
    """
    axis = np.arange(-reach, reach + 1)
    place = {(i, j): k for k, (i, j) in enumerate((i, j) for i in axis for j in axis)}
    rows, columns, values, count = [], [], [], 0
    for (i, j), k in place.items():
        for di, dj in [*moves, *((-a, -b) for a, b in moves)]:
            other = place.get((i + di, j + dj))
            if other is not None:
                rows += [count, count]
                columns += [k, other]
                values += [1.0, -math.exp(epsilon)]
                count += 1
    A = sparse.csr_array((values, (rows, columns)), shape=(count, len(place)))
    costs = np.array([cost(i, j) for i, j in place])
    return linprog(
        costs, A_ub=A, b_ub=np.zeros(count), A_eq=np.ones((1, len(place))), b_eq=[1.0],
        method="highs",
    ).fun  # fmt: skip


@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_no_lattice_mechanism_goes_below_the_bound(weight):
    """a, b and c = a + b in whole numbers, at ε = 2, in a box large enough for the tails."""
    found = least_of_lattice_laws(
        2.0, lambda i, j: i * i + j * j + weight * (i + j) ** 2, [(1, -1), (1, 0), (0, 1)], 9
    )
    promise = {"epsilon": 2.0, "delta": 0.1, "law": "gaussian"}
    least = adp.design(SUM, **promise, integers=True, weights=[1, 1, weight]).least
    general = LeastPossible(least.dual, least.error, 2.0, data="integer")
    assert general.bound <= found * (1 + 1e-9)
    best = replace(general, sum_of_three=least.sum_of_three)
    if weight == 1.0:
        assert best.bound == pytest.approx(least_sum_of_three(2.0), rel=1e-12)
        assert best.bound == pytest.approx(found, rel=1e-4)  # masses below 1e-7 are free there
        assert "whole numbers anywhere" in best.sentence()
    else:
        assert best.bound == general.bound


def test_the_exact_optimum_is_for_three_whole_numbers_only():
    def three(manifold, **more):
        m = adp.design(manifold, epsilon=1.0, delta=0.1, law="gaussian", integers=True, **more)
        return m.least.sum_of_three

    assert three(SUM) == 1.0
    assert three(SUM, weights=[2, 2, 2]) == 2.0
    assert three(adp.AffineManifold([[1, 1, 1]])) == 1.0
    assert three(SUM, weights=[1, 1, 2]) == 0.0
    assert three(SUM, mu=2.0) == 0.0
    assert three(SUM, query=["a", "b"]) == 0.0
    assert three(SUM, adjacency=adp.FreeSetAdjacency(SUM, [["a", "b"]])) == 0.0
    assert three(adp.AffineManifold([[1, 1, 1, 1]])) == 0.0


def test_moves_that_are_not_whole_give_no_bound_for_whole_numbers():
    m = adp.design(SUM, epsilon=1.0, delta=0.1, law="gaussian", integers=True, mu=0.5)
    assert m.lower_bound is None
    assert m.excess is None


def test_gaussian_wins_for_many_releases_and_pure_laws_for_few():
    """The crossover of the theory: pure wins iff E/T < k ε₀²/s², with ε₀ = ε/k."""
    ratio = 14 / 4  # Laplace strategies; T = 4
    s = adp.gaussian_sensitivity(1.0, 1e-6)
    for releases in (2, 20):
        m = adp.design(SUM, epsilon=1.0, delta=1e-6, releases=releases)
        if releases > 1 / s**2 / ratio + 2:
            assert m.law == "gaussian"
        elif releases < 1 / s**2 / ratio:
            assert m.law != "gaussian"
        assert {m.law, *(other.law for other in m.alternatives)} >= {"gaussian", "knorm"}
        assert m.guarantee.holds(1.0, 1e-6)
        together = adp.compose([m.guarantee] * releases)
        assert together.holds(1.0, 0.0 if m.law != "gaussian" else 1e-6)


def test_pure_laws_that_cannot_win_are_not_designed():
    m = adp.design(SUM, epsilon=1.0, delta=0.01, releases=50)
    assert m.law == "gaussian"
    assert all(not other.designed and other.error > 0 for other in m.alternatives)
    assert "least squared error" in m.notes[0]
    m = adp.design(SUM, epsilon=0.0, delta=0.01)
    assert m.law == "gaussian"
    assert all("ε = 0" in other.reason for other in m.alternatives)


@pytest.mark.parametrize(("releases", "delta"), [(7, 0.0), (13, 1e-6)])
def test_a_ledger_lets_the_planned_releases_pass_and_no_more(releases, delta, tmp_path):
    m = adp.design(SUM, epsilon=1.0, delta=delta, releases=releases)
    cap = {"epsilon": 1.0, "delta": delta, "protects": "one person"}
    with adp.Ledger(tmp_path / "budget.db", **cap) as ledger:
        for _ in range(releases):
            m.release([30, 70, 100], ledger=ledger)
        with pytest.raises(AffineDPError, match="budget .*Nothing was charged"):
            m.release([30, 70, 100], ledger=ledger)


def test_largest_variance():
    """Four groups of five: 79.1 with the least sum, 51.6 with the least largest variance."""
    groups = ["+".join(f"a{g}{i}" for i in range(5)) + f"=g{g}" for g in range(4)]
    M = adp.AffineManifold.from_equations([*groups, "g0 + g1 + g2 + g3 = t"])
    promise = {"epsilon": 1.0, "delta": 1e-6}
    total = adp.design_gaussian(M, **promise)
    largest = adp.design(M, **promise, law="gaussian", objective="largest")
    assert total.expected_squared_errors.max() == pytest.approx(79.07, abs=0.01)
    assert largest.expected_squared_errors.max() == pytest.approx(51.63, abs=0.01)
    assert largest.gap <= 1e-4
    assert largest.guarantee.holds(1.0, 1e-6)
    s = adp.gaussian_sensitivity(1.0, 1e-6)
    assert largest.least.objective == "largest"
    assert largest.least.dual / s**2 <= largest.expected_squared_errors.max()
    assert largest.least.dual / s**2 >= largest.expected_squared_errors.max() / (1 + 1.1e-4)


@pytest.mark.parametrize("law", ["auto", "productnorm"])
@pytest.mark.parametrize(("shape", "most"), [((4, 4), 59.136), ((4, 5), 70.0409), ((5, 7), None)])
def test_largest_variance_of_a_table(law, shape, most):
    """All entries of a table with its totals are alike: a body for the sum is one for each."""
    M = table(*shape)
    m = adp.design(M, epsilon=1.0, objective="largest", law=law, effort="quick")
    total = adp.design(M, epsilon=1.0, effort="quick")
    assert m.law == "productnorm"
    assert m.guarantee.epsilon() == 1.0
    if most is not None:
        assert m.expected_squared_errors.max() == pytest.approx(most, rel=1e-5)
    assert m.expected_squared_errors.max() <= total.expected_squared_errors.max() * (1 + 1e-9)
    simulated = (m.sample(100_000, seed=1) ** 2).mean(axis=0)
    assert simulated.max() == pytest.approx(m.expected_squared_errors.max(), rel=0.05)
    # independent Laplace noise for the longest circuit, brought back onto the equations
    longest = 2 * (min(shape) + 1)
    dimension = shape[0] * shape[1] / ((shape[0] + 1) * (shape[1] + 1))
    assert m.expected_squared_errors.max() <= 2 * longest**2 * dimension


def test_largest_variance_is_clarabels():
    cvxpy = pytest.importorskip("cvxpy")
    M = adp.AffineManifold.from_equations(["a + b + c = t", "t + 2*u = v"])
    m = adp.design(M, epsilon=1.0, delta=1e-3, law="gaussian", objective="largest")
    basis = np.asarray(m.dense.basis)
    moves = np.linalg.pinv(basis) @ adp.CircuitAdjacency(M).directions()
    r = basis.shape[1]
    S, top = cvxpy.Variable((r, r), symmetric=True), cvxpy.Variable()
    limits = [cvxpy.diag(basis @ S @ basis.T) <= top]
    limits += [cvxpy.bmat([[S, v[:, None]], [v[None], np.eye(1)]]) >> 0 for v in moves.T]
    problem = cvxpy.Problem(cvxpy.Minimize(top), limits)
    problem.solve(solver="CLARABEL")
    s = adp.gaussian_sensitivity(1.0, 1e-3)
    assert m.expected_squared_errors.max() == pytest.approx(problem.value / s**2, rel=2e-4)


def test_separate_blocks_and_public_outputs():
    M = adp.AffineManifold.from_equations(["a + b = c", "d = 2*e"])
    for objective in ("sum", "largest"):
        m = adp.design(M, epsilon=1.0, delta=1e-6, law="gaussian", objective=objective)
        assert m.excess == pytest.approx(9.694, abs=2e-3)


def test_free_combinations_have_no_bound():
    m = adp.design_gaussian(SUM, epsilon=1.0, delta=1e-6, weights=[1, 0, 0])
    assert m.lower_bound is None
    assert m.least is None


def test_matrix_weights_and_saved_bounds(tmp_path):
    Q = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]])
    m = adp.design(SUM, epsilon=1.0, delta=1e-6, weights=Q, releases=10)
    assert m.least.error == pytest.approx(float((Q * m.covariance).sum()))
    m.save(tmp_path / "m.json")
    back = adp.Mechanism.load(tmp_path / "m.json")
    assert back.least == m.least
    assert back.alternatives == ()  # a file does not prove them
    assert back.lower_bound == m.lower_bound
    text = (tmp_path / "m.json").read_text()
    altered = tmp_path / "altered.json"
    for old, new in (
        (f'"error": {m.least.error!r}', '"error": 1e6'),
        (f"{m.least.dual!r}", repr(m.least.dual * (1 + 1e-12))),
    ):
        assert old in text
        altered.write_text(text.replace(old, new))
        back = adp.Mechanism.load(altered)
        assert back.least.error == m.least.error  # computed, not read
        assert back.least.dual == pytest.approx(m.least.dual, rel=1e-9)
    for old, new in (
        ('"kind": "least possible",', '"kind": "least possible", "objective": "median",'),
        (f'"epsilon": {m.least.epsilon!r}', '"epsilon": 0.1'),
    ):
        assert old in text
        altered.write_text(text.replace(old, new))
        with pytest.raises(AffineDPError):
            adp.Mechanism.load(altered)


PROVED = {
    "gaussian": lambda: adp.design(SUM, epsilon=1.0, delta=1e-6, law="gaussian"),
    "knorm": lambda: adp.design_knorm(SUM, epsilon=1.0, weights=[1, 1, 100], effort="quick"),
    "integers": lambda: adp.design_knorm(SUM, epsilon=1.0, integers=True, effort="quick"),
    "largest": lambda: adp.design(
        GROUPS, epsilon=1.0, delta=1e-6, objective="largest", law="gaussian"
    ),
    "blocks": lambda: adp.design_gaussian(
        adp.AffineManifold.from_equations(["a + b = c", "d + e = f"]), epsilon=1.0, delta=1e-6
    ),
    "free sets": lambda: adp.design_gaussian(
        SUM, epsilon=1.0, delta=1e-6, adjacency=adp.FreeSetAdjacency(SUM, [["a", "b"]])
    ),
    "directions": lambda: adp.design_gaussian(
        SUM,
        epsilon=1.0,
        delta=1e-6,
        adjacency=adp.DirectionAdjacency(SUM, [[1, 0], [0, 2], [1, 2]]),
    ),
    "sum": lambda: adp.design_knorm(adp.AffineManifold(np.ones((1, 501))), epsilon=1.0),
}


@pytest.mark.parametrize("name", PROVED)
def test_files_prove_their_bounds(name, tmp_path):
    """Moves that are none, shares that are none, and weights that are others prove nothing more."""
    m = PROVED[name]()
    m.save(tmp_path / "m.json")
    back = adp.Mechanism.load(tmp_path / "m.json")
    assert 0 < back.lower_bound <= m.lower_bound
    assert back.lower_bound == pytest.approx(m.lower_bound, rel=1e-10)
    document = json.loads((tmp_path / "m.json").read_text())
    design, proof = document["saved"]["design"], m.least.proof
    least = design["least"]
    forged = [{"weights": None}, {"dual": 1e300}, {"sum_of_three": 1e9}]
    forged.append({"proof": LeastProof(proof.value).record()})
    if proof.moves is not None:
        moves, shares = proof.moves, proof.shares
        for others in (
            (3.0 * moves, shares),
            (moves, -shares),
            (moves[:, [0]], shares[:1]),
            (moves[:, [0, 0]], np.array([0.5, 1e9])),
        ):
            forged.append({"proof": LeastProof(proof.value, *others).record()})
    for change in forged:
        design["least"] = least | change
        (tmp_path / "forged.json").write_text(json.dumps(document))
        try:
            bound = adp.Mechanism.load(tmp_path / "forged.json").lower_bound
        except StorageError:  # an error below the bound that is claimed is not possible
            continue
        assert bound is None or bound <= m.lower_bound * (1 + 1e-9)
        assert bound is None or "weights" not in change


def test_a_copy_with_other_noise_keeps_no_guarantee():
    m = adp.design_gaussian(SUM, epsilon=1.0, delta=1e-6)
    assert m.with_design(notes=("mine",)).guarantee is m.guarantee
    weaker = replace(m, strategy=m.strategy.scaled(0.5))
    with pytest.raises(AffineDPError, match="does not keep"):
        weaker.guarantee  # noqa: B018 (it remembers what was asked for)
    nearer = replace(m, adjacency=adp.CircuitAdjacency(SUM, 0.5))
    assert nearer.guarantee.sensitivity == pytest.approx(m.guarantee.sensitivity / 2)
    copies = (copy.deepcopy(m), pickle.loads(pickle.dumps(m)))
    assert all(one.guarantee.sensitivity == m.guarantee.sensitivity for one in copies)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "law": "cauchy"},
        {"epsilon": 1.0, "law": "gaussian"},
        {"epsilon": 1.0, "releases": 0},
        {"epsilon": 1.0, "releases": 1.5},
        {"epsilon": 1.0, "releases": True},
        {"epsilon": 1.0, "objective": "median"},
        {"epsilon": 1.0, "objective": "largest", "weights": [1, 1, 1]},
    ],
)
def test_refusals(wrong):
    with pytest.raises(AffineDPError):
        adp.design(SUM, **wrong)


def test_whole_numbers_that_move_by_fractions_have_no_bound():
    """Whole neighbours move by 1 where μ = 1.5: a bound for moves of 1.5 would be too high."""
    for mu, known in ((1.5, False), (2.0, True)):
        m = adp.design_knorm(SUM, epsilon=1.0, mu=mu, integers=True)
        assert (m.lower_bound is not None) == known
        if known:
            assert m.lower_bound <= m.expected_squared_error


def test_one_sum_of_very_many_entries():
    n = 600
    M = adp.AffineManifold(np.ones((1, n)))
    m = adp.design(M, epsilon=1.0, delta=1e-6)
    assert m.law == "knorm"
    assert m.expected_squared_error == pytest.approx(4 * (n - 1) * (2 * n - 1) / (n + 1))
    s = adp.gaussian_sensitivity(1.0, 1e-6)
    assert m.alternatives[0].error == pytest.approx(2 * (n - 1) / s**2)
    assert m.lower_bound == pytest.approx(2 * (n - 1) * least_variance(1.0, 1e-6), rel=1e-9)
    small = adp.design(adp.AffineManifold(np.ones((1, 8))), epsilon=1.0, delta=1e-6, law="gaussian")
    assert small.least.dual == pytest.approx(2 * 7, rel=1e-7)  # the same formula, by the search


def test_bound_for_whole_numbers_where_computed_moves_are_off_by_a_rounding():
    """Entries of a 3×3 table's moves come out as 1 ± 9e-16: they are whole all the same."""
    rows = [[float(j // 3 == i) for j in range(9)] for i in range(3)]
    columns = [[float(j % 3 == i) for j in range(9)] for i in range(3)]
    table = adp.AffineManifold(rows + columns, [-30.0] * 6)
    m = adp.design_knorm(table, epsilon=1.0, integers=True, effort="quick")
    assert m.lower_bound == pytest.approx(24 * least_variance(1.0), rel=1e-5)
    halves = adp.design_knorm(table, epsilon=1.0, mu=1.5, integers=True, effort="quick")
    assert halves.lower_bound is None


def test_output_that_neighbours_do_not_move_is_no_dimension():
    """2b + 2c − e is 0 on this manifold; rounding makes it 1e-15."""
    manifold = adp.AffineManifold([[2.0, -2, 2, 1], [1, -2, 0, 1]])
    query = [[-2.0, -1, -2, -2], [0, 2, 2, -1]]
    m = adp.design(manifold, epsilon=0.1, query=query)
    b = math.exp(-0.1)  # one real number: the staircase, where Laplace noise has 5000
    least = (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2
    assert m.expected_squared_errors == pytest.approx([25 * least, 0.0])
    x = manifold.point + manifold.kernel @ np.array([3.0, 4.0])
    assert m.release(x)[1] == pytest.approx(0.0, abs=1e-12)
    gaussian = adp.design_gaussian(manifold, epsilon=0.1, delta=1e-3, query=query)
    assert gaussian.expected_squared_errors[1] == 0.0


def test_pure_laws_need_an_epsilon():
    for law in ("knorm", "laplace"):
        with pytest.raises(AffineDPError, match="needs ε > 0"):
            adp.design(SUM, epsilon=0.0, delta=0.1, law=law)


def test_real_noise_on_whole_numbers_is_announced():
    m = adp.design(SUM, epsilon=1.0, delta=0.01, releases=20, integers=True)
    assert m.law == "gaussian"
    assert m.notes[-1] == "Gaussian noise is real: what is published is not whole"


def error_of_hull(D):
    """E|z|² of the density e^-‖z‖ with the hull of the circuits of two equations, from triangles.

    Circuits are found from all pairs of entries of which one does not move.
    """
    D = np.array(D, dtype=float)
    kernel = np.linalg.svd(D)[2][2:].T
    moves = []
    for still in range(D.shape[1]):
        if np.linalg.norm(kernel[still]) > 1e-9:
            v = kernel @ np.array([kernel[still, 1], -kernel[still, 0]])
            v[np.abs(v) < 1e-9] = 0.0
            moves.append(v / np.abs(v[v != 0]).min())  # some entry moves by one, others follow
    plane = np.array(moves) @ kernel
    corners = np.vstack([plane, -plane])
    hull = corners[ConvexHull(corners).vertices]
    areas, squares = 0.0, 0.0
    for a, b in zip(hull, np.roll(hull, -1, axis=0)):
        area = abs(a[0] * b[1] - a[1] * b[0]) / 2
        areas += area
        squares += area * (a @ a + b @ b + (a + b) @ (a + b)) / 12
    return 12 * squares / areas


@pytest.mark.parametrize("effort", ["quick", "default"])
def test_whole_data_gets_real_noise_where_that_is_less(effort):
    """Whole neighbours are neighbours among real numbers, and have their promise."""
    D = [[0, 2, -1, 1], [-2, -1, 2, 2]]
    m = adp.design(adp.AffineManifold(D), epsilon=1.0, integers=True, effort=effort)
    assert m.expected_squared_error <= error_of_hull(D) * (1 + 1e-9)
    assert not m.noise.whole
    assert "what is published is not whole" in m.notes[-1]
    assert m.guarantee.epsilon() == 1.0
    assert "whole numbers" not in m.guarantee.neighbours
    v = geng_viswanath_of_two(1.0)
    pair = adp.design(adp.AffineManifold([[-1, 1]]), epsilon=1.0, mu=2, integers=True)
    assert pair.expected_squared_error <= v * (1 + 1e-9)
    row = adp.design(
        adp.AffineManifold([[-1, 1]]), epsilon=1.0, mu=2, query=[[1, 0]], integers=True
    )
    assert row.expected_squared_error <= v / 2 * (1 + 1e-9)


def geng_viswanath_of_two(epsilon):
    """Two equal numbers that move by 2, by the closed form of the least law on a line."""
    b = math.exp(-epsilon)
    return 8 * (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2


def test_a_table_of_whole_numbers_has_no_more_noise_than_one_of_real_numbers():
    """The hull of the moves of a 3 × 3 table, facet by facet from qhull: 288.593459."""
    m = adp.design(table(3, 3), epsilon=1.0, integers=True)
    assert m.expected_squared_error == pytest.approx(288.593459, rel=1e-6)
    assert m.guarantee.epsilon() == 1.0


def test_what_is_not_yes_or_no_is_refused():
    with pytest.raises(AffineDPError, match="must be True or False"):
        adp.design(SUM, epsilon=1.0, integers="no")


def test_least_variance_refuses_what_doubles_do_not_hold():
    for promise in ((0.0, 1e-310), (1e-300, 1e-300), (1e-300, 0.0)):
        with pytest.raises(AffineDPError, match="range of double precision"):
            least_variance(*promise)


def test_independent_moves_get_independent_noise_in_any_dimension():
    """One free set of 20: the hull is a cross-polytope, and a search would take minutes."""
    names = [f"a{i}" for i in range(20)]
    M = adp.AffineManifold.from_equations([" + ".join(names) + " = total"])
    only = adp.FreeSetAdjacency(M, [names])
    m = adp.design(M, epsilon=1.0, delta=1e-6, adjacency=only)
    found = {m.law: m.expected_squared_error} | {one.law: one.error for one in m.alternatives}
    assert found["laplace"] == pytest.approx(2 * 20 + 2 * 20, rel=1e-6)
    assert m.expected_squared_error == min(found[law] for law in ("laplace", m.law))
    assert m.guarantee.epsilon() <= 1.0


@pytest.mark.parametrize("integers", [False, True])
def test_one_sum_of_very_many_entries_is_published(integers):
    """Without any n × n matrix: 20,000² numbers would take 3.2 GB."""
    n = 20_000
    M = adp.AffineManifold(sparse.csr_array(np.where(np.arange(n) % 2, -1.0, 1.0)[None]))
    m = adp.design(M, epsilon=1.0, delta=1e-9, integers=integers)
    assert m.law == "knorm"
    assert m.guarantee.epsilon() == 1.0
    assert m.guarantee.exact
    assert m.published_without_noise == ()
    y = m.release(np.arange(n) // 2)
    assert abs(y[::2].sum() - y[1::2].sum()) <= 1e-9 * np.abs(y).sum()
    assert np.var(y - np.arange(n) // 2) == pytest.approx(m.expected_squared_error / n, rel=0.1)
    assert m.publishes_whole_numbers == integers == bool(np.all(y == np.rint(y)))
    assert len(m.fingerprint) == 64
    few = adp.design_knorm(adp.AffineManifold([[1, -1, 1]]), epsilon=1.0, effort="quick")
    same = few.adjacency, few.dense.query, sparse.eye_array(3)
    assert exchange_gauge(*same, np.array([[1.0, -1, 1]]).T) == 1
    assert exchange_gauge(*same, np.ones((3, 1))) is None


@pytest.mark.parametrize("law", ["gaussian", "laplace", "knorm", "staircase"])
def test_numbers_behind_a_promise_cannot_be_changed(law):
    own = np.eye(2)
    m = adp.design(
        adp.AffineManifold([[1, -1]]), epsilon=1.0, delta=1e-6 * (law == "gaussian"), law=law,
        query=own,
    )  # fmt: skip
    for array in (m.dense.basis, m.dense.query):
        with pytest.raises(ValueError, match="read-only"):
            array *= 0.01
    own[0, 0] = 2.0  # the caller's array is the caller's
    assert m.guarantee.epsilon(m.guarantee.delta(1.0)) == pytest.approx(1.0)
    assert np.all(m.dense.query @ [1, 1] == [1, 1])
    assert m.with_design(notes=()).guarantee is m.guarantee


@pytest.mark.parametrize("law", ["auto", "laplace", "knorm", "staircase"])
def test_a_part_without_weight_is_named(law):
    with pytest.raises(AffineDPError, match="zero on everything that a part of the query"):
        adp.design(adp.AffineManifold(np.zeros((0, 3))), epsilon=1.0, weights=[0, 1, 1], law=law)


@pytest.mark.parametrize("seed", ["x", -1, 1.5])
@pytest.mark.parametrize("way", [adp.design, adp.design_knorm])
def test_seeds_are_read_where_a_closed_form_needs_none(way, seed):
    with pytest.raises(AffineDPError, match="seed"):
        way(adp.AffineManifold([[1, 1, 1]]), epsilon=1.0, seed=seed)


def test_noise_whose_error_cannot_be_told_is_left_out():
    M = adp.AffineManifold([[3, 0, 3, -2, -1, 0]])
    weights = [5e-6, 1e5, 60, 2e-4, 3e-6, 1e4]
    m = adp.design(M, epsilon=0.5, integers=True, weights=weights, effort="quick")
    assert m.guarantee.holds(0.5, 0.0)


def test_one_number_over_whole_data_may_have_coefficients_of_any_length():
    M = adp.AffineManifold([[1, 1, -1]])
    row = np.random.default_rng(0).normal(size=(1, 3))
    m = adp.design(M, epsilon=1.0, integers=True, query=row)
    assert m.guarantee.holds(1.0, 0.0)
    farthest = max(abs(row[0] @ move) for move in ([1, 0, 1], [0, 1, 1], [1, -1, 0]))
    assert m.expected_squared_error <= 2 * farthest**2


def test_whole_noise_on_a_fine_lattice_is_simulated_as_it_is_released():
    D = [[1, 0, 0, -1, 0, 0, 0, 1], [0, 1, -1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 0, -1, 0, 0]]
    m = adp.design_knorm(
        adp.AffineManifold(D), epsilon=1.0, integers=True, mu=[2, 1, 3, 3, 3, 3, 2, 3],
        effort="quick",
    )  # fmt: skip
    drawn = m.sample(20_000, seed=0)
    assert np.all(drawn == np.rint(drawn))
    assert not np.any(drawn @ np.transpose(D))
    assert np.allclose((drawn**2).mean(axis=0), m.expected_squared_errors, rtol=0.1)
    low, high = m.interval(np.zeros(8), level=0.9)
    inside = ((low <= drawn) & (drawn <= high)).mean(axis=0)
    assert inside.min() > 0.89
