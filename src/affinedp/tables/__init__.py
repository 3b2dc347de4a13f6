"""Private tables: published numbers whose totals still add up.

:class:`TableRelease` says what the public knows about a table (equations between columns, a
hierarchy of rows, public margins) and what is promised; it designs the noise and releases pandas
DataFrames with it.  :func:`read_table_release` reads the same from a TOML file.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from affinedp.tables.description import TableRelease as TableRelease
    from affinedp.tables.design import TableDesign as TableDesign
    from affinedp.tables.refusals import BrokenTotal as BrokenTotal
    from affinedp.tables.refusals import BrokenTotalsError as BrokenTotalsError
    from affinedp.tables.refusals import TableError as TableError
    from affinedp.tables.released import ReleasedTable as ReleasedTable
    from affinedp.tables.row_groups import with_total_rows as with_total_rows
    from affinedp.tables.table_file import read_table_release as read_table_release

_HOME = {
    "BrokenTotal": "refusals",
    "BrokenTotalsError": "refusals",
    "ReleasedTable": "released",
    "TableDesign": "design",
    "TableError": "refusals",
    "TableRelease": "description",
    "read_table_release": "table_file",
    "with_total_rows": "row_groups",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'affinedp.tables' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"affinedp.tables.{_HOME[name]}"), name)
    globals()[name] = value
    return value
