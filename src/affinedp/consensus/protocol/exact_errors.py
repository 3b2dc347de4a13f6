"""Mean and mean-square errors at every step: exact, or estimated with an interval.

With Q = P^t (or the product of the matrices of a schedule) a read-out that takes off a share c of
its own draw has the error (Q − 11ᵀ/n) x(0) + (Q − cI) γ.  The mean is the first term.  The second
adds Σ_j E γ_j² ‖(Q − cI) e_j‖² to the mean square.  Up to DENSE_AGENTS agents all n columns go
into the sum, through the eigenvectors of P or, for a schedule, one after the other.  Beyond, the
sum is estimated (:mod:`affinedp.consensus.protocol.probes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.network.modes import Modes
from affinedp.consensus.network.schedule import Mover
from affinedp.consensus.protocol.promise import Noise
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

COLUMNS_AT_ONCE = 256
# Powers that are held at a time: few enough for the cache of a processor.
NUMBERS_AT_ONCE = 1 << 17
# What was taken apart into modes must add up again to this share.
PARTS_AGREE = 1e-9
# A share of an error from which on its rounding is refused.
DOUBT = 1e-6
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """E‖read-out(t) − average‖² for t = 0, 1, …, or at chosen steps; usable as an array.

    Attributes
    ----------
    values : array, shape (times,)
        The mean-square error, or its estimate.
    low, high : array, shape (times,)
        An interval for it; equal to ``values`` where these are exact.
    exact : bool
        Whether ``values`` are exact up to rounding.
    confidence : float
        The interval at each step covers with at least this probability; 1 if exact.
    method : str
        How it was computed.
    times : array of int
        The steps.
    """

    values: FloatArray
    low: FloatArray = field(repr=False)
    high: FloatArray = field(repr=False)
    exact: bool
    confidence: float
    method: str
    times: IntArray = field(repr=False)

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
    modes: Modes, noise: Noise, x0: FloatArray, times: IntArray, share: float
) -> ErrorCurve:
    """Return the exact curve of a network that stays the same, through its eigenvectors.

    Parameters
    ----------
    modes : Modes
        All modes of the network.
    noise : Noise
        One draw per agent.
    x0 : array, shape (n,)
        x(0).
    times : array of int
        The steps, ascending.
    share : float
        c, the share of its own draw that an agent takes off.
    """
    n = len(x0)
    apart = x0 - x0.mean()
    with np.errstate(over="ignore"):
        bias = (modes.vectors.T @ apart) ** 2
        squares = noise.variance * noise.sigma**2
        spread = squares @ modes.vectors**2
        _check_parts(bias, float(apart @ apart))
        _check_parts(spread, float(squares.sum()) * (1 - 1 / n))
        # the constant vector, which every step keeps
        always = (1 - share) ** 2 * float(squares.sum()) / n
        found = np.empty(len(times))
        with Progress("adding up the modes") as progress:
            rows = max(1, NUMBERS_AT_ONCE // n)
            table, begun = modes.powers(np.arange(min(rows, len(times)), dtype=float)), 0
            while begun < len(times):
                some = times[begun : begun + rows]
                if some[-1] - some[0] == len(some) - 1:  # no step is left out
                    powers = table[: len(some)] * modes.powers(some[:1].astype(float))
                else:
                    powers = modes.powers(some.astype(float))
                found[begun : begun + len(some)] = powers**2 @ bias + (powers - share) ** 2 @ spread
                begun += len(some)
                progress.update(begun / len(times))
        found += always
        _check_alternating(modes, bias + 2 * spread, times, found)
    return exact_curve(found, "all eigenvectors", times)


def _check_parts(parts: FloatArray, whole: float) -> None:
    """Refuse modes that do not add up to what was taken apart."""
    if not math.isfinite(whole):
        raise AffineDPError(
            "the squares of these values or of this noise are beyond double precision: use "
            "another unit, such as thousands"
        )
    if abs(float(parts.sum()) - whole) > PARTS_AGREE * whole:
        raise AffineDPError(
            "the eigenvectors of this network do not add up to the whole, so the error would be "
            "wrong: use method='exact' with a schedule, or method='estimate'"
        )


def _check_alternating(modes: Modes, sizes: FloatArray, times: IntArray, found: FloatArray) -> None:
    """Refuse powers of eigenvalues of P so close to −1 that their rounding counts."""
    close = modes.values > 2 - 1e-4
    if not close.any():
        return
    # LAPACK's backward error, as in the spectrum; t |v|^(t−1) times it is that of a power
    error = 8 * len(modes.vectors) * EPS * modes.values[close]
    size = np.minimum(modes.values[close] + error - 1, 1.0)
    at = np.unique(np.linspace(0, len(times) - 1, 1000).astype(int))
    t = times[at].astype(float)[:, None]
    doubt = np.minimum(t * np.exp(np.log(size) * np.maximum(t - 1, 0)) * error, 2.0) @ (
        2 * sizes[close]
    )
    bad = np.flatnonzero(doubt > DOUBT * found[at])
    if len(bad):
        raise AffineDPError(
            f"λ_n = {float(modes.values[-1])!r} is so close to 2 that differences hardly die out, "
            f"and after {int(times[at[bad[0]]])} steps rounding decides the error: ask for fewer "
            "steps, or use smaller weights"
        )


def column_curve(
    mover: Mover, noise: Noise, x0: FloatArray, times: IntArray, share: float
) -> ErrorCurve:
    """Return the exact curve by taking every agent's draw through all steps.

    Parameters
    ----------
    mover : Mover
        What one step does.
    noise, x0, times, share
        As for :func:`spectral_curve`.
    """
    n = len(x0)
    with np.errstate(over="ignore", invalid="ignore"):
        total = squares_at(mover, (x0 - x0.mean())[:, None], times, 0.0)[:, 0]
        with Progress("following every draw") as progress:
            for first in range(0, n, COLUMNS_AT_ONCE):
                some = np.arange(first, min(first + COLUMNS_AT_ONCE, n))
                columns = np.zeros((n, len(some)))
                columns[some, np.arange(len(some))] = noise.sigma[some]
                total += noise.variance * squares_at(mover, columns, times, share).sum(axis=1)
                progress.update((first + len(some)) / n)
    return exact_curve(total, "every draw followed through all steps", times)


def squares_at(mover: Mover, columns: FloatArray, times: IntArray, share: float) -> FloatArray:
    """Return ‖Q_t v − c v‖² for each column v, shape (times, columns).

    Parameters
    ----------
    mover : Mover
        What one step does.
    columns : array, shape (n, columns)
        The vectors v.
    times : array of int
        The steps, ascending.
    share : float
        c.
    """
    if mover.order is not None:
        columns = columns[mover.order]
    found = np.empty((len(times), columns.shape[1]))
    for place, now in moved_to(mover, columns, times):
        left = now - share * columns if share else now
        found[place] = np.einsum("ij,ij->j", left, left)
    return found


def moved_to(
    mover: Mover, columns: FloatArray, times: IntArray
) -> Iterator[tuple[int, FloatArray]]:
    """Yield the places of the chosen times, and the columns after so many steps.

    Parameters
    ----------
    mover, columns, times
        As for :func:`squares_at`; the columns are in the order of the mover.
    """
    now, t = columns, 0
    for place, time in enumerate(times.tolist()):
        while t < time:
            now = mover.move(t, now)
            t += 1
        yield place, now


def exact_curve(values: FloatArray, method: str, times: IntArray) -> ErrorCurve:
    """Return a curve without an interval; what is no number is refused.

    Parameters
    ----------
    values : array, shape (times,)
        The errors.
    method : str
        How they were computed.
    times : array of int
        The steps.
    """
    if not np.isfinite(values).all():
        raise AffineDPError(
            "the squared errors are beyond double precision: use another unit, such as thousands"
        )
    return ErrorCurve(values, values, values, True, 1.0, method, times)
