"""Equations found in data: time and share against size, rank, noise and wrong rows; peers."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import affinedp as adp

SEEDS = 3
SIZES = ((23, 120, 7), (60, 1_000, 12), (150, 10_000, 30), (150, 100_000, 30), (300, 10_000, 60))
RANKS = ((10, 8), (30, 8), (60, 8), (30, 20), (30, 60))
WRONG = (0, 1, 10, 50, 100, 300)
UNITS = (1, 10, 100, 1000)
WIDE = (10_000, 300)


def apart(columns: int, rows: int, totals: int, seed: int):
    """Totals that stand before their own parts, and columns that belong to none."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 100_000, (rows, columns))
    width = columns // totals
    groups = []
    for total in range(0, width * totals, width):
        parts = range(total + 1, total + 1 + int(rng.integers(2, width)))
        table[:, total] = table[:, list(parts)].sum(axis=1)
        groups.append((total, *parts))
    return table, groups


def planted(columns: int, rows: int, totals: int, largest: int, seed: int):
    """Columns in random order; totals of others, also of totals; and which columns belong."""
    rng = np.random.default_rng(seed)
    made = list(rng.integers(0, 100_000, (columns - totals, rows)))
    parts = []
    for _ in range(totals):
        count = int(rng.integers(2, largest + 1))
        chosen = rng.choice(len(made), count, replace=False)
        parts.append((len(made), *map(int, chosen)))
        made.append(sum(made[j] for j in chosen))
    order = rng.permutation(columns)
    place = {int(j): i for i, j in enumerate(order)}
    table = np.stack([made[j] for j in order], axis=1)
    return table, {frozenset(place[j] for j in group) for group in parts}


def _searched(table: np.ndarray):
    start = time.perf_counter()
    found = adp.discover(table, between_rows=False)
    return time.perf_counter() - start, found


def _supports(found) -> set[frozenset[int]]:
    return {frozenset(int(name[1:]) - 1 for name in one.columns) for one in found.equations}


def _by_size() -> list[str]:
    lines = []
    for columns, rows, totals in SIZES:
        seconds, all_of_them, as_planted = [], 0, 0
        for seed in range(SEEDS):
            table, groups = planted(columns, rows, totals, 8, seed)
            took, found = _searched(table)
            seconds.append(took)
            all_of_them += len(found.equations)
            as_planted += len(_supports(found) & groups)
        share = f"{all_of_them / (SEEDS * totals):.0%} | {as_planted / (SEEDS * totals):.0%}"
        lines.append(f"| {columns} | {rows:,} | {totals} | {np.median(seconds):.1f} | {share} |")
    return lines


def _ten_thousand() -> str:
    columns, rows = WIDE
    rng = np.random.default_rng(0)
    table = rng.integers(0, 10**6, (rows, columns))
    near = [(i, i + 1, i + 2) for i in range(0, columns, 500)]
    for total, a, b in near:
        table[:, total] = table[:, a] + table[:, b]
    far = [(i, columns - 1 - i) for i in range(10, 200, 10)]
    for a, b in far:
        table[:, b] = 3 * table[:, a]
    seconds, found = _searched(table)
    supports = _supports(found)
    totals = sum(frozenset(group) in supports for group in near)
    scaled = sum(frozenset(group) in supports for group in far)
    return (
        f"{columns:,} columns of {rows} rows, in blocks: {seconds:.0f} s; {totals} of {len(near)} "
        f"totals of neighbouring columns and {scaled} of {len(far)} scaled copies anywhere."
    )


# ---------------------------------------------------------------------- peers


def _lattice(table: np.ndarray, totals: int) -> tuple[float, set[frozenset[int]]]:
    """LLL on [identity | a million times the data]: its short vectors are equations."""
    import flint

    columns = table.shape[1]
    rows = columns - totals + 10
    body = np.hstack([table[:rows].T, np.zeros((columns, 0), dtype=int)]).tolist()
    start = time.perf_counter()
    basis = [
        [int(i == j) for j in range(columns)] + [10**6 * x for x in body[i]] for i in range(columns)
    ]
    short = flint.fmpz_mat(basis).lll()
    found = set()
    for i in range(columns):
        if all(int(short[i, columns + k]) == 0 for k in range(rows)):
            found.add(frozenset(j for j in range(columns) if int(short[i, j])))
    return time.perf_counter() - start, found


def _by_rank() -> list[str]:
    try:
        import flint  # noqa: F401
    except ImportError:
        peer = False
    else:
        peer = True
    lines = []
    for totals, largest in RANKS:
        table, groups = planted(150, 1_000, totals, largest, 0)
        seconds, found = _searched(table)
        supports = _supports(found)
        cells = [
            f"{seconds:.1f}", f"{len(supports & groups)}", f"{sum(map(len, supports))}",
        ]  # fmt: skip
        if peer:
            seconds, supports = _lattice(table, totals)
            cells += [
                f"{seconds:.1f}", f"{len(supports & groups)}", f"{sum(map(len, supports))}",
            ]  # fmt: skip
        else:
            cells += ["not installed", "", ""]
        lines.append(f"| {totals} | 2–{largest} | {sum(map(len, groups))} | {' | '.join(cells)} |")
    return lines


