"""Publish a table: all that can be refused comes first, then the charge, then the draw.

Each row is a data set that gets noise of its own, here or on another machine; or the table is one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger, paying
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.reading import fresh_frame, fresh_labels
from affinedp.errors import outside
from affinedp.exact.lattice import Integers
from affinedp.laws.sampler import Sampler
from affinedp.laws.sampler.words import Source, system_bytes
from affinedp.mechanism import Mechanism
from affinedp.progress import Progress
from affinedp.release.publish import publish, sampler_of
from affinedp.strategies.base import Prepared
from affinedp.strategies.places import OfPlaces
from affinedp.tables.forgotten import refuse_forgotten
from affinedp.tables.frames import given_table
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.noise import DesignedNoise
from affinedp.tables.reading import read_points
from affinedp.tables.refusals import SUMS_OF_VALUES, TableError
from affinedp.tables.split import SplitTree
from affinedp.tables.whole_numbers import LARGEST, at_least_zero, whole, whole_margin

# Noises that are drawn between two steps of the progress bar.
BATCH = 15_000
NOT_ALL = (
    "the public numbers leave no table without negative numbers that obeys the equations: some "
    "rows were published as they were drawn"
)


@dataclass(frozen=True, eq=False)
class Published:
    """What a release makes public: the table, public numbers in the equations, no rounding."""

    table: Any
    public: FloatArray
    unrounded: Any


@dataclass(frozen=True, eq=False)
class Ready:
    """A table in which all that can be refused was looked for; secret."""

    table: Any
    public: FloatArray
    shift: FloatArray | float  # what follows from public numbers
    data: Any  # the numbers without it
    origin: Integers | None = None  # from where multiples are counted


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table, or a whole table, that a design publishes: what a worker is sent."""

    design: DesignedNoise
    bound: float | None
    sampler: Sampler = "bulk"

    @property
    def mechanism(self) -> Mechanism:
        """The noise of one data set."""
        return self.design.mechanism

    @cached_property
    def limit(self) -> float | None:
        """The bound on the numbers that noise is added to."""
        if self.bound is None or self.design.tree:
            return None
        # a number without its public part follows from free ones
        most = float(np.asarray(abs(self.mechanism.manifold.kernel).sum(axis=1)).max())
        return float(self.bound) * max(1.0, most) * (1 + 1e-9)

    @cached_property
    def plan(self) -> Prepared:
        """The public part of releases."""
        return self.mechanism.prepared(self.limit)

    def ready(self, table: Any, points: FloatArray | None = None) -> Ready:
        """Refuse whatever can be refused, before the charge; what was read is not read again."""
        design, mechanism = self.design, self.mechanism
        layout = design.layout
        if points is None:
            layout = layout_of(design.description, table)
            if other := design.layout.differs(layout):
                raise TableError(other)
            points = read_points(design.description, layout, table, self.bound)
        refuse_forgotten(design, points, table.index)
        public, secret = points[:, ~layout.is_private], points[:, layout.private]
        sampler_of(mechanism, self.plan, self.sampler)
        origin = None if design.multiples is None else design.multiples.origin(layout, public)
        if design.whole:
            _refuse_decimals(layout, points if design.tree else secret)
        if design.tree:
            counts = points if design.split is None else design.split.counts(points)[None]
            return Ready(table, public, 0.0, counts.astype(np.int64))
        if mechanism.shared_part is not None:
            free = mechanism.manifold.canonical.free
            _refuse_rounded(layout, secret, {int(free[j]) for j in mechanism.shared_part.places})
        if design.multiples is not None:
            known = replace(design, bound=self.limit)
            design.multiples.refuse_too_much_noise(known.deviations, layout)
        manifold = mechanism.manifold
        # public constants are taken away, and only the free entries are read
        moved = np.asarray((manifold.kernel @ secret[:, manifold.canonical.free].T).T)
        for batch in self._batches(len(moved)):
            self.plan.check(moved[batch])
            self.plan.steps(moved[batch])
        return Ready(table, public, _public_shift(layout, manifold, public), moved, origin)

    def drawn(self, ready: Ready, source: Source = system_bytes) -> Published:
        """Draw noise and return what is published."""
        count = len(ready.data)
        published = np.empty((count, len(self.mechanism.output_names)))
        with Progress("drawing noise") as progress:
            for batch in self._batches(count):
                # a table at every place is one data set, and comes back margin by margin
                data = ready.data[batch] if self.design.split is None else ready.data[0]
                found = publish(
                    self.mechanism, self.plan, data, sampler=self.sampler, source=source
                )
                published[batch] = self.mechanism.strategy.flat(found)
                progress.update(min(1.0, batch.stop / count))
        published += ready.shift
        estimates = published[:, self.design.outputs]
        numbers = _finished(self.design, published, ready)
        unrounded = self._by_column(estimates, ready)
        return _shown(
            ready,
            unrounded if numbers is None else self._by_column(numbers, ready),
            unrounded,
        )

    def check(self, frame: Any) -> Any:
        """Refuse rows that cannot be released, and return them with zeros in place of numbers."""
        ready = self.ready(given_table(frame, self.design.description.label_columns).frame)
        step = self.design.multiples
        kind = np.int64 if step is not None and step.step.denominator == 1 else float
        zeros = np.zeros(len(frame), dtype=kind)
        columns = dict.fromkeys(self.design.layout.roles.private, zeros)
        return _shown(ready, columns, columns).table

    def publish(self, frame: Any, source: Source) -> Any:
        """Return rows with noise."""
        ready = self.ready(given_table(frame, self.design.description.label_columns).frame)
        return self.drawn(ready, source).table

    def _batches(self, count: int) -> Iterator[slice]:
        rows = max(1, BATCH // self.mechanism.strategy.coordinates)
        for start in range(0, count, rows):
            yield slice(start, start + rows)

    def _by_column(self, private: Any, ready: Ready) -> dict[str, Any]:
        """The private columns, one row per row of the table; public rows have cells in them."""
        layout = self.design.layout
        entries = np.empty((len(private), layout.cells), dtype=private.dtype)
        entries[:, layout.private] = private
        known = np.flatnonzero(~layout.is_private[: layout.cells])
        given = ready.public[:, : len(known)]
        # in a table of whole numbers these are whole, up to rounding: no others were let through
        entries[:, known] = given if entries.dtype.kind == "f" else np.rint(given)
        cells = entries.reshape(-1, len(layout.columns))
        return {name: cells[:, layout.columns.index(name)] for name in layout.roles.private}


def paying_for_table(
    ledger: Ledger | None, design: DesignedNoise, count: int, label: str | None
) -> AbstractContextManager[None]:
    """Charge a ledger for a table of so many rows before it is drawn inside."""
    refuse_rows(ledger, design, count)
    return paying(
        ledger, design.charge, fingerprint=design.mechanism.fingerprint, label=label,
        releases=design.releases,
    )  # fmt: skip


def refuse_rows(ledger: Ledger | None, design: DesignedNoise, count: int) -> None:
    """Refuse as many rows as the promise is not about, or of which nobody said what it is."""
    asked = design.description
    if asked.row_mode == "composed" and count != design.releases:
        raise TableError(
            f"the noise was designed for {design.releases:,} rows about the same people, but the "
            f"table has {count:,}: design it again"
        )
    if ledger is not None and count > 1 and asked.rows is None and asked.row_mode == "separate":
        raise TableError(
            f"the table has {count:,} rows, and a ledger must know whom they are about: "
            "rows='separate' if nobody is in two rows (it is charged once), rows='composed' if the "
            "same people may be in all of them (it is charged for each row, and the noise is "
            "designed for that); nothing was charged"
        )


def _refuse_decimals(layout: Layout, numbers: FloatArray) -> None:
    """Refuse what is not whole, or too large to be known as whole."""
    bad = ((numbers != np.rint(numbers)) | (np.abs(numbers) > LARGEST)).any(axis=0)
    if bad.any():
        place = int(np.argmax(bad))
        name = layout.name(place if len(bad) == layout.cells else int(layout.private[place]))
        raise TableError(
            f"{name!r} holds numbers that are not whole, or too large, but the noise was designed "
            f"for counts of people, which are whole. {SUMS_OF_VALUES}. If they are counts, count "
            "in smaller units, or say whole=False (in a file: whole = false under [privacy])",
            "",
            name,
        )


def _refuse_rounded(layout: Layout, secret: FloatArray, places: set[int]) -> None:
    """Refuse decimals that are no doubles where sums of them are published without noise.

    Neighbours agree in these sums as decimals; as doubles they agree only where nothing rounds.
    """
    for place in sorted(places):
        name, column = layout.names[place], secret[:, place]
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


def _finished(design: DesignedNoise, published: FloatArray, ready: Ready) -> Any:
    """The private entries rounded, or without negative numbers; None where nothing is to do.

    Types follow from the description, whatever the private columns were: 64-bit integers where
    whole numbers were asked for, else doubles.
    """
    asked, layout = design.description, design.layout
    if asked.round_to is None and not asked.nonnegative:
        return None
    if design.tree:
        if design.split is not None:
            found = _whole_split(design, design.split, published[0])
        else:
            found = whole(design.mechanism, published[0], nonnegative=asked.nonnegative)
            found = found[None, design.outputs]
        return found if asked.round_to is not None else found.astype(float)
    numbers = published
    if design.multiples is not None and ready.origin is not None:
        numbers = design.multiples.values(design.multiples.rounded(published, ready.origin))
    if asked.nonnegative:
        kept, complete = at_least_zero(
            layout, numbers.astype(float), ready.public, design.deviations, asked.round_to
        )
        if not complete:
            warnings.warn(NOT_ALL, stacklevel=outside())
        numbers = kept.astype(numbers.dtype)
    return numbers


def _whole_split(design: DesignedNoise, split: SplitTree, published: FloatArray) -> Any:
    """The parts in whole numbers that add up over the rows, and their sums as the totals."""
    strategy, asked = design.mechanism.strategy, design.description
    assert isinstance(strategy, OfPlaces)
    parts = strategy.present(published)[0,]
    found = whole_margin(strategy, parts, asked.nonnegative)
    return split.cells(found, found.sum(axis=1))[None]


def _shown(ready: Ready, numbers: dict[str, Any], unrounded: dict[str, Any]) -> Published:
    """A table of its own: public labels and numbers, and what was drawn; no more of the input."""
    table = ready.table
    columns = {
        name: numbers[name] if name in numbers else fresh_labels(table[name])
        for name in table.columns
    }
    fresh = fresh_frame(columns, table.index)
    # equal labels, made once; the two share no numbers that someone could change
    return Published(fresh, ready.public, fresh_frame(unrounded, fresh.index))
