"""How accurate a table is, level by level: from the design alone, or with what was published."""

from __future__ import annotations

from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.intervals import checked_level
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.layout import Layout

# A cross-tabulation: how deep a row and a column are.
CROSSED = {
    (1, 1): "cells",
    (1, 0): "row totals",
    (0, 1): "column totals",
    (0, 0): "grand total",
}


def level_names(layout: Layout, hierarchy: Any, mu: Any = 1.0) -> list[str]:
    """Return the level of every private entry in words.

    Parameters
    ----------
    layout : Layout
        The entries.
    hierarchy : str, sequence of str or None
        The names of the levels of rows, if they have any.
    mu : float or mapping
        How far one person moves a number: columns of several units stay apart, by name.
    """
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


def all_at_once(design: DesignedNoise, level: float, count: int) -> float:
    """Return the level at which so many intervals must hold one by one to hold at once.

    Šidák's inequality for Gaussian noise, Bonferroni's for any other.

    Parameters
    ----------
    design : DesignedNoise
        The noise.
    level : float
        Of all of them.
    count : int
        How many there are.
    """
    if design.mechanism.law == "gaussian":
        return float(level ** (1 / max(count, 1)))
    return 1 - (1 - level) / max(count, 1)


def level_summary(
    design: DesignedNoise, level: float, numbers: Any = None, hierarchy: Any = None
) -> Any:
    """Return a DataFrame with one row per level of a table.

    Half widths hold around the numbers before rounding, and around rounded ones too; those that
    were made non-negative have an error that depends on the data, and no half width of their own.

    Parameters
    ----------
    design : DesignedNoise
        The noise.
    level : float
        Of the intervals, such as 0.95.
    numbers : DataFrame, optional
        What was published, before rounding: adds relative errors and the share of numbers that
        are significant, which is farther from 0 than their half width.
    hierarchy : str or sequence of str, optional
        Names of the levels.
    """
    import pandas

    level = checked_level(level)
    layout = design.layout
    names = level_names(layout, hierarchy, design.description.mu)
    noise = _flat(design, design.noise)
    # where whole numbers are near the estimates, widths hold around either of them
    near = not design.description.nonnegative
    width = _flat(design, design.half_width(level, rounded=near))
    published = None if numbers is None else _flat(design, numbers)
    rows = {}
    for name in dict.fromkeys(names):
        own = np.array([one == name for one in names])
        if layout.row_names is None:
            count = int(own.sum()) * (1 if numbers is None else len(numbers))
        else:
            count = int(own.sum())
        wide = all_at_once(design, level, count)
        together = _flat(design, design.half_width(wide, rounded=near))[own]
        row = {
            "numbers": count,
            "noise": float(np.sqrt(np.mean(noise[own] ** 2))),
            "half_width": float(width[own].max()),
            "all_at_once": float(together.max()),
        }
        if published is not None:
            values = np.abs(published[..., own])
            with np.errstate(divide="ignore"):
                relative = width[own] / values
            row["relative_half_width"] = float(np.median(relative))
            row["significant"] = float(np.mean(values > width[own]))
        rows[name] = row
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("level")


def _flat(design: DesignedNoise, shaped: Any) -> FloatArray:
    """One number per private entry; for separate rows of a table, one row of them each."""
    layout = design.layout
    if layout.row_names is None:
        return np.asarray(shaped, dtype=float)
    cells = np.full((len(layout.row_names), len(layout.columns)), np.nan)
    places = [layout.columns.index(name) for name in layout.roles.private]
    cells[:, places] = np.asarray(shaped, dtype=float)
    return np.asarray(cells.ravel()[layout.private])
