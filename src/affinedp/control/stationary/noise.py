"""Stationary noise as people use it: look at it, save it, ask what it still tells, simulate it.

The record is in :mod:`affinedp.control.stationary.record`; what is added here only asks others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.stationary.record import StationaryNoise
from affinedp.control.stationary.report import plot, report
from affinedp.control.stationary.rolling import events_sensitivity, leak_after
from affinedp.control.stationary.saved import load_stationary_noise, save_stationary_noise
from affinedp.control.trajectory.noise_block import noise_block
from affinedp.show.page import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class StationaryMechanism(StationaryNoise):
    """Noise ``γ = M ζ`` on the outputs of a plant, with ζ fresh at every step.

    It comes from :func:`~affinedp.control.design_input_noise`, or from
    :func:`~affinedp.control.design_output_noise` with ``neighbours="forward"``.  Fresh noise does
    not mean that steps may be taken apart: a restart with new noise is a new release for every
    event that still shows, and is charged as one.

    Attributes
    ----------
    neighbours : PrivateInputs
        Whom the guarantee is about.
    guarantee : Guarantee
        What is promised about all that is ever sent; as zCDP it needs no horizon.
    shaper : Filter
        Causal, with a causal stable inverse.
    place : {"output", "input"}
        Whether the shaper's output is the noise, or drives a copy of the plant.
    scale : float
        Standard deviation of ζ.
    start : array, shape (n, n), or None
        R: the noise filter's memory starts as R η with η like ζ; None starts at rest.
    cost : float or None
        What it costs: the sum of the variances, unless it was weighed otherwise.
    least : float or None
        No stationary noise with this promise costs less.
    alternatives : mapping
        Cost of the other designs with the same promise, by name.
    notes : tuple of str
        What a reader should know about the design.

    Examples
    --------
    >>> from affinedp.control import design_input_noise
    >>> m = design_input_noise(([[0.5]], [[1.0]], [[1.0]]), epsilon=1.0, delta=0.01)
    >>> m.sample(2, steps=5, seed=0).shape, m.endless
    ((2, 5, 1), True)
    """

    @property
    def stationary_deviation(self) -> FloatArray:
        """Standard deviation of the noise on each output, shape (outputs,)."""
        return np.sqrt(self.stationary_variance)

    def leak_after(self, steps: int) -> float:
        """Return which share of s² an event can still tell, some steps after it.

        It is about someone who saw everything before.  Who starts to watch then learns more, so do
        not give budget back by this number.

        Parameters
        ----------
        steps : int
            How many outputs were seen since the event.

        Examples
        --------
        >>> from affinedp.control import design_input_noise
        >>> m = design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4)
        >>> bool(m.leak_after(96) < 0.01)                        # a day of quarters of an hour
        True
        """
        return leak_after(self, steps)

    def events_sensitivity(self, events: int, apart: int) -> float:
        """Return a bound on the sensitivity to several events that are some steps apart.

        Far apart, K events cost little more than √K times one: this says how much.  For events that
        are close together K times one is always right, and the bound is never more.

        Parameters
        ----------
        events : int
            How many events, on any private inputs.
        apart : int
            At least so many steps between two of them.

        Examples
        --------
        >>> from affinedp.control import design_input_noise
        >>> m = design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4)
        >>> ratio = m.events_sensitivity(30, apart=96) / m.guarantee.sensitivity
        >>> 30**0.5 < ratio < 6.2
        True
        """
        return events_sensitivity(self, events, apart)

    @property
    def gap(self) -> float | None:
        """Relative distance of the cost to the least possible."""
        if self.least is None or self.cost is None:
            return None
        return max(0.0, self.cost / self.least - 1)

    def report(self) -> Report:
        """Return what people want to read, as text and as HTML."""
        return report(self)

    def plot(self) -> Figure:
        """Return a figure: the δ(ε) curve and the noise's spectrum."""
        return plot(self)

    def to_control_block(self, steps: int, seed: int | np.random.Generator | None = None) -> Any:
        """Return a python-control block that adds simulated noise to y(t).

        Parameters
        ----------
        steps : int
            How long the simulation is; after that the block refuses.
        seed : int, Generator or None
            Seed or generator; the same seed gives the same noise.

        Returns
        -------
        control.NonlinearIOSystem
        """
        return noise_block(self.sample(1, steps, seed)[0], self.output_names)

    def save(self, path: str | Path) -> None:
        """Write the mechanism as JSON; an existing file is replaced at once or not at all.

        Parameters
        ----------
        path : str or Path
            Where to.
        """
        save_stationary_noise(self, Path(path))

    @staticmethod
    def load(path: str | Path, *, reverify: bool = True) -> StationaryMechanism:
        """Read a mechanism and certify its guarantee again.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` wrote.
        reverify : bool
            If False the stored guarantee is taken on trust and marked so.
        """
        read = load_stationary_noise(Path(path), reverify)
        return StationaryMechanism(
            read.neighbours, read.guarantee, read.shaper, read.place, read.scale, read.start,
            read.cost, read.least, read.alternatives, read.notes,
        )  # fmt: skip

    def __str__(self) -> str:
        return str(self.report())

    def _repr_html_(self) -> str:
        return self.report().html()
