"""What noise adds to the mean squares of a loop: exact, without simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.checks import causal, covariance
from affinedp.control.gateway_path import sent
from affinedp.control.plant import LoopRecord, SteeredPlant
from affinedp.control.simulation import check_growth
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import Fresh, Trajectory


class LinearLoop(Protocol):
    """``z(t+1) = M z(t) + N γ(t)``, with the states of the plant at the beginning of z."""

    @property
    def plant(self) -> SteeredPlant:
        """The plant."""

    @property
    def matrix(self) -> FloatArray:
        """M."""

    @property
    def injection(self) -> FloatArray:
        """N."""


@dataclass(frozen=True, eq=False)
class NoisyLoop:
    """``z(t+1) = M z(t) + white noise``, with the noise filter's memory at the end of z."""

    matrix: FloatArray
    added: FloatArray
    first: FloatArray

    def variances(self, steps: int) -> FloatArray:
        """Return the variances of z(0), …, z(steps), shape (steps + 1, k)."""
        covariance = self.first
        found = np.empty((steps + 1, len(self.matrix)))
        found[0] = covariance.diagonal()
        for t in range(steps):
            covariance = self.matrix @ covariance @ self.matrix.T + self.added
            found[t + 1] = covariance.diagonal()
        return found

    def stationary(self) -> FloatArray:
        """Return the covariance of z after a long time."""
        from scipy.linalg import solve_discrete_lyapunov

        radius = float(np.abs(np.linalg.eigvals(self.matrix)).max())
        if radius >= 1:
            raise AffineDPError(
                f"the loop is not stable (spectral radius {radius:.6g}): its error grows without "
                "end, and there is no stationary one"
            )
        found = np.asarray(solve_discrete_lyapunov(self.matrix, self.added))
        # a variance of zero comes out as zero, not as −0 or a little less
        places = np.diag_indices(len(found))
        found[places] = np.maximum(found[places], 0.0) + 0.0
        return found


def check_endless(noise: Filter | None) -> None:
    """Refuse noise with a horizon: what it does long after that happens to nobody."""
    if noise is not None and noise.domain.horizon is not None:
        raise AffineDPError(
            f"the noise is for a horizon of {noise.horizon:,} steps, within which it grows: it has "
            f"no stationary error. Use mean_square_error(noise, {noise.horizon})"
        )


def noisy_loop(
    matrix: FloatArray,
    injection: FloatArray,
    noise: Filter | None,
    white: FloatArray,
) -> NoisyLoop:
    """Return a loop under stationary noise on its outputs, and white noise besides."""
    k = len(matrix)
    if noise is None:
        return NoisyLoop(matrix, white, np.zeros((k, k)))
    made = noise.noise
    n = made.order
    whole = np.block([[matrix, injection @ made.C], [np.zeros((n, k)), made.A]])
    drive = noise.scale * np.vstack([injection @ made.D, made.B])
    added = drive @ drive.T
    added[:k, :k] += white
    first = np.zeros((k + n, k + n))
    if noise.start is not None:
        first[k:, k:] = noise.scale**2 * (noise.start @ noise.start.T)
    return NoisyLoop(whole, added, first)


def mean_errors(loop: LoopRecord, steps: int) -> FloatArray:
    """Return the mean tracking error, shape (steps + 1, n), which no noise changes."""
    n = loop.plant.states
    references = loop.references(steps)
    pull = loop.pull(references)
    both = np.empty((steps + 1, 2 * n))
    both[0] = np.concatenate([loop.x0, loop.xhat0])
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(steps):
            both[t + 1] = loop.matrix @ both[t] + pull[t]
    check_growth(np.abs(both).max(axis=1))
    return both[:, :n] - references


def lasting_error(loop: LoopRecord) -> FloatArray | None:
    """Return the mean tracking error after a long time, shape (n,); None if the reference moves."""
    if callable(loop.reference) or np.ndim(loop.reference) > 1:
        return None
    reference = loop.references(0)
    rest = np.linalg.solve(np.eye(len(loop.matrix)) - loop.matrix, loop.pull(reference)[0])
    return np.asarray(rest[: loop.plant.states] - reference[0])


def mean_squares(
    loop: LoopRecord,
    noise: Mechanism | None,
    steps: int,
    process_noise: ArrayLike | None = None,
    sensor_noise: ArrayLike | None = None,
) -> FloatArray:
    """Return E (x_i(t) − x_r,i(t))², shape (steps + 1, n)."""
    added = added_squares(loop, noise, steps, process_noise, sensor_noise)
    squares = mean_errors(loop, steps) ** 2 + added
    check_growth(squares.max(axis=1))
    return squares


