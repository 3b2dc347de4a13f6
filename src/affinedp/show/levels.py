"""The noise of many outputs in a few lines: by level, or by how much of it there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_GROUPS = 8
NAMED = 3
SHARES = (("quietest tenth", 0.0, 0.1), ("middle", 0.1, 0.9), ("noisiest tenth", 0.9, 1.0))


@dataclass(frozen=True, slots=True)
class LevelRow:
    """The noise on a group of outputs.

    Attributes
    ----------
    name : str
        The level, or which outputs they are.
    numbers : int
        How many.
    deviation : float
        Root mean square of their noise.
    relative : float or None
        Median half width of 95 % intervals, as a share of the published numbers.
    """

    name: str
    numbers: int
    deviation: float
    relative: float | None = None


def groups_of(names: Sequence[str], deviations: Sequence[float]) -> tuple[LevelRow, ...]:
    """Return outputs grouped by their noise: those with the same, or tenths.

    Parameters
    ----------
    names : sequence of str
        Of the outputs.
    deviations : sequence of float
        Their noise.

    Examples
    --------
    >>> for row in groups_of(["a", "b", "c"], [1.0, 2.0, 1.0]):
    ...     print(row.name, row.numbers, row.deviation)
    a, c 2 1.0
    b 1 2.0
    """
    # by what is shown of the numbers, so that rounding does not split equal noise
    shown = np.array([float(f"{size:.4g}") for size in deviations])
    sizes = np.asarray(deviations, dtype=float)
    different = np.unique(shown)
    if len(different) <= MOST_GROUPS:
        return tuple(_row(names, sizes, np.flatnonzero(shown == size)) for size in different)
    order = np.argsort(shown, kind="stable")
    ends = [(name, round(a * len(order)), round(b * len(order))) for name, a, b in SHARES]
    return tuple(
        _row(names, sizes, order[start:end], name) for name, start, end in ends if end > start
    )


def _row(names: Sequence[str], sizes: np.ndarray, places: np.ndarray, name: str = "") -> LevelRow:
    some = ", ".join(names[int(i)] for i in places[:NAMED])
    some += ", …" if len(places) > NAMED else ""
    mean = float(np.sqrt(np.mean(sizes[places] ** 2)))
    return LevelRow(f"{name}: {some}" if name else some, len(places), mean)
