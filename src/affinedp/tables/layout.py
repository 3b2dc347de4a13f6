"""The entries of a table: which cells are numbers of the manifold, and the equations between them.

Each row is a data set (an entry is a column), or the whole table is one (an entry is a cell).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.exact.numbers import over_one_denominator
from affinedp.parts import Locked
from affinedp.tables.describe import TableDescription, amounts_of, is_pair
from affinedp.tables.frames import Roles, roles_of
from affinedp.tables.refusals import (
    TableError,
    closest,
    has_no_label,
    label_words,
    listed,
    named_labels,
    one_label_each,
    row_words,
)
from affinedp.tables.relations import (
    Relation,
    RowGroup,
    changes,
    column_relations,
    depths,
    group_relation,
    level_groups,
    margin_groups,
    named_groups,
    no_labels,
    parent_groups,
    public_sum,
    row_places,
    shifted,
    without_people,
)

MOST_ENTRIES = 20_000
# One column of a hierarchy is designed and released in linear time.
MOST_IN_A_TREE = 2_000_000


@dataclass(frozen=True, eq=False)
class Layout(Locked):
    """Entries and equations of the tables of one shape."""

    roles: Roles
    columns: tuple[str, ...]
    row_names: tuple[str, ...] | None
    is_private: NDArray[np.bool_]
    relations: tuple[Relation, ...] = field(repr=False)
    sums: tuple[tuple[int, ...], ...] = field(repr=False)
    levels: tuple[tuple[int, int], ...] = field(repr=False)
    impossible: frozenset[int] = field(default=frozenset(), repr=False)

    @property
    def cells(self) -> int:
        """Entries that are cells of the table."""
        return len(self.is_private) - len(self.sums)

    @cached_property
    def private(self) -> IntArray:
        """Positions of the private entries."""
        return np.flatnonzero(self.is_private)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the private entries: columns, rows, or ``column[row]``."""
        return tuple(self.name(int(entry)) for entry in self.private)

    def name(self, entry: int) -> str:
        """Return the name of a cell."""
        row, column = divmod(entry, len(self.columns))
        if self.row_names is None:
            return self.columns[column]
        if len(self.columns) == 1:
            return self.row_names[row]
        return f"{self.columns[column]}[{self.row_names[row]}]"

    @cached_property
    def totals(self) -> frozenset[int]:
        """Entries that are the sum of others."""
        return frozenset(r.total for r in self.relations if r.total is not None)

    @cached_property
    def matrix(self) -> Matrix:
        """The coefficients, one row per equation and one column per entry, sparse."""
        import scipy.sparse as sparse

        shape = (len(self.relations), len(self.is_private))
        places = [
            (i, j) for i, relation in enumerate(self.relations) for j in relation.coefficients
        ]
        rows, columns = np.array(places, dtype=np.intp).reshape(-1, 2).T
        values = [float(self.relations[i].coefficients[j]) for i, j in places]
        return sparse.csr_array((np.array(values), (rows, columns)), shape=shape)

    @cached_property
    def offsets(self) -> FloatArray:
        """The constants of the equations."""
        return np.array([float(relation.offset) for relation in self.relations])

    def differs(self, other: Layout) -> str:
        """Return in what tables of another layout are of another shape, or nothing."""
        if self.columns != other.columns or self.roles != other.roles:
            return "the table has other columns than the one that the noise was designed for"
        rows, others = (
            (one.row_names, one.impossible, one.is_private.tolist()) for one in (self, other)
        )
        if rows != others:
            return "the table has other rows than the one that the noise was designed for"
        own, new = ([r.coefficients for r in one.relations] for one in (self, other))
        if own != new:
            return "the rows are grouped otherwise than when the noise was designed"
        return ""

    def points(self, values: FloatArray) -> FloatArray:
        """Return one row per data set from the table's numbers."""
        points = self.cell_points(values)
        extra = [decimal_sums(points[:, list(parts)]) for parts in self.sums]
        return np.column_stack([points, *extra]) if extra else points

    def cell_points(self, values: FloatArray) -> FloatArray:
        """Return the entries that are cells, one row per data set."""
        return values if self.row_names is None else values.reshape(1, -1)

    def by_column(self, values: Mapping[str, Any], default: float, what: str) -> FloatArray:
        """Return one number per private entry from numbers by column."""
        for name in values:
            if name not in self.roles.private:
                raise TableError(f"{what} names {name!r}, which is no private column", "", name)
        left_out = [name for name in self.roles.private if name not in values]
        if left_out and default != default:
            raise TableError(f"{what} says nothing about {listed(left_out)}", "", left_out[0])
        each = [values.get(name, default) for name in self.columns]
        return np.array([float(each[entry % len(each)]) for entry in self.private])

    @cached_property
    def in_row(self) -> list[Relation]:
        """The equations between the columns of the first row, which all rows have."""
        return [r for r in self.relations if max(r.coefficients) < len(self.columns)]

    def amounts(self, mu: Mapping[str, Any]) -> dict[str, tuple[Fraction, Fraction]]:
        """Return between which numbers one row counts, by column; totals follow from parts."""
        totals = {
            self.columns[r.total]: [self.columns[j] for j in r.coefficients if j != r.total]
            for r in self.in_row
            if r.total is not None
        }
        for name in mu:
            if name not in self.roles.private:
                why = "which is no private column: what is public needs no bounds"
            elif name in totals:
                why = "the total of others, from which its bounds follow"
            else:
                continue
            raise TableError(f"mu names {name!r}, {why}. Leave it out of mu", "", name)
        rows = np.reshape(self.is_private, (-1, len(self.columns)))
        public = set(np.flatnonzero(~self.is_private).tolist()) - self.impossible
        if len(totals) < len(self.in_row) or public or (rows != rows[:, :1]).any():
            raise TableError(
                "mu gives bounds of values: every number gets noise, a total is split in one way "
                "only, and impossible rows are impossible as a whole"
            )
        left = [name for name in self.columns if name not in mu and name not in totals]
        if left:
            raise TableError(f"mu says nothing about {listed(left)}", "", left[0])
        found = {name: amounts_of(size) for name, size in mu.items()}
        for name, parts in totals.items():
            fixed = [part for part in parts if part in found and found[part][0] == found[part][1]]
            if len(fixed) > 1:
                raise TableError(
                    f"mu says that every row counts in {listed(fixed)}, which are parts of "
                    f"{name!r}: their difference would be published without noise. A row that "
                    "counts in one of them has bounds such as (0, 1) in each",
                    "",
                    fixed[0],
                )
        for _ in self.columns:
            for name, parts in totals.items():
                if all(part in found for part in parts):
                    ends = zip(*(found[part] for part in parts))
                    found[name] = sum(next(ends)), sum(next(ends))
        return found

    def units(self, mu: Any) -> FloatArray | None:
        """Return the μ of every private entry, or None where it is the same for all."""
        if not isinstance(mu, Mapping):
            return None
        if any(map(is_pair, mu.values())):
            bounds = self.amounts(mu)
            mu = {name: float(max(-low, high)) for name, (low, high) in bounds.items()}
        own = self.by_column(mu, math.nan, "mu")
        return own if np.any(own != own[0]) else None

    def weights(self, given: Any, mu: Any = 1.0) -> FloatArray | None:
        """Return what squared error costs, one number per private entry."""
        if given is None:
            own = self.units(mu)
            return None if own is None else 1 / np.where(own > 0, own, own.max()) ** 2
        if isinstance(given, str):
            level = [self.levels[entry] for entry in self.private.tolist()]
            count = Counter(level)
            return np.array([1.0 / count[one] for one in level])
        if self.row_names is None or all(name in self.roles.private for name in given):
            return self.by_column(given, 1.0, "weights")
        place = {name: row for row, name in enumerate(self.row_names)}
        by_row = np.ones(len(self.row_names))
        for label, value in given.items():
            if label_words(label) not in place:
                raise TableError(
                    f"weights names {label_words(label)!r}, which is no private column and no row"
                )
            by_row[place[label_words(label)]] = value
        return by_row[self.private // len(self.columns)]


def decimal_sums(values: FloatArray) -> FloatArray:
    """Return the sum of each row, of the decimals that its numbers are written as.

    A sum of doubles rounds on the way, and how it rounds depends on every one of them; the sum of
    the decimals depends on nothing else than itself.
    """
    whole, below = over_one_denominator(values)
    return np.array([float(Fraction(int(one), below)) for one in whole.astype(object).sum(axis=1)])


@one_label_each()
def layout_of(description: TableDescription, table: Any) -> Layout:
    """Return the entries and equations of a table; its private numbers are not looked at."""
    roles = roles_of(description, table)
    columns = tuple(name for name in table.columns if name in roles.numbers)
    in_row = tuple(column_relations(description, columns))
    depth = depths(in_row, len(columns))
    if not description.ties_rows:
        is_private = np.array([name in roles.private for name in columns])
        levels = tuple((0, level) for level in depth)
        return Layout(roles, columns, None, is_private, in_row, (), levels)
    one_tree = len(columns) == 1 and description.hierarchy is not None
    most = MOST_IN_A_TREE if one_tree else MOST_ENTRIES
    if len(table) * len(columns) > most:
        raise TableError(
            f"{len(table):,} rows of {len(columns)} columns are too many for one data set (at most "
            f"{most:,} cells): release parts of the table by themselves, or a hierarchy column by "
            "column (TableRelease.together)"
        )
    return _together(description, table, roles, columns, in_row, depth)


def _together(
    description: TableDescription,
    table: Any,
    roles: Roles,
    columns: tuple[str, ...],
    in_row: tuple[Relation, ...],
    depth: Sequence[int],
) -> Layout:
    """The layout of a table that is one data set."""
    if not table.index.is_unique:
        place = int(np.argmax(table.index.duplicated()))
        twice = row_words(table.index, place)
        raise TableError(
            f"{twice} occurs twice: equations between rows need different labels", twice
        )
    groups = _row_groups(description, table)
    width, height = len(columns), len(table)
    relations: list[Relation] = []
    sums: list[tuple[int, ...]] = []
    for row in range(height):
        where = row_words(table.index, row)
        relations += (shifted(relation, row * width, where) for relation in in_row)
    for group in groups:
        for column, name in enumerate(columns):
            relations.append(group_relation(group, column, width, height, name, sums))
    if description.margins == "public":
        for row in range(height):
            cells = tuple(row * width + columns.index(name) for name in roles.private)
            where = row_words(table.index, row)
            relations.append(public_sum(cells, width * height, sums, f"the sum of {where}", where))
    relations += changes(description, table, columns)
    private_columns = np.array([name in roles.private for name in columns])
    private_rows = _private_rows(description, table)
    impossible = without_people(_impossible_cells(description, table, roles, columns), relations)
    is_private = np.concatenate(
        [np.outer(private_rows, private_columns).ravel(), np.zeros(len(sums), dtype=bool)]
    )
    is_private[sorted(impossible)] = False
    if impossible and not is_private.any():
        raise TableError("impossible leaves no cell in which people can be: name fewer of them")
    row_relations = [
        Relation({part: Fraction(1) for part in (*group.parts, group.total)}, Fraction(0), "",
                 total=group.total)
        for group in groups if group.total is not None
    ]  # fmt: skip
    row_depth = depths(row_relations, height)
    levels = [(row_depth[row], level) for row in range(height) for level in depth]
    return Layout(
        roles,
        columns,
        _row_names(description, table),
        is_private,
        tuple(relations),
        tuple(sums),
        (*levels, *((-1, -1) for _ in sums)),
        impossible,
    )


def _impossible_cells(
    description: TableDescription, table: Any, roles: Roles, columns: Sequence[str]
) -> set[int]:
    """The entries whose labels are said to occur together nowhere."""
    labels = {name: table.index.get_level_values(name) for name in table.index.names if name}
    labels.update({name: table[name] for name in roles.labels})
    across = table.columns.name
    if across is None:
        across = _name_of_columns(description, labels, columns)
    found: set[int] = set()
    for combination in description.impossible:
        rows = np.ones(len(table), dtype=bool)
        chosen = np.array([name in roles.private for name in columns])
        for name, value in combination.items():
            if name != across and name not in labels:
                known = [*labels, *([] if across is None else [across])]
                raise TableError(
                    f"impossible names {name!r}, which labels nothing{closest(name, known)}"
                )
            wanted = {label_words(x) for x in named_labels(value)}
            if name in labels:
                met = {label_words(label): label for label in labels[name]}
                if any(met[label_words(x)] != x == x for x in labels[name]):
                    raise TableError(
                        f"impossible: different labels of {name!r} read alike, such as 1 and '1'"
                    )
                rows &= np.array([label_words(label) in wanted for label in labels[name]])
            else:
                chosen &= np.array([column in wanted for column in columns])
        if not rows.any() or not chosen.any():
            raise TableError(f"impossible: no cell of the table has {dict(combination)!r}")
        found |= set(np.flatnonzero(np.outer(rows, chosen)).tolist())
    return found


def _name_of_columns(
    description: TableDescription, labels: Mapping[str, Any], columns: Sequence[str]
) -> str | None:
    """What columns are called that have no name, as in a file: the one name that labels no rows.

    All of its labels must be columns.
    """
    others: dict[str, list[Any]] = {}
    for combination in description.impossible:
        for name, value in combination.items():
            if name not in labels and name not in columns:
                others.setdefault(name, []).extend(named_labels(value))
    if len(others) != 1:
        return None
    ((found, wanted),) = others.items()
    return found if all(label_words(label) in columns for label in wanted) else None


def _row_groups(description: TableDescription, table: Any) -> tuple[RowGroup, ...]:
    groups: list[RowGroup] = []
    if isinstance(description.hierarchy, str):
        groups += parent_groups(table, description.hierarchy)
    elif description.hierarchy is not None:
        groups += level_groups(table, description.hierarchy)
    if description.row_totals is not None:
        groups += named_groups(table, description.row_totals)
    if description.margins == "public":
        groups.append(RowGroup(tuple(range(len(table))), None, "the sum of the column"))
    elif description.margins is not None:
        groups += margin_groups(table, description.margins)
    return tuple(groups)


def _private_rows(description: TableDescription, table: Any) -> NDArray[np.bool_]:
    place = row_places(table.index)
    private = np.ones(len(table), dtype=bool)
    for label in description.public_rows:
        if label not in place:
            raise TableError(
                f"public_rows names {label_words(label)!r}, which is no row{no_labels(table.index)}"
            )
        private[place[label]] = False
    if not private.any():
        raise TableError("every row is public: there is nothing to protect")
    return private


def _row_names(description: TableDescription, table: Any) -> tuple[str, ...]:
    """Different words for every row: its place in the hierarchy, or its label."""
    labels: list[str] = []
    if description.hierarchy is not None and not isinstance(description.hierarchy, str):
        labels += description.hierarchy
    if description.margins is not None and description.margins != "public":
        labels += (name for columns in description.margins for name in columns)
    if labels:
        names = [
            label_words(tuple(label for label in path if not has_no_label(label))) or "grand total"
            for path in zip(*(table[name] for name in dict.fromkeys(labels)))
        ]
    else:
        names = [label_words(label) for label in table.index]
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        if seen.setdefault(name, place) != place:
            names[place] = f"{name} (row {place})"
    return tuple(names)
