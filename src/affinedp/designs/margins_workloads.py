"""Bases and precisions for margins that ask for prefixes, ranges or other sums of values.

Attributes of which the values themselves are asked for ("plain") split every problem into one for
each set S of them; ``p_S = Π_{i∈S} (1 − 1/n_i)`` is what a person adds there.  With one other
attribute, ``Σ_S p_S tr(V_S X_S⁻¹)`` is to be least while ``Σ_S p_S diag X_S ≤ 1``; for weights w of
its values (and o of what is asked, if the largest variance is to be least), no Gaussian mechanism
goes below ``(Σ_S p_S tr (D V_S D)^½)²``, D = diag(√w), which ``X_S ∝ D⁻¹ (D V_S D)^½ D⁻¹``
attains.

With several, noise on products of contrasts costs ``(Σ_B √(c_B e_B))²``, which depends on each
basis by two numbers: ρ = tr(W M⁺ Wᵀ) where M has diagonal 1, and γ = gᵀWᵀW g.  They are taken from
bases that are best for ``WᵀW + λ 11ᵀ``, λ chosen for every S and attribute.  For any weights w and
isometry K, κ₁² and κ₀² in their place give what no Gaussian mechanism goes below, where
``κ₀ = uᵀKᵀW D u``, ``κ₁ = tr KᵀW D − κ₀`` and ``u = √w``.
docs/explanation/prefixes-and-places.md has the proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.crossed import Sets, cells_of, members
from affinedp.errors import AffineDPError
from affinedp.privacy.design import Objective
from affinedp.progress import Progress
from affinedp.strategies.margin_workloads import Basis, Workload

# Contrasts are rounded to this many bits.
BITS = 30
# What the total costs beside the rest, so that it is measured; and the least weight of a value.
TINY = 1e-10
LEAST_WEIGHT = 1e-9
# Below this part of the largest, a root of what is asked is 0; and the precision of such numbers.
ASKED, LITTLE = 1e-7, 1e-8
# What the mean logarithm of weights counts for, where the largest variance is to be least: each is
# where the next begins, and the last leaves a gap of four times as much.
BARRIERS = (1e-2, 1e-3, 1e-4, 1e-5, 2e-7)
ITERATIONS = 500
# λ is a power of this, searched with smaller and smaller steps.
STEP = 1.25
STEPS = (16, 8, 4, 2, 1)
NEAREST, FARTHEST = 8, 32
TURNS = (0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
# Values of all attributes with bases, for which the bound is computed as one problem.
MOST_JOINT = 1000


@dataclass(frozen=True, eq=False)
class WorkloadPlan:
    """Bases and precisions of blocks, and what no Gaussian mechanism goes below."""

    bases: tuple[Basis, ...]
    uses: Any
    t: FloatArray
    bound: float  # at squared sensitivity 1


def least_workloads(
    sizes: tuple[int, ...],
    workloads: Sequence[Workload | None],
    wanted: Sets,
    blocks: Sets,
    weights: FloatArray,
    objective: Objective,
) -> WorkloadPlan:
    """Return bases and precisions for margins; ``weights`` are those of what is asked in each."""
    own = sum(1 << j for j, one in enumerate(workloads) if one is not None)
    if objective == "sum":
        weights = weights * np.array([float(cells_of(sizes, A & ~own)) for A in wanted.tolist()])
    turned = [j for j, one in enumerate(workloads) if one is not None]
    if objective == "largest" and len(turned) > 1:
        raise AffineDPError(
            "objective='largest' is offered with one attribute of prefixes, ranges or other sums, "
            "where the least is certain: take objective='sum', or ask for values of the others"
        )
    split = _Split.of(sizes, turned, wanted, blocks, weights)
    with Progress("least noise for margins") as progress:
        if len(turned) == 1:
            workload = workloads[turned[0]]
            assert workload is not None
            return _one(split, workload, objective, progress)
        return _several(split, [one for one in workloads if one is not None], progress)


@dataclass(frozen=True, eq=False)
class _Split:
    """Margins by what they have of plain attributes and of those with bases."""

    sizes: tuple[int, ...]
    turned: list[int]
    blocks: Sets
    # what blocks have of plain attributes, in rising order
    beside: list[int]
    # by set S of plain attributes: from what a margin has of the others to the place of that
    # margin, how much what it asks costs, and what S adds to the variance of each
    asks: dict[int, list[tuple[int, int, float, float]]]

    @classmethod
    def of(
        cls, sizes: tuple[int, ...], turned: list[int], wanted: Sets, blocks: Sets, weights: Any
    ) -> _Split:
        own = sum(1 << j for j in turned)
        beside = np.unique(blocks & ~own).tolist()
        asks: dict[int, list[tuple[int, int, float, float]]] = {S: [] for S in beside}
        for place, (A, weight) in enumerate(zip(wanted.tolist(), weights.tolist())):
            plain = A & ~own
            for S in beside:
                if S & ~plain == 0:
                    spread = 1.0 / cells_of(sizes, plain & ~S) ** 2
                    asks[S].append((A & own, place, weight, spread))
        return cls(sizes, turned, blocks, beside, asks)

    def share(self, S: int) -> float:
        """What a person adds in the set S of plain attributes."""
        return math.prod(1 - 1 / self.sizes[i] for i in members(S))


def rounded_basis(rows: FloatArray) -> tuple[Basis, float]:
    """Return whole contrasts in place of these, and by which squares of these are larger."""
    scale = float((rows**2).sum(axis=1).max())
    whole = np.rint(np.ldexp(rows / math.sqrt(scale), BITS)).astype(np.int64)
    return Basis(whole, BITS), scale


@dataclass(frozen=True, eq=False)
class _Root:
    """The square root of D V D, by its eigenvectors."""

    d: FloatArray
    values: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, V: FloatArray, w: FloatArray) -> _Root:
        d = np.sqrt(w)
        values, vectors = np.linalg.eigh(d[:, None] * V * d)
        kept = values > ASKED**2 * values[-1]  # roots of rounding errors would be no small numbers
        return cls(d, np.sqrt(values[kept]), vectors[:, kept])

    @property
    def trace(self) -> float:
        """Of the root."""
        return float(self.values.sum())

    @property
    def diagonal(self) -> FloatArray:
        """Of the root."""
        return np.asarray(self.vectors**2 @ self.values)

    def inverse(self) -> FloatArray:
        """D (D V D)^(−½) D, which is the covariance up to a factor."""
        turned = self.d[:, None] * self.vectors
        return np.asarray((turned / self.values) @ turned.T)

    @property
    def factor(self) -> FloatArray:
        """Of X = D⁻¹ (D V D)^½ D⁻¹ and a little more: X is this times its transpose.

        What nobody asks for is measured a little, too: whatever is asked follows from contrasts
        then, however they are rounded.
        """
        turned = self.vectors / self.d[:, None] * np.sqrt(self.values)
        little = LITTLE * float((turned**2).sum(axis=1).max())
        return np.hstack([turned, math.sqrt(little) * np.eye(len(turned))])

    def parts(self) -> tuple[float, Basis, float]:
        """Return the precision of the total, contrasts beside it, and theirs."""
        root = self.factor
        # X is root rootᵀ, and the total is what it has along the shortest y with root y = 1
        y = np.linalg.lstsq(root, np.ones(len(root)), rcond=None)[0]
        total = 1 / float(y @ y)
        beside = root - total * y
        left, sizes, _ = np.linalg.svd(beside, full_matrices=False)
        return total, *rounded_basis(left[:, :-1] * sizes[:-1])


def _ascended(
    value_and_slope: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray
) -> FloatArray:
    """Where a function is largest, by L-BFGS."""
    from scipy.optimize import minimize

    options = {"maxiter": ITERATIONS, "maxcor": 60, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


def _weights(x: FloatArray) -> FloatArray:
    w = np.exp(x - x.max())
    w = np.maximum(w, LEAST_WEIGHT * w.mean())
    return np.asarray(w / w.sum())


# ---------------------------------------------------------------------- one attribute with a basis


@dataclass(frozen=True, eq=False)
class _Single:
    """The problem of one attribute with a basis, by set S of plain attributes."""

    workload: Workload
    shares: FloatArray  # p_S
    inside: FloatArray  # by S and margin: the weight of the attribute's sums
    beside: FloatArray  # the same of the total, for margins without the attribute
    largest: bool

    @cached_property
    def has(self) -> list[bool]:
        """Which margins have the attribute."""
        return list(map(bool, self.inside.sum(axis=0) > 0))

    @cached_property
    def needs(self) -> list[bool]:
        """For which S there is more than the total."""
        return list(map(bool, self.inside.sum(axis=1) > 0))

    @cached_property
    def counts(self) -> list[int]:
        """How many numbers margins ask for along the attribute."""
        return [self.workload.rows if one else 1 for one in self.has]

    @cached_property
    def fixed(self) -> list[tuple[FloatArray, float]]:
        """V_S without the total, and what the total costs, for the sum of all errors."""
        each = zip(self.inside.sum(axis=1), self.beside.sum(axis=1))
        return [(a * self.workload.gram, float(b)) for a, b in each]

    def grams(self, o: FloatArray) -> list[tuple[FloatArray, float]]:
        """The same for weights of what is asked, if the largest variance is to be least."""
        if not self.largest:
            return self.fixed
        W, parts = self.workload.matrix, np.split(o, np.cumsum(self.counts)[:-1])
        rows = np.array([one if has else np.zeros(len(W)) for one, has in zip(parts, self.has)])
        alone = np.array([0.0 if has else one[0] for one, has in zip(parts, self.has)])
        each = zip(self.inside @ rows, self.beside @ alone)
        return [(W.T @ (r[:, None] * W), float(b)) for r, b in each]

    def roots(
        self, w: FloatArray, given: list[tuple[FloatArray, float]], least: float = TINY
    ) -> dict[int, _Root]:
        """Of every S that needs one; the total costs something in each."""
        return {
            i: _Root.of(V + max(b, least * float(np.trace(V)) / len(V)), w)
            for i, (V, b) in enumerate(given)
            if self.needs[i]
        }

    def value(self, roots: dict[int, _Root], given: list[tuple[FloatArray, float]]) -> float:
        """Σ_S p_S tr (D V_S D)^½."""
        found = [self.shares[i] * root.trace for i, root in roots.items()]
        alone = zip(self.shares, given, self.needs)
        return math.fsum([*found, *(s * math.sqrt(b) for s, (_, b), one in alone if not one)])

    def bound(self, w: FloatArray, o: FloatArray) -> float:
        """What no Gaussian mechanism goes below, at squared sensitivity 1."""
        given = self.grams(o)
        return self.value(self.roots(w, given, least=0.0), given) ** 2

    def slope(self, x: FloatArray, barrier: float) -> tuple[float, FloatArray]:
        """The logarithm of it and its slope, with minus signs, by logarithms of weights.

        For the largest variance a barrier t times the mean logarithms of w and o is added.  Where
        that is greatest, diag X ≤ 1 + 2t and every variance is at most value² (1 + 2t): weights
        may vanish otherwise, and determine no noise.
        """
        n = self.workload.size
        w, o = _weights(x[:n]), _weights(x[n:]) if self.largest else np.zeros(0)
        given = self.grams(o)
        roots = self.roots(w, given)
        value = self.value(roots, given)
        by_w = np.sum([self.shares[i] * root.diagonal for i, root in roots.items()], axis=0) / 2
        by_w = by_w - w * by_w.sum()
        if not self.largest:
            return -math.log(value), -by_w / value
        by_o = self._by_asked({i: one.inverse() for i, one in roots.items()}, given)
        by_o = o * (by_o - o @ by_o)
        away = barrier * float(np.log(w).mean() + np.log(o).mean())
        slopes = by_w / value + barrier * (1 / n - w), by_o / value + barrier * (1 / len(o) - o)
        return -math.log(value) - away, -np.concatenate(slopes)

    def reached(self, w: FloatArray, o: FloatArray) -> float:
        """The largest variance of the noise for these weights, at squared sensitivity 1."""
        given = self.grams(o)
        factors = {i: root.factor for i, root in self.roots(w, given).items()}
        alone = zip(self.shares, given, self.needs)
        seen = sum(self.shares[i] * (one**2).sum(axis=1) for i, one in factors.items())
        seen = seen + math.fsum(s * math.sqrt(b) for s, (_, b), needs in alone if not needs)
        inverses = {i: np.asarray(np.linalg.inv(one @ one.T), float) for i, one in factors.items()}
        return float(np.max(seen) * 2 * self._by_asked(inverses, given).max())

    def _by_asked(
        self, inverses: dict[int, FloatArray], given: list[tuple[FloatArray, float]]
    ) -> FloatArray:
        W = self.workload.matrix
        rows, alone = np.zeros((len(given), len(W))), np.zeros(len(given))
        for i, (_, b) in enumerate(given):
            if self.needs[i]:
                K = inverses[i] * (self.shares[i] / 2)
                rows[i], alone[i] = ((W @ K) * W).sum(axis=1), K.sum()
            else:
                alone[i] = self.shares[i] / (2 * math.sqrt(b))
        by_rows, by_alone = self.inside.T @ rows, self.beside.T @ alone
        each = zip(self.has, by_rows, by_alone)
        return np.concatenate([own if has else [total] for has, own, total in each])


def _one(
    split: _Split, workload: Workload, objective: Objective, progress: Progress
) -> WorkloadPlan:
    """The least noise, up to what is computed in doubles."""
    n, j = workload.size, split.turned[0]
    margins = 1 + max(place for asks in split.asks.values() for _, place, _, _ in asks)
    inside, beside = np.zeros((2, len(split.beside), margins))
    for row, S in enumerate(split.beside):
        for own, place, weight, spread in split.asks[S]:
            (inside if own else beside)[row, place] = weight * spread
    shares = np.array([split.share(S) for S in split.beside])
    problem = _Single(workload, shares, inside, beside, objective == "largest")
    x, found = np.zeros(n + sum(problem.counts) * problem.largest), []
    for done, barrier in enumerate(BARRIERS if problem.largest else (0.0,)):
        progress.update(done / len(BARRIERS))
        x = _ascended(partial(problem.slope, barrier=barrier), x)
        found.append((_weights(x[:n]), _weights(x[n:]) if problem.largest else x[n:]))
    bound = max(problem.bound(*one) for one in found)
    # the last ones may be so small that rounding determines the noise
    w, o = min(found, key=lambda one: problem.reached(*one)) if problem.largest else found[0]
    given = problem.grams(o)
    bases: list[Basis] = []
    uses, t = np.full((len(split.beside), len(split.sizes)), -1), {}
    roots = problem.roots(w, given)
    for i, S in enumerate(split.beside):
        if i in roots:
            uses[i, j] = len(bases)
            t[S], basis, t[S | 1 << j] = roots[i].parts()
            bases.append(basis)
        else:
            t[S] = math.sqrt(given[i][1])
    return WorkloadPlan(tuple(bases), uses, np.array([t[B] for B in split.blocks.tolist()]), bound)


# ---------------------------------------------------------------------- several


@dataclass(eq=False)
class _Curve:
    """Bases of one attribute for all λ = STEP^k, made when they are asked for."""

    workload: Workload
    known: dict[int, tuple[_Root, float, float]] = field(default_factory=dict)

    def at(self, k: int) -> tuple[_Root, float, float]:
        """The root, ρ and γ."""
        if k not in self.known:
            self.known[k] = self._made(k)
        return self.known[k]

    def gram(self, k: int) -> FloatArray:
        """WᵀW + λ 11ᵀ."""
        G = self.workload.gram
        return np.asarray(G + STEP**k * float(np.trace(G)) / len(G) ** 2)

    def _made(self, k: int) -> tuple[_Root, float, float]:
        V = self.gram(k)
        near = min(self.known, key=lambda other: abs(other - k), default=None)
        start = np.zeros(len(V)) if near is None else 2 * np.log(self.known[near][0].d)

        def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
            w = _weights(x)
            root = _Root.of(V, w)
            by = root.diagonal / 2
            return -math.log(root.trace), -(by - w * by.sum()) / root.trace

        root = _Root.of(V, _weights(_ascended(value_and_slope, start)))
        K = root.inverse()
        mean = K.sum(axis=1)
        total = 1 / float(mean.sum())
        centre = mean * total
        turned = root.vectors / root.d[:, None]
        diagonal = float(((turned**2) @ root.values).max()) - total
        G = self.workload.gram
        gamma = float(centre @ G @ centre)
        return root, diagonal * (float((G * K).sum()) - gamma / total), gamma


@dataclass(frozen=True, eq=False)
class _Sum:
    """Σ_B √(c_B e_B) over the blocks of one set S, as a function of log ρ and log γ."""

    base: FloatArray  # by pair of a block and a margin
    inside: FloatArray  # by pair: which attributes are in the block
    outside: FloatArray  # which are in the margin only
    block: Any  # by pair: the number of the block

    @classmethod
    def of(cls, split: _Split, S: int) -> _Sum:
        margins: dict[int, float] = {}
        for own, _, weight, spread in split.asks[S]:
            # what a person adds in S, and what S adds to variances
            margins[own] = margins.get(own, 0.0) + weight * spread * split.share(S) ** 2
        others = sum(1 << j for j in split.turned)
        own_blocks = [B & others for B in split.blocks.tolist() if B & ~others == S]
        pairs = [(i, B, A) for i, B in enumerate(own_blocks) for A in margins if B & ~A == 0]

        def has(sets: list[int]) -> FloatArray:
            return np.array([[A >> j & 1 for j in split.turned] for A in sets], dtype=float)

        return cls(
            np.array([margins[A] for _, _, A in pairs]),
            has([B for _, B, _ in pairs]),
            has([A & ~B for _, B, A in pairs]),
            np.array([i for i, _, _ in pairs]),
        )

    def value(self, inside: FloatArray, outside: FloatArray) -> float:
        """The sum for logarithms of ρ and γ."""
        return float(self.terms(inside, outside).sum())

    def terms(self, inside: FloatArray, outside: FloatArray) -> FloatArray:
        """√(c_B e_B) of every block."""
        each = self.base * np.exp(self.inside @ inside + self.outside @ outside)
        return np.sqrt(np.bincount(self.block, each))


def _several(split: _Split, workloads: list[Workload], progress: Progress) -> WorkloadPlan:
    """Products of bases, for every set of plain attributes the best of a curve of them."""
    curves = {one.key: _Curve(one) for one in workloads}
    own = [curves[one.key] for one in workloads]
    sums = {S: _Sum.of(split, S) for S in split.beside}
    chosen: dict[int, tuple[int, ...]] = {}
    for S, one in sums.items():
        progress.update(len(chosen) / len(sums))
        chosen[S] = _best_bases(one, own)
    bases: list[Basis] = []
    made: dict[tuple[str, int], int] = {}
    uses = np.full((len(split.beside), len(split.sizes)), -1)
    t: dict[int, float] = {}
    others = sum(1 << j for j in split.turned)
    for row, S in enumerate(split.beside):
        for k, j, curve in zip(chosen[S], split.turned, own):
            key = curve.workload.key, k
            if key not in made:
                made[key] = len(bases)
                bases.append(curve.at(k)[0].parts()[1])
            uses[row, j] = made[key]
        terms = sums[S].terms(*_logarithms(own, chosen[S]))
        blocks = [B for B in split.blocks.tolist() if B & ~others == S]
        t.update(zip(blocks, (terms / split.share(S)).tolist()))
    bound = max(_product_bound(sums, own, chosen), _joint_bound(split, own, chosen[0]))
    return WorkloadPlan(tuple(bases), uses, np.array([t[B] for B in split.blocks.tolist()]), bound)


def _logarithms(own: list[_Curve], chosen: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """log ρ and log γ of one basis per attribute."""
    each = np.array([curve.at(k)[1:] for curve, k in zip(own, chosen)])
    found = np.log(np.maximum(each, 1e-300))
    return found[:, 0], found[:, 1]


def _best_bases(terms: _Sum, own: list[_Curve]) -> tuple[int, ...]:
    """λ of every attribute, as powers of STEP, one attribute after the other."""
    best = [NEAREST] * len(own)
    value = terms.value(*_logarithms(own, best))
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for i, side in itertools.product(range(len(own)), (-step, step)):
                other = [*best[:i], best[i] + side, *best[i + 1 :]]
                if abs(other[i] - NEAREST) > FARTHEST or not terms.inside[:, i].any():
                    continue
                found = terms.value(*_logarithms(own, other))
                if found < value * (1 - 1e-9):
                    best, value, moved = other, found, True
    return tuple(best)


def _product_bound(
    sums: dict[int, _Sum], own: list[_Curve], chosen: dict[int, tuple[int, ...]]
) -> float:
    """What no Gaussian mechanism goes below, from isometries of every attribute."""
    duals: dict[tuple[str, int], FloatArray] = {}

    def dual(curve: _Curve, k: int) -> FloatArray:
        key = curve.workload.key, k
        if key not in duals:
            duals[key] = np.array([_dual(curve.workload.gram, curve.at(k)[0].d, a) for a in TURNS])
        return duals[key]

    def value(places: list[int]) -> float:
        tables = [dual(curve, k) for curve, k in zip(own, places)]
        return math.fsum(_best_turns(terms, tables) for terms in sums.values())

    best = list(chosen[0])
    largest = value(best)
    for i in range(len(own)):
        for k in sorted({places[i] for places in chosen.values()} - {best[i]})[::4]:
            other = [*best[:i], k, *best[i + 1 :]]
            found = value(other)
            if found > largest:
                best, largest = other, found
    return largest**2


def _best_turns(terms: _Sum, tables: list[FloatArray]) -> float:
    """The largest sum over isometries, one attribute after the other."""
    at = [TURNS.index(1.0)] * len(tables)
    best = -1.0
    for _ in range(2):
        for i in range(len(tables)):
            found = []
            for turn in range(len(TURNS)):
                at[i] = turn
                logs = np.array([table[k] for table, k in zip(tables, at)])
                found.append(terms.value(logs[:, 0], logs[:, 1]))
            at[i] = int(np.argmax(found))
            best = max(best, found[at[i]])
    return best


def _dual(G: FloatArray, d: FloatArray, turn: float) -> tuple[float, float]:
    """log κ₁² and log κ₀² for the isometry that turns W D (turn (I − uuᵀ) + uuᵀ) to its root."""
    own = d[:, None] * G * d
    Q = turn * np.eye(len(d)) + (1 - turn) * np.outer(d, d)
    values, vectors = np.linalg.eigh(Q @ own @ Q)
    kept = values > 1e-14 * values[-1]
    inverse = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
    turned = inverse @ Q @ own
    total = float(d @ turned @ d)
    rest = float(np.trace(turned)) - total
    return 2 * math.log(max(rest, 1e-300)), 2 * math.log(max(total, 1e-300))


def _joint_bound(split: _Split, own: list[_Curve], chosen: tuple[int, ...]) -> float:
    """The same for all attributes with bases at once, where they have few values."""
    if math.prod(len(curve.workload.gram) for curve in own) > MOST_JOINT:
        return 0.0
    weights = [curve.at(k)[0].d ** 2 for curve, k in zip(own, chosen)]
    w = _kron(weights)
    found = []
    for S in split.beside:
        V = np.zeros((len(w), len(w)))
        for A, _, weight, spread in split.asks[S]:
            grams = [
                curve.workload.gram if A >> j & 1 else np.ones_like(curve.workload.gram)
                for curve, j in zip(own, split.turned)
            ]
            V += weight * spread * _kron(grams)
        found.append(split.share(S) * _Root.of(V, w).trace)
    return math.fsum(found) ** 2


def _kron(parts: Sequence[FloatArray]) -> FloatArray:
    found: Any = np.ones([1] * parts[0].ndim)
    for part in parts:
        found = np.kron(found, part)
    return np.asarray(found)
