"""K-norm noise on the lattice Z^r, exactly: a cone, a point of its unit box, geometric steps.

docs/explanation/knorm.md has the law and the proof.
"""

from __future__ import annotations

import bisect
import secrets
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.bodies.cones import Cone, LatticeCones
from affinedp.release.sampler.coins import ExponentialChoice, Geometric, bernoulli_exp


class ConeNoise:
    """Independent vectors z of whole numbers with P(z) ∝ exp(−rate ‖z‖_K).

    The law is exact over all of Z^r, for cones of any determinant.  Randomness is the operating
    system's; nothing is kept from one call to the next.  How long a draw takes depends on what is
    drawn, so noise is drawn before data is read.

    Parameters
    ----------
    cones : LatticeCones
        The lattice in cones over the boundary of K.
    rate : Fraction
        Positive.

    Examples
    --------
    >>> from affinedp.bodies.polytope import Polytope
    >>> hexagon = Polytope([(Fraction(1), Fraction(0)), (Fraction(0), Fraction(1)),
    ...                     (Fraction(1), Fraction(-1))])
    >>> ConeNoise(LatticeCones(hexagon), Fraction(1)).draw(5).shape
    (5, 2)
    """

    def __init__(self, cones: LatticeCones, rate: Fraction) -> None:
        self._cones = cones.cones
        self._dimension = cones.dimension
        self._step = rate * cones.unit
        self._geometric = Geometric(self._step)
        self._groups: list[list[tuple[Cone, list[int]]]] | None = None
        listed = cones.listed
        if listed is not None:
            self._groups = list(listed.values())
            exponents = [self._step * total for total in listed]
            self._choice = ExponentialChoice([len(g) for g in self._groups], exponents)
        else:
            self._sizes = list(accumulate(cone.determinant for cone in self._cones))

    def draw(self, count: int) -> NDArray[Any]:
        """Return vectors as rows, Python integers in an object array of shape (count, r).

        Parameters
        ----------
        count : int
            How many.
        """
        size = self._dimension
        steps = self._geometric.draw(count * size).tolist()
        drawn: NDArray[Any] = np.empty((count, size), dtype=object)
        for i in range(count):
            cone, point = self._box_point()
            whole = cone.determinant
            lengths = [c + whole * t for c, t in zip(point, steps[i * size : (i + 1) * size])]
            for j in range(size):
                total = sum(c * a[j] for c, a in zip(lengths, cone.generators))
                drawn[i, j] = total // whole  # divides exactly: it is a lattice point
        return drawn

    def _box_point(self) -> tuple[Cone, list[int]]:
        """A cone and determinant × λ, with probability ∝ e^(−rate Σ λ)."""
        if self._groups is not None:
            return secrets.choice(self._groups[self._choice.draw()])
        while True:
            place = bisect.bisect_right(self._sizes, secrets.randbelow(self._sizes[-1]))
            cone = self._cones[place]
            coset = tuple(secrets.randbelow(c) if c > 1 else 0 for c in cone.cosets)
            point = cone.box_point(coset)
            if bernoulli_exp(self._step * Fraction(sum(point), cone.determinant)):
                return cone, point
