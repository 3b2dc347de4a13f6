"""Trees against dense matrices: promises by brute force, variances, bounds, releases."""

import math
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

import affinedp as adp
import dense
from affinedp import compiling
from affinedp.budget.ledger import Ledger
from affinedp.designs.least_tree import (
    heaviest_sum,
    least_precisions,
    level_moves,
    level_precisions,
    level_scales,
)
from affinedp.designs.tree import design_tree, design_tree_for_targets
from affinedp.designs.tree_bound import PoorDesignError
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals, checked_weights
from affinedp.errors import AffineDPError, IdentifiableEntriesError
from affinedp.laws.calibration import gaussian_sensitivity
from affinedp.laws.laplace import Geometric
from affinedp.neighbours.adjacency import Columns
from affinedp.neighbours.people import People
from affinedp.privacy.design import Design
from affinedp.strategies.base import GRID_BITS, largest_listed
from affinedp.tables.whole_numbers import rounding_reach, whole

US = [-1, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 6, 7, 7]
KINDS = ("person", "replace", "circuits")


def cases(count=12, n=14, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(count):
        parent = dense.random_parent(rng, n + i)
        public = rng.choice(n, 2, replace=False) if i % 3 == 2 else ()
        yield rng, parent, [int(v) for v in public]


def design(parent, public=(), **options):
    options = {"epsilon": 1.0, "delta": 1e-6, "largest_gap": 9.0, **options}
    return design_tree(parent, public=np.array(public, int), **options)


def precisions(m):
    """One over the variance of the noise on every number, in the given order."""
    return np.ldexp(m.strategy.scales.astype(float), -m.strategy.bits) ** 2 / m.noise.variance


def usable(parent, public, **options):
    try:
        return design(parent, public, **options)
    except IdentifiableEntriesError:
        return None


@pytest.mark.parametrize("neighbours", KINDS)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_promise_and_variances_are_those_of_the_dense_matrices(neighbours, law):
    seen = 0
    for rng, parent, public in cases(9):
        weights = rng.lognormal(0, 1, len(parent))
        m = usable(parent, public, adjacency=neighbours, law=law, weights=weights)
        if m is None:
            continue
        seen += 1
        K, _ = dense.indicators(parent)
        y = precisions(m)
        moves = dense.moves(parent, neighbours, public) @ K.T
        if law == "gaussian":
            worst = math.sqrt((moves**2 @ y).max())
            assert m.guarantee.holds(1.0, 1e-6, tolerance=0.0)
        else:
            rate = m.noise.rate * np.sqrt(m.noise.variance * y)
            worst = (np.abs(moves) @ rate).max()
            assert m.guarantee.holds(1.0, 0.0, tolerance=0.0)
        assert m.guarantee.sensitivity == pytest.approx(worst, rel=1e-8)
        assert m.guarantee.sensitivity >= worst * (1 - 1e-14)
        kept = [K[v] for v in public] + ([np.ones(K.shape[1])] if neighbours == "replace" else [])
        cells = dense.covariance(K, y, np.array(kept).reshape(-1, K.shape[1]))
        np.testing.assert_allclose(
            m.expected_squared_errors, np.diag(K @ cells @ K.T), rtol=1e-6, atol=1e-6
        )
        a = rng.normal(size=len(parent))
        assert m.variance_of(a) == pytest.approx(a @ K @ cells @ K.T @ a, rel=1e-6)
    assert seen >= 5


@pytest.mark.parametrize("neighbours", KINDS)
def test_the_bound_lies_below_the_least_error_and_near_it(neighbours):
    for rng, parent, public in cases(6, n=10, seed=3):
        weights = rng.uniform(0.5, 2, len(parent))
        m = usable(parent, public, adjacency=neighbours, law="gaussian", weights=weights)
        if m is None:
            continue
        K, _ = dense.indicators(parent)
        moves = dense.moves(parent, neighbours, public)
        W = K.T @ (weights[:, None] * K)
        low, high = dense.least_error(W, moves)
        cost = float(weights @ m.expected_squared_errors) * m.guarantee.sensitivity**2
        bound = cost / (1 + m.gap)
        assert bound <= high * (1 + 1e-5)
        assert cost >= low * (1 - 1e-5)


@pytest.mark.parametrize("neighbours", KINDS)
@pytest.mark.parametrize("household", [1, 4])
def test_the_promise_is_kept_in_integers(neighbours, household):
    """Over all moves: Σ q² ≤ s² 4⁵⁶, and ε 2⁵⁶ for Laplace noise, in integers."""
    for _, parent, public in cases(6, n=12, seed=11):
        K, _ = dense.indicators(parent)
        for law in ("gaussian", "laplace"):
            m = usable(parent, public, adjacency=neighbours, law=law, household=household)
            if m is None:
                continue
            q = m.strategy.scales.tolist()
            moves = np.abs(dense.moves(parent, neighbours, public) @ K.T).astype(int).tolist()
            if law == "gaussian":
                worst = max(sum(a * b * b for a, b in zip(move, q)) for move in moves)
                limit = Fraction(gaussian_sensitivity(1.0, 1e-6))
                assert m.prepared().unit >= (1 + Fraction(1, 2**30)) * 2**GRID_BITS
                assert worst * household**2 <= limit**2 * 4**GRID_BITS
                assert Fraction(m.guarantee.sensitivity) ** 2 * 4**GRID_BITS >= worst * household**2
            else:
                worst = max(sum(a * b for a, b in zip(move, q)) for move in moves)
                rate = Fraction(m.noise.rate) / 2**m.strategy.bits
                assert worst * household * rate <= 1
                assert Fraction(m.guarantee.sensitivity) >= worst * household * rate


def test_public_totals_make_trees_of_their_own():
    """Each class under a public total has the full budget, as if it were alone."""
    parent = np.array([-1, 0, 0, 1, 1, 1, 2, 2, 2])
    whole = design(parent, [1, 2], law="gaussian")
    alone = design([-1, 0, 0, 0], adjacency="replace", law="gaussian")
    assert whole.expected_squared_errors[:3].tolist() == [0, 0, 0]
    assert whole.guarantee.unit == alone.guarantee.unit == "one person is counted elsewhere"
    part = design(parent, [1], law="gaussian")
    assert part.guarantee.unit not in (whole.guarantee.unit, design(parent).guarantee.unit)
    np.testing.assert_allclose(
        whole.expected_squared_errors[3:6], alone.expected_squared_errors[1:], rtol=1e-4
    )
    with pytest.raises(IdentifiableEntriesError):
        design([-1, 0, 0, 1], [1])
    with pytest.raises(AffineDPError, match="nothing to protect"):
        design([-1, 0, 0], [0, 1, 2])


def test_a_heavy_branch_gets_more_than_half():
    """Six cells with weights 1 and 0.001: ½ on every path is 1.5 times worse."""
    weights = [0, 1, *[0.001] * 5]
    m = design([-1] + [0] * 6, adjacency="replace", law="gaussian", weights=weights)
    cost = float(np.array(weights) @ m.expected_squared_errors) * m.guarantee.sensitivity**2
    assert cost == pytest.approx(1.117, rel=2e-3)


def test_never_worse_than_standard_practice():
    for rng, parent, public in cases(6, n=20, seed=5):
        for neighbours in KINDS:
            for delta in (0.0, 1e-6):
                m = usable(parent, public, adjacency=neighbours, delta=delta,
                           weights=rng.lognormal(0, 2, len(parent)))  # fmt: skip
                if m is not None:
                    least = min(other.error for other in m.alternatives)
                    assert m.design.error <= least * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 10.0])
