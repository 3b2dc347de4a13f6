"""
Once, then predict: plants that are not linear
==============================================

One release of the first state, and everyone runs the plant from there: the promise is that of x(0),
for any horizon.  The last picture is the warning: with a disturbance the prediction does not
see it, and a controller that follows the prediction controls the prediction.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp
from affinedp.control import predict

figure, axes = plt.subplots(2, 2, figsize=(9, 6))
promise = {"epsilon": 1.0, "delta": 1e-6}


def day(x, u):
    """One day of an epidemic."""
    new, well = 0.3 * x[0] * x[1] / 1e5, 0.1 * x[1]
    return x + np.array([-new, new - well, well])


def swing(x, u):
    """A damped pendulum."""
    push = 0.0 if u is None else u
    return x + 0.05 * np.array([x[1], -9.81 * np.sin(x[0]) - x[1] + push])


def drive(x, u):
    """A car that turns."""
    return x + 0.1 * np.array([np.cos(x[2]), np.sin(x[2]), u])


def twins(m, step, start, steps, inputs=None, count=20):
    """The true outputs, and those of simulated releases."""
    true = predict(step, start, steps, inputs)
    return true, [predict(step, start + e, steps, inputs) for e in m.sample(count, seed=1)]


epidemic = adp.design_gaussian(adp.AffineManifold.from_equations(["S + I + R = 100000"]), **promise)
true, seen = twins(epidemic, day, np.array([99500.0, 500, 0]), 150)
for one in seen:
    axes[0, 0].plot(one[:, 1], color="C0", lw=0.5)
axes[0, 0].plot(true[:, 1], color="black")
axes[0, 0].set(title="epidemic: infected people by day")

free = adp.AffineManifold(np.zeros((0, 2)))
pendulum = adp.design_gaussian(free, mu=[0.1, 0.1], **promise)
true, seen = twins(pendulum, swing, np.array([0.8, 0.0]), 200)
for one in seen:
    axes[0, 1].plot(one[:, 0], color="C0", lw=0.5)
axes[0, 1].plot(true[:, 0], color="black")
axes[0, 1].set(title="damped pendulum: angle")

three = adp.AffineManifold(np.zeros((0, 3)))
car = adp.design_gaussian(three, mu=[0.5, 0.5, 0.05], **promise)
turns = 0.3 * np.sin(0.05 * np.arange(200))
true, seen = twins(car, drive, np.array([0.0, 0.0, 0.3]), 200, turns)
for one in seen:
    axes[1, 0].plot(one[:, 0], one[:, 1], color="C0", lw=0.5)
axes[1, 0].plot(true[:, 0], true[:, 1], color="black")
axes[1, 0].set(title="unicycle: path")

start = np.array([0.2, 0.0])
axes[1, 1].plot(predict(swing, start, 200, np.full(199, 3.0))[:, 0], color="black", label="true")
axes[1, 1].plot(predict(swing, start, 200)[:, 0], color="C0", label="predicted")
axes[1, 1].set(title="a constant push that nobody measured")
axes[1, 1].legend()
figure.tight_layout()
plt.show()
