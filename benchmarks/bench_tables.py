"""Large tables against OpenDP's sampler alone, and hierarchies from hundreds of cells on."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pandas as pd

from affinedp.tables import TableRelease, read_table_release, with_total_rows

ROWS = 100_000
HIERARCHIES = ((3, 5, 8), (6, 6, 6), (5, 10, 10))
EXAMPLE = Path(__file__).parents[1] / "examples" / "us_employment.toml"
LEVELS = ["state", "county", "tract"]


def _large_table() -> pd.DataFrame:
    """The real table over and over, with rounded leaves and the totals that belong to them."""
    from vega_datasets import data

    months = data.us_employment().drop(columns=["month", "nonfarm_change"])
    table = pd.concat([months] * (ROWS // len(months) + 1), ignore_index=True).iloc[:ROWS]
    return table.rename_axis("month")


def _released(options: dict) -> tuple[float, int]:
    release = read_table_release(EXAMPLE).release
    description = type(release)(**{**vars(release), **options})
    table = _large_table()
    design = description.design(table)
    design.release(table.iloc[:2])  # the plan is made once
    start = time.perf_counter()
    design.release(table)
    return time.perf_counter() - start, design.mechanism.root.shape[1]


def _sampler(noises: int) -> float:
    """OpenDP's discrete Gaussian alone, in the same batches."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    from affinedp.release.plan import GRID_BITS

    batch = 30_000
    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=batch)
    sampler = make_gaussian(domain, l2_distance(T=float), scale=2.0**GRID_BITS)
    start = time.perf_counter()
    for _ in range(ROWS * noises // batch):
        sampler([0] * batch)
    return time.perf_counter() - start


def _hierarchy(branches: tuple[int, ...]) -> str:
    rows = [(f"S{s}", f"C{c}", f"T{t}", 1) for s, c, t in itertools.product(*map(range, branches))]
    table = with_total_rows(pd.DataFrame(rows, columns=[*LEVELS, "n"]), LEVELS, ["n"])
    cells = []
    for neighbours in ("circuits", "person"):
        description = TableRelease(
            hierarchy=LEVELS, neighbours=neighbours, epsilon=1.0, delta=1e-6, round_to=1
        )
        start = time.perf_counter()
        out = description.release(table)
        cells += [f"{time.perf_counter() - start:.1f}"]
        deviation = np.sqrt(np.mean(out.design.mechanism.expected_squared_errors))
        cells += [f"{deviation:.2f}"]
    return f"| {np.prod(branches):,} | {len(table):,} | {' | '.join(cells)} |"


def run() -> str:
    """Return the Markdown section."""
    lines = [
        "## Tables",
        "",
        f"The real table of `examples/us_employment.toml`, {ROWS:,} rows of 22 columns under 7",
        "equations: checked, adjusted, released. OpenDP alone: its discrete Gaussian sampler for",
        "the same number of values, in the same batches. Seconds.",
        "",
        "| published | release | OpenDP alone | ratio |",
        "|---|---:|---:|---:|",
    ]
    alone = None
    for words, options in (("numbers", {"round_to": None}), ("tenths that add up", {})):
        seconds, noises = _released(options)
        alone = _sampler(noises) if alone is None else alone
        lines.append(f"| {words} | {seconds:.1f} | {alone:.1f} | {seconds / alone:.2f} |")
    lines += [
        "",
        "Hierarchies with a total row for every group, whole numbers, ε = 1 at δ = 10⁻⁶: seconds",
        "for design, exact verification and release, and root mean square noise per number.",
        "",
        "| cells | rows | circuits (s) | noise | person (s) | noise |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_hierarchy(branches) for branches in HIERARCHIES]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
