"""What people say about a table, the noise that is designed for it, and what is published.

All work is done in the modules below.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger, checked_ledger, paying
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.reading import engine_of, fresh_frame, held, in_parts
from affinedp.errors import AffineDPError
from affinedp.files.data import with_ends
from affinedp.functions.published import FunctionInterval
from affinedp.intervals import checked_level
from affinedp.laws.base import LawName
from affinedp.laws.calibration import gaussian_delta, gaussian_epsilon, gaussian_sensitivity
from affinedp.laws.sampler import Sampler
from affinedp.privacy.guarantee import Asked, Guarantee, compose
from affinedp.release.engines import publish_in_parts
from affinedp.show.page import FOLDED_OUTPUTS, Report
from affinedp.show.report import headline
from affinedp.tables.describe import TableDescription
from affinedp.tables.design import design_for_targets, design_table
from affinedp.tables.frames import Given, given_table, with_recognised_margins
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.least_noise import grown
from affinedp.tables.noise import DesignedNoise, level_summary
from affinedp.tables.people import row_manifold
from affinedp.tables.publish import Published, TableRows, paying_for_table, refuse_rows
from affinedp.tables.reading import broken_totals, read_points
from affinedp.tables.refusals import TableError
from affinedp.tables.report import (
    GRAND_TOTAL,
    ROUNDED,
    draw_bars,
    published_numbers,
    table_report,
    table_title,
    units_of,
    whole_frames,
)
from affinedp.tables.table_functions import table_function

# Shares of the budget are rounded down by this, so that all together stay within it.
SPARE = 1e-9
CORRECTED = (
    "Functions are computed from the numbers before they were rounded or made non-negative, less "
    "the bias that noise gives them: they differ from what the numbers of this table give, most "
    "where these are as small as their noise."
)


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """A published table.  Everything here may be shown to anyone.

    Attributes
    ----------
    design : TableDesign
        The noise and the equations.
    table : DataFrame of the same kind, or Path
        The published table: index and columns of the private one; numbers with noise.  One in parts
        is read from its folder as often as it is needed; of :class:`~affinedp.Parts` it is the
        folder itself.
    published : Published or None
        What was drawn, in the shape in which it is worked on; None for a table in parts.
    back : callable or None
        From that shape to the one of the private table.
    """

    design: DesignedNoise = field(repr=False)
    table: Any
    published: Published | None = field(default=None, repr=False)
    back: Callable[[Any], Any] | None = field(default=None, repr=False)

    @property
    def here(self) -> Published:
        """What was drawn; refused for a table in parts, which is not looked at as a whole."""
        if self.published is None:
            raise TableError(
                "this table lies in parts, which are not looked at as a whole: half_width and "
                "half_width_of_sum say how far its numbers are off"
            )
        return self.published

    @cached_property
    def unrounded(self) -> Any:
        """The private columns before they were rounded or made non-negative: unbiased."""
        return self._shaped(self.here.unrounded)

    def _shaped(self, numbers: Any) -> Any:
        """Numbers by private column with the labels that the published table has."""
        table = self.table
        if not type(table).__module__.startswith("pandas"):
            return numbers if self.back is None else self.back(numbers)
        labelled = numbers.set_axis(table.index, axis=0)
        if table.ndim == 1:
            return labelled.iloc[:, 0].rename(table.name)
        inside = [name for name in self.here.table if name not in table.index.names]
        places = [inside.index(name) for name in numbers]
        return labelled.set_axis(table.columns[places], axis=1)

    @property
    def public(self) -> FloatArray:
        """Public numbers in the equations, also sums that no cell holds; one row per data set."""
        return self.here.public

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.design.guarantee

    @property
    def noise(self) -> Any:
        """Standard deviation of the noise: a Series by column, or a DataFrame by cell."""
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
        return self.design.half_width_of_sum(rows, level)

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Any, Any]:
        """Return lower and upper ends of confidence intervals for the true numbers.

        They are around the numbers before rounding, which are as private: rounding adds nothing.
        Where the table has no negative numbers, they are cut at 0; where it counts people, they
        are whole numbers; where it adds up values and ``round_to`` asks for whole numbers, ends are
        rounded outwards to them.

        Parameters
        ----------
        level : float
            The probability with which each interval by itself holds the true number, at least.
        simultaneous : bool
            Whether all intervals of the table hold at once with it.

        Returns
        -------
        pair of tables
            With the labels of the table and its private columns.
        """
        lower, upper = self._ends(level, simultaneous)
        return self._shaped(lower), self._shaped(upper)

    def _ends(self, level: float, simultaneous: bool) -> tuple[Any, Any]:
        """The ends of intervals, in the shape in which the table is worked on."""
        plain, layout = self.here.unrounded, self.design.layout
        level = checked_level(level)
        if simultaneous:
            sets = 1 if layout.row_names is not None else len(plain)
            numbers = sets * len(layout.private)
            level = 1 - self.design.mechanism.noise.each(1 - level, numbers)
        width = self.design.half_width(level, rounded=False)
        if layout.row_names is not None:
            # numbers that are public are known: their intervals have no width
            width = width.set_axis(plain.index).fillna(0.0)
        lower, upper = plain - width, plain + width
        if self.design.description.nonnegative:
            lower, upper = lower.clip(lower=0.0), upper.clip(lower=0.0)
        step = self.design.description.round_to if self.design.description.has_values else None
        if self.design.whole or (step is not None and float(step).is_integer()):
            return whole_frames(lower, upper, known=self.design.whole)
        return lower, upper

    def function(self, f: Any, *, level: float = 0.95, certified: bool = False) -> FunctionInterval:
        """Return a function of published numbers, such as a share, with an interval.

        Names are those of columns, and the function is then computed row by row, from the numbers
        before rounding; or those of cells of a table that is one data set: ``column[row]``, or the
        row alone where the table has one column.  Public numbers may be named too.

        Parameters
        ----------
        f : callable or str
            Such as ``"women / all"``; see :meth:`affinedp.Mechanism.function`.
        level : float
            With which probability each interval by itself holds the true value.
        certified : bool
            See :meth:`affinedp.Mechanism.function`.

        Returns
        -------
        FunctionInterval
            One value per row, or one.
        """
        return table_function(self.design, self.here, f, level, certified)

    def levels(self, level: float = 0.95) -> Any:
        """Return how accurate every level of the published table is.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        DataFrame
            As for :meth:`TableDesign.levels`, with the median half width relative to the number,
            and the share of numbers that are farther from 0 than their half width.
        """
        return level_summary(self.design, level, self.here.unrounded)

    def report(self, level: float = 0.95, functions: Sequence[str] = ()) -> Report:
        """Return what people want to read: published numbers, promise, noise, whether totals fit.

        Parameters
        ----------
        level : float
            Of the intervals.
        functions : sequence of str
            Functions of columns, such as ``"women / all"``: each is a further column.
        """
        published = self.published
        made = table_report(self.design, published)
        if published is None:
            return made
        low, high = self._ends(level, simultaneous=False)
        table, ends = published.table, {name: (low[name], high[name]) for name in low}
        bars, known, units = table, dict(ends), units_of(self.design)
        notes = [CORRECTED] if functions else []
        if any(kind.kind == "f" for kind in low.dtypes):
            notes.insert(0, ROUNDED)
        for text in functions:
            found = self.function(text, level=level)
            if np.shape(found.value) != (len(table),):
                raise TableError(f"{text!r} names cells: a report takes functions of columns")
            table = table.assign(**{text: np.where(found.known, found.value, np.nan)})
            ends[text] = tuple(low[[]].assign(end=end)["end"] for end in found)
        return replace(
            made,
            published=published_numbers(
                table,
                ends,
                level,
                FOLDED_OUTPUTS,
                unlabelled=GRAND_TOTAL if self.design.description.hierarchy else "",
                note=" ".join(notes),
            ),
            picture=lambda: draw_bars(bars, known, level, units),
        )

    def with_intervals(self, level: float = 0.95) -> Any:
        """Return the table with the ends of intervals beside every private column.

        Parameters
        ----------
        level : float
            With which probability each interval by itself holds the true number, at least.

        Returns
        -------
        DataFrame
            With ``n``, ``n_lower`` and ``n_upper`` for a private column ``n``: what a file holds.

        Examples
        --------
        >>> import pandas as pd
        >>> from affinedp.tables import TableRelease
        >>> counts = pd.DataFrame({"women": [30, 41], "men": [70, 44], "all": [100, 85]})
        >>> out = TableRelease(totals={"all": ["women", "men"]}, epsilon=1.0).release(counts)
        >>> list(out.with_intervals())[:3]
        ['women', 'women_lower', 'women_upper']
        """
        table = self.here.table
        low, high = self._ends(level, simultaneous=False)
        columns = with_ends(table, {name: (low[name].array, high[name].array) for name in low})
        for name in low if self.design.whole else ():
            if low[name].dtype == np.int64:
                columns[name] = table[name].to_numpy(dtype=np.int64)  # as its ends
        made = fresh_frame(columns, table.index)
        polars = not type(self.table).__module__.startswith("pandas")
        return self.back(made) if polars and self.back is not None else made


@dataclass(frozen=True, eq=False, repr=False)
class TableDesign(DesignedNoise):
    """Noise for tables of one shape, with what it promises.

    Nothing in it depends on private numbers.
    """

    def report(self) -> Report:
        """Return what people want to read, compared with standard practice."""
        return table_report(self)

    def __repr__(self) -> str:
        return f"<TableDesign: {table_title(self)}. {headline(self.guarantee)}>"

    def __str__(self) -> str:
        return str(self.report())

    def ready(
        self, table: Any, *, bound: float | None = None, sampler: Sampler = "bulk"
    ) -> ReadyTable:
        """Refuse a table that cannot be released with this noise; nothing is charged or drawn.

        Parameters
        ----------
        table : DataFrame
            The private table.
        bound : float, optional
            A public bound on the size of the numbers.
        sampler : {"bulk", "opendp"}
            Who draws.

        Returns
        -------
        ReadyTable
            Draws it.
        """
        return self._ready(given_table(table, self.description.label_columns), None, bound, sampler)

    def _ready(
        self, given: Given, points: FloatArray | None, bound: float | None, sampler: Sampler
    ) -> ReadyTable:
        """The same for a table in the shape that is worked on, whose numbers may have been read."""
        rows = TableRows(self, bound, sampler)
        ready = rows.ready(given.frame, points)
        known = replace(self, bound=rows.limit)
        return ReadyTable(known, len(given.frame), lambda: rows.drawn(ready), given.back)

    def levels(self, level: float = 0.95) -> Any:
        """Return how accurate every level of the table will be, before anything is spent.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        DataFrame
            By level: how many numbers, root mean square noise, the largest half width of a
            single interval, and of intervals that hold for all numbers of the level at once.
            They are around ``unrounded``, and around whole numbers that may be negative.
        """
        return level_summary(self, level)

    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        into: str | os.PathLike[str] | None = None,
        sampler: Sampler = "bulk",
    ) -> ReleasedTable:
        """Publish a table of this shape; see :meth:`TableRelease.release`.

        Parameters
        ----------
        table : DataFrame
            The private table.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        bound : float, optional
            A public bound on the size of the numbers.
        into : str or Path, optional
            For tables in parts: a new folder that all workers share.
        sampler : {"bulk", "opendp"}
            Who draws.

        Returns
        -------
        ReleasedTable
        """
        checked_ledger(ledger)
        if in_parts(table, into):
            _refuse_tied_rows(self.description)
            work = TableRows(self, bound)
            work.mechanism.prepared(work.limit)  # made here, once, and sent along
            found = publish_in_parts(
                work, table, into=into, sampler=sampler,
                paid=lambda count: paying_for_table(ledger, self, count, label),
            )  # fmt: skip
            return ReleasedTable(replace(self, bound=work.limit), found)
        return self.ready(table, bound=bound, sampler=sampler).paid(ledger, label)


@dataclass(frozen=True, eq=False)
class ReadyTable:
    """A private table in which all that can be refused was looked for."""

    design: TableDesign
    count: int
    drawn: Callable[[], Published] = field(repr=False)
    back: Callable[[Any], Any] = field(repr=False)

    def paid(self, ledger: Ledger | None, label: str | None) -> ReleasedTable:
        """Charge a ledger, then draw."""
        with paying_for_table(ledger, self.design, self.count, label):
            return self.draw()

    def draw(self) -> ReleasedTable:
        """Return the table with noise, after it was charged."""
        found = self.drawn()
        return ReleasedTable(self.design, self.back(found.table), found, self.back)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRelease(TableDescription):
    """A table that obeys known equations, and the promise with which it is to be published.

    Say every equation that the public knows: one that is left out is not covered.  Every column
    is either private (noise is added) or named in ``public`` (published as it is); so is the
    index, with the number and the order of rows, which are always public.

    What the promise means depends on ``rows``:

    * ``"separate"``: each row is a data set of its own; tables are neighbours if they differ in
      one row.  (ε, δ) holds for each row, and a ledger is charged once.  Right for rows about
      different people.
    * ``"composed"``: every row may be about the same people; neighbours may differ in all rows.
      (ε, δ) holds for the whole table of that many rows, and a ledger is charged for each row.
    * ``"together"``: the table is one data set, because equations tie its rows (hierarchies,
      ``row_totals``, ``changes``, ``margins``).  Neighbours differ by one move within the table.

    Parameters
    ----------
    epsilon : float
        ε of the promise.
    delta : float
        δ of the promise; 0 for Laplace noise.
    law : {"gaussian", "laplace"}, optional
        Law of the noise.  By default the best one, K-norm, staircase and geometric noise among
        them: what keeps ε keeps (ε, δ) too.
    mu : float or mapping
        How much one person counts for: one number, or one per private column.  Where columns add
        up values of people's rows (:func:`count_people`), the bounds of a value, as in
        ``{"count": (1, 1), "income": (0, 200_000)}``: a person then has one row, or ``at_most``,
        and all columns of it move together.
    equations : sequence of str, optional
        Linear equations between the columns of a row, as in ``"net = inn - out"``.  They do not
        say in which of the numbers a person is counted: name those in ``cells``, or give sums as
        ``totals``.
    totals : mapping, optional
        From a column to the columns that it is the sum of (or to several lists of them).
    hierarchy : str or sequence of str, optional
        Rows that are sums of rows: the column that holds the label of a row's parent, or the
        level columns of a long table from the top to the bottom.
    row_totals : mapping, optional
        From a row label to the labels of the rows that it is the sum of.
    changes : mapping, optional
        From a column to the column whose change since the row above it is.
    margins : "public" or sequence of sequences of str, optional
        A cross-tabulation whose margins are public: every row sum and column sum of the private
        columns, or the sums of a long table by each of these sets of label columns.  The sums
        stay as they are and are not protected.
    columns : sequence of str, optional
        The private columns.  By default those in equations, and all that are not public where
        equations tie rows.
    public : sequence of str
        Columns that are published as they are; they may occur in equations.
    public_rows : sequence
        Labels of rows that are published as they are (``rows="together"`` only).
    impossible : sequence of mappings
        Combinations of labels that nobody can have, as in ``[{"age": "0-9", "married": "yes"}]``
        (a list or range stands for each of its labels; :func:`dependency` makes them of ``city`` →
        ``state``): by label columns, the names of the index, and the name of the columns (in a
        table from a file they have none: the one name that labels no rows is theirs).  These
        cells, and totals of nothing else, are public and exactly 0.
    by_chance : sequence
        Columns and rows that are the sum of others in this table by chance.  A table with such a
        sum is refused before any charge unless it is said, here or in ``totals`` and
        ``row_totals``, since whoever is counted in a part would be counted in the sum too.
    rows : {"separate", "composed", "together"}, optional
        See above; by default together if equations tie the rows, separate otherwise.  A ledger is
        not charged for several rows unless this is said, or equations tie them.
    adjacency : {"person", "replace", "swaps", "circuits"}
        One person more or less, counted once in one cell of each part of the table that equations
        tie together; one person counted in another cell (the number of people is public); two
        people who exchange places under public margins; Definition 4 of the paper.  What is
        public stays the same: below public totals a person is counted in another cell.
    household : int
        How many people may differ at once.
    at_most : int, optional
        In how many cells of the whole table a person is counted at most.
    releases : int
        How many releases about the same people are planned, such as twelve months.  The noise is
        for one of them, and all together keep (ε, δ); 1 by default.
    cells : sequence of str, optional
        For equations that are no totals: the columns in which a person is counted, which
        determine all others.
    weights : mapping or "levels", optional
        What squared error costs in each private column, or in each row (1 if not named); or the
        same for every level of the table as a whole.  If nothing is said it is 1, and where columns
        have a μ each, 1/μ²: people and incomes count in their own units.
    adjust : sequence of str, or "totals"
        Columns (or all totals) that are changed to fit where they are off by rounding.
    within : float, optional
        How far off counts as rounding; needed for ``adjust``.
    unknown : sequence of str, or "totals"
        Columns (or all totals) whose recorded numbers are not read but computed from the others.
    round_to : float, optional
        Publish multiples of this number that still obey the equations: 1 for whole numbers.
    nonnegative : bool
        Publish no negative numbers: the nearest table without them that obeys the equations.  It
        moves small cells up and large ones down; ``unrounded`` keeps the unbiased estimates.
    whole : bool, optional
        Whether the private numbers are whole.  Noise for whole numbers is whole and less, and its
        promise is about whole neighbours; a table with decimals is refused then.  By default yes,
        if people are counted: with a whole ``mu``, any neighbours but ``"circuits"``, and neither
        ``law`` nor ``adjust`` nor ``unknown``.
    index : str or sequence of str
        What the labels of rows are called: the columns of a file that hold them, for
        :meth:`toml`.  A DataFrame has them as its index.

    Examples
    --------
    >>> import pandas as pd
    >>> from affinedp.tables import TableRelease
    >>> counts = pd.DataFrame({"women": [30, 41], "men": [70, 44], "all": [100, 85]})
    >>> totals = {"all": ["women", "men"]}
    >>> release = TableRelease(totals=totals, epsilon=1.0, delta=1e-6, round_to=1)
    >>> out = release.release(counts)
    >>> bool((out.table["all"] == out.table["women"] + out.table["men"]).all())
    True
    >>> out.table.dtypes.astype(str).tolist(), out.guarantee.holds(1.0, 1e-6)
    (['int64', 'int64', 'int64'], True)
    """

    def design(self, table: Any, *, check_against: Any = None) -> TableDesign:
        """Design the noise for tables with these rows and columns.

        Only what is public is used: the index, the columns' names, label columns and public
        columns.  The result releases this table and others of the same shape.

        Parameters
        ----------
        table : DataFrame
            The table, or one like it; of Dask, Spark and :class:`~affinedp.Parts` only the names
            of the columns are read, and how many rows there are where that matters.
        check_against : DataFrame, optional
            A private table: if it obeys equations within a row that were not given, a
            :class:`~affinedp.errors.AffineDPWarning` says so.  Nothing
            else depends on it.

        Returns
        -------
        TableDesign
        """
        if in_parts(table, None):
            table = _example_of(self, table)
        description, given = _prepared(self, table)
        found = self._designed(description, layout_of(description, given.frame), len(given.frame))
        _warn_of_forgotten(found, check_against)
        return found

    def design_for(self, table: Any, targets: Mapping[Any, float]) -> TableDesign:
        """Design Gaussian noise with the least budget that reaches an accuracy in every level.

        The ε that was given is not used; that of the result is the least for these targets.

        Parameters
        ----------
        table : DataFrame
            The table, or one like it: one tree of totals.
        targets : mapping
            Root mean square noise that a level may have at most, by its name in the hierarchy,
            ``"grand total"``, or its number from 0.

        Returns
        -------
        TableDesign

        Examples
        --------
        >>> import pandas as pd
        >>> from affinedp.tables import TableRelease, with_total_rows
        >>> cells = pd.DataFrame({"city": ["A", "A", "B"], "ward": ["1", "2", "1"], "n": [5, 6, 7]})
        >>> table = with_total_rows(cells, ["city", "ward"], ["n"])
        >>> release = TableRelease(hierarchy=["city", "ward"], epsilon=1.0, delta=1e-6)
        >>> design = release.design_for(table, {"grand total": 5.0, "ward": 10.0})
        >>> bool(design.levels().loc["ward", "noise"] <= 10.01), design.description.epsilon > 0
        (True, True)
        """
        description, given = _prepared(self, table)
        layout = layout_of(description, given.frame)
        return _as_design(design_for_targets(description, layout, targets))

    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        check_against: Any = None,
        into: str | os.PathLike[str] | None = None,
        sampler: Sampler = "bulk",
    ) -> ReleasedTable:
        """Publish a table: design the noise, check the table, charge, draw.

        A table that is malformed, incomplete or breaks its equations is refused; nothing is
        charged or drawn then.

        Parameters
        ----------
        table : DataFrame
            The private table, of pandas or polars; or of Dask, Spark, lazy polars or
            :class:`~affinedp.Parts`, whose rows are released where they are.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        bound : float, optional
            A public bound on the size of the numbers.  If given, neighbours whose records are off
            by the rounding of double precision (decimals such as 0.1) are covered too.
        check_against : DataFrame, optional
            As for :meth:`design`; the table itself will do.
        into : str or Path, optional
            For tables in parts: a new folder that all workers share, where each part is written
            once.
        sampler : {"bulk", "opendp"}
            Who draws: affinedp's own sampler, or OpenDP's, which is the reference and slower.

        Returns
        -------
        ReleasedTable
        """
        if in_parts(table, into):
            design = self.design(table, check_against=check_against)
            return design.release(
                table, ledger=ledger, label=label, bound=bound, into=into, sampler=sampler
            )
        checked_ledger(ledger)
        # what is checked is what is released, whatever becomes of the sources of a lazy table
        once = held(table)
        description, given = _prepared(self, once)
        layout = layout_of(description, given.frame)
        # an unsound table is refused at once, not after seconds of design
        points = read_points(description, layout, given.frame, bound)
        design = self._designed(description, layout, len(given.frame))
        _warn_of_forgotten(design, once if check_against is table else check_against)
        return design._ready(given, points, bound, sampler).paid(ledger, label)

    def _designed(self, description: TableRelease, layout: Layout, rows: int) -> TableDesign:
        """The design for a table that was laid out: the last one, if it is for such tables."""
        asked = repr(description)  # in words, which nobody changes afterwards
        found = self._last.get(asked)
        composed = description.row_mode == "composed"
        if found is None or found.layout.differs(layout) or (composed and found.releases != rows):
            found = _as_design(design_table(description, layout, rows))
            self._last.clear()
            self._last[asked] = found
        return replace(found, layout=layout)

    @cached_property
    def _last(self) -> dict[str, TableDesign]:
        """The last design, by what was asked for."""
        return {}

    def check(self, table: Any) -> Any:
        """Return every broken equation as a DataFrame (row, equation, off); empty if none is.

        What it shows is private: it is for whoever holds the data.

        Parameters
        ----------
        table : DataFrame
            The private table.

        Examples
        --------
        >>> import pandas as pd
        >>> from affinedp.tables import TableRelease
        >>> release = TableRelease(totals={"all": ["a", "b"]}, epsilon=1.0)
        >>> release.check(pd.DataFrame({"all": [3, 9], "a": [1, 4], "b": [2, 4]}))
                               row     equation  off
        0  row 1 (counting from 0)  all = a + b  1.0
        """
        description, given = _prepared(self, table)
        return broken_totals(description, given.frame)

    @staticmethod
    def together(
        releases: Sequence[TableRelease], *, epsilon: float | None = None, delta: float = 0.0
    ) -> SeveralTables:
        """Return one release of several tables about the same people.

        Sensitivities add up, as √(Σ s²) for Gaussian and Σ ε for Laplace noise.  Tables that
        share totals are better released as one: :class:`~affinedp.tables.MarginRelease`.

        Parameters
        ----------
        releases : sequence of TableRelease
            With the same neighbours and household.
        epsilon, delta : float, optional
            The promise of all tables together, shared out to the least squared error, with the law
            that they ask for, if any; if left out, every table keeps the promise that it has, and
            they add up.

        Returns
        -------
        SeveralTables

        Examples
        --------
        >>> import pandas as pd
        >>> from affinedp.tables import TableRelease
        >>> sexes = pd.DataFrame({"women": [30], "men": [70], "all": [100]})
        >>> wards = pd.DataFrame({"north": [60], "south": [40], "all": [100]})
        >>> first = TableRelease(totals={"all": ["women", "men"]}, epsilon=1.0)
        >>> second = TableRelease(totals={"all": ["north", "south"]}, epsilon=1.0)
        >>> both = TableRelease.together([first, second], epsilon=1.0)
        >>> both.design([sexes, wards]).guarantee.holds(1.0)
        True
        """
        return SeveralTables(tuple(releases), epsilon, delta)


def _as_design(found: DesignedNoise) -> TableDesign:
    return TableDesign(**{one.name: getattr(found, one.name) for one in fields(found)})


def _warn_of_forgotten(design: TableDesign, check_against: Any) -> None:
    """Warn of equations between columns that a private table obeys and nobody gave."""
    if check_against is not None:
        columns = row_manifold(design.description, design.layout.columns)
        private = given_table(check_against, design.description.label_columns).frame
        warn_of_forgotten(columns, private)


def _prepared(release: TableRelease, table: Any) -> tuple[TableRelease, Given]:
    """The description with the margins of this table, and the table as it is worked on."""
    given = given_table(table, release.label_columns)
    return with_recognised_margins(release, given.frame), given


# ---------------------------------------------------------------------- several tables


@dataclass(frozen=True, eq=False)
class SeveralTables:
    """Tables about the same people, released with independent noise under one promise.

    Attributes
    ----------
    releases : tuple of TableRelease
        The tables; their own ε and δ count only where ``epsilon`` is None.
    epsilon, delta : float or None
        The promise of all tables together.
    """

    releases: tuple[TableRelease, ...]
    epsilon: float | None = None
    delta: float = 0.0

    def __post_init__(self) -> None:
        given = self.releases
        if len(given) < 2 or any(not isinstance(one, TableRelease) for one in given):
            raise AffineDPError("together takes at least two TableReleases")
        if len({(one.adjacency, one.household) for one in given}) > 1:
            raise AffineDPError(
                "one promise is about one kind of neighbours: give all tables the same neighbours "
                "and household"
            )
        if any(one.releases > 1 for one in given):
            raise AffineDPError(
                "releases is for a table by itself: leave it out, and give together the ε and δ of "
                "one time (a ledger adds up what follows)"
            )
        if given[0].adjacency == "circuits":
            raise AffineDPError(
                "Definition 4 does not say what one person is in several tables: use "
                "adjacency='person'"
            )
        if self.epsilon is not None and len(self._asked) > 1:
            raise AffineDPError("a promise is shared out with one law: give all tables the same")
        if self.epsilon is not None and "gaussian" in self._asked and not self.delta > 0:
            raise AffineDPError("Gaussian noise needs δ > 0: give delta, or leave law out")

    @property
    def _asked(self) -> set[LawName]:
        """The laws that tables ask for."""
        return {one.law for one in self.releases if one.law is not None}

    def design(self, tables: Sequence[Any]) -> SeveralDesigns:
        """Design the noise of all tables, the budget shared out to the least squared error.

        Parameters
        ----------
        tables : sequence of DataFrames
            One per release, in their order; only what is public in them is used.

        Returns
        -------
        SeveralDesigns
        """
        if len(tables) != len(self.releases):
            raise TableError(f"there are {len(self.releases)} releases, but {len(tables)} tables")
        if self.epsilon is None:
            designs = (one.design(table) for one, table in zip(self.releases, tables))
            return SeveralDesigns(tuple(designs))
        laws: tuple[LawName, ...] = ("gaussian", "laplace") if self.delta > 0 else ("laplace",)
        found = [self._shared_out(tables, law) for law in laws if self._asked <= {law}]
        return min(found, key=lambda designs: designs.cost)

    def release(
        self,
        tables: Sequence[Any],
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> tuple[ReleasedTable, ...]:
        """Publish all tables.

        Parameters
        ----------
        tables : sequence of DataFrames
            One per release, in their order.
        ledger : Ledger, optional
            Charged once, for all tables together, before anything is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        tables = [held(table) for table in tables]  # computed once
        return self.design(tables).release(tables, ledger=ledger, label=label)

    def _shared_out(self, tables: Sequence[Any], law: LawName) -> SeveralDesigns:
        """One promise for all tables, shared out to the least squared error."""
        assert self.epsilon is not None
        delta = self.delta if law == "gaussian" else 0.0
        # at δ = 0 the best pure law, whichever it is, if none is asked for
        own: LawName | None = law if law == "gaussian" or self._asked else None
        whole = [replace(one, epsilon=self.epsilon, delta=delta, law=own) for one in self.releases]
        costs = [one.design(table).weighted_error for one, table in zip(whole, tables)]
        gaussian = law == "gaussian"
        limit = float(gaussian_sensitivity(self.epsilon, delta)) if gaussian else self.epsilon
        shares = (limit / grown(costs, law) * (1 - SPARE)).tolist()
        budgets = [_pair(delta, share) if gaussian else (share, 0.0) for share in shares]
        designs = tuple(
            replace(one, epsilon=epsilon, delta=part).design(table)
            for one, (epsilon, part), table in zip(whole, budgets, tables)
        )
        found = SeveralDesigns(designs, Asked(self.epsilon, self.delta))
        if not found.guarantee.holds(self.epsilon, self.delta):
            raise AffineDPError("the budget could not be shared out: choose a larger ε or δ")
        return found


