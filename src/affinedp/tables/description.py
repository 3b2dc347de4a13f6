"""What was said about a table: its equations, what is public, what is promised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from affinedp.designs.problem import checked_releases
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import is_number, real_array
from affinedp.laws.named import LawName

Rows = Literal["separate", "composed", "together"]
Neighbours = Literal["person", "replace", "swaps", "circuits"]
Totals = Mapping[str, Sequence[str] | Sequence[Sequence[str]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class TableDescription:
    """A table that obeys known equations, and the promise with which it is to be published.

    The record alone; :class:`~affinedp.tables.TableRelease` says what every field means.
    """

    epsilon: float
    delta: float = 0.0
    law: LawName | None = None
    mu: float | Mapping[str, float] = 1.0
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
    neighbours: Neighbours = "person"
    household: int = 1
    at_most: int | None = None
    releases: int = 1
    cells: Sequence[str] | None = None
    weights: Mapping[Any, float] | Literal["levels"] | None = None
    adjust: Sequence[str] | Literal["totals"] = ()
    within: float | None = None
    unknown: Sequence[str] | Literal["totals"] = ()
    round_to: float | None = None
    nonnegative: bool = False
    whole: bool | None = None

    def __post_init__(self) -> None:
        self._check_promise()
        self._check_structure()
        self._check_rounding()

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
        sizes = self.mu.values() if isinstance(self.mu, Mapping) else (self.mu,)
        step = 1.0 if self.round_to is None else self.round_to
        return (
            self.neighbours != "circuits"
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

    # ------------------------------------------------------------------ what is refused at once

    def _check_promise(self) -> None:
        for size in self.mu.values() if isinstance(self.mu, Mapping) else (self.mu,):
            real_array(size, "mu", 0)
        epsilon = number(self.epsilon, "epsilon")
        delta = number(self.delta, "delta")
        if not 0 <= epsilon < math.inf or not 0 <= delta < 1:
            raise AffineDPError(f"ε must be at least 0 and δ in [0, 1), not {epsilon}, {delta}")
        choice(self.law, "law", (None, "gaussian", "laplace"))
        if self.law == "gaussian" and delta == 0:
            raise AffineDPError("Gaussian noise needs δ > 0: give delta, or law='laplace'")
        if self.law == "laplace" and delta > 0:
            raise AffineDPError("Laplace noise is designed for δ = 0: leave delta out")
        if epsilon == 0 and self.law != "gaussian":
            raise AffineDPError(
                "ε = 0 allows no Laplace noise and very much Gaussian noise: choose an ε above 0 "
                "(or say law='gaussian', with a δ, if that is what you want)"
            )
        checked_releases(self.releases)

    def _check_structure(self) -> None:
        if isinstance(self.weights, str) and self.weights != "levels":
            raise AffineDPError("weights must be numbers by column or row, or 'levels'")
        choice(self.rows, "rows", (None, "separate", "composed", "together"))
        if self.neighbours == "cells":  # type: ignore[comparison-overlap]
            raise AffineDPError("neighbours='cells' is called neighbours='person'")
        choice(self.neighbours, "neighbours", ("person", "replace", "swaps", "circuits"))
        for name in ("household", "at_most"):
            self._check_count(name)
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
        if self.public_rows and not self.ties_rows:
            raise AffineDPError("public_rows goes with equations between rows")
        if self.neighbours == "swaps" and self.margins is None:
            raise AffineDPError(
                "neighbours='swaps' is about two people who exchange places, which keeps every row "
                "sum and column sum: say that they are public, margins='public' (a table without "
                "its total row and column, or with both called 'All'), or name the label columns "
                "of a long table, margins=[['sex'], ['age']]. If totals are to be protected, use "
                "neighbours='person'; for more than two attributes, "
                "MarginRelease(neighbours='swaps')"
            )
        if self.neighbours == "replace" and (self.at_most or 1) > 1:
            raise AffineDPError(counted_less_often(self.at_most))
        if self.cells is not None and self.neighbours != "person":
            raise AffineDPError("cells goes with neighbours='person'")

    def _check_count(self, name: str) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise AffineDPError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.neighbours == "circuits" and value > 1:
            raise AffineDPError(f"{name} is about people: with neighbours='circuits' say it by mu")

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
        if self.whole not in (None, True, False):
            raise AffineDPError(f"whole must be True or False, not {self.whole!r}")
        if not isinstance(self.nonnegative, bool):
            raise AffineDPError(f"nonnegative must be True or False, not {self.nonnegative!r}")
        if self.round_to is not None and not 0 < number(self.round_to, "round_to") < math.inf:
            raise AffineDPError(f"round_to must be positive, not {self.round_to!r}")


def counted_less_often(at_most: int | None) -> str:
    """Return why several counts of a person do not go with a public number of people.

    Parameters
    ----------
    at_most : int or None
        How often a person is counted at most.
    """
    return (
        f"neighbours='replace' keeps the total, which is published without noise; but somebody who "
        f"is counted up to {at_most} times may be replaced by somebody who is counted less often, "
        "and the total would show it. Use neighbours='person' (who replaces somebody joins when "
        "the other leaves: household=2 covers both)"
    )


def number(value: Any, name: str) -> float:
    """Return a number as a float, or refuse it by name."""
    if not is_number(value) or math.isnan(value):
        raise AffineDPError(f"{name} must be a number, not {value!r}")
    return float(value)


def choice(value: Any, name: str, known: Sequence[Any]) -> None:
    """Refuse a value that is not one of the known ones."""
    if value not in known:
        words = ", ".join(repr(one) for one in known if one is not None)
        raise AffineDPError(f"{name} must be one of {words}, not {value!r}")
