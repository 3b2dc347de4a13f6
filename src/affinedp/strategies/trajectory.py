"""Noise on the outputs of a linear system: one draw for the whole horizon, or fresh at every step.

With one draw ``γ(t) = C(t) A(t−1) … A(0) R η``: all outputs together are ``O (x(0) + R η)`` plus
something public, so that whoever listens, however long, learns one noisy x(0) (Theorem 3).

*The error of its path.*  n(0) and every step round each entry by at most half a unit.  What is
rounded at time k arrives at time t multiplied by ``A(t−1) … A(k)``, of norm at most ``2**growth``.
With n states and t ≤ T − 1 that is ``‖n(t) − exact‖₂ ≤ T · 2**growth · √n · 2**(−bits−1)``, and
entry i of the output is off by at most ``‖C_i‖₂`` times that, before it is rounded to its grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, Norm, dense
from affinedp.domains.dynamics import ENDLESS, Dynamics
from affinedp.domains.observability import (
    Coordinates,
    observability_bound,
    output_blocks,
    output_gramian,
    revealed_coordinates,
)
from affinedp.domains.powers import HorizonTooLongError, growth_exponent, scan_transitions
from affinedp.errors import AffineDPError
from affinedp.exact.rational import RationalMatrix
from affinedp.exact.rounding import difference_bound, gamma, row_sums
from affinedp.laws.base import NOTHING_KNOWN, Law, Moves
from affinedp.laws.calibration import gaussian_sensitivity
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Laplace
from affinedp.laws.polytope import polytope_of
from affinedp.neighbours.adjacency import Adjacency, Sensitivity
from affinedp.neighbours.trajectory import (
    FirstState,
    InitialState,
    TimeLocal,
    TrajectoryAdjacency,
    WholeManifold,
)
from affinedp.parts import frozen
from affinedp.strategies.base import (
    FOR_STEPS,
    MOST_LISTED,
    Largest,
    Lines,
    Prepared,
    Promised,
    Sent,
    Shown,
    Told,
)
from affinedp.strategies.causal import Causal, System, check_steps, constant
from affinedp.strategies.dense import Dense
from affinedp.strategies.matrices import DensePlan

LEAST_BITS = 256
# What rounding may add to the sensitivity, relatively, before the noise counts as unusable.
MOST_ROUNDING = 1e-3
# A bound this close to what was attained is called exact.
EXACT = 1 + 1e-9
# Up to here the Laplace curve is computed for each direction.
MOST_SIGN_VECTORS = 1e6
# Numbers of the observability matrix that is put together for independent Laplace noise.
MOST_OUTPUTS = 1e6
# Facets of a body over all of which the worst neighbour is looked for.
MOST_FACETS = 4_000
# Over longer horizons squared errors are summed by doubling, and single times by powers.
MOST_TIMES = 100_000
# Times that a report lists, and that a figure shows.
SHOWN_TIMES, DRAWN_TIMES = 5, 2000
COVERS = (
    "for inputs that are public; neighbours share all disturbances, so those are NOT hidden; "
    "dynamics that the public knows better are not covered"
)
HIDES_NOT = "disturbances and inputs, which neighbours share; and later steps than these"
ILL_CONDITIONED = (
    "the noise is so ill-conditioned that rounding hides what it promises: the dynamics stretch "
    "some directions far more than others over this horizon. Shorten the horizon"
)


@dataclass(frozen=True, eq=False)
class Trajectory(Causal):
    """``γ(t) = C(t) A(t−1) … A(0) R η`` with one draw η for the whole horizon.

    What is measured is ``S⁻¹ E x(0)``: E x(0) is what the outputs reveal, and S is R on the entries
    of x(0) that get noise.
    """

    kind = "trajectory"
    # the system and its horizon
    domain: Dynamics
    # R, the noise on x(0); zero but in r rows; shape (n, r)
    start: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        start = np.asarray(frozen(self.start), dtype=np.float64)
        object.__setattr__(self, "start", start)
        if start.ndim != 2 or len(start) != self.domain.states or not np.isfinite(start).all():
            raise AffineDPError(
                f"the noise has shape {start.shape}, but x(0) has {self.domain.states} entries"
            )
        if len(self.places) != start.shape[1] or not len(self.places):
            raise AffineDPError(
                f"noise from {start.shape[1]} draws must be on as many entries of x(0), not on "
                f"{len(self.places)}"
            )

    @property
    def coordinates(self) -> int:
        """How many numbers are drawn."""
        return int(self.start.shape[1])

    @cached_property
    def places(self) -> IntArray:
        """The entries of x(0) that get noise."""
        return np.flatnonzero(self.start.any(axis=1))

    @property
    def square(self) -> FloatArray:
        """S, the noise on those."""
        return np.asarray(self.start[self.places])

    @cached_property
    def revealed(self) -> Coordinates:
        """What the outputs reveal."""
        return revealed_coordinates(self.domain, output_gramian(self.domain))

    @cached_property
    def _measured(self) -> Coordinates:
        """Of what the outputs reveal, what gets noise."""
        inside = np.isin(self.revealed.places, self.places)
        if inside.sum() != len(self.places):
            raise AffineDPError("the noise lies on entries of the state that need none")
        found = self.revealed
        return Coordinates(found.places[inside], found.combinations[inside], found.certain)

    # -------------------------------------------------------------- the promise

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return ``S⁻¹ E v``."""
        whitened = _inverse(self.square, 2)[0] @ self._measured.combinations
        return (abs(whitened) if absolute else whitened) @ moves

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest gauge, from the largest norm of a matrix over differences of x(0)."""
        needed = self.revealed.restricted(moving(adjacency))
        if not len(needed.places):
            raise AffineDPError("the outputs do not depend on what is private: no noise is needed")
        if not np.isin(needed.places, self.places).all():
            raise HorizonTooLongError("some state that the outputs reveal gets no noise at all")
        if (law.norm is None and law.size is None) or law.whole:
            raise AffineDPError(f"{law.words} noise is not known for trajectories")
        if law.norm is None:
            return self._largest_of_body(adjacency, law)
        coordinates, norm = self._measured, law.norm
        inverse, residual = _inverse(self.square, norm)
        whitened = inverse @ coordinates.combinations
        found = adjacency.sensitivity(whitened, norm)
        upper = found.upper
        if len(whitened) < self.domain.states:
            # the product with E was rounded; with the identity it is exact
            longest = adjacency.sensitivity(np.eye(self.domain.states), 2).upper
            terms = float(np.linalg.norm(np.abs(inverse) @ np.abs(coordinates.combinations)))
            # of r numbers the 1-norm is at most √r times the 2-norm
            more = math.sqrt(len(whitened)) if norm == 1 else 1.0
            upper += gamma(2 * len(whitened) + 20) * terms * longest * more
        upper = upper / (1.0 - residual) * (1.0 + 1e-15)
        shifts = _shifts(adjacency, whitened, upper) if norm == 1 else None
        return _largest(adjacency, law, found, upper, coordinates.certain, shifts)

    def _largest_of_body(self, adjacency: Adjacency, law: Any) -> Largest:
        """The gauge of a difference is the largest of its products with normals of the facets."""
        body, coordinates = polytope_of(dense(law.points)), self._measured
        if not np.array_equal(self.square, np.eye(self.coordinates)):
            raise AffineDPError("K-norm noise is drawn on entries of x(0) as they are")
        if len(body.normals) > MOST_FACETS:
            raise AffineDPError(
                f"the body has {len(body.normals):,} facets, more than {MOST_FACETS:,}: use "
                "Laplace or Gaussian noise"
            )
        longest = adjacency.sensitivity(np.eye(self.domain.states), 2).upper
        worst, upper = None, 0.0
        for normal in body.normals[len(body.normals) // 2 :]:  # they are sorted: of each pair one
            found = adjacency.sensitivity((normal @ coordinates.combinations)[None], 2)
            terms = float(np.linalg.norm(np.abs(normal) @ np.abs(coordinates.combinations)))
            # the normals are rounded once, and the product with E
            upper = max(upper, found.upper + gamma(2 * len(normal) + 20) * terms * longest)
            worst = found if worst is None or found.value > worst.value else worst
        assert worst is not None
        return _largest(adjacency, law, worst, upper * (1.0 + 1e-15), coordinates.certain)

    # -------------------------------------------------------------- the errors

    @property
    def over_time(self) -> FloatArray:
        """Γ(t) with ``γ(t) = Γ(t) η`` for all times, shape (horizon, outputs, r)."""
        return self._followed(self.start)

    def _followed(self, root: FloatArray) -> FloatArray:
        """``C(t) A(t−1) … A(0)`` times a matrix, for all times."""
        shape = self.horizon, self.domain.outputs, root.shape[1]
        check_steps(float(math.prod(shape)))
        found = np.empty(shape)

        def keep(first: int, seen: FloatArray) -> None:
            found[first : first + len(seen)] = seen

        self._scan(root, self.horizon, keep)
        return found

    def _scan(self, root: FloatArray, steps: int, visit: Callable[[int, FloatArray], None]) -> None:
        """Visit ``C(t) A(t−1) … A(0)`` times a matrix, a stack at a time."""
        shorter = self.domain.shortened(steps)
        scan_transitions(
            shorter,
            lambda first, block: visit(first, output_blocks(shorter, first, block) @ root),
            float(np.abs(root).max()),
        )

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which η combinations are made of all outputs, one time after another."""
        rows = self.over_time.reshape(-1, self.coordinates)
        return rows if combinations is None else combinations @ rows

    def deviations(self, law: Law, steps: int) -> FloatArray:
        """Return the standard deviation of γ(0), …, γ(steps − 1), shape (steps, outputs)."""
        outputs = self.domain.outputs
        check_steps(float(steps) * outputs)
        found = np.empty((steps, outputs))

        def keep(first: int, seen: FloatArray) -> None:
            variances = law.variances(seen.reshape(-1, seen.shape[2]))
            found[first : first + len(seen)] = np.sqrt(variances).reshape(-1, outputs)

        self._scan(self.start, steps, keep)
        return found

    def deviations_at(self, law: Law, times: Sequence[int]) -> FloatArray:
        """Return the standard deviation of γ at some times, shape (times, outputs)."""
        if self.domain.time_varying or self.horizon <= MOST_TIMES:
            return super().deviations_at(law, times)
        A, C = self.domain.A, self.domain.C
        rows = [C @ np.linalg.matrix_power(A, int(t)) @ self.start for t in times]
        return np.sqrt(law.variances(np.vstack(rows))).reshape(len(times), -1)

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, shape (size, horizon, outputs)."""
        check_steps(float(len(drawn)) * self.horizon * self.domain.outputs)
        return np.asarray(np.einsum("tmr,sr->stm", self.over_time, drawn))

    def total_variance(self, law: Law) -> float:
        """Return the sum of all variances; over a long horizon from the Gramian."""
        if self.domain.time_varying or self.horizon <= MOST_TIMES:
            return super().total_variance(law)
        return float(np.trace(output_gramian(self.domain) @ law.covariance(self.start)))

    def scaled(self, factor: float) -> Trajectory:
        """Return the same with noise that is larger by a factor."""
        return replace(self, start=self.start * factor)

    # -------------------------------------------------------------- step by step

    @property
    def system(self) -> System:
        """What makes the noise; the numbers of A and C are what doubles stand for."""
        own, n = self.domain, len(self.start)

        def A(t: int) -> RationalMatrix:
            return RationalMatrix.meant(own.state_matrix(t))

        def C(t: int) -> RationalMatrix:
            return RationalMatrix.meant(own.output_matrix(t))

        return System(
            A if own.A.ndim == 3 else constant(A(0)),
            RationalMatrix.zeros(n, 0),
            C if own.C.ndim == 3 else constant(C(0)),
            RationalMatrix.zeros(self.domain.outputs, 0),
            RationalMatrix.of(self.start),
            self.horizon,
        )

    def released_at_once(self, y: Any) -> bool:
        """Whether these are all outputs of a release, and not what was sent so far."""
        by_step = np.ndim(y) >= 2 and np.shape(y)[-1] == self.domain.outputs
        return not by_step or np.shape(y)[-2] >= self.horizon

    def shortened(self, steps: int) -> Trajectory:
        """Return the same noise over the first steps alone."""
        if steps == self.horizon:
            return self
        return replace(self, domain=self.domain.shortened(steps))

    @cached_property
    def growth(self) -> int:
        """``2**growth`` is at least the norm of every product of state matrices."""
        return growth_exponent(self.domain)

    def path_bits(self, exponents: Sequence[int]) -> int:
        """Return how many bits keep output i within ``2**exponents[i]`` of its true value."""
        # log2 of T √n ‖C_i‖, rounded up; the unit below covers the rounding of the logarithms
        common = math.log2(self.domain.horizon) + math.log2(self.domain.states) / 2
        rows = np.abs(self.domain.C.reshape(-1, *self.domain.C.shape[-2:])).max(axis=0)
        bits = LEAST_BITS
        for row, exponent in zip(rows, exponents):
            largest = float(row.max())
            if largest > 0:
                # ‖C_i‖₂ ≤ √n · its largest entry
                norm = math.log2(largest) + math.log2(self.domain.states) / 2
                bits = max(bits, math.ceil(common + norm) + 1 + self.growth - exponent)
        return bits

    # -------------------------------------------------------------- releases of x(0)

    def on_first_state(self, adjacency: TrajectoryAdjacency, law: Law) -> tuple[Dense, FirstState]:
        """Return the same noise on what the outputs reveal of x(0), as matrices."""
        about = FirstState(adjacency)
        seen = self.revealed.places
        placed = np.zeros((len(seen), self.coordinates))
        placed[np.isin(seen, self.places)] = np.eye(self.coordinates)
        bound = law.size is not None
        made = Dense(
            about.domain,
            self.revealed.combinations,
            placed @ self.square if bound else placed,
            tuple(self.domain.names[place] for place in seen),
            None if bound else self.square,
        )
        return made, about

    def shown(self, told: Told) -> Shown:
        """Return what a report says: the noise of each output at some times."""
        return _shown(self, told, "one draw for all")

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases of all outputs that follow from x(0)."""
        if not isinstance(adjacency, TrajectoryAdjacency):
            raise AffineDPError("only neighbours of trajectories are released to")
        made, about = self.on_first_state(adjacency, law)
        spread = np.zeros((self.domain.states, len(self.revealed.places)))
        spread[self.revealed.places] = np.eye(len(self.revealed.places))
        outputs = self._followed(spread).reshape(-1, spread.shape[1])
        plan = made.prepare(about, law, promised, bound)
        assert isinstance(plan, DensePlan)
        return replace(plan, followed=outputs)


