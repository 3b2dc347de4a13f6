"""Data files of the command line: CSV, Parquet and Excel, columns by name and nothing else."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from affinedp.arrays import EPS, FloatArray
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.exact.numbers import NOT_KEPT, is_number, says_decimal
from affinedp.files.values import check_names, visible
from affinedp.files.writing import replacing
from affinedp.intervals import ROUNDED

IN_MANY_FILES = (
    "A table in many files is released in Python: read it with dask.dataframe.read_parquet or "
    "polars.scan_parquet, and give release(table, into=…); docs/howto/cluster.md shows how"
)

# A path, or what it holds from its beginning.
Source = Callable[[], Any]

MOST_BYTES = 2_000_000_000
# Of an Excel file, whose texts are all held at once.
MOST_UNPACKED = 1_000_000_000
# A cell of text takes a hundred bytes, a column some thousand.
MOST_CELLS = 20_000_000
MOST_COLUMNS = 100_000
# Numbers of so few characters have at most 15 digits, which every double keeps.
SHORT = 15
SAVE_AS = "save it as such (spreadsheets call it CSV UTF-8)"
ONE_HEADER = "a header of several rows is written as one, as in '2026 / women'"
# Kinds of data files, with the package that reads and writes each.
NEEDED = {".csv": "pandas", ".parquet": "pyarrow", ".xlsx": "openpyxl"}


def read_table(
    path: Path,
    *,
    long_numbers: Literal["refuse", "text"] = "refuse",
    content: bytes | None = None,
    most_columns: int = MOST_COLUMNS,
) -> Any:
    """Read a CSV, Parquet or Excel file into a DataFrame, or refuse it with one clear sentence.

    Only columns are read: no index, attributes or other notes that a writer left in the file.
    Numbers of a CSV file that double precision would change are refused, or left as the texts that
    stand there (``long_numbers``).  With ``content`` the file is in memory, and the path a name.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "tables") from None
    if content is None:
        _refuse_folder(path)
    kind = _kind(path)

    def source() -> Any:
        return path if content is None else io.BytesIO(content)

    try:
        if (path.stat().st_size if content is None else len(content)) > MOST_BYTES:
            raise AffineDPError(f"{path.name} is too large")
        if content is None and not path.is_file():
            raise AffineDPError(f"{path} is not a file")
        if kind == ".xlsx":
            frame = _read_excel(path, source, most_columns)
        elif kind == ".csv":
            with path.open("rb") if content is None else io.BytesIO(content) as file:
                _check_size(path, *_csv_size(path, file), most_columns)
                file.seek(0)
                _check_separator(path, file)
            frame = _read_csv(pandas, path, source, long_numbers)
        else:
            _check_size(path, *_parquet_size(path, source), most_columns)
            frame = _read_parquet(source)
    except OSError as error:
        raise AffineDPError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise AffineDPError(f"{path.name} is not text in UTF-8: {SAVE_AS}") from None
    except ImportError:
        raise MissingExtraError(NEEDED[kind], "tables") from None
    except AffineDPError:
        raise
    except MemoryError:  # a few bytes may stand for many
        raise AffineDPError(f"{path.name} needs more memory than there is to be read") from None
    except pandas.errors.EmptyDataError:
        raise AffineDPError(f"{path.name} is empty") from None
    except (pandas.errors.ParserError, pandas.errors.ParserWarning) as error:
        reason = visible(str(error).splitlines()[0][:200])  # lines and counts, no values
        raise AffineDPError(f"{path.name} is not a valid csv file: {reason}") from None
    except Exception as error:  # pyarrow raises many kinds, and may quote what it read
        reason = type(error).__name__
        raise AffineDPError(f"{path.name} is not a valid {kind[1:]} file ({reason})") from None
    check_names(frame.columns, path.name)
    return frame


