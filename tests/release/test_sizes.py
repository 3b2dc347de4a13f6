"""Numbers of any size, and data of which neighbours move only a part."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.strategies.dense import Dense

SUM = adp.AffineManifold.from_equations(["a + b = c"])


def mechanism(law, manifold=SUM, **more):
    if law == "gaussian":
        return adp.design_gaussian(manifold, epsilon=1, delta=1e-6, **more)
    if law == "laplace":
        return adp.design_laplace(manifold, epsilon=1, effort="quick", **more)
    return adp.iid_noise(manifold, law="gaussian", epsilon=1, delta=1e-6, **more)


@pytest.mark.parametrize("law", ["gaussian", "laplace", "iid"])
@pytest.mark.parametrize("query", [None, ["c"], ["a", "c"], [[1.0, -1.0, 0.0], [3.0, 0.0, 1 / 3]]])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e6, 1e12, 1e18, 1e40])
def test_releases_have_no_bias(law, query, size):
    """What is published minus the truth is noise of the stated size, however large the data."""
    m = mechanism(law, query=query)
    rng = np.random.default_rng(3)
    a = float(np.rint(size * rng.uniform(0.5, 1)))
    b = float(np.rint(size * rng.uniform(0.5, 1)))
    rows = np.tile([a, b, a + b], (400, 1))
    y = m.release(rows)
    truth = [
        float(sum(Fraction(f) * Fraction(v) for f, v in zip(row, rows[0])))
        for row in (m.dense.query.toarray() if hasattr(m.dense.query, "toarray") else m.dense.query)
    ]
    # the last bits of a double, and the noise
    off = np.abs((y - truth).mean(axis=0))
    last_bits = 8 * np.abs(rows[0]).max() * np.finfo(float).eps * 4
    assert np.all(off <= last_bits + 6 * np.sqrt(m.expected_squared_errors / len(rows)))
    spread = (y - y.mean(axis=0)).std(axis=0)
    assert np.all(spread <= 1.3 * np.sqrt(m.expected_squared_errors) + last_bits)


def test_the_part_that_neighbours_share_is_published_as_it_is():
    """The example of the documentation: people move between three places, the total is theirs."""
    M = adp.AffineManifold.from_equations(["a + b + c = total"])
    moves = adp.DirectionAdjacency(M, [[1, 0, -1], [-1, 1, 0], [0, -1, 1], [0, 0, 0]])
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, adjacency=moves)
    y = np.array([m.release([1000, 2000, 3000, 6000]) for _ in range(200)])
    error = np.sqrt(m.expected_squared_errors / len(y))
    assert np.all(np.abs(y.mean(axis=0) - [1000, 2000, 3000, 6000]) <= 6 * error + 1e-9)
    np.testing.assert_allclose(y[:, 3], 6000, rtol=1e-14)
    assert m.published_without_noise == ("total",)
    one, other = m.prepared(), [1001.0, 1999.0, 3000.0, 6000.0]
    same = one.shared(np.array([other])) == one.shared(np.array([[1000.0, 2000, 3000, 6000]]))
    assert same.all()


def test_a_component_that_does_not_move_is_published_as_it_is():
    M = adp.AffineManifold.from_equations(["a + b = c", "u + v = w"])
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, mu=[1, 1, 1, 0, 0, 0])
    y = m.release([1.0, 2.0, 3.0, 0.1, 0.7, 0.8])
    np.testing.assert_allclose(y[3:], [0.1, 0.7, 0.8], rtol=1e-14)
    assert m.published_without_noise == ("v", "w")


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_shared_parts_are_equal_bit_for_bit(data):
    """Neighbours that differ by given directions share everything else, to the last bit."""
    n = data.draw(st.integers(3, 6))
    M = adp.AffineManifold([[1.0] * n])
    rows = data.draw(
        st.lists(
            st.lists(st.integers(-3, 3), min_size=n - 1, max_size=n - 1), min_size=1, max_size=n - 2
        )
    )
    directions = np.array([[*row, -sum(row)] for row in rows if any(row)], dtype=float).T
    if directions.size == 0:
        return
    m = adp.design_gaussian(
        M, epsilon=1, delta=1e-6, adjacency=adp.DirectionAdjacency(M, directions)
    )
    plan = m.prepared()
    # tenths are no doubles: steps of 2^-10 move exactly
    x = (
        np.array(data.draw(st.lists(st.integers(-(2**30), 2**30), min_size=n - 1, max_size=n - 1)))
        / 2.0**10
    )
    x = np.append(x, -x.sum())
    for direction in directions.T:
        np.testing.assert_array_equal(plan.shared(x[None]), plan.shared((x + direction)[None]))


def test_with_a_bound_nothing_is_published_bare():
    M = adp.AffineManifold.from_equations(["a + b = c", "u + v = w"])
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, mu=[1, 1, 1, 0, 0, 0])
    with pytest.raises(AffineDPError, match="without noise"):
        m.release([1.0, 2.0, 3.0, 0.1, 0.7, 0.8], bound=10)


@pytest.mark.parametrize("size", [1e290, 1e297, 1e299, 1.7e308])
def test_data_beyond_the_limit_is_refused_before_the_charge(size, tmp_path):
    m = mechanism("gaussian")
    with adp.Ledger(tmp_path / "l.db", epsilon=1, delta=1e-6, protects="one person") as ledger:
        with pytest.raises(AffineDPError):
            m.release([[size, -size, 0.0], [1.0, 2.0, 3.0]], ledger=ledger, rows="same")
        assert ledger.spent == 0


@pytest.mark.parametrize("mu", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("bound", [1e280, 1e290, 1e300, 1.7e308])
def test_noise_that_no_double_holds_is_refused_before_the_charge(bound, mu):
    """Noisy integers beyond 1e308 cannot be published: the plan says so, not the release."""
    for law in ("gaussian", "laplace"):
        delta = 1e-6 if law == "gaussian" else 0.0
        m = adp.iid_noise(SUM, law=law, epsilon=1, delta=delta, mu=mu)
        try:
            m.prepared(bound)
        except AffineDPError:
            assert bound / mu > 1e298
            continue
        assert np.isfinite(m.release(np.zeros((200, 3)), bound=bound)).all()


@pytest.mark.parametrize("bound", [1e17, 1e20, 1e100, 1e300])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_grows_with_the_bound_and_does_not_saturate(law, bound):
    m = mechanism(law)
    factor = m.prepared(bound).factor
    x = [bound / 4, bound / 4, bound / 2]
    try:
        y = np.array([m.release(x, bound=bound) for _ in range(64)])
    except AffineDPError:
        assert bound > 1e200
        return
    off = (y - x) / (factor * np.sqrt(m.expected_squared_errors))
    assert len(np.unique(off)) > 64
    assert 0.5 < off.std() < 2.0


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_noise_of_any_size(scale):
    m = adp.design_gaussian(SUM, epsilon=1, delta=1e-6, mu=scale)
    y = m.release(np.zeros((500, 3)))
    assert len(np.unique(y[:, 0])) == 500
    found = y.std(axis=0) / np.sqrt(m.expected_squared_errors)
    assert np.all(np.abs(found - 1) < 0.2)
    assert math.isfinite(m.prepared().largest)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_a_query_that_is_public_is_refused(law):
    """A multiple of an equation: it is refused, also where rounding makes it look sensitive."""
    step = np.array([[1.0], [-1.0]]) * 2.0**20
    manifold = adp.AffineManifold([[1, 1]], [-(2.0**20)])
    delta = 1e-6 if law == "gaussian" else 0.0
    adjacency = adp.DirectionAdjacency(manifold, step)
    query = np.array([[1.0, 1.0]])
    with pytest.raises(AffineDPError, match="no noise needed"):
        adp.iid_noise(manifold, law=law, epsilon=1, delta=delta, query=query, adjacency=adjacency)
    # a promise that an upper bound made, about nothing
    m = adp.iid_noise(manifold, law=law, epsilon=1, delta=delta, adjacency=adjacency)
    noise = np.array([[1.0]])
    about_nothing = replace(m, strategy=Dense(manifold, query, noise, ("sum",)))
    about_nothing.__dict__["guarantee"] = m.guarantee
    with pytest.raises(AffineDPError, match="it is public"):
        about_nothing.release([2.0**20, 0.0])


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_an_output_that_no_neighbour_moves_limits_nothing(law):
    """Rounding makes -1.6e-17 of a zero: that is no data without noise."""
    manifold = adp.AffineManifold.from_equations(
        [
            "0.1*a - 3*b - c + d - e - f = 0",
            "3*a + c + d + e + f = 0",
            "0.5*d - 3*e - 3*f = 0",
        ]
    )
    step = np.array([[0.0, 8.0, -14.0, 12.0, 14.0, -12.0]]).T
    m = mechanism(law, manifold, adjacency=adp.DirectionAdjacency(manifold, step))
    assert m.prepared().largest > 1e100
    x = manifold.kernel @ (np.array([3.0, 4.0, 5.0]) * 2**20)
    y = m.release(np.tile(x, (50, 1)))
    assert np.all(np.abs(y - x) < 1e3)
    assert np.ptp(y[:, 0]) < 1e-6


@pytest.mark.parametrize("small", [1e-12, 1e-16, 1e-20, 1e-36])
def test_noise_is_not_larger_than_it_is_said_to_be(small):
    """Outputs of very different sizes: the noise is as stated, or nothing is released."""
    m = adp.iid_noise(SUM, law="gaussian", epsilon=1, delta=1e-6, query=[[1, 0, 0], [0, small, 0]])
    try:
        factor = m.prepared().factor
    except AffineDPError:
        return
    assert factor < 1 + 2e-4


@pytest.mark.parametrize("scale", [1e-320, 1e-310, 1e-307])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_moves_below_normal_numbers_are_not_lost(scale, law):
    try:
        found = adp.verify(SUM, scale, law=law, mu=1e-310)
    except AffineDPError:
        return
    assert found.sensitivity >= 1e-310 / scale
