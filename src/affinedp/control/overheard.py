"""What someone learns who hears all that is sent, knows the plant, and has no other knowledge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import FloatArray, dense
from affinedp.control.checks import causal
from affinedp.control.loop_errors import unit_loadings
from affinedp.domains.observability import output_gramian, revealed_coordinates
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import Inputs
from affinedp.neighbours.trajectory import TrajectoryAdjacency
from affinedp.strategies.base import Sent
from affinedp.strategies.causal import sent_outputs
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import Fresh, Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Steps over which learning is followed.
MOST_STEPS = 200


@dataclass(frozen=True, eq=False)
class Eavesdropper:
    """How well someone knows what is hidden who hears all outputs: errors of best linear estimates.

    Attributes
    ----------
    names : tuple of str
        What is estimated: entries of x(0), or how large an event on a private input was.
    mu : array, shape (k,)
        How far each may move between neighbours: what must stay hidden.
    covariance : array, shape (k, k)
        Of the errors of the best unbiased linear estimates from all outputs.
    deviations : array, shape (steps, k)
        Standard deviations after 1, 2, … outputs; inf where nothing is known yet.
    readings : str
        How readings were taken: for exact, or with the steps of the sensors and what hides them.
    """

    names: tuple[str, ...]
    mu: FloatArray
    covariance: FloatArray = field(repr=False)
    deviations: FloatArray = field(repr=False)
    readings: str = "readings taken for exact"

    def sentences(self) -> Iterator[str]:
        """Yield one sentence for each of what is hidden."""
        known = np.sqrt(np.diagonal(self.covariance))
        for name, deviation, mu in zip(self.names, known, self.mu):
            moved = f"where neighbours differ by up to {mu:g}" if mu > 0 else "which is not private"
            yield (
                f"{name} at best within ± {deviation:.3g} (one standard deviation, "
                f"{self.readings}), {moved}"
            )

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def plot(self) -> Figure:
        """Return a picture of what is learned with every output, beside what must stay hidden.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from affinedp.show.plot import new_figure

        figure = new_figure(figsize=(6.4, 3.8), layout="constrained")
        axes = figure.subplots()
        heard = np.arange(1, len(self.deviations) + 1)
        for i, name in enumerate(self.names):
            line = axes.plot(heard, self.deviations[:, i], label=f"{name}: best estimate")[0]
            if self.mu[i] > 0:
                words = f"{name}: neighbours differ by"
                axes.axhline(self.mu[i], color=line.get_color(), linestyle="--", label=words)
        axes.set(
            xlabel="outputs heard", ylabel="standard deviation (own units)",
            yscale="log", title=f"What an eavesdropper learns, {self.readings}",
        )  # fmt: skip
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2)
        return figure


