"""Publish without leaking through floating point.

The coordinates ``z = Λ⁺F (x − x_p)`` are computed exactly, on a fixed grid; integer noise
from OpenDP's vetted samplers is added exactly; and what is published, ``F x_p + Λ z̃``, is a
function of public quantities and the noisy integers alone.  docs/explanation/floating-point.md
gives the argument step by step.

OpenDP's feature flag "contrib" is process-wide and is enabled here on the first release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Norm, dense, real_array
from affinedp.equations.manifold import ON_MANIFOLD
from affinedp.errors import AffineDPError
from affinedp.promise.verification import whiten
from affinedp.release.fixed_point import BigIntegers, FixedPoint

if TYPE_CHECKING:
    from affinedp.budget.ledger import Ledger
    from affinedp.mechanism import Mechanism

# The noise lives on multiples of 2^-GRID_BITS of its own scale.
GRID_BITS = 56
# All that rounding adds to the sensitivity may be this share of it; the noise is made larger by
# the same share.
SHARE = 2.0**-30
MOST_NUMBERS = 2e8
EPS = float(np.finfo(float).eps)


class OffManifoldError(AffineDPError):
    """Data that does not obey the equations.

    Attributes
    ----------
    rows : tuple of int
        The rows concerned, counted from 0.
    """

    def __init__(self, message: str, rows: Sequence[int]) -> None:
        self.rows = tuple(rows)
        super().__init__(message)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything about releases of a mechanism that is public: made once, used for all rows.

    Attributes
    ----------
    free : array of int
        The entries of x that are read; the others follow from the equations.
    coordinates : FixedPoint, shape (p, k)
        From steps of the free entries to grid steps of z.
    step_exponent : int
        Free entries are read on the grid ``2**step_exponent``.
    noise_factor : float
        How much larger than unit the noise is, for all that rounding adds.
    offset, spread : arrays
        Published is ``offset + spread @ z̃``.
    """

    free: IntArray
    origin: FloatArray
    coordinates: FixedPoint
    step_exponent: int
    noise_factor: float
    offset: FloatArray
    spread: FloatArray
    law: str

    def grid_steps(self, points: FloatArray) -> BigIntegers:
        """Return z on the noise's grid, exactly, one column per row of ``points``."""
        steps = np.rint(np.ldexp(points[:, self.free], -self.step_exponent)).T
        origin = np.rint(np.ldexp(self.origin, -self.step_exponent))[:, None]
        product = self.coordinates.times(steps) - self.coordinates.times(origin)
        shift = -(self.coordinates.exponent + self.step_exponent + GRID_BITS)
        if shift <= 0:
            return product * (1 << -shift)
        half = 1 << (shift - 1)
        return (product + half) >> shift

    def publish(self, noisy: BigIntegers) -> FloatArray:
        """Return the outputs from noisy grid steps: public quantities and nothing else."""
        scaled = np.ldexp(noisy.astype(np.float64), -GRID_BITS)
        return np.asarray(self.offset + (self.spread @ scaled).T)


def release(
    mechanism: Mechanism,
    x: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    bound: float | None = None,
) -> Any:
    """Publish the query of ``x`` with the mechanism's noise; see :meth:`Mechanism.release`."""
    points, wrap = _points(mechanism, x)
    limit = None if bound is None else float(real_array(bound, "bound", 0))
    _check(mechanism, points, limit)
    plan = mechanism.release_plan(limit)
    steps = plan.grid_steps(points)
    entry = None
    if ledger is not None:
        entry = ledger.charge(mechanism.guarantee, fingerprint=mechanism.fingerprint, label=label)
    noisy = steps + _noise(plan, steps.shape)
    published = plan.publish(noisy)
    if ledger is not None and entry is not None:
        ledger.settle(entry)
    return wrap(published)


