"""The least noise for a promise, whichever law has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, real_array, within_range, yes_or_no
from affinedp.designs.bounds import dual_value, with_least
from affinedp.designs.gaussian import largest_sensitivity, least_gaussian
from affinedp.designs.knorm import MOST_COMPARED, least_knorm
from affinedp.designs.laplace import along_the_moves, design_laplace
from affinedp.designs.large_sum import MOST_LISTED_SUM
from affinedp.designs.largest import least_largest
from affinedp.designs.separate import checked_weights, split
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.promise.exact_moves import moves_are_whole
from affinedp.promise.least_error import Data, least_variance
from affinedp.promise.least_possible import Alternative, Objective
from affinedp.promise.least_proof import LeastProof
from affinedp.promise.one_sum import dual_of_sum, is_one_sum
from affinedp.promise.verification import resolve_adjacency, resolve_query
from affinedp.record import error_under
from affinedp.relations.forgotten import warn_of_forgotten

if TYPE_CHECKING:
    import scipy.sparse as sparse

AnyLaw = Literal["auto", "gaussian", "laplace", "knorm"]
LAW_NAMES = {"gaussian": "Gaussian", "laplace": "Laplace", "knorm": "K-norm"}
LAWS = tuple(LAW_NAMES)
PURE = LAWS[1:]
MOST_RELEASES = 10**9


@within_range
def design(
    manifold: AffineManifold,
    *,
    epsilon: float,
    delta: float = 0.0,
    law: AnyLaw = "auto",
    releases: int = 1,
    objective: Objective = "sum",
    integers: bool = False,
    confined: bool = False,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    imbalance: float | None = None,
    seed: int | np.random.Generator = 0,
    check_against: Any = None,
) -> Mechanism:
    """Return the mechanism of least error that keeps (ε, δ) over the planned releases.

    The least Gaussian noise, Laplace strategies and K-norm noise are compared; the notes say in
    one sentence which law won and why, and ``alternatives`` what the others cost.
    ``lower_bound`` is what no mechanism of any law can go below.

    With several releases the mechanism is for one of them, and all together keep (ε, δ): Gaussian
    noise has the sensitivity ``s/√releases``, and noise of a pure law promises ``ε/releases``
    each time, so that all together even keep ε with δ = 0.  Everything is fixed from public
    things, before the first release; a :class:`~affinedp.Ledger` with this cap lets
    that many releases pass.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    epsilon, delta : float
        The promise that all releases keep together.  With δ = 0 Gaussian noise is out.
    law : {"auto", "gaussian", "laplace", "knorm"}
        The law, or the best of them.
    releases : int
        How many releases about the same secret are planned.
    objective : {"sum", "largest"}
        What is to be least: the (weighted) sum of squared errors, or the largest variance of an
        output.
    integers : bool
        Whether the data is whole.  K-norm noise is then whole, too, and its promise about whole
        neighbours, as ``lower_bound`` is; where another law wins the notes say that what is
        published is not whole (``law="knorm"`` keeps it whole).
    confined : bool
        Whether the data is known to lie in a bounded region, as non-negative counts with a public
        total do: ``lower_bound`` is then marked as not certified.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, optional
        F, or the names of the entries to publish; the identity by default.
    adjacency : Adjacency, optional
        Other neighbours than those of Definition 4 with ``mu``.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs, for ``objective="sum"``: one weight per output, or a matrix.
    imbalance : float, optional
        For moves that cannot be listed, as for :func:`design_gaussian`: only Gaussian noise then.
    seed : int or Generator
        For searches that start at random.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.relations.forgotten.ForgottenEquationWarning` says so.  Nothing else
        depends on it.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["a + b = c"])
    >>> m = adp.design(M, epsilon=1.0, delta=1e-6, releases=100)
    >>> m.law, m.guarantee.holds(1.0, 1e-6)
    ('gaussian', True)
    """
    problem = _problem(
        resolve_adjacency(manifold, mu, adjacency), resolve_query(manifold, query), weights,
        float(real_array(epsilon, "epsilon", 0)), float(real_array(delta, "delta", 0)),
        releases, objective, integers, confined, imbalance,
    )  # fmt: skip
    if law not in ("auto", *LAWS):
        raise AffineDPError(f"law must be one of auto, {', '.join(LAWS)}, not {law!r}")
    if (law == "gaussian" or imbalance is not None) and not problem.delta:
        raise AffineDPError("Gaussian noise needs δ > 0: give delta, or take a pure law")
    if law in PURE and not problem.epsilon:
        raise AffineDPError(f"{LAW_NAMES[law]} noise needs ε > 0: take a Gaussian law")
    warn_of_forgotten(manifold, check_against)
    return _least(problem, law, seed)


@dataclass(frozen=True)
class _Problem:
    """What is to be designed, checked."""

    adjacency: Adjacency
    query: Matrix
    names: tuple[str, ...]
    weights: Matrix
    epsilon: float
    delta: float
    releases: int
    objective: Objective
    integers: bool
    confined: bool
    imbalance: float | None

    @property
    def data(self) -> Data:
        """Which numbers the bound is about."""
        return "integer" if self.integers else "real"

    @property
    def pure_epsilon(self) -> float:
        """What one release of a pure law promises: they add up to ε, rounding included."""
        if self.releases == 1:
            return self.epsilon
        return self.epsilon / self.releases * (1 - 2e-15)

    @property
    def sensitivity(self) -> float:
        """What one Gaussian release may have: squares add up, rounding included."""
        whole = largest_sensitivity(self.epsilon, self.delta)
        return whole if self.releases == 1 else whole / math.sqrt(self.releases) * (1 - 2e-15)

    def error(self, mechanism: Mechanism) -> float:
        """What is to be least."""
        return error_under(mechanism, self.weights, self.objective)


def _problem(
    adjacency: Adjacency,
    asked: tuple[Matrix, tuple[str, ...]],
    weights: Any,
    epsilon: float,
    delta: float,
    releases: int,
    objective: Objective,
    integers: bool,
    confined: bool,
    imbalance: float | None,
) -> _Problem:
    if isinstance(releases, bool) or not isinstance(releases, int | np.integer):
        raise AffineDPError(f"releases must be a whole number, not {releases!r}")
    if not 1 <= releases <= MOST_RELEASES:
        raise AffineDPError(f"releases must be 1 to {MOST_RELEASES:,}, not {releases}")
    if objective not in ("sum", "largest"):
        raise AffineDPError(f"objective must be 'sum' or 'largest', not {objective!r}")
    if objective == "largest" and weights is not None:
        raise AffineDPError(
            "weights go with objective='sum'; scale the outputs in the query instead, so that "
            "their largest variance is what matters"
        )
    if not 0.0 <= delta < 1.0 or not 0.0 <= epsilon < math.inf or epsilon == delta == 0.0:
        raise AffineDPError(f"ε must be at least 0 and δ in [0, 1), not {epsilon}, {delta}")
    query, names = asked
    return _Problem(
        adjacency, query, names, checked_weights(weights, query.shape[0]), epsilon, delta,
        int(releases), objective, yes_or_no(integers, "integers"),
        yes_or_no(confined, "confined"), imbalance,
    )  # fmt: skip


@dataclass(frozen=True)
class _Start:
    """The Gaussian side of the comparison, which also gives the bound for every law."""

    gaussian: Mechanism | None
    dual: LeastProof | None
    weights: FloatArray | Matrix


def _start(problem: _Problem, law: str) -> _Start:
    """Design Gaussian noise where it is asked for, and the bound in any case."""
    limit = problem.sensitivity if problem.delta else 1.0
    if problem.objective == "largest":
        blocks = list(split(problem.adjacency, problem.query, problem.weights))
        found = least_largest(problem.adjacency, problem.query, problem.names, limit, blocks)
        made = found.found.mechanism if problem.delta else None
        return _Start(made, found.found.dual, found.weights)
    if problem.delta and law in ("auto", "gaussian"):
        least = least_gaussian(
            problem.adjacency, problem.query, problem.names, limit, problem.weights,
            imbalance=problem.imbalance,
        )  # fmt: skip
        return _Start(least.mechanism, least.dual, problem.weights)
    blocks = list(split(problem.adjacency, problem.query, problem.weights))
    return _Start(None, dual_value(blocks), problem.weights)


def _least(problem: _Problem, law: str, seed: int | np.random.Generator) -> Mechanism:
    if law == "auto" and (large := _large_sum(problem, seed)) is not None:
        return large
    start = _start(problem, law)
    if problem.integers and not moves_are_whole(problem.adjacency):
        start = replace(start, dual=None)
    if start.gaussian is not None and law == "gaussian":
        return _explained(problem, start.gaussian, start.dual, (), law)
    designed = [start.gaussian] if start.gaussian and law == "auto" else []
    below = _least_pure(problem, start.dual)
    reason = _of_no_use(problem, designed, below)
    if reason:
        skipped = [Alternative(name, below, False, reason) for name in PURE]
    else:
        pure = _Pure(problem, start.weights, seed, searches_all=law != "auto" or not designed)
        skipped = pure.designs(law, designed, below)
    best = min(designed, key=problem.error)
    others = tuple(Alternative(m.law, problem.error(m)) for m in designed if m is not best)
    return _explained(problem, best, start.dual, (*others, *skipped), law)


def _large_sum(problem: _Problem, seed: int | np.random.Generator) -> Mechanism | None:
    """One sum of very many entries: both costs are known, and only K-norm noise is made."""
    if len(problem.names) <= MOST_LISTED_SUM or not is_one_sum(problem.adjacency, problem.query):
        return None
    dual = dual_of_sum(problem.adjacency, problem.weights, problem.integers)
    if problem.objective != "sum" or dual is None or not problem.epsilon:
        return None
    made = _Pure(problem, problem.weights, seed).knorm()
    gaussian = dual / problem.sensitivity**2 if problem.delta else math.inf
    if gaussian < problem.error(made):
        return None
    other = Alternative("gaussian", gaussian, False, "(in closed form; not designed)")
    others = (other,) if problem.delta else ()
    return _explained(problem, made, LeastProof(dual), others, "auto")


@dataclass(frozen=True, eq=False)
class _Pure:
    """Designs of pure laws; Laplace strategies are searched once, if at all."""

    problem: _Problem
    weights: FloatArray | Matrix
    seed: int | np.random.Generator
    searches_all: bool = True

    @cached_property
    def laplace(self) -> Mechanism:
        problem, rank = self.problem, self.problem.adjacency.manifold.dim
        if not self.searches_all and rank > MOST_COMPARED:
            weights = checked_weights(self.weights, problem.query.shape[0])
            simple = along_the_moves(
                problem.adjacency, problem.query, problem.names, problem.pure_epsilon, weights
            )
            if simple is not None:
                return simple
            raise AffineDPError(
                f"Laplace strategies in {rank} dimensions are searched with law='laplace' only"
            )
        return design_laplace(
            problem.adjacency.manifold, epsilon=problem.pure_epsilon, query=problem.query,
            adjacency=problem.adjacency, weights=self.weights, seed=self.seed,
        )  # fmt: skip

    def knorm(self) -> Mechanism:
        problem = self.problem
        weights = checked_weights(self.weights, problem.query.shape[0])
        return least_knorm(
            problem.adjacency, problem.query, problem.names, problem.pure_epsilon, weights,
            lambda: self.laplace, integers=problem.integers, seed=self.seed,
        ).mechanism  # fmt: skip

    def designs(self, law: str, designed: list[Mechanism], below: float) -> list[Alternative]:
        """Add the designs that are asked for, and say which could not be made."""
        skipped = []
        for name, make in (("knorm", self.knorm), ("laplace", lambda: self.laplace)):
            if law not in ("auto", name) or any(one.law == name for one in designed):
                continue
            try:
                made = make()
            except AffineDPError as error:
                if law == name or (name == "laplace" and not designed):
                    raise
                skipped.append(Alternative(name, below, False, f"(not designed: {error})"))
                continue
            designed.append(made)
            if made.law != name:
                skipped.append(Alternative(name, below, False, f"({made.notes[-1]})"))
        return skipped


def _least_pure(problem: _Problem, dual: LeastProof | None) -> float:
    """What no pure law can go below, or 0."""
    if not problem.epsilon or dual is None:
        return 0.0
    return least_variance(problem.pure_epsilon, 0.0, problem.data) * dual.value


def _of_no_use(problem: _Problem, designed: list[Mechanism], below: float) -> str:
    """Why a pure law need not be designed, if so."""
    if not problem.epsilon:
        return "(not possible at ε = 0)"
    if any(one.certificate is not None for one in designed):
        return "(not designed: the moves are too many to list)"
    if designed and below >= min(map(problem.error, designed)):
        return "(no pure law can do better, so it was not designed)"
    return ""


def _explained(
    problem: _Problem,
    best: Mechanism,
    dual: LeastProof | None,
    others: tuple[Alternative, ...],
    law: str,
) -> Mechanism:
    """Say why this law, what the releases promise together, and what nobody can go below."""
    notes = list(best.notes)
    if problem.releases > 1:
        notes.insert(0, _together(problem, best))
    if law == "auto":
        notes.insert(0, _reason(problem, best, others))
    if problem.integers and best.law != "knorm":
        notes.append(f"{best.law} noise is real: what is published is not whole")
    chosen = replace(best, notes=tuple(notes), alternatives=others, least=None)
    if problem.releases == 1:
        promise = (problem.epsilon, problem.delta)
    elif best.law == "gaussian":
        promise = (best.guarantee.epsilon(problem.delta), problem.delta)
    else:
        promise = (problem.pure_epsilon, 0.0)
    return with_least(
        chosen, problem.weights, dual, *promise,
        data=problem.data, objective=problem.objective, confined=problem.confined,
    )  # fmt: skip


def _reason(problem: _Problem, best: Mechanism, others: tuple[Alternative, ...]) -> str:
    what = "squared error" if problem.objective == "sum" else "largest variance"
    least = f"{best.law} noise has the least {what}, {problem.error(best):.4g}"
    if not others:
        return f"{least}: at δ = 0 no other law was compared"
    listed = ", ".join(
        f"{one.law} {one.error:.4g}" if one.designed else f"{one.law} at least {one.error:.4g}"
        for one in others
        if one.designed or one.error
    )
    return f"{least}, of the laws compared: {listed}" if listed else least


def _together(problem: _Problem, best: Mechanism) -> str:
    count = f"{problem.releases:,}"
    if best.law == "gaussian":
        return (
            f"one of {count} planned releases: together they keep ε = {problem.epsilon:.6g} at "
            f"δ = {problem.delta:.3g}, each alone more"
        )
    return (
        f"one of {count} planned releases: each promises ε = {problem.pure_epsilon:.6g}, all "
        f"together ε = {problem.epsilon:.6g}, with δ = 0"
    )
