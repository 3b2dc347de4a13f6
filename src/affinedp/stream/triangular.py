"""All that is public about a release in steps: what is read when, with which noise.

With t the outputs that are read, the noise on them is ``C η`` with a lower triangular C.  At each
step ``z = C⁻¹ t`` needs only what is due by then, and integer noise is added to each z by itself.
docs/explanation/feedback.md gives the argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import given_rows
from affinedp.exact.rational import Echelon
from affinedp.laws.gaussian import Gaussian
from affinedp.parts import Part
from affinedp.record import MechanismRecord
from affinedp.strategies.base import EPS, GRID_BITS, SHARE
from affinedp.strategies.rounded_plan import BIAS

# whole numbers as int, which is far quicker
Exact = int | Fraction
Row = dict[int, Exact]
# Numbers up to which the equations are solved in rational arithmetic.
MOST_NUMBERS = 4_000_000


@dataclass(frozen=True)
class Following:
    """``F_i x = Σ coefficients[j] F_j x + Σ offsets[e] b_e`` for all x with ``D x + b = 0``."""

    # by output that is read
    coefficients: Row
    # by equation
    offsets: Row


def followings(
    manifold: AffineManifold, query: Matrix, order: Sequence[int]
) -> tuple[tuple[int, ...], dict[int, Following]]:
    """Return the outputs that must be read, in order, and how each of the others follows.

    On ``D x + b = 0`` an output is a combination of free entries plus a combination of b.  Taken in
    the order in which they are due, an output either is independent of those before, and must be
    read, or it is a combination of earlier ones plus a combination of b.
    """
    equations = len(manifold.b)
    if equations * float(manifold.n) > MOST_NUMBERS:
        raise AffineDPError(
            f"{equations:,} equations in {manifold.n:,} entries are too many to be solved in exact "
            "arithmetic, which a release in steps needs"
        )
    # D x + b = 0 and F x − y = 0 in the unknowns x, b and y, of which only x is eliminated
    n, rows = manifold.n, manifold.exact_rows or given_rows(manifold.D)
    space = Echelon(n)
    for e, row in enumerate(rows):
        space.add({**row, n + e: Fraction(1)})
    read: list[int] = []
    follow: dict[int, Following] = {}
    outputs = dict(zip(order, given_rows(query[list(order)])))
    for i in order:
        output = n + equations + i
        row = {**outputs[i], output: Fraction(-1)}
        if space.add(row):
            read.append(i)
            continue
        rest = space.rest(row)
        parts = {j: _plain(Fraction(-c, rest[output])) for j, c in rest.items() if j != output}
        first = n + equations
        follow[i] = Following(
            {j - first: c for j, c in parts.items() if j >= first},
            {j - n: c for j, c in parts.items() if j < first},
        )
    return tuple(read), follow


def _plain(value: Fraction) -> Exact:
    """A whole number as int."""
    return value.numerator if value.denominator == 1 else value


# The noise may grow by this share for what rounding adds.
MOST_GROWTH = 1e-6
# Noise of outputs that follow may be off by this share of its terms.
AGREEMENT = 1e-9
NOT_IN_STEPS = "release it at once (Mechanism.release), or design noise with design_gaussian"


@dataclass(frozen=True, eq=False)
class StepPlan(Part):
    """What is read at each step, and the noise."""

    kind = "step plan"

    # the outputs that are read, in the order in which they are due
    read: tuple[int, ...]
    # ``C⁻¹ F`` of the outputs that are read: row j needs what is due with the first j of them;
    # shape (r, n)
    whitening: FloatArray
    # C; shape (r, r)
    root: FloatArray
    # how much larger than unit the noise is, for all that rounding adds
    noise_factor: float
    # data beyond this is refused
    largest: float
    # law of the noise
    law: str
    # how every other output follows: exact, and so not kept in a file
    follow: Mapping[int, Following] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return what rests on floating point, for a file."""
        return {name: one for name, one in super().fields().items() if name != "follow"}

    @property
    def scale(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.noise_factor) * (1 << GRID_BITS))

    def noisy(self, place: int, entries: Mapping[int, Fraction], noise: int) -> int:
        """Return z plus noise, in grid steps, exactly."""
        row = self.whitening[place]
        exact = sum(
            (Fraction(float(row[j])) * entries[int(j)] for j in np.flatnonzero(row)), Fraction(0)
        )
        return math.floor(exact * (1 << GRID_BITS) + Fraction(1, 2)) + noise

    def published(self, place: int, noisy: Sequence[int]) -> Fraction:
        """Return an output that was read, from noisy numbers alone."""
        row = self.root[place, : place + 1]
        total = sum((Fraction(float(c)) * w for c, w in zip(row, noisy)), Fraction(0))
        return total / (1 << GRID_BITS)


def step_plan(mechanism: MechanismRecord, order: Sequence[int], bound: float | None) -> StepPlan:
    """Prepare a release in steps, or refuse it."""
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
    return StepPlan(read, whitening, root, factor, largest, law, follow)


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
