"""
The leak: an equation that everyone knows
=========================================

Two numbers obey x1 = k x2.  Laplace noise of scale 1 on each is meant for ε = 1.  Whoever knows the
equation has two looks at one secret, and :func:`affinedp.verify` says what is left.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

factors = np.geomspace(0.25, 4, 41)
kept, least = [], []
for k in factors:
    equation = adp.AffineManifold([[1, -k]])
    kept.append(adp.verify(equation, 1.0, law="laplace").epsilon())
    least.append(adp.design_laplace(equation, epsilon=1.0).guarantee.epsilon())

# %%
# The leak is never less than a factor of two, and it is exact: max(1 + k, 1 + 1/k), Example 1 of
# the paper.  Noise that obeys the equation, too, keeps what it says.

figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
axes.semilogx(
    factors, kept, color="#D55E00", linewidth=2, label="independent noise, meant for ε = 1"
)
axes.semilogx(factors, least, color="#0072B2", linewidth=2, label="noise that obeys the equation")
axes.fill_between(factors, 1.0, kept, color="#D55E00", alpha=0.12, linewidth=0)
axes.annotate("what leaks", (1.0, 1.4), ha="center", color="#D55E00")
axes.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
axes.minorticks_off()
axes.set(xlabel="k in x1 = k x2", ylabel="ε that the noise really gives", ylim=(0, 5.5))
axes.legend(frameon=False, loc="upper center")
plt.show()
