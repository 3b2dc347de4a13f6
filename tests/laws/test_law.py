"""Laws as objects: what follows from a norm, a curve and a variance, and what is refused."""

import importlib
import math
import pkgutil
from dataclasses import dataclass
from fractions import Fraction as F

import numpy as np
import pytest
from scipy import sparse, stats

import affinedp as adp
import affinedp.laws
from affinedp.errors import AffineDPError
from affinedp.laws.base import LAWS, Law, law_named
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import Geometric, Laplace
from affinedp.laws.sampler.words import system_bytes
from affinedp.laws.staircase import Staircase
from affinedp.parts import restored

HEXAGON = np.array([[1.0, 0, 1], [0, 1, -1]])
EXAMPLES = [
    Gaussian(),
    Laplace(),
    Geometric(0.5),
    KNorm(HEXAGON, 2.0),
    KNorm(np.ones((4, 1)), 0.5, True),
    KNorm(np.diag([1.0, 3.0]), 0.5),
    Staircase([1.0, 2.0], [0.4, 2.0], 1.5),
]


def named(law):
    return f"{law.kind}-{law.size}"


@pytest.mark.parametrize("law", EXAMPLES, ids=named)
def test_a_law_is_its_fields(law):
    again = restored(law.record(), Law)
    assert type(again) is type(law)
    assert again.key == law.key
    assert law_named(law.kind) is type(law)


@pytest.mark.parametrize("law", EXAMPLES, ids=named)
def test_bounds_of_gauges_hold_the_exact_one(law):
    rng = np.random.default_rng(1)
    columns = rng.integers(-20, 21, (law.size or 3, 40)) / 8
    if law.span() is not None:
        columns = law.span() @ columns[law.free]
    found = law.gauges(columns)
    assert np.all(found.lower <= found.upper)
    assert np.all(law.gauges(columns, np.full_like(columns, 0.1)).upper >= found.upper)
    if law.norm == 2:
        np.testing.assert_allclose(found.upper, np.linalg.norm(columns, axis=0))
        return
    for column, lower, upper in zip(columns.T, found.lower, found.upper):
        exact = law.gauge([F(c) for c in column.tolist()])
        assert F(lower) <= exact <= F(upper)
        assert upper <= float(exact) * (1 + 1e-9) + 2 * law.rate * (law.kind == "staircase")


@pytest.mark.parametrize("law", EXAMPLES, ids=named)
def test_a_box_holds_its_corners(law):
    p = law.size or 3
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * p)).reshape(p, -1)
    if law.span() is None:
        assert np.all(law.gauges(corners).lower <= law.box(p))


@pytest.mark.parametrize("law", EXAMPLES, ids=named)
def test_limits_are_kept_and_nearly_reached(law):
    delta = 0.01 if law.kind == "gaussian" else 0.0
    limit = law.limit(1.0, delta)
    assert law.curve(limit).epsilon(delta) <= 1.0 + 1e-12  # both are rounded to their safe side
    assert law.curve(limit * (1 + 1e-9)).epsilon(delta) > 1.0


def test_limits_by_bisection_agree_with_closed_forms():
    assert Law.limit(Gaussian(), 1.0, 0.01) == pytest.approx(Gaussian().limit(1.0, 0.01), rel=1e-9)
    assert Law.limit(Laplace(), 0.7) == 0.7
    assert Laplace().limit(1.0, 0.01) > 1.0
    with pytest.raises(AffineDPError, match="keeps no promise"):
        Law.limit(Gaussian(), 1.0, 0.0)


@pytest.mark.parametrize("law", EXAMPLES, ids=named)
def test_samples_have_the_variances_and_stay_within_reach(law):
    p = law.size or 3
    rows = np.random.default_rng(2).integers(-3, 4, (4, p)).astype(float)
    drawn = law.sample(np.random.default_rng(3), 20_000, p) @ rows.T
    np.testing.assert_allclose(drawn.var(axis=0), law.variances(rows), rtol=0.15, atol=1e-9)
    np.testing.assert_allclose(np.diag(law.covariance(rows)), law.variances(rows), atol=1e-9)
    free = rows if law.span() is None else rows @ law.span()
    for reach, outside in (
        (law.reach(free, 0.1)[0], 0.1),
        (law.reach_together(free, 0.1)[0], 0.025),
    ):
        missed = (np.abs(drawn) > reach * (1 + 1e-9)).mean(axis=0)
        assert np.all(missed <= 0.1 + 0.015)
        assert outside <= 0.1


@pytest.mark.parametrize("law", EXAMPLES[:2], ids=named)
def test_reaches_by_variance_are_never_too_short(law):
    rows = np.random.default_rng(4).normal(size=(6, 5))
    for outside in (0.3, 0.05, 1e-6):
        exact = law.reach(rows, outside)[0]
        bound = law.reach_by_variance(law.variances(rows), outside)
        assert np.all(bound >= exact * (1 - 1e-9))
    assert law.each(0.05, 1) == pytest.approx(0.05)
    assert law.each(0.05, 10) <= 0.0052


