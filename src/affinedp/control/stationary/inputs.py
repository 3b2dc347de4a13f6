"""Private inputs of a plant: who is a neighbour when inputs, loads or occupancy are the secret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.stationary.filters import Filter
from affinedp.control.trajectory.choose import Distances, named
from affinedp.domains.dynamics import checked_horizon, dynamics_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.neighbours.adjacency import mu_words
from affinedp.parts import digest

SMALLEST, LARGEST = 1e-100, 1e100
MOST_WINDOW = 2000


@dataclass(frozen=True, eq=False)
class PrivateInputs:
    """One private input changes for a while, the future follows, and the past stays.

    Attributes
    ----------
    plant : Filter
        From the private inputs w to the outputs: ``x(t+1) = A x + E w``, ``y = C x + F w``.
    mu : array, shape (m,)
        How far each private input moves: the root of the sum of squares over the window.
    window : int or None
        How many steps in a row may change; None for any number.
    horizon : int or None
        How many outputs are sent; None for all time.
    kind : str
        ``"input"``, or ``"forward"`` for jumps of state entries.
    input_names, output_names : tuples of str
        What to call them.
    """

    plant: Filter = field(repr=False)
    mu: FloatArray
    window: int | None
    horizon: int | None
    kind: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def __post_init__(self) -> None:
        self.mu.flags.writeable = False

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        what = "entry of the state" if self.kind == "forward" else "private input"
        shown = ", ".join(self.input_names[:6]) + (" …" if len(self.input_names) > 6 else "")
        moved = mu_words(self.mu)
        if self.window == 1:
            moves = (
                f"{'jumps' if self.kind == 'forward' else 'moves'} by at most {moved} at one step"
            )
        elif self.window is None:
            moves = f"moves at any steps, by at most {moved} in the root of the sum of squares"
        else:
            moves = (
                f"moves at up to {self.window} steps in a row, by at most {moved} in the root of "
                "the sum of squares"
            )
        times = (
            "at any time, also before the first output"
            if self.horizon is None
            else f"within the {self.horizon:,} steps that are sent"
        )
        return (
            f"{self.kind}: one {what} ({shown}) {moves}, {times}; later outputs follow from the "
            "dynamics, all that came before stays, and so do all other inputs"
        )

    @property
    def steps_to_remember(self) -> int:
        """Over how many outputs of a horizon what the plant remembers of an event can show.

        An input at the first step shows there at most through D.  A state that jumps at the first
        step shows there at once, so that all outputs count.
        """
        return int(self.horizon or 1) - (self.kind != "forward")

    @property
    def theorem(self) -> str:
        """What the promise rests on."""
        return (
            "Theorem 1 on every stretch of time (the whitened energy of the response, certified "
            "in rational arithmetic), and the feedback lemma for inputs that follow from what was "
            "sent"
        )

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours of the same dynamics."""
        names = repr((self.kind, self.input_names, self.window, self.horizon))
        return digest("private inputs", names, self.plant.A, self.plant.B, self.mu)

    @property
    def unit(self) -> str:
        """What moves between neighbours, as a ledger knows it."""
        if self.kind == "forward":
            return "one jump of a state entry (forward)"
        if self.window == 1:
            return "one private input at one step"
        length = "any number of" if self.window is None else f"{self.window}"
        return f"one private input over a window of {length} steps"


def private_inputs(
    system: Any,
    mu: Distances,
    window: float = 1,
    horizon: int | None = None,
    inputs: Sequence[int | str] | None = None,
) -> PrivateInputs:
    """Return the neighbours that differ in private inputs of a system.

    Parameters
    ----------
    system : StateSpace, or (A, E, C) or (A, E, C, F)
        A discrete-time system of python-control, or its matrices.
    mu : float, array_like or mapping
        How far a private input moves: one number, one per private input, or by name.
    window : int or inf
        How many steps in a row may change.
    horizon : int, optional
        How many outputs are sent; for all time unless given.
    inputs : sequence of int or str, optional
        Which inputs of the system are private, by number or name; all unless given.

    Examples
    --------
    >>> private_inputs(([[0.9]], [[1.0, 0.5]], [[1.0]]), {"w1": 1, "w2": 0.1}).mu.tolist()
    [1.0, 0.1]
    """
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
    chosen = _chosen(inputs, names)
    names = tuple(names[i] for i in chosen)
    distances = checked_mu(mu, names)
    moved = np.flatnonzero(distances > 0)
    chosen, names = [chosen[i] for i in moved], tuple(names[i] for i in moved)
    return PrivateInputs(
        _seen(Filter.of(A, E[:, chosen], C, F[:, chosen])),
        distances[moved],
        checked_window(window),
        None if horizon is None else checked_horizon(horizon),
        "input",
        names,
        dynamics.output_names,
    )


