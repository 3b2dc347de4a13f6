"""From a description to noise for tables of one shape, with what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray, dense
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.promise.guarantee import Guarantee
from affinedp.tables.description import TableRelease
from affinedp.tables.intervals import half_widths
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.least_noise import least_noise, with_more_noise
from affinedp.tables.multiples import Multiples, multiples_of
from affinedp.tables.neighbours import adjacency_of, manifold_of
from affinedp.tables.promise import charge_words, table_guarantee

if TYPE_CHECKING:
    from affinedp.budget.ledger import Ledger
    from affinedp.show.page import Report
    from affinedp.tables.released import ReleasedTable


@dataclass(frozen=True, eq=False)
class TableDesign:
    """Noise for tables of one shape, with what it promises.

    Nothing in it depends on private numbers.

    Attributes
    ----------
    description : TableRelease
        What was asked for.
    layout : Layout
        Entries and equations.
    mechanism : Mechanism
        The noise on the private entries of one data set.
    guarantee : Guarantee
        What a release of the whole table promises.
    releases : int
        How often the mechanism's guarantee is charged to a ledger for one table.
    multiples : Multiples or None
        How published numbers are rounded.
    """

    description: TableRelease
    layout: Layout
    mechanism: Mechanism
    guarantee: Guarantee
    releases: int
    multiples: Multiples | None = field(repr=False)

    @property
    def charge(self) -> Guarantee:
        """What is charged to a ledger, ``releases`` times."""
        return replace(
            self.mechanism.guarantee, neighbours=charge_words(self.description, self.layout)
        )

    @cached_property
    def deviations(self) -> FloatArray:
        """Standard deviation of each private entry; with rounding, as if that were uniform."""
        squares = self.mechanism.expected_squared_errors
        if self.multiples is not None:
            squares = squares + self.multiples.variances
        return np.sqrt(squares)

    @property
    def noise(self) -> Any:
        """Standard deviation of the noise: a Series by column, or a DataFrame by cell."""
        return self.shaped(self.deviations)

    def half_width(self, level: float = 0.95, rounded: bool = True) -> Any:
        """Return how far published numbers are from the true ones with this probability.

        Exact for Gaussian noise; never too small for Laplace noise and for rounded numbers.

        Parameters
        ----------
        level : float
            Such as 0.95: for each number by itself.
        rounded : bool
            Whether the numbers are rounded (if ``round_to`` asks for it), or taken before that.

        Returns
        -------
        Series by column, or DataFrame by cell
        """
        noise = dense(self.mechanism.noise_matrix)
        reach = half_widths(noise, self.mechanism.law, level)
        # release makes the noise larger by this, for what rounding of doubles adds
        reach = reach * self.mechanism.release_plan().noise_factor
        if rounded and self.multiples is not None:
            reach = reach + self.multiples.farthest
        return self.shaped(reach)

    def shaped(self, values: FloatArray) -> Any:
        """Return one number per private entry as a Series by column or a DataFrame by cell.

        Parameters
        ----------
        values : array
            One per private entry.
        """
        import pandas

        if self.layout.row_names is None:
            return pandas.Series(values, index=list(self.layout.roles.private))
        cells = np.full(self.layout.cells, np.nan)
        cells[self.layout.private] = values
        frame = pandas.DataFrame(
            cells.reshape(-1, len(self.layout.columns)),
            index=list(self.layout.row_names),
            columns=list(self.layout.columns),
        )
        return frame[list(self.layout.roles.private)]

    def report(self) -> Report:
        """Return what people want to read, compared with independent noise."""
        from affinedp.tables.table_report import table_report

        return table_report(self, None, None)

    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
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
        """
        from affinedp.tables.released import release_table

        return release_table(self, table, ledger=ledger, label=label, bound=bound)


def design_table(description: TableRelease, table: Any) -> TableDesign:
    """Design the noise for a table; see :meth:`TableRelease.design`.

    Parameters
    ----------
    description : TableRelease
        What was said about the table.
    table : DataFrame
        Its names, labels and size are used.
    """
    layout = layout_of(description, table)
    manifold = manifold_of(layout)
    adjacency = adjacency_of(description, layout, manifold)
    weights = None
    if description.weights is not None:
        weights = layout.by_column(description.weights, 1.0, "weights")
    mechanism = least_noise(description, layout, adjacency, weights)
    releases = len(table) if description.row_mode == "composed" else 1
    if releases > 1:
        mechanism = with_more_noise(mechanism, releases)
    multiples = None
    if description.round_to is not None:
        multiples = multiples_of(description.round_to, layout)
    guarantee = table_guarantee(description, layout, mechanism, releases)
    if not guarantee.holds(description.epsilon, description.delta):
        raise AffineDPError("the noise could not be scaled to the promise: choose a larger δ or ε")
    return TableDesign(description, layout, mechanism, guarantee, releases, multiples)


def broken_totals(description: TableRelease, table: Any) -> Any:
    """Return every broken equation of a table; see :meth:`TableRelease.check`.

    Parameters
    ----------
    description : TableRelease
        What was said about the table.
    table : DataFrame
        The private table.
    """
    import pandas

    from affinedp.tables.broken import broken_list, residuals
    from affinedp.tables.columns import numbers_of

    layout = layout_of(description, table)
    points = layout.points(numbers_of(table, layout.columns))
    found = broken_list(layout, residuals(layout, points), table.index)
    rows = [(one.row, one.equation, one.off) for one in found]
    return pandas.DataFrame(rows, columns=["row", "equation", "off"])
