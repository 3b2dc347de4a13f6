"""Both questions about the first message of an agent, which is all that an agent releases."""

import tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from affinedp.consensus.agent import Agent
from affinedp.consensus.one_draw import AgentNoise
from fuzz.effort import alarm, examples, only_long
from fuzz.exact import is_double
from fuzz.noise import seeded
from fuzz.questions import ask_coverage, ask_distinguishing, ask_exactly, attempted

TYPES = {
    "float": float,
    "int": lambda v: int(v) if float(v).is_integer() else float(v),
    "float64": np.float64,
    "float32": lambda v: np.float32(v) if float(np.float32(v)) == v else float(v),
    "Fraction": Fraction,
    "Decimal": Decimal,
}


def first_message(noise, value, kind="float"):
    """The number that a new agent publishes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        given = TYPES[kind](value)
        with Agent("1", {"2": 0.5}, state=path, value=given, noise=noise) as agent:
            return [agent.y]


@st.composite
def noises(draw):
    mu = draw(st.sampled_from([1.0, 3.0, 0.1])) * 2.0 ** draw(st.sampled_from([-40, -3, 0, 3, 40]))
    law = draw(st.sampled_from(["gaussian", "laplace"]))
    if draw(st.booleans()):
        return AgentNoise(law=law, sigma=mu * draw(st.sampled_from([0.1, 1.0, 100.0])), mu=mu)
    epsilon = draw(st.sampled_from([0.01, 1.0, 20.0]))
    delta = draw(st.sampled_from([1e-12, 1e-6, 0.1])) if law == "gaussian" else None
    return AgentNoise(law=law, epsilon=epsilon, delta=delta, mu=mu)


@st.composite
def values(draw, mu, offsets=(0, 1, 1e6, 1e12, 1e15)):
    """Two values that are at most μ apart, exactly."""
    size = draw(st.sampled_from(offsets)) * mu
    first = Fraction(float(draw(st.floats(-1, 1)) * size))
    for second in (first + Fraction(mu), first - Fraction(mu)):
        if is_double(second):
            return first, second
    nearer = Fraction(float(first + Fraction(mu)))
    if abs(nearer - first) > Fraction(mu):
        nearer = Fraction(np.nextafter(float(nearer), float(first)))
    return first, nearer


@pytest.mark.slow
@examples(10)
@given(st.data(), noises(), st.sampled_from(sorted(TYPES)), st.sampled_from(sorted(TYPES)))
def test_neighbouring_values(data, noise, kind, kind_too):
    pair = data.draw(values(noise.mu))
    mechanism, kinds = noise.mechanism(), (kind, kind_too)
    matrix = np.asarray(mechanism.noise_matrix.sum()).reshape(1, 1)
    refusal = ask_exactly(
        lambda which: first_message(noise, float(pair[which]), kinds[which]),
        [[value] for value in pair],
        mechanism.guarantee,
        matrix,
        [abs(pair[0]) + abs(pair[1])],
    )
    event("refused" if refusal else "released")


@only_long
@examples(2)
@given(st.data(), noises(), st.integers(0, 2**32))
def test_statistics_of_first_messages(data, noise, seed):
    pair = data.draw(values(noise.mu, offsets=(0, 1, 1e6)))
    runs = 150
    published = []
    with seeded(seed):
        for value in pair:
            rows, refusal = attempted(
                lambda v=value: [first_message(noise, float(v)) for _ in range(runs)]
            )
            if refusal:
                return
            published.append(np.array(rows))
    mechanism = noise.mechanism()
    matrix = np.asarray(mechanism.noise_matrix.sum()).reshape(1, 1)
    truth = [[value] for value in pair]
    for part, exact in zip(published, truth):
        ask_coverage(part, exact, matrix, mechanism.law, 1 + 2.0**-29, alarm(2) / 4)
    ask_distinguishing(published, truth, matrix, mechanism.guarantee, alarm(2) / 2, seed)
