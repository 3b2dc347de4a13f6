"""Output noise over long horizons: time, memory, accuracy, against the generic design."""

from __future__ import annotations

import multiprocessing
import resource
import time

import numpy as np
import scipy.sparse as sparse

import affinedp as adp
from affinedp.control import design_output_noise
from affinedp.domains.dynamics import dynamics_of
from affinedp.domains.powers import scan_inverse_transitions
from affinedp.neighbours.trajectory import trajectory_manifold

HORIZONS = (100, 1_000, 10_000, 100_000, 1_000_000)


def four_states() -> np.ndarray:
    """A state matrix that is not normal, with its eigenvalues on the unit circle."""
    A = np.zeros((4, 4))
    for place, angle in ((0, 0.3), (2, 1.1)):
        c, s = np.cos(angle), np.sin(angle)
        A[place : place + 2, place : place + 2] = [[c, -s], [s, c]]
    mix = np.random.default_rng(0).normal(size=(4, 4))
    return mix @ A @ np.linalg.inv(mix)


def _measured(horizon: int) -> tuple[float, float, float]:
    design_output_noise((four_states(), np.eye(4)[:1]), 10, 1.0, 1e-6)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    found = design_output_noise((four_states(), np.eye(4)[:1]), horizon, 1.0, 1e-6)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.guarantee.holds(1.0, 1e-6)
    return seconds, peak / 1024, float(found.gap or 0.0)


def _worst_error(horizon: int) -> float:
    """The largest relative error of a power, against mpmath."""
    import mpmath

    last: list[np.ndarray] = []
    dynamics = dynamics_of((four_states(), np.eye(4)[:1]), horizon)
    scan_inverse_transitions(dynamics, lambda t, block: last.append(block[-1]))
    with mpmath.workdps(60):
        truth = (mpmath.matrix(four_states().tolist()) ** -1) ** (horizon - 1)
        found = last[-1]
        return max(
            float(abs(truth[i, j] - mpmath.mpf(float(found[i, j]))) / abs(truth[i, j]))
            for i in range(4)
            for j in range(4)
        )


def run() -> str:
    lines = [
        "## Long trajectories",
        "",
        "The least output noise for 4 states with eigenvalues on the unit circle, one output,",
        "time-local neighbours. The directions themselves take 16 T doubles.",
        "",
        "| horizon T | seconds | memory above the start, MiB | directions, MiB | certified gap | "
        "relative error of A^(1-T) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    context = multiprocessing.get_context("spawn")
    for horizon in HORIZONS:
        with context.Pool(1) as pool:
            seconds, memory, gap = pool.apply(_measured, (horizon,))
            error = pool.apply(_worst_error, (horizon,))
        directions = horizon * 16 * 8 / 2**20
        lines.append(
            f"| {horizon:,} | {seconds:.2f} | {memory:.0f} | {directions:.1f} | {gap:.1e} | "
            f"{error:.1e} |"
        )
    lines += ["", *_against_generic()]
    return "\n".join(lines)


def _against_generic() -> list[str]:
    """The same vehicle by the general design on the whole trajectory."""
    vehicle = ([[1, 0.1], [0, 1]], [[1, 0]])
    lines = [
        "Against `design_gaussian` on the manifold of whole trajectories (a vehicle, two states):",
        "",
        "| horizon T | general design, s | this, s | ratio | relative difference of the cost |",
        "| --- | --- | --- | --- | --- |",
    ]
    for horizon in (100, 400):
        start = time.perf_counter()
        found = design_output_noise(vehicle, horizon, 1.0, 0.01)
        ours = time.perf_counter() - start
        manifold = trajectory_manifold(found.domain)
        outputs = [found.domain.output_matrix(t) for t in range(horizon)]
        start = time.perf_counter()
        generic = adp.design_gaussian(
            manifold,
            epsilon=1.0,
            delta=0.01,
            query=sparse.csr_array(sparse.block_diag(outputs)),
            adjacency=found.adjacency.on_manifold(manifold),
        )
        theirs = time.perf_counter() - start
        difference = abs(generic.expected_squared_error / found.expected_squared_error - 1)
        lines.append(
            f"| {horizon} | {theirs:.2f} | {ours:.3f} | {theirs / ours:.0f} | {difference:.0e} |"
        )
    return lines


if __name__ == "__main__":
    print(run())