@dataclass(frozen=True, eq=False)
class SeveralDesigns:
    """The noise of several tables, and what they promise together.

    Attributes
    ----------
    designs : tuple of TableDesign
        One per table.
    asked : Asked or None
        What was asked for all of them together.
    """

    designs: tuple[TableDesign, ...] = field(repr=False)
    asked: Asked | None = None

    @property
    def cost(self) -> float:
        """Weighted expected squared error of all tables."""
        return math.fsum(design.weighted_error for design in self.designs)

    @property
    def guarantee(self) -> Guarantee:
        """What all tables promise together: one person more or less, in one cell of each."""
        parts = [design.guarantee for design in self.designs]
        words = "; ".join(dict.fromkeys(part.neighbours for part in parts))
        text = f"one person in each of {len(parts)} tables about the same people ({words})"
        same = [replace(part, neighbours=text, neighbours_key=text) for part in parts]
        unit = "; ".join(dict.fromkeys(part.unit for part in parts))
        return replace(compose(same), asked=self.asked, unit=unit)

    def release(
        self,
        tables: Sequence[Any],
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> tuple[ReleasedTable, ...]:
        """Publish all tables, in one charge; see :meth:`SeveralTables.release`.

        Parameters
        ----------
        tables : sequence of DataFrames
            One per design, in their order.
        ledger : Ledger, optional
            Charged once, for all tables together, before anything is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        if len(tables) != len(self.designs):
            raise TableError(f"there are {len(self.designs)} designs, but {len(tables)} tables")
        checked_ledger(ledger)
        # what is checked is what is released
        ready = [design.ready(held(table)) for design, table in zip(self.designs, tables)]
        for one in ready:
            refuse_rows(ledger, one.design, one.count)
        names = "\n".join(design.mechanism.fingerprint for design in self.designs)
        fingerprint = hashlib.sha256(names.encode()).hexdigest()
        with paying(ledger, self.guarantee, fingerprint=fingerprint, label=label):
            return tuple(one.draw() for one in ready)


def _pair(delta: float, sensitivity: float) -> tuple[float, float]:
    """An (ε, δ) that Gaussian noise of this sensitivity just keeps."""
    epsilon = float(gaussian_epsilon(delta, sensitivity))
    if epsilon > 0:
        return epsilon, delta
    return 0.0, float(gaussian_delta(0.0, sensitivity))


# ---------------------------------------------------------------------- tables in parts


def _refuse_tied_rows(description: TableDescription) -> None:
    """Refuse a table that is one data set: no part of it can be released by itself."""
    if description.ties_rows:
        raise TableError(
            "equations tie the rows of this table, so it is one data set and no part of it can be "
            "released by itself. Bring it to one place (compute(), toPandas(), collect()); of a "
            "large table of people count_people makes it on the engine"
        )


def _example_of(description: TableDescription, table: Any) -> Any:
    """A table with the columns of one in parts, and zeros: enough to design noise."""
    import pandas

    _refuse_tied_rows(description)
    engine, count = engine_of(table), 1
    composed = description.row_mode == "composed"
    if engine == "parts":
        answers = [(list(names), size) for names, size in table.run(_names_and_size)]
        names = next((found for found, size in answers if size), [])
        count = sum(size for _, size in answers)
    else:
        names = table.collect_schema().names() if engine == "polars" else list(table.columns)
        count = _count(engine, table) if composed else 1
    rows = max(count, 1) if composed else 1
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
