"""
Equations that nobody wrote down
================================

Promises are about equations that everyone knows, so which ones are in a table matters.
:func:`affinedp.discover` reads them off the data and says what forgetting each would cost.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

generator = np.random.default_rng(1)
women, men = generator.integers(100, 999, (2, 60))
employed = generator.integers(50, 100, 60)
table = {
    "women": women,
    "men": men,
    "all": women + men,
    "employed": employed,
    "not employed": women + men - employed,
    "visits": generator.integers(1, 50, 60),
}
found = adp.discover(table)

# %%
# Each equation is a row; ε is what independent noise meant for ε = 1 really gives under it.

names = list(table)
figure, axes = plt.subplots(figsize=(6.8, 2.6), layout="constrained")
for row, equation in enumerate(found.equations):
    print(f"{equation.text:32} holds in {equation.rows_that_hold} of {equation.rows} rows")
    left, right = equation.text.split(" = ")
    for side, colour in ((left, "#D55E00"), (right, "#0072B2")):
        for name in names:
            if name in side.replace("`", "").split(" + "):
                axes.plot(names.index(name), row, "o", color=colour, markersize=16)
    axes.text(len(names) - 0.3, row, f"ε = {equation.cost:g}, not 1", va="center")
axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
axes.set_yticks(
    range(len(found.equations)), [f"equation {i + 1}" for i in range(len(found.equations))]
)
axes.set(xlim=(-0.6, len(names) + 1.0), ylim=(len(found.equations) - 0.4, -0.6))
axes.grid(axis="x", alpha=0.3)
axes.set_title("a total (red) and its parts (blue)", fontsize=11)
plt.show()
