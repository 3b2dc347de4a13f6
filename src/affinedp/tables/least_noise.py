"""The least noise that the designs at hand find for a table, never worse than standard practice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, is_sparse
from affinedp.designs.choose import least_noise
from affinedp.designs.fit import at_the_limit
from affinedp.designs.gaussian import design_gaussian
from affinedp.designs.laplace import design_laplace
from affinedp.designs.problem import Problem, checked_problem
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import TooManyCircuitsError
from affinedp.laws.base import LawName
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.neighbours.whole import moves_are_whole
from affinedp.privacy.design import Alternative
from affinedp.privacy.verification import resolve_query
from affinedp.tables.describe import TableDescription, amounts_of
from affinedp.tables.layout import Layout
from affinedp.tables.people import rows_of_people, with_totals
from affinedp.tables.practice import (
    CENTRED,
    DESIGNED,
    INDEPENDENT,
    LEVELS,
    baseline_mechanisms,
    geometric_cells,
    independent_error,
    shared_out,
    symmetric_noise,
)
from affinedp.tables.refusals import TableError

# Directions times dimensions up to which noise is designed for every direction by itself.
MOST_LISTED = {"gaussian": 2e5, "laplace": 5e4}
MOST_INDEPENDENT = {"gaussian": 2e6, "laplace": 260}
# The same for bodies of K-norm noise on whole numbers, and dimensions for those on real ones.
MOST_WHOLE = 1.1e3
MOST_DIMENSIONS = 6
# Up to this many, standard practice is compared, and one weight per level too.
MOST_COMPARED = 4e6
MOST_LEVELS = 4e5
BEST = "the best of what was compared: "


def table_noise(
    description: TableDescription,
    layout: Layout,
    adjacency: Adjacency,
    weights: FloatArray | None,
    releases: int,
) -> tuple[Mechanism, tuple[Alternative, ...]]:
    """Return noise of small expected squared error that keeps the promise, and all compared.

    Standard practice is put beside the designs, and :func:`affinedp.designs.choose.least_noise`
    compares.
    """
    manifold = adjacency.manifold
    whole = counts_are_whole(description, adjacency)
    problem = checked_problem(
        adjacency, resolve_query(manifold, None), weights, description.epsilon, description.delta,
        releases, "sum", whole, None,
    )  # fmt: skip
    count = _count(adjacency) * manifold.dim
    practice: list[tuple[str, Mechanism]] = []
    compared: list[Alternative] = []
    laws = []
    for law in description.laws:
        limit = problem.sensitivity if law == "gaussian" else problem.pure_epsilon
        by_level = False
        if count <= MOST_COMPARED:
            practice += baseline_mechanisms(adjacency, law, limit, _cells(layout), weights)
            if law == "laplace" and description.has_values:
                practice.append(
                    (CENTRED, _centred(adjacency, limit, layout, description.mu, weights))
                )
            levels = _levels(layout, adjacency, weights)
            alike = len(set(levels)) < len(levels) and count <= MOST_LEVELS
            by_level = alike and not isinstance(adjacency, JointAdjacency)
            if by_level:
                practice.append((LEVELS, symmetric_noise(adjacency, law, limit, levels, weights)))
            error = independent_error(adjacency, law, limit, weights)
            compared.append(Alternative(law, error, True, INDEPENDENT))
        if law == "laplace" and description.law is None:
            if whole and count <= MOST_COMPARED:
                practice += geometric_cells(adjacency, limit, _cells(layout), weights)
            # draws of real K-norm noise and of stairs take their time: not for many rows
            few = layout.row_names is not None
            small = count <= MOST_WHOLE if whole else few and manifold.dim <= MOST_DIMENSIONS
            if small and not isinstance(adjacency, JointAdjacency):
                laws.append("knorm")
            if few and not whole and not isinstance(adjacency, JointAdjacency):
                laws.append("productnorm")
            if few and _one_at_a_time(description, adjacency) and count <= MOST_WHOLE:
                laws.append("staircase")
        # a Laplace design is worth its time only where that law is the better one
        if law == description.laws[0] or _best_law(problem, practice) == law:
            if isinstance(adjacency, JointAdjacency) or _level_by_level(adjacency, law, count):
                if not by_level:  # which would be the same
                    made = _designed(description, layout, adjacency, weights, law, limit, count)
                    practice.append((DESIGNED, made))
            else:
                laws.append(law)
    try:
        found = least_noise(problem, laws, practice=practice, effort="quick")
    except TooManyCircuitsError:
        raise _too_many(layout, manifold, description.laws[0]) from None
    told = [note.removeprefix(BEST) for note in found.notes if note.startswith(BEST)]
    own = Alternative(found.law, problem.error(found), True, told[0] if told else "")
    others = (other for other in found.alternatives if other.designed)
    return found, (own, *others, *compared)


def _centred(
    adjacency: Adjacency, limit: float, layout: Layout, mu: Any, weights: FloatArray | None
) -> Mechanism:
    """Laplace noise on counts, and on sums of what values are above the middle of their bounds.

    A value moves a sum by half its width then, and the noise of the counts comes with the middle.
    """
    import scipy.sparse as sparse

    ends = {layout.columns.index(name): amounts_of(size) for name, size in mu.items()}
    fixed = next((place for place, (low, high) in ends.items() if low == high != 0), None)
    columns = np.eye(len(layout.columns))[list(ends)]
    sizes = np.array([float(max(-low, high)) for low, high in ends.values()])
    if fixed is not None:
        for i, (place, (low, high)) in enumerate(ends.items()):
            if low < high:
                columns[list(ends).index(fixed), place] = float((low + high) / 2 / ends[fixed][0])
                sizes[i] = float((high - low) / 2)
    columns = with_totals(layout, columns)[sizes > 0]
    sizes = sizes[sizes > 0]
    people = np.zeros((layout.cells // len(layout.columns), len(rows_of_people(layout))))
    for i, rows in enumerate(rows_of_people(layout)):
        people[rows, i] = 1.0
    basis = np.kron(people, columns.T)[layout.private]
    price = np.ones(len(basis)) if weights is None else weights
    costs = (price @ basis**2).reshape(-1, len(sizes)).sum(axis=0)
    # shares of ε of least cost
    root = np.tile(sizes / np.cbrt(costs * sizes**2), people.shape[1])
    identity = sparse.csr_array(sparse.eye_array(adjacency.manifold.n))
    points, names = sparse.csr_array(sparse.diags_array(root)), adjacency.manifold.names
    made = build(adjacency, identity, sparse.csr_array(basis), points, "laplace", names)
    return at_the_limit(made, limit)


def _one_at_a_time(description: TableDescription, adjacency: Adjacency) -> bool:
    """Whether listed moves are all there are: several people may be in several cells at once."""
    people = description.household * (description.at_most or 1)
    return people == 1 and not description.has_values and not isinstance(adjacency, JointAdjacency)


def _best_law(problem: Problem, practice: list[tuple[str, Mechanism]]) -> str:
    return min((one for _, one in practice), key=problem.error).law if practice else ""


def counts_are_whole(description: TableDescription, adjacency: Adjacency) -> bool:
    """Whether the noise may be whole: the numbers count people, and so are whole."""
    if not description.counts:
        return False
    kernel = adjacency.manifold.kernel
    entries = kernel.data if is_sparse(kernel) else kernel
    exact = adjacency.manifold.kernel_error == 0 and bool(np.all(entries == np.rint(entries)))
    parts = adjacency.parts if isinstance(adjacency, JointAdjacency) else (adjacency,)
    if exact and all(moves_are_whole(part) for part in parts):
        return True
    if description.whole:
        raise TableError(
            "whole=True, but the equations or moves of one person are no whole numbers: choose a "
            "whole mu, or leave out whole"
        )
    return False


def _cells(layout: Layout) -> FloatArray:
    """Which private entries are no totals."""
    return np.array([entry not in layout.totals for entry in layout.private.tolist()])


def _designed(
    description: TableDescription,
    layout: Layout,
    adjacency: Adjacency,
    weights: FloatArray | None,
    law: LawName,
    limit: float,
    count: float,
) -> Mechanism:
    """The design of one law, for every direction by itself or level by level."""
    if isinstance(adjacency, JointAdjacency):
        return shared_out(
            adjacency, law, limit, weights,
            lambda part: _designed(
                description, layout, part, weights, law, limit,
                _count(part) * part.manifold.dim,
            ),
        )  # fmt: skip
    wanted: dict[str, Any] = {"adjacency": adjacency, "weights": weights}
    manifold = adjacency.manifold
    try:
        if _level_by_level(adjacency, law, count):
            levels = _levels(layout, adjacency, weights)
            return symmetric_noise(adjacency, law, limit, levels, weights)
        if law == "laplace":
            # more starts take seconds, and standard practice, which is compared too, is close
            return design_laplace(manifold, epsilon=limit, effort="quick", **wanted)
        made = design_gaussian(
            manifold, epsilon=description.epsilon, delta=description.delta, **wanted
        )
        return at_the_limit(made, limit)
    except TooManyCircuitsError:
        raise _too_many(layout, manifold, law) from None


def _level_by_level(adjacency: Adjacency, law: LawName, count: float) -> bool:
    """Whether there are too many directions to design for every one by itself."""
    limits = MOST_LISTED if isinstance(adjacency, CircuitAdjacency) else MOST_INDEPENDENT
    return limits[law] < count < math.inf


def _too_many(layout: Layout, manifold: AffineManifold, law: LawName) -> TableError:
    ways = "adjacency='swaps' (two people exchange places)" if layout.sums else ""
    ways = ways or "adjacency='person' (one person more or less, totals follow)"
    gaussian = "" if law == "gaussian" else ", law='gaussian' with a δ"
    return TableError(
        f"{manifold.n} numbers under {manifold.n - manifold.dim} equations have too "
        f"many ways to move for adjacency='circuits'. Ways out: {ways}{gaussian}, or fewer "
        "rows or columns at a time"
    )


def _count(adjacency: Adjacency) -> float:
    """How many neighbour directions there are; infinite where they cannot be counted."""
    if isinstance(adjacency, JointAdjacency):
        return sum(_count(part) for part in adjacency.parts)
    if not isinstance(adjacency, CircuitAdjacency):
        return float(sum(one.values.shape[1] for one in adjacency.moves(10**6)))
    try:
        return float(adjacency.count())
    except TooManyCircuitsError:
        return math.inf


def _levels(layout: Layout, adjacency: Adjacency, weights: FloatArray | None) -> list[Any]:
    """Entries that can be treated alike: the same level, μ and weight."""
    mu: FloatArray = getattr(adjacency, "mu", np.ones(adjacency.manifold.n))
    cost = np.ones(len(mu)) if weights is None else weights
    level = (layout.levels[entry] for entry in layout.private.tolist())
    return list(zip(level, mu.tolist(), cost.tolist()))
