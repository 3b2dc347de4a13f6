"""Circuits in numbers that can be trusted: integers, or floats with a bound for their rounding."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.component import Component
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.rational import exact_circuit, null_vector
from affinedp.neighbours.circuits.compiled import Marks
from affinedp.neighbours.norms import EPS, as_float


class ExactCircuits:
    """Circuits of a manifold in integers, given the entries that they move."""

    def __init__(self, manifold: AffineManifold) -> None:
        self._manifold = manifold

    def values(
        self, component: Component, support: IntArray, kernel: list[dict[int, int]] | None
    ) -> dict[int, int]:
        """Return the circuit with these entries in integers, up to its scale.

        From the equations of its entries, or from the kernel's rows of all others: whichever is
        shorter.
        """
        fixed = len(component.entries) - len(support)
        exact: list[int] | None
        if kernel is None or len(support) ** 2 < fixed * component.dim:
            columns = [self._manifold.exact_column(int(component.entries[i])) for i in support]
            exact = exact_circuit(columns)
        else:
            exact = _from_kernel(kernel, support, component.dim)
        if exact is None:
            raise AffineDPError(
                "a neighbour direction found in floating point is none in exact arithmetic; "
                "the coefficients differ too much in size. Rescale the entries, or use "
                "FreeSetAdjacency or DirectionAdjacency"
            )
        return dict(zip(support.tolist(), exact))

    def integer_kernel(self, component: Component) -> list[dict[int, int]] | None:
        """Return a component's kernel times an integer, where it is rational."""
        exact = self._manifold.canonical.exact_rows
        if exact is None:
            return None
        place = {int(component.entries[f]): c for c, f in enumerate(component.free)}
        pivots = component.entries[component.pivots].tolist()
        rows = [
            {place[j]: v for j, v in exact[self._pivot_rank[i]].items() if j in place}
            for i in pivots
        ]
        unit = math.lcm(*(v.denominator for row in rows for v in row.values()))
        kernel: list[dict[int, int]] = [{} for _ in component.entries]
        for c, f in enumerate(component.free.tolist()):
            kernel[f] = {c: unit}
        for p, row in zip(component.pivots.tolist(), rows):
            kernel[p] = {c: -v.numerator * (unit // v.denominator) for c, v in row.items()}
        return kernel

    @cached_property
    def _pivot_rank(self) -> dict[int, int]:
        return {int(p): i for i, p in enumerate(self._manifold.canonical.pivots)}

    def rows(self, component: Component, suspects: Marks) -> FloatArray:
        """Return the circuits with these entries as rows of floats, their largest entries 1."""
        kernel = self.integer_kernel(component) if len(suspects) else None
        rows = np.zeros(suspects.shape)
        for row, marks in zip(rows, suspects):
            exact = self.values(component, np.flatnonzero(marks), kernel)
            largest = max(map(abs, exact.values()))
            for i, value in exact.items():
                row[i] = as_float(Fraction(value, largest))
        return rows


def refined_circuit(component: Component, circuit: FloatArray) -> tuple[FloatArray, float]:
    """Return the circuit from the equations themselves, and its relative error (also of its scale).

    The null vector of the equations on the circuit's entries is off by eps times their
    condition, and its smallest entry, which sets the scale, by as much of the largest.
    """
    support = np.flatnonzero(circuit)
    refined = circuit.copy()
    if len(support) > 1:
        # entries in units of the circuit, so that different units do not count as ill-conditioned
        unit = np.abs(circuit[support])
        rows = component.equations[:, support].toarray() * unit
        size = np.abs(rows).max(axis=1)
        rows = rows[size > 0] / size[size > 0, None]
        _, values, right = np.linalg.svd(rows)
        refined[support] = right[-1] * unit * np.sign(right[-1] @ np.sign(circuit[support]))
        weakest = float(values[len(support) - 2] * np.abs(right[-1]).min())
        amplified = float(values[0] * np.abs(right[-1]).max()) / weakest if weakest else np.inf
        if not amplified < 1e12:
            raise AffineDPError(
                "a neighbour direction is too ill-conditioned to be computed from these equations. "
                "Give exact (integer, decimal or text) coefficients, or rescale the entries"
            )
        return refined, 64 * EPS * amplified
    return refined, 4 * EPS


def _from_kernel(kernel: list[dict[int, int]], support: IntArray, dim: int) -> list[int] | None:
    """The vector of the kernel that moves these entries only, or None."""
    inside = set(support.tolist())
    fixed = [row for i, row in enumerate(kernel) if i not in inside]
    coordinates = null_vector(fixed, dim)
    if coordinates is None:
        return None
    moved = [sum(v * coordinates[c] for c, v in kernel[i].items()) for i in support.tolist()]
    return moved if all(moved) else None
