"""What a statistician says about a table: its equations, what is public, what is promised."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.budget.ledger import Ledger
    from affinedp.tables.design import TableDesign
    from affinedp.tables.released import ReleasedTable

Rows = Literal["separate", "composed", "together"]
Neighbours = Literal["circuits", "cells", "swaps"]
Law = Literal["gaussian", "laplace"]
Totals = Mapping[str, Sequence[str] | Sequence[Sequence[str]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRelease:
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
        Law of the noise; Gaussian where δ > 0 unless given.
    mu : float or mapping
        How far one number may move between neighbours: one number, or one per private column.
    equations : sequence of str, optional
        Linear equations between the columns of a row, as in ``"total = a + b"``.
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
        See above; by default together if equations tie the rows, separate otherwise.
    neighbours : {"circuits", "cells", "swaps"}
        Definition 4 of the paper; or one cell that is no total moves and totals follow; or (with
        public margins) two people exchange places in a cross-tabulation.
    cells : sequence of str, optional
        For ``"cells"``: the columns that determine all others; by default those that are no total.
    weights : mapping, optional
        What squared error costs in each private column (1 if not named).
    adjust : sequence of str, or "totals"
        Columns (or all totals) that are changed to fit where they are off by rounding.
    within : float, optional
        How far off counts as rounding; needed for ``adjust``.
    unknown : sequence of str, or "totals"
        Columns (or all totals) whose recorded numbers are not read but computed from the others.
    round_to : float, optional
        Publish multiples of this number that still obey the equations: 1 for whole numbers.

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

    epsilon: float
    delta: float = 0.0
    law: Law | None = None
    mu: float | Mapping[str, float] = 1.0
    equations: Sequence[str] | None = None
    totals: Totals | None = None
    hierarchy: str | Sequence[str] | None = None
    row_totals: Mapping[Any, Sequence[Any]] | None = None
    changes: Mapping[str, str] | None = None
    margins: Literal["public"] | Sequence[Sequence[str]] | None = None
    columns: Sequence[str] | None = None
    public: Sequence[str] = ()
    public_rows: Sequence[Any] = ()
    rows: Rows | None = None
    neighbours: Neighbours = "circuits"
    cells: Sequence[str] | None = None
    weights: Mapping[str, float] | None = None
    adjust: Sequence[str] | Literal["totals"] = ()
    within: float | None = None
    unknown: Sequence[str] | Literal["totals"] = ()
    round_to: float | None = None

    def __post_init__(self) -> None:
        self._check_promise()
        self._check_structure()
        self._check_rounding()

    @property
    def noise_law(self) -> Law:
        """The law of the noise."""
        return self.law or ("gaussian" if self.delta else "laplace")

    @property
    def row_mode(self) -> Rows:
        """What the rows are, by default from the equations."""
        return self.rows or ("together" if self.ties_rows else "separate")

    @property
    def ties_rows(self) -> bool:
        """Whether equations tie different rows."""
        tied = (self.hierarchy, self.row_totals, self.changes, self.margins)
        return any(part is not None for part in tied)

    def design(self, table: Any) -> TableDesign:
        """Design the noise for tables with these rows and columns.

        Only what is public is used: the index, the columns' names, label columns and public
        columns.  The result releases this table and others of the same shape.

        Parameters
        ----------
        table : DataFrame
            The table, or one like it.

        Returns
        -------
        TableDesign
        """
        from affinedp.tables.design import design_table

        return design_table(self, table)

    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
    ) -> ReleasedTable:
        """Publish a table: design the noise, check the table, charge, draw.

        A table that is malformed, incomplete or breaks its equations is refused; nothing is
        charged or drawn then.

        Parameters
        ----------
        table : DataFrame
            The private table.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        bound : float, optional
            A public bound on the size of the numbers.  If given, neighbours whose records are off
            by the rounding of double precision (decimals such as 0.1) are covered too.

        Returns
        -------
        ReleasedTable
        """
        from affinedp.tables.layout import layout_of
        from affinedp.tables.reading import read_points

        # an unsound table is refused at once, not after seconds of design
        read_points(self, layout_of(self, table), table, bound)
        return self.design(table).release(table, ledger=ledger, label=label, bound=bound)

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
        from affinedp.tables.design import broken_totals

        return broken_totals(self, table)

    # ------------------------------------------------------------------ what is refused at once

    def _check_promise(self) -> None:
        epsilon = number(self.epsilon, "epsilon")
        delta = number(self.delta, "delta")
        if not 0 <= epsilon < math.inf or not 0 <= delta < 1:
            raise AffineDPError(f"ε must be at least 0 and δ in [0, 1), not {epsilon}, {delta}")
        choice(self.law, "law", (None, "gaussian", "laplace"))
        if self.noise_law == "gaussian" and delta == 0:
            raise AffineDPError("Gaussian noise needs δ > 0: give delta, or law='laplace'")
        if self.noise_law == "laplace" and delta > 0:
            raise AffineDPError("Laplace noise is designed for δ = 0: leave delta out")
        if self.noise_law == "laplace" and epsilon == 0:
            raise AffineDPError("Laplace noise needs ε > 0")

    def _check_structure(self) -> None:
        choice(self.rows, "rows", (None, "separate", "composed", "together"))
        choice(self.neighbours, "neighbours", ("circuits", "cells", "swaps"))
        for name in ("columns", "public", "public_rows", "equations", "cells"):
            if isinstance(getattr(self, name), str):
                raise AffineDPError(f"{name} must be a list: write [...] around it")
        if self.equations is None and self.totals is None and not self.ties_rows:
            raise AffineDPError(
                "say what the public knows: equations, totals, a hierarchy, … (equations=[] says "
                "that it knows nothing)"
            )
        if self.ties_rows and self.rows in ("separate", "composed"):
            raise AffineDPError(
                f"rows={self.rows!r}, but the hierarchy, row_totals, changes or margins tie the "
                "rows: they are released together"
            )
        if self.rows == "together" and not self.ties_rows:
            raise AffineDPError(
                "rows='together', but no equation ties different rows, so this would promise what "
                "rows='separate' does. If the rows are about the same people, use rows='composed'"
            )
        if self.public_rows and not self.ties_rows:
            raise AffineDPError("public_rows goes with equations between rows")
        if self.neighbours == "swaps" and self.margins is None:
            raise AffineDPError("neighbours='swaps' goes with public margins")
        if self.cells is not None and self.neighbours != "cells":
            raise AffineDPError("cells goes with neighbours='cells'")

    def _check_rounding(self) -> None:
        for name in ("adjust", "unknown"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "totals":
                raise AffineDPError(f"{name} must be a list of columns, or 'totals'")
        if bool(self.adjust) != (self.within is not None):
            raise AffineDPError(
                "adjust and within go together: within says how far off counts as rounding"
            )
        if self.within is not None and not 0 < number(self.within, "within") < math.inf:
            raise AffineDPError(f"within must be positive, not {self.within!r}")
        if self.adjust and self.unknown:
            raise AffineDPError("give adjust or unknown, not both")
        if self.margins is not None and (self.adjust or self.unknown):
            raise AffineDPError(
                "public margins are sums of what is recorded: leave out adjust and unknown"
            )
        if self.round_to is not None and not 0 < number(self.round_to, "round_to") < math.inf:
            raise AffineDPError(f"round_to must be positive, not {self.round_to!r}")


def number(value: Any, name: str) -> float:
    """Return a number as a float, or refuse it by name."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        raise AffineDPError(f"{name} must be a number, not {value!r}")
    return float(value)


def choice(value: Any, name: str, known: Sequence[Any]) -> None:
    """Refuse a value that is not one of the known ones."""
    if value not in known:
        words = ", ".join(repr(one) for one in known if one is not None)
        raise AffineDPError(f"{name} must be one of {words}, not {value!r}")
