"""The correlated noise ``γ(t) = C(t) A(t−1) … A(0) R η``, step by step in wide integers.

Doubles are not enough: their rounding errors lie outside the range of the noise, and nothing hides
them.  Here the doubles of A, C and R are taken as the exact numbers that they are, η is a vector
of integers, and ``n(t) ≈ A(t−1) … A(0) R η`` is carried as integers in units of ``2**-bits``.

*The error.*  n(0) and every step round each entry by at most half a unit.  What is rounded at
time k arrives at time t multiplied by ``A(t−1) … A(k)``, of norm at most ``2**growth``.  With n
states and t ≤ T − 1 that is ``‖n(t) − exact‖₂ ≤ T · 2**growth · √n · 2**(−bits−1)``, and entry i of
the output is off by at most ``‖C_i‖₂`` times that, before it is rounded to its own grid.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.trajectory.dynamics import Dynamics

LEAST_BITS = 256


@dataclass(frozen=True)
class Dyadic:
    """A matrix of doubles as integers times ``2**exponent``, exactly.

    Attributes
    ----------
    rows : tuple
        For every row the pairs (column, integer) of its nonzero entries.
    exponent : int
        Scale of the whole.
    """

    rows: tuple[tuple[tuple[int, int], ...], ...]
    exponent: int

    @classmethod
    def of(cls, matrix: FloatArray) -> Dyadic:
        """Return a matrix of finite doubles as what it is.

        Examples
        --------
        >>> Dyadic.of(np.array([[0.75, 0.0], [-3.0, 0.5]]))
        Dyadic(rows=(((0, 3),), ((0, -12), (1, 2))), exponent=-2)
        """
        ratios = [
            [(j, *float(value).as_integer_ratio()) for j, value in enumerate(row) if value != 0.0]
            for row in matrix
        ]
        # denominators are powers of two
        finest = max((over.bit_length() - 1 for row in ratios for _, _, over in row), default=0)
        rows = tuple(
            tuple((j, whole << (finest + 1 - over.bit_length())) for j, whole, over in row)
            for row in ratios
        )
        return cls(rows, -finest)

    def times(self, numbers: Sequence[int]) -> list[int]:
        """Return ``matrix @ numbers`` without its scale, exactly."""
        return [sum([entry * numbers[j] for j, entry in row]) for row in self.rows]


class NoisePath:
    """How the integers of the noise go from step to step.

    It holds nothing secret: the integers are given to it and returned by it.

    Examples
    --------
    >>> from affinedp.control import dynamics_of
    >>> path = NoisePath(dynamics_of(([[0.5]], [[1]]), horizon=3), np.array([[2.0]]), bits=8)
    >>> numbers = path.start([3], draw_bits=0)              # γ(0) = 2 · 3
    >>> numbers = path.advance(0, numbers)                  # γ(1) = 3
    >>> path.outputs(1, numbers, (), 0, exponents=[-1])     # in halves
    (6,)
    """

    def __init__(self, dynamics: Dynamics, root: FloatArray, bits: int) -> None:
        self._dynamics = dynamics
        self._root, self._draws = Dyadic.of(root), int(root.shape[1])
        self._bits = bits
        constant = dynamics.A.ndim == 2
        self._state = Dyadic.of(dynamics.A) if constant else None
        self._output = Dyadic.of(dynamics.C) if dynamics.C.ndim == 2 else None

    @property
    def start_draws(self) -> int:
        """How many numbers η has."""
        return self._draws

    @property
    def step_draws(self) -> int:
        """Nothing is drawn at later steps."""
        return 0

    def start(self, draw: Sequence[int], draw_bits: int) -> tuple[int, ...]:
        """Return n(0) = R η."""
        exponent = self._root.exponent - draw_bits + self._bits
        return tuple(rounded(value, exponent) for value in self._root.times(draw))

    def advance(
        self, step: int, numbers: Sequence[int], fresh: Sequence[int] = (), draw_bits: int = 0
    ) -> tuple[int, ...]:
        """Return n(step + 1) = A(step) n(step), up to the last step; nothing fresh enters."""
        if step + 1 >= self._dynamics.horizon:
            return tuple(numbers)
        matrix = self._state or Dyadic.of(self._dynamics.state_matrix(step))
        return tuple(rounded(value, matrix.exponent) for value in matrix.times(numbers))

    def outputs(
        self,
        step: int,
        numbers: Sequence[int],
        fresh: Sequence[int],
        draw_bits: int,
        exponents: Sequence[int],
    ) -> tuple[int, ...]:
        """Return γ(step) = C(step) n(step), entry i in units of ``2**exponents[i]``."""
        matrix = self._output or Dyadic.of(self._dynamics.output_matrix(step))
        scale = matrix.exponent - self._bits
        return tuple(
            rounded(value, scale - grid) for value, grid in zip(matrix.times(numbers), exponents)
        )


def path_bits(dynamics: Dynamics, growth: int, exponents: Sequence[int]) -> int:
    """Return how many bits keep entry i of the output within ``2**exponents[i]`` of the truth."""
    # log2 of T √n ‖C_i‖, rounded up; the unit below covers the rounding of the logarithms
    common = math.log2(dynamics.horizon) + math.log2(dynamics.states) / 2
    rows = np.abs(dynamics.C.reshape(-1, *dynamics.C.shape[-2:])).max(axis=0)
    bits = LEAST_BITS
    for row, exponent in zip(rows, exponents):
        largest = float(row.max())
        if largest > 0:
            # ‖C_i‖₂ ≤ √n · its largest entry
            norm = math.log2(largest) + math.log2(dynamics.states) / 2
            bits = max(bits, math.ceil(common + norm) + 1 + growth - exponent)
    return bits


def rounded(value: int, exponent: int) -> int:
    """Return ``value * 2**exponent`` rounded to the nearest integer, halves upwards."""
    if exponent >= 0:
        return value << exponent
    return (value + (1 << (-exponent - 1))) >> -exponent


def nearest_double(value: int, exponent: int) -> float:
    """Return ``value * 2**exponent`` as a double; beyond the range of doubles the largest."""
    try:
        # division of integers is rounded once, and does not overflow on the way
        return value / (1 << -exponent) if exponent < 0 else float(value << exponent)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max
