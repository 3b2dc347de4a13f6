"""The least noise that the designs at hand find for a table, never worse than standard practice.

Standard practice is noise on every number, brought back onto the equations by least squares; noise
on the cells, added up; one weight per level.  Each keeps the same promise to the same neighbours,
and each is a mechanism that could be released, so the best of all is never worse than any.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, Norm, dense, is_sparse, rank_of
from affinedp.designs.bounds import with_least
from affinedp.designs.choose import least_noise
from affinedp.designs.fit import at_the_limit
from affinedp.designs.gaussian import design_gaussian
from affinedp.designs.laplace import design_laplace
from affinedp.designs.problem import Problem, checked_problem
from affinedp.designs.separate import range_basis
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.laws.base import LawName
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import geometric_variance
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.neighbours.whole import moves_are_whole
from affinedp.privacy.design import Alternative
from affinedp.privacy.verification import resolve_query
from affinedp.progress import Progress
from affinedp.strategies.whole_entries import WholeEntries
from affinedp.tables.describe import TableDescription, amounts_of
from affinedp.tables.layout import Layout
from affinedp.tables.people import rows_of_people, with_totals
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
# Noise of less variance is as good as none, and is not divided by.
LEAST_VARIANCE = 1e-200
# What is compared, and does not cover what neighbours move (up to rounding), is left out.
NOT_COVERING = (AffineDPError, np.linalg.LinAlgError)
# Moves times entries up to which a baseline is computed.
MOST_NUMBERS = 4e7
MOST_MOVES = 20_000

INDEPENDENT = "independent noise on every number"
PROJECTED = "independent noise on every number, made to add up"
CELLS = "noise on the cells, added up"
CENTRED = "noise on the cells, values taken from the middle of their bounds, added up"
GEOMETRIC = "K-norm noise on the cells, which is geometric, added up"
LEVELS = "one weight per level"
DESIGNED = "the design"


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
    count, joint = _count(adjacency) * manifold.dim, isinstance(adjacency, JointAdjacency)
    levels = _levels(layout, adjacency, weights)
    practice: list[tuple[str, Mechanism]] = []
    compared: list[Alternative] = []
    laws = []
    for law in description.laws:
        limit = problem.sensitivity if law == "gaussian" else problem.pure_epsilon
        by_level = False
        if count <= MOST_COMPARED:
            practice += baseline_mechanisms(adjacency, law, limit, _cells(layout), weights)
            if law == "laplace" and description.has_values:
                with suppress(*NOT_COVERING):
                    made = _centred(adjacency, limit, layout, description.mu, weights)
                    practice.append((CENTRED, made))
            if len(set(levels)) < len(levels) and count <= MOST_LEVELS and not joint:
                with suppress(*NOT_COVERING):
                    made = symmetric_noise(adjacency, law, limit, levels, weights)
                    practice.append((LEVELS, made))
                    by_level = True
            error = independent_error(adjacency, law, limit, weights)
            compared.append(Alternative(law, error, True, INDEPENDENT))
        if law == "laplace" and description.law is None:
            if whole and count <= MOST_COMPARED:
                practice += geometric_cells(adjacency, limit, _cells(layout), weights)
            # draws of real K-norm noise and of stairs take their time: not for many rows
            few = layout.row_names is not None
            small = count <= MOST_WHOLE if whole else few and manifold.dim <= MOST_DIMENSIONS
            if small and not joint:
                laws.append("knorm")
            if few and not whole and not joint:
                laws.append("productnorm")
            # several people may be in several cells at once: listed moves are not all there are
            people = description.household * (description.at_most or 1)
            alone = people == 1 and not description.has_values and not joint
            if few and alone and count <= MOST_WHOLE:
                laws.append("staircase")
        # a Laplace design is worth its time only where that law is the better one
        if law == description.laws[0] or _best_law(problem, practice) == law:
            if not joint and not _level_by_level(adjacency, law, count):
                laws.append(law)
            elif not by_level:  # which would be the same
                with _in_words(layout, manifold, law):
                    made = _designed(description, adjacency, levels, weights, law, limit)
                practice.append((DESIGNED, made))
    with _in_words(layout, manifold, description.laws[0]):
        found = least_noise(problem, laws, practice=practice, effort="quick")
    found = _less_of_what_is_shared(problem, practice, found)
    told = [note.removeprefix(BEST) for note in found.notes if note.startswith(BEST)]
    own = Alternative(found.law, problem.error(found), True, told[0] if told else "")
    others = (other for other in found.alternatives if other.designed)
    return found, (own, *others, *compared)


def _less_of_what_is_shared(
    problem: Problem, practice: list[tuple[str, Mechanism]], found: Mechanism
) -> Mechanism:
    """Whole noise beside what neighbours share, where that is less; bodies cannot have it."""
    for name, made in practice:
        if not isinstance(made.strategy, WholeEntries) or made.shared_part is None:
            continue
        if problem.error(made) < problem.error(found):
            told = [note for note in found.notes if note.startswith(BEST)]
            reason = told[0].removeprefix(BEST) if told else ""
            other = Alternative(found.law, problem.error(found), True, reason)
            kept = made.with_design(
                notes=(BEST + name,), alternatives=(other, *found.alternatives)
            ).keeping(problem.epsilon, problem.delta, problem.releases)
            least = found.design.least
            promise = (
                (problem.pure_epsilon, 0.0)
                if problem.releases > 1
                else (problem.epsilon, problem.delta)
            )
            found = with_least(
                kept, problem.weights, None if least is None else least.proof, *promise,
                data=problem.data,
            )  # fmt: skip
    return found


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
    points = sparse.csr_array(sparse.diags_array(root))
    return noise_of(adjacency, sparse.csr_array(basis), points, "laplace", limit)


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
    adjacency: Adjacency,
    levels: Sequence[Hashable],
    weights: FloatArray | None,
    law: LawName,
    limit: float,
) -> Mechanism:
    """The design of one law level by level, or of each part of a table by itself."""
    if isinstance(adjacency, JointAdjacency):
        return shared_out(
            adjacency, law, limit, weights,
            lambda part: _designed(description, part, levels, weights, law, limit),
        )  # fmt: skip
    manifold = adjacency.manifold
    if _level_by_level(adjacency, law, _count(adjacency) * manifold.dim):
        return symmetric_noise(adjacency, law, limit, levels, weights)
    wanted: dict[str, Any] = {"adjacency": adjacency, "weights": weights}
    if law == "laplace":
        # more starts take seconds, and standard practice, which is compared too, is close
        return design_laplace(manifold, epsilon=limit, effort="quick", **wanted)
    made = design_gaussian(manifold, epsilon=description.epsilon, delta=description.delta, **wanted)
    return at_the_limit(made, limit)


def _level_by_level(adjacency: Adjacency, law: LawName, count: float) -> bool:
    """Whether there are too many directions to design for every one by itself."""
    limits = MOST_LISTED if isinstance(adjacency, CircuitAdjacency) else MOST_INDEPENDENT
    return limits[law] < count < math.inf


@contextmanager
def _in_words(layout: Layout, manifold: AffineManifold, law: LawName) -> Iterator[None]:
    """Say what to do where there are too many ways to move."""
    try:
        yield
    except TooManyCircuitsError:
        ways = "adjacency='swaps' (two people exchange places)" if layout.sums else ""
        ways = ways or "adjacency='person' (one person more or less, totals follow)"
        gaussian = "" if law == "gaussian" else ", law='gaussian' with a δ"
        raise TableError(
            f"{manifold.n} numbers under {manifold.n - manifold.dim} equations have too "
            f"many ways to move for adjacency='circuits'. Ways out: {ways}{gaussian}, or fewer "
            "rows or columns at a time"
        ) from None


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


# ---------------------------------------------------------------------- standard practice


def weighted_error(mechanism: Mechanism, weights: FloatArray | None) -> float:
    """Return what the noise costs under the weights."""
    errors = mechanism.expected_squared_errors
    return math.fsum(errors if weights is None else errors * weights)


def independent_error(
    adjacency: Adjacency, law: LawName, limit: float, weights: FloatArray | None
) -> float:
    """Return what independent noise on every number costs, which does not add up."""
    own = own_units(adjacency)
    apart = np.diag(1 / own)
    scale = adjacency.sensitivity(apart, norm=2 if law == "gaussian" else 1).upper / limit
    unit = scale**2 * (1.0 if law == "gaussian" else 2.0)
    return unit * math.fsum(own**2 if weights is None else own**2 * weights)


def own_units(adjacency: Adjacency) -> FloatArray:
    """Return how far neighbours move every entry, and 1 for those that stay.

    Whoever adds noise number by number adds it in the unit of each: people beside incomes.
    """
    mu: FloatArray | None = getattr(adjacency, "mu", None)
    moved = np.abs(dense(adjacency.span())).max(axis=1) if mu is None else mu
    return np.where(moved > 0, moved, 1.0)


def baseline_mechanisms(
    adjacency: Adjacency,
    law: LawName,
    limit: float,
    cells: FloatArray,
    weights: FloatArray | None,
) -> Iterator[tuple[str, Mechanism]]:
    """Yield standard practice as mechanisms that keep the promise."""
    for name, y in ((PROJECTED, np.ones(len(cells))), (CELLS, cells.astype(float))):
        with suppress(*NOT_COVERING):
            yield name, diagonal_noise(adjacency, law, limit, y, weights)


def geometric_cells(
    adjacency: Adjacency, limit: float, cells: FloatArray, weights: FloatArray | None
) -> Iterator[tuple[str, Mechanism]]:
    """Yield discrete Laplace (geometric) noise on whole cells, made to add up.

    This is what general libraries do with counts.
    """
    parts = adjacency.parts if isinstance(adjacency, JointAdjacency) else (adjacency,)
    try:
        listed = [dense(part.directions(MOST_MOVES)) for part in parts]
    except TooManyCircuitsError:
        return
    # one move in each part: all choices are verified
    if math.prod(2 * moves.shape[1] + 1 for moves in listed) > 2 * MOST_MOVES:
        return
    alone = all(((moves[cells > 0] != 0).sum(axis=0) == 1).all() for moves in listed)
    with suppress(*NOT_COVERING):
        make = _added_up if alone else _brought_back
        yield GEOMETRIC, make(adjacency, listed, limit, cells, weights)


def _added_up(
    adjacency: Adjacency,
    listed: list[FloatArray],
    limit: float,
    cells: FloatArray,
    weights: FloatArray | None,
) -> Mechanism:
    """Noise on cells of which every move changes one: totals are sums of noisy cells."""
    import scipy.sparse as sparse

    bases, widths, costs = [], [], []
    price = np.ones(len(cells)) if weights is None else weights
    for moves in listed:
        size = moves[cells > 0].sum(axis=0)
        basis, longest = _by_cell(moves / size, np.abs(size))
        bases.append(basis)
        widths.append(longest)
        costs.append(float(price @ (basis**2 @ longest**2)))
    # shares of ε as for Laplace noise
    root = np.concatenate([w * more for w, more in zip(widths, grown(costs, "laplace"))])
    points, columns = sparse.diags_array(root), sparse.csr_array(np.hstack(bases))
    return noise_of(
        adjacency, columns, sparse.csr_array(points), "knorm", limit, rate=limit, whole=True
    )


def _brought_back(
    adjacency: Adjacency,
    listed: list[FloatArray],
    limit: float,
    cells: FloatArray,
    weights: FloatArray | None,
) -> Mechanism:
    """Noise on cells of which a move changes several: least squares within what moves change."""
    import scipy.sparse as sparse

    manifold = adjacency.manifold
    price = np.ones(len(cells)) if weights is None else weights
    entries, widths, loadings, costs = [], [], [], []
    for moves in listed:
        own = np.flatnonzero((cells > 0) & moves.any(axis=1))
        reach = np.abs(moves[own])
        longest = reach.max(axis=1)
        # how many cells the widest move through a cell changes: they share ε
        many = (reach > 0) * (reach / longest[:, None]).sum(axis=0)
        width = longest * many.max(axis=1)
        span = range_basis(moves)
        spread = [max(geometric_variance(limit / w), LEAST_VARIANCE) for w in width.tolist()]
        scaled = span[own] / np.array(spread)[:, None]
        back = span @ np.linalg.solve(span[own].T @ scaled, scaled.T)
        entries.append(own)
        widths.append(width)
        loadings.append(back)
        costs.append(float(price @ (back**2 @ width**2)))
    root = np.concatenate([w * more for w, more in zip(widths, grown(costs, "laplace"))])
    strategy = WholeEntries(
        manifold, sparse.csr_array(sparse.eye_array(manifold.n)), np.hstack(loadings),
        manifold.names, entries=np.concatenate(entries),
    )  # fmt: skip
    made = Mechanism(adjacency, strategy, KNorm(np.diag(root), limit, whole=True))
    return at_the_limit(made, limit)


def noise_of(
    adjacency: Adjacency, basis: Matrix, root: Matrix, law: str, limit: float, **more: Any
) -> Mechanism:
    """Return noise on every number, ``basis @ root`` times independent draws, at the limit."""
    import scipy.sparse as sparse

    manifold = adjacency.manifold
    identity = sparse.csr_array(sparse.eye_array(manifold.n))
    made = build(adjacency, identity, basis, root, law, manifold.names, **more)
    return at_the_limit(made, limit)


def grown(costs: Sequence[float] | FloatArray, law: LawName) -> FloatArray:
    """Return how much larger noise of every part is where all share one promise at least cost.

    With F the cost of a part at the whole promise, that is Gaussian s² ∝ √F, and pure ε ∝ F^⅓.
    """
    power, norm = (1 / 4, 2) if law == "gaussian" else (1 / 3, 1)
    sizes = np.maximum(costs, 1e-300) ** power
    return np.asarray(np.linalg.norm(sizes, norm) / sizes)


def _by_cell(steps: FloatArray, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Equal directions once, with the longest of their lengths."""
    columns, place = np.unique(steps, axis=1, return_inverse=True)
    longest = np.zeros(columns.shape[1])
    np.maximum.at(longest, place.ravel(), sizes)
    return columns, longest


