"""Independent geometric noise on whole numbers: the law, the promise, and standard practice."""

import itertools
import math
from collections import Counter
from fractions import Fraction as F

import numpy as np
import pytest
from scipy import stats

import affinedp as adp
from affinedp.designs.knorm_bodies import best_axes
from affinedp.laws.bodies import AxesPart
from affinedp.laws.curves import ThreeAtoms
from affinedp.laws.laplace import geometric_variance


def crosstab(rows, columns):
    """Cells, both kinds of totals and the grand total; one person more or less in one cell."""
    lines = [" + ".join(f"c{i}{j}" for j in range(columns)) + f" = r{i}" for i in range(rows)]
    lines += [" + ".join(f"c{i}{j}" for i in range(rows)) + f" = k{j}" for j in range(columns)]
    lines += [" + ".join(f"r{i}" for i in range(rows)) + " = t"]
    manifold = adp.AffineManifold.from_equations(lines)
    moves = [
        [float(name in (f"c{i}{j}", f"r{i}", f"k{j}", "t")) for name in manifold.names]
        for i in range(rows)
        for j in range(columns)
    ]
    return manifold, adp.DirectionAdjacency(manifold, np.array(moves).T)


def alone(moves):
    manifold = adp.AffineManifold(np.zeros((0, len(moves[0]))))
    return manifold, adp.DirectionAdjacency(manifold, np.array(moves, dtype=float).T)


def opendp_variance(epsilon):
    """Of the two-sided geometric law, added up term by term."""
    q = math.exp(-epsilon)
    terms = [z * z * q**z for z in range(1, math.ceil(80 / epsilon))]
    return 2 * math.fsum(terms) * (1 - q) / (1 + q)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("shape", [(2, 3), (5, 6)])
def test_a_cross_tab_is_never_worse_than_geometric_cells(shape, epsilon):
    manifold, neighbours = crosstab(*shape)
    mechanism = adp.design_knorm(
        manifold, epsilon=epsilon, adjacency=neighbours, integers=True, effort="quick"
    )
    practice = 4 * shape[0] * shape[1] * opendp_variance(epsilon)
    assert mechanism.expected_squared_error <= practice * (1 + 1e-12)
    assert mechanism.guarantee.epsilon() == epsilon
    curve = mechanism.guarantee.curve  # one step on one axis: randomised response, exactly
    assert isinstance(curve, ThreeAtoms)
    assert curve.exact
    assert curve.top is None
    assert "geometric" in str(mechanism.report())


def test_one_whole_number_has_the_geometric_optimum():
    manifold, neighbours = alone([[1.0]])
    for epsilon in (0.01, 1.0, 4.0):
        mechanism = adp.design_knorm(manifold, epsilon=epsilon, adjacency=neighbours, integers=True)
        assert mechanism.expected_squared_error == pytest.approx(opendp_variance(epsilon))
        assert mechanism.excess == pytest.approx(1.0)
        assert geometric_variance(epsilon) == pytest.approx(opendp_variance(epsilon))


def test_the_ratio_bound_holds_exactly_over_a_box():
    """log P(z)/P(z+n) ≤ ε in rational numbers, for every z of a box and every move."""
    moves = [[1, 0, 0], [0, 1, 0], [1, 1, 1], [2, 0, -1]]
    manifold, neighbours = alone(moves)
    found = best_axes(np.array(moves, dtype=float), np.diag([1.0, 5.0, 2.0]), 1.3)
    assert abs(round(np.linalg.det(found.basis))) == 1
    mechanism = adp.design_knorm(
        manifold, epsilon=1.3, adjacency=neighbours, integers=True, effort="quick",
        weights=[1, 5, 2],
    )  # fmt: skip
    back = np.linalg.inv(mechanism.dense.basis)
    rate, limit = F(mechanism.noise.rate), F(mechanism.guarantee.sensitivity)
    worst = F(0)
    for z in itertools.product(range(-3, 4), repeat=3):
        for move in moves:
            for times in (-1, 1):
                here, there = (
                    sum(
                        part.gauge([F(round(c)) for c in (back @ point)[part.rows]])
                        for part in mechanism.noise.parts
                    )
                    for point in (np.array(z), np.array(z) + times * np.array(move))
                )
                worst = max(worst, rate * abs(here - there))
    assert F(99, 100) * limit <= worst <= limit <= F(1.3)


