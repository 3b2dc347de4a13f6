"""How flows follow an injection: transfer factors, accurate to the last bit of every entry.

Far from where power is injected, factors are tiny, and a law must still hold among them.  So
potentials are carried in wide integers and refined with an ordinary sparse factorisation until the
balance of every node is met to 2⁻¹²⁰; only then are flows rounded to double precision, each
relative to its own size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.flows.flow_network import FlowNetwork

BigIntegers = NDArray[Any]  # Python integers in an object array

BITS = 160
# A residual of so many units in the last place is as small as it gets.
SETTLED = 40
MOST_ROUNDS = 60
# Flows below 2^-NOTHING are zeros that were rounded; a little above that they would be doubtful.
NOTHING, DOUBTFUL = 90, 70


def transfers(network: FlowNetwork, moved: IntArray, grounded: Sequence[int]) -> BigIntegers:
    """Return the flows that follow a unit injection, in units of 2^-BITS."""
    susceptance = _susceptances(network)
    free = np.flatnonzero(np.isin(network.island, network.island[moved]))
    free = np.setdiff1d(free, np.asarray(grounded, dtype=np.intp))
    solve = _factorised(network, susceptance, free)
    potential = np.zeros((len(network.nodes), len(moved)), dtype=object)
    injected = np.zeros_like(potential)
    injected[moved, np.arange(len(moved))] = 1 << BITS
    flow = _flows(network, susceptance, potential)
    smallest = None
    for _ in range(MOST_ROUNDS):
        residual = (injected - leaving(network, flow))[free]
        size = max((int(value).bit_length() for value in residual.flat), default=0)
        if size <= SETTLED:
            _refuse_doubtful(flow)
            return flow
        if smallest is not None and size >= smallest:
            break
        smallest = size
        shift = max(0, size - 62)
        change = solve((residual >> shift).astype(np.float64))
        potential[free] += _integers(change) << shift
        flow = _flows(network, susceptance, potential)
    raise AffineDPError(
        "the line laws do not determine the flows (negative reactances cancel positive ones), or "
        "do so too weakly to compute them. Correct the reactances"
    )


def _refuse_doubtful(flow: BigIntegers) -> None:
    sizes = np.abs(flow)
    if np.any((sizes >= 1 << (BITS - NOTHING)) & (sizes < 1 << (BITS - DOUBTFUL))):
        raise AffineDPError(
            "flows far from an injection fall below 10⁻²¹ of it and cannot be told from zero. "
            "Publish a part of the network, or declare far injections public"
        )


def leaving(network: FlowNetwork, flow: BigIntegers) -> BigIntegers:
    """Return what leaves every node minus what enters it."""
    total = np.zeros((len(network.nodes), flow.shape[1]), dtype=object)
    for branch, (tail, head) in enumerate(zip(network.tail, network.head)):
        total[tail] += flow[branch]
        total[head] -= flow[branch]
    return total


def rounded(values: BigIntegers) -> FloatArray:
    """Return wide integers (in units of 2^-BITS) as doubles; rounded zeros become zeros."""
    least = 1 << (BITS - NOTHING)
    flat = [math.ldexp(float(v), -BITS) if abs(v) >= least else 0.0 for v in values.flat]
    return np.array(flat).reshape(values.shape)


def _susceptances(network: FlowNetwork) -> list[int]:
    """1/reactance in units of 2^-BITS, the reactances taken in units of about their size."""
    if network.reactance is None:
        raise AffineDPError("the network has no reactances, so flows do not follow injections")
    unit = Fraction(2) ** int(np.median(np.frexp(network.reactance)[1]))
    return [round((1 << BITS) * unit / Fraction(float(x))) for x in network.reactance]


def _flows(network: FlowNetwork, susceptance: list[int], potential: BigIntegers) -> BigIntegers:
    flow = potential[network.tail] - potential[network.head]
    for branch, value in enumerate(susceptance):
        flow[branch] = (flow[branch] * value) >> BITS
    return flow


def _factorised(network: FlowNetwork, susceptance: list[int], free: IntArray) -> Any:
    """Solve with the balances of the free nodes as equations for their potentials."""
    import scipy.sparse as sparse
    from scipy.sparse.linalg import splu

    size = len(network.nodes)
    weight = rounded(np.array(susceptance, dtype=object))
    row = np.concatenate([network.tail, network.head, network.tail, network.head])
    column = np.concatenate([network.tail, network.head, network.head, network.tail])
    value = np.concatenate([weight, weight, -weight, -weight])
    laplacian = sparse.csr_array((value, (row, column)), shape=(size, size))
    try:
        return splu(sparse.csc_array(laplacian[free][:, free])).solve
    except RuntimeError:
        raise AffineDPError(
            "the line laws do not determine the flows: negative reactances cancel positive ones. "
            "Correct the reactances"
        ) from None


def _integers(values: FloatArray) -> BigIntegers:
    if not np.all(np.isfinite(values)):
        raise AffineDPError("the line laws do not determine the flows. Correct the reactances")
    return np.array([int(value) for value in values.flat], dtype=object).reshape(values.shape)
