"""The fuzzer on mechanisms that are known to be bad: each of them must be found.

Each mutant is a mistake that somebody made, or nearly made.
"""

from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from affinedp.arrays import dense
from affinedp.domains.manifold import AffineManifold
from affinedp.laws.sampler import draw_integers
from affinedp.laws.sampler.words import system_bytes
from affinedp.release import publish as publish_module
from affinedp.strategies.matrices import DensePlan
from affinedp.strategies.rounded_plan import RoundedPlan
from fuzz.cases import by_statistics, exactly
from fuzz.doors import frame, release
from fuzz.exact import Equations, Move, is_double
from fuzz.noise import drawing
from fuzz.questions import Broken
from fuzz.strategies import Pair, Problem

pytestmark = pytest.mark.slow
ALARM = 1e-9
ONE, ZERO = Fraction(1), Fraction(0)


def problem(law="gaussian", design="iid", neighbours="circuits", mu=1.0, epsilon=1.0):
    """a + b = c."""
    known = Equations(((ONE, ONE, -ONE),), (ZERO,), ("a", "b", "c"))
    reach = Fraction(mu)
    moves = (Move((ONE, ZERO, ONE), reach),)
    if neighbours == "circuits":
        moves += (Move((ZERO, ONE, ONE), reach), Move((ONE, -ONE, ZERO), reach))
    return Problem(
        known, True, neighbours, (mu,) * 3, moves, (), None, design, law, epsilon, 1e-6, 0
    )


def points(a, b, t=1):
    """(a, b, a + b) and its neighbour with a larger by t."""
    a, b, t = Fraction(a), Fraction(b), Fraction(t)
    return Pair((a, b, a + b), (a + t, b, a + b + t), exact=True)


def exact_question(**others):
    case = problem(**{key: value for key, value in others.items() if key != "offset"})
    offset = others.get("offset", 40)
    return exactly(case, points(offset, 2), release, ("float64", "float64"))


def test_the_questions_pass_what_is_sound():
    for law in ("gaussian", "laplace"):
        assert exact_question(law=law) == "released"
        assert exact_question(law=law, offset=2**40) == "released"
        assert exact_question(design="least", neighbours="directions") == "released"
        assert by_statistics(problem(law), points(40, 2), 1, None, ALARM) == "released"
        assert by_statistics(problem(law), points(40, 2), 1, 1e18, ALARM) == "released"


def caught(question, match):
    with pytest.raises(Broken, match=match):
        question()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_that_saturates(law):
    """Integers of 64 bits are enough, until a bound makes the noise larger."""

    def clamped(name, scale, shape):
        return np.clip(draw_integers(name, scale, shape), -(2**63), 2**63 - 1)

    with drawing(clamped):
        assert by_statistics(problem(law), points(40, 2), 1, None, ALARM) == "released"
        caught(
            lambda: by_statistics(problem(law), points(40, 2), 1, 1e18, ALARM),
            "positive|mean|sum|repeated",
        )


def test_the_type_of_the_data_is_kept():
    """A whole table and its neighbour with a half in it."""
    real = AffineManifold.read

    def keeping(self, x):
        points, wrap = real(self, x)

        def wrapped(y, names):
            return wrap(y, names).astype(dict.fromkeys(names, x.dtypes.iloc[0]))

        return points, wrapped

    pair = points(40, 2, Fraction(1, 2))
    with mock.patch.object(AffineManifold, "read", keeping):
        caught(lambda: exactly(problem(), pair, _first_typed, ("int64", "float64")), "look differ")
    assert exactly(problem(), pair, _first_typed, ("int64", "float64")) == "released"


def _first_typed(mechanism, values, form, bound):
    """All columns of one type, the one that holds them all."""
    import pandas

    whole = all(float(v).is_integer() for v in values)
    data = pandas.DataFrame([values], columns=mechanism.manifold.names)
    return mechanism.release(data.astype("int64" if whole else "float64"))


def test_attributes_of_a_frame_are_kept():
    real = AffineManifold.read

    def keeping(self, x):
        points, wrap = real(self, x)

        def wrapped(y, names):
            result = wrap(y, names)
            result.attrs.update(x.attrs)
            return result

        return points, wrapped

    with mock.patch.object(AffineManifold, "read", keeping):
        caught(
            lambda: exactly(problem(), points(40, 2), frame, ("float64", "float64")), "look differ"
        )


def floating_point(mechanism, plan, x, **others):
    """F x + Λ η in doubles."""
    points, wrap = mechanism.domain.read(x)
    drawn = draw_integers(plan.law.kind, plan.unit, (plan.spread.shape[1], len(points)))
    noise = np.ldexp(drawn.astype(float), -56)
    outputs = points @ dense(mechanism.dense.query).T + (plan.spread @ noise).T
    return wrap(outputs, mechanism.output_names)


def test_sums_in_floating_point():
    """Low bits of what the equations leave; a table of 4017.3 + 2215.4 as in the explanation."""
    case = problem(design="least", epsilon=0.1)
    a, b, t = (Fraction(v) for v in (4017.3, 2215.4, 0.9))
    a_too = Fraction(float(a + t))
    pair = Pair((a, b, Fraction(float(a + b))), (a_too, b, Fraction(float(a_too + b))), exact=False)
    with mock.patch("affinedp.mechanism.publish", floating_point):
        caught(lambda: by_statistics(case, pair, 1, None, ALARM), "low bits")
    assert by_statistics(case, pair, 1, None, ALARM) == "released"


