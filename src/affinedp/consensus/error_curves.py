"""Errors at every step, exact or estimated with an interval; bounds on them, and steps enough.

With Q = Q(t), what t steps do to first messages, a read-out that takes off a share c of
its own draw has the error (Q − 11ᵀ/n) x(0) + (Q − cI) γ.  The mean is the first term.  The second
adds Σ_j E γ_j² ‖(Q − cI) e_j‖² to the mean square.  Up to DENSE_AGENTS agents all n columns go
into the sum, through the eigenvectors of P or, for a schedule, one after the other.  Beyond, the
sum is estimated, with intervals that cover whatever the network.

The part of the error that is not known in closed form is V (A − 2c B), where V is the variance of
η, c the share of its own draw that an agent takes off, and with S = diag(σ), C = I − 11ᵀ/n

    A = tr(S C QᵀQ C S) = E‖Q C S g‖²,     B = tr(S C Q C S) = E[gᵀ S C Q C S g]

for a vector g of independent standard normal numbers.  Both die out as t grows, so the estimate
becomes exact.  The mean Â of m values has the law of Σ λ_j χ²_m/m with λ_j ≥ 0, Σ λ_j = A and
λ_j ≤ A/r, where r = max(1, A/σ_max²), since ‖Q‖ ≤ 1.  The logarithm is concave, so among all such
λ the moment generating function is largest where r of them are equal, which is a gamma law with
shape a = m r/2.  Chernoff's bound gives, with h(y) = y − 1 − log y,

    P(Â/A ≤ y) ≤ exp(−a h(y)) for y < 1,     P(Â/A ≥ y) ≤ exp(−a h(y)) for y > 1,

and the interval for A holds every A that both leave.  For B the eigenvalues β_j of the symmetric
part have Σ β_j² ≤ σ_max² A and |β_j| ≤ min(σ_max², σ_max √A), so with A⁺ the upper end for A
(Laurent and Massart)

    |B̂ − B| ≤ 2 √(σ_max² A⁺ x/m) + 2 min(σ_max², σ_max √A⁺) x/m,

except with probability 2 e^−x.  Student's t would be narrower, and cover less than it says: a few
slow modes make the values as skewed as χ²₁.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import EPS, FloatArray, IntArray
from affinedp.consensus.eigenvalues import Modes
from affinedp.consensus.one_draw import Noise
from affinedp.consensus.runs import (
    MOST_NUMBERS,
    RUNS_AT_ONCE,
    Steps,
    finite,
    limit_factor,
    noise_share,
)
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import dimensions, whole_number
from affinedp.laws.calibration import gaussian_epsilon
from affinedp.progress import Progress

COLUMNS_AT_ONCE = 256
# Powers that are held at a time: few enough for the cache of a processor.
NUMBERS_AT_ONCE = 1 << 17
# What was taken apart into modes must add up again to this share.
PARTS_AGREE = 1e-9
# A share of an error from which on its rounding is refused.
DOUBT = 1e-6
# Sums of many squares, roots and powers: more than all their roundings together.
ROUNDING_UP = 1 + 1e-12
# The least positive double.
SMALLEST = float(np.nextafter(0.0, 1.0))
# No sensible number of steps is larger; float counts are exact up to here.
MOST_STEPS = 2.0**53


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


def times_of(steps: int | Sequence[int] | IntArray) -> IntArray:
    """Return all steps up to a number, or the chosen ones."""
    if (
        isinstance(steps, str)
        or not isinstance(steps, Sequence | np.ndarray)
        or dimensions(steps, "steps") == 0
    ):
        count = whole_number(steps, "steps", 0)
        if count >= MOST_NUMBERS:
            raise AffineDPError(
                f"{count:,} steps are too many errors to keep: choose some, such as "
                "steps=[0, 10, 100, 1000]"
            )
        return np.arange(count + 1)
    chosen = [whole_number(step, "each of the chosen steps", 0) for step in steps]
    if max(chosen, default=0) > MOST_STEPS:
        raise AffineDPError("a chosen step is beyond 2^53, which doubles cannot count")
    found = np.array(chosen, dtype=np.int64)
    if not len(found) or np.any(np.diff(found) <= 0):
        raise AffineDPError("the chosen steps must be ascending, at least one, and none twice")
    return found


def spectral_curve(
    modes: Modes, noise: Noise, x0: FloatArray, times: IntArray, share: float
) -> ErrorCurve:
    """Return the exact curve of a network that stays the same, through its eigenvectors."""
    n = len(x0)
    apart = x0 - x0.mean()
    with np.errstate(over="ignore", invalid="ignore"):  # looked at below
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
    if not abs(float(parts.sum()) - whole) <= PARTS_AGREE * whole:
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
    protocol: Steps, noise: Noise, x0: FloatArray, times: IntArray, share: float
) -> ErrorCurve:
    """Return the exact curve by taking every agent's draw through all steps."""
    n = len(x0)
    with np.errstate(over="ignore", invalid="ignore"):
        total = squares_at(protocol, (x0 - x0.mean())[:, None], times, 0.0)[:, 0]
        with Progress("following every draw") as progress:
            for first in range(0, n, COLUMNS_AT_ONCE):
                some = np.arange(first, min(first + COLUMNS_AT_ONCE, n))
                columns = np.zeros((n, len(some)))
                columns[some, np.arange(len(some))] = noise.sigma[some]
                total += noise.variance * squares_at(protocol, columns, times, share).sum(axis=1)
                progress.update((first + len(some)) / n)
    return exact_curve(total, "every draw followed through all steps", times)


