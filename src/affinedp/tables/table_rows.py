"""Rows of a table, from what is found sound to what is published; or a whole table as one.

Each is a data set that gets noise of its own, here or on another machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.frames import fresh_frame, fresh_labels
from affinedp.domains.manifold import AffineManifold
from affinedp.exact.lattice import Integers
from affinedp.laws.sampler import Sampler
from affinedp.mechanism import Mechanism
from affinedp.progress import Progress
from affinedp.release.publish import drawer_of, publish
from affinedp.strategies.base import Drawer, Prepared
from affinedp.tables.at_least_zero import at_least_zero
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.frames import given_table
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.reading import read_points
from affinedp.tables.refusals import TableError

# Noises that are drawn between two steps of the progress bar.
BATCH = 15_000
# Doubles beyond this are not all the whole numbers.
MOST_WHOLE = 2.0**53
NOT_ALL = (
    "the public numbers leave no table without negative numbers that obeys the equations: some "
    "rows were published as they were drawn"
)


@dataclass(frozen=True, eq=False)
class Published:
    """What a release makes public.

    Attributes
    ----------
    table : DataFrame
        Labels and columns of the private table; numbers with noise.
    public : array, shape (data sets, public entries)
        Public numbers in the equations, also sums that no cell holds.
    unrounded : DataFrame
        The private columns before they were rounded; the same where nothing was rounded.
    bound : float or None
        The public bound with which it was released, on the numbers that noise was added to.
    """

    table: Any
    public: FloatArray
    unrounded: Any
    bound: float | None = None


@dataclass(frozen=True, eq=False)
class Ready:
    """A table in which all that can be refused was looked for; secret.

    Attributes
    ----------
    table : DataFrame
        As it was given.
    public : array
        Public numbers in the equations.
    shift : array
        What follows from them.
    moved : array
        The private numbers without it.
    origin : Integers or None
        From where multiples are counted.
    """

    table: Any
    public: FloatArray
    shift: FloatArray
    moved: FloatArray
    origin: Integers | None


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table, or a whole table, that a design publishes: what a worker is sent.

    Attributes
    ----------
    design : DesignedNoise
        The noise, on entries of rows or of the table.
    bound : float or None
        A public bound on the numbers.
    sampler : {"bulk", "opendp"}
        Who draws.
    """

    design: DesignedNoise
    bound: float | None
    sampler: Sampler = "bulk"

    @property
    def mechanism(self) -> Mechanism:
        """The noise of one data set; no hierarchy in linear time."""
        assert isinstance(self.design.mechanism, Mechanism)
        return self.design.mechanism

    @cached_property
    def limit(self) -> float | None:
        """The bound on the numbers that noise is added to."""
        return _moved_bound(self.mechanism.manifold, self.bound)

    def ready(self, table: Any) -> Ready:
        """Refuse whatever can be refused, before the charge.

        Parameters
        ----------
        table : DataFrame
            Some rows; the whole table where equations tie them.
        """
        design, manifold = self.design, self.mechanism.manifold
        layout = same_layout(design, table)
        points = read_points(design.description, layout, table, self.bound)
        public, secret = points[:, ~layout.is_private], points[:, layout.private]
        shift = _public_shift(layout, manifold, public)
        origin = None
        if design.multiples is not None:
            origin = design.multiples.origin(layout, public)
        plan = self.mechanism.prepared(self.limit)
        drawer_of(plan, self.sampler)
        if self.mechanism.noise.whole:
            _refuse_decimals(layout, secret)
        if self.mechanism.shared_part is not None:
            _refuse_rounded(layout, secret)
        if design.multiples is not None:
            known = replace(design, bound=self.limit)
            design.multiples.refuse_too_much_noise(known.deviations, layout)
        moved = _on_the_manifold(manifold, secret)
        for batch in _batches(self.mechanism, len(moved)):
            plan.check(moved[batch])
            plan.steps(moved[batch])
        return Ready(table, public, shift, moved, origin)

    def drawn(self, ready: Ready, drawer: Drawer | None = None) -> Published:
        """Draw noise and return what is published.

        Parameters
        ----------
        ready : Ready
            What was found sound.
        drawer : Drawer, optional
            Who draws, if not the sampler.
        """
        plan = self.mechanism.prepared(self.limit)
        published = _drawn(
            self.mechanism, plan, ready.moved, drawer or drawer_of(plan, self.sampler)
        )
        found = _as_table(
            self.design, ready.table, published + ready.shift, ready.public, ready.origin
        )
        return replace(found, bound=self.limit)

    def check(self, frame: Any) -> Any:
        """Refuse rows that cannot be released, and return them with zeros in place of numbers.

        Parameters
        ----------
        frame : DataFrame
            Some rows.
        """
        ready = self.ready(given_table(self.design.description, frame).frame)
        kind = (
            np.int64
            if self.design.multiples is not None and self.design.multiples.step.denominator == 1
            else float
        )
        numbers = np.zeros(len(frame), dtype=kind)
        columns = dict.fromkeys(self.design.layout.roles.private, numbers)
        return shown(ready.table, columns, columns, ready.public).table

    def publish(self, frame: Any, drawer: Drawer) -> Any:
        """Return rows with noise."""
        ready = self.ready(given_table(self.design.description, frame).frame)
        return self.drawn(ready, drawer).table


def _refuse_decimals(layout: Layout, secret: FloatArray) -> None:
    """Refuse what is not whole, or too large to be known as whole."""
    for place, name in enumerate(layout.names):
        column = secret[:, place]
        if np.any(column != np.rint(column)) or np.any(np.abs(column) > MOST_WHOLE):
            raise TableError(
                f"{name!r} holds numbers that are not whole, or too large, but the noise was "
                "designed for counts of people, which are whole: count in smaller units, or say "
                "whole=False (in a file: whole = false under [privacy])",
                "",
                name,
            )


