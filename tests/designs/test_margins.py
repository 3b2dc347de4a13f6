"""Margins against dense matrices: promises by brute force, variances, bounds, releases."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import dense
from affinedp.budget.ledger import Ledger
from affinedp.designs.margins import design_margins
from affinedp.designs.places import design_tree_margins
from affinedp.designs.tree import design_tree
from affinedp.domains.crossed import counts_of_records
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import Scaled
from affinedp.laws.reach import Steps, sum_reach
from affinedp.strategies.base import GRID_BITS
from affinedp.strategies.margin_blocks import contrasts, residual, squared_lengths

ADULT = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
KINDS = ("person", "replace", "swaps")
PROMISE = {"epsilon": 1.0, "delta": 1e-6, "law": "gaussian"}


def margin_matrix(sizes, attributes):
    """One row per cell of the margin, one column per cell of the table."""
    parts = [np.eye(n) if j in attributes else np.ones((1, n)) for j, n in enumerate(sizes)]
    out = np.ones((1, 1))
    for part in parts:
        out = np.kron(out, part)
    return out


def cell_moves(sizes, neighbours):
    cells = list(itertools.product(*map(range, sizes)))
    place = {cell: i for i, cell in enumerate(cells)}
    if neighbours == "person":
        return np.eye(len(cells))
    found = set()
    for a, b in itertools.combinations(cells, 2):
        v = [0] * len(cells)
        v[place[a]] += 1
        v[place[b]] -= 1
        if neighbours == "replace":
            found.add(tuple(v))
            continue
        for kept in itertools.product([0, 1], repeat=len(sizes)):
            c = tuple(x if k else y for x, y, k in zip(a, b, kept))
            d = tuple(y if k else x for x, y, k in zip(a, b, kept))
            w = [0] * len(cells)
            for cell, sign in ((a, 1), (b, 1), (c, -1), (d, -1)):
                w[place[cell]] += sign
            if any(w):
                found.add(tuple(w))
    return np.array(sorted(found), float)


def cell_variances(m):
    """Of every margin, by its attributes."""
    return dict(zip(m.strategy.margins, m.strategy.cell_variances(m.noise).tolist()))


def root_mean_square_error(m):
    return math.sqrt(m.expected_squared_errors.sum() / (m.expected_squared_errors > 0).sum())


def cell_precision(m):
    """Precision of the noise seen from the cells, from q as it is drawn."""
    sizes = m.domain.sizes
    total = math.prod(sizes)
    P = np.zeros((total, total))
    unit = m.prepared().unit
    for B, q in m.strategy.scales():
        attributes = [j for j in range(len(sizes)) if B >> j & 1]
        C = np.ones((1, 1))
        for j, n in enumerate(sizes):
            helmert = np.array([[1.0] * k + [-k] + [0.0] * (n - k - 1) for k in range(1, n)])
            C = np.kron(C, helmert if j in attributes else np.ones((1, n)))
        y = (q.ravel() / unit) ** 2
        P += C.T @ (y[:, None] * C)
    return P


@pytest.mark.parametrize("neighbours", KINDS)
@pytest.mark.parametrize("objective", ["sum", "largest"])
@pytest.mark.parametrize(("sizes", "margins"), [([2, 3, 2], "<=3"), ([3, 4], "<=2"),
                                               ([2, 2, 3], [(0, 1), (1, 2)])])  # fmt: skip
def test_promise_variances_and_bound_are_those_of_dense_matrices(
    neighbours, objective, sizes, margins
):
    m = design_margins(sizes, margins, adjacency=neighbours, objective=objective, **PROMISE)
    P = cell_precision(m)
    V = cell_moves(sizes, neighbours)
    worst = math.sqrt(np.einsum("ki,ij,kj->k", V, P, V).max())
    assert m.guarantee.sensitivity == pytest.approx(worst, rel=1e-7)
    assert m.guarantee.sensitivity >= worst * (1 - 1e-13)
    assert m.guarantee.holds(1.0, 1e-6, tolerance=0.0)
    covariance = np.linalg.pinv(P, rcond=1e-12)
    W = np.zeros_like(P)
    for attributes, variance in cell_variances(m).items():
        M = margin_matrix(sizes, attributes)
        W += M.T @ M
        diagonal = np.diag(M @ covariance @ M.T)
        np.testing.assert_allclose(diagonal, variance, rtol=1e-5, atol=1e-6)
    if objective == "sum":
        # the least over all Gaussian noise on what the margins see
        low, high = dense.least_error(W, V)
        cost = m.expected_squared_error * m.guarantee.sensitivity**2
        assert low * (1 - 1e-5) <= cost <= high * (1 + 1e-3)


def test_adult_is_as_good_as_residual_planner():
    """14 attributes, 6·10¹⁷ cells: what ResidualPlanner's program prints."""
    m = design_margins(ADULT, "<=3", **PROMISE)
    assert root_mean_square_error(m) * m.guarantee.sensitivity == pytest.approx(10.6650, abs=5e-5)
    assert m.gap < 1e-5
    assert all(other.error >= m.design.error * (1 - 1e-9) for other in m.alternatives)


