"""Mean and mean-square errors at every step: exact, or estimated with an interval.

With Q = P^t (or the product of the matrices of a schedule) a read-out that takes off a share c of
its own draw has the error (Q − 11ᵀ/n) x(0) + (Q − cI) γ.  The mean is the first term.  The second
adds Σ_j E γ_j² ‖(Q − cI) e_j‖² to the mean square.  Up to DENSE_AGENTS agents all n columns go
into the sum, through the eigenvectors of P or, for a schedule, one after the other.

Beyond, random signs z_j in place of the n columns give E‖(Q − cI) σ∘z‖², the same number
(Hutchinson).  Two parts of it are known and are not estimated: the average of σ∘z, which Q keeps,
and ‖c σ∘z‖².  What remains dies out as t grows, so the estimate becomes exact in the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.consensus.network.network import Network
from affinedp.consensus.network.schedule import Mover
from affinedp.consensus.protocol.promise import Noise
from affinedp.consensus.protocol.simulation import RUNS_AT_ONCE
from affinedp.progress import Progress

COLUMNS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """E‖read-out(t) − average‖² for t = 0, 1, …; usable as an array.

    Attributes
    ----------
    values : array, shape (steps + 1,)
        The mean-square error, or its estimate.
    low, high : array, shape (steps + 1,)
        An interval for it; equal to ``values`` where these are exact.
    exact : bool
        Whether ``values`` are exact up to rounding.
    confidence : float
        Of the interval at each step, by Student's law; 1 if exact.
    method : str
        How it was computed.
    """

    values: FloatArray
    low: FloatArray = field(repr=False)
    high: FloatArray = field(repr=False)
    exact: bool
    confidence: float
    method: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return self.values[place]

    def __iter__(self) -> Iterator[float]:
        return iter(self.values.tolist())


def deviations(mover: Mover, x0: FloatArray, steps: int) -> Iterator[FloatArray]:
    """Yield E[read-out(t)] − average for t = 0, 1, …, the same for all read-outs.

    Parameters
    ----------
    mover : Mover
        What one step does, in the order of the agents.
    x0 : array, shape (n,)
        x(0).
    steps : int
        How many.
    """
    now = x0 - x0.mean()
    yield now
    for t in range(steps):
        now = mover.move(t, now)
        yield now


def spectral_curve(
    network: Network, noise: Noise, x0: FloatArray, steps: int, share: float
) -> ErrorCurve:
    """Return the exact curve of a network that stays the same, through its eigenvectors.

    Parameters
    ----------
    network : Network
        Small enough for all eigenvectors.
    noise : Noise
        One draw per agent.
    x0 : array, shape (n,)
        x(0).
    steps : int
        How many.
    share : float
        c, the share of its own draw that an agent takes off.
    """
    values, vectors = network.eigenvectors
    powers = values[None, :] ** np.arange(steps + 1)[:, None]
    bias = (vectors.T @ (x0 - x0.mean())) ** 2
    bias[-1] = 0.0  # the constant vector
    spread = noise.variance * ((noise.sigma**2) @ vectors**2)
    return _exact(powers**2 @ bias + (powers - share) ** 2 @ spread, "all eigenvectors")


def column_curve(
    mover: Mover, noise: Noise, x0: FloatArray, steps: int, share: float
) -> ErrorCurve:
    """Return the exact curve by taking every agent's draw through all steps.

    Parameters
    ----------
    mover, noise, x0, steps, share
        As for :func:`spectral_curve`.
    """
    total = _squares(mover, (x0 - x0.mean())[:, None], steps, 0.0)[:, 0]
    n = len(x0)
    with Progress("following every draw") as progress:
        for first in range(0, n, COLUMNS_AT_ONCE):
            some = np.arange(first, min(first + COLUMNS_AT_ONCE, n))
            columns = np.zeros((n, len(some)))
            columns[some, np.arange(len(some))] = noise.sigma[some]
            total += noise.variance * _squares(mover, columns, steps, share).sum(axis=1)
            progress.update((first + len(some)) / n)
    return _exact(total, "every draw followed through all steps")


def estimated_curve(
    mover: Mover,
    noise: Noise,
    x0: FloatArray,
    steps: int,
    share: float,
    probes: int,
    confidence: float,
    generator: np.random.Generator,
) -> ErrorCurve:
    """Return an unbiased estimate of the curve, with an interval.

    Parameters
    ----------
    mover, noise, x0, steps, share
        As for :func:`spectral_curve`.
    probes : int
        How many vectors of random signs, at least 2.
    confidence : float
        Of the interval at each step.
    generator : numpy.random.Generator
        Where the signs come from.
    """
    from scipy.special import stdtrit

    n = len(x0)
    known = noise.total_variance
    parts = []
    with Progress("estimating the error") as progress:
        for first in range(0, probes, RUNS_AT_ONCE):
            count = min(RUNS_AT_ONCE, probes - first)
            signs = generator.integers(0, 2, size=(count, n), dtype=np.int8).T
            signed = np.where(signs, 1.0, -1.0) * noise.sigma[:, None]
            signed -= signed.mean(axis=0)
            length = np.einsum("ij,ij->j", signed, signed)
            parts.append(_squares(mover, signed, steps, share) - share**2 * length)
            progress.update((first + count) / probes)
    each = noise.variance * np.hstack(parts)
    base = _squares(mover, (x0 - x0.mean())[:, None], steps, 0.0)[:, 0]
    sure = base + known * ((1 - share) ** 2 / n + share**2 * (1 - 1 / n))
    middle = sure + each.mean(axis=1)
    half = each.std(axis=1, ddof=1) / math.sqrt(probes)
    half *= float(stdtrit(probes - 1, (1 + confidence) / 2))
    return ErrorCurve(
        middle,
        np.minimum(middle, np.maximum(middle - half, base)),  # noise adds to the bias
        np.maximum(middle + half, base),
        False,
        confidence,
        f"an estimate from {probes} vectors of random signs",
    )


def _squares(mover: Mover, columns: FloatArray, steps: int, share: float) -> FloatArray:
    """‖Q_t v − c v‖² for each column v, shape (steps + 1, columns)."""
    if mover.order is not None:
        columns = columns[mover.order]
    found = np.empty((steps + 1, columns.shape[1]))
    now = columns
    for t in range(steps + 1):
        if t:
            now = mover.move(t - 1, now)
        left = now - share * columns if share else now
        found[t] = np.einsum("ij,ij->j", left, left)
    return found


def _exact(values: FloatArray, method: str) -> ErrorCurve:
    return ErrorCurve(values, values, values, True, 1.0, method)
