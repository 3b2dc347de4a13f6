"""Functions of the numbers of a published table: by column for every row, or by cell."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.functions.published import (
    Asked,
    FunctionInterval,
    Named,
    Noise,
    as_it_is,
    interval_for,
    read_function,
    stacked,
    within,
)
from affinedp.intervals import checked_level
from affinedp.tables.noise import DesignedNoise
from affinedp.tables.publish import Published

BOUNDED = "cut at the public bounds of the values, which hold it wherever a row is counted"


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
    place = {int(entry): i for i, entry in enumerate(outputs)}

    def computed(point: FloatArray, cells: list[int], names: list[str]) -> FunctionInterval:
        own = [i for i, cell in enumerate(cells) if cell in place]
        known = {name: float(point[cell]) for name, cell in zip(names, cells) if cell not in place}
        named = Named([names[i] for i in own], [place[cells[i]] for i in own], known)
        asked = read_function(mechanism, f, point[outputs], named)
        noise = Noise(mechanism, point[outputs], asked.places, design.enlargement)
        found = interval_for(noise, asked, checked_level(level), certified)
        if bounds is None:
            return found
        asked = as_it_is(noise, asked)
        ends = _ends_of_mean(asked, outputs[asked.places] // len(layout.columns), bounds)
        return found if ends is None else within(found, *ends, BOUNDED)

    bounds, mu = None, design.description.mu
    if design.description.has_values and isinstance(mu, Mapping):
        amounts = layout.amounts(mu)
        each = np.array([[float(end) for end in amounts[name]] for name in layout.columns])
        bounds = each[outputs % len(layout.columns)]
    columns, every = list(layout.columns), list(range(layout.cells))
    if layout.row_names is None:
        return stacked([computed(point, every, columns) for point in points])
    (point,) = points
    if len(columns) == 1 or not _of_columns(f, columns):
        return computed(point, every, [layout.name(cell) for cell in every])
    width = len(columns)
    rows = [every[start : start + width] for start in range(0, layout.cells, width)]
    return stacked([computed(point, cells, columns) for cells in rows])


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
