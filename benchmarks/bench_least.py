"""How close each law comes to what no mechanism can go below, and when which law wins."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import affinedp as adp
from affinedp.designs.knorm_blocks import real_cell
from affinedp.designs.separate import checked_weights, split
from affinedp.exact.numbers import meaning
from affinedp.laws.polytope import Polytope
from affinedp.privacy.least_error import least_sum_of_three, least_variance
from affinedp.privacy.verification import resolve_query
from affinedp.record import weighted_error

EPSILON, DELTA = 1.0, 1e-6
DRAWS = 2_000
ABOUT = f"""\
Weighted squared error at ε = {EPSILON:g}; Gaussian noise at δ = {DELTA:g}. *bound*: no mechanism
with pure ε on real data goes below (where Gaussian is best: with (ε, δ)). *best*: what
`adp.design` returns for one release. *wanted*: the best K that was known before. *draws/s*: exact
releases of {DRAWS:,} rows. Circuits of the karate club cannot be listed: Gaussian noise has a
certificate without a list, Laplace noise that of i.i.d. noise, projected, for cycles of at most 28
edges (*), and a hull would need all cycles. With the cycles of one breadth-first tree as neighbours
the hull of the 45 moves is a cross-polytope, which is Laplace noise."""
CROSSOVER = """\
A pure law wins k planned releases if its E/T* is below this (T*: Gaussian cost at sensitivity 1;
E: cost of the pure law at ε = 1). The last column is how far Gaussian noise can be from any law."""
# Laplace strategies of more dimensions than this are searched from one start, or not at all.
MOST_SEARCHED = 6
MOST_STARTED = 9


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    manifold: adp.AffineManifold
    options: dict[str, Any] = field(default_factory=dict)
    point: np.ndarray | None = None
    wanted: float | None = None


def _margins(rows: int, columns: int) -> np.ndarray:
    return np.vstack(
        [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    )


def _vehicle(steps: int, mu: tuple[float, float]) -> Case:
    equations = [f"p{t + 1} = p{t} + 0.1*v{t}" for t in range(steps - 1)]
    equations += [f"v{t + 1} = v{t}" for t in range(steps - 1)]
    names = [f"{kind}{t}" for t in range(steps) for kind in "pv"]
    M = adp.AffineManifold.from_equations(equations, names)
    states = [[f"p{t}", f"v{t}"] for t in range(steps)]
    neighbours = adp.FreeSetAdjacency(M, states, list(mu) * steps)
    query = [f"p{t}" for t in range(steps)]
    return Case("vehicle T=100, time-local", M, {"adjacency": neighbours, "query": query},
                wanted=263.0)  # fmt: skip


def _double_integrator() -> Case:
    equations = [f"p{t + 1} = p{t} + 0.1*v{t}" for t in range(4)]
    equations += [f"v{t + 1} = v{t}" for t in range(4)]
    names = [f"{kind}{t}" for t in range(5) for kind in "pv"]
    M = adp.AffineManifold.from_equations(equations, names)
    return Case("double integrator T=5, Def. 4", M, wanted=1889.8)


def cases() -> list[Case]:
    """All rows."""
    import networkx as nx

    wanted = {3: 10, 4: 16.8, 5: 24, 6: 31.43, 7: 39, 8: 46.67, 9: 54.4, 10: 62.18}
    found = [
        Case(f"one sum n={n}", adp.AffineManifold(np.ones((1, n))), wanted=wanted[n])
        for n in range(3, 11)
    ]
    total = adp.AffineManifold.from_equations(["a + b = c"])
    both = [f"c{i}0 + c{i}1 + c{i}2 = r{i}" for i in range(2)]
    both += [f"c0{j} + c1{j} = k{j}" for j in range(3)] + ["r0 + r1 = t"]
    club = nx.karate_club_graph()
    karate = nx.incidence_matrix(club, oriented=True, weight=None).toarray()
    flows = adp.AffineManifold(karate, public_entries="allow")
    edges = [frozenset(edge) for edge in club.edges()]
    tree = {frozenset(edge) for edge in nx.bfs_edges(club, 0)}
    others = [i for i, edge in enumerate(edges) if edge not in tree]
    return [
        *found,
        Case("2×3 table, margins public", adp.AffineManifold(_margins(2, 3)), wanted=20),
        Case("3×3 table, margins public", adp.AffineManifold(_margins(3, 3)), wanted=64.57),
        Case("2×3 table and its margins", adp.AffineManifold.from_equations(both), wanted=122.7),
        _double_integrator(),
        _vehicle(100, (1.0, 0.1)),
        Case("a+b=c, weight 100 on c", total, {"weights": [1, 1, 100]}, wanted=293.9),
        Case("flows on the karate club, Def. 4", flows, {"imbalance": 1.0}),
        Case(
            "flows on the karate club, cycles of one tree",
            flows,
            {"adjacency": adp.FreeSetAdjacency(flows, [others])},
        ),
    ]


def _hull(case: Case) -> float | None:
    """Error of e^(−ε‖z‖) with the hull of the moves, continuous; None where it is too large."""
    matrix, _ = resolve_query(case.manifold, case.options.get("query"))
    adjacency = case.options.get("adjacency") or adp.CircuitAdjacency(case.manifold)
    weights = checked_weights(case.options.get("weights"), matrix.shape[0])
    total = 0.0
    n = case.manifold.n
    if case.name.startswith("one sum"):
        return 4 * (n - 1) * (2 * n - 1) / (n + 1) / EPSILON**2
    for block in split(adjacency, matrix, weights):
        cell = real_cell(block)
        kept = np.unique(cell.moves[np.any(cell.moves != 0, axis=1)], axis=0)
        body = Polytope([tuple(map(meaning, move)) for move in kept.tolist()])
        total += float((body.second_moment() * cell.cost).sum())
    return total / EPSILON**2


def _tried(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    try:
        found = call()
    except adp.AffineDPError:
        found = None
    return found, time.process_time() - start


def _rate(mechanism: adp.Mechanism, case: Case) -> float | None:
    """Releases per second of exact draws, prepared beforehand."""
    rows = np.tile(case.manifold.point, (DRAWS, 1))
    try:
        mechanism.release(rows[:2])
        start = time.process_time()
        mechanism.release(rows)
    except (adp.AffineDPError, NotImplementedError):
        return None
    return DRAWS / (time.process_time() - start)


def row(case: Case) -> list[str]:
    """Everything about one case."""
    rank = case.manifold.dim
    gaussian, _ = _tried(
        lambda: adp.design_gaussian(case.manifold, epsilon=EPSILON, delta=DELTA, **case.options)
    )
    laplace = None
    if rank <= MOST_STARTED:
        effort = "default" if rank <= MOST_SEARCHED else "quick"
        laplace, _ = _tried(
            lambda: adp.design_laplace(
                case.manifold, epsilon=EPSILON, effort=effort, **case.options
            )
        )
    best, seconds = _tried(
        lambda: adp.design(case.manifold, epsilon=EPSILON, delta=DELTA, **case.options)
    )
    hull, _ = _tried(lambda: _hull(case)) if best.law != "gaussian" else (None, 0.0)
    weights = checked_weights(case.options.get("weights"), len(best.output_names))
    bound = best.least.dual * least_variance(EPSILON, 0.0, "real") if best.least else None
    error = best.least.error if best.least else best.expected_squared_error
    pure = bound if best.law != "gaussian" else best.lower_bound
    rate = _rate(best, case)
    if best.law == "laplace":
        laplace, hull = best, error  # independent noise along the moves is both

    def cost(mechanism: adp.Mechanism | None) -> str:
        return "–" if mechanism is None else f"{weighted_error(mechanism, weights):.5g}"

    return [
        case.name,
        str(rank),
        "–" if pure is None else f"{pure:.5g}",
        f"**{error:.5g}** ({best.law})",
        "–" if pure is None else f"{error / pure:.3f}",
        cost(gaussian),
        cost(laplace) if best.certificate is None else f"{_unlisted_laplace(best):.5g} (*)",
        "–" if hull is None else f"{hull:.5g}",
        "–" if case.wanted is None else f"{case.wanted:g}",
        f"{seconds:.1f}",
        "–" if rate is None else f"{rate:,.0f}",
    ]


def _unlisted_laplace(mechanism: adp.Mechanism) -> float:
    """Squared error of i.i.d. Laplace noise, projected, by a bound on the longest move."""
    assert mechanism.proof is not None
    longest = mechanism.proof.longest(mechanism.adjacency)
    return 2 * (longest / EPSILON) ** 2 * mechanism.manifold.dim


def very_many() -> list[str]:
    """One sum of very many entries, through ``adp.design`` and ``release``."""
    import scipy.sparse as sparse

    lines = [
        "| entries | numbers | equations, s | design, s | first release, s | next release, s |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for n in (2_000, 100_000, 1_000_000):
        for integers in (False, True):
            times = [time.process_time()]
            M = adp.AffineManifold(sparse.csr_array(np.ones((1, n))))
            times.append(time.process_time())
            m = adp.design(M, epsilon=EPSILON, integers=integers)
            times.append(time.process_time())
            for _ in range(2):
                m.release(np.zeros(n))
                times.append(time.process_time())
            spent = " | ".join(f"{seconds:.1f}" for seconds in np.diff(times))
            lines.append(f"| {n:,} | {'whole' if integers else 'real'} | {spent} |")
            print(lines[-1], flush=True)
    return lines


def whole_numbers() -> list[str]:
    """One sum on integers against the exact optimum."""
    lines = [
        "| ε | squared error | least of all mechanisms | relative difference |",
        "|---|---:|---:|---:|",
    ]
    M = adp.AffineManifold(np.ones((1, 3)))
    for epsilon in (0.5, 1.0, 2.0):
        m = adp.design_knorm(M, epsilon=epsilon, integers=True)
        least = least_sum_of_three(epsilon)
        error = m.expected_squared_error
        lines.append(f"| {epsilon:g} | {error:.8g} | {least:.8g} | {abs(error / least - 1):.0e} |")
    return lines


def crossover() -> list[str]:
    """k ε₀²/s² with ε₀ = ε/k: a pure law wins k releases if its E/T* is below."""
    counts = (1, 2, 4, 8, 16, 64)
    lines = [
        f"| ε | δ | {' | '.join(f'k={k}' for k in counts)} | 1/(s²V) |",
        f"|---|---|{'---:|' * (len(counts) + 1)}",
    ]
    for epsilon in (0.1, 1.0, 4.0):
        for delta in (1e-9, 1e-6, 1e-3, 1e-2):
            s = float(adp.gaussian_sensitivity(epsilon, delta))
            values = [f"{epsilon**2 / k / s**2:.3g}" for k in counts]
            most = 1 / (s**2 * least_variance(epsilon, delta))
            lines.append(f"| {epsilon:g} | {delta:g} | {' | '.join(values)} | {most:.3g} |")
    return lines


def run() -> str:
    """Return the Markdown section."""
    chosen = os.environ.get("LEAST_CASES", "").split(",")
    rows = []
    for case in cases():
        if chosen == [""] or any(text in case.name for text in chosen):
            rows.append(row(case))
            print(" | ".join(rows[-1]), flush=True)
    headings = (
        "case", "r", "bound", "best", "best/bound", "Gaussian", "Laplace", "hull", "wanted",
        "design s", "draws/s",
    )  # fmt: skip
    table = [f"| {' | '.join(line)} |" for line in rows]
    return "\n".join(
        [
            "## How close to the least possible",
            "",
            *ABOUT.splitlines(),
            "",
            f"| {' | '.join(headings)} |",
            f"|---|{'---:|' * (len(headings) - 1)}",
            *table,
            "",
            "One sum of very many entries, K-norm noise:",
            "",
            *very_many(),
            "",
            "Three whole numbers with a public sum:",
            "",
            *whole_numbers(),
            "",
            *CROSSOVER.splitlines(),
            "",
            *crossover(),
        ]
    )