def _refuse_rounded(layout: Layout, secret: FloatArray) -> None:
    """Refuse decimals that are no doubles where sums of them are published without noise.

    Neighbours agree in these sums as decimals; as doubles they agree only where nothing rounds.
    """
    for place, name in enumerate(layout.names):
        column = secret[:, place]
        fractions = column[column != np.rint(column)].tolist()
        if any(Fraction(value) != Fraction(repr(value)) for value in fractions):
            raise TableError(
                f"{name!r} holds decimals that double precision rounds, and some combinations of "
                "the private numbers are published without noise because no neighbour moves them: "
                "their last digits would tell neighbours apart. Publish in smaller units, so that "
                "the numbers are whole",
                "",
                name,
            )


def same_layout(design: DesignedNoise, table: Any) -> Layout:
    """Refuse a table of another shape than the noise was designed for."""
    layout = layout_of(design.description, table)
    known = design.layout
    if layout.columns != known.columns or layout.roles != known.roles:
        raise TableError("the table has other columns than the one that the noise was designed for")
    if layout.row_names != known.row_names:
        raise TableError("the table has other rows than the one that the noise was designed for")
    if [r.coefficients for r in layout.relations] != [r.coefficients for r in known.relations]:
        raise TableError("the rows are grouped otherwise than when the noise was designed")
    return layout


def _public_shift(layout: Layout, manifold: AffineManifold, public: FloatArray) -> FloatArray:
    """A point of the manifold that follows from constants and public entries alone."""
    shift = np.zeros((len(public), manifold.n))
    with_private = np.diff(layout.matrix[:, layout.private].tocsr().indptr) > 0
    kept = np.flatnonzero(with_private)[manifold.canonical.rows]
    right = public @ layout.matrix[kept][:, ~layout.is_private].T + layout.offsets[kept]
    if right.any():
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        pivots = manifold.canonical.pivots
        basis = splu(csc_array(csc_array(manifold.D)[:, pivots]))
        shift[:, pivots] = -basis.solve(np.ascontiguousarray(right.T)).T
    return shift


def _on_the_manifold(manifold: AffineManifold, secret: FloatArray) -> FloatArray:
    """The data with public constants taken away: only the free entries are read."""
    return np.asarray((manifold.kernel @ secret[:, manifold.canonical.free].T).T)


def _moved_bound(manifold: AffineManifold, bound: float | None) -> float | None:
    """A public bound on the numbers without their public part, from one on the free numbers."""
    if bound is None:
        return None
    most = float(np.asarray(abs(manifold.kernel).sum(axis=1)).max())
    return float(bound) * max(1.0, most) * (1 + 1e-9)


def _drawn(mechanism: Mechanism, plan: Prepared, points: FloatArray, drawer: Drawer) -> FloatArray:
    """Every data set with noise of its own, some at a time."""
    published = np.empty((len(points), len(mechanism.output_names)))
    with Progress("drawing noise") as progress:
        for batch in _batches(mechanism, len(points)):
            published[batch] = publish(mechanism, plan, points[batch], drawer=drawer)
            progress.update(min(1.0, batch.stop / len(points)))
    return published


def _batches(mechanism: Mechanism, count: int) -> Iterator[slice]:
    rows = max(1, BATCH // mechanism.strategy.coordinates)
    for start in range(0, count, rows):
        yield slice(start, start + rows)


def _as_table(
    design: DesignedNoise,
    table: Any,
    published: FloatArray,
    public: FloatArray,
    origin: Integers | None,
) -> Published:
    """A table of its own: public labels and numbers, and what was drawn; no more of the input.

    The types follow from the description: doubles, or 64-bit integers where whole numbers were
    asked for, whatever the private columns were.
    """
    layout = design.layout
    unrounded = dict(zip(layout.roles.private, by_column(layout, published, public)))
    numbers = unrounded
    if design.multiples is not None and origin is not None:
        steps = design.multiples.rounded(published, origin)
        multiples = design.multiples.values(steps)
        numbers = dict(zip(layout.roles.private, by_column(layout, multiples, public)))
    if design.description.nonnegative:
        step = design.description.round_to
        given = published if design.multiples is None else multiples.astype(float)
        kept, complete = at_least_zero(layout, given, public, design.deviations, step)
        if not complete:
            warnings.warn(NOT_ALL, stacklevel=5)
        kind = float if design.multiples is None else multiples.dtype
        numbers = dict(zip(layout.roles.private, by_column(layout, kept.astype(kind), public)))
    return shown(table, numbers, unrounded, public)


def shown(
    table: Any, numbers: dict[str, Any], unrounded: dict[str, Any], public: FloatArray
) -> Published:
    """Labels and public columns of the table, and what was drawn."""
    columns = {
        name: numbers[name] if name in numbers else fresh_labels(table[name])
        for name in table.columns
    }
    table = fresh_frame(columns, table.index)
    # equal labels, made once; the two share no numbers that someone could change
    return Published(table, public, fresh_frame(unrounded, table.index))


def by_column(layout: Layout, private: Any, public: FloatArray) -> Any:
    """The private columns, one row per row of the table; public rows have cells in them, too."""
    entries = np.empty((len(private), layout.cells), dtype=private.dtype)
    entries[:, layout.private] = private
    known = np.flatnonzero(~layout.is_private[: layout.cells])
    given = public[:, : len(known)]
    # in a table of whole numbers these are whole, up to rounding: no others were let through
    entries[:, known] = given if entries.dtype.kind == "f" else np.rint(given)
    cells = entries.reshape(-1, len(layout.columns))
    return cells[:, [layout.columns.index(name) for name in layout.roles.private]].T
