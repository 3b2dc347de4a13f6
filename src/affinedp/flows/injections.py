"""Neighbours that an operator can name: the injection at one node moves, another one balances.

This promise scales to any network, because it has as many directions as there are private
injections (or pairs of them), not as many as there are circuits.  How flows follow an injection is
said by transfer factors, accurate to the last bit of every entry.

Far from where power is injected, factors are tiny, and a law must still hold among them.  So
potentials are carried in wide integers and refined with an ordinary sparse factorisation until the
balance of every node is met to 2⁻¹²⁰; only then are flows rounded to double precision, each
relative to its own size.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, listed
from affinedp.exact.numbers import meaning, real_array, real_number
from affinedp.flows.flow_manifold import FlowManifold
from affinedp.flows.flow_network import FlowNetwork
from affinedp.neighbours.adjacency import mu_words
from affinedp.neighbours.given_directions import DirectionAdjacency

BigIntegers = NDArray[Any]  # Python integers in an object array

BITS = 160
# A residual of so many units in the last place is as small as it gets.
SETTLED = 40
MOST_ROUNDS = 60
# Flows below 2^-NOTHING are zeros that were rounded; a little above that they would be doubtful.
NOTHING, DOUBTFUL = 90, 70


def transfers(network: FlowNetwork, moved: IntArray, grounded: Sequence[int]) -> BigIntegers:
    """Return the flows that follow a unit injection, in units of 2^-BITS."""
    susceptance = _susceptances(network)
    free = np.flatnonzero(np.isin(network.island, network.island[moved]))
    free = np.setdiff1d(free, np.asarray(grounded, dtype=np.intp))
    solve = _factorised(network, susceptance, free)
    potential = np.zeros((len(network.nodes), len(moved)), dtype=object)
    injected = np.zeros_like(potential)
    injected[moved, np.arange(len(moved))] = 1 << BITS
    flow = _flows(network, susceptance, potential)
    smallest = None
    for _ in range(MOST_ROUNDS):
        residual = (injected - leaving(network, flow))[free]
        size = max((int(value).bit_length() for value in residual.flat), default=0)
        if size <= SETTLED:
            _refuse_doubtful(flow)
            return flow
        if smallest is not None and size >= smallest:
            break
        smallest = size
        shift = max(0, size - 62)
        change = solve((residual >> shift).astype(np.float64))
        potential[free] += _integers(change) << shift
        flow = _flows(network, susceptance, potential)
    raise AffineDPError(
        "the line laws do not determine the flows (negative reactances cancel positive ones), or "
        "do so too weakly to compute them. Correct the reactances"
    )


def _refuse_doubtful(flow: BigIntegers) -> None:
    sizes = np.abs(flow)
    if np.any((sizes >= 1 << (BITS - NOTHING)) & (sizes < 1 << (BITS - DOUBTFUL))):
        raise AffineDPError(
            "flows far from an injection fall below 10⁻²¹ of it and cannot be told from zero. "
            "Publish a part of the network, or declare far injections public"
        )


def leaving(network: FlowNetwork, flow: BigIntegers) -> BigIntegers:
    """Return what leaves every node minus what enters it."""
    total = np.zeros((len(network.nodes), flow.shape[1]), dtype=object)
    for branch, (tail, head) in enumerate(zip(network.tail, network.head)):
        total[tail] += flow[branch]
        total[head] -= flow[branch]
    return total


def rounded(values: BigIntegers) -> FloatArray:
    """Return wide integers (in units of 2^-BITS) as doubles; rounded zeros become zeros."""
    least = 1 << (BITS - NOTHING)
    flat = [math.ldexp(float(v), -BITS) if abs(v) >= least else 0.0 for v in values.flat]
    return np.array(flat).reshape(values.shape)


def _susceptances(network: FlowNetwork) -> list[int]:
    """1/reactance in units of 2^-BITS, the reactances taken in units of about their size."""
    if network.reactance is None:
        raise AffineDPError("the network has no reactances, so flows do not follow injections")
    unit = Fraction(2) ** int(np.median(np.frexp(network.reactance)[1]))
    return [round((1 << BITS) * unit / Fraction(float(x))) for x in network.reactance]


def _flows(network: FlowNetwork, susceptance: list[int], potential: BigIntegers) -> BigIntegers:
    flow = potential[network.tail] - potential[network.head]
    for branch, value in enumerate(susceptance):
        flow[branch] = (flow[branch] * value) >> BITS
    return flow


def _factorised(network: FlowNetwork, susceptance: list[int], free: IntArray) -> Any:
    """Solve with the balances of the free nodes as equations for their potentials."""
    import scipy.sparse as sparse
    from scipy.sparse.linalg import splu

    size = len(network.nodes)
    weight = rounded(np.array(susceptance, dtype=object))
    row = np.concatenate([network.tail, network.head, network.tail, network.head])
    column = np.concatenate([network.tail, network.head, network.head, network.tail])
    value = np.concatenate([weight, weight, -weight, -weight])
    laplacian = sparse.csr_array((value, (row, column)), shape=(size, size))
    try:
        return splu(sparse.csc_array(laplacian[free][:, free])).solve
    except RuntimeError:
        raise AffineDPError(
            "the line laws do not determine the flows: negative reactances cancel positive ones. "
            "Correct the reactances"
        ) from None


def _integers(values: FloatArray) -> BigIntegers:
    if not np.all(np.isfinite(values)):
        raise AffineDPError("the line laws do not determine the flows. Correct the reactances")
    return np.array([int(value) for value in values.flat], dtype=object).reshape(values.shape)


# Numbers in an array of directions.
MOST_NUMBERS = 1e8


class InjectionAdjacency(DirectionAdjacency):
    """Directions in which one injection moves, and what balances it, in words.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    directions : array_like, shape (n, K)
        One column per move, already scaled.
    words : str
        Who is a neighbour.
    """

    kind = "injections"

    def __init__(self, manifold: AffineManifold, directions: ArrayLike, words: str) -> None:
        super().__init__(manifold, directions, unit="one injection of a flow network")
        self._words = words

    def fields(self) -> dict[str, Any]:
        """Return what makes these neighbours, by argument of the constructor."""
        given = super().fields()
        del given["unit"]
        return {**given, "words": self._words}

    @property
    def words(self) -> str:
        """Who counts as a neighbour, and what everyone is assumed to know, in words."""
        return self._words


def injection_neighbours(
    flow: FlowManifold,
    mu: float | Mapping[Any, float] = 1.0,
    *,
    balance: Any = "slack",
) -> InjectionAdjacency:
    """Return the neighbours in which one injection moves by at most μ and is balanced elsewhere.

    The flows follow by the line laws.  This is a weaker promise than Definition 4, in which any
    entry may move and any others follow, but it has one direction for each private injection (for
    each pair of them with ``balance="any"``), so it works for networks of any size.  With one
    balancing node it is Definition 4 for the free set of all other injections; with
    ``balance="any"`` it is Definition 4 on the injections alone, of which flows are a function.

    Parameters
    ----------
    flow : FlowManifold
        With ``laws="full"``: node balance alone does not say how flows follow.
    mu : float or mapping
        How far an injection moves, in the unit of the flows: one number, or one for the label of
        each node with a private injection.
    balance : label, mapping or {"slack", "any"}
        What balances a move: the slack (the reference nodes of a power network), one node with a
        private injection, several of them in proportion (a mapping of labels to shares; a node
        with a share that moves is balanced by the others), or any one of the others.

    Returns
    -------
    InjectionAdjacency

    Examples
    --------
    A ring of three equal lines: two thirds take the direct way.

    >>> import networkx as nx
    >>> import numpy as np
    >>> from affinedp import flows
    >>> ring = nx.cycle_graph(3)
    >>> nx.set_edge_attributes(ring, 0.1, "x")
    >>> flow = flows.from_graph(ring, reactance="x")
    >>> np.round(flows.injection_neighbours(flow, balance=0).directions()[:3], 6)
    array([[-0.666667, -0.333333],
           [-0.333333, -0.666667],
           [ 0.333333, -0.333333]])
    """
    if not isinstance(flow, FlowManifold):
        raise AffineDPError(f"injection_neighbours takes a FlowManifold, not {flow!r}")
    if flow.laws != "full":
        raise AffineDPError(
            "injection_neighbours needs laws='full': under node balance alone nothing says how "
            "flows follow an injection"
        )
    reach = _reach(flow.network, mu)
    if isinstance(balance, str) and balance == "slack":
        moves, words = _balanced_by_slack(flow.network, reach)
    elif isinstance(balance, str) and balance == "any":
        moves, words = _balanced_by_any(flow.network, reach)
    else:
        if not isinstance(balance, Mapping | Hashable):
            raise AffineDPError(
                f"balance is a node, shares of nodes, 'slack' or 'any': {balance!r}"
            )
        shares = dict(balance) if isinstance(balance, Mapping) else {balance: 1.0}
        moves, words = _balanced_by_shares(flow.network, reach, shares)
    if moves.shape[1] == 0:
        raise AffineDPError("there is no private injection that moves and is balanced by another")
    text = f"the injection at one node moves by at most {mu_words(reach)} and {words}"
    return InjectionAdjacency(flow.manifold, moves, f"{text}; {flow.assumes}")


def _reach(network: FlowNetwork, mu: float | Mapping[Any, float]) -> FloatArray:
    """How far each private injection moves; every one must, or noise would not cover it."""
    if isinstance(mu, Mapping):
        given = {network.position_of(label): value for label, value in mu.items()}
        missing = [network.nodes[i] for i in network.private if int(i) not in given]
        public = [network.nodes[i] for i in given if i not in set(network.private.tolist())]
        if missing:
            raise AffineDPError(f"mu is missing for {listed(missing)}, whose injection is private")
        if public:
            raise AffineDPError(f"mu names {listed(public)}, whose injection is public")
        values = real_array([given[int(i)] for i in network.private], "mu", 1)
    else:
        values = np.full(len(network.private), real_number(mu, "mu"))
    if not np.all(values > 0):
        raise AffineDPError(
            "mu must be positive for every private injection. One that need not be protected can "
            "be declared public: public_injections"
        )
    return values


def _balanced_by_slack(network: FlowNetwork, reach: FloatArray) -> tuple[FloatArray, str]:
    """Each private injection moves in turn; the reference nodes of its island take it up."""
    references = np.array(sorted(network.references), dtype=np.intp)
    movable = ~np.isin(network.private, references)
    moved = network.private[movable]
    public = [network.nodes[i] for i in references if i not in set(network.private.tolist())]
    if public:
        raise AffineDPError(
            f"{listed(public)} should balance, but the injection there is public. Name another "
            "node: balance="
        )
    bare = ~np.isin(network.island[moved], network.island[references])
    if bare.any():
        names = listed([network.nodes[i] for i in moved[bare]])
        raise AffineDPError(f"nothing balances {names}: there is no slack. Name a node: balance=")
    flow = transfers(network, moved, references.tolist())
    injected = rounded(leaving(network, flow)[network.private])
    moves = np.vstack([rounded(flow), injected]) * reach[movable]
    slack = listed([network.nodes[i] for i in references])
    return moves, f"the slack ({slack}) balances"


def _balanced_by_any(network: FlowNetwork, reach: FloatArray) -> tuple[FloatArray, str]:
    """Every pair of private injections of an island: one moves, the other balances it."""
    flow = _from_a_private_node(network)
    count = len(network.private)
    island = network.island[network.private]
    partners = [np.flatnonzero(island[i + 1 :] == island[i]) + i + 1 for i in range(count)]
    _refuse_if_too_many(len(flow) + count, sum(map(len, partners)))
    blocks = [np.zeros((len(flow) + count, 0))]
    for i, others in enumerate(partners):
        injected = np.zeros((count, len(others)))
        injected[i] = 1.0
        injected[others, np.arange(len(others))] = -1.0
        change = rounded(flow[:, [i]] - flow[:, others])
        # whichever of the two moves, the other one balances
        blocks.append(np.vstack([change, injected]) * np.maximum(reach[i], reach[others]))
    return np.hstack(blocks), "any other one balances"


def _balanced_by_shares(
    network: FlowNetwork, reach: FloatArray, shares: Mapping[Hashable, float]
) -> tuple[FloatArray, str]:
    """Each private injection moves in turn; others of its island take it up in proportion."""
    share = _exact_shares(network, shares)
    flow = _from_a_private_node(network)
    island = network.island[network.private]
    blocks = [np.zeros((len(flow) + len(share), 0))]
    for number in np.unique(island):
        members = np.flatnonzero(island == number)
        taken = np.zeros(len(flow), dtype=object)
        for j in members:
            taken += (flow[:, j] * round(share[j] * (1 << BITS))) >> BITS
        for i in members:
            rest = 1 - share[i]  # what the others take up
            if rest == 0 or len(members) == 1:
                continue
            change = (flow[:, i] - taken) * rest.denominator // rest.numerator
            injected = np.zeros(len(share))
            # what moves, first: its own share over the rest may be no double
            injected[members] = [1.0 if j == i else -float(share[j] / rest) for j in members]
            move = np.concatenate([rounded(change), injected]) * reach[i]
            blocks.append(move[:, None])
    by = [network.nodes[i] for i, part in zip(network.private, share) if part]
    words = f"{by[0]} balances" if len(by) == 1 else f"{listed(by)} balance in given proportions"
    return np.hstack(blocks), words


def _exact_shares(network: FlowNetwork, shares: Mapping[Hashable, float]) -> list[Fraction]:
    """One share per private injection; those of an island add up to 1 exactly."""
    given = {network.position_of(label): label for label in shares}
    public = [network.nodes[i] for i in given if i not in set(network.private.tolist())]
    if public:
        raise AffineDPError(f"{listed(public)} cannot balance: the injection there is public")
    values = [shares[given[i]] if i in given else 0.0 for i in network.private.tolist()]
    checked = real_array(values, "balance", 1)
    if np.any(checked < 0):
        raise AffineDPError("the shares in balance must not be negative")
    share = [meaning(value) for value in checked.tolist()]
    island = network.island[network.private]
    for number in np.unique(island):
        members = np.flatnonzero(island == number)
        total = sum((share[j] for j in members), Fraction(0))
        if len(members) > 1 and total == 0:
            names = listed([network.nodes[i] for i in network.private[members]])
            raise AffineDPError(
                f"nothing balances {names}: name at least one of these nodes in balance="
            )
        for j in members:
            share[j] = share[j] / total if total else Fraction(0)
    return share


def _from_a_private_node(network: FlowNetwork) -> BigIntegers:
    """Flows from each private node to one of its island, to be combined into moves."""
    island = network.island[network.private]
    several = [i for i in np.unique(network.island) if _references(network, int(i)) > 1]
    if set(several) & set(island.tolist()):
        raise AffineDPError(
            "the network has several slack nodes with public potentials, which fix how a move is "
            "shared out among them: balance must be 'slack'"
        )
    ground = network.private[np.unique(island, return_index=True)[1]]
    moving = ~np.isin(network.private, ground)
    flow = np.zeros((len(network.branches), len(network.private)), dtype=object)
    if moving.any():
        flow[:, moving] = transfers(network, network.private[moving], ground.tolist())
    return flow


def _references(network: FlowNetwork, island: int) -> int:
    return sum(int(network.island[node]) == island for node in network.references)


def _refuse_if_too_many(entries: int, moves: int) -> None:
    if float(entries) * moves > MOST_NUMBERS:
        raise AffineDPError(
            f"{moves:,} pairs of injections on {entries:,} entries do not fit in memory. Name what "
            "balances: balance='slack', a node, or shares"
        )
