"""Random problems at random scales: equations, neighbours, queries, noise, data and its types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from hypothesis import strategies as st

import affinedp as adp
from affinedp.domains.text import LinearEquations
from affinedp.mechanism import Mechanism, build
from fuzz.exact import Equations, Move, is_double
from oracles import rank

LAWS = ("gaussian", "laplace")
MOST_BASES = 120


# ---------------------------------------------------------------------- manifolds


def _random_rows(draw, n):
    count = draw(st.integers(0, min(3, n - 1)))
    small = st.sampled_from([0, 0, 1, 1, -1, -1, 2, -3, Fraction(1, 2), Fraction(1, 10)])
    return [[Fraction(draw(small)) for _ in range(n)] for _ in range(count)]


def _one_sum(draw, n):
    return [[Fraction(1)] * (n - 1) + [Fraction(-1)]]


def _hierarchy(draw, n):
    """A total of two parts, one of which has parts of its own."""
    n = max(n, 5)
    top = [Fraction(v) for v in (-1, 1, 1, *[0] * (n - 3))]
    below = [Fraction(v) for v in (0, -1, 0, *[1] * (n - 3))]
    return [top, below]


def _network(draw, n):
    """Node balance: edges of a random connected graph, one row per node."""
    nodes = draw(st.integers(2, max(2, n - 1)))
    edges = [(draw(st.integers(0, k - 1)), k) for k in range(1, nodes)]
    while len(edges) < n or len(edges) < nodes + 1:
        a = draw(st.integers(0, nodes - 1))
        edges.append((a, (a + draw(st.integers(1, nodes - 1))) % nodes))
    rows = [[Fraction(0)] * len(edges) for _ in range(nodes)]
    for j, (a, b) in enumerate(edges):
        rows[a][j], rows[b][j] = Fraction(1), Fraction(-1)
    return rows


def _components(draw, n):
    """Two manifolds side by side."""
    left = draw(st.integers(2, max(2, n - 2)))
    right = max(2, n - left)
    first = draw(st.sampled_from([_one_sum, _random_rows]))(draw, left)
    second = draw(st.sampled_from([_one_sum, _random_rows]))(draw, right)
    zero = Fraction(0)
    return [row + [zero] * right for row in first] + [[zero] * left + row for row in second]


@st.composite
def equations(draw, unit: int = 0, largest: int = 7) -> Equations:
    """Equations with a public point of integers times ``2**unit``."""
    kind = draw(st.sampled_from([_random_rows, _one_sum, _hierarchy, _network, _components]))
    rows = kind(draw, draw(st.integers(2, largest)))
    n = len(rows[0]) if rows else draw(st.integers(1, 3))
    if rows and draw(st.integers(0, 4)) == 0:  # a public entry
        place = draw(st.integers(0, n - 1))
        rows = [*rows, [Fraction(j == place) for j in range(n)]]
    rows = [row for row in rows if any(row)]
    if rank(rows) == n:
        rows = rows[: n - 1]
    point = [draw(st.integers(-4, 4)) * Fraction(2) ** unit for _ in range(n)]
    if draw(st.booleans()):
        point = [Fraction(0)] * n
    right = [sum((a * x for a, x in zip(row, point)), Fraction(0)) for row in rows]
    return Equations(
        tuple(tuple(row) for row in rows), tuple(right), tuple(f"x{j}" for j in range(n))
    )


def manifold_of(known: Equations, as_matrix: bool) -> adp.AffineManifold:
    dyadic = all(is_double(v) for row in known.rows for v in row)
    if as_matrix and dyadic:
        D = np.array([[float(v) for v in row] for row in known.rows]).reshape(-1, known.n)
        b = np.array([-float(v) for v in known.right])
        return adp.AffineManifold(D, b, names=list(known.names), public_entries="allow")
    rows = tuple({j: v for j, v in enumerate(row) if v} for row in known.rows)
    offsets = tuple(-v for v in known.right)  # D x + b = 0
    return adp.AffineManifold.from_equations(
        LinearEquations(known.names, rows, offsets), public_entries="allow"
    )


# ---------------------------------------------------------------------- problems


@dataclass(frozen=True)
class Problem:
    """One problem, told twice: to affinedp, and in fractions to the fuzzer."""

    known: Equations
    as_matrix: bool
    neighbours: str
    mu: tuple[float, ...]
    moves: tuple[Move, ...]
    free_sets: tuple[tuple[int, ...], ...]
    query: tuple[tuple[int, ...], ...] | None
    design: str
    law: str
    epsilon: float
    delta: float
    mixing: int

    @cached_property
    def manifold(self):
        return manifold_of(self.known, self.as_matrix)

    @cached_property
    def adjacency(self):
        if self.neighbours == "circuits":
            return adp.CircuitAdjacency(self.manifold, np.array(self.mu))
        if self.neighbours == "free sets":
            sets = [list(one) for one in self.free_sets]
            return adp.FreeSetAdjacency(self.manifold, sets, np.array(self.mu))
        columns = [[float(v * move.reach) for v in move.direction] for move in self.moves]
        return adp.DirectionAdjacency(self.manifold, np.array(columns).T)

    @cached_property
    def matrix(self):
        """F, exactly."""
        n = self.known.n
        if self.query is None:
            return [[Fraction(i == j) for j in range(n)] for i in range(n)]
        return [[Fraction(v) for v in row] for row in self.query]

    @cached_property
    def mechanism(self) -> Mechanism:
        promise = {"epsilon": self.epsilon, "adjacency": self.adjacency}
        if self.query is not None:
            promise["query"] = np.array(self.query, dtype=float)
        if self.law == "gaussian":
            promise["delta"] = self.delta
        if self.design == "iid":
            return adp.iid_noise(self.manifold, law=self.law, **promise)
        if self.design == "least":
            if self.law == "gaussian":
                return adp.design_gaussian(self.manifold, **promise)
            return adp.design_laplace(self.manifold, effort="quick", **promise)
        return self._with_given_noise()

    def _with_given_noise(self):
        """Noise that nobody designed: it is verified."""
        query = np.array([[float(v) for v in row] for row in self.matrix])
        kernel = self.manifold.kernel
        seen = np.asarray(query @ (kernel.toarray() if hasattr(kernel, "toarray") else kernel))
        columns: list[int] = []
        for j in range(seen.shape[1]):
            if np.linalg.matrix_rank(seen[:, [*columns, j]]) > len(columns):
                columns.append(j)
        rng = np.random.default_rng(self.mixing)
        r = len(columns)
        p = r + int(rng.integers(0, 2))
        scale = max(self.mu) / self.epsilon * 4
        root = (np.eye(r, p) * 3 + rng.integers(-1, 2, (r, p))) * scale
        names = [f"y{i}" for i in range(len(query))]
        return build(self.adjacency, query, seen[:, columns], root, self.law, names)

    def outputs(self, x):
        """F x in fractions."""
        return [sum(f * v for f, v in zip(row, x) if f) for row in self.matrix]


@st.composite
def problems(draw, designs=("least", "iid", "given", "given"), laws=LAWS, largest=7) -> Problem:
    exponent = draw(st.sampled_from([-40, -20, -3, 0, 0, 3, 20, 40]))
    known = draw(equations(unit=exponent, largest=largest))
    scale = draw(st.sampled_from([1.0, 1.0, 3.0, 0.1])) * 2.0**exponent
    ratios = st.sampled_from([1.0, 1.0, 1.0, 2.0, 0.1, 1000.0, 2.0**-20, 0.0])
    mu = [scale] * known.n
    if draw(st.booleans()):
        mu = [scale * draw(ratios) for _ in range(known.n)]
    neighbours = draw(st.sampled_from(["circuits", "circuits", "free sets", "directions"]))
    bases = [base for base, _ in zip(known.bases(), range(MOST_BASES))]
    free_sets: tuple[tuple[int, ...], ...] = ()
    if neighbours == "directions":
        moves = _direction_moves(draw, bases, exponent)
    else:
        if neighbours == "free sets":
            bases = draw(st.lists(st.sampled_from(bases), min_size=1, max_size=3, unique_by=_key))
            free_sets = tuple(free for free, _ in bases)
        moves = tuple(
            {
                (kernel[i], mu[i]): Move(kernel[i], Fraction(mu[i]))
                for free, kernel in bases
                for i in free
                if mu[i] > 0
            }.values()
        )
    query = draw(st.none() | queries(known.n))
    law = draw(st.sampled_from(laws))
    return Problem(
        known=known,
        as_matrix=draw(st.booleans()),
        neighbours=neighbours,
        mu=tuple(mu),
        moves=moves,
        free_sets=free_sets,
        query=query,
        design=draw(st.sampled_from(designs)),
        law=law,
        epsilon=draw(st.sampled_from([0.01, 0.5, 1.0, 1.0, 4.0, 20.0])),
        delta=draw(st.sampled_from([1e-12, 1e-6, 1e-6, 0.01, 0.3])),
        mixing=draw(st.integers(0, 99)),
    )


def _key(base):
    return base[0]


def _direction_moves(draw, bases, exponent):
    """Whole-number combinations of the kernel; they need not span it."""
    _, kernel = draw(st.sampled_from(bases))
    moves = []
    for _ in range(draw(st.integers(1, 3))):
        weights = [draw(st.integers(-2, 2)) for _ in kernel]
        v = [
            sum((w * u[j] for w, u in zip(weights, kernel.values())), Fraction(0))
            for j in range(len(next(iter(kernel.values()))))
        ]
        if any(v):
            common = math.lcm(*(value.denominator for value in v))
            moves.append(Move(tuple(value * common for value in v), Fraction(2) ** exponent))
    if not moves:
        v = next(iter(kernel.values()))
        common = math.lcm(*(value.denominator for value in v))
        moves.append(Move(tuple(value * common for value in v), Fraction(2) ** exponent))
    return tuple(moves)


@st.composite
def queries(draw, n):
    """A subset of the entries, or dense combinations of them."""
    if draw(st.booleans()):
        kept = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
        return tuple(tuple(int(i == j) for j in range(n)) for i in kept)
    rows = draw(st.integers(1, n + 1))
    weight = st.sampled_from([0, 1, 1, -1, 2, 1000])
    return tuple(tuple(draw(weight) for _ in range(n)) for _ in range(rows))


# ---------------------------------------------------------------------- neighbours


@dataclass(frozen=True)
class Pair:
    """Neighbours, in fractions; the free entries are doubles (or nearest doubles)."""

    x: tuple[Fraction, ...]
    y: tuple[Fraction, ...]
    exact: bool

    @property
    def rows(self):
        return [float(v) for v in self.x], [float(v) for v in self.y]


OFFSETS = [0, 1, 1, 1e3, 1e6, 1e9, 1e12, 1e15]


@st.composite
def pairs(draw, problem: Problem, offsets=tuple(OFFSETS), rounded=False, move=None) -> Pair | None:
    """A point of the manifold and a neighbour as far away as neighbours may be.

    ``rounded`` neighbours are records of double precision, which is what ``bound=`` is for.
    """
    known, free = problem.known, problem.manifold.canonical.free.tolist()
    if not problem.moves:
        return None
    if move is None:
        move = draw(st.sampled_from(problem.moves))
    size = draw(st.sampled_from(offsets)) * float(move.reach)
    whole = st.integers(-(2**20), 2**20)
    unit = Fraction(2) ** (math.frexp(size or float(move.reach))[1] - 20)
    start = {j: (draw(whole) if size else draw(st.integers(-1, 1))) * unit for j in free}
    sign = draw(st.sampled_from([1, -1]))
    if rounded:
        # doubles next to a point and next to its neighbour
        third = Fraction(draw(st.integers(1, 2**60)), 3 * 2**60)
        exact = {j: v * (1 + third / 2**30) for j, v in start.items()}
        x = {j: Fraction(float(v)) for j, v in exact.items()}
        y = {
            j: Fraction(float(v + sign * move.reach * move.direction[j])) for j, v in exact.items()
        }
        return Pair(known.point(x), known.point(y), exact=False)
    t = move.step(start)
    if t is None:
        return None
    moved = {j: v + sign * t * move.direction[j] for j, v in start.items()}
    if not all(is_double(v) for v in (*start.values(), *moved.values())):
        return None
    return Pair(known.point(start), known.point(moved), exact=True)


# ---------------------------------------------------------------------- types of data


def in_form(values, form: str):
    """A row of doubles in another type that holds the same numbers, or None."""
    array = np.array(values, dtype=float)
    if form == "list":
        return [float(v) for v in values]
    if form == "float64":
        return array
    if form == "int64":
        whole = np.all(array == np.rint(array)) and np.abs(array).max() < 2**53
        return array.astype(np.int64) if whole else None
    if form == "float32":
        with np.errstate(over="ignore"):
            return array.astype(np.float32) if np.all(array.astype(np.float32) == array) else None
    if form == "Fraction":
        return [Fraction(float(v)) for v in values]
    if form == "Decimal":
        return np.array([Decimal(float(v)) for v in values], dtype=object)
    assert form == "object"
    return np.array([int(v) if float(v).is_integer() else float(v) for v in values], dtype=object)


FORMS = ("list", "float64", "int64", "float32", "Fraction", "Decimal", "object")
forms = st.sampled_from(FORMS)
