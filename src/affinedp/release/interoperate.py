"""Mechanisms as OpenDP measurements."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.record import MechanismRecord
from affinedp.release.publish import publish
from affinedp.strategies.base import Prepared, rounded_up


def make_measurement(mechanism: MechanismRecord, prepared: Prepared) -> Any:
    """Return an OpenDP measurement; see :meth:`Mechanism.make_measurement`.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    prepared : Prepared
        The public part of its releases.
    """
    try:
        import opendp.prelude as opendp
    except ImportError:
        raise MissingExtraError("opendp", "opendp") from None
    # process-wide switches of OpenDP: the measurement is defined in Python
    opendp.enable_features("contrib", "honest-but-curious")
    sensitivity = _sensitivity(mechanism)
    gaussian = mechanism.law == "gaussian"

    def privacy_map(steps: float) -> float:
        if not 0 <= steps < math.inf:
            raise AffineDPError(f"a distance is a number of neighbour steps, not {steps!r}")
        # k neighbour steps are k times as far apart; where half a step costs as much as all of it
        # there are no parts of a step
        exact = Fraction(steps) if mechanism.noise.divisible else Fraction(math.ceil(steps))
        distance = exact * Fraction(sensitivity)
        return rounded_up(distance * distance / 2 if gaussian else distance)

    return opendp.m.make_user_measurement(
        input_domain=opendp.vector_domain(
            opendp.atom_domain(T=float, nan=False), size=mechanism.manifold.n
        ),
        input_metric=opendp.user_distance(f"neighbour steps; {mechanism.guarantee.neighbours}"),
        output_measure=opendp.zero_concentrated_divergence()
        if gaussian
        else opendp.max_divergence(),
        function=lambda x: publish(mechanism, prepared, x).tolist(),
        privacy_map=privacy_map,
    )


def _sensitivity(mechanism: MechanismRecord) -> float:
    if not 0 < mechanism.guarantee.sensitivity < np.inf:
        raise AffineDPError("this mechanism promises nothing")
    return mechanism.guarantee.sensitivity
