"""One question, written in other ways: other units, orders and types give the same statement."""

from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.privacy.guarantee import promise
from oracles import exact_directions, rank, stands_for

NUMBERS = st.sampled_from([0, 0, 0, 1, 1, -1, 2, 0.1, 0.3, -1.7, 1e-13, 1 / 3])


def tables(rows, columns):
    row = st.lists(NUMBERS, min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(np.array)


@st.composite
def problems(draw):
    """Equations, a query, noise, and how far entries move: some of them do not."""
    n, m = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    D = draw(tables(draw(st.integers(0, 1)), n)).reshape(-1, n)
    noise = draw(tables(m, draw(st.integers(1, 3))))
    mu = draw(st.lists(st.sampled_from([0, 1, 1, 0.1, 3]), min_size=n, max_size=n))
    return D, draw(tables(m, n)), noise, np.array(mu, dtype=float)


def leaks(D, query, noise, mu):
    """Whether neighbours move outputs where no noise is: word by word, over the rationals."""
    D = D[D.any(axis=1)]
    reach = [stands_for(float(value)) for value in mu]
    outputs = [[stands_for(float(value)) for value in row] for row in query.tolist()]
    draws = [[stands_for(float(value)) for value in row] for row in noise.tolist()]
    moves = [v for v in exact_directions(D, reach).values() if any(v.values())]
    joined = [
        [*row, *(sum((c * v.get(j, 0) for j, c in enumerate(out)), Fraction(0)) for v in moves)]
        for row, out in zip(draws, outputs)
    ]
    return rank(joined) > rank(draws)


def stated(D, query, noise, mu, law, **other):
    """(sensitivity, whether something leaks), or None if it is refused."""
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        found = adp.verify(M, noise, law=law, query=query, mu=mu, **other)
    except AffineDPError:
        return None
    if found.leak is not None:
        assert found.sensitivity == np.inf
        bare = np.abs(found.leak @ noise)
        assert np.all(bare <= 1e-9 * (np.abs(found.leak) @ np.abs(noise)))
    return found.sensitivity, found.leak is not None


def same(one, other):
    if one is None or other is None:
        return True  # a refusal promises nothing
    return one[1] == other[1] and one[0] == pytest.approx(other[0], rel=1e-6)


@pytest.mark.slow
@settings(max_examples=150)
@given(problems(), st.sampled_from(["laplace", "gaussian", "knorm"]))
def test_a_leak_is_one_in_rational_numbers(problem, law):
    found = stated(*problem, law)
    if found is not None:
        assert found[1] == leaks(*problem)


@pytest.mark.slow
@settings(max_examples=100)
@given(problems(), st.sampled_from(["laplace", "gaussian"]), st.data())
def test_units_and_order_do_not_matter(problem, law, data):
    D, query, noise, mu = problem
    m, n = query.shape
    found = stated(D, query, noise, mu, law)
    powers = st.integers(-60, 60)
    outputs = np.ldexp(1.0, data.draw(st.lists(powers, min_size=m, max_size=m)))[:, None]
    entries = np.ldexp(1.0, data.draw(st.lists(powers, min_size=n, max_size=n)))
    assert same(found, stated(D, outputs * query, outputs * noise, mu, law))
    # data in other units: x = entries * x'
    assert same(found, stated(D * entries, query * entries, noise, mu / entries, law))
    order = data.draw(st.permutations(range(m)))
    columns = data.draw(st.permutations(range(n)))
    moved = (D[:, columns], query[order][:, columns], noise[order], mu[columns])
    assert same(found, stated(*moved, law))
    assert same(found, stated(np.vstack([D, D, 2 * D]), query, noise, mu, law))


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(), st.sampled_from(["laplace", "gaussian"]))
def test_types_do_not_matter(problem, law):
    """Sparse for dense, and numbers of any type for the doubles that mean them, to the last bit."""
    D, query, noise, mu = problem
    found = stated(D, query, noise, mu, law)
    assert same(found, stated(sparse.csr_array(D), sparse.csc_array(query), noise, mu, law))
    exact = [
        [[stands_for(float(value)) for value in row] for row in part.tolist()]
        for part in (D.reshape(-1, query.shape[1]), query, noise)
    ]
    reach = [stands_for(float(value)) for value in mu]
    if len(D):
        assert found == stated_of(exact[0], exact[1], exact[2], reach, law)
    decimals = [[[as_decimal(c) for c in row] for row in part] for part in exact[1:]]
    assert found == stated_of(D, *decimals, [as_decimal(c) for c in reach], law)