def diagonal_noise(
    adjacency: Adjacency,
    law: LawName,
    limit: float,
    y: FloatArray,
    weights: FloatArray | None = None,
) -> Mechanism:
    """Return independent noise of weight y on every entry, brought onto the equations."""
    if isinstance(adjacency, JointAdjacency):
        return shared_out(
            adjacency, law, limit, weights, lambda part: diagonal_noise(part, law, limit, y)
        )
    span = dense(adjacency.span())
    if span.size > MOST_NUMBERS:
        raise AffineDPError("too many moves for a comparison")
    basis = range_basis(span)
    root = projected_root(basis, y / own_units(adjacency) ** (2 if law == "gaussian" else 1), law)
    return noise_of(adjacency, basis, root / limit, law, limit)


def projected_root(basis: FloatArray, y: FloatArray, law: LawName) -> FloatArray:
    """Return what makes noise on the basis, by least squares, of independent draws."""
    if law == "gaussian":
        precision = basis.T @ (y[:, None] * basis)
        return np.asarray(np.linalg.inv(np.linalg.cholesky(precision)).T)
    kept = (y > 0) & basis.any(axis=1)  # draws that reach no output are not made
    precision = basis.T @ ((y**2)[:, None] * basis)
    return np.asarray(np.linalg.solve(precision, basis[kept].T * y[kept]))


