"""
How accurate is each level?
===========================

A country of 10 regions, 100 towns and 2,000 wards.  Every number is published, every total is the
sum of its parts, and the design says before anything is spent how accurate each level will be.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

parent = np.concatenate(
    [[-1], np.zeros(10), 1 + np.arange(100) // 10, 11 + np.arange(2000) // 20]
).astype(int)
level = np.repeat(np.arange(4), [1, 10, 100, 2000])
names = ("country", "regions", "towns", "wards")

# %%
# Weights say what matters.  By default every number counts alike, and wards are most of them; with
# one weight for each level all levels share.

designs = {
    "every number alike": adp.design_tree(parent, epsilon=1.0, delta=1e-6),
    "every level alike": adp.design_tree(
        parent, epsilon=1.0, delta=1e-6, weights=1.0 / np.bincount(level)[level]
    ),
}
figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
for place, (name, mechanism) in enumerate(designs.items()):
    errors = np.sqrt([mechanism.expected_squared_errors[level == k].mean() for k in range(4)])
    bars = axes.bar(
        np.arange(4) + (place - 0.5) * 0.38,
        errors,
        0.36,
        color=("#56B4E9", "#0072B2")[place],
        label=name,
    )
    axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=9)
axes.set_xticks(range(4), [f"{n}\n({c:,})" for n, c in zip(names, np.bincount(level))])
axes.set(yscale="log", ylabel="standard deviation of a number (people)", ylim=(1, 200))
axes.legend(frameon=False)
plt.show()
