"""US employment by industry, private: month by month, for all months, and as one series.

The table is vega_datasets' ``us_employment`` (US Bureau of Labor Statistics, 2006 to 2015, in
thousands of people): 22 columns under 7 identities, one of which is off by rounding.

Run ``python examples/us_employment.py [folder]``; with a folder, three pictures and the published
table are written there.  Needs the extras [tables] and [plot] and the package vega_datasets, and
takes about a minute.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from vega_datasets import data

import affinedp as adp
from affinedp.tables import TableRelease, read_release
from affinedp.tables.refusals import TableError
from affinedp.tables.release import ReleasedTable

OURS, INDEPENDENT, TRUTH = "#0072B2", "#D55E00", "0.25"
HERE = Path(__file__).parent


def employment() -> pd.DataFrame:
    """Return the private table, rows labelled by month."""
    table = data.us_employment()
    return table.set_index(pd.to_datetime(table["month"])).drop(columns="month")


def find_the_rounding(release: TableRelease, table: pd.DataFrame) -> None:
    """Show what is off, and what happens without a word about it."""
    found = release.check(table)
    print(f"{len(found)} of {len(table)} months break one identity, {found['equation'].iloc[0]}")
    print(f"by {found['off'].abs().max():g} at most.  Without a word about it:")
    try:
        replace(release, adjust=(), within=None).release(table)
    except TableError as refusal:
        print(f"  {type(refusal).__name__}: {refusal}")


def say(what: str, released: ReleasedTable) -> None:
    """Print what was promised, and at which cost."""
    noise = released.noise.to_numpy()
    print(f"\n{what}: noise from {np.nanmin(noise):.3g} to {np.nanmax(noise):.3g} thousand people")
    print("  " + str(released.guarantee).replace("\n", "\n  "))


def month_by_month(table: pd.DataFrame, out: dict[str, ReleasedTable]) -> Figure:
    """Draw the smallest industry, published with a promise per month or for all months."""
    figure = Figure(figsize=(10, 6.2))
    figure.set_layout_engine("constrained")
    name = "mining_and_logging"
    rows = figure.subplots(2, 1, sharex=True, sharey=True)
    titles = ("one promise per month", f"one promise for all {len(table)} months together")
    for axes, released, title in zip(rows, out.values(), titles):
        lower, upper = released.interval(0.95)
        axes.fill_between(
            table.index, lower[name], upper[name], color=OURS, alpha=0.18, lw=0,
            label="95 % interval",
        )  # fmt: skip
        axes.plot(released.table[name], color=OURS, lw=1.2, label="published")
        axes.plot(table[name], color=TRUTH, lw=1.2, ls="--", label="true")
        axes.set_title(f"Mining and logging, {title} (ε = 1, δ = 10⁻⁶)", loc="left", fontsize=11)
        axes.set_ylabel("thousand people")
        axes.spines[["top", "right"]].set_visible(False)
    rows[0].legend(frameon=False, ncols=3, loc="upper left")
    return figure


def against_independent_noise(table: pd.DataFrame, released: ReleasedTable) -> Figure:
    """Draw the noise by column, and by how much independent noise would break the totals."""
    design = released.design
    report = released.report()
    figure = Figure(figsize=(12, 6.2))
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    places = np.arange(len(report.outputs))
    left.barh(places, [row.deviation for row in report.outputs], color=OURS, height=0.65)
    left.axvline(report.outputs[0].independent_deviation, color=INDEPENDENT, lw=2)
    left.annotate(
        "independent noise\nwith the same promise", (report.outputs[0].independent_deviation, -0.9),
        xytext=(-6, 0), textcoords="offset points", color=INDEPENDENT, ha="right", fontsize=9,
    )  # fmt: skip
    left.set_yticks(places, [row.name.replace("_", " ") for row in report.outputs], fontsize=9)
    left.set_ylim(len(places) - 0.4, -2.6)
    left.set_title("Noise on every number", loc="left", fontsize=11)
    left.set_xlabel("standard deviation, thousand people")
    # simulation, only to show what would have happened
    drawn = adp.iid_noise(
        design.mechanism.manifold, law="gaussian", epsilon=1.0, delta=1e-6
    ).sample(len(table), seed=0)
    noisy = table[list(design.layout.columns)] + drawn
    for place, (total, parts) in enumerate(design.description.totals.items()):
        gap = noisy[total] - noisy[list(parts)].sum(axis=1)
        ours = released.table[total] - released.table[list(parts)].sum(axis=1)
        right.plot(gap, np.full(len(gap), place), "|", color=INDEPENDENT, ms=11, alpha=0.5)
        right.plot(ours, np.full(len(ours), place), "o", color=OURS, ms=6)
    names = [total.replace("_", " ") for total in design.description.totals]
    right.set_yticks(range(len(names)), names, fontsize=9)
    right.set_ylim(len(names) - 0.5, -0.5)
    right.set_title("Published total minus its published parts", loc="left", fontsize=11)
    right.set_xlabel("thousand people, one mark per month")
    right.plot([], [], "o", color=OURS, label="affinedp")
    right.plot([], [], "|", color=INDEPENDENT, ms=11, label="independent noise")
    right.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def whole_series(table: pd.DataFrame, released: ReleasedTable) -> Figure:
    """Draw the monthly change of all employment, published beside the level."""
    figure = Figure(figsize=(10, 4.2))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    name = "nonfarm_change"
    lower, upper = released.interval(0.95)
    axes.fill_between(
        table.index, lower[name], upper[name], color=OURS, alpha=0.2, lw=0, label="95 % interval"
    )
    axes.plot(released.table[name], color=OURS, lw=1.4, label="published")
    axes.plot(table[name], color=TRUTH, lw=1.2, ls="--", label="true")
    axes.set_title("Change of nonfarm employment: the whole series is one data set", loc="left",
                   fontsize=11)  # fmt: skip
    axes.set_ylabel("thousand people")
    axes.set_ylim(0, None)
    axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Release the table three times, each with another promise."""
    full = employment()
    table = full.drop(columns="nonfarm_change")
    release = read_release(HERE / "us_employment.toml").release
    find_the_rounding(release, table)

    out = {
        "separate": release.release(table),
        "composed": replace(release, rows="composed").release(table),
    }
    say("Month by month", out["separate"])
    say("All months about the same people", out["composed"])

    recent = full.loc["2011":]
    series = replace(
        release,
        rows=None,
        changes={"nonfarm_change": "nonfarm"},
        adjust=(),
        within=None,
        unknown="totals",
    )
    together = series.release(recent)
    say("One series with its changes", together)

    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        pictures = {
            "months": month_by_month(table, out),
            "noise": against_independent_noise(table, out["separate"]),
            "series": whole_series(recent, together),
        }
        for name, figure in pictures.items():
            figure.savefig(folder / f"us_employment_{name}.png", dpi=110)
        out["separate"].table.to_csv(folder / "us_employment_published.csv")
        print(f"\nwrote three pictures and the published table to {folder}")


if __name__ == "__main__":
    main()
