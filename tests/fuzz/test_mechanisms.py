"""Both questions through every door of a mechanism, on random problems at random scales."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from affinedp.arrays import dense
from fuzz import doors
from fuzz.cases import RUNS, by_statistics, exactly
from fuzz.effort import alarm, examples
from fuzz.questions import ask_coverage
from fuzz.strategies import forms, pairs, problems


@pytest.mark.slow
@examples(30)
@given(st.data(), problems(), st.sampled_from(doors.DOORS), forms, forms)
def test_neighbours_through_every_door(data, problem, door, form, form_too):
    """Exact neighbours of any type: no bias, the stated response, near enough, the same bits."""
    pair = data.draw(pairs(problem))
    event(exactly(problem, pair, door, (form, form_too)) if pair else "no pair")


@pytest.mark.slow
@examples(25)
@given(st.data(), problems(), st.sampled_from([1.0, 1.5, 1e3, 1e9, 1e15, 1e100, 1e300]))
def test_recorded_neighbours_within_a_bound(data, problem, room):
    """With ``bound=`` neighbours may be off by the rounding of double precision."""
    pair = data.draw(pairs(problem, rounded=True))
    if pair is None:
        return
    largest = max(abs(float(v)) for v in (*pair.x, *pair.y))
    bound = min(max(largest, 1e-300) * (1 + 1e-12) * room, 1e300)
    event(exactly(problem, pair, doors.release, ("float64", "float64"), bound))


@pytest.mark.slow
@examples(4)
@given(st.data(), problems(designs=("iid", "given")))
def test_neighbours_on_the_command_line(data, problem):
    pair = data.draw(pairs(problem))
    event(exactly(problem, pair, doors.command_line, ("float64", "float64")) if pair else "no pair")


@pytest.mark.slow
@examples(8)
@given(
    st.data(),
    problems(largest=5),
    st.integers(0, 2**32),
    st.sampled_from([None, None, 1e3, 1e9, 1e15, 1e100]),
)
def test_statistics_of_releases(data, problem, seed, room):
    """Mean, spread and extremes are as stated; neighbours are not told apart."""
    offsets = (0, 1, 1e3, 1e6, 1e9)
    pair = data.draw(pairs(problem, offsets=offsets, rounded=room is not None))
    if pair is None:
        return
    bound = None
    if room is not None:
        bound = max(abs(float(v)) for v in (*pair.x, *pair.y)) * room or 1.0
    event(by_statistics(problem, pair, seed, bound, alarm(8)))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_system_s_randomness(law):
    """One problem with words from the operating system, not from a seed."""
    import affinedp as adp

    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    design = {"gaussian": adp.design_gaussian, "laplace": adp.design_laplace}[law]
    delta = {"delta": 1e-6} if law == "gaussian" else {}
    mechanism = design(manifold, epsilon=1.0, **delta)
    published = mechanism.release(np.tile([1.0, 2.0, 3.0], (RUNS, 1)))
    truth = [Fraction(v) for v in (1, 2, 3)]
    noise = dense(mechanism.noise_matrix)
    ask_coverage(published, truth, noise, law, 1 + 2.0**-29, alarm(1))
