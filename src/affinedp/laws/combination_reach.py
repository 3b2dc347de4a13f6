"""How far combinations of noise in coordinates reach, where their law can be computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.laws.bodies import AxesPart, HullPart, SumPart
from affinedp.laws.cone_reach import MOST_COMPONENTS, Mixture, laplace_mixture
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace_reach import laplace_total_reach
from affinedp.laws.staircase import Staircase
from affinedp.laws.stairs_reach import Steps, proportions, sum_reach
from affinedp.laws.whole_reach import WholeLaw, cone_law, geometric_law, whole_law_reach

# Sums of independent noise, and mixtures over cones, that are computed for one question.
MOST_LAWS = 300
MOST_MIXTURES = 60
# Corners of cones are rounded, and combinations of them may cancel: what is as small as these
# roundings is none, and 80 times that (more than Σ E_i is in all but 1e-20) goes to the reach.
CORNERS = 4e-15

Known = dict[Any, float | None]


def independent_reach(
    noise: KNorm | Staircase, rows: Any, outside: float, apart: bool = False
) -> FloatArray | None:
    """Return half widths of combinations of independent coordinates; None for other noise.

    Parameters
    ----------
    noise : KNorm or Staircase
        The noise.
    rows : csr_array
        Coefficients of its free coordinates.
    outside : float
        In (0, 1): the probability of more, for each by itself.
    apart : bool
        Only if no two of them share noise.
    """
    laws = _coordinate_laws(noise)
    if laws is None:
        return None
    if apart and int(np.unique(rows.indices, return_counts=True)[1].max(initial=0)) > 1:
        return None
    known: Known = {}
    found = np.zeros(rows.shape[0])
    for i, (start, end) in enumerate(zip(rows.indptr[:-1].tolist(), rows.indptr[1:].tolist())):
        sizes = np.abs(rows.data[start:end]).tolist()
        terms = Counter((laws[j], c) for j, c in zip(rows.indices[start:end].tolist(), sizes))
        key = frozenset(terms.items())
        if key not in known:
            if len(known) >= MOST_LAWS:
                return None
            known[key] = _terms_reach(terms, outside)
        reach = known[key]
        if reach is None:
            return None
        found[i] = reach
    return found


def _coordinate_laws(noise: KNorm | Staircase) -> dict[int, Steps | float] | None:
    """The laws of independent coordinates: stairs, or scales of Laplace noise."""
    if isinstance(noise, Staircase):
        pairs = zip(noise.widths.tolist(), noise.firsts.tolist())
        return {i: Steps(w, f, noise.rate, noise.whole) for i, (w, f) in enumerate(pairs)}
    laws: dict[int, Steps | float] = {}
    for part in noise.parts:
        if not isinstance(part, AxesPart):
            return None
        for row, width in zip(part.rows.tolist(), part.widths.tolist()):
            scale = width / noise.rate
            laws[row] = Steps(1.0, 1.0, noise.rate / width, True) if noise.whole else scale
    return laws


def _terms_reach(terms: Mapping[tuple[Any, float], int], outside: float) -> float | None:
    """Half width of a sum of Laplace numbers, or of stairs; None for both at once."""
    if not any(isinstance(law, Steps) for law, _ in terms):
        scales = np.array([law * c for law, c in terms])
        return laplace_total_reach(scales, np.array(list(terms.values()), dtype=float), outside)
    if not all(isinstance(law, Steps) for law, _ in terms):
        return None
    return sum_reach(terms, outside)


def body_reach(noise: KNorm | Staircase, rows: Any, outside: float) -> FloatArray | None:
    """Return half widths of combinations of K-norm noise; None where a law is too much to compute.

    Parameters
    ----------
    noise : KNorm or Staircase
        The noise.
    rows : csr_array
        Coefficients of its free coordinates.
    outside : float
        In (0, 1): the probability of more, for each by itself.
    """
    parts = None if isinstance(noise, Staircase) else _listed_parts(noise)
    if parts is None or isinstance(noise, Staircase):
        return None
    free = noise.free
    owner = {row: i for i, part in enumerate(parts) for row in part.rows.tolist()}
    known: Known = {}
    found = np.zeros(rows.shape[0])
    for i, (start, end) in enumerate(zip(rows.indptr[:-1].tolist(), rows.indptr[1:].tolist())):
        given = dict(zip(free[rows.indices[start:end]].tolist(), rows.data[start:end].tolist()))
        touched = [parts[k] for k in sorted({owner[row] for row in given})]
        one = _whole_reach if noise.whole else _real_reach
        reach = one(touched, given, outside, known)
        if reach is None or len(known) > MOST_MIXTURES:
            return None
        found[i] = reach
    return found


def _listed_parts(noise: KNorm) -> list[HullPart | AxesPart] | None:
    """The parts with their cones; None if there are sums of many entries."""
    found: list[HullPart | AxesPart] = []
    for part in noise.parts:
        listed = part.hull if isinstance(part, SumPart) else part
        if listed is None:
            return None
        found.append(listed)
    return found


def _real_reach(
    parts: list[HullPart | AxesPart], given: dict[int, float], outside: float, known: Known
) -> float | None:
    total: Mixture | None = Mixture(np.ones(1), np.zeros((1, 0)))
    doubt = 0.0
    for part in parts:
        if isinstance(part, HullPart) and len(part.body.shares) > MOST_COMPONENTS:
            return None
        mixtures, off = _mixtures(part, given)
        doubt += off
        for one in mixtures:
            total = None if total is None else total.plus(one)
    if total is None:
        return None
    key = total.shares.round(12).tobytes() + total.scales.tobytes()
    if key not in known:
        known[key] = total.reach(outside)
    reach = known[key]
    return None if reach is None else reach + doubt


def _mixtures(part: HullPart | AxesPart, given: dict[int, float]) -> tuple[list[Mixture], float]:
    """The laws of what a part adds, one or one for every axis; and what roundings may add."""
    row = np.array([given.get(coordinate, 0.0) for coordinate in part.rows.tolist()])
    if isinstance(part, AxesPart):
        scales = np.abs(row) * part.widths / part.rate
        return [laplace_mixture(scale) for scale in scales[row != 0].tolist()], 0.0
    corners = part.body.corners
    rounding = CORNERS * (np.abs(corners) @ np.abs(row))
    scales = corners @ row
    scales = np.where(np.abs(scales) <= rounding, 0.0, scales) / part.rate
    return [Mixture(part.body.shares, scales)], 80 * float(rounding.max()) / part.rate


def _whole_reach(
    parts: list[HullPart | AxesPart], given: dict[int, float], outside: float, known: Known
) -> float | None:
    places = [row for row, c in given.items() if c]
    if not places:
        return 0.0
    found = proportions([abs(given[row]) for row in places])
    if found is None:
        return None
    multiples, unit, off = found
    whole = {row: m if given[row] > 0 else -m for row, m in zip(places, multiples)}
    key = tuple(sorted((_part_key(part), _row(part, whole)) for part in parts))
    if key not in known:
        laws = [law for part in parts for law in _whole_laws(part, whole)]
        known[key] = whole_law_reach(laws, outside)
    reach = known[key]
    if reach is None:
        return None
    # coefficients have these proportions but for a rounding, which the noise multiplies; it is
    # log-concave, so that 40 deviations are out of the question
    far = sum(
        40 * d * abs(m) for part in parts for d, m in zip(_deviations(part), _row(part, whole))
    )
    return (reach + off * far) * unit


def _deviations(part: HullPart | AxesPart) -> list[float]:
    variances = part.each if isinstance(part, AxesPart) else np.diag(part.moment)
    return np.sqrt(variances).tolist()  # type: ignore[no-any-return]


def _part_key(part: HullPart | AxesPart) -> tuple[int, ...]:
    """Return what is equal for parts of the same law."""
    if isinstance(part, HullPart):
        return (id(part.body),)
    return tuple(part.rows.tolist())


def _row(part: HullPart | AxesPart, whole: dict[int, int]) -> tuple[int, ...]:
    return tuple(whole.get(coordinate, 0) for coordinate in part.rows.tolist())


def _whole_laws(part: HullPart | AxesPart, whole: dict[int, int]) -> list[WholeLaw]:
    row = _row(part, whole)
    if isinstance(part, HullPart):
        return [cone_law(part.cones, part.rate, np.array(row, dtype=np.int64))]
    rates = (part.rate / part.widths).tolist()
    return [geometric_law(rate, multiple) for rate, multiple in zip(rates, row) if multiple]
