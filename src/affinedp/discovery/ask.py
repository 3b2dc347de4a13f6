"""``discover``: which equations does this data obey, and what if the public knew them?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from affinedp.discovery.costs import Promise, Row
from affinedp.discovery.equation import DiscoveredEquation
from affinedp.discovery.found import Discovery
from affinedp.discovery.gather import (
    between_times,
    changes_of,
    field_laws,
    independent_columns,
    within_rows,
)
from affinedp.discovery.sums import between_rows as tie_rows
from affinedp.domains.text import parse_equations
from affinedp.errors import AffineDPError
from affinedp.record import MechanismRecord
from affinedp.relations.columns import ExactTable, exact_table
from affinedp.relations.relation import Relation, Terms, check
from affinedp.relations.within import search_within

# δ of a Gaussian design whose cost is asked for without one.
USUAL_DELTA = 1e-6


def discover(
    table: Any,
    *,
    names: Sequence[str] | None = None,
    given: Sequence[str] = (),
    design: Any = None,
    law: Literal["gaussian", "laplace"] | None = None,
    epsilon: float = 1.0,
    delta: float = 0.0,
    mu: float | Mapping[str, float] = 1.0,
    between_rows: bool = True,
    lags: Sequence[int] = (1,),
    order: str | None = None,
    by: Sequence[str] | None = None,
    graph: Any = None,
    injections: Mapping[Hashable, str] | None = None,
    formulas: Mapping[str, str] | None = None,
    chance: float = 1e-4,
    seed: int = 0,
) -> Discovery:
    """Find the linear equations that hold in a table, and what each would cost if it were known.

    The promise of everything else in this package covers the equations that were given.  This
    looks for those that were forgotten.  It reads private data and answers to whoever holds
    them; nothing that it finds goes into a mechanism by itself.

    Parameters
    ----------
    table : DataFrame, mapping of columns, or array, shape (rows, columns)
        pandas or polars frame, dict of columns, or numbers.
    names : sequence of str, optional
        Names of the columns of an array.
    given : sequence of str
        Equations that are known already, within a row; they are not told again.
    design : Mechanism or TableDesign, optional
        The noise whose loss is told, with its own equations.
    law : {"gaussian", "laplace"}, optional
        Otherwise: independent noise of this law (Gaussian where δ > 0) …
    epsilon, delta : float
        … meant for this promise …
    mu : float or mapping of str to float
        … when one number moves by this much.
    between_rows : bool
        Whether to look for equations between rows too.
    lags : sequence of int
        How many rows earlier to look: (1,) for changes, (1, 12) also for those since a year ago.
    order : str, optional
        A column that orders the rows in time; as they stand by default.
    by : sequence of str, optional
        Label columns: rows follow each other, or are summed, where these agree.  Found by itself
        by default.
    graph : mapping or NetworkX graph, optional
        From a column to the two ends of its edge: Kirchhoff's laws are checked by name.
    injections : mapping, optional
        From a node of the graph to the column of what enters there.
    formulas : mapping, optional
        From a column to its chemical formula: conserved elements are checked by name.
    chance : float
        How many equations by chance are accepted, at most; others are listed as doubtful.
    seed : int
        Chooses rows and columns to look at; the same seed finds the same.

    Returns
    -------
    Discovery

    Examples
    --------
    >>> import affinedp as adp
    >>> import numpy as np
    >>> women, men = np.random.default_rng(1).integers(0, 500, (2, 30))
    >>> found = adp.discover({"women": women, "men": men, "all": women + men})
    >>> [(one.text, one.rows_that_hold, one.cost) for one in found.equations]
    [('all = women + men', 30, 2.0)]
    """
    read = exact_table(table, names)
    promise, meant = _promise(design, law, epsilon, delta, mu)
    limit = _limit(chance)
    rng = np.random.default_rng(_seed(seed))
    notes = list(read.notes)
    terms = Terms(read.names, read.columns)
    if not len(terms):
        labels = tuple(label.name for label in read.labels)
        return Discovery((), notes=tuple(notes), rows=read.rows, labels=labels)
    _check_moves(mu, read, given)
    known, rows = _given(given, meant, read, terms, notes)
    promise = replace(promise, given=tuple(rows))
    laws = field_laws(terms, limit, known, graph, injections, formulas)
    within = search_within(terms, rng, limit, [*known, *(one.relation for _, one, _ in laws)])
    notes += within.notes
    # what a field names comes first
    within.found[:0] = [(one, chance) for _, one, chance in laws]
    certain, doubtful = within_rows(read, terms, within, promise)
    for i, (name, _, _) in enumerate(laws):
        certain[i] = replace(certain[i], pattern=name)
    cost_of_all = _cost_of_all(certain, promise)
    levels: tuple[str, ...] = ()
    changes: dict[str, str] = {}
    totals: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if between_rows:
        _check_labels(by, read)
        later: list[DiscoveredEquation] = []
        time = _order(order, read)
        for lag in _lags(lags, read.rows):
            later += between_times(
                read, terms, within, known, lag, by, time, rng, limit, promise, notes
            )
        counted = independent_columns(within, terms)
        sums, levels, totals = tie_rows(
            read, terms, within, known, counted, by, rng, limit, promise, notes
        )
        certain += [*later, *sums]
        # a table file means the row above
        changes = changes_of(later) if bool((time == np.arange(read.rows)).all()) else {}
    certain.sort(key=lambda one: -math.inf if one.cost is None else one.cost, reverse=True)
    return Discovery(
        tuple(certain),
        tuple(doubtful),
        tuple(dict.fromkeys(notes)),
        promise.words,
        read.rows,
        read.names,
        tuple(label.name for label in read.labels),
        cost_of_all,
        levels,
        changes,
        totals,
    )


# ---------------------------------------------------------------------- what was asked


def _promise(
    design: Any,
    law: Literal["gaussian", "laplace"] | None,
    epsilon: float,
    delta: float,
    mu: float | Mapping[str, float],
) -> tuple[Promise, tuple[str, ...]]:
    """The promise, and the equations that a design knows."""
    for value, name in ((epsilon, "epsilon"), (delta, "delta"), (chance_of(mu), "mu")):
        if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
            raise AffineDPError(f"{name} must be a number, not {value!r}")
    if not 0 < epsilon < math.inf or not 0 <= delta < 1 or not 0 < chance_of(mu) < math.inf:
        raise AffineDPError(
            f"ε and μ must be positive and δ in [0, 1), not {epsilon}, {mu} and {delta}"
        )
    mu = {name: float(one) for name, one in mu.items()} if isinstance(mu, Mapping) else float(mu)
    if design is not None:
        record = getattr(design, "mechanism", design)
        if not isinstance(record, MechanismRecord):
            raise AffineDPError(f"design must be a Mechanism, not {type(design).__name__}")
        delta = delta or (USUAL_DELTA if record.law == "gaussian" else 0.0)
        kept = record.guarantee.epsilon(delta)
        kind: Literal["gaussian", "laplace"] = "gaussian" if record.law == "gaussian" else "laplace"
        return Promise(kind, kept, delta, mu, design=record), record.manifold.equations()
    chosen = law or ("gaussian" if delta else "laplace")
    if chosen not in ("gaussian", "laplace"):
        raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    if chosen == "gaussian" and not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: give delta")
    if chosen == "laplace" and delta:
        raise AffineDPError("Laplace noise is meant for δ = 0: leave delta out")
    return Promise(chosen, float(epsilon), float(delta), mu), ()


def chance_of(mu: float | Mapping[str, float]) -> float:
    """Return one number of a μ that may be given by column.

    Parameters
    ----------
    mu : float or mapping
        How far a number may move.
    """
    return min(mu.values(), default=1.0) if isinstance(mu, Mapping) else mu


def _check_moves(mu: float | Mapping[str, float], table: ExactTable, given: Sequence[str]) -> None:
    names = {*table.names, *parse_equations(_texts(given)).names}
    for name in mu if isinstance(mu, Mapping) else ():
        if name not in names:
            raise AffineDPError(f"mu names {name!r}, but the table has no such column of numbers")


def _limit(chance: float) -> float:
    if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 < chance <= 1:
        raise AffineDPError(f"chance must lie in (0, 1], not {chance!r}")
    return math.log10(chance)


def _seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise AffineDPError(f"seed must be a whole number that is not negative, not {seed!r}")
    return int(seed)


def _lags(lags: Sequence[int], rows: int) -> list[int]:
    if not isinstance(lags, Sequence):
        raise AffineDPError("lags must be a list of whole numbers: write (...,) around it")
    chosen = list(lags)
    for lag in chosen:
        if isinstance(lag, bool) or not isinstance(lag, Integral) or lag < 1:
            raise AffineDPError(f"a lag must be a whole number from 1 on, not {lag!r}")
    return [int(lag) for lag in chosen if lag < rows]


def _check_labels(by: Sequence[str] | None, table: ExactTable) -> None:
    if isinstance(by, str):
        raise AffineDPError("by must be a list of label columns: write [...] around it")
    known = [label.name for label in table.labels]
    for name in by or ():
        if name not in known:
            raise AffineDPError(
                f"by names {name!r}, which is no label column: there "
                f"{'are ' + ', '.join(known) if known else 'is none'}"
            )


def _order(order: str | None, table: ExactTable) -> np.ndarray[Any, np.dtype[np.intp]]:
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


def _given(
    given: Sequence[str],
    of_design: Sequence[str],
    table: ExactTable,
    terms: Terms,
    notes: list[str],
) -> tuple[list[Relation], list[Row]]:
    """The equations that are known, as relations between columns and by name."""
    parsed = parse_equations([*_texts(given), *of_design])
    place = {name: j for j, name in enumerate(table.names)}
    known: list[Relation] = []
    rows: list[Row] = []
    for row, offset in zip(parsed.coefficients, parsed.offsets):
        named = {parsed.names[j]: value for j, value in row.items()}
        rows.append((named, offset))
        outside = [name for name in named if name not in place]
        if outside:
            notes.append(f"a given equation is about {outside[0]!r}, which is no column of numbers")
            continue
        relation = Relation({place[name]: value for name, value in named.items()}, offset)
        known.append(relation)
        found = check(relation, terms)
        if not found.exact:
            notes.append(
                f"a given equation about {', '.join(list(named)[:3])} holds exactly in "
                f"{found.zero:,} of {found.rows:,} rows; its largest miss is "
                f"{float(found.largest_miss):.6g}"
            )
    return known, rows


def _texts(given: Sequence[str]) -> list[str]:
    if isinstance(given, str):
        raise AffineDPError("given must be a list of equations: write [...] around it")
    return list(given)


# ---------------------------------------------------------------------- what is told


def _cost_of_all(certain: Sequence[DiscoveredEquation], promise: Promise) -> float | None:
    rows: list[Row] = [
        (one.coefficients, one.offset) for one in certain if one.kind == "exact" or one.cost
    ]
    if not rows:
        return None
    if all(offset == Fraction(0) and len(row) == 1 for row, offset in rows):
        return None
    return promise.cost(rows).epsilon
