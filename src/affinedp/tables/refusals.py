"""Refusals about tables, in the words of rows and columns, and those words.

They go to whoever holds the data.  They say where and what to do; no private number is in them.
"""

from __future__ import annotations

import contextlib
import difflib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from affinedp.errors import AffineDPError

SHOWN = 6
# What decimals among counts of people may be.
SUMS_OF_VALUES = (
    "If these are sums of values, such as incomes, give the public bounds of one person's value in "
    "mu, as in mu={'income': (0, 200_000)}"
)
# What to do with a label that is not public: to add it would publish that it occurs.
OTHER_LABELS = "Give such rows a public label, such as one for all others, or leave them out"


class TableError(AffineDPError):
    """A table that cannot be released, and where that shows.

    Which rows break which equations is for whoever holds the data, not for publication; by how
    much is only in what :meth:`TableRelease.check` returns.

    Attributes
    ----------
    row : str
        The row in words; empty if it is not about one row.
    column : str
        The column; empty if it is not about one column.
    broken : tuple of (row, equation)
        Every equation that the recorded numbers break, row by row.
    """

    def __init__(
        self,
        message: str,
        row: str = "",
        column: str = "",
        broken: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.row = row
        self.column = column
        self.broken = tuple(broken)
        super().__init__(message)


@contextlib.contextmanager
def one_label_each() -> Iterator[None]:
    """Refuse, in words, labels that are lists, which Python cannot look up."""
    try:
        yield
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        raise TableError("a label is a list or a set: write a text or a number") from None


def label_words(label: Any) -> str:
    """Return a row label as people write it."""
    if isinstance(label, tuple):  # a total has no label at its lower levels
        return " / ".join(label_words(part) for part in label if part == part and part != "")
    if hasattr(label, "isoformat"):
        text = str(label.isoformat())
        return text.removesuffix("T00:00:00")
    return "".join(c if c.isprintable() else " " for c in str(label))


def row_words(index: Any, position: int) -> str:
    """Return a row of a DataFrame in words: its label, with the name of the index."""
    label = label_words(index[position])
    if index.nlevels == 1 and index.name is not None:
        return f"{index.name} {label}"
    counted = " (counting from 0)" if type(index).__name__ == "RangeIndex" else ""
    return f"row {label}{counted}"


def listed(items: Iterable[Any], most: int = SHOWN) -> str:
    """Return some of the items in words."""
    shown = [repr(item) if isinstance(item, str) else label_words(item) for item in items]
    if len(shown) > most:
        shown = [*shown[: most - 1], f"{len(shown) - most + 1} more"]
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def closest(word: Any, known: Iterable[Any]) -> str:
    """Return a hint at a known name that looks like ``word``, or nothing."""
    close = difflib.get_close_matches(str(word), [str(name) for name in known], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def is_label(given: Any, label: Any) -> bool:
    """Return whether what is given is this public label: "1" is not 1, and neither is True."""
    truths = {isinstance(one, bool | np.bool_) for one in (given, label)}
    return len(truths) == 1 and bool(given == label)


def named_labels(given: Any) -> list[Any]:
    """Return the labels that a combination names: one, or each of a list."""
    return list(given) if isinstance(given, list | tuple | range) else [given]


def same(name: str) -> str:
    """Return the one spelling of a name whose accents have two encodings."""
    return unicodedata.normalize("NFC", name)


def declared(labels: Any, name: str) -> tuple[Any, ...]:
    """Return labels that somebody wrote down, each once, or refuse those that come out of a column.

    ``unique()``, ``cat.categories`` and ``qcut`` give what occurs in the data, as arrays of NumPy,
    pandas or polars; whoever writes a list says that it is public.
    """
    module = type(labels).__module__.split(".")[0]
    if module in ("numpy", "pandas", "polars", "pyarrow"):
        raise TableError(
            f"the labels of {name!r} are published, so they must not come from the data, and this "
            f"{type(labels).__name__} may: write them down as a list (list(...) says that they "
            "are public)",
            "",
            name,
        )
    if isinstance(labels, str | bytes | Mapping | Set) or not isinstance(labels, Iterable):
        raise TableError(
            f"the labels of {name!r} must be a list, in the order in which they are published, not "
            f"a {type(labels).__name__}",
            "",
            name,
        )
    found = tuple(labels)
    words = {label_words(label) for label in found}
    try:
        different = set(found)
    except TypeError:
        raise TableError(f"a label of {name!r} is a list: write a text", "", name) from None
    if any(map(has_no_label, found)):
        raise TableError(f"a label of {name!r} is empty: give it a name", "", name)
    if len(different) < len(found):
        raise TableError(f"the labels of {name!r} name one twice", "", name)
    if len(words) < len(found):
        raise TableError(f"different labels of {name!r} read alike, such as 1 and '1'", "", name)
    return found


def has_no_label(label: Any) -> bool:
    """Return whether a cell of a label column is empty."""
    import pandas

    return bool(pandas.api.types.is_scalar(label) and pandas.isna(label)) or label == ""