def test_sums_in_floating_point_without_chance():
    """What is added is not an integer."""

    def floats(mechanism, plan, x, **others):
        points, wrap = mechanism.domain.read(x)
        coordinates = plan.steps(points).astype(float)
        drawn = publish_module.drawn(plan, plan.noise, len(points), system_bytes)
        noisy = coordinates + drawn
        return wrap(plan.reconstruct(noisy, plan.shared(points)), mechanism.output_names)

    with (
        mock.patch("affinedp.mechanism.publish", floats),
        pytest.raises(AssertionError, match="integers"),
    ):
        exact_question()


def test_the_shared_part_is_dropped():
    """Neighbours move a alone: b is published as it is, and must not be forgotten."""

    def dropped(self, points):
        return self.offset

    with mock.patch.object(DensePlan, "shared", dropped):
        caught(lambda: exact_question(design="least", neighbours="directions"), "off the truth")


def test_the_shared_part_is_computed_in_doubles():
    """Data that neighbours share, with rounding that they do not share."""
    known = Equations((), (), ("a", "b"))
    case = Problem(
        known, False, "directions", (1.0, 1.0), (Move((ONE, 3 * ONE), ONE),), (), None, "least",
        "gaussian", 1.0, 1e-6, 0,
    )  # fmt: skip

    def in_doubles(self, points):
        part = points[:, self.strategy.domain.canonical.free]
        shared = part - part[:, self.common.hidden] @ self.common.spread(part.shape[1]).T
        return self.offset + shared @ self.kernel.T

    rng, found = np.random.default_rng(0), 0
    for a, b in rng.random((10, 2)) * 2.0**20:  # so large that the noise does not round it away
        a, b, t = Fraction(a), Fraction(b), Fraction(int(rng.integers(1, 2**30)), 2**33)
        pair = Pair((a, b), (a + t, b + 3 * t), exact=True)
        if not all(is_double(v) for v in pair.y):
            continue
        assert exactly(case, pair, release, ("float64", "float64")) == "released"
        with mock.patch.object(DensePlan, "shared", in_doubles):
            try:
                exactly(case, pair, release, ("float64", "float64"))
            except Broken as broken:
                found += "different numbers" in str(broken)
    assert found


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_that_is_five_per_cent_too_small(law):
    def smaller(name, scale, shape):
        return draw_integers(name, Fraction(95 * scale, 100), shape)

    with drawing(smaller):
        pair = points(40, 2)
        caught(lambda: by_statistics(problem(law), pair, 1, None, ALARM, runs=20_000), "sum of")

    with mock.patch.object(RoundedPlan, "unit", property(lambda self: 95 * 2**56 // 100)):
        caught(lambda: exact_question(law=law), "less than stated")


def test_laplace_noise_that_was_cut_off():
    """δ = 0 is claimed, but beyond 6 scales there is nothing."""

    def truncated(name, scale, shape):
        drawn = draw_integers(name, scale, shape)
        while (far := np.abs(drawn) > 6 * scale).any():
            drawn[far] = draw_integers(name, scale, int(far.sum()))
        return drawn

    with drawing(truncated):
        caught(lambda: by_statistics(problem("laplace"), points(40, 2), 1, None, ALARM), "as large")


def test_a_bias_of_three_at_a_million_million():
    real = RoundedPlan.reconstruct

    def biased(self, noisy, shared):
        large = np.abs(noisy).max() > 10**11 << 56
        return real(self, noisy, shared) + (3.0 if large else 0.0)

    with mock.patch.object(RoundedPlan, "reconstruct", biased):
        assert exact_question(offset=40) == "released"
        caught(lambda: exact_question(offset=10**12), "off the truth")


def test_noise_that_is_used_twice():
    def same(name, scale, shape):
        return np.tile(draw_integers(name, scale, (1, shape[1])), (shape[0], 1))

    for law in ("gaussian", "laplace"):
        with drawing(same):
            caught(
                lambda law=law: by_statistics(problem(law), points(40, 2), 1, None, ALARM),
                "correl|sum",
            )


def test_noise_on_a_coarse_grid():
    def coarse(name, scale, shape):
        return draw_integers(name, scale, shape) >> 50 << 50

    with drawing(coarse):
        caught(lambda: by_statistics(problem(), points(40, 2), 1, None, ALARM), "repeated")


def test_neighbours_that_are_farther_apart():
    """The promise of one direction, claimed for twice the distance."""
    pair = points(40, 2, 2)
    caught(lambda: exactly(problem(), pair, release, ("float64", "float64")), "as far apart")


def test_a_refusal_that_depends_on_the_data():
    real = publish_module.held

    def fussy(x):
        from affinedp.errors import AffineDPError

        if float(np.asarray(x)[0]) > 40:
            raise AffineDPError("too large")
        return real(x)

    with mock.patch.object(publish_module, "held", fussy):
        caught(lambda: exact_question(), "refused")


def test_a_scale_that_depends_on_the_data():
    def swayed(mechanism, plan, x, **others):
        points, wrap = mechanism.domain.read(x)
        steps = plan.steps(points)
        other = replace(plan, factor=plan.factor + float(points[0, 0]) / 1000)
        noisy = steps + publish_module.drawn(other, other.noise, len(points), system_bytes)
        return wrap(plan.reconstruct(noisy, plan.shared(points)), mechanism.output_names)

    with mock.patch("affinedp.mechanism.publish", swayed):
        caught(lambda: exact_question(), "depends on the data")
