"""Margins of many attributes, in many places: what is promised, and people to count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import IntArray
from affinedp.budget.ledger import Ledger
from affinedp.designs.margins import design_margins
from affinedp.designs.places import design_tree_margins
from affinedp.domains.crossed import MOST_PEOPLE, MOST_RECORDS, counts_of_records
from affinedp.errors import AffineDPError
from affinedp.intervals import checked_level
from affinedp.release.engines import engine_of
from affinedp.show.page import Report
from affinedp.strategies.places import OfPlaces
from affinedp.tables.engine_counts import COUNTED, counted_on_engine
from affinedp.tables.frames import given_table
from affinedp.tables.margin_description import DesignedMargins, MarginDescription
from affinedp.tables.margin_records import (
    counted_times,
    first_rows,
    label_codes,
    place_numbers,
    records_of,
    with_index_columns,
)
from affinedp.tables.margin_report import margin_report
from affinedp.tables.places import ANY, Places
from affinedp.tables.refusals import TableError
from affinedp.tables.released_margins import ReleasedMarginTables

# Numbers that the tables of all places may hold, with 32 bits each.
MOST_CELLS = 2_000_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginRelease(MarginDescription):
    """Cross-tabulations of some attributes at a time, all consistent with each other.

    The table of all attributes may have more cells than can be listed: it is never formed.  With
    ``places`` every table is made for every place of a hierarchy, too: geography × age × sex.

    Parameters
    ----------
    attributes : mapping
        From every attribute to its labels, at least two.  They are published, so they must not
        come from the data.
    margins : str, int or sequence of sequences of str
        ``"<=3"`` for all tables of up to three attributes, ``3`` for exactly three, or their
        names.
    epsilon, delta : float
        The promise; δ = 0 asks for Laplace noise.
    hierarchy : sequence of str, optional
        The columns that say where a person is, from the top to the bottom (state, county, tract);
        all columns of ``places`` by default.
    places : DataFrame of pandas or polars, optional
        All places there are, one row for each at the bottom.  They are published.
    law : {"gaussian", "laplace"}, optional
        Law of the noise; the better one by default.
    neighbours : {"person", "replace", "swaps"}
        One person joins or leaves; one person has other labels (the number of people is public);
        two people exchange labels (every table of one attribute is public and exact).
    household : int
        How many people may differ at once.
    at_most : int, optional
        How many rows a person has at most; 1 by default.
    releases : int
        How many releases about the same people are planned, such as twelve months.  The noise is
        for one of them, and all together keep (ε, δ); 1 by default.
    weights : mapping or "levels", optional
        What squared error costs by level of places (``"everywhere"`` is the top; 1 if not named),
        or the same for every level as a whole.
    goal : {"sum", "largest"}
        Least sum of squared errors, or least largest variance of a cell.
    round_to : 1, optional
        Publish whole numbers.
    nonnegative : bool
        Publish whole numbers of at least 0.  It moves small cells up and large ones down;
        ``unrounded`` keeps the unbiased estimates.

    Examples
    --------
    >>> import pandas as pd
    >>> labels = {"sex": ["f", "m"], "age": ["young", "old"], "works": ["no", "yes"]}
    >>> people = pd.DataFrame({"sex": ["f", "m"], "age": ["old", "old"], "works": ["no", "yes"]})
    >>> out = MarginRelease(attributes=labels, margins="<=2", epsilon=1.0).release(people)
    >>> both, one = out.margin("sex", "age"), out.margin("sex")
    >>> bool(abs(both.groupby("sex")["count"].sum() - one.set_index("sex")["count"]).max() < 1e-9)
    True

    For every ward and city:

    >>> wards = pd.DataFrame({"city": ["A", "A", "B"], "ward": ["A1", "A2", "B1"]})
    >>> release = MarginRelease(
    ...     attributes={"sex": ["f", "m"]}, places=wards, epsilon=1.0, nonnegative=True
    ... )
    >>> out = release.release(people.assign(city=["A", "B"], ward=["A2", "B1"]))
    >>> out.margin("sex", at="city")[["city", "sex"]].values.tolist()
    [['A', 'f'], ['A', 'm'], ['B', 'f'], ['B', 'm']]
    """

    def design(self) -> MarginDesign:
        """Design the noise; no data is needed."""
        chosen: Any = self.margins
        if not isinstance(chosen, str | int):
            chosen = [self.numbers_of(names) for names in chosen]
        law: Any = self.law or "auto"
        sizes = [len(list(labels)) for labels in self.attributes.values()]
        if self.tree is None:
            mechanism: Any = design_margins(
                sizes,
                chosen,
                epsilon=self.epsilon,
                delta=self.delta,
                neighbours=self.neighbours,
                household=self.household,
                at_most=self.at_most,
                goal=self.goal,
                law=law,
                releases=self.releases,
            )
        else:
            leaves = int((self.tree.depth == len(self.tree.levels)).sum())
            if leaves * math.prod(sizes) > MOST_CELLS:
                raise AffineDPError(
                    f"{leaves:,} places × {math.prod(sizes):,} cells are too many for memory: "
                    "leave out an attribute, or group its labels"
                )
            neighbours: Any = self.neighbours
            mechanism = design_tree_margins(
                self.tree.parent,
                sizes,
                chosen,
                epsilon=self.epsilon,
                delta=self.delta,
                neighbours=neighbours,
                household=self.household,
                at_most=self.at_most,
                node_weights=self.node_weights(),
                law=law,
                releases=self.releases,
            )
        return MarginDesign(self, mechanism)

    def release(
        self,
        people: Any,
        *,
        count: str | None = None,
        person: str | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> ReleasedMarginTables:
        """Publish the margins of a table of people.

        Parameters
        ----------
        people : DataFrame of pandas or polars
            One row per person, or one per cell with a column of counts.  People in tables of Dask
            and Spark, and in lazy ones of polars, are counted where they are.
        count : str, optional
            The column of counts.
        person : str, optional
            The column that says whose row it is: only ``at_most`` rows of everybody are counted,
            the first ones of a table in memory, and where a table is counted on an engine or
            lazy, which keep no order, the first ones in the order of their labels.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.

        Returns
        -------
        ReleasedMarginTables
        """
        return self.design().release(people, count=count, person=person, ledger=ledger, label=label)


@dataclass(frozen=True, eq=False)
class MarginDesign(DesignedMargins):
    """Noise for margins, with what it promises.

    Attributes
    ----------
    description : MarginRelease
        What was asked for.
    mechanism : Mechanism
        The noise.
    """

    def margins(self) -> Any:
        """Return every margin with its number of cells and its noise, before anything is spent.

        Returns
        -------
        DataFrame
            Columns ``margin``, ``cells`` and ``noise`` (standard deviation of a cell; with places,
            the root mean square over those at the bottom).
        """
        import pandas

        rows = []
        for chosen in self.wanted:
            squares = self.variances(chosen)
            if self.description.tree is not None:
                squares = squares[self.description.tree.nodes(self.description.levels[-1])]
            noise = math.sqrt(float(squares.mean()))
            rows.append((self.description.words(chosen), self.cells(chosen), noise))
        return pandas.DataFrame(rows, columns=["margin", "cells", "noise"])

    def levels(self, level: float = 0.95) -> Any:
        """Return how accurate every table will be at every level, before anything is spent.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        DataFrame
            By level of places and margin: how many numbers, root mean square noise, the half
            width of a single interval, and of intervals for all these numbers at once.
        """
        return self.accuracy(checked_level(level))

    def report(self) -> Report:
        """Return what people want to read, compared with standard practice."""
        return margin_report(self)

    def release(
        self,
        people: Any,
        *,
        count: str | None = None,
        person: str | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> ReleasedMarginTables:
        """Publish; see :meth:`MarginRelease.release`.

        Parameters
        ----------
        people : DataFrame of pandas or polars
            One row per person, or one per cell with a column of counts.
        count : str, optional
            The column of counts.
        person : str, optional
            The column that says whose row it is.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        asked = self.description
        if count is not None and person is not None:
            raise TableError("give count for cells, or person for people: not both")
        frame, count, back = _read(asked, people, count, person)
        times = None if count is None else counted_times(frame, count)
        most = MOST_RECORDS if times is None else MOST_PEOPLE
        # all that can be refused is refused before the charge
        if asked.tree is None:
            records = records_of(frame, asked.attributes)
            counts: Any = counts_of_records(records, self.sizes, times)
        else:
            counts = _tables(frame, asked, asked.tree, times)
            if counts.dtype == np.int64 and not self._holds(most):
                raise TableError(
                    "a cell counts more than 2**31 - 1 people, which tables of this size do not "
                    "hold: leave out an attribute, or group its labels"
                )
        released = self.mechanism.release(counts, bound=float(most), ledger=ledger, label=label)
        return ReleasedMarginTables(self, released, back)

    def _holds(self, most: int) -> bool:
        """Whether tables of so many people can be released without any overflow."""
        return not isinstance(self.strategy, OfPlaces) or self.strategy.holds(most)


