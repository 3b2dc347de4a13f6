"""
What independent noise really promises
======================================

The same quantity is measured T times, with fresh noise for each measurement.  Someone who knows
that nothing changes averages the noise away.  :func:`affinedp.verify` says how fast: noise that
gives ε = 1 for a single measurement gives a much larger ε for all of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

DELTA = 0.01
sigma = adp.gaussian_sigma(1.0, DELTA)  # keeps (1, 0.01) for one measurement


# %%
# The equations say that x(t+1) = x(t).  One draw for all measurements does what fresh noise
# cannot: it obeys the same equations, and no averaging helps.


def constant(steps):
    """Return the manifold x(0) = x(1) = …"""
    return adp.AffineManifold(np.eye(steps - 1, steps) - np.eye(steps - 1, steps, 1))


lengths = np.array([2, 5, 10, 20, 50, 100, 200])
fresh = [adp.verify(constant(T), sigma).epsilon(DELTA) for T in lengths]
common = [adp.verify(constant(T), np.full((T, 1), sigma)).epsilon(DELTA) for T in lengths]

figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
axes.loglog(lengths, fresh, "o-", color="#D55E00", label="fresh noise for each measurement")
axes.loglog(lengths, common, "s-", color="#0072B2", label="one draw for all of them")
axes.axhline(1.0, color="0.5", linestyle="--", linewidth=1)
axes.annotate("claimed", (2, 1.0), xytext=(0, 4), textcoords="offset points", color="0.4")
axes.set(xlabel="measurements T", ylabel=f"ε that it really gives, at δ = {DELTA}")
axes.legend(frameon=False)
plt.show()

# %%
# What it takes to keep the promise with fresh noise: T times the variance on each of T outputs.

iid = adp.iid_noise(constant(100), law="gaussian", epsilon=1.0, delta=DELTA)
best = adp.design_gaussian(constant(100), epsilon=1.0, delta=DELTA)
print(f"independent noise: standard deviation {iid.expected_squared_errors[0] ** 0.5:.2f}")
print(f"least noise:       standard deviation {best.expected_squared_errors[0] ** 0.5:.2f}")
