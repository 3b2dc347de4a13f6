"""Margins of many attributes, in many places: what is promised, the noise, what is published."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.budget.ledger import Ledger
from affinedp.designs.least_intervals import MOST_VALUES
from affinedp.designs.margins import designed_margins
from affinedp.designs.places import design_tree_margins
from affinedp.domains.crossed import MOST_PEOPLE, MOST_RECORDS, counts_of_records
from affinedp.errors import AffineDPError, counted
from affinedp.exact.numbers import is_number, whole_number
from affinedp.functions.published import FunctionInterval
from affinedp.intervals import checked_level, whole_ends
from affinedp.mechanism import Mechanism
from affinedp.parts import Locked
from affinedp.privacy.guarantee import Guarantee
from affinedp.show.page import FOLDED_OUTPUTS, Report
from affinedp.show.report import grouped_report, headline
from affinedp.strategies.margin_blocks import MarginTables
from affinedp.strategies.margin_intervals import CountedIntervals
from affinedp.strategies.margin_workloads import Workload
from affinedp.strategies.margins import OfMargins
from affinedp.strategies.places import OfPlaces
from affinedp.tables.counting import label_codes, people_of
from affinedp.tables.describe import MARGINS, Description, check_labels, choice, written_file
from affinedp.tables.frames import polars_of
from affinedp.tables.places import Places, place_numbers, places_of
from affinedp.tables.possible import Fitted, Obeyed, Possible
from affinedp.tables.refusals import TableError, closest, declared, is_label, named_labels
from affinedp.tables.report import GRAND_TOTAL, ROUNDED, draw_bars, published_numbers
from affinedp.tables.table_functions import margin_function
from affinedp.tables.whole_numbers import whole_margin

PUBLISHED = ("count", "lower", "upper")
# Numbers that the tables of all places may hold, with 32 bits each.
MOST_CELLS = 2_000_000_000
ZEROS = "; nobody has a combination of labels that is impossible, in both"


@dataclass(frozen=True, eq=False)
class Asked(Locked):
    """Labels of an attribute, and what is asked about them: see :func:`prefix`.

    Attributes
    ----------
    labels : sequence
        In their order.
    workload : str, matrix or None
        ``"prefix"``, ``"ranges"``, one row of numbers per sum, or None for the labels themselves.
    """

    labels: Sequence[Any]
    workload: Any = None

    @classmethod
    def of(cls, given: Any) -> Asked:
        """Return labels as people write them: a list, with a matrix, or by :func:`prefix`.

        Parameters
        ----------
        given : Asked, sequence, or tuple of a sequence and a matrix
            The labels.
        """
        if isinstance(given, Asked):
            return given
        if isinstance(given, tuple) and len(given) == 2 and np.ndim(given[1]) == 2:
            return cls(*given)
        return cls(given)

    @property
    def told(self) -> Any:
        """The same as a file says it."""
        labels = list(self.labels)
        if isinstance(self.workload, str):
            return {self.workload: labels}
        if self.workload is None:
            return labels
        return {"labels": labels, "sums": np.asarray(self.workload).tolist()}

    @property
    def rows(self) -> list[Any]:
        """How every number that is asked for is called."""
        labels = list(self.labels)
        if self.workload is None:
            return labels
        known = Workload.of(self.workload, len(labels))
        if known.form == "prefix":
            return [f"≤ {label}" for label in labels]
        if known.form == "ranges":
            return [f"{labels[a]} to {labels[b]}" for a, b in known.ends]
        return [f"row {i}" for i in range(known.rows)]


def prefix(labels: Sequence[Any]) -> Asked:
    """Ask how many people there are up to every label, for :class:`MarginRelease`.

    Parameters
    ----------
    labels : sequence
        In their order, such as ``range(100)``.

    Examples
    --------
    >>> prefix(["0-17", "18-64", "65+"]).rows
    ['≤ 0-17', '≤ 18-64', '≤ 65+']
    """
    return Asked(labels, "prefix")


def ranges(labels: Sequence[Any]) -> Asked:
    """Ask how many people there are from every label to every later one.

    Parameters
    ----------
    labels : sequence
        In their order.

    Examples
    --------
    >>> ranges([1, 2]).rows
    ['1 to 1', '1 to 2', '2 to 2']
    """
    return Asked(labels, "ranges")


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginRelease(Description):
    """Cross-tabulations of some attributes at a time, all consistent with each other.

    The table of all attributes may have more cells than can be listed: it is never formed.  With
    ``places`` every table is made for every place of a hierarchy, too: geography × age × sex.

    Parameters
    ----------
    attributes : mapping
        From every attribute to its labels, at least two.  They are published, so they must not
        come from the data.  ``prefix(labels)`` asks for everybody up to each label,
        ``ranges(labels)`` for all ranges, ``(labels, matrix)`` for sums of one's own, with a
        column per label.
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
    adjacency : {"person", "replace", "swaps"}
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
    objective : {"sum", "largest"}
        Least sum of squared errors, or least largest variance of a cell.
    round_to : 1, optional
        Publish whole numbers.
    nonnegative : bool
        Publish whole numbers of at least 0.  It moves small cells up and large ones down;
        ``unrounded`` keeps the unbiased estimates.
    impossible : sequence of mappings
        Combinations of labels that nobody can have, such as ``{"age": "0-9", "married": "yes"}``
        (a list or range stands for each of its labels; :func:`dependency` makes them of ``city`` →
        ``state``).  Their cells are 0, and all other numbers are fitted to it, so that tables
        still agree, with no more variance than without (with places: summed over them).

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

    attributes: Mapping[str, Any]
    margins: str | int | Sequence[Sequence[str]] = "<=2"
    hierarchy: Sequence[str] | None = None
    places: Any = None
    objective: Literal["sum", "largest"] = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self.adjacency, "adjacency", ("person", "replace", "swaps"))
        if not isinstance(self.attributes, Mapping) or not self.attributes:
            raise AffineDPError("attributes must be given as a mapping from names to labels")
        for name, asked in self.asked.items():
            if len(asked.labels) < 2:
                raise AffineDPError(f"attribute {name!r} needs at least two labels: leave it out")
            if asked.workload is not None and (self.whole or self.places is not None):
                raise AffineDPError(
                    f"attribute {name!r} asks for sums of labels, which are not rounded and not "
                    "made for places: leave out round_to, nonnegative and places, or give labels"
                )
        if self.round_to not in (None, 1):
            raise AffineDPError(f"margins are rounded to whole numbers: round_to={self.round_to!r}")
        if not isinstance(self.margins, Iterable) or getattr(self.margins, "ndim", 1) == 0:
            whole_number(self.margins, "margins", 0)
        self._check_places()
        taken = [name for name in PUBLISHED if name in (*self.attributes, *self.tree.levels)]
        if taken:
            raise AffineDPError(f"{taken[0]!r} names published numbers: rename that column")
        _ = self.possible  # rules are refused before anything is designed

    def _check_places(self) -> None:
        if isinstance(self.hierarchy, str):
            raise AffineDPError("hierarchy must be a list of levels: write [...] around it")
        if self.hierarchy is not None and self.places is None:
            raise AffineDPError(
                "which places there are is published, so it cannot come from the data: give them "
                "in places, one row for each at the bottom of the hierarchy"
            )
        if self.places is None:
            if self.weights is not None:
                raise AffineDPError("weights are those of levels of places: give places, too")
            return
        if self.adjacency == "swaps":
            raise AffineDPError("adjacency='swaps' goes without places: name the place as an "
                                "attribute")  # fmt: skip
        if self.objective != "sum":
            raise AffineDPError("objective='largest' goes without places: weigh levels instead")
        both = [name for name in self.tree.levels if name in self.attributes]
        if both:
            raise AffineDPError(f"{both[0]!r} is an attribute and a level of places")
        self._node_weights()

    @cached_property
    def tree(self) -> Places:
        """All places there are; one, everywhere, if tables are not made for places."""
        return Places() if self.places is None else places_of(self.places, self.hierarchy)

    @cached_property
    def asked(self) -> dict[str, Asked]:
        """What is asked about every attribute."""
        found = {name: Asked.of(given) for name, given in self.attributes.items()}
        return {
            name: replace(asked, labels=declared(asked.labels, name))
            for name, asked in found.items()
        }

    @cached_property
    def possible(self) -> Possible | None:
        """Which combinations of labels somebody can have; None if it is all of them."""
        if not self.impossible:
            return None
        if self.places is not None and self.adjacency == "replace":
            raise AffineDPError(
                "impossible goes with adjacency='person' in places (who is counted elsewhere "
                "leaves and joins: household=2 covers both)"
            )
        rules = []
        for combination in self.impossible:
            rule = {}
            for j in self.numbers_of(combination):
                name = self.names[j]
                wanted = named_labels(combination[name])
                labels = self.asked[name].labels
                met = [[is_label(one, label) for label in labels] for one in wanted]
                rule[j] = np.any(np.reshape(met, (len(wanted), len(labels))), axis=0)
                if not rule[j].any():
                    raise AffineDPError(f"impossible: no cell of the table has {combination!r}")
            rules.append(rule)
        return Possible(self.sizes, tuple(rules))

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes, in their order."""
        return tuple(self.attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many labels every attribute has."""
        return tuple(len(asked.labels) for asked in self.asked.values())

    @property
    def whole(self) -> bool:
        """Whether whole numbers are published."""
        return self.round_to is not None or self.nonnegative

    def _node_weights(self) -> FloatArray | None:
        """What squared error costs at every place."""
        depth, known = self.tree.depth, self.tree.names
        if self.weights is None:
            return None
        if self.weights == "levels":
            return np.asarray(1 / np.bincount(depth)[depth], dtype=float)
        each = np.ones(len(known))
        for name, value in self.weights.items():
            if name not in known:
                raise AffineDPError(
                    f"weights names {name!r}, which is no level of places{closest(name, known)}"
                )
            each[known.index(name)] = value
        return np.asarray(each[depth])

    def numbers_of(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return attributes by number, in rising order.

        Parameters
        ----------
        names : iterable of str
            The attributes.
        """
        known = list(self.attributes)
        found = []
        one = isinstance(names, str) or not isinstance(names, Iterable)
        for name in [names] if one else names:
            if name not in known:
                raise AffineDPError(f"there is no attribute {name!r}{closest(name, known)}")
            found.append(known.index(name))
        if len(set(found)) < len(found):
            raise AffineDPError("a margin names an attribute twice")
        return tuple(sorted(found))

    def words(self, chosen: Iterable[int]) -> str:
        """Return a margin in words.

        Parameters
        ----------
        chosen : iterable of int
            Its attributes.
        """
        return " × ".join(self.names[j] for j in chosen) or "everybody"

    def toml(self, places: str | None = None) -> str:
        """Return a file that says the same, for :func:`~affinedp.tables.read_release`.

        Parameters
        ----------
        places : str, optional
            The name of the file that holds the places, if there are any: they are a table.

        Examples
        --------
        >>> print(MarginRelease(attributes={"sex": ["f", "m"]}, margins=1, epsilon=1.0).toml())
        margins = 1
        <BLANKLINE>
        [attributes]
        sex = ["f", "m"]
        <BLANKLINE>
        [privacy]
        epsilon = 1.0
        adjacency = "person"
        <BLANKLINE>
        """
        if (places is None) != (self.places is None):
            raise AffineDPError(
                "this release has no places: leave out the name of a file"
                if self.places is None
                else "places are a table: name the file that holds them, toml('places.csv')"
            )
        for name, asked in self.asked.items():
            check_labels(name, asked.labels)
        attributes = {name: asked.told for name, asked in self.asked.items()}
        plain = MarginRelease(epsilon=1.0, attributes=self.attributes)
        return written_file(MARGINS, self, plain, attributes=attributes, places=places)

    def design(self) -> MarginDesign:
        """Design the noise, once; no data is needed."""
        return self._design

    @cached_property
    def _design(self) -> MarginDesign:
        chosen: Any = self.margins
        if not isinstance(chosen, str) and not is_number(chosen):
            chosen = [self.numbers_of(names) for names in chosen]
        promise: dict[str, Any] = {
            "epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency,
            "household": self.household, "at_most": self.at_most, "law": self.law or "auto",
            "releases": self.releases,
        }  # fmt: skip
        if self.places is None:
            asked = enumerate(one.workload for one in self.asked.values())
            workloads = {j: workload for j, workload in asked if workload is not None}
            made = [
                designed_margins(
                    self.sizes, chosen, objective=self.objective, workloads=workloads,
                    **rules, **promise,
                )
                for rules in self._rules(workloads)
            ]  # fmt: skip
            designs = list(map(self._fitted, made))
            # noise is compared after it is fitted
            return designs[0] if len(designs) == 1 else min(designs, key=self._error)
        leaves, cells = len(self.tree.nodes(self.tree.names[-1])), math.prod(self.sizes)
        if leaves * cells > MOST_CELLS:
            raise AffineDPError(
                f"{leaves:,} places × {cells:,} cells are too many for memory: leave out an "
                "attribute, or group its labels"
            )
        mechanism = design_tree_margins(
            self.tree.parent, self.sizes, chosen, node_weights=self._node_weights(), **promise
        )
        return self._fitted(mechanism)

    def _error(self, design: MarginDesign) -> float:
        """The sum of the variances of all cells of all margins, or the largest of them."""
        each = [design.variances(chosen) for chosen in design.wanted]
        if self.objective == "largest":
            return float(max(one.max() for one in each))
        return math.fsum(design.cells(A) * float(one.mean()) for A, one in zip(design.wanted, each))

    def _fitted(self, mechanism: Mechanism) -> MarginDesign:
        """The noise with all cells that are needed where something is impossible."""
        wanted: Any = mechanism.strategy
        if self.possible is not None:
            mechanism = replace(mechanism, strategy=self.possible.with_cells(wanted))
        return MarginDesign(self, mechanism, wanted.margins)

    def _rules(self, workloads: Mapping[int, Any]) -> list[dict[str, Any]]:
        """What noise knows about combinations that are possible: nothing, and where it can all."""
        if self.possible is None:
            return [{}]
        tied = sorted({j for attributes, _ in self.possible.groups for j in attributes})
        every = sorted({*tied, *workloads})
        if not workloads or math.prod(self.sizes[j] for j in every) > MOST_VALUES:
            return [{"tied": tied}]
        return [{"tied": tied}, {"tied": tied, "possible": self.possible.counts(every).ravel() > 0}]

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

    def _counts(self, frame: Any, times: IntArray | None) -> Any:
        """People by record; in places, the table of all attributes at every place at the bottom."""
        codes = [label_codes(frame, name, asked.labels) for name, asked in self.asked.items()]
        if self.possible is not None:
            found = self.possible.nobody(codes) & (True if times is None else times > 0)
            if found.any():
                raise TableError(
                    "somebody has a combination of labels that was said to be impossible. Correct "
                    "the rows, or leave the combination out of impossible"
                )
        if self.places is None:
            return counts_of_records(np.column_stack(codes), self.sizes, times)
        key = place_numbers(frame, self.tree)
        for code, size in zip(codes, self.sizes):
            key = key * size + code
        shape = len(self.tree.nodes(self.tree.levels[-1])), *self.sizes
        each = None if times is None else times.astype(float)
        counts = np.bincount(key, each, minlength=math.prod(shape))
        # cut off, they would no longer be the counts; and whoever moves would change their sum
        kind = np.int32 if counts.max(initial=0) <= np.iinfo(np.int32).max else np.int64
        return counts.astype(kind).reshape(shape)


@dataclass(frozen=True, eq=False, repr=False)
class MarginDesign(Locked):
    """Noise for margins, with what it promises; nothing in it depends on private numbers.

    Attributes
    ----------
    description : MarginRelease
        What was asked for.
    mechanism : Mechanism
        The noise.
    wanted : tuple of tuples of int
        All margins that are released, by the numbers of their attributes.
    """

    description: MarginRelease
    mechanism: Mechanism
    wanted: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        _ = self.fitted  # what cannot be fitted is refused before any data is seen

    @property
    def title(self) -> str:
        """What the noise is for, in one line."""
        words = self.mechanism.noise.words
        return f"{words[0].upper()}{words[1:]} noise on {self.contents}"

    @property
    def contents(self) -> str:
        """Which tables there are, in words."""
        asked = self.description
        where = f" in {len(asked.tree.parent):,} places" if asked.tree.levels else ""
        return f"{counted(len(self.wanted), 'table')} of {' × '.join(asked.names)}{where}"

    def __repr__(self) -> str:
        return f"<MarginDesign: {self.title}. {headline(self.guarantee)}>"

    def __str__(self) -> str:
        return str(self.report())

    @property
    def strategy(self) -> OfMargins | OfPlaces:
        """What is measured, at one place or at all nodes of a tree."""
        strategy = self.mechanism.strategy
        assert isinstance(strategy, OfMargins | OfPlaces)
        return strategy

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        found = self.mechanism.guarantee
        return found if self.fitted is None else replace(found, neighbours=found.neighbours + ZEROS)

    @cached_property
    def fitted(self) -> Fitted | None:
        """How what is published is fitted to the combinations that are possible."""
        possible = self.description.possible
        if possible is None:
            return None
        knows = isinstance(self.strategy, CountedIntervals)
        return (Obeyed if knows else Fitted)(self.strategy, self.mechanism.noise, possible)

    def cells(self, chosen: Iterable[int]) -> int:
        """Return how many cells a margin has at one place.

        Parameters
        ----------
        chosen : iterable of int
            Its attributes.
        """
        return math.prod(self.strategy.shape(tuple(chosen)))

    def variances(self, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of a margin at every place, before rounding.

        Parameters
        ----------
        chosen : tuple of int
            Its attributes.
        """
        if self.fitted is not None:
            return self.fitted.variances(chosen)
        return self.strategy.node_variances(self.mechanism.noise, chosen)

    def half_widths(self, chosen: tuple[int, ...], level: float, together: int) -> FloatArray:
        """Return how far a cell of a margin is from the truth at every place, before rounding.

        Parameters
        ----------
        chosen : tuple of int
            Its attributes.
        level : float
            With which probability.
        together : int
            How many numbers are to hold at once.
        """
        law = self.mechanism.noise
        outside = law.each(1 - level, together)
        if self.fitted is not None:
            reach = self.fitted.reaches(chosen, outside)
        else:
            reach = self.strategy.node_reaches(law, chosen, outside)
        return reach * self.mechanism.prepared().factor

    def margins(self) -> Any:
        """Return every margin with its number of cells and its noise, before anything is spent.

        Returns
        -------
        DataFrame
            Columns ``margin``, ``cells`` and ``noise`` (standard deviation of a cell; with places,
            the root mean square over those at the bottom).
        """
        import pandas

        asked = self.description
        bottom = asked.tree.nodes(asked.tree.names[-1])
        rows = [
            (asked.words(one), self.cells(one), math.sqrt(self.variances(one)[bottom].mean()))
            for one in self.wanted
        ]
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
        import pandas

        level, tree = checked_level(level), self.description.tree
        rows = []
        for place, where in enumerate(tree.names):
            own = tree.depth == place
            for chosen in self.wanted:
                count = int(own.sum()) * self.cells(chosen)
                noise = math.sqrt(self.variances(chosen)[own].mean())
                one = float(self.half_widths(chosen, level, 1)[own].max())
                every = float(self.half_widths(chosen, level, count)[own].max())
                words = self.description.words(chosen)
                label = f"{where}: {words}" if tree.levels else words
                rows.append((label, count, noise, one, every))
        columns = ["level", "numbers", "noise", "half_width", "all_at_once"]
        return pandas.DataFrame(rows, columns=columns).set_index("level")

    def report(self) -> Report:
        """Return what people want to read, compared with standard practice."""
        asked = self.description
        found = self.levels()
        noise = zip(map(str, found.index), found["numbers"].tolist(), found["noise"].tolist())
        report = grouped_report(self.mechanism, self.title, noise)
        if self.fitted is not None:
            told = {**dict(report.promise), "neighbours": self.guarantee.neighbours}
            totals = (
                (label, text + self.fitted.remark if label == "optimality" else text)
                for label, text in report.totals
            )
            report = replace(report, promise=tuple(told.items()), totals=tuple(totals))
        if not asked.whole:
            return report
        words = "whole numbers" + (" of at least 0" if asked.nonnegative else "")
        note = (
            f"{words}: every table adds up by itself and over places; tables of different "
            "attributes agree before rounding only"
        )
        return replace(report, totals=(*report.totals, ("note", note)))

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
        asked, strategy = self.description, self.strategy
        if count is not None and person is not None:
            raise TableError("give count for cells, or person for people: not both")
        most = None if person is None else asked.at_most or 1
        frame, times = people_of(
            people, asked.names, asked.tree.levels, count=count, person=person, at_most=most
        )
        # all that can be refused is refused before the charge
        counts = asked._counts(frame, times)
        largest = MOST_RECORDS if times is None else MOST_PEOPLE
        wide = isinstance(strategy, OfPlaces) and counts.dtype == np.int64
        if isinstance(strategy, OfPlaces) and wide and not strategy.holds(largest):
            raise TableError(
                "a cell counts more than 2**31 - 1 people, which tables of this size do not "
                "hold: leave out an attribute, or group its labels"
            )
        released = self.mechanism.release(counts, bound=float(largest), ledger=ledger, label=label)
        if self.fitted is not None:
            released = self.fitted.tables(released)
        polars = type(people).__module__.startswith("polars")
        return ReleasedMarginTables(self, released, polars_of if polars else None)


@dataclass(frozen=True, eq=False, repr=False)
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

    design: MarginDesign
    released: MarginTables
    back: Any = None

    def __repr__(self) -> str:
        return (
            f"<ReleasedMarginTables: {self.design.title}. {headline(self.guarantee)}. tables(), "
            "interval() and report() show them>"
        )

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
        together = len(self.design.description.tree.nodes(at)) * cells if simultaneous else 1
        reach = self.design.half_widths(chosen, checked_level(level), together)
        plain = self._plain(chosen)
        reach = reach.reshape(len(reach), -1)
        low: Any = plain - reach
        high: Any = plain + reach
        if self.design.description.nonnegative:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        if self._are_counts(chosen):
            low, high = (end.astype(np.int64) for end in whole_ends(low, high))
        count = self._counted(chosen)
        return self._long(chosen, at, {"count": count, "lower": low, "upper": high})

    def _are_counts(self, chosen: tuple[int, ...]) -> bool:
        """Whether the true numbers of a margin are whole."""
        asked = getattr(self.design.strategy, "workloads", ())
        own = [asked[j].matrix for j in chosen if asked and asked[j]]
        return all((matrix == np.rint(matrix)).all() for matrix in own)

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

        columns = [*self.design.description.tree.levels, *self.design.description.names]
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

    def function(self, f: Any, *, level: float = 0.95, certified: bool = False) -> FunctionInterval:
        """Return a function of published numbers, such as a share, with an interval.

        Cells have the names of their labels, in backticks: ``"`sex=f, age=old` / `sex=f`"``, with
        places ``"`city=A, sex=f` / `sex=f`"``, and ``everybody``.

        Parameters
        ----------
        f : str or callable
            A text; or a function of all margins by the numbers of their attributes.
        level : float
            With which probability the interval holds the true value.
        certified : bool
            See :meth:`affinedp.Mechanism.function`.

        Examples
        --------
        >>> import pandas as pd
        >>> from affinedp.tables import MarginRelease
        >>> people = pd.DataFrame({"sex": ["f", "m"] * 900, "age": ["old", "old", "young"] * 600})
        >>> labels = {"sex": ["f", "m"], "age": ["young", "old"]}
        >>> out = MarginRelease(attributes=labels, epsilon=1.0).release(people)
        >>> share = out.function("`sex=f, age=old` / `sex=f`", level=1 - 1e-9)
        >>> bool(share.low < 2 / 3 < share.high)
        True
        """
        return margin_function(self.design, self.released, f, level, certified)

    def levels(self, level: float = 0.95) -> Any:
        """Return how accurate every margin is, by level of places.

        Parameters
        ----------
        level : float
            Of the intervals.
        """
        return self.design.levels(level)

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
        most = min(FOLDED_OUTPUTS, len(table))
        note = ROUNDED if plain["count"].dtype.kind == "f" else ""
        shown = published_numbers(plain, ends, level, most, unlabelled=GRAND_TOTAL, note=note)
        total = len(self.design.description.tree.parent) * sum(
            self.design.cells(one) for one in self.design.wanted
        )
        shown = replace(shown, more=total - len(shown.rows))
        return replace(
            self.design.report(),
            title=f"Published: {self.design.contents}",
            published=shown,
            picture=lambda: draw_bars(plain, ends, level, [["count"]]),
        )

    # ------------------------------------------------------------------ numbers and labels

    def _chosen(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return self.design.description.numbers_of(names)

    def _plain(self, chosen: tuple[int, ...]) -> FloatArray:
        """Estimates, one row per place."""
        found = self.released[chosen].reshape(len(self.design.description.tree.parent), -1)
        fitted = self.design.fitted
        return found if fitted is None else np.where(fitted.nobody(chosen), 0.0, found)

    def _counted(self, chosen: tuple[int, ...]) -> FloatArray | IntArray:
        """What is published: whole numbers if they were asked for, or come out of themselves."""
        if not self.design.description.whole:
            return self._plain(chosen).astype(np.int64 if self.released.whole else float)
        if chosen not in self._rounded:
            nonnegative = self.design.description.nonnegative
            plain, fitted = self._plain(chosen), self.design.fitted
            somebody = slice(None) if fitted is None else ~fitted.nobody(chosen)
            found = np.zeros(plain.shape, np.int64)
            found[:, somebody] = whole_margin(self.design.strategy, plain[:, somebody], nonnegative)
            self._rounded[chosen] = found
        return self._rounded[chosen]

    @cached_property
    def _rounded(self) -> dict[tuple[int, ...], IntArray]:
        """Whole numbers, each table rounded once."""
        return {}

    def _long(self, chosen: tuple[int, ...], at: str | None, numbers: Mapping[str, Any]) -> Any:
        """One row per cell and place."""
        import pandas

        asked, tree = self.design.description, self.design.description.tree
        nodes, cells = tree.nodes(at), self.design.cells(chosen)
        codes = tree.label_codes(nodes)
        columns: dict[str, Any] = {}
        for level, name in enumerate(tree.levels):
            if (codes[:, level] >= 0).any():
                columns[name] = _labels([*tree.labels[level], None], codes[:, level]).repeat(cells)
        sizes = self.design.strategy.shape(chosen)
        places = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), int)
        for j, place in zip(chosen, places):
            labels = _labels(asked.asked[asked.names[j]].rows, place)
            columns[asked.names[j]] = np.tile(np.asarray(labels), len(nodes))
        for key, values in numbers.items():
            columns[key] = np.asarray(values)[nodes].ravel()
        table = pandas.DataFrame(columns, index=range(len(nodes) * cells))
        return table if self.back is None else self.back(table)


def _labels(labels: list[Any], codes: IntArray) -> Any:
    """Labels by number, with a type of their own where all are alike, as pandas infers it."""
    import pandas

    known = np.empty(len(labels), dtype=object)
    known[:] = labels
    return pandas.Index(known[codes]).to_numpy()
