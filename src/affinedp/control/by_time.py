"""Noise on outputs over time: how large it is, a block of python-control that adds it, what someone
learns who hears all that is sent, and what remains to be learned of an event later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray, within_range
from affinedp.control.gateway_path import sent, sent_always
from affinedp.control.loop_errors import first_of, unit_loadings
from affinedp.control.plant import causal, filter_of
from affinedp.domains.dynamics import ENDLESS
from affinedp.domains.observability import output_gramian, revealed_coordinates
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.exact.numbers import generator_of, real_number, rounded_up, whole_number
from affinedp.exact.systems import doubled_sum
from affinedp.laws.base import Law
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import Inputs
from affinedp.neighbours.trajectory import TrajectoryAdjacency
from affinedp.strategies.base import Sent
from affinedp.strategies.causal import Causal
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import Fresh, Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@within_range
def noise_by_time(mechanism: Mechanism, steps: int | None = None) -> FloatArray:
    """Return the standard deviation of the noise on every output, step by step.

    Noise that was designed for sensors with steps (``resolution=``) comes with all that a gateway
    adds to hide these; with ``every=`` the rows are the steps that are sent.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.
    steps : int, optional
        How many, from the first on; the whole horizon by default.  Stationary noise without an end
        is the same at every step: then one row.

    Returns
    -------
    array, shape (steps, outputs)

    Examples
    --------
    >>> from affinedp.control import design_output_noise, noise_by_time
    >>> m = design_output_noise(([[0.5]], [[1]]), 4, 1.0, 0.01, adjacency="initial")
    >>> (noise_by_time(m) / noise_by_time(m)[0]).ravel().tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    made, how = sent(mechanism)
    if steps is None and isinstance(made, Filter) and made.horizon >= ENDLESS:
        steps = 1
    deviations = made.deviations(mechanism.noise, _steps(made, steps))[:: how.every]
    return np.asarray(np.sqrt(deviations**2 + np.array(how.added)))


def sample_noise(
    mechanism: Mechanism,
    size: int,
    steps: int | None = None,
    seed: int | np.random.Generator | None = None,
) -> FloatArray:
    """Draw noise for simulation.  Never send data with it.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.
    size : int
        How many runs.
    steps : int, optional
        How many steps of each; the whole horizon by default.
    seed : int, Generator or None
        Seed or generator; the same seed gives the same noise.

    Returns
    -------
    array, shape (size, steps, outputs)

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> from affinedp.control.by_time import sample_noise
    >>> m = design_output_noise(([[1]], [[1]]), 50, epsilon=1.0, delta=0.01)
    >>> noise = sample_noise(m, 3, seed=0)
    >>> noise.shape, bool((noise[0] == noise[0, 0]).all())
    ((3, 50, 1), True)
    """
    generator, runs = generator_of(seed), whole_number(size, "size")
    made, how = sent(mechanism)
    found = made.simulated(mechanism.noise, generator, runs, _steps(made, steps))[:, :: how.every]
    if not any(how.added):
        return found
    pure = mechanism.noise.norm != 2  # then what is fresh is Laplace noise, as a gateway draws it
    drawn = (generator.laplace if pure else generator.normal)(size=found.shape)
    return found + np.sqrt(np.array(how.added) / (2 if pure else 1)) * drawn


def noise_block(
    mechanism: Mechanism,
    steps: int | None = None,
    seed: int | np.random.Generator | None = None,
    dt: float | bool = True,
) -> Any:
    """Return a python-control block that adds simulated noise to y(t).

    The noise is drawn once, here, so that the block is a function of the time: a block that drew
    in its output function would look like an algebraic loop.  It is simulation noise; real data
    goes through :class:`~affinedp.control.Gateway`.

    Parameters
    ----------
    mechanism : Mechanism
        Of noise on the outputs of a system.
    steps : int, optional
        How long the simulation is; the whole horizon by default.  After that the block refuses.
    seed : int, Generator or None
        Seed or generator; the same seed gives the same noise.
    dt : float or True
        Sampling time; True leaves it open.

    Returns
    -------
    control.NonlinearIOSystem
        Discrete-time with inputs ``y…`` and outputs ``yhat…``.

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> from affinedp.control.by_time import noise_block
    >>> m = design_output_noise(([[1]], [[1]]), 50, epsilon=1.0, delta=0.01)
    >>> noise_block(m, seed=0).ninputs
    1
    """
    sent_always(mechanism)
    step = 1.0 if dt is True else real_number(dt, "dt", positive=True)
    noise = sample_noise(mechanism, 1, steps, seed)[0]
    names = causal(mechanism).step_names
    try:
        import control
    except ImportError:
        raise MissingExtraError("control", "control") from None

    def add(t: float, x: Any, u: Any, params: Any) -> Any:
        index = round(t / step)
        if not 0 <= index < len(noise):
            raise AffineDPError(
                f"the noise ends after {len(noise)} steps; time {t:g} is past the horizon"
            )
        return u + noise[index]

    return control.NonlinearIOSystem(
        None, add, inputs=list(names), outputs=[f"{name}hat" for name in names], dt=dt,
        name="private_outputs",
    )  # fmt: skip


