"""The least noise for a promise, whichever law has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import Matrix, dense, one_thread, within_range
from affinedp.designs.bounds import dual_value, with_least
from affinedp.designs.effort import Budget, Effort
from affinedp.designs.fit import Candidate, independent_noise
from affinedp.designs.gaussian import least_gaussian, least_largest, of_one_number
from affinedp.designs.problem import Problem, checked_problem
from affinedp.designs.pure import Way, closed_forms, from_a_list
from affinedp.designs.separate import LISTED, checked_weights
from affinedp.designs.symmetry import symmetric_noise
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import generator_of, real_array
from affinedp.functions.known import FINE, KnownFunction, OfFunction
from affinedp.laws.bodies import continuous_error
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency, adjacency_of
from affinedp.neighbours.whole import moves_are_whole
from affinedp.privacy.design import Alternative, LeastProof, Objective, error_words, is_weighted
from affinedp.privacy.least_error import least_variance
from affinedp.privacy.verification import resolve_query
from affinedp.strategies.one_sum import dual_of_sum, is_exchange, is_one_sum
from affinedp.strategies.projected import cycles_of

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
DESIGNED = tuple(LAW_NAMES)
# In this order: where they are equal the first is taken.
PURE = ("knorm", "productnorm", "staircase", "laplace")
# Moves beyond this many times mu rest on coefficients that rounding left.
LONGEST = 1e12
# Searches end at an error of so many times the bound.
ENOUGH = 1.001
# Times n³: what it costs to find the worst of moves that are not listed, in multiply-adds.
SYMMETRY_WORK = 1e4
SHARED = "whole noise must hide all that the query reveals, and neighbours share some of it"
NOT_BUILT = "(certified to be no better, so it was not built)"
IMPOSSIBLE = (
    "product-norm noise needs a network whose entries go between two sides",
    "staircase noise needs moves along as many axes as there are dimensions",
)
# Errors that are the same up to the accuracy of a design.
SAME = 1e-6
# Errors that are the same up to rounding: stairs of one step are the geometric law.
ROUNDING = 1e-9


@within_range
@one_thread()
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
    adjacency: Adjacency | str | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    imbalance: float | None = None,
    effort: Effort = "default",
    seed: int | np.random.Generator = 0,
    check_against: Any = None,
) -> Mechanism:
    """Return the mechanism of least error that keeps (ε, δ) over the planned releases.

    The least Gaussian noise, Laplace strategies, K-norm noise and, where every move is along an
    axis of its own, staircase noise are compared, at every effort also independent noise on all
    outputs and on entries from which the others follow; the notes say in one sentence which law
    won and why, and ``alternatives`` what the others cost.  ``lower_bound`` is what no mechanism
    of any law can go below.

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
        neighbours, as ``lower_bound`` is; where real noise has less error it is taken, and the
        notes say that what is published is not whole (``law="knorm"`` keeps it whole).
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, or a function, optional
        F, or the names of the entries to publish; the identity by default.  Or a function with a
        known reach, such as ``affinedp.functions.peak()``.
    adjacency : Adjacency or "person", optional
        Other neighbours than those of Definition 4 with ``mu``; ``"person"`` where equations are
        totals and their parts: one cell moves by up to ``mu``, and its totals follow.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs, for ``objective="sum"``: one weight per output, or a matrix.
    imbalance : float, optional
        For moves that cannot be listed, as for :func:`design_gaussian`: only Gaussian noise then.
    effort : {"quick", "default", "thorough"} or float
        How long laws without a closed form are searched; ``"quick"`` gives the first answer, with
        a bound only where that is quick, too.  Steps are counted, so that the same
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
    if law not in ("auto", *DESIGNED):
        raise AffineDPError(
            f"law must be one of auto, {', '.join(DESIGNED)}, not {law!r}. Noise of another law is "
            "scaled to a promise by affinedp.fit(adjacency, strategy, law, epsilon=...)"
        )
    if (law == "gaussian" or imbalance is not None) and not problem.delta:
        raise AffineDPError("Gaussian noise needs δ > 0: give delta, or take a pure law")
    if law in PURE and not problem.epsilon:
        raise AffineDPError(f"{LAW_NAMES[law]} noise needs ε > 0: take a Gaussian law")
    warn_of_forgotten(manifold, check_against)
    return least_noise(problem, DESIGNED if law == "auto" else (law,), seed, effort=effort)