def _read_csv(pandas: Any, path: Path, source: Source, long_numbers: str) -> Any:
    def read(**options: Any) -> Any:
        return pandas.read_csv(source(), skipinitialspace=True, **options)

    def written(places: list[int]) -> Any:
        """Columns as they stand there."""
        told = {"keep_default_na": False, "na_values": [""]}
        return read(index_col=False, usecols=places, dtype=str, **told)

    with warnings.catch_warnings():
        # rows longer than the header: pandas would drop what is too much
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        table = read(float_precision="round_trip", index_col=False)
        header = read(header=None, nrows=1, dtype=str)
        names = header.iloc[0].dropna()
        if names.duplicated().any():  # pandas would give the second one another name
            twice = visible(str(names[names.duplicated()].iloc[0]))
            raise AffineDPError(
                f"{path.name} has two columns with the name {twice!r}; {ONE_HEADER}"
            )
        # texts such as NA, None or nan are labels (Namibia, for one): only nothing is missing
        labels = [
            place
            for place, kind in enumerate(table.dtypes)
            if kind.kind not in "iufb" or table.iloc[:, place].isna().all()
        ]
        if labels:
            texts = written(labels)
            for place, name in zip(labels, texts.columns):
                if texts[name].notna().any():
                    _check_separators_of_digits(path, name, texts[name].dropna())
                    table.isetitem(place, texts[name].astype(object))
        places = [i for i, kind in enumerate(table.dtypes) if kind.kind == "f"]
        if places:
            texts = written(places)
            for name, row in _changed(table.iloc[:, places], texts):
                if long_numbers == "refuse":
                    raise AffineDPError(
                        f"{path.name}: row {row} (counting from 0), column {name!r} {NOT_KEPT}: "
                        "round it, or choose a larger unit"
                    )
                table[name] = texts[name]
    return table


def _check_separator(path: Path, file: BinaryIO) -> None:
    """Refuse a header without commas that other signs separate."""
    header = file.read(1 << 20).lstrip(b"\r\n").partition(b"\n")[0]
    for sign, name in ((b";", "semicolons"), (b"\t", "tabs")):
        if sign in header and b"," not in header:
            raise AffineDPError(
                f"{path.name}, line 1: its columns are separated by {name}. Save it with commas "
                "between columns, and with a point in decimals"
            )


def _check_separators_of_digits(path: Path, name: str, texts: Any) -> None:
    """Refuse a column of numbers of which some are written as 1,234 or 1 234."""
    spelled = texts.str.strip()
    grouped = spelled.str.fullmatch(_GROUPED)
    if grouped.any() and (grouped | spelled.str.fullmatch(_PLAIN)).all():
        row = int(texts.index[int(np.argmax(grouped.to_numpy()))])
        raise AffineDPError(
            f"{path.name}: column {name!r}, row {row} (counting from 0) has a separator of "
            "thousands, or a comma for the point of a decimal: write 1234.5, not 1,234.5 or 1234,5"
        )


_PLAIN = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_GROUPED = r"[+-]?(\d{1,3}([ ,'’_\u00a0\u202f]\d{3})+(\.\d*)?|\d+,\d+)"


def _changed(table: Any, texts: Any) -> Iterator[tuple[str, int]]:
    """Columns with numbers that became other numbers when they were read, and a row of each."""
    for name in table.columns:
        column = texts[name].fillna("").str.strip()
        doubtful = (column.str.len() > SHORT) | column.str.contains("e", case=False)
        for row in np.flatnonzero(doubtful & table[name].notna()):
            if not _kept(float(table[name].iat[row]), column.iat[row]):
                yield name, int(row)
                break


def _kept(double: float, text: str) -> bool:
    try:
        return says_decimal(double, Decimal(text))
    except InvalidOperation:
        return True  # no plain decimal: infinity in words, which is refused later


def _read_parquet(source: Source) -> Any:
    from pyarrow import parquet

    columns = parquet.read_table(source()).replace_schema_metadata(None)
    # integers with gaps stay integers
    return columns.to_pandas(integer_object_nulls=True)


