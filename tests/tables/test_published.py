"""What is published is a function of public things and noisy numbers, and of nothing else.

The oracle: let the noisy numbers be the same for two tables that differ in private things only.
Then everything published must be the same, bit for bit: values, types, index, attributes, bytes
of files.
"""

from decimal import Decimal
from fractions import Fraction

import matplotlib
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from affinedp.cli.release import release_file
from affinedp.domains.reading import fresh_index, fresh_labels
from affinedp.tables import TableRelease, publish
from affinedp.tables.refusals import TableError

PROMISE = {"epsilon": 1.0, "delta": 1e-6}
TOTALS = {"t": ["a", "b"]}


@pytest.fixture
def same_noisy_numbers(monkeypatch):
    """Noise that covers the data altogether: what comes out does not depend on what goes in."""

    def drawn(mechanism, plan, points, **options):
        noise = mechanism.noise_matrix
        noise = noise.toarray() if hasattr(noise, "toarray") else np.asarray(noise)
        numbers = np.random.default_rng(7).standard_normal((len(points), noise.shape[1]))
        return 3 * numbers @ noise.T

    monkeypatch.setattr(publish, "publish", drawn)
    monkeypatch.setitem(matplotlib.rcParams, "svg.hashsalt", "names of clip paths")


def frame(a, b, t, **more):
    return pd.DataFrame({"a": a, "b": b, "t": t, **more})


def with_attrs(table, **attrs):
    table.attrs.update(attrs)
    return table


class Notes(pd.DataFrame):
    """A frame that carries more than a frame."""

    _metadata = ("note",)

    @property
    def _constructor(self):
        return Notes


def noted():
    table = Notes(frame([33, 4], [5, 6], [38, 10]))
    table.note = "mean 21"
    return table.set_flags(allows_duplicate_labels=False)


WHOLE = frame([33, 4], [5, 6], [38, 10])
MONTHS = pd.date_range("2020-01", periods=2, freq="MS", name="month")
PAIRS = {
    "whole numbers and halves": (
        {"whole": False},
        WHOLE,
        frame([33.5, 4], [4.5, 6], [38, 10]),
    ),
    "short and long integers": ({}, WHOLE.astype("int16"), WHOLE + 1000 * np.array([1, 0, 1])),
    "signed and unsigned": ({}, WHOLE.astype("uint8"), WHOLE - np.array([50, 0, 50])),
    "nullable integers": ({}, WHOLE.astype("Int64"), WHOLE),
    "decimals and fractions as objects": (
        {},
        frame([Decimal("33"), Decimal(4)], [5, 6], [Fraction(38), 10]),
        WHOLE,
    ),
    "missing where nothing is read": (
        {"unknown": ["t"]},
        WHOLE,
        frame([33, 4], [5, 6], [38, None]),
    ),
    "text where nothing is read": (
        {"unknown": ["t"]},
        WHOLE,
        frame([33, 4], [5, 6], [38, "unknown"]),
    ),
    "attributes": ({}, WHOLE, with_attrs(WHOLE.copy(), mean=21.5, source={"rows": [33]})),
    "a frame that carries more": ({}, WHOLE, noted()),
    "the name of the columns": ({}, WHOLE, WHOLE.rename_axis(columns="mean 21.5")),
    "public numbers in one array with private ones": (
        {"public": ["year"], "whole": False},
        pd.DataFrame(np.array([[1, 2, 3, 2020]]), columns=["a", "b", "t", "year"]),
        pd.DataFrame(np.array([[1.5, 2, 3.5, 2020]]), columns=["a", "b", "t", "year"]),
    ),
    "public labels of an object array": (
        {"public": ["year"]},
        frame([1], [2], [3], year=[2020]),
        frame([1], [2], [3], year=np.array([2020], dtype=object)),
    ),
    "categories that do not occur": (
        {"public": ["town"]},
        WHOLE.assign(town=["X", "Y"]),
        WHOLE.assign(town=pd.Categorical(["X", "Y"], categories=["X", "Y", "dropped: Z"])),
    ),
    "missing labels": (
        {"public": ["town"]},
        WHOLE.assign(town=["X", None]),
        WHOLE.assign(town=pd.array(["X", pd.NA], dtype="string")),
    ),
    "an index with a frequency": ({}, WHOLE.set_index(MONTHS), WHOLE.set_index(MONTHS[[0, 1]])),
    "an index of another unit": (
        {},
        WHOLE.set_index(MONTHS),
        WHOLE.set_index(MONTHS.as_unit("s")),
    ),
    "an index that was filtered": ({}, WHOLE, WHOLE[WHOLE["a"] > 0].set_index(pd.Index([0, 1]))),
    "an index of floats": ({}, WHOLE, WHOLE.set_index(pd.Index([0.0, 1.0]))),
    "an index that is a category": (
        {},
        WHOLE.set_index(pd.Index(["u", "v"], name="who")),
        WHOLE.set_index(pd.CategoricalIndex(["u", "v"], categories=["u", "v", "w"], name="who")),
    ),
    "an index of several levels": (
        {},
        WHOLE.set_index(pd.MultiIndex.from_tuples([(1, "u"), (2, "v")], names=["k", "who"])),
        WHOLE.set_index(
            pd.MultiIndex.from_tuples([(1.0, "u"), (2.0, "v"), (3.0, "w")], names=["k", "who"])[:2]
        ),
    ),
    "public columns in the equations": (
        {"public": ["t"], "whole": False},
        frame([33, 4], [5, 6], [38, 10]),
        frame([33.5, 4], [4.5, 6], [38.0, 10.0]),
    ),
}


