"""The problem file of the command line: equations, neighbours, what is published, and its noise.

A problem is written in TOML (or JSON with the same keys)::

    equations = ["cells_in + cells_out = cells_total"]     # or D = [[1, 1, -1]], b = [0]
    [privacy]
    mu = 1.0
    [noise]
    law = "laplace"
    scale = 2.0

It says what Definition 4 and the mechanism ``F x + Λ η`` of the paper need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import parse_equations
from affinedp.errors import AffineDPError
from affinedp.files.documents import Document, Field, FileKind, fitted, zeros
from affinedp.files.values import (
    a,
    as_written,
    at_least,
    check_count,
    check_names,
    filled_list,
    hint,
    number,
    numbers,
    one_of,
    shown,
    sizes,
    texts,
)
from affinedp.laws.base import LawName
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.parts import locked
from affinedp.privacy.guarantee import Guarantee

# Equations are read in Python, at some microseconds for each character.
MOST_CHARACTERS = 2_000_000

# Laws of noise that a file can describe, and those that are only designed.
GIVEN, DESIGNED = ("gaussian", "laplace", "knorm"), ("staircase", "productnorm")

# Fields that are read as written need the entries, or a file beside this one.
_PROBLEM = FileKind(
    {
        "": {
            "equations": Field(texts),
            "names": Field(filled_list),
            "D": Field(as_written),
            "b": Field(numbers),
            "public_entries": Field(one_of("refuse", "allow"), "refuse"),
        },
        "privacy": {
            "mu": Field(as_written),
            "adjacency": Field(one_of("circuits", "person", "free_sets", "directions")),
            "free_sets": Field(filled_list),
            "directions": Field(as_written),
            "epsilon": Field(at_least()),
            "delta": Field(at_least(below=1.0)),
        },
        "query": {"outputs": Field(as_written), "matrix": Field(as_written)},
        "noise": {
            "law": Field(one_of(*GIVEN, *DESIGNED)),
            "integers": Field(a("truth"), False),
            "scale": Field(as_written),
            "matrix": Field(as_written),
            "covariance": Field(as_written),
            "hull": Field(number),
        },
    }
)
NO_NOISE = (
    "the problem does not say which noise: give [noise] law = 'gaussian' or 'laplace' and scale, "
    "matrix or covariance; or law = 'knorm' and hull or matrix"
)


@dataclass(frozen=True, eq=False)
class Problem:
    """What a problem file says.

    Attributes
    ----------
    manifold : AffineManifold
        The equations.
    adjacency : Adjacency
        Definition 4; or only the chosen free sets; or only the given differences.
    output_names : tuple of str
        One per output.
    query : m×n array or None
        ``F``; None is the identity.
    epsilon, delta : float or None
        The promise that is asked for.
    law : str or None
        The law of the noise; without a size it is the one to design.
    integers : bool
        Whether the data is whole, so that K-norm noise is designed to keep it whole.
    noise_matrix : m×r array or None
        ``Λ``, for noise of unit scale: variance 1 (Gaussian) or 2 (Laplace); for K-norm noise the
        points, as columns, whose hull with their negatives is the body.
    covariance : m×m array or None
        Instead of a noise matrix; Gaussian only.
    hull : float or None
        Instead of a noise matrix; K-norm only: how many times the hull of the moves the body is.
    """

    manifold: AffineManifold
    adjacency: Adjacency
    output_names: tuple[str, ...]
    query: FloatArray | None = None
    epsilon: float | None = None
    delta: float | None = None
    law: LawName | Literal["productnorm"] | None = None
    integers: bool = False
    noise_matrix: FloatArray | None = None
    covariance: FloatArray | None = None
    hull: float | None = None

    def guarantee(self) -> Guarantee:
        """Return what the noise in the file promises (Theorems 1 and 2 of the paper)."""
        from affinedp.privacy.verification import resolve_query, verify
        from affinedp.strategies.largest_gauge import moves_of

        sized = any(one is not None for one in (self.noise_matrix, self.covariance, self.hull))
        if self.law is None or self.law == "productnorm" or not sized:
            raise AffineDPError(NO_NOISE)
        points = self.noise_matrix
        if self.hull is not None:
            query, _ = resolve_query(self.manifold, self.query)
            points = self.hull * moves_of(self.adjacency, query)
        found = verify(
            self.manifold,
            points,
            covariance=self.covariance,
            law=self.law,
            query=self.query,
            adjacency=self.adjacency,
        )
        return found.with_output_names(self.output_names)


def read_problem(path: str | Path) -> Problem:
    """Read and check a problem file.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.  CSV files that it names are looked up next to it.

    Returns
    -------
    Problem
        The paper's manifold, neighbours, ``F`` and ``Λ`` (Section II), every number finite and
        every length checked.

    Raises
    ------
    AffineDPError
        With the key and the place that is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> text = '''
    ... equations = ["cells_in + cells_out = cells_total"]
    ... [privacy]
    ... mu = 1.0
    ... [noise]
    ... law = "laplace"
    ... scale = {cells_in = 2, cells_out = 2, cells_total = 4}
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "cells.toml")
    ...     _ = file.write_text(text, encoding="utf-8")
    ...     problem = read_problem(file)
    >>> problem.output_names
    ('cells_in', 'cells_out', 'cells_total')
    >>> problem.guarantee().epsilon()
    1.0
    """
    return _PROBLEM.read(path, _problem)


def _problem(told: Document) -> Problem:
    manifold, named = _manifold(told)
    query, output_names = _query(told, manifold, named)
    return Problem(
        manifold,
        _adjacency(told, manifold, named),
        output_names,
        query,
        told["privacy"]["epsilon"],
        told["privacy"]["delta"],
        **_noise(told, output_names),
    )


def _manifold(told: Document) -> tuple[AffineManifold, bool]:
    """The equations, and whether the file names the entries."""
    top = told[""]
    names = None
    if top["names"] is not None:
        names = tuple(texts(top["names"], "names"))
        check_names(names, "names")
    if (top["equations"] is None) == (top["D"] is None):
        raise AffineDPError("give the equations once: either 'equations' or 'D'")
    public = top["public_entries"]
    if top["equations"] is not None:
        if top["b"] is not None:
            raise AffineDPError("'b' goes with 'D'; write constants into the equations")
        if sum(map(len, top["equations"])) > MOST_CHARACTERS:
            raise AffineDPError(f"the equations have more than {MOST_CHARACTERS:,} characters")
        equations = parse_equations(top["equations"], names)
        if not equations.names:
            raise AffineDPError("the equations name no entry")
        check_names(equations.names, "equations")
        return AffineManifold.from_equations(equations, public_entries=public), True
    table = told.table("", "D", names)
    names = names or table.header
    parse_equations([], names)  # refuses empty and repeated names
    coefficients = fitted(table, names, "D")
    rows, count = coefficients.shape
    if names is not None:
        check_count("names", len(names), "column of D", count)
    offsets = [0.0] * rows if top["b"] is None else top["b"]
    check_count("b", len(offsets), "row of D", rows)
    return AffineManifold(coefficients, offsets, names, public), names is not None


def _adjacency(told: Document, manifold: AffineManifold, named: bool) -> Adjacency:
    privacy = told["privacy"]
    given = [kind for kind in ("free_sets", "directions") if privacy[kind] is not None]
    chosen = privacy["adjacency"] or (given[0] if given else "circuits")
    if given != [kind for kind in ("free_sets", "directions") if kind == chosen]:
        named_alone = chosen in ("circuits", "person")
        wanted = "neither free_sets nor directions" if named_alone else f"{chosen} only"
        raise AffineDPError(f"[privacy] adjacency = {chosen!r} goes with {wanted}")
    if chosen == "directions":
        if privacy["mu"] is not None:
            raise AffineDPError("[privacy] directions are already scaled; remove mu")
        moves = _rows_over_entries(told, "privacy", "directions", manifold, named)
        return DirectionAdjacency(manifold, moves.T)
    if privacy["mu"] is None:
        raise AffineDPError("[privacy] mu is missing: how far an entry may move, as in mu = 1.0")
    names = manifold.names if named else None
    mu = sizes(privacy["mu"], "[privacy] mu", names, manifold.n, "entry")
    if chosen != "free_sets":
        return adjacency_of(manifold, chosen, mu)
    where, column_of = "[privacy] free_sets: set", _by_name(manifold)
    sets = [
        _columns(one, f"{where} {place}", column_of)
        for place, one in enumerate(privacy["free_sets"], 1)
    ]
    return FreeSetAdjacency(manifold, sets, mu)


def _query(
    told: Document, manifold: AffineManifold, named: bool
) -> tuple[FloatArray | None, tuple[str, ...]]:
    outputs, given = told["query"]["outputs"], told["query"]["matrix"]
    if outputs is None and given is None:
        return None, manifold.names
    if outputs is not None and given is not None:
        raise AffineDPError("[query] takes either outputs or matrix")
    if given is not None:
        query = _rows_over_entries(told, "query", "matrix", manifold, named)
        return query, tuple(f"y{i}" for i in range(1, len(query) + 1))
    columns = _columns(outputs, "[query] outputs", _by_name(manifold))
    query = zeros(len(columns), manifold.n)
    query[np.arange(len(columns)), columns] = 1.0
    return locked(query), tuple(manifold.names[column] for column in columns)


def _noise(told: Document, outputs: tuple[str, ...]) -> dict[str, Any]:
    """Law and size of the noise, as fields of a problem."""
    noise = told["noise"]
    law, integers = noise["law"], noise["integers"]
    kinds = [key for key in ("scale", "matrix", "covariance", "hull") if noise[key] is not None]
    if not kinds:
        return {"law": law, "integers": integers}
    if integers or law in DESIGNED:
        what = "integers" if integers else f"law = {law!r}"
        raise AffineDPError(
            f"[noise] {what} is for noise to be designed: leave it out, or {' and '.join(kinds)}"
        )
    if len(kinds) != 1:
        raise AffineDPError("[noise] takes exactly one of scale, matrix, covariance and hull")
    if law is None:
        raise AffineDPError("[noise] law is missing: 'gaussian', 'laplace' or 'knorm'")
    (kind,) = kinds
    where, value, count = f"[noise] {kind}", noise[kind], len(outputs)
    if (kind == "hull" and law != "knorm") or (kind == "scale" and law == "knorm"):
        raise AffineDPError(
            "[noise] hull goes with law = 'knorm', and scale with the others: K-norm noise has a "
            "body, given by its points (matrix), or as a multiple of the hull of the moves (hull)"
        )
    if kind == "hull":
        if value <= 0:
            raise AffineDPError(f"{where} must be positive, not {value:g}")
        return {"law": law, "hull": value}
    if kind == "scale":
        matrix = zeros(count, count)
        np.fill_diagonal(matrix, sizes(value, where, outputs, count, "output"))
        return {"law": law, "noise_matrix": locked(matrix)}
    if kind == "covariance" and law != "gaussian":
        raise AffineDPError("[noise] covariance goes with law = 'gaussian'; give scale or matrix")
    table = told.table("noise", kind, outputs if kind == "covariance" else None)
    check_count(f"{where}: rows", len(table.numbers), "output", count)
    if kind == "matrix":
        return {"law": law, "noise_matrix": fitted(table, None, where)}
    check_count(f"{where}: columns", table.numbers.shape[1], "output", count)
    return {"law": law, "covariance": fitted(table, outputs, where, rows_too=True)}


def _rows_over_entries(
    told: Document, section: str, key: str, manifold: AffineManifold, named: bool
) -> FloatArray:
    """A matrix with one column per entry."""
    where = f"[{section}] {key}"
    names = manifold.names if named else None
    table = told.table(section, key, names)
    check_count(f"{where}: columns", table.numbers.shape[1], "entry", manifold.n)
    return fitted(table, names, where)


def _by_name(manifold: AffineManifold) -> dict[str, int]:
    return {name: column for column, name in enumerate(manifold.names)}


def _columns(value: Any, where: str, column_of: Mapping[str, int]) -> tuple[int, ...]:
    """Entries, each by name or by number from 0."""
    columns, count = [], len(column_of)
    for item in filled_list(value, where):
        if isinstance(item, str):
            if item not in column_of:
                meant = hint(item, column_of)
                raise AffineDPError(f"{where}: no entry is named {shown(item)}{meant}")
            columns.append(column_of[item])
        elif isinstance(item, int) and not isinstance(item, bool) and 0 <= item < count:
            columns.append(item)
        else:
            raise AffineDPError(
                f"{where}: {shown(item)} is no name and no number from 0 to {count - 1}"
            )
    if len(set(columns)) < len(columns):
        raise AffineDPError(f"{where}: an entry appears twice")
    return tuple(columns)
