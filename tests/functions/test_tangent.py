"""Two looks: one charge before the first, and noise for the gradient that was found."""

import math

import numpy as np
import pytest
from scipy import stats

import affinedp as adp
from affinedp.designs import tangent

N = 4000.0
M = adp.AffineManifold(np.ones((1, 40)), b=[-N])
X = np.round(np.random.default_rng(7).dirichlet(np.full(40, 2.0)) * N)
X[0] += N - X.sum()


def concentration(y):
    return (y**2).sum() / N**2


def slope(y):
    return 2 * y / N**2


T = adp.design_tangent(M, concentration, epsilon=1.0, delta=1e-6, gradient=slope)


def test_the_promise_is_kept_for_every_gradient():
    """s₁² + s₂² ≤ s², with the largest of |J v| over all pairs computed here."""
    s = float(adp.gaussian_sensitivity(1.0, 1e-6))
    generator = np.random.default_rng(0)
    assert T.guarantee.holds(1.0, 1e-6)
    first = np.asarray(T.first.noise_matrix)
    for _ in range(5):
        y = X + generator.normal(0, 10 ** generator.uniform(0, 4), 40)
        second = T._around(y, 1.0, 0.95, 50).second
        row, sigma = second.dense.query[0], float(np.asarray(second.noise_matrix)[0, 0])
        white = np.linalg.pinv(first)
        worst = 0.0
        for i in range(40):
            for j in range(i):
                v = np.zeros(40)
                v[i], v[j] = 1.0, -1.0
                worst = max(worst, np.linalg.norm(white @ v) ** 2 + ((row @ v) / sigma) ** 2)
        assert worst <= s**2 * (1 + 1e-9)


def test_one_charge_before_anything_is_drawn(tmp_path, monkeypatch):
    ledger = adp.Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6, protects="one")
    drawn = []

    def publish(*args, **options):
        drawn.append(len(ledger.history()))
        return original(*args, **options)

    original = tangent.publish
    monkeypatch.setattr(tangent, "publish", publish)
    T.release(X, ledger=ledger)
    assert drawn == [1, 1]
    assert len(ledger.history()) == 1
    with pytest.raises(adp.BudgetExceededError):
        T.release(X, ledger=ledger)
    with pytest.raises(adp.AffineDPError):
        T.release(X + 1.0)  # off the manifold
    with pytest.raises(adp.AffineDPError):
        T.release(X, bound=1.0)
    assert drawn == [1, 1]


@pytest.mark.parametrize("gradient", ["nan", "zero", "parallel to the equation", "fails"])
def test_a_gradient_that_fails_costs_accuracy_only(gradient, monkeypatch):
    def undefined(y):
        return concentration(y) if np.ptp(y) < 1e-6 else np.nan

    def flat(y):
        return 3.0

    def of_the_total(y):
        return y.sum() / N

    def fails(y):
        if y[1] != 0:
            raise RuntimeError("no value")
        return 0.0

    f = {"nan": undefined, "zero": flat, "fails": fails}.get(gradient, of_the_total)

    looks = []
    original = tangent.publish
    monkeypatch.setattr(tangent, "publish", lambda *a, **b: looks.append(1) or original(*a, **b))
    found = adp.design_tangent(M, f, epsilon=1.0, delta=1e-6).release(X)
    assert len(looks) == 1
    assert found.first.shape == (40,)
    assert "first look alone" in found.how
    if gradient in ("zero", "parallel to the equation"):
        assert found.low - 1e-9 <= f(X) <= found.high + 1e-9
    else:
        assert not found.bounded


