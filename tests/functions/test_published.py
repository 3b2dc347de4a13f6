"""Functions of published numbers: intervals against closed forms, and how often they cover."""

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import affinedp as adp
from affinedp.control import design_output_noise
from affinedp.errors import AffineDPError
from affinedp.tables import MarginRelease, TableRelease

THREE = adp.AffineManifold.from_equations(["a + b = c"])
GAUSSIAN = adp.design_gaussian(THREE, epsilon=1.0, delta=1e-6)
Z = stats.norm.ppf(0.975)


def fails_once_in_millions(hits, runs, level):
    """Whether so few hits are that unlikely, if the level is kept."""
    return stats.binom.cdf(hits, runs, level) < 1e-6


def holds(found, truth):
    return any(low <= truth <= high for low, high in found.pieces)


@pytest.mark.parametrize(("a", "c"), [(30.0, 8.0), (20.0, 60.0), (3e8, 1e9)])
def test_the_ends_of_a_ratio_solve_its_equation(a, c):
    """|a − θc| = z √Var(a − θc), with the covariance of the mechanism."""
    y, factor = np.array([a, c - a, c]), GAUSSIAN.prepared().factor
    found = GAUSSIAN.function(y, "a / c")
    cov = GAUSSIAN.covariance * factor**2
    ends = [end for piece in found.pieces for end in piece if np.isfinite(end)]
    assert len(ends) == 2
    for theta in ends:
        row = np.array([1.0, 0.0, -theta])
        assert abs(row @ y) == pytest.approx(Z * np.sqrt(row @ cov @ row), rel=1e-6)
    assert bool(found.bounded) == (c > 8)
    assert (len(found.pieces) == 2) == (c == 8)
    assert any("unbounded" in text for text in found.warnings) == (c == 8)


def test_nothing_is_known_where_noise_drowns_the_ratio():
    found = GAUSSIAN.function([1.0, -1.0, 0.0], "a / c")
    assert found.pieces == ((-np.inf, np.inf),)


@pytest.mark.slow
@pytest.mark.parametrize("c", [8.0, 100.0])
def test_ratios_cover_exactly(c):
    x, runs = np.array([0.3 * c, 0.7 * c, c]), 1500
    noise = GAUSSIAN.sample(runs, seed=1)
    hits = sum(holds(GAUSSIAN.function(x + e, "a / c"), 0.3) for e in noise)
    assert not fails_once_in_millions(hits, runs, 0.95)
    assert not fails_once_in_millions(runs - hits, runs, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "knorm", "geometric"])
def test_ratios_of_other_laws_cover(law):
    if law == "geometric":
        m = adp.design(THREE, epsilon=1.0, integers=True, law="laplace")
    else:
        m = adp.design(THREE, epsilon=1.0, law=law)
    x, runs = np.array([20.0, 30, 50]), 100
    found = [m.function(np.round(x + e) if law == "geometric" else x + e, "a / c")
             for e in m.sample(runs, seed=2)]  # fmt: skip
    assert not fails_once_in_millions(sum(holds(one, 0.4) for one in found), runs, 0.95)
    simple = [m.interval(x, combination=[0.6, -0.4, 0.0])]  # (1 − θ) a − θ b = 0 at θ = 0.4
    width = np.median([one.high - one.low for one in found])
    assert width == pytest.approx(float(simple[0].high - simple[0].low) / 50, rel=0.1)


def test_functions_in_all_forms_are_one():
    y = [30.0, 70.0, 100.0]
    forms = ["a / c", lambda a, c: a / c, lambda y: y[0] / y[2], lambda v: np.divide(v[0], v[2])]
    found = [GAUSSIAN.function(y, f) for f in forms]
    assert {(one.low, one.high, one.value, one.how) for one in found} == {
        (found[0].low, found[0].high, found[0].value, found[0].how)
    }
    assert GAUSSIAN.function(y, np.sum).value == pytest.approx(200)  # its "a" is no output's name
    frame = GAUSSIAN.function(pd.Series(y, index=["a", "b", "c"]), "a / c")
    rows = GAUSSIAN.function([y, y], "a / c")
    shares = GAUSSIAN.function(y, lambda y: y[:2] / y[2])
    assert frame.low == rows.low[1] == shares.low[0] == shares[0].low == found[0].low


def test_a_function_that_hides_what_it_does_is_not_taken_for_a_ratio():
    found = GAUSSIAN.function(
        [30.0, 70.0, 100.0], lambda a, c: a / c if type(a) is not np.float64 else a * a / c
    )
    assert found.value == pytest.approx(9.0, abs=0.5)
    assert "second order" in found.how


def concentration(y):
    return (y**2).sum() / 1e4**2


