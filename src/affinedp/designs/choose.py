"""The least noise for a promise, whichever law has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, within_range
from affinedp.designs.bounds import dual_value, with_least
from affinedp.designs.gaussian import least_gaussian
from affinedp.designs.large_sum import MOST_LISTED_SUM
from affinedp.designs.largest import least_largest
from affinedp.designs.problem import Problem, checked_problem
from affinedp.designs.pure import Effort, PureDesigns
from affinedp.designs.separate import split
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.choose import adjacency_of
from affinedp.neighbours.exact_moves import moves_are_whole
from affinedp.privacy.least_error import least_variance
from affinedp.privacy.least_possible import Alternative, Objective
from affinedp.privacy.least_proof import LeastProof
from affinedp.privacy.verification import resolve_query
from affinedp.strategies.one_sum import dual_of_sum, is_one_sum

if TYPE_CHECKING:
    import scipy.sparse as sparse

AnyLaw = Literal["auto", "gaussian", "laplace", "knorm", "staircase"]
LAW_NAMES = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "knorm": "K-norm",
    "staircase": "Staircase",
}
LAWS = tuple(LAW_NAMES)
# In this order: where they are equal the first is taken.
PURE = ("knorm", "staircase", "laplace")
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
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
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
    law : {"auto", "gaussian", "laplace", "knorm", "staircase"}
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
    effort : {"quick", "default", "thorough"}
        How long laws without a closed form are searched: Laplace strategies from one start, from
        a few, or from as many as agree.  Ctrl-C ends a search and keeps the best law so far.
    seed : int or Generator
        For searches that start at random.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.discovery.forgotten.ForgottenEquationWarning` says so.  Nothing else
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
    problem = checked_problem(
        adjacency_of(manifold, adjacency, mu), resolve_query(manifold, query), weights,
        float(real_array(epsilon, "epsilon", 0)), float(real_array(delta, "delta", 0)),
        releases, objective, integers, imbalance,
    )  # fmt: skip
    if effort not in ("quick", "default", "thorough"):
        raise AffineDPError(f"effort must be 'quick', 'default' or 'thorough', not {effort!r}")
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
    weights: FloatArray | Matrix


def _start(problem: Problem, laws: Sequence[str]) -> _Start:
    """Design Gaussian noise where it is asked for, and the bound in any case."""
    limit = problem.sensitivity if problem.delta else 1.0
    if problem.objective == "largest":
        blocks = list(split(problem.adjacency, problem.query, problem.weights))
        found = least_largest(problem.adjacency, problem.query, problem.names, limit, blocks)
        made = found.found.mechanism if problem.delta else None
        return _Start(made, found.found.dual, found.weights)
    if problem.delta and "gaussian" in laws:
        least = least_gaussian(
            problem.adjacency, problem.query, problem.names, limit, problem.weights,
            imbalance=problem.imbalance,
        )  # fmt: skip
        return _Start(least.mechanism, least.dual, problem.weights)
    if not laws:
        return _Start(None, None, problem.weights)
    blocks = list(split(problem.adjacency, problem.query, problem.weights))
    return _Start(None, dual_value(blocks), problem.weights)


def least_noise(
    problem: Problem,
    laws: Sequence[str],
    seed: int | np.random.Generator = 0,
    *,
    practice: Sequence[tuple[str, Mechanism]] = (),
    effort: Effort = "default",
) -> Mechanism:
    """Return the noise of least error: of all these laws, and of given mechanisms.

    This is the one place where noise is compared.

    Parameters
    ----------
    problem : Problem
        What is to be designed.
    laws : sequence of str
        The laws that are designed.
    seed : int or Generator
        For searches that start at random.
    practice : sequence of (str, Mechanism)
        Further mechanisms that keep the promise, by name: standard practice.
    effort : {"quick", "default", "thorough"}
        How long Laplace strategies are searched.
    """
    alone = len(laws) == 1 and not practice
    if not alone and not practice and (large := _large_sum(problem, seed)) is not None:
        return large
    start = _start(problem, laws)
    if problem.integers and start.dual and not moves_are_whole(problem.adjacency):
        start = replace(start, dual=None)
    if alone and start.gaussian is not None and laws[0] == "gaussian":
        return _explained(problem, start.gaussian, start.dual, (), alone)
    designed = [("", start.gaussian)] if start.gaussian and "gaussian" in laws else []
    designed += practice
    below = _least_pure(problem, start.dual)
    reason = _of_no_use(problem, [one for _, one in designed], below)
    pure = [name for name in PURE if name in laws]
    if reason:
        skipped = [Alternative(name, below, False, reason) for name in pure]
    else:
        made = PureDesigns(
            problem, start.weights, seed, effort=effort, alone=alone,
            searches_all=alone or effort != "default" or not designed,
        )  # fmt: skip
        skipped = made.add(pure, designed, below, alone)
    if not alone:
        designed, unfit = _released(problem, designed)
        skipped = [*skipped, *unfit]
    name, best = _simplest(problem, designed)
    others = tuple(
        Alternative(m.law, problem.error(m), True, own) for own, m in designed if m is not best
    )
    if name:
        best = best.with_design(notes=(*best.notes, f"the best of what was compared: {name}"))
    return _explained(problem, best, start.dual, (*others, *skipped), alone)


def _released(
    problem: Problem, designed: list[tuple[str, Mechanism]]
) -> tuple[list[tuple[str, Mechanism]], list[Alternative]]:
    """What can be released, and the others: whole noise must hide all that the query reveals."""
    unfit = [one for _, one in designed if one.noise.whole and one.shared_part is not None]
    fit = [pair for pair in designed if not any(pair[1] is one for one in unfit)]
    if not fit:
        return designed, []
    reason = "whole noise must hide all that the query reveals, and neighbours share some of it"
    return fit, [Alternative(one.law, problem.error(one), False, reason) for one in unfit]


def _simplest(problem: Problem, designed: list[tuple[str, Mechanism]]) -> tuple[str, Mechanism]:
    """The least error; of equal ones that with a certificate, else the first."""
    errors = [problem.error(one) for _, one in designed]
    equal = [pair for pair, error in zip(designed, errors) if error <= min(errors) * (1 + SAME)]
    certified = next((pair for pair in equal if pair[1].gap is not None), None)
    least = min(errors) * (1 + ROUNDING)
    return certified or next(pair for pair, error in zip(designed, errors) if error <= least)


def _large_sum(problem: Problem, seed: int | np.random.Generator) -> Mechanism | None:
    """One sum of very many entries: both costs are known, and only K-norm noise is made."""
    if len(problem.names) <= MOST_LISTED_SUM or not is_one_sum(problem.adjacency, problem.query):
        return None
    dual = dual_of_sum(problem.adjacency, problem.weights, problem.integers)
    if problem.objective != "sum" or dual is None or not problem.epsilon:
        return None
    made = PureDesigns(problem, problem.weights, seed).knorm()
    gaussian = dual / problem.sensitivity**2 if problem.delta else math.inf
    if gaussian < problem.error(made):
        return None
    other = Alternative("gaussian", gaussian, False, "(in closed form; not designed)")
    others = (other,) if problem.delta else ()
    return _explained(problem, made, LeastProof(dual), others, False)


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
