"""``discover``: which equations does this data obey, and what if the public knew them?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from affinedp.discovery.costs import Cost, Promise
from affinedp.discovery.exact_table import ExactTable, exact_table
from affinedp.discovery.found import DiscoveredEquation, Discovery, pattern_of, told
from affinedp.discovery.relation import Found, written_equation
from affinedp.discovery.row_relations import balances, items, repeated
from affinedp.discovery.row_sums import MOST_ROWS, hierarchies, total_rows
from affinedp.discovery.search import (
    Search,
    check_labels,
    known_of,
    lags_of,
    order_of,
    promise_of,
)
from affinedp.discovery.times import between_times, changes_of
from affinedp.discovery.within import search_within
from affinedp.domains.text import quoted
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import whole_number


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
    promise, of_design = promise_of(design, law, epsilon, delta, mu)
    if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 < chance <= 1:
        raise AffineDPError(f"chance must lie in (0, 1], not {chance!r}")
    limit = math.log10(chance)
    rng = np.random.default_rng(whole_number(seed, "seed", 0))
    notes = list(read.notes)
    result = Discovery(
        (), rows=read.rows, columns=read.names, labels=tuple(label.name for label in read.labels)
    )
    if not read.names:
        return replace(result, notes=tuple(notes))
    if design is not None and not set(promise.design.manifold.names) & set(read.names):
        raise AffineDPError(
            "the design does not fit this table: it is about "
            f"{', '.join(map(repr, promise.design.manifold.names[:3]))}, and no number of it is a "
            "column here"
        )
    known, rows = known_of(given, of_design, mu, read, notes)
    promise = replace(promise, given=tuple(rows))
    within = search_within(read.terms, rng, limit, known)
    notes += within.notes
    equations = [_within_a_row(read, one, promise) for one in within.found]
    result = replace(
        result,
        doubtful=tuple(_within_a_row(read, one, None) for one in within.doubtful),
        promise=promise.words,
        cost_of_all=_cost_of_all(equations, promise),
    )
    if between_rows:
        check_labels(by, read)
        time = order_of(order, read)
        search = Search(read, promise, limit, rng, known, within.relations, by, time, notes)
        later = [one for lag in lags_of(lags, read.rows) for one in between_times(search, lag)]
        tied, levels, totals = hierarchies(search)
        if not tied:
            tied = items(search)
            if not tied:
                tied, totals = total_rows(search)
                if read.rows > MOST_ROWS:
                    notes.append(
                        f"rows that are sums of other rows: not looked for in {read.rows:,} rows"
                    )
        equations += [*later, *tied, *repeated(search), *balances(search)]
        # a table file means the row above
        as_they_stand = bool((time == np.arange(read.rows)).all())
        result = replace(
            result,
            hierarchy=levels,
            changes=changes_of(later) if as_they_stand else {},
            row_totals=tuple(totals),
        )
    equations.sort(key=lambda one: -math.inf if one.cost is None else one.cost, reverse=True)
    return replace(result, equations=tuple(equations), notes=tuple(dict.fromkeys(notes)))


def _within_a_row(table: ExactTable, found: Found, promise: Promise | None) -> DiscoveredEquation:
    """An equation within a row, with its cost for a promise."""
    relation = found.relation
    named = {table.names[j]: relation.coefficients[j] for j in relation.support}
    cost = None
    if promise is not None:
        cost = promise.cost([(named, relation.offset)])
        if not cost.note and not found.exact:
            cost = Cost(cost.epsilon, "as if it were exact")
    return told(
        found,
        written_equation(relation, [quoted(name) for name in table.names]),
        named,
        pattern=pattern_of(relation),
        columns=tuple(named),
        row_name=table.row_name,
        cost=cost,
    )


def _cost_of_all(equations: Sequence[DiscoveredEquation], promise: Promise) -> float | None:
    """What is kept if all equations within a row are known; None if none ties columns."""
    rows = [(one.coefficients, one.offset) for one in equations if one.kind == "exact" or one.cost]
    if all(offset == 0 and len(row) == 1 for row, offset in rows):
        return None
    return promise.cost(rows).epsilon