def as_decimal(value):
    """A Decimal where one says it, else the Fraction."""
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    return decimal if Fraction(decimal) == value else value


def stated_of(D, query, noise, mu, law):
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        found = adp.verify(M, noise, law=law, query=query, mu=mu)
    except AffineDPError:
        return None
    return found.sensitivity, found.leak is not None


PAIR = adp.AffineManifold(np.zeros((0, 2)))


@pytest.mark.parametrize("law", ["laplace", "gaussian", "knorm"])
@pytest.mark.parametrize(
    ("noise", "query", "mu"),
    [
        ([[1], [1e-13]], np.eye(2), [1, 0]),
        ([[2**40], [1e-13]], np.diag([2.0**40, 1]), [1, 0]),
        ([[1], [1]], [[1, 1], [1, 1 + 2**-40]], [1, 1]),
        # computed noise: beyond its rounding
        ([[2**0.5], [2**0.5 * 1e-15]], np.eye(2), [1, 0]),
        ([[2**0.5], [2**0.5]], [[1, 1], [1, 1 + 2**-40]], [1, 1]),
    ],
)
def test_a_draw_that_shows_itself(noise, query, mu, law):
    found = adp.verify(PAIR, noise, law=law, query=query, mu=mu)
    assert found.sensitivity == np.inf
    terms = np.abs(found.leak) @ np.abs(noise)
    assert np.all(np.abs(found.leak @ np.array(noise)) <= 1e-12 * terms)


@pytest.mark.parametrize("law", ["laplace", "gaussian", "knorm"])
def test_a_large_sensitivity_is_no_leak(law):
    noise = [[1, 1], [1, 1 + 1e-9]]
    found = adp.verify(PAIR, noise, law=law)
    assert found.leak is None
    assert 1e9 < found.sensitivity < 3e9


def test_computed_noise_covers_up_to_its_rounding():
    """Orthonormal vectors of the manifold, and noise that a design made, are what they are for."""
    M = adp.AffineManifold([[1, -0.3, 7, 1]])
    basis = np.linalg.svd(np.array([[1, -0.3, 7, 1]]))[2][1:].T
    assert adp.verify(M, basis).leak is None
    assert adp.verify(M, 1e-30 * basis).leak is None
    made = adp.design_gaussian(M, epsilon=1, delta=1e-6)
    again = adp.verify(M, made.noise_matrix)
    assert again.sensitivity == pytest.approx(made.guarantee.sensitivity, rel=1e-9)


def test_rank_that_floats_cannot_see_is_refused():
    """Two draws for one output leave rounding no room to see the third."""
    with pytest.raises(AffineDPError, match="ill-conditioned"):
        adp.verify(PAIR, [[1, 1, 0], [0, 0, 1e-17]], law="laplace")


class Farther(adp.CircuitAdjacency):
    """Neighbours that move twice as far as those of the class above."""

    kind = "test.farther"
    words = "twice as far"

    def moves(self, limit=200_000):
        yield from adp.CircuitAdjacency(self.manifold, 2 * self.mu).moves(limit)


@pytest.mark.parametrize(
    "design", [adp.design_laplace, adp.design_knorm, partial(adp.design_knorm, integers=True)]
)
def test_a_subclass_is_answered_by_its_own_moves(design):
    M = adp.AffineManifold([[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]], names=list("abcdef"))
    m = design(M, epsilon=1.0)
    found = promise(Farther(M), m.strategy, m.noise)
    assert found.sensitivity == pytest.approx(2 * m.guarantee.sensitivity)
