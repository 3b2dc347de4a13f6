"""Data files of the command line: CSV and Parquet, columns by name."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.files.visible import check_names, visible
from affinedp.files.writing import replacing

MOST_BYTES = 2_000_000_000
# A cell of text takes a hundred bytes, a column some thousand.
MOST_CELLS = 20_000_000
MOST_COLUMNS = 100_000


def read_table(path: Path) -> Any:
    """Read a CSV or Parquet file into a DataFrame, or refuse it with one clear sentence.

    Parameters
    ----------
    path : Path
        ``.csv`` or ``.parquet``; at most 20 million cells.
    """
    pandas = _pandas()
    kind = _kind(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise AffineDPError(f"{path.name} is too large")
        if not path.is_file():
            raise AffineDPError(f"{path} is not a file")
        _check_size(path, *(_csv_size(path) if kind == ".csv" else _parquet_size(path)))
        frame = _read_csv(pandas, path) if kind == ".csv" else pandas.read_parquet(path)
    except OSError as error:
        raise AffineDPError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise AffineDPError(f"{path.name} is not text in UTF-8") from None
    except ImportError:
        raise MissingExtraError("pyarrow", "tables") from None
    except AffineDPError:
        raise
    except Exception as error:  # pandas and pyarrow raise many kinds for malformed files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise AffineDPError(
            f"{path.name} is not a valid {kind[1:]} file: {visible(reason[:200])}"
        ) from None
    check_names(frame.columns, path.name)
    return frame


def _read_csv(pandas: Any, path: Path) -> Any:
    with warnings.catch_warnings():
        # rows longer than the header: pandas would drop what is too much
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        return pandas.read_csv(
            path, skipinitialspace=True, float_precision="round_trip", index_col=False
        )


def _csv_size(path: Path) -> tuple[int, int]:
    """Cells and columns that a file may have at most: every one ends in a comma or a line."""
    cells, columns, in_header = 0, 0, True
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            if b"\0" in block:  # pandas would drop what follows in the cell
                raise AffineDPError(f"{path.name} is not text: it has a zero byte")
            cells += sum(map(block.count, (b",", b"\n", b"\r")))
            if in_header:
                first, end, _ = block.lstrip(b"\r\n").partition(b"\n")
                columns += first.count(b",")
                in_header = not end
    return cells, columns + 1


def _parquet_size(path: Path) -> tuple[int, int]:
    """What the file says about itself: a few bytes may stand for many rows."""
    from pyarrow import parquet

    about = parquet.read_metadata(path)
    unpacked = sum(about.row_group(place).total_byte_size for place in range(about.num_row_groups))
    if unpacked > MOST_BYTES:
        raise AffineDPError(f"{path.name} is too large when unpacked")
    return about.num_rows * about.num_columns, about.num_columns


def _check_size(path: Path, cells: int, columns: int) -> None:
    for count, most, what in ((cells, MOST_CELLS, "cells"), (columns, MOST_COLUMNS, "columns")):
        if count > most:
            raise AffineDPError(f"{path.name} has more than {most:,} {what}, more than are read")


def write_table(frame: Any, path: Path) -> None:
    """Write a DataFrame as CSV or Parquet, at once or not at all.

    Parameters
    ----------
    frame : DataFrame
        What to write.
    path : Path
        ``.csv`` or ``.parquet``.
    """
    kind = _kind(path)
    with replacing(path) as part:
        try:
            if kind == ".csv":
                frame.to_csv(part, index=False)
            else:
                frame.to_parquet(part, index=False)
        except OSError:
            raise
        except ImportError:
            raise MissingExtraError("pyarrow", "tables") from None
        except Exception as error:  # pyarrow raises many kinds for what it cannot hold
            reason = visible(str(error)[:200])
            raise AffineDPError(f"{path} cannot be written: {reason}") from None


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
