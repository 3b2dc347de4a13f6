"""Noise of bodies on the lattice Z^r, exactly: cones over facets, stairs and axes.

From a cone: a point of its unit box and geometric steps; docs/explanation/knorm-draws.md has
the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import IntArray
from affinedp.laws.polytope import LatticeCones, inverses, leading
from affinedp.laws.sampler.coins import (
    NARROW,
    ExponentialChoice,
    Geometric,
    below,
    exp_threshold,
    narrowed,
    uniform_below,
)
from affinedp.laws.sampler.noise import IntegerNoise
from affinedp.laws.sampler.words import SYSTEM, LongWords, Random, Source, system_bytes
from affinedp.parts import Locked

# What is computed of e^(−y) in double precision is right to a thousandth of this.
DOUBT = 1e-9


class ConeNoise(Locked):
    """Independent vectors z of whole numbers with P(z) ∝ exp(−rate ‖z‖_K).

    The law is exact over all of Z^r, for cones of any determinant.  Nothing is
    kept from one call to the next.  How long a draw takes depends on what is
    drawn, so noise is drawn before data is read.
    """

    def __init__(self, cones: LatticeCones, rate: Fraction) -> None:
        self._dimension = cones.dimension
        self._step = rate * cones.unit
        self._geometric = Geometric(self._step)
        self._generators, self._determinants = cones.generators, cones.determinants
        self._adjoints, self._is_open, self._group = cones.adjoints, cones.is_open, cones.group
        if self._group is not None:
            self._inverses = inverses(self._group)
        self._listed = cones.listed is not None
        if cones.listed is not None:
            place = {id(cone): i for i, cone in enumerate(cones.cones)}
            groups = list(cones.listed.values())
            self._counts = np.array([len(group) for group in groups])
            self._starts = self._counts.cumsum() - self._counts
            self._cones = np.array([place[id(cone)] for group in groups for cone, _ in group])
            self._points = narrowed([point for group in groups for _, point in group])
            exponents = [self._step * total for total in cones.listed]
            self._choice = ExponentialChoice(self._counts.tolist(), exponents)
        else:
            sizes = (cones.determinants.astype(object) * cones.counts).tolist()
            self._choice = ExponentialChoice(sizes, [Fraction(0)] * len(sizes))

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return vectors as rows, Python integers in an object array of shape (count, r)."""
        parts: list[NDArray[Any]] = [np.zeros((0, self._dimension), dtype=object)]
        while missing := count - sum(map(len, parts)):
            parts.append(self._draw(missing, source))
        return np.concatenate(parts)

    def _draw(self, count: int, source: Source) -> NDArray[Any]:
        """So many vectors; of a group fewer, where some lie on a side that another cone has."""
        size, random = self._dimension, Random(source)
        steps = self._geometric.draw_narrow(count * size, source).reshape(count, size)
        cone, point = self._box_points(count, random)
        whole, generators = self._determinants[cone], self._generators[cone]
        longest = _largest(whole) * (_largest(steps) + 1)
        if longest * _largest(generators) * size >> NARROW:
            steps, point, whole = (part.astype(object) for part in (steps, point, whole))
        lengths = point + whole[:, None] * steps
        total = (lengths[:, :, None] * generators).sum(axis=1)
        drawn = total // whole[:, None]  # exactly: a lattice point
        if self._group is None:
            return np.asarray(drawn, dtype=object)
        turn = uniform_below(np.full(count, len(self._group)), random)
        edge = np.flatnonzero((lengths == 0).any(axis=1))  # hardly any, on a fine grid
        sides = leading(_product(self._adjoints[cone[edge]], self._inverses[turn[edge]]))
        kept = np.ones(count, dtype=bool)
        kept[edge] = ((sides > 0) | (lengths[edge] > 0)).all(axis=1)
        turned = _product(self._group[turn], drawn[:, :, None])[:, :, 0]
        return np.asarray(turned[kept], dtype=object)

    def _box_points(self, count: int, random: Random) -> tuple[IntArray, NDArray[Any]]:
        """Cones and determinant × λ, with probability ∝ e^(−rate Σ λ)."""
        if self._listed:
            group = self._choice.draw_many(count, random)
            chosen = self._starts[group] + uniform_below(self._counts[group], random)
            return self._cones[chosen], self._points[chosen]
        cones, points = np.zeros(0, dtype=np.intp), np.zeros((0, self._dimension), dtype=np.int64)
        while len(cones) < count:
            cone, point = self._proposed(count - len(cones), random)
            kept = self._accepted(cone, point, random.long_words(len(cone)), random)
            cones, points = np.append(cones, cone[kept]), np.vstack([points, point[kept]])
        return cones, points

    def _proposed(self, count: int, random: Random) -> tuple[IntArray, NDArray[Any]]:
        """Cones and uniform points of their unit boxes."""
        cone = self._choice.draw_many(count, random)
        adjoint, size = self._adjoints[cone], self._determinants[cone]
        # multiples of the determinant are in the lattice that the generators span: any coset of it
        # has as many points of [0, determinant)^r as another
        limits = np.repeat(size, self._dimension)
        coset = uniform_below(limits, random).reshape(-1, self._dimension)
        if _largest(adjoint) * _largest(size) * self._dimension >> NARROW:
            adjoint, size = adjoint.astype(object), size.astype(object)
        inside = (adjoint * coset[:, None, :]).sum(axis=2) % size[:, None]
        at_end = self._is_open[cone] & (inside == 0)
        return cone, np.where(at_end, size[:, None], inside)

    def _accepted(
        self, cone: IntArray, point: NDArray[Any], words: LongWords, random: Random = SYSTEM
    ) -> NDArray[np.bool_]:
        """Coins of probability e^(−rate Σ λ), from their first words."""
        if _largest(point) * self._dimension >> NARROW:
            point = point.astype(object)
        sums, sizes = point.sum(axis=1), self._determinants[cone]
        share = np.exp(-float(self._step) * (sums / sizes).astype(np.float64))
        # y is right to a few parts in 2^53, and y e^(−y) < 1: so is e^(−y), absolutely
        low = np.maximum(share * (1 - DOUBT) - DOUBT, 0.0)
        high = np.minimum(share * (1 + DOUBT) + DOUBT, 1.0)
        found: NDArray[np.bool_] = words < (low * 2.0**53).astype(np.uint64) << np.uint64(11)
        above = words.astype(np.float64) * 2.0**-64 > high
        for i in np.flatnonzero(~found & ~above).tolist():
            y = self._step * Fraction(int(sums[i]), int(sizes[i]))
            found[i] = below(exp_threshold(y), random.bits, int(words[i]))
        return found


