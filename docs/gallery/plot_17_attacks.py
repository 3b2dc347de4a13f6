"""
Attacks on noise, ours too
==========================

:func:`affinedp.audit.audit` plays the adversary: it knows the equations and the law, and counts
how often it guesses right.  What it proves may not exceed what is promised.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp
from affinedp.audit import audit

RUNS = 20_000
ratio = adp.AffineManifold([[1, -4]])
epsilons = (0.25, 0.5, 1.0, 2.0)

# %%
# The careless one puts fresh noise of scale 1/ε on both of x1 = 4 x2.

careless, designed = [], []
for epsilon in epsilons:
    noise = adp.iid_noise(ratio, law="laplace", epsilon=5 * epsilon)
    careless.append(audit(noise, claim=(epsilon, 0.0), runs=RUNS).epsilon_lower)
    designed.append(audit(adp.design_laplace(ratio, epsilon=epsilon), runs=RUNS).epsilon_lower)

figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
line = np.array([0.2, 2.5])
axes.plot(line, line, "k--", linewidth=1, label="as promised")
axes.fill_between(line, line, 12, color="0.5", alpha=0.1, linewidth=0)
axes.plot(epsilons, careless, "s-", color="#D55E00", label="ignores the equation")
axes.plot(epsilons, designed, "o-", color="#0072B2", label="designed for it")
axes.text(0.21, 7.6, "broken: more is proved than was promised")
axes.set(xscale="log", yscale="log", xlim=(0.2, 2.5), ylim=(0.1, 12))
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
axes.minorticks_off()
axes.set(xlabel="ε that is promised", ylabel="ε that an attack proves (99.9 % confidence)")
axes.legend(frameon=False, loc="lower right")
plt.show()