@within_range
@one_thread()
def design_knorm(
    manifold: AffineManifold,
    *,
    epsilon: float,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | str | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    integers: bool = False,
    seed: int | np.random.Generator = 0,
    effort: Effort = "default",
    check_against: Any = None,
) -> Mechanism:
    """Return K-norm noise of small expected squared error that keeps ε, with δ = 0.

    The density is ∝ e^(−ε‖z‖_K), K a symmetric polytope that contains every move.  The hull of the
    moves is one; a search looks for better ones.  In networks and tables the product of the bodies
    of public sums is compared, at any size.  The result is a local optimum, never worse than
    the hull nor than :func:`design_laplace`, whose noise is returned where it is better, or where
    the hull has too many facets for exact arithmetic (the notes say so).

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    epsilon : float
        The promise to keep, with δ = 0.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, optional
        F, or the names of the entries to publish; the identity by default.
    adjacency : Adjacency or "person", optional
        Other neighbours than those of Definition 4 with ``mu``; ``"person"`` where equations are
        totals and their parts: one cell moves by up to ``mu``, and its totals follow.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs: one weight per output, or a matrix Q for ``E eᵀQe``.
    integers : bool
        Data is whole, and so is what is published: less noise, and no charge for rounding.  The
        promise is about whole neighbours.
    seed : int or Generator
        For the starts of the searches.
    effort : {"quick", "default", "thorough"} or float
        How long is searched, as for :func:`design`; ``"quick"`` takes the hull of the moves, or
        what has a closed form.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.errors.AffineDPWarning` says so.  Nothing else
        depends on it.

    Returns
    -------
    Mechanism

    Examples
    --------
    One sum of three entries: squared error 10 where Laplace strategies need 14.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["a + b = c"])
    >>> m = adp.design_knorm(M, epsilon=1.0)
    >>> round(m.expected_squared_error, 6), m.guarantee.epsilon()
    (10.0, 1.0)
    """
    problem = pure_problem(
        adjacency_of(manifold, adjacency, mu), resolve_query(manifold, query), weights, epsilon,
        "K-norm", integers,
    )  # fmt: skip
    warn_of_forgotten(manifold, check_against)
    return least_noise(problem, ("knorm",), seed, effort=effort)


def pure_problem(
    adjacency: Adjacency,
    asked: tuple[Matrix, tuple[str, ...]],
    weights: Any,
    epsilon: float,
    law: str,
    integers: bool = False,
) -> Problem:
    """Return the problem of one law without δ, for data that may be whole or not."""
    limit = positive_epsilon(epsilon, law)
    found = checked_problem(adjacency, asked, weights, limit, 0.0, 1, "sum", integers, None)
    return replace(found, is_told=False)


def positive_epsilon(epsilon: float, law: str) -> float:
    """Return ε of noise of a pure law, or refuse what is none."""
    limit = float(real_array(epsilon, "epsilon", 0))
    if limit <= 0:
        raise AffineDPError(f"epsilon must be positive for {law} noise, not {epsilon!r}")
    return limit


@dataclass(frozen=True)
class _Start:
    """The Gaussian side of the comparison, which also gives the bound for every law."""

    gaussian: Candidate | None
    dual: LeastProof | None
    weights: Matrix


