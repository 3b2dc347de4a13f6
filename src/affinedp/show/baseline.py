"""The independent noise that a mechanism is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from affinedp.errors import AffineDPError
from affinedp.record import MechanismRecord


@dataclass(frozen=True)
class Baseline:
    """Independent noise of one scale on every output that keeps the same promise.

    Attributes
    ----------
    deviation : float or None
        Its standard deviation; None where it is not available.
    reason : str
        Why it is not available.
    """

    deviation: float | None
    reason: str = ""


def independent_baseline(mechanism: MechanismRecord) -> Baseline:
    """Return independent noise of one scale with the same promise to the same neighbours.

    Noise of scale c has sensitivity ``max ‖F v‖ / c`` (Theorems 1 and 2); c makes that the
    mechanism's own, so that neither ε nor δ need be known.
    """
    sensitivity = mechanism.guarantee.sensitivity
    if mechanism.guarantee.leak is not None or not math.isfinite(sensitivity):
        return Baseline(None, "there is no promise that other noise could keep too")
    if sensitivity == 0.0:
        return Baseline(None, "neighbours do not differ in the outputs, so no noise is needed")
    try:
        found = mechanism.adjacency.sensitivity(
            mechanism.dense.query, norm=mechanism.noise.norm or 1
        )
    except AffineDPError as error:
        return Baseline(None, str(error).partition(". ")[0])
    return Baseline(found.upper / sensitivity * math.sqrt(mechanism.noise.variance))
