"""The same laws from OpenDP's sampler, the reference, for whoever wants a second opinion.

OpenDP draws over all integers and then stops at the ends of 64 bits.  What it stopped at either end
is drawn on here from the law beyond that end, so that nothing is clamped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.errors import AffineDPError
from affinedp.exact.numbers import rounded_up
from affinedp.laws.sampler.coins import Geometric, bernoulli_exp
from affinedp.laws.sampler.noise import IntegerNoise, StackedNoise
from affinedp.laws.sampler.reference import IntegerLaw
from affinedp.laws.sampler.words import Source, system_bytes

LOWEST, HIGHEST = -(2**63), 2**63 - 1
# Beyond it many numbers would be drawn in the tail, where the sampler is no longer OpenDP's.
LARGEST_SCALE = 2**60


def check_opendp_scale(scale: int | Fraction) -> None:
    """Refuse a scale that OpenDP's numbers of 64 bits do not hold, or that is no float."""
    if scale > LARGEST_SCALE:
        raise AffineDPError(
            "this noise is too large for OpenDP's sampler, which has 64 bits: leave out sampler"
        )
    if Fraction(float(scale)) != scale:
        raise AffineDPError(f"OpenDP's sampler takes a float for the scale, and {scale} is not one")


@dataclass(frozen=True)
class OpenDPNoise:
    """Draws what :class:`~affinedp.laws.sampler.IntegerNoise` would, with OpenDP's sampler."""

    law: IntegerLaw

    def draw(self, size: tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Draw fresh numbers, from OpenDP's own source."""
        return opendp_integers(self.law.name, self.law.scale, size)


def by_opendp(noise: Any, words: str) -> Any:
    """Return what draws the same with OpenDP; noise that it does not know is refused.

    OpenDP takes floats.  Laplace noise of a larger scale is this one and independent noise on top,
    so that every promise is kept: its scale is rounded up.
    """
    if isinstance(noise, StackedNoise):
        return StackedNoise(tuple((by_opendp(one, words), rows) for one, rows in noise.parts))
    if type(noise) is not IntegerNoise:
        raise AffineDPError(
            f"OpenDP has no sampler for {words} noise: leave out sampler, or design noise with "
            "law='gaussian' or 'laplace'"
        )
    law = noise.law
    if law.name == "laplace":
        law = IntegerLaw.of("laplace", Fraction(rounded_up(law.scale)))
    check_opendp_scale(law.scale)
    return OpenDPNoise(law)


def opendp_integers(law: str, scale: int | Fraction, size: int | tuple[int, ...]) -> NDArray[Any]:
    """Draw integers with OpenDP's sampler.

    OpenDP's feature flag "contrib" is process-wide and is enabled here on the first draw.
    """
    shape = size if isinstance(size, tuple) else (size,)
    count = math.prod(shape)
    exact = IntegerLaw.of(law, scale)
    check_opendp_scale(exact.scale)
    drawn = np.zeros(count, dtype=object)
    if count:
        drawn[:] = _measurement(exact, count)([0] * count)
    for place in np.flatnonzero((drawn <= LOWEST) | (drawn >= HIGHEST)):
        end = int(drawn[place])
        drawn[place] = end + (1 if end > 0 else -1) * beyond(exact, abs(end))
    return drawn.reshape(shape)


def beyond(law: IntegerLaw, end: int) -> int:
    """Draw t = 0, 1, … with the law of |i| − end, given that |i| ≥ end > 0.

    The Laplace has no memory.  For the Gaussian, e^(−(end + t)²/2σ²) is e^(−t end/σ²) e^(−t²/2σ²)
    up to a constant: t is proposed from the first factor and accepted with the second.
    """
    if law.name == "laplace":
        return int(Geometric(1 / law.scale).draw(1)[0])
    steps = Geometric(end / law.scale**2)
    while True:
        further = int(steps.draw(1)[0])
        if bernoulli_exp(law.exponent(further)):
            return further


def _measurement(law: IntegerLaw, count: int) -> Any:
    # not the prelude, which loads far more than noise needs
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=count)
    if law.name == "gaussian":
        return make_gaussian(domain, l2_distance(T=float), scale=float(law.scale))
    return make_laplace(domain, l1_distance(T=float), scale=float(law.scale))
