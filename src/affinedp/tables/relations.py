"""Equations between the cells of a table: within rows, and between rows that add up."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from affinedp.domains.text import parse_equations, quoted
from affinedp.errors import counted
from affinedp.exact.numbers import over_one_denominator
from affinedp.tables.describe import TableDescription
from affinedp.tables.frames import split_totals
from affinedp.tables.refusals import (
    TableError,
    closest,
    has_no_label,
    label_words,
    listed,
    row_words,
    same,
)


@dataclass(frozen=True)
class Relation:
    """One equation ``Σ coefficient · entry + offset = 0``."""

    coefficients: Mapping[int, Fraction]
    offset: Fraction
    words: str
    place: str = ""
    total: int | None = None
    counts: bool = True

    def ambiguous(self, private: Container[int]) -> bool:
        """Whether a person may be counted in different ways among the private entries."""
        values = {value for entry, value in self.coefficients.items() if entry in private}
        return not self.counts and len(values) > 1


def column_relations(description: TableDescription, columns: Sequence[str]) -> Iterator[Relation]:
    """Yield the equations between the columns of a row."""
    texts = list(description.equations or [])
    parsed = parse_equations(texts, columns)
    for text, coefficients, offset in zip(texts, parsed.coefficients, parsed.offsets):
        if coefficients or offset:
            alone = _clear_total(coefficients)
            yield Relation(coefficients, offset, text.strip(), total=alone, counts=False)
    place = {same(name): i for i, name in enumerate(columns)}
    for total, parts in split_totals(description.totals or {}):
        coefficients = {place[same(part)]: Fraction(-1) for part in parts}
        coefficients[place[same(total)]] = Fraction(1)
        words = f"{quoted(total)} = {' + '.join(map(quoted, parts))}"
        yield Relation(coefficients, Fraction(0), words, total=place[same(total)])


def _clear_total(coefficients: Mapping[int, Fraction]) -> int | None:
    """The entry that an equation calls the sum of two or more others, if it does."""
    if len({abs(value) for value in coefficients.values()}) != 1 or len(coefficients) < 3:
        return None
    for sign in (1, -1):
        alone = [entry for entry, value in coefficients.items() if value * sign > 0]
        if len(alone) == 1:
            return alone[0]
    return None


def depths(relations: Sequence[Relation], count: int) -> list[int]:
    """Return how many totals each entry is nested in, at most."""
    depth = [0] * count
    for _ in range(count):
        changed = False
        for relation in relations:
            if relation.total is None:
                continue
            for part in relation.coefficients:
                if part != relation.total and depth[part] <= depth[relation.total] < count:
                    depth[part], changed = depth[relation.total] + 1, True
        if not changed:
            break
    return depth


def without_people(empty: set[int], relations: Sequence[Relation]) -> frozenset[int]:
    """Return all entries that count nobody if these do: all parts of a total, or the total."""
    found, before = set(empty), -1
    while len(found) > before:
        before = len(found)
        for relation in relations if found else ():
            if relation.counts and relation.total is not None and not relation.offset:
                parts = relation.coefficients.keys() - {relation.total}
                if relation.total in found:
                    found |= parts
                elif parts <= found:
                    found.add(relation.total)
    return frozenset(found)


def shifted(relation: Relation, by: int, where: str) -> Relation:
    """Return the same equation in another row."""
    return replace(
        relation,
        coefficients={entry + by: value for entry, value in relation.coefficients.items()},
        place=where,
        total=None if relation.total is None else relation.total + by,
    )


def group_relation(
    group: RowGroup,
    column: int,
    width: int,
    height: int,
    name: str,
    sums: list[tuple[int, ...]],
) -> Relation:
    """Return the equation of rows that add up, for one column."""
    cells = tuple(row * width + column for row in group.parts)
    where = f"column {name!r}"
    if group.total is None:
        return public_sum(cells, width * height, sums, group.words, where)
    total = group.total * width + column
    coefficients = {total: Fraction(1), **{cell: Fraction(-1) for cell in cells}}
    return Relation(coefficients, Fraction(0), group.words, where, total)


def public_sum(
    cells: tuple[int, ...], count: int, sums: list[tuple[int, ...]], words: str, where: str
) -> Relation:
    """Return the equation of a public sum that no cell holds: it becomes an entry of its own."""
    sums.append(cells)
    entry = count + len(sums) - 1
    coefficients = {**{cell: Fraction(1) for cell in cells}, entry: Fraction(-1)}
    return Relation(coefficients, Fraction(0), words, where)


def changes(
    description: TableDescription, table: Any, columns: Sequence[str]
) -> Iterator[Relation]:
    """Yield the equations of columns that are the change of another one since the row above."""
    width = len(columns)
    place = {same(name): i for i, name in enumerate(columns)}
    for change, level in (description.changes or {}).items():
        c, x = place[same(change)], place[same(level)]
        for row in range(1, len(table)):
            now, before = row * width, (row - 1) * width
            yield Relation(
                {now + c: Fraction(1), now + x: Fraction(-1), before + x: Fraction(1)},
                Fraction(0),
                f"{quoted(change)} = {quoted(level)} - {quoted(level)} of the row above",
                row_words(table.index, row),
                now + c,
            )


Path = tuple[Hashable, ...]


@dataclass(frozen=True)
class RowGroup:
    """Rows whose sum is another row, or a number that is public."""

    parts: tuple[int, ...]
    total: int | None
    words: str


def row_places(index: Any) -> dict[Any, int]:
    """Return the position of every row by its label, and by its label in words (from a file)."""
    places: dict[Any, int] = {label: position for position, label in enumerate(index)}
    for position, label in enumerate(index):
        places.setdefault(label_words(label), position)
    return places


def no_labels(index: Any) -> str:
    """Return what to do about rows that have no labels, as those of a file, or nothing."""
    if type(index).__name__ != "RangeIndex" or index.name is not None:
        return ""
    return (
        ': the rows have no labels. Say which column holds them, as in index = "age" in a table '
        'file or table.set_index("age")'
    )


def level_groups(frame: Any, levels: Sequence[str]) -> tuple[RowGroup, ...]:
    """Return the groups of a long table with one column per level of a hierarchy.

    The row that is a total has no label at the lower levels: (CA, –, –) is the sum of the
    counties of CA, or of its tracts where there are no rows for the counties.
    """
    row_of: dict[Path, int] = {}
    for position, labels in enumerate(frame[list(levels)].itertuples(index=False, name=None)):
        path = _path(frame, position, labels, levels)
        if path in row_of:
            raise TableError(
                f"{row_words(frame.index, position)} and {row_words(frame.index, row_of[path])} "
                f"are both about {_path_words(path)}",
                row_words(frame.index, position),
            )
        row_of[path] = position
    parent_of: dict[int, int] = {}
    for path, position in row_of.items():
        above = (path[:depth] for depth in range(len(path) - 1, -1, -1))
        parent = next((row_of[prefix] for prefix in above if prefix in row_of), None)
        if parent is not None:
            parent_of[position] = parent
    words = {
        position: quoted(label_words(path)) if path else _path_words(path)
        for path, position in row_of.items()
    }
    # parts by their own label: the total says the rest
    parts = {position: quoted(label_words(path[-1:])) for path, position in row_of.items()}
    return _groups(parent_of, words, parts, "hierarchy = " + " / ".join(levels))


def _path(frame: Any, position: int, labels: Sequence[Any], levels: Sequence[str]) -> Path:
    missing = [has_no_label(label) for label in labels]
    depth = missing.index(True) if True in missing else len(missing)
    if not all(missing[depth:]):
        lower = levels[missing.index(False, depth)]
        raise TableError(
            f"{row_words(frame.index, position)} has a {lower} but no {levels[depth]}: a total row "
            "leaves out its lowest levels only",
            row_words(frame.index, position),
            levels[depth],
        )
    return tuple(labels[:depth])


def _path_words(path: Path) -> str:
    return label_words(path) if path else "the grand total"


def parent_groups(frame: Any, column: str) -> tuple[RowGroup, ...]:
    """Return the groups of a table whose rows name their parent row."""
    place = {label: position for position, label in enumerate(frame.index)}
    parent_of: dict[int, int] = {}
    for position, parent in enumerate(frame[column]):
        if has_no_label(parent):
            continue
        if parent not in place:
            raise TableError(
                f"{row_words(frame.index, position)} has the parent {label_words(parent)!r}, "
                f"which is no row{closest(parent, place)}",
                row_words(frame.index, position),
                column,
            )
        parent_of[position] = place[parent]
    for position in parent_of:
        _refuse_circle(frame, position, parent_of, column)
    words = {position: quoted(label_words(label)) for label, position in place.items()}
    return _groups(parent_of, words, words, f"hierarchy = {column!r}")


def _refuse_circle(frame: Any, start: int, parent_of: Mapping[int, int], column: str) -> None:
    position, steps = start, 0
    while position in parent_of:
        position, steps = parent_of[position], steps + 1
        if position == start or steps > len(parent_of):
            raise TableError(
                f"{row_words(frame.index, start)} is its own ancestor in {column!r}",
                row_words(frame.index, start),
                column,
            )


def _groups(
    parent_of: Mapping[int, int], words: Mapping[int, str], parts: Mapping[int, str], where: str
) -> tuple[RowGroup, ...]:
    below: dict[int, list[int]] = {}
    for child, parent in sorted(parent_of.items()):
        below.setdefault(parent, []).append(child)
    if not below:
        raise TableError(
            f"{where}: no row is the total of others, so nothing ties the rows together. Add the "
            "total rows (with_total_rows does), or use rows='separate'"
        )
    return tuple(
        RowGroup(tuple(children), total, _sum_words(words[total], [parts[i] for i in children]))
        for total, children in below.items()
    )


def named_groups(frame: Any, totals: Mapping[Any, Sequence[Any]]) -> tuple[RowGroup, ...]:
    """Return the groups of totals that are given by row labels."""
    place = row_places(frame.index)
    groups = []
    for total, parts in totals.items():
        for label in (total, *parts):
            if label not in place:
                raise TableError(
                    f"row_totals names {label_words(label)!r}, which is no row"
                    f"{no_labels(frame.index) or closest(label, place)}"
                )
        if len(set(parts)) < len(parts) or total in parts or not parts:
            raise TableError(
                f"row_totals: {label_words(total)!r} must be the sum of other rows, each named once"
            )
        children = [place[label] for label in parts]
        words = [quoted(label_words(label)) for label in (total, *parts)]
        groups.append(RowGroup(tuple(children), place[total], _sum_words(words[0], words[1:])))
    return tuple(groups)


def margin_groups(frame: Any, margins: Sequence[Sequence[str]]) -> tuple[RowGroup, ...]:
    """Return groups with public sums: all rows that agree in some label columns."""
    groups = []
    for columns in margins:
        rows_of: dict[Path, list[int]] = {}
        labels_of = zip(*(frame[column] for column in columns)) if columns else [()] * len(frame)
        for position, labels in enumerate(labels_of):
            if any(has_no_label(label) for label in labels):
                raise TableError(
                    f"{row_words(frame.index, position)} has no label in {listed(columns)}",
                    row_words(frame.index, position),
                )
            rows_of.setdefault(tuple(labels), []).append(position)
        for path, rows in rows_of.items():
            name = f"the public sum of {_path_words(path)}"
            groups.append(RowGroup(tuple(rows), None, f"{name} ({counted(len(rows), 'row')})"))
    return tuple(groups)


def _sum_words(total: str, parts: Sequence[str]) -> str:
    more = [counted(len(parts) - 4, "more row")] if len(parts) > 4 else []
    return f"{total} = {' + '.join([*parts[:4], *more])}"


def with_total_rows(
    frame: Any, levels: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> Any:
    """Return a long table with a total row for every group of every level, and a grand total.

    Parameters
    ----------
    frame : DataFrame or Series of pandas, DataFrame of polars
        One row per cell there is, with people or without, labelled by the level columns or the
        levels of the index.  Labels are published: those of a group-by would come from the data.
    levels : sequence of str, optional
        From the top to the bottom, such as ``["state", "county", "tract"]``; the names of the
        index by default.
    columns : sequence of str, optional
        What is added up; all other columns by default.

    Returns
    -------
    DataFrame
        Total rows first; they have no label at the levels that they sum over.

    Raises
    ------
    TableError
        If a cell has no label or no number, or stands there twice.

    Examples
    --------
    >>> import pandas as pd
    >>> cells = pd.DataFrame({"state": ["A", "A", "B"], "county": ["x", "y", "z"], "n": [1, 2, 3]})
    >>> with_total_rows(cells, ["state", "county"], ["n"])["n"].tolist()
    [6, 3, 3, 1, 2, 3]
    >>> with_total_rows(cells.set_index(["state", "county"])["n"])["n"].tolist()
    [6, 3, 3, 1, 2, 3]
    """
    import pandas

    if isinstance(frame, pandas.Series):
        frame = frame.to_frame("count" if frame.name is None else frame.name)
    elif not isinstance(frame, pandas.DataFrame):
        frame = frame.to_pandas()
    index = [name for name in frame.index.names if name is not None]
    names = index if levels is None else list(levels)
    if any(name in index for name in names):
        frame = frame.reset_index()
    missing = [name for name in (*names, *(columns or ())) if name not in frame]
    if missing or not names:
        raise TableError(
            f"there is no column {missing[0]!r}" if missing else "give the levels, top to bottom"
        )
    values = [name for name in frame if name not in names] if columns is None else list(columns)
    _refuse_uncertain_cells(frame, names, values)
    frame, types = frame[[*names, *values]], {value: frame[value].dtype for value in values}
    # sums of decimals as written: those of doubles round, each in its own way
    below = {}
    for value in (value for value in values if types[value].kind == "f"):
        exact, below[value] = over_one_denominator(frame[value].to_numpy(dtype=float))
        frame = frame.assign(**{value: exact.astype(object)})
    parts = [frame[values].sum().to_frame().T]
    for depth in range(1, len(names)):
        parts.append(
            frame.groupby(names[:depth], sort=False, observed=True)[values].sum().reset_index()
        )
    parts.append(frame[[*names, *values]])
    # sums keep the columns' types; only labels are missing
    whole = pandas.concat([part.reindex(columns=[*names, *values]) for part in parts])
    for value, one in below.items():
        whole[value] = [float(Fraction(int(exact), one)) for exact in whole[value]]
    return whole.astype(types).reset_index(drop=True)


def dependency(lower: str, upper: str, of: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """Return the combinations that are impossible because one label follows from another.

    Parameters
    ----------
    lower, upper : str
        What the labels are called: every city is in one state.
    of : mapping
        From every label of ``lower`` to its one label of ``upper``; both are public.

    Returns
    -------
    list of dict
        For ``impossible`` of :class:`TableRelease`.

    Examples
    --------
    >>> dependency("city", "state", {"Reno": "NV", "Oakland": "CA", "Fresno": "CA"})
    [{'city': 'Reno', 'state': ['CA']}, {'city': ['Oakland', 'Fresno'], 'state': ['NV']}]
    """
    for label, state in of.items():
        if isinstance(state, list | tuple | set | dict) or has_no_label(state):
            raise TableError(f"dependency: {label!r} has one label of {upper!r}, not {state!r}")
    every = list(dict.fromkeys(of.values()))
    found = []
    for one in every:
        own = [label for label, state in of.items() if state == one]
        others = [state for state in every if state != one]
        if others:
            found.append({lower: own if len(own) > 1 else own[0], upper: others})
    return found


def _refuse_uncertain_cells(frame: Any, names: list[str], values: list[str]) -> None:
    """A sum would pass over what is missing, and take a cell that stands there twice for two."""
    for name in names:
        if any(has_no_label(one) for one in frame[name].tolist()):
            raise TableError(
                f"a row has no label in {name!r}: give the cells alone, every one with its labels; "
                "the totals are made here",
                "",
                name,
            )
    for value in values:
        if frame[value].isna().any():
            raise TableError(
                f"a number of {value!r} is missing: a sum would pass over it. Fill it in, with 0 "
                "if nobody is there",
                "",
                value,
            )
    if frame.duplicated(names).any():
        raise TableError(
            f"a cell stands there twice (the same {listed(names)}): add its rows up first, "
            f"groupby({names!r}).sum()"
        )
