"""Every door reads numbers in the same way: what it would change, it refuses."""

import inspect
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
from affinedp import control
from affinedp.control.sensors import sensor_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.strategies.matrices import SharedPart
from affinedp.tables import TableRelease

PAIR = adp.AffineManifold(np.zeros((0, 2)), names=["a", "b"])
NOISE = adp.iid_noise(PAIR, law="laplace", epsilon=1.0)

CONSTANT, LOOP = ([[1]], [[1]]), ([[1]], [[1]], [[1]])
CHAIN = adp.design_laplace(adp.AffineManifold([[1, -1]], names=["a", "b"]), epsilon=1.0)


def in_steps(value):
    """Publish the first step."""
    with (
        tempfile.TemporaryDirectory() as folder,
        CHAIN.in_steps(state=Path(folder) / "run.db") as run,
    ):
        run.send([value])
        return run.next_step


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


@pytest.mark.parametrize("number", TAKEN)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_what_a_double_stands_for(door, number):
    """The same as for the double itself; that double means exactly what was given."""
    value = TAKEN[number]
    double = float(value)
    if door == "table" and abs(double) >= 2**53:
        pytest.skip("tables are stricter, and say so")
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
