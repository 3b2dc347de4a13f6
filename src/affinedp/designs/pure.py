"""Noise of pure laws for one problem: closed forms first, then what has to be searched for.

Candidates are mechanisms whose promise was not verified: floats say what they cost.  The chooser
verifies the best one, and takes the next where that is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.designs.effort import Budget
from affinedp.designs.fit import LONGER, Candidate
from affinedp.designs.free_set import best_free_set
from affinedp.designs.knorm_blocks import Cell, farthest_whole, real_cell, whole_cells
from affinedp.designs.knorm_bodies import best_bodies, lattice_bases
from affinedp.designs.laplace_strategy import (
    LaplaceStrategy,
    class_weights,
    largest_norm,
    least_laplace,
    strategy_error,
)
from affinedp.designs.problem import Problem
from affinedp.designs.separate import Block, range_basis, split, together, with_floor
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meant_numbers
from affinedp.laws.base import Law
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import Laplace
from affinedp.laws.product_norm import MOST_DIMENSIONS, ProductNorm, variance_in_product
from affinedp.laws.staircase import Staircase, best_first, best_whole_first, real_variance
from affinedp.mechanism import Mechanism
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.privacy.design import Design
from affinedp.progress import Progress
from affinedp.strategies.dense import Dense
from affinedp.strategies.one_sum import dual_of_sum, is_one_sum
from affinedp.strategies.projected import Cycles, Projected, cycles_of

# Entries up to which noise on entries is brought back onto the equations.
MOST_ENTRIES = 2_000
# Moves that are looked at before all are read exactly.
LOOKED_AT = 1_000
# Bounds on gauges are off by less; bodies that are rounded are charged for more.
ROUNDED = 1e-9
# How often noise on numbers that say all others is made anew for its largest variance.
LEVELLINGS = 8
# Digits of the widths of noise on entries.
DIGITS = 6
# What it costs to read one number of a move exactly, and on a lattice, in multiply-adds.
READING_WORK, WHOLE_WORK = 500, 10_000
# Noise that is larger by so little, for the rounding of its promise, is verified once.
LARGER = 1 + 1e-10
# Stairs are wider by so much than moves that are computed.
WIDER = 1 + 1e-12
STAIRS = "staircase noise: the density falls by e^ε whenever a neighbour's move is exceeded"
SUMS = "noise under the public sums at the nodes of a network, brought back onto all equations"
ENTRIES = (
    "independent Laplace noise on every entry, brought back onto the equations: charged for the "
    "longest circuit that there can be"
)
OUTPUTS = "independent Laplace noise on every output, brought back onto the equations"
ADDED_UP = "independent Laplace noise on entries, of which the outputs are made"
LEVELLED = "independent Laplace noise on outputs, or on numbers that say all others"
ALONG = "independent noise along every move, which is K-norm noise with their hull"


Way = Callable[[], Iterator[Candidate]]


def closed_forms(problem: Problem, laws: set[str], weights: Matrix) -> Iterator[Way]:
    """Yield what needs no list of moves, in this order; each may be refused by itself."""
    knorm = "knorm" in laws
    if knorm and is_one_sum(problem.adjacency, problem.query):
        yield lambda: _one_sum(problem, weights)
    if problem.query.shape[0] == 1:
        if knorm or "laplace" in laws:
            yield lambda: _one_number(problem)
        if "staircase" in laws:
            yield lambda: _stairs_of_one_number(problem)
            if problem.integers and "laplace" in laws:
                real = _stairs_of_one_number(problem.real)
                yield lambda: (replace(one, settled=False) for one in real)
        return
    # it is real, also on whole data
    if "productnorm" in laws or (knorm and not problem.integers):
        yield lambda: _products(problem, weights)


def from_a_list(
    problem: Problem, laws: set[str], weights: Matrix, seed: Any, budget: Budget, listed: bool
) -> Iterator[Way]:
    """Yield what is made of listed moves, in this order, and what stands in where they are not."""
    knorm, whole = "knorm" in laws, problem.integers
    if (knorm or "laplace" in laws) and problem.query.shape[0] > 1:
        yield lambda: _on_entries(problem, weights, budget) if listed else _on_all(problem)
        if listed and problem.objective == "largest":
            yield lambda: _levelled(problem, budget)
    if "staircase" in laws:
        yield lambda: _staircase(problem, weights, budget, laws)
    if not knorm and "laplace" not in laws:
        return
    searched: list[LaplaceStrategy] = []
    if knorm and whole:
        yield lambda: _bodies(problem, weights, seed, budget, [], "laplace" in laws)
        if "laplace" not in laws:
            return  # what is published is to be whole
    starts = searched if knorm else None
    yield lambda: _laplace(problem, weights, seed, budget, starts)
    if whole and "staircase" in laws:
        yield lambda: _staircase(problem.real, weights, budget, laws)
    if knorm:
        yield lambda: _bodies(problem.real, weights, seed, budget, searched)


def _candidate(
    problem: Problem, strategy: Dense | Projected, law: Law, *notes: str, **more: Any
) -> Candidate:
    made = Mechanism(problem.adjacency, strategy, law, design=Design(notes=notes))
    return Candidate(made, problem.pure_epsilon, **more)


def _dense(problem: Problem, basis: Matrix, root: Matrix | None = None) -> Dense:
    return Dense(problem.adjacency.manifold, problem.query, basis, problem.names, root)


# ---------------------------------------------------------------------- without a list of moves


def _one_sum(problem: Problem, weights: Matrix) -> Iterator[Candidate]:
    """The hull of the moves under one public sum, in closed form at any size."""
    import scipy.sparse as sparse

    adjacency = problem.adjacency
    assert isinstance(adjacency, CircuitAdjacency)
    width = float(adjacency.mu[0])
    if problem.integers:
        width = math.floor(width)
        if width == 0:
            raise AffineDPError("whole numbers do not move by less than 1: enlarge mu")
    signs = np.sign(dense(adjacency.manifold.D)).ravel()
    points = sparse.csr_array((signs * signs[-1] * width)[:, None])
    identity = sparse.csr_array(sparse.eye_array(len(problem.names)))
    law = KNorm(points, problem.pure_epsilon, problem.integers)
    alike = dual_of_sum(adjacency, weights, problem.integers) is not None
    yield _candidate(
        problem, _dense(problem, identity), law, "the hull of the moves", settled=alike
    )


def _stairs_of_one_number(problem: Problem) -> Iterator[Candidate]:
    """Stairs as wide as the farthest move of a single output, which are the least there is."""
    found, limit = problem.farthest, problem.pure_epsilon
    if not found.upper > 0:
        return
    if problem.integers:
        axis = farthest_whole(problem.adjacency, problem.query, found)
        if axis is None:
            return  # a list tells which whole move is the farthest
        unit, steps = axis
        law = Staircase([steps], [best_whole_first(steps, limit)], limit, True)
        real = real_variance(1.0, best_first(1.0, limit), limit) * found.upper**2
        least = float(law.variance_of_each[0]) * unit**2 <= real
    else:
        least, unit = True, 1.0
        width = found.upper * (1.0 if meant_numbers(dense(problem.query)) else WIDER)
        law = Staircase([width], [best_first(width, limit)], limit)
    strategy = _dense(problem, np.full((1, 1), unit))
    yield _candidate(problem, strategy, law, STAIRS, settled=found.exact and least)


def _one_number(problem: Problem) -> Iterator[Candidate]:
    """Laplace noise on a single output: the farthest move says how much, without a list."""
    width = problem.farthest.upper
    if width > 0:
        root = np.full((1, 1), width / problem.pure_epsilon * LARGER)
        strategy = _dense(problem, np.ones((1, 1)), root)
        yield _candidate(problem, strategy, Laplace(), "one number: its farthest move")


def _products(problem: Problem, weights: Matrix) -> Iterator[Candidate]:
    """Noise under the sums at the nodes on one side of a network: as one body, or one by one."""
    components = cycles_of(problem.adjacency)
    if components is None or problem.adjacency.manifold.n > MOST_ENTRIES:
        return
    if any(len(one.sides) == 1 or one.coefficients for one in components):
        return  # no set of nodes has every entry once, or sums are not of entries as they are
    chosen = []
    for component in components:
        ways = [
            _under_sums(problem, weights, component, side, together)
            for side in component.sides
            for together in (True, False)
        ]
        chosen.append(min(ways, key=lambda way: way[0])[1:])
    import scipy.sparse as sparse

    entries = np.concatenate([place for place, _, _, _ in chosen])
    points = sparse.csr_array(sparse.block_diag([signs for _, signs, _, _ in chosen]))
    first, blocks = 0, []
    for _, _, own, _ in chosen:
        blocks.append(own + first)
        first += int(own.max()) + 1
    variances = np.concatenate([variance for _, _, _, variance in chosen])
    law = ProductNorm(points, problem.pure_epsilon, np.concatenate(blocks))
    yield _candidate(problem, _back(problem, entries, variances), law, SUMS)


def _under_sums(
    problem: Problem,
    weights: Matrix,
    component: Cycles,
    side: tuple[frozenset[int], ...],
    together: bool,
) -> tuple[float, IntArray, FloatArray, IntArray, FloatArray]:
    """Cost, entries, signs, blocks and variances of noise under the sums at some nodes."""
    groups = [sorted(star) for star in side]
    sizes = np.array([len(group) for group in groups])
    entries = np.concatenate(groups)
    reach = float(component.reach)
    dimensions = int(sizes.sum()) - len(sizes)
    if together:
        rate, each = 1.0, [variance_in_product(n, dimensions, 1.0) for n in sizes.tolist()]
    else:
        rate = 2.0 / component.longest  # so many sums are met at once
        each = [variance_in_product(n, n - 1, rate) for n in sizes.tolist()]
    if together and dimensions > MOST_DIMENSIONS:
        each = [math.inf] * len(sizes)
    unit = reach / problem.pure_epsilon
    variances = np.repeat(np.array(each) * unit**2, sizes)
    blocks = np.zeros(len(sizes), int) if together else np.arange(len(sizes))
    width = reach / rate
    if not np.isfinite(variances).all():
        return math.inf, entries, np.zeros((0, 0)), blocks, variances
    spread = _loadings(problem, entries, variances)
    cost = float((spread * dense(weights @ spread) * variances).sum())
    signs = np.zeros((len(entries), len(sizes)))
    for place, group in enumerate(groups):
        rows = slice(int(sizes[:place].sum()), int(sizes[: place + 1].sum()))
        signs[rows, place] = _signs(problem, group) * width
    return cost, entries, signs, blocks, variances


def _signs(problem: Problem, group: list[int]) -> FloatArray:
    """The signs of the sum of entries at a node: that of which no move changes anything."""
    kernel = dense(problem.adjacency.manifold.kernel)[group]
    normal = np.linalg.svd(kernel.T)[2][-1]
    return np.asarray(np.sign(normal * np.sign(normal[0])))


def _loadings(problem: Problem, entries: IntArray, variances: FloatArray) -> FloatArray:
    """Least squares: what makes outputs of entries whose noise has these variances."""
    kernel = dense(problem.adjacency.manifold.kernel)
    moved = np.abs(kernel[entries]).max(axis=0) > 0
    own = kernel[entries][:, moved]
    scaled = own / variances[:, None]
    return np.asarray(
        dense(problem.query @ kernel[:, moved]) @ np.linalg.solve(own.T @ scaled, scaled.T)
    )


def _back(problem: Problem, entries: IntArray, variances: FloatArray) -> Projected:
    """Entries with noise, brought back onto the equations."""
    return Projected(
        problem.adjacency.manifold, problem.query, _loadings(problem, entries, variances),
        problem.names, entries=entries,
    )  # fmt: skip


def _on_all(problem: Problem) -> Iterator[Candidate]:
    """Laplace noise on all entries, for the longest circuit of a network that is not listed.

    Of other equations on all outputs, if the worst circuit can be searched for without a list.
    """
    components = cycles_of(problem.adjacency)
    if problem.adjacency.manifold.n > MOST_ENTRIES:
        return
    if components is None:
        basis = range_basis(dense(problem.query @ problem.adjacency.manifold.kernel))
        width = problem.adjacency.sensitivity(problem.query, 1).upper
        root = basis.T * (width / problem.pure_epsilon * LARGER)
        yield _candidate(problem, _dense(problem, basis, root), Laplace(), OUTPUTS)
        return
    wide = {
        entry: float(one.longest * one.reach / one.coefficients.get(entry, 1))
        for one in components
        for entry in sorted(frozenset().union(*one.sides[0]))
    }
    entries, widths = np.array(list(wide)), np.array(list(wide.values()))
    law = KNorm(np.diag(widths), problem.pure_epsilon)
    strategy = _back(problem, entries, 2 * (widths / problem.pure_epsilon) ** 2)
    yield _candidate(problem, strategy, law, ENTRIES)


# ---------------------------------------------------------------------- from a list of moves


def _staircase(
    problem: Problem, weights: Matrix, budget: Budget, laws: set[str]
) -> Iterator[Candidate]:
    """Stairs of their own on axes along which all moves are; those of one step are K-norm noise."""
    if any(_has_many_directions(block) for block in problem.blocks(weights, budget.moves)):
        return
    if "laplace" in laws and not _can_be_read(problem, weights, budget):
        return
    limit, parts, roots = problem.pure_epsilon, [], []
    for block, cell in _cells(problem, weights, budget):
        axes = _axes(cell, problem.integers)
        if axes is None:
            return
        directions, widths = axes
        firsts = [
            float(best_whole_first(int(width), limit)) if problem.integers
            else best_first(width, limit)
            for width in widths.tolist()
        ]  # fmt: skip
        root = np.hstack([np.diag(widths), np.diag(firsts)])
        parts.append(replace(block, basis=cell.basis @ directions))
        roots.append(root)
    if "knorm" in laws and problem.integers and all(np.all(root[root > 0] == 1) for root in roots):
        return
    basis, root = together(parts, roots, problem.query.shape[0])
    law = Staircase.of_root(root, limit, problem.integers)
    found = _candidate(problem, _dense(problem, basis), law, STAIRS)
    hides = found.mechanism.shared_part is None
    if not problem.integers and not (hides and found.mechanism.guarantee.sensitivity <= limit):
        # a computed move may be off by a rounding, and numbers that are short by chance, which
        # would be read as they stand, are off the others
        law = Staircase.of_root(root * (WIDER / LONGER), limit)
        found = _candidate(problem, _dense(problem, basis * LONGER), law, STAIRS)
        hides = found.mechanism.shared_part is None
    if not hides:
        raise AffineDPError(
            "staircase noise must hide all that the query reveals, and neighbours share some of it"
        )
    yield found


def _has_many_directions(block: Block) -> bool:
    """Whether some of the moves, by floats, are in more directions than there are dimensions."""
    size = block.basis.shape[1]
    moves = block.directions[: min(10 * size, LOOKED_AT)]
    lengths = np.linalg.norm(moves, axis=1)
    unit = moves[lengths > 0] / lengths[lengths > 0, None]
    parallel = np.abs(unit @ unit.T) > 1 - 1e-9
    different = np.argmax(parallel, axis=1) == np.arange(len(unit))
    return bool(np.count_nonzero(different) > size)


def _axes(cell: Cell, integers: bool) -> tuple[FloatArray, FloatArray] | None:
    """Axes along which all moves are, as columns, and how far they go; None if there are none."""
    size = cell.moves.shape[1]
    if integers:
        for basis, back in lattice_bases(cell.moves, cell.cost):
            moved = np.abs(cell.moves @ back.T)
            if ((moved != 0).sum(axis=1) == 1).all():
                return basis, moved.max(axis=0)
        return None
    chosen = _longest_along(cell.moves)
    return (chosen.T, np.ones(size)) if len(chosen) == size else None


def _longest_along(moves: FloatArray) -> FloatArray:
    """The longest move along every direction in which there is one."""
    moves = moves[np.abs(moves).max(axis=1) > 0]
    length = np.abs(moves).max(axis=1)
    order = np.argsort(-length, kind="stable")
    unit = moves / moves[np.arange(len(length)), np.abs(moves).argmax(axis=1)][:, None]
    _, first = np.unique(unit[order].round(12), axis=0, return_index=True)
    return np.asarray(moves[order[np.sort(first)]])


def _can_be_read(problem: Problem, weights: Matrix, budget: Budget) -> bool:
    """Whether effort is left to read all moves exactly."""
    work = WHOLE_WORK if problem.integers else READING_WORK
    blocks = problem.blocks(weights, budget.moves)
    if budget.allows(work * sum(block.directions.size for block in blocks)):
        return True
    budget.note("K-norm noise was not designed for so many moves")
    return False


def _cells(problem: Problem, weights: Matrix, budget: Budget) -> Iterator[tuple[Block, Cell]]:
    """The blocks in coordinates for bodies, of whole points if data is whole."""
    blocks = problem.blocks(weights, budget.moves)
    manifold = problem.adjacency.manifold
    make = whole_cells(manifold, problem.query) if problem.integers else real_cell
    known: dict[str, Cell] = {}
    for block in blocks:
        if block.key not in known:
            known[block.key] = make(block)
        yield block, known[block.key]


def _on_entries(problem: Problem, weights: Matrix, budget: Budget) -> Iterator[Candidate]:
    """Laplace noise on entries, of which outputs are made that do not tell the entries."""
    import scipy.sparse as sparse

    query = problem.query
    told = sum(block.basis.shape[1] for block in problem.blocks(weights, budget.moves))
    if told == problem.adjacency.manifold.dim or problem.adjacency.manifold.n > MOST_ENTRIES:
        return  # noise on entries is one of the strategies then
    identity = sparse.csr_array(sparse.eye_array(query.shape[1]))
    parts = split(problem.adjacency, identity, query.T @ weights @ query, budget.moves)
    places, widths = [], []
    for block in parts:
        if not block.weight.any():
            continue
        rows, moves = block.basis, block.directions
        chosen, scales = best_free_set(rows, moves, block.weight, budget)
        inverse = np.linalg.inv(rows[chosen] * scales[:, None])
        error = np.sum((block.weight @ inverse) * inverse)
        if (
            largest_norm(rows, moves) ** 2 * np.trace(np.linalg.solve(rows.T @ rows, block.weight))
            < error
        ):
            chosen, scales = np.arange(len(rows)), np.full(len(rows), 1 / largest_norm(rows, moves))
        places.append(block.outputs[chosen])
        widths += [float(f"{1 / scale:.{DIGITS}g}") for scale in scales.tolist()]
    entries, law = np.concatenate(places), KNorm(np.diag(widths), problem.pure_epsilon)
    strategy = _back(problem, entries, 2 * (np.array(widths) / problem.pure_epsilon) ** 2)
    yield _candidate(problem, strategy, law, ADDED_UP)


def _levelled(problem: Problem, budget: Budget) -> Iterator[Candidate]:
    """Laplace noise on outputs, or on numbers that say all others, of small largest variance."""
    blocks = problem.blocks(problem.weights, budget.moves)
    solved: dict[str, FloatArray] = {}
    for block in blocks:
        if block.key not in solved:
            solved[block.key] = min(_level(block, budget), key=lambda one: one[0])[1]
    roots = [solved[block.key] / problem.pure_epsilon * LARGER for block in blocks]
    basis, root = together(blocks, roots, problem.query.shape[0])
    yield _candidate(problem, _dense(problem, basis, root), Laplace(), LEVELLED)


def _level(block: Block, budget: Budget) -> Iterator[tuple[float, FloatArray]]:
    """Largest variances, up to a factor, and roots: outputs whose variance is large cost more."""

    def of(strategy: FloatArray) -> tuple[FloatArray, FloatArray]:
        root = np.linalg.pinv(strategy / largest_norm(strategy, block.directions))
        return np.asarray(((block.basis @ root) ** 2).sum(axis=1)), np.asarray(root)

    variances, root = of(block.basis)
    yield float(variances.max()), root
    rows, share = block.numbers, np.ones(len(block.basis))
    for _ in range(LEVELLINGS):
        cost = block.basis.T @ (share[:, None] * block.basis)
        floored = with_floor(cost, np.abs(block.directions).max(axis=0))[0]
        chosen, scales = best_free_set(rows, block.directions, floored, budget)
        each = 1 / np.abs(rows[chosen] @ block.directions.T).max(axis=1)
        for by in (np.ones(len(chosen)), each, scales):
            strategy = rows[chosen] * by[:, None]
            variances, root = of(strategy)
            yield float(variances.max()), root
        share = share * (variances / variances.max())


def _laplace(
    problem: Problem,
    weights: Matrix,
    seed: Any,
    budget: Budget,
    searched: list[LaplaceStrategy] | None,
) -> Iterator[Candidate]:
    """Strategies: along the moves where these are independent, and searched, for bodies too."""
    blocks = problem.blocks(weights, budget.moves)
    limit = problem.pure_epsilon
    costs = {b.key: with_floor(b.weight, np.abs(b.directions).max(axis=0)) for b in blocks}
    moves = [block.directions[np.abs(block.directions).max(axis=1) > 0] for block in blocks]
    if all(len(own) == block.basis.shape[1] for own, block in zip(moves, blocks)):
        roots = [own.T / limit for own in moves]
        basis, root = together(blocks, roots, problem.query.shape[0])
        yield _candidate(problem, _dense(problem, basis, root), Laplace(), ALONG)
    solved: dict[str, LaplaceStrategy] = {}
    share = 0.6 if searched is not None else 1.0  # the rest is for bodies
    with Progress("Laplace strategy") as progress:
        for i, block in enumerate(blocks):
            if block.key in solved:
                continue

            def show(done: int, total: int, i: int = i) -> None:
                progress.update((i + done / total) / len(blocks))

            cost, rows = costs[block.key][0], block.numbers
            chosen, scales = best_free_set(rows, block.directions, cost, budget)
            starts = {"noise on all outputs": block.basis}
            if np.isfinite(strategy_error(free := rows[chosen] * scales[:, None], cost)):
                starts["noise on numbers that say all others"] = free
            alike = class_weights(block.basis, block.directions, cost)
            if alike is not None:
                starts["noise on all outputs, weighted"] = block.basis * alike[:, None]
            with budget.sharing(share):
                solved[block.key] = least_laplace(
                    block.directions,
                    cost,
                    tall_starts=starts,
                    orthonormal=np.linalg.qr(block.basis)[1],  # stands for that of the outputs
                    ellipsoid=problem.solved.get(block.key),
                    seed=seed,
                    progress=show,
                    budget=budget,
                )
    found = [solved[block.key] for block in blocks]
    if searched is not None:
        searched.extend(found)
    roots = [np.linalg.pinv(one.strategy) / limit * LARGER for one in found]
    notes = []
    if floor := max(added for _, added in costs.values()):
        notes.append(f"the weights leave some combination free; a floor of {floor:.2g} was added")
    notes.append(
        f"a local optimum: {found[0].start}, one of {found[0].starts} starts, of which "
        f"{found[0].agreement:.0%} agree within 1 %"
        + (f" (first of {len(solved)} different blocks)" if len(solved) > 1 else "")
    )
    basis, root = together(blocks, roots, problem.query.shape[0])
    yield _candidate(problem, _dense(problem, basis, root), Laplace(), *notes)


def _bodies(
    problem: Problem,
    weights: Matrix,
    seed: Any,
    budget: Budget,
    searched: list[LaplaceStrategy],
    others: bool = True,
) -> Iterator[Candidate]:
    """K-norm noise with the best body of every block; where there are others, if effort is left."""
    if others and not _can_be_read(problem, weights, budget):
        return
    blocks = problem.blocks(weights, budget.moves)
    strategies = {block.key: one.strategy for block, one in zip(blocks, searched)}
    cells = list(_cells(problem, weights, budget))
    chosen = best_bodies(
        cells, strategies, problem.pure_epsilon, problem.integers, np.random.default_rng(seed),
        budget,
    )  # fmt: skip
    basis, points = together(chosen, [one.points for one in chosen], problem.query.shape[0])
    charge = max(one.charge for one in chosen)
    # a little less than asked, where bounds on gauges count, is verified once and not twice
    rate = problem.pure_epsilon / (charge * (1 + ROUNDED / 10) if charge > 1 + ROUNDED else 1.0)
    law = KNorm(points, rate, problem.integers)
    for one in chosen:
        if one.polytope is not None:
            law = law.knowing(one.points, one.polytope)
    yield _candidate(problem, _dense(problem, basis), law, *dict.fromkeys(c.words for c in chosen))
