"""Output noise as people use it: design it, look at it, save it, put it into a loop.

The records are in :mod:`affinedp.control.trajectory.record`; what is added here only asks others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.control.trajectory.noise_block import noise_block
from affinedp.control.trajectory.record import FreshOutputNoise, OneDrawNoise, OutputNoise
from affinedp.control.trajectory.recorded import ordinary_mechanism
from affinedp.control.trajectory.report import plot, report
from affinedp.control.trajectory.saved import load_trajectory_noise, save_trajectory_noise
from affinedp.mechanism import Mechanism
from affinedp.show.page import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _Conveniences(OutputNoise):
    """What people do with any output noise."""

    def report(self) -> Report:
        """Return what people want to read, as text and as HTML."""
        return report(self)

    def plot(self) -> Figure:
        """Return a figure: the δ(ε) curve and the noise by time."""
        return plot(self)

    def to_control_block(self, seed: int | np.random.Generator | None = None) -> Any:
        """Return a python-control block that adds simulated noise to y(t).

        The noise is drawn once, here, so that the block is a function of the time: a block that
        drew in its output function would look like an algebraic loop.  It is simulation noise;
        real data goes through :class:`~affinedp.control.Gateway`.

        Parameters
        ----------
        seed : int, Generator or None
            Seed or generator; the same seed gives the same noise.

        Returns
        -------
        control.NonlinearIOSystem
            Discrete-time with inputs ``y…`` and outputs ``yhat…``; after the horizon it refuses.
        """
        return noise_block(self.sample(1, seed)[0], self.dynamics.output_names)

    def __str__(self) -> str:
        return str(self.report())

    def _repr_html_(self) -> str:
        return self.report().html()


@dataclass(frozen=True, eq=False)
class TrajectoryMechanism(OneDrawNoise, _Conveniences):
    """``γ(t) = C(t) A(t−1) … A(0) R η`` with one draw η for the whole horizon.

    All outputs together are then ``O (x(0) + R η)`` plus something public: however long someone
    listens, they learn one noisy initial state.

    Attributes
    ----------
    neighbours : TrajectoryNeighbours
        Whom the guarantee is about; they know the dynamics.
    guarantee : Guarantee
        What is promised for the whole horizon.  Its worst direction is a difference of x(0).
    root : array, shape (n, r)
        R, the noise on x(0).
    gap : float or None
        Certified relative distance of the cost to the least possible.
    notes : tuple of str
        What a reader should know about the design.
    points : array, shape (n, p), or None
        For K-norm noise, points of the body of the noise on x(0), up to sign; ``root`` is then a
        root of its covariance.
    rate : float
        The rate of K-norm noise.
    least : LeastPossible or None
        What no mechanism that keeps the promise can go below, whatever its law and whether it
        waits for all outputs or not; None where it is not known, or where noise costs something
        else than the squared error of the outputs.
    """

    def mechanism(self, offsets: ArrayLike | None = None) -> Mechanism:
        """Return the same noise as an ordinary mechanism for a recorded trajectory.

        It has the same neighbours, and a ledger counts it so, and its guarantee is computed
        anew on the manifold of trajectories.

        Parameters
        ----------
        offsets : array_like, shape (horizon − 1, n), optional
            The public inputs ``B u(t)``; zero by default.
        """
        return ordinary_mechanism(self, offsets)

    def save(self, path: str | Path) -> None:
        """Write the mechanism as JSON; an existing file is replaced at once or not at all.

        Parameters
        ----------
        path : str or Path
            Where to.
        """
        save_trajectory_noise(self, Path(path))

    @staticmethod
    def load(path: str | Path, *, reverify: bool = True) -> TrajectoryMechanism:
        """Read a mechanism and compute its guarantee again.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` wrote.
        reverify : bool
            If False the stored guarantee is taken on trust and marked so.
        """
        read = load_trajectory_noise(Path(path), reverify)
        return TrajectoryMechanism(
            read.neighbours, read.guarantee, read.root, read.gap, read.notes, read.points, read.rate
        )


@dataclass(frozen=True, eq=False)
class IndependentOutputNoise(FreshOutputNoise, _Conveniences):
    """Fresh noise of scale σ on every output at every step: the honest baseline.

    Attributes
    ----------
    neighbours : TrajectoryNeighbours
        Whom the guarantee is about; they know the dynamics.
    guarantee : Guarantee
        What is promised for the whole horizon.
    sigma : array, shape (outputs,)
        Scales: ``N(0, σ²)``, or ``L(0, σ)``, which has variance 2σ².
    """