def assert_the_same(one, other):
    """Equal in everything that a DataFrame is made of."""
    assert type(one) is type(other) is pd.DataFrame
    assert one.shape == other.shape
    assert list(one.dtypes) == list(other.dtypes)
    for name in one.columns:
        first, second = one[name].to_numpy(), other[name].to_numpy()
        if first.dtype == object:
            assert [(type(x), str(x)) for x in first] == [(type(x), str(x)) for x in second]
        else:
            assert first.tobytes() == second.tobytes()
    for first, second in ((one.index, other.index), (one.columns, other.columns)):
        assert type(first) is type(second)
        assert first.names == second.names
        assert first.identical(second)
        assert getattr(first, "freq", None) == getattr(second, "freq", None)
        if isinstance(first, pd.MultiIndex):
            assert [x.tolist() for x in first.levels] == [x.tolist() for x in second.levels]
            assert [x.dtype for x in first.levels] == [x.dtype for x in second.levels]
    assert one.attrs == other.attrs == {}
    assert one.flags == other.flags


def assert_published_the_same(first, second):
    assert_the_same(first.table, second.table)
    assert_the_same(first.unrounded, second.unrounded)
    for one, other in zip(first.interval(), second.interval()):
        assert_the_same(one, other)
    assert first.public.tobytes() == second.public.tobytes()
    assert str(first.report()) == str(second.report())
    assert str(first) == str(second)


@pytest.mark.parametrize("round_to", [None, 1, 0.5])
@pytest.mark.parametrize("name", PAIRS)
def test_neighbours_look_alike(name, round_to, same_noisy_numbers):
    arguments, one, other = PAIRS[name]
    release = TableRelease(totals=TOTALS, round_to=round_to, **arguments, **PROMISE)
    assert_published_the_same(release.release(one), release.release(other))


@pytest.mark.parametrize("round_to", [None, 1, 0.25])
def test_types_are_said_by_the_description(round_to):
    release = TableRelease(totals=TOTALS, round_to=round_to, public=["who"], **PROMISE)
    table = release.release(WHOLE.assign(who=["x", "y"]).astype({"a": "int8"})).table
    wanted = "int64" if round_to == 1 else "float64"
    assert [str(table[name].dtype) for name in "abt"] == [wanted] * 3


# --------------------------------------------------------------------- sums that are public


TENTHS = pd.DataFrame({"x": [0.1, 0.2], "y": [0.2, 0.3], "z": [0.3, 0.4]}, index=["u", "v"])
# tenths change places: every row sum and column sum is the same decimal
MOVED = pd.DataFrame({"x": [0.2, 0.1], "y": [0.1, 0.4], "z": [0.3, 0.4]}, index=["u", "v"])