def shared_out(
    adjacency: JointAdjacency,
    law: LawName,
    limit: float,
    weights: FloatArray | None,
    design: Callable[[Adjacency], Mechanism],
) -> Mechanism:
    """Return noise for moves in several parts at once, the promise shared out to the least cost."""
    import scipy.sparse as sparse

    found = [design(part) for part in adjacency.parts]
    more = grown([weighted_error(one, weights) for one in found], law)
    basis = sparse.csr_array(np.hstack([dense(one.dense.basis) for one in found]))
    roots = [dense(one.dense.root) * times for one, times in zip(found, more)]
    gaps = [one.gap for one in found]
    return noise_of(
        adjacency, basis, sparse.csr_array(sparse.block_diag(roots)), law, limit,
        gap=None if None in gaps else max(gap for gap in gaps if gap is not None),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )  # fmt: skip


ROUNDS = 60
# A move that passes the limit by less than this is taken care of by scaling the noise.
SLACK = 1e-5
# The least weight: precisions, which are squares of weights for Laplace noise, stay invertible.
LEAST = {"gaussian": 1e-12, "laplace": 1e-6}
# Levels, and dimensions, up to which all sets of levels are tried.
MOST_SETS = 5
MOST_SETS_OF = 60


def symmetric_noise(
    adjacency: Adjacency,
    law: LawName,
    limit: float,
    levels: Sequence[Hashable],
    weights: FloatArray | None,
) -> Mechanism:
    """Return a mechanism with one weight per level, with its exact guarantee."""
    kinds = {level: i for i, level in enumerate(dict.fromkeys(levels))}
    level_of = np.array([kinds[level] for level in levels])
    # what neighbours differ in, every entry in its own unit; all of the kernel, unless they share
    # a part of it
    units = own_units(adjacency)
    kernel = range_basis(dense(adjacency.span()) / units[:, None])
    cost = np.ones(len(units)) if weights is None else weights
    chosen = _least_weights(adjacency, law, kernel, cost * units**2, level_of, units)
    root = projected_root(kernel, chosen[level_of], law)
    note = f"one weight for each of {len(kinds)} levels of the table"
    return noise_of(adjacency, kernel * units[:, None], root / limit, law, limit, notes=(note,))