def _steps(strategy: Causal, steps: int | None) -> int:
    if steps is None:
        return strategy.horizon
    if whole_number(steps, "steps") > strategy.horizon:
        raise AffineDPError(f"{steps} steps are more than the horizon of {strategy.horizon}")
    return int(steps)


def leak_after(mechanism: Mechanism, steps: int) -> float:
    """Return which share of s² an event can still tell, some steps after it.

    It is about someone who saw everything before.  Who starts to watch then learns more, so do
    not give budget back by this number.

    Parameters
    ----------
    mechanism : Mechanism
        For all time, with window 1.
    steps : int
        How many outputs were seen since the event.

    Returns
    -------
    float

    Examples
    --------
    >>> from affinedp.control import design_input_noise, leak_after
    >>> m = design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4)
    >>> bool(leak_after(m, 96) < 0.01)                           # a day of quarters of an hour
    True
    """
    made, mu = _proved(mechanism)
    count = whole_number(steps, "steps")
    s = mechanism.guarantee.sensitivity * made.scale
    later = max(mu[i] ** 2 * made.energy.later(i, count) for i in range(len(mu)))
    return float(min(1.0, later / s**2))


def events_sensitivity(mechanism: Mechanism, events: int, apart: int) -> float:
    """Return a bound on the sensitivity to several events that are some steps apart.

    Far apart, K events cost little more than √K times one: this says how much.  For events that
    are close together K times one is always right, and the bound is never more.
    (``‖Σ_j d(· − t_j)‖²`` has the products ``R_k`` of responses at lag k, and ``|R_k|`` is at most
    ‖d‖ times the root of the energy that is still to come k steps after an event.)

    Parameters
    ----------
    mechanism : Mechanism
        For all time, with window 1.
    events : int
        How many events, on any private inputs.
    apart : int
        At least so many steps between two of them.

    Returns
    -------
    float

    Examples
    --------
    >>> from affinedp.control import design_input_noise, events_sensitivity
    >>> m = design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4)
    >>> ratio = events_sensitivity(m, 30, apart=96) / m.guarantee.sensitivity
    >>> 30**0.5 < ratio < 6.2
    True
    """
    made, mu = _proved(mechanism)
    proof, inputs = made.energy, range(len(mu))
    count, gap = whole_number(events, "events"), whole_number(apart, "apart")
    largest = max(mu[i] ** 2 * rounded_up(proof.of(i)) for i in inputs)
    total = float(count)
    for j in range(1, count):
        later = max(mu[i] ** 2 * proof.later(i, j * gap) for i in inputs)
        share = math.sqrt(later / largest)
        total += 2 * (count - j) * share
        if share < 1e-12:  # all that follow are smaller
            total += 2 * share * count * (count - j)
            break
    s = mechanism.guarantee.sensitivity
    return s * min(float(count), math.sqrt(total) * (1 + 1e-12))


def _proved(mechanism: Mechanism) -> tuple[Filter, FloatArray]:
    made, neighbours = filter_of(mechanism), mechanism.adjacency
    if made.domain.horizon is not None or type(neighbours) is not Inputs or neighbours.window != 1:
        raise AffineDPError("this is for noise for all time that hides single steps (window=1)")
    return made, neighbours.mu


