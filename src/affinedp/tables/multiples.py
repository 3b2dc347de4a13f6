"""Multiples of a number that obey the equations, next to a point that does.

What is rounded is already published, and everything else here is public, so this is
post-processing: the promise does not change.  Rounding every number by itself would break the
totals; here the nearest plane (Babai 1986) of the integer kernel lattice is taken instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.exact.lattice import Integers, Lattice, kernel_lattice
from affinedp.tables.layout import Layout
from affinedp.tables.refusals import TableError

# Larger multiples than this are not exact in doubles: they are found in whole numbers of any size.
MOST_STEPS = 2.0**50
# Sums of whole numbers below this are exact in doubles.
EXACT = 2.0**53
# Noise beyond this many standard deviations does not happen.
FAR = 1e3
# Each pass leaves 10⁻¹⁰ or less of a large number, so a few are enough for any double.
PASSES = 50
# What 64-bit integers hold, with room for the numbers themselves, which stay below 2^53.
MOST_WHOLE = 2.0**62


@dataclass(frozen=True, eq=False)
class Multiples:
    """Points whose private entries are whole multiples of ``step`` and obey the equations.

    Attributes
    ----------
    step : Fraction
        What the entries are multiples of.
    lattice : Lattice
        How to find one such point, in steps.
    basis : array of int64
        Short differences of such points, in steps, as columns.
    scales : tuple of int
        What each equation was multiplied by to have whole coefficients.
    orthogonal, triangle : arrays
        The lattice's basis as their product.
    """

    step: Fraction
    lattice: Lattice
    basis: Integers
    scales: tuple[int, ...]
    orthogonal: FloatArray
    triangle: FloatArray

    def rounded(self, points: FloatArray, origin: Integers) -> Integers:
        """Return whole numbers of steps near each point, exactly on the equations.

        Parameters
        ----------
        points : array, shape (data sets, private entries)
            Published points.
        origin : array of int, shape (data sets, private entries)
            Public points in steps, from :meth:`origin`.
        """
        size = np.abs(points) / float(self.step) + np.abs(origin).astype(float)
        amplified = np.abs(np.linalg.solve(self.triangle, self.orthogonal.T))
        large = np.maximum(size.max(axis=1), (size @ amplified.T).max(axis=1)) > MOST_STEPS
        if not large.any():
            return self._in_doubles(points, origin)
        found = np.empty(origin.shape, dtype=object)
        if not large.all():
            found[~large] = self._in_doubles(points[~large], origin[~large])
        for place in np.flatnonzero(large):
            found[place] = self._in_whole_numbers(points[place], origin[place])
        return found

    def _in_doubles(self, points: FloatArray, origin: Integers) -> Integers:
        """The nearest plane for many points at once, none of them large."""
        basis = self.basis
        target = points / float(self.step) - origin.astype(float)
        times = self._times(target)
        moved = _exact_product(basis, times)
        # once more: what is left after the first time is small, and so is its rounding
        again = self._times(target - moved.T)
        if again.any():
            moved = _exact_product(basis, times + again)
        return np.asarray(origin.astype(np.int64) + moved.T)

    def _in_whole_numbers(self, point: FloatArray, origin: Integers) -> Integers:
        """The nearest plane for one point of any size: what is left is computed exactly."""
        basis = self.basis.astype(object)
        target = [Fraction(x) / self.step - int(o) for x, o in zip(point.tolist(), origin)]
        moved = np.zeros(len(target), dtype=object)
        for _ in range(PASSES):
            left = np.array([float(t - m) for t, m in zip(target, moved)])
            times = self._times(left[None])[:, 0]
            if not times.any():
                break
            moved = moved + basis @ np.array([int(t) for t in times], dtype=object)
        return np.asarray(moved + np.array([int(o) for o in origin], dtype=object))

    def _times(self, target: FloatArray) -> FloatArray:
        """How often each column of the basis goes into each point, from the last to the first."""
        left = self.orthogonal.T @ target.T
        times = np.zeros_like(left)
        for j in range(len(left) - 1, -1, -1):
            times[j] = np.rint(left[j] / self.triangle[j, j])
            left[: j + 1] -= np.outer(self.triangle[: j + 1, j], times[j])
        return times

    def refuse_too_much_noise(self, deviations: FloatArray, layout: Layout) -> None:
        """Refuse noise that goes beyond what 64-bit integers hold.

        Parameters
        ----------
        deviations : array
            Noise on each entry.
        layout : Layout
            For the entries' names.
        """
        if self.step.denominator == 1 and FAR * float(deviations.max()) > MOST_WHOLE:
            name = layout.names[int(np.argmax(deviations))]
            raise TableError(
                f"the noise on {name!r} is too large for whole numbers of 64 bits: publish in "
                "larger units"
            )

    def values(self, steps: Integers) -> Integers | FloatArray:
        """Return the multiples: int64 where the step is whole, else each the nearest double."""
        small = float(np.abs(steps).max()) * self.step.numerator < MOST_STEPS
        exact = steps.astype(np.int64 if small else object) * self.step.numerator
        if self.step.denominator == 1:
            return np.asarray(exact.astype(np.int64))
        return np.asarray((exact / self.step.denominator).astype(np.float64))

    @property
    def variances(self) -> FloatArray:
        """About how much rounding adds to the variance of each entry (as if it were uniform)."""
        sides = self.orthogonal * np.diagonal(self.triangle)
        return np.asarray((sides**2).sum(axis=1) / 12 * float(self.step) ** 2)

    @property
    def farthest(self) -> FloatArray:
        """How far rounding moves each entry at most."""
        sides = np.abs(self.orthogonal * np.diagonal(self.triangle))
        return np.asarray(sides.sum(axis=1) / 2 * float(self.step) * (1 + 1e-9))

    def origin(self, layout: Layout, public: FloatArray) -> Integers:
        """Return a public point of whole numbers of steps for each data set.

        Parameters
        ----------
        layout : Layout
            The equations.
        public : array, shape (data sets, public entries)
            The public entries' values.
        """
        entries = np.flatnonzero(~layout.is_private)
        in_steps = public / float(self.step)
        whole = np.rint(in_steps).astype(object)
        for row, column in np.argwhere(np.abs(in_steps) > MOST_STEPS).tolist():
            whole[row, column] = round(Fraction(repr(float(public[row, column]))) / self.step)
        off = np.abs(in_steps - whole.astype(float)) > 1e-9 * np.maximum(1.0, np.abs(in_steps))
        if off.any():
            place = int(entries[int(np.argwhere(off)[0][1])])
            name = layout.name(place) if place < layout.cells else "a public sum"
            raise TableError(
                f"{name!r} is public but no multiple of round_to = {float(self.step):g}, so no "
                "such multiples obey the equations"
            )
        if not len(entries):  # nothing public: one point serves all
            public = public[:1]
        amount = {
            int(entry): np.array([int(one) for one in whole[:, i]], dtype=object)
            for i, entry in enumerate(entries)
        }
        right = np.zeros((len(public), len(layout.relations)), dtype=object)
        for i, (relation, scale) in enumerate(zip(layout.relations, self.scales)):
            constant = relation.offset * scale / self.step
            if constant.denominator != 1:
                raise TableError(
                    f"no multiples of round_to = {float(self.step):g} obey {relation.words}"
                )
            right[:, i] -= constant.numerator
            for entry, value in relation.coefficients.items():
                if entry in amount:
                    right[:, i] -= amount[entry] * int(value * scale)
        found = self.lattice.solve(right)
        if found is None:
            raise TableError(
                f"no multiples of round_to = {float(self.step):g} obey the equations with these "
                "public numbers"
            )
        if not len(entries):
            kind = np.int64 if np.abs(found).max(initial=0) < MOST_STEPS else object
            return np.repeat(found.astype(kind), len(in_steps), axis=0)
        return found


def _exact_product(basis: Integers, times: FloatArray) -> Integers:
    """``basis @ times`` for whole numbers, in doubles where no partial sum rounds."""
    if float(np.abs(basis).sum(axis=1).max()) * float(np.abs(times).max(initial=0.0)) < EXACT:
        return np.asarray((basis.astype(float) @ times).astype(np.int64))
    return np.asarray(basis @ times.astype(np.int64))


def multiples_of(step: float, layout: Layout) -> Multiples:
    """Prepare rounding of a table's private entries to multiples of ``step``.

    Parameters
    ----------
    step : float
        Such as 1 or 0.1, taken as that decimal.
    layout : Layout
        The equations.
    """
    exact = Fraction(str(step))
    place = {int(entry): i for i, entry in enumerate(layout.private)}
    rows, scales = [], []
    for relation in layout.relations:
        scale = math.lcm(*(value.denominator for value in relation.coefficients.values()))
        scales.append(scale)
        rows.append(
            {place[j]: int(v * scale) for j, v in relation.coefficients.items() if j in place}
        )
    lattice = kernel_lattice(rows, len(place))
    if not lattice.vectors:
        raise TableError("the equations leave nothing private")
    basis = lattice.short_basis()
    orthogonal, triangle = np.linalg.qr(basis.astype(float))
    return Multiples(exact, lattice, basis, tuple(scales), orthogonal, triangle)
