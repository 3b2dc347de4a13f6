"""Noise on the outputs of a linear system from one draw: ``γ(t) = C(t) A(t−1) … A(0) R η``.

*The error of its path.*  n(0) and every step round each entry by at most half a unit.  What is
rounded at time k arrives at time t multiplied by ``A(t−1) … A(k)``, of norm at most ``2**growth``.
With n states and t ≤ T − 1 that is ``‖n(t) − exact‖₂ ≤ T · 2**growth · √n · 2**(−bits−1)``, and
entry i of the output is off by at most ``‖C_i‖₂`` times that, before it is rounded to its grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.dynamics import Dynamics
from affinedp.exact.rational import RationalMatrix
from affinedp.strategies.causal import System, constant

LEAST_BITS = 256


def one_draw_system(dynamics: Dynamics, start: FloatArray) -> System:
    """Return what makes noise from one draw; the numbers of A and C are what doubles stand for.

    Parameters
    ----------
    dynamics : Dynamics
        The system and its horizon.
    start : array, shape (n, r)
        R; its doubles are the numbers that they are.
    """
    A: Callable[[int], RationalMatrix] = dynamics.exact_state_matrix
    C: Callable[[int], RationalMatrix] = dynamics.exact_output_matrix
    return System(
        A if dynamics.A.ndim == 3 else constant(A(0)),
        RationalMatrix.zeros(dynamics.states, 0),
        C if dynamics.C.ndim == 3 else constant(C(0)),
        RationalMatrix.zeros(dynamics.outputs, 0),
        RationalMatrix.of(start),
        dynamics.horizon,
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
