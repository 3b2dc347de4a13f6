"""Data files: columns and nothing beside them, and no number that reading would change."""

import os
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table, write_table
from affinedp.files.writing import write_text


def csv(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "0.1",
        "0.10000000000000001",
        "1.000000000000000056e-01",
        "1e-5",
        "123456789.25",
        "-0.0",
        "1e22",
    ],
)
def test_decimals_that_a_double_says(tmp_path, text):
    found = read_table(csv(tmp_path, f"a,b\n{text},x\n0.5,y\n"))
    assert found["a"].tolist() == [float(text), 0.5]


@pytest.mark.parametrize(
    "text",
    ["9007199254740993.0", "9007199254740993", "0.12345678901234567891", "1e-400"],
)
def test_numbers_that_reading_would_change(tmp_path, text):
    """With a gap below, pandas makes doubles of whole numbers too."""
    with pytest.raises(AffineDPError, match=r"row 1 .*column 'a' has more digits") as refusal:
        read_table(csv(tmp_path, f"a,b\n0.5,x\n{text},y\n,z\n"))
    assert text not in str(refusal.value)


def test_whole_numbers_stay_whole(tmp_path):
    found = read_table(csv(tmp_path, "a\n9007199254740993\n"))
    assert found["a"].tolist() == [9007199254740993]  # what it is for decides about it


def test_rows_with_more_fields_than_names_are_not_shifted(tmp_path):
    with pytest.raises(AffineDPError, match="not a valid csv file: Length of header"):
        read_table(csv(tmp_path, "a,b\n1,2,3\n4,5,6\n"))


def test_names_that_occur_twice_are_refused(tmp_path):
    """pandas would call the second one a.1, and a total of that name would be taken for it."""
    with pytest.raises(AffineDPError, match="two columns with the name 'a'"):
        read_table(csv(tmp_path, "a,a\n1.5,2.5\n"))


def test_years_are_names_in_a_sheet_too(tmp_path):
    frame = pd.DataFrame({"age": ["0-17", "18+"], 2023: [1, 2], 2024: [3, 4]})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = [read_table(tmp_path / f"t.{kind}").columns.tolist() for kind in ("xlsx", "csv")]
    assert found == [["age", "2023", "2024"]] * 2


def test_parquet_brings_columns_only(tmp_path):
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index([7, 9], name="secret"))
    frame.attrs["mean"] = 1.5
    frame.to_parquet(tmp_path / "data.parquet")
    found = read_table(tmp_path / "data.parquet")
    assert found.attrs == {}
    assert list(found.columns) == ["a", "secret"]
    assert type(found.index) is pd.RangeIndex


def test_parquet_integers_with_gaps_and_decimals(tmp_path):
    large = 2**53 + 1
    columns = pyarrow.table({"a": [large, None], "d": [Decimal("0.1"), Decimal("2.5")]})
    pyarrow.parquet.write_table(columns, tmp_path / "data.parquet")
    found = read_table(tmp_path / "data.parquet")
    assert found["a"].tolist() == [large, None]
    assert found["d"].tolist() == [Decimal("0.1"), Decimal("2.5")]


def test_nothing_but_columns_is_written(tmp_path):
    frame = pd.DataFrame({"a": np.array([1.5, 2.0])}, index=["u", "v"])
    frame.attrs["mean"] = 1.75
    write_table(frame, tmp_path / "out.parquet")
    schema = pyarrow.parquet.read_schema(tmp_path / "out.parquet")
    assert schema.metadata is None
    assert schema.names == ["a"]
    write_table(frame, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a\n1.5\n2.0\n"


def test_what_is_wrong_with_a_file_is_said_without_quoting_it(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"PAR1 Alice 170")
    with pytest.raises(AffineDPError, match="not a valid parquet file") as refusal:
        read_table(tmp_path / "data.parquet")
    assert "Alice" not in str(refusal.value)
    with pytest.raises(AffineDPError, match="not a valid csv file"):
        read_table(csv(tmp_path, "a,b\n1,2\n3,4,5\n"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path):
    place = tmp_path / "pipe"
    os.mkfifo(place)
    with pytest.raises(AffineDPError, match="pipe cannot be written: it is not a file"):
        write_text(place, "page")
    assert place.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_folder_of_files_is_sent_to_engines_that_read_it(tmp_path):
    for name in ("published", "published.parquet"):
        folder = tmp_path / name
        folder.mkdir()
        with pytest.raises(AffineDPError, match="polars.scan_parquet"):
            read_table(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "data.csv is empty"),
        ("ort,größe\nX,1\n".encode("latin-1"), "not text in UTF-8: save it .*CSV UTF-8"),
        ("ort,größe\nX,1\n".encode("utf-16"), "not text in UTF-8 .*: save it .*CSV UTF-8"),
    ],
)
def test_what_spreadsheets_save_is_refused_with_what_to_do(tmp_path, content, said):
    path = tmp_path / "data.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(AffineDPError, match=said):
        read_table(path)
