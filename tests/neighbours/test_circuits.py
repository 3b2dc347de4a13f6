"""Circuits and adjacency against brute force over all bases, and against 4ti2's counts."""

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.circuits.compiled import Records
from affinedp.neighbours.circuits.search import (
    ColumnSide,
    KernelSide,
    _calls,
    fold_parallel,
    orthonormal,
)
from affinedp.progress import Progress
from oracles import brute_force_sensitivity, trajectory_equations


def incidence(graph):
    graph = nx.convert_node_labels_to_integers(graph)
    return nx.incidence_matrix(graph, oriented=True).toarray().astype(int)


@st.composite
def problems(draw):
    n = draw(st.integers(2, 9))
    q = draw(st.integers(1, min(n - 1, 4)))
    entry = st.sampled_from([0, 0, 1, -1, 2, -3, 0.5])
    D = np.array(draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=q, max_size=q)))
    D = D[np.linalg.qr(D.T)[1].diagonal() != 0] if q > 1 else D
    mu = np.array(draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=n, max_size=n)))
    r = draw(st.integers(1, 4))
    matrix = np.random.default_rng(draw(st.integers(0, 10**6))).normal(size=(r, n))
    return D, mu, draw(st.sampled_from([matrix, np.eye(n), np.ones((1, n))]))


def independent(D):
    kept = np.zeros((0, D.shape[1]))
    for row in D:
        if np.linalg.matrix_rank(np.vstack([kept, row])) > len(kept):
            kept = np.vstack([kept, row])
    return kept


@pytest.mark.slow
@settings(max_examples=200)
@given(problems(), st.sampled_from([1, 2]))
def test_sensitivity_is_brute_force(problem, norm):
    D, mu, matrix = problem
    D = independent(D)
    if not mu.any() or len(D) == 0:
        return
    M = adp.AffineManifold(D, public_entries="allow")
    adjacency = adp.CircuitAdjacency(M, mu)
    expected, count = brute_force_sensitivity(D, matrix, norm, mu)
    found = adjacency.sensitivity(matrix, norm)
    assert found.exact
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert expected * (1 - 1e-14) <= found.upper <= expected * (1 + 1e-12)
    assert np.linalg.norm(matrix @ found.direction, ord=norm) == pytest.approx(expected, rel=1e-12)
    assert adjacency.count() == count
    listed = adjacency.directions()
    assert listed.shape == (M.n, count)
    assert np.all(np.abs(M.D @ listed) <= 1e-12 * (np.abs(M.D) @ np.abs(listed)) + 1e-300)
    longest = np.linalg.norm(matrix @ listed, ord=norm, axis=0).max(initial=0)
    assert longest == pytest.approx(expected, rel=1e-12)


@settings(max_examples=60)
@given(problems(), st.sampled_from([1, 2]))
def test_every_search_agrees(problem, norm):
    """Kernel side and column side on the same component, whatever would be chosen."""
    D, mu, matrix = problem
    mu = mu + 0.5
    M = adp.AffineManifold(independent(D), public_entries="allow")
    for component in adp.CircuitAdjacency(M).bound_components:
        if component.dim == 1 or component.rank == 0:
            continue
        part, reach = matrix[:, component.entries], mu[component.entries]
        balance = component.entry_units()
        basis = orthonormal(component.kernel() * balance[:, None])
        folded = fold_parallel(component, basis)
        searches = [
            KernelSide(component, basis, balance, folded, part, reach, 1e9),
            ColumnSide(component, part, reach, 1e9),
        ]
        results = []
        for search in searches:
            records = Records.empty(search.width, 4, 0, 0)
            for _ in _calls(search, norm, records, Progress("")):
                pass
            results.append((records.counters[1], records.top_scores[-1]))
        assert results[0][0] == results[1][0]
        assert results[0][1] == pytest.approx(results[1][1], rel=1e-9)