@dataclass(frozen=True, eq=False)
class Fresh(Causal):
    """Fresh noise of one scale on every output at every step: the honest baseline."""

    kind = "fresh"
    # the system and its horizon
    domain: Dynamics
    # the scale: ``N(0, σ²)``, or ``L(0, σ)``, which has variance 2σ²
    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise AffineDPError(f"a scale of {self.sigma} is not possible: it must be positive")

    @property
    def coordinates(self) -> int:
        """How many numbers are drawn: one for each output at each step."""
        return self.horizon * self.domain.outputs

    @cached_property
    def _outputs(self) -> tuple[FloatArray, float]:
        """O, and how far an entry may be off."""
        if float(self.coordinates) * self.domain.states > MOST_OUTPUTS:
            raise AffineDPError(
                f"independent Laplace noise on {self.coordinates:,} outputs is too much to verify: "
                "shorten the horizon"
            )
        rows: list[FloatArray] = []
        sizes: list[float] = []

        def keep(start: int, block: FloatArray) -> None:
            if start == 0:
                rows.clear()
                sizes.clear()
            rows.append(output_blocks(self.domain, start, block).reshape(-1, self.domain.states))
            sizes.append(float(np.abs(block).max()))

        error = scan_transitions(self.domain, keep).error
        # an entry of C Φ is off by its rounding, and by what Φ is off
        n = self.domain.states
        sums = float(np.abs(self.domain.C).sum(axis=-1).max()) * (1 + gamma(n))
        return np.vstack(rows), sums * (gamma(n + 4) * max(sizes) + error)

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return ``O v / σ``."""
        outputs = self._outputs[0] / self.sigma
        return (abs(outputs) if absolute else outputs) @ moves

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest norm of what neighbours differ by in all outputs."""
        if law.norm is None or law.whole:
            raise AffineDPError(f"{law.words} noise is not known for trajectories")
        if law.norm == 1:
            outputs, off = self._outputs
            found = adjacency.sensitivity(outputs, 1)
            longest = adjacency.sensitivity(np.eye(self.domain.states), 1).upper
            upper = (found.upper + self.coordinates * off * longest) / self.sigma * (1.0 + 1e-14)
            shifts = _shifts(adjacency, outputs / self.sigma, upper)
            return _largest(adjacency, law, found, upper, True, shifts, self.sigma)
        root, slack = observability_bound(self.domain)
        found = adjacency.sensitivity(np.vstack([root, slack]), 2)
        if not 0 < found.upper < 1e300:
            raise AffineDPError(
                "what neighbours differ by leaves the range of floating point: rescale"
            )
        near = replace(found, value=adjacency.sensitivity(root, 2).value)
        upper = found.upper / self.sigma * (1.0 + 1e-15)
        return _largest(adjacency, law, near, upper, True, None, self.sigma)

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return σ times the combinations."""
        import scipy.sparse as sparse

        if combinations is not None:
            return self.sigma * combinations
        check_steps(float(self.coordinates))
        return self.sigma * sparse.eye_array(self.coordinates, format="csr")

    def deviations(self, law: Law, steps: int) -> FloatArray:
        """Return the standard deviation of γ(0), …, γ(steps − 1), shape (steps, outputs)."""
        check_steps(float(steps) * self.domain.outputs)
        return np.full((steps, self.domain.outputs), self.sigma * math.sqrt(law.variance))

    def deviations_at(self, law: Law, times: Sequence[int]) -> FloatArray:
        """Return the standard deviation of γ at some times: the same at all."""
        return self.deviations(law, len(times))

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, shape (size, horizon, outputs)."""
        return self.sigma * drawn.reshape(len(drawn), self.horizon, self.domain.outputs)

    def scaled(self, factor: float) -> Fresh:
        """Return the same with noise that is larger by a factor."""
        return replace(self, sigma=self.sigma * factor)

    def shown(self, told: Told) -> Shown:
        """Return what a report says: the noise of each output at some times."""
        return _shown(self, told, "fresh at every step")

    @property
    def independent(self) -> bool:
        """Each number of noise is on one output at one step alone."""
        return True

    def shortened(self, steps: int) -> Fresh:
        """Return the same noise over the first steps alone."""
        return replace(self, domain=self.domain.shortened(steps))

    @property
    def system(self) -> System:
        """A system without memory."""
        nothing, m = RationalMatrix.zeros(0, 0), self.domain.outputs
        return System(
            constant(nothing),
            RationalMatrix.zeros(0, m),
            constant(RationalMatrix.zeros(m, 0)),
            RationalMatrix.of(np.eye(m) * self.sigma),
            nothing,
            self.horizon,
        )

    def path_bits(self, exponents: Sequence[int]) -> int:
        """Return a number of bits: nothing is remembered."""
        return LEAST_BITS


