"""What output noise promises about a trajectory: Theorem 3, or Theorem 1 with Definition 4."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from affinedp.arrays import FloatArray, Norm
from affinedp.control.trajectory.neighbours import TrajectoryNeighbours
from affinedp.domains.observability import (
    Coordinates,
    observability_bound,
    output_blocks,
    output_gramian,
    revealed_coordinates,
)
from affinedp.domains.powers import scan_transitions
from affinedp.errors import AffineDPError
from affinedp.exact.rounding import difference_bound, gamma, row_sums
from affinedp.laws.curves import Curve, GaussianCurve, LaplaceCurve
from affinedp.laws.named import LawName
from affinedp.laws.polytope import polytope_of
from affinedp.neighbours.adjacency import Sensitivity
from affinedp.privacy.guarantee import Guarantee

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


class UncertainPromiseError(AffineDPError):
    """Noise so ill-conditioned that rounding hides what it promises."""


def structured_promise(
    neighbours: TrajectoryNeighbours,
    coordinates: Coordinates,
    square: FloatArray,
    law: LawName = "gaussian",
) -> Guarantee:
    """Return the guarantee of noise ``square @ η`` on the chosen entries of x(0).

    What is sent is a function of ``E x(0)`` plus that noise.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    coordinates : Coordinates
        Which entries of x(0) get noise.
    square : array, shape (r, r)
        The noise on them.
    law : {"gaussian", "laplace"}
        Law of η.
    """
    norm: Norm = 1 if law == "laplace" else 2
    inverse, residual = _inverse(square, norm)
    whitened = inverse @ coordinates.combinations
    found = neighbours.sensitivity(whitened, norm)
    upper = found.upper
    if len(square) < neighbours.dynamics.states:
        # the product with E was rounded; with the identity it is exact
        longest = neighbours.sensitivity(np.eye(neighbours.dynamics.states)).upper
        terms = float(np.linalg.norm(np.abs(inverse) @ np.abs(coordinates.combinations)))
        # of r numbers the 1-norm is at most √r times the 2-norm
        more = math.sqrt(len(square)) if norm == 1 else 1.0
        upper += gamma(2 * len(square) + 20) * terms * longest * more
    upper = upper / (1.0 - residual) * (1.0 + 1e-15)
    if not upper <= found.value * (1 + MOST_ROUNDING) + 1e-300:
        raise UncertainPromiseError(
            "the noise is so ill-conditioned that rounding hides what it promises: the dynamics "
            "stretch some directions far more than others over this horizon. Shorten the horizon"
        )
    exact = found.exact and coordinates.certain and upper <= found.value * EXACT
    shifts = _shifts(neighbours, whitened, upper) if law == "laplace" else None
    return _guarantee(neighbours, found, upper, exact, law, shifts)


def body_promise(
    neighbours: TrajectoryNeighbours, coordinates: Coordinates, points: FloatArray, rate: float
) -> Guarantee:
    """Return the guarantee of K-norm noise on the chosen entries of x(0).

    The gauge of a difference is the largest of its products with the normals of the facets.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    coordinates : Coordinates
        Which entries of x(0) get noise.
    points : array, shape (r, p)
        Points of the body, up to sign.
    rate : float
        The rate.
    """
    body = polytope_of(points)
    if len(body.normals) > MOST_FACETS:
        raise AffineDPError(
            f"the body has {len(body.normals):,} facets, more than {MOST_FACETS:,}: use Laplace "
            "or Gaussian noise"
        )
    longest = neighbours.sensitivity(np.eye(neighbours.dynamics.states)).upper
    worst, value, upper = None, 0.0, 0.0
    for normal in body.normals[len(body.normals) // 2 :]:  # they are sorted: of each pair one
        row = (normal @ coordinates.combinations)[None]
        found = neighbours.sensitivity(row)
        terms = float(np.linalg.norm(np.abs(normal) @ np.abs(coordinates.combinations)))
        # the normals are rounded once, and the product with E
        high = found.upper + gamma(2 * len(normal) + 20) * terms * longest
        if found.value > value or worst is None:
            worst, value = found, found.value
        upper = max(upper, high)
    assert worst is not None
    upper = upper * rate * (1.0 + 1e-15)
    if not upper <= value * rate * (1 + MOST_ROUNDING) + 1e-300:
        raise UncertainPromiseError(
            "the noise is so ill-conditioned that rounding hides what it promises: the dynamics "
            "stretch some directions far more than others over this horizon. Shorten the horizon"
        )
    exact = worst.exact and coordinates.certain and upper <= value * rate * EXACT
    return _guarantee(neighbours, worst, upper, exact, "knorm")


def needed_coordinates(neighbours: TrajectoryNeighbours, gramian: FloatArray) -> Coordinates:
    """Return coordinates of what the outputs reveal and neighbours move.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    gramian : array, shape (n, n)
        How much each direction of x(0) shows in the outputs.
    """
    found = revealed_coordinates(neighbours.dynamics, gramian).restricted(neighbours.moving())
    if len(found.places) == 0:
        raise AffineDPError("the outputs do not depend on what is private: no noise is needed")
    return found


def promise_of_root(
    neighbours: TrajectoryNeighbours, root: FloatArray, law: LawName = "gaussian", rate: float = 1.0
) -> Guarantee:
    """Return what noise with this root on x(0) promises.

    For K-norm noise the root is the points of its body.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    root : array, shape (n, r)
        R; it must be zero outside the entries that need noise.
    law : {"gaussian", "laplace", "knorm"}
        Law of η.
    rate : float
        The rate of K-norm noise.
    """
    dynamics = neighbours.dynamics
    coordinates = needed_coordinates(neighbours, output_gramian(dynamics))
    rank = len(coordinates.places)
    if law == "knorm":
        rank = max(rank, root.shape[1])
    if root.shape != (dynamics.states, rank):
        raise AffineDPError(f"the noise has shape {root.shape}, not {(dynamics.states, rank)}")
    others = np.delete(root, coordinates.places, axis=0)
    if np.any(others != 0):
        raise AffineDPError("the noise lies on entries of the state that need none")
    if law == "knorm":
        return body_promise(neighbours, coordinates, root[coordinates.places], rate)
    return structured_promise(neighbours, coordinates, root[coordinates.places], law)


def independent_promise(neighbours: TrajectoryNeighbours, sigma: float) -> Guarantee:
    """Return the guarantee of fresh noise of one scale on every output at every step.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    sigma : float
        Standard deviation.
    """
    root, slack = observability_bound(neighbours.dynamics)
    found = neighbours.sensitivity(np.vstack([root, slack]))
    if not 0 < found.upper < 1e300:
        raise AffineDPError("what neighbours differ by leaves the range of floating point: rescale")
    exact = found.exact and found.upper <= neighbours.sensitivity(root).value * EXACT
    return _guarantee(neighbours, found, found.upper / sigma * (1.0 + 1e-15), exact)


def independent_laplace_promise(neighbours: TrajectoryNeighbours, sigma: float) -> Guarantee:
    """Return the guarantee of fresh Laplace noise of one scale on every output at every step.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    sigma : float
        Scale.
    """
    dynamics = neighbours.dynamics
    numbers = float(dynamics.horizon) * dynamics.outputs
    if numbers * dynamics.states > MOST_OUTPUTS:
        raise AffineDPError(
            f"independent Laplace noise on {numbers:,.0f} outputs is too much to verify: shorten "
            "the horizon"
        )
    rows: list[FloatArray] = []
    sizes: list[float] = []

    def keep(start: int, block: FloatArray) -> None:
        if start == 0:
            rows.clear()
            sizes.clear()
        rows.append(output_blocks(dynamics, start, block).reshape(-1, dynamics.states))
        sizes.append(float(np.abs(block).max()))

    error = scan_transitions(dynamics, keep).error
    outputs = np.vstack(rows)
    found = neighbours.sensitivity(outputs, 1)
    longest = neighbours.sensitivity(np.eye(dynamics.states), 1).upper
    # an entry of C Φ is off by its rounding, and by what Φ is off
    sums = float(np.abs(dynamics.C).sum(axis=-1).max()) * (1 + gamma(dynamics.states))
    rounding = sums * (gamma(dynamics.states + 4) * max(sizes) + error)
    upper = (found.upper + numbers * rounding * longest) / sigma * (1.0 + 1e-14)
    exact = found.exact and upper <= found.value / sigma * EXACT
    shifts = _shifts(neighbours, outputs / sigma, upper)
    return _guarantee(neighbours, found, upper, exact, "laplace", shifts)


def stated_promise(
    neighbours: TrajectoryNeighbours, sensitivity: float, law: LawName = "gaussian"
) -> Guarantee:
    """Return a guarantee that someone else states, marked as not verified here.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    sensitivity : float
        As stated.
    law : {"gaussian", "laplace"}
        Law of η.
    """
    warning = "read from a file and NOT verified again: it is as good as the file"
    nowhere = np.zeros(neighbours.dynamics.states)
    found = Sensitivity(sensitivity, sensitivity, False, "", nowhere, (warning,))
    stated = _guarantee(neighbours, found, sensitivity, False, law)
    return replace(stated, worst_direction=None)


def _shifts(
    neighbours: TrajectoryNeighbours, whitened: FloatArray, upper: float
) -> FloatArray | None:
    """How far each direction moves each draw, where there are few enough to list."""
    differences = neighbours.directions()
    if len(differences) * 2.0 ** min(len(whitened), 12) > MOST_SIGN_VECTORS:
        return None
    shifts = np.abs(differences @ whitened.T)
    largest = float(shifts.sum(axis=1).max(initial=0.0))
    if largest > 0:  # the bound on the worst covers the rounding of all
        shifts = shifts * (upper / largest)
    return np.unique(np.sort(shifts, axis=1), axis=0)


# Which of the promises about trajectories it is.
RANK = {
    "manifold": "the neighbours of Definition 4",
    "time-local": "time-local neighbours, a weaker promise than Definition 4",
    "initial": "initial neighbours, a weaker promise than time-local",
}


def _guarantee(
    neighbours: TrajectoryNeighbours,
    found: Sensitivity,
    upper: float,
    exact: bool,
    law: LawName = "gaussian",
    shifts: FloatArray | None = None,
) -> Guarantee:
    dynamics = neighbours.dynamics
    curve: Curve = GaussianCurve(upper) if law == "gaussian" else LaplaceCurve(upper, shifts)
    if law == "knorm":
        curve = LaplaceCurve(upper)
    basis = neighbours.theorem
    if law != "gaussian":
        theorem = "Theorem 2" if law == "laplace" else "the triangle inequality of the gauge"
        basis = f"{theorem} ({RANK[neighbours.kind]})"
    return Guarantee(
        law=law,
        sensitivity=upper,
        exact=exact,
        neighbours=neighbours.words,
        basis=basis,
        curve=curve,
        worst_direction=found.direction,
        names=tuple(f"{name}(0)" for name in dynamics.state_names),
        output_names=dynamics.output_names,
        method=found.method,
        warnings=found.warnings,
        neighbours_key=neighbours.key,
        unit=neighbours.unit,
    )


def _inverse(square: FloatArray, norm: Norm = 2) -> tuple[FloatArray, float]:
    """An approximate inverse X, and a bound on ``‖X S − I‖`` as a map between such norms."""
    size = np.linalg.norm(square, axis=1)
    if len(square) == 0 or not np.all(size > 0):
        raise UncertainPromiseError("some state that the outputs reveal gets no noise at all")
    scale = np.ldexp(1.0, -np.frexp(size)[1])
    scaled = square * scale[:, None]
    try:
        inverse = np.linalg.inv(scaled)
    except np.linalg.LinAlgError:
        raise UncertainPromiseError(
            "the noise misses a direction that the outputs reveal"
        ) from None
    if not np.all(np.isfinite(inverse)):
        raise UncertainPromiseError("the noise misses a direction that the outputs reveal")
    error = difference_bound(np.eye(len(square)), inverse, scaled.T)
    residual = float(row_sums(error.T).max())  # the largest column sum
    if norm == 2:
        residual = math.sqrt(row_sums(error).max() * residual)
    if not residual < 0.5:
        raise UncertainPromiseError("the noise misses a direction that the outputs reveal")
    return inverse * scale, residual
