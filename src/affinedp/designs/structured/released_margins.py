"""What was published of margins, in one place or at the nodes of a tree: noisy residuals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.designs.structured.contrasts import residual
from affinedp.designs.structured.margin_blocks import members, subsets
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError


@dataclass(frozen=True, eq=False)
class ReleasedMargins:
    """Noisy residuals, of which every margin is put together: margins agree with each other.

    Attributes
    ----------
    sizes : tuple of int
        Values of every attribute.
    residuals : mapping
        From a set of attributes, as bits, to its residual; exact where it is public.
    whole : bool
        Whether every estimate is a whole number, but for rounding of doubles.
    """

    sizes: tuple[int, ...]
    residuals: Mapping[int, FloatArray] = field(repr=False)
    whole: bool = False

    def margin(self, attributes: Iterable[int]) -> FloatArray:
        """Return the estimate of one margin: unbiased, and consistent with all others.

        Parameters
        ----------
        attributes : iterable of int
            Which, in rising order; the margin has one axis for each.
        """
        chosen = tuple(attributes)
        A = sum(1 << j for j in set(chosen))
        if list(chosen) != sorted(set(chosen)):
            raise AffineDPError(f"attributes must be different and in rising order: {chosen}")
        missing = [members(B) for B in subsets(A) if B not in self.residuals]
        if missing:
            raise AffineDPError(f"the margin {chosen} was not released")
        out = np.zeros([self.sizes[j] for j in chosen])
        for B in subsets(A):
            shape = [self.sizes[j] if B >> j & 1 else 1 for j in chosen]
            spread = math.prod(self.sizes[j] for j in members(A & ~B))
            out = out + np.reshape(self.residuals[B], shape) / spread
        return np.rint(out) if self.whole else out


@dataclass(frozen=True, eq=False)
class ReleasedTreeMargins:
    """Noisy coordinates of residuals at every node, of which margins are put together.

    Attributes
    ----------
    tree : Totals
        The places.
    sizes : tuple of int
        Values of every attribute.
    coordinates : mapping
        From a set of attributes, as bits, to contrasts at the nodes, breadth first.
    whole : bool
        Whether every estimate is a whole number, but for rounding of doubles.
    """

    tree: Totals = field(repr=False)
    sizes: tuple[int, ...]
    coordinates: Mapping[int, FloatArray] = field(repr=False)
    whole: bool = False

    def margin(self, attributes: Iterable[int], nodes: ArrayLike | None = None) -> FloatArray:
        """Return the estimates of one margin: they add up over places and over attributes.

        Parameters
        ----------
        attributes : iterable of int
            Which, in rising order.
        nodes : array of int, optional
            The nodes that are wanted; all by default.

        Returns
        -------
        array, shape (nodes, n_j, …)
        """
        chosen = tuple(attributes)
        A = sum(1 << j for j in set(chosen))
        if list(chosen) != sorted(set(chosen)):
            raise AffineDPError(f"attributes must be different and in rising order: {chosen}")
        if any(B not in self.coordinates for B in subsets(A)):
            raise AffineDPError(f"the margin {chosen} was not released")
        place = np.empty(self.tree.n, np.int64)
        place[self.tree.order] = np.arange(self.tree.n)
        rows = place if nodes is None else place[np.asarray(nodes)]
        out = np.zeros((len(rows), *(self.sizes[j] for j in chosen)))
        for B in subsets(A):
            sides = tuple(self.sizes[j] - 1 for j in members(B))
            part = residual(self.coordinates[B][rows].reshape(-1, *sides), first=1)
            shape = [self.sizes[j] if B >> j & 1 else 1 for j in chosen]
            out += part.reshape(-1, *shape) / math.prod(self.sizes[j] for j in members(A & ~B))
        return np.rint(out) if self.whole else out
