"""Every door reads numbers in the same way: what it would change, it refuses."""

import inspect
import pickle
import tempfile
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import affinedp as adp
from affinedp import control, functions
from affinedp.control.sensors import sensor_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.strategies.matrices import SharedPart
from affinedp.tables import MarginRelease, TableRelease, count_people, prefix, ranges

PAIR = adp.AffineManifold(np.zeros((0, 2)), names=["a", "b"])
NOISE = adp.iid_noise(PAIR, law="laplace", epsilon=1.0)

CONSTANT, LOOP = ([[1]], [[1]]), ([[1]], [[1]], [[1]])
PEAK = adp.design(PAIR, query=functions.peak(), epsilon=1, law="laplace")
TANGENT = adp.design_tangent(PAIR, "a * b", epsilon=1)
MARGINS = adp.design_margins((2, 2), "<=1", epsilon=1)
PLACES = adp.design_tree_margins([-1, 0, 0], (2, 2), "<=1", epsilon=1)
CHAIN = adp.design_laplace(adp.AffineManifold([[1, -1]], names=["a", "b"]), epsilon=1.0)


def in_steps(value):
    """Publish the first step."""
    with (
        tempfile.TemporaryDirectory() as folder,
        CHAIN.in_steps(state=Path(folder) / "run.db") as run,
    ):
        with pytest.raises(AffineDPError):
            run.send(value)  # a list is wanted
        run.send([value])
        return run.next_step


def margins_of(value):
    """What is kept of a number in sums of one's own."""
    mechanism = adp.design_margins(
        (2, 2), [(0, 1)], epsilon=1.0, delta=1e-6, workloads={0: [[value, 0], [0, 8]]}
    )
    return mechanism.strategy.workloads[0].own[0, 0]


def sum_of(value, high=10**18):
    """Add up the values of one person."""
    table = pd.DataFrame({"ward": ["a"], "cost": pd.Series([value], dtype=object)})
    found = count_people(table, ["ward"], cells={"ward": ["a"]}, values={"cost": (0, high)})
    return found["cost"].iloc[0]


def table_of(value, **more):
    """Publish a table of one row."""
    column = pd.Series([value], dtype=object if not isinstance(value, float) else None)
    table = pd.DataFrame({"a": column, "b": [1.0]})
    release = TableRelease(
        epsilon=1.0, equations=[], columns=["a", "b"], whole=False, **{"mu": 1.0, **more}
    )
    return release.release(table).guarantee.sensitivity


# every place where numbers come in, as the double that it keeps of one of them
DOORS: dict[str, Callable[[Any], float]] = {
    "D": lambda v: adp.AffineManifold([[v, 1]]).D[0, 0],
    "b": lambda v: adp.AffineManifold([[1, 1]], [v]).b[0],
    "mu of circuits": lambda v: adp.CircuitAdjacency(PAIR, [v, 1]).mu[0],
    "mu of free sets": lambda v: adp.FreeSetAdjacency(PAIR, [["a", "b"]], mu=[v, 1]).mu[0],
    "directions": lambda v: next(adp.DirectionAdjacency(PAIR, [[v], [1]]).moves(9)).values[0, 0],
    "query": lambda v: 1 / adp.verify(PAIR, 1.0, law="laplace", query=[[v, 0]]).sensitivity,
    "noise matrix": lambda v: (
        adp.verify(PAIR, [[v, 0], [0, 1]], law="laplace", mu=[1, 0]).sensitivity
    ),
    "data": lambda v: NOISE.release([v, 1]) @ [0, 0],
    "one of two data sets": lambda v: (
        adp.verify_pair(PAIR, [v, 1], [0, 1], 1.0, law="laplace").sensitivity
    ),
    "covariance": lambda v: adp.verify(PAIR, covariance=[[v, 0], [0, 1]], mu=[1, 0]).sensitivity,
    "data in steps": in_steps,
    "table": table_of,
    "mu of a table": lambda v: table_of(1.0, mu=v),
    "A": lambda v: control.dynamics_of(([[v]], [[1]]), 2).A[0, 0],
    "C": lambda v: control.dynamics_of(([[1]], [[v]]), 2).C[0, 0],
    "mu of a trajectory": lambda v: control.design_output_noise(
        CONSTANT, 2, 1.0, 0.01, mu=[v]
    ).adjacency.mu[0, 0],
    "how private inputs enter": lambda v: control.design_input_noise(
        ([[0.5]], [[v]], [[1]]), 1.0, 0.01
    ).domain.system.B[0, 0],
    "mu of private inputs": lambda v: control.design_input_noise(
        ([[0.5]], [[1]], [[1]]), 1.0, 0.01, mu=v
    ).adjacency.mu[0],
    "covariance of x(0)": lambda v: control.verify_output_noise(
        CONSTANT, 2, covariance=[[v]]
    ).strategy.start[0, 0],
    "root of x(0)": lambda v: control.verify_output_noise(CONSTANT, 2, root=[[v]]).strategy.start[
        0, 0
    ],
    "resolution": lambda v: sensor_of(("y",), v).steps[0],
    "gains": lambda v: control.ClosedLoop(LOOP, [[v]], [[0.5]], [0]).feedback[0, 0],
    "reference": lambda v: control.ClosedLoop(LOOP, [[0.5]], [[0.5]], [v]).reference[0],
    "combination": lambda v: NOISE.interval([0.0, 0.0], combination=[v, 0]).high,
    "data of a function": lambda v: PEAK.release([v, 1]) @ [0],
    "mu of a function": lambda v: adp.design(
        PAIR, query=functions.peak(), epsilon=1, law="laplace", mu=[v, 1]
    ).adjacency.mu[0],
    "bound of a function": lambda v: (
        adp.design(
            PAIR, query=functions.exceedance(v), epsilon=1, law="laplace"
        ).strategy.function.lower
    ),
    "data of a tangent": lambda v: TANGENT.release([v, 1]).first @ [0, 0],
    "mu of a tangent": lambda v: adp.design_tangent(
        PAIR, "a * b", epsilon=1, mu=[v, 1]
    ).first.adjacency.mu[0],
    "sums of one's own": margins_of,
    "values that are added up": sum_of,
    "bounds of values": lambda v: sum_of(2**50, high=v),
    "bounds of a table": lambda v: float(
        TableRelease(epsilon=1.0, totals={"t": ["a"]}, mu={"a": (0, v)}).mu["a"][1]
    ),
}
STRICTER = ("table", "values that are added up", "sums of one's own")
# counts are whole
COUNTED: dict[str, Callable[[Any], float]] = {
    "tree": lambda v: adp.design_tree([-1, 0], epsilon=1).release([v, v]) @ [0, 0],
    "margins": lambda v: MARGINS.release({(0, 1): [[v, 1], [1, 1]]})[(0,)] @ [0, 0],
    "places": lambda v: PLACES.release([[[v, 1], [1, 1]]] * 2)[(0,)].ravel()[0] * 0,
}
# public names that take no numbers of the data, the equations, the neighbours or the noise, or
# that hand them to a door of the list
OTHERS = {"Mechanism", "discover"}

