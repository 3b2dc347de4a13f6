"""The least noise for a promise, whichever law has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import Matrix, within_range
from affinedp.designs.bounds import dual_value, with_least
from affinedp.designs.effort import Budget, Effort
from affinedp.designs.gaussian import least_gaussian
from affinedp.designs.largest import least_largest
from affinedp.designs.problem import Problem, checked_problem
from affinedp.designs.pure import Candidate, pure_candidates
from affinedp.designs.separate import checked_weights
from affinedp.designs.symmetry import symmetric_noise
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.functions.known import FINE, KnownFunction, OfFunction
from affinedp.laws.bodies import continuous_error
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency, adjacency_of
from affinedp.neighbours.whole import moves_are_whole
from affinedp.privacy.design import Alternative, LeastProof, Objective
from affinedp.privacy.least_error import least_variance
from affinedp.privacy.verification import resolve_query
from affinedp.strategies.one_sum import dual_of_sum, is_one_sum

if TYPE_CHECKING:
    import scipy.sparse as sparse

AnyLaw = Literal["auto", "gaussian", "laplace", "knorm", "staircase", "productnorm"]
LAW_NAMES = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "knorm": "K-norm",
    "staircase": "Staircase",
    "productnorm": "Product-norm",
}
LAWS = tuple(LAW_NAMES)
# In this order: where they are equal the first is taken.
PURE = ("knorm", "productnorm", "staircase", "laplace")
# Searches end at an error of so many times the bound.
ENOUGH = 1.001
# Times n³: what it costs to find the worst of moves that are not listed, in multiply-adds.
SYMMETRY_WORK = 1e4
SHARED = "whole noise must hide all that the query reveals, and neighbours share some of it"
# Errors that are the same up to the accuracy of a design.
SAME = 1e-6
# Errors that are the same up to rounding: stairs of one step are the geometric law.
ROUNDING = 1e-9


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
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | KnownFunction | None = None,
    adjacency: Adjacency | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    imbalance: float | None = None,
    effort: Effort = "default",
    seed: int | np.random.Generator = 0,
    check_against: Any = None,
) -> Mechanism:
    """Return the mechanism of least error that keeps (ε, δ) over the planned releases.

    The least Gaussian noise, Laplace strategies, K-norm noise and, where every move is along an
    axis of its own, staircase noise are compared; the notes say in one sentence which law won and
    why, and ``alternatives`` what the others cost.  ``lower_bound`` is what no mechanism of any
    law can go below.

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
    law : {"auto", "gaussian", "laplace", "knorm", "staircase", "productnorm"}
        The law, or the best of them.  ``"knorm"`` is the best body of any kind, or Laplace noise
        where that is less.
    releases : int
        How many releases about the same secret are planned.
    objective : {"sum", "largest"}
        What is to be least: the (weighted) sum of squared errors, or the largest variance of an
        output.
    integers : bool
        Whether the data is whole.  K-norm noise is then whole, too, and its promise about whole
        neighbours, as ``lower_bound`` is; where another law wins the notes say that what is
        published is not whole (``law="knorm"`` keeps it whole; product norms are brought back onto
        the equations, and so are real numbers on any data).
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, or a function, optional
        F, or the names of the entries to publish; the identity by default.  Or a function with a
        known reach, such as ``affinedp.functions.peak()``.
    adjacency : Adjacency, optional
        Other neighbours than those of Definition 4 with ``mu``.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs, for ``objective="sum"``: one weight per output, or a matrix.
    imbalance : float, optional
        For moves that cannot be listed, as for :func:`design_gaussian`: only Gaussian noise then.
    effort : {"quick", "default", "thorough"} or float
        How long laws without a closed form are searched.  Steps are counted, so that the same
        effort and seed give the same noise on one machine; a number is one of seconds, and they
        need not.  A search ends early where the error is within a thousandth of the bound.
        Ctrl-C ends it too and keeps the best so far.  The notes say what was not searched.
    seed : int or Generator
        For searches that start at random.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.errors.AffineDPWarning` says so.  Nothing else
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
    if isinstance(query, KnownFunction):
        about = adjacency_of(manifold, adjacency, mu)
        return _of_function(about, query, epsilon=epsilon, delta=delta, law=law, releases=releases)
    problem = checked_problem(
        adjacency_of(manifold, adjacency, mu), resolve_query(manifold, query), weights,
        float(real_array(epsilon, "epsilon", 0)), float(real_array(delta, "delta", 0)),
        releases, objective, integers, imbalance,
    )  # fmt: skip
    if law not in ("auto", *LAWS):
        raise AffineDPError(f"law must be one of auto, {', '.join(LAWS)}, not {law!r}")
    if (law == "gaussian" or imbalance is not None) and not problem.delta:
        raise AffineDPError("Gaussian noise needs δ > 0: give delta, or take a pure law")
    if law in PURE and not problem.epsilon:
        raise AffineDPError(f"{LAW_NAMES[law]} noise needs ε > 0: take a Gaussian law")
    warn_of_forgotten(manifold, check_against)
    return least_noise(problem, LAWS if law == "auto" else (law,), seed, effort=effort)


@dataclass(frozen=True)
class _Start:
    """The Gaussian side of the comparison, which also gives the bound for every law."""

    gaussian: Mechanism | None
    dual: LeastProof | None
    weights: Matrix


def _start(problem: Problem, laws: Sequence[str], budget: Budget) -> _Start:
    """Design Gaussian noise where it is asked for, and the bound where moves can be listed."""
    limit = problem.sensitivity if problem.delta else 1.0
    if problem.objective == "largest":
        blocks = problem.blocks(problem.weights)
        found = least_largest(problem.adjacency, problem.query, problem.names, limit, blocks)
        made = found.found.mechanism if problem.delta else None
        weights = checked_weights(found.weights, problem.query.shape[0])
        return _Start(made, found.found.dual, weights)
    closed = None
    if is_one_sum(problem.adjacency, problem.query) and _within_squares(problem):
        closed = dual_of_sum(problem.adjacency, problem.weights, problem.integers)
    if problem.delta and "gaussian" in laws:
        if closed is not None and "knorm" in laws and problem.epsilon:
            # noise of a pure law is known in closed form too: the better one is made
            pure = continuous_error(len(problem.names), problem.pure_epsilon) / 2 * closed
            if pure / (len(problem.names) - 1) <= closed / problem.sensitivity**2:
                return _Start(None, LeastProof(closed), problem.weights)
        least = least_gaussian(
            problem.adjacency, problem.query, problem.names, limit, problem.weights,
            imbalance=problem.imbalance,
        )  # fmt: skip
        return _Start(least.mechanism, least.dual, problem.weights)
    if closed is not None:
        return _Start(None, LeastProof(closed), problem.weights)
    if not laws:
        return _Start(None, None, problem.weights)
    if not problem.can_be_listed(budget.moves):
        return _Start(None, _symmetric_bound(problem, budget), problem.weights)
    return _Start(None, dual_value(problem.blocks(problem.weights)), problem.weights)


def _symmetric_bound(problem: Problem, budget: Budget) -> LeastProof | None:
    """The bound without a list of moves, where symmetries give one and effort is left for it."""
    if budget.left < SYMMETRY_WORK * problem.adjacency.manifold.n**3:
        return None
    try:
        found = symmetric_noise(problem.adjacency, problem.query, problem.weights)
    except AffineDPError:  # the worst move cannot be searched for
        return None
    return found.dual if found is not None else None


def _mu(problem: Problem) -> float:
    """How far all entries of one sum move."""
    assert isinstance(problem.adjacency, CircuitAdjacency)
    return float(problem.adjacency.mu[0])


def _moves_are_whole(problem: Problem) -> bool:
    """Whether a bound for real moves is one for whole ones; without a list for one sum."""
    if is_one_sum(problem.adjacency, problem.query):
        return _mu(problem).is_integer()
    return moves_are_whole(problem.adjacency)


def _within_squares(problem: Problem) -> bool:
    """Whether the squares of moves are ordinary doubles."""
    return 2.0**-480 < _mu(problem) < 2.0**480


def least_noise(
    problem: Problem,
    laws: Sequence[str],
    seed: int | np.random.Generator = 0,
    *,
    practice: Sequence[tuple[str, Mechanism]] = (),
    effort: Effort = "default",
) -> Mechanism:
    """Return the noise of least error: of all these laws, and of given mechanisms, by name.

    This is the one place where noise is compared.
    """
    laws, budget = list(laws), Budget.of(effort)
    alone = len(laws) == 1 and not practice
    start = _start(problem, laws, budget)
    dual = start.dual
    if problem.integers and dual is not None and not _moves_are_whole(problem):
        dual = None
    designed = [Candidate(start.gaussian)] if start.gaussian and "gaussian" in laws else []
    designed += [Candidate(one, name=name) for name, one in practice]
    below = _least_pure(problem, dual)
    pure = [name for name in PURE if name in laws]
    skipped = []
    if problem.delta and "gaussian" in laws and start.gaussian is None and dual is not None:
        closed = dual.value / problem.sensitivity**2
        skipped.append(Alternative("gaussian", closed, False, "(in closed form; not designed)"))
    reason = _of_no_use(problem, [one.mechanism for one in designed], below) if pure else ""
    if reason:
        skipped += [Alternative(name, below, False, reason) for name in pure]
    elif pure:
        enough = ENOUGH * below
        found = pure_candidates(problem, set(pure), start.weights, seed, budget)
        try:
            for one in found:
                designed.append(one)
                # of equal noise on whole data the whole one is taken, which may come later
                whole = one.mechanism.noise.whole or not problem.integers
                asked = one.mechanism.law in laws and whole
                if one.settled or (asked and problem.error(one.mechanism) <= enough):
                    break
        except KeyboardInterrupt:
            if not designed:
                raise
            budget.note("interrupted: the best so far")
        except AffineDPError:
            if not designed:
                raise
    best, others = _least(problem, designed)
    notes = (*best.mechanism.notes, *budget.notes)
    if best.name:
        notes = (*notes, f"the best of what was compared: {best.name}")
    chosen = best.mechanism.with_design(notes=notes)
    return _explained(problem, chosen, dual, (*others, *([] if alone else skipped)), alone)


def _least(
    problem: Problem, designed: list[Candidate]
) -> tuple[Candidate, tuple[Alternative, ...]]:
    """The least noise whose promise was verified, and what else was compared."""
    waiting = [(problem.error(one.mechanism), one) for one in designed]
    others: list[Alternative] = []
    refusal: AffineDPError | None = None
    while waiting:
        place = _simplest(waiting)
        error, one = waiting.pop(place)
        try:
            made = replace(one, mechanism=one.made(), limit=None)
            if made.mechanism.noise.whole and made.mechanism.shared_part is not None:
                raise AffineDPError(SHARED)
        except AffineDPError as found:
            refusal = refusal or found
            reason = f"(not designed: {str(found).partition('. ')[0]})"
            others.append(Alternative(one.mechanism.law, error, False, reason))
            continue
        real = problem.error(made.mechanism)
        if one.limit is not None and real > error * (1 + SAME):  # not what floats said it costs
            waiting.append((real, made))
            continue
        return made, (*_compared(problem, made, waiting), *others)
    assert refusal is not None
    raise refusal


def _compared(
    problem: Problem, best: Candidate, waiting: list[tuple[float, Candidate]]
) -> Iterator[Alternative]:
    """What the best of every other law costs, and all standard practice: of noise really made."""
    seen = {best.mechanism.law}
    for _, one in sorted(waiting, key=lambda pair: pair[0]):
        if not one.name and one.mechanism.law in seen:
            continue
        try:
            made = one.made()
        except AffineDPError:
            continue
        if not one.name:
            seen.add(made.law)
        yield Alternative(made.law, problem.error(made), True, one.name)


def _simplest(waiting: list[tuple[float, Candidate]]) -> int:
    """The place of the least error; of equal ones that with a certificate, else the first."""
    least = min(error for error, _ in waiting)
    equal = [i for i, (error, _) in enumerate(waiting) if error <= least * (1 + SAME)]
    certified = [i for i in equal if waiting[i][1].mechanism.gap is not None]
    if certified:
        return certified[0]
    near = [i for i in equal if waiting[i][0] <= least * (1 + ROUNDING)]
    order = {name: place for place, name in enumerate(PURE)}
    return min(near, key=lambda i: order.get(waiting[i][1].mechanism.law, -1))


def _least_pure(problem: Problem, dual: LeastProof | None) -> float:
    """What no pure law can go below, or 0."""
    if not problem.epsilon or dual is None:
        return 0.0
    return least_variance(problem.pure_epsilon, 0.0, problem.data) * dual.value


def _of_no_use(problem: Problem, designed: list[Mechanism], below: float) -> str:
    """Why a pure law need not be designed, if so."""
    if not problem.epsilon:
        return "(not possible at ε = 0)"
    if any(one.proof is not None for one in designed):
        return "(not designed: the moves are too many to list)"
    if designed and below >= min(map(problem.error, designed)):
        return "(no pure law can do better, so it was not designed)"
    return ""


def _explained(
    problem: Problem,
    best: Mechanism,
    dual: LeastProof | None,
    others: tuple[Alternative, ...],
    alone: bool,
) -> Mechanism:
    """Say why this law, what the releases promise together, and what nobody can go below."""
    notes = list(best.notes)
    if problem.releases > 1:
        notes.insert(0, _together(problem, best))
    if not alone:
        notes.insert(0, _reason(problem, best, others))
    if problem.integers and not best.noise.whole:
        notes.append(f"{best.law} noise is real: what is published is not whole")
    chosen = best.with_design(notes=tuple(notes), alternatives=others, least=None)
    if problem.releases == 1:
        promise = (problem.epsilon, problem.delta)
    elif best.law == "gaussian":
        promise = (best.guarantee.epsilon(problem.delta), problem.delta)
    else:
        promise = (problem.pure_epsilon, 0.0)
    kept = chosen.keeping(problem.epsilon, problem.delta, problem.releases)
    return with_least(
        kept, problem.weights, dual, *promise,
        data=problem.data, objective=problem.objective,
    )  # fmt: skip


def _reason(problem: Problem, best: Mechanism, others: tuple[Alternative, ...]) -> str:
    what = "squared error" if problem.objective == "sum" else "largest variance"
    least = f"{best.law} noise has the least {what}, {problem.error(best):.4g}"
    if not others:
        return f"{least}: at δ = 0 no other law was compared"
    listed = ", ".join(
        f"{one.words} {one.error:.4g}" if one.designed else f"{one.law} at least {one.error:.4g}"
        for one in others
        if one.designed or one.error
    )
    return f"{least}, of the laws compared: {listed}" if listed else least


def _together(problem: Problem, best: Mechanism) -> str:
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


def _of_function(about: Adjacency, function: KnownFunction, **asked: Any) -> Mechanism:
    """Return the least noise on one number that neighbours move by a known reach."""
    reach = float(function.sensitivity(about) * (1 + FINE))
    if not 0 < reach < np.inf:
        raise AffineDPError(f"no neighbour moves {function.words}, or some by any amount")
    number = AffineManifold(np.zeros((0, 1)), names=[function.kind])
    one = design(number, mu=float(np.nextafter(reach, np.inf)), **asked)
    made = Mechanism(
        about, OfFunction(about.domain, function, one.dense), one.noise, None, one.design
    )
    made.guarantee  # noqa: B018 (what cannot be promised is refused here)
    return made
