"""A published table: numbers with noise, intervals around them, how accurate they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from affinedp.arrays import FloatArray
from affinedp.intervals import checked_level
from affinedp.privacy.guarantee import Guarantee
from affinedp.show.page import FOLDED_OUTPUTS, Report
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.level_summary import all_at_once, level_summary
from affinedp.tables.published_numbers import published_numbers, whole_frames
from affinedp.tables.table_report import table_report
from affinedp.tables.table_rows import Published


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """A published table.  Everything here may be shown to anyone.

    Attributes
    ----------
    design : TableDesign
        The noise and the equations.
    published : Published
        What was drawn, in the shape in which it is worked on.
    back : callable
        From that shape to the one of the private table.
    """

    design: DesignedNoise = field(repr=False)
    published: Published = field(repr=False)
    back: Callable[[Any], Any] = field(repr=False)

    @cached_property
    def table(self) -> Any:
        """The published table: index and columns of the private one; numbers with noise."""
        return self.back(self.published.table)

    @cached_property
    def unrounded(self) -> Any:
        """The private columns before they were rounded or made non-negative: unbiased."""
        return self._shaped(self.published.unrounded)

    def _shaped(self, numbers: Any) -> Any:
        """Numbers by private column with the labels that the published table has."""
        table = self.table
        if not type(table).__module__.startswith("pandas"):
            return self.back(numbers)
        labelled = numbers.set_axis(table.index, axis=0)
        if table.ndim == 1:
            return labelled.iloc[:, 0].rename(table.name)
        inside = [name for name in self.published.table if name not in table.index.names]
        places = [inside.index(name) for name in numbers]
        return labelled.set_axis(table.columns[places], axis=1)

    @property
    def public(self) -> FloatArray:
        """Public numbers in the equations, also sums that no cell holds; one row per data set."""
        return self.published.public

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.design.guarantee

    @property
    def noise(self) -> Any:
        """Standard deviation of the noise: a Series by column, or a DataFrame by cell."""
        return self.design.noise

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Any, Any]:
        """Return lower and upper ends of confidence intervals for the true numbers.

        They are around the numbers before rounding, which are as private: rounding adds nothing.
        Where the table has no negative numbers, they are cut at 0; where it counts people, they
        are whole numbers.

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
        plain = self.published.unrounded
        level = checked_level(level)
        if simultaneous:
            sets = 1 if self.design.layout.row_names is not None else len(plain)
            level = all_at_once(self.design, level, sets * len(self.design.layout.private))
        width = self.design.half_width(level, rounded=False)
        if self.design.layout.row_names is not None:
            # numbers that are public are known: their intervals have no width
            width = width.set_axis(plain.index).fillna(0.0)
        lower, upper = plain - width, plain + width
        if self.design.description.nonnegative:
            lower, upper = lower.clip(lower=0.0), upper.clip(lower=0.0)
        return whole_frames(lower, upper) if self.design.whole else (lower, upper)

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
        hierarchy = self.design.description.hierarchy
        return level_summary(self.design, level, self.published.unrounded, hierarchy)

    def report(self, level: float = 0.95) -> Report:
        """Return what people want to read: published numbers, promise, noise, whether totals fit.

        Parameters
        ----------
        level : float
            Of the intervals.
        """
        published = self.published
        made = table_report(self.design, published.table, published.public, published.unrounded)
        low, high = self._ends(level, simultaneous=False)
        shown = published_numbers(
            published.table, {name: (low[name], high[name]) for name in low}, level, FOLDED_OUTPUTS
        )
        return replace(made, published=shown)
