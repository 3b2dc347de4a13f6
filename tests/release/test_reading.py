"""What goes in is not changed silently; what comes out carries labels and noisy numbers only."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import affinedp as adp
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError

LARGE = 2**53 + 1


@pytest.fixture(scope="module")
def mechanism():
    M = adp.AffineManifold.from_equations(["a + b = t"])
    return adp.iid_noise(M, law="gaussian", epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "x",
    [
        [LARGE, 0, LARGE],
        np.array([LARGE, 0, LARGE]),
        np.array([LARGE, 0, LARGE], dtype=np.uint64),
        np.array([LARGE, 0, LARGE], dtype=object),
        [Decimal(LARGE), 0, Decimal(LARGE)],
        [Fraction(1, 4001), Fraction(4000, 4001), 1],
        np.array(["0.1", "0.2", "0.3"], dtype=np.longdouble),
        {"a": LARGE, "b": 0, "t": LARGE},
        pd.Series({"a": LARGE, "b": 0, "t": LARGE}),
        pd.DataFrame({"a": [LARGE], "b": [0.5], "t": [LARGE]}),
        pd.DataFrame({"a": [LARGE], "b": [0], "t": [LARGE]}, dtype="Int64"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_no_door_rounds_silently(mechanism, x):
    with pytest.raises(AffineDPError, match="more digits than double precision") as refusal:
        mechanism.release(x)
    assert "9007199254740" not in str(refusal.value)


def test_pandas_objects_come_back_with_labels_alone(mechanism):
    """Integers, halves, attributes, a frequency: the results look alike but for the noise."""
    months = pd.date_range("2020-01", periods=2, freq="MS", name="month")
    whole = pd.DataFrame({"a": [1, 2], "b": [3, 4], "t": [4, 6]}, index=months)
    halves = whole.add([0.5, -0.5, 0.0]).set_index(months[[0, 1]].as_unit("s"))
    halves.attrs["mean"] = 3.5
    shells = []
    for x in (whole, halves):
        points, wrap = mechanism.domain.read(x)
        y = wrap(np.zeros_like(points), mechanism.output_names)
        assert (type(y), y.attrs, list(y.dtypes)) == (pd.DataFrame, {}, [np.dtype(float)] * 3)
        assert y.index.freq is None
        shells.append((y.index.dtype, y.index.name, y.to_csv()))
    assert shells[0] == shells[1]
    row = whole.iloc[0]
    row.attrs["mean"] = 3.5
    y = mechanism.release(row)
    assert (type(y), y.attrs, y.name) == (pd.Series, {}, months[0])


def test_numbers_by_name_are_read_as_a_series_is(mechanism):
    given = {"t": 7.0, "a": 3, "b": Fraction(4)}
    points, wrap = mechanism.domain.read(given)
    assert points.tolist() == mechanism.domain.read(pd.Series(given))[0].tolist() == [[3, 4, 7]]
    assert wrap(points, mechanism.output_names) == {"a": 3.0, "b": 4.0, "t": 7.0}
    assert list(mechanism.release(given)) == ["a", "b", "t"]
    plant = Dynamics(0.5 * np.eye(2), np.ones((1, 2)), 2, ("p", "q"), ("y",))
    points, wrap = plant.read(dict(zip(reversed(plant.names), (2.0, 1.0))))
    assert points.tolist() == [[1.0, 2.0]]
    assert wrap(np.array([[3.0, 4.0]]), ("y(0)", "y(1)")) == {"y(0)": 3.0, "y(1)": 4.0}


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ({"a": 1, "b": 2}, "no column 't'"),
        ({"a": 1, "b": 2, "t": 3, "u": 3}, "does not know the column 'u'"),
        ({0: 1, 1: 2, 2: 3}, "no column 'a'"),
        ({"a": [1, 2], "b": [2, 1], "t": [3, 3]}, "'a' must be one number"),
        ({"a": "1", "b": 2, "t": 3}, "'a' "),
        ({"a": None, "b": 2, "t": 3}, "'a' is not a real number"),
        ({"a": float("nan"), "b": 2, "t": 3}, "'a' "),
        ({"a": 1, "b": 2, "t": 4}, "a \\+ b"),
        ({}, "no column 'a'"),
    ],
)
def test_other_names_and_no_numbers_are_refused(mechanism, x, words):
    with pytest.raises(AffineDPError, match=words):
        mechanism.release(x)


def test_refusals_name_the_place_and_not_the_number(mechanism):
    for x in ([4711.0, 1.0, 1.0], ["4711", 1, 2]):
        with pytest.raises(AffineDPError) as refusal:
            mechanism.release(x)
        assert "4711" not in str(refusal.value)


def test_a_lazy_table_is_read_without_a_warning(mechanism):
    """Its columns were asked for, which computes its schema and warns."""
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"a": [1], "b": [2], "t": [3]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mechanism.release(lazy).columns == ["a", "b", "t"]