def test_never_worse_than_whole_noise_on_the_cells(epsilon):
    """Geometric noise at the rate that all moves leave, brought onto what is public."""
    drawn = 0
    for rng, parent, public in cases(9, seed=6):
        for neighbours in KINDS:
            weights = rng.lognormal(0, 2, len(parent))
            m = usable(parent, public, adjacency=neighbours, epsilon=epsilon, delta=0.0,
                       weights=weights)  # fmt: skip
            if m is None:
                continue
            K, leaves = dense.indicators(parent)
            moves = np.abs(dense.moves(parent, neighbours, public))
            each = 1 / (2 * math.sinh(epsilon / moves.sum(axis=1).max() / 2) ** 2)
            kept = [K[v] for v in public]
            kept += [np.ones(len(leaves))] if neighbours == "replace" else []
            spread = dense.covariance(
                K, (np.isin(np.arange(len(parent)), leaves)) / each,
                np.array(kept).reshape(-1, len(leaves)),
            )  # fmt: skip
            practice = float(weights @ np.diag(K @ spread @ K.T))
            found = float(weights @ m.expected_squared_errors)
            assert found <= practice * (1 + 1e-9)
            if m.law == "geometric":
                drawn += m.adjacency.domain.fixed_people
                assert found == pytest.approx(practice)
                x = (K @ rng.integers(0, 9, len(leaves))).astype(int)
                y = m.release(x)
                assert np.allclose(K @ y[leaves], y)
                assert np.array_equal(y[public], x[public])
                assert m.guarantee.holds(epsilon, 0.0, tolerance=0.0)
    assert drawn >= (0 if epsilon < 1 else 3)


