"""Tables as people hold them: pandas of any shape, polars; and back into that shape.

Inside, a table is a pandas DataFrame whose columns are texts and whose labels are columns.  The
kind of table and its labels are public; types, and the name of the columns, are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.discovery.row_sums import TOTAL_WORDS as ONE_WORD
from affinedp.domains.reading import fresh_labels, pandas_of_polars
from affinedp.domains.text import parse_equations
from affinedp.errors import MissingExtraError
from affinedp.exact.numbers import LARGEST_WHOLE, NOT_KEPT, is_number, nearest_doubles
from affinedp.tables.describe import TableDescription
from affinedp.tables.refusals import TableError, closest, label_words, listed, row_words, same

if find_spec("pandas") is None:  # every table is one of its frames on the way
    raise MissingExtraError("pandas", "tables")

Description = TypeVar("Description", bound=TableDescription)

# What pandas calls the margins of a cross-tabulation.
ALL = "All"
# Labels that are nothing else than the name of a total.
TOTAL_WORDS = ONE_WORD | {
    "grand total", "total général", "total general", "totale generale", "all persons", "all people",
}  # fmt: skip
COUNT = "count"


@dataclass(frozen=True)
class Given:
    """A table as it is worked on, and the way back."""

    frame: Any = field(repr=False)
    back: Callable[[Any], Any] = field(repr=False)


def given_table(table: Any, labels: Sequence[str] = ()) -> Given:
    """Return a table in the one shape that is worked on, with these labels as columns."""
    if type(table).__module__.partition(".")[0] == "polars":
        return _from_polars(table)
    import pandas

    if isinstance(table, pandas.Series):
        name = COUNT if table.name is None else table.name
        inner = given_table(table.to_frame(name), labels)
        return Given(inner.frame, lambda found: inner.back(found).iloc[:, 0].rename(table.name))
    if not isinstance(table, pandas.DataFrame):
        raise TableError(
            f"a table must be a DataFrame of pandas or polars, not {type(table).__name__}"
        )
    frame, ways = table, []
    own = list(table.columns)
    names = [label if isinstance(label, str) else label_words(label) for label in own]
    if names != own:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            kinds = [type(label).__name__ for label, name in zip(own, names) if name == twice]
            which = f", as {listed(kinds)}" if len(set(kinds)) > 1 else ""
            raise TableError(f"two columns are called {twice!r}{which}", "", twice)
        frame = frame.set_axis(pandas.Index(names, name=table.columns.name), axis=1)
        kept = _axis(pandas, table.columns)
        places = {name: place for place, name in enumerate(names)}
        ways.append(lambda found: found.set_axis(kept[[places[name] for name in found]], axis=1))
    levels = [name for name in table.index.names if isinstance(name, str)]
    if set(labels) & (set(levels) - set(names)):
        if len(levels) < table.index.nlevels:
            raise TableError("every level of the index must have a name")
        frame = frame.reset_index()
        ways.append(lambda found: found.set_index(levels))
    return Given(frame, lambda found: reduce(lambda made, way: way(made), ways[::-1], found))


def _axis(pandas: Any, columns: Any) -> Any:
    """The labels of the columns, without types and names around them, which nobody declared."""
    if columns.nlevels > 1:
        return pandas.MultiIndex.from_tuples(columns.tolist())
    return pandas.Index(fresh_labels(columns.tolist()))


def _from_polars(table: Any) -> Given:
    import polars

    if isinstance(table, polars.LazyFrame):
        table = table.collect()
    if not isinstance(table, polars.DataFrame):
        raise TableError("a table must be a DataFrame of pandas or polars")

    return Given(pandas_of_polars(table), polars_of)


def polars_of(found: Any) -> Any:
    """Return a DataFrame of pandas as one of polars."""
    import polars

    return polars.DataFrame({name: _polars_column(polars, found[name]) for name in found})


def _polars_column(polars: Any, column: Any) -> Any:
    """Labels that polars knows: nothing in place of NaN or of no time, and all nanoseconds."""
    import pandas

    values = [None if _is_missing(pandas, value) else value for value in column.tolist()]
    found = polars.Series(values)
    present = [value for value in values if value is not None]
    if not any(getattr(value, "nanoseconds", getattr(value, "nanosecond", 0)) for value in present):
        return found
    # polars reads them as Python's times, which have microseconds
    steps = [None if value is None else value.value for value in values]
    kind = polars.Datetime if isinstance(present[0], pandas.Timestamp) else polars.Duration
    whole = polars.Series(steps, dtype=polars.Int64).cast(kind("ns"))
    zone = getattr(found.dtype, "time_zone", None)
    return whole if zone is None else whole.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def _is_missing(pandas: Any, value: Any) -> bool:
    return value is pandas.NaT or (isinstance(value, float) and value != value)


def with_recognised_margins(description: Description, frame: Any) -> Description:
    """Return a description in which the margins of a cross-tabulation are totals, not cells.

    ``margins="public"`` adds up all rows and columns; with an "All" row among them every sum
    would count everybody twice.
    """
    if description.margins != "public":
        return description
    rows = {label_words(label): label for label in frame.index.tolist()}
    private = [name for name in frame.columns if name not in description.public]
    if ALL in rows and ALL in private:
        return replace(
            description,
            margins=None,
            totals={ALL: [name for name in private if name != ALL]},
            row_totals={rows[ALL]: [label for words, label in rows.items() if words != ALL]},
            public=(*description.public, ALL),
            public_rows=(*description.public_rows, rows[ALL]),
        )
    told = {*map(label_words, description.public_rows), *description.public}
    suspects = [x for x in (*rows, *private) if x.strip().lower() in TOTAL_WORDS]
    suspects = [label for label in suspects if label not in told]
    if suspects:
        raise TableError(
            f"{listed(map(label_words, suspects))} looks like a margin, and margins='public' adds "
            "up all rows and columns: it would count everybody twice. Leave it out, rename it if "
            "it is a category, or describe it (totals, row_totals, public, public_rows; "
            "from_crosstab does)"
        )
    return description


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are."""

    private: tuple[str, ...]
    known: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def numbers(self) -> frozenset[str]:
        """The columns that must hold numbers."""
        return frozenset((*self.private, *self.known))


