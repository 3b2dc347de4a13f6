"""Tables that engines keep in parts: the noise is designed once, and rows are drawn where they are.

Only tables whose rows are data sets of their own come in parts.  A table that is one data set is
small; it is counted on the engine (:func:`affinedp.tables.count_people`) and released in one place.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from affinedp.budget.ledger import Ledger, checked_ledger
from affinedp.laws.sampler import Sampler
from affinedp.privacy.guarantee import Guarantee
from affinedp.release.engines import engine_of, publish_in_parts
from affinedp.show.page import Report
from affinedp.tables.description import TableDescription
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.many_rows import half_width_of_sum
from affinedp.tables.publishing import paying_for_table, refuse_other_count
from affinedp.tables.refusals import TableError
from affinedp.tables.table_report import table_report
from affinedp.tables.table_rows import TableRows


@dataclass(frozen=True, eq=False)
class ReleasedInParts:
    """A published table that lies in parts.  Everything here may be shown to anyone.

    Attributes
    ----------
    design : TableDesign
        The noise and the equations.
    table : DataFrame of the same engine, or Path
        The published table, read from the folder as often as it is needed; of
        :class:`~affinedp.Parts` the folder itself.
    """

    design: DesignedNoise = field(repr=False)
    table: Any

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.design.guarantee

    @property
    def noise(self) -> Any:
        """Standard deviation of the noise, by column."""
        return self.design.noise

    def half_width(self, level: float = 0.95) -> Any:
        """Return how far published numbers are from the true ones with this probability.

        Parameters
        ----------
        level : float
            For each number by itself, at least.
        """
        return self.design.half_width(level)

    def half_width_of_sum(self, rows: int, level: float = 0.95) -> Any:
        """Return how far the sum of so many published rows is from the true sum.

        Rows have noise of their own, so its variance adds up.  Exact for Gaussian noise that is not
        rounded; a bound for all other noise (Chebyshev's, which holds for every law).

        Parameters
        ----------
        rows : int
            How many rows are added up, such as those of a region; which ones they are must not
            have been chosen by their published numbers.
        level : float
            With at least this probability, for each sum by itself.

        Returns
        -------
        Series by column

        Examples
        --------
        >>> import tempfile
        >>> import polars as pl
        >>> from affinedp.tables import TableRelease
        >>> table = pl.LazyFrame({"a": [1, 2], "b": [3, 4], "c": [4, 6]})
        >>> release = TableRelease(
        ...     totals={"c": ["a", "b"]}, rows="separate", epsilon=1.0, delta=1e-6, law="gaussian"
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     out = release.release(table, into=f"{folder}/published")
        >>> float(round(out.half_width_of_sum(400)["c"] / out.half_width()["c"], 9))
        20.0
        """
        return half_width_of_sum(self.design, rows, level)

    def report(self) -> Report:
        """Return what people want to read: promise and noise."""
        return table_report(self.design, None, None)


def release_in_parts(
    design: DesignedNoise,
    table: Any,
    *,
    into: str | os.PathLike[str] | None,
    ledger: Ledger | None,
    label: str | None,
    bound: float | None,
    sampler: Sampler,
) -> ReleasedInParts:
    """Publish a table part by part; see :meth:`TableRelease.release`.

    Parameters
    ----------
    design : DesignedNoise
        The noise of one row.
    table : Dask, Spark or lazy polars DataFrame, or Parts
        The private table.
    into : str or Path or None
        A new folder that all workers share.
    ledger : Ledger or None
        Charged once, before any part is drawn.
    label : str or None
        For the ledger.
    bound : float or None
        A public bound on the numbers.
    sampler : {"bulk", "opendp"}
        Who draws.

    Returns
    -------
    ReleasedInParts
    """
    checked_ledger(ledger)
    refuse_tied_rows(design.description)
    work = TableRows(design, bound)
    work.mechanism.prepared(work.limit)  # made here, once, and sent along

    def paid(count: int) -> AbstractContextManager[None]:
        refuse_other_count(design, count)
        return paying_for_table(ledger, design, count, label)

    found = publish_in_parts(work, table, into=into, paid=paid, sampler=sampler)
    return ReleasedInParts(replace(design, bound=work.limit), found)


def refuse_tied_rows(description: TableDescription) -> None:
    """Refuse a table that is one data set: no part of it can be released by itself.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    """
    if description.ties_rows:
        raise TableError(
            "equations tie the rows of this table, so it is one data set and no part of it can be "
            "released by itself. Bring it to one place (compute(), toPandas(), collect()); of a "
            "large table of people count_people makes it on the engine"
        )


def example_of(description: TableDescription, table: Any) -> Any:
    """Return a table with the columns of one in parts, and zeros: enough to design noise.

    Parameters
    ----------
    description : TableDescription
        The number of rows is asked for where the promise is about all of them.
    table : Dask, Spark or lazy polars DataFrame, or Parts
        Its names are used.
    """
    import pandas

    refuse_tied_rows(description)
    engine, count = engine_of(table), 1
    if engine == "parts":
        answers = [(list(names), size) for names, size in table.run(_names_and_size)]
        names = next((found for found, size in answers if size), [])
        count = sum(size for _, size in answers)
    else:
        names = table.collect_schema().names() if engine == "polars" else list(table.columns)
        if description.row_mode == "composed":
            count = _count(engine, table)
    rows = max(count if description.row_mode == "composed" else 1, 1)
    return pandas.DataFrame(dict.fromkeys(names, np.zeros(rows, dtype=np.int8)), copy=False)


def _names_and_size(number: int, frame: Any) -> tuple[list[Any], int]:
    return list(frame.columns), len(frame)


def _count(engine: str | None, table: Any) -> int:
    if engine == "spark":
        return int(table.count())
    if engine == "dask":
        return len(table)
    import polars

    return int(table.select(polars.len()).collect().item())
