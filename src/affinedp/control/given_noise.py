"""What noise that someone already has promises about a trajectory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.output_noise import trajectory_neighbours
from affinedp.control.plant import semidefinite
from affinedp.domains.dynamics import Dynamics, dynamics_of
from affinedp.domains.observability import Coordinates, output_gramian, revealed_coordinates
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.laws.base import Law, LawName
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Laplace
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import Neighbours, trajectory_manifold
from affinedp.privacy.design import Design
from affinedp.privacy.guarantee import Guarantee
from affinedp.privacy.verification import verify
from affinedp.strategies.causal import OutputNames
from affinedp.strategies.trajectory import Trajectory

# A covariance that is less symmetric than this is a mistake.
ASYMMETRY = 1e-9
# Entries of a trajectory for which noise of any kind is verified.
MOST_ENTRIES = 5_000


def verify_output_noise(
    system: Any,
    horizon: int,
    *,
    covariance: ArrayLike | None = None,
    root: ArrayLike | None = None,
    law: LawName = "gaussian",
    mu: float | ArrayLike = 1.0,
    adjacency: Neighbours = "time-local",
) -> Mechanism:
    """Return given noise ``γ(t) = C A^t √Σ η`` with what it promises for the whole trajectory.

    Theorem 3 of the paper for a Σ of one's own, or Theorem 1 with all neighbours of Definition 4.
    The result can do all that a design can: be sent by a gateway, saved, followed in a loop.

    Parameters
    ----------
    system : StateSpace, or (A, C), (A, B, C) or (A, B, C, D)
        A discrete-time system of python-control, or its matrices, constant or one per step.
    horizon : int
        How many outputs are sent.
    covariance : array_like, shape (n, n), or float
        Σ, the covariance of the noise on x(0); one number for a single state.
    root : array_like, shape (n, r)
        In place of the covariance, R with Σ = R Rᵀ.
    law : {"gaussian", "laplace"}
        Law of η.  Laplace noise is given by a root with one draw for each combination of x(0)
        that the outputs reveal, since its law depends on the root.
    mu : float or array_like
        How far a state entry moves, as for :func:`~affinedp.control.design_output_noise`.
    adjacency : {"time-local", "manifold", "initial"}
        Who is a neighbour, as for :func:`~affinedp.control.design_output_noise`.

    Returns
    -------
    Mechanism
        Its root is a square one of the same covariance, on what the outputs reveal.

    Examples
    --------
    The noise of the paper's vehicle, for the positions alone: σ = 2.5244 keeps more than ε = 1.

    >>> from affinedp.control import verify_output_noise
    >>> given = verify_output_noise(([[1]], [[1]]), 100, covariance=2.5244**2)
    >>> print(f"ε = {given.guarantee.epsilon(0.01):.3f} at δ = 0.01")
    ε = 0.673 at δ = 0.01
    """
    dynamics = dynamics_of(system, horizon)
    chosen = trajectory_neighbours(dynamics, mu, adjacency)
    if law not in ("gaussian", "laplace"):
        raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    if law == "laplace" and root is None:
        raise AffineDPError("Laplace noise is not known by its covariance: give its root")
    given = _root(dynamics, covariance, root)
    revealed = revealed_coordinates(dynamics, output_gramian(dynamics))
    needed = revealed.restricted(chosen.moving())
    if not len(needed.places):
        raise AffineDPError("the outputs do not depend on what is private: no noise is needed")
    square = _seen(revealed, needed, given, law)
    start = np.zeros((dynamics.states, len(square)))
    start[needed.places] = square
    noise: Law = Gaussian() if law == "gaussian" else Laplace()
    design = Design(notes=("noise that was given",))
    made = Mechanism(chosen, Trajectory(dynamics, start), noise, design=design)
    made.guarantee  # noqa: B018 (what cannot be promised is refused here)
    return made


def verify_trajectory_noise(
    system: Any,
    horizon: int,
    noise_matrix: float | ArrayLike | None = None,
    *,
    covariance: ArrayLike | None = None,
    law: LawName = "gaussian",
    mu: float | ArrayLike = 1.0,
    adjacency: Neighbours = "time-local",
) -> Guarantee:
    """Return what any noise on all outputs promises about the state trajectory.

    Theorems 1 and 2 of the paper on the manifold of trajectories: also for noise that does not
    follow the dynamics, such as independent noise, and for Laplace noise.

    Parameters
    ----------
    system : StateSpace, or (A, C), (A, B, C) or (A, B, C, D)
        A discrete-time system of python-control, or its matrices, constant or one per step.
    horizon : int
        How many outputs are sent.
    noise_matrix : float or array_like, shape (horizon · outputs, r)
        Λ, outputs in order of time; a number is independent noise of that scale.
    covariance : array_like, shape (horizon · outputs, horizon · outputs)
        In place of Λ, for Gaussian noise.
    law : {"gaussian", "laplace"}
        Law of η.
    mu : float or array_like
        How far a state entry moves, as for :func:`~affinedp.control.design_output_noise`.
    adjacency : {"time-local", "manifold", "initial"}
        Who is a neighbour, as for :func:`~affinedp.control.design_output_noise`.

    Returns
    -------
    Guarantee
        With the combination of outputs that comes out without noise, if there is one.

    Examples
    --------
    A state that does not change, measured ten times with fresh Laplace noise of scale 1.

    >>> from affinedp.control.given_noise import verify_trajectory_noise
    >>> constant = ([[1]], [[1]])
    >>> print(f'{verify_trajectory_noise(constant, 10, 1.0, law="laplace").epsilon():.4f}')
    10.0000
    >>> one_draw = [[1.0]] * 10
    >>> print(f'{verify_trajectory_noise(constant, 10, one_draw, law="laplace").epsilon():.4f}')
    1.0000
    """
    dynamics = dynamics_of(system, horizon)
    chosen = trajectory_neighbours(dynamics, mu, adjacency)
    entries = dynamics.horizon * dynamics.states
    if entries > MOST_ENTRIES:
        raise AffineDPError(
            f"a trajectory of {entries:,} entries is too long for noise of any kind (at most "
            f"{MOST_ENTRIES:,}); noise C A^t √Σ η has no such limit (verify_output_noise)"
        )
    import scipy.sparse as sparse

    manifold = trajectory_manifold(dynamics)
    outputs = [dynamics.output_matrix(t) for t in range(dynamics.horizon)]
    found = verify(
        manifold,
        noise_matrix,
        covariance=covariance,
        law=law,
        query=sparse.csr_array(sparse.block_diag(outputs)),
        adjacency=chosen.on_manifold(manifold),
    )
    return found.with_output_names(OutputNames(dynamics.output_names, dynamics.horizon))


def _root(dynamics: Dynamics, covariance: ArrayLike | None, root: ArrayLike | None) -> FloatArray:
    """R, from whichever was given."""
    n = dynamics.states
    if (covariance is None) == (root is None):
        raise AffineDPError("give either covariance or root")
    if root is not None:
        given = real_array(root, "root", 2)
        if given.shape[0] != n or given.shape[1] == 0:
            raise AffineDPError(f"root has shape {given.shape}, but x(0) has {n} entries")
        return given
    assert covariance is not None
    given = real_array(covariance, "covariance")
    if given.ndim == 0 and n == 1:
        given = given.reshape(1, 1)
    matrix = semidefinite(real_array(given, "covariance", 2), "covariance", n, ASYMMETRY)
    values, vectors = np.linalg.eigh(matrix)
    if not values[-1] > 0:
        raise AffineDPError("covariance is zero: there is no noise")
    if values[0] > 1e-12 * values[-1]:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    kept = values > 1e-12 * values[-1]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _seen(revealed: Coordinates, needed: Coordinates, root: FloatArray, law: LawName) -> FloatArray:
    """The noise on the coordinates that need it, as a square root of its covariance there."""
    noise = revealed.combinations @ root
    inside = np.isin(revealed.places, needed.places)
    if np.any(noise[~inside] != 0):
        raise AffineDPError(
            "the noise also moves states that are public and that the outputs reveal: give noise "
            "that is zero there, or verify_trajectory_noise, which takes noise of any kind"
        )
    part = noise[inside]
    if part.shape[1] < part.shape[0]:
        raise AffineDPError(
            f"the outputs reveal {part.shape[0]} combinations of x(0), but the noise has "
            f"{part.shape[1]}: a combination of outputs comes out without noise, and nothing is "
            "promised (verify_trajectory_noise shows it)"
        )
    if part.shape[1] == part.shape[0]:
        return part
    if law == "laplace":
        raise AffineDPError(
            f"Laplace noise with {part.shape[1]} draws on {part.shape[0]} combinations has no "
            "square root: ask verify_trajectory_noise what it promises"
        )
    # R Q with orthonormal Q has the same law
    _, triangle = np.linalg.qr(part.T)
    return np.asarray(triangle.T)
