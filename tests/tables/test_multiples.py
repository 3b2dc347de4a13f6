"""Multiples that obey the equations, next to the published point; the promise for whole numbers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.tables import TableRelease
from affinedp.tables.layout import layout_of
from affinedp.tables.refusals import TableError
from affinedp.tables.whole_numbers import multiples_of


def prepared(step=1, **structure):
    columns = structure.pop("columns_of_table", ["a", "b", "c", "t"])
    frame = pd.DataFrame([[0] * len(columns)], columns=columns)
    release = TableRelease(epsilon=1.0, delta=1e-6, **structure)
    layout = layout_of(release, frame)
    return layout, multiples_of(step, layout)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_near_and_on_the_equations(parts):
    layout, multiples = prepared(totals={"t": ["a", "b", "c"]})
    point = np.array([[*parts, math.fsum(parts)]])
    origin = multiples.origin(layout, np.zeros((1, 0)))
    whole = multiples.rounded(point, origin)[0]
    assert whole[3] == whole[0] + whole[1] + whole[2]
    assert np.all(np.abs(whole - point[0]) <= multiples.farthest + 1e-6)


@given(st.lists(st.floats(-2.5, 2.5), min_size=3, max_size=3))
@settings(max_examples=30)
def test_about_as_near_as_brute_force(parts):
    """The nearest plane is not always the nearest point, but within its known factor here."""
    layout, multiples = prepared(totals={"t": ["a", "b", "c"]})
    point = np.array([*parts, math.fsum(parts)])
    whole = multiples.rounded(point[None], multiples.origin(layout, np.zeros((1, 0))))[0]
    around = [range(math.floor(p) - 1, math.ceil(p) + 2) for p in parts]
    best = min(math.dist(point, (*cells, sum(cells))) for cells in itertools.product(*around))
    assert math.dist(point, whole) <= 1.6 * best + 0.2


@pytest.mark.parametrize("step", [0.1, 0.25, 5])
def test_other_steps_and_public_columns(step):
    release = TableRelease(
        totals={"t": ["a", "b", "c"]}, public=["t"], epsilon=1.0, delta=1e-6, round_to=step
    )
    frame = pd.DataFrame({"a": [1.0, 5.0], "b": [2.0, 5.0], "c": [2.0, 10.0], "t": [5.0, 20.0]})
    out = release.release(frame).table
    exact = [[Fraction(str(value)) for value in row] for row in out.round(6).to_numpy().tolist()]
    for a, b, c, t in exact:
        assert a + b + c == t
        assert all((value / Fraction(str(step))).denominator == 1 for value in (a, b, c))
    assert out["t"].equals(frame["t"].astype("int64"))


def test_public_numbers_that_no_multiples_can_reach():
    frame = pd.DataFrame({"a": [1.0], "b": [2.5], "t": [3.5]})
    release = TableRelease(
        totals={"t": ["a", "b"]}, public=["t"], epsilon=1.0, delta=1e-6, round_to=1
    )
    with pytest.raises(TableError, match="'t' is public but no multiple of round_to = 1"):
        release.release(frame)
    odd = pd.DataFrame({"a": [1.5], "b": [1.0], "t": [5.0]})
    release = TableRelease(
        equations=["t = 2 a + 2 b"], public=["t"], epsilon=1.0, delta=1e-6, round_to=1,
        adjacency="circuits",
    )  # fmt: skip
    with pytest.raises(TableError, match="no multiples of round_to = 1 obey"):
        release.release(odd)
    release = TableRelease(equations=["a + b = 0.5"], epsilon=1.0, delta=1e-6, round_to=1)
    with pytest.raises(TableError, match="no multiples of round_to = 1 obey"):
        release.release(pd.DataFrame({"a": [1.0], "b": [-0.5]}))


def test_numbers_too_large_for_the_step():
    frame = pd.DataFrame({"a": [10**15], "b": [1], "t": [10**15 + 1]})
    release = TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0, delta=1e-6, round_to=1)
    assert release.release(frame).table["t"].dtype == np.int64
    # more steps than a double counts: found in whole numbers, so nothing private decides about it
    finer = TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0, delta=1e-6, round_to=0.001)
    out = finer.release(frame)
    assert abs(out.table["t"][0] - out.table["a"][0] - out.table["b"][0]) <= 0.5
    assert (out.table - out.unrounded).abs().to_numpy().max() <= 0.5
    largest = pd.DataFrame({"a": [2**53 - 1], "b": [1], "t": [2**53]})
    whole = release.release(largest).table
    assert int(whole["t"][0]) == int(whole["a"][0]) + int(whole["b"][0])


@given(st.lists(st.floats(-1e25, 1e25), min_size=3, max_size=3))
def test_large_points_are_exact(parts):
    """As near as the exact sum of the doubles, on the equations in whole numbers of any size."""
    layout, multiples = prepared(step=0.25, totals={"t": ["a", "b", "c"]})
    exact = [Fraction(part) for part in parts]
    point = np.array([[*parts, float(sum(exact))]])
    whole = multiples.rounded(point, multiples.origin(layout, np.zeros((1, 0))))[0].tolist()
    assert whole[3] == whole[0] + whole[1] + whole[2]
    off = abs(sum(exact) - Fraction(point[0, 3]))  # what the last double is off by itself
    for value, steps in zip([*exact, sum(exact)], whole):
        assert abs(value - Fraction(steps, 4)) <= off + Fraction(multiples.farthest.max()) + 1


def test_noise_beyond_whole_numbers_is_refused_before_any_data_is_read():
    frame = pd.DataFrame({"a": [1], "b": [1], "t": [2]})
    release = TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0, mu=1e16, round_to=1)
    with pytest.raises(TableError, match="too large for whole numbers"):
        release.design(frame)


@pytest.mark.parametrize("kind", ["int64", "int32", "Int64", "float64", "Float64", "int8", "uint8"])
def test_types_follow_from_the_description(kind):
    frame = pd.DataFrame({"a": [3] * 200, "b": [4] * 200, "t": [7] * 200}).astype(kind)
    release = TableRelease(totals={"t": ["a", "b"]}, epsilon=0.1, delta=1e-6, round_to=1)
    out = release.release(frame).table
    assert (out["t"] == out["a"] + out["b"]).all()
    assert [str(out[name].dtype) for name in out] == ["int64"] * 3
    plain = TableRelease(totals={"t": ["a", "b"]}, epsilon=0.1, delta=1e-6).release(frame).table
    assert [str(plain[name].dtype) for name in plain] == ["float64"] * 3


@pytest.mark.slow
def test_whole_laplace_noise_keeps_its_promise():
    """Outcomes (a, t) of two neighbours: none is more than e^ε times likelier in one of them.

    The most telling outcomes come near e^ε, so the test would notice half the noise.
    """
    epsilon, runs = 1.0, 40_000
    release = TableRelease(
        totals={"t": ["a", "b"]}, epsilon=epsilon, round_to=1, adjacency="circuits"
    )
    rows = pd.DataFrame({"a": [0] * runs, "b": [0] * runs, "t": [0] * runs})
    design = release.design(rows.iloc[:1])
    first = design.release(rows).table.groupby(["a", "t"]).size()
    ratios = []
    for moved in ({"a": 1, "t": 1}, {"a": 1, "b": -1}):
        second = design.release(rows.assign(**moved)).table.groupby(["a", "t"]).size()
        for outcome, p in first[first > 300].items():
            q = second.get(outcome, 0)
            assert p <= math.exp(epsilon) * q + 5 * math.sqrt(p + math.exp(2 * epsilon) * q)
            ratios.append(p / max(q, 1))
    assert max(ratios) > math.exp(0.7 * epsilon)


def test_rounding_is_a_function_of_what_is_published():
    """Two different private tables, the same published point: the same whole numbers."""
    layout, multiples = prepared(totals={"t": ["a", "b", "c"]})
    point = np.array([[1.3, 2.4, -0.9, 2.8]])
    results = {
        tuple(multiples.rounded(point, multiples.origin(layout, np.zeros((1, 0))))[0].tolist())
        for _ in range(3)
    }
    assert len(results) == 1
