"""Noise on entries of the data themselves, brought back onto the equations.

Outputs are a function of entries with noise: how well that function fits the equations decides the
errors, and never the promise.  So noise may lie in more dimensions than the manifold has, such as
all that some of its equations leave open, and the moves of Definition 4 need not be listed where
the equations are a network: its circuits are simple cycles, and a cycle meets the sum at a node in
two entries.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.domains.component import Network, network_of
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import combination, transposed
from affinedp.laws.base import Law
from affinedp.laws.bodies import AxesPart
from affinedp.laws.knorm import KNorm
from affinedp.laws.product_norm import ProductNorm, ProductPart
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.parts import frozen
from affinedp.strategies.base import Largest, Prepared, Promised, largest_listed
from affinedp.strategies.coverage import Span
from affinedp.strategies.exact_plan import exact_plan
from affinedp.strategies.matrices import Matrices

# Moves that are listed rather than bounded by the length of circuits.
FEW_LISTED = 20_000
# Coefficients of a network are known up to a smaller share.
ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Projected(Matrices):
    """Publish ``F x_p + Λ (x − x_p + η)`` of chosen entries; Λ inverts them on the manifold."""

    kind = "projected"
    # which entries are measured, each once; the basis has one column for each
    entries: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        entries = np.asarray(self.entries)
        whole = entries.ndim == 1 and np.issubdtype(entries.dtype, np.integer)
        if not whole or len(entries) != self.basis.shape[1] or self.root is not None:
            raise AffineDPError("noise on entries has one column of its basis for every entry")
        inside = len(entries) and entries.min() >= 0 and entries.max() < len(self.domain.names)
        if not inside or len(np.unique(entries)) < len(entries):
            raise AffineDPError("the entries that are measured are places of the data, each once")
        object.__setattr__(self, "entries", frozen(entries.astype(np.int64)))
        self._check_back()

    def _check_back(self) -> None:
        """Refuse a basis that does not invert the entries on the manifold."""
        kernel = self.domain.kernel
        seen, wanted = dense(self.basis @ kernel[self.entries]), dense(self.query @ kernel)
        if not np.allclose(seen, wanted, rtol=0.0, atol=1e-9 * max(1.0, np.abs(wanted).max())):
            raise AffineDPError("the basis does not bring the entries back to the outputs")

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return the entries that are measured."""
        return moves[self.entries]

    def range(self, law: Law) -> Matrix:
        """Return vectors that span the noise in the outputs."""
        return self.query @ self.domain.kernel

    def leak(self, law: Law, span: Span) -> FloatArray | None:
        """Return None: nothing but entries with noise is read."""
        return None

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest gauge: from the network, or, where that is less, from few moves."""
        if not isinstance(law, KNorm | ProductNorm) or law.whole:
            raise AffineDPError(f"{law.words} noise is not put on entries: there is no proof")
        self._check_sums(law)
        found = _over_cycles(adjacency, law, self.entries)
        if found is None:
            return largest_listed(self, adjacency, law)
        if not found.exact:
            with suppress(TooManyCircuitsError):
                return largest_listed(self, adjacency, law, FEW_LISTED)
        return found

    def _check_sums(self, law: KNorm | ProductNorm) -> None:
        """Refuse sums that the equations do not fix: the last entry of each follows from others."""
        kernel = transposed(self.domain.exact_kernel, self.domain.n)
        for part in law.bodies.sums:
            signs = zip(self.entries[part.rows].tolist(), part.signs.tolist())
            if combination((int(sign), kernel[entry]) for entry, sign in signs):
                raise AffineDPError("the noise is under a sum that the equations do not fix")

    def free_rows(self, law: Law, combinations: Matrix | None) -> Matrix:
        """Return combinations in terms of noise whose coordinates are free."""
        rows, span = self.loadings(combinations), law.span()
        return dense(rows if span is None else rows @ span)

    def scaled(self, factor: float) -> Projected:
        """Refused: noise on entries is scaled by the rate of its law."""
        raise AffineDPError("noise on entries is scaled by the rate of its law")

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        rows = [{int(entry): Fraction(1)} for entry in self.entries]
        return exact_plan(self, adjacency, law, promised, bound, rows)


@dataclass(frozen=True)
class Cycles:
    """What is known of the circuits of a network, or of an entry that is in no equation."""

    # the entries at every node: of the two sides, where every entry goes from one to the other, or
    # of one
    sides: tuple[tuple[frozenset[int], ...], ...]
    # how far an entry of a circuit moves at most, times its coefficient
    reach: Fraction
    # the coefficients of entries; empty where they are of one size, which counts as 1
    coefficients: dict[int, Fraction] = field(default_factory=dict)

    @property
    def longest(self) -> int:
        """How many entries a circuit has at most: it meets no node twice."""
        return len(self.sides) * min(map(len, self.sides))


def cycles_of(adjacency: Adjacency) -> list[Cycles] | None:
    """Return what is known of the circuits of Definition 4 in networks; None for others."""
    if type(adjacency) is not CircuitAdjacency:
        return None
    mu = [meaning(float(own)) for own in adjacency.mu]
    found = [Cycles(((frozenset([i]),),), mu[i]) for i in adjacency.loose_entries.tolist()]
    for component in adjacency.bound_components:
        network = network_of(component)
        if network is None:
            return None
        entries, sizes = component.entries.tolist(), np.abs(network.coefficient).tolist()
        own = {} if network.even else dict(zip(entries, map(Fraction, sizes)))
        reach = max(mu[i] * own.get(i, 1) for i in entries)
        found.append(Cycles(_sides(component.entries, network), reach, own))
    return [one for one in found if one.reach] or None


def _sides(entries: IntArray, network: Network) -> tuple[tuple[frozenset[int], ...], ...]:
    """The entries at the nodes of a connected network, by side."""
    tail, head, side = network.tail, network.head, network.side
    stars = {
        node: entries[(tail == node) | (head == node)]
        for node in np.unique(np.concatenate([tail, head])).tolist()
    }
    return tuple(
        tuple(frozenset(star.tolist()) for node, star in stars.items() if side[node] == one)
        for one in range(int(side.max()) + 1)
    )


def _over_cycles(
    adjacency: Adjacency, law: KNorm | ProductNorm, entries: IntArray
) -> Largest | None:
    """The largest gauge of a cycle: at most two entries at a node, and so many nodes."""
    components = cycles_of(adjacency)
    if components is None:
        return None
    place = {
        entry: i for i, one in enumerate(components) for star in one.sides[0] for entry in star
    }
    charges: list[list[Fraction]] = [[] for _ in components]
    for part in law.bodies.parts:
        found = _charges(part, entries, components, place)
        if found is None:
            return None
        for where, charge in found.items():
            charges[where] += charge
    # every sum that a cycle meets takes two of its entries
    each = 1 if any(isinstance(part, AxesPart) for part in law.bodies.parts) else 2
    top = Fraction(0)
    for one, own in zip(components, charges):
        met = sorted(own, reverse=True)[: one.longest // each]
        # coefficients are off by rounding where they are not of one size
        widened = Fraction(1 + ROUNDING) if one.coefficients else 1
        top = max(top, sum(met, Fraction(0)) * one.reach * widened)
    top *= Fraction(law.rate)
    if max(map(len, charges)) == 1:
        return Largest(top, top, True, "the nodes of a network")
    because = " with a bound on the length of all circuits, none of which was listed"
    return Largest(0.0, top, False, "the longest cycle of a network", because=because)


def _charges(
    part: Any, entries: IntArray, components: list[Cycles], place: dict[int, int]
) -> dict[int, list[Fraction]] | None:
    """The gauges of a part per unit of reach, by the component that moves it; None for others."""
    found: dict[int, list[Fraction]] = {}
    if isinstance(part, AxesPart):
        for entry, end in zip(entries[part.rows].tolist(), part.ends):
            where = place.get(entry, -1)
            size = components[where].coefficients.get(entry, 1)
            found.setdefault(where, []).append(1 / (end * size))
    elif isinstance(part, ProductPart):
        for one in part.sums:
            own = frozenset(entries[one.rows].tolist())
            where = place.get(min(own), -1)
            if where < 0 or components[where].coefficients:
                return None
            if not any(own in side for side in components[where].sides):
                return None
            found[where] = [1 / part.width]
    else:
        return None
    return None if -1 in found else found
