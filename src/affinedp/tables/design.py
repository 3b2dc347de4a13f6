"""From a description to the least noise for tables of one shape.

A large table that is one tree of totals, and one whose numbers are to be at least 0, is designed in
time that grows with its size, by :mod:`affinedp.designs.tree`: it counts people, in whole numbers.
So is a large tree of rows that split one total column, by :mod:`affinedp.designs.places`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, one_thread, within_range
from affinedp.designs.places import tree_margins_noise
from affinedp.designs.tree import tree_noise, tree_noise_for_targets
from affinedp.designs.tree_bound import PoorDesignError
from affinedp.domains.crossed import Crossed, Placed
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.laws.curves import GaussianCurve
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.people import People
from affinedp.privacy.design import Alternative
from affinedp.privacy.guarantee import Asked, Guarantee
from affinedp.tables.describe import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.least_noise import table_noise
from affinedp.tables.noise import DesignedNoise, impossible_words, table_guarantee
from affinedp.tables.people import manifold_of, neighbours_of
from affinedp.tables.refusals import TableError, closest
from affinedp.tables.split import parents_of, split_of, sums_of
from affinedp.tables.whole_numbers import multiples_of

# Numbers up to which a hierarchy is designed move by move, for any numbers.
FEW = 150
# A certified excess that is not worth another design.
SMALL = 1e-3
# Where people move, Gaussian noise on a split tree may be off by a part of this; and numbers up to
# which other bodies of noise are looked at.
NEAR = 1.1
TINY = 40
# Where a person counts for more than 1, numbers may be decimals; beyond this size they are whole.
MANY = 1000
# Numbers up to which noise for a deep chain of totals is designed with matrices.
MOST_DENSE = 700


@within_range
@one_thread()
def design_table(description: TableDescription, layout: Layout, rows: int) -> DesignedNoise:
    """Design the noise for a table of so many rows; see :meth:`TableRelease.design`."""
    weights = layout.weights(description.weights, description.mu)
    parent = tree_of(layout) if _goes_as_tree(description, layout) else None
    if parent is not None:
        try:
            return _tree_design(description, layout, parent, weights)
        except PoorDesignError as error:
            # a deep chain: noise on sums along it is designed as a whole where it is small enough
            if len(layout.private) > MOST_DENSE:
                raise _too_deep(error, len(layout.private)) from None
    structured = _split_design(description, layout, weights)
    if structured is not None and (_settled(structured) or len(layout.private) > FEW):
        return structured
    listed = _listed_design(description, layout, weights, rows)
    if structured is None or listed.weighted_error <= structured.weighted_error:
        return listed
    return structured


def _listed_design(
    description: TableDescription, layout: Layout, weights: FloatArray | None, rows: int
) -> DesignedNoise:
    """The design that lists what neighbours differ by."""
    who = neighbours_of(description, layout, manifold_of(layout))
    releases = rows if description.row_mode == "composed" else 1
    planned = releases * description.releases
    mechanism, compared = table_noise(description, layout, who.adjacency, weights, planned)
    step = description.round_to
    multiples = None if step is None else multiples_of(step, layout)
    guarantee = table_guarantee(description, layout, mechanism, releases, who)
    found = DesignedNoise(
        description, layout, mechanism, _kept(guarantee, description), releases, multiples,
        who.words, compared,
    )  # fmt: skip
    if multiples is not None:
        multiples.refuse_too_much_noise(found.deviations, layout)
    return found


@within_range
@one_thread()
def design_for_targets(
    description: TableDescription, layout: Layout, targets: Mapping[Any, float]
) -> DesignedNoise:
    """Design with the least budget; see :meth:`TableRelease.design_for`."""
    parent = tree_of(layout)
    if parent is None or layout.row_names is None or amount(description) is None:
        raise TableError("accuracy targets are for tables that are one tree of totals of counts")
    if not description.delta > 0:
        raise TableError("accuracy targets are met with Gaussian noise: give a delta above 0")
    names = ["grand total"]
    if description.hierarchy is not None and not isinstance(description.hierarchy, str):
        names += description.hierarchy
    asked = {}
    for name, value in targets.items():
        if name not in names and not isinstance(name, int):
            raise TableError(f"there is no level {name!r}{closest(str(name), names)}")
        asked[names.index(name) if name in names else name] = value
    people = _people_of(description, layout, parent)
    mechanism = tree_noise_for_targets(people, targets=asked, delta=description.delta)
    # the budget of all releases: squares of sensitivities add up
    together = mechanism.guarantee.sensitivity * math.sqrt(description.releases) * (1 + 2e-15)
    epsilon = GaussianCurve(together).epsilon(description.delta)
    met = replace(description, epsilon=epsilon, law="gaussian")
    return _of_people(met, layout, mechanism, mechanism.guarantee.neighbours)


def _counts_people(description: TableDescription, layout: Layout) -> bool:
    """Whether a table is one data set in whole numbers of people; only public things decide."""
    size = amount(description)
    if layout.row_names is None or description.adjacency == "swaps" or description.cells:
        return False
    if size is None or not description.epsilon or description.round_to not in (None, 1):
        return False
    return size == 1 or len(layout.private) > MANY  # a smaller one may hold decimals


def _goes_as_tree(description: TableDescription, layout: Layout) -> bool:
    """Whether a table goes the way of trees if it is one."""
    many = len(layout.private) > FEW or description.nonnegative
    return many and _counts_people(description, layout)


def amount(description: TableDescription) -> int | None:
    """Return what a person counts for at most, if that is one whole number.

    A person who brings or moves up to μ is like μ people who do the same.
    """
    if isinstance(description.mu, Mapping):
        return None
    size = float(description.mu)
    return int(size) if size >= 1 and size == int(size) else None


def tree_of(layout: Layout) -> IntArray | None:
    """Return the parent of every number, −1 at the top; None if it is not one tree of totals."""
    sums = sums_of(layout)
    return None if sums is None else parents_of(sums, layout.cells)


def _people_of(description: TableDescription, layout: Layout, parent: IntArray) -> People:
    """The people whom a promise about a tree of totals is about."""
    move: Any = description.adjacency
    public = ~layout.is_private
    names = tuple(layout.name(entry) for entry in range(len(parent)))
    tree = Totals.of(parent, public if public.any() else None, move, names)
    return People(tree, move, description.household, description.at_most, amount(description) or 1)


def _tree_design(
    description: TableDescription, layout: Layout, parent: IntArray, weights: FloatArray | None
) -> DesignedNoise:
    """The design of a table that is one tree of totals."""
    cost = np.zeros(len(parent))
    cost[layout.private] = 1.0 if weights is None else weights
    mechanism = tree_noise(
        _people_of(description, layout, parent), epsilon=description.epsilon,
        delta=description.delta, weights=cost, law=description.law or "auto",
        releases=description.releases,
    )  # fmt: skip
    words = mechanism.guarantee.neighbours
    return _of_people(description, layout, mechanism, words, mechanism.alternatives)


def _of_people(
    description: TableDescription,
    layout: Layout,
    mechanism: Mechanism,
    words: str,
    compared: tuple[Alternative, ...] = (),
) -> DesignedNoise:
    """The design of a table of counts, with these words for its neighbours."""
    words += impossible_words(layout)
    guarantee = replace(_kept(mechanism.guarantee, description), neighbours=words)
    return DesignedNoise(description, layout, mechanism, guarantee, move=words, compared=compared)


def _split_design(
    description: TableDescription, layout: Layout, weights: FloatArray | None
) -> DesignedNoise | None:
    """The design of a table that is a tree of rows, each of which splits one total."""
    move: Any = description.adjacency
    whole = description.counts or (len(layout.private) > MANY and description.whole is not False)
    if move not in ("person", "replace") or not whole or not _counts_people(description, layout):
        return None
    split = split_of(layout)
    shares = None if split is None else split.weights(weights)
    if split is None or shares is None:
        return None
    tree = Totals.of(split.parent)
    # small cross-tabulations, and weights of their own, have all their moves listed
    if len(layout.private) <= FEW and not (shares.exact and tree.depth.max() > 1):
        return None
    domain = Placed(tree, Crossed((len(split.parts),)), move == "replace")
    size = amount(description) or 1
    mechanism = tree_margins_noise(
        People(domain, move, description.household, description.at_most, size),
        epsilon=description.epsilon, delta=description.delta, node_weights=shares.rows,
        margin_weights=shares.columns, law=description.law or "auto",
        releases=description.releases,
    )  # fmt: skip
    words = mechanism.guarantee.neighbours.replace(domain.table, "the table")  # of places
    compared = mechanism.alternatives if shares.exact else ()
    return _of_people(description, layout, mechanism, words, compared)


def _settled(structured: DesignedNoise) -> bool:
    """Whether no other design of a small table of this kind has less noise, or hardly less."""
    mechanism = structured.mechanism
    if structured.description.adjacency == "replace":
        gaussian = [one.error for one in structured.compared if one.law == Gaussian.words]
        near = min(gaussian, default=math.inf) <= NEAR * structured.weighted_error
        return not near and len(structured.layout.private) > TINY
    return mechanism.law != "gaussian" or (mechanism.gap is not None and mechanism.gap <= SMALL)


def _too_deep(error: PoorDesignError, numbers: int) -> TableError:
    return TableError(
        f"totals within totals are {numbers:,} numbers deep and long here: noise on each of them "
        f"is {error.gap:.0%} above what Gaussian noise could do, and other noise is designed for "
        f"up to {MOST_DENSE} numbers only. Leave out some of the totals (they are sums of those "
        "that are published), or publish the table in parts with TableRelease.together"
    )


def _kept(guarantee: Guarantee, description: TableDescription) -> Guarantee:
    """The guarantee, which remembers what was asked for and keeps it."""
    if not guarantee.holds(description.epsilon, description.delta):
        raise AffineDPError("the noise could not be scaled to the promise: choose a larger δ or ε")
    epsilon, delta = float(description.epsilon), float(description.delta)
    return guarantee.asked_for(Asked(epsilon, delta, description.releases))
