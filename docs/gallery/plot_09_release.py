"""
Releases that add up
====================

Counts by hour are published with their total.  Every release obeys the equation, whatever the
noise, and a ledger counts what all of them cost together.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

hours = [f"h{hour}" for hour in range(7, 19)]
day = adp.AffineManifold.from_equations([" + ".join(hours) + " = total"])
visitors = np.array([120, 340, 510, 480, 450, 620, 580, 460, 440, 520, 610, 390], dtype=float)
data = np.append(visitors, visitors.sum())

# %%
# A visitor is there in one hour, so one hour and the total move by one.

visit = adp.FreeSetAdjacency(day, [hours])
m = adp.design_gaussian(day, epsilon=0.2, delta=1e-6, adjacency=visit)
print(m.report())

# %%
# Release the same day again and again until the budget is used up.  Each release is charged before
# noise is drawn.

published, spent = [], []
with (
    tempfile.TemporaryDirectory() as folder,
    adp.Ledger(Path(folder, "budget.db"), epsilon=1.0, delta=1e-6, protects="a visitor") as ledger,
):
    while ledger.fits(m.guarantee):
        published.append(m.release(data, ledger=ledger, label="visitors"))
        spent.append(ledger.spent)
published = np.array(published)

largest = np.abs(published[:, :-1].sum(axis=1) - published[:, -1]).max()
print(f"{len(published)} releases fit; they miss the equation by at most {largest:.1e}")

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
left.plot(range(7, 19), published[:, :-1].T, color="#56B4E9", linewidth=0.8, alpha=0.6)
left.plot(range(7, 19), visitors, "k.-", label="visitors")
left.plot([], [], color="#56B4E9", label="releases")
left.set(xlabel="hour of the day", ylabel="visitors", ylim=(0, None))
left.legend(frameon=False)
right.plot(range(1, len(spent) + 1), spent, "o-", color="#0072B2", markersize=3)
right.plot(range(1, len(spent) + 1), 0.2 * np.arange(1, len(spent) + 1), ":", color="0.5")
right.text(6.2, 1.2, "adding up every ε", color="0.4")
right.axhline(1.0, color="#D55E00", linestyle="--", linewidth=1)
right.text(0.6, 1.03, "cap", color="#D55E00")
right.set(xlabel="releases", ylabel="ε spent, at δ = 10⁻⁶", ylim=(0, 1.4))
plt.show()