def cells(n, total, seed=7):
    p = np.random.default_rng(seed).dirichlet(np.full(n, 2.0))
    return adp.AffineManifold(np.ones((1, n)), b=[-total]), p * total


def test_a_quadratic_function_has_the_closed_form():
    """With Σ = σ²(I − 11'/n): bias (n−1)σ²/N², T = 4 (n−1) σ⁴/N⁴, v = J Σ J' − T + T/2."""
    M, x = cells(100, 1e4)
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    y = x + m.sample(1, seed=3)[0]
    found = m.function(y, concentration)
    n, s2 = 100, m.covariance[0, 0] / 0.99 * m.prepared().factor ** 2
    T = 4 * (n - 1) * s2**2 / 1e16
    v = 4 / 1e16 * s2 * ((y - y.mean()) ** 2).sum() - T / 2
    bias = (n - 1) * s2 / 1e8
    assert found.value == pytest.approx(concentration(y) - bias, abs=0.1 * np.sqrt(v))
    assert (found.high - found.low) / 2 == pytest.approx(Z * np.sqrt(v), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("equal", [False, True])
def test_concentration_covers_where_the_delta_method_does_not(equal):
    M, x = cells(100, 1e4)
    x = np.full(100, 100.0) if equal else x
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    runs, hits, plain = 120, 0, 0
    for e in m.sample(runs, seed=5):
        found = m.function(x + e, concentration)
        hits += holds(found, concentration(x))
        half = Z * np.sqrt(m.variance_of(2 * (x + e) / 1e8))
        plain += abs(concentration(x + e) - concentration(x)) <= half
    assert not fails_once_in_millions(hits, runs, 0.95)
    assert plain < (1 if equal else runs)
    assert bool(found.warnings) == equal


@pytest.mark.parametrize("size", [2e14, 5e14])
def test_large_numbers_cover_as_long_as_doubles_hold_their_noise(size):
    y = GAUSSIAN.release([[size, size, 2 * size]] * 200)
    found = GAUSSIAN.function(y, "a * a - b * b")
    hits = int(((found.low <= 0) & (found.high >= 0)).sum())
    assert not fails_once_in_millions(hits, 200, 0.95)


def test_numbers_with_too_few_digits_are_refused_where_derivatives_need_them():
    y = GAUSSIAN.release([[1e16, 1e16, 2e16]] * 20)
    with pytest.raises(adp.AffineDPError, match="'a' has too few digits"):
        GAUSSIAN.function(y, "a * a - b * b")
    certified = GAUSSIAN.function(y, "a * a - b * b", certified=True)
    assert ((certified.low <= 0) & (certified.high >= 0)).all()
    ratio = GAUSSIAN.function(y, "a / c")
    assert ((ratio.low <= 0.5) & (ratio.high >= 0.5)).sum() >= 12
    # a public number has no noise that its digits could hide
    total = adp.design_gaussian(
        adp.AffineManifold.from_equations(["a + b = 100", "c = 10000000000000000"],
                                          public_entries="allow"),
        epsilon=1.0, delta=1e-6,
    )  # fmt: skip
    assert total.function([30.0, 70.0, 1e16], "a * b * c").bounded


@pytest.mark.parametrize("text", ["a / c", "a * b"])
@pytest.mark.parametrize("certified", [False, True])
def test_levels_that_are_nothing_beside_1_give_the_value_itself(text, certified):
    found = GAUSSIAN.function([30.0, 70.0, 100.0], text, level=1e-17, certified=certified)
    assert found.high == pytest.approx(found.low, rel=1e-9)
    low, high = GAUSSIAN.interval([30.0, 70.0, 100.0], level=1e-17, simultaneous=True)
    assert (low <= high).all()


def test_undefined_values_are_said():
    found = GAUSSIAN.function([3.0, 97.0, 100.0], "log(a)")
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert not found.bounded
    assert any("not defined" in text for text in found.warnings)
    assert np.isnan(GAUSSIAN.function([-3.0, 103.0, 100.0], "log(a)").value)


@pytest.mark.parametrize("text", ["a / c", "a * b / c ** 2", "log(a) - log(b)", "a * (1 - a / c)"])
def test_certified_intervals_hold_all_of_the_region(text):
    y = np.array([60.0, 140.0, 200.0])
    found = GAUSSIAN.function(y, text, certified=True)
    assert found.simultaneous
    assert found.how.startswith("certified")
    plain = GAUSSIAN.function(y, text)
    assert found.low < plain.low
    assert plain.high < found.high
    names = sorted(set(text) & set("abc"))
    together = GAUSSIAN.interval(y, combination=np.eye(3)[["abc".index(n) for n in names]],
                                 simultaneous=True)  # fmt: skip
    drawn = np.random.default_rng(0).random((4000, len(names)))
    points = dict(zip(names, (together.low + (together.high - together.low) * drawn).T))
    values = eval(text, {"log": np.log}, points)
    assert found.low <= values.min()
    assert values.max() <= found.high
    assert found.high - found.low < 1.2 * (values.max() - values.min()) + 1e-9


def test_certified_needs_a_formula():
    with pytest.raises(adp.AffineDPError, match="formula"):
        GAUSSIAN.function([60.0, 140, 200], lambda y: np.median(y), certified=True)


@pytest.mark.parametrize(
    ("f", "said"),
    [("a / d", "'d' is no output"), (lambda p, q: p, "p, q"), (3, "function of the outputs"),
     (lambda: 1, "nothing"), (lambda a: a[0], "does not take")],
)  # fmt: skip
def test_what_is_no_function_of_the_outputs_is_refused(f, said):
    with pytest.raises(adp.AffineDPError, match=said):
        GAUSSIAN.function([60.0, 140, 200], f)


def test_trees_margins_and_trajectories():
    tree = adp.design_tree([-1, 0, 0, 0], epsilon=1.0, delta=1e-6, law="gaussian")
    found = tree.function(
        tree.release([1000, 200, 300, 500]), lambda y: y[1] / y[0], level=1 - 1e-7
    )
    assert found.bounded
    assert found.low < 0.2 < found.high
    margins = adp.design_margins([3, 2], [(0,), (1,), (0, 1)], epsilon=1.0, delta=1e-6)
    y = {(0,): [40, 50, 60.0], (1,): [90, 60.0], (0, 1): np.full((3, 2), 25.0)}
    share = margins.function(y, lambda y: y[(0, 1)][0, 0] / y[(0,)][0])
    assert "Fieller" in share.how
    assert share.low < 25 / 40 < share.high
    noise = design_output_noise(([[0.9]], [[1.0]]), 20, 1.0, 1e-4, adjacency="initial")
    drop = noise.function(20 * 0.9 ** np.arange(20)[:, None], lambda y: y[19, 0] / y[0, 0])
    assert drop.low == pytest.approx(0.9**19) == drop.high  # one draw for all times


TABLE = pd.DataFrame({"women": [300, 200], "men": [500, 100], "all": [800, 300]}, index=["x", "y"])


def test_tables_by_row_by_cell_and_with_public_numbers():
    whole = pd.concat([TABLE, TABLE.sum().to_frame("sum").T])
    described = {"totals": {"all": ["women", "men"]}, "epsilon": 1.0, "delta": 1e-6,
                 "law": "gaussian"}  # fmt: skip
    by_row = TableRelease(**described, whole=False).release(TABLE)
    share = by_row.function("women / all", level=1 - 1e-7)
    assert share.value.shape == (2,)
    assert (share.low < [0.375, 0.6667]).all()
    both = TableRelease(**described, row_totals={"sum": ["x", "y"]}, whole=False).release(whole)
    assert both.function(lambda women, all: women / all).value.shape == (3,)
    cell = both.function("`women[x]` / `women[sum]`", level=1 - 1e-7)
    assert cell.low < 0.6 < cell.high
    known = TableRelease(**described, public=["all"], whole=False).release(TABLE)
    exact = known.function("women / all")
    low, _ = known.interval()
    assert exact.low == pytest.approx(low["women"].to_numpy() / [800, 300], rel=1e-4)
    page = both.report(functions=["100 * women / all"]).html()
    assert "100 * women / all" in page


def test_several_values_are_printed_with_their_ends():
    M = adp.AffineManifold.from_equations([" + ".join(f"a{i}" for i in range(9)) + " = all"])
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    found = m.function(np.r_[np.arange(1.0, 10.0) * 100, 4500.0], lambda y: y[:9] / y[9])
    first, *values, more = str(found).splitlines()
    assert first.startswith("9 values with 95 % intervals: Fieller")
    assert values == [f"  {found[place]}" for place in range(6)]
    assert more == "  and 3 more"
    square = m.function(np.r_[np.arange(1.0, 5.0), np.zeros(6)], lambda y: y[:4].reshape(2, 2) ** 2)
    assert str(square).splitlines()[1:] == [f"  {square[i, j]}" for i in (0, 1) for j in (0, 1)]


@pytest.mark.parametrize("outside", [0.95, 0.5, 0.05, 0.001])
def test_the_reach_of_noise_with_a_concave_logarithm_is_a_norm(outside):
    """Convex along lines that miss 0, as docs/explanation/functions.md proves: Laplace sums.

    P(|Σ s_i η_i| > q) is Σ c_i exp(−q/s_i), c_i the product of s_i²/(s_i² − s_j²) over j ≠ i.
    """
    mp = mpmath.mp.clone()
    mp.dps = 60

    def reach(row):
        scales = [mp.mpf(abs(v)) for v in row]
        parts = [mp.fprod(s**2 / (s**2 - r**2) for r in scales if r != s) for s in scales]
        low, high = mp.mpf(0), 200 * max(scales)
        for _ in range(120):
            q = (low + high) / 2
            beyond = mp.fsum(c * mp.exp(-q / s) for c, s in zip(parts, scales))
            low, high = (q, high) if beyond > outside else (low, q)
        return high

    generator = np.random.default_rng(3)
    for _ in range(2):
        a, b = generator.normal(size=(2, 4)) * 10 ** generator.uniform(-2, 2, 4)
        found = [reach(a + t * b) for t in np.linspace(-3, 3, 9)]
        for one, two, three in zip(found, found[1:], found[2:]):
            assert one + three - 2 * two >= -1e-20 * two


EVERY_LAW = {
    "gaussian": GAUSSIAN,
    "laplace": adp.design_laplace(THREE, epsilon=1.0),
    "knorm": adp.design_knorm(THREE, epsilon=1.0),
    "whole": adp.design(THREE, epsilon=1.0, integers=True),
}


@pytest.mark.parametrize("law", EVERY_LAW)
def test_what_has_no_noise_is_known_and_what_has_little_is_bounded(law):
    m = EVERY_LAW[law]
    for text, value in (("a / a", 1.0), ("0 / a", 0.0), ("3", 3.0), ("(a + b) / (b + a)", 1.0)):
        found = m.function([300.0, 700.0, 1000.0], text)
        assert (found.low, found.high) == pytest.approx((value, value), abs=1e-12)
    for scale in (1.0, 1e150, 1e300):
        found = m.function(np.array([300.0, 700.0, 1000.0]) * scale, "a / c", level=0.9)
        assert found.low <= 0.3 <= found.high < found.low + 0.02


def test_a_function_whose_even_part_vanishes_still_has_noise():
    """a b / c is odd: simulated noise of both signs has no spread, and T no meaning."""
    found = GAUSSIAN.function([1e-300, 1e-300, 2e-300], "a * b / c")
    assert found.high - found.low > 1.0
    assert found.warnings


def test_functions_of_no_number_and_of_too_large_numbers():
    with pytest.raises(adp.AffineDPError, match="no number"):
        GAUSSIAN.function([1.0, 2.0, 3.0], lambda y: y[:0])
    assert tuple(GAUSSIAN.function([1.0, 2.0, 3.0], "2", certified=True)) == pytest.approx((2, 2))
    assert not GAUSSIAN.function([3e2, 7e2, 1e3], "exp(1000 * a)").bounded


@pytest.mark.parametrize("f", [lambda y: None, lambda y: "x", lambda y: 1j, lambda y: []])
def test_what_is_no_number_is_refused(f):
    M = adp.AffineManifold.from_equations(["a + b = c"])
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    with pytest.raises(AffineDPError):
        m.function([1.0, 2.0, 3.0], f)


def test_margins_by_labels_and_places():
    wards = pd.DataFrame({"city": ["A", "A", "B"], "ward": ["1", "2", "1"]})
    people = wards.iloc[[0] * 300 + [1] * 200 + [2] * 400].reset_index(drop=True)
    people = people.assign(sex=["f", "m"] * 450, age=[1, 1, 2] * 300)
    asked = {"attributes": {"sex": ["f", "m"], "age": [1, 2]}, "places": wards, "epsilon": 3.0}
    out = MarginRelease(**asked).release(people)
    for text, value in (
        ("`city=A, sex=f` / `sex=f`", 250 / 450),
        ("`city=A, ward=2, age=2` / `city=A, ward=2`", 67 / 200),
        ("`city=B` / everybody", 400 / 900),
    ):
        found = out.function(text, level=1 - 1e-9)
        assert found.low < value < found.high < found.low + 0.5, text
    for text, said in (
        ("`ward=1` / everybody", "2 places"),
        ("`sex=x`", "no label"),
        ("a", "no cell"),
    ):
        with pytest.raises(adp.AffineDPError, match=said):
            out.function(text)


@pytest.mark.parametrize("design", [adp.design_gaussian, adp.design_laplace, adp.design_knorm])
def test_a_linear_function_has_the_interval_of_its_combination(design):
    m = design(THREE, epsilon=1.0, **({"delta": 1e-6} if design is adp.design_gaussian else {}))
    y = np.array([30.0, 70.0, 100.0])
    found = m.function(y, "(a - 2*b) / 4 + 1")
    wanted = m.interval(y, combination=[0.25, -0.5, 0.0])
    assert found.low == pytest.approx(float(wanted.low) + 1, rel=1e-9)
    assert found.high == pytest.approx(float(wanted.high) + 1, rel=1e-9)