def _read(
    asked: MarginDescription, people: Any, count: str | None, person: str | None
) -> tuple[Any, str | None, Any]:
    """The people that are counted, or counts; the column of counts; the way back for polars."""
    most = asked.at_most or 1
    engine = engine_of(people)
    if engine in ("dask", "spark") and count is not None:
        raise TableError(
            "counts of cells are read in one place: bring them there (compute(), toPandas())"
        )
    if engine not in ("dask", "spark", "polars") or count is not None:
        given = given_table(ANY, people)
        polars = type(people).__module__.startswith("polars")
        frame = with_index_columns(given.frame)
        if person is not None:
            frame = first_rows(frame, person, most)
        return frame, count, given.back if polars else None
    return *_counted(asked, people, person, most), _back_to_polars() if engine == "polars" else None


def _counted(
    asked: MarginDescription, people: Any, person: str | None, most: int
) -> tuple[Any, str]:
    """Counts from an engine, where the labels of people decide which of their rows are counted.

    Such a table has no order of its own.  If the order in which its rows arrive decided, the rows
    of one person could move those of all others.
    """
    import pandas

    lazy = engine_of(people) == "polars"
    own = people.collect_schema().names() if lazy else list(people.columns)
    names = [*(name for name in asked.levels if name in own), *asked.attributes]
    found = counted_on_engine(people, names, person, None if person is None else most)
    frame = pandas.DataFrame(list(found), columns=names)
    return frame.assign(**{COUNTED: list(found.values())}), COUNTED


def _back_to_polars() -> Any:
    import polars

    return given_table(ANY, polars.DataFrame()).back


def _tables(frame: Any, asked: MarginDescription, places: Places, times: IntArray | None) -> Any:
    """The table of all attributes at every place at the bottom, in 32 bits if they do."""
    sizes = [len(list(labels)) for labels in asked.attributes.values()]
    key = place_numbers(frame, places)
    leaves = len(places.nodes(places.levels[-1]))
    for (name, labels), size in zip(asked.attributes.items(), sizes):
        key = key * size + label_codes(frame, name, labels, "attributes")
    cells = leaves * math.prod(sizes)
    each = None if times is None else times.astype(float)
    counts = np.bincount(key, each, minlength=cells)
    # cut off, they would no longer be the counts; and whoever moves would change their sum
    kind = np.int32 if counts.max(initial=0) <= np.iinfo(np.int32).max else np.int64
    return counts.astype(kind).reshape(leaves, *sizes)