def _read_excel(path: Path, source: Source, most_columns: int) -> Any:
    """The first sheet: names in the first row, numbers and texts as they stand there."""
    import pandas
    from openpyxl import load_workbook

    _check_unpacked(path.name, source())
    book = load_workbook(source(), read_only=True, data_only=True)
    try:
        sheet = book.worksheets[0]
        columns = sheet.max_column or 0
        _check_size(path, (sheet.max_row or 0) * columns, columns, most_columns)
        rows, cells = [], 0
        for row in sheet.iter_rows(values_only=True):
            rows.append(list(row))
            cells += len(row)
            # a sheet need not say its size, or say it rightly
            _check_size(path, cells, len(row), most_columns)
    finally:
        book.close()
    while rows and all(value is None for value in rows[-1]):
        rows.pop()
    # years are numbers there
    names = [str(name) if is_number(name) else name for name in rows[0]] if rows else []
    if not names or any(not isinstance(name, str) for name in names):
        raise AffineDPError(
            f"{path.name}: the first row of the first sheet must hold names; {ONE_HEADER}"
        )
    if len(set(names)) < len(names):
        raise AffineDPError(f"{path.name} has two columns with the same name; {ONE_HEADER}")
    held = {name: [row[place] for row in rows[1:]] for place, name in enumerate(names)}
    return pandas.DataFrame(held, columns=list(names))


def _check_unpacked(name: str, source: Any) -> None:
    """Refuse an Excel file that is small only while it is packed."""
    with zipfile.ZipFile(source) as packed:
        if sum(part.file_size for part in packed.infolist()) > MOST_UNPACKED:
            raise AffineDPError(f"{name} is too large when unpacked")


def _csv_size(path: Path, file: BinaryIO) -> tuple[int, int]:
    """Cells and columns that a file may have at most: every one ends in a comma or a line."""
    cells, columns, in_header = 0, 0, True
    while block := file.read(1 << 20):
        if b"\0" in block:  # pandas would drop what follows in the cell
            raise AffineDPError(f"{path.name} is not text in UTF-8 (it has a zero byte): {SAVE_AS}")
        cells += sum(map(block.count, (b",", b"\n", b"\r")))
        if in_header:
            first, end, _ = block.lstrip(b"\r\n").partition(b"\n")
            columns += first.count(b",")
            in_header = not end
    return cells, columns + 1


def _parquet_size(path: Path, source: Source) -> tuple[int, int]:
    """What the file says about itself: a few bytes may stand for many rows."""
    from pyarrow import parquet

    about = parquet.read_metadata(source())
    unpacked = sum(about.row_group(place).total_byte_size for place in range(about.num_row_groups))
    if unpacked > MOST_BYTES:
        raise AffineDPError(f"{path.name} is too large when unpacked")
    return about.num_rows * about.num_columns, about.num_columns


def _check_size(path: Path, cells: int, columns: int, most_columns: int) -> None:
    for count, most, what in ((cells, MOST_CELLS, "cells"), (columns, most_columns, "columns")):
        if count > most:
            raise AffineDPError(f"{path.name} has more than {most:,} {what}, more than are read")


