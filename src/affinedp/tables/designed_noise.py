"""Noise for tables of one shape: the record, its size by column or cell, how far it reaches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, dense
from affinedp.intervals import checked_level
from affinedp.mechanism import Mechanism
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.tree import Tree
from affinedp.tables.description import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.multiples import Multiples
from affinedp.tables.never_worse import Compared
from affinedp.tables.promise import charge_words, whole_words
from affinedp.tables.tree_tables import tree_reach
from affinedp.tables.whole_numbers import rounding_reach

# Rounding to a whole number at random adds at most this to a variance, where nothing is above it.
WHOLE = 0.25


@dataclass(frozen=True, eq=False)
class DesignedNoise:
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
    compared : tuple of Compared
        What other ways to add noise cost for the same promise.
    bound : float or None
        The public bound with which a table was released: it makes the noise larger.
    """

    description: TableDescription
    layout: Layout
    mechanism: Mechanism
    guarantee: Guarantee
    releases: int
    multiples: Multiples | None = field(repr=False)
    move: str = ""
    compared: tuple[Compared, ...] = field(default=(), repr=False)
    bound: float | None = None

    @property
    def tree(self) -> bool:
        """Whether the noise is that of a tree of totals, on public entries too."""
        return isinstance(self.mechanism.strategy, Tree)

    @property
    def charge(self) -> Guarantee:
        """What is charged to a ledger, ``releases`` times."""
        if self.tree:
            return self.guarantee
        return replace(
            self.mechanism.guarantee,
            neighbours=charge_words(self.description, self.layout, self.move)
            + whole_words(self.mechanism.guarantee),
        )

    @property
    def enlargement(self) -> float:
        """How much larger a release makes the noise, for what rounding of doubles adds."""
        if self.tree:
            return 1.0
        return self.mechanism.prepared(self.bound).factor

    @cached_property
    def deviations(self) -> FloatArray:
        """Standard deviation of each private entry; with rounding, as if that were uniform."""
        if self.tree:
            whole = self.description.round_to is not None or self.description.nonnegative
            whole = whole and not self.mechanism.noise.whole
            squares = self.mechanism.expected_squared_errors[self.layout.private]
            return np.sqrt(squares + WHOLE * (squares > 0) * whole)
        squares = self.mechanism.expected_squared_errors * self.enlargement**2
        if self.multiples is not None and not self.already_multiples:
            squares = squares + self.multiples.variances
        return np.sqrt(squares)

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are let through, so that the true ones are whole."""
        return self.tree or self.mechanism.noise.whole

    @property
    def already_multiples(self) -> bool:
        """Whether the noise is whole, and so what it is added to needs no rounding."""
        step = self.description.round_to
        whole = not self.tree and self.mechanism.noise.whole
        return whole and step is not None and (1 / Fraction(str(step))).denominator == 1

    @property
    def weighted_error(self) -> float:
        """Expected squared error of one data set under the weights, before rounding."""
        errors = self.mechanism.expected_squared_errors
        if self.tree:
            errors = errors[self.layout.private]
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
        if self.tree:
            reach = tree_reach(self.mechanism, checked_level(level))[self.layout.private]
            if rounded and self.description.round_to is not None:
                reach = reach + rounding_reach(self.mechanism) * (reach > 0)
            return self.shaped(reach)
        if self.mechanism.noise.size is not None:
            zero = np.zeros(len(self.mechanism.output_names))
            reach = np.asarray(self.mechanism.interval(zero, level=level, bound=self.bound).high)
        else:
            noise = dense(self.mechanism.noise_matrix)
            reach = self.mechanism.noise.reach(noise, 1 - checked_level(level))[0]
            reach = reach * self.enlargement
        if rounded and self.multiples is not None and not self.already_multiples:
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
