"""Design noise for margins of tables whose cells cannot be listed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, one_thread, within_range
from affinedp.designs.least_intervals import least_intervals
from affinedp.designs.least_margins import least_blocks, least_whole, measurable, scaled_rates
from affinedp.designs.margins_workloads import least_workloads
from affinedp.designs.problem import (
    check_grid,
    check_law,
    checked_promise,
    checked_releases,
    gaussian_share,
    pure_share,
)
from affinedp.domains.crossed import (
    Crossed,
    Sets,
    blocks_of,
    cells_of,
    checked_sizes,
    margin_sets,
    members,
)
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Geometric, Geometrics, geometric_variance
from affinedp.mechanism import Mechanism
from affinedp.neighbours.people import People
from affinedp.privacy.design import Alternative, Design, Objective
from affinedp.strategies.margin_blocks import (
    LEAST,
    MarginNeighbours,
    check_attributes,
    exact_square,
    variance_shares,
)
from affinedp.strategies.margin_intervals import CountedIntervals
from affinedp.strategies.margin_workloads import Workload, answer_variances
from affinedp.strategies.margins import CountedMargins, Margins, OfMargins, chosen_margins, spreads

# Below this, rounding q down would add more noise than anybody states.
LEAST_Q = 1 << 24
LEAST_RATE = 2.0**-32
# The dual is computed in doubles: the gap is widened by this.
WIDENED = 1e-6
# How much more than another a table of intervals may count; doubles hold their least squares then.
FARTHEST = 1e4
DESIGNED = "least noise"
ADD_UP = "cells and add up"


def design_margins(
    sizes: Sequence[int],
    margins: str | int | Iterable[Iterable[int]] = "<=2",
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: MarginNeighbours = "person",
    household: int = 1,
    at_most: int | None = None,
    objective: Objective = "sum",
    weights: ArrayLike | None = None,
    workloads: Mapping[int, Any] | None = None,
    law: Literal["auto", "gaussian", "laplace"] = "auto",
    releases: int = 1,
) -> Mechanism:
    """Design the least noise for margins of a table of all attributes.

    The table itself, which may have 10¹⁷ cells, is never formed.  White noise on the residuals of
    the margins contains an optimum over all Gaussian mechanisms, and a dual certifies it.  Whole
    Laplace noise on margins (or on the cells, added up, or on intervals of values where sums are
    asked for) is compared with it, and the better one is returned.

    Parameters
    ----------
    sizes : sequence of int
        How many values every attribute has, each at least 2.
    margins : str, int or iterable of tuples
        ``"<=3"`` for all of up to three attributes, ``3`` for all of exactly three, or tuples of
        attributes.
    epsilon, delta : float
        The promise; δ = 0 asks for Laplace noise.
    adjacency : {"person", "replace", "swaps"}
        One person joins or leaves; one person has other values (the number of people is public);
        or two people exchange values, which keeps all one-way margins: they are published
        exactly.
    household : int
        How many people, or pairs of people, may move at once.
    at_most : int, optional
        In how many cells a person is counted at most; 1 by default.
    objective : {"sum", "largest"}
        Least sum of squared errors over all cells, or least largest variance of a cell.
    weights : array, optional
        One per margin: what squared error costs there; 1 by default.
    workloads : mapping, optional
        From attributes to what margins ask about their values: ``"prefix"`` for the number of
        people up to every value, ``"ranges"`` for those between any two, or a matrix of one's own
        with a column per value.  The values themselves by default.  For one person who joins or
        leaves.
    law : {"auto", "gaussian", "laplace"}
        Law of the noise; the better one by default.
    releases : int
        How many releases about the same people are planned.  The noise is for one of them, and all
        together keep (ε, δ).

    Returns
    -------
    Mechanism
        Its releases are mappings from tuples of attributes to tables.  Its gap is over all
        Gaussian mechanisms: 0 but for rounding with at most one workload, and what is certain
        with several.

    Examples
    --------
    >>> from affinedp.domains.crossed import counts_of_records
    >>> m = design_margins([3, 2, 4], "<=2", epsilon=1.0, delta=1e-6, law="gaussian")
    >>> m.gap < 1e-5, m.guarantee.holds(1.0, 1e-6)
    (True, True)
    >>> out = m.release(counts_of_records([[0, 1, 3], [2, 0, 1]], [3, 2, 4]))
    >>> bool(abs(out[0, 1].sum(axis=1) - out[(0,)]).max() < 1e-9)
    True

    How many people there are up to every one of 20 ages, and by sex:

    >>> promise = {"epsilon": 1.0, "delta": 1e-6, "law": "gaussian"}
    >>> m = design_margins([20, 2], workloads={0: "prefix"}, **promise)
    >>> out = m.release(counts_of_records([[3, 1], [17, 0]], [20, 2]))
    >>> bool(abs(out[0, 1].sum(axis=1) - out[(0,)]).max() < 1e-6), m.gap < 1e-5
    (True, True)
    """
    return designed_margins(
        sizes,
        margins,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        household=household,
        at_most=at_most,
        objective=objective,
        weights=weights,
        workloads=workloads,
        law=law,
        releases=releases,
    )


@within_range
@one_thread()
def designed_margins(
    sizes: Sequence[int],
    margins: str | int | Iterable[Iterable[int]] = "<=2",
    *,
    epsilon: float,
    delta: float,
    adjacency: MarginNeighbours,
    household: int,
    at_most: int | None,
    objective: Objective,
    workloads: Mapping[int, Any] | None,
    law: Literal["auto", "gaussian", "laplace"],
    releases: int,
    weights: ArrayLike | None = None,
    tied: Sequence[int] = (),
    possible: NDArray[np.bool_] | None = None,
) -> Mechanism:
    """Design margins; of some attributes only these combinations are possible, in one row.

    Noise on intervals of values knows it; other noise is fitted to it later.
    """
    shape = checked_sizes(sizes)
    check_attributes(len(shape), adjacency)
    domain = Crossed(shape, LEAST[adjacency])
    people = People(domain, adjacency, household, at_most)
    count = checked_releases(releases)
    if objective not in ("sum", "largest"):
        raise AffineDPError(f"objective must be 'sum' or 'largest', not {objective!r}")
    epsilon, delta = checked_promise(epsilon, delta)
    check_law(law, epsilon, delta, adjacency == "swaps")
    wanted = margin_sets(len(shape), margins)
    blocks = blocks_of(wanted.tolist(), domain.public)
    asked = _checked_workloads(shape, workloads, adjacency)
    shares = variance_shares(shape, wanted, blocks, _of_workloads(shape, asked))
    rows = [one.rows if one else n for one, n in zip(asked or [None] * len(shape), shape)]
    cells = np.array([float(cells_of(rows, A)) for A in wanted.tolist()])
    cost = margin_weights(wanted, weights, "weights") * (cells if objective == "sum" else 1.0)
    ask = _Question(people, wanted, blocks, shares, cells, cost, objective, asked)
    ask = replace(ask, tied=tuple(tied), possible=possible)
    found: list[tuple[str, Mechanism]] = []
    if law != "laplace" and delta > 0:
        drawn = sum(math.prod(n - 1 for n in domain.shape(B)) for B in blocks.tolist())
        check_grid(epsilon, delta, count * people.size * drawn)
        found.append((DESIGNED, _gaussian(ask, gaussian_share(epsilon, delta, count))))
    if law != "gaussian" and adjacency != "swaps" and epsilon:
        found.extend(_laplace(ask, pure_share(epsilon, count)))
    if not found:
        if measurable(shape, blocks) is not None:
            raise AffineDPError(f"epsilon = {epsilon:g} is too small for Laplace noise")
        raise AffineDPError("there are too many margins for Laplace noise: give a delta above 0")
    best = min((one for _, one in found), key=ask.value)
    others = [Alternative(one.noise.words, ask.value(one), reason=name) for name, one in found]
    if delta > 0:
        others += _standard_practice(ask, gaussian_share(epsilon, delta, count))
    best = best.with_design(alternatives=tuple(others), error=ask.value(best))
    return best.keeping(epsilon, delta, count)


@dataclass(frozen=True, eq=False)
class _Question:
    """What is asked for, apart from the promise."""

    people: People
    wanted: Sets
    blocks: Sets
    shares: Any
    cells: FloatArray
    cost: FloatArray
    objective: Objective
    workloads: tuple[Workload | None, ...] = ()
    # attributes in rules, and which combinations of them and of those with a workload are possible
    tied: tuple[int, ...] = ()
    possible: NDArray[np.bool_] | None = None

    @property
    def domain(self) -> Crossed:
        """The table."""
        assert isinstance(self.people.domain, Crossed)
        return self.people.domain

    @property
    def noisy(self) -> NDArray[np.bool_]:
        """Which margins are not public as a whole."""
        return np.array([A.bit_count() >= self.domain.public for A in self.wanted.tolist()])

    def total(self, variances: FloatArray) -> float:
        """What is to be least."""
        weighted = self.cost * variances
        return float(weighted.sum() if self.objective == "sum" else weighted.max())

    def value(self, mechanism: Mechanism) -> float:
        """What is to be least, of a mechanism."""
        strategy, law = mechanism.strategy, mechanism.noise
        assert isinstance(strategy, OfMargins)
        if self.objective == "largest" and self.workloads:
            every = [strategy.node_variances(law, chosen).max() for chosen in strategy.margins]
            return self.total(np.array(every))
        return self.total(strategy.cell_variances(law))

    def made(self, strategy: OfMargins, law: Law, note: str, gap: float | None) -> Mechanism:
        """A mechanism for these people."""
        return Mechanism(self.people, strategy, law, design=Design(gap, (note,)))


def _gaussian(ask: _Question, limit: float) -> Mechanism:
    """The least Gaussian noise of this sensitivity."""
    noisy, sizes, move = ask.noisy, ask.domain.sizes, _move(ask.people)
    bases: dict[str, Any] = {"workloads": ask.workloads}
    if ask.workloads:
        each = ask.cost / ask.cells if ask.objective == "sum" else ask.cost
        own = least_workloads(sizes, ask.workloads, ask.wanted, ask.blocks, each, ask.objective)
        t, bound = own.t, own.bound
        bases |= {"bases": own.bases, "uses": own.uses}
    else:
        plan = least_blocks(
            sizes, ask.blocks, ask.shares[noisy], ask.cost[noisy], move, ask.objective
        )
        t, bound = plan.t, plan.bound
    t = np.maximum(t, t.max() * 1e-12)  # a block that costs nothing needs noise too
    first = Margins(ask.domain, chosen_margins(ask.wanted.tolist()), t, **bases)

    def square(one: FloatArray) -> Fraction:
        return replace(first, t=one).squares(move)[1]

    t = scaled_to(t, square, Fraction(limit) / ask.people.size)
    strategy = replace(first, t=t)
    for B, q in strategy.scales():
        if q.flat[-1] < LEAST_Q:  # the longest contrast has the smallest q
            raise AffineDPError(
                f"the noise of the attributes {members(B)} is too large for its grid: epsilon is "
                "too small, or a weight"
            )
    made = ask.made(strategy, Gaussian(), "white noise on residuals of margins", None)
    value = ask.value(made) * (limit / ask.people.size) ** 2
    return made.with_design(gap=max(value / bound - 1, 0.0) + WIDENED)


def _move(people: People) -> MarginNeighbours:
    assert people.move != "circuits"
    return people.move


def scaled_to(
    t: FloatArray, square: Callable[[FloatArray], Fraction], sensitivity: Fraction
) -> FloatArray:
    """Return precisions that keep a sensitivity, checked exactly."""
    allowed = (sensitivity * (1 - Fraction(1, 1 << 50))) ** 2
    for _ in range(60):
        found = square(t)
        if found <= allowed and float(found) >= float(allowed) * (1 - 1e-9):
            return t
        t = t * float(allowed / found) * (1 - 2.0**-46)
    raise AffineDPError("the noise could not be scaled to the promise; the problem is degenerate")


def _laplace(ask: _Question, epsilon: float) -> list[tuple[str, Mechanism]]:
    """Whole Laplace noise on some margins, if there are not too many of them."""
    sizes = ask.domain.sizes
    measured = measurable(sizes, ask.blocks)
    if measured is None:
        return []
    budget = Fraction(epsilon) / (ask.people.size * (2 if ask.domain.fixed_people else 1))
    y = least_whole(sizes, measured, ask.blocks, ask.shares, ask.cost, float(budget))
    found = [(DESIGNED, _whole_noise(ask, measured[y > 0], y[y > 0], budget))]
    full = np.array([(1 << len(sizes)) - 1])
    if full[0] in measured and (y > 0).sum() > 1:
        # what people do today, compared by what is really to be least
        found.append((ADD_UP, _whole_noise(ask, full, np.ones(1), budget)))
    if ask.workloads and budget >= LEAST_RATE:
        found.append(("intervals of values", _on_intervals(ask, budget)))
    return [(name, one) for name, one in found if one is not None]


def _whole_noise(
    ask: _Question, measured: Sets, y: FloatArray, budget: Fraction
) -> Mechanism | None:
    """Whole Laplace noise on these margins, if its grid holds it."""
    rates = scaled_rates(y, budget)
    if min(rates) < LEAST_RATE:
        return None
    order = np.argsort([(A.bit_count() << 60) + A for A in measured.tolist()])
    rates = tuple(rates[i] for i in order)
    strategy = CountedMargins(
        ask.domain,
        chosen_margins(ask.wanted.tolist()),
        chosen_margins(measured[order].tolist()),
        np.array([1 / geometric_variance(rate) for rate in rates]),
        workloads=ask.workloads,
    )
    alone = measured.tolist() == [(1 << len(ask.domain.sizes)) - 1]
    law = counted_law(rates, strategy.cells)
    words = "the cells, which are added up" if alone else f"{len(measured)} margins"
    return ask.made(strategy, law, f"whole Laplace noise on {words}", None)


def _on_intervals(ask: _Question, budget: Fraction) -> Mechanism | None:
    """Whole Laplace noise on intervals of values, if there are not too many."""
    sizes = ask.domain.sizes
    rules = ask.tied, ask.possible
    made = least_intervals(sizes, ask.workloads, ask.wanted, ask.cost, float(budget), *rules)
    rates = None if made is None else scaled_rates(made[1], budget)
    if made is None or rates is None or min(rates) < LEAST_RATE:
        return None
    weights = np.array([1 / geometric_variance(rate) for rate in rates])
    strategy = CountedIntervals(
        ask.domain,
        chosen_margins(ask.wanted.tolist()),
        np.array(made[0]),
        np.minimum(weights, weights.min() * FARTHEST),
        *rules,
        workloads=ask.workloads,
    )
    law = counted_law(rates, strategy.cells)
    widths = ", ".join("×".join(map(str, row)) for row in made[0])
    return ask.made(strategy, law, f"whole Laplace noise on intervals of {widths} values", None)


def _checked_workloads(
    sizes: tuple[int, ...], given: Mapping[int, Any] | None, adjacency: str
) -> tuple[Workload | None, ...]:
    """What margins ask about the values of every attribute; nothing if it is the values."""
    if given is not None and not isinstance(given, Mapping):
        raise AffineDPError("workloads must be a mapping, such as {0: 'prefix'}")
    if not given:
        return ()
    if adjacency != "person":
        raise AffineDPError(
            f"workloads go with adjacency='person', not {adjacency!r} (who has other values "
            "leaves and joins: household=2 covers both)"
        )
    name = "workloads: an attribute"
    own = {whole_number(j, name, 0, len(sizes) - 1): asked for j, asked in given.items()}
    return tuple(Workload.of(own[j], n) if j in own else None for j, n in enumerate(sizes))


def _of_workloads(sizes: tuple[int, ...], asked: tuple[Workload | None, ...]) -> Any:
    """What attributes add to variances on average, where only values are measured."""
    if not asked:
        return None
    found = [answer_variances(one, None, n) for one, n in zip(asked, sizes)]
    return lambda B, j: tuple(float(part.mean()) for part in found[j])


def margin_weights(wanted: Sets, weights: ArrayLike | None, name: str) -> FloatArray:
    """Return what squared error costs in every margin, or refuse what is no such weights."""
    given = np.ones(len(wanted)) if weights is None else real_array(weights, name)
    if given.shape != (len(wanted),) or not given.min() > 0:
        raise AffineDPError(f"{name} must be {len(wanted):,} positive numbers, one per margin")
    return given


def counted_law(rates: Sequence[float], cells: Sequence[int]) -> Law:
    """Return whole Laplace noise of these rates, each on so many cells."""
    return Geometric(rates[0]) if len(rates) == 1 else Geometrics(tuple(rates), tuple(cells))


def _standard_practice(ask: _Question, limit: float) -> list[Alternative]:
    """Standard practice with Gaussian noise under the same promise."""
    noisy, sizes = ask.noisy, ask.domain.sizes
    if ask.objective == "largest" and ask.workloads:
        return []  # shares are means over what is asked
    t = np.ones(int(noisy.sum())) @ spreads(sizes, ask.wanted[noisy], ask.blocks)
    unit = (ask.people.size / limit) ** 2
    square = float(exact_square(sizes, ask.blocks, t, _move(ask.people))) * unit
    found = [("equal noise on all margins, projected", (ask.shares @ (1 / t)) * square)]
    if not ask.workloads:
        found.append(("independent", np.where(noisy, square, 0.0)))
    if ask.people.move == "person":
        everything = math.prod(map(float, sizes))
        squares = (
            [1.0] * len(sizes)
            if not ask.workloads
            else [
                1.0 if one is None else float(np.trace(one.gram)) / one.rows
                for one in ask.workloads
            ]
        )
        add_up = [
            unit * everything / cells_of(sizes, A) * math.prod(squares[j] for j in members(A))
            for A in ask.wanted.tolist()
        ]
        found.insert(0, (ADD_UP, np.array(add_up)))
    return [Alternative(Gaussian.words, ask.total(one), reason=name) for name, one in found]
