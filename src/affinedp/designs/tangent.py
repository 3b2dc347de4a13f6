"""The tangent release: a look at the data, then a second one along the gradient at the first.

Both looks are linear releases, and what the second asks is a function of what the first published:
no bounds on the data and no trust in f are needed.  docs/explanation/functions.md has the argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, dense
from affinedp.budget.ledger import Ledger, checked_ledger, paying
from affinedp.designs.choose import design
from affinedp.designs.fit import at_the_limit
from affinedp.designs.gaussian import design_gaussian
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.functions.published import (
    STEP,
    Asked,
    FunctionInterval,
    Named,
    Noise,
    curvature,
    gradients,
    interval_for,
    read_function,
)
from affinedp.intervals import checked_level
from affinedp.laws.base import Law
from affinedp.laws.curves import GaussianCurve, ThreeAtoms
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Laplace
from affinedp.laws.reach import normal_reach
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.parts import Locked, digest
from affinedp.privacy.guarantee import Guarantee
from affinedp.release.publish import publish, sampler_of
from affinedp.strategies.dense import Dense

# Bits of a gradient that are kept, of which any will do.
GRADIENT_BITS = 24
ROUNDED = 1e-9
# Data beyond this is refused before the first look: the second must not tell.
MOST_SIZE = 1e100
# Numbers of the equations up to which a gradient is centred.
MOST_CENTRED = 4_000_000
# Where a first look is repaired, curvature is that near the repaired point: this much of the noise.
NEAR = 1 / 8
# What entries that must be positive are raised to, in standard deviations of their noise.
RAISED = 0.8
# Simulated releases of a comparison, and simulated noise in each.
COMPARED = 60
COMPARED_DRAWS = 200
BASIS = (
    "adaptive composition: the second look is a function of the first, and its noise is scaled to "
    "the gradient that was found"
)


Repair = Callable[[Any], Any] | Literal["positive"] | None


@dataclass(frozen=True, eq=False)
class TangentInterval(FunctionInterval):
    """A function of private data, estimated from two looks; everything here may be published.

    Attributes
    ----------
    first : array
        What the first look published: all entries, with noise.
    weight : float or array
        How much the second look counts; 0 where it failed.
    """

    first: Any = field(default=None, repr=False)
    weight: Any = 0.0


@dataclass(frozen=True, eq=False)
class Tangent(Locked):
    """Two looks for one function, with one promise.

    Attributes
    ----------
    first : Mechanism
        The first look, at all entries.
    f : callable or str
        As for :meth:`affinedp.Mechanism.function`, of the entries.
    guarantee : Guarantee
        What both looks promise together.
    second_limit : float
        The sensitivity that the second look may have.
    law : Law
        Of the noise of the second look.
    gradient : callable or None
        Derivatives of f, if they were given.
    repair : callable, "positive" or None
        What the first look is made into before f is computed there.
    seen : array or None
        What was published before, where the first look is free.
    compared : mapping
        Root mean square errors at a public guess, if one was given.
    notes : tuple of str
        What a reader should know.
    """

    first: Mechanism
    f: Any
    guarantee: Guarantee
    second_limit: float
    law: Law = field(repr=False)
    gradient: Callable[[Any], Any] | None = field(default=None, repr=False)
    repair: Repair = field(default=None, repr=False)
    seen: FloatArray | None = field(default=None, repr=False)
    compared: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def release(
        self,
        x: Any,
        *,
        level: float = 0.95,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
    ) -> TangentInterval:
        """Publish f with an interval: one charge, then the first look, then the second.

        Data is checked before anything is charged.  A gradient that is undefined, zero or
        refused costs accuracy only: what is published then is f of the first look.

        Parameters
        ----------
        x : array_like, shape (n,), or Series
            The data.
        level : float
            Of the interval.
        ledger : Ledger, optional
            Charged once, before the first look.
        label : str, optional
            For the ledger.
        bound : float, optional
            A public bound on |x|, as for :meth:`affinedp.Mechanism.release`.

        Returns
        -------
        TangentInterval
        """
        checked_ledger(ledger)
        level = checked_level(level)
        plan = self.first.prepared(bound)
        sampler_of(self.first, plan)
        data, _ = self.first.domain.read(x)
        if len(data) != 1:
            raise AffineDPError("a tangent release is for one data set: release row by row")
        plan.check(data)
        most = MOST_SIZE if bound is None else bound
        if float(np.abs(data).max(initial=0.0)) > most:
            raise AffineDPError(f"some entry of x is beyond {most:g}: change the units")
        key = digest("tangent", self.first.fingerprint, self.second_limit)
        with paying(ledger, self.guarantee, fingerprint=key, label=label):
            y = np.asarray(
                self.seen if self.seen is not None else publish(self.first, plan, data)[0]
            )
            try:
                found = self._around(y, plan.factor, level)
                second = found.second
                there = None if second is None else second.prepared(bound)
                if second is not None and there is not None:
                    sampler_of(second, there)
            except Exception as error:  # a fact about what was published: the look is not lost
                return _first_alone(y, level, f"{type(error).__name__}: {error}")
            again = None
            # what the second look could refuse is decided by public things alone
            reaches = getattr(there, "largest", math.inf) >= most
            if second is not None and there is not None and reaches:
                again = publish(second, there, data)[0]
        try:
            return found.estimate(again)
        except Exception as error:  # f is computed again where there was no second look
            return _first_alone(y, level, f"{type(error).__name__}: {error}")

    def _simulated(self, x: FloatArray, generator: np.random.Generator, draws: int) -> FloatArray:
        """Return an estimate with simulated noise, for comparisons."""
        y = self.seen if self.seen is not None else x + self.first.sample(1, generator)[0]
        found = self._around(y, 1.0, 0.95, draws)
        again = None
        if found.second is not None:
            again = found.slope @ x + found.second.sample(1, generator)[0]
        return np.ravel(found.estimate(again).value)

    def _around(self, y: FloatArray, factor: float, level: float, draws: int = 1000) -> _Look:
        """All that follows from the first look."""
        asked = read_function(self.first, self.f, y, Named(self.first.strategy.names))
        wide = _of_all(asked, len(y))
        z = self._repaired(y, factor)
        noise = Noise(self.first, z, np.arange(len(y)), factor)
        noise.check_digits()
        here = wide.values(z[None])[0]
        slope = self._given(wide, noise)
        if slope is None:
            slope = gradients(wide, z, STEP * noise.deviations())
        slope, second, off = self._second(slope, z)
        scale, moved = 1.0 if self.repair is None else NEAR, z != y
        half, spread, twice, _ = curvature(noise, wide, z, here, draws, scale)
        doubt = np.zeros(len(here))
        if moved.any():  # how small those entries are is not known
            doubt = np.abs(curvature(noise, wide, z, here, draws, scale, moved)[0])
        return _Look(asked, y, here, slope, second, off, noise, half, spread, twice, doubt, level)

    def _repaired(self, y: FloatArray, factor: float) -> FloatArray:
        """Where f is expanded."""
        if self.repair is None:
            return y
        if self.repair == "positive":
            noise = np.sqrt(self.first.expected_squared_errors) * factor
            return np.asarray(np.maximum(y, RAISED * noise))
        return np.asarray(self.repair(y), dtype=float)

    def _given(self, wide: Asked, noise: Noise) -> FloatArray | None:
        """The gradient that was given, if it is that of f: intervals rest on it."""
        if self.gradient is None:
            return None
        y = noise.y
        slope = np.asarray(self.gradient(y), dtype=float).reshape(-1, len(y))
        (along,) = noise.draws(8)
        seen = (wide.values(y + STEP * along) - wide.values(y - STEP * along)) / (2 * STEP)
        said, size = along @ slope.T, np.abs(seen).max(axis=0, initial=0.0)
        right = said.shape == seen.shape and bool((np.abs(said - seen) <= 0.01 * size).all())
        return slope if right else None

    def _second(
        self, slope: FloatArray, z: FloatArray
    ) -> tuple[FloatArray, Mechanism | None, FloatArray]:
        """The gradient as it is asked for, the second look, and what a repair put off the manifold.

        J x is asked for as (J − λD) x, which differs by λb, and J z by λ(Dz + b) more.
        """
        off = np.zeros(len(slope))
        adjacency, manifold = self.first.adjacency, self.first.manifold
        slope = np.where(np.isfinite(slope), slope, 0.0)
        if manifold.D.size <= MOST_CENTRED and manifold.D.shape[0]:
            equations = dense(manifold.D)
            part = slope @ np.linalg.pinv(equations)
            centred = slope - part @ equations
            if self.repair is not None:
                off = part @ (equations @ z + manifold.b)
            # what is left of a combination of the equations is rounding
            kept = np.abs(centred).max(axis=1) > ROUNDED * np.abs(slope).max(axis=1)
            slope = np.where(kept[:, None], centred, 0.0)
        top = np.abs(slope).max(axis=1, initial=0.0)
        unit = np.where(top > 0, 2.0 ** np.ceil(np.log2(np.where(top > 0, top, 1.0))), 1.0)
        fine = 2.0**GRADIENT_BITS
        asked = np.rint(slope / unit[:, None] * fine) / fine
        exact = asked * unit[:, None]
        if not asked.any():
            return exact, None, off
        sizes = [adjacency.sensitivity(row[None], 2).upper or 1.0 for row in asked]
        names = tuple(f"along gradient {i + 1}" for i in range(len(asked)))
        strategy = Dense(manifold, exact, np.diag(unit * sizes), names)
        second = at_the_limit(Mechanism(adjacency, strategy, self.law), self.second_limit)
        return exact, second, off


@dataclass(frozen=True, eq=False)
class _Look:
    """The first look, its curvature, and the second look that it asks for."""

    asked: Asked
    first: FloatArray
    here: FloatArray
    slope: FloatArray
    second: Mechanism | None
    off: FloatArray
    noise: Noise
    half: FloatArray
    spread: FloatArray
    twice: FloatArray
    doubt: FloatArray
    level: float

    def estimate(self, again: FloatArray | None) -> TangentInterval:
        """Return f(y) + g (a − J y) + (2g − 1) ½ tr(HΣ), with the g of least variance."""
        y, z, shape = self.first, self.noise.y, self.asked.shape
        if again is None or self.second is None:
            few = replace(self.noise, given=self.first, places=self.asked.places)
            alone = interval_for(few, self.asked, self.level, False)
            return TangentInterval(
                alone.low, alone.high, self.level, False, f"the first look alone ({alone.how})",
                alone.value, alone.pieces, alone.warnings, alone.known, y,
            )  # fmt: skip
        first, four = self.noise.variances(self.slope), 4 * self.spread
        extra = self.second.expected_squared_errors * self.second.prepared().factor ** 2
        least = np.maximum(first - self.twice, 0.0)
        with np.errstate(all="ignore"):
            weight = (least + four / 2) / (least + four + extra)
        weight = np.where(np.isfinite(weight) & self.slope.any(axis=1), weight, 0.0)
        reach = self.second.interval(np.zeros(len(self.here)), level=self.level).high
        c = np.maximum(normal_reach(1 - self.level), np.asarray(reach) / np.sqrt(extra))
        along = again - self.slope @ z - self.off
        value = self.here + weight * along + (2 * weight - 1) * self.half
        how = "two looks: second order, about this level, measured"
        variance = (1 - weight) ** 2 * first + (weight - 0.5) ** 2 * four + weight**2 * extra
        bad = ~np.isfinite(value) | ~np.isfinite(variance)
        # a repair is no news about the data, and the first look keeps a share of it
        repaired = np.abs((1 - weight) * (self.slope @ (z - y) + self.off))
        half = c * np.sqrt(np.where(bad, 0.0, variance)) + self.doubt + repaired
        half = np.where(bad, np.inf, half)
        value = np.where(bad, self.here, value)
        low, high = value - half, value + half
        with np.errstate(all="ignore"):
            alike = np.sqrt(self.half**2 + self.spread) > 0.5 * np.sqrt(first)
        warnings = ("noise is so large that first and second order are alike",) * bool(alike.any())
        ends: list[Any] = [np.reshape(one, shape) for one in (low, high, value, weight)]
        if shape == ():
            ends = [float(one) for one in ends]
        pieces = () if shape else ((ends[0], ends[1]),)
        return TangentInterval(
            ends[0],
            ends[1],
            self.level,
            False,
            how,
            ends[2],
            pieces,
            warnings,
            first=y,
            weight=ends[3],
        )


def _first_alone(y: FloatArray, level: float, why: str) -> TangentInterval:
    """What is left where f, or a design, fails at what the first look published."""
    return TangentInterval(
        -math.inf, math.inf, level, False, "the first look alone", math.nan,
        ((-math.inf, math.inf),), (f"nothing is said about f at the first look: {why}",), False, y,
    )  # fmt: skip


def _of_all(asked: Asked, count: int) -> Asked:
    """The same function, of all entries."""
    places = asked.places
    return replace(
        asked, places=np.arange(count), values=lambda rows: asked.values(rows[:, places])
    )


def design_tangent(
    manifold: AffineManifold,
    f: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    share: float = 0.5,
    mu: float | ArrayLike | None = None,
    adjacency: Adjacency | str | None = None,
    gradient: Callable[[Any], Any] | None = None,
    repair: Repair = None,
    table: tuple[Mechanism, Any] | None = None,
    compare: ArrayLike | None = None,
) -> Tangent:
    """Return a sharper release of an index: two looks, the second along the gradient at the first.

    For functions of many numbers, such as concentration, entropy or losses, this has several times
    less error than computing them from one release with the whole budget
    (:meth:`affinedp.Mechanism.function`).  For functions of few numbers, or where noise is as large
    as the data, it has not: ``compare`` says.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    f : callable or str
        A function of the entries: a text, a function of named entries, or of all entries in one
        argument.  It is evaluated at published numbers only, so nothing about it is trusted.
    epsilon, delta : float
        What both looks promise together.  With δ = 0 both have pure laws.
    share : float
        Of the budget (of s², or of ε) for the first look.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    adjacency : Adjacency or "person", optional
        Other neighbours than those of Definition 4 with ``mu``; ``"person"`` where equations are
        totals and their parts: one cell moves by up to ``mu``, and its totals follow.
    gradient : callable, optional
        Derivatives of f at a published point; by differences if left out.
    repair : callable or "positive", optional
        What the first look is made into before f and its gradient are computed there, for f with
        a logarithm or a root: "positive" raises entries to 0.8 standard deviations of their noise.
    table : (Mechanism, array), optional
        A release of all entries that was made before, and what it published, not rounded or
        clipped: a first look that is paid.  The whole budget is then for the second.
    compare : array_like, shape (n,), optional
        A public guess of the data: both ways are simulated there, and ``compared`` and ``notes``
        say which wins.

    Returns
    -------
    Tangent

    Examples
    --------
    >>> import numpy as np
    >>> import affinedp as adp
    >>> M = adp.AffineManifold(np.ones((1, 40)), b=[-8000.0])
    >>> t = adp.design_tangent(M, lambda y: (y**2).sum() / 8000**2, epsilon=1.0, delta=1e-6)
    >>> found = t.release(np.arange(40) * 400 / 39)
    >>> bool(abs(found.value - 0.0337) < 0.001), t.guarantee.holds(1.0, 1e-6)
    (True, True)
    """
    about = adjacency_of(manifold, adjacency, mu)
    part = float(real_array(share, "share", 0))
    if not 0 < part < 1:
        raise AffineDPError(f"share must lie between 0 and 1, not {part}")
    law: Law = Gaussian() if delta > 0 else Laplace()
    budget = law.limit(float(real_array(epsilon, "epsilon", 0)), float(delta))
    seen = None
    if table is not None:
        pair = isinstance(table, tuple | list) and len(table) == 2
        if not pair or not isinstance(table[0], Mechanism):
            raise AffineDPError("table must be a pair: a mechanism, and what it released")
        first, seen = table[0], np.asarray(table[0].strategy.flat(table[1]), dtype=float)
        if tuple(first.strategy.names) != tuple(manifold.names) or seen.ndim != 1:
            raise AffineDPError("table must be a mechanism that released all entries, and one row")
        if first.adjacency.key != about.key:
            first = replace(first, adjacency=about)
        limits = 0.0, budget
    elif delta > 0:
        limits = budget * math.sqrt(part), budget * math.sqrt(1 - part) * (1 - 1e-12)
        epsilons = law.curve(limits[0]).epsilon(delta)
        first = design_gaussian(manifold, epsilon=epsilons, delta=delta, adjacency=about)
        first = at_the_limit(first, limits[0])
    else:
        limits = budget * part, budget * (1 - part) * (1 - 1e-12)
        first = design(manifold, epsilon=limits[0], adjacency=about)
    if repair is not None and repair != "positive" and not callable(repair):
        raise AffineDPError(f"repair must be 'positive' or a function of a look, not {repair!r}")
    read_function(first, f, np.asarray(manifold.point), Named(manifold.names))  # or refused here
    guarantee = _together(first, law, budget, delta)
    made = Tangent(first, f, guarantee, limits[1], law, gradient, repair, seen)
    return made if compare is None else _compared(made, manifold, about, epsilon, delta, compare)


def _together(first: Mechanism, law: Law, budget: float, delta: float) -> Guarantee:
    """What both looks promise: s² adds up for Gaussian noise, ε for pure laws."""
    known = first.guarantee
    curve = GaussianCurve(budget) if delta > 0 else ThreeAtoms(budget)
    return replace(
        known, law=law.kind, sensitivity=budget, exact=False, curve=curve,
        basis=f"{law.theorem}, {BASIS}", worst_direction=None,
        sensitivity_lower=0.0, warnings=(), asked=None,
    )  # fmt: skip


def _compared(
    made: Tangent,
    manifold: AffineManifold,
    about: Adjacency,
    epsilon: float,
    delta: float,
    guess: ArrayLike,
) -> Tangent:
    """The same with simulated errors of both ways at a public guess."""
    x = real_array(guess, "compare", 1)
    if len(x) != manifold.n:
        raise AffineDPError(f"compare must hold {manifold.n} numbers, one per entry")
    whole = design(
        manifold, epsilon=epsilon, delta=delta, adjacency=about, law="gaussian" if delta else "auto"
    )
    asked = _of_all(read_function(whole, made.f, x, Named(manifold.names)), len(x))
    truth, generator = asked.values(x[None])[0], np.random.default_rng(0)
    plain, tangent = [], []
    for e in whole.sample(COMPARED, generator):
        noise = Noise(whole, x + e, np.arange(len(x)), 1.0)
        here = asked.values((x + e)[None])[0]
        plain.append(here - curvature(noise, asked, x + e, here, COMPARED_DRAWS)[0] - truth)
        tangent.append(made._simulated(x, generator, COMPARED_DRAWS) - truth)
    errors = [float(np.sqrt(np.nanmean(np.square(one)))) for one in (plain, tangent)]
    gain = errors[0] / errors[1] if errors[1] else math.inf
    if gain > 1.05:
        said = f"two looks have {gain:.2g} times less error than post-processing at this guess"
    else:
        said = (
            f"post-processing one release is as good or better at this guess (two looks: "
            f"{1 / gain:.2g} times its error): use m.function"
        )
    sizes = np.sqrt(whole.expected_squared_errors)
    if np.median(sizes) > 0.5 * np.median(np.abs(x)):
        said += "; noise is about as large as the data"
    found = {"post-processing": errors[0], "two looks": errors[1], "value": float(truth[0])}
    return replace(made, compared=found, notes=(said,))
