"""Data files of the command line: CSV and Parquet, columns by name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError, MissingExtraError

MOST_BYTES = 4_000_000_000


def read_table(path: Path) -> Any:
    """Read a CSV or Parquet file into a DataFrame, or refuse it with one clear sentence.

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
            return pandas.read_csv(path, skipinitialspace=True, float_precision="round_trip")
        return pandas.read_parquet(path)
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
        raise AffineDPError(f"{path.name} is not a valid {kind[1:]} file: {reason}") from None


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
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        os.close(handle)
        if kind == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)
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
