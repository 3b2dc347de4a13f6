"""How stationary noise moves a linear loop: the noise filter's memory joins the loop's state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.strategies.filter import Filter


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
