"""What is zero is decided exactly: wild coefficients against brute force over all bases."""

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.domains import component
from affinedp.domains.component import network_of
from affinedp.errors import AffineDPError
from oracles import exact_directions

SIZES = [1e-18, 1e-12, 1e-6, 1.0, 1e6, 1e12, 1e18]


@st.composite
def wild_equations(draw):
    """Coefficients of wildly different sizes, decimals and doubles, many minors zero or nearly."""
    n = draw(st.integers(3, 6))
    q = draw(st.integers(1, min(n - 1, 3)))
    number = st.sampled_from([0, 0, 1, -1, 2, 0.1, 0.3, 1 / 3, 0.7, 1.95583, 0.5112918811962])
    near = st.sampled_from([1.0, 1.0, 1.0, 1 + 2**-52, 1 - 1e-13, 1e-18, 1e-12, 1e12, 1e18])
    rows = [
        [draw(number) * draw(near) * size for _ in range(n)]
        for size in draw(st.lists(st.sampled_from(SIZES), min_size=q, max_size=q))
    ]
    return np.array(rows)


@pytest.mark.slow
@settings(max_examples=300)
@given(wild_equations(), st.sampled_from([1, 2]), st.sampled_from([1.0, 0.3]))
def test_wild_coefficients_are_exact_or_refused(D, norm, mu):
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        adjacency = adp.CircuitAdjacency(M, mu)
        found = adjacency.sensitivity(np.eye(M.n), norm)
    except AffineDPError:
        return
    directions = exact_directions(D, [Fraction(mu)] * M.n, M.canonical.rows)
    power = max(
        (sum(abs(x) ** norm for x in v.values()) for v in directions.values()), default=Fraction(0)
    )
    assert found.exact
    assert Fraction(found.upper) ** norm >= power
    assert Fraction(found.upper) ** norm <= power * (1 + Fraction(1, 10**11))
    assert Fraction(found.value) ** norm <= power * (1 + Fraction(1, 10**14))
    assert adjacency.count() == len(directions)
    listed = adjacency.directions()
    supports = {tuple(np.flatnonzero(v)) for v in listed.T}
    assert supports == set(directions)
    for v in listed.T:
        exact = directions[tuple(np.flatnonzero(v))]
        values = np.array([float(exact.get(i, 0)) for i in range(M.n)])
        values *= np.sign(values[np.flatnonzero(v)[0]]) * np.sign(v[np.flatnonzero(v)[0]])
        np.testing.assert_allclose(v, values, rtol=1e-6)


def test_the_euro_is_not_two_marks():
    """1/1.95583 is not 0.5112918811962, and a promise may rest on the difference."""
    D = [[1, -1, -0.5112918811962, 0, 0], [0, 0, 1, -1.95583, 0], [0, 1, 0, 1, -1]]
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(D))
    found = adjacency.sensitivity(np.eye(5), 2)
    assert adjacency.count() == 4
    assert found.value == pytest.approx(6.67578e13, rel=1e-5)
    assert "tiny coefficient" in found.warnings[0]


def test_no_circuit_is_lost_behind_a_division_by_zero():
    D = [[1, -1, -1, 0], [0, -1 / 3e18, -1 / 3, 1 / 3]]
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(D))
    assert adjacency.count() == 4
    assert adjacency.sensitivity(np.eye(4), 1).upper >= 2e18


def test_nearly_a_network_is_none():
    """Node balances whose scales do not close around a cycle have other circuits."""
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3))
    D = nx.incidence_matrix(graph, oriented=True).toarray()[:-1]
    exact = adp.CircuitAdjacency(adp.AffineManifold(D * 0.1))
    assert network_of(exact.bound_components[0]) is not None
    D[0, np.flatnonzero(D[0])[0]] *= 1 + 1e-14
    near = adp.CircuitAdjacency(adp.AffineManifold(D))
    assert network_of(near.bound_components[0]) is None
    assert near.count() > exact.count()
    assert near.sensitivity(np.eye(D.shape[1]), 1).upper > 1e13


def test_equations_are_added_up_only_where_there_may_be_a_network(monkeypatch):
    """Of many dense ones that would take long, and for nothing."""
    monkeypatch.setattr(component, "_sparser", None)  # whoever calls it fails
    dense = np.random.default_rng(0).integers(-3, 4, size=(10, 25))
    for one in adp.CircuitAdjacency(adp.AffineManifold(dense)).bound_components:
        assert network_of(one) is None


def test_nearly_equal_columns_do_not_fold():
    """Columns whose ratios agree in all bits of a quotient, but are not equal."""
    third = 1 / 3
    D = np.array([[1.0, 3.0, 1.0, 1.0, 0.0], [third, 1.0, 0.5, 0.0, 1.0]])
    assert D[1, 0] / D[0, 0] == D[1, 1] / D[0, 1]
    assert Fraction(D[1, 0]) * 3 != Fraction(D[1, 1])
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(D))
    directions = exact_directions(D, [Fraction(1)] * 5)
    assert adjacency.count() == len(directions)
    power = max(sum(map(abs, v.values())) for v in directions.values())
    assert adjacency.sensitivity(np.eye(5), 1).upper >= power