def plan_of(mechanism: Mechanism, bound: float | None) -> Plan:
    """Prepare releases of a mechanism: choose grids, and allow for what they round.

    Parameters
    ----------
    mechanism : Mechanism
        With a promise.
    bound : float or None
        If given, |x| is at most this, and neighbours may be off by the rounding of double
        precision; otherwise recorded neighbours differ exactly as the adjacency says.
    """
    guarantee = mechanism.guarantee
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is released with it")
    noise = dense(mechanism.noise_matrix)
    if float(noise.size) > MOST_NUMBERS:
        raise AffineDPError("the noise matrix is too large to release with")
    manifold = mechanism.manifold
    free = manifold.canonical.free
    # Λ⁺F in coordinates of the free entries: one row per noise
    coordinates = dense(whiten(noise, mechanism.query).query @ manifold.kernel)
    p, k = coordinates.shape
    one_per_noise = float(p) if mechanism.law == "laplace" else math.sqrt(p)
    room = guarantee.sensitivity * SHARE / 8
    moves = _longest_move(mechanism, free)
    fixed = FixedPoint.rounded(coordinates, _exponent_below(room / (one_per_noise * moves)))
    # a step of every free entry moves z by at most this
    gain = _norm(np.abs(fixed.values()).sum(axis=1), mechanism.law) * (1 + k * EPS)
    step_exponent = _exponent_below(room / gain)
    total = _drawn_sensitivity(mechanism, fixed, free)
    total += gain * math.ldexp(1.0, step_exponent) + one_per_noise * math.ldexp(1.0, -GRID_BITS)
    if bound is not None:
        total += 2 * gain * bound * EPS
    return Plan(
        free=free,
        origin=manifold.point[free],
        coordinates=fixed,
        step_exponent=step_exponent,
        noise_factor=max(1.0, total / guarantee.sensitivity) * (1 + SHARE),
        offset=np.asarray(mechanism.query @ manifold.point).ravel(),
        spread=noise,
        law=mechanism.law,
    )


def _drawn_sensitivity(mechanism: Mechanism, fixed: FixedPoint, free: IntArray) -> float:
    """The sensitivity of the fixed-point coordinates, which are what is really drawn on.

    Where the circuits cannot be searched, the certified one plus all that rounding can add.
    """
    values = fixed.values()
    selection = _selection(free, mechanism.manifold.n)
    if mechanism.certificate is None:
        norm: Norm = 1 if mechanism.law == "laplace" else 2
        return mechanism.adjacency.sensitivity(values @ selection, norm).upper * (1 + 4 * EPS)
    rounding = np.full(len(values), math.ldexp(1.0, fixed.exponent) + 1e-12 * np.abs(values).max())
    extra = _norm(rounding, mechanism.law) * _longest_move(mechanism, free)
    return mechanism.guarantee.sensitivity + extra


def _longest_move(mechanism: Mechanism, free: IntArray) -> float:
    """How far the free entries of neighbours are apart at most, in the 1-norm."""
    if mechanism.certificate is not None:
        from affinedp.designs.without_list import longest_move

        return longest_move(mechanism.adjacency, mechanism.certificate)
    selection = _selection(free, mechanism.manifold.n)
    return mechanism.adjacency.sensitivity(selection, 1).upper


def _norm(vector: FloatArray, law: str) -> float:
    return float(np.linalg.norm(vector, ord=1 if law == "laplace" else 2)) * (1 + 8 * EPS)


def _selection(free: IntArray, n: int) -> Any:
    import scipy.sparse as sparse

    k = len(free)
    return sparse.csr_array((np.ones(k), (np.arange(k), free)), shape=(k, n))


def _exponent_below(size: float) -> int:
    """The largest e with 2^e at most ``size``."""
    return math.frexp(size)[1] - 1


# ---------------------------------------------------------------------- noise


def _noise(plan: Plan, shape: tuple[int, ...]) -> BigIntegers:
    """Integer noise of the plan's scale, from OpenDP, independent of any data."""
    count = shape[0] * shape[1]
    if count == 0:
        return np.zeros(shape, dtype=object)
    sampler = integer_sampler(plan.law, math.ldexp(plan.noise_factor, GRID_BITS), count)
    drawn: BigIntegers = np.array(sampler([0] * count), dtype=object)
    return drawn.reshape(shape)