# Counts from 4ti2 1.6.9, `circuits -p arb` on the same integer matrices.
COUNTS = {
    "dense (5, 20)": (np.random.default_rng(0).integers(-9, 10, (5, 20)), 38_732),
    "Petersen": (incidence(nx.petersen_graph()), 57),
    "4x4 grid": (incidence(nx.grid_2d_graph(4, 4)), 213),
    "5x5 grid": (incidence(nx.grid_2d_graph(5, 5)), 9_349),
    "double integrator T=50": (trajectory_equations([[1, 0.1], [0, 1]], 50, 10), 51),
    "sum n=1000": (np.ones((1, 1000), dtype=int), 499_500),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    D, count = COUNTS[name]
    assert adp.CircuitAdjacency(adp.AffineManifold(D)).count() == count


def test_counts_against_4ti2(tmp_path):
    """The installed 4ti2 agrees on fresh matrices."""
    import shutil
    import subprocess

    program = shutil.which("4ti2-circuits")
    if program is None:
        pytest.skip("4ti2 is not installed (Debian package 4ti2)")
    rng = np.random.default_rng(5)
    for i in range(6):
        D = independent(rng.integers(-3, 4, (rng.integers(2, 5), rng.integers(6, 11)))).astype(int)
        q, n = D.shape
        text = f"{q} {n}\n" + "\n".join(" ".join(map(str, row)) for row in D.tolist()) + "\n"
        (tmp_path / f"p{i}.mat").write_text(text)
        (tmp_path / f"p{i}.sign").write_text(f"1 {n}\n" + "2 " * n + "\n")
        subprocess.run([program, "-q", "-p", "arb", f"p{i}"], cwd=tmp_path, check=True)
        count = int((tmp_path / f"p{i}.cir").read_text().split()[0])
        M = adp.AffineManifold(D, public_entries="allow")
        assert adp.CircuitAdjacency(M).count() == count


@pytest.mark.slow
def test_network_scales():
    """Node balances are recognised up to the scale of every equation and every entry."""
    rng = np.random.default_rng(3)
    D = incidence(nx.grid_2d_graph(4, 4))[:-1]
    scaled = D * rng.choice([0.5, 2.0, -4.0], size=(len(D), 1)) * rng.choice([1, 8], D.shape[1])
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(scaled))
    matrix = rng.normal(size=(3, D.shape[1]))
    found = adjacency.sensitivity(matrix, 2)
    assert "cycles" in found.method
    expected, count = _cycle_oracle(scaled, nx.grid_2d_graph(4, 4), matrix)
    assert adjacency.count() == count == 213
    assert found.value == pytest.approx(expected, rel=1e-12)


def _cycle_oracle(D, graph, matrix):
    """Circuits on the supports of the simple cycles that networkx finds."""
    graph = nx.convert_node_labels_to_integers(graph)
    edges = {frozenset(edge): i for i, edge in enumerate(graph.edges)}
    best, count = 0.0, 0
    for cycle in nx.simple_cycles(graph):
        support = [edges[frozenset(pair)] for pair in zip(cycle, [*cycle[1:], cycle[0]])]
        v = np.zeros(D.shape[1])
        v[support] = np.linalg.svd(D[:, support])[2][-1]
        v /= np.abs(v[support]).min()
        best, count = max(best, np.linalg.norm(matrix @ v)), count + 1
    return best, count


def test_double_integrator_needs_more_than_theorem_3():
    """Definition 4 is ten times wider than the time-local neighbours of Theorem 3."""
    A, T = np.array([[1, 0.1], [0, 1]]), 5
    M = adp.AffineManifold(trajectory_equations(A, T, 10))
    first_state = np.zeros((2, 2 * T))
    first_state[:, :2] = np.eye(2)
    full = adp.CircuitAdjacency(M).sensitivity(first_state, 2)
    time_local = adp.FreeSetAdjacency(M, [[2 * t, 2 * t + 1] for t in range(T)])
    assert full.value == pytest.approx(10.770, abs=5e-4)
    assert time_local.sensitivity(first_state, 2).value == pytest.approx(1.0770, abs=5e-5)


def test_interchangeable_entries_fold():
    """A total of 3000 parts with equal noise: two parts stand for all."""
    n = 3000
    D = np.ones((1, n + 1))
    D[0, 0] = -1
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(sparse.csr_array(D)))
    found = adjacency.sensitivity(sparse.eye_array(n + 1), 2)
    assert found.value == pytest.approx(np.sqrt(2))
    assert "folded" in found.method


@pytest.mark.slow
def test_hierarchy_of_totals():
    """12,013 entries in three levels, 72 million circuits, in no time."""
    groups, leaves = 12, 1000
    rows = [[-1.0] + [1.0] * groups + [0.0] * (groups * leaves)]
    D = sparse.lil_array((1 + groups, 1 + groups + groups * leaves))
    D[[0], :] = np.array(rows)
    for g in range(groups):
        start = 1 + groups + g * leaves
        D[g + 1, g + 1] = -1
        D[[g + 1], start : start + leaves] = np.ones((1, leaves))
    M = adp.AffineManifold(D.tocsr())
    found = adp.CircuitAdjacency(M).sensitivity(sparse.eye_array(M.n), 1)
    assert found.value == pytest.approx(4)  # a leaf and its group up, another pair down