@pytest.mark.slow
def test_adult_swaps():
    m = design_margins(ADULT, "<=3", adjacency="swaps", **PROMISE)
    assert root_mean_square_error(m) * m.guarantee.sensitivity == pytest.approx(19.696, rel=1e-3)
    assert m.gap < 1e-3


def test_scales_keep_the_precision_in_integers():
    m = design_margins([100, 37, 5], "<=3", **PROMISE)
    for (_, q), t in zip(m.strategy.scales(), m.strategy.t.tolist()):
        lengths = squared_lengths(q.shape)
        for value, length in zip(q.ravel()[::97].tolist(), lengths.ravel()[::97].tolist()):
            assert value**2 * int(length) <= Fraction(t) * 4**GRID_BITS


def test_contrasts_are_whole_and_orthogonal():
    rng = np.random.default_rng(0)
    margin = rng.integers(0, 100, (4, 3, 5))
    a = contrasts(margin)
    assert a.dtype.kind == "i"
    centred = margin - 0.0
    for axis in range(3):
        centred = centred - centred.mean(axis=axis, keepdims=True)
    np.testing.assert_allclose(residual(a), centred, atol=1e-12)
    assert (a**2 / squared_lengths(a.shape)).sum() == pytest.approx((centred**2).sum())


@pytest.mark.parametrize("neighbours", KINDS)
def test_releases_agree_have_their_law_and_keep_what_is_public(neighbours):
    rng = np.random.default_rng(1)
    sizes = [3, 4, 2]
    records = rng.integers(0, sizes, (500, 3))
    counts = counts_of_records(records, sizes)
    m = design_margins(sizes, "<=2", adjacency=neighbours, **PROMISE)
    z = []
    for _ in range(150):
        out = m.release(counts)
        pair = out[0, 1]
        np.testing.assert_allclose(pair.sum(axis=1), out[(0,)], atol=1e-8)
        np.testing.assert_allclose(out[1, 2].sum(axis=1), out[(1,)], atol=1e-8)
        if neighbours != "person":
            assert float(out[()]) == 500
        if neighbours == "swaps":
            np.testing.assert_allclose(out[(1,)], counts((1,)), atol=1e-9)
        a = rng.normal(size=(3, 4))
        error = float((a * (pair - counts((0, 1)))).sum())
        z.append(error / math.sqrt(m.variance_of({(0, 1): a})))
    assert stats.kstest(z, "norm").pvalue > 1e-4
    found = m.interval(out, simultaneous=True)
    assert found[0, 1].low.shape == (3, 4)
    cell = np.zeros((3, 4))
    cell[1, 2] = 1
    assert m.variance_of({(0, 1): cell}) == pytest.approx(cell_variances(m)[0, 1])


@pytest.mark.parametrize(
    ("sizes", "times", "why"),
    [
        (2, None, "sizes must be whole numbers"),
        (["a"], None, "sizes must be whole numbers"),
        ([2], [1.5], "times must be whole numbers"),
        ([2], [math.nan], "times"),
        ([2], ["x"], "times"),
        ([2], [-3], "not negative"),
        ([2], [1, 2], "times must be 1 whole number"),
        ([2], [2**53 + 2], r"more than 2\*\*53 people"),
    ],
)
def test_records_that_cannot_be_counted_are_refused(sizes, times, why):
    with pytest.raises(AffineDPError, match=why):
        counts_of_records([[0]], sizes, times)


