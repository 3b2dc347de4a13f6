"""What was said about a table: its equations, what is public, what is promised."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from affinedp.designs.problem import checked_releases
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import (
    check_squares,
    exact_number,
    is_number,
    meaning,
    real_array,
    whole_number,
)
from affinedp.files.documents import Field, FileKind
from affinedp.files.values import a
from affinedp.laws.base import LawName
from affinedp.parts import Locked
from affinedp.tables.refusals import label_words

Rows = Literal["separate", "composed", "together"]
Neighbours = Literal["person", "replace", "swaps", "circuits"]
Totals = Mapping[str, Sequence[str] | Sequence[Sequence[str]]]
Size = float | tuple[float, float]


_TEXTS = Field(a("text", "list of texts"))
_NUMBER, _WHOLE = Field(a("number")), Field(a("whole number"))
# What a table file may say, and where.
TABLE = FileKind(
    {
        "": {
            "index": Field(a("text", "list of texts"), ()),
            "equations": Field(a("list of texts")),
            "totals": Field(a("table")),
            "hierarchy": _TEXTS,
            "row_totals": Field(a("table")),
            "changes": Field(a("table")),
            "margins": Field(a("text", "list of lists")),
            "columns": Field(a("list of texts")),
            "public": Field(a("list of texts")),
            "public_rows": Field(a("list")),
            "impossible": Field(a("list")),
        },
        "privacy": {
            "mu": Field(a("number", "table"), needed="how far a number may move, as in mu = 1"),
            "epsilon": Field(a("number"), needed="the promise"),
            "delta": _NUMBER,
            "law": Field(a("text")),
            "rows": Field(a("text")),
            "adjacency": Field(a("text")),
            "cells": Field(a("list of texts")),
            "weights": Field(a("text", "table")),
            "bound": _NUMBER,
            "household": _WHOLE,
            "at_most": _WHOLE,
            "releases": _WHOLE,
            "whole": Field(a("truth")),
        },
        "rounding": {"adjust": _TEXTS, "within": _NUMBER, "unknown": _TEXTS},
        "output": {
            "round_to": _NUMBER,
            "nonnegative": Field(a("truth")),
            "noise": Field(a("text")),
            "report": Field(a("text")),
            "level": Field(a("number"), 0.95),
        },
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
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, number(getattr(self, name), name))
        epsilon, delta = self.epsilon, self.delta
        if not 0 <= epsilon < math.inf or not 0 <= delta < 1:
            raise AffineDPError(f"ε must be at least 0 and δ in [0, 1), not {epsilon}, {delta}")
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
            self._check_count(name)
        if self.adjacency == "replace" and (self.at_most or 1) > 1:
            raise AffineDPError(
                "adjacency='replace' keeps the total, which is published without noise; but "
                f"somebody who is counted up to {self.at_most} times may be replaced by somebody "
                "who is counted less often, and the total would show it. Use adjacency='person' "
                "(who replaces somebody joins when the other leaves: household=2 covers both)"
            )
        if isinstance(self.weights, str) and self.weights != "levels":
            raise AffineDPError("weights must be numbers by name, or 'levels'")
        if self.round_to is not None and not 0 < number(self.round_to, "round_to") < math.inf:
            raise AffineDPError(f"round_to must be positive, not {self.round_to!r}")
        choice(self.nonnegative, "nonnegative", (True, False))
        cells = self.impossible
        if not isinstance(cells, list | tuple) or not all(
            isinstance(one, Mapping) and one for one in cells
        ):
            raise AffineDPError(
                "impossible must be a list of combinations of labels, such as "
                "[{'age': '0-9', 'married': 'yes'}]"
            )

    def _check_count(self, name: str) -> None:
        value = getattr(self, name)
        if value is None and name == "at_most":
            return
        if whole_number(value, name) > 1 and self.adjacency == "circuits":
            raise AffineDPError(f"{name} is about people: with adjacency='circuits' say it by mu")


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
    rows: Rows | None = None
    cells: Sequence[str] | None = None
    adjust: Sequence[str] | Literal["totals"] = ()
    within: float | None = None
    unknown: Sequence[str] | Literal["totals"] = ()
    whole: bool | None = None

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
            Columns that label the rows.

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
        return table_text(self, index)

    def _check_structure(self) -> None:
        choice(self.rows, "rows", (None, "separate", "composed", "together"))
        for name in ("columns", "public", "public_rows", "equations", "cells"):
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
        if self.within is not None and not 0 < number(self.within, "within") < math.inf:
            raise AffineDPError(f"within must be positive, not {self.within!r}")
        if self.adjust and self.unknown:
            raise AffineDPError("give adjust or unknown, not both")
        if self.margins is not None and (self.adjust or self.unknown):
            raise AffineDPError(
                "public margins are sums of what is recorded: leave out adjust and unknown"
            )
        choice(self.whole, "whole", (None, True, False))


def table_text(release: TableDescription, index: Sequence[str] = ()) -> str:
    """Return a table file that says what a release says."""
    keys = {name: list(fields) for name, fields in TABLE.fields.items()}
    left: dict[str, Any] = {
        name: getattr(release, name, None) for one in keys.values() for name in one
    }
    left["index"] = list(index)
    # labels of several levels are found again by their words
    rows = release.row_totals or {}
    left["row_totals"] = {_label(total): [*map(_label, parts)] for total, parts in rows.items()}
    left["public_rows"] = [*map(_label, release.public_rows)]
    plain = TableDescription(epsilon=1.0, equations=[])
    always = ("mu", "epsilon", "adjacency")

    def told(name: str) -> bool:
        value = left.get(name)
        if value is None or value in ((), [], {}, ""):
            return False
        return name in always or value != getattr(plain, name, None)

    tables = [name for name in keys[""] if isinstance(left.get(name), Mapping) and told(name)]
    lines = [
        f"{name} = {_toml(left[name])}" for name in keys[""] if told(name) and name not in tables
    ]
    for name in tables:
        lines += ["", f"[{name}]"] if lines else [f"[{name}]"]
        lines += [f"{_toml_key(key)} = {_toml(value)}" for key, value in left[name].items()]
    for part in ("privacy", "rounding", "output"):
        own = [f"{name} = {_toml(left[name])}" for name in keys[part] if told(name)]
        if own:
            lines += ["", f"[{part}]", *own]
    return "\n".join(lines) + "\n"


def _label(label: Any) -> Any:
    return label_words(label) if isinstance(label, tuple) else label


def _toml_key(key: Any) -> str:
    text = label_words(key)
    bare = text and all(c.isascii() and (c.isalnum() or c in "-_") for c in text)
    return text if bare else json.dumps(text, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml_key(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return json.dumps(label_words(value), ensure_ascii=False)


def number(value: Any, name: str) -> float:
    """Return a number as a float, or refuse it by name."""
    if not is_number(value) or math.isnan(value):
        raise AffineDPError(f"{name} must be a number, not {value!r}")
    return float(value)


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
