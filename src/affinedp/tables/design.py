"""From a description to the least noise for tables of one shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from affinedp.arrays import FloatArray, IntArray
from affinedp.designs.tree import tree_noise_for_targets
from affinedp.designs.tree_bound import PoorDesignError
from affinedp.errors import AffineDPError
from affinedp.laws.curves import GaussianCurve
from affinedp.privacy.asked import Asked
from affinedp.privacy.guarantee import Guarantee
from affinedp.tables.description import TableDescription
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.least_noise import table_noise
from affinedp.tables.multiples import multiples_of
from affinedp.tables.neighbours import manifold_of, neighbours_of
from affinedp.tables.never_worse import Compared
from affinedp.tables.promise import table_guarantee
from affinedp.tables.refusals import TableError, closest
from affinedp.tables.tree_tables import (
    amount,
    design_tree_table,
    parents_of,
    people_of,
    tree_parents,
)

# Numbers up to which noise for a deep chain of totals is designed with matrices.
MOST_DENSE = 700


def design_table(description: TableDescription, table: Any) -> DesignedNoise:
    """Design the noise for a table; see :meth:`TableRelease.design`.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    table : DataFrame
        Its names, labels and size are used.
    """
    layout = layout_of(description, table)
    weights = layout.weights(description.weights, description.mu)
    parent = tree_parents(description, layout)
    if parent is not None:
        try:
            return _tree_design(description, layout, parent, weights)
        except PoorDesignError as error:
            # a deep chain: noise on sums along it is designed as a whole where it is small enough
            if len(layout.private) > MOST_DENSE:
                raise _too_deep(error, len(layout.private)) from None
    manifold = manifold_of(layout)
    who = neighbours_of(description, layout, manifold)
    releases = len(table) if description.row_mode == "composed" else 1
    planned = releases * description.releases
    least = table_noise(description, layout, who.adjacency, weights, planned)
    mechanism = least.mechanism
    multiples = None
    if description.round_to is not None:
        multiples = multiples_of(description.round_to, layout)
    guarantee = table_guarantee(description, layout, mechanism, releases, who)
    guarantee = _kept(guarantee, description)
    found = DesignedNoise(
        description, layout, mechanism, guarantee, releases, multiples, who.words, least.compared
    )
    if multiples is not None:
        multiples.refuse_too_much_noise(found.deviations, layout)
    return found


def design_for_targets(
    description: TableDescription, table: Any, targets: Mapping[Any, float]
) -> DesignedNoise:
    """Design with the least budget; see :meth:`TableRelease.design_for`.

    Parameters
    ----------
    description : TableDescription
        What was said about the table; its ε is not used.
    table : DataFrame
        Its names, labels and size are used.
    targets : mapping
        Root mean square noise by level.
    """
    layout = layout_of(description, table)
    parent = parents_of(layout)
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
    people = people_of(description, layout, parent)
    mechanism = tree_noise_for_targets(people, targets=asked, delta=description.delta)
    # the budget of all releases: squares of sensitivities add up
    together = mechanism.guarantee.sensitivity * math.sqrt(description.releases) * (1 + 2e-15)
    epsilon = GaussianCurve(together).epsilon(description.delta)
    met = replace(description, epsilon=epsilon, law="gaussian")
    guarantee = _kept(mechanism.guarantee, met)
    return DesignedNoise(met, layout, mechanism, guarantee, 1, None, guarantee.neighbours, ())


def _too_deep(error: PoorDesignError, numbers: int) -> TableError:
    return TableError(
        f"totals within totals are {numbers:,} numbers deep and long here: noise on each of them "
        f"is {error.gap:.0%} above what Gaussian noise could do, and other noise is designed for "
        f"up to {MOST_DENSE} numbers only. Leave out some of the totals (they are sums of those "
        "that are published), or publish the table in parts with TableRelease.together"
    )


def _tree_design(
    description: TableDescription, layout: Layout, parent: IntArray, weights: FloatArray | None
) -> DesignedNoise:
    """The design of a table that is one tree of totals, in linear time."""
    mechanism = design_tree_table(description, layout, parent, weights)
    compared = tuple(Compared(o.reason, o.law, o.error) for o in mechanism.alternatives)
    guarantee = _kept(mechanism.guarantee, description)
    words = guarantee.neighbours
    return DesignedNoise(description, layout, mechanism, guarantee, 1, None, words, compared)


def _kept(guarantee: Guarantee, description: TableDescription) -> Guarantee:
    """The guarantee, which remembers what was asked for and keeps it."""
    if not guarantee.holds(description.epsilon, description.delta):
        raise AffineDPError("the noise could not be scaled to the promise: choose a larger δ or ε")
    epsilon, delta = float(description.epsilon), float(description.delta)
    return guarantee.asked_for(Asked(epsilon, delta, description.releases))
