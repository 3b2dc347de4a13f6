"""
Which law, and when
===================

How many numbers does one person touch?  Laplace and K-norm noise pay for each of them in full,
Gaussian noise pays their root and log(1/δ) once.  :func:`affinedp.design` asks all and takes the
best.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

DELTA = 1e-6
released = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500])

# %%
# The same count is published in every week of some weeks, and one person may come in all of them.
# Per number: Laplace noise of scale K/ε, and Gaussian noise for sensitivity √K.

figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for epsilon, style in ((0.5, "--"), (2.0, "-")):
    laplace = np.sqrt(2) * released / epsilon
    gaussian = [adp.gaussian_sigma(epsilon, DELTA, sensitivity=float(K) ** 0.5) for K in released]
    axes.loglog(released, laplace, style, color="#E69F00", label=f"Laplace, ε = {epsilon:g}")
    axes.loglog(released, gaussian, style, color="#0072B2", label=f"Gaussian, ε = {epsilon:g}")
    cross = np.interp(0.0, np.log(laplace / np.array(gaussian)), released)
    axes.plot(cross, np.interp(cross, released, gaussian), "ko", markersize=5)
    print(f"ε = {epsilon:g}: Gaussian noise is better from {cross:.0f} numbers on")
axes.axvspan(1, cross, color="#E69F00", alpha=0.1, linewidth=0)
axes.axvspan(cross, 500, color="#0072B2", alpha=0.08, linewidth=0)
axes.text(1.15, 900, "Laplace and K-norm\nare better", color="#8a5a00")
axes.text(14, 900, "Gaussian\nis better", color="#00558a")
axes.set(xlim=(1, 500), ylim=(0.5, 3000))
axes.set(xlabel="numbers that one person touches", ylabel="standard deviation of each")
axes.legend(frameon=False, fontsize=9, loc="lower right")
plt.show()