REFUSED = {
    "True": True,
    "text": "1/3",
    "none": None,
    "complex": 1j,
    "beyond 2^53": 2**53 + 1,
    "numpy beyond 2^53": np.int64(2**53 + 1),
    "huge": 10**400,
    "1e999": float("inf"),
    "decimal 1e999": Decimal("1e999"),
    "nan": float("nan"),
    "decimal nan": Decimal("NaN"),
    "the binary number next to 0.1": Fraction(0.1),
    "no double": Fraction(1, 4001),
    "long decimal": Decimal("0.1234567890123456789"),
    "long double": np.longdouble("0.1"),
}
TAKEN = {
    "int": 3,
    "numpy int": np.int8(3),
    "float": 0.1,
    "decimal": Decimal("0.10"),
    "fraction": Fraction(1, 3),
    "short float": np.float32(0.1),
    "2^60": 2**60,
}


@pytest.mark.parametrize("number", REFUSED)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_what_it_would_change(door, number):
    with pytest.raises(AffineDPError):
        DOORS[door](REFUSED[number])


@pytest.mark.parametrize("door", COUNTED)
def test_counts_are_whole_numbers(door):
    """Of any length: they are not made doubles of; and what is no count is not counted."""
    exact = {"beyond 2^53", "numpy beyond 2^53"}
    for number in (value for name, value in {**REFUSED, **TAKEN}.items() if name not in exact):
        if isinstance(number, int | np.integer) and abs(number) < 2**53 and number is not True:
            assert COUNTED[door](number) == 0
        elif number != 2**60:
            with pytest.raises(AffineDPError):
                COUNTED[door](number)


def margin_release(labels):
    return MarginRelease(attributes={"ward": labels, "age": [0, 1]}, margins="<=1", epsilon=1.0)


LABELLED = {
    "attributes": margin_release,
    "prefixes": lambda labels: margin_release(prefix(labels)),
    "ranges": lambda labels: margin_release(ranges(labels)),
    "sums of one's own": lambda labels: margin_release((labels, [[1, 0], [0, 1]])),
    "cells": lambda labels: count_people(
        pd.DataFrame({"ward": ["a"]}), ["ward"], cells={"ward": labels}
    ),
}


@pytest.mark.parametrize("door", LABELLED)
def test_labels_are_a_public_list_in_order(door):
    LABELLED[door](["a", "b"])
    LABELLED[door](iter(["a", "b"]))
    nan = float("nan")
    for labels in (
        None, 5, {"a", "b"}, frozenset("ab"), "ab", b"ab", {"a": 1, "b": 2}, [1, "1"], ["a", None],
        [nan, "a"], ["a", ""], ["a", "a"], [1, 1.0], [["a"], ["b"]], pd.Series(["a", "b"]),
        np.array(["a", "b"]),
    ):  # fmt: skip
        with pytest.raises(AffineDPError):
            LABELLED[door](labels)


