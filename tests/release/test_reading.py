"""What goes in is not changed silently; what comes out carries labels and noisy numbers only."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.release.publish import read_data

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
        points, wrap = read_data(mechanism, x)
        y = wrap(np.zeros_like(points))
        assert (type(y), y.attrs, list(y.dtypes)) == (pd.DataFrame, {}, [np.dtype(float)] * 3)
        assert y.index.freq is None
        shells.append((y.index.dtype, y.index.name, y.to_csv()))
    assert shells[0] == shells[1]
    row = whole.iloc[0]
    row.attrs["mean"] = 3.5
    y = mechanism.release(row)
    assert (type(y), y.attrs, y.name) == (pd.Series, {}, months[0])


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
