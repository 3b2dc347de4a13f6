"""
What the steps of a sensor cost
===============================

A sensor that rounds to 0.1 °C tells which side of a step the truth is on.  The gateway adds fresh
noise for that, and dither before rounding saves most of it.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

from affinedp.control import Dither, Gateway, design_output_noise

room = design_output_noise(([[0.99]], [[1]]), 96, 1.0, 1e-4, neighbours="initial")
folder = tempfile.TemporaryDirectory()


def cost(name, resolution):
    """Return the variance that is sent, times that of a sensor without steps."""
    with Gateway(room, state=f"{folder.name}/{name}", resolution=resolution) as gateway:
        return float(1 + gateway.added_variance[0])


steps = np.array([0.01, 0.02, 0.05, 0.1, 0.2])
plain = [cost(f"plain{step}", float(step)) for step in steps]
dithered = [cost(f"dither{step}", Dither(bits=6, step=float(step))) for step in steps]
folder.cleanup()

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
