"""Margins beside mbi (Private-PGM): the same people and the same promise, where mbi is installed.

mbi is no dependency: install it beside affinedp.  Without mbi the section says so.
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


def ours(law: str | None) -> str:
    """The expected error of affinedp, which is unbiased: no run is needed."""
    from affinedp.tables import MarginRelease

    start = time.perf_counter()
    noise = MarginRelease(
        attributes={f"a{j}": list(range(size)) for j, size in enumerate(SIZES)},
        margins=[tuple(f"a{j}" for j in chosen) for chosen in margins()],
        epsilon=1.0, delta=1e-6, law=law,
    ).design().mechanism  # fmt: skip
    cells = sum(math.prod(SIZES[j] for j in chosen) for chosen in margins())
    error, seconds = math.sqrt(noise.expected_squared_error / cells), time.perf_counter() - start
    return f"| affinedp, {noise.law}: unbiased, with intervals | {error:.2f} | {seconds:.2f} |"


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
    ours(None)  # imports
    head += [
        "Ours is expected, mbi's the mean of runs; seconds of one design, and of one run.",
        "",
        "| | error | seconds |",
        "| --- | ---: | ---: |",
        ours(None),
        ours("gaussian"),
    ]
    return "\n".join(
        [*head, f"| mbi, {RUNS} runs | {np.mean(errors):.2f} | {np.median(seconds):.2f} |"]
    )


if __name__ == "__main__":
    print(run())
