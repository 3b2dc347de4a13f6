"""
What the steps of a sensor cost
===============================

A sensor that rounds to 0.1 °C tells which side of a step the truth is on.  The gateway adds fresh
noise for that, and dither before rounding saves most of it.
"""

import matplotlib.pyplot as plt
import numpy as np

from affinedp.control import Dither, design_output_noise, noise_by_time


def variance(resolution=None):
    """Return the mean variance that is sent over a day."""
    room = ([[0.99]], [[1]])
    noise = design_output_noise(room, 96, 1.0, 1e-4, adjacency="initial", resolution=resolution)
    return float((noise_by_time(noise) ** 2).mean())


steps = np.array([0.01, 0.02, 0.05, 0.1, 0.2])
plain = [variance(step) / variance() for step in steps]
dithered = [variance(Dither(bits=6, step=step)) / variance() for step in steps]

# %%

figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
axes.loglog(steps, plain, "s-", color="#D55E00", label="rounded")
axes.loglog(steps, dithered, "o-", color="#0072B2", label="dither of 6 bits before rounding")
axes.axhline(1.0, color="0.5", linestyle="--", linewidth=1)
axes.set_xticks(steps, [f"{step:g}" for step in steps])
axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
axes.minorticks_off()
axes.set(xlabel="step of the sensor (°C)", ylabel="variance, times that without steps")
axes.legend(frameon=False)
plt.show()
