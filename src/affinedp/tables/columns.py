"""What a table must be before anything is read from it: columns by role, and sound numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.text import parse_equations
from affinedp.errors import MissingExtraError
from affinedp.exact.numbers import LARGEST_WHOLE, NOT_KEPT, is_number, nearest_doubles
from affinedp.tables.description import TableDescription
from affinedp.tables.refusals import TableError, closest, listed, row_words, same


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are.

    Attributes
    ----------
    private : tuple of str
        They get noise.
    known : tuple of str
        Public columns of numbers that occur in equations.
    labels : tuple of str
        Public columns that are copied.
    """

    private: tuple[str, ...]
    known: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def numbers(self) -> frozenset[str]:
        """The columns that must hold numbers."""
        return frozenset((*self.private, *self.known))


def roles_of(description: TableDescription, table: Any) -> Roles:
    """Return what each column is, or refuse a table whose columns do not fit the description.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    table : DataFrame
        Only its shape and names are looked at.
    """
    columns = _sound_columns(table)
    mentioned = _found(_mentioned(description), columns, "the equations name")
    public = _found(description.public, columns, "public names")
    labels = _found(_label_columns(description), columns, "the description names")
    if description.columns is not None:
        private = _found(description.columns, columns, "columns names")
    elif description.ties_rows:
        private = [name for name in columns if name not in {*public, *labels}]
    else:
        private = [name for name in mentioned if name not in public]
    both = [name for name in private if name in {*public, *labels}]
    if both:
        raise TableError(f"column {both[0]!r} is declared both private and public", "", both[0])
    unclear = [name for name in columns if name not in {*private, *public, *labels}]
    if unclear:
        raise TableError(
            f"nothing says what to do with column {listed(unclear)}: name it in public (published "
            "as it is), in columns (protected), or drop it. If the public knows an equation "
            "about it, give that equation",
            "",
            unclear[0],
        )
    if not private:
        raise TableError("no column is private: there is nothing to protect")
    known = [name for name in mentioned if name in public]
    return Roles(
        private=tuple(name for name in columns if name in private),
        known=tuple(name for name in columns if name in known),
        labels=tuple(name for name in columns if name in {*public, *labels} - {*known}),
    )


def _sound_columns(table: Any) -> list[str]:
    """The column names of a DataFrame that has rows, and names that are texts, each once."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "tables") from None
    if not isinstance(table, pandas.DataFrame):
        raise TableError(f"a table must be a pandas DataFrame, not {type(table).__name__}")
    if table.shape[1] == 0:
        raise TableError("the table has no columns")
    if len(table) == 0:
        raise TableError("the table has no rows: there is nothing to release")
    names = list(table.columns)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TableError(
                f"the column name {name!r} is not a text: rename it, for example with "
                "table.rename(columns=str)"
            )
    spelled = [same(name) for name in names]
    twice = [name for name in names if spelled.count(same(name)) > 1]
    if twice:
        raise TableError(f"the column {twice[0]!r} occurs twice in the table", "", twice[0])
    return names


def _mentioned(description: TableDescription) -> list[str]:
    """Columns that occur in equations between columns."""
    found = list(parse_equations(list(description.equations or [])).names)
    for total, splits in split_totals(description.totals or {}):
        found += [total, *splits]
    for change, level in (description.changes or {}).items():
        found += [change, level]
    return list(dict.fromkeys(found))


def split_totals(totals: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Return every (total, parts) pair, also where a column is the total of several splits.

    Examples
    --------
    >>> split_totals({"all": [["women", "men"], ["young", "old"]]})
    [('all', ('women', 'men')), ('all', ('young', 'old'))]
    """
    pairs = []
    for total, value in totals.items():
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise TableError(f"totals: {total!r} must be given as a list of columns")
        nested = not isinstance(value[0], str)
        for parts in value if nested else [value]:
            valid = isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts)
            if isinstance(parts, str) or not valid or not parts:
                raise TableError(f"totals: {total!r} must be given as a list of columns")
            if len(set(parts)) < len(parts) or total in parts:
                raise TableError(
                    f"totals: {total!r} must be the sum of other columns, each named once"
                )
            pairs.append((total, tuple(parts)))
    return pairs


