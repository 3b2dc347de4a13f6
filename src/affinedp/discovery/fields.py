"""Equations that a field knows: Kirchhoff's laws on a graph, atoms that are conserved.

They are checked where the search might not see them (few rows), and named where it does.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.relations.exact import MOST_MISSES
from affinedp.relations.relation import Checked, Relation, Terms, check, residual

_ELEMENT = re.compile(r"([A-Z][a-z]?)(\d*)|(\()|\)(\d*)|.", re.DOTALL)

Edges = Mapping[str, tuple[Hashable, Hashable]]


def edges_of(graph: Any) -> Edges:
    """Return the edges of a graph by the column that holds their flow.

    Parameters
    ----------
    graph : mapping or NetworkX graph
        From a column to the two ends of its edge; or a graph whose edges have an attribute
        ``column``.

    Examples
    --------
    >>> edges_of({"pipe": ("lake", "town")})
    {'pipe': ('lake', 'town')}
    """
    if isinstance(graph, Mapping):
        pairs = dict(graph)
    elif hasattr(graph, "edges"):
        named = [(u, v, data.get("column")) for u, v, data in graph.edges(data=True)]
        pairs = {column: (u, v) for u, v, column in named if column is not None}
        if not pairs:
            raise AffineDPError("no edge of the graph has an attribute 'column'")
    else:
        raise AffineDPError("graph must map columns to pairs of nodes, or be a NetworkX graph")
    for column, ends in pairs.items():
        if not isinstance(ends, tuple | list) or len(ends) != 2:
            raise AffineDPError(f"the edge {column!r} must be a pair of nodes, not {ends!r}")
    return {str(column): (ends[0], ends[1]) for column, ends in pairs.items()}


def network_laws(
    terms: Terms, graph: Any, injections: Mapping[Hashable, str] | None = None
) -> Iterator[tuple[str, Checked]]:
    """Yield Kirchhoff's laws that hold: balances of nodes, and sums around loops.

    Parameters
    ----------
    terms : Terms
        Columns.
    graph : mapping or NetworkX graph
        From a column to the two ends of its edge.
    injections : mapping, optional
        From a node to the column of what enters there from outside.

    Examples
    --------
    >>> import numpy as np
    >>> from affinedp.relations.columns import exact_table
    >>> inflow = np.array([5, 9, 4, 7])
    >>> table = exact_table({"in": inflow, "left": inflow // 2, "right": inflow - inflow // 2})
    >>> edges = {"in": ("lake", "fork"), "left": ("fork", "a"), "right": ("fork", "b")}
    >>> [name for name, _ in network_laws(Terms(table.names, table.columns), edges)]
    ['balance at node fork']
    """
    place = {name: j for j, name in enumerate(terms.names)}
    edges = edges_of(graph)
    ends = dict.fromkeys(node for pair in edges.values() for node in pair)
    _refuse_strangers(place, edges, ends, injections or {})
    outside = {node: place[name] for node, name in (injections or {}).items()}
    for node in ends:
        values: dict[int, Fraction] = {}
        for column, (start, end) in edges.items():
            if start != end and node in (start, end):
                values[place[column]] = Fraction(1 if end == node else -1)
        if node in outside:
            values[outside[node]] = Fraction(1)
        for signs in _injection_signs(values, outside.get(node)):
            found = check(Relation(signs), terms) if len(signs) > 1 else None
            if found is not None and _holds(found):
                yield f"balance at node {node}", found
                break
    for loop in _loops(edges):
        found = check(Relation({place[c]: Fraction(s) for c, s in loop.items()}), terms)
        if _holds(found):
            yield f"sum around the loop {' '.join(loop)}", found


def _refuse_strangers(
    place: Mapping[str, int],
    edges: Edges,
    nodes: Mapping[Hashable, None],
    injections: Mapping[Hashable, str],
) -> None:
    for column in edges:
        if column not in place:
            raise AffineDPError(f"graph names {column!r}, which is no column of numbers")
    for node, column in injections.items():
        if node not in nodes:
            raise AffineDPError(f"injections name {node!r}, which is no node of the graph")
        if column not in place:
            raise AffineDPError(f"injections name {column!r}, which is no column of numbers")


def _injection_signs(
    values: dict[int, Fraction], outside: int | None
) -> Iterator[dict[int, Fraction]]:
    """Loads are counted with either sign."""
    yield values
    if outside is not None:
        yield {**values, outside: Fraction(-1)}


def _holds(found: Checked) -> bool:
    good = max(found.zero, found.within)
    return found.rows > 0 and found.rows - good <= MOST_MISSES * found.rows


def _loops(edges: Edges) -> Iterator[dict[str, int]]:
    """One loop for each edge outside a spanning tree, with the direction of its edges."""
    up: dict[Hashable, tuple[Hashable, str, int] | None] = {}
    links: dict[Hashable, list[tuple[Hashable, str, int]]] = {}
    for column, (start, end) in edges.items():
        links.setdefault(start, []).append((end, column, 1))
        links.setdefault(end, []).append((start, column, -1))
    depth: dict[Hashable, int] = {}
    tree: set[str] = set()
    for root in links:
        if root in depth:
            continue
        depth[root], up[root] = 0, None
        queue = [root]
        for node in queue:
            for other, column, sign in links[node]:
                if other not in depth:
                    depth[other] = depth[node] + 1
                    up[other] = (node, column, sign)
                    tree.add(column)
                    queue.append(other)
    for column, (start, end) in edges.items():
        if column in tree or start == end:
            continue
        loop = {column: 1}
        a, b = end, start  # back from the end of the edge to its start
        while a != b:
            if depth[a] >= depth[b]:
                parent = up[a]
                assert parent is not None
                loop[parent[1]] = -parent[2]
                a = parent[0]
            else:
                parent = up[b]
                assert parent is not None
                loop[parent[1]] = parent[2]
                b = parent[0]
        yield loop


def conserved_atoms(
    terms: Terms, formulas: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Checked]]:
    """Yield the elements whose amount is the same in every row.

    Parameters
    ----------
    terms : Terms
        Columns of amounts.
    formulas : mapping, optional
        From a column to its chemical formula; without it, nothing is done.

    Examples
    --------
    >>> from affinedp.relations.columns import exact_table
    >>> table = exact_table({"methane": [9, 6, 2], "co2": [1, 4, 8]})
    >>> found = conserved_atoms(
    ...     Terms(table.names, table.columns), {"methane": "CH4", "co2": "CO2"}
    ... )
    >>> [name for name, _ in found]
    ['C is conserved']
    """
    place = {name: j for j, name in enumerate(terms.names)}
    atoms = {
        place[column]: atoms_of(formula)
        for column, formula in (formulas or {}).items()
        if column in place
    }
    for element in dict.fromkeys(name for counts in atoms.values() for name in counts):
        values = {j: Fraction(n[element]) for j, n in atoms.items() if element in n}
        if len(values) < 2:
            continue
        left, common = residual(Relation(values), terms)
        middle = sorted(left.tolist())[len(left) // 2]
        found = check(Relation(values, Fraction(-int(middle), common)), terms)
        if _holds(found):
            yield f"{element} is conserved", found


def atoms_of(formula: str) -> dict[str, int]:
    """Return how many atoms of each element a formula has.

    Parameters
    ----------
    formula : str
        Such as ``"Ca(OH)2"``.

    Examples
    --------
    >>> atoms_of("Ca(OH)2")
    {'Ca': 1, 'O': 2, 'H': 2}
    """
    stack: list[dict[str, int]] = [{}]
    for found in _ELEMENT.finditer(formula):
        element, count, opened, times = found.groups()
        if element:
            stack[-1][element] = stack[-1].get(element, 0) + int(count or 1)
        elif opened:
            stack.append({})
        elif times is not None and len(stack) > 1:
            for name, number in stack.pop().items():
                stack[-1][name] = stack[-1].get(name, 0) + number * int(times or 1)
        else:
            raise AffineDPError(f"{formula!r} is no chemical formula: look at {found[0]!r}")
    if len(stack) > 1 or not stack[0]:
        raise AffineDPError(f"{formula!r} is no chemical formula: a parenthesis is not closed")
    return stack[0]
