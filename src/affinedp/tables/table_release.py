"""What people say about a table: a plain record with conveniences.

All work is done in the modules below.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

from affinedp.budget.ledger import Ledger
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.reading import held
from affinedp.laws.sampler import Sampler
from affinedp.release.engines import in_parts
from affinedp.tables.description import TableDescription
from affinedp.tables.design import design_for_targets, design_table
from affinedp.tables.frames import Given, given_table, with_recognised_margins, with_text_names
from affinedp.tables.in_parts import ReleasedInParts, example_of
from affinedp.tables.layout import layout_of
from affinedp.tables.neighbours import row_manifold
from affinedp.tables.reading import broken_totals, read_points
from affinedp.tables.released_table import ReleasedTable
from affinedp.tables.several import SeveralTables, several_tables
from affinedp.tables.table_design import TableDesign


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRelease(TableDescription):
    """A table that obeys known equations, and the promise with which it is to be published.

    Say every equation that the public knows: one that is left out is not covered.  Every column
    is either private (noise is added) or named in ``public`` (published as it is); so are the
    index and the number of rows, which are always public.

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
        How much one person counts for: one number, or one per private column.
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
    rows : {"separate", "composed", "together"}, optional
        See above; by default together if equations tie the rows, separate otherwise.  A ledger is
        not charged for several rows unless this is said, or equations tie them.
    neighbours : {"person", "replace", "swaps", "circuits"}
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
            :class:`~affinedp.discovery.forgotten.ForgottenEquationWarning` says so.  Nothing
            else depends on it.

        Returns
        -------
        TableDesign
        """
        if in_parts(table, None):
            table = example_of(self, table)
        description, given = _prepared(self, table)
        found = design_table(description, given.frame)
        if check_against is not None:
            columns = row_manifold(description, found.layout.columns)
            warn_of_forgotten(columns, given_table(description, check_against).frame)
        return TableDesign(**{one.name: getattr(found, one.name) for one in fields(found)})

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
        found = design_for_targets(description, given.frame, targets)
        return TableDesign(**{one.name: getattr(found, one.name) for one in fields(found)})

    @overload
    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        check_against: Any = None,
        into: None = None,
        sampler: Sampler = "bulk",
    ) -> ReleasedTable: ...

    @overload
    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        check_against: Any = None,
        into: str | os.PathLike[str],
        sampler: Sampler = "bulk",
    ) -> ReleasedInParts: ...

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
    ) -> ReleasedTable | ReleasedInParts:
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
        ReleasedTable, or ReleasedInParts
        """
        if in_parts(table, into):
            design = self.design(example_of(self, table), check_against=check_against)
            return design.release(
                table, ledger=ledger, label=label, bound=bound, into=into, sampler=sampler
            )
        # what is checked is what is released, whatever becomes of the sources of a lazy table
        memory = held(table)
        check_against = memory if check_against is table else check_against
        # an unsound table is refused at once, not after seconds of design
        description, given = _prepared(self, memory)
        read_points(description, layout_of(description, given.frame), given.frame, bound)
        design = self.design(memory, check_against=check_against)
        return design.release(memory, ledger=ledger, label=label, bound=bound, sampler=sampler)

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
            The promise of all tables together, shared out to the least squared error; if left
            out, every table keeps the promise that it has, and they add up.

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
        return several_tables(releases, epsilon, delta)


def _prepared(release: TableRelease, table: Any) -> tuple[TableRelease, Given]:
    """The description and the table, both with columns that are texts."""
    description = with_text_names(release)
    given = given_table(description, table)
    return with_recognised_margins(description, given.frame), given
