"""From a cross-tabulation to its description: a guess from the labels, for a person to confirm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from affinedp.errors import AffineDPError
from affinedp.tables.describe import choice
from affinedp.tables.frames import TOTAL_WORDS, given_table
from affinedp.tables.refusals import TableError, has_no_label, label_words, listed
from affinedp.tables.relations import no_labels
from affinedp.tables.release import TableRelease

# What says how a table adds up.
STRUCTURE = {"equations", "totals", "hierarchy", "row_totals", "changes", "margins"}
# What nobody can see in the labels.
COUNTED_ONCE = (
    "# mu = 1: one person counts for at most 1 in a number.  Sums of values, such as incomes,\n"
    "# need the public bounds of one person's value: mu = {income = [0, 200000]}\n"
    "# at_most: in how many cells one person is counted, totals aside; without it, once in each\n"
    "# part of the table that adds up"
)
NOTHING_ADDS_UP = (
    "# Nothing adds up.  If a row is one person, visit or other record, this hides nobody: count\n"
    "# the rows first (count_people, or [labels] in a table file)"
)


def from_crosstab(
    table: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    margins: str = "private",
    labels: Literal["public"] | None = None,
    ask: Callable[[str], str] | None = None,
    say: Callable[[str], object] = print,
    **others: Any,
) -> TableRelease:
    """Guess how a table adds up from its labels, and show the guess as a table file.

    Only labels are looked at.  A row or column called "All", "Total", … is the sum of the
    others, or of those below the same upper labels; levels of the index whose lower labels are
    empty are a hierarchy; without either, one person is in one cell and nothing adds up.

    Labels are published as they are, and ``pd.crosstab``, pivot tables and grouped sums take them
    from the rows of people: somebody in a ward of their own would be seen.  So begin with
    categories that are public, and keep those without people.

    Parameters
    ----------
    table : DataFrame or Series
        Such as ``pd.crosstab(…, margins=True, dropna=False)`` of columns with public categories.
    epsilon, delta : float
        The promise.
    margins : {"private", "public"}
        Whether totals get noise too, or are published as they are.
    labels : "public", optional
        Says that the labels of rows and columns, and their order, would be the same for other
        people (``value_counts`` orders them by size, which ``sort_index`` undoes): needed,
        unless somebody is asked.
    ask : callable or None
        Gets a question and returns the answer, as ``input`` does; by default the guess is taken.
    say : callable
        Gets the description.
    **others
        Further arguments of :class:`TableRelease`.

    Returns
    -------
    TableRelease

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"sex": list("fmfm"), "age": ["old", "old", "young", "old"]})
    >>> sex = pd.Categorical(people["sex"], ["f", "m", "x"])  # not those that occur
    >>> age = pd.Categorical(people["age"], ["young", "old"])
    >>> counts = pd.crosstab(sex, age, margins=True, dropna=False)
    >>> release = from_crosstab(
    ...     counts, epsilon=1.0, labels="public", ask=None, say=lambda text: None
    ... )
    >>> release.totals, release.row_totals
    ({'All': ['young', 'old']}, {'All': ['f', 'm', 'x']})
    """
    if margins not in ("private", "public"):
        raise AffineDPError(f"margins must be 'private' or 'public', not {margins!r}")
    choice(labels, "labels", (None, "public"))
    if labels is None and ask is None:
        raise TableError(
            "the labels of rows and columns are published as they are, in their order: if they are "
            "the categories that were declared, not those that occur in the data, and not sorted "
            "by their numbers, say labels='public' "
            "(ask=input asks whether they are)"
        )
    _refuse_labels_in_columns(given_table(table).frame, others)
    found = {**_guess(table, margins == "public"), **others}
    if not STRUCTURE & found.keys():
        # nothing adds up: one person is in one cell of one row
        columns = list(given_table(table).frame.columns)
        apart = {"equations": [], "columns": columns, "at_most": 1, "rows": "separate"}
        found = {**apart, **found}
    release = TableRelease(epsilon=epsilon, delta=delta, **found)
    try:
        text = f"as a table file\n{release.toml()}"
    except AffineDPError as error:  # a table in memory may have labels that no file has
        told = "\n".join(f"{name} = {value!r}" for name, value in found.items())
        text = f"for TableRelease ({error})\n{told}"
    said = f"# how the table adds up, guessed from its labels, {text}"
    say("\n".join([said, *notes(release)]))
    question = "Is that how the table adds up"
    if labels is None:
        question += ", and would its labels and their order be the same with other people in it"
    if ask is not None and ask(f"{question}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise TableError(
            "the description was not confirmed: nothing was done. Correct the text and read it "
            "with read_release, or say it with TableRelease"
        )
    return release


def notes(release: TableRelease) -> list[str]:
    """Return what to check in a guess, because nobody can see it in the labels."""
    found = [COUNTED_ONCE] if release.mu == 1 else []
    return found if release.totals or release.ties_rows else [*found, NOTHING_ADDS_UP]


def _refuse_labels_in_columns(frame: Any, others: Mapping[str, Any]) -> None:
    """Refuse rows without labels: a frame of polars or a file has them in a column, people none."""
    if others.keys() & (STRUCTURE | {"columns", "public"}) or not no_labels(frame.index):
        return
    texts = (name for name in frame if any(isinstance(x, str) for x in frame[name].tolist()))
    label = next(texts, "age")
    raise TableError(
        "the rows have no labels: make the columns that hold them the index, as in "
        f"table.set_index([{label!r}]) (of polars, table.to_pandas().set_index([{label!r}])). "
        "Rows that are people are counted first (count_people)"
    )


def _guess(table: Any, public: bool) -> dict[str, Any]:
    levels = _levels(table)
    frame = given_table(table).frame
    columns = list(frame.columns)
    if levels:
        found: dict[str, Any] = {"hierarchy": levels}
    else:
        found = {}
        if any(map(has_no_label, frame.index)):
            raise TableError(
                "a row has no label: is it the total of the others? Call it 'All', or describe the "
                "table with TableRelease"
            )
        # labels as they are, so that a table with numbers for labels is found again
        rows = _totals(frame.index.tolist(), frame.index.tolist(), "rows")
        if rows:
            found["row_totals"] = rows
            if public:
                found["public_rows"] = list(rows)
        names = list(frame.index.names)
        if all(isinstance(name, str) and name not in columns for name in names):
            found["index"] = names  # where a file has these labels
    labels = table.columns if getattr(table, "ndim", 1) == 2 else columns
    totals = _totals(labels, columns, "columns")
    if totals:
        found["totals"] = totals
        if public:
            found["public"] = list(totals)
    return found


def _totals(labels: Iterable[Any], names: list[Any], where: str) -> dict[Any, list[Any]]:
    """Rows or columns that are sums of others: of all, or of those below the same upper labels."""
    paths = [label if isinstance(label, tuple) else (label,) for label in labels]
    at = [_total_level(path) for path in paths]
    cells = [i for i, level in enumerate(at) if level is None]
    totals: dict[Any, list[Any]] = {}
    above: dict[tuple[Any, ...], Any] = {}
    for name, path, level in zip(names, paths, at):
        if level is None:
            continue
        if above.setdefault(path[:level], name) != name:
            both = listed(map(label_words, [above[path[:level]], name]))
            raise TableError(f"several {where} look like totals ({both}): describe the table")
        parts = [names[i] for i in cells if paths[i][:level] == path[:level]]
        if parts:
            totals[name] = parts
    return totals


def _total_level(path: tuple[Any, ...]) -> int | None:
    """The level at which a label names a total, as in ("men", "All"); None if it names none."""
    for level, label in enumerate(path):
        if label_words(label).strip().lower() in TOTAL_WORDS:
            return level
    return None


def _levels(table: Any) -> list[str]:
    """Index levels that are a hierarchy: somewhere the lower labels of no total are empty."""
    index = getattr(table, "index", None)
    if index is None or getattr(index, "nlevels", 1) < 2:
        return []
    if any(not isinstance(name, str) for name in index.names):
        raise TableError("every level of the index must have a name: use rename_axis")
    short = [labels for labels in index.tolist() if any(map(has_no_label, labels))]
    told = [labels for labels in index.tolist() if _total_level(labels) is not None]
    if all(labels in told for labels in short):
        return []  # no totals, or those of a pivot table
    return list(index.names)
