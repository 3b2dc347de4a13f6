"""Searching all circuits: affinedp beside 4ti2, the same integer matrices, in one run.

4ti2 is called as its users call it: a program that reads a file and writes the circuits to
another.  affinedp is called in a warm process; what starting costs either is reported apart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import networkx as nx
import numpy as np

import affinedp as adp

LIMIT = 120.0  # seconds for one run of 4ti2
SPEND = 3.0  # seconds after which a measurement is not repeated
REPEATS = 20
# Where the small integers of 4ti2 overflow it does not end, so it gets no longer than the exact
# ones took (and at least this long).
LEAST_LIMIT = 2.0
WANTED, WANTED_GRAPH = 10.0, 1.0  # how many times faster affinedp has to be


@dataclass(frozen=True)
class Case:
    name: str
    equations: np.ndarray
    graph: bool = False


# ---------------------------------------------------------------------- the matrices


def dense_random(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 10, (rows, columns))


def incidence(graph: nx.Graph) -> np.ndarray:
    """Flow balance at every node but one, which follows from the others."""
    return np.asarray(nx.incidence_matrix(graph, oriented=True).toarray(), dtype=int)[:-1]


def trajectory(dynamics: np.ndarray, steps: int, scale: int) -> np.ndarray:
    """x(t+1) = A x(t) over ``steps`` states, times ``scale`` to have integers."""
    states = len(dynamics)
    now = np.rint(dynamics * scale).astype(int)
    following = -scale * np.eye(states, dtype=int)
    equations = np.zeros((states * (steps - 1), states * steps), dtype=int)
    for t in range(steps - 1):
        rows = slice(states * t, states * (t + 1))
        equations[rows, states * t : states * (t + 2)] = np.hstack([now, following])
    return equations


def double_integrator(steps: int) -> np.ndarray:
    return trajectory(np.array([[1.0, 0.1], [0.0, 1.0]]), steps, scale=10)


def random_stable(steps: int, states: int = 4, radius: float = 0.9) -> np.ndarray:
    dynamics = np.random.default_rng(1).normal(size=(states, states))
    dynamics *= radius / np.abs(np.linalg.eigvals(dynamics)).max()
    return trajectory(np.round(dynamics, 2), steps, scale=100)


def hierarchy(groups: int, leaves: int) -> np.ndarray:
    """The total is the sum of the groups, each group the sum of its leaves."""
    equations = np.zeros((1 + groups, 1 + groups + groups * leaves), dtype=int)
    equations[0, 0] = -1
    equations[0, 1 : 1 + groups] = 1
    for g in range(groups):
        first = 1 + groups + g * leaves
        equations[1 + g, 1 + g] = -1
        equations[1 + g, first : first + leaves] = 1
    return equations


def cases() -> list[Case]:
    shapes = ((3, 12), (5, 15), (5, 20), (8, 20))
    return [
        *(Case(f"dense random {q}×{n}", dense_random(q, n)) for q, n in shapes),
        Case("Petersen graph", incidence(nx.petersen_graph()), graph=True),
        Case("4×4 grid graph", incidence(nx.grid_2d_graph(4, 4)), graph=True),
        Case("5×5 grid graph", incidence(nx.grid_2d_graph(5, 5)), graph=True),
        *(Case(f"double integrator, T = {t}", double_integrator(t)) for t in (10, 20, 50)),
        *(Case(f"4 stable states, T = {t}", random_stable(t)) for t in (5, 10)),
        *(Case(f"one sum, n = {n}", np.ones((1, n), dtype=int)) for n in (100, 1000)),
        Case("hierarchy 10×10", hierarchy(10, 10)),
    ]


# ---------------------------------------------------------------------- affinedp

T = TypeVar("T")


@dataclass(frozen=True)
class Ours:
    circuits: int
    build: float
    count: float
    sensitivity: float

    @property
    def search(self) -> float:
        return self.build + self.count


def manifold(equations: np.ndarray) -> adp.AffineManifold:
    return adp.AffineManifold(equations, public_entries="allow")


def measure_ours(equations: np.ndarray) -> Ours:
    """Time each question on a fresh manifold, so that none finds the other's work done."""
    query = np.eye(equations.shape[1])
    adp.CircuitAdjacency(manifold(equations)).sensitivity(query, 2)  # compiles
    circuits = adp.CircuitAdjacency(manifold(equations)).count()

    def prepare() -> adp.CircuitAdjacency:
        return adp.CircuitAdjacency(manifold(equations))

    return Ours(
        circuits,
        best_seconds(lambda _: manifold(equations), lambda: None),
        best_seconds(lambda adjacency: adjacency.count(), prepare),
        best_seconds(lambda adjacency: adjacency.sensitivity(query, 2), prepare),
    )