@pytest.mark.parametrize("size", [1e308, 1e160, 1e-160, 5e-324])
def test_sizes_without_squares_are_refused_in_words(size):
    table = pd.DataFrame({"a": [1.0], "b": [2.0]})
    asked = {"epsilon": 1.0, "equations": [], "columns": ["a", "b"], "whole": False}
    for door in (
        lambda: margins_of(size),
        lambda: TableRelease(mu=size, **asked).design(table),
        lambda: TableRelease(mu={"a": (0, size), "b": 1}, **asked).design(table),
        lambda: adp.design(PAIR, epsilon=1, mu=size),
    ):
        with pytest.raises(AffineDPError, match="beyond double precision"):
            door()


def test_neighbours_beyond_double_precision_are_refused():
    with pytest.raises(AffineDPError, match="beyond double precision"):
        adp.CircuitAdjacency(PAIR).are_neighbours([10**400, 1], [1, 1])


@pytest.mark.parametrize("number", TAKEN)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_what_a_double_stands_for(door, number):
    """The same as for the double itself; that double means exactly what was given."""
    value = TAKEN[number]
    double = float(value)
    if door in STRICTER and abs(double) >= 2**53:
        pytest.skip("tables and sums are stricter, and say so")
    exact = meaning(double) if isinstance(value, float | np.floating) else Fraction(value)
    assert meaning(double) == exact
    assert DOORS[door](value) == DOORS[door](double)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.coo_array, np.array])
def test_matrices_of_integers_are_not_rounded(kind):
    large = kind(np.array([[2**53 + 1, 1]], dtype=np.int64))
    for door in (
        lambda: adp.AffineManifold(large),
        lambda: adp.verify(PAIR, 1.0, law="laplace", query=large),
        lambda: adp.verify(PAIR, large.T, law="laplace"),
    ):
        with pytest.raises(AffineDPError, match="more digits"):
            door()


def test_every_public_function_with_numbers_is_looked_at():
    """One that takes a manifold, data, μ, a query or noise reads it through a door of the list."""
    numbers = {"D", "b", "mu", "directions", "x", "y", "query", "noise_matrix", "covariance"}
    known = {
        "AffineManifold", "CircuitAdjacency", "FreeSetAdjacency", "DirectionAdjacency",
        "verify", "verify_pair", "iid_noise", "design", "design_gaussian", "design_laplace",
        "design_knorm", "design_tangent",
    }  # fmt: skip
    for name in adp.__all__:
        thing = getattr(adp, name)
        if callable(thing) and name not in known | OTHERS:
            try:
                given = set(inspect.signature(thing).parameters)
            except (TypeError, ValueError):
                continue
            assert not given & numbers, f"{name} takes numbers: list its door in this file"


def test_neighbours_share_what_is_published_to_the_last_bit():
    """Cents: a + b is published without noise, and is the same number for all neighbours."""
    part = SharedPart(np.array([0]), {1: {0: Fraction(-1)}})
    cents = np.arange(100_000, 100_400) * 7 % 99_991
    points = np.column_stack([cents / 100, (202_420 - cents) / 100])
    assert len(np.unique(part.values(points), axis=0)) == 1


@pytest.mark.parametrize("power", [-13, -1, 0, 1, 13])
@pytest.mark.parametrize("row", [0, 1])
def test_leaks_do_not_depend_on_units(row, power):
    """The entry that never moves reveals the draw, however little of it is added there."""
    for tiny in (1.0, 1e-13, 2.0**-40):
        noise = np.array([[1.0], [tiny]])
        noise[row] *= 2.0**power
        query = np.eye(2)
        query[row] *= 2.0**power
        found = adp.verify(PAIR, noise, law="laplace", query=query, mu=[1, 0])
        assert found.leak is not None
        assert found.sensitivity == np.inf


def test_dictionaries_that_a_promise_rests_on_are_read_only():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    for row in (*M.exact_kernel, *M.exact_rows, *M.canonical.exact_rows):
        with pytest.raises(AffineDPError, match="read-only"):
            row.clear()
        assert pickle.loads(pickle.dumps(row)) == row


@pytest.mark.parametrize(
    ("noise", "mu"), [([1e150, 1e-180], 1e150), ([1e60, 1e-264], 1e60), ([5e-324, 0.5], 1.0)]
)
def test_noise_that_vanishes_beside_the_moves_is_refused(noise, mu):
    M = adp.AffineManifold([[0.9999999999999993, -1.000000000000001]])
    with pytest.raises(AffineDPError, match="too small beside"):
        adp.verify(M, np.diag(noise), law="laplace", mu=mu)