def roles_of(description: TableDescription, table: Any) -> Roles:
    """Return what each column is, or refuse a table whose columns do not fit the description."""
    columns = _sound_columns(table)
    mentioned = _found(_mentioned(description), columns, "the equations name")
    public = _found(description.public, columns, "public names")
    labels = _found(description.label_columns, columns, "the description names")
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
    """The column names of a table that has rows, each once."""
    names = list(table.columns)
    if not names or len(table) == 0:
        raise TableError(f"the table has no {'rows' if names else 'columns'}")
    if "" in names:
        raise TableError("a column has no name: rename it")
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
    """Return every (total, parts) pair, also where a column is the total of several splits."""
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
    """Return the columns as floats, one row per row, or refuse what is no sound number."""
    values = np.full((len(table), len(columns)), np.nan)
    for place, name in enumerate(columns):
        read = np.ones(len(table), bool) if not_read is None else ~not_read[:, place]
        if read.any():
            values[read, place] = _numbers(table, name, np.flatnonzero(read), not_read is not None)
    return values


def _numbers(table: Any, name: str, rows: IntArray, unknown: bool) -> FloatArray:
    column = table[name].iloc[rows]
    index = table.index[rows] if len(rows) < len(table) else table.index

    def refusal(bad: Any, what: str, way_out: str = "") -> TableError:
        row = row_words(index, int(np.argmax(bad)))
        times = int(bad.sum())
        count = "once" if times == 1 else f"{times:,} times"
        return TableError(f"{row}: {name!r} {what} ({count} in this column){way_out}", row, name)

    missing = np.asarray(column.isna())
    if missing.any():
        more = ", or name the column in unknown if its equations determine it" if unknown else ""
        raise refusal(
            missing,
            "is missing",
            f". Fill it in (with 0 where nobody is counted), drop the row{more}",
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