def _product(matrices: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Products of matrices, one by one and exactly."""
    if _largest(matrices) * _largest(others) * matrices.shape[-1] >> NARROW:
        matrices = matrices.astype(object)
    return np.asarray(matrices @ others)


def _largest(numbers: NDArray[Any]) -> int:
    return int(max(abs(numbers.min()), abs(numbers.max()))) if numbers.size else 0


# ---------------------------------------------------------------------- independent coordinates


class StairsNoise(Locked):
    """Independent whole numbers whose probability falls by e^(−rate) every ``width``.

    |z| = k · width + j has the weight e^(−rate k) for j < first, and e^(−rate (k + 1)) for the
    other j < width.  The law is exact.
    """

    def __init__(self, widths: Sequence[int], firsts: Sequence[int], rate: Fraction) -> None:
        self._steps = list(zip(widths, firsts))
        self._down = Geometric(rate)
        self._part = {
            (width, first): ExponentialChoice([first, width - first], [Fraction(0), rate])
            for width, first in self._steps
            if first < width
        }

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return vectors as rows, Python integers in an object array of shape (count, r)."""
        drawn: NDArray[Any] = np.empty((count, len(self._steps)), dtype=object)
        places: dict[tuple[int, int], list[int]] = {}
        for i, step in enumerate(self._steps):
            places.setdefault(step, []).append(i)
        for (width, first), own in places.items():
            numbers = self._numbers(count * len(own), width, first, source)
            drawn[:, own] = numbers.reshape(count, len(own))
        return drawn

    def _numbers(self, count: int, width: int, first: int, source: Source) -> NDArray[Any]:
        parts: list[NDArray[Any]] = [np.zeros(0, dtype=np.int64)]
        missing, random = count, Random(source)
        while missing:
            down = self._down.draw_narrow(missing, source)
            low = np.zeros(missing, dtype=np.intp)
            if first < width:
                low = self._part[width, first].draw_many(missing, random)
            inside = narrowed([0, first])[low]
            inside = inside + uniform_below(narrowed([first, width - first or 1])[low], random)
            negative = random.long_words(missing) & np.uint64(1) == 1
            parts.append(signed(down, inside, negative, width))
            missing -= len(parts[-1])
        return np.concatenate(parts)


def signed(
    down: NDArray[Any], inside: NDArray[Any], negative: NDArray[np.bool_], width: int
) -> NDArray[Any]:
    """Return ± (down · width + inside); 0 has one sign only, and who would be −0 is left out."""
    if (int(down.max(initial=0)) + 1) * width >> NARROW:
        down = down.astype(object)
    far = down * width + inside
    return np.asarray(np.where(negative, -far, far)[~negative | (far != 0)])


class AxesNoise(Locked):
    """Independent vectors z of whole numbers with P(z) ∝ exp(−Σ |z_i| / scale_i).

    Examples
    --------
    >>> AxesNoise([Fraction(1), Fraction(1), Fraction(7, 2)]).draw(5).shape
    (5, 3)
    """

    def __init__(self, scales: Sequence[Fraction]) -> None:
        places: dict[Fraction, list[int]] = {}
        for i, scale in enumerate(scales):
            places.setdefault(scale, []).append(i)
        self._dimension = len(scales)
        self._noises = [(own, IntegerNoise("laplace", scale)) for scale, own in places.items()]

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return vectors as rows, Python integers in an object array of shape (count, r)."""
        drawn: NDArray[Any] = np.empty((count, self._dimension), dtype=object)
        for places, noise in self._noises:
            drawn[:, places] = noise.draw((count, len(places)), source)
        return drawn
