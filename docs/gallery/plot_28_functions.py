"""
Shares, and an index from two looks
===================================

Left: 40 releases of a share of which the denominator is small.  Fieller's interval holds the true
share 95 times in 100, and says where noise leaves it open.  Right: the concentration of 100 cells,
from one release with the whole budget, plain and debiased, and from two looks.
"""

import matplotlib.pyplot as plt
import numpy as np

import affinedp as adp

M = adp.AffineManifold.from_equations(["a + b = c"])
m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
x = np.array([9.0, 21.0, 30.0])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
for i, e in enumerate(m.sample(40, seed=4)):
    found = m.function(x + e, "a / c")
    for low, high in found.pieces:
        inside = low <= 0.3 <= high
        left.plot(np.clip([low, high], -2, 3), [i, i], color="C0" if inside else "C3", lw=1.5)
left.axvline(0.3, color="black", lw=0.8)
left.set(xlabel="share a / c", ylabel="release", xlim=(-1, 2), title="c = 30, noise 4.9")

N, n = 10_000.0, 100
cells = adp.AffineManifold(np.ones((1, n)), b=[-N])
y = np.round(np.random.default_rng(7).dirichlet(np.full(n, 2.0)) * N)
y[0] += N - y.sum()


def concentration(z):
    """The sum of squared shares."""
    return (z**2).sum() / N**2


whole = adp.design_gaussian(cells, epsilon=1.0, delta=1e-6)
two = adp.design_tangent(
    cells, concentration, epsilon=1.0, delta=1e-6, gradient=lambda z: 2 * z / N**2
)
noisy = y + whole.sample(60, seed=2)
plain = [concentration(z) for z in noisy]
debiased = [whole.function(z, concentration).value for z in noisy]
sharper = [two.release(y).value for _ in range(60)]
right.boxplot([plain, debiased, sharper], tick_labels=["plain", "debiased", "two looks"])
right.axhline(concentration(y), color="black", lw=0.8)
right.set(title="concentration of 100 cells")
figure.tight_layout()
plt.show()
