"""The network of agents: who talks to whom, with which weight, and how fast news spreads."""
