"""Tables as people hold them: pandas of any shape, polars; and back into that shape.

Inside, a table is a pandas DataFrame whose columns are texts and whose labels are columns.  The
kind of table and its labels are public; types, and the name of the columns, are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from affinedp.domains.frames import fresh_labels, pandas_of_polars
from affinedp.errors import MissingExtraError
from affinedp.tables.description import TableDescription
from affinedp.tables.refusals import TableError, label_words, listed

Description = TypeVar("Description", bound=TableDescription)

# What pandas calls the margins of a cross-tabulation.
ALL = "All"
TOTAL_WORDS = frozenset(
    ("all", "total", "totals", "grand total", "sum", "margin", "margins", "overall", "gesamt")
)
COUNT = "count"


@dataclass(frozen=True)
class Given:
    """A table as it is worked on, and the way back.

    Attributes
    ----------
    frame : DataFrame
        Columns are texts.
    back : callable
        From a frame like it to the shape that was given.
    """

    frame: Any = field(repr=False)
    back: Callable[[Any], Any] = field(repr=False)


def given_table(description: TableDescription, table: Any) -> Given:
    """Return a table in the one shape that is worked on.

    Parameters
    ----------
    description : TableDescription
        The labels that it names may be levels of the index.
    table : DataFrame or Series of pandas, DataFrame or LazyFrame of polars
        As people hold it.
    """
    if type(table).__module__.partition(".")[0] == "polars":
        return _from_polars(description, table)
    pandas = _pandas()
    if isinstance(table, pandas.Series):
        name = COUNT if table.name is None else table.name
        inner = given_table(description, table.to_frame(name))
        return Given(inner.frame, lambda found: inner.back(found).iloc[:, 0].rename(table.name))
    if not isinstance(table, pandas.DataFrame):
        raise TableError(
            f"a table must be a DataFrame of pandas or polars, not {type(table).__name__}"
        )
    frame, ways = table, []
    labels = list(table.columns)
    names = [label if isinstance(label, str) else label_words(label) for label in labels]
    if names != labels or not isinstance(table.columns, pandas.Index) or table.columns.nlevels > 1:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TableError(f"two columns are called {twice!r}", "", twice)
        frame = frame.set_axis(names, axis=1)
    if names != labels:
        kept = _axis(pandas, table.columns)
        places = {name: place for place, name in enumerate(names)}
        ways.append(lambda found: found.set_axis(kept[[places[name] for name in found]], axis=1))
    levels = [name for name in table.index.names if isinstance(name, str)]
    if set(_labels(description)) & (set(levels) - set(names)):
        if len(levels) < table.index.nlevels:
            raise TableError("every level of the index must have a name")
        frame = frame.reset_index()
        ways.append(lambda found: found.set_index(levels))
    return Given(frame, _in_turn(ways[::-1]))


def _in_turn(ways: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def back(found: Any) -> Any:
        for way in ways:
            found = way(found)
        return found

    return back


def _axis(pandas: Any, columns: Any) -> Any:
    """The labels of the columns, without types and names around them, which nobody declared."""
    if columns.nlevels > 1:
        return pandas.MultiIndex.from_tuples(columns.tolist())
    return pandas.Index(fresh_labels(columns.tolist()))


def _from_polars(description: TableDescription, table: Any) -> Given:
    import polars

    _pandas()
    if isinstance(table, polars.LazyFrame):
        table = table.collect()
    if not isinstance(table, polars.DataFrame):
        raise TableError("a table must be a DataFrame of pandas or polars")

    def back(found: Any) -> Any:
        return polars.DataFrame({name: _polars_column(polars, found[name]) for name in found})

    return Given(pandas_of_polars(table), back)


def _polars_column(polars: Any, column: Any) -> Any:
    """Labels that polars knows: nothing in place of NaN or of no time, and all nanoseconds."""
    pandas = _pandas()
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


def _labels(description: TableDescription) -> list[str]:
    """Columns that label rows."""
    found: list[str] = []
    if isinstance(description.hierarchy, str):
        found.append(description.hierarchy)
    elif description.hierarchy is not None:
        found += description.hierarchy
    if description.margins is not None and description.margins != "public":
        found += [name for columns in description.margins for name in columns]
    return found


def with_recognised_margins(description: Description, frame: Any) -> Description:
    """Return a description in which the margins of a cross-tabulation are totals, not cells.

    ``margins="public"`` adds up all rows and columns; with an "All" row among them every sum
    would count everybody twice.

    Parameters
    ----------
    description : TableDescription
        What was said.
    frame : DataFrame
        Only its labels are looked at.
    """
    if description.margins != "public":
        return description
    rows, columns = frame.index.tolist(), [*frame.columns]
    private = [name for name in columns if name not in description.public]
    if ALL in rows and ALL in private:
        return replace(
            description,
            margins=None,
            totals={ALL: [name for name in private if name != ALL]},
            row_totals={ALL: [label for label in rows if label != ALL]},
            public=(*description.public, ALL),
            public_rows=(*description.public_rows, ALL),
        )
    told = {*description.public_rows, *description.public}
    suspects = [x for x in (*rows, *private) if str(x).strip().lower() in TOTAL_WORDS]
    suspects = [label for label in suspects if label not in told]
    if suspects:
        raise TableError(
            f"{listed(map(label_words, suspects))} looks like a margin, and margins='public' adds "
            "up all rows and columns: it would count everybody twice. Leave it out, rename it if "
            "it is a category, or describe it (totals, row_totals, public, public_rows; "
            "from_crosstab does)"
        )
    return description


def with_text_names(description: Description) -> Description:
    """Return a description whose columns are named by texts, as tables inside are.

    Parameters
    ----------
    description : TableDescription
        With labels of any kind, such as whole numbers.
    """
    changed: dict[str, Any] = {}
    if description.totals is not None:
        changed["totals"] = {_text(t): _texts(parts) for t, parts in description.totals.items()}
    for name in ("columns", "public", "cells", "adjust", "unknown"):
        value = getattr(description, name)
        if value is not None and not isinstance(value, str):
            changed[name] = tuple(_text(one) for one in value)
    if description.changes is not None:
        changed["changes"] = {_text(c): _text(x) for c, x in description.changes.items()}
    if isinstance(description.mu, Mapping):
        changed["mu"] = {_text(name): value for name, value in description.mu.items()}
    return replace(description, **changed)


def _text(label: Any) -> Any:
    return label if isinstance(label, str | list) else label_words(label)


def _texts(parts: Any) -> Any:
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        return parts
    return [_texts(part) if isinstance(part, list) else _text(part) for part in parts]


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "tables") from None
    return pandas
