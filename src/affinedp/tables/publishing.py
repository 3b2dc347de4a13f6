"""Publish a table: check everything, charge, draw, and put the results into the table's shape."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger
from affinedp.designs.structured.tree_mechanism import TreeMechanism
from affinedp.equations.manifold import AffineManifold
from affinedp.files.frames import fresh_frame, fresh_labels
from affinedp.mechanism import Mechanism
from affinedp.progress import Progress
from affinedp.tables.at_least_zero import at_least_zero
from affinedp.tables.description import TableDescription
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.lattice import Integers
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.reading import read_points
from affinedp.tables.refusals import TableError
from affinedp.tables.tree_tables import tree_counts

# Noises that are drawn between two steps of the progress bar.
BATCH = 30_000
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


def release_table(
    design: DesignedNoise,
    table: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    bound: float | None = None,
) -> Published:
    """Publish a table; see :meth:`TableRelease.release`."""
    layout = _same_layout(design, table)
    points = read_points(design.description, layout, table, bound)
    if isinstance(design.mechanism, TreeMechanism):
        return _release_tree(design, design.mechanism, table, points, ledger, label)
    public = points[:, ~layout.is_private]
    secret = points[:, layout.private]
    shift = _public_shift(layout, design.mechanism.manifold, public)
    origin = None
    if design.multiples is not None:
        origin = design.multiples.origin(layout, public)
    moved = _on_the_manifold(design.mechanism.manifold, secret)
    limit = _moved_bound(design.mechanism.manifold, bound)
    # all that can be refused is refused before the charge
    if design.mechanism.integers:
        _refuse_decimals(layout, secret)
    if design.mechanism.release_plan(limit).shared is not None:
        _refuse_rounded(layout, secret)
    if design.multiples is not None:
        design.multiples.refuse_too_much_noise(replace(design, bound=limit).deviations, layout)
    entry = None
    if ledger is not None:
        _refuse_unsaid_rows(design.description, len(table))
        entry = ledger.charge(
            design.charge,
            fingerprint=design.mechanism.fingerprint,
            label=label,
            releases=design.releases,
        )
    published = _drawn(design.mechanism, moved, limit)
    if ledger is not None and entry is not None:
        ledger.settle(entry)
    return replace(_as_table(design, table, published + shift, public, origin), bound=limit)


def _release_tree(
    design: DesignedNoise,
    mechanism: TreeMechanism,
    table: Any,
    points: FloatArray,
    ledger: Ledger | None,
    label: str | None,
) -> Published:
    """A hierarchy in linear time: integer noise, least squares, whole numbers."""
    layout, description = design.layout, design.description
    counts = tree_counts(layout, points)
    entry = None
    if ledger is not None:
        entry = ledger.charge(design.charge, fingerprint=mechanism.fingerprint, label=label)
    whole = description.round_to is not None or description.nonnegative
    found = mechanism.release(counts, whole=whole, nonnegative=description.nonnegative)
    if ledger is not None and entry is not None:
        ledger.settle(entry)
    public = points[:, ~layout.is_private]
    private = layout.private
    estimates = _columns(layout, found.estimates[None, private], public)
    unrounded = dict(zip(layout.roles.private, estimates))
    numbers = unrounded
    if found.whole is not None:
        rounded = _columns(layout, found.whole[None, private], public)
        if description.round_to is None:
            rounded = rounded.astype(float)
        numbers = dict(zip(layout.roles.private, rounded))
    return _shown(table, numbers, unrounded, public)


def _refuse_unsaid_rows(description: TableDescription, count: int) -> None:
    """A ledger is charged once or for each row; which of them must be said."""
    if count > 1 and description.rows is None and description.row_mode == "separate":
        raise TableError(
            f"the table has {count:,} rows, and a ledger must know whom they are about: "
            "rows='separate' if nobody is in two rows (it is charged once), rows='composed' if the "
            "same people may be in all of them (it is charged for each row, and the noise is "
            "designed for that); nothing was charged"
        )


def _refuse_decimals(layout: Layout, secret: FloatArray) -> None:
    """Refuse what is not whole, or too large to be known as whole."""
    for place, name in enumerate(layout.names):
        column = secret[:, place]
        if np.any(column != np.rint(column)) or np.any(np.abs(column) > MOST_WHOLE):
            raise TableError(
                f"{name!r} holds numbers that are not whole, or too large, but the noise was "
                "designed for counts of people, which are whole: count in smaller units, or say "
                "whole=False",
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


def _same_layout(design: DesignedNoise, table: Any) -> Layout:
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
    unrounded = dict(zip(layout.roles.private, _columns(layout, published, public)))
    numbers = unrounded
    if design.multiples is not None and origin is not None:
        steps = design.multiples.rounded(published, origin)
        multiples = design.multiples.values(steps)
        numbers = dict(zip(layout.roles.private, _columns(layout, multiples, public)))
    if design.description.nonnegative:
        step = design.description.round_to
        given = published if design.multiples is None else multiples.astype(float)
        kept, complete = at_least_zero(layout, given, public, design.deviations, step)
        if not complete:
            warnings.warn(NOT_ALL, stacklevel=4)
        kind = float if design.multiples is None else multiples.dtype
        numbers = dict(zip(layout.roles.private, _columns(layout, kept.astype(kind), public)))
    return _shown(table, numbers, unrounded, public)


def _shown(
    table: Any, numbers: dict[str, Any], unrounded: dict[str, Any], public: FloatArray
) -> Published:
    """Labels and public columns of the table, and what was drawn."""
    columns = {
        name: numbers[name] if name in numbers else fresh_labels(table[name].tolist())
        for name in table.columns
    }
    return Published(fresh_frame(columns, table.index), public, fresh_frame(unrounded, table.index))


def _columns(layout: Layout, private: Any, public: FloatArray) -> Any:
    """The private columns, one row per row of the table; public rows have cells in them, too."""
    entries = np.empty((len(private), layout.cells), dtype=private.dtype)
    entries[:, layout.private] = private
    known = np.flatnonzero(~layout.is_private[: layout.cells])
    shown = public[:, : len(known)]
    # in a table of whole numbers these are whole, up to rounding: no others were let through
    entries[:, known] = shown if entries.dtype.kind == "f" else np.rint(shown)
    cells = entries.reshape(-1, len(layout.columns))
    return cells[:, [layout.columns.index(name) for name in layout.roles.private]].T
