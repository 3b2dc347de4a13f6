"""What ``discover`` is asked, checked: the promise whose loss is told, and what is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.costs import Promise, Row
from affinedp.discovery.exact_table import ExactTable
from affinedp.discovery.relation import Relation, check
from affinedp.domains.text import parse_equations
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import whole_number
from affinedp.strategies.dense import Dense

# δ of a Gaussian design whose cost is asked for without one.
USUAL_DELTA = 1e-6

Move = float | Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Search:
    """A search between rows: the table, what is known within a row, and how to look."""

    table: ExactTable
    promise: Promise  # whose loss is told
    limit: float  # log10 of the chance beyond which an equation is not told
    rng: np.random.Generator
    known: list[Relation]  # what was given within a row
    found: list[Relation]  # what was found within a row
    by: Sequence[str] | None  # label columns that identify rows, if somebody says so
    order: NDArray[np.intp]  # the rows in the order of time
    notes: list[str]  # what was not looked at, which grows

    @cached_property
    def counted(self) -> frozenset[str]:
        """Columns that none of the relations makes of others."""
        dependent: set[int] = set()
        for one in self.found:
            dependent.update([j for j in one.support if j not in dependent][-1:])
        return frozenset(n for j, n in enumerate(self.table.names) if j not in dependent)


def promise_of(
    design: Any,
    law: Literal["gaussian", "laplace"] | None,
    epsilon: float,
    delta: float,
    mu: Move,
) -> tuple[Promise, tuple[str, ...]]:
    """Return the promise, and the equations that a design knows."""
    least = min(mu.values(), default=1.0) if isinstance(mu, Mapping) else mu
    for value, name in ((epsilon, "epsilon"), (delta, "delta"), (least, "mu")):
        if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
            raise AffineDPError(f"{name} must be a number, not {value!r}")
    if not 0 < epsilon < math.inf or not 0 <= delta < 1 or not 0 < least < math.inf:
        raise AffineDPError(
            f"ε and μ must be positive and δ in [0, 1), not {epsilon}, {mu} and {delta}"
        )
    mu = {name: float(one) for name, one in mu.items()} if isinstance(mu, Mapping) else float(mu)
    if design is not None:
        record = getattr(design, "mechanism", design)
        if not isinstance(getattr(record, "strategy", None), Dense):
            raise AffineDPError(f"design must be a Mechanism of matrices, not {design!r:.60}")
        delta = delta or (USUAL_DELTA if record.law == "gaussian" else 0.0)
        kept = record.guarantee.epsilon(delta)
        return Promise(record.law, kept, delta, mu, design=record), record.manifold.equations()
    chosen = law or ("gaussian" if delta else "laplace")
    if chosen not in ("gaussian", "laplace"):
        raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    if chosen == "gaussian" and not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: give delta")
    if chosen == "laplace" and delta:
        raise AffineDPError("Laplace noise is meant for δ = 0: leave delta out")
    return Promise(chosen, float(epsilon), float(delta), mu), ()


def known_of(
    given: Sequence[str],
    of_design: Sequence[str],
    mu: Move,
    table: ExactTable,
    notes: list[str],
) -> tuple[list[Relation], list[Row]]:
    """Return the equations that are known, as relations between columns and by name."""
    if isinstance(given, str):
        raise AffineDPError("given must be a list of equations: write [...] around it")
    parsed = parse_equations([*given, *of_design])
    place = {name: j for j, name in enumerate(table.names)}
    for name in mu if isinstance(mu, Mapping) else ():
        if name not in place and name not in parsed.names:
            raise AffineDPError(f"mu names {name!r}, but the table has no such column of numbers")
    known: list[Relation] = []
    rows: list[Row] = []
    for row, offset in zip(parsed.coefficients, parsed.offsets):
        named = {parsed.names[j]: value for j, value in row.items()}
        rows.append((named, offset))
        outside = [name for name in named if name not in place]
        if outside:
            notes.append(f"a given equation is about {outside[0]!r}, which is no column of numbers")
            continue
        known.append(Relation({place[name]: value for name, value in named.items()}, offset))
        found = check(known[-1], table.terms)
        if not found.exact:
            notes.append(
                f"a given equation about {', '.join(list(named)[:3])} holds exactly in "
                f"{found.zero:,} of {found.rows:,} rows; its largest miss is "
                f"{float(found.largest_miss):.6g}"
            )
    return known, rows


def lags_of(lags: Sequence[int], rows: int) -> list[int]:
    """Return how many rows earlier to look, checked; at most as many as there are."""
    if not isinstance(lags, Sequence):
        raise AffineDPError("lags must be a list of whole numbers: write (...,) around it")
    return [lag for lag in (whole_number(lag, "a lag") for lag in lags) if lag < rows]


def check_labels(by: Sequence[str] | None, table: ExactTable) -> None:
    """Refuse what is no list of label columns."""
    if isinstance(by, str):
        raise AffineDPError("by must be a list of label columns: write [...] around it")
    known = [label.name for label in table.labels]
    for name in by or ():
        if name not in known:
            raise AffineDPError(
                f"by names {name!r}, which is no label column: there "
                f"{'are ' + ', '.join(known) if known else 'is none'}"
            )


def order_of(order: str | None, table: ExactTable) -> NDArray[np.intp]:
    """Return the rows in the order of a column, or as they stand."""
    if order is None:
        return np.arange(table.rows)
    if order in table.names:
        column = table.columns[table.names.index(order)]
        return np.argsort(column.whole.astype(object), kind="stable")
    for label in table.labels:
        if label.name == order:
            rank = {code: i for i, code in enumerate(np.argsort(label.values, kind="stable"))}
            return np.argsort([rank.get(int(code), -1) for code in label.codes], kind="stable")
    raise AffineDPError(f"order names {order!r}, but the table has no such column")
