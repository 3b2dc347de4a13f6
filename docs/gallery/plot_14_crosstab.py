"""
A cross-tabulation with its margins
===================================

``pd.crosstab(…, margins=True)`` with noise: rows and columns still add up to their totals, and
intervals come with it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from affinedp.tables import from_crosstab

generator = np.random.default_rng(5)
ages, wards = ["0–17", "18–39", "40–64", "65+"], ["east", "north", "south", "west"]
people = pd.DataFrame(
    {
        "age": generator.choice(ages, 4000, p=[0.2, 0.3, 0.33, 0.17]),
        "ward": generator.choice(wards, 4000, p=[0.3, 0.4, 0.2, 0.1]),
    }
)

# %%
# Labels are published, so they are those that everyone knows and not those that occur.

counts = pd.crosstab(
    pd.Categorical(people["age"], ages),
    pd.Categorical(people["ward"], wards),
    margins=True,
    dropna=False,
)

# %%
# Only labels are looked at to see how the table adds up; ``ask=input`` would show the guess first.

release = from_crosstab(
    counts, epsilon=0.5, labels="public", ask=None, say=lambda text: None, round_to=1
)
published = release.release(counts)
print(published.table)

# %%
# Published numbers, coloured by how far off they are.

error = (published.table - counts).to_numpy()
figure, axes = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
most = np.abs(error).max()
shown = axes.imshow(error, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
for row in range(5):
    for column in range(5):
        colour = "white" if abs(error[row, column]) > 0.6 * most else "black"
        number = published.table.iloc[row, column]
        axes.text(column, row, f"{number:g}", ha="center", va="center", color=colour)
axes.axhline(3.5, color="k", linewidth=1)
axes.axvline(3.5, color="k", linewidth=1)
axes.set_xticks(range(5), counts.columns)
axes.set_yticks(range(5), counts.index)
figure.colorbar(shown, label="published − true")
plt.show()