def with_ends(frame: Any, ends: Mapping[Any, tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the columns of a frame, with the ends of intervals beside those that have some.

    Examples
    --------
    >>> import pandas as pd
    >>> list(with_ends(pd.DataFrame({"town": ["x"], "n": [3]}), {"n": ([1], [5])}))
    ['town', 'n', 'n_lower', 'n_upper']
    """
    columns: dict[Any, Any] = {}
    for name in frame:
        columns[name] = frame[name].array
        for which, end in zip(("_lower", "_upper"), ends.get(name, ())):
            beside = f"{name}{which}"
            while beside in frame:
                beside += "_"
            columns[beside] = end
    return columns


def reach_of(mechanism: Any, bound: float | None = None) -> FloatArray | None:
    """Return how far outputs may be off, 95 times in 100; None for noise of which that is unknown.

    Noise is symmetric, so this is known before anything is charged.
    """
    try:
        zeros = np.zeros(len(mechanism.output_names))
        return np.asarray(mechanism.interval(zeros, bound=bound).high)
    except AffineDPError:
        return None


def as_published(
    mechanism: Any, published: Any, reach: FloatArray | None, among: Any = None
) -> Any:
    """Return what a file holds of a release: outputs with their intervals, among other columns.

    What is whole is written as 29 and not 29.0: what the mechanism is known for, never what numbers
    happen to be.
    """
    from pandas import DataFrame

    whole = mechanism.publishes_whole_numbers

    def exact(numbers: Any) -> Any:
        fits = whole and (np.abs(numbers) < 2.0**63).all()
        return numbers.astype(np.int64) if fits else numbers

    numbers = {name: published[name].to_numpy() for name in published}
    ends = {}
    for name, far in zip(mechanism.output_names, () if reach is None else reach):
        width = far + ROUNDED * EPS * np.abs(numbers[name])
        low, high = numbers[name] - width, numbers[name] + width
        if whole:  # and so is what is true
            low, high = np.ceil(low), np.floor(high)
        ends[name] = exact(low), exact(high)
    columns = {name: exact(one) for name, one in numbers.items()}
    table = DataFrame(columns) if among is None else among.assign(**columns)
    return DataFrame(with_ends(table, ends))


def write_table(frame: Any, path: Path) -> None:
    """Write the columns of a DataFrame as CSV, Parquet or Excel, at once or not at all.

    Nothing else is written: no index, no attributes, no notes of pandas in a Parquet file.
    """
    _kind(path)
    with replacing(path) as part:
        _write(frame, path, part)


def _write(frame: Any, path: Path, file: Path | io.BytesIO) -> None:
    """Write columns into a file, in the format that the path says."""
    kind = _kind(path)
    try:
        if kind == ".csv":
            frame.to_csv(file, index=False)
        elif kind == ".xlsx":
            _write_excel(frame, file)
        else:
            _write_parquet(frame, file)
    except OSError:
        raise
    except ImportError:
        raise MissingExtraError(NEEDED[kind], "tables") from None
    except Exception as error:  # pyarrow raises many kinds for what it cannot hold
        reason = visible(str(error)[:200])
        raise AffineDPError(f"{path} cannot be written: {reason}") from None


def _write_excel(frame: Any, file: Path | io.BytesIO) -> None:
    """Texts as texts: one that begins with = would be a formula, which is run and not shown."""
    from pandas import ExcelWriter

    with ExcelWriter(file, engine="openpyxl") as writer:
        frame.to_excel(writer, index=False)
        for row in writer.book.active.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    cell.data_type = "s"


def _write_parquet(frame: Any, file: Path | io.BytesIO) -> None:
    from pyarrow import Table, parquet

    columns = Table.from_pandas(frame, preserve_index=False)
    parquet.write_table(columns.replace_schema_metadata(None), file)


def check_writable(path: Path, *, page: bool = False) -> None:
    """Refuse a place where no table, or page, can be written, before anything is charged."""
    if page and path.suffix.lower() == ".pdf":
        raise AffineDPError(f"{path}: a report is an HTML page, which prints: name it .html")
    if not page and find_spec(NEEDED[_kind(path)]) is None:
        raise MissingExtraError(NEEDED[_kind(path)], "tables")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a file"
        raise AffineDPError(f"{path} cannot be written: it is {what}")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise AffineDPError(f"{path} cannot be written: no such folder, or no permission")


def check_labels(frame: Any, path: Path) -> None:
    """Refuse labels that this kind of file cannot hold, before anything is charged.

    They are written into memory; columns of numbers alone are not.
    """
    labels = [
        name
        for name, kind in frame.dtypes.items()
        if kind.kind not in "iuf" and not all(map(is_number, frame[name].dropna().tolist()))
    ]
    _write(frame[labels], path, io.BytesIO())


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise AffineDPError(
            f"{path} is a folder, and only single files are read here. {IN_MANY_FILES}"
        )


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in NEEDED:
        raise AffineDPError(f"{path.name}: data files end in .csv, .parquet or .xlsx")
    return kind
