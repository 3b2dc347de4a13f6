"""Coloured noise for sensors that may saturate: a factor on all of it, certified.

A saturated sensor, or any other that is monotone and moves no more than what it measures, gives
``χ(t) v(t) + e(t)`` instead of v(t), with χ(t) in [0, 1] chosen by who steers the plant.  Whitened
that is at most ``‖G⁻¹‖ (‖v‖ + ‖e‖)``, with the gain of the whitening filter from sequences to
sequences, which is at most ``Σ_k ‖g_k‖`` over its impulse response.  For an event before the start
v is the rest of its response, which is no longer.  It is dear (white noise pays nothing for
saturation), and where public limits keep the sensor in its range it is not needed.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.control.gateway.facts import SAFE, Facts
from affinedp.control.gateway.plan import GatewayPlan, plan_for
from affinedp.control.sensors.sensor import Sensor
from affinedp.control.stationary.certificate import NoCertificateError, decay_certificate
from affinedp.control.stationary.filters import ExactFilter, Filter
from affinedp.control.stationary.path import path_bits
from affinedp.control.stationary.promise import squared_sensitivities
from affinedp.control.stationary.record import StationaryNoise
from affinedp.errors import AffineDPError
from affinedp.exact.rational import RationalMatrix
from affinedp.strategies.rounded_plan import SHARE

# The response is followed in fixed point with so many bits, for so many steps at most.
BITS = 256
MOST_TERMS = 50_000
# What is still to come is bounded, and followed until it is this share of the sum.
REST = 1e-3


def gain_bound(system: ExactFilter) -> float:
    """Return a bound on the gain of a filter from sequences to sequences: Σ_k ‖g_k‖.

    Parameters
    ----------
    system : ExactFilter
        Stable.

    Examples
    --------
    >>> half = Filter.of([[0.5]], [[1.0]], [[1.0]], [[1.0]]).exact()      # 1, 1, ½, ¼, …
    >>> 3 <= gain_bound(half) < 3.01
    True
    """
    total = _norm(system.D)
    n, inputs = system.B.shape
    if n == 0:
        return total * (1 + SAFE)
    decay = decay_certificate(system.A)
    reach = math.sqrt(sum(decay.reach(row) ** 2 for row in system.C.floats()))
    # rounding each entry by a unit at every step moves what follows by at most this
    rounding = reach * math.sqrt(n * inputs) * 2.0**-BITS
    state = [[(int(v) << BITS) // system.B.over for v in row] for row in system.B.values]
    for _ in range(MOST_TERMS):
        rest = reach * _size(state)
        if rest <= REST * total:
            return (total + rest + rounding * MOST_TERMS) * (1 + 1e-9)
        total += _norm(system.C @ RationalMatrix(np.array(state, dtype=object), 1 << BITS))
        state = _moved(system.A, state)
    raise NoCertificateError("the whitening filter remembers too long to bound its gain")


def saturating_plan(noise: StationaryNoise, facts: Facts, sensor: Sensor) -> GatewayPlan:
    """Choose the plan with which the promise holds also while sensors saturate.

    Parameters
    ----------
    noise : StationaryNoise
        Shaped at the outputs, with neighbours that differ for a while.
    facts : Facts
        Of the noise.
    sensor : Sensor
        What is declared.
    """
    if sensor.analog:
        raise AffineDPError(
            "noise before the converter hides its steps only while the sensor does not saturate: "
            "give public limits that keep it in its range, with room for that noise "
            "(reach=Reach(start, B, inputs)), or declare the step alone"
        )
    if noise.place != "output" or noise.neighbours.window is None:
        raise AffineDPError(
            "this noise does not hide where a sensor saturates: give public limits that keep it "
            "in its range (reach=Reach(start, B, inputs)), or send with white noise"
        )
    plain = plan_for(facts, Sensor((), ()), None, lambda e: path_bits(noise, e))
    declared = sensor.deviation()
    needed = np.zeros(len(facts.names)) if declared is None else declared
    own = facts.own_error(plain.fresh_noise)
    deviation = np.maximum((needed + own) * (1 + SAFE), facts.free_deviation(plain.fresh_noise))
    unit = Filter.static(np.eye(len(facts.names)))
    longest = math.sqrt(float(squared_sensitivities(noise.neighbours, unit, "output").max()))
    box = math.sqrt(facts.steps * float(((2 * deviation) ** 2).sum()))
    gain = gain_bound(noise.shaper.exact().inverse())
    factor = gain * (longest + box) / (noise.scale * facts.sensitivity) * (1 + SHARE) * (1 + SAFE)
    return GatewayPlan(
        plain.fresh_exponents,
        plain.fresh_scales,
        tuple(float(v) for v in (deviation - own) * (1 - SAFE)),
        tuple(float(v) for v in deviation),
        max(factor, plain.noise_factor),
        plain.path_bits,
    )


def _norm(matrix: RationalMatrix) -> float:
    return float(np.linalg.norm(matrix.floats())) * (1 + SAFE)


def _size(state: list[list[int]]) -> float:
    squares = sum(value * value for row in state for value in row)
    return math.sqrt(squares / (1 << (2 * BITS))) * (1 + SAFE)


def _moved(A: RationalMatrix, state: list[list[int]]) -> list[list[int]]:
    columns = list(zip(*state))
    return [
        [sum(int(a) * x for a, x in zip(row, column)) // A.over for column in columns]
        for row in A.values
    ]
