"""Tracts × age × sex × race through the public door: from people to published numbers."""

from __future__ import annotations

import resource
import time

import numpy as np
import pandas as pd

from affinedp.tables import MarginRelease

STATES, COUNTIES, TRACTS, PEOPLE = 51, 3143, 85_000, 2_000_000
LABELS = {
    "age": [f"{5 * i}-{5 * i + 4}" for i in range(18)],
    "sex": ["f", "m"],
    "race": list("ABCDEFG"),
}


def places() -> pd.DataFrame:
    """As many states, counties and tracts as the US, uneven."""
    generator = np.random.default_rng(0)
    spare = generator.integers(0, STATES, COUNTIES - STATES)
    state = np.sort(np.concatenate([np.arange(STATES), spare]))
    sizes = generator.lognormal(0, 1, COUNTIES)
    more = generator.choice(COUNTIES, TRACTS - COUNTIES, p=sizes / sizes.sum())
    county = np.sort(np.concatenate([np.arange(COUNTIES), more]))
    return pd.DataFrame(
        {
            "state": [f"s{state[c]:02d}" for c in county],
            "county": [f"c{c:04d}" for c in county],
            "tract": [f"t{i:05d}" for i in range(TRACTS)],
        }
    )


def run() -> str:
    """Return the Markdown section."""
    generator = np.random.default_rng(1)
    tracts = places()
    rows = tracts.iloc[generator.integers(0, TRACTS, PEOPLE)].reset_index(drop=True)
    for name, labels in LABELS.items():
        rows[name] = np.array(labels, object)[generator.integers(0, len(labels), PEOPLE)]
    release = MarginRelease(
        attributes=LABELS, margins="<=3", places=tracts, weights="levels", nonnegative=True,
        epsilon=1.0, delta=1e-6,
    )  # fmt: skip
    times = [time.perf_counter()]
    design = release.design()
    times.append(time.perf_counter())
    released = design.release(rows)
    times.append(time.perf_counter())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    released.interval("age", "sex", at="county")
    released.margin("sex", at="tract")
    times.append(time.perf_counter())
    design_time, release_time, tables_time = np.diff(times)
    made = design.mechanism.design
    against = {other.words: other.error / made.error for other in made.alternatives}
    return "\n".join(
        [
            "## Places times margins",
            "",
            f"{PEOPLE:,} synthetic people in {TRACTS:,} tracts of {COUNTIES:,} counties, 18 ages × "
            "2 sexes × 7 races (21 million cells), all tables of up to three attributes at every "
            "level, every level of equal weight, (1, 10⁻⁶), through `MarginRelease(places=…)`; "
            "wall-clock time on a machine that others used too.",
            "",
            "| design | release | two whole-number tables of it | peak memory | gap | cells and "
            "add up, Laplace |",
            "| ---: | ---: | ---: | ---: | ---: | ---: |",
            f"| {design_time:.1f} s | {release_time:.1f} s | {tables_time:.1f} s | {peak:.2f} GB | "
            f"{design.mechanism.gap:.1e} | {against['cells and add up (geometric)']:.0f}× |",
        ]
    )


if __name__ == "__main__":
    print(run())
