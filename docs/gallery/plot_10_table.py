"""
A table whose totals still add up
=================================

Counts of districts, counties and a state are published as whole numbers.  Every total equals the
sum of its parts, and the confidence intervals say how far off a number may be.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from affinedp.tables import TableRelease

# %%
# Each row names its parent.  Neighbours are tables in which one person more or less lives in one
# district; county and state follow.

counts = pd.DataFrame(
    {
        "parent": [None, "state", "state", *["north"] * 4, *["south"] * 5],
        "people": [0, 0, 0, 412, 167, 389, 254, 601, 138, 333, 297, 451],
    },
    index=[
        "state",
        "north",
        "south",
        *[f"n{i}" for i in range(1, 5)],
        *[f"s{i}" for i in range(1, 6)],
    ],
)
for county in ("north", "south"):
    counts.loc[county, "people"] = counts.loc[counts["parent"] == county, "people"].sum()
counts.loc["state", "people"] = counts.loc[["north", "south"], "people"].sum()

release = TableRelease(hierarchy="parent", epsilon=0.5, delta=1e-6, round_to=1)
published = release.release(counts)
print(published.table)
print(published.guarantee)

# %%

# Errors of all numbers, with the intervals that are published beside them.

low, high = published.interval(0.95)
truth = counts["people"]
error = published.table["people"] - truth
reach = (high["people"] - low["people"]) / 2

figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
places = np.arange(len(counts))
axes.errorbar(places, error, yerr=reach, fmt="o", color="#0072B2", capsize=3)
axes.axhline(0.0, color="k", linestyle="--", linewidth=1)
axes.set_xticks(places, [f"{name}\n{count}" for name, count in truth.items()])
axes.set(xlabel="region and true count", ylabel="published − true, with 95 % intervals")
plt.show()