@pytest.mark.parametrize("neighbours", KINDS)
def test_no_other_precisions_of_the_numbers_have_less_noise(neighbours):
    """By duality: f ≥ f(y)² / max g·y' over what all moves allow, g the slope in dense matrices."""
    rng = np.random.default_rng(17)
    given = [([-1, 0, 0, 1, 3], [0, 5, 0, 0, 1], []), ([-1, 0, 0, 1, 3], [1, 9, 1, 1, 5], [])]
    for i in range(20):
        parent = dense.random_parent(rng, 4 + i % 12)
        public = [int(rng.integers(len(parent)))] if i % 4 == 3 else []
        weights = np.exp(rng.uniform(-5, 5, len(parent)))
        given.append((parent, weights if i % 3 else rng.choice([0, 1, 5], len(parent)), public))
    seen = 0
    for parent, weights, public in given:
        c = np.array(weights, float)
        try:
            tree = Totals.of(parent, np.array(public, int), neighbours)
            cost = checked_weights(tree, c)
        except AffineDPError:
            continue
        seen += 1
        private = ~tree.outside(tree.known)
        K, leaves = dense.indicators(np.array(parent))
        moves = np.abs(dense.moves(np.array(parent), neighbours, public) @ K.T)
        y = tree.outside(least_precisions(tree, cost, neighbours == "circuits")[0])
        y = np.where(private, y, 0.0)
        y = y / (moves @ y).max()
        kept = [K[v] for v in public]
        kept += [np.ones(len(leaves))] if neighbours == "replace" else []
        cells = dense.covariance(K, y, np.array(kept).reshape(-1, len(leaves)))
        spread = K @ cells @ K.T
        c = np.where(private, c, 0.0)
        slope = np.where(private, c @ spread**2, 0.0)
        most = optimize.linprog(
            -slope, A_ub=moves, b_ub=np.ones(len(moves)), bounds=[(0, m) for m in 1e9 * private]
        )
        assert -most.fun <= float(c @ np.diag(spread)) * (1 + 2e-4)
    assert seen >= 10


@pytest.mark.parametrize("neighbours", KINDS)
@pytest.mark.parametrize("power", [1, 2])
def test_one_weight_per_level_is_no_worse_than_equal_weights(neighbours, power):
    """And the moves that are looked at are those of the list, level by level."""
    for rng, parent, public in cases(9, n=8, seed=23):
        try:
            tree = Totals.of(parent, np.array(public, int), neighbours)
        except AffineDPError:
            continue
        both = neighbours == "circuits"
        K, _ = dense.indicators(parent)
        moves = np.abs(dense.moves(parent, neighbours, public) @ K.T)
        depth = tree.outside(tree.depth)
        by_level = moves @ (depth[:, None] == np.arange(depth.max() + 1))
        levels = rng.lognormal(0, 2, (5, depth.max() + 1))
        found = level_moves(tree, both)
        np.testing.assert_allclose((levels @ found.T).max(1), (levels @ by_level.T).max(1))
        assert {tuple(row) for row in found} <= {tuple(row) for row in by_level}
        cost = checked_weights(tree, rng.lognormal(0, 2, tree.n))

        def error(y, tree=tree, both=both, cost=cost):
            y = y / heaviest_sum(tree, both, y)
            return float(cost @ passes.variances(*tree.arrays, y**power))

        flat = error(np.where(tree.known, 0.0, 1.0))
        made = level_precisions if power == 1 else level_scales
        assert error(made(tree, cost, both)) <= flat * (1 + 1e-9)