def _fresh_deviation(domain: Dynamics, told: Told) -> float:
    """Of fresh noise, for what this noise keeps and, where δ was allowed, for what was asked."""
    gaussian, fresh = told.law.norm == 2, Fresh(domain, 1.0)
    like: Law = Gaussian() if gaussian else Laplace()
    unit = fresh.largest(told.adjacency, like).upper
    found = math.sqrt(like.variance) * float(unit) / told.sensitivity
    if gaussian or told.asked is None or told.asked[1] == 0:
        return found
    allowed = float(gaussian_sensitivity(*told.asked))
    return min(found, float(fresh.largest(told.adjacency, Gaussian()).upper) / allowed)


def _shown(strategy: Trajectory | Fresh, told: Told, draws: str) -> Shown:
    """What is said about noise by time."""
    law, sent = told.law, told.sent
    steps, outputs = strategy.horizon, strategy.domain.outputs
    over = "for all time" if steps >= ENDLESS else f"over {steps:,} steps"
    fresh, reason = None, "over so many steps it is not computed"
    if sent is not None:
        reason = FOR_STEPS
    elif steps <= MOST_TIMES or type(told.adjacency) is not InitialState:
        try:
            fresh, reason = _fresh_deviation(strategy.domain, told), ""
        except AffineDPError as error:
            reason = str(error).partition(". ")[0]
    mean = strategy.total_variance(law) / (steps * outputs)
    if sent is not None:
        if sent.every > 1:
            mean = float((strategy.deviations(law, steps)[:: sent.every] ** 2).mean())
        mean = float(sent.variances(np.full(outputs, mean)).mean())
    totals = [("noise", f"root mean square {math.sqrt(mean):.4g} over all steps and outputs")]
    if fresh is not None:
        totals.append(
            (
                "independent",
                f"the same promise by fresh noise at every step takes {fresh:.4g} on every output: "
                f"this has {mean / fresh**2:.3g} times its squared error",
            )
        )
    times = _some(steps, SHOWN_TIMES, sent)
    rows = _deviations(strategy, law, times, sent).tolist()
    return Shown(
        title=f"{over}, {draws}",
        outputs=tuple(
            (f"{name}({t})", deviation)
            for t, row in zip(times, rows)
            for name, deviation in zip(strategy.step_names, row)
        ),
        lines=lambda: _by_time(strategy, law, sent),
        independent=fresh,
        reason=reason,
        promise=(("covers", f"states and outputs {over}, {COVERS}"),),
        totals=tuple(totals),
        unprotected=(HIDES_NOT,),
        typical=math.sqrt(mean),
    )