def _start(
    problem: Problem, laws: Sequence[str], budget: Budget, listed: bool, is_known: bool
) -> _Start:
    """Design Gaussian noise where it is asked for, and the bound where moves can be listed."""
    limit, weights = problem.sensitivity if problem.delta else 1.0, problem.weights
    if problem.query.shape[0] == 1 and problem.imbalance is None:
        with suppress(TooManyCircuitsError):
            least = of_one_number(problem.farthest, limit, weights)
            found = least.candidate(problem.adjacency, problem.query, problem.names, limit)
            return _Start(found if problem.delta else None, least.dual, weights)
    wanted = bool(problem.delta) and "gaussian" in laws
    if problem.objective == "largest":
        try:
            blocks = problem.blocks(weights, LISTED if wanted and not is_known else budget.moves)
        except TooManyCircuitsError:  # the bound is from a list, which some noise does without
            if not wanted:
                return _Start(None, None, weights)
            one, _ = least_gaussian(
                problem.adjacency, problem.query, problem.names, limit, weights,
                imbalance=problem.imbalance,
            )  # fmt: skip
            uncertified = one.mechanism.with_design(gap=None)  # it was for the sum of all variances
            return _Start(replace(one, mechanism=uncertified), None, weights)
        outputs = problem.query.shape[0]
        largest, balanced = least_largest(outputs, limit, blocks)
        found = largest.candidate(problem.adjacency, problem.query, problem.names, limit)
        weights = checked_weights(balanced, outputs)
        return _Start(found if problem.delta else None, largest.dual, weights)
    closed = None
    if is_one_sum(problem.adjacency, problem.query) and _within_squares(problem):
        closed = dual_of_sum(problem.adjacency, weights, problem.integers)
    if wanted:
        if closed is not None and "knorm" in laws and problem.epsilon:
            # noise of a pure law is known in closed form too: the better one is made
            pure = continuous_error(len(problem.names), problem.pure_epsilon) / 2 * closed
            if pure / (len(problem.names) - 1) <= closed / problem.sensitivity**2:
                return _Start(None, LeastProof(closed), weights)
        gaussian, dual = least_gaussian(
            problem.adjacency, problem.query, problem.names, limit, weights,
            imbalance=problem.imbalance,
        )  # fmt: skip
        return _Start(gaussian, dual, weights)
    if closed is not None:
        return _Start(None, LeastProof(closed), weights)
    if not laws:
        return _Start(None, None, weights)
    if not listed:
        return _Start(None, _symmetric_bound(problem, budget), weights)
    return _Start(None, dual_value(problem.blocks(weights), problem.solved), weights)


def _symmetric_bound(problem: Problem, budget: Budget) -> LeastProof | None:
    """The bound without a list of moves, where symmetries give one and effort is left for it."""
    if not budget.allows(SYMMETRY_WORK * problem.adjacency.manifold.n**3):
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
    if is_exchange(problem.adjacency):
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
    generator_of(seed)  # refused here, also where nothing is drawn from it
    alone = len(laws) == 1 and not practice
    try:
        made = _compared_noise(problem, laws, seed, practice, effort, budget, alone)
    except AffineDPError as refusal:
        rounding = _rests_on_rounding(problem, budget.moves)
        if not rounding:
            raise
        made = _independent(problem, laws, refusal, alone)
    else:
        rounding = _rests_on_rounding(problem)
    return made.with_design(notes=(*made.notes, rounding)) if rounding else made


def _rests_on_rounding(problem: Problem, limit: int = 0) -> str:
    """What to do about moves so long that a coefficient must be what rounding left; or nothing.

    Moves that were not listed are, up to a limit.
    """
    if type(problem.adjacency) is not CircuitAdjacency or not problem.adjacency.mu.any():
        return ""
    moves = [block.moves for block in problem.listed]
    if limit and not moves:
        with suppress(AffineDPError):
            moves.append(problem.adjacency.directions(limit))
    longest = max((float(abs(own).max()) for own in moves if own.shape[1]), default=0.0)
    times = longest / float(problem.adjacency.mu.max())
    if not times > LONGEST:
        return ""
    return (
        f"neighbours move an entry by {times:.1e} times mu: some coefficient of the equations is "
        "that small beside others, as what rounding leaves of a zero is. If it stands for zero, "
        "give the equations as fractions, as text, or with fewer digits"
    )