def test_unknown_laws_are_refused():
    for name in ("cauchy", None, "circuits", 3):
        with pytest.raises(AffineDPError, match="law must be one of 'gaussian'"):
            law_named(name)


def test_all_laws_of_the_library_have_a_name_for_users():
    """Read from the classes; no matrix describes geometric noise of several rates."""
    for module in pkgutil.iter_modules(affinedp.laws.__path__, "affinedp.laws."):
        importlib.import_module(module.name)
    found, kinds = [Law], set()
    while found:
        one = found.pop()
        found += one.__subclasses__()
        if one.__module__.startswith("affinedp.laws.") and "kind" in vars(one):
            kinds.add(one.kind)
    assert set(LAWS) == kinds - {"geometrics"}
    for name in ("productnorm", "geometrics"):
        with pytest.raises(AffineDPError, match="not given by a matrix"):
            adp.verify(adp.AffineManifold([[1, -4]]), 1.0, law=name)


def test_a_norm_and_a_gauge_of_its_own_are_refused():
    """A fast way would take the norm, and promise too much."""
    for name in ("gauges", "gauge", "box"):
        with pytest.raises(AffineDPError, match="states the norm 1 and a gauge of its own"):
            type("Wide", (Laplace,), {name: lambda self, *given: None})
    with pytest.raises(AffineDPError, match="states the norm 2"):
        type("Round", (KNorm,), {"norm": 2})


@pytest.mark.parametrize("norm", [3, 0, -1, 1.5, 1.0, True, math.inf, math.nan, "x", np.ones(2)])
def test_norms_that_no_noise_has_are_refused(norm):
    with pytest.raises(AffineDPError, match="Long states the norm .*: it is 1 or 2"):
        type("Long", (Law,), {"norm": norm})


@pytest.mark.parametrize("variance", [-1.0, math.nan])
def test_variances_that_no_noise_has_are_refused(variance):
    strange = type("Strange", (Laplace,), {"kind": "test.strange", "variance": variance})
    with pytest.raises(AffineDPError, match="the variance of Laplace noise must be at least 0"):
        strange()


def test_a_law_needs_what_nobody_can_guess():
    @dataclass(frozen=True, eq=False)
    class Empty(Law):
        words, theorem = "empty", "nothing"

    for ask in (
        lambda law: law.curve(1.0),
        lambda law: law.sample(np.random.default_rng(0), 1, 1),
        lambda law: law.depths(np.ones((1, 1))),
    ):
        with pytest.raises(NotImplementedError, match="Empty must say"):
            ask(Empty())
    for ask in (
        lambda law: law.gauges(np.ones((1, 1))),
        lambda law: law.gauge([F(1)]),
        lambda law: law.sampler(),
    ):
        with pytest.raises(AffineDPError):
            ask(Empty())


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan, True, "1"])
def test_rates_that_are_none_are_refused(rate):
    for make in (lambda: KNorm(HEXAGON, rate), lambda: Staircase([1.0], [0.5], rate)):
        with pytest.raises(AffineDPError, match="rate"):
            make()


def test_points_of_others_are_not_changed_through_the_law():
    points = HEXAGON.copy()
    law = KNorm(points)
    before = law.gauge([F(1), F(1)])
    points[:] = 1000.0
    assert law.gauge([F(1), F(1)]) == before
    with pytest.raises(ValueError, match="read-only"):
        law.points[0, 0] = 2.0


def test_geometric_noise_is_drawn_exactly():
    drawn = Geometric(0.5).sampler().draw((20_000,), system_bytes).astype(int)
    z = np.arange(-8, 9)
    law = np.exp(-0.5 * np.abs(z)) * math.tanh(0.25)
    counts = [(drawn == k).sum() for k in z]
    counts.append(len(drawn) - sum(counts))
    assert stats.chisquare(counts, np.append(law, 1 - law.sum()) * len(drawn)).pvalue > 1e-6
    assert Geometric(0.5).reach(np.eye(1), 0.05)[0][0] == pytest.approx(6.0)


def test_verify_takes_a_law():
    manifold = adp.AffineManifold([[1, -4]])
    assert adp.verify(manifold, 1.0, law=Laplace()).epsilon() == pytest.approx(5.0)
    with pytest.raises(AffineDPError, match="whole numbers"):
        adp.verify(manifold, 1.0, law=Geometric(1.0))


def test_noise_of_several_rates_is_not_stacked():
    assert Geometric(1.0).beside([Geometric(1.0)]).key == Geometric(1.0).key
    with pytest.raises(AffineDPError, match="side by side"):
        Geometric(1.0).beside([Geometric(0.5)])


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_no_variance_is_below_zero(form):
    """Of what nearly follows from a public sum, whose terms cancel."""
    sums = KNorm(np.array([[1.0]] * 3), 1.0, False)
    rows = np.array([[1e9 + k, 1e9, 1e9] for k in (0, 1e-7, 1)] + [[0.0, 0.0, 2.0]])
    found = sums.variances(form(rows)) / sums.variances(form(np.array([[1.0, 0.0, 0.0]])))
    assert np.all(found >= 0)
    assert found == pytest.approx([0, 1e-14, 1, 4], rel=1e-6, abs=1e-12)
