"""Publish a table: check everything, charge, draw, and put the results into the table's shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.equations.manifold import AffineManifold
from affinedp.mechanism import Mechanism
from affinedp.progress import Progress
from affinedp.promise.guarantee import Guarantee
from affinedp.tables.design import TableDesign
from affinedp.tables.lattice import Integers
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.reading import read_points
from affinedp.tables.refusals import TableError

if TYPE_CHECKING:
    from affinedp.budget.ledger import Ledger
    from affinedp.show.page import Report

# Noises that are drawn between two steps of the progress bar.
BATCH = 30_000


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """A published table.  Everything here may be shown to anyone.

    Attributes
    ----------
    table : DataFrame
        Index and columns of the private table; numbers with noise.
    design : TableDesign
        The noise and the equations.
    public : array, shape (data sets, public entries)
        Public numbers in the equations, also sums that no cell holds.
    unrounded : DataFrame
        The private columns before they were rounded; the same where nothing was rounded.
    """

    table: Any
    design: TableDesign = field(repr=False)
    public: FloatArray = field(repr=False)
    unrounded: Any = field(repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.design.guarantee

    @property
    def noise(self) -> Any:
        """Standard deviation of the noise: a Series by column, or a DataFrame by cell."""
        return self.design.noise

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return lower and upper ends of confidence intervals for the true numbers.

        They are around the numbers before rounding, which are as private: rounding adds nothing.

        Parameters
        ----------
        level : float
            The probability with which each interval by itself holds the true number, at least.

        Returns
        -------
        pair of DataFrames
            With the index of the table and its private columns.
        """
        width = self.design.half_width(level, rounded=False)
        if self.design.layout.row_names is not None:
            # numbers that are public are known: their intervals have no width
            width = width.set_axis(self.unrounded.index).fillna(0.0)
        return self.unrounded - width, self.unrounded + width

    def report(self) -> Report:
        """Return what people want to read: promise, noise, whether totals add up."""
        from affinedp.tables.table_report import table_report

        return table_report(self.design, self.table, self.public)


def release_table(
    design: TableDesign,
    table: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    bound: float | None = None,
) -> ReleasedTable:
    """Publish a table; see :meth:`TableDesign.release`."""
    layout = _same_layout(design, table)
    points = read_points(design.description, layout, table, bound)
    public = points[:, ~layout.is_private]
    secret = points[:, layout.private]
    shift = _public_shift(layout, design.mechanism.manifold, public)
    origin = None
    if design.multiples is not None:
        origin = design.multiples.origin(layout, public)
        design.multiples.refuse_too_fine(secret, origin, design.deviations, layout)
    moved = _on_the_manifold(design.mechanism.manifold, secret)
    limit = _moved_bound(design.mechanism.manifold, bound)
    design.mechanism.release_plan(limit)  # all that can be refused is refused before the charge
    entry = None
    if ledger is not None:
        entry = ledger.charge(
            design.charge,
            fingerprint=design.mechanism.fingerprint,
            label=label,
            releases=design.releases,
        )
    published = _drawn(design.mechanism, moved, limit)
    if ledger is not None and entry is not None:
        ledger.settle(entry)
    return _as_table(design, table, published + shift, public, origin)


def _same_layout(design: TableDesign, table: Any) -> Layout:
    """Refuse a table of another shape than the noise was designed for."""
    layout = layout_of(design.description, table)
    known = design.layout
    if layout.columns != known.columns or layout.roles != known.roles:
        raise TableError("the table has other columns than the one that the noise was designed for")
    if layout.row_names != known.row_names:
        raise TableError("the table has other rows than the one that the noise was designed for")
    if [r.coefficients for r in layout.relations] != [r.coefficients for r in known.relations]:
        raise TableError("the rows are grouped otherwise than when the noise was designed")
    if design.description.row_mode == "composed" and len(table) != design.releases:
        raise TableError(
            f"the noise was designed for {design.releases:,} rows about the same people, but the "
            f"table has {len(table):,}: design it again"
        )
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


def _drawn(mechanism: Mechanism, points: FloatArray, bound: float | None) -> FloatArray:
    """Every data set with noise of its own, some at a time."""
    rows = max(1, BATCH // mechanism.root.shape[1])
    published = np.empty((len(points), len(mechanism.output_names)))
    with Progress("drawing noise") as progress:
        for start in range(0, len(points), rows):
            batch = slice(start, start + rows)
            published[batch] = mechanism.release(points[batch], bound=bound)
            progress.update(min(1.0, (start + rows) / len(points)))
    return published


def _as_table(
    design: TableDesign,
    table: Any,
    published: FloatArray,
    public: FloatArray,
    origin: Integers | None,
) -> ReleasedTable:
    """The table with its private numbers replaced."""
    layout = design.layout
    entries: Any = np.empty((len(published), len(layout.is_private)))
    entries[:, layout.private] = published
    entries[:, ~layout.is_private] = public
    private = list(layout.roles.private)
    unrounded = table[private].astype(float)
    unrounded[private] = _cells(layout, entries)
    if design.multiples is not None and origin is not None:
        steps = design.multiples.rounded(published, origin)
        entries[:, layout.private] = design.multiples.values(steps)
        if design.multiples.step.denominator == 1:
            entries = np.rint(entries).astype(np.int64)
    result = table.copy()
    for name, values in zip(private, _cells(layout, entries).T):
        result[name] = _typed(values, table[name])
    return ReleasedTable(result, design, public, unrounded)


def _cells(layout: Layout, entries: Any) -> Any:
    """The private columns, one row per row of the table."""
    cells = entries[:, : layout.cells].reshape(-1, len(layout.columns))
    return cells[:, [layout.columns.index(name) for name in layout.roles.private]]


def _typed(values: Any, like: Any) -> Any:
    """A column of the type that it had, where that holds the published numbers."""
    import pandas

    column = pandas.Series(values, index=like.index, name=like.name)
    wanted = like.dtype
    kind, size = getattr(wanted, "kind", "O"), getattr(wanted, "itemsize", 8)
    if kind in "iu" and values.dtype.kind == "f":
        return column  # noise makes fractions: whole numbers come with round_to
    if kind == "u" or size < 4:
        return column  # noise goes below zero and beyond short numbers
    if kind == "i" and not np.abs(values).max() < np.iinfo(f"i{size}").max:
        return column
    return column.astype(wanted)
