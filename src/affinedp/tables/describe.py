"""What was said about a table: its equations, what is public, what is promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.designs.problem import checked_promise, checked_releases
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import (
    check_squares,
    exact_number,
    is_number,
    meaning,
    real_array,
    real_number,
    whole_number,
)
from affinedp.files.documents import Field, FileKind, read_document
from affinedp.files.values import a, visible
from affinedp.files.writing import toml_text
from affinedp.laws.base import LawName
from affinedp.parts import Locked
from affinedp.tables.refusals import has_no_label, label_words

Rows = Literal["separate", "composed", "together"]
Neighbours = Literal["person", "replace", "swaps", "circuits"]
Totals = Mapping[str, Sequence[str] | Sequence[Sequence[str]]]
Size = float | tuple[float, float]


_TEXT, _NUMBER, _WHOLE, _TRUTH = (
    Field(a(kind)) for kind in ("text", "number", "whole number", "truth")
)
_TEXTS, _LIST, _TABLE = Field(a("text", "list of texts")), Field(a("list")), Field(a("table"))
# The promise, and what is published: the same in every file about tables.
PROMISE = {
    "epsilon": Field(a("number"), needed="the promise"),
    "delta": _NUMBER,
    "law": _TEXT,
    "adjacency": _TEXT,
    "weights": Field(a("text", "table")),
    "household": _WHOLE,
    "at_most": _WHOLE,
    "releases": _WHOLE,
}
OUTPUT = {
    "round_to": _NUMBER,
    "nonnegative": _TRUTH,
    "report": _TEXT,
    "level": Field(a("number"), 0.95),
}
# What files always say, whatever it is.
ALWAYS = ("mu", "epsilon", "adjacency")
# What a table file may say, and where; then a file about margins.
TABLE = FileKind(
    {
        "": {
            "index": Field(a("text", "list of texts"), ()),
            "equations": Field(a("list of texts")),
            "totals": _TABLE,
            "hierarchy": _TEXTS,
            "row_totals": _TABLE,
            "changes": _TABLE,
            "margins": Field(a("text", "list of lists")),
            "columns": Field(a("list of texts")),
            "public": Field(a("list of texts")),
            "public_rows": _LIST,
            "impossible": _LIST,
            "labels": Field(a("text", "table")),
            "person": _TEXT,
            "by_chance": _LIST,
        },
        "privacy": {
            "mu": Field(a("number", "table"), needed="how far a number may move, as in mu = 1"),
            **PROMISE,
            "rows": _TEXT,
            "cells": Field(a("list of texts")),
            "bound": _NUMBER,
            "whole": _TRUTH,
        },
        "rounding": {"adjust": _TEXTS, "within": _NUMBER, "unknown": _TEXTS},
        "output": {**OUTPUT, "noise": _TEXT},
    }
)
MARGINS = FileKind(
    {
        "": {
            "attributes": _TABLE,
            "margins": Field(a("text", "whole number", "list of lists")),
            "impossible": _LIST,
            "hierarchy": Field(a("list of texts")),
            "places": _TEXT,
            "count": _TEXT,
            "person": _TEXT,
        },
        "privacy": {**PROMISE, "objective": _TEXT},
        "output": {**OUTPUT, "at": _TEXT},
    }
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Description(Locked):
    """The promise, and how numbers are published: the same for tables and for margins."""

    epsilon: float
    delta: float = 0.0
    law: LawName | None = None
    adjacency: Neighbours = "person"
    household: int = 1
    at_most: int | None = None
    releases: int = 1
    weights: Mapping[Any, float] | Literal["levels"] | None = None
    round_to: float | None = None
    nonnegative: bool = False
    impossible: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        epsilon, delta = checked_promise(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        choice(self.law, "law", (None, "gaussian", "laplace"))
        if self.law == "gaussian" and delta == 0:
            raise AffineDPError("Gaussian noise needs δ > 0: give delta, or law='laplace'")
        if epsilon == 0 and self.law != "gaussian":
            raise AffineDPError(
                "ε = 0 allows no Laplace noise and very much Gaussian noise: choose an ε above 0 "
                "(or say law='gaussian', with a δ, if that is what you want)"
            )
        checked_releases(self.releases)
        choice(self.adjacency, "adjacency", ("person", "replace", "swaps", "circuits"))
        for name in ("household", "at_most"):
            value = 1 if getattr(self, name) is None and name == "at_most" else getattr(self, name)
            if whole_number(value, name) > 1 and self.adjacency == "circuits":
                raise AffineDPError(
                    f"{name} is about people: with adjacency='circuits' say it by mu"
                )
        if self.adjacency == "replace" and (self.at_most or 1) > 1:
            raise AffineDPError(
                "adjacency='replace' keeps the total, which is published without noise; but "
                f"somebody who is counted up to {self.at_most} times may be replaced by somebody "
                "who is counted less often, and the total would show it. Use adjacency='person' "
                "(who replaces somebody joins when the other leaves: household=2 covers both)"
            )
        if isinstance(self.weights, Mapping):
            own = {x: real_number(w, f"weights: {x!r}", 0.0) for x, w in self.weights.items()}
            object.__setattr__(self, "weights", own)
        elif self.weights is not None and self.weights != "levels":
            raise AffineDPError("weights must be numbers by name, or 'levels'")
        if self.round_to is not None:
            step = real_number(self.round_to, "round_to", positive=True)
            object.__setattr__(self, "round_to", step)
        choice(self.nonnegative, "nonnegative", (True, False))
        cells = self.impossible
        if not isinstance(cells, list | tuple) or not all(
            isinstance(one, Mapping) and one for one in cells
        ):
            raise AffineDPError(
                "impossible must be a list of combinations of labels, such as "
                "[{'age': '0-9', 'married': 'yes'}]"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class TableDescription(Description):
    """A table that obeys known equations, and the promise with which it is to be published.

    The record alone; :class:`~affinedp.tables.TableRelease` says what every field means.
    """

    mu: float | Mapping[str, Size] = 1.0
    equations: Sequence[str] | None = None
    totals: Totals | None = None
    hierarchy: str | Sequence[str] | None = None
    row_totals: Mapping[Any, Sequence[Any]] | None = None
    changes: Mapping[str, str] | None = None
    margins: Literal["public"] | Sequence[Sequence[str]] | None = None
    columns: Sequence[str] | None = None
    public: Sequence[str] = ()
    public_rows: Sequence[Any] = ()
    by_chance: Sequence[Any] = ()
    rows: Rows | None = None
    cells: Sequence[str] | None = None
    adjust: Sequence[str] | Literal["totals"] = ()
    within: float | None = None
    unknown: Sequence[str] | Literal["totals"] = ()
    whole: bool | None = None
    index: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for size in self.mu.values() if isinstance(self.mu, Mapping) else (self.mu,):
            if is_pair(size):
                given = np.array(amounts_of(size), dtype=float)
            else:
                given = real_array(size, "mu", 0).reshape(1)
                if given[0] < 0:
                    raise AffineDPError(f"mu must not be negative; it is {size!r}")
            check_squares(np.abs(given), "mu says", "that number")
        if self.law == "laplace" and self.delta > 0:
            raise AffineDPError("Laplace noise is designed for δ = 0: leave delta out")
        self._check_structure()
        self._check_rounding()
        if self.has_values:
            self._check_values()
        self._name_by_texts()

    @property
    def has_values(self) -> bool:
        """Whether columns add up values of rows, each between two bounds."""
        return isinstance(self.mu, Mapping) and any(map(is_pair, self.mu.values()))

    @property
    def laws(self) -> tuple[LawName, ...]:
        """The laws that the noise may have: what keeps ε keeps (ε, δ) too."""
        if self.law is not None:
            return (self.law,)
        if self.delta == 0:
            return ("laplace",)
        return ("gaussian", "laplace")

    @property
    def counts(self) -> bool:
        """Whether the numbers count people, so that they are whole; the equations decide, too."""
        if self.law is not None or self.epsilon == 0:
            return False
        if self.whole is not None:
            return self.whole
        if self.has_values:
            return False
        sizes: Any = self.mu.values() if isinstance(self.mu, Mapping) else (self.mu,)
        step = 1.0 if self.round_to is None else self.round_to
        return (
            self.adjacency != "circuits"
            and not self.adjust
            and not self.unknown
            and all(float(size).is_integer() for size in (*sizes, step))
        )

    @property
    def row_mode(self) -> Rows:
        """What the rows are, by default from the equations."""
        return self.rows or ("together" if self.ties_rows else "separate")

    @property
    def ties_rows(self) -> bool:
        """Whether equations tie different rows."""
        tied = (self.hierarchy, self.row_totals, self.changes, self.margins)
        return any(part is not None for part in tied)

    @property
    def label_columns(self) -> list[str]:
        """Columns that say which rows belong together."""
        found: list[str] = []
        if isinstance(self.hierarchy, str):
            found.append(self.hierarchy)
        elif self.hierarchy is not None:
            found += self.hierarchy
        if self.margins is not None and self.margins != "public":
            found += [name for columns in self.margins for name in columns]
        return list(dict.fromkeys(found))

    def toml(self, index: Sequence[str] = ()) -> str:
        """Return a table file that says the same, for :func:`~affinedp.tables.read_release`.

        Parameters
        ----------
        index : sequence of str
            Columns that label the rows, if the description does not say which.

        Examples
        --------
        >>> from affinedp.tables import TableRelease
        >>> print(TableRelease(totals={"all": ["women", "men"]}, epsilon=1.0).toml())
        [totals]
        all = ["women", "men"]
        <BLANKLINE>
        [privacy]
        mu = 1.0
        epsilon = 1.0
        adjacency = "person"
        <BLANKLINE>
        """
        rows = self.row_totals or {}
        # labels of several levels are found again by their words
        found = written_file(
            TABLE,
            self,
            TableDescription(epsilon=1.0, equations=[]),
            index=list(self.index or index),
            row_totals={_label(total): [*map(_label, parts)] for total, parts in rows.items()},
            public_rows=[*map(_label, self.public_rows)],
            by_chance=[*map(_label, self.by_chance)],
        )
        if self.equations or self.totals or self.ties_rows:
            return found
        return f"equations = []  # the public knows of none\n{found}"

    def _name_by_texts(self) -> None:
        """Name columns by texts, as tables inside do, in copies that nobody else changes."""
        told: dict[str, Any] = {}
        if self.totals is not None:
            told["totals"] = {_text(total): _texts(parts) for total, parts in self.totals.items()}
        for name in ("columns", "public", "cells", "adjust", "unknown", "index"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                told[name] = tuple(map(_text, value))
        if isinstance(self.index, str):
            told["index"] = (self.index,)
        if self.changes is not None:
            told["changes"] = {_text(c): _text(x) for c, x in self.changes.items()}
        if isinstance(self.mu, Mapping):
            told["mu"] = {_text(name): value for name, value in self.mu.items()}
        for name, value in told.items():
            object.__setattr__(self, name, value)

    def _check_structure(self) -> None:
        choice(self.rows, "rows", (None, "separate", "composed", "together"))
        for name in ("columns", "public", "public_rows", "by_chance", "equations", "cells"):
            if isinstance(getattr(self, name), str):
                raise AffineDPError(f"{name} must be a list: write [...] around it")
        if self.equations is None and self.totals is None and not self.ties_rows:
            raise AffineDPError(
                "say what the public knows: equations, totals, a hierarchy, … (equations=[] says "
                "that it knows nothing)"
            )
        if self.ties_rows and self.rows in ("separate", "composed"):
            raise AffineDPError(
                f"rows={self.rows!r}, but the hierarchy, row_totals, changes or margins tie the "
                "rows: they are released together"
            )
        if self.rows == "together" and not self.ties_rows:
            raise AffineDPError(
                "rows='together', but no equation ties different rows, so this would promise what "
                "rows='separate' does. If the rows are about the same people, use rows='composed'"
            )
        for name in ("public_rows", "impossible"):
            if getattr(self, name) and not self.ties_rows:
                raise AffineDPError(f"{name} goes with equations between rows")
        if self.adjacency == "swaps" and not (self.margins or self.public or self.public_rows):
            raise AffineDPError(
                "adjacency='swaps' is about two people who exchange places, which keeps every row "
                "sum and column sum: say that they are public, margins='public' (a table without "
                "its total row and column, or with both called 'All'), or name the label columns "
                "of a long table, margins=[['sex'], ['age']]. If totals are to be protected, use "
                "adjacency='person'"
            )
        if self.cells is not None and self.adjacency != "person":
            raise AffineDPError("cells goes with adjacency='person'")

    def _check_values(self) -> None:
        if self.adjacency not in ("person", "replace"):
            raise AffineDPError(
                f"mu gives bounds of values, and adjacency={self.adjacency!r} does not say whose "
                "value it is: use adjacency='person' or 'replace'"
            )
        for name in ("equations", "changes", "margins", "public_rows", "cells"):
            if getattr(self, name):
                raise AffineDPError(
                    f"mu gives bounds of values, whose sums add up by totals, row_totals and a "
                    f"hierarchy only, with noise on all of them: leave out {name}"
                )

    def _check_rounding(self) -> None:
        for name in ("adjust", "unknown"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "totals":
                raise AffineDPError(f"{name} must be a list of columns, or 'totals'")
        if bool(self.adjust) != (self.within is not None):
            raise AffineDPError(
                "adjust and within go together: within says how far off counts as rounding"
            )
        if self.within is not None:
            real_number(self.within, "within", positive=True)
        if self.adjust and self.unknown:
            raise AffineDPError("give adjust or unknown, not both")
        if self.margins is not None and (self.adjust or self.unknown):
            raise AffineDPError(
                "public margins are sums of what is recorded: leave out adjust and unknown"
            )
        choice(self.whole, "whole", (None, True, False))


def written_file(kind: FileKind, release: Description, plain: Description, **told: Any) -> str:
    """Return the file of a kind that says what a release says beyond a plain one, and this.

    What is read from it is the same, or it is refused.
    """
    keys = {part: list(fields) for part, fields in kind.fields.items()}
    said = {key: getattr(release, key, None) for one in keys.values() for key in one} | told

    def is_told(key: str) -> bool:
        value = said[key]
        if value is None or (isinstance(value, Sized) and len(value) == 0):
            return False
        return key in ALWAYS or key in told or value != getattr(plain, key, None)

    document = {key: said[key] for key in keys.pop("") if is_told(key)}
    for part, own in keys.items():
        values = {key: said[key] for key in own if is_told(key)}
        document |= {part: values} if values else {}
    for key, value in told.items():
        if isinstance(value, Mapping) and len(value) < len(getattr(release, key) or ()):
            raise AffineDPError(f"two labels in {key} are the same in words: rename one")
    text = toml_text(document, _words)
    try:
        found = read_document(Path("release.toml"), text)
    except AffineDPError as error:
        raise AffineDPError(
            f"no file can say this: {error} (rename a label, here and in the data)"
        ) from None
    _check_said(document, found)
    return text


def check_labels(name: Any, labels: Sequence[Any]) -> None:
    """Refuse labels that a file does not have as they are: it has texts and numbers."""
    for label in (name, *labels):
        if not _is_plain(label):
            raise _no_label(label)
    if not isinstance(name, str):
        raise AffineDPError(f"in a file, names are texts, and {name!r} is not one: rename it")


def _check_said(meant: Any, found: Any) -> None:
    """Refuse a value that a file says in another way than it was meant."""
    if isinstance(meant, Mapping):
        by_words = {_words(name): value for name, value in meant.items()}
        if isinstance(found, dict) and found.keys() == by_words.keys():
            for name, value in by_words.items():
                _check_said(value, found[name])
            return
    elif isinstance(meant, Sequence) and not isinstance(meant, str | bytes):
        if isinstance(found, list) and len(found) == len(meant):
            for one, other in zip(meant, found):
                _check_said(one, other)
            return
    elif is_number(meant):
        if found == meant or (meant == meant and exact_number(found) == exact_number(meant)):
            return
    elif found == (bool(meant) if isinstance(meant, np.bool_) else meant) or found == _words(meant):
        return
    raise _no_label(meant)


def _is_plain(label: Any) -> bool:
    """Whether a file has a label as it is: a text, a number or a truth."""
    kinds = str | int | float | np.bool_ | np.integer | np.floating
    return isinstance(label, kinds) and bool(label == label)


def _no_label(label: Any) -> AffineDPError:
    return AffineDPError(
        f"a file cannot hold {visible(repr(label))}: write a text or a number in its place (rename "
        "a label, here and in the data)"
    )


def _words(label: Any) -> str:
    """A label as a text that it is found again by."""
    if isinstance(label, str):
        return label
    if isinstance(label, bytes | Set) or has_no_label(label):
        raise _no_label(label)
    return label_words(label)


def _text(label: Any) -> Any:
    return label if isinstance(label, str | list) else label_words(label)


def _texts(parts: Any) -> Any:
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        return parts
    return [_texts(part) if isinstance(part, list) else _text(part) for part in parts]


def _label(label: Any) -> Any:
    return label if _is_plain(label) else _words(label)


def is_pair(size: Any) -> bool:
    """Return whether a μ says between which numbers a row counts."""
    return isinstance(size, list | tuple)


def amounts_of(size: Any) -> tuple[Fraction, Fraction]:
    """Return the least and the most that one row counts for, exactly."""
    if not is_pair(size):
        return -exact_number(size), exact_number(size)
    if len(size) != 2 or not all(map(is_number, size)):
        raise AffineDPError(f"bounds must be two numbers, such as (0, 200_000), not {size!r}")
    low, high = map(exact_number, size)
    if low > high:
        raise AffineDPError(f"the lower bound comes first: {size!r}")
    if any(meaning(float(end)) != end for end in (low, high)):  # values are clipped to doubles
        raise AffineDPError(f"bounds must be numbers of at most 15 digits, not {size!r}")
    return low, high


def choice(value: Any, name: str, known: Sequence[Any]) -> None:
    """Refuse a value that is not one of the known ones."""
    if value not in known:
        words = ", ".join(repr(one) for one in known if one is not None)
        raise AffineDPError(f"{name} must be one of {words}, not {value!r}")