# Steps over which learning is followed.
MOST_STEPS = 200
# A covariance that changes by less in a step has settled, relative to its size.
SETTLED = 1e-13
# Steps after which it is taken for settled.
LONGEST = 100_000


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
        Standard deviations after 1, 2, … outputs, of an event since it came; inf where nothing is
        known yet.  They are followed over the first 200 outputs that are sent.
    readings : str
        How readings were taken: for exact, or with the steps of the sensors and what hides them.
    steps : int
        How many steps are sent in all.
    """

    names: tuple[str, ...]
    mu: FloatArray
    covariance: FloatArray = field(repr=False)
    deviations: FloatArray = field(repr=False)
    readings: str = "readings taken for exact"
    steps: int = 0

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
            xlabel=f"step{first_of(len(heard), self.steps)}",
            ylabel="standard deviation (own units)", yscale="log",
            title=f"What an eavesdropper learns, {self.readings}",
        )  # fmt: skip
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2)
        return figure


@within_range
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
    strategy = causal(mechanism)
    if mechanism.design.sent is not None:
        return _with_steps(mechanism, sent(mechanism)[1])
    adjacency = mechanism.adjacency
    steps = min(strategy.horizon, MOST_STEPS)
    if isinstance(strategy, Filter):
        assert isinstance(adjacency, Inputs)
        response = strategy.whitened.floats().impulse(steps) / strategy.scale
        energy = np.cumsum((response**2).sum(axis=1), axis=0)
        whole = strategy.whitened.floats().energies(strategy.domain.horizon) / strategy.scale**2
        with np.errstate(divide="ignore"):
            found = 1 / np.sqrt(energy)
        what = "a jump of" if adjacency.forward else "an event on"
        names = tuple(f"{what} {name}" for name in strategy.domain.names)
        return Eavesdropper(names, adjacency.mu, np.diag(1 / whole), found, steps=strategy.horizon)
    assert isinstance(adjacency, TrajectoryAdjacency)
    assert isinstance(strategy, Trajectory | Fresh)
    dynamics = strategy.domain
    places = revealed_coordinates(dynamics, output_gramian(dynamics)).places
    names = tuple(dynamics.names[place] for place in places)
    mu = adjacency.mu.max(axis=0)[places]
    rows = np.array(list(unit_loadings(dynamics, steps)))[:, :, places]
    if isinstance(strategy, Trajectory):
        found = np.full((steps, len(places)), math.inf)
        covariance = mechanism.noise.covariance(strategy.start)[np.ix_(places, places)]
        for t in range(steps):  # all is known as soon as the outputs tell x(0), and never better
            if np.linalg.matrix_rank(rows[: t + 1].reshape(-1, len(places))) == len(places):
                found[t:] = np.sqrt(np.diagonal(covariance))
                break
        return Eavesdropper(names, mu, covariance, found, steps=strategy.horizon)
    variance = mechanism.noise.variance * strategy.sigma**2
    found = _followed(rows / math.sqrt(variance), 0.0)[0]
    whole = output_gramian(dynamics)[np.ix_(places, places)]
    inverse = np.asarray(np.linalg.inv(whole) * variance, dtype=np.float64)
    return Eavesdropper(names, mu, inverse, found, steps=strategy.horizon)


def _with_steps(mechanism: Mechanism, how: Sent) -> Eavesdropper:
    """The same where noise is enlarged for steps of sensors, and fresh noise comes beside it."""
    exact = eavesdropper(mechanism.with_design(sent=None))
    strategy = causal(mechanism)
    if isinstance(strategy, Filter):
        told, whole = _told_of_events(strategy, mechanism.noise, how)
        with np.errstate(divide="ignore"):
            found, last = 1 / np.sqrt(told), np.diag(1 / whole)
    else:  # one draw is x(0) with noise, however long it lasts; what is fresh is averaged away
        assert isinstance(strategy, Trajectory | Fresh)
        places = [strategy.domain.names.index(name) for name in exact.names]
        drawn, fresh = np.zeros_like(exact.covariance), np.array(how.added)
        if isinstance(strategy, Fresh):
            fresh = fresh + how.factor**2 * mechanism.noise.variance * strategy.sigma**2
        else:
            drawn = how.factor**2 * exact.covariance
        rows = islice(unit_loadings(strategy.domain, strategy.horizon), 0, None, how.every)
        white = np.array([one[:, places] for one in rows]) / np.sqrt(fresh)[:, None]
        found = _followed(white[:MOST_STEPS], drawn)[0]
        last = np.linalg.inv(np.einsum("tmi,tmj->ij", white, white)) + drawn
    words, steps = "with the steps of the sensors", -(-strategy.horizon // how.every)
    return replace(exact, covariance=last, deviations=found, readings=words, steps=steps)


def _told_of_events(strategy: Filter, law: Law, how: Sent) -> tuple[FloatArray, FloatArray]:
    """What is told of one event on each private input: after 1, 2, … outputs, and by all.

    It is the inverse of a variance.  A Kalman filter predicts the noise from what was heard before;
    an event tells by what it adds to the surprises.  Noise that starts at rest is predicted best
    at the first step; stationary noise by who has listened for ever, and no other learns more.
    """
    made, plant, every = strategy.noise, strategy.domain.system, how.every
    count, size = -(-strategy.horizon // every), how.factor * strategy.scale
    size *= math.sqrt(law.variance)
    # from one step that is sent to the next
    powers = [np.linalg.matrix_power(made.A, k) for k in range(every)]
    A, C = made.A @ powers[-1], made.C
    B = size * np.hstack([power @ made.B for power in powers[::-1]])
    D = size * np.pad(made.D, ((0, 0), (0, made.inputs * (every - 1))))
    fresh = D @ D.T + np.diag(how.added)

    def predicted(P: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The precision of a surprise, the gain, and the covariance of the memory after it."""
        precision: FloatArray = np.asarray(
            np.linalg.pinv(C @ P @ C.T + fresh, hermitian=True), dtype=np.float64
        )
        crossed = A @ P @ C.T + B @ D.T
        gain = crossed @ precision
        return precision, gain, A @ P @ A.T + B @ B.T - gain @ crossed.T

    P = np.zeros_like(A)
    if strategy.start is not None:
        P = size**2 * strategy.start @ strategy.start.T
        for _ in range(LONGEST):
            P, last = predicted(P)[2], P
            if _near(P, last):
                break
    # events 0, 1, … steps before one that is sent, side by side
    before = [np.linalg.matrix_power(plant.A, k) @ plant.B for k in range(every)]
    step, width = np.linalg.matrix_power(plant.A, every), ((0, 0), (0, plant.inputs * (every - 1)))
    state = np.hstack([np.zeros_like(plant.B), *before[:-1]])
    direct, enters = np.pad(plant.D, width), np.pad(before[-1], width)
    expected = np.zeros((len(A), state.shape[1]))
    told: list[FloatArray] = []
    total, settled = np.zeros(state.shape[1]), False
    while len(told) < min(count, MOST_STEPS if settled else LONGEST):
        precision, gain, after = predicted(P)
        surprise = plant.C @ state + direct - C @ expected
        total = total + (surprise * (precision @ surprise)).sum(axis=0)
        told.append(total)
        state, expected = step @ state + enters, A @ expected + gain @ surprise
        direct, enters = np.zeros_like(direct), np.zeros_like(enters)
        P, settled = after, _near(after, P)
    both = np.vstack([state, expected])
    shows = np.hstack([plant.C, -C])
    ahead = np.block([[step, np.zeros((len(step), len(A)))], [gain @ plant.C, A - gain @ C]])
    rest = doubled_sum(ahead.T, shows.T @ precision @ shows, count - len(told))
    told.append(total + (both * (rest @ both)).sum(axis=0))
    best = np.array(told).reshape(len(told), every, -1).max(axis=1)
    return best[:MOST_STEPS][:count], best[-1]


def _near(P: FloatArray, last: FloatArray) -> bool:
    return bool(np.abs(P - last).max(initial=0.0) <= SETTLED * np.abs(P).max(initial=0.0))


def _followed(rows: FloatArray, drawn: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Deviations of the best estimates after every output, and the last covariance.

    ``rows`` are in units of the fresh noise, ``drawn`` is the covariance of what is drawn once.
    """
    information = np.cumsum(np.einsum("tmi,tmj->tij", rows, rows), axis=0)
    found = np.full(information.shape[:2], math.inf)
    covariance = np.full(information.shape[1:], math.inf)
    for t, one in enumerate(information):
        if np.linalg.matrix_rank(one, hermitian=True) == len(one):
            covariance = np.linalg.inv(one) + drawn
            found[t] = np.sqrt(np.diagonal(covariance))
    return found, covariance
