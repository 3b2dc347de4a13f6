"""
Who is at home? A room that does not tell
=========================================

A thermostat sends temperatures to the cloud.  One person comes home: 0.1 kW of heat for a quarter
of an hour.  Noise that is fresh at every step, and shaped like the room, hides that for ever.
"""

import matplotlib.pyplot as plt
import numpy as np

from affinedp.control import design_input_noise, noise_by_time
from affinedp.control.by_time import sample_noise

room = ([[0.99]], [[0.9]], [[1.0]])  # °C and kW, steps of 15 minutes
noise = design_input_noise(room, epsilon=1.0, delta=1e-4, mu=0.1)
white = {other.reason: other.error for other in noise.alternatives}["white output noise"] ** 0.5
print(f"shaped noise {noise_by_time(noise)[0, 0]:.2f} °C, white noise {white:.2f} °C")

# %%
# A day, with and without the visit, as the cloud sees it.

generator = np.random.default_rng(2)
hours = np.arange(96) / 4
base = 20 + 0.4 * np.sin(2 * np.pi * (hours - 9) / 24)
visit = np.where(hours >= 12, 0.09 * 0.99 ** ((hours - 12) * 4), 0.0)
shaped = sample_noise(noise, 1, 96, seed=1)[0, :, 0]
figure, axes = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
axes.plot(
    hours,
    base + generator.normal(0, white, 96),
    ".",
    color="#E69F00",
    label="white noise, same promise",
)
axes.plot(hours, base + shaped, color="#0072B2", label="shaped noise")
axes.plot(hours, base, "k--", linewidth=1, label="nobody came")
axes.plot(hours, base + visit, "k", linewidth=1.4, label="somebody came at noon")
axes.set(xlabel="hour", ylabel="temperature (°C)", xticks=range(0, 25, 6))
axes.legend(frameon=False, ncols=2, fontsize=9)
plt.show()
