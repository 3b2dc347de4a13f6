"""All that is public about a release in steps: what is read when, with which noise.

With t the outputs that are read, the noise on them is ``C η`` with a lower triangular C.  At each
step ``z = C⁻¹ t`` needs only what is due by then, and integer noise is added to each z by itself.
docs/explanation/feedback.md gives the argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, dense
from affinedp.errors import AffineDPError
from affinedp.feedback.follow import Following, followings
from affinedp.files.packing import packed, unpacked
from affinedp.laws.gaussian import Gaussian
from affinedp.record import MechanismRecord
from affinedp.strategies.rounded_plan import BIAS, EPS, GRID_BITS, SHARE

# The noise may grow by this share for what rounding adds.
MOST_GROWTH = 1e-6
# Noise of outputs that follow may be off by this share of its terms.
AGREEMENT = 1e-9
NOT_IN_STEPS = "release it at once (Mechanism.release), or design noise with design_gaussian"


@dataclass(frozen=True, eq=False)
class StepPlan:
    """What is read at each step, and the noise.

    Attributes
    ----------
    read : tuple of int
        The outputs that are read, in the order in which they are due.
    follow : mapping of int to Following
        How every other output follows.
    whitening : array, shape (r, n)
        ``C⁻¹ F`` of the outputs that are read: row j needs what is due with the first j of them.
    root : array, shape (r, r)
        C.
    noise_factor : float
        How much larger than unit the noise is, for all that rounding adds.
    largest : float
        Data beyond this is refused.
    law : str
        Law of the noise.
    """

    read: tuple[int, ...]
    follow: Mapping[int, Following]
    whitening: FloatArray
    root: FloatArray
    noise_factor: float
    largest: float
    law: str

    @property
    def scale(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.noise_factor) * (1 << GRID_BITS))

    def noisy(self, place: int, entries: Mapping[int, Fraction], noise: int) -> int:
        """Return z plus noise, in grid steps, exactly.

        Parameters
        ----------
        place : int
            Which of the outputs that are read.
        entries : mapping of int to Fraction
            What was read so far, by entry.
        noise : int
            In grid steps.
        """
        row = self.whitening[place]
        exact = sum(
            (Fraction(float(row[j])) * entries[int(j)] for j in np.flatnonzero(row)), Fraction(0)
        )
        return math.floor(exact * (1 << GRID_BITS) + Fraction(1, 2)) + noise

    def published(self, place: int, noisy: Sequence[int]) -> Fraction:
        """Return an output that was read, from noisy numbers alone.

        Parameters
        ----------
        place : int
            Which of the outputs that are read.
        noisy : sequence of int
            Up to this one.
        """
        row = self.root[place, : place + 1]
        total = sum((Fraction(float(c)) * w for c, w in zip(row, noisy)), Fraction(0))
        return total / (1 << GRID_BITS)

    def to_record(self) -> dict[str, Any]:
        """Return the part that rests on floating point, for a file."""
        return {
            "read": list(self.read),
            "whitening": packed(self.whitening),
            "root": packed(self.root),
            "noise_factor": self.noise_factor.hex(),
            "largest": self.largest.hex(),
            "law": self.law,
        }


def restored(record: Mapping[str, Any], follow: Mapping[int, Following]) -> StepPlan:
    """Return the plan of a record.

    Parameters
    ----------
    record : mapping
        From :meth:`StepPlan.to_record`.
    follow : mapping of int to Following
        How the other outputs follow, computed anew.
    """
    return StepPlan(
        tuple(int(i) for i in record["read"]),
        follow,
        unpacked(record["whitening"]),
        unpacked(record["root"]),
        float.fromhex(record["noise_factor"]),
        float.fromhex(record["largest"]),
        str(record["law"]),
    )


def step_plan(mechanism: MechanismRecord, order: Sequence[int], bound: float | None) -> StepPlan:
    """Prepare a release in steps, or refuse it.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    order : sequence of int
        The outputs in the order in which they are due.
    bound : float or None
        A public bound on |x|, as for :meth:`affinedp.Mechanism.release`.
    """
    guarantee, law = mechanism.guarantee, mechanism.law
    own = mechanism.noise
    if own.norm is None:
        name = own.words
        raise AffineDPError(
            f"{name} noise is not released in steps: later steps would depend on the noise of "
            "earlier ones. Use Gaussian or Laplace noise, or release all at once"
        )
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is released with it")
    read, follow = _what_is_read(mechanism, order)
    noise = dense(mechanism.noise_matrix)[list(read)]
    root = _triangular(noise) if isinstance(own, Gaussian) else _triangular_as_it_is(noise)
    query = dense(mechanism.dense.query)[list(read)]
    whitening = _solved(root, query)
    found = mechanism.adjacency.sensitivity(whitening, own.norm)
    count = own.box(len(read))
    # two roundings to the grid differ by at most one step
    total = found.upper + count * math.ldexp(1.0, -GRID_BITS)
    if bound is not None:
        rows = np.abs(whitening).sum(axis=1)
        total += 2 * bound * EPS * float(np.linalg.norm(rows, ord=own.norm))
    factor = max(1.0, total / guarantee.sensitivity) * (1 + SHARE)
    if not factor < 1 + MOST_GROWTH:
        raise AffineDPError(
            "rounding would add more than a millionth to the noise: it is too ill-conditioned to "
            f"release in steps, or the bound is too large; {NOT_IN_STEPS}"
        )
    largest = _largest(root, whitening, query, factor)
    return StepPlan(read, follow, whitening, root, factor, largest, law)


def _what_is_read(
    mechanism: MechanismRecord, order: Sequence[int]
) -> tuple[tuple[int, ...], dict[int, Following]]:
    """Outputs that carry news; all of them, where each has noise of its own."""
    read, follow = followings(mechanism.manifold, mechanism.dense.query, order)
    noise = dense(mechanism.noise_matrix)
    size = np.linalg.norm(noise, axis=1)
    if np.any(size[list(read)] == 0):
        name = mechanism.output_names[next(i for i in read if size[i] == 0)]
        raise AffineDPError(
            f"{name} is published without noise, because neighbours agree in it: what neighbours "
            f"share is not released in steps; {NOT_IN_STEPS}"
        )
    rank = int(np.linalg.matrix_rank(noise / np.where(size > 0, size, 1.0)[:, None], tol=1e-9))
    if rank == len(read):
        for i, one in follow.items():
            terms = [float(c) * noise[j] for j, c in one.coefficients.items()]
            off = np.abs(noise[i] - sum(terms, np.zeros(noise.shape[1])))
            if np.any(off > AGREEMENT * (size[i] + sum(np.linalg.norm(term) for term in terms))):
                raise AffineDPError(
                    f"the noise of {mechanism.output_names[i]} does not follow the equations that "
                    f"its value follows: it cannot be released in steps; {NOT_IN_STEPS}"
                )
        return read, follow
    if rank == len(order):
        return tuple(order), {}
    raise AffineDPError(
        f"the outputs carry {len(read)} independent numbers, but the noise {rank}, and not one for "
        f"each of {len(order)} outputs: such noise is not released in steps; {NOT_IN_STEPS}"
    )


def _triangular(noise: FloatArray) -> FloatArray:
    """A lower triangular root of the same covariance, which for Gaussian noise is the same law."""
    _, upper = np.linalg.qr(noise.T)
    root = np.asarray(np.tril(upper.T))
    return root * np.where(np.diagonal(root) < 0, -1.0, 1.0)


def _triangular_as_it_is(noise: FloatArray) -> FloatArray:
    """The noise matrix with its columns in the order in which they are needed."""
    order: list[int] = []
    for row in noise:
        new = [int(j) for j in np.flatnonzero(row) if int(j) not in order]
        if len(new) != 1:
            raise AffineDPError(
                "an output needs Laplace noise that later outputs decide about: each output that "
                "is read may bring one new draw. Give design_laplace(method='algorithm2') a basis "
                "that is triangular in the order of the steps, or use Gaussian noise"
            )
        order += new
    if len(order) != noise.shape[1]:
        raise AffineDPError(f"the noise has more draws than outputs that are read; {NOT_IN_STEPS}")
    return np.asarray(noise[:, order])


def _solved(root: FloatArray, query: FloatArray) -> FloatArray:
    """``C⁻¹ F``, with exact zeros where nothing is due yet."""
    from scipy.linalg import solve_triangular

    if not np.all(np.diagonal(root) != 0):
        raise AffineDPError("an output that carries news gets no noise of its own")
    found = np.asarray(solve_triangular(root, query, lower=True))
    due = np.logical_or.accumulate(query != 0, axis=0)
    return np.where(due, found, 0.0)


def _largest(root: FloatArray, whitening: FloatArray, query: FloatArray, factor: float) -> float:
    """Up to which size data is published without a bias that could be seen."""
    wide = np.longdouble
    off = np.abs(root.astype(wide) @ whitening.astype(wide) - query).astype(float).sum(axis=1)
    deviation = factor * np.linalg.norm(root, axis=1)
    seen = off > 0
    return float(BIAS * (deviation[seen] / off[seen]).min()) if seen.any() else 1e290
