"""Private inputs of a plant: who is a neighbour when inputs, loads or occupancy are the secret."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.dynamics import Dynamics, Plant, dynamics_of, seen_system
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.neighbours.adjacency import (
    LISTED,
    Adjacency,
    Columns,
    Distances,
    checked_mu,
    mu_words,
    positions,
)
from affinedp.parts import digest

SMALLEST, LARGEST = 1e-100, 1e100
MOST_WINDOW = 2000


@dataclass(frozen=True, eq=False)
class Inputs(Adjacency):
    """One private input changes for a while, the future follows, and the past stays."""

    kind = "inputs"
    domain: Plant  # from the private inputs to the outputs, and how many of these are sent
    # how far each private input moves: the root of the sum of squares over the window; shape (m,)
    mu: FloatArray
    window: int | None = 1  # how many steps in a row may change; None for any number
    forward: bool = False  # whether what moves are entries of the state, which jump

    def __post_init__(self) -> None:
        mu = _in_range(self.mu, self.domain.names)
        if mu.shape != np.shape(self.mu) or np.any(mu == 0):
            raise AffineDPError("mu must be one positive number for each private input")
        object.__setattr__(self, "mu", mu)
        if self.window is not None:
            checked_window(self.window)

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        what = "entry of the state" if self.forward else "private input"
        names, moved = self.domain.names, mu_words(self.mu)
        shown = ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
        if self.window == 1:
            moves = f"{'jumps' if self.forward else 'moves'} by at most {moved} at one step"
        elif self.window is None:
            moves = f"moves at any steps, by at most {moved} in the root of the sum of squares"
        else:
            moves = (
                f"moves at up to {self.window} steps in a row, by at most {moved} in the root of "
                "the sum of squares"
            )
        times = (
            "at any time, also before the first output"
            if self.domain.horizon is None
            else f"within the {self.domain.horizon:,} steps that are sent"
        )
        return (
            f"{'forward' if self.forward else 'input'}: one {what} ({shown}) {moves}, {times}; "
            "later outputs follow from the dynamics, all that came before stays, and so do all "
            "other inputs"
        )

    @property
    def unit(self) -> str:
        """What moves between neighbours, as a ledger knows it."""
        if self.forward:
            return "one jump of a state entry (forward)"
        if self.window == 1:
            return "one private input at one step"
        length = "any number of" if self.window is None else f"{self.window}"
        return f"one private input over a window of {length} steps"

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours of the same dynamics."""
        plant = self.domain
        said = (self.forward, plant.names, self.window, plant.horizon)
        return digest(self.kind, said, plant.system.A, plant.system.B, self.mu)

    @property
    def steps_to_remember(self) -> int:
        """Over how many outputs of a horizon what the plant remembers of an event can show.

        An input at the first step shows there at most through F.  A state that jumps at the first
        step shows there at once, so that all outputs count.
        """
        return int(self.domain.horizon or 1) - (not self.forward)

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Refuse: a private input may move at any time."""
        raise AffineDPError(
            "private inputs move at any of many steps, which are not listed: noise for them is a "
            "filter, from design_input_noise"
        )


def private_inputs(
    system: Any,
    mu: Distances,
    window: float = 1,
    horizon: int | None = None,
    inputs: Any = None,
) -> Inputs:
    """Return the neighbours that differ in private inputs of a system."""
    dynamics = dynamics_of(system, 1)
    A, C = dynamics.A, dynamics.C
    if A.ndim != 2 or C.ndim != 2:
        raise AffineDPError("stationary noise needs matrices that do not change over time")
    if hasattr(system, "input_labels"):
        B, D, names = system.B, system.D, tuple(map(str, system.input_labels))
        if all(name == f"u[{i}]" for i, name in enumerate(names)):
            names = tuple(f"w{i + 1}" for i in range(len(names)))
    elif len(system) < 3:
        raise AffineDPError(
            "say how the private inputs enter: matrices (A, E, C) or (A, E, C, F), or a "
            "control.StateSpace whose inputs they are"
        )
    else:
        B, D = system[1], system[3] if len(system) == 4 else None
        names = ()
    E = real_array(B, "E", 2)
    F = np.zeros((len(C), E.shape[1])) if D is None else real_array(D, "F", 2)
    names = names or tuple(f"w{i + 1}" for i in range(E.shape[1]))
    if E.shape[0] != len(A) or F.shape != (len(C), E.shape[1]) or E.shape[1] == 0:
        raise AffineDPError(
            f"E has shape {E.shape} and F {F.shape}, but there are {len(A)} states and {len(C)} "
            "outputs"
        )
    alone = isinstance(inputs, str) or not isinstance(inputs, Iterable)
    given = range(len(names)) if inputs is None else [inputs] if alone else inputs
    chosen = positions(given, names, "input")
    if not chosen or len(set(chosen)) < len(chosen):
        raise AffineDPError("inputs must name some inputs, each once")
    entering = E[:, chosen], F[:, chosen], [names[i] for i in chosen]
    return _inputs(dynamics, entering, mu, horizon, window=checked_window(window))


def forward_states(system: Any, mu: Distances, horizon: int | None = None) -> Inputs:
    """Return the neighbours of which one state entry jumps, and only the future follows."""
    dynamics = dynamics_of(system, 1)
    if dynamics.time_varying:
        raise AffineDPError("stationary noise needs matrices that do not change over time")
    n, p = dynamics.states, dynamics.outputs
    entering = np.eye(n), np.zeros((p, n)), dynamics.state_names
    return _inputs(dynamics, entering, mu, horizon, forward=True)


def _inputs(
    dynamics: Dynamics,
    entering: tuple[FloatArray, FloatArray, Sequence[str]],
    mu: Distances,
    horizon: int | None,
    **how: Any,
) -> Inputs:
    """Neighbours that differ in what enters states and outputs by E and F, as far as it moves."""
    E, F, names = entering
    distances = _in_range(mu, names)
    moved = np.flatnonzero(distances > 0)
    system = seen_system(dynamics.A, E[:, moved], dynamics.C, F[:, moved])
    moving = tuple(names[i] for i in moved.tolist())
    plant = Plant(system, moving, dynamics.output_names, horizon)
    return Inputs(plant, distances[moved], **how)


def _in_range(mu: Distances, names: Sequence[str]) -> FloatArray:
    """How far each of some named things moves, in numbers whose squares are doubles."""
    values = checked_mu(mu, names)
    some = values[values > 0]
    if some.max() > LARGEST or some.min() < SMALLEST:
        raise AffineDPError(f"mu must lie between {SMALLEST:g} and {LARGEST:g}; use other units")
    return values


def checked_window(window: float) -> int | None:
    """Return a window as a number of steps, None for any number."""
    if isinstance(window, float) and math.isinf(window) and window > 0:
        return None
    if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
        raise AffineDPError(f"window must be a number of steps, at least 1, or inf, not {window!r}")
    if window > MOST_WINDOW:
        raise AffineDPError(
            f"a window of {window} steps is longer than the {MOST_WINDOW} that are handled; inf "
            "(any number of steps) costs no more than input perturbation"
        )
    return int(window)