def check_noise(loop: LinearLoop, noise: Mechanism | Dynamics, steps: int) -> None:
    """Refuse noise for other outputs, or for fewer steps."""
    if isinstance(noise, Dynamics):
        outputs, horizon = noise.outputs, noise.horizon
    else:
        outputs, horizon = len(causal(noise).step_names), causal(noise).horizon
    if outputs != loop.plant.outputs:
        raise AffineDPError(
            f"the noise is for {outputs} outputs, but the plant has {loop.plant.outputs}"
        )
    if steps > horizon:
        raise AffineDPError(
            f"{steps} steps send {steps} outputs, but the noise is for a horizon of "
            f"{horizon}: take fewer steps, or design for a longer horizon"
        )


def added_squares(
    loop: LinearLoop,
    noise: Mechanism | None,
    steps: int,
    process_noise: ArrayLike | None,
    sensor_noise: ArrayLike | None,
) -> FloatArray:
    """Return what noise adds to the mean squares of the states, shape (steps + 1, n)."""
    n = loop.plant.states
    fresh = _fresh(loop, noise, process_noise, sensor_noise)
    squares = np.zeros((steps + 1, n))
    with np.errstate(over="ignore", invalid="ignore"):
        made = None if noise is None else sent(noise)[0]
        if noise is not None and isinstance(made, Trajectory):
            loadings = made.over(0, steps)
            moved = _responses(loop.matrix, loop.injection, loadings, loadings.shape[2])
            squares += [noise.noise.variances(response[:n]) for response in moved]
        filtered = made if isinstance(made, Filter) else None
        if filtered is not None or fresh.any():
            moving = noisy_loop(loop.matrix, loop.injection, filtered, fresh)
            squares += moving.variances(steps)[:, :n]
    return squares


def stationary_squares(
    loop: LinearLoop,
    noise: Mechanism | None,
    process_noise: ArrayLike | None,
    sensor_noise: ArrayLike | None,
) -> FloatArray:
    """Return the variance of each state after a long time, shape (n,)."""
    made = None if noise is None else sent(noise)[0]
    if isinstance(made, Trajectory):
        raise AffineDPError("noise of one draw has no stationary state: use mean_square_error")
    fresh = _fresh(loop, noise, process_noise, sensor_noise)
    filtered = made if isinstance(made, Filter) else None
    check_endless(filtered)
    moving = noisy_loop(loop.matrix, loop.injection, filtered, fresh)
    return np.array(moving.stationary().diagonal()[: loop.plant.states])


def cost_of_one_draw(
    loop: LinearLoop, dynamics: Dynamics, weight: FloatArray, steps: int
) -> FloatArray:
    """Return W of :meth:`affinedp.control.ClosedLoop.noise_cost`."""
    n = loop.plant.states
    cost = np.zeros((dynamics.states, dynamics.states))
    loadings = unit_loadings(dynamics, steps)
    with np.errstate(over="ignore", invalid="ignore"):
        for response in _responses(loop.matrix, loop.injection, loadings, dynamics.states):
            cost += response[:n].T @ weight @ response[:n]
    if not np.all(np.isfinite(cost)):
        raise AffineDPError(
            f"the noise or the loop grows beyond double precision within {steps} steps: "
            "take fewer, or stabilise the loop (see ClosedLoop.warnings)"
        )
    return np.asarray((cost + cost.T) / 2)


def _fresh(
    loop: LinearLoop,
    noise: Mechanism | None,
    process_noise: ArrayLike | None,
    sensor_noise: ArrayLike | None,
) -> FloatArray:
    """Covariance of all white noise on the loop's state."""
    n = loop.plant.states
    sensor = covariance(sensor_noise, "sensor_noise", loop.plant.outputs)
    if noise is not None:
        made, added = sent(noise)
        if isinstance(made, Fresh):
            added = added + noise.noise.variance * made.sigma**2
        sensor = sensor + np.diag(added)
    fresh: FloatArray = loop.injection @ sensor @ loop.injection.T
    fresh[:n, :n] += covariance(process_noise, "process_noise", n)
    return fresh


def _responses(
    matrix: FloatArray, injection: FloatArray, loadings: Iterable[FloatArray], columns: int
) -> Iterator[FloatArray]:
    """Yield H_0 = 0, H_1, …: z(t) = H_t η, if z(t+1) = M z(t) + N γ(t) and γ(t) = Γ_t η."""
    response = np.zeros((len(matrix), columns))
    yield response
    for loading in loadings:
        response = matrix @ response + injection @ loading
        yield response


def unit_loadings(dynamics: Dynamics, steps: int) -> Iterator[FloatArray]:
    """Yield C(t) A(t−1)…A(0) for t = 0, …, steps − 1: loadings of noise with root I."""
    product = np.eye(dynamics.states)
    for t in range(steps):
        yield dynamics.output_matrix(t) @ product
        if t + 1 < steps:
            product = dynamics.state_matrix(t) @ product
