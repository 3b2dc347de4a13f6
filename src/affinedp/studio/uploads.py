"""Files that a user hands to the page: held in memory, their numbers read only when asked."""

from __future__ import annotations

import csv
import io
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.files.data import check_unpacked
from affinedp.files.values import check_names

MOST_BYTES = 50_000_000
MOST_HELD = 4
MOST_COLUMNS = 2_000
KINDS = (".csv", ".parquet", ".xlsx")
# A header longer than this is none.
LONGEST_HEADER = 2_000_000


@dataclass(frozen=True)
class Held:
    """A file in memory."""

    name: str
    content: bytes


class Shelf:
    """The files that are held, the newest few; they are gone when the studio stops."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes) -> str:
        """Hold a file, and return what it is called here."""
        number = secrets.token_urlsafe(9)
        with self._lock:
            self._held[number] = Held(name, content)
            while len(self._held) > MOST_HELD:
                self._held.popitem(last=False)
        return number

    def get(self, number: str) -> Held:
        """Return a file, or say that it is no longer here."""
        with self._lock:
            found = self._held.get(number)
        if found is None:
            raise AffineDPError("the file is no longer held: choose it again")
        return found

    def drop(self, number: str) -> None:
        """Forget a file."""
        with self._lock:
            self._held.pop(number, None)


def checked_kind(name: str) -> str:
    """Return the ending of a file name, or refuse it."""
    kind = Path(name).suffix.lower()
    if kind not in KINDS:
        raise AffineDPError("choose a file that ends in .csv, .parquet or .xlsx")
    return kind


def peek(held: Held) -> dict[str, Any]:
    """Return the columns and the size of a file; its numbers are not read.

    >>> found = peek(Held("t.csv", b"women,men,all\\n1,2,3\\n4,5,9\\n"))
    >>> found["columns"], found["rows"]
    (['women', 'men', 'all'], 2)
    """
    kind = checked_kind(held.name)
    try:
        if kind == ".csv":
            columns, rows = _csv_outline(held.content)
        elif kind == ".parquet":
            columns, rows = _parquet_outline(held.content)
        else:
            check_unpacked(held.name, io.BytesIO(held.content))
            columns, rows = _excel_outline(held.content)
    except AffineDPError:
        raise
    except ImportError:
        raise MissingExtraError("pyarrow and openpyxl", "tables") from None
    except Exception as error:  # readers raise many kinds, and may quote what they read
        reason = type(error).__name__
        raise AffineDPError(f"this is not a valid {kind[1:]} file ({reason})") from None
    if not columns:
        raise AffineDPError("the file has no columns")
    if len(columns) > MOST_COLUMNS:
        raise AffineDPError(
            f"{len(columns):,} columns are more than the page can show (at most {MOST_COLUMNS:,}): "
            "use affinedp discover on the command line"
        )
    check_names(columns, "the file")
    return {"columns": columns, "rows": rows, "bytes": len(held.content)}


def _csv_outline(content: bytes) -> tuple[list[str], int]:
    header, _, rest = content.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").partition(b"\n")
    if len(header) > LONGEST_HEADER:
        raise AffineDPError("the first line is too long to be the names of columns")
    try:
        (columns,) = csv.reader([header.decode("utf-8").rstrip("\r")], skipinitialspace=True)
    except UnicodeDecodeError:
        raise AffineDPError("the file is not text in UTF-8") from None
    rows = rest.count(b"\n") + bool(rest.rsplit(b"\n", 1)[-1].strip())
    return [name.strip() for name in columns], rows


def _parquet_outline(content: bytes) -> tuple[list[str], int]:
    from pyarrow import parquet

    about = parquet.read_metadata(io.BytesIO(content))
    return list(about.schema.to_arrow_schema().names), about.num_rows


def _excel_outline(content: bytes) -> tuple[list[str], int]:
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    try:
        sheet = book.worksheets[0]
        if (sheet.max_column or 0) > MOST_COLUMNS:
            return [""] * sheet.max_column, 0
        names = next(sheet.iter_rows(max_row=1, values_only=True), ())
        rows = max((sheet.max_row or 1) - 1, 0)
    finally:
        book.close()
    while names and names[-1] is None:
        names = names[:-1]
    return [str(name) for name in names], rows