def test_no_tolerance_for_single_equations():
    M = adp.AffineManifold([[1, 1e-7, 1]])
    found = adp.CircuitAdjacency(M).sensitivity(np.eye(3), 1)
    assert found.value == pytest.approx(1 + 1e7, rel=1e-14)
    assert "tiny coefficient" in found.warnings[0]
    assert "x2" in found.warnings[0]


def test_too_many_is_refused_before_it_starts():
    for D in (
        np.random.default_rng(0).integers(-9, 10, (20, 60)),
        incidence(nx.grid_2d_graph(9, 9)),
    ):
        M = adp.AffineManifold(D)
        with pytest.raises(TooManyCircuitsError, match="Ways out") as error:
            adp.CircuitAdjacency(M).sensitivity(np.eye(M.n), 2)
        assert error.value.estimate > error.value.limit


@pytest.mark.slow
def test_listing_respects_its_limit():
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(np.ones((1, 50))))
    assert adjacency.directions(limit=1225).shape == (50, 1225)
    with pytest.raises(TooManyCircuitsError, match="more than 1,224"):
        adjacency.directions(limit=1224)
    free = adp.CircuitAdjacency(adp.AffineManifold(np.zeros((0, 5))))
    with pytest.raises(TooManyCircuitsError):
        free.directions(limit=4)


def test_unstable_powers_are_exact():
    """Powers of an unstable system: coefficients differ by more than rounding can tell."""
    A = np.array([[3.0, 1.0], [0.0, 1 / 3]])
    T = 30
    D = np.zeros((2 * T - 2, 2 * T))
    for t in range(T - 1):
        D[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] = A
        D[2 * t : 2 * t + 2, 2 * t + 2 : 2 * t + 4] = -np.eye(2)
    exact = [[Fraction(3), Fraction(1)], [Fraction(0), Fraction(1, 3)]]
    rows = [[Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]]
    for _ in range(T - 1):
        rows += [[sum(a * r[c] for a, r in zip(row, rows[-2:])) for c in (0, 1)] for row in exact]
    worst = Fraction(0)
    circuits = set()
    for a, b in rows:  # the entry that stays, in coordinates of the first state
        v = [c * b - d * a for c, d in rows]
        far = 1 / min(abs(x) for x in v if x)
        circuits.add(tuple(x == 0 for x in v))
        worst = max(worst, far * far * sum(x * x for x in v))
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(D))
    found = adjacency.sensitivity(np.eye(2 * T), 2)
    assert adjacency.count() == len(circuits)
    assert found.value == pytest.approx(float(worst) ** 0.5, rel=1e-12)
    assert Fraction(found.upper) ** 2 >= worst


def test_free_sets_agree_with_the_definition():
    rng = np.random.default_rng(7)
    M = adp.AffineManifold(rng.normal(size=(3, 7)))
    matrix = rng.normal(size=(4, 7))
    sets = [[0, 1, 2, 3], [2, 4, 5, 6]]
    adjacency = adp.FreeSetAdjacency(M, sets, mu=np.arange(1, 8))
    expected = 0.0
    for free in sets:
        basis = [i for i in range(7) if i not in free]
        for i in free:
            v = np.zeros(7)
            v[i] = 1
            v[basis] = -np.linalg.solve(M.D[:, basis], M.D[:, i])
            expected = max(expected, (i + 1) * np.linalg.norm(matrix @ v, 1))
    found = adjacency.sensitivity(matrix, 1)
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.upper >= expected * (1 - 1e-15)
    assert adjacency.directions().shape == (7, 8)


def test_given_directions():
    M = adp.AffineManifold([[1, 1, -1]])
    adjacency = adp.DirectionAdjacency(M, np.array([[1, 0, 1], [2, -2, 0]]).T)
    assert adjacency.sensitivity(np.eye(3), 1).value == 4
    assert adjacency.sensitivity(sparse.eye_array(3), 2).value == pytest.approx(np.sqrt(8))
    with pytest.raises(AffineDPError, match="direction 2 .* leaves the manifold"):
        adp.DirectionAdjacency(M, np.array([[1, 0, 1], [1, 0, 0]]).T)