def _least_weights(
    adjacency: Adjacency,
    law: LawName,
    kernel: FloatArray,
    cost: FloatArray,
    level_of: IntArray,
    units: FloatArray,
) -> FloatArray:
    """Weights of least squared error such that no move is larger than 1."""
    count = int(level_of.max()) + 1
    moment = kernel.T @ (cost[:, None] * kernel)
    # a first move through every level, so that no weight can grow without limit
    starts = [(np.arange(count) == i) + 1e-6 for i in range(count)] + [np.ones(count)]
    moves = [_worst(adjacency, law, level_of, units, start) for start in starts]
    best, least = np.ones(count), math.inf
    with Progress("weights of the levels") as progress:
        for kept in _kept_levels(law, kernel, level_of):
            y = np.where(kept, 1.0, LEAST[law]) / max(float(move[kept].sum()) for move in moves)
            for turn in range(ROUNDS):
                y = _solve(kernel, moment, level_of, law, np.array(moves), y)
                worst = _worst(adjacency, law, level_of, units, y)
                if float(worst @ y) <= 1 + SLACK:
                    break
                moves.append(worst)
                progress.update(turn / ROUNDS)
            y = np.where(kept, y, 0.0)
            precision = (y if law == "gaussian" else y**2)[level_of]
            error = float(
                np.trace(np.linalg.solve(kernel.T @ (precision[:, None] * kernel), moment))
            )
            if error < least:
                best, least = y, error
    return best


