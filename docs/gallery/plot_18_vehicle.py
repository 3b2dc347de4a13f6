"""
A vehicle that is driven from the cloud
=======================================

Section V of the paper.  A vehicle sends its position with noise, and the cloud sends a force back.
One draw for the whole drive keeps the promise with a fraction of the noise that fresh draws would
need, and the closed loop shows it.
"""

import matplotlib.pyplot as plt
import numpy as np

from affinedp.control import (
    ClosedLoop,
    design_output_noise,
    independent_output_noise,
    noise_by_time,
)

STEPS, PERIOD = 100, 0.1
A, B, C = [[1, PERIOD], [0, 1]], [[PERIOD**2 / 2], [PERIOD]], [[1, 0]]
loop = ClosedLoop(
    (A, B, C),
    feedback=[[3.4240, 4.3095]],
    observer=[[0.8266], [0.6973]],
    reference=[1.0, 0.0],
    x0=[-20.0, 0.0],
)

# %%
# Trajectories that differ at any one time by up to 1 m in position, or by 0.1 m/s in velocity, must
# look alike: (ε, δ) = (1, 0.01) for all 100 measurements together.

promise = {"epsilon": 1.0, "delta": 0.01, "mu": [1.0, 0.1]}
noises = {
    "one draw": design_output_noise((A, C), STEPS, **promise),
    "fresh draws": independent_output_noise((A, C), STEPS, **promise),
}
for name, noise in noises.items():
    print(f"{name:12} {noise_by_time(noise)[:, 0].mean():5.1f} m on every position, on average")

# %%
# Errors are exact; ten simulated runs show what they look like.

colours = {"one draw": "#0072B2", "fresh draws": "#D55E00"}
times = PERIOD * np.arange(STEPS + 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
for name, noise in noises.items():
    runs = loop.simulate(noise, STEPS, runs=10, seed=0)
    left.plot(times, runs.states[:, :, 0].T, color=colours[name], linewidth=0.7, alpha=0.7)
    left.plot([], [], color=colours[name], label=name)
    exact = loop.mean_square_error(noise, STEPS)[:, 0]
    right.semilogy(times, np.sqrt(exact), color=colours[name], label=name)
left.axhline(1.0, color="k", linestyle="--", linewidth=1)
left.set(xlabel="time (s)", ylabel="position (m)")
right.set(xlabel="time (s)", ylabel="root-mean-square error (m)")
right.set_yticks([2, 5, 10, 20], labels=["2", "5", "10", "20"])
right.minorticks_off()
left.legend(frameon=False)
plt.show()