def test_a_path_of_heavy_branches():
    """A chain that costs 5 + 1 beside a cell that costs nothing: it may spend all there is."""
    promise = {"epsilon": 5.12, "delta": 0.01, "adjacency": "circuits", "law": "gaussian"}
    m = adp.design_tree([-1, 0, 0, 1, 3], weights=[0, 5, 0, 0, 1], **promise)
    assert m.gap < 1e-3
    assert m.design.error * m.guarantee.sensitivity**2 == pytest.approx(6.0, rel=1e-4)


def test_households_need_more_noise():
    one, three = (design(US, household=m, law="gaussian") for m in (1, 3))
    ratio = three.expected_squared_error / one.expected_squared_error
    assert ratio == pytest.approx(9.0, rel=1e-6)
    assert three.guarantee.holds(1.0, 1e-6, tolerance=0.0)
    assert "household of up to 3" in three.guarantee.neighbours


def test_a_branch_of_weight_zero_counts():
    """A person who moves between a measured and an unmeasured branch is seen on the first."""
    parent = np.array([-1, 0, 0, 1, 2])
    y = np.array([0.0, 0.0, 0.0, 0.7, 0.0])
    known = np.array([True, False, False, False, False])
    assert passes.heaviest(parent, known, y, False)[1] == 0.7


@pytest.mark.parametrize("parent", [[0], [0, 0], [1, 1, 0]])
def test_a_node_above_itself_is_refused(parent):
    with pytest.raises(AffineDPError, match="root|circle"):
        design_tree(parent, epsilon=1.0)