def _deviations(
    strategy: Trajectory | Fresh, law: Law, times: list[int], sent: Sent | None
) -> FloatArray:
    designed = strategy.deviations_at(law, times)
    return designed if sent is None else np.sqrt(sent.variances(designed**2))


def _by_time(strategy: Trajectory | Fresh, law: Law, sent: Sent | None) -> Lines:
    times = _some(strategy.horizon, DRAWN_TIMES, sent)
    deviations = _deviations(strategy, law, times, sent)
    return Lines(
        "Noise by time",
        "time step",
        "standard deviation (units of the output)",
        np.array(times, dtype=float),
        dict(zip(strategy.step_names, deviations.T)),
    )


def _some(steps: int, count: int, sent: Sent | None) -> list[int]:
    """A few times of those that are sent, the first and the last among them."""
    every = 1 if sent is None else sent.every
    last = (steps - 1) // every
    places = np.linspace(0, last, min(last + 1, count)).round().astype(int)
    return sorted(set((every * places).tolist()))


def moving(adjacency: Adjacency) -> NDArray[np.bool_]:
    """Return which entries of x(0) differ between some neighbours."""
    if type(adjacency) in (InitialState, TimeLocal, WholeManifold):
        return adjacency.moving()  # type: ignore[attr-defined, no-any-return]
    found = np.zeros(len(adjacency.domain.names), dtype=bool)
    for columns in adjacency.moves(MOST_LISTED):
        found |= (dense(columns.values) != 0).any(axis=1) | (dense(columns.off) != 0).any(axis=1)
    return found


