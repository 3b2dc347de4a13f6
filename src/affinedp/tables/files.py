"""The file that describes a table and its release.

It is TOML (or JSON with the same keys)::

    index = "month"                                  # labels the rows
    public = ["region"]                              # published as it is

    [totals]
    employed = ["women", "men"]

    [privacy]
    mu = 1
    epsilon = 1.0
    delta = 1e-6

Further keys say what the arguments of :class:`~affinedp.tables.TableRelease` of the same name
say.  Where ``labels`` lists those of a hierarchy, the data has a row per person, which are counted
and added up by them.  A key that is unknown is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from affinedp.files.documents import Document, read_document
from affinedp.tables.counting import count_people
from affinedp.tables.describe import MARGINS, TABLE, is_pair
from affinedp.tables.margins import MarginRelease, prefix, ranges
from affinedp.tables.refusals import closest
from affinedp.tables.relations import with_total_rows
from affinedp.tables.release import TableRelease

# What people who are counted here are called; other columns of μ add up their values.
COUNT = "count"


@dataclass(frozen=True)
class TableFile:
    """What a table file says."""

    release: TableRelease
    index: tuple[str, ...] = ()
    labels: Any = None
    person: str | None = None
    bound: float | None = None
    noise: str | None = None
    report: str | None = None
    level: float = 0.95

    def table(self, data: Any, name: str) -> Any:
        """Return the table that is published: the data, or what its rows of people add up to."""
        if self.labels is None:
            if self.person is not None:
                raise AffineDPError("person goes with labels: [labels] ward = [...]")
            return labelled(data, self.index, name)
        levels = self.release.hierarchy
        if levels is None or self.index:
            raise AffineDPError("labels goes with a hierarchy of columns, and without index")
        levels = [levels] if isinstance(levels, str) else list(levels)
        sizes = self.release.mu if isinstance(self.release.mu, Mapping) else {}
        bounds: Any = {one: size for one, size in sizes.items() if is_pair(size) and one != COUNT}
        counted = count_people(
            data, levels, cells=self.labels, person=self.person, values=bounds or None,
            at_most=None if self.person is None else self.release.at_most or 1, name=COUNT,
        )  # fmt: skip
        return with_total_rows(counted, levels)


def labelled(table: Any, index: Sequence[str], name: str) -> Any:
    """Return a table with the columns that label its rows as its index."""
    if not index:
        return table
    for one in index:
        if one not in table.columns:
            bare = next((n for n, o in enumerate(table.columns) if o == f"Unnamed: {n}"), None)
            hint = closest(one, [other for other in table.columns if other not in index])
            if bare is not None:  # as pandas calls it
                hint = f"; column {bare + 1} has no name: write one into the first line"
            raise AffineDPError(
                f"{name}: index names {one!r}, but the table has no such column{hint}"
            )
    return table.set_index(list(index) if len(index) > 1 else index[0])


def _table_file(told: Document) -> TableFile:
    release, output = (
        TableRelease(**told.given("bound", "noise", "report", "level", "labels", "person")),
        told["output"],
    )
    labels = told[""]["labels"]
    return TableFile(
        release=release,
        index=tuple(release.index),
        labels=read_table(told.folder / labels) if isinstance(labels, str) else labels,
        person=told[""]["person"],
        bound=told["privacy"]["bound"],
        noise=output["noise"],
        report=output["report"],
        level=output["level"],
    )


@dataclass(frozen=True)
class MarginFile:
    """What a file about margins says."""

    release: MarginRelease
    count: str | None = None
    person: str | None = None
    report: str | None = None
    level: float = 0.95
    at: str | None = None


def read_release(path: str | Path, text: str | None = None) -> TableFile | MarginFile:
    """Read and check a file that describes a table, or the margins of a table of people.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file; one that names attributes is about margins.
    text : str, optional
        What it holds, where that is in memory; the path is then a name only.

    Returns
    -------
    TableFile or MarginFile
        Its ``release`` is a :class:`TableRelease` or a :class:`MarginRelease`.

    Raises
    ------
    AffineDPError
        With the file and the key that is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> text = '''
    ... [totals]
    ... all = ["women", "men"]
    ... [privacy]
    ... mu = 1
    ... epsilon = 1.0
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "table.toml")
    ...     _ = file.write_text(text, encoding="utf-8")
    ...     found = read_release(file)
    >>> found.release.laws, found.release.adjacency, found.release.row_mode
    (('laplace',), 'person', 'separate')
    """
    file = Path(path)
    try:
        margins = "attributes" in read_document(file, text)
    except AffineDPError as error:
        raise AffineDPError(f"{file}: {error}") from None
    if margins:
        return MARGINS.read(file, _margin_file, text)
    return TABLE.read(file, _table_file, text)


def _margin_file(told: Document) -> MarginFile:
    columns, output = ("count", "person"), ("report", "level", "at")
    described = told.given(*columns, *output)
    described["attributes"] = {k: _asked(k, v) for k, v in described["attributes"].items()}
    if "places" in described:
        described["places"] = read_table(told.folder / described["places"])
    return MarginFile(
        MarginRelease(**described),
        **{key: told[""][key] for key in columns},
        **{key: told["output"][key] for key in output},
    )


def _asked(name: str, given: Any) -> Any:
    """Labels, or what is asked about them: prefix = […], ranges = […], labels and sums."""
    if not isinstance(given, Mapping):
        return given
    forms = {"prefix": prefix, "ranges": ranges}
    if len(given) == 1 and set(given) <= set(forms):
        ((form, labels),) = given.items()
        return forms[form](labels)
    if set(given) == {"labels", "sums"}:
        return given["labels"], given["sums"]
    raise AffineDPError(
        f"attribute {name!r} is a list of labels, {{prefix = [...]}}, {{ranges = [...]}} or "
        "{labels = [...], sums = [[...], ...]}"
    )
