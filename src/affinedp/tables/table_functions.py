"""Functions of the numbers of a published table: by column for every row, or by cell."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import counted
from affinedp.functions.published import (
    Asked,
    FunctionInterval,
    Named,
    Noise,
    as_it_is,
    function_of,
    interval_for,
    read_function,
    stacked,
    within,
)
from affinedp.intervals import checked_level
from affinedp.tables.layout import Layout
from affinedp.tables.noise import DesignedNoise
from affinedp.tables.publish import Published
from affinedp.tables.refusals import TableError, closest

BOUNDED = "cut at the public bounds of the values, which hold it wherever a row is counted"
SHARE = "cut to what a part can be of its total, wherever anybody is counted"


def table_function(
    design: DesignedNoise, published: Published, f: Any, level: float, certified: bool
) -> FunctionInterval:
    """Return a function of a published table with intervals, from the numbers before rounding."""
    layout, mechanism = design.layout, design.mechanism
    numbers = published.table[list(layout.columns)].astype(float)
    for name in published.unrounded:
        numbers[name] = published.unrounded[name].to_numpy(dtype=float)
    points = layout.cell_points(numbers.to_numpy(dtype=float))
    outputs = np.arange(layout.cells) if design.tree else layout.private
    if design.split is not None:
        outputs = np.argsort(design.outputs)
    place = {int(entry): i for i, entry in enumerate(outputs)}

    def computed(point: FloatArray, cells: list[int], names: list[str]) -> FunctionInterval:
        own = [i for i, cell in enumerate(cells) if cell in place]
        known = {name: float(point[cell]) for name, cell in zip(names, cells) if cell not in place}
        named = Named([names[i] for i in own], [place[cells[i]] for i in own], known)
        asked = read_function(mechanism, f, point[outputs], named)
        noise = Noise(mechanism, point[outputs], asked.places, design.enlargement)
        found = interval_for(noise, asked, checked_level(level), certified)
        if bounds is None and not not_negative:
            return found
        asked = as_it_is(noise, asked)
        entries = outputs[asked.places]
        if bounds is not None:
            ends = _ends_of_mean(asked, entries // len(layout.columns), bounds)
            if ends is not None:
                return within(found, *ends, BOUNDED)
        ends = _ends_of_share(asked, entries.tolist(), above, not_negative)
        return found if ends is None else within(found, *ends, SHARE)

    bounds, mu = None, design.description.mu
    not_negative: set[int] = set()
    if design.description.nonnegative:
        not_negative = set(layout.private.tolist()) | layout.impossible
    if design.description.has_values and isinstance(mu, Mapping):
        amounts = layout.amounts(mu)
        each = np.array([[float(end) for end in amounts[name]] for name in layout.columns])
        bounds = each[outputs % len(layout.columns)]
        not_negative |= set(outputs[bounds[:, 0] >= 0].tolist()) | layout.impossible
    above = _totals_above(layout) if not_negative else {}
    columns, every = list(layout.columns), list(range(layout.cells))
    if layout.row_names is None:
        return stacked([computed(point, every, columns) for point in points])
    (point,) = points
    if len(columns) == 1 or not _of_columns(f, columns):
        return computed(point, every, [layout.name(cell) for cell in every])
    width = len(columns)
    rows = [every[start : start + width] for start in range(0, layout.cells, width)]
    found = stacked([computed(point, cells, columns) for cells in rows])
    return replace(found, rows=tuple(layout.row_names))


@dataclass(frozen=True, eq=False)
class CellNames(Named):
    """Cells of margins by their labels, such as ``sex=f, age=old``, or ``everybody``."""

    design: Any = None

    def place(self, name: str) -> int:
        """Return which output a cell is."""
        asked, strategy = self.design.description, self.design.strategy
        said = {} if name == "everybody" else dict(_label_of(part) for part in name.split(","))
        tree, labels = asked.tree, {key: str(value) for key, value in said.items()}
        chosen = asked.numbers_of([key for key in labels if key not in tree.levels])
        at = []
        for j in chosen:
            known = [str(row) for row in asked.asked[asked.names[j]].rows]
            label = labels[asked.names[j]]
            if label not in known:
                raise TableError(
                    f"{asked.names[j]!r} has no label {label!r}{closest(label, known)}"
                )
            at.append(known.index(label))
        cell = np.zeros(strategy.lead + strategy.shape(chosen))
        cell[(*([self._node(tree, labels)] if strategy.lead else []), *at)] = 1.0
        return int(np.argmax(strategy.row({chosen: cell})))

    def _node(self, tree: Any, labels: Mapping[str, str]) -> int:
        """The one place that has these labels."""
        own = [level for level in tree.levels if level in labels]
        nodes = tree.nodes(own[-1] if own else tree.names[0])
        codes = tree.label_codes(nodes)
        for level in own:
            depth = tree.levels.index(level)
            known = np.array([str(label) for label in tree.labels[depth]])
            here = known[codes[:, depth]] == labels[level]
            nodes, codes = nodes[here], codes[here]
        if len(nodes) != 1:
            told = ", ".join(f"{level}={labels[level]}" for level in own)
            raise TableError(
                f"{told} names {counted(len(nodes), 'place')}: name one, level by level"
            )
        return int(nodes[0])


def _label_of(part: str) -> tuple[str, str]:
    name, _, label = part.partition("=")
    if not label:
        raise TableError(f"{part.strip()!r} is no cell: write sex=f, or sex=f, age=old")
    return name.strip(), label.strip()


def margin_function(
    design: Any, released: Any, f: Any, level: float, certified: bool
) -> FunctionInterval:
    """Return a function of published margins with an interval, from the numbers before rounding."""
    if design.fitted is not None:
        raise TableError(
            "margins with impossible combinations are fitted to them: functions of these are not "
            "computed. Publish the table with TableRelease, or divide intervals at a higher level: "
            "what each of them misses adds up, so two at 97.5 % bound a ratio at 95 %, where the "
            "denominator's is above 0"
        )
    mechanism, named = design.mechanism, CellNames((), design=design)
    factor = mechanism.prepared().factor
    return function_of(mechanism, released, f, level, certified, factor, named)


def _ends_of_mean(asked: Asked, rows: IntArray, bounds: FloatArray) -> tuple[float, float] | None:
    """Between which numbers a mean lies: sums of one row of the table by how many it counts."""
    ratios = asked.ratios
    if ratios is None or asked.shape or len(set(rows.tolist())) != 1:
        return None
    (p,), p0, (q,), q0 = ratios
    low, high = bounds[asked.places].T
    count = float(q @ low)
    if p0.any() or q0.any() or count == 0 or np.any((q != 0) & (low != high)):
        return None
    up, down = np.maximum(p, 0) / count, np.minimum(p, 0) / count
    ends = float(up @ low + down @ high), float(up @ high + down @ low)
    return min(ends), max(ends)


# Of an entry, the totals that it is a part of, each with all of its parts.
Above = dict[int, list[tuple[int, list[int]]]]


def _totals_above(layout: Layout) -> Above:
    """Return of every entry the totals that it is directly a part of."""
    found: Above = {}
    for relation in layout.relations:
        size, total = dict(relation.coefficients), relation.total
        if total is None:
            continue
        own = size.pop(total)
        if relation.offset or any(value != -own for value in size.values()):
            continue
        for part in size:
            found.setdefault(part, []).append((total, list(size)))
    return found


def _ends_of_share(
    asked: Asked, entries: list[int], above: Above, not_negative: set[int]
) -> tuple[float, float] | None:
    """Between which numbers a ratio lies: parts, none of them negative, of a total of them.

    The denominator is written as a sum that has every part of the numerator in it: then
    Σ pᵢ xᵢ / Σ qᵢ xᵢ lies between the least and the largest pᵢ/qᵢ.
    """
    ratios = asked.ratios
    if ratios is None or asked.shape:
        return None
    (p,), p0, (q,), q0 = ratios
    if p0.any() or q0.any():
        return None
    parts, below = (
        {entry: float(size) for entry, size in zip(entries, sizes) if size} for sizes in (p, q)
    )
    for part in list(parts):
        for total, split in _path_up(part, above, below):
            for form in (below, parts):
                size = form.pop(total, 0.0)
                for entry in split if size else ():
                    form[entry] = form.get(entry, 0.0) + size
    if not below.keys() >= parts.keys() or not below.keys() <= not_negative:
        return None
    if not below or min(below.values()) <= 0:
        return None
    shares = [parts.get(entry, 0.0) / size for entry, size in below.items()]
    return min(shares), max(shares)


def _path_up(part: int, above: Above, below: Mapping[int, float]) -> list[tuple[int, list[int]]]:
    """The totals to split, from one that the denominator has down to the part; none if none."""
    paths: list[tuple[int, list[tuple[int, list[int]]]]] = [(part, [])]
    seen = {part}
    for entry, path in paths:  # grows
        if entry in below:
            return path
        for total, split in above.get(entry, ()):
            if total not in seen:
                seen.add(total)
                paths.append((total, [(total, split), *path]))
    return []


def _of_columns(f: Any, columns: list[str]) -> bool:
    """Whether a function is asked for every row: all that it names are columns."""
    if isinstance(f, str):
        from affinedp.functions.formula import entry, read_formula

        read: set[str] = set()

        def noted(name: str) -> Any:
            read.add(name)
            return entry(len(read))

        read_formula(f, noted)
        return read <= set(columns)
    return callable(f) and set(inspect.signature(f).parameters) <= set(columns)