def test_adjacencies_are_told_apart():
    M = adp.AffineManifold([[1, -2, 0]])
    adjacencies = [
        adp.CircuitAdjacency(M),
        adp.CircuitAdjacency(M, 2.0),
        adp.CircuitAdjacency(M, [1, 1, 2]),
        adp.FreeSetAdjacency(M, [[0, 2]]),
        adp.FreeSetAdjacency(M, [[0, 2], [1, 2]]),
        adp.DirectionAdjacency(M, [[2], [1], [0]]),
    ]
    assert len({adjacency.key for adjacency in adjacencies}) == len(adjacencies)
    assert len({adjacency.words for adjacency in adjacencies}) == len(adjacencies)


@pytest.mark.parametrize("mu", [-1, np.nan, np.inf, 0, [1, 2], "x", [[1, 1, 1]], [1, 1, -1]])
def test_bad_mu(mu):
    with pytest.raises(AffineDPError, match="mu"):
        adp.CircuitAdjacency(adp.AffineManifold([[1, -2, 0]]), mu)


@pytest.mark.parametrize(
    "sets", [[], [[0]], [[0, 1]], [["x1", "nope"]], [[0, 9]], [[0, 0]], [[0, True]]]
)
def test_bad_free_sets(sets):
    with pytest.raises(AffineDPError):
        adp.FreeSetAdjacency(adp.AffineManifold([[1, -2, 0]]), sets)


def test_bad_matrices():
    adjacency = adp.CircuitAdjacency(adp.AffineManifold([[1, -2, 0]]))
    for matrix, norm in [
        (np.eye(2), 2),
        ([[1, np.nan, 0]], 2),
        (np.eye(3), 3),
        (np.eye(3), np.inf),
    ]:
        with pytest.raises(AffineDPError):
            adjacency.sensitivity(matrix, norm)


def test_search_works_without_a_cache(monkeypatch):
    """Where numba cannot write its cache the searches compile anyway."""
    import numba

    from affinedp.compiling import Compiled

    real = numba.njit

    def njit(*args, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert Compiled(lambda x: x + 1).fast(1) == 2


def test_units_of_equations_do_not_fold_entries():
    """Columns that are nearly parallel in some units are not parallel."""
    c = np.array([31, 34, 53, 40, 48, 16, 30, 38])
    expected = None
    for unit in (1, 1e-14, 1e14):
        M = adp.AffineManifold([[1] * 8, (c * unit).tolist()])
        found = adp.CircuitAdjacency(M).sensitivity(np.eye(8), 1)
        expected = expected or found.value
        assert found.value == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(46)


@pytest.mark.parametrize("tiny", [1e-9, 1e-10, 1e-11])
def test_tiny_irrational_coefficients_count_or_are_refused(tiny):
    D = np.array([[1, tiny, 0, 1, 0], [0, 1, 1, 1, 2]]) * np.pi
    try:
        found = adp.CircuitAdjacency(adp.AffineManifold(D)).sensitivity(np.eye(5), 1)
    except AffineDPError:
        return
    assert found.upper >= 2 / tiny


@pytest.mark.slow
def test_nearly_dependent_float_equations():
    """What elimination rounds is part of the bound."""
    rng = np.random.default_rng(31)
    for closeness in (1e-6, 1e-4, 1e-2):
        for _ in range(15):
            D = rng.normal(size=(2, 5))
            D[1] = D[0] + closeness * D[1]
            found = adp.CircuitAdjacency(adp.AffineManifold(D)).sensitivity(np.eye(5), 1)
            expected, _ = brute_force_sensitivity(D, np.eye(5), 1, np.ones(5))
            assert expected <= found.upper <= expected * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "steps"), [(1000, 120), (8, 360), (0.001, 110), (1000, 60)])
def test_unstable_tanks_end(factor, steps):
    """x(t+1) = a x(t) + u(t) leaves the range of floats: an answer or a refusal, no hang."""
    D = np.zeros((steps, 2 * steps + 1))
    for t in range(steps):
        D[t, t], D[t, t + 1], D[t, steps + 1 + t] = factor, -1, 1
    with pytest.raises(AffineDPError):
        adp.CircuitAdjacency(adp.AffineManifold(D)).sensitivity(np.eye(2 * steps + 1), 2)