def _kept_levels(
    law: LawName, kernel: FloatArray, level_of: IntArray
) -> Iterator[NDArray[np.bool_]]:
    """All levels; for Laplace noise, which is no convex problem, every set that tells all cells."""
    count = int(level_of.max()) + 1
    few = law == "laplace" and count <= MOST_SETS and kernel.shape[1] <= MOST_SETS_OF
    for kept in itertools.product((True, False), repeat=count):
        chosen = np.array(kept)
        if chosen.all() or (
            few and chosen.any() and rank_of(kernel[chosen[level_of]]) == kernel.shape[1]
        ):
            yield chosen
        if not few:
            return


def _worst(
    adjacency: Adjacency, law: LawName, level_of: IntArray, units: FloatArray, y: FloatArray
) -> FloatArray:
    """What the worst move for these weights adds up to in every level."""
    import scipy.sparse as sparse

    norm: Norm = 2 if law == "gaussian" else 1
    scale = np.sqrt(y[level_of]) if law == "gaussian" else y[level_of]
    found = adjacency.sensitivity(sparse.csr_array(sparse.diags_array(scale / units)), norm)
    size = np.abs(found.direction) / units
    moved = size**2 if law == "gaussian" else size
    return np.bincount(level_of, weights=moved, minlength=len(y)).astype(float)


def _solve(
    kernel: FloatArray,
    moment: FloatArray,
    level_of: IntArray,
    law: LawName,
    moves: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Least squared error over positive weights with all these moves at most 1."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    power = 1.0 if law == "gaussian" else 2.0

    def value_and_slope(logs: FloatArray) -> tuple[float, FloatArray]:
        precision = np.exp(power * logs)[level_of]
        factor = cho_factor(kernel.T @ (precision[:, None] * kernel))
        spread = cho_solve(factor, moment)
        total = float(np.trace(spread))
        both = kernel @ cho_solve(factor, spread.T)
        slope = -power * precision * np.einsum("ij,ij->i", both, kernel) / total
        by_level = np.bincount(level_of, weights=slope, minlength=len(logs))
        return math.log(total), by_level.astype(float)

    # within the limit to start with, whatever the last cut was
    begin = np.log(np.maximum(start / max(1.0, float((moves @ start).max())), LEAST[law]))
    # no weight is larger than where its own level alone is at the limit
    most = np.maximum(-np.log(np.maximum(moves.max(axis=0), 1e-300)), begin)
    found = minimize(
        value_and_slope,
        begin,
        jac=True,
        method="SLSQP",
        bounds=[(np.log(LEAST[law]), own) for own in most.tolist()],
        constraints=[
            {
                "type": "ineq",
                "fun": lambda logs: 1.0 - moves @ np.exp(logs),
                "jac": lambda logs: -moves * np.exp(logs),
            }
        ],
        options={"maxiter": 100, "ftol": 1e-9},
    )
    y = np.exp(found.x)
    return np.asarray(y / max(1.0, float((moves @ y).max())))