def squares_at(protocol: Steps, columns: FloatArray, times: IntArray, share: float) -> FloatArray:
    """Return ‖Q_t v − c v‖² for each column v, shape (times, columns)."""
    if protocol.order is not None:
        columns = columns[protocol.order]
    found = np.empty((len(times), columns.shape[1]))
    for place, now in moved_to(protocol, columns, times):
        left = now - share * columns if share else now
        found[place] = np.einsum("ij,ij->j", left, left)
    return found


def moved_to(
    protocol: Steps, columns: FloatArray, times: IntArray
) -> Iterator[tuple[int, FloatArray]]:
    """Yield the places of the chosen times, and the columns after so many steps."""
    steps = enumerate(protocol.follow(columns))
    for place, time in enumerate(times.tolist()):
        yield place, next(now for t, now in steps if t == time)


def exact_curve(values: FloatArray, method: str, times: IntArray) -> ErrorCurve:
    """Return a curve without an interval; what is no number is refused."""
    finite(values)
    return ErrorCurve(values, values, values, True, 1.0, method, times)


_HALVINGS = 60  # of an interval in logarithms: more than doubles can tell


def estimated_curve(
    protocol: Steps,
    noise: Noise,
    x0: FloatArray,
    times: IntArray,
    share: float,
    probes: int,
    confidence: float,
    generator: np.random.Generator,
) -> ErrorCurve:
    """Return an unbiased estimate of the curve, with an interval."""
    n, scale = len(x0), float(noise.sigma.max())
    unit = noise.sigma / (scale or 1.0)  # so that no square is beyond double precision
    a, b = _means(protocol, unit, times, probes, generator)
    failure = (1 - confidence) / (1 if share == 0 else 2)
    trace = math.fsum(unit**2) * (1 - 1 / n)  # of A and B at t = 0; A never grows
    low_a, high_a = trace_interval(a, probes, 1.0, failure)
    low_a, high_a = np.minimum(low_a, trace), np.minimum(high_a, trace)
    x = math.log(2 / failure)
    half = 2 * np.sqrt(high_a * x / probes) + 2 * np.minimum(1.0, np.sqrt(high_a)) * x / probes
    begin = times == 0
    a[begin] = b[begin] = low_a[begin] = high_a[begin] = trace
    half[begin] = 0.0
    middle = np.clip(a, low_a, high_a) - 2 * share * b
    low, high = low_a - 2 * share * (b + half), high_a - 2 * share * (b - half)
    with np.errstate(over="ignore"):
        size = noise.variance * scale * scale
        # of the average of the draws, which stays, and of what an agent takes off
        stays = size * (1 - share) ** 2 * math.fsum(unit**2) / n
        sure = stays + size * share**2 * trace
        base = squares_at(protocol, (x0 - x0.mean())[:, None], times, 0.0)[:, 0]
        values = base + sure + size * middle
        # noise adds to the bias and to what stays
        low = np.minimum(values, np.maximum(base + sure + size * low, base + stays))
        high = np.maximum(values, base + sure + size * high)
    finite(high)
    method = f"an estimate from {probes} vectors of normal numbers"
    return ErrorCurve(values, low, high, False, confidence, method, times)