def test_the_example_tells_sums_of_doubles_apart():
    """What was published before: 0.1 + 0.2 + 0.3 rounds otherwise than 0.2 + 0.1 + 0.3 or 0.6."""
    sums = np.concatenate([TENTHS.sum(), TENTHS.sum(axis=1)])
    moved = np.concatenate([MOVED.sum(), MOVED.sum(axis=1)])
    assert (sums != moved).any() or TENTHS.sum(axis=1)["u"] != 0.6


@pytest.mark.parametrize("round_to", [None, 0.1])
@pytest.mark.parametrize("neighbours", ["circuits", "swaps"])
def test_public_margins_of_decimals(neighbours, round_to, same_noisy_numbers):
    release = TableRelease(
        margins="public", adjacency=neighbours, round_to=round_to, whole=False, **PROMISE
    )
    one, other = release.release(TENTHS), release.release(MOVED)
    assert_published_the_same(one, other)
    assert sorted(one.public.ravel().tolist()) == [0.3, 0.5, 0.6, 0.7, 0.9]


def test_public_margins_of_a_long_table(same_noisy_numbers):
    def long(values):
        return pd.DataFrame({"r": list("uuuvvv"), "c": list("xyzxyz"), "n": np.ravel(values)})

    release = TableRelease(margins=[["r"], ["c"]], whole=False, **PROMISE)
    one, other = release.release(long(TENTHS)), release.release(long(MOVED))
    assert_published_the_same(one, other)


def test_public_margins_beyond_what_doubles_add_exactly(same_noisy_numbers):
    """Whole numbers whose sums pass 2^53: the order of adding must not show."""
    near = 2**53 - 1
    one = pd.DataFrame({"x": [near, 1, near], "y": [5, near, 2]})
    other = pd.DataFrame({"x": [near - 1, 2, near], "y": [6, near - 1, 2]})
    release = TableRelease(margins="public", **PROMISE)
    assert_published_the_same(release.release(one), release.release(other))


def test_size_does_not_decide_whether_multiples_are_published(same_noisy_numbers):
    """Numbers on both sides of what doubles count in steps of a thousandth."""
    release = TableRelease(totals=TOTALS, round_to=0.001, mu=10.0, **PROMISE)
    edge = int(2**50 * 0.001)
    one, other = (frame([edge + move], [1], [edge + move + 1]) for move in (-5, 5))
    assert_published_the_same(release.release(one), release.release(other))


# --------------------------------------------------------------------- files


TOML = """
index = "day"
public = ["town"]
[totals]
t = ["a", "b"]
[privacy]
mu = 1
epsilon = 1.0
delta = 1e-6
[output]
noise = "noise.csv"
report = "report.html"
"""


def released_files(folder, data, kind, more="", privacy=""):
    folder.mkdir()
    (folder / "table.toml").write_text(
        TOML.replace("[privacy]\n", f"[privacy]\n{privacy}") + more, encoding="utf-8"
    )
    release_file(folder / "table.toml", data, folder / f"out.{kind}")
    names = sorted(path.name for path in folder.iterdir())
    return names, [(folder / name).read_bytes() for name in names]


