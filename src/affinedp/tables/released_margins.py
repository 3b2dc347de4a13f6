"""Published margins: numbers with noise, intervals around them, one table at a time or all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.intervals import checked_level, whole_ends
from affinedp.privacy.guarantee import Guarantee
from affinedp.show.page import FOLDED_OUTPUTS, Report
from affinedp.strategies.margin_tables import MarginTables
from affinedp.tables.margin_description import DesignedMargins
from affinedp.tables.margin_report import margin_report
from affinedp.tables.published_numbers import published_numbers
from affinedp.tables.refusals import TableError
from affinedp.tables.whole_numbers import whole_margin


@dataclass(frozen=True, eq=False)
class ReleasedMarginTables:
    """Published margins.  Everything here may be shown to anyone.

    Attributes
    ----------
    design : MarginDesign
        The noise.
    released : MarginTables
        What was drawn.
    back : callable or None
        From pandas to the kind of table that people were in.
    """

    design: DesignedMargins
    released: MarginTables = field(repr=False)
    back: Any = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.design.guarantee

    def margin(self, *names: str, at: str | None = None) -> Any:
        """Return one margin as a long table: a column of labels per attribute, and counts.

        With ``round_to=1`` or ``nonnegative=True`` these are whole numbers, which add up within
        this table and over places; tables of different attributes agree before rounding only
        (:meth:`unrounded`).

        Parameters
        ----------
        *names : str
            The attributes; none for the number of people.
        at : str, optional
            A level of places, or ``"everywhere"``.  All levels by default: total rows have no
            label for what they add up.
        """
        chosen = self._chosen(names)
        return self._long(chosen, at, {"count": self._counted(chosen)})

    def unrounded(self, *names: str, at: str | None = None) -> Any:
        """Return one margin before it was rounded: unbiased, and it agrees with all others.

        Parameters
        ----------
        *names : str
            The attributes.
        at : str, optional
            A level of places.
        """
        chosen = self._chosen(names)
        return self._long(chosen, at, {"count": self._plain(chosen)})

    def interval(
        self, *names: str, level: float = 0.95, simultaneous: bool = False, at: str | None = None
    ) -> Any:
        """Return one margin with the ends of confidence intervals for the true counts.

        They are around the numbers before rounding, end at whole numbers, as counts do, and are
        cut at 0 for non-negative ones.  A number between two whole ones may lie beside them:
        29.8 with an interval of one number, 30.

        Parameters
        ----------
        *names : str
            The attributes.
        level : float
            With which probability, at least.
        simultaneous : bool
            Whether for all cells in this table at once.
        at : str, optional
            A level of places.
        """
        chosen = self._chosen(names)
        cells = self.design.cells(chosen)
        together = len(self._nodes(at)) * cells if simultaneous else 1
        reach = self.design.half_widths(chosen, checked_level(level), together)
        plain = self._plain(chosen)
        low, high = plain - reach[:, None], plain + reach[:, None]
        if self.design.description.nonnegative:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        low, high = whole_ends(low, high)
        count = self._counted(chosen)
        return self._long(chosen, at, {"count": count, "lower": low.astype(np.int64),
                                       "upper": high.astype(np.int64)})  # fmt: skip

    def tables(self, level: float = 0.95, at: str | None = None) -> Any:
        """Return all margins in one long table with intervals; empty labels mark totals.

        Parameters
        ----------
        level : float
            Of the intervals, each by itself.
        at : str, optional
            A level of places.
        """
        table = self._together(level, at, math.inf)
        return table if self.back is None else self.back(table)

    def _together(self, level: float, at: str | None, most: float) -> Any:
        """Margins below each other, until there are enough rows."""
        import pandas

        columns = [*self.design.description.levels, *self.design.description.names]
        same = [*columns, "count", "lower", "upper"]
        parts, rows = [], 0
        for chosen in self.design.wanted:
            names = [self.design.description.names[j] for j in chosen]
            found = self.interval(*names, level=level, at=at)
            plain = found if self.back is None else found.to_pandas()
            parts.append(plain.reindex(columns=same).astype(dict.fromkeys(columns, object)))
            rows += len(plain)
            if rows >= most:
                break
        return pandas.concat(parts, ignore_index=True)

    def levels(self, level: float = 0.95) -> Any:
        """Return how accurate every margin is, by level of places.

        Parameters
        ----------
        level : float
            Of the intervals.
        """
        return self.design.accuracy(checked_level(level))

    def report(self, level: float = 0.95) -> Report:
        """Return what people want to read: published numbers, the promise, the noise by margin.

        Parameters
        ----------
        level : float
            Of the intervals.
        """
        table = self._together(level, None, FOLDED_OUTPUTS)
        ends = {"count": (table["lower"], table["upper"])}
        plain = table.drop(columns=["lower", "upper"])
        shown = published_numbers(plain, ends, level, min(FOLDED_OUTPUTS, len(table)))
        total = len(self._nodes(None)) * sum(self.design.cells(one) for one in self.design.wanted)
        shown = replace(shown, more=total - len(shown.rows))
        return replace(margin_report(self.design, published=True), published=shown)

    # ------------------------------------------------------------------ numbers and labels

    def _chosen(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return self.design.description.numbers_of(names)

    def _nodes(self, at: str | None) -> IntArray:
        tree = self.design.description.tree
        if tree is not None:
            return tree.nodes(at)
        if at is not None:
            raise TableError("this release has no places: leave out at")
        return np.zeros(1, dtype=np.int64)

    def _plain(self, chosen: tuple[int, ...]) -> FloatArray:
        """Estimates, one row per place."""
        found = self.released[chosen]
        rows = 1 if self.design.description.tree is None else len(found)
        return found.reshape(rows, -1)

    def _counted(self, chosen: tuple[int, ...]) -> FloatArray | IntArray:
        """What is published: whole numbers if they were asked for, or come out of themselves."""
        if self.design.description.whole:
            return self._whole(chosen)
        return self._plain(chosen).astype(np.int64 if self.released.whole else float)

    @cached_property
    def _rounded(self) -> dict[tuple[int, ...], IntArray]:
        """Whole numbers, each table rounded once."""
        return {}

    def _whole(self, chosen: tuple[int, ...]) -> IntArray:
        if chosen not in self._rounded:
            nonnegative = self.design.description.nonnegative
            found = whole_margin(self.design.strategy, self._plain(chosen), nonnegative)
            self._rounded[chosen] = found
        return self._rounded[chosen]

    def _long(self, chosen: tuple[int, ...], at: str | None, numbers: Mapping[str, Any]) -> Any:
        """One row per cell and place."""
        import pandas

        description = self.design.description
        nodes = self._nodes(at)
        cells = self.design.cells(chosen)
        columns: dict[str, Any] = {}
        if description.tree is not None:
            codes = description.tree.label_codes(nodes)
            for level, name in enumerate(description.levels):
                if (codes[:, level] < 0).all():
                    continue
                labels = np.empty(len(description.tree.labels[level]) + 1, dtype=object)
                labels[:-1] = description.tree.labels[level]
                labels[-1] = None
                columns[name] = _as_given(labels, codes[:, level]).repeat(cells)
        sizes = [self.design.sizes[j] for j in chosen]
        places = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), int)
        for j, place in zip(chosen, places):
            name = description.names[j]
            labels = np.empty(len(description.attributes[name]), dtype=object)
            labels[:] = list(description.attributes[name])
            columns[name] = np.tile(np.asarray(_as_given(labels, place)), len(nodes))
        for key, values in numbers.items():
            columns[key] = np.asarray(values)[nodes].ravel()
        table = pandas.DataFrame(columns, index=range(len(nodes) * cells))
        return table if self.back is None else self.back(table)


def _as_given(labels: Any, codes: IntArray) -> Any:
    """Labels with a type of their own where all are alike, as pandas infers it."""
    import pandas

    return pandas.Index(labels[codes]).to_numpy()