def best_seconds(call: Callable[[T], object], prepare: Callable[[], T]) -> float:
    """Best time of ``call(prepare())``, of which only the call is timed."""
    best, spent = float("inf"), 0.0
    for _ in range(REPEATS):
        prepared = prepare()
        start = time.perf_counter()
        call(prepared)
        seconds = time.perf_counter() - start
        best, spent = min(best, seconds), spent + seconds
        if spent > SPEND:
            break
    return best


# ---------------------------------------------------------------------- 4ti2


def program() -> str | None:
    """Debian's name, or the one 4ti2 gives itself."""
    return shutil.which("4ti2-circuits") or shutil.which("circuits")


@dataclass(frozen=True)
class Peer:
    circuits: int | None  # None when it did not end in time
    seconds: float

    def text(self) -> str:
        return f"> {self.seconds:,.0f} s" if self.circuits is None else milliseconds(self.seconds)


def measure_4ti2(equations: np.ndarray, precision: str, limit: float) -> Peer:
    """Best run of ``circuits``; sign 2 for every entry asks for circuits up to their sign."""
    executable = program()
    assert executable is not None
    rows, columns = equations.shape
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "problem")
        lines = [f"{rows} {columns}", *(" ".join(map(str, row)) for row in equations.tolist())]
        project.with_suffix(".mat").write_text("\n".join(lines) + "\n")
        project.with_suffix(".sign").write_text(f"1 {columns}\n" + "2 " * columns + "\n")
        command = [executable, "-q", "-p", precision, str(project)]

        def compute(_: None) -> None:
            # the program is a script that is replaced by the real one, so a timeout ends both
            subprocess.run(command, check=True, capture_output=True, timeout=limit)

        try:
            seconds = best_seconds(compute, lambda: None)
        except subprocess.TimeoutExpired:
            return Peer(None, limit)
        with project.with_suffix(".cir").open() as found:
            return Peer(int(found.readline().split()[0]), seconds)


# ---------------------------------------------------------------------- starting

FIRST_CALLS = """
import time
start = time.perf_counter()
import affinedp as adp
imported = time.perf_counter()
from bench_circuits import dense_random, hierarchy, manifold, random_stable
for equations in (dense_random(3, 12), hierarchy(3, 3), random_stable(5)):
    before = time.perf_counter()
    adp.CircuitAdjacency(manifold(equations)).count()
    print(time.perf_counter() - before)
print(imported - start)
"""