def _by_wrong_rows() -> list[str]:
    lines = []
    rows = 10_000
    for wrong in WRONG:
        cells = []
        for columns, totals in ((20, 5), (150, 30)):
            table, groups = apart(columns, rows, totals, 1)
            rng = np.random.default_rng(2)
            for total, *_ in groups:
                hit = rng.choice(rows, wrong, replace=False)
                table[hit, total] += rng.integers(1, 10**5, wrong)
            seconds, found = _searched(table)
            told = len(_supports(found) & set(map(frozenset, groups)))
            cells.append(f"{told} of {totals} | {seconds:.1f}")
        lines.append(f"| {wrong} | {' | '.join(cells)} |")
    return lines


def _by_rounding() -> list[str]:
    lines = []
    for unit in UNITS:
        cells = []
        for columns, totals in ((20, 5), (60, 12)):
            table, groups = apart(columns, 1_000, totals, 3)
            seconds, found = _searched(np.rint(table / unit) * unit)
            told = len(_supports(found) & set(map(frozenset, groups)))
            cells.append(f"{told} of {totals} | {seconds:.1f}")
        lines.append(f"| {unit} | {' | '.join(cells)} |")
    return lines


def _employment() -> list[str]:
    """What the nearest public tools say about the table of the tutorial."""
    from vega_datasets import data

    table = data.us_employment()
    start = time.perf_counter()
    found = adp.discover(table)
    seconds = time.perf_counter() - start
    lines = [
        f"| affinedp discover | {seconds:.1f} | {len(found.equations)} equations, with costs |"
    ]
    numbers = table.drop(columns="month").to_numpy(dtype=float)
    start = time.perf_counter()
    centred = numbers - numbers.mean(axis=0)
    small = int((np.linalg.svd(centred)[1] < 1e-9 * np.abs(centred).max()).sum())
    seconds = time.perf_counter() - start
    said = f"rank is {small} short: no equation, the rounded and the lagged one unseen"
    lines.append(f"| NumPy singular values | {seconds:.3f} | {said} |")
    try:
        import desbordante
    except ImportError:
        lines.append("| desbordante | not installed | |")
        return lines
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "employment.csv"
        table.to_csv(path, index=False)
        functional = desbordante.fd.algorithms.Default()
        functional.load_data(table=(str(path), ",", True))
        start = time.perf_counter()
        functional.execute(max_lhs=2)
        seconds = time.perf_counter() - start
        count = len(functional.get_fds())
    said = f"{count:,} functional dependencies of one or two columns; none says which formula"
    lines.append(f"| desbordante, functional dependencies | {seconds:.2f} | {said} |")
    return lines


def run() -> str:
    """Return the Markdown section."""
    adp.discover(planted(23, 120, 7, 8, 9)[0])  # compiled and imported
    return "\n".join(
        [
            "## Discover",
            "",
            "Whole numbers up to 10⁵ in random columns; totals of 2 to 8 others, also of totals,",
            f"columns in random order. Median seconds of {SEEDS} tables with costs; independent",
            "equations found, and those in exactly the form that was planted (other forms of the",
            "same space are as short).",
            "",
            "| columns | rows | totals | seconds | found | as planted |",
            "|---:|---:|---:|---:|---:|---:|",
            *_by_size(),
            "",
            _ten_thousand(),
            "",
            "150 columns, 1,000 rows: planted totals that came out as planted, and how many",
            "columns all equations name together, beside LLL (python-flint) on the same data.",
            "",
            "| totals | parts | planted length | s | planted | length | LLL s | planted | length |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            *_by_rank(),
            "",
            "10,000 rows, each total right before its parts and wrong in some rows of its own.",
            "",
            "| wrong rows per total | 20 columns, 5 totals | s | 150 columns, 30 totals | s |",
            "|---:|---:|---:|---:|---:|",
            *_by_wrong_rows(),
            "",
            "1,000 rows, every number (up to 10⁵ and sums of them) rounded to a unit.",
            "",
            "| unit | 20 columns, 5 totals | s | 60 columns, 12 totals | s |",
            "|---:|---:|---:|---:|---:|",
            *_by_rounding(),
            "",
            "The employment table (23 columns, 120 months), beside the nearest public tools.",
            "",
            "| tool | seconds | what it says |",
            "|---|---:|---|",
            *_employment(),
        ]
    )


if __name__ == "__main__":
    print(run())
