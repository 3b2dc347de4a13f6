"""
What a control loop pays
========================

The cost of privacy is what the loop pays for it, and a controller that knows the law of the noise
pays much less.  Telling it costs no privacy: the law is public.
"""

import matplotlib.pyplot as plt
import numpy as np

from affinedp.control import ControlledPlant, aware_controller, design_input_noise

room = ([[0.99]], [[0.9]], [[1.0]])
settings = {"state_cost": 1, "input_cost": 0.1, "process_covariance": 0.18**2}


def cost(known, noise):
    """Return the exact stationary LQG cost if the controller knows of some noise."""
    controller = aware_controller(room, known, measurement_covariance=1e-4, **settings)
    loop = ControlledPlant(room, controller, state_cost=1, input_cost=0.1)
    return loop.errors(noise, process_noise=0.18, sensor_noise=0.01).cost


# %%
# Sending nothing, and never heating, is a level to compare with.

base = cost(None, None)
nothing = 0.18**2 / (1 - 0.99**2) / base
epsilons = np.array([0.2, 0.5, 1, 2, 5, 10])
noises = [design_input_noise(room, epsilon=e, delta=1e-4, mu=0.1) for e in epsilons]
unaware = [cost(None, noise) / base for noise in noises]
aware = [cost(noise, noise) / base for noise in noises]

figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
axes.loglog(epsilons, unaware, "s-", color="#D55E00", label="controller takes it for the truth")
axes.loglog(epsilons, aware, "o-", color="#0072B2", label="controller knows the law of the noise")
axes.axhline(nothing, color="0.4", linestyle=":", linewidth=1.2)
axes.text(10, 1.1 * nothing, "nothing is sent", ha="right", color="0.3")
axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
axes.minorticks_off()
axes.set(xlabel="ε (δ = 10⁻⁴)", ylabel="cost of the loop, times that without privacy")
axes.legend(frameon=False)
plt.show()