def first_calls(cache: str) -> tuple[float, float]:
    """Seconds of the import and of the first use of every search, in a new process."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", FIRST_CALLS]
    here = Path(__file__).parent
    done = subprocess.run(
        command, env=environment, cwd=here, check=True, capture_output=True, text=True
    )
    *searches, imported = map(float, done.stdout.split())
    return imported, sum(searches)


def starting(start_4ti2: float | None) -> list[str]:
    with tempfile.TemporaryDirectory() as cache:
        imported, compiling = first_calls(cache)
        again = [first_calls(cache) for _ in range(3)]
    imported = min(imported, *(seconds for seconds, _ in again))
    cached = min(seconds for _, seconds in again)
    rows = [
        ["`import affinedp`", milliseconds(imported)],
        ["first use of the three searches, compiled before", milliseconds(cached)],
        ["first use of the three searches, compiled then", milliseconds(compiling)],
    ]
    if start_4ti2 is not None:
        rows.append(["4ti2 on the equation x = 0: one process", milliseconds(start_4ti2)])
    return table(("starting, once", "ms"), rows)


# ---------------------------------------------------------------------- the section


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def times(peer: Peer, seconds: float, less: float = 0.0) -> str:
    """How many times as long the peer took, ``less`` what it needs to start."""
    ratio = max(0.0, peer.seconds - less) / seconds
    digits = 0 if ratio >= 10 else 1
    return f"{'> ' if peer.circuits is None else ''}{ratio:,.{digits}f}"


def start_of_4ti2() -> float:
    """Seconds of one process on the equation x = 0."""
    return measure_4ti2(np.ones((1, 1), dtype=int), "arb", LIMIT).seconds


def our_cells(case: Case, ours: Ours) -> list[str]:
    rows, columns = case.equations.shape
    spent = (ours.build, ours.count, ours.sensitivity)
    return [case.name, f"{rows}×{columns}", f"{ours.circuits:,}", *map(milliseconds, spent)]


def peer_cells(case: Case, ours: Ours, exact: Peer, short: Peer, start: float) -> list[str]:
    counted = {peer.circuits for peer in (exact, short)} - {None}
    wanted = WANTED_GRAPH if case.graph else WANTED
    met = exact.seconds >= wanted * ours.search
    return [
        exact.text(),
        times(exact, ours.search),
        times(exact, ours.search, start),
        times(exact, ours.build + ours.sensitivity),
        short.text(),
        "not counted" if not counted else "yes" if counted == {ours.circuits} else "**no**",
        f"{wanted:.0f}×: {'yes' if met else '**no**'}",
    ]


def table(columns: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines] + [""]


OUR_COLUMNS = ("case", "equations × entries", "circuits", "build", "count", "sensitivity")
PEER_COLUMNS = (
    "4ti2 `-p arb`", "times build + count", "less its start", "times build + sensitivity",
    "4ti2 `-p 64`", "counts agree", "wanted",
)  # fmt: skip
EXPLAINED = f"""\
Milliseconds, best of several runs. `count` visits every circuit; `sensitivity` (of the identity,
2-norm) also finds the worst one and evaluates it again in rational arithmetic. 4ti2
lists the circuits in a file: with `-p arb` in exact arithmetic, which is what is compared, and with
`-p 64`, mostly faster, which on some cases does not end (its integers presumably overflow) and was
stopped after the time of `-p arb`, or {LEAST_LIMIT:.0f} s. 4ti2's times include starting a process,
which is most of them on small cases; the column *less its start* leaves that out, and is mostly
noise there. *Wanted* is how many times faster than `-p arb` build + count should be."""


def run() -> str:
    """Return the benchmark as a Markdown section."""
    lines = ["## Circuits", "", EXPLAINED, ""]
    if program() is None:
        rows = [our_cells(case, measure_ours(case.equations)) for case in cases()]
        lines += ["4ti2 is not installed here (Debian package 4ti2).", ""]
        return "\n".join([*lines, *table(OUR_COLUMNS, rows), *starting(None)])
    start = start_of_4ti2()
    measured = []
    for case in cases():
        ours = measure_ours(case.equations)
        exact = measure_4ti2(case.equations, "arb", LIMIT)
        short = measure_4ti2(case.equations, "64", max(LEAST_LIMIT, exact.seconds))
        measured.append((case, ours, exact, short))
    start = min(start, start_of_4ti2())
    rows = [
        our_cells(case, ours) + peer_cells(case, ours, exact, short, start)
        for case, ours, exact, short in measured
    ]
    return "\n".join([*lines, *table(OUR_COLUMNS + PEER_COLUMNS, rows), *starting(start)])


if __name__ == "__main__":
    print(run())
