"""The ten agents of Section VI: their network, values and noise, simulated and exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.private import PrivateConsensus
from affinedp.consensus.simulation import Run
from affinedp.laws.named import LawName

# The figure with the graph has no list of links in the text; these are those of the example.
LINKS = (
    (1, 2), (1, 10), (2, 3), (2, 5), (2, 10), (3, 4), (4, 5), (5, 6), (5, 7), (6, 7), (7, 8),
    (7, 10), (8, 9), (9, 10),
)  # fmt: skip
VALUES = (10.0, 100.0, 20.0, -30.0, -20.0, -60.0, 70.0, 0.0, 80.0, -20.0)
WEIGHT = 0.25
EPSILONS = (1.0, 0.1, 0.01)
DELTA = 0.01
PAPER_AVERAGE = 10.0
PAPER_SIGMAS = {1.0: 2.5244, 0.1: 23.4765, 0.01: 232.8495}
STEPS, RUNS = 30, 500


@dataclass(frozen=True, eq=False)
class Setting:
    """One noise on the ten agents, simulated and exact."""

    law: LawName
    epsilon: float
    rule: str
    consensus: PrivateConsensus
    run: Run

    @property
    def sigma(self) -> float:
        """σ of every agent."""
        return float(self.consensus.sigma[0])

    def exact(self, readout: str = "state") -> FloatArray:
        """Return E‖read-out(t) − x*‖² at every step."""
        return np.asarray(self.consensus.mean_square_error(VALUES, STEPS, readout))


def ten_agents(
    law: LawName = "gaussian", epsilon: float = 1.0, rule: str = "least"
) -> PrivateConsensus:
    """Return the paper's example: ten agents, each link with weight 1/4.

    Examples
    --------
    >>> [round(ten_agents(rule=rule).limit(), 2) for rule in ("paper", "least")]
    [57.35, 31.74]
    """
    ends = np.array(LINKS) - 1
    made = PrivateConsensus.from_edges(
        10,
        ends[:, 0],
        ends[:, 1],
        weights=WEIGHT,
        names=range(1, 11),
        law=law,
        epsilon=epsilon,
        delta=DELTA if law == "gaussian" else 0.0,
    )
    if rule == "paper" and law == "gaussian":
        return made.with_noise(sigma=PAPER_SIGMAS[epsilon])
    return made


def experiments(runs: int = RUNS, seed: int = 0) -> list[Setting]:
    """Return both experiments of section VI: Gaussian noise by both rules, and Laplace noise."""
    found = []
    kinds: tuple[tuple[LawName, str], ...] = (
        ("gaussian", "paper"), ("gaussian", "least"), ("laplace", "least"),
    )  # fmt: skip
    cases = [(law, rule, epsilon) for law, rule in kinds for epsilon in EPSILONS]
    for (law, rule, epsilon), own in zip(cases, np.random.SeedSequence(seed).spawn(len(cases))):
        consensus = ten_agents(law, epsilon, rule)
        run = consensus.run(VALUES, STEPS, runs, own)
        found.append(Setting(law, epsilon, rule, consensus, run))
    return found
