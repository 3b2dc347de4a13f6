"""Symmetries of equations, and Gaussian noise without a list of moves, against lists."""

import numpy as np
import pytest
import scipy.sparse as sparse

import affinedp as adp
from affinedp.designs import gaussian
from affinedp.designs.symmetry import symmetric_noise, symmetries_of
from affinedp.privacy.design import proven_value


def table(rows, columns):
    cells = [f"c{i}{j}" for i in range(rows) for j in range(columns)]
    lines = [f"{' + '.join(cells[i * columns : (i + 1) * columns])} = r{i}" for i in range(rows)]
    lines += [f"{' + '.join(cells[j::columns])} = k{j}" for j in range(columns)]
    return adp.AffineManifold.from_equations(
        [*lines, f"{' + '.join(f'r{i}' for i in range(rows))} = t"]
    )


def totals():
    lines = [f"{' + '.join(f'x{i}{j}' for j in range(3))} = y{i}" for i in range(3)]
    return adp.AffineManifold.from_equations([*lines, "y0 + y1 + y2 = t"])


PROBLEMS = {
    "table": (table(2, 3), 1.0, None),
    "totals": (totals(), 1.0, None),
    "weights": (table(2, 3), 1.0, "by kind"),
    "other mu": (totals(), "by kind", None),
}


def problem(name):
    manifold, mu, weights = PROBLEMS[name]
    kinds = [1.0 + "crkxyt".index(entry[0]) for entry in manifold.names]
    adjacency = adp.CircuitAdjacency(manifold, kinds if mu == "by kind" else mu)
    one = sparse.csr_array(sparse.eye_array(manifold.n))
    costs = one if weights is None else sparse.csr_array(sparse.diags_array(kinds))
    return adjacency, one, costs


@pytest.mark.parametrize("name", PROBLEMS)
def test_symmetries_take_moves_to_moves(name):
    adjacency, query, weights = problem(name)
    moves = {tuple(side) for v in adjacency.directions().T for side in (v + 0.0, 0.0 - v)}
    found = symmetries_of(adjacency, query, weights)
    for one in found.generators:
        assert {tuple(row + 0.0) for row in one.image(np.array(sorted(moves)))} == moves
        assert np.array_equal(weights.diagonal()[one.to], weights.diagonal())


def test_a_table_has_all_permutations_of_its_rows_and_columns():
    """A table with its totals is one with one more row and column whose sums are public: 3!·4!."""
    adjacency, query, weights = problem("table")
    generators = symmetries_of(adjacency, query, weights).generators
    start = tuple(range(adjacency.manifold.n))
    seen, waiting = {start}, [start]
    while waiting:
        known = waiting.pop()
        for one in generators:
            image = tuple(one.to[list(known)].tolist())
            if image not in seen:
                seen.add(image)
                waiting.append(image)
    assert len(seen) == 144


@pytest.mark.parametrize("name", PROBLEMS)
def test_noise_and_bound_are_those_of_the_list(name, monkeypatch):
    adjacency, query, weights = problem(name)
    names = adjacency.manifold.names
    listed, dual = gaussian.least_gaussian(adjacency, query, names, 1.0, weights)
    found = symmetric_noise(adjacency, query, weights)
    assert found.dual.value == pytest.approx(dual.value, rel=1e-5)
    assert proven_value(found.dual, adjacency, query, weights, False) == pytest.approx(
        found.dual.value, rel=1e-5
    )
    monkeypatch.setattr(gaussian, "FEW_LISTED", 3)
    alike = gaussian.least_gaussian(adjacency, query, names, 1.0, weights)[0].made()
    assert 1 - 1e-9 <= alike.guarantee.sensitivity <= 1
    cost = weights.diagonal() @ listed.made().expected_squared_errors
    assert weights.diagonal() @ alike.expected_squared_errors == pytest.approx(cost, rel=1e-5)


def test_averages_are_those_over_the_group():
    adjacency, query, weights = problem("totals")
    group = symmetries_of(adjacency, query, weights)
    matrix = np.random.default_rng(0).normal(size=(adjacency.manifold.n,) * 2)
    mean = group.average(matrix)
    for one in group.generators:
        assert np.allclose(one.image(one.image(mean).T).T, mean)
        assert np.allclose(group.average(one.image(one.image(matrix).T).T), mean)
    assert np.trace(mean) == pytest.approx(np.trace(matrix))


def test_without_symmetries_there_is_nothing():
    M = adp.AffineManifold(np.random.default_rng(0).integers(-9, 10, size=(3, 7)))
    one = sparse.csr_array(sparse.eye_array(7))
    assert symmetries_of(adp.CircuitAdjacency(M), one, one) is None
    thirds = adp.AffineManifold([[2.0, 2.0, 3.0]])
    eye = sparse.csr_array(sparse.eye_array(3))
    assert symmetries_of(adp.CircuitAdjacency(thirds), eye, eye) is None


def test_units_of_equations_do_not_hide_symmetries():
    eye = sparse.csr_array(sparse.eye_array(3))
    for D in ([[1.0, 1.0, 2.0]], [[0.5, 0.5, 1.0]], [[3.0, 3.0, 6.0]]):
        group = symmetries_of(adp.CircuitAdjacency(adp.AffineManifold(D)), eye, eye)
        assert group is not None
        assert any(one.to[0] == 1 for one in group.generators)
