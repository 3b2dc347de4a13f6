"""The stream of stationary noise, step by step in integers.

The memory ξ of the noise filter is carried as integers in units of ``2**-bits``, ζ and η are
integers that are given, and the filter's numbers are the exact ones that were certified.  Rounding
is deterministic, and every step rounds each entry of ξ by at most half a unit.

*The error.*  With a proof that the filter forgets (``certificate.Decay``) all that was ever rounded
moves output i by at most ``½ · 2**-bits · √n · reach_i``, for ever: memory and error are bounded,
whatever the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.stationary.certificate import NoCertificateError, decay_certificate
from affinedp.control.stationary.record import StationaryNoise
from affinedp.exact.rational import RationalMatrix
from affinedp.strategies.causal import Path, System, constant

LEAST_BITS = 192


class StationaryPath(Path):
    """How the integers of stationary noise go from step to step.

    It holds nothing secret: the integers are given to it and returned by it.  ζ is drawn anew at
    every step, also at steps that are skipped; its standard deviation, like that of η at the
    start, is the noise's ``scale``.

    Parameters
    ----------
    noise : StationaryNoise
        What is sent.
    bits : int
        The integers are in units of ``2**-bits``.

    Examples
    --------
    >>> from affinedp.control.stationary.filters import Filter
    >>> from affinedp.control.stationary.inputs import private_inputs
    >>> from affinedp.control.stationary.promise import stationary_promise
    >>> room = private_inputs(([[0.5]], [[1.0]], [[1.0]]), mu=1.0)
    >>> shaper, start = Filter.of([[0.25]], [[1.0]], [[0.25]], [[1.0]]), np.array([[1.5]])
    >>> promise = stationary_promise(room, shaper, "output", 4.0, start)
    >>> path = StationaryPath(StationaryNoise(room, promise, shaper, "output", 4.0, start), bits=64)
    >>> numbers = path.begin([2], draw_bits=0)                              # ξ(0) = 1.5 · 2
    >>> path.row(0, numbers, [1], draw_bits=0, exponents=[-2])          # 0.25 · 3 + 1, quarters
    (7,)
    >>> numbers = path.advance(0, numbers, [1], draw_bits=0)                # ξ(1) = 0.25 · 3 + 1
    >>> path.row(1, numbers, [0], draw_bits=0, exponents=[-4])          # in sixteenths
    (7,)
    """

    def __init__(self, noise: StationaryNoise, bits: int) -> None:
        exact = noise.exact_filter
        matrices = (exact.A, exact.B, exact.C, exact.D)
        if not all(matrix.power_of_two for matrix in matrices):
            raise NoCertificateError("the noise filter must have numbers of finite binary digits")
        self._noise = noise
        A, B, C, D = matrices
        start = RationalMatrix.zeros(len(A.values), 0)
        if noise.start is not None:
            start = RationalMatrix.of(noise.start)
        super().__init__(System(constant(A), B, constant(C), D, start, noise.horizon), bits)

    @cached_property
    def loading(self) -> FloatArray:
        """How far output i moves at most if every number ever drawn moves by one, shape (outputs,).

        That is what rounding ζ and η to their grid can do, in units of the grid.
        """
        return loading(self._noise)


def loading(noise: StationaryNoise) -> FloatArray:
    """Return how far each output moves at most if every number ever drawn moves by one.

    Parameters
    ----------
    noise : StationaryNoise
        With its filter.
    """
    made = noise.filter
    direct = np.abs(made.D).sum(axis=1)
    if not made.order:
        return np.asarray(direct)
    into = float(np.linalg.norm(made.B)) * math.sqrt(made.inputs)
    at_start = 0.0
    if noise.start is not None:
        at_start = float(np.linalg.norm(noise.start)) * math.sqrt(made.order)
    reach = _reach(noise)
    return np.asarray((direct + reach * (into + at_start)) * (1 + 1e-9))


def path_bits(noise: StationaryNoise, exponents: Sequence[int]) -> int:
    """Return how many bits keep entry i of the output within ``2**exponents[i]`` of its true value.

    Parameters
    ----------
    noise : StationaryNoise
        What is sent.
    exponents : sequence of int
        What is wanted, for each output; its rounding to a grid is not counted.
    """
    bits = LEAST_BITS
    if not noise.filter.order:
        return bits
    for reach, exponent in zip(_reach(noise), exponents):
        error = max(float(reach) * math.sqrt(noise.filter.order) / 2, 1e-300)
        bits = max(bits, math.ceil(math.log2(error)) + 1 - exponent)
    return bits


def _reach(noise: StationaryNoise) -> FloatArray:
    """A bound on ``Σ_k |C_i Aᵏ f|`` over unit vectors f."""
    decay = decay_certificate(noise.exact_filter.A)
    return np.array([decay.reach(row) for row in noise.filter.C])
