"""From a description to the least noise for tables of one shape."""

from __future__ import annotations

from typing import Any

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.promise.asked import Asked
from affinedp.promise.guarantee import Guarantee
from affinedp.tables.description import TableDescription
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.least_noise import table_noise
from affinedp.tables.multiples import multiples_of
from affinedp.tables.neighbours import manifold_of, neighbours_of
from affinedp.tables.promise import table_guarantee
from affinedp.tables.tree_tables import design_tree_table, tree_guarantee, tree_parents


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
    weights = layout.weights(description.weights)
    parent = tree_parents(description, layout)
    if parent is not None:
        return _tree_design(description, layout, parent, weights)
    manifold = manifold_of(layout)
    who = neighbours_of(description, layout, manifold)
    releases = len(table) if description.row_mode == "composed" else 1
    least = table_noise(description, layout, who.adjacency, weights, releases)
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


def _tree_design(
    description: TableDescription, layout: Layout, parent: IntArray, weights: FloatArray | None
) -> DesignedNoise:
    """The design of a table that is one tree of totals, in linear time."""
    mechanism, compared = design_tree_table(description, layout, parent, weights)
    guarantee = tree_guarantee(description, mechanism)
    guarantee = _kept(guarantee, description)
    words = guarantee.neighbours
    return DesignedNoise(description, layout, mechanism, guarantee, 1, None, words, compared)


def _kept(guarantee: Guarantee, description: TableDescription) -> Guarantee:
    """The guarantee, which remembers what was asked for and keeps it."""
    if not guarantee.holds(description.epsilon, description.delta):
        raise AffineDPError("the noise could not be scaled to the promise: choose a larger δ or ε")
    return guarantee.asked_for(Asked(float(description.epsilon), float(description.delta)))
