"""Noise for tables of one shape: what it promises, its size by column, cell or level."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.exact.numbers import whole_number
from affinedp.intervals import checked_level
from affinedp.laws.curves import ThreeAtoms
from affinedp.laws.reach import safe_rank
from affinedp.mechanism import Mechanism
from affinedp.parts import Locked
from affinedp.privacy.design import Alternative
from affinedp.privacy.guarantee import Guarantee, compose
from affinedp.strategies.base import MOST_LOADINGS
from affinedp.strategies.places import OfPlaces
from affinedp.strategies.tree import Tree
from affinedp.tables.describe import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.people import TableNeighbours
from affinedp.tables.reading import replaced_entries
from affinedp.tables.refusals import TableError, listed
from affinedp.tables.split import SplitTree, split_of
from affinedp.tables.whole_numbers import Multiples, published_whole, rounding_reach

WHOLE = "; whole numbers"
# Rounding to a whole number at random adds at most this to a variance, where nothing is above it.
COIN = 0.25
# Simulated numbers for intervals of Laplace noise, and releases: at least, and at most.
MOST_SIMULATED = 4e7
ENOUGH_SIMULATED = 4e6
RELEASES = 399, 20_000
# How probable it is that a simulated half width is too small.
DOUBT = 1e-4
# A cross-tabulation: how deep a row and a column are.
CROSSED = {
    (1, 1): "cells",
    (1, 0): "row totals",
    (0, 1): "column totals",
    (0, 0): "grand total",
}


@dataclass(frozen=True, eq=False)
class DesignedNoise(Locked):
    """Noise for tables of one shape, with what it promises.

    Nothing in it depends on private numbers.

    Attributes
    ----------
    description : TableDescription
        What was asked for.
    layout : Layout
        Entries and equations.
    mechanism : Mechanism
        The noise on the private entries of one data set; of a large hierarchy, on all entries.
    guarantee : Guarantee
        What a release of the whole table promises.
    releases : int
        How often the mechanism's guarantee is charged to a ledger for one table.
    multiples : Multiples or None
        How published numbers are rounded.
    move : str
        What moves between neighbours, in words.
    compared : tuple of Alternative
        What other ways to add noise cost for the same promise.
    bound : float or None
        The public bound with which a table was released: it makes the noise larger.
    """

    description: TableDescription
    layout: Layout
    mechanism: Mechanism
    guarantee: Guarantee
    releases: int = 1
    multiples: Multiples | None = field(default=None, repr=False)
    move: str = ""
    compared: tuple[Alternative, ...] = field(default=(), repr=False)
    bound: float | None = None

    @property
    def tree(self) -> bool:
        """Whether the noise is that of a tree of totals, split or not, on public entries too."""
        return isinstance(self.mechanism.strategy, Tree | OfPlaces)

    @cached_property
    def split(self) -> SplitTree | None:
        """The tree of rows that split one column, if the noise is that of one."""
        return split_of(self.layout) if isinstance(self.mechanism.strategy, OfPlaces) else None

    @property
    def outputs(self) -> IntArray:
        """Which outputs of the mechanism are the private entries."""
        if self.split is not None:
            return self.split.outputs
        return self.layout.private if self.tree else np.arange(len(self.layout.private))

    @property
    def charge(self) -> Guarantee:
        """What is charged to a ledger, ``releases`` times."""
        if self.tree:
            return self.guarantee
        one = self.mechanism.guarantee
        words = charge_words(self.description, self.layout, self.move) + whole_words(one)
        return replace(one, neighbours=words)

    @property
    def enlargement(self) -> float:
        """How much larger a release makes the noise, for what rounding of doubles adds."""
        return self.mechanism.prepared(self.bound).factor

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are let through, so that the true ones are whole."""
        return self.tree or self.mechanism.noise.whole

    @cached_property
    def squares(self) -> FloatArray:
        """Expected squared error of each private entry, before rounding."""
        return self.mechanism.expected_squared_errors[self.outputs] * self.enlargement**2

    @cached_property
    def rounding(self) -> tuple[FloatArray, FloatArray]:
        """What rounding adds: to variances, as if it were uniform, and to errors at most."""
        asked, step = self.description, self.description.round_to
        noisy = (self.squares > 0).astype(float)
        if self.tree:
            if published_whole(self.mechanism) or not (step or asked.nonnegative):
                return 0 * noisy, 0 * noisy
            # a total column adds up what was rounded
            terms = 1 if self.split is None else self.split.terms
            return COIN * terms**2 * noisy, rounding_reach(self.mechanism) * terms * noisy
        whole = step is not None and (1 / Fraction(str(step))).denominator == 1
        if self.multiples is None or (self.mechanism.publishes_whole_numbers and whole):
            return 0 * noisy, 0 * noisy
        return self.multiples.variances, self.multiples.farthest

    @cached_property
    def deviations(self) -> FloatArray:
        """Standard deviation of each private entry; with rounding, as if that were uniform."""
        return np.sqrt(self.squares + self.rounding[0])

    @property
    def weighted_error(self) -> float:
        """Expected squared error of one data set under the weights, before rounding."""
        errors = self.mechanism.expected_squared_errors[self.outputs]
        weights = self.layout.weights(self.description.weights, self.description.mu)
        return math.fsum(errors if weights is None else errors * weights)

    @property
    def noise(self) -> Any:
        """Standard deviation of the noise: a Series by column, or a DataFrame by cell."""
        return self.shaped(self.deviations)

    def half_width(self, level: float = 0.95, rounded: bool = True) -> Any:
        """Return how far published numbers are from the true ones with this probability.

        Exact for Gaussian noise; never too small for other noise and for rounded numbers.  For
        K-norm noise under sums of many entries a rank of simulated releases, which is too small
        with a probability of 1e-6 at most.

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
        return self.shaped(self.reach(level, rounded))

    def reach(self, level: float, rounded: bool) -> FloatArray:
        """Return the half width of each private entry by itself.

        Parameters
        ----------
        level : float
            Such as 0.95.
        rounded : bool
            Whether the numbers are rounded, or taken before that.
        """
        zero = np.zeros(len(self.mechanism.output_names))
        level = checked_level(level)
        found = self.mechanism.interval(zero, level=level, bound=self.bound).high
        reach = self.mechanism.strategy.flat(found)
        if self.tree:
            reach = simulated_reach(self.mechanism, level, reach)
        rounds = rounded and self.description.round_to is not None
        return reach[self.outputs] + (self.rounding[1] if rounds else 0.0)

    def half_width_of_sum(self, rows: int, level: float = 0.95) -> Any:
        """Return how far a sum over rows is from the true one.

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
        """
        whole_number(rows, "rows")
        if self.layout.row_names is not None:
            raise TableError(
                "equations tie the rows, so they share noise: give sums rows of their own"
            )
        if self.description.nonnegative:
            raise TableError(
                "numbers that were moved up to 0 do not add up to a sum around the true one: "
                "release without nonnegative, or give the sums rows of their own"
            )
        plain = self.reach(level, rounded=False)
        if self.mechanism.law == "gaussian":
            plain = plain * math.sqrt(rows)
        elif rows > 1:
            plain = np.sqrt(self.squares * (rows / (1 - level)))
        # the error of rounding may be the same in every row: it is added as often
        return self.shaped(plain + self.rounding[1] * rows)

    def shaped(self, values: FloatArray) -> Any:
        """Return one number per private entry as a Series by column or a DataFrame by cell.

        Parameters
        ----------
        values : array
            One per private entry.
        """
        import pandas

        layout = self.layout
        if layout.row_names is None:
            return pandas.Series(values, index=list(layout.roles.private))
        cells = np.full(layout.cells, np.nan)
        cells[layout.private] = values
        frame = pandas.DataFrame(
            cells.reshape(-1, len(layout.columns)),
            index=list(layout.row_names),
            columns=list(layout.columns),
        )
        return frame[list(layout.roles.private)]


def simulated_reach(mechanism: Mechanism, level: float, width: FloatArray) -> FloatArray:
    """Return half widths for Laplace noise on many totals, where those of a tail bound are wide.

    A rank of simulated errors is taken that is too small with a probability of 1e-4 at most.
    """
    numbers = len(mechanism.output_names)
    least, most = RELEASES
    releases = max(least, min(most, int(ENOUGH_SIMULATED / numbers)), math.ceil(20 / (1 - level)))
    known = mechanism.law != "laplace" or numbers**2 <= MOST_LOADINGS
    rank = safe_rank(releases, 1 - level, doubt=DOUBT)
    if known or rank is None or releases * float(numbers) > MOST_SIMULATED:
        return width
    errors = np.abs(mechanism.sample(releases, seed=0))
    simulated = np.partition(errors, rank - 1, axis=0)[rank - 1]
    return np.asarray(np.minimum(width, simulated))


# ---------------------------------------------------------------------- accuracy by level


def level_names(layout: Layout, hierarchy: Any, mu: Any = 1.0) -> list[str]:
    """Return the level of every private entry in words."""
    levels = [layout.levels[entry] for entry in layout.private.tolist()]
    deepest = max(row for row, _ in layout.levels)
    units = layout.units(mu)
    if units is None and hierarchy is None and {*levels} <= CROSSED.keys() and len({*levels}) > 2:
        return [CROSSED[level] for level in levels]
    rows = {depth: f"rows at depth {depth}" for depth in range(deepest + 1)}
    rows[0] = "the top row" if deepest else "rows"
    if deepest == 1:
        rows = {0: "total rows", 1: "rows"}
    if hierarchy is not None and not isinstance(hierarchy, str) and len(hierarchy) == deepest:
        rows = dict(enumerate(["grand total", *hierarchy]))
    columns = {column for _, column in levels}
    across = {depth: f"columns at depth {depth}" for depth in columns}
    if len(columns) == 1:
        across = dict.fromkeys(columns, "")
    elif columns == {0, 1}:
        across = {0: "total columns", 1: "columns"}
    several_rows = len({row for row, _ in levels}) > 1
    names = []
    for entry, (row, column) in zip(layout.private.tolist(), levels):
        own = layout.columns[entry % len(layout.columns)]
        parts = [rows[row] if several_rows else "", across[column] if units is None else own]
        names.append(", ".join(part for part in parts if part) or "all numbers")
    return names


def level_summary(design: DesignedNoise, level: float, numbers: Any = None) -> Any:
    """Return a DataFrame with one row per level of a table.

    Half widths hold around the numbers before rounding, and around rounded ones too; those that
    were made non-negative have an error that depends on the data, and no half width of their own.
    """
    import pandas

    level = checked_level(level)
    layout = design.layout
    names = np.array(level_names(layout, design.description.hierarchy, design.description.mu))
    # where whole numbers are near the estimates, widths hold around either of them
    near = not design.description.nonnegative
    width = design.reach(level, near)
    values = None if numbers is None else np.abs(_flat(layout, numbers))
    sets = 1 if numbers is None or layout.row_names is not None else len(numbers)
    rows = {}
    for name in dict.fromkeys(names.tolist()):
        own = names == name
        count = int(own.sum()) * sets
        together = design.reach(1 - design.mechanism.noise.each(1 - level, count), near)
        row = {
            "numbers": count,
            "noise": float(np.sqrt(np.mean(design.deviations[own] ** 2))),
            "half_width": float(width[own].max()),
            "all_at_once": float(together[own].max()),
        }
        if values is not None:
            with np.errstate(divide="ignore"):
                row["relative_half_width"] = float(np.median(width[own] / values[..., own]))
            row["significant"] = float(np.mean(values[..., own] > width[own]))
        rows[name] = row
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("level")


def _flat(layout: Layout, shaped: Any) -> FloatArray:
    """One number per private entry; for separate rows of a table, one row of them each."""
    if layout.row_names is None:
        return np.asarray(shaped, dtype=float)
    cells = np.full((len(layout.row_names), len(layout.columns)), np.nan)
    places = [layout.columns.index(name) for name in layout.roles.private]
    cells[:, places] = np.asarray(shaped, dtype=float)
    return np.asarray(cells.ravel()[layout.private])


# ---------------------------------------------------------------------- the promise in words


def table_guarantee(
    description: TableDescription,
    layout: Layout,
    mechanism: Mechanism,
    releases: int,
    who: TableNeighbours,
) -> Guarantee:
    """Return the guarantee of one release of the whole table."""
    one = mechanism.guarantee
    several = description.household * (description.at_most or 1) > 1 or description.has_values
    if mechanism.noise.whole and several:
        # several people in several cells, and values, are between the listed moves: their ε is,
        # too, but a curve on whole numbers need not be, and only randomised response covers all
        one = replace(one, curve=ThreeAtoms(one.sensitivity))
    whole = compose([one] * releases) if releases > 1 else one
    basis = one.basis
    if releases > 1:
        basis += f", composed over {releases:,} rows with noise of their own"
    if description.round_to is not None:
        basis += f"; multiples of {description.round_to:g} are computed from what is published"
    # every row may move by its own worst move at once, so the composition is as exact as one row
    return replace(
        whole,
        exact=one.exact,
        neighbours=neighbour_words(description, layout, releases, who.words) + whole_words(one),
        basis=basis,
        worst_direction=one.worst_direction,
        names=one.names,
        output_names=one.output_names,
        warnings=(*one.warnings, *who.warnings, *_warnings(description, layout)),
    )


def charge_words(description: TableDescription, layout: Layout, move: str) -> str:
    """Return who counts as a neighbour in one data set: what a ledger writes down."""
    if layout.row_names is not None:
        return neighbour_words(description, layout, 1, move)
    return f"in a row about them, {move}{_public_words(description, layout)}"


def whole_words(guarantee: Guarantee) -> str:
    """Return what is said of neighbours where only whole numbers are covered."""
    return WHOLE if guarantee.neighbours.endswith(WHOLE) else ""


def neighbour_words(description: TableDescription, layout: Layout, releases: int, move: str) -> str:
    """Return who counts as a neighbour."""
    if layout.row_names is not None:
        text = f"tables that differ by {move}"
    elif releases > 1:
        text = f"tables that may differ in all {releases:,} rows, in each by {move}"
    else:
        text = f"each row is a data set of its own: tables that differ in one row, by {move}"
    return text + _public_words(description, layout)


def _public_words(description: TableDescription, layout: Layout) -> str:
    parts = []
    if layout.roles.known:
        parts.append(f"public columns ({listed(layout.roles.known)})")
    if description.public_rows:
        parts.append(f"public rows ({listed(description.public_rows)})")
    if layout.sums:
        parts.append(f"{len(layout.sums):,} public sums")
    text = f"; {' and '.join(parts)} are the same in both and not protected" if parts else ""
    return text + impossible_words(layout)


def impossible_words(layout: Layout) -> str:
    """Return what is said of cells in which nobody can be."""
    count = len(layout.impossible)
    return (
        f"; {count:,} impossible number{'s are' if count > 1 else ' is'} 0 in both" if count else ""
    )


def _warnings(description: TableDescription, layout: Layout) -> tuple[str, ...]:
    replaced = replaced_entries(description, layout)
    if not replaced:
        return ()
    width = len(layout.columns)
    if description.adjust == "totals" or description.unknown == "totals":
        names = "the totals"
    else:
        names = listed(dict.fromkeys(layout.columns[entry % width] for entry in replaced))
    if description.adjust:
        return (
            f"the promise is about the table after {names} were changed to fit the equations, by "
            f"at most {description.within:g}: neighbours are tables that differ after that",
        )
    return (f"recorded numbers of {names} are not read: the equations say what they are",)