def test_releases_have_the_exact_law():
    manifold, neighbours = crosstab(2, 2)
    mechanism = adp.design_knorm(
        manifold, epsilon=1.0, adjacency=neighbours, integers=True, effort="quick"
    )
    assert [type(part) for part in mechanism.noise.parts] == [AxesPart]
    names = list(manifold.names)
    data = np.zeros((5000, len(names)))
    noise = mechanism.release(data)
    assert np.array_equal(noise, np.rint(noise))
    total = noise[:, names.index("t")]
    cells = noise[:, [names.index(f"c{i}{j}") for i in range(2) for j in range(2)]]
    np.testing.assert_array_equal(total, cells.sum(axis=1))
    q = math.exp(-1.0)
    sizes = range(-4, 5)
    law = [(1 - q) / (1 + q) * q ** abs(z) for z in sizes]
    law += [1 - math.fsum(law)]
    for column in cells.T:
        seen = Counter(column.tolist())
        counts = [seen[float(z)] for z in sizes]
        counts += [len(column) - sum(counts)]
        assert stats.chisquare(counts, np.array(law) * len(column)).pvalue > 1e-6
    assert np.abs(np.corrcoef(cells.T) - np.eye(4)).max() < 0.1


def test_longer_moves_and_mixed_ones_have_curves_that_say_so():
    manifold, neighbours = alone([[3.0, 0], [0, 3.0]])
    long = adp.design_knorm(
        manifold, epsilon=1.0, adjacency=neighbours, integers=True, effort="quick"
    ).guarantee.curve
    assert long.exact
    q = math.exp(-1 / 3)
    law = np.array([(1 - q) / (1 + q) * q ** abs(z) for z in range(-300, 301)])
    for epsilon in (0.0, 0.3, 0.8):
        exact = np.maximum(law[3:] - math.exp(epsilon) * law[:-3], 0).sum()
        assert exact <= long.delta(epsilon) <= exact + 1e-12
    manifold, neighbours = alone([[1.0, 1.0], [1.0, 0]])
    both = adp.design_knorm(
        manifold, epsilon=1.0, adjacency=neighbours, integers=True, effort="quick"
    )
    assert both.guarantee.epsilon() <= 1.0


def test_a_saved_mechanism_comes_back(tmp_path):
    manifold, neighbours = crosstab(3, 4)
    mechanism = adp.design_knorm(
        manifold, epsilon=0.7, adjacency=neighbours, integers=True, effort="quick"
    )
    mechanism.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert again.fingerprint == mechanism.fingerprint
    assert again.guarantee.epsilon() == mechanism.guarantee.epsilon() == 0.7
    ledger = adp.Ledger(tmp_path / "l.db", epsilon=1.0, delta=0.0, protects=again.guarantee.unit)
    again.release(np.zeros(manifold.n), ledger=ledger)
    with pytest.raises(adp.AffineDPError):
        again.release(np.zeros(manifold.n), ledger=ledger)
    with pytest.raises(adp.AffineDPError, match="not whole"):
        again.release(np.full(manifold.n, 0.0) + mechanism.dense.basis[:, 0] / 2)


def test_rates_of_their_own_are_better_than_one():
    """A number that many moves touch gets less of the budget only where it costs less."""
    moves = np.array([[1.0, 1, 0], [1, 0, 1], [0, 1, 1]])
    cost = np.diag([1.0, 100.0, 1.0])
    found = best_axes(np.vstack([np.eye(3), moves]), cost, 1.0)
    assert (
        np.abs(np.vstack([np.eye(3), moves]) @ np.linalg.inv(found.basis).T) / found.widths
    ).sum(axis=1).max() <= 1 + 1e-12
    equal = 102 * geometric_variance(0.5)
    assert found.error < equal
