"""Gaussian calibration: affinedp beside the peers, time per value and accuracy, in one run.

Every peer is called the way its users call it, one value at a time.  The truth is mpmath's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import mpmath as mp
import numpy as np

from affinedp.laws.calibration import gaussian_epsilon, gaussian_sigma

OUR_VALUES = 200_000
PEER_VALUES = 200
# Where no peer's search is endless: autodp's stops at an absolute 1e-12 in δ or not at all.
EPSILONS = (1e-6, 1e-4, 0.01, 0.1, 0.5, 1.0, 5.0)
SIGMAS = (0.3, 1.0, 3.0, 10.0, 50.0, 300.0)  # all with ε > 0 at every δ
DELTAS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3)

Calibration = Callable[[float, float], float]
Loader = Callable[[], Calibration]


def dp_accounting_sigma() -> Calibration:
    from dp_accounting import gaussian_mechanism

    return gaussian_mechanism.get_sigma_gaussian


def autodp_sigma() -> Calibration:
    from autodp.calibrator_zoo import ana_gaussian_calibrator
    from autodp.mechanism_zoo import ExactGaussianMechanism

    calibrate = ana_gaussian_calibrator()
    return lambda eps, delta: calibrate(ExactGaussianMechanism, eps, delta).params["sigma"]


def diffprivlib_sigma() -> Calibration:
    from diffprivlib.mechanisms import GaussianAnalytic

    return lambda eps, delta: GaussianAnalytic(epsilon=eps, delta=delta, sensitivity=1)._scale


def dp_accounting_epsilon() -> Calibration:
    from dp_accounting import gaussian_mechanism

    return gaussian_mechanism.get_epsilon_gaussian


def autodp_epsilon() -> Calibration:
    from autodp.dp_bank import get_eps_ana_gaussian

    return get_eps_ana_gaussian


def kappa(epsilon: mp.mpf, sensitivity: mp.mpf) -> mp.mpf:
    ratio, half = epsilon / sensitivity, sensitivity / 2
    return mp.ncdf(half - ratio) - mp.exp(epsilon) * mp.ncdf(-half - ratio)


def root(function: Callable[[mp.mpf], mp.mpf], start: float) -> mp.mpf:
    """Solve function(x) = 0 for a decreasing function of x > 0, to 50 digits."""
    low = high = mp.mpf(start)
    while function(low) < 0:
        low /= 2
    while function(high) > 0:
        high *= 2
    return mp.findroot(function, (low, high), solver="anderson", tol=1e-80)


def true_sigma(epsilon: float, delta: float) -> mp.mpf:
    return root(lambda sigma: mp.log(kappa(mp.mpf(epsilon), 1 / sigma) / mp.mpf(delta)), 1.0)


def true_epsilon(sigma: float, delta: float) -> mp.mpf:
    return root(lambda eps: mp.log(kappa(eps, 1 / mp.mpf(sigma)) / mp.mpf(delta)), 1e-3)


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def accuracy(computed: list[float], true: list[mp.mpf]) -> str:
    errors = [abs(mp.mpf(float(c)) / t - 1) for c, t in zip(computed, true, strict=True)]
    unsafe = sum(mp.mpf(float(c)) < t for c, t in zip(computed, true, strict=True))
    return f"{float(max(errors)):.1e} | {unsafe} of {len(true)}"


def row_of_peer(
    name: str, load: Loader, draws: np.ndarray, points: list[tuple[float, float]],
    true: list[mp.mpf], ours: float,
) -> str:  # fmt: skip
    try:
        calibrate = load()
    except ImportError as error:
        installed = not isinstance(error, ModuleNotFoundError)
        reason = "does not import here" if installed else "not installed"
        return f"| {name} | {reason} | | | |"
    values = [(float(x), float(y)) for x, y in draws[:, :PEER_VALUES].T]
    spent = seconds_of(lambda: [calibrate(x, y) for x, y in values], repeats=2) / len(values)
    computed = [calibrate(x, y) for x, y in points]
    return f"| {name} | {spent * 1e6:,.1f} | {spent / ours:,.0f} | {accuracy(computed, true)} |"


def table(
    what: str, ours: Callable[[np.ndarray, np.ndarray], np.ndarray], peers: dict[str, Loader],
    truth: Callable[[float, float], mp.mpf], first: tuple[float, ...],
) -> list[str]:  # fmt: skip
    rng = np.random.default_rng(0)
    draws = np.exp(
        [rng.uniform(np.log(min(axis)), np.log(max(axis)), OUR_VALUES) for axis in (first, DELTAS)]
    )
    points = [(x, y) for x in first for y in DELTAS]
    with mp.workdps(50):
        true = [truth(x, y) for x, y in points]
        spent = seconds_of(lambda: ours(*draws), repeats=3) / OUR_VALUES
        computed = ours(*np.array(points).T).tolist()
        rows = [f"| affinedp | {spent * 1e6:,.1f} | 1 | {accuracy(computed, true)} |"]
        rows += [row_of_peer(n, load, draws, points, true, spent) for n, load in peers.items()]
    return [
        f"| {what} | µs per value | times ours | largest relative error | below the truth |",
        "|---|---:|---:|---:|---:|",
        *rows,
        "",
    ]


def run() -> str:
    """Return the benchmark as a Markdown section."""
    lines = [
        "## Gaussian calibration",
        "",
        f"affinedp: one call on {OUR_VALUES:,} values; peers: {PEER_VALUES} calls. Accuracy on "
        f"{len(EPSILONS) * len(DELTAS)} and {len(SIGMAS) * len(DELTAS)} grid points against "
        "50 digits. A σ or ε below the truth promises more than it keeps.",
        "",
    ]
    peers = {
        "dp_accounting `get_sigma_gaussian`": dp_accounting_sigma,
        "autodp `ana_gaussian_calibrator`": autodp_sigma,
        "diffprivlib `GaussianAnalytic`": diffprivlib_sigma,
    }
    lines += table("σ from (ε, δ)", gaussian_sigma, peers, true_sigma, EPSILONS)
    peers = {
        "dp_accounting `get_epsilon_gaussian`": dp_accounting_epsilon,
        "autodp `get_eps_ana_gaussian`": autodp_epsilon,
    }
    lines += table(
        "ε from (σ, δ)",
        lambda sigma, delta: gaussian_epsilon(delta, 1.0 / sigma),
        peers,
        true_epsilon,
        SIGMAS,
    )
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