def forward_states(system: Any, mu: Distances, horizon: int | None = None) -> PrivateInputs:
    """Return the neighbours of which one state entry jumps, and only the future follows.

    Parameters
    ----------
    system : StateSpace, or (A, C), (A, B, C) or (A, B, C, D)
        The dynamics.
    mu : float, array_like or mapping
        How far a state entry jumps: one number, one per state, or by name.
    horizon : int, optional
        How many outputs are sent; for all time unless given.
    """
    dynamics = dynamics_of(system, 1)
    if dynamics.time_varying:
        raise AffineDPError("stationary noise needs matrices that do not change over time")
    n, p = dynamics.states, dynamics.outputs
    distances = checked_mu(mu, dynamics.state_names)
    moved = np.flatnonzero(distances > 0)
    return PrivateInputs(
        _seen(Filter.of(dynamics.A, np.eye(n)[:, moved], dynamics.C, np.zeros((p, len(moved))))),
        distances[moved],
        1,
        None if horizon is None else checked_horizon(horizon),
        "forward",
        tuple(dynamics.state_names[i] for i in moved),
        dynamics.output_names,
    )


def checked_mu(mu: Distances, names: Sequence[str]) -> FloatArray:
    """Return how far each of some named things moves: one number, one each, or by name.

    Parameters
    ----------
    mu : float, array_like or mapping
        Names that a mapping leaves out do not move.
    names : sequence of str
        What there is.
    """
    values = real_array(named(mu, names), "mu")
    if values.shape not in ((), (len(names),)):
        raise AffineDPError(
            f"mu has shape {values.shape}; give one number, one for each of {', '.join(names)}, "
            "or a mapping from names to numbers"
        )
    if np.any(values < 0) or not np.any(values > 0):
        raise AffineDPError("mu must be positive (zero at most for what is not private)")
    some = values[values > 0]
    if some.max() > LARGEST or some.min() < SMALLEST:
        raise AffineDPError(f"mu must lie between {SMALLEST:g} and {LARGEST:g}; use other units")
    return np.array(np.broadcast_to(values, (len(names),)))


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


def _seen(plant: Filter) -> Filter:
    """Only the states that inputs reach and outputs show, by the zeros of the matrices: exact."""
    moves = plant.A != 0
    reached, shown = (plant.B != 0).any(axis=1), (plant.C != 0).any(axis=0)
    for _ in range(plant.order):
        reached = reached | moves[:, reached].any(axis=1)
        shown = shown | moves[shown].any(axis=0)
    kept = np.flatnonzero(reached & shown)
    return Filter.of(
        plant.A[np.ix_(kept, kept)].reshape(len(kept), len(kept)),
        plant.B[kept].reshape(len(kept), plant.inputs),
        plant.C[:, kept].reshape(plant.outputs, len(kept)),
        plant.D,
    )


def _chosen(inputs: Sequence[int | str] | None, names: Sequence[str]) -> list[int]:
    if inputs is None:
        return list(range(len(names)))
    if isinstance(inputs, str):
        inputs = [inputs]
    found = []
    for one in inputs:
        if isinstance(one, str) and one in names:
            found.append(list(names).index(one))
        elif isinstance(one, int | np.integer) and 0 <= one < len(names):
            found.append(int(one))
        else:
            raise AffineDPError(f"there is no input {one!r}; there are {', '.join(names)}")
    if not found or len(set(found)) < len(found):
        raise AffineDPError("inputs must name some inputs, each once")
    return found
