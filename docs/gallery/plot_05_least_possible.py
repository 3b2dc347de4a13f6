"""
How close to the least possible
===============================

No mechanism of any law goes below a bound that :class:`affinedp.Mechanism` knows.  For a total and
two parts K-norm noise is close to it, and Gaussian noise pays for its tails.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

table = adp.AffineManifold.from_equations(["a + b = total"])
epsilons = np.geomspace(0.1, 8, 13)
gaussian = [adp.design_gaussian(table, epsilon=epsilon, delta=1e-6) for epsilon in epsilons]
laplace = adp.design_laplace(table, epsilon=1.0)  # without δ, noise goes like 1/ε exactly
knorm = adp.design_knorm(table, epsilon=1.0)

# %%
# Times ε², so that curves are level where error goes like 1/ε².  The bound holds for every law that
# keeps (ε, 10⁻⁶), and what keeps ε does.

errors = {
    "Gaussian, δ = 10⁻⁶": [m.expected_squared_error * e**2 for m, e in zip(gaussian, epsilons)],
    "Laplace strategy": np.full(len(epsilons), laplace.expected_squared_error),
    "K-norm": np.full(len(epsilons), knorm.expected_squared_error),
    "no law goes below": [m.lower_bound * e**2 for m, e in zip(gaussian, epsilons)],
}
styles = (("#D55E00", "s-"), ("#E69F00", "^-"), ("#0072B2", "o-"), ("0.3", "--"))
figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for (name, curve), (colour, style) in zip(errors.items(), styles):
    axes.loglog(epsilons, curve, style, color=colour, label=name, markersize=4)
axes.set_xticks([0.1, 0.3, 1, 3, 8], ["0.1", "0.3", "1", "3", "8"])
axes.minorticks_off()
axes.set(xlabel="ε", ylabel="squared error × ε²")
axes.legend(frameon=False)
plt.show()
