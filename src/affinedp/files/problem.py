"""The problem file of the command line, as plain checked values.

A problem is written in TOML (or JSON with the same keys)::

    equations = ["cells_in + cells_out = cells_total"]     # or D = [[1, 1, -1]], b = [0]
    [privacy]
    mu = 1.0
    [noise]
    law = "laplace"
    scale = 2.0

It says what Definition 4 and the mechanism ``F x + Λ η`` of the paper need; nothing is computed
here.  A key that is unknown, or a number that is missing, is refused: a promise about half of
what was written would be a promise about something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.text import LinearEquations, parse_equations
from affinedp.errors import AffineDPError
from affinedp.files.declared import Document, Field, FileKind
from affinedp.files.matrices import fitted, zeros
from affinedp.files.values import (
    as_written,
    at_least_zero,
    check_count,
    filled_list,
    frozen,
    hint,
    number,
    numbers,
    one_of,
    shown,
    sizes,
    texts,
)
from affinedp.files.visible import check_names
from affinedp.laws.named import LawName

Neighbours = Literal["circuits", "free_sets", "directions"]
PublicEntries = Literal["refuse", "allow"]

# Equations are read in Python, at some microseconds for each character.
MOST_CHARACTERS = 2_000_000

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
            "neighbours": Field(one_of("circuits", "free_sets", "directions")),
            "free_sets": Field(filled_list),
            "directions": Field(as_written),
            "epsilon": Field(at_least_zero()),
            "delta": Field(at_least_zero(below=1.0)),
        },
        "query": {"outputs": Field(as_written), "matrix": Field(as_written)},
        "noise": {
            "law": Field(one_of("gaussian", "laplace", "knorm")),
            "scale": Field(as_written),
            "matrix": Field(as_written),
            "covariance": Field(as_written),
            "hull": Field(number),
        },
    }
)


@dataclass(frozen=True, eq=False)
class Problem:
    """What a problem file says.

    Attributes
    ----------
    equations : LinearEquations or None
        The equations as text gave them; otherwise ``coefficients`` and ``offsets`` are there.
    coefficients, offsets : arrays or None
        ``D`` and ``b`` of ``D x + b = 0``.
    names : tuple of str or None
        One per entry; None when ``D`` came without names.
    public_entries : "refuse" or "allow"
        What to do with entries that the equations alone reveal.
    mu : float or array
        How far an entry moves between neighbours; one number, or one per entry.  It is 1 and
        has no meaning when directions are given, which are already scaled.
    neighbours : "circuits", "free_sets" or "directions"
        Definition 4; or only the chosen free sets; or only the given differences.
    free_sets : tuple of tuples of int, or None
        Columns, counted from 0.
    directions : n×K array or None
        One neighbour difference per column.
    epsilon, delta : float or None
        The promise that is asked for.
    query : m×n array or None
        ``F``; None is the identity.
    output_names : tuple of str
        One per output.
    law : "gaussian", "laplace", "knorm" or None
        None when the file describes no noise.
    noise_matrix : m×r array or None
        ``Λ``, for noise of unit scale: variance 1 (Gaussian) or 2 (Laplace); for K-norm noise the
        points, as columns, whose hull with their negatives is the body.
    covariance : m×m array or None
        Instead of a noise matrix; Gaussian only.
    hull : float or None
        Instead of a noise matrix; K-norm only: how many times the hull of the moves the body is.
    """

    equations: LinearEquations | None
    coefficients: FloatArray | None
    offsets: FloatArray | None
    names: tuple[str, ...] | None
    public_entries: PublicEntries
    mu: float | FloatArray
    neighbours: Neighbours
    free_sets: tuple[tuple[int, ...], ...] | None
    directions: FloatArray | None
    epsilon: float | None
    delta: float | None
    query: FloatArray | None
    output_names: tuple[str, ...]
    law: LawName | None
    noise_matrix: FloatArray | None
    covariance: FloatArray | None
    hull: float | None = None


def read_problem(path: str | Path) -> Problem:
    """Read and check a problem file.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.  CSV files that it names are looked up next to it.

    Returns
    -------
    Problem
        The paper's ``D``, ``b``, ``F``, ``Λ`` and μ (Section II), every number finite and every
        length checked.  Ranks and signs of matrices are left to those who use them.

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
    >>> problem.noise_matrix.diagonal()
    array([2., 2., 4.])
    """
    return _PROBLEM.read(path, _problem)


def _problem(told: Document) -> Problem:
    privacy = told["privacy"]
    entries = _entries(told)
    neighbours, free_sets, directions = _neighbours(told, entries)
    query, output_names = _query(told, entries)
    noise = _noise(told, output_names)
    return Problem(
        equations=entries.equations,
        coefficients=entries.coefficients,
        offsets=entries.offsets,
        names=entries.names,
        public_entries=told[""]["public_entries"],
        mu=_mu(privacy["mu"], neighbours, entries),
        neighbours=neighbours,
        free_sets=free_sets,
        directions=directions,
        epsilon=privacy["epsilon"],
        delta=privacy["delta"],
        query=query,
        output_names=output_names,
        law=noise.law,
        noise_matrix=noise.matrix,
        covariance=noise.covariance,
        hull=noise.hull,
    )


@dataclass(frozen=True)
class _Entries:
    """What the equations say about the entries of x."""

    labels: tuple[str, ...]
    named: bool
    equations: LinearEquations | None = None
    coefficients: FloatArray | None = None
    offsets: FloatArray | None = None

    @cached_property
    def column_of(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.labels)}

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.labels if self.named else None


def _entries(told: Document) -> _Entries:
    top = told[""]
    names = None
    if top["names"] is not None:
        names = tuple(texts(top["names"], "names"))
        check_names(names, "names")
    if (top["equations"] is None) == (top["D"] is None):
        raise AffineDPError("give the equations once: either 'equations' or 'D'")
    if top["equations"] is not None:
        if top["b"] is not None:
            raise AffineDPError("'b' goes with 'D'; write constants into the equations")
        if sum(map(len, top["equations"])) > MOST_CHARACTERS:
            raise AffineDPError(f"the equations have more than {MOST_CHARACTERS:,} characters")
        equations = parse_equations(top["equations"], names)
        if not equations.names:
            raise AffineDPError("the equations name no entry")
        check_names(equations.names, "equations")
        return _Entries(equations.names, named=True, equations=equations)
    table = told.table("", "D", names)
    names = names or table.header
    parse_equations([], names)  # refuses empty and repeated names
    coefficients = fitted(table, names, "D")
    rows, count = coefficients.shape
    if names is not None:
        check_count("names", len(names), "column of D", count)
    offsets = np.array([0.0] * rows if top["b"] is None else top["b"])
    check_count("b", len(offsets), "row of D", rows)
    labels = names or tuple(f"x{column}" for column in range(1, count + 1))
    return _Entries(labels, names is not None, None, coefficients, frozen(offsets))


def _neighbours(
    told: Document, entries: _Entries
) -> tuple[Neighbours, tuple[tuple[int, ...], ...] | None, FloatArray | None]:
    privacy = told["privacy"]
    kinds: tuple[Neighbours, ...] = ("free_sets", "directions")
    given = [kind for kind in kinds if privacy[kind] is not None]
    chosen: Neighbours = privacy["neighbours"] or (given[0] if given else "circuits")
    if given != [kind for kind in kinds if kind == chosen]:
        wanted = "neither free_sets nor directions" if chosen == "circuits" else f"{chosen} only"
        raise AffineDPError(f"[privacy] neighbours = {chosen!r} goes with {wanted}")
    if chosen == "free_sets":
        where = "[privacy] free_sets"
        sets = enumerate(privacy["free_sets"], 1)
        return chosen, tuple(_columns(s, f"{where}: set {i}", entries) for i, s in sets), None
    if chosen == "directions":
        return chosen, None, frozen(_rows_over_entries(told, "privacy", "directions", entries).T)
    return chosen, None, None


def _mu(value: Any, neighbours: Neighbours, entries: _Entries) -> float | FloatArray:
    if neighbours == "directions":
        if value is not None:
            raise AffineDPError("[privacy] directions are already scaled; remove mu")
        return 1.0
    if value is None:
        raise AffineDPError("[privacy] mu is missing: how far an entry may move, as in mu = 1.0")
    return sizes(value, "[privacy] mu", entries.names, len(entries.labels), "entry")


def _query(told: Document, entries: _Entries) -> tuple[FloatArray | None, tuple[str, ...]]:
    outputs, given = told["query"]["outputs"], told["query"]["matrix"]
    if outputs is None and given is None:
        return None, entries.labels
    if outputs is not None and given is not None:
        raise AffineDPError("[query] takes either outputs or matrix")
    if given is not None:
        query = _rows_over_entries(told, "query", "matrix", entries)
        return query, tuple(f"y{i}" for i in range(1, len(query) + 1))
    columns = _columns(outputs, "[query] outputs", entries)
    query = zeros(len(columns), len(entries.labels))
    query[np.arange(len(columns)), columns] = 1.0
    return frozen(query), tuple(entries.labels[column] for column in columns)


@dataclass(frozen=True)
class _Noise:
    """What the noise section says."""

    law: LawName | None = None
    matrix: FloatArray | None = None
    covariance: FloatArray | None = None
    hull: float | None = None


def _noise(told: Document, outputs: tuple[str, ...]) -> _Noise:
    noise = told["noise"]
    law: LawName | None = noise["law"]
    kinds = [key for key in ("scale", "matrix", "covariance", "hull") if noise[key] is not None]
    if law is None and not kinds:
        return _Noise()
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
        return _Noise(law, hull=value)
    if kind == "scale":
        noise_matrix = zeros(count, count)
        np.fill_diagonal(noise_matrix, sizes(value, where, outputs, count, "output"))
        return _Noise(law, frozen(noise_matrix))
    if kind == "covariance" and law != "gaussian":
        raise AffineDPError("[noise] covariance goes with law = 'gaussian'; give scale or matrix")
    table = told.table("noise", kind, outputs if kind == "covariance" else None)
    check_count(f"{where}: rows", len(table.numbers), "output", count)
    if kind == "matrix":
        return _Noise(law, fitted(table, None, where))
    check_count(f"{where}: columns", table.numbers.shape[1], "output", count)
    return _Noise(law, covariance=fitted(table, outputs, where, rows_too=True))


def _rows_over_entries(told: Document, section: str, key: str, entries: _Entries) -> FloatArray:
    """A matrix with one column per entry."""
    where = f"[{section}] {key}"
    table = told.table(section, key, entries.names)
    check_count(f"{where}: columns", table.numbers.shape[1], "entry", len(entries.labels))
    return fitted(table, entries.names, where)


def _columns(value: Any, where: str, entries: _Entries) -> tuple[int, ...]:
    """Entries, each by name or by number from 0."""
    columns = []
    for item in filled_list(value, where):
        count = len(entries.labels)
        if isinstance(item, str):
            if item not in entries.column_of:
                meant = hint(item, entries.column_of)
                raise AffineDPError(f"{where}: no entry is named {shown(item)}{meant}")
            columns.append(entries.column_of[item])
        elif isinstance(item, int) and not isinstance(item, bool) and 0 <= item < count:
            columns.append(item)
        else:
            raise AffineDPError(
                f"{where}: {shown(item)} is no name and no number from 0 to {count - 1}"
            )
    if len(set(columns)) < len(columns):
        raise AffineDPError(f"{where}: an entry appears twice")
    return tuple(columns)
