"""The one draw of a gateway with K-norm noise: whole steps of x(0), exactly.

x(0) is read on a grid of steps so fine that the rest is far below the fresh noise; between what is
read of neighbours lies their difference and at most one step in every coordinate, and the rate pays
for that and for the rounding of the body's vertices (docs/explanation/knorm.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import dense
from affinedp.errors import AffineDPError
from affinedp.laws.cones import LatticeCones
from affinedp.laws.knorm import KNorm
from affinedp.laws.polytope import Polytope, polytope_of
from affinedp.laws.sampler.cone import ConeNoise
from affinedp.strategies.rounded_plan import GRID_BITS

# Vertices are multiples of this many steps, so that few proposals are rejected.
SPLIT = 256
# How long one draw takes tells about it: it is one of so many.
BATCH = 64
RATE_BITS = 80


@dataclass(frozen=True, eq=False)
class BodyOnGrid:
    """The body of the noise in steps, and what reading on the grid is charged.

    Attributes
    ----------
    exponent : int
        A step is ``2**exponent`` in every coordinate.
    body : Polytope
        With whole vertices.
    charge : Fraction
        At least the gauge of the difference between what is read of neighbours.
    """

    exponent: int
    body: Polytope
    charge: Fraction

    @classmethod
    def of(cls, law: KNorm, sensitivity: float) -> BodyOnGrid:
        """Put the body on a grid on which a step moves no output by 2⁻⁵⁶ of its noise."""
        whole = polytope_of(dense(law.points))
        inverse = np.linalg.inv(np.linalg.cholesky(dense(law.moment)))
        size = float(np.linalg.norm(inverse)) * math.sqrt(len(inverse)) * 1.01
        if not 0 < size < math.inf:
            raise AffineDPError("the noise is too ill-conditioned to send with")
        exponent = math.frexp(1 / size)[1] - 2 - GRID_BITS
        unit = SPLIT * Fraction(2) ** exponent
        body = Polytope(
            [
                tuple(Fraction(SPLIT * round(c / unit)) for c in vertex)
                for vertex in whole.exact_vertices
            ]
        )
        # a vertex is off by SPLIT/2 steps in every coordinate at most, and gauges are sums of them
        off = body.box([Fraction(SPLIT, 2)] * body.dimension)
        longest = Fraction(sensitivity) / Fraction(law.rate)
        cell = body.box([Fraction(1)] * body.dimension)
        return cls(exponent, body, longest * (1 + off) + 3 * cell)

    def draw(self, sensitivity: float, factor: float) -> tuple[int, ...]:
        """Return the one draw, in steps."""
        rate = Fraction(sensitivity) / Fraction(factor) / self.charge
        unit = Fraction(2) ** (math.frexp(float(rate))[1] - RATE_BITS)
        noise = ConeNoise(LatticeCones(self.body), math.floor(rate / unit) * unit)
        return tuple(int(c) for c in noise.draw(BATCH)[0])
