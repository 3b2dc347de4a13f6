"""
A budget over two years
=======================

A table is published every month.  How much may each release cost?  A ledger that composes exactly
lasts much longer than adding up every ε.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

DELTA = 1e-6
table = adp.AffineManifold.from_equations(["women + men = all"])
months = np.arange(1, 25)

# %%
# One release costs ε = 0.25.  What do all of them cost together?

single = adp.design_gaussian(table, epsilon=0.25, delta=DELTA)
composed = [adp.compose([single.guarantee] * int(n)).epsilon(DELTA) for n in months]

# %%
# And the other way round: how much noise keeps ε = 1 for two years, planned either way?

naive = adp.design_gaussian(table, epsilon=1 / 24, delta=DELTA / 24)
planned = adp.design_gaussian(
    table, epsilon=1.0, delta=DELTA, mu=24**0.5
)  # 24 Gaussian releases are one with √24 times the sensitivity
deviations = {
    "ε/24 and δ/24 each": naive.expected_squared_errors[0] ** 0.5,
    "composed exactly": planned.expected_squared_errors[0] ** 0.5,
}

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.0, 3.8), layout="constrained", width_ratios=[3, 2]
)
left.plot(months, 0.25 * months, ":", color="0.4", label="adding up every ε")
left.plot(months, composed, "o-", color="#0072B2", markersize=4, label="what they really cost")
left.set(xlabel="monthly releases", ylabel="ε, at δ = 10⁻⁶", xticks=range(0, 25, 6))
left.legend(frameon=False)
bars = right.bar(list(deviations), list(deviations.values()), 0.5, color=("0.7", "#0072B2"))
right.bar_label(bars, fmt="%.0f", padding=2)
right.set(ylabel="noise that lasts two years")
right.margins(y=0.15)
plt.show()
