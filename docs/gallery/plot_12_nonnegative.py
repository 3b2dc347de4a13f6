"""
What forbidding negative counts does
====================================

Readers dislike a count of −2.  Moving to the nearest table without negative numbers is free of
privacy cost, but not of bias: small cells rise, and large ones pay for it.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp
from affinedp.tables import whole

generator = np.random.default_rng(3)
parent = [-1, *[0] * 20, *(1 + i // 20 for i in range(400))]
cells = np.where(generator.random(400) < 0.5, 0, generator.lognormal(1.5, 1.2, 400)).astype(int)
counts = np.concatenate([np.zeros(21, int), cells])
mechanism = adp.design_tree(parent, epsilon=0.5)

# %%
# Twenty releases of the same table, cells grouped by their true count.

releases = [mechanism.release(counts) for _ in range(20)]
free = np.array([y[21:] - cells for y in releases])
kept = np.array([whole(mechanism, y, nonnegative=True)[21:] - cells for y in releases])
groups = {"0": (0, 0), "1–2": (1, 2), "3–9": (3, 9), "10–29": (10, 29), "30 and more": (30, 10**9)}
figure, axes = plt.subplots(figsize=(6.8, 3.8), layout="constrained")
for place, (low, high) in enumerate(groups.values()):
    own = (cells >= low) & (cells <= high)
    for side, errors, colour in ((-0.18, free, "0.6"), (0.18, kept, "#0072B2")):
        means = errors[:, own].mean(axis=1)
        reach = 2 * means.std() / len(means) ** 0.5
        axes.bar(place + side, means.mean(), 0.34, color=colour, yerr=reach, capsize=3)
axes.bar(0, 0, color="0.6", label="unbiased estimates")
axes.bar(0, 0, color="#0072B2", label="whole, and never negative")
axes.axhline(0, color="k", linewidth=0.8)
axes.set_xticks(range(len(groups)), list(groups))
axes.set(xlabel="true count of the cell", ylabel="mean of published − true, ± 2 s.e.")
axes.legend(frameon=False)
plt.show()
