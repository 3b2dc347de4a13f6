"""What noise on a tree promises: the heaviest path or pair of branches, in integers."""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.structured.integer_noise import Integers, stated_sensitivity
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals, TreeNeighbours
from affinedp.errors import AffineDPError
from affinedp.laws.curves import Curve, GaussianCurve, LaplaceCurve
from affinedp.laws.named import LawName
from affinedp.laws.pure_curves import ThreeAtoms
from affinedp.neighbours.people import unit_of
from affinedp.privacy.guarantee import Guarantee

BASIS = {
    "gaussian": "Theorem 1 for independent Gaussian noise on the numbers of a tree",
    "laplace": "Theorem 2 for independent Laplace noise on the numbers of a tree",
}


def squared_sensitivity(tree: Totals, neighbours: TreeNeighbours, y: FloatArray) -> float:
    """Return the heaviest sum of y that one move meets, in doubles.

    Parameters
    ----------
    tree : Totals
        The numbers.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    y : array
        Precisions (Gaussian: the squared sensitivity), or one over the scales (Laplace: ε).
    """
    path, pair = passes.heaviest(tree.parent, tree.known, y, neighbours == "circuits")
    return float(max(path, pair))


def heaviest_move(
    tree: Totals, neighbours: TreeNeighbours, weight: list[int]
) -> tuple[int, tuple[int, ...]]:
    """Return the heaviest sum that one move meets, in integers, and the cells that it changes.

    Parameters
    ----------
    tree : Totals
        The numbers.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    weight : list of int
        What every node weighs.
    """
    n = tree.n
    parent, known = tree.parent.tolist(), tree.known.tolist()
    class_known = tree.known[tree.component].tolist()
    pairs = neighbours == "circuits"
    one, two = [-1] * n, [-1] * n  # -1: no branch, which is not a branch of weight 0
    to_one, to_two = [-1] * n, [-1] * n
    cell = list(range(n))
    best = 0
    moved: tuple[int, ...] = (0,)
    for v in range(n - 1, -1, -1):
        if two[v] >= 0 and (pairs or class_known[v]) and one[v] + two[v] > best:
            best, moved = one[v] + two[v], (to_one[v], to_two[v])
        if known[v]:
            continue
        height = weight[v] + max(one[v], 0)
        if to_one[v] >= 0:
            cell[v] = to_one[v]
        p = parent[v]
        if p < 0:
            if height > best:
                best, moved = height, (cell[v],)
        elif height > one[p]:
            two[p], to_two[p] = one[p], to_one[p]
            one[p], to_one[p] = height, cell[v]
        elif height > two[p]:
            two[p], to_two[p] = height, cell[v]
    return best, moved


def changed_numbers(tree: Totals, neighbours: TreeNeighbours) -> int:
    """Return how many private numbers one move can change.

    Parameters
    ----------
    tree : Totals
        The numbers.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    """
    return round(squared_sensitivity(tree, neighbours, np.where(tree.known, 0.0, 1.0)))


def tree_guarantee(
    tree: Totals,
    neighbours: TreeNeighbours,
    household: int,
    law: LawName,
    q: Integers,
    names: tuple[str, ...] | None = None,
) -> Guarantee:
    """Return what noise of scales 2^k / q promises, computed in integers.

    Parameters
    ----------
    tree : Totals
        The numbers.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    law : {"gaussian", "laplace"}
        Law of the noise.
    q : array of int
        Breadth first; 0 where nothing is measured.
    names : tuple of str, optional
        Of the nodes, in the given order.
    """
    if q.shape != (tree.n,) or (q < 0).any() or q[tree.known].any():
        raise AffineDPError("q must be one whole number per node, and 0 where a node is public")
    if not (q[tree.leaf & ~tree.known] > 0).all():
        raise AffineDPError("every leaf cell needs noise of its own")
    weight = q.tolist()
    if law == "gaussian":
        weight = [value * value for value in weight]
    best, cells = heaviest_move(tree, neighbours, weight)
    sensitivity = stated_sensitivity(law, best, household)
    curve: Curve = GaussianCurve(sensitivity) if law == "gaussian" else LaplaceCurve(sensitivity)
    if drawn_whole(tree, law, q):
        # as a curve, whole noise is worse than noise on the line: at worst randomised response
        curve = ThreeAtoms(sensitivity)
    direction = None
    if names is not None:
        direction = np.zeros(tree.n)
        for sign, cell in zip((household, -household), cells):
            while cell >= 0:
                direction[tree.order[cell]] += sign
                cell = int(tree.parent[cell])
    return Guarantee(
        law=law,
        sensitivity=sensitivity,
        exact=True,
        neighbours=neighbour_words(tree, neighbours, household),
        basis=BASIS[law] + "; the estimates are computed from what is published",
        curve=curve,
        worst_direction=direction,
        names=names or (),
        output_names=names or (),
        method="heaviest path in integers" if len(cells) == 1 else "heaviest branches in integers",
        neighbours_key=f"tree {neighbours} {household} {tree.key}",
        unit=unit_of(_kind(tree, neighbours), household),
    )


def drawn_whole(tree: Totals, law: LawName, q: Integers) -> bool:
    """Return whether the cells alone get noise, Laplace of one scale: it is drawn whole, and less.

    Parameters
    ----------
    tree : Totals
        The numbers.
    law : {"gaussian", "laplace"}
        Law of the noise.
    q : array of int
        Breadth first; 0 where nothing is measured.
    """
    if law != "laplace" or tree.known.any():
        return False
    return bool(((q > 0) == tree.leaf).all()) and len(np.unique(q[tree.leaf])) == 1


def _kind(tree: Totals, neighbours: TreeNeighbours) -> str:
    """Who really moves: where totals are public, nobody joins or leaves below them."""
    if tree.known[0]:
        return "replace"
    return "public" if tree.known.any() else neighbours


def neighbour_words(tree: Totals, neighbours: TreeNeighbours, household: int) -> str:
    """Return who counts as a neighbour.

    Parameters
    ----------
    tree : Totals
        The numbers.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    """
    who = "one person" if household == 1 else f"a household of up to {household} people"
    counted = "in one cell of the table" if household == 1 else "each in one cell of the table"
    moves = f"{who} counted in another cell"
    if tree.known[0]:
        text = f"{moves}; the number of people is public and the same in both"
    elif neighbours == "circuits":
        text = f"{who} more or less, {counted}, or {moves} (Definition 4 on one tree of totals)"
    else:
        text = f"{who} more or less, {counted}; all totals above it follow"
    public = int(tree.known.sum()) - int(tree.known[0])
    if public:
        text += (
            f"; {public:,} numbers are public, and below a public total people only move between "
            "the cells under it (exchanges between two public totals are not covered)"
        )
    return text


def household_limit(law: LawName, sensitivity: float, household: int) -> float:
    """Return what one person's move may weigh in doubles: s²/m² or ε/m.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the noise.
    sensitivity : float
        For the whole household.
    household : int
        How many people.
    """
    one = sensitivity / household
    return math.pow(one, 2) if law == "gaussian" else one
