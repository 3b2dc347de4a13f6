"""Numbers from the ends of double precision: an answer or a refusal in words, never an error."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError

EXPONENTS = [-320, -308, -300, -200, -150, -100, -18, 0, 0, 0, 18, 100, 150, 200, 300, 307]
NUMBERS = st.builds(
    lambda digit, exponent: float(digit * 10.0**exponent),
    st.sampled_from([0, 0, 1, -1, 2, 0.1, 1 / 3]),
    st.sampled_from(EXPONENTS),
)


@st.composite
def problems(draw):
    n, q = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    D = [[draw(NUMBERS) for _ in range(n)] for _ in range(q)]
    mu = [abs(draw(NUMBERS)) for _ in range(n)]
    noise = [[draw(NUMBERS) for _ in range(n)] for _ in range(n)]
    return (
        np.array(D),
        np.array(mu),
        np.array(noise),
        draw(st.sampled_from(["laplace", "gaussian"])),
    )


def answers(D, mu, noise, law):
    M = adp.AffineManifold(D, public_entries="allow")
    adjacency = adp.CircuitAdjacency(M, mu)
    norm = 1 if law == "laplace" else 2
    free = M.canonical.free.tolist()
    return [
        lambda: M.project(mu).sum(),
        lambda: float(M.contains(M.point)),
        lambda: np.abs(adjacency.directions(100)).sum(),
        lambda: adjacency.sensitivity(noise, norm).upper,
        lambda: adp.FreeSetAdjacency(M, [free], mu).sensitivity(noise, norm).upper,
        lambda: adp.DirectionAdjacency(M, M.kernel).sensitivity(noise, norm).upper,
        lambda: adp.verify(M, noise, law=law, mu=mu).epsilon(1e-6),
        lambda: adp.verify(M, float(mu.max()), law=law, mu=mu).epsilon(1e-6),
        lambda: adp.iid_noise(M, law=law, epsilon=1, delta=1e-6, mu=mu).expected_squared_error,
        lambda: adp.design_gaussian(M, epsilon=1, delta=1e-6, mu=mu).expected_squared_error,
        lambda: adp.design_laplace(M, epsilon=1, mu=mu).expected_squared_error,
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=150)
@given(problems())
def test_extremes_are_answered_or_refused(problem):
    try:
        questions = answers(*problem)
    except AffineDPError:
        return
    for ask in questions:
        try:
            answer = ask()
        except AffineDPError:
            continue
        assert not math.isnan(float(answer))