def integer_sampler(law: str, scale: float, count: int) -> Any:
    """OpenDP's discrete Gaussian or Laplace on vectors of integers."""
    # not the prelude, which loads far more than noise needs
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=count)
    if law == "gaussian":
        return make_gaussian(domain, l2_distance(T=float), scale=scale)
    return make_laplace(domain, l1_distance(T=float), scale=scale)


# ---------------------------------------------------------------------- data in, results out


def _points(mechanism: Mechanism, x: Any) -> tuple[FloatArray, Any]:
    """The data as rows of a float array, and how to hand results back in the same form."""
    names = mechanism.manifold.names
    outputs = mechanism.output_names
    if hasattr(x, "columns") and hasattr(x, "index"):  # a pandas DataFrame
        values = _by_name(x, list(x.columns), names)
        return values, lambda y: type(x)(y, index=x.index, columns=list(outputs))
    if hasattr(x, "index") and hasattr(x, "to_frame"):  # a pandas Series
        values = _by_name(x.to_frame().T, list(x.index), names)
        return values, lambda y: type(x)(y[0], index=list(outputs), name=x.name)
    array = _finite(x)
    if array.ndim not in (1, 2) or array.shape[-1] != len(names):
        raise AffineDPError(
            f"x has shape {array.shape}, but must have {len(names)} entries (or rows of them)"
        )
    if array.ndim == 1:
        return array[None], lambda y: y[0]
    return array, lambda y: y


def _by_name(frame: Any, given: list[Any], names: tuple[str, ...]) -> FloatArray:
    """Columns in the manifold's order, matched by name."""
    if len(set(given)) < len(given):
        raise AffineDPError("a column name occurs twice in the data")
    missing = [name for name in names if name not in given]
    unknown = [str(name) for name in given if name not in names]
    if missing or unknown:
        raise AffineDPError(
            f"the data does not have the mechanism's entries: missing {missing[:5]}, "
            f"unknown {unknown[:5]}"
        )
    columns = frame[list(names)]
    for name in names:
        kind = columns[name].dtype.kind if hasattr(columns[name].dtype, "kind") else "O"
        if kind not in "iufO" or bool(columns[name].isna().any()):
            what = "missing values" if kind in "iufO" else f"values of type {columns[name].dtype}"
            raise AffineDPError(f"column {name!r} has {what}")
    return _finite(columns.to_numpy(dtype=object))


def _finite(x: ArrayLike) -> FloatArray:
    array = real_array(x, "x")
    given = np.asarray(x)
    # an integer that a double cannot hold would be changed silently
    if given.dtype.kind in "iu" and np.abs(array).max(initial=0.0) > 2.0**53:
        raise AffineDPError("x holds integers beyond 2^53, which double precision cannot hold")
    return array


def _check(mechanism: Mechanism, points: FloatArray, bound: float | None) -> None:
    """Refuse data off the manifold, or beyond the declared bound."""
    if points.shape[0] == 0:
        raise AffineDPError("there are no rows to release")
    if bound is not None:
        if not bound > 0:
            raise AffineDPError(f"bound must be positive, not {bound}")
        if np.abs(points).max() > bound:
            raise AffineDPError("some entry of x is larger than the declared bound")
    residual = mechanism.manifold.residual(points)
    bad = np.flatnonzero((residual > ON_MANIFOLD).any(axis=1))
    if len(bad):
        worst = int(np.argmax(residual[bad[0]]))
        equation = mechanism.manifold.equations()[worst]
        raise OffManifoldError(
            f"row {bad[0]} (counting from 0) does not obey {equation} (relative residual "
            f"{residual[bad[0], worst]:.1e}); {len(bad)} rows in all. Nothing was released",
            [int(i) for i in bad],
        )