@pytest.mark.parametrize("curved", [False, True])
def test_a_function_that_fails_at_any_time_does_not_lose_the_first_look(curved):
    calls, last = 0, math.inf

    def f(y):
        nonlocal calls
        calls += 1
        if calls > last:
            raise RuntimeError("no value")
        return concentration(y) if curved else 3.0

    made = adp.design_tangent(M, f, epsilon=1.0, delta=1e-6)
    calls = 0
    assert made.release(X).bounded
    total = calls
    for kept in (0, 1, total // 2, total - 1):
        calls, last = 0, kept
        found = made.release(X)
        assert found.first.shape == (40,)
        assert "first look alone" in found.how
        assert "RuntimeError: no value" in found.warnings[0]


def test_a_first_look_with_too_few_digits_is_published_alone():
    three = adp.AffineManifold.from_equations(["a + b = c"])
    made = adp.design_tangent(three, "a * a - b * b", epsilon=1.0, delta=1e-6)
    found = made.release([1e16, 1e16, 2e16])
    assert not found.bounded
    assert found.first.shape == (3,)
    assert "too few digits" in found.warnings[0]


def test_a_gradient_that_is_not_that_of_the_function_is_not_used():
    made = adp.design_tangent(
        M, concentration, epsilon=1.0, delta=1e-6, gradient=lambda y: np.arange(40.0)
    )
    second = made._around(X, 1.0, 0.95, 50).second
    assert second.dense.query[0] == pytest.approx(slope(X) - slope(X).mean(), rel=1e-3, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_it_is_sharper_and_its_intervals_hold(delta):
    made = adp.design_tangent(M, concentration, epsilon=1.0, delta=delta, gradient=slope)
    runs, truth = 480, concentration(X)
    found = [made.release(X) for _ in range(runs)]
    hits = sum(one.low <= truth <= one.high for one in found)
    assert stats.binom.cdf(hits, runs, 0.93) > 1e-6
    errors = np.array([one.value - truth for one in found])
    assert abs(errors.mean()) < 5 * errors.std() / math.sqrt(runs)
    whole = adp.design(M, epsilon=1.0, delta=delta, law="gaussian" if delta else "auto")
    plain = np.array([concentration(X + e) for e in whole.sample(2000, seed=1)])
    # about 0.7; tails are heavy, so it takes many runs to tell
    assert errors.std() < 0.85 * plain.std()


def test_a_table_that_was_released_is_a_free_first_look(tmp_path):
    table = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    y = X + table.sample(1, seed=3)[0]
    made = adp.design_tangent(
        M, concentration, epsilon=1.0, delta=1e-6, gradient=slope, table=(table, y)
    )
    found = made.release(X, level=1 - 1e-7)
    assert np.array_equal(found.first, y)
    assert found.low < concentration(X) < found.high
    sigma = float(np.sqrt(made._around(y, 1.0, 0.95, 50).second.expected_squared_error))
    both = float(np.sqrt(T._around(y, 1.0, 0.95, 50).second.expected_squared_error))
    assert sigma == pytest.approx(both / math.sqrt(2), rel=1e-6)  # the whole budget


def test_several_functions_by_name_and_by_text():
    three = adp.AffineManifold.from_equations(["a + b = c"])
    made = adp.design_tangent(three, "a * b / c", epsilon=1.0, delta=1e-6)
    found = made.release([300.0, 700.0, 1000.0], level=1 - 1e-7)
    assert found.low < 210 < found.high
    two = adp.design_tangent(
        three, lambda a, c: np.array([a / c, 2 * a / c]), epsilon=1.0, delta=1e-6
    )  # parallel gradients
    both = two.release([300.0, 700.0, 1000.0])
    assert both.value == pytest.approx([0.3, 0.6], abs=0.2)
    with pytest.raises(adp.AffineDPError, match="no output"):
        adp.design_tangent(three, "a / d", epsilon=1.0, delta=1e-6)
    with pytest.raises(adp.AffineDPError, match="share"):
        adp.design_tangent(three, "a / c", epsilon=1.0, delta=1e-6, share=1.0)


def test_a_comparison_says_which_way_wins():
    made = adp.design_tangent(
        M,
        concentration,
        epsilon=1.0,
        delta=1e-6,
        gradient=slope,
        compare=np.full(40, 100.0) + X % 7,
    )
    assert set(made.compared) == {"post-processing", "two looks", "value"}
    three = adp.AffineManifold.from_equations(["a + b = c"])
    small = adp.design_tangent(three, "a / c", epsilon=1.0, delta=1e-6, compare=[3.0, 7.0, 10.0])
    assert "as large as the data" in small.notes[0]


def test_a_repair_of_the_first_look_is_taken_off_again():
    """For a linear function two looks are right wherever the first is moved to."""
    weights = np.arange(40.0)
    made = adp.design_tangent(
        M, lambda y: weights @ y, epsilon=1.0, delta=1e-6, repair=lambda y: np.maximum(y, 60.0)
    )
    found = made._around(X, 1.0, 0.95, 50)
    along = found.slope @ X - found.slope @ found.noise.y - found.off
    assert found.here + along == pytest.approx([weights @ X], rel=1e-6)
    for _ in range(20):  # the share of the first look is without the repair, too
        released = made.release(X, level=1 - 1e-7)
        assert released.low < weights @ X < released.high


def test_entropy_of_cells_of_which_some_are_as_small_as_noise():
    """Raised to 0.8 of their noise, with curvature near there: at least 2.5 times less error."""
    n, total = 1000, 1e5
    x = np.round(np.random.default_rng(7).dirichlet(np.full(n, 2.0)) * total)
    x[0] += total - x.sum()

    def entropy(y):
        z = np.maximum(y, 0.5) / total
        return -(z * np.log(z)).sum()

    cells = adp.AffineManifold(np.ones((1, n)), b=[-total])
    made = adp.design_tangent(
        cells, entropy, epsilon=1.0, delta=1e-6, repair="positive",
        gradient=lambda y: -(np.log(np.maximum(y, 0.5) / total) + 1) / total,
    )  # fmt: skip
    generator, truth = np.random.default_rng(3), entropy(x)
    errors = [made._simulated(x, generator, 100)[0] - truth for _ in range(12)]
    assert np.sqrt(np.mean(np.square(errors))) < 2.0e-3 / 2.5  # one release: 2.0e-3 and more
    found = made.release(x, level=0.9999)
    assert found.low < truth < found.high
    with pytest.raises(adp.AffineDPError, match="repair"):
        adp.design_tangent(cells, entropy, epsilon=1.0, delta=1e-6, repair="negative")