@pytest.mark.parametrize("neighbours", ["person", "replace"])
@pytest.mark.parametrize("sizes", [[3, 4], [2, 3, 2]])
def test_laplace_noise_on_whole_margins(neighbours, sizes):
    m = design_margins(sizes, "<=2", adjacency=neighbours, epsilon=0.7)
    assert m.law in ("geometric", "geometrics")
    assert m.gap is None
    matrices = [margin_matrix(sizes, A) for A in m.strategy.measured]
    y = [m.noise.rate] if m.law == "geometric" else m.noise.rates
    V = cell_moves(sizes, neighbours)
    worst = max(sum(a * np.abs(M @ v).sum() for a, M in zip(y, matrices)) for v in V)
    assert m.guarantee.epsilon() == pytest.approx(worst, rel=1e-12)
    assert m.guarantee.holds(0.7, tolerance=0.0)
    # geometric noise on both sides, p = e^-y: its variance is 2 p / (1 - p)^2
    P = sum(np.expm1(-a) ** 2 / (2 * np.exp(-a)) * M.T @ M for a, M in zip(y, matrices))
    if neighbours == "replace":
        P = P + 1e9 * np.ones_like(P)
    covariance = np.linalg.inv(P + 1e-11 * np.eye(len(P)))
    for attributes, variance in cell_variances(m).items():
        M = margin_matrix(sizes, attributes)
        np.testing.assert_allclose(np.diag(M @ covariance @ M.T), variance, rtol=1e-4, atol=1e-4)
    counts = counts_of_records(
        np.random.default_rng(0).integers(0, sizes, (200, len(sizes))), sizes
    )
    errors = [m.release(counts)[0, 1] - counts((0, 1)) for _ in range(400)]
    assert np.mean(np.square(errors)) == pytest.approx(cell_variances(m)[0, 1], rel=0.15)
    assert np.abs(np.mean(errors, axis=0)).max() < 5 * math.sqrt(cell_variances(m)[0, 1] / 400)


