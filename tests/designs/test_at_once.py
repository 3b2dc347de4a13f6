"""Designs that need no list of moves, and searches that end early."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.spatial import ConvexHull

import affinedp as adp
from affinedp.arrays import dense
from affinedp.designs import choose, gaussian, laplace_strategy, pure
from affinedp.designs.effort import Budget, EffortSpentError
from affinedp.designs.fit import Candidate
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.designs.knorm_blocks import short_numbers
from affinedp.designs.least_trace import least_trace
from affinedp.designs.problem import Problem
from affinedp.laws.polytope import Polytope, symmetric_hull
from dense import table

LIMIT = largest_sensitivity(1.0, 1e-6)


def one_sum(n):
    return adp.AffineManifold(np.where(np.arange(n) % 3 == 0, -2.0, 2.0)[None])


# ---------------------------------------------------------------------- Gaussian noise over one sum


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_few_rows_over_one_sum_cost_what_all_pairs_need(rows):
    """Against the least trace over the list of all exchanges."""
    n = 40
    M, rng = one_sum(n), np.random.default_rng(rows)
    F = rng.normal(size=(rows, n)) * 10.0 ** rng.integers(-3, 4, size=(rows, 1))
    weights = rng.uniform(0.5, 2, rows)
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, query=F, weights=weights, mu=3)
    signs = np.sign(M.D.toarray()[0] if hasattr(M.D, "toarray") else M.D[0])
    columns = (F * signs).T * 3
    pairs = np.array([columns[i] - columns[j] for i, j in itertools.combinations(range(n), 2)])
    unit = np.abs(pairs).max(axis=0)
    wanted = least_trace(pairs / unit / LIMIT, np.diag(weights * unit**2))
    assert (m.expected_squared_errors @ weights) == pytest.approx(wanted.value, rel=1e-6)
    assert m.guarantee.holds(1, 1e-6)
    assert m.gap < 1e-6
    assert m.lower_bound <= m.expected_squared_errors @ weights


def test_all_entries_of_one_sum_have_equal_noise():
    """In closed form: 2 (n - 1) μ² / s²; the list of all exchanges gives the same."""
    n = 31
    assert n > gaussian.FEWEST_ENTRIES
    for m, rel in [
        (adp.design_gaussian(one_sum(n), epsilon=1, delta=1e-6), 1e-8),
        (adp.design_gaussian(one_sum(n), epsilon=1, delta=1e-6, weights=np.eye(n)), 1e-8),
    ]:
        assert m.expected_squared_error == pytest.approx(2 * (n - 1) / LIMIT**2, rel=rel)
        np.testing.assert_allclose(m.expected_squared_errors, m.expected_squared_error / n)
        assert m.guarantee.sensitivity <= LIMIT


def test_one_sum_is_designed_at_any_size():
    """No cliff: K-norm noise in closed form, 4 (n - 1) (2 n - 1) / (n + 1)."""
    for n in (13, 60, 200, 499, 501, 2_000):
        m = adp.design(one_sum(n), epsilon=1)
        assert m.law == "knorm"
        assert m.expected_squared_error == pytest.approx(4 * (n - 1) * (2 * n - 1) / (n + 1))


# ---------------------------------------------------------------------- hulls


@settings(max_examples=25)
@given(st.integers(2, 4), st.integers(0, 10**6), st.sampled_from([1, 10**9, 10**30]))
def test_hulls_are_those_of_qhull(size, seed, unit):
    rng = np.random.default_rng(seed)
    points = rng.integers(-5, 6, size=(size + 6, size))
    if np.linalg.matrix_rank(points) < size:
        return
    exact = [tuple(int(c) * unit for c in point) for point in points.tolist()]
    found = symmetric_hull(exact)
    volume = ConvexHull(np.vstack([points, -points])).volume
    corners = np.array([[c / unit for c in p] for p in found.points])[found.simplices]
    simplices = np.abs(np.linalg.det(corners)).sum() / np.prod(np.arange(1, size + 1))
    assert simplices == pytest.approx(volume, rel=1e-9)
    for normal, offset in found.planes:  # every point is inside, exactly
        assert max(sum(a * b for a, b in zip(normal, p)) for p in found.points) == offset
    for simplex, own in zip(found.simplices, found.own):
        normal, offset = found.planes[own]
        for place in simplex:
            assert sum(a * b for a, b in zip(normal, found.points[place])) == offset


def test_moments_do_not_depend_on_units():
    square = Polytope([(Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))])
    thin = Polytope([(Fraction(1), Fraction(0)), (Fraction(0), Fraction(1, 10**40))])
    scale = np.array([1, 1e-40])
    np.testing.assert_allclose(
        thin.second_moment(), square.second_moment() * np.outer(scale, scale), rtol=1e-12
    )


def test_thin_bodies_have_exact_shares():
    """Where determinants of doubles are mostly rounding."""
    near = Fraction(1) + Fraction(1, 10**15)
    body = Polytope([(Fraction(1), Fraction(1)), (near, Fraction(1)), (Fraction(0), Fraction(1))])
    corners = [[body.facets.points[i] for i in simplex] for simplex in body.facets.simplices]
    exact = [abs(a[0] * b[1] - a[1] * b[0]) for a, b in corners]
    np.testing.assert_allclose(body.shares, [d / sum(exact) for d in exact], rtol=1e-10)


def test_many_long_moves_are_rounded_and_charged():
    """The noise of the rounded body is close to that of the hull, and its promise exact."""
    rng = np.random.default_rng(4)
    M = adp.AffineManifold(rng.integers(-9, 10, size=(5, 11)))
    m = adp.design_knorm(M, epsilon=1.0, effort="quick")
    assert m.law == "knorm"
    assert m.guarantee.exact
    assert 1 - 1e-9 <= m.guarantee.epsilon() <= 1.0
    moves = adp.CircuitAdjacency(M).directions()
    assert len(moves.T) > 200
    sample = m.sample(200_000, seed=1)
    assert (sample**2).sum(axis=1).mean() == pytest.approx(m.expected_squared_error, rel=0.02)


# ---------------------------------------------------------------------- short numbers, effort


@given(st.integers(-999, 999), st.integers(1, 1000), st.floats(-1, 1))
def test_short_fractions_are_found_again(numerator, denominator, off):
    value = numerator / denominator
    given_number = np.array([value * (1 + 1e-14 * off), 1000.0])
    assert short_numbers(given_number)[0] == value


@pytest.mark.parametrize("effort", ["fast", 0, -1.0, float("nan"), True, None])
def test_effort_is_one_of_three_words_or_seconds(effort):
    with pytest.raises(adp.AffineDPError, match="effort must be 'quick', 'default', 'thorough' or"):
        adp.design(one_sum(3), epsilon=1, effort=effort)


def test_every_effort_keeps_the_promise():
    M = adp.AffineManifold.from_equations(["a + b = c", "c + d = e"])
    found = [adp.design(M, epsilon=1, effort=effort) for effort in ("quick", "default", "thorough")]
    errors = [m.expected_squared_error for m in found]
    assert errors == sorted(errors, reverse=True) or max(errors) <= min(errors) * (1 + 1e-9)
    assert all(m.guarantee.epsilon() <= 1 for m in found)


def test_an_interrupted_search_keeps_the_best_so_far(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    M = adp.AffineManifold.from_equations(["a + b = c", "c + d = e"])
    monkeypatch.setattr(laplace_strategy, "_smoothed_cost", interrupted)
    m = adp.design(M, epsilon=1, law="laplace")  # noise on all outputs, projected, at least
    assert any("interrupted" in note for note in m.notes)
    assert m.guarantee.epsilon() <= 1
    monkeypatch.setattr(pure, "least_laplace", interrupted)
    m = adp.design(M, epsilon=1, delta=1e-6)
    assert any("interrupted" in note for note in m.notes)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to keep
        adp.design(M, epsilon=1, law="laplace")


def test_an_interrupted_bound_keeps_what_has_a_closed_form(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(choose, "_start", interrupted)
    m = adp.design(table(3, 3), epsilon=1)
    assert m.law == "productnorm"
    assert m.guarantee.epsilon() == 1.0
    assert any("interrupted in the search of a bound" in note for note in m.notes)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to keep
        adp.design(table(3, 3), epsilon=1, law="laplace")


@pytest.mark.parametrize("where", ["listing", "proof", "comparison"])
def test_an_interrupt_outside_of_searches_keeps_what_is_known(monkeypatch, where):
    """The hull of 2 × 2 is better than the product body, which has a closed form."""
    proofs = []

    def interrupted(*arguments):
        raise KeyboardInterrupt

    def proven(candidate):
        proofs.append(candidate)
        if len(proofs) == ("proof", "comparison").index(where) + 1:
            raise KeyboardInterrupt
        return made(candidate)

    made = Candidate.made
    if where == "listing":
        monkeypatch.setattr(Problem, "can_be_listed", interrupted)
    else:
        monkeypatch.setattr(Candidate, "made", proven)
    m = adp.design(table(2, 2), epsilon=1, effort="quick")
    assert m.law == ("knorm" if where == "comparison" else "productnorm")
    assert m.guarantee.epsilon() <= 1.0
    assert any("interrupted" in note for note in m.notes)
    monkeypatch.setattr(Candidate, "made", interrupted)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to keep
        adp.design(one_sum(9), epsilon=1)


def test_the_first_answer_says_what_was_not_searched():
    """Gaussian noise that is no better is not even designed; the better one is."""
    first = adp.design(table(4, 5), epsilon=1, delta=1e-6, effort="quick")
    assert first.law == "productnorm"
    assert "nothing was searched beside what has a closed form" in first.notes
    many = adp.design(table(4, 5), epsilon=1, delta=1e-6, effort="quick", releases=100)
    assert many.law == "gaussian"


@pytest.mark.parametrize(("branches", "error"), [((3, 3), 122.4), ((5, 4), 289.53)])
def test_one_weight_per_class(branches, error):
    """The first answer for totals of totals: the same noise on numbers that look alike."""
    parent = [-1]
    for _ in range(branches[0]):
        parent.append(0)
    for node in range(1, branches[0] + 1):
        parent += [node] * branches[1]
    inner = range(branches[0] + 1)
    above = np.array([[float(p == node) for p in parent] for node in inner])
    D = above - np.eye(len(parent))[: branches[0] + 1]
    m = adp.design(adp.AffineManifold(D), epsilon=1, effort="quick", law="laplace")
    assert m.expected_squared_error <= error * 1.001
    # an independent search over one weight per level: all moves, all levels
    level = np.repeat([0, 1, 2], [1, branches[0], branches[0] * branches[1]])
    moves = np.abs(adp.CircuitAdjacency(adp.AffineManifold(D)).directions())
    K = np.linalg.svd(D)[2][len(D) :].T

    def cost(x):
        w = np.exp(x)[level]
        spread = K @ np.linalg.inv((K.T * w**2) @ K) @ K.T
        return 2 * (w @ moves).max() ** 2 * np.trace(spread)

    starts = ([0.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [-3.0, -3.0, 0.0], [0.0, -3.0, 0.0])
    best = min(minimize(cost, x, method="Nelder-Mead").fun for x in starts)
    assert m.expected_squared_error <= best * 1.001


def test_counted_steps_repeat_and_seconds_end():
    M = adp.AffineManifold.from_equations(["a + b = c", "c + d = e", "e + f = g"])
    first, second = (adp.design(M, epsilon=1, law="laplace", seed=3) for _ in range(2))
    assert first.expected_squared_error == second.expected_squared_error
    timed = adp.design(M, epsilon=1, law="laplace", effort=0.01)
    assert timed.guarantee.epsilon() <= 1
    assert any("ended with its effort" in note for note in timed.notes)


def projected_laplace(M, moves):
    """The squared error at ε = 1 of equal Laplace noise on all entries, made to obey equations."""
    return 2 * float(np.abs(moves).sum(axis=0).max()) ** 2 * M.dim


@pytest.mark.parametrize("seconds", [1e-9, 0.02, 0.3])
@pytest.mark.parametrize("made", [adp.design, adp.design_laplace, adp.design_knorm])
def test_time_that_is_up_ends_searches_and_no_design(made, seconds):
    """Of as many numbers as dimensions one is exchanged for another, which the clock may end."""
    for M in (
        adp.AffineManifold(np.random.default_rng(0).integers(-3, 4, (8, 16))),
        table(3, 3),
        adp.AffineManifold.from_equations(["a + b = c", "c + d = e"]),
    ):
        m = made(M, epsilon=1.0, effort=seconds)
        assert m.guarantee.epsilon() <= 1.0
        practice = projected_laplace(M, dense(adp.CircuitAdjacency(M).directions()))
        assert m.expected_squared_error <= practice * (1 + 1e-9)
        first = made(M, epsilon=1.0, effort="quick")
        assert m.expected_squared_error <= first.expected_squared_error * (1 + 1e-9)


@pytest.mark.parametrize("law", ["auto", "laplace", "knorm"])
def test_without_any_effort_there_is_an_answer(law, monkeypatch):
    """Wherever effort may end, it ends what is searched there and nothing else."""

    def spent(*arguments):
        raise EffortSpentError

    monkeypatch.setattr(Budget, "spend", spent)
    for D in ([[1, 1, -1, 0, 0], [0, 0, 1, 1, -1]], [[2, 1, -3, 1, 5, 1], [1, -2, 1, 4, -1, 1]]):
        M = adp.AffineManifold(D)
        for integers in (False, True):
            m = adp.design(M, epsilon=1.0, law=law, integers=integers)
            practice = projected_laplace(M, dense(adp.CircuitAdjacency(M).directions()))
            assert m.guarantee.epsilon() <= 1.0
            assert m.expected_squared_error <= practice * (1 + 1e-9)


# ---------------------------------------------------------------------- networks and tables


@pytest.mark.parametrize(
    ("rows", "columns", "error"),
    [(3, 3, 458.64), (4, 5, 2101.2245), (5, 7, 6131.4815), (6, 8, 11989.76)],
)
def test_tables_are_designed_at_any_size(rows, columns, error):
    """Product bodies of the lines: k lines of n, d = n - 1, have the error of the formula."""
    m = adp.design(table(rows, columns), epsilon=1, effort="quick")
    assert m.law == "productnorm"
    assert m.expected_squared_error == pytest.approx(error, rel=1e-6)
    k, n = rows + 1, columns + 1
    d = n - 1
    formula = k * d * (k * d + 1) * (1 + (k - 1) * d / (d + 2)) * 4 * (2 * n - 1) / (n * (n + 1))
    assert m.expected_squared_error == pytest.approx(formula * (k - 1) / k, rel=1e-9)
    assert m.guarantee.epsilon() == 1.0


def zero_margins(rows, columns):
    """A table with public margins: that with its totals has one row and one column less."""
    cells = np.arange(rows * columns).reshape(rows, columns)
    return adp.AffineManifold([np.isin(cells, line).ravel() * 1.0 for line in (*cells, *cells.T)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("manifold", "mu", "error"),
    [
        (table(2, 4), 1.0, 188.967282),
        (table(3, 3), 1.0, 288.593459),
        (zero_margins(4, 4), 0.3, 288.593459),
    ],
)
def test_tables_have_the_hull_of_their_moves(manifold, mu, error, tmp_path):
    """Errors of hulls facet by facet, from qhull: there are over a million simplices."""
    m = adp.design(manifold, epsilon=0.5, mu=mu)
    assert m.law == "knorm"
    assert m.noise.parts[0].body.group is not None
    assert m.expected_squared_error == pytest.approx(error * (mu / 0.5) ** 2, rel=1e-6)
    assert m.guarantee.epsilon() == 0.5
    quick = adp.design(manifold, epsilon=0.5, mu=mu, effort="quick")
    assert quick.law == "productnorm"
    assert quick.expected_squared_error > m.expected_squared_error
    # every circuit has at most the gauge 1 in rational arithmetic, and the vertices have 1
    part = m.noise.parts[0]
    moves = np.linalg.lstsq(m.dense.basis, m.adjacency.directions(), rcond=None)[0]
    exact = [[Fraction(round(c / mu)) * Fraction(str(mu)) for c in move] for move in moves.T]
    np.testing.assert_allclose(np.array(exact, dtype=float).T, moves, atol=1e-9)
    assert {part.gauge(move) for move in exact} == {1}
    # what is loaded finds its body anew
    m.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert np.array_equal(again.noise.moment, m.noise.moment)
    assert again.guarantee.epsilon() == 0.5
    noise = again.release(np.zeros((3_000, manifold.n)))
    np.testing.assert_allclose(noise @ dense(manifold.D).T, 0, atol=1e-9)
    square = (noise**2).sum(axis=1)
    wide = 6 * square.std() / len(noise) ** 0.5
    assert square.mean() == pytest.approx(m.expected_squared_error, abs=wide)
    low, high = m.interval(np.zeros(manifold.n), level=0.9)
    inside = ((low <= noise) & (noise <= high)).mean(axis=0)
    np.testing.assert_allclose(inside, 0.9, atol=6 * (0.09 / len(noise)) ** 0.5 + 0.005)


@pytest.mark.slow
def test_ten_dimensions_have_a_hull_by_orbits():
    m = adp.design(table(2, 5), epsilon=1)
    assert m.law == "knorm"
    assert m.expected_squared_error == pytest.approx(260.632389, rel=1e-6)
    assert m.guarantee.epsilon() == 1.0


def test_whole_data_of_a_table_may_have_real_noise():
    """Product norms are brought back onto the equations: real numbers, which the notes say."""
    m = adp.design(table(4, 5), epsilon=1, integers=True)
    assert m.law == "productnorm"
    assert not m.noise.whole
    assert m.expected_squared_error == pytest.approx(2101.2245, rel=1e-6)
    assert "what is published is not whole" in m.notes[-1]
    assert any("K-norm noise was not designed" in note for note in m.notes)
    assert adp.design(table(2, 2), epsilon=1, integers=True, law="knorm").noise.whole


def test_networks_that_cannot_be_listed_have_noise():
    """Every pair of 14 places and an outside: far more cycles than anybody lists."""
    ends = [(i, j) for i in range(15) for j in range(i)]
    D = np.zeros((14, len(ends)))
    for edge, (i, j) in enumerate(ends):
        for node, sign in ((i, 1.0), (j, -1.0)):
            if node < 14:
                D[node, edge] = sign
    m = adp.design(adp.AffineManifold(D), epsilon=1, effort="quick")
    assert m.guarantee.epsilon() <= 1.0
    assert not m.guarantee.exact
    assert "longest circuit" in m.notes[1]