@pytest.mark.parametrize("more", ["", "round_to = 1\n"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_look_alike(tmp_path, kind, more, same_noisy_numbers):
    whole = frame([33, 4], [5, 6], [38, 10], day=["mon", "tue"], town=["X", "Y"])
    halves = frame([33.5, 4], [4.5, 6], [38, 10], day=["mon", "tue"], town=["X", "Y"])
    halves.attrs["mean"] = 21.5
    results = []
    for name, table in (("one", whole), ("other", halves)):
        path = tmp_path / f"{name}.{kind}"
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        results.append(released_files(tmp_path / name, path, kind, more, "whole = false\n"))
    assert results[0] == results[1]


def test_parquet_carries_no_metadata(tmp_path):
    table = frame([33, 4], [5, 6], [38, 10], day=["mon", "tue"], town=["X", "Y"])
    with_attrs(table, secret="mean 21.5").set_index("day").to_parquet(tmp_path / "data.parquet")
    released_files(tmp_path / "folder", tmp_path / "data.parquet", "parquet")
    file = pyarrow.parquet.ParquetFile(tmp_path / "folder" / "out.parquet")
    assert file.schema_arrow.metadata is None
    assert set(file.metadata.metadata) <= {b"ARROW:schema"}  # the types of what is published
    assert b"secret" not in (tmp_path / "folder" / "out.parquet").read_bytes()


# --------------------------------------------------------------------- refusals


SECRET = 4711.375
REFUSED = {
    "broken total": ({}, frame([SECRET], [1.0], [2.0])),
    "text": ({}, frame([f"{SECRET}"], [1.0], [2.0])),
    "mixed objects": ({}, frame([SECRET, "4711,375"], [1.0, 1.0], [2.0, 2.0])),
    "beyond the bound": ({}, frame([SECRET], [1.0], [SECRET + 1])),
    "more than rounding": ({"adjust": ["a"], "within": 0.5}, frame([SECRET], [1.0], [2.0])),
    "too many digits": ({}, frame([Decimal("4711.3750000000000000000001")], [1], [2])),
    "beyond 2^53": ({}, frame([47113750000000000000.0], [1], [2])),
    "missing": ({}, frame([SECRET, None], [1.0, 2.0], [SECRET + 1, 5.0])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_quote_no_private_number(name):
    arguments, table = REFUSED[name]
    release = TableRelease(totals=TOTALS, **arguments, **PROMISE)
    with pytest.raises(TableError) as refusal:
        release.release(table, bound=100.0)
    said = [str(refusal.value), repr(refusal.value), repr(vars(refusal.value))]
    assert not any("4711" in text or "4710" in text or "4712" in text for text in said)
    if name == "broken total":
        assert refusal.value.broken
        assert release.check(table)["off"].tolist() == [2.0 - 1.0 - SECRET]  # asked for


# --------------------------------------------------------------------- numbers of any size


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    "column",
    [
        pd.array([LARGE], dtype="Int64"),
        pd.array([LARGE], dtype="UInt64"),
        pd.array([LARGE], dtype="int64[pyarrow]"),
        np.array([LARGE], dtype=object),
        np.array([LARGE]),
        np.array([Decimal(LARGE)], dtype=object),
        np.array([Decimal("0.12345678901234567891")], dtype=object),
        np.array([Fraction(0.1)], dtype=object),
        np.array(["0.1"], dtype=np.longdouble),
    ],
    ids=lambda column: str(column.dtype),
)
def test_no_door_rounds_silently(column):
    table = pd.DataFrame({"a": column})
    release = TableRelease(equations=[], columns=["a"], **PROMISE)
    with pytest.raises(TableError, match=r"row 0.*'a' has more digits than double precision"):
        release.release(table)


def test_exact_numbers_of_any_kind_are_read():
    table = frame([Decimal("0.1"), 1], [Fraction(1, 5), np.float32(0.5)], [Decimal("0.3"), 1.5])
    assert len(TableRelease(totals=TOTALS, **PROMISE).check(table)) == 0


# --------------------------------------------------------------------- labels


def test_labels_keep_their_values():
    assert fresh_labels([1, 2.5]).tolist() == [1.0, 2.5]
    assert fresh_labels([True, False]).tolist() == [True, False]
    assert fresh_labels(["a", 1]).tolist() == ["a", 1]
    assert fresh_labels([2**60 + 1]).tolist() == [2**60 + 1]
    assert fresh_labels([2**60 + 1, None]).tolist()[0] == 2**60 + 1
    assert fresh_labels([2**70]).tolist() == [2**70]
    assert fresh_labels([1, None]).dtype == np.float64
    assert fresh_labels([]).tolist() == []
    old = pd.Timestamp("1500-01-01").as_unit("s")
    assert list(fresh_labels([old])) == [old]
    periods = pd.period_range("2020", periods=2, freq="M")
    assert fresh_index(periods).tolist() == periods.tolist()
    zoned = pd.date_range("2020", periods=2, tz="Europe/Paris")
    assert fresh_index(zoned).equals(zoned)
