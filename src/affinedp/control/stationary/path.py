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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.control.stationary.certificate import NoCertificateError, decay_certificate
from affinedp.control.stationary.record import StationaryNoise
from affinedp.exact.rational import RationalMatrix

LEAST_BITS = 192


class StationaryPath:
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
    >>> numbers = path.start([2], draw_bits=0)                              # ξ(0) = 1.5 · 2
    >>> path.outputs(0, numbers, [1], draw_bits=0, exponents=[-2])          # 0.25 · 3 + 1, quarters
    (7,)
    >>> numbers = path.advance(0, numbers, [1], draw_bits=0)                # ξ(1) = 0.25 · 3 + 1
    >>> path.outputs(1, numbers, [0], draw_bits=0, exponents=[-4])          # in sixteenths
    (7,)
    """

    def __init__(self, noise: StationaryNoise, bits: int) -> None:
        exact = noise.exact_filter
        matrices = (exact.A, exact.B, exact.C, exact.D)
        if not all(matrix.power_of_two for matrix in matrices):
            raise NoCertificateError("the noise filter must have numbers of finite binary digits")
        self._noise = noise
        self._bits = bits
        self._A, self._B, self._C, self._D = matrices
        self._root = None if noise.start is None else RationalMatrix.of(noise.start)

    @property
    def start_draws(self) -> int:
        """How many numbers η has."""
        return 0 if self._root is None else self._root.shape[1]

    @property
    def step_draws(self) -> int:
        """How many numbers ζ has at every step."""
        return self._D.shape[1]

    def start(self, draw: Sequence[int], draw_bits: int) -> tuple[int, ...]:
        """Return ξ(0) = R η, or zeros at rest.

        Parameters
        ----------
        draw : sequence of int
            η in units of ``2**-draw_bits``, with the noise's scale as standard deviation.
        draw_bits : int
            Its grid.
        """
        if self._root is None:
            return (0,) * self._A.shape[0]
        shift = _exponent(self._root) - draw_bits + self._bits
        return tuple(_rounded(value, shift) for value in _times(self._root, draw))

    def advance(
        self, step: int, numbers: Sequence[int], fresh: Sequence[int], draw_bits: int
    ) -> tuple[int, ...]:
        """Return ξ(step + 1) = A ξ(step) + B ζ(step).

        Parameters
        ----------
        step : int
            The time of ``numbers``; the filter is the same at all times.
        numbers : sequence of int
            ξ(step).
        fresh : sequence of int
            ζ(step) in units of ``2**-draw_bits``: the same that :meth:`outputs` was given.
        draw_bits : int
            Its grid.
        """
        return _sums(
            (_times(self._A, numbers), _exponent(self._A) - self._bits),
            (_times(self._B, fresh), _exponent(self._B) - draw_bits),
            [-self._bits] * self._A.shape[0],
        )

    def outputs(
        self,
        step: int,
        numbers: Sequence[int],
        fresh: Sequence[int],
        draw_bits: int,
        exponents: Sequence[int],
    ) -> tuple[int, ...]:
        """Return γ(step) = C ξ(step) + D ζ(step), entry i in units of ``2**exponents[i]``.

        Parameters
        ----------
        step : int
            The time of ``numbers``.
        numbers : sequence of int
            ξ(step).
        fresh : sequence of int
            ζ(step) in units of ``2**-draw_bits``.
        draw_bits : int
            Its grid.
        exponents : sequence of int
            The grids of the outputs.
        """
        return _sums(
            (_times(self._C, numbers), _exponent(self._C) - self._bits),
            (_times(self._D, fresh), _exponent(self._D) - draw_bits),
            exponents,
        )

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


def _exponent(matrix: RationalMatrix) -> int:
    return 1 - matrix.over.bit_length()


def _times(matrix: RationalMatrix, numbers: Sequence[int]) -> list[int]:
    values: NDArray[Any] = matrix.values
    return [sum([int(a) * x for a, x in zip(row, numbers) if a]) for row in values]


def _sums(
    first: tuple[list[int], int], second: tuple[list[int], int], exponents: Sequence[int]
) -> tuple[int, ...]:
    """Entries of two vectors on two grids, added exactly and rounded once."""
    (left, fine), (right, coarse) = first, second
    low = min(fine, coarse)
    return tuple(
        _rounded((a << (fine - low)) + (b << (coarse - low)), low - exponent)
        for a, b, exponent in zip(left, right, exponents)
    )


def _rounded(value: int, exponent: int) -> int:
    """``value * 2**exponent`` rounded to the nearest integer, halves upwards."""
    if exponent >= 0:
        return value << exponent
    return (value + (1 << (-exponent - 1))) >> -exponent