def _largest(
    adjacency: Adjacency,
    law: Law,
    found: Sensitivity,
    upper: float,
    certain: bool,
    shifts: FloatArray | None = None,
    sigma: float = 1.0,
) -> Largest:
    """What is known, unless rounding hides it."""
    value, upper = law.rate * found.value / sigma, law.rate * upper
    if not upper <= value * (1 + MOST_ROUNDING) + 1e-300:
        raise HorizonTooLongError(ILL_CONDITIONED)
    rank = adjacency.rank if isinstance(adjacency, TrajectoryAdjacency) else "listed neighbours"
    return Largest(
        lower=max(0.0, 2 * value - upper),
        upper=upper,
        exact=found.exact and certain and upper <= value * EXACT,
        method=found.method,
        direction=found.direction,
        warnings=found.warnings,
        moves=NOTHING_KNOWN if shifts is None else Moves(shifts=shifts),
        because=f" ({rank})",
    )


def _shifts(adjacency: Adjacency, whitened: FloatArray, upper: float) -> FloatArray | None:
    """How far each direction moves each draw, where there are few enough to list."""
    if type(adjacency) not in (InitialState, TimeLocal, WholeManifold):
        return None
    differences: FloatArray = adjacency.differences()  # type: ignore[attr-defined]
    if len(differences) * 2.0 ** min(len(whitened), 12) > MOST_SIGN_VECTORS:
        return None
    shifts = np.abs(differences @ whitened.T)
    largest = float(shifts.sum(axis=1).max(initial=0.0))
    if largest > 0:  # the bound on the worst covers the rounding of all
        shifts = shifts * (upper / largest)
    return np.unique(np.sort(shifts, axis=1), axis=0)


def _inverse(square: FloatArray, norm: Norm = 2) -> tuple[FloatArray, float]:
    """An approximate inverse X, and a bound on ``‖X S − I‖`` as a map between such norms."""
    size = np.linalg.norm(square, axis=1)
    if len(square) == 0 or not np.all(size > 0):
        raise HorizonTooLongError("some state that the outputs reveal gets no noise at all")
    scale = np.ldexp(1.0, -np.frexp(size)[1])
    scaled = square * scale[:, None]
    try:
        inverse = np.linalg.inv(scaled)
    except np.linalg.LinAlgError:
        raise HorizonTooLongError("the noise misses a direction that the outputs reveal") from None
    if not np.all(np.isfinite(inverse)):
        raise HorizonTooLongError("the noise misses a direction that the outputs reveal")
    error = difference_bound(np.eye(len(square)), inverse, scaled.T)
    residual = float(row_sums(error.T).max())  # the largest column sum
    if norm == 2:
        residual = math.sqrt(row_sums(error).max() * residual)
    if not residual < 0.5:
        raise HorizonTooLongError("the noise misses a direction that the outputs reveal")
    return inverse * scale, residual