def _independent(
    problem: Problem, laws: list[str], refusal: AffineDPError, alone: bool
) -> Mechanism:
    """Independent noise on every output, which can be verified where no other noise can be."""
    limits = {}
    if problem.delta and "gaussian" in laws:
        limits["gaussian"] = problem.sensitivity
    if problem.epsilon and {"knorm", "laplace"} & set(laws):
        limits["laplace"] = problem.pure_epsilon
    found = [
        independent_noise(problem.adjacency, problem.query, problem.names, law, limit)
        for law, limit in limits.items()
    ]
    if not found:
        raise refusal
    best = min(found, key=problem.error)
    why = f"it does not obey the equations, since noise that does was refused: {refusal}"
    return _explained(problem, best.with_design(notes=(*best.notes, why)), None, (), alone)


def _compared_noise(
    problem: Problem,
    laws: list[str],
    seed: int | np.random.Generator,
    practice: Sequence[tuple[str, Mechanism]],
    effort: Effort,
    budget: Budget,
    alone: bool,
) -> Mechanism:
    """The best of what can be designed for a problem."""
    pure = {name for name in PURE if name in laws and problem.epsilon}
    refused: list[AffineDPError] = []
    designed = [Candidate(one, name=name) for name, one in practice]
    closed: list[Candidate] = []
    for one in _candidates(problem, closed_forms(problem, pure, problem.weights), budget, refused):
        if problem.objective == "largest" and problem.query.shape[0] > 1:
            one = replace(one, settled=False)  # other weights may have less
        closed.append(one)
        if one.settled:
            break
    if closed:
        budget.moves = budget.few
    start, listed = _Start(None, None, problem.weights), False
    with budget.keeping("a bound") if closed or designed else nullcontext():
        listed = not any(one.settled for one in closed) and problem.can_be_listed(budget.moves)
        if not listed and _is_enough(problem, closed, laws, effort):
            budget.note("nothing was searched beside what has a closed form")
        else:
            start = _start(problem, laws, budget, listed, bool(closed))
    dual = start.dual
    if problem.integers and dual is not None and not _moves_are_whole(problem):
        dual = None
    least = dual.value / problem.sensitivity**2 if dual is not None and problem.delta else None
    skipped = []
    if start.gaussian is not None and "gaussian" in laws:
        designed.insert(0, start.gaussian)
    elif least is not None and "gaussian" in laws:
        skipped.append(Alternative("gaussian", least, False, NOT_BUILT))
    below = _least_pure(problem, dual)
    reason = _of_no_use(problem, [one.mechanism for one in designed], below)
    if reason:
        skipped += [Alternative(name, below, False, reason) for name in PURE if name in laws]
    elif pure:

        def is_best(one: Candidate) -> bool:
            # of equal noise on whole data the whole one is taken, which may come later
            whole = one.mechanism.noise.whole or not problem.integers
            asked = one.mechanism.law in laws and whole
            return one.settled or (asked and problem.error(one.mechanism) <= ENOUGH * below)

        designed += closed
        ways = from_a_list(problem, pure, start.weights, seed, budget, listed)
        try:
            searched = _candidates(problem, ways, budget, refused)
            for one in () if any(map(is_best, closed)) else searched:
                if is_best(one):  # and what floats say of it is true
                    with suppress(AffineDPError):
                        one = replace(one, mechanism=one.made(), limit=None)
                designed.append(one)
                if one.limit is None and is_best(one):
                    break
        except KeyboardInterrupt:
            if not designed:
                raise
            budget.note("interrupted: the best so far")
    if not designed:
        raise refused[-1] if refused else AffineDPError(IMPOSSIBLE["staircase" in pure])
    best, others = _least(problem, designed, least, budget)
    notes = (*best.mechanism.notes, *budget.notes)
    if best.name:
        notes = (*notes, f"the best of what was compared: {best.name}")
    chosen = best.mechanism.with_design(notes=notes)
    return _explained(problem, chosen, dual, (*others, *([] if alone else skipped)), alone)


