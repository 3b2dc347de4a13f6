"""Data files of the command line: CSV and Parquet, columns by name and nothing beside them."""

from __future__ import annotations

import os
import tempfile
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.arrays import NOT_KEPT, says_decimal
from affinedp.errors import AffineDPError, MissingExtraError

MOST_BYTES = 4_000_000_000
# Numbers of so few characters have at most 15 digits, which every double keeps.
SHORT = 15


def read_table(path: Path) -> Any:
    """Read a CSV or Parquet file into a DataFrame, or refuse it with one clear sentence.

    Only columns are read: no index, attributes or other notes that a writer left in the file.
    A number that double precision would change is refused.

    Parameters
    ----------
    path : Path
        ``.csv`` or ``.parquet``.
    """
    pandas = _pandas()
    kind = _kind(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise AffineDPError(f"{path.name} is too large")
        if kind == ".csv":
            table = pandas.read_csv(path, skipinitialspace=True, float_precision="round_trip")
            _refuse_unnamed(table, path)
            _refuse_changed(table, path)
            return table
        import pyarrow.parquet

        columns = pyarrow.parquet.read_table(path).replace_schema_metadata(None)
        # integers with gaps stay integers
        return columns.to_pandas(integer_object_nulls=True)
    except OSError as error:
        raise AffineDPError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise AffineDPError(f"{path.name} is not text in UTF-8") from None
    except ImportError:
        raise MissingExtraError("pyarrow", "tables") from None
    except AffineDPError:
        raise
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]  # lines and counts
        raise AffineDPError(f"{path.name} is not a valid csv file: {reason}") from None
    except Exception as error:  # pyarrow raises many kinds, and may quote what it read
        reason = type(error).__name__
        raise AffineDPError(f"{path.name} is not a valid {kind[1:]} file ({reason})") from None


def _refuse_unnamed(table: Any, path: Path) -> None:
    """Refuse rows with more fields than the header: pandas would shift them into an index."""
    if type(table.index).__name__ != "RangeIndex":
        raise AffineDPError(
            f"{path.name} has more fields in its rows than names in its header: give every column "
            "a name"
        )


def _refuse_changed(table: Any, path: Path) -> None:
    """Refuse numbers of a CSV file that became other numbers when they were read."""
    places = [i for i, kind in enumerate(table.dtypes) if kind.kind == "f"]
    if not places:
        return
    texts = _pandas().read_csv(
        path, skipinitialspace=True, usecols=places, dtype=str, keep_default_na=False
    )
    for name in table.columns[places]:
        column = texts[name].fillna("").str.strip()
        doubtful = (column.str.len() > SHORT) | column.str.contains("e", case=False)
        for row in np.flatnonzero(doubtful & table[name].notna()):
            if not _kept(float(table[name].iat[row]), column.iat[row]):
                raise AffineDPError(
                    f"{path.name}: row {row} (counting from 0), column {name!r} {NOT_KEPT}: round "
                    "it, or choose a larger unit"
                )


def _kept(double: float, text: str) -> bool:
    try:
        return says_decimal(double, Decimal(text))
    except InvalidOperation:
        return True  # no plain decimal: infinity in words, which is refused later


def write_table(frame: Any, path: Path) -> None:
    """Write the columns of a DataFrame as CSV or Parquet, at once or not at all.

    Nothing else is written: no index, no attributes, no notes of pandas in a Parquet file.

    Parameters
    ----------
    frame : DataFrame
        What to write.
    path : Path
        ``.csv`` or ``.parquet``.
    """
    kind = _kind(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        os.close(handle)
        if kind == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            import pyarrow.parquet

            columns = pyarrow.Table.from_pandas(frame, preserve_index=False)
            pyarrow.parquet.write_table(columns.replace_schema_metadata(None), temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise AffineDPError(f"{path} cannot be written: {error.strerror or error}") from None


def check_writable(path: Path) -> None:
    """Refuse a place where nothing can be written, before anything is charged.

    Parameters
    ----------
    path : Path
        Where results will go.
    """
    _kind(path)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK) or path.is_dir():
        raise AffineDPError(f"{path} cannot be written: no such folder, or no permission")


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise AffineDPError(f"{path.name}: data files end in .csv or .parquet")
    return kind


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "tables") from None
    return pandas
