"""What one round does to what agents hold: a linear map that losses change and data does not.

An agent does not send a part; it sends the *sum of all parts so far*.  Who hears it takes the
difference to what it heard before.  So a lost message delays a part and destroys none: it stays on
its link until the next message arrives (Hadjicostis, Vaidya and Domínguez-García 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.pushsum.losses import Lost
from affinedp.consensus.pushsum.network import DirectedNetwork

# Who holds less keeps it: who sends and never hears would divide until nothing is left of 0/0.
LEAST_MASS = 2.0**-500


class Rounds:
    """The rounds of a network, applied to several columns side by side.

    Parameters
    ----------
    network : DirectedNetwork
        Who sends to whom.
    """

    def __init__(self, network: DirectedNetwork) -> None:
        self._network = network

    @cached_property
    def _arrival(self) -> Any:
        import scipy.sparse as sparse

        links = self._network.links_count
        ends = (self._network.targets, np.arange(links))
        return sparse.csr_array((np.ones(links), ends), shape=(self._network.n, links))

    def held(self, start: FloatArray, losses: Iterator[Lost]) -> Iterator[FloatArray]:
        """Yield what agents hold at time 0, 1, …, without end.

        Parameters
        ----------
        start : array, shape (n, columns)
            What they hold at time 0.
        losses : iterator of bool arrays, shape (links,)
            Which messages are lost, round by round.
        """
        return (held for held, _ in self.everywhere(start, losses))

    def everywhere(
        self, start: FloatArray, losses: Iterator[Lost]
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield what agents hold, and what is still on the links, at time 0, 1, …, without end.

        Parameters
        ----------
        start : array, shape (n, columns)
            What agents hold at time 0.
        losses : iterator of bool arrays, shape (links,)
            Which messages are lost, round by round.
        """
        sources, shares = self._network.sources, self._network.shares[:, None]
        held = np.column_stack([np.ones(len(start)), start])  # the mass goes along
        on_links = np.zeros((self._network.links_count, held.shape[1]))
        while True:
            yield held[:, 1:], on_links[:, 1:]
            lost = next(losses)
            gives = held[:, :1] >= LEAST_MASS
            part = np.where(gives, shares * held, held)
            on_links = on_links + np.where(gives, part, 0.0)[sources]
            held = part + self._arrival @ np.where(lost[:, None], 0.0, on_links)
            on_links[~lost] = 0.0
