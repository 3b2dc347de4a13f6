"""Functions of the numbers of a published table: by column for every row, or by cell."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.functions.published import FunctionInterval, Named, function_of, stacked
from affinedp.tables.noise import DesignedNoise
from affinedp.tables.publish import Published


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
        return function_of(
            mechanism, point[outputs], f, level, certified, design.enlargement, named
        )

    columns, every = list(layout.columns), list(range(layout.cells))
    if layout.row_names is None:
        return stacked([computed(point, every, columns) for point in points])
    (point,) = points
    if len(columns) == 1 or not _of_columns(f, columns):
        return computed(point, every, [layout.name(cell) for cell in every])
    width = len(columns)
    rows = [every[start : start + width] for start in range(0, layout.cells, width)]
    return stacked([computed(point, cells, columns) for cells in rows])


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