def _candidates(
    problem: Problem, ways: Iterator[Way], budget: Budget, refused: list[AffineDPError]
) -> Iterator[Candidate]:
    """What is found in some ways, with errors that can be told; what was refused is kept too."""
    for way in ways:
        if budget.interrupted:
            return
        try:
            for one in way():
                problem.error(one.mechanism)
                yield one
        except AffineDPError as error:
            budget.note(f"some noise was not designed: {str(error).partition('. ')[0]}")
            refused.append(error)
            if isinstance(error, TooManyCircuitsError):
                return
        except np.linalg.LinAlgError as error:
            budget.note(f"some noise was not designed: in double precision, {error}")


def _is_enough(
    problem: Problem, closed: list[Candidate], laws: Sequence[str], effort: Effort
) -> bool:
    """Whether little effort ends with closed forms: no worse than Gaussian noise on entries."""
    if effort != "quick" or not closed or problem.imbalance is not None:
        return False
    if is_exchange(problem.adjacency) or problem.query.shape[0] == 1:
        return False  # all laws have closed forms
    if not problem.delta or "gaussian" not in laws:
        return True
    cycles = cycles_of(problem.adjacency)
    if cycles is None:
        return False
    image = dense(problem.query @ np.linalg.qr(dense(problem.adjacency.manifold.kernel))[0])
    farthest = max(one.longest * float(one.reach) ** 2 for one in cycles)
    each = (image * dense(problem.weights @ image)).sum(axis=1) * farthest
    gaussian = float(each.max() if problem.objective == "largest" else each.sum())
    pure = min(problem.error(one.mechanism) for one in closed)
    return pure <= gaussian / problem.sensitivity**2


def _least(
    problem: Problem, designed: list[Candidate], gaussian: float | None, budget: Budget
) -> tuple[Candidate, tuple[Alternative, ...]]:
    """The least noise whose promise was verified, and what else was compared.

    Ctrl-C skips the proof that runs, as long as there is other noise to take.
    """
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
        except KeyboardInterrupt:
            if not waiting:
                raise
            budget.note("interrupted in the proof of what noise of less error promises")
            continue
        real = problem.error(made.mechanism)
        if one.limit is not None and real > error * (1 + SAME):  # not what floats said it costs
            waiting.append((real, made))
            continue
        try:
            others[:0] = _compared(problem, made, waiting, gaussian)
        except KeyboardInterrupt:
            budget.note("interrupted: what other noise costs was not computed")
        return made, tuple(others)
    assert refusal is not None
    raise refusal


def _compared(
    problem: Problem,
    best: Candidate,
    waiting: list[tuple[float, Candidate]],
    gaussian: float | None,
) -> Iterator[Alternative]:
    """What the best of every other law costs, and all standard practice: of noise really made."""
    seen = {best.mechanism.law}
    for _, one in sorted(waiting, key=lambda pair: pair[0]):
        if not one.name and one.mechanism.law in seen:
            continue
        if gaussian is not None and one.limit is not None and one.mechanism.gap is not None:
            seen.add("gaussian")
            yield Alternative("gaussian", gaussian, False, NOT_BUILT)
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
    if problem.imbalance is not None:
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
        notes.append(f"{best.noise.words} noise is real: what is published is not whole")
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
    what = error_words(problem.objective, is_weighted(problem.weights))
    least = f"{best.noise.words} noise has the least {what}, {problem.error(best):.4g}"
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
