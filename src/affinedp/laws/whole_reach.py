"""How far whole combinations of K-norm noise on a lattice reach, from their law.

Given the point of a unit box, noise on a lattice is Σ (λ_i + t_i) a_i with geometric t_i that are
independent (see :mod:`affinedp.laws.cones`).  So the characteristic function of a combination is
a sum over cones of products, and one discrete Fourier transform makes probabilities of it; all that
wraps around or is rounded is counted against them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.laws.cones import LatticeCones

EPS = float(np.finfo(float).eps)
# What may wrap around.
TAIL = 1e-15
# Numbers in the tables of one question.
MOST_WORK = 4e7
MOST_PLACES = 1 << 21
# Where the transform says nothing any more and too many simulated releases would be needed.
RARE = 1e-6
# Slopes for Chernoff's bound, as shares of the steepest.
SLOPES = np.concatenate([np.geomspace(1e-4, 0.1, 20), np.linspace(0.12, 0.98, 44)])


@dataclass(frozen=True, eq=False)
class WholeTerm:
    """What one cone adds: Σ_b weights[b] e^(iθ starts[b]) Π_i (1 − q) / (1 − q e^(iθ steps[i])).

    Attributes
    ----------
    steps : array of int
        The combination of the generators.
    starts : array of int
        The combination of the points of the unit box.
    logs : array
        Logarithms of the weights of these points, up to a number for all cones.
    """

    steps: IntArray
    starts: IntArray
    logs: FloatArray


@dataclass(frozen=True, eq=False)
class WholeLaw:
    """The law of a whole combination of one part of the noise.

    Attributes
    ----------
    rate : float
        −ln q.
    terms : tuple of WholeTerm
        One per cone.
    """

    rate: float
    terms: tuple[WholeTerm, ...]

    @property
    def steepest(self) -> float:
        """The exponential moments up to here are finite."""
        return self.rate / max(int(np.abs(term.steps).max()) for term in self.terms)

    @property
    def work(self) -> int:
        """Numbers in a table for one frequency."""
        return sum(len(term.steps) + len(term.starts) for term in self.terms)

    @property
    def total(self) -> float:
        """The weight of all points of unit boxes."""
        return math.fsum(float(np.exp(term.logs).sum()) for term in self.terms)

    def log_moments(self, slopes: FloatArray) -> FloatArray:
        """Return log E e^(θX).

        Parameters
        ----------
        slopes : array
            θ, positive and below ``steepest``.
        """
        rest, found = -math.expm1(-self.rate), np.zeros(len(slopes))
        for term in self.terms:
            own = np.exp(np.outer(slopes, term.starts) + term.logs).sum(axis=1)
            stays = -np.expm1(np.outer(slopes, term.steps) - self.rate)
            found += own * (rest / stays).prod(axis=1)
        return np.asarray(np.log(found / self.total))

    def transform(self, places: int) -> FloatArray:
        """Return E e^(2πi k X / places) for k = 0 … places/2; real, since the law is symmetric.

        Parameters
        ----------
        places : int
            An even number.
        """
        turns = 2 * math.pi / places * np.arange(places)
        around = np.exp(1j * turns)
        # 1 − e^(iφ), without cancellation
        away = 2 * np.sin(turns / 2) ** 2 - 1j * np.sin(turns)
        rest, q = -math.expm1(-self.rate), math.exp(-self.rate)
        k = np.arange(places // 2 + 1)
        found = np.zeros(len(k), dtype=complex)
        for term in self.terms:
            own = np.zeros(len(k), dtype=complex)
            for start, log in zip(term.starts.tolist(), term.logs.tolist()):
                own += math.exp(log) * around[k * start % places]
            for step in term.steps.tolist():
                own *= rest / (rest + q * away[k * step % places])
            found += own
        return np.asarray(found.real / self.total)


def cone_law(cones: LatticeCones, rate: float, combination: IntArray) -> WholeLaw:
    """Return the law of a whole combination of noise on a lattice.

    Parameters
    ----------
    cones : LatticeCones
        The lattice.
    rate : float
        Of the noise.
    combination : array of int
        One coefficient per coordinate.
    """
    step = rate * float(cones.unit)
    terms = []
    for generators, points, sums in cones.boxes:
        starts = np.rint(points @ generators).astype(np.int64) @ combination
        steps = generators.astype(np.int64) @ combination
        terms.append(WholeTerm(steps, starts, -step * sums))
    return WholeLaw(step, tuple(terms))


def geometric_law(rate: float, multiple: int) -> WholeLaw:
    """Return the law of a multiple of two-sided geometric noise: the difference of two of one side.

    Parameters
    ----------
    rate : float
        Of the noise.
    multiple : int
        Not 0.
    """
    steps = np.array([multiple, -multiple])
    return WholeLaw(rate, (WholeTerm(steps, np.zeros(1, dtype=np.int64), np.zeros(1)),))


def whole_law_reach(laws: list[WholeLaw], outside: float) -> int | None:
    """Return t with P(|Σ X| > t) ≤ outside for independent X; None if it is too much to compute.

    Parameters
    ----------
    laws : list of WholeLaw
        Of the X.
    outside : float
        In (0, 1).

    Examples
    --------
    >>> whole_law_reach([geometric_law(1.0, 1)], 0.05)       # 2 e^(−4) / (1 + e^(−1)) is 0.027
    3
    """
    safe, far = (_chernoff(laws, p) for p in (outside, TAIL))
    work = sum(law.work for law in laws)
    places = 1 << (2 * far + 2).bit_length()
    # entries are off by a few roundings each, and sums over places by √places of that
    doubt = 2 * TAIL + 64 * EPS * (work + 4 * math.log2(places)) * math.sqrt(places)
    if places > MOST_PLACES or places * float(work) > MOST_WORK or doubt > outside / 100:
        return safe if outside < RARE else None
    transform = np.ones(places // 2 + 1)
    for law in laws:
        transform *= law.transform(places)
    beyond = 2 * np.cumsum(np.fft.irfft(transform, places)[places // 2 - 1 : 0 : -1])[::-1]
    enough = np.flatnonzero(beyond + doubt <= outside)
    # beyond[t] is the probability of more than t
    return min(safe, int(enough[0])) if len(enough) else safe


def _chernoff(laws: list[WholeLaw], probability: float) -> int:
    """A t with P(|Σ X| > t) ≤ probability, at the best of many slopes."""
    slopes = SLOPES * min(law.steepest for law in laws)
    logs = np.sum([law.log_moments(slopes) for law in laws], axis=0) + 1e-12
    return math.ceil(float(((logs - math.log(probability / 2)) / slopes).min()))