def eavesdropper(mechanism: Mechanism) -> Eavesdropper:
    """Return what someone learns who hears all outputs and knows plant, inputs and noise.

    Of one draw they learn one noisy x(0), however long they listen; of fresh noise more with every
    output; of stationary noise what an event on a private input was, as far as it still shows.
    Readings are taken for exact, unless the noise was designed with a ``resolution``: then what
    hides the steps of sensors is counted, which makes them learn less.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.

    Returns
    -------
    Eavesdropper
        With a ``covariance`` and a ``plot()``.

    Examples
    --------
    >>> from affinedp.control import design_output_noise, eavesdropper
    >>> vehicle = ([[1, 0.1], [0, 1]], [[1, 0]])
    >>> m = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01, mu=[1, 0.5])
    >>> print(eavesdropper(m))  # doctest: +ELLIPSIS
    x1(0) at best within ± 9.64 (one standard deviation, readings taken for exact), where ...
    x2(0) at best within ± 1.55 (one standard deviation, readings taken for exact), where ...
    """
    if mechanism.design.sent is not None:
        return _with_steps(mechanism, mechanism.design.sent)
    strategy, adjacency = causal(mechanism), mechanism.adjacency
    steps = min(strategy.horizon, MOST_STEPS)
    if isinstance(strategy, Filter):
        assert isinstance(adjacency, Inputs)
        response = strategy.whitened.floats().impulse(steps) / strategy.scale
        energy = np.cumsum((response**2).sum(axis=1), axis=0)
        whole = strategy.whitened.floats().energies() / strategy.scale**2
        with np.errstate(divide="ignore"):
            found = 1 / np.sqrt(energy)
        what = "a jump of" if adjacency.forward else "an event on"
        names = tuple(f"{what} {name}" for name in strategy.domain.names)
        return Eavesdropper(names, adjacency.mu, np.diag(1 / whole), found)
    assert isinstance(adjacency, TrajectoryAdjacency)
    assert isinstance(strategy, Trajectory | Fresh)
    dynamics = strategy.domain
    places = revealed_coordinates(dynamics, output_gramian(dynamics)).places
    names = tuple(dynamics.names[place] for place in places)
    mu = adjacency.mu.max(axis=0)[places]
    rows = np.array(list(unit_loadings(dynamics, steps)))[:, :, places]
    found = np.full((steps, len(places)), math.inf)
    if isinstance(strategy, Trajectory):
        covariance = mechanism.noise.covariance(strategy.start)[np.ix_(places, places)]
        for t in range(steps):  # all is known as soon as the outputs tell x(0), and never better
            if np.linalg.matrix_rank(rows[: t + 1].reshape(-1, len(places))) == len(places):
                found[t:] = np.sqrt(np.diagonal(covariance))
                break
        return Eavesdropper(names, mu, covariance, found)
    variance = mechanism.noise.variance * strategy.sigma**2
    information = np.cumsum(np.einsum("tmi,tmj->tij", rows, rows), axis=0) / variance
    for t, one in enumerate(information):
        if np.linalg.matrix_rank(one, hermitian=True) == len(places):
            found[t] = np.sqrt(np.diagonal(np.linalg.inv(one)))
    whole = output_gramian(dynamics)[np.ix_(places, places)]
    inverse = np.asarray(np.linalg.inv(whole) * variance, dtype=np.float64)
    return Eavesdropper(names, mu, inverse, found)


def _with_steps(mechanism: Mechanism, sent: Sent) -> Eavesdropper:
    """The same where noise is enlarged for the steps of sensors, and fresh noise comes beside it.

    Where more is sent than is followed, the covariance is that of the enlarged noise alone, below
    which no listener comes.
    """
    from scipy.linalg import solve_triangular

    exact = eavesdropper(mechanism.with_design(sent=None))
    strategy, every = causal(mechanism), sent.every
    count = min(-(-strategy.horizon // every), MOST_STEPS)
    heard = every * (count - 1) + 1
    if isinstance(strategy, Filter):
        shown = strategy.domain.system.impulse(heard)[::every]
    else:
        dynamics = strategy.domain
        places = [dynamics.names.index(name) for name in exact.names]
        shown = np.array(list(unit_loadings(dynamics, heard)))[::every][:, :, places]
    outputs, law = sent_outputs(strategy, mechanism.noise, sent, np.zeros(shown.shape[:2]))
    covariance = law.covariance(dense(outputs.loadings()))
    covariance += 1e-12 * np.diag(np.diagonal(covariance))  # of sensors without steps
    white = solve_triangular(
        np.linalg.cholesky(covariance), shown.reshape(-1, shown.shape[2]), lower=True
    ).reshape(shown.shape)
    information = np.cumsum(np.einsum("tmi,tmj->tij", white, white), axis=0)
    found = np.full((count, len(exact.names)), math.inf)
    for t, one in enumerate(information):
        if isinstance(strategy, Filter):  # one event, or one jump, at a time
            one = np.diag(np.diagonal(one))
        if np.linalg.matrix_rank(one, hermitian=True) == len(one):
            found[t] = np.sqrt(np.diagonal(np.linalg.inv(one)))
    words = "with the steps of the sensors"
    if count * every < strategy.horizon:
        return replace(
            exact, covariance=sent.factor**2 * exact.covariance, deviations=found, readings=words
        )
    last = information[-1]
    whole = np.diag(found[-1] ** 2) if isinstance(strategy, Filter) else np.linalg.inv(last)
    return replace(exact, covariance=whole, deviations=found, readings=words)
