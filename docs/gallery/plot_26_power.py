"""
Power flows of a grid
=====================

Everyone knows Kirchhoff's laws and the lines.  Noise that forgets the lines
keeps ε = 9.8 where 1 was meant; noise for what is really known obeys all balances and laws.
"""

import matplotlib.pyplot as plt
import pandapower.networks

import affinedp as adp
from affinedp import flows

net = pandapower.networks.case9()
grid = flows.from_pandapower(net)
balance = flows.from_pandapower(net, laws="balance")

# %%
# Noise for someone who knows the balances only, verified for someone who knows the lines too:

careless = flows.design_flow_noise(balance, epsilon=1.0, delta=1e-6)
truth = adp.verify(grid.manifold, careless.noise_matrix, adjacency=grid.circuits())
print(f"meant for ε = 1, kept: ε = {truth.epsilon(1e-6):.1f}")

# %%
# One megawatt more or less at any bus, hidden by the least noise:

moves = flows.injection_neighbours(grid, mu=1.0)
noise = flows.design_flow_noise(grid, epsilon=1.0, delta=1e-6, adjacency=moves)
figure, axes = plt.subplots(figsize=(6.4, 4.8))
flows.draw_flow_noise(grid, noise, axes=axes, unit="MW")
plt.show()