def test_small_trees_are_designed_without_a_compiler():
    program = (
        "import sys, affinedp as adp; "
        "adp.design_tree([-1, 0, 0, 1, 1, 2, 2], epsilon=1.0, delta=1e-6); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("neighbours", KINDS)
def test_designs_are_the_same_in_python_and_compiled(neighbours, monkeypatch):
    for _, parent, public in cases(4, n=6, seed=31):
        made = []
        for most in (10**9, 0):
            monkeypatch.setattr(compiling, "PLAIN_NUMBERS", most)
            monkeypatch.setattr(compiling._CompiledLater, "together", 0)
            made.append(usable(parent, public, adjacency=neighbours, delta=1e-6 * (len(parent) % 2),
                               law="gaussian" if len(parent) % 2 else "laplace"))  # fmt: skip
        if made[0] is not None:
            one, other = made
            assert one.fingerprint == other.fingerprint
            assert (one.gap, one.design.error) == (other.gap, other.design.error)


def test_deep_chains_are_refused():
    chain = [-1]
    for _ in range(150):
        top = len(chain) - 2 if len(chain) > 1 else 0
        chain += [top, top]
    with pytest.raises(PoorDesignError, match="deep chain") as refusal:
        design_tree(chain, epsilon=1.0, delta=1e-6, law="gaussian")
    assert refusal.value.gap > 0.25
    # Laplace noise does better, and is near what Gaussian noise could do
    assert design_tree(chain, epsilon=1.0, delta=1e-6).law in ("laplace", "geometric")


def test_targets_are_met_with_nearly_the_least_budget():
    m = design_tree_for_targets(US, targets={0: 3.0, 1: 4.0, 3: 6.0}, delta=1e-6)
    squares = m.expected_squared_errors
    noise = {i: math.sqrt(squares[p].mean()) for i, (_, p) in enumerate(m.strategy.groups())}
    assert all(noise[level] <= target * (1 + 1e-9) for level, target in {0: 3, 1: 4, 3: 6}.items())
    assert 0 <= m.gap < 0.05
    with pytest.raises(AffineDPError, match="no level 9"):
        design_tree_for_targets(US, targets={9: 1.0}, delta=1e-6)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_releases_have_the_law_that_is_promised(law):
    m = design(US, law=law, weights=np.linspace(1, 3, len(US)))
    counts = np.arange(len(US)) * 100
    K, leaves = dense.indicators(np.array(US))
    truth = K @ counts[leaves]
    errors = np.array([m.release(counts) - truth for _ in range(600)])
    y = precisions(m)
    K2 = K @ np.linalg.inv(K.T @ (y[:, None] * K)) @ K.T
    whitened = errors[:, leaves] @ np.linalg.inv(np.linalg.cholesky(K2[np.ix_(leaves, leaves)])).T
    total = float((whitened**2).sum())
    if law == "gaussian":
        assert 1e-4 < stats.chi2(whitened.size).cdf(total) < 1 - 1e-4
    else:
        assert total == pytest.approx(whitened.size, rel=0.1)
    found = m.interval(m.release(counts))
    share = np.mean([
        ((e + truth - (found.high - found.low) / 2 <= truth)
         & (truth <= e + truth + (found.high - found.low) / 2)).mean() for e in errors
    ])  # fmt: skip
    assert share > 0.93
    if law == "gaussian":
        assert share < 0.97


@pytest.mark.parametrize("nonnegative", [False, True])
def test_whole_numbers_add_up_and_are_near(nonnegative):
    rng = np.random.default_rng(0)
    for _, parent, public in cases(9, n=30, seed=8):
        m = usable(parent, public)
        if m is None:
            continue
        K, leaves = dense.indicators(parent)
        counts = np.zeros(len(parent), int)
        counts[leaves] = rng.poisson(2, len(leaves))
        out = m.release(counts)
        numbers = whole(m, out, nonnegative=nonnegative)
        assert np.array_equal(K @ numbers[leaves], numbers)
        np.testing.assert_allclose(K @ out[leaves], out, atol=1e-6)
        truth = (K @ counts[leaves]).astype(int)
        public_too = m.expected_squared_errors == 0
        assert np.array_equal(numbers[public_too], truth[public_too])
        assert np.array_equal(out[public_too], truth[public_too])
        if nonnegative:
            assert numbers.min() >= 0
        else:
            assert np.abs(numbers - out).max() <= rounding_reach(m) + 1e-6


def test_rounding_is_unbiased():
    m = design([-1, 0, 0, 0, 1, 1], epsilon=20.0, delta=0.1, law="gaussian")
    counts = np.array([0, 0, 7, 1, 3, 2])
    differences = []
    for _ in range(1500):
        out = m.release(counts)
        differences.append(whole(m, out) - out)
    mean = np.mean(differences, axis=0)
    assert np.abs(mean).max() < 5 * np.std(differences, axis=0).max() / math.sqrt(1500) + 1e-9


def test_counts_of_any_size_are_released():
    m = design(US)
    huge = [2**80 + i for i in range(len(US))]
    assert np.isfinite(m.release(huge)).all()
    for wrong in ([0.5] * len(US), [1, 2], ["a"] * len(US)):
        with pytest.raises(AffineDPError, match="whole numbers"):
            m.release(wrong)


def test_a_ledger_is_charged_once(tmp_path):
    m = design(US)
    with Ledger(tmp_path / "l.db", epsilon=1.5, delta=1e-5, protects="one person") as ledger:
        m.release(np.zeros(len(US), int), ledger=ledger, label="first")
        assert 0 < ledger.spent <= 1.0 + 1e-9
        with pytest.raises(AffineDPError):
            m.release(np.zeros(len(US), int), ledger=ledger)


@pytest.mark.parametrize(
    ("parent", "options", "match"),
    [
        ([0, 1], {}, "exactly one root"),
        ([-1, 2, 1], {}, "in a circle"),
        ([-1, 0, 0], {"adjacency": "cells"}, "adjacency"),
        ([-1, 0, 0], {"weights": [1, -1, 1]}, "weights"),
        ([-1, 0, 0], {"household": 0}, "household"),
        ([-1, 0, 0], {"law": "gaussian", "delta": 0.0}, "delta"),
        ([-1, 0, 0], {"law": "gaussian", "delta": 1e-40}, "too small"),
        ([-1.0, 0, 0], {}, "whole numbers"),
    ],
)
def test_refusals(parent, options, match):
    with pytest.raises(AffineDPError, match=match):
        design(parent, **options)


def test_a_number_whose_siblings_hold_nearly_all_the_noise_is_still_noisy():
    """1 − s/S rounds to 0 where one child was hardly measured; its variance is its sibling's."""
    parent, public = [-1, 0, 1, 2, 2, 4, 0], [1]
    weights = [0.1, 0.35, 0.2, 0.75, 0.65, 0.52, 0.03]
    m = design(parent, public, delta=0.0, law="laplace", weights=weights)
    errors = m.expected_squared_errors
    assert errors[4] == pytest.approx(errors[3], rel=1e-9)
    assert errors[4] == pytest.approx(errors[5], rel=1e-9)
    assert errors[3] > 1
    # two cells below a public total have the same variance, 1 / (y + y'), whatever the shares
    family = np.array([-1, 0, 0])
    leaf, known = np.array([False, True, True]), np.array([True, False, False])
    for tiny in (1e-3, 1e-12, 1e-20):
        y = np.array([0.0, 1.0, tiny])
        assert passes.variances(family, leaf, known, y)[1:] == pytest.approx([1 / (1 + tiny)] * 2)
        cost, gains = passes.cost_and_gains(family, leaf, known, y, np.ones(3))
        assert cost == pytest.approx(2 / (1 + tiny), rel=1e-12)
        assert gains[1:] == pytest.approx([2 / (1 + tiny) ** 2] * 2, rel=1e-12)


@dataclass(frozen=True, eq=False)
class Pairs(People):
    """Two cells at once: more than the heaviest path of one person says."""

    kind = "test.pairs"
    words = "two people"

    def moves(self, limit=10**6):
        for columns in super().moves(limit):
            first = columns.values
            yield Columns.given(np.hstack([first, first[:, :1] + first[:, 1:]]))


@pytest.mark.parametrize("neighbours", KINDS)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_fast_way_is_that_of_the_list_and_for_people_alone(neighbours, law, tmp_path):
    for public in ([], [1]):
        m = design(US, public, adjacency=neighbours, law=law, household=2)
        listed = largest_listed(m.strategy, m.adjacency, m.noise)
        assert listed.lower <= m.guarantee.sensitivity * (1 + 1e-12)
        assert m.guarantee.sensitivity == pytest.approx(listed.upper, rel=1e-9)
        more = replace(m, adjacency=Pairs(m.domain, neighbours, 2), design=Design())
        assert more.guarantee.sensitivity > m.guarantee.sensitivity * 1.01
        m.save(tmp_path / "m.json")
        again = adp.Mechanism.load(tmp_path / "m.json")
        assert again.fingerprint == m.fingerprint
        assert again.guarantee.asked == m.guarantee.asked


def test_steps_move_as_coordinates_do():
    """steps(x + v) − steps(x) is 2^bits measure(v), and outputs are made by the loadings."""
    for _, parent, public in cases(6, n=12, seed=2):
        for law in ("gaussian", "laplace"):
            m = usable(parent, public, law=law)
            if m is None:
                continue
            plan, moves = m.prepared(), m.adjacency.directions()
            zero = m.domain.read(np.zeros(len(parent), int))[0]
            for move in moves.T:
                data = m.domain.read(move.astype(int))[0]
                steps = np.asarray(plan.steps(data)) - np.asarray(plan.steps(zero))
                wanted = np.ldexp(m.strategy.measure(move[:, None]), m.strategy.bits)
                np.testing.assert_allclose(steps.astype(float), wanted, rtol=1e-15)
                assert np.array_equal(plan.shared(data), plan.shared(zero))
                out = plan.reconstruct(
                    plan.steps(data) + np.zeros(wanted.shape, int), plan.shared(data)
                )
                np.testing.assert_allclose(out[0], move, atol=1e-9)
            noise = m.strategy.spread(np.eye(m.strategy.coordinates)).T
            np.testing.assert_allclose(noise, m.strategy.loadings(), atol=1e-12 * abs(noise).max())


def test_whole_noise_needs_whole_coordinates():
    m = design(US, law="gaussian")
    with pytest.raises(AffineDPError, match="bits = 0"):
        _ = adp.Mechanism(m.adjacency, m.strategy, Geometric(1.0)).guarantee
