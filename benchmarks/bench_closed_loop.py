"""Runs of a closed loop in one call against python-control, one run at a time."""

from __future__ import annotations

import time

import numpy as np

from affinedp.domains.dynamics import dynamics_of
from affinedp.paper.control import HORIZON, vehicle_loop, vehicle_noise

RUNS = 1_000
REPEATS = 3
LONG = 100_000


def _best(call) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _peer(loop, noise: np.ndarray):
    """Return a call that gives the states of all runs by python-control's forced_response.

    The system and its inputs are put together here, so that only python-control is measured.
    """
    import control

    n, m = loop.plant.states, loop.plant.outputs
    pull = loop.plant.B @ loop.feedback
    inputs = np.block([[pull, np.zeros((n, m))], [pull, loop.observer]])
    whole = control.ss(loop.matrix, inputs, np.eye(2 * n), 0, True)
    start = np.concatenate([loop.x0, loop.xhat0])
    times = np.arange(HORIZON + 1)
    references = np.broadcast_to(loop.references(HORIZON), (len(noise), HORIZON + 1, n))
    added = np.pad(noise, ((0, 0), (0, 1), (0, 0)))
    drives = np.ascontiguousarray(np.concatenate([references, added], axis=2).transpose(0, 2, 1))
    return lambda: [
        control.forced_response(whole, times, drive, start).states[:n] for drive in drives
    ]


def run() -> str:
    """Return the Markdown section."""
    loop = vehicle_loop()
    mechanism = vehicle_noise()
    noise = mechanism.sample(RUNS, 0)
    peer = _peer(loop, noise)

    def simulate():
        return loop.simulate(noise, HORIZON, RUNS, 0)

    apart = np.abs(simulate().states - np.transpose(peer(), (0, 2, 1))).max()
    ours, theirs = _best(simulate), _best(peer)
    exact = _best(lambda: loop.mean_square_error(mechanism, HORIZON))
    long = dynamics_of((loop.plant.A, loop.plant.C), LONG)
    cost = _best(lambda: loop.noise_cost(long))
    return "\n".join(
        [
            "## Closed loop",
            "",
            f"{RUNS:,} runs of {HORIZON} steps of the paper's vehicle with the same noise: one",
            "`ClosedLoop.simulate` against python-control's `forced_response` of the whole loop,",
            f"run by run (put together beforehand); milliseconds, best of {REPEATS}. Wanted: a",
            "ratio of at least 50.",
            "",
            "| affinedp | python-control | ratio | largest difference of a state |",
            "|---:|---:|---:|---:|",
            f"| {1e3 * ours:.1f} | {1e3 * theirs:.0f} | {theirs / ours:.0f} | {apart:.0e} |",
            "",
            f"The exact mean squares of all {HORIZON} steps take {1e3 * exact:.1f} ms, the cost",
            f"matrix of a horizon of {LONG:,} {cost:.2f} s.",
        ]
    )


if __name__ == "__main__":
    print(run())