def test_a_cross_table_is_never_worse_than_its_cells_added_up():
    """5 × 6 cells with margins: Laplace noise on the cells is best, and is what comes out."""
    m = design_margins([5, 6], "<=2", epsilon=1.0, delta=1e-6)
    assert m.expected_squared_error <= 2 * (30 + 30 + 30 + 30) * (1 + 1e-9)
    assert min(other.error for other in m.alternatives) >= m.design.error * (1 - 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize(
    ("sizes", "margins", "options"),
    [([5, 6], "<=2", {}), ([3, 4, 2], "<=1", {"objective": "largest"}), ([2] * 6, 2, {})],
)
def test_margins_are_never_worse_than_geometric_noise_on_the_cells(
    epsilon, sizes, margins, options
):
    m = design_margins(sizes, margins, epsilon=epsilon, **options)
    p = math.exp(-epsilon)
    geometric, cells = 2 * p / (1 - p) ** 2, math.prod(sizes)
    own = {A: math.prod(sizes[j] for j in A) for A in m.strategy.margins}
    if options:
        assert max(cell_variances(m).values()) <= cells * geometric * (1 + 1e-9)
    else:
        assert m.expected_squared_error <= len(own) * cells * geometric * (1 + 1e-9)


def half_width(m, chosen, level=0.95):
    return float(m.strategy.node_reaches(m.noise, chosen, 1 - level)[0])


@pytest.mark.parametrize("neighbours", ["person", "replace"])
def test_what_only_the_cells_carry_is_whole_and_covered(neighbours):
    """Noise on the cells alone: sums of geometric numbers, with intervals of their law."""
    sizes, epsilon = [4, 3], 1.5
    m = design_margins(sizes, "<=2", epsilon=epsilon, adjacency=neighbours)
    assert m.strategy.measured == ((0, 1),)
    counts = counts_of_records([[0, 0], [3, 2]], sizes)
    outs = [m.release(counts) for _ in range(300)]
    for chosen in [(0,), (0, 1)]:
        errors = np.concatenate([(out[chosen] - counts(chosen)).ravel() for out in outs])
        if neighbours == "person":
            assert (errors % 1 == 0).all()
            assert half_width(m, chosen) % 1 == 0
        assert np.mean(errors**2) == pytest.approx(cell_variances(m)[chosen], rel=0.25)
        for level in (0.8, 0.95):
            inside = np.mean(np.abs(errors) <= half_width(m, chosen, level) + 1e-9)
            assert inside >= level - 4 * math.sqrt(level * (1 - level) / len(outs))


def _law(factor, rate, times):
    """Σ of times whole Laplace numbers, times a factor: values and probabilities, by hand."""
    i = np.arange(-60, 61)
    one = np.exp(-rate * np.abs(i))
    one /= one.sum()
    law = np.ones(1)
    for _ in range(times):
        law = np.convolve(law, one)
    return factor * np.arange(-60 * times, 60 * times + 1), law


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(
    "parts",
    [
        [(1.0, 1.0, 1)],
        [(1.0, 1.0, 1), (0.37, 1.0, 3)],
        [(0.8, 3.0, 2), (0.2, 0.7, 1)],
        [(1.0, 8.0, 1), (1 / 7, 8.0, 1)],
    ],
)
def test_sums_of_whole_numbers_reach_as_far_as_their_law(parts, level):
    values, law = np.zeros(1), np.ones(1)
    for factor, rate, times in parts:
        more, own = _law(factor, rate, times)
        values = np.add.outer(values, more).ravel()
        law = np.multiply.outer(law, own).ravel()
    terms = {(Steps(1.0, 1.0, rate, True), c): times for c, rate, times in parts}
    found = sum_reach(terms, 1 - level)
    assert law[np.abs(values) <= found].sum() >= level
    order = np.argsort(np.abs(values))
    exact = np.abs(values)[order][np.searchsorted(np.cumsum(law[order]), level)]
    # the law jumps, and smoothing looks a little beyond it
    spread = math.sqrt(float(law @ values**2))
    assert found <= exact * 1.02 + max(0.15 * spread, 0.01)


def test_a_person_in_whole_noise_is_seen_as_well_as_in_randomised_response():
    """P(S <= 0) - P(S <= -1) = tanh(1/2) at epsilon = 1: more than on the line, 1 - e^(-1/2)."""
    for m in (
        design_margins([3, 2], "<=2", epsilon=1.0),
        design_tree_margins([-1, 0, 0], [3, 2], epsilon=1.0),
    ):
        assert m.guarantee.delta(0.0) >= math.tanh(m.guarantee.epsilon() / 2) > 0.46
        assert m.guarantee.epsilon() <= 1.0


def test_households_and_ledgers(tmp_path):
    one = design_margins([3, 2], "<=2", **PROMISE)
    two = design_margins([3, 2], "<=2", household=2, **PROMISE)
    ratio = two.expected_squared_error / one.expected_squared_error
    assert ratio == pytest.approx(4.0, rel=1e-6)
    with Ledger(tmp_path / "l.db", epsilon=1.0, delta=1e-5, protects="one person") as ledger:
        one.release(counts_of_records([[0, 0]], [3, 2]), ledger=ledger)
        assert 0 < ledger.spent <= 1.0


@pytest.mark.parametrize(
    ("sizes", "margins", "options", "match"),
    [
        ([3, 1], "<=1", {}, "at least 2 values"),
        ([3, 2], "3-way", {}, "such as"),
        ([3, 2], [(0, 5)], {}, "attribute of a margin must be"),
        ([3, 2], "<=1", {"adjacency": "swaps"}, "public"),
        ([3, 2], "<=1", {"delta": 0.0}, "delta"),
        ([3, 2], "<=2", {"delta": 0.0, "law": "auto", "adjacency": "swaps"}, "delta"),
        ([3, 2], "<=2", {"law": "laplace", "adjacency": "swaps"}, "only Gaussian noise"),
        ([3, 2], "<=2", {"law": "cauchy"}, "law"),
        ([3, 2], "<=1", {"objective": "most"}, "objective"),
        ([3, 2], "<=1", {"weights": [1, 2]}, "weights"),
        ([2] * 30, "<=1", {"adjacency": "replace"}, "too many"),
        ([3, 2], True, {}, "margins must be a whole number"),
        ([3, 2], 0.5, {}, "margins must be a whole number"),
        ([3, 2], [1], {}, "must be a list of attributes"),
        ([3, 2], "<=1", {"weights": [1, 1j, 1]}, "real number"),
        ([3, 2], "<=1", {"workloads": 1}, "workloads must be a mapping"),
        ([3, 2], "<=1", {"workloads": {True: "prefix"}}, "attribute must be a whole number"),
        ([3, 2], "<=1", {"workloads": {0.0: "prefix"}}, "attribute must be a whole number"),
        ([3, 2], "<=1", {"workloads": {0: [1, 1, 1]}}, "workload must be a matrix"),
        ([3, 2], "<=1", {"epsilon": 0.0, "law": "laplace"}, "epsilon = 0: give one above 0"),
        ([3, 2], "<=1", {"epsilon": 1e-320, "law": "laplace"}, "too small for Laplace noise"),
    ],
)
def test_refusals(sizes, margins, options, match):
    with pytest.raises(AffineDPError, match=match):
        design_margins(sizes, margins, **{**PROMISE, **options})


NO_NUMBERS = (
    None,
    "1",
    True,
    float("nan"),
    math.inf,
    1j,
    [1.0],
    -1.0,
    10**400,
    Fraction(10**400, 3),
)


@pytest.mark.parametrize("law", ["auto", "laplace", "gaussian"])
@pytest.mark.parametrize("name", ["epsilon", "delta"])
@pytest.mark.parametrize("given", NO_NUMBERS)
def test_a_promise_is_two_finite_numbers(law, name, given):
    promise = {"epsilon": 1.0, "delta": 1e-6 if law == "gaussian" else 0.0, "law": law, name: given}
    with pytest.raises(AffineDPError, match=name):
        design_margins([3, 2], **promise)
    with pytest.raises(AffineDPError, match=name):
        design_tree_margins([-1, 0, 0], [2], **promise)
    with pytest.raises(AffineDPError, match=name):
        design_tree([-1, 0, 0], **promise)


@pytest.mark.parametrize("half", [np.float32(0.5), Decimal("0.5"), Fraction(1, 2)])
def test_numbers_of_every_type_promise_what_they_say(half):
    found = design_margins([3, 2], epsilon=half, delta=half, law="gaussian")
    wanted = design_margins([3, 2], epsilon=0.5, delta=0.5, law="gaussian")
    assert found.fingerprint == wanted.fingerprint


def test_noisy_numbers_are_the_same_however_wide_the_integers_are():
    """(q X + Z) / q: 64 bits and Python integers give the same double, and it is the quotient."""
    generator = np.random.default_rng(0)
    for largest in (3, 2**40, 2**61):
        counts = generator.integers(-largest, largest, 500)
        q = generator.integers(1, 2**61, 500) >> generator.integers(0, 60, 500)
        q = np.maximum(q, 1)
        drawn = generator.integers(-(2**61), 2**61, 500)
        narrow = Scaled(counts, q) + drawn
        wide = Scaled(counts.astype(object), q) + drawn
        assert (narrow == wide).all()
        for x, one, z, found in zip(counts.tolist(), q.tolist(), drawn.tolist(), narrow.tolist()):
            exact = Fraction(one * x + z, one)
            assert abs(Fraction(found) - exact) <= abs(exact) * Fraction(1, 2**51) + Fraction(
                1, 2**52
            )


def test_wide_counts_do_not_overflow_their_contrasts():
    sizes = [90, 90, 90]
    m = design_margins(sizes, "<=3", **PROMISE)
    records = [[89, 89, 89], [0, 1, 2]]
    people = 2**52
    out = m.release(counts_of_records(records, sizes, [people, 7]))
    assert abs(out[0, 1, 2][89, 89, 89] - people) < 1e4
    assert abs(out[()][()] - people - 7) < 1e4
