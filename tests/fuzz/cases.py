"""The two questions for a problem and a pair of neighbours; the answer is what happened."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from affinedp.arrays import dense
from fuzz.noise import seeded
from fuzz.questions import ask_coverage, ask_distinguishing, ask_exactly, attempted

RUNS = 4000


def sizes_of(problem, pair):
    """Per output, a bound on all numbers that are rounded on the way to it."""
    if problem.mechanism.published_without_noise:
        # what neighbours share and what they do not can both be larger than their sum
        most = max(abs(v) for v in (*pair.x, *pair.y)) * problem.known.n
        return [4 * most * sum(abs(f) for f in row) for row in problem.matrix]
    kernel = np.abs(dense(problem.manifold.kernel))
    free = problem.manifold.canonical.free.tolist()
    # the public point that all numbers are counted from is rounded, too
    public = sum((abs(v) for v in problem.known.right), Fraction(0))
    sizes = []
    for row in problem.matrix:
        total = public * sum(abs(f) for f in row)
        for x in (pair.x, pair.y):
            for j, f in enumerate(row):
                if f:
                    through = sum(Fraction(kernel[j, k]) * abs(x[i]) for k, i in enumerate(free))
                    total += abs(f) * (abs(x[j]) + through)
        sizes.append(total)
    return sizes


def exactly(problem, pair, door, forms, bound=None) -> str:
    """Ask one door without chance."""
    mechanism, refusal = attempted(lambda: problem.mechanism)
    if refusal:
        return f"design refused: {refusal[1][:60]}"
    rows = pair.rows

    def release(which):
        return door(mechanism, rows[which], forms[which], bound)

    refusal = ask_exactly(
        release,
        [problem.outputs(pair.x), problem.outputs(pair.y)],
        mechanism.guarantee,
        dense(mechanism.noise_matrix),
        sizes_of(problem, pair),
    )
    return f"release refused: {refusal[1][:60]}" if refusal else "released"


def by_statistics(problem, pair, seed, bound, alarm, runs=RUNS) -> str:
    """Release both neighbours many times: what is stated must be seen, and not more."""
    mechanism, refusal = attempted(lambda: problem.mechanism)
    if refusal:
        return f"design refused: {refusal[1][:60]}"
    published = []
    with seeded(seed):
        for row in pair.rows:
            many = np.tile(np.array(row), (runs, 1))
            released, refusal = attempted(lambda many=many: mechanism.release(many, bound=bound))
            if refusal:
                return f"release refused: {refusal[1][:60]}"
            published.append(released)
    noise = dense(mechanism.noise_matrix)
    factor = mechanism.prepared(bound).factor
    truth = [problem.outputs(pair.x), problem.outputs(pair.y)]
    rounding = np.array([float(size) for size in sizes_of(problem, pair)]) * 2.0**-46
    for part, exact in zip(published, truth):
        ask_coverage(part, exact, noise, mechanism.law, factor, alarm / 4, rounding)
    ask_distinguishing(
        published,
        truth,
        noise * factor,
        mechanism.guarantee,
        alarm / 2,
        seed,
        left=left_over(problem),
    )
    return "released"


def left_over(problem):
    """Combinations of the outputs that follow from the equations, and what they are."""
    if problem.query is not None or not problem.known.rows:
        return None
    weights = np.array([[float(v) for v in row] for row in problem.known.rows])
    return weights, np.array([float(v) for v in problem.known.right])
