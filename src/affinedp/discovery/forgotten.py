"""A warning where data obeys an equation that was not given."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, AffineDPWarning, counted, outside
from affinedp.exact.numbers import given_rows, meaning

if TYPE_CHECKING:
    from affinedp.discovery.relation import Relation

CHANCE = 1e-4
SHOWN = 5


def forgotten_equations(manifold: AffineManifold, data: Any, seed: int = 0) -> tuple[str, ...]:
    """Return the equations within a row that data obeys and a manifold does not know.

    Parameters
    ----------
    manifold : AffineManifold
        The equations that were given.
    data : DataFrame, mapping of columns, or array, shape (rows, n)
        Private data; columns that are no entries of the manifold are not looked at.
    seed : int
        Chooses rows and columns to look at.

    Examples
    --------
    >>> a, b = np.random.default_rng(0).integers(0, 100, (2, 40))
    >>> M = AffineManifold.from_equations(["a + b = total"], names=["a", "b", "total", "copy"])
    >>> forgotten_equations(M, {"a": a, "b": b, "total": a + b, "copy": b})
    ('copy = b',)
    """
    from affinedp.discovery.relation import written_equation
    from affinedp.domains.text import quoted

    relations, columns = _forgotten(manifold, data, seed)
    names = [quoted(name) for name in columns]
    return tuple(written_equation(one, names) for one in relations)


def _forgotten(
    manifold: AffineManifold, data: Any, seed: int
) -> tuple[list[Relation], tuple[str, ...]]:
    """The relations that data obeys and a manifold does not know, and their columns."""
    from affinedp.discovery.exact_table import exact_table
    from affinedp.discovery.relation import Relation
    from affinedp.discovery.within import search_within

    named = isinstance(data, np.ndarray | list | tuple)
    table = exact_table(data, manifold.names if named else None)
    chosen = [j for j, name in enumerate(table.names) if name in manifold.names]
    if not chosen:
        raise AffineDPError(
            "check_against has no column of numbers that is an entry of the manifold: its entries "
            f"are {', '.join(manifold.names[:8])}"
        )
    terms = table.terms.subset(chosen)
    place = {name: j for j, name in enumerate(terms.names)}
    known = []
    rows = given_rows(manifold.D) if manifold.exact_rows is None else manifold.exact_rows
    for row, offset in zip(rows, manifold.b):
        named_row = {manifold.names[j]: value for j, value in row.items()}
        if set(named_row) <= set(place):
            values = {place[name]: value for name, value in named_row.items()}
            known.append(Relation(values, meaning(float(offset))))
    found = search_within(terms, np.random.default_rng(seed), math.log10(CHANCE), known)
    return found.relations, terms.names


def warn_of_forgotten(manifold: AffineManifold, data: Any) -> None:
    """Warn if private data obeys equations that were not given; None asks for nothing."""
    if data is None:
        return
    found, names = _forgotten(manifold, data, 0)
    if found:
        count = counted(len(found), "equation")
        some = "; ".join(_between([names[j] for j in one.support]) for one in found[:SHOWN])
        more = "; …" if len(found) > SHOWN else ""
        warnings.warn(
            f"the data obeys {count} that the promise does not cover: {some}{more}. If the public "
            "knows them, give them too; affinedp.discover shows them (this is about private data: "
            "do not publish it)",
            AffineDPWarning,
            stacklevel=outside(),
        )


def _between(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} has one value"
    return f"between {', '.join(names[:-1])} and {names[-1]}"
