"""What noise on margins at the nodes of a tree promises, in integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from affinedp.arrays import FloatArray
from affinedp.designs.structured.integer_noise import SHARE, stated_sensitivity
from affinedp.designs.structured.margin_blocks import Sets
from affinedp.designs.structured.margin_promise import UNIT_BITS, exact_square
from affinedp.domains.totals import Totals
from affinedp.laws.curves import GaussianCurve
from affinedp.laws.pure_curves import ThreeAtoms
from affinedp.neighbours.people import unit_of
from affinedp.privacy.guarantee import Guarantee

CrossNeighbours = Literal["person", "replace"]


def cross_square(
    tree: Totals,
    sizes: Sequence[int],
    blocks: Sets,
    t: FloatArray,
    y: FloatArray,
    neighbours: CrossNeighbours,
) -> Fraction:
    """Return the squared sensitivity exactly.

    A person is seen at all nodes of one path, G(∅) at each.  Who moves is seen on two branches, and
    at the shared nodes above them as far as attributes differ: 2 (G(∅) − min G) at each.

    Parameters
    ----------
    tree : Totals
        The places.
    sizes : sequence of int
        Values of every attribute.
    blocks, t : arrays
        Blocks of margins and their precisions.
    y : array
        Precisions of nodes, breadth first.
    neighbours : {"person", "replace"}
        Who is a neighbour.
    """
    weight = [math.ceil(Fraction(value) * (1 << UNIT_BITS)) for value in y.tolist()]
    alone = exact_square(sizes, blocks, t, "person")
    n, parent = tree.n, tree.parent.tolist()
    one, two = [0] * n, [-1] * n
    if neighbours == "person":
        for v in range(n - 1, 0, -1):
            one[parent[v]] = max(one[parent[v]], one[v] + weight[v])
        return Fraction(one[0] + weight[0]) * alone / (1 << UNIT_BITS)
    shared = exact_square(sizes, blocks, t, "replace")
    # over one denominator, so that all that follows is in whole numbers
    scale = math.lcm(alone.denominator, shared.denominator)
    apart, common = int(alone * scale), int(shared * scale)
    branches = [0] * n
    for v in range(n - 1, 0, -1):
        p, height = parent[v], max(one[v], 0) + weight[v]
        branches[p] += 1
        if branches[p] == 1 or height > one[p]:
            two[p] = one[p] if branches[p] > 1 else -1
            one[p] = height
        elif height > two[p]:
            two[p] = height
    best, above = 0, [0] * n
    for v in range(n):
        above[v] = weight[v] * common + (above[parent[v]] if v else 0)
        best = max(best, above[v])  # the same place, or both below v
        if two[v] >= 0:
            best = max(best, above[v] + (one[v] + two[v]) * apart)
    return Fraction(best, scale << UNIT_BITS)


def cross_guarantee(
    tree: Totals,
    sizes: Sequence[int],
    blocks: Sets,
    t: FloatArray,
    y: FloatArray,
    neighbours: CrossNeighbours,
    household: int,
) -> Guarantee:
    """Return what noise of precision ``y_v t_B`` promises, computed in integers.

    Parameters
    ----------
    tree : Totals
        The places.
    sizes : sequence of int
        Values of every attribute.
    blocks, t : arrays
        Blocks of margins and their precisions.
    y : array
        Precisions of nodes, breadth first.
    neighbours : {"person", "replace"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    """
    square = cross_square(tree, sizes, blocks, t, y, neighbours)
    root = math.isqrt(math.ceil(square * (1 << 2 * UNIT_BITS))) + 1
    exact = Fraction(root, 1 << UNIT_BITS) * household * (1 + SHARE)
    sensitivity = float(exact)
    if Fraction(sensitivity) < exact:
        sensitivity = math.nextafter(sensitivity, math.inf)
    return Guarantee(
        law="gaussian",
        sensitivity=sensitivity,
        exact=True,
        neighbours=place_words(neighbours, household),
        basis="Theorem 1 for white noise on residuals of margins at the nodes of a tree; all "
        "numbers are computed from what is published",
        curve=GaussianCurve(sensitivity),
        method="heaviest path or pair of branches, in integers",
        neighbours_key=_key(tree, sizes, neighbours, household),
        unit=unit_of(neighbours, household),
    )


def cell_guarantee(
    tree: Totals, sizes: Sequence[int], neighbours: CrossNeighbours, household: int, q: int
) -> Guarantee:
    """Return what Laplace noise on the cells of the leaves promises, in integers.

    Parameters
    ----------
    tree : Totals
        The places.
    sizes : sequence of int
        Values of every attribute.
    neighbours : {"person", "replace"}
        Who is a neighbour: one cell changes, or two.
    household : int
        How many people may join or move at once.
    q : int
        One over the scale, in units of 2⁻⁵⁶.
    """
    sensitivity = stated_sensitivity("laplace", q if neighbours == "person" else 2 * q, household)
    return Guarantee(
        law="laplace",
        sensitivity=sensitivity,
        exact=True,
        neighbours=place_words(neighbours, household),
        basis="Theorem 2 for independent whole Laplace noise on cells; all numbers are computed "
        "from what is published",
        curve=ThreeAtoms(sensitivity),
        method="one cell, or two, in integers",
        neighbours_key=_key(tree, sizes, neighbours, household),
        unit=unit_of(neighbours, household),
    )


def place_words(neighbours: CrossNeighbours, household: int) -> str:
    """Return who is a neighbour, in words.

    Parameters
    ----------
    neighbours : {"person", "replace"}
        The kind.
    household : int
        How many people may join or move at once.
    """
    who = "one person" if household == 1 else f"a household of up to {household} people, each"
    if neighbours == "person":
        return f"{who} more or less, in one cell of the table of one place; all totals follow"
    return (
        f"{who} counted in another cell or another place; the number of people is public and the "
        "same in both"
    )


def _key(tree: Totals, sizes: Sequence[int], neighbours: str, household: int) -> str:
    shape = ",".join(map(str, sizes))
    return f"tree × margins {neighbours} {household} {shape} {tree.key}"
