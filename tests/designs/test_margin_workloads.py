"""Margins of prefixes, ranges and own sums against dense matrices, and against other optima."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import affinedp as adp
from affinedp.designs.margins import design_margins
from affinedp.domains.crossed import counts_of_records
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import wide_product
from affinedp.laws.laplace import Geometrics, geometric_variance
from affinedp.neighbours.people import People
from affinedp.strategies.margin_intervals import CountedIntervals
from affinedp.strategies.margin_workloads import Workload
from affinedp.tables import MarginRelease, prefix, ranges

PROMISE = {"epsilon": 1.0, "delta": 1e-6, "law": "gaussian"}
UNIT = adp.gaussian_sensitivity(1.0, 1e-6) ** 2
ADULT = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
OWN = np.array([[1.0, 1, 0, 0], [0, 0.5, -1, 0], [0, 0, 0, 2]])


def up_to(d, k):
    """All margins of 1 to k attributes."""
    return [A for size in range(1, k + 1) for A in itertools.combinations(range(d), size)]


def rows_of(asked, n):
    if asked is None:
        return np.eye(n)
    if isinstance(asked, str) and asked == "prefix":
        return np.tril(np.ones((n, n)))
    if isinstance(asked, str):
        pairs = itertools.combinations_with_replacement(range(n), 2)
        return np.array([[float(a <= i <= b) for i in range(n)] for a, b in pairs])
    return asked


def matrix_of(sizes, workloads, A):
    parts = [
        rows_of(workloads.get(j), n) if j in A else np.ones((1, n)) for j, n in enumerate(sizes)
    ]
    return functools.reduce(np.kron, parts)


def precision_of(m):
    """Of the noise, seen from the cells: from whole contrasts and the grid as it is drawn."""
    sizes, strategy = m.domain.sizes, m.strategy
    found = np.zeros((math.prod(sizes),) * 2)
    for B, q in strategy.scales():
        parts = []
        for j, n in enumerate(sizes):
            basis = strategy.basis(B, j)
            helmert = [[1.0] * k + [-k] + [0.0] * (n - k - 1) for k in range(1, n)]
            own = np.array(helmert) if basis is None else basis.rows.T.astype(float)
            parts.append(own if B >> j & 1 else np.ones((1, n)))
        C = functools.reduce(np.kron, parts)
        y = (q.ravel() / (m.prepared().unit * 2.0 ** strategy.finer(B))) ** 2
        found += C.T @ (y[:, None] * C)
    return found


def least_sum(V, rounds=3000):
    """Bounds on the least of tr(V X⁻¹) for diag X ≤ 1, by multiplicative steps of its dual."""
    w = np.full(len(V), 1 / len(V))
    for _ in range(rounds):
        d = np.sqrt(w)
        values, vectors = np.linalg.eigh(d[:, None] * V * d)
        roots = np.sqrt(np.maximum(values, 0))
        X = (vectors * roots) @ vectors.T / d[:, None] / d / roots.sum()
        w = w * np.diag(X)
        w = w / w.sum()
    return roots.sum() ** 2, roots.sum() ** 2 * np.diag(X).max()


CASES = {
    "prefix": ([6], up_to(1, 1), {0: "prefix"}),
    "ranges": ([5, 2], up_to(2, 2), {0: "ranges"}),
    "with plain ones": ([3, 5, 2], "<=2", {1: "prefix"}),
    "own": ([4, 3], "<=2", {0: OWN}),
    "own alone": ([4], [(0,)], {0: OWN[:2]}),
    "no total wanted": ([4, 3], [(0, 1)], {0: "prefix"}),
    "two": ([4, 5], "<=2", {0: "prefix", 1: "ranges"}),
    "three": ([3, 2, 4, 2], "<=3", {0: "prefix", 2: "prefix", 3: "prefix"}),
}


@pytest.mark.parametrize("case", CASES)
def test_promise_variances_and_bound_are_those_of_dense_matrices(case):
    sizes, margins, workloads = CASES[case]
    m = design_margins(sizes, margins, workloads=workloads, **PROMISE)
    P = precision_of(m)
    worst = math.sqrt(np.diag(P).max())
    assert m.guarantee.sensitivity == pytest.approx(worst, rel=1e-7)
    assert m.guarantee.sensitivity >= worst * (1 - 1e-13)
    assert m.guarantee.holds(1.0, 1e-6, tolerance=0.0)
    covariance = np.linalg.pinv(P, rcond=1e-12, hermitian=True)
    matrices = [matrix_of(sizes, workloads, A) for A in m.strategy.margins]
    W = np.vstack(matrices)
    dense = W @ covariance @ W.T
    np.testing.assert_allclose(m.expected_squared_errors, np.diag(dense), rtol=1e-5)
    assert m.expected_squared_error == pytest.approx(np.trace(dense), rel=1e-6)
    combination = np.random.default_rng(1).normal(size=len(W))
    named = m.strategy.present(combination)
    assert m.variance_of(named) == pytest.approx(combination @ dense @ combination, rel=1e-5)
    low, high = least_sum(W.T @ W + 1e-13 * np.eye(W.shape[1]))
    cost = m.expected_squared_error * UNIT
    assert cost >= low * (1 - 1e-5)
    assert cost / (1 + m.gap) <= high * (1 + 1e-5)
    assert cost <= high * (1.001 if len(workloads) == 1 else 1.02)
    assert m.gap < (3e-5 if len(workloads) == 1 else 0.02)


@pytest.mark.parametrize("case", CASES)
def test_releases_are_the_answers_and_noise_of_that_size(case):
    """With little noise the answers come out."""
    sizes, margins, workloads = CASES[case]
    m = design_margins(sizes, margins, workloads=workloads, epsilon=30.0, delta=0.5,
                       law="gaussian")  # fmt: skip
    x = np.random.default_rng(0).integers(0, 10**6, sizes)
    everything = tuple(range(len(sizes)))
    out = m.release({everything: x})
    spread = 8 * math.sqrt(max(m.expected_squared_errors)) + 1e-4
    for A in m.strategy.margins:
        truth = matrix_of(sizes, workloads, A) @ x.ravel()
        assert np.abs(out[A].ravel() - truth).max() < spread


# what others compute: total at squared sensitivity 1, with an independent dual solver
OPTIMA = [
    ([10], 1, "prefix", 24.215762), ([100], 1, "prefix", 499.744295),
    ([10], 1, "ranges", 135.840678), ([100], 1, "ranges", 31373.102664),
    ([10, 5, 2], 2, "prefix", 443.637970), ([100, 5, 2], 2, "prefix", 7523.218580),
    ([10, 5, 2], 2, "ranges", 2135.136252), ([100, 5, 2], 2, "ranges", 454829.938881),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "k", "form", "optimum"), OPTIMA)
def test_one_workload_is_at_the_optimum(sizes, k, form, optimum):
    m = design_margins(sizes, up_to(len(sizes), k), workloads={0: form}, **PROMISE)
    assert m.expected_squared_error * UNIT == pytest.approx(optimum, rel=3e-7)
    assert m.gap < 3e-6


# the least, and ResidualPlanner+'s
SEVERAL = [
    ([10, 10], 2, 2, "prefix", 719.699460, 900.735166),
    ([10, 10, 5], 2, 2, "prefix", 1882.493607, 2258.028815),
    ([20, 20], 2, 2, "prefix", 4220.274561, 5376.318987),
    ([6, 6, 6], 3, 3, "prefix", 2900.883565, 3814.981341),
    ([10, 10, 10], 3, 1, "prefix", 157.344, 175.701782),
    ([10, 10, 10], 3, 2, "prefix", 3793.38, 4753.090708),
    ([10, 10], 2, 2, "ranges", 19469.787152, 21664.024526),
]


@pytest.mark.parametrize(("sizes", "turned", "k", "form", "optimum", "planner"), SEVERAL)
def test_several_are_near_the_optimum_and_say_how_near(sizes, turned, k, form, optimum, planner):
    workloads = dict.fromkeys(range(turned), form)
    m = design_margins(sizes, up_to(len(sizes), k), workloads=workloads, **PROMISE)
    cost = m.expected_squared_error * UNIT
    assert optimum * (1 - 1e-6) <= cost <= 1.008 * optimum < planner
    assert cost / (1 + m.gap) <= optimum * 1.002
    assert m.gap < 0.02


@pytest.mark.parametrize(("k", "planner"), [(2, 309.772639), (3, 2218.652311)])
def test_adult_with_prefixes_is_below_residual_planner(k, planner):
    """6·10¹⁷ cells, prefixes of five attributes: its average, and what is certain."""
    workloads = dict.fromkeys((0, 2, 9, 10, 11), "prefix")
    m = design_margins(ADULT, up_to(14, k), workloads=workloads, **PROMISE)
    rows = sum(math.prod(ADULT[j] for j in A) for A in up_to(14, k))
    average = m.strategy.total_variance(m.noise) * UNIT / rows
    assert planner / (1 + m.gap) / 1.2 < average < 0.91 * planner
    assert m.gap < 0.21


# the largest variance: the square of the factorisation norm
LARGEST = [([10], "prefix", 2.471268), ([100], "prefix", 5.043965), ([10], "ranges", 2.96605),
           ([10, 5, 2], "prefix", 5.16476)]  # fmt: skip


def least_largest(sizes, form):
    margins = up_to(len(sizes), 2) if len(sizes) > 1 else [(0,)]
    return design_margins(sizes, margins, workloads={0: form}, objective="largest", **PROMISE)


@pytest.mark.parametrize(("sizes", "form", "optimum"), LARGEST)
def test_least_largest_variance(sizes, form, optimum):
    m = least_largest(sizes, form)
    assert max(m.expected_squared_errors) * UNIT == pytest.approx(optimum, rel=3e-5)
    assert m.gap < 3e-5


@pytest.mark.parametrize("sizes", [[30], [25, 7]])
def test_least_largest_variance_where_weights_of_most_ranges_vanish(sizes):
    assert least_largest(sizes, "ranges").gap < 2e-3


@pytest.mark.parametrize("seed", range(12))
def test_any_matrix_is_designed_for_in_any_unit(seed):
    rng = np.random.default_rng(seed)
    n, rows = int(rng.integers(2, 9)), int(rng.integers(1, 10))
    own = rng.integers(-3, 4, size=(rows, n)) + 4 * np.eye(rows, n)  # often of less than full rank
    found = []
    for unit in (1.0, 1e-7, 1e6):
        asked = {"workloads": {0: own * unit}, "epsilon": 1.0, "delta": 1e-6, "law": "gaussian"}
        m = design_margins([n, 2], [(0,), (0, 1)], **asked)
        assert m.gap < 2e-5
        found.append(m.expected_squared_error / unit**2)
        assert design_margins([n, 2], [(0,), (0, 1)], objective="largest", **asked).gap < 1e-3
    assert np.ptp(found) < 1e-4 * found[0]
    data = counts_of_records(rng.integers(0, [n, 2], size=(50, 2)), [n, 2])
    noise = np.abs(m.release(data)[(0,)] - own * unit @ data((0,)))
    assert (noise <= 10 * np.sqrt(m.strategy.node_variances(m.noise, (0,)).ravel())).all()


def test_values_are_as_without_a_workload():
    """The identity as a matrix costs what margins of values cost."""
    one = design_margins([7, 3], "<=2", workloads={0: np.eye(7)}, **PROMISE)
    other = design_margins([7, 3], "<=2", **PROMISE)
    assert one.expected_squared_error == pytest.approx(other.expected_squared_error, rel=1e-6)


def test_contrasts_that_nobody_asks_for_may_lose_all_their_noise():
    """Twice the total of two values asks for no contrast; noise on the values is added up."""
    asked = {0: np.array([[-2.0, -2.0]]), 1: "prefix"}
    m = design_margins([2, 2, 2], 3, workloads=asked, epsilon=0.3)
    plain = design_margins([2, 2], 2, workloads={0: "prefix"}, epsilon=0.3)
    assert m.expected_squared_error <= 2**2 * 2 * plain.expected_squared_error * (1 + 1e-9)


def test_wide_products_are_exact():
    rng = np.random.default_rng(0)
    matrix = rng.integers(-(2**31) + 1, 2**31, (5, 7))
    for bits in (1, 20, 53, 90, 200):
        table = np.array([[int(rng.integers(-9, 9)) * 2**bits // 9 for _ in range(3)]
                          for _ in range(7)], dtype=object)  # fmt: skip
        found = wide_product(matrix, table, 2**bits)
        assert (found.astype(object) == matrix.astype(object) @ table).all()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_intervals_hold_for_prefixes_and_their_differences(law):
    """In 2,000 releases, to within six deviations; those of Laplace noise are bounds."""
    delta = 1e-6 if law == "gaussian" else 0.0
    m = design_margins([6, 2], [(0, 1)], workloads={0: "prefix"}, epsilon=1.0, delta=delta, law=law)
    x = np.arange(12).reshape(6, 2)
    truth = np.cumsum(x, axis=0)
    difference = np.zeros((6, 2))
    difference[4, 1], difference[1, 1] = 1, -1
    held = np.zeros((2, 13))
    for _ in range(2000):
        y = m.release({(0, 1): x})
        low, high = m.interval(y, level=0.9)
        held[0, :12] += ((low[0, 1] <= truth) & (truth <= high[0, 1])).ravel()
        low, high = m.interval(y, level=0.9, combination={(0, 1): difference})
        held[0, 12] += low <= truth[4, 1] - truth[1, 1] <= high
    share = held[0] / 2000
    room = 6 * math.sqrt(0.09 / 2000)
    assert share.min() >= 0.9 - room
    if law == "gaussian":
        assert share.max() <= 0.9 + room


# sizes, margins, workloads, and widths of intervals that get noise
INTERVALS = {
    "prefix": ([7], [(0,)], {0: "prefix"}, [[1], [3]]),
    "beside others": ([3, 5, 2], "<=2", {1: "ranges"}, [[1], [2], [4]]),
    "two": ([5, 2, 4], "<=3", {0: "prefix", 2: OWN}, [[1, 1], [3, 2], [1, 4]]),
    "own sums": ([4, 2], [(0,), (1,)], {0: OWN}, [[2], [1]]),
}


def boxes(n, width):
    return np.array([[float(i // width == k) for i in range(n)] for k in range(-(-n // width))])


def on_intervals(case, total):
    """Whole noise of these widths; and, as a matrix of cells, what gets noise."""
    sizes, margins, workloads, widths = INTERVALS[case]
    domain = design_margins(sizes, margins, epsilon=1.0).domain
    chosen = design_margins(sizes, margins, epsilon=1.0).strategy.margins
    rates = [total * share for share in (0.4, 0.32, 0.28)][: len(widths)]
    asked = tuple(Workload.of(workloads[j], n) if j in workloads else None
                  for j, n in enumerate(sizes))  # fmt: skip
    weights = [1 / geometric_variance(rate) for rate in rates]
    strategy = CountedIntervals(domain, chosen, np.array(widths), weights, workloads=asked)
    m = adp.Mechanism(
        People(domain, "person", 1, None), strategy, Geometrics(rates, strategy.cells)
    )
    parts = []
    for row in widths:
        of = dict(zip(sorted(workloads), row))
        each = [(of.get(j, 1), n) for j, n in enumerate(sizes)]
        parts.append(functools.reduce(np.kron, [boxes(n, width) for width, n in each]))
    return m, parts, rates


@pytest.mark.parametrize("case", INTERVALS)
def test_noise_on_intervals_is_that_of_dense_matrices(case):
    sizes, _, workloads, _ = INTERVALS[case]
    m, parts, rates = on_intervals(case, 1.0)
    S = np.vstack(parts)
    np.testing.assert_array_equal(m.strategy.measure(np.eye(S.shape[1])), S)
    own = np.repeat(rates, list(map(len, parts)))
    assert m.guarantee.sensitivity == pytest.approx((own @ np.abs(S)).max(), rel=1e-12)
    noise = np.repeat([geometric_variance(rate) for rate in rates], list(map(len, parts)))
    W = np.vstack([matrix_of(sizes, workloads, A) for A in m.strategy.margins])
    least = W @ np.linalg.inv((S.T / noise) @ S)
    dense = least @ W.T
    np.testing.assert_allclose(m.strategy.loadings(), least @ (S.T / noise), atol=1e-9)
    np.testing.assert_allclose(m.expected_squared_errors, np.diag(dense), rtol=1e-9)
    assert m.expected_squared_error == pytest.approx(np.trace(dense), rel=1e-9)
    combination = np.random.default_rng(1).normal(size=len(W))
    named = m.strategy.present(combination)
    assert m.variance_of(named) == pytest.approx(combination @ dense @ combination, rel=1e-9)
    drawn = np.random.default_rng(2).integers(-9, 10, (2, len(S))).astype(float)
    np.testing.assert_allclose(m.strategy.spread(drawn), drawn @ m.strategy.loadings().T, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": [1.0, 1e20]}, "too far apart"),
        ({"weights": [1.0, -1.0]}, "positive weight"),
        ({"widths": [[2], [3]]}, "do not follow from intervals"),
        ({"widths": [[1, 1], [3, 1]]}, "a width for every attribute"),
        ({"workloads": ()}, "attributes with a workload"),
    ],
)
def test_intervals_that_determine_nothing_are_refused(change, words):
    m, _, _ = on_intervals("prefix", 1.0)
    with pytest.raises(AffineDPError, match=words):
        replace(m.strategy, **change)


@pytest.mark.parametrize("case", INTERVALS)
def test_releases_on_intervals_are_the_answers(case):
    """Noise of these rates is nearly always 0."""
    sizes, _, workloads, _ = INTERVALS[case]
    m, _, _ = on_intervals(case, 100.0)
    x = np.random.default_rng(0).integers(0, 10**6, sizes)
    out = m.release({tuple(range(len(sizes))): x})
    for A in m.strategy.margins:
        np.testing.assert_allclose(out[A].ravel(), matrix_of(sizes, workloads, A) @ x.ravel())


TREES = [(12, "ranges"), (20, "prefix"), (37, "prefix"), (64, "ranges"), (100, "prefix")]


@pytest.mark.parametrize(("n", "form"), TREES)
def test_whole_noise_is_never_worse_than_on_a_tree_of_intervals(n, form):
    """All branchings, ε shared evenly by their levels, then least squares; and on values alone."""
    W = rows_of(form, n)
    practice = [geometric_variance(1.0) * (W**2).sum()]
    for branches in range(2, n):
        widths = [branches**k for k in range(10) if branches**k < n]
        S = np.vstack([boxes(n, width) for width in widths])
        precision = S.T @ S / geometric_variance(1.0 / len(widths))
        practice.append(np.trace(np.linalg.solve(precision, W.T @ W)))
    m = design_margins([n], 1, workloads={0: form}, epsilon=1.0)
    assert m.expected_squared_error <= 1.001 * min(practice)
    assert m.guarantee.holds(1.0, 0.0)


def test_intervals_for_the_least_largest_variance():
    m = design_margins([100], 1, workloads={0: "prefix"}, epsilon=1.0, objective="largest")
    least = min(100 * geometric_variance(1.0), 2 * 10 * geometric_variance(0.5))
    assert float(max(m.expected_squared_errors)) <= least
    assert m.guarantee.holds(1.0, 0.0)


def test_intervals_of_noise_on_intervals_hold():
    """In 2,000 releases, to within six deviations: of prefixes, and of a difference of two."""
    m = design_margins([2, 24], [(0, 1)], workloads={1: "prefix"}, epsilon=0.5)
    x = np.arange(48).reshape(2, 24)
    truth, between = np.cumsum(x, axis=1), np.zeros((2, 24))
    between[1, 17], between[1, 4] = 1, -1
    y = m.release({(0, 1): x})
    assert isinstance(m.strategy, CountedIntervals)
    half = m.interval(y, level=0.9).high[0, 1] - y[0, 1]
    low, high = m.interval(y, level=0.9, combination={(0, 1): between})
    held, apart = np.zeros((2, 24)), 0.0
    for _ in range(2000):
        off = m.release({(0, 1): x})[0, 1] - truth
        held += np.abs(off) <= half
        apart += abs((off * between).sum()) <= (high - low) / 2
    room = 6 * math.sqrt(0.09 / 2000)
    assert min(held.min(), apart) / 2000 >= 0.9 - room
    assert held.mean() / 2000 <= 0.95


def test_impossible_combinations_are_left_out_of_intervals():
    """Against least squares on all combinations that are possible, as matrices."""
    asked = {"region": ["a", "b"], "age": prefix(range(30)), "sex": ["f", "m"]}
    none = [{"age": range(5), "sex": "f"}, {"age": 29, "sex": "m"}]
    design = MarginRelease(attributes=asked, epsilon=1.0, impossible=none).design()
    strategy, free = design.strategy, MarginRelease(attributes=asked, epsilon=1.0).design()
    assert isinstance(strategy, CountedIntervals)
    able = np.ones((2, 30, 2), bool)
    able[:, :5, 0] = able[:, 29, 1] = False
    able = able.ravel()
    widths = dict(zip(strategy.grouped, strategy.widths.T))[1]
    parts = [functools.reduce(np.kron, [np.eye(2), boxes(30, w), np.eye(2)]) for w in widths]
    rates = np.repeat(strategy.known_rates(design.mechanism.noise), list(map(len, parts)))
    S = np.vstack(parts)[:, able]
    assert rates @ S == pytest.approx(np.ones(able.sum()))
    inverse = np.linalg.inv((S.T / np.vectorize(geometric_variance)(rates)) @ S)
    total = [0.0, 0.0]
    for A in design.wanted:
        W = matrix_of([2, 30, 2], {1: "prefix"}, A)[:, able]
        found = design.variances(A).ravel()
        np.testing.assert_allclose(np.broadcast_to(found, len(W)), np.diag(W @ inverse @ W.T),
                                   rtol=1e-9, atol=1e-12)  # fmt: skip
        for k, one in enumerate((design, free)):
            total[k] += np.broadcast_to(one.variances(A).ravel(), len(W)).sum()
    assert total[0] <= total[1]


@pytest.mark.parametrize("nobody", [range(1, 11), range(2), range(9)])
def test_noise_where_nobody_is_is_never_worse_than_on_possible_cells(nobody):
    """Cells that are possible, added up; and the design without rules."""
    asked = {"age": ranges(range(12)), "sex": ["f", "m"]}
    none = [{"age": nobody, "sex": "m"}]
    design = MarginRelease(attributes=asked, epsilon=1.0, impossible=none).design()
    free = MarginRelease(attributes=asked, epsilon=1.0).design()
    able = np.ones((12, 2), bool)
    able[list(nobody), 1] = False
    total = [0.0, 0.0, 0.0]
    for A in design.wanted:
        W = matrix_of([12, 2], {0: "ranges"}, A)
        total[2] += geometric_variance(1.0) * (W[:, able.ravel()] ** 2).sum()
        for k, one in enumerate((design, free)):
            total[k] += np.broadcast_to(one.variances(A).ravel(), len(W)).sum()
    assert total[0] <= min(total[1:]) * (1 + 1e-9)


def test_releases_on_intervals_agree_and_hold_where_nobody_is():
    """Zeros are exact, tables agree, and 400 intervals hold to within six deviations."""
    asked = {"age": prefix(range(30)), "sex": ["f", "m"]}
    none = [{"age": range(5), "sex": "f"}]
    design = MarginRelease(attributes=asked, epsilon=1.0, impossible=none).design()
    people = pd.DataFrame({"age": [3, 7, 7, 29] * 9, "sex": ["m", "m", "f", "f"] * 9})
    truth = np.cumsum([9 * (i == 7) + 9 * (i == 29) for i in range(30)])
    half = design.half_widths((0, 1), 0.9, 1).reshape(30, 2)[:, 0]
    held = np.zeros(30)
    for _ in range(400):
        out = design.release(people)
        both = out.margin("age", "sex")["count"].to_numpy().reshape(30, 2)
        assert (both[:5, 0] == 0).all()
        held += np.abs(both[:, 0] - truth) <= half + 1e-9
        ages = out.margin("age")["count"].to_numpy()
        np.testing.assert_allclose(both.sum(axis=1), ages, atol=1e-8)
        assert ages[-1] == pytest.approx(out.margin()["count"][0], abs=1e-8)
    assert held.min() / 400 >= 0.9 - 6 * math.sqrt(0.09 / 400)
    assert (half[:5] == 0).all()
    assert "impossible" in design.guarantee.neighbours
    assert "compared with was not fitted" in " ".join(str(design.report()).split())


def test_tables_of_prefixes_and_ranges():
    people = pd.DataFrame({"age": [3, 7, 7, 9], "sex": ["f", "m", "f", "f"], "people": 10**6})
    asked = {"age": prefix(range(10)), "sex": ["f", "m"]}
    promise = {"epsilon": 30.0, "delta": 0.5, "law": "gaussian"}
    out = MarginRelease(attributes=asked, margins="<=2", **promise).release(people, count="people")
    found = out.interval("age", "sex").set_index(["age", "sex"])
    assert found.index[0] == ("≤ 0", "f")
    assert found.loc[("≤ 7", "f"), "count"] == pytest.approx(2e6, abs=20)
    low, high = found.loc[("≤ 9", "m"), ["lower", "upper"]]
    assert low == int(low)
    assert 10**6 - 20 < low <= high < 10**6 + 20
    assert "age × sex" in str(out.report())
    assert out.levels()["numbers"].tolist() == [1, 10, 2, 20]
    asked = {"age": ranges(range(10)), "sex": (["f", "m"], [[1.0, -0.5]])}
    release = MarginRelease(attributes=asked, margins=[["age", "sex"]], **promise)
    found = release.release(people, count="people").interval("age", "sex")
    found = found.set_index(["age", "sex"])
    assert len(found) == 55
    assert found.loc[("3 to 7", "row 0"), "count"] == pytest.approx(1.5e6, abs=20)
    assert found["lower"].dtype == float


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workloads": {0: "prefixes"}}, "'prefix', 'ranges' or a matrix"),
        ({"workloads": {2: "prefix"}}, "an attribute must be a whole number from 0 to 1, not 2"),
        ({"workloads": {0: np.eye(3)}}, "one column for each of the 4 values"),
        (
            {"workloads": {0: "prefix"}, "law": "laplace", "epsilon": 1e-300},
            "too small for Laplace",
        ),
        ({"workloads": {0: np.zeros((1, 4))}}, "no row without"),
        ({"workloads": {0: "prefix"}, "adjacency": "replace"}, "adjacency='person'"),
        ({"workloads": {0: "prefix", 1: "prefix"}, "objective": "largest"}, "objective='sum'"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(AffineDPError, match=words):
        design_margins([4, 3], **{**PROMISE, **options})
    with pytest.raises(AffineDPError, match="leave out round_to"):
        MarginRelease(attributes={"a": prefix([1, 2])}, epsilon=1.0, nonnegative=True)