def _label_columns(description: TableDescription) -> list[str]:
    """Columns that say which rows belong together."""
    found: list[str] = []
    if isinstance(description.hierarchy, str):
        found.append(description.hierarchy)
    elif description.hierarchy is not None:
        found += description.hierarchy
    if description.margins is not None and description.margins != "public":
        found += [name for columns in description.margins for name in columns]
    return list(dict.fromkeys(found))


def _found(names: Iterable[str], columns: list[str], who: str) -> list[str]:
    """The table's own spelling of names, each of which must be there."""
    spelling = {same(column): column for column in columns}
    wanted = list(names)
    named = {same(name) for name in wanted if isinstance(name, str)}
    found = []
    for name in wanted:
        if not isinstance(name, str) or same(name) not in spelling:
            raise TableError(
                f"{who} {name!r}, but the table has no such column"
                # a column that was named is not what was meant by another name
                f"{closest(name, [column for column in columns if same(column) not in named])}",
                "",
                str(name),
            )
        found.append(spelling[same(name)])
    return found


def numbers_of(
    table: Any, columns: Sequence[str], not_read: NDArray[np.bool_] | None = None
) -> FloatArray:
    """Return the columns as floats, one row per row, or refuse what is no sound number.

    Parameters
    ----------
    table : DataFrame
        With the columns.
    columns : sequence of str
        Which, in this order.
    not_read : array of bool, shape (rows, columns), optional
        Numbers that do not matter; they come back as NaN.
    """
    values = np.full((len(table), len(columns)), np.nan)
    for place, name in enumerate(columns):
        read = np.ones(len(table), bool) if not_read is None else ~not_read[:, place]
        if read.any():
            values[read, place] = _numbers(table, name, np.flatnonzero(read))
    return values


def _numbers(table: Any, name: str, rows: IntArray) -> FloatArray:
    column = table[name].iloc[rows]
    index = table.index[rows] if len(rows) < len(table) else table.index

    def refusal(bad: Any, what: str, way_out: str = "") -> TableError:
        row = row_words(index, int(np.argmax(bad)))
        times = int(bad.sum())
        count = "once" if times == 1 else f"{times:,} times"
        return TableError(f"{row}: {name!r} {what} ({count} in this column){way_out}", row, name)

    missing = np.asarray(column.isna())
    if missing.any():
        raise refusal(
            missing,
            "is missing",
            ". Fill it in, drop the row, or name the column in unknown if its equations determine "
            "it",
        )
    values, changed = nearest_doubles(_as_given(column, index, name))
    if changed.any():
        raise refusal(changed, NOT_KEPT, ". Round it, or publish it in larger units")
    infinite = ~np.isfinite(values)
    if infinite.any():
        raise refusal(infinite, "is infinite")
    large = np.abs(values) > LARGEST_WHOLE
    if large.any():
        raise refusal(
            large,
            "is beyond 2^53, where double precision is not exact",
            ". Publish it in larger units",
        )
    return values


def _as_given(column: Any, index: Any, name: str) -> NDArray[Any]:
    """The numbers of a column in a type that changes none of them, or a refusal."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "iuf":
        plain = isinstance(column.dtype, np.dtype)
        return np.asarray(column.to_numpy(dtype=None if plain else f"{kind}8"))
    row, found = "", ""
    if kind == "O":
        items = np.asarray(column.to_numpy(dtype=object))
        place = next((i for i, item in enumerate(items) if not is_number(item)), None)
        if place is None:
            return items
        row = row_words(index, place)
        item = items[place]
        kind = "text" if isinstance(item, str) else f"a value of type {type(item).__name__}"
        found = f": {row} holds {kind}"
    what = "" if kind == "O" or found else f" but {column.dtype}"
    raise TableError(
        f"column {name!r} does not hold numbers{what}{found}. Correct it, or name it in public if "
        "it is a label",
        row,
        name,
    )
