"""Margins beside mbi (Private-PGM): the same people and the same promise, where mbi is installed.

mbi is no dependency.  Install it in an environment of its own and run this file there by itself: it
needs NumPy and mbi only.  Without mbi the section says so.
"""

from __future__ import annotations

import itertools
import math
import time

import numpy as np

SIZES = [6, 5, 4, 3]
PEOPLE = 10_000
RUNS = 20
# κ⁻¹(1, 10⁻⁶), the sensitivity at which Gaussian noise keeps (1, 10⁻⁶).
SENSITIVITY = 0.23670438

Sets = list[tuple[int, ...]]


def people() -> np.ndarray:
    """Skewed labels, the second attribute like the first."""
    generator = np.random.default_rng(0)
    columns = [generator.zipf(1.8, PEOPLE) % size for size in SIZES]
    columns[1] = (columns[0] + columns[1]) % SIZES[1]
    return np.column_stack(columns)


def margins() -> Sets:
    return [c for k in range(3) for c in itertools.combinations(range(len(SIZES)), k)]


def true_margin(records: np.ndarray, chosen: tuple[int, ...]) -> np.ndarray:
    place = np.zeros(len(records), int)
    for j in chosen:
        place = place * SIZES[j] + records[:, j]
    shape = [SIZES[j] for j in chosen]
    return np.bincount(place, minlength=math.prod(shape)).reshape(shape)


def by_mbi(records: np.ndarray, seed: int) -> tuple[float, float]:
    """Equal noise on all two-way margins, then mirror descent: RMSE over all margins, and time."""
    from mbi import Domain, LinearMeasurement, estimation

    names = [f"a{j}" for j in range(len(SIZES))]
    pairs = [c for c in margins() if len(c) == 2]
    sigma = math.sqrt(len(pairs)) / SENSITIVITY
    generator = np.random.default_rng(seed)
    measured = []
    for chosen in pairs:
        noisy = true_margin(records, chosen).ravel()
        noisy = noisy + generator.normal(0, sigma, noisy.shape)
        measured.append(LinearMeasurement(noisy, tuple(names[j] for j in chosen), sigma))
    start = time.perf_counter()
    model = estimation.MirrorDescent().estimate(Domain(names, SIZES), measured, iters=1000)
    seconds = time.perf_counter() - start
    squares = []
    for chosen in margins():
        found = np.asarray(model.project(tuple(names[j] for j in chosen)).datavector())
        squares.append((found - true_margin(records, chosen).ravel()) ** 2)
    return float(np.sqrt(np.concatenate(squares).mean())), seconds


def run() -> str:
    """Return the Markdown section."""
    cells = math.prod(SIZES)
    head = [
        "## Margins beside mbi",
        "",
        f"All margins of up to two of four attributes ({cells} cells, {PEOPLE:,} synthetic people) "
        "at (1, 10⁻⁶) for one person more or less: root mean square error over all cells of all "
        "margins.  *mbi*: equal Gaussian noise on the six two-way margins, then mirror descent, "
        "whose estimates are not negative and not unbiased.",
        "",
    ]
    try:
        import mbi  # noqa: F401
    except ImportError:
        return "\n".join([*head, "mbi is not installed here."])
    records = people()
    found = [by_mbi(records, seed) for seed in range(RUNS)]
    errors, seconds = zip(*found)
    return "\n".join(
        [*head, f"mbi: {np.mean(errors):.2f} ({RUNS} runs, {np.median(seconds):.1f} s each)"]
    )


if __name__ == "__main__":
    print(run())
