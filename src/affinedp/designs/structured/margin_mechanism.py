"""Noise on margins of tables that cannot be listed: its promise, its size, its release."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger, paying
from affinedp.designs.structured.contrasts import centred, contrasts, residual, squared_lengths
from affinedp.designs.structured.integer_noise import (
    SPARE,
    Integers,
    noisy,
    noisy_whole,
    whole_precisions,
)
from affinedp.designs.structured.intervals import half_widths, whole_reach, whole_sum_reach
from affinedp.designs.structured.margin_blocks import (
    LEAST,
    MarginNeighbours,
    Sets,
    cells_of,
    members,
    subsets,
    variance_shares,
)
from affinedp.designs.structured.margin_counts import MOST_PEOPLE, Counts
from affinedp.designs.structured.margin_terms import margin_terms
from affinedp.designs.structured.released_margins import ReleasedMargins
from affinedp.designs.structured.reports import noise_report
from affinedp.errors import AffineDPError
from affinedp.intervals import Interval
from affinedp.laws.named import LawName
from affinedp.privacy.guarantee import Guarantee
from affinedp.show.page import Report
from affinedp.strategies.rounded_plan import GRID_BITS

# Below this, rounding q down would add more noise than anybody states.
LEAST_Q = 1 << 24


@dataclass(frozen=True, eq=False)
class MarginMechanism:
    """White Gaussian noise on the residuals of margins, or whole Laplace noise on some margins.

    Gaussian noise is drawn on integer contrasts, Laplace noise on the counts themselves.
    :func:`~affinedp.designs.structured.margins.design_margins` makes one.

    Attributes
    ----------
    sizes : tuple of int
        Values of every attribute.
    margins : array of int
        The margins that are released, as bits.
    blocks : array of int
        Sets of attributes whose residuals carry noise.
    t : array
        Their precisions.
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    household : int
        How many people, or pairs of people, may move at once.
    guarantee : Guarantee
        What is promised.
    measured : array of int or None
        For Laplace noise: the margins that get it.
    margin_scales : array of int or None
        For Laplace noise: q of each of them, for noise of scale 2⁵⁶/q.
    gap : float or None
        Computed distance, relative, to what no Gaussian mechanism goes below (widened by 10⁻⁶).
        None for Laplace noise.
    alternatives : tuple of (str, float)
        What other ways to keep the same promise cost, as multiples of this one.
    notes : tuple of str
        What a reader should know about the design.
    """

    sizes: tuple[int, ...]
    margins: Sets = field(repr=False)
    blocks: Sets = field(repr=False)
    t: FloatArray = field(repr=False)
    neighbours: MarginNeighbours
    household: int
    guarantee: Guarantee
    measured: Sets | None = field(default=None, repr=False)
    margin_scales: Integers | None = field(default=None, repr=False)
    gap: float | None = None
    alternatives: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def law(self) -> LawName:
        """Law of the noise."""
        return "gaussian" if self.measured is None else "laplace"

    @cached_property
    def cells_alone(self) -> bool:
        """Whether only the table of all attributes gets noise, and margins are sums of its cells.

        Where the number of people is public, cells are moved to fit it, and are not whole.
        """
        full = (1 << len(self.sizes)) - 1
        return (
            self.measured is not None
            and self.neighbours == "person"
            and bool(self.measured.tolist() == [full])
        )

    @cached_property
    def variances(self) -> dict[tuple[int, ...], float]:
        """Variance of every cell of each margin, by its attributes."""
        shares = variance_shares(self.sizes, self.margins, self.blocks)
        found = shares @ (1 / self.t)
        return {members(A): float(v) for A, v in zip(self.margins.tolist(), found)}

    @property
    def expected_squared_error(self) -> float:
        """Expected squared error of all cells of all margins."""
        return math.fsum(
            self.variances[members(A)] * cells_of(self.sizes, A) for A in self.margins.tolist()
        )

    @property
    def root_mean_square_error(self) -> float:
        """Over all cells of all margins that carry noise."""
        noisy_cells = sum(
            cells_of(self.sizes, A) for A in self.margins.tolist() if self.variances[members(A)] > 0
        )
        return math.sqrt(self.expected_squared_error / noisy_cells)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is released."""
        digest = hashlib.sha256(self.guarantee.neighbours_key.encode())
        digest.update(self.blocks.astype("<i8").tobytes() + self.t.astype("<f8").tobytes())
        if self.measured is not None and self.margin_scales is not None:
            digest.update(self.measured.astype("<i8").tobytes())
            digest.update(self.margin_scales.astype("<i8").tobytes())
        return digest.hexdigest()

    def scales(self, block: int) -> Integers:
        """Return q of every contrast of a block: the noise on it has scale 2⁵⁶/q.

        ``q² |h|² ≤ 4⁵⁶ t`` holds exactly: the four roundings on the way are together less than
        a part in 2⁵⁰, and q is made smaller by a part in 2⁴⁶ before it is rounded down.

        Parameters
        ----------
        block : int
            A set of attributes, as bits.
        """
        place = int(np.flatnonzero(self.blocks == block)[0])
        lengths = squared_lengths(tuple(self.sizes[j] - 1 for j in members(block)))
        inverse = np.sqrt(self.t[place] / lengths) * (1 - SPARE)
        return np.asarray(np.floor(np.ldexp(inverse, GRID_BITS)), dtype=np.int64)

    def report(self) -> Report:
        """Return what people want to read: the promise, the noise by margin, other ways."""
        noise = ((f"margin of {', '.join(map(str, names)) or 'nothing'}", math.sqrt(variance))
                 for names, variance in self.variances.items())  # fmt: skip
        law = "Gaussian" if self.law == "gaussian" else "Laplace"
        title = f"{law} noise on {len(self.margins):,} margins of {len(self.sizes)} attributes"
        return noise_report(title, self.guarantee, noise, self.gap, self.alternatives, self.notes)

    def __str__(self) -> str:
        return str(self.report())

    def linear_variance(self, attributes: Iterable[int], combination: ArrayLike) -> float:
        """Return the variance of a linear function of the cells of one margin.

        Parameters
        ----------
        attributes : iterable of int
            The margin.
        combination : array
            One coefficient per cell.
        """
        chosen = tuple(attributes)
        A = sum(1 << j for j in chosen)
        given = np.asarray(combination, dtype=float)
        if given.shape != tuple(self.sizes[j] for j in chosen) or A not in self.margins:
            raise AffineDPError(f"combination must have one number per cell of the margin {chosen}")
        precision = dict(zip(self.blocks.tolist(), self.t.tolist()))
        total = 0.0
        for B in subsets(A):
            if B in precision:
                out = tuple(i for i, j in enumerate(chosen) if not B >> j & 1)
                total += float((centred(given.mean(axis=out)) ** 2).sum()) / precision[B]
        return total

    def interval(
        self,
        released: ReleasedMargins,
        attributes: Iterable[int],
        *,
        combination: ArrayLike | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Interval:
        """Return where the true cells of a margin, or a linear function of them, lie.

        Parameters
        ----------
        released : ReleasedMargins
            What was published.
        attributes : iterable of int
            The margin.
        combination : array, optional
            One coefficient per cell; every cell by itself if it is left out.
        level : float
            With which probability.
        simultaneous : bool
            Whether for all cells of this margin at once.
        """
        chosen = tuple(attributes)
        center = released.margin(chosen)
        together = center.size if simultaneous and combination is None else 1
        if combination is not None:
            center = np.array(float((np.asarray(combination, dtype=float) * center).sum()))
        reach = self.half_width(chosen, level, together, combination)
        return Interval(center - reach, center + reach, level, simultaneous)

    def half_width(
        self,
        attributes: Iterable[int],
        level: float = 0.95,
        together: int = 1,
        combination: ArrayLike | None = None,
    ) -> float:
        """Return how far a cell of a margin, or a linear function, is from the truth.

        Šidák's inequality for Gaussian noise; the law of sums of whole Laplace numbers and
        Bonferroni's inequality for Laplace noise: never too short.

        Parameters
        ----------
        attributes : iterable of int
            The margin.
        level : float
            With which probability.
        together : int
            How many numbers are to hold at once.
        combination : array, optional
            One coefficient per cell.
        """
        chosen = tuple(attributes)
        if combination is None:
            variance = self.variances[chosen]
        else:
            variance = self.linear_variance(chosen, combination)
        if self.law == "gaussian" or variance == 0:
            return float(half_widths("gaussian", np.array(variance), level, together))
        if not 0 < level < 1:
            raise AffineDPError(f"level must lie between 0 and 1, not {level!r}")
        assert self.measured is not None
        assert self.margin_scales is not None
        if self.cells_alone and combination is None:
            terms = math.prod(n for j, n in enumerate(self.sizes) if j not in chosen)
            scale = 2.0**GRID_BITS / int(self.margin_scales[0])
            return whole_reach(scale, terms, level, together)
        own = dict(zip(self.blocks.tolist(), self.t.tolist()))
        terms_of = margin_terms(
            self.sizes, own, self.measured, self.margin_scales, chosen, combination
        )
        return whole_sum_reach(*terms_of, 1 - (1 - level) / max(together, 1))

    def release(
        self,
        counts: Counts,
        *,
        most: int = MOST_PEOPLE,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> ReleasedMargins:
        """Publish margins: the ledger is charged, then exact integer noise is drawn.

        Parameters
        ----------
        counts : callable
            From a tuple of attributes to the integer counts of that margin, one axis for each;
            :func:`counts_of_records` makes one of microdata.
        most : int
            A public bound on the number of people.  Where contrasts of so many could overflow 64
            bits, wider integers are used, which takes longer.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        with paying(ledger, self.guarantee, fingerprint=self.fingerprint, label=label):
            found = self._contrasts(counts, most) if self.measured is None else self._whole(counts)
            least = LEAST[self.neighbours]
            public = {B for A in self.margins.tolist() for B in subsets(A) if B.bit_count() < least}
            for B in sorted(public):
                found[B] = centred(self._counted(counts, B).astype(float))
        return ReleasedMargins(self.sizes, found, self.cells_alone)

    def _contrasts(self, counts: Counts, most: int) -> dict[int, FloatArray]:
        """Residuals with Gaussian noise on their integer contrasts."""
        found = {}
        for B in self.blocks.tolist():
            margin = self._counted(counts, B)
            # a contrast is at most its largest coefficient times the number of people
            if most * math.prod(self.sizes[j] for j in members(B)) >= 1 << 62:
                margin = margin.astype(object)
            exact = contrasts(margin)
            found[B] = residual(noisy("gaussian", exact, self.scales(B)))
        return found

    def _whole(self, counts: Counts) -> dict[int, FloatArray]:
        """Residuals by least squares from margins with whole Laplace noise."""
        assert self.measured is not None
        assert self.margin_scales is not None
        drawn = whole_precisions(self.margin_scales)
        found = {B: np.zeros([self.sizes[j] for j in members(B)]) for B in self.blocks.tolist()}
        for A, q, y in zip(self.measured.tolist(), self.margin_scales.tolist(), drawn.tolist()):
            if q == 0:
                continue
            exact = self._counted(counts, A)
            seen = noisy_whole(exact, q)
            for B, t in zip(self.blocks.tolist(), self.t.tolist()):
                if B & ~A == 0:
                    out = tuple(i for i, j in enumerate(members(A)) if not B >> j & 1)
                    share = y / cells_of(self.sizes, A & ~B) / t
                    found[B] = found[B] + share * centred(seen.sum(axis=out))
        return found

    def _counted(self, counts: Counts, B: int) -> NDArray[Any]:
        margin = np.asarray(counts(members(B)))
        shape = tuple(self.sizes[j] for j in members(B))
        if margin.shape != shape or margin.dtype.kind not in "iuO":
            raise AffineDPError(f"counts of the attributes {members(B)} must be {shape} integers")
        return margin if margin.dtype.kind == "O" else margin.astype(np.int64)
