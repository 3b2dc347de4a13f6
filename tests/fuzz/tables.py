"""Random tables: totals, hierarchies and cross-tabulations, and the fuzzer's idea of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from affinedp.tables import TableRelease
from fuzz.exact import Equations, Move, is_double

TYPES = ("int64", "float64", "int32", "float32", "Int64", "Float64", "object")


@dataclass(frozen=True)
class Table:
    """A table of dyadic numbers, told twice.

    ``known`` are the equations between the private entries of one data set, ``entries`` their
    (row, column); the data sets of a table whose rows are not tied are its rows.
    """

    words: tuple[tuple[str, object], ...]
    columns: tuple[str, ...]
    labels: tuple[tuple[str, tuple[object, ...]], ...]
    index: tuple[str, ...]
    known: Equations
    entries: tuple[tuple[int, str], ...]
    moves: tuple[Move, ...]
    values: tuple[tuple[Fraction, ...], ...]  # one row per data set

    @cached_property
    def release(self) -> TableRelease:
        return TableRelease(**dict(self.words))

    @property
    def tied(self) -> bool:
        return self.release.row_mode == "together"

    def frame(self, values, types) -> pd.DataFrame:
        """The table with these numbers; columns have the types that hold them."""
        place = {entry: i for i, entry in enumerate(self.entries)}
        data = {name: list(labels) for name, labels in self.labels}
        for k, name in enumerate(self.columns):
            numbers = [
                float(values[0][place[row, name]] if self.tied else values[row][place[0, name]])
                for row in range(len(self.index))
            ]
            data[name] = typed(numbers, types[k % len(types)])
        frame = pd.DataFrame(data, index=list(self.index))
        frame.attrs["sum"] = float(sum(map(sum, values)))
        return frame


def typed(numbers, kind):
    """A column that holds exactly these numbers."""
    if kind == "object":
        return pd.Series([int(v) if v.is_integer() else v for v in numbers], dtype=object).to_list()
    try:
        column = pd.array(numbers, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        return numbers
    return column if [float(v) for v in column] == numbers else numbers


@st.composite
def tables(draw) -> Table:
    kind = draw(st.sampled_from([_totals, _totals, _hierarchy, _crossed]))
    words: dict[str, object] = {"epsilon": draw(st.sampled_from([0.1, 1.0, 5.0]))}
    # the least Laplace noise takes long to find
    if draw(st.integers(0, 3)):
        words["delta"] = draw(st.sampled_from([1e-9, 1e-6, 0.01]))
    return kind(draw, words)


def _mu(draw):
    return draw(st.sampled_from([1.0, 1.0, 2.0, 0.5, 2.0**-20, 2.0**20]))


def _totals(draw, words):
    """Columns that add up in every row."""
    parts = tuple(f"p{i}" for i in range(draw(st.integers(2, 4))))
    columns = (*parts, "all")
    row = [Fraction(1)] * len(parts) + [Fraction(-1)]
    equations, words["totals"] = [row], {"all": list(parts)}
    if draw(st.booleans()):
        columns = (*columns, "half")
        equations = [[*row, Fraction(0)], [Fraction(1)] * 2 + [Fraction(0)] * (len(parts) - 1)]
        equations[1] = [*equations[1], Fraction(-1)]
        words["totals"]["half"] = list(parts[:2])
    known = Equations(tuple(map(tuple, equations)), (Fraction(0),) * len(equations), columns)
    mode = draw(st.sampled_from(["separate", "composed"]))
    words["rows"] = mode
    count = draw(st.integers(1, 3))
    entries = tuple((0, name) for name in columns)
    index = tuple(f"r{i}" for i in range(count))
    return _finished(draw, words, columns, (), index, known, entries, count, set(parts))


def _hierarchy(draw, words):
    """Rows that are sums of rows."""
    leaves = draw(st.integers(2, 4))
    names = ["top", "left", "right", *(f"leaf{i}" for i in range(leaves))]
    parents = [None, "top", "top", *["left"] * leaves]
    columns = ("n", "m")[: draw(st.integers(1, 2))]
    entries = tuple((row, name) for row in range(len(names)) for name in columns)
    place = {entry: i for i, entry in enumerate(entries)}
    rows = []
    for column in columns:
        for total in (0, 1):
            row = [Fraction(0)] * len(entries)
            row[place[total, column]] = Fraction(-1)
            for child, parent in enumerate(parents):
                if parent == names[total]:
                    row[place[child, column]] = Fraction(1)
            rows.append(tuple(row))
    known = Equations(tuple(rows), (Fraction(0),) * len(rows), tuple(f"{c}{r}" for r, c in entries))
    words["hierarchy"] = "parent"
    basic = {place[row, column] for row in range(2, len(names)) for column in columns}
    labels = (("parent", tuple(parents)),)
    return _finished(draw, words, columns, labels, tuple(names), known, entries, 1, basic)


def _crossed(draw, words):
    """A cross-tabulation with public margins."""
    columns = tuple(f"c{i}" for i in range(draw(st.integers(2, 3))))
    height = draw(st.integers(2, 3))
    entries = tuple((row, name) for row in range(height) for name in columns)
    sums = [[e for e in entries if e[0] == row] for row in range(height)]
    sums += [[e for e in entries if e[1] == name] for name in columns]
    rows = tuple(tuple(Fraction(e in cells) for e in entries) for cells in sums)
    known = Equations(rows, (Fraction(0),) * len(rows), tuple(f"{c}{r}" for r, c in entries))
    words["margins"] = "public"
    index = tuple(f"r{i}" for i in range(height))
    return _finished(draw, words, columns, (), index, known, entries, 1, None)


def _finished(draw, words, columns, labels, index, known, entries, count, basic):
    mu = _mu(draw)
    words["mu"] = mu
    choices = ["circuits", "swaps"] if basic is None else ["circuits", "person"]
    words["adjacency"] = neighbours = draw(st.sampled_from(choices))
    reach = Fraction(mu)
    bases = list(known.bases())
    if neighbours == "circuits":
        moves = {kernel[i]: Move(kernel[i], reach) for _, kernel in bases for i in kernel}
    elif neighbours == "person":
        names = {known.names[i] if isinstance(i, int) else i for i in basic}
        free = [i for i, name in enumerate(known.names) if name in names]
        kernel = next(kernel for one, kernel in bases if list(one) == free)
        moves = {kernel[i]: Move(kernel[i], reach) for i in free}
    else:
        moves = _swaps(entries, columns, reach)
    if draw(st.booleans()):
        words["round_to"] = draw(st.sampled_from([1, 1, 0.5, 10, 0.1]))
    size = draw(st.sampled_from([0, 10, 1000, 10**9]))
    unit = Fraction(1) if "round_to" in words or draw(st.booleans()) else Fraction(1, 4)
    free = list(bases[0][0])
    values = []
    for _ in range(count):
        start = {i: draw(st.integers(-size, size)) * unit for i in free}
        if basic is None:  # the right side follows from the numbers
            first = {i: draw(st.integers(0, max(1, size))) * unit for i in range(known.n)}
            values.append(tuple(first[i] * 10 for i in range(known.n)))
        else:
            values.append(known.point(start))
    return Table(
        tuple(words.items()), columns, labels, index, known, entries,
        tuple(moves.values()), tuple(values),
    )  # fmt: skip


def _swaps(entries, columns, reach):
    place = {entry: i for i, entry in enumerate(entries)}
    moves = {}
    height = 1 + max(row for row, _ in entries)
    for one, other in combinations(range(height), 2):
        for a, b in combinations(columns, 2):
            v = [Fraction(0)] * len(entries)
            for row, column, sign in ((one, a, 1), (one, b, -1), (other, a, -1), (other, b, 1)):
                v[place[row, column]] = Fraction(sign)
            moves[tuple(v)] = Move(tuple(v), reach)
    return moves


@st.composite
def neighbouring(draw, table: Table):
    """The numbers of a neighbour, exactly; None if doubles do not hold them."""
    values = [list(row) for row in table.values]
    composed = table.release.row_mode == "composed"
    changed = range(len(values)) if composed else [draw(st.integers(0, len(values) - 1))]
    for row in changed:
        move = draw(st.sampled_from(table.moves))
        t = move.step(dict(enumerate(values[row])))
        if t is None:
            return None
        sign = draw(st.sampled_from([1, -1]))
        values[row] = [v + sign * t * d for v, d in zip(values[row], move.direction)]
    if not all(is_double(v) for row in values for v in row):
        return None
    return tuple(map(tuple, values))


def stacked(matrix, count):
    """Noise of one data set, for so many with noise of their own."""
    return np.vstack([matrix] * count)
