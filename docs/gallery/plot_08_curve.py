"""
A promise is a curve
====================

One (ε, δ) is one point.  The whole curve says what else holds at the same time, and how likely a
loss above any ε is.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

table = adp.AffineManifold.from_equations(["a + b = total"])
laws = {
    "Gaussian for (1, 10⁻⁶)": adp.design_gaussian(table, epsilon=1.0, delta=1e-6),
    "Laplace strategy for ε = 1": adp.design_laplace(table, epsilon=1.0),
    "K-norm for ε = 1": adp.design_knorm(table, epsilon=1.0),
}

# %%
# Laplace and K-norm noise stop at ε = 1: nothing more can ever be lost.  Gaussian noise has no end,
# but it promises more at small ε, which is why it adds up well over many releases.

epsilons = np.linspace(0, 1.6, 161)
colours = ("#D55E00", "#E69F00", "#0072B2")
figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
for (name, mechanism), colour in zip(laws.items(), colours):
    delta = np.array(mechanism.guarantee.delta(epsilons))
    delta[delta < 1e-12] = np.nan
    axes.semilogy(epsilons, delta, color=colour, linewidth=2, label=name)
axes.plot(1.0, 1e-6, "o", color="#D55E00", markersize=6)
axes.annotate("what was asked for", (1.0, 1e-6), xytext=(8, 4), textcoords="offset points")
axes.set(xlabel="ε", ylabel="δ(ε)", ylim=(1e-9, 1))
axes.legend(frameon=False, loc="lower left")
plt.show()
