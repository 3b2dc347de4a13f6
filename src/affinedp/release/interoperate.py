"""Mechanisms as OpenDP measurements and as dp_accounting events."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.laws.pure_curves import pair_of
from affinedp.promise.knorm import neighbours_of
from affinedp.record import MechanismRecord
from affinedp.release.knorm_plan import KNormPlan
from affinedp.release.plan import Plan
from affinedp.release.publish import publish


def make_measurement(mechanism: MechanismRecord, plan: Plan | KNormPlan) -> Any:
    """Return an OpenDP measurement; see :meth:`Mechanism.make_measurement`.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    plan : Plan or KNormPlan
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
    neighbours = neighbours_of(mechanism.adjacency, mechanism.integers)

    def privacy_map(steps: float) -> float:
        # k neighbour steps are k times as far apart; rounded up.  From whole to whole numbers there
        # are no parts of a step
        steps = math.ceil(steps) if mechanism.integers else steps
        distance = float(np.nextafter(steps * sensitivity, np.inf))
        return float(np.nextafter(distance * distance / 2, np.inf)) if gaussian else distance

    return opendp.m.make_user_measurement(
        input_domain=opendp.vector_domain(
            opendp.atom_domain(T=float, nan=False), size=mechanism.manifold.n
        ),
        input_metric=opendp.user_distance(f"neighbour steps; {neighbours}"),
        output_measure=opendp.zero_concentrated_divergence()
        if gaussian
        else opendp.max_divergence(),
        function=lambda x: publish(mechanism, plan, x).tolist(),
        privacy_map=privacy_map,
    )


def dp_event(mechanism: MechanismRecord) -> Any:
    """Return the event of one release; see :meth:`Mechanism.dp_event`.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    """
    try:
        from dp_accounting import dp_event as events
    except ImportError:
        raise MissingExtraError("dp-accounting", "accounting") from None
    ((law, loss),) = mechanism.guarantee.curve.losses() or [(mechanism.law, 0.0)]
    if pair_of(law, loss) is not None:
        # of two answers the wrong one with probability p/2 = 1 / (1 + e^ε), rounded down
        noise = float(np.nextafter(2 / (1 + np.exp(_sensitivity(mechanism))), 0.0))
        return events.RandomizedResponseDpEvent(noise, 2)
    multiplier = float(np.nextafter(1 / max(loss, _sensitivity(mechanism)), 0.0))
    if mechanism.law == "gaussian":
        return events.GaussianDpEvent(multiplier)
    return events.LaplaceDpEvent(multiplier)


def _sensitivity(mechanism: MechanismRecord) -> float:
    if not 0 < mechanism.guarantee.sensitivity < np.inf:
        raise AffineDPError("this mechanism promises nothing")
    return mechanism.guarantee.sensitivity
