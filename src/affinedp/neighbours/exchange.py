"""The directions of a free set in rational arithmetic, by exchanging entries of the basis."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from affinedp.arrays import IntArray
from affinedp.equations.elimination import Canonical

Row = dict[int, Fraction]


def exchange_work(canonical: Canonical, entries: IntArray) -> float:
    """Return about how many rational operations the directions of a free set take.

    Parameters
    ----------
    canonical : Canonical
        The reduced equations.
    entries : array of int
        The free set.
    """
    leaving = len(set(canonical.pivots.tolist()) & set(entries.tolist()))
    return (leaving + 1.0) * len(canonical.pivots) * len(canonical.free)


def exact_directions(
    canonical: Canonical, entries: IntArray
) -> dict[int, Mapping[int, Fraction]] | None:
    """Return, for every entry of a free set, how all entries follow when it moves by 1.

    Parameters
    ----------
    canonical : Canonical
        The reduced equations in rational arithmetic.
    entries : array of int
        The free set.

    Returns
    -------
    dict or None
        None if the equations tie the entries to each other.
    """
    assert canonical.exact_rows is not None
    rows: dict[int, Row] = {
        int(p): dict(row) for p, row in zip(canonical.pivots, canonical.exact_rows)
    }
    wanted = set(entries.tolist())
    for leaving in sorted(wanted & rows.keys()):
        row = rows.pop(leaving)
        entering = min((j for j in row if j not in wanted), default=None)
        if entering is None:
            return None
        lead = row.pop(entering)
        solved = {leaving: 1 / lead, **{j: value / lead for j, value in row.items()}}
        for other in rows.values():
            factor = other.pop(entering, None)
            if factor is None:
                continue
            for j, value in solved.items():
                after = other.get(j, Fraction(0)) - factor * value
                if after:
                    other[j] = after
                else:
                    other.pop(j, None)
        rows[entering] = solved
    found: dict[int, dict[int, Fraction]] = {i: {i: Fraction(1)} for i in entries.tolist()}
    for pivot, row in rows.items():
        for j, value in row.items():
            found[j][pivot] = -value
    return dict(found)
