"""Margins of many attributes: which labels there are, what is promised, and people to count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from affinedp.arrays import IntArray, exact_doubles
from affinedp.budget.ledger import Ledger
from affinedp.designs.structured.margin_mechanism import (
    MOST_PEOPLE,
    MOST_RECORDS,
    MarginMechanism,
    ReleasedMargins,
    counts_of_records,
)
from affinedp.designs.structured.margin_promise import neighbour_words
from affinedp.designs.structured.margins import design_margins
from affinedp.designs.structured.tree_promise import unit_of
from affinedp.errors import AffineDPError
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.verification import Law
from affinedp.release.engines import engine_of
from affinedp.tables.description import TableDescription, counted_less_often
from affinedp.tables.engine_counts import COUNTED, counted_on_engine
from affinedp.tables.frames import given_table
from affinedp.tables.refusals import TableError, closest

ANY = TableDescription(epsilon=1.0, equations=[])


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginRelease:
    """Cross-tabulations of some attributes at a time, all consistent with each other.

    The table of all attributes may have more cells than can be listed: it is never formed.

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
    law : {"gaussian", "laplace"}, optional
        Law of the noise; the better one by default.
    neighbours : {"person", "replace", "swaps"}
        One person joins or leaves; one person has other labels (the number of people is public);
        two people exchange labels (every table of one attribute is public and exact).
    household : int
        How many people may differ at once.
    at_most : int, optional
        How many rows a person has at most; 1 by default.
    goal : {"sum", "largest"}
        Least sum of squared errors, or least largest variance of a cell.

    Examples
    --------
    >>> import pandas as pd
    >>> labels = {"sex": ["f", "m"], "age": ["young", "old"], "works": ["no", "yes"]}
    >>> people = pd.DataFrame({"sex": ["f", "m"], "age": ["old", "old"], "works": ["no", "yes"]})
    >>> out = MarginRelease(attributes=labels, margins="<=2", epsilon=1.0).release(people)
    >>> both, one = out.margin("sex", "age"), out.margin("sex")
    >>> bool(abs(both.groupby("sex")["count"].sum() - one.set_index("sex")["count"]).max() < 1e-9)
    True
    """

    attributes: Mapping[str, Sequence[Any]]
    epsilon: float
    delta: float = 0.0
    margins: str | int | Sequence[Sequence[str]] = "<=2"
    law: Law | None = None
    neighbours: Literal["person", "replace", "swaps"] = "person"
    household: int = 1
    at_most: int | None = None
    goal: Literal["sum", "largest"] = "sum"

    def __post_init__(self) -> None:
        if not isinstance(self.attributes, Mapping) or not self.attributes:
            raise AffineDPError("attributes must be given as a mapping from names to labels")
        for name, labels in self.attributes.items():
            if isinstance(labels, str) or len(list(labels)) < 2:
                raise AffineDPError(f"attribute {name!r} needs at least two labels: leave it out")
            if len(set(labels)) < len(list(labels)):
                raise AffineDPError(f"attribute {name!r} names a label twice")
        if self.at_most is not None and (type(self.at_most) is not int or self.at_most < 1):
            raise AffineDPError(f"at_most must be a whole number of at least 1: {self.at_most!r}")
        if self.neighbours == "replace" and (self.at_most or 1) > 1:
            raise AffineDPError(counted_less_often(self.at_most))
        taken = [name for name in ("count", "lower", "upper") if name in self.attributes]
        if taken:
            raise AffineDPError(f"{taken[0]!r} names published numbers: rename that attribute")

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes, in their order."""
        return tuple(self.attributes)

    def design(self) -> MarginDesign:
        """Design the noise; no data is needed."""
        chosen: Any = self.margins
        if not isinstance(chosen, str | int):
            chosen = [self._places(names) for names in chosen]
        law: Any = self.law or "auto"
        mechanism = design_margins(
            [len(list(labels)) for labels in self.attributes.values()],
            chosen,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            household=self.household * (self.at_most or 1),
            goal=self.goal,
            law=law,
        )
        return MarginDesign(self, mechanism)

    def release(
        self,
        people: Any,
        *,
        count: str | None = None,
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
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.

        Returns
        -------
        ReleasedMarginTables
        """
        return self.design().release(people, count=count, ledger=ledger, label=label)

    def _places(self, names: Iterable[str]) -> tuple[int, ...]:
        known = list(self.attributes)
        found = []
        for name in [names] if isinstance(names, str) else names:
            if name not in known:
                raise AffineDPError(f"there is no attribute {name!r}{closest(name, known)}")
            found.append(known.index(name))
        if len(set(found)) < len(found):
            raise AffineDPError("a margin names an attribute twice")
        return tuple(sorted(found))


@dataclass(frozen=True, eq=False)
class MarginDesign:
    """Noise for margins, with what it promises.

    Attributes
    ----------
    description : MarginRelease
        What was asked for.
    mechanism : MarginMechanism
        The noise.
    """

    description: MarginRelease
    mechanism: MarginMechanism = field(repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised, with the unit that all tables share."""
        kind = {"swaps": "swap"}.get(self.description.neighbours, self.description.neighbours)
        household = self.description.household
        words = self.mechanism.guarantee.neighbours
        if self.description.at_most is not None and kind == "person":
            once = neighbour_words(kind, household)
            rows = f"{self.description.at_most} cell{'s' * (self.description.at_most > 1)}"
            words = once.replace("in one cell", f"in at most {rows}")
        return replace(self.mechanism.guarantee, unit=unit_of(kind, household), neighbours=words)

    def margins(self) -> Any:
        """Return every margin with its number of cells and its noise, before anything is spent.

        Returns
        -------
        DataFrame
            Columns ``margin``, ``cells`` and ``noise`` (standard deviation of a cell).
        """
        import pandas

        names = self.description.names
        sizes = self.mechanism.sizes
        rows = [
            (
                " × ".join(names[j] for j in places) or "everybody",
                math.prod(sizes[j] for j in places),
                math.sqrt(variance),
            )
            for places, variance in self.mechanism.variances.items()
        ]
        return pandas.DataFrame(rows, columns=["margin", "cells", "noise"])

    def release(
        self,
        people: Any,
        *,
        count: str | None = None,
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
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        frame, count, back = _read(self.description, people, count)
        records = _records(self.description, frame)
        weights = None if count is None else _weights(frame, count)
        entry = None
        if ledger is not None:
            entry = ledger.charge(
                self.guarantee, fingerprint=self.mechanism.fingerprint, label=label
            )
        counts = counts_of_records(records, self.mechanism.sizes, weights)
        most = MOST_RECORDS if weights is None else MOST_PEOPLE
        released = self.mechanism.release(counts, most=most)
        if ledger is not None and entry is not None:
            ledger.settle(entry)
        return ReleasedMarginTables(self, released, back)


@dataclass(frozen=True, eq=False)
class ReleasedMarginTables:
    """Published margins.  Everything here may be shown to anyone.

    Attributes
    ----------
    design : MarginDesign
        The noise.
    released : ReleasedMargins
        What was drawn.
    back : callable or None
        From pandas to the kind of table that people were in.
    """

    design: MarginDesign
    released: ReleasedMargins = field(repr=False)
    back: Any = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.design.guarantee

    def margin(self, *names: str) -> Any:
        """Return one margin as a long table: a column of labels per attribute, and counts.

        Parameters
        ----------
        *names : str
            The attributes; none for the number of people.
        """
        places = self._places(names)
        return self._long(places, {"count": self.released.margin(places)})

    def interval(self, *names: str, level: float = 0.95, simultaneous: bool = False) -> Any:
        """Return one margin with the ends of confidence intervals for the true counts.

        Parameters
        ----------
        *names : str
            The attributes.
        level : float
            With which probability, at least.
        simultaneous : bool
            Whether for all cells of this margin at once.
        """
        places = self._places(names)
        found = self.design.mechanism.interval(
            self.released, places, level=level, simultaneous=simultaneous
        )
        count = self.released.margin(places)
        return self._long(places, {"count": count, "lower": found.low, "upper": found.high})

    @cached_property
    def _labels(self) -> list[list[Any]]:
        return [list(labels) for labels in self.design.description.attributes.values()]

    def _places(self, names: tuple[str, ...]) -> tuple[int, ...]:
        known = list(self.design.description.names)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise AffineDPError(f"there is no attribute {unknown[0]!r}{closest(unknown[0], known)}")
        return tuple(sorted(known.index(name) for name in names))

    def _long(self, places: tuple[int, ...], numbers: Mapping[str, Any]) -> Any:
        import itertools

        import pandas

        cells = list(itertools.product(*(self._labels[j] for j in places)))
        names = [self.design.description.names[j] for j in places]
        table = pandas.DataFrame(cells, columns=names, index=range(len(cells)))
        table = table.assign(**{key: np.ravel(value) for key, value in numbers.items()})
        return table if self.back is None else self.back(table)


def _read(
    description: MarginRelease, people: Any, count: str | None
) -> tuple[Any, str | None, Any]:
    """People or counts in one place, the column of counts, and the way back for polars."""
    engine = engine_of(people)
    if count is not None or engine not in ("dask", "spark", "polars"):
        given = given_table(ANY, people)
        polars = type(people).__module__.startswith("polars")
        return given.frame, count, given.back if polars else None
    import pandas

    names = list(description.attributes)
    found = counted_on_engine(people, names)
    frame = pandas.DataFrame(list(found), columns=names).assign(**{COUNTED: list(found.values())})
    return frame, COUNTED, given_table(ANY, people.head(0)).back if engine == "polars" else None


def _records(description: MarginRelease, frame: Any) -> IntArray:
    """Labels as numbers; other labels than the public ones are refused."""
    columns = []
    for name, labels in description.attributes.items():
        if name not in frame:
            raise TableError(f"there is no column {name!r}{closest(name, frame)}", "", name)
        place = {label: i for i, label in enumerate(labels)}
        found = [place.get(label, -1) for label in frame[name].tolist()]
        if -1 in found:
            raise TableError(
                f"column {name!r} has a label that is not among the public ones. Add it to "
                "attributes, or leave the row out",
                "",
                name,
            )
        columns.append(np.array(found, dtype=np.int64))
    return np.column_stack(columns)


def _weights(frame: Any, count: str) -> IntArray:
    if count not in frame:
        raise TableError(f"there is no column {count!r}{closest(count, frame)}", "", count)
    values = frame[count].tolist()
    if any(isinstance(value, bool | str) for value in values):
        raise TableError(f"column {count!r} must hold numbers", "", count)
    numbers = exact_doubles(values, f"column {count!r}")
    if not np.isfinite(numbers).all() or (numbers != np.rint(numbers)).any() or (numbers < 0).any():
        raise TableError(
            f"column {count!r} must hold whole numbers that are not negative", "", count
        )
    if math.fsum(numbers) > MOST_PEOPLE:
        raise TableError(f"column {count!r} counts more than 2**53 people", "", count)
    return np.asarray(numbers, dtype=np.int64)