def _means(
    protocol: Steps,
    sigma: FloatArray,
    times: IntArray,
    probes: int,
    generator: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """The means over the probes of ‖Q v‖² and vᵀ Q v with v = C S g."""
    squares, products = np.zeros(len(times)), np.zeros(len(times))
    with Progress("estimating the error") as progress:
        for first in range(0, probes, RUNS_AT_ONCE):
            count = min(RUNS_AT_ONCE, probes - first)
            columns = generator.normal(size=(count, len(sigma))).T * sigma[:, None]
            columns = np.ascontiguousarray(columns - columns.mean(axis=0))
            if protocol.order is not None:
                columns = columns[protocol.order]
            for place, now in moved_to(protocol, columns, times):
                squares[place] += np.einsum("ij,ij->", now, now)
                products[place] += np.einsum("ij,ij->", now, columns)
            progress.update((first + count) / probes)
    return squares / probes, products / probes


def trace_interval(
    mean: FloatArray, probes: int, largest: float, failure: float
) -> tuple[FloatArray, FloatArray]:
    """Return an interval for the trace A of a positive semidefinite matrix."""
    enough = math.log(2 / failure)

    def covers(trace: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        y = mean / trace
        shape = probes / 2 * np.maximum(1.0, trace / largest)
        return np.asarray(shape * (y - 1 - np.log(y)) <= enough)

    ends = []
    positive = mean > 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for side in (-1.0, 1.0):
            # in logarithms of A/Â; beyond ±(enough + 2) nothing is covered for one probe
            inside = np.zeros(len(mean))
            outside = np.full(len(mean), side * 2 * (enough + 2))
            for _ in range(_HALVINGS):
                middle = (inside + outside) / 2
                kept = covers(mean * np.exp(middle))
                inside, outside = np.where(kept, middle, inside), np.where(kept, outside, middle)
            ends.append(np.where(positive, mean * np.exp(outside), 0.0))
    return ends[0], ends[1]


# ---------------------------------------------------------------------- bounds


def proposition_1(
    statement: str, powers: FloatArray, x0: FloatArray, noise: Noise, gamma: FloatArray | None
) -> FloatArray:
    """Return the bounds of Proposition 1 where α^t is as given.

    (i) "path": α^t ‖x(0)‖ + (1 + α^t) ‖γ‖, which no run with the draws γ exceeds; (ii) "mean":
    α^t ‖x(0) − average‖; (iii) "mean-square": α^2t ‖x(0) − average‖² + (1 + α^t)² Σ E γ_i².
    """
    if gamma is not None:
        drawn = np.asarray(length(gamma))[..., None]
        return upwards(lambda: powers * length(x0) + (1 + powers) * drawn)
    spread = length(x0 - x0.mean())
    if statement == "mean":
        return upwards(lambda: powers * spread)
    total = noise.total_variance
    return upwards(lambda: (powers * spread) ** 2 + (1 + powers) ** 2 * total)


def length(vectors: FloatArray) -> FloatArray:
    """Return ‖·‖ along the last axis, also where squares are beyond double precision."""
    largest = np.abs(vectors).max(axis=-1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.linalg.norm(vectors / scale[..., None], axis=-1) * largest)


def upwards(compute: Callable[[], FloatArray]) -> FloatArray:
    """Return a bound rounded up; one beyond double precision is refused."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = np.asarray(compute() * ROUNDING_UP)
    if not np.isfinite(found).all():
        raise AffineDPError(
            "the bound is beyond double precision: use another unit, such as thousands"
        )
    # what became 0 on the way may have been more
    return np.maximum(found, SMALLEST)


def shrinking_steps(alpha: float, factor: float) -> int:
    """Return a t with α^t ≤ factor, at most one more than needed for this α."""
    if factor >= 1.0:
        return 0
    if not alpha < 1.0:
        raise AffineDPError("no number of steps can be proved: α may be 1 within rounding")
    if alpha <= 0.0:
        return 1
    steps = math.log(factor) / math.log(alpha) * (1 + 4 * EPS)
    if not steps < MOST_STEPS:
        raise AffineDPError("differences die out too slowly for a number of steps: α is almost 1")
    return math.ceil(steps)


def settling_steps(
    alpha: float, noise: Noise, readout: str, spread: float, tolerance: float
) -> int:
    """Return a t from which on the mean-square error is within ``tolerance`` of its limit.

    With S the total variance of the noise times (1 − 1/n), the difference is at most
    α^2t (spread² + S) + 2 c α^t S for a read-out with share c.
    """
    n = len(noise.sigma)
    total = noise.total_variance * (1 - 1 / n) * ROUNDING_UP
    linear = noise_share(readout, n) * total
    square = (spread * spread + total) * ROUNDING_UP
    if not math.isfinite(square):
        raise AffineDPError("the square of spread is beyond double precision: use another unit")
    if spread == 0.0 and total == 0.0:
        return 0
    square = max(square, SMALLEST)
    # the positive root of square p² + 2 linear p = tolerance, without cancellation
    power = tolerance / (linear + math.hypot(linear, math.sqrt(square) * math.sqrt(tolerance)))
    return shrinking_steps(alpha, power * (1 - 1e-12))


def optimal_epsilon(noise: Noise, zeta: float, readout: str, delta: float | None) -> float:
    """Return the least ε with which the limit of the mean-square error is at most ζ.

    σ_i is proportional to μ_i, as the least noise for one ε is.  The paper's trade-off is
    ``readout="paper"``: it uses the bound Σ E γ_i² in place of the limit.
    """
    n = len(noise.mu)
    factor = 1.0 if readout == "paper" else limit_factor(noise_share(readout, n), n)
    # without squares, which may be no doubles
    relative = float(length(noise.mu)) / math.sqrt(zeta)
    sensitivity = relative * math.sqrt(factor * noise.variance) * ROUNDING_UP
    if noise.law == "laplace":
        return sensitivity
    if delta is None or not 0 < delta < 1:
        raise AffineDPError(f"Gaussian noise needs delta between 0 and 1, not {delta!r}")
    return float(gaussian_epsilon(float(delta), sensitivity))
