"""The file that describes a control loop: plant, gains, reference, horizon and promise.

It is TOML (or JSON with the same keys)::

    horizon = 100
    [plant]
    A = [[1, 0.1], [0, 1]]
    B = [[0.005], [0.1]]
    C = [[1, 0]]
    x0 = [-20, 0]                        # secret: only `control plant` needs it
    [controller]
    feedback = [[3.4240, 4.3095]]
    observer = [[0.8266], [0.6973]]
    [reference]
    constant = [1, 0]                    # or samples = [[...], ...], or file = "reference.csv"
    [privacy]
    epsilon = 1.0
    delta = 0.01
    mu = {x1 = 1.0, x2 = 0.5}

The keys, by table; those in brackets may be left out:

==============  ================================================================================
(top)           horizon, and the tables below; [privacy] may be left out
[plant]         A, [B], C, [D], [x0], [state_names], [output_names]; [E], [F] and [private_names]
                for private inputs: ``x(t+1) = A x + B u + E w``, ``y = C x + D u + F w``
[controller]    feedback (K), observer (L), [xhat0]
[reference]     one of constant, samples (horizon + 1 rows) and file (CSV)
[privacy]       [epsilon], [delta], [mu] (one number, one each, by name, or by time), [neighbours]:
                ``time-local`` (default), ``manifold``, ``initial``, ``forward`` or ``input``
                (with E there is no default); [window] (for ``input``: steps in a row, or
                ``inf``); [cost]: ``outputs`` (default) or ``tracking``
==============  ================================================================================

A plant that only sends has no B, no [controller] and no [reference].  A matrix may also be the name
of a CSV file next to it.  Unknown keys are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.control.loop.numbers import shaped
from affinedp.control.loop.plant import Plant, PrivatePlant, plant_of
from affinedp.control.trajectory.dynamics import Dynamics, checked_horizon
from affinedp.control.trajectory.neighbours import Neighbours
from affinedp.errors import AffineDPError
from affinedp.files.documents import read_document
from affinedp.files.matrices import matrix
from affinedp.files.values import check_keys, choice, numbers, promise, section, sizes, texts
from affinedp.files.visible import check_names

Cost = Literal["outputs", "tracking"]
Kind = Neighbours | Literal["forward", "input"]

_KEYS = {
    "": ("horizon", "plant", "controller", "reference", "privacy"),
    "plant": ("A", "B", "C", "D", "x0", "state_names", "output_names", "E", "F", "private_names"),
    "controller": ("feedback", "observer", "xhat0"),
    "reference": ("constant", "samples", "file"),
    "privacy": ("epsilon", "delta", "mu", "neighbours", "window", "cost"),
}


# With E, what is hidden must be said: the state by default would leave the inputs bare.
UNSAID = (
    "[plant] E says how private inputs enter, but [privacy] does not say whether they are hidden: "
    "write neighbours = 'input' to hide them, or neighbours = 'time-local' (or another promise "
    "about the state), which does not hide them"
)


@dataclass(frozen=True, eq=False)
class LoopFile:
    """What a loop file says.

    Attributes
    ----------
    loop : ClosedLoop
        Plant, gains and reference.
    horizon : int
        How many outputs are sent.
    has_start : bool
        Whether the file says where the plant starts (``x0``).
    epsilon, delta : float or None
        The promise that is asked for.
    mu : float or array
        How far an entry of the state (or a private input) moves: one number, one each, or one per
        time and state.
    neighbours : "time-local", "manifold", "initial", "forward", "input" or None
        Theorem 3 of the paper, its Definition 4, x(0) alone, jumps of the state, private inputs;
        None if there are private inputs and no table [privacy] says whether they are hidden.
    cost : "outputs" or "tracking"
        What the least noise is: that on the outputs, or that which disturbs the loop least.
    private : PrivatePlant or None
        How private inputs enter, where they do.
    window : float
        How many steps in a row a private input may change.
    steered : bool
        Whether the plant has inputs; otherwise the controller of ``loop`` sends zeros.
    """

    loop: ClosedLoop
    horizon: int
    has_start: bool
    epsilon: float | None
    delta: float | None
    mu: float | FloatArray = field(repr=False)
    neighbours: Kind | None
    cost: Cost
    private: PrivatePlant | None = None
    window: float = 1
    steered: bool = True

    @property
    def dynamics(self) -> Dynamics:
        """What everyone knows about the trajectory."""
        plant = self.loop.plant
        return Dynamics(plant.A, plant.C, self.horizon, plant.state_names, plant.output_names)


def read_loop(path: str | Path) -> LoopFile:
    """Read and check a loop file.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.

    Returns
    -------
    LoopFile

    Raises
    ------
    AffineDPError
        With the file, the table and the key that is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> text = '''
    ... horizon = 10
    ... [plant]
    ... A = [[1]]
    ... B = [[1]]
    ... C = [[1]]
    ... [controller]
    ... feedback = [[0.5]]
    ... observer = [[0.5]]
    ... [reference]
    ... constant = [2]
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "loop.toml")
    ...     _ = file.write_text(text, encoding="utf-8")
    ...     found = read_loop(file)
    >>> found.horizon, found.loop.plant.state_names, found.neighbours
    (10, ('x1',), 'time-local')
    """
    file = Path(path)
    try:
        return _loop_file(read_document(file), file.parent)
    except AffineDPError as error:
        raise AffineDPError(f"{file}: {error}") from None


def _loop_file(document: Mapping[str, Any], folder: Path) -> LoopFile:
    check_keys(document, "", _KEYS)
    horizon = checked_horizon(_needed(document, "", "horizon"))
    described = section(document, "plant", _KEYS, needed=True)
    plant = _plant(described, folder)
    start = _vector(described, "plant", "x0", plant.states)
    privacy = section(document, "privacy", _KEYS)
    kinds: tuple[Kind, ...] = ("time-local", "manifold", "initial", "forward", "input")
    private = _private(described, plant, folder)
    kind: Kind | None = None
    if "neighbours" in privacy or private is None:
        kind = choice(privacy.get("neighbours", "time-local"), "[privacy] neighbours", kinds)
    elif "privacy" in document:
        raise AffineDPError(UNSAID)
    if kind == "input" and private is None:
        raise AffineDPError("[privacy] neighbours = 'input' needs [plant] E: how do they enter?")
    costs: tuple[Cost, ...] = ("outputs", "tracking")
    cost = choice(privacy.get("cost", "outputs"), "[privacy] cost", costs)
    steered = "B" in described
    if cost == "tracking" and not steered:
        raise AffineDPError("[privacy] cost = 'tracking' needs a loop: [plant] B, [controller]")
    return LoopFile(
        loop=_steered(document, plant, start, horizon, folder)
        if steered
        else _only_sends(document, plant, start),
        horizon=horizon,
        has_start=start is not None,
        epsilon=promise(privacy, "epsilon", math.inf),
        delta=promise(privacy, "delta", 1.0),
        mu=_private_mu(privacy, private)
        if kind == "input"
        else _mu(privacy, plant, horizon, folder),
        neighbours=kind,
        cost=cost,
        private=private,
        window=_window(privacy, kind),
        steered=steered,
    )


def _steered(
    document: Mapping[str, Any],
    plant: Plant,
    start: FloatArray | None,
    horizon: int,
    folder: Path,
) -> ClosedLoop:
    if "controller" not in document:
        raise AffineDPError(
            "the section [controller] is missing; a plant that only sends leaves B out, too"
        )
    reference = section(document, "reference", _KEYS, needed=True)
    return _loop(
        plant,
        start,
        section(document, "controller", _KEYS),
        _reference(reference, plant, horizon, folder),
        folder,
    )


def _only_sends(document: Mapping[str, Any], plant: Plant, start: FloatArray | None) -> ClosedLoop:
    """A loop whose inputs are zero and do nothing."""
    if "controller" in document or "reference" in document:
        raise AffineDPError("[plant] B is missing: how do the controller's inputs enter?")
    n, m = plant.states, plant.outputs
    return ClosedLoop(plant, np.zeros((1, n)), np.zeros((n, m)), np.zeros(n), x0=start)


def _private(found: Mapping[str, Any], plant: Plant, folder: Path) -> PrivatePlant | None:
    if "E" not in found:
        if "F" in found or "private_names" in found:
            raise AffineDPError("[plant] F and private_names belong to private inputs: give E too")
        return None
    E = shaped(_rows(found, "plant", "E", folder), (plant.states, None), "[plant] E")
    count = E.shape[1]
    F = np.zeros((plant.outputs, count))
    if "F" in found:
        F = shaped(_rows(found, "plant", "F", folder), (plant.outputs, count), "[plant] F")
    names = _names(found, "private_names", tuple(f"w{i + 1}" for i in range(count)))
    return PrivatePlant(
        plant.A, E, plant.C, F, plant.dt, plant.state_names, names, plant.output_names
    )


def _private_mu(privacy: Mapping[str, Any], private: PrivatePlant | None) -> float | FloatArray:
    names = () if private is None else private.input_labels
    value = privacy.get("mu", 1.0)
    return sizes(value, "[privacy] mu", names, len(names), "private input")


def _window(privacy: Mapping[str, Any], kind: Kind | None) -> float:
    window = privacy.get("window", 1)
    if "window" in privacy and kind != "input":
        raise AffineDPError("[privacy] window is for neighbours = 'input': leave it out")
    if isinstance(window, bool) or not isinstance(window, int | float):
        raise AffineDPError(f"[privacy] window must be a number of steps or inf, not {window!r}")
    return window


def _plant(found: Mapping[str, Any], folder: Path) -> Plant:
    matrices = [_rows(found, "plant", name, folder) for name in "AC"]
    steered = "B" in found or "D" in found
    inputs = _rows(found, "plant", "B", folder) if steered else np.zeros((len(matrices[0]), 1))
    matrices.insert(1, inputs)
    if "D" in found:
        matrices.append(_rows(found, "plant", "D", folder))
    try:
        plant = plant_of(matrices)
    except AffineDPError as error:
        raise AffineDPError(f"[plant] {error}") from None
    return replace(
        plant,
        state_names=_names(found, "state_names", plant.state_names),
        output_names=_names(found, "output_names", plant.output_names),
    )


def _names(found: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if key not in found:
        return default
    names = tuple(texts(found[key], f"[plant] {key}"))
    if len(names) != len(default):
        raise AffineDPError(f"[plant] {key} must hold {len(default)} names, not {len(names)}")
    if len(set(names)) < len(names) or not all(names):
        raise AffineDPError(f"[plant] {key}: a name is empty or appears twice")
    check_names(names, f"[plant] {key}")
    return names


def _loop(
    plant: Plant,
    start: FloatArray | None,
    found: Mapping[str, Any],
    reference: FloatArray,
    folder: Path,
) -> ClosedLoop:
    try:
        return ClosedLoop(
            plant,
            _rows(found, "controller", "feedback", folder),
            _rows(found, "controller", "observer", folder),
            reference,
            x0=start,
            xhat0=_vector(found, "controller", "xhat0", plant.states),
        )
    except AffineDPError as error:
        text = str(error)
        raise AffineDPError(text if text[0] == "[" else f"[controller] {text}") from None


def _reference(found: Mapping[str, Any], plant: Plant, horizon: int, folder: Path) -> FloatArray:
    """x_r(0), …, x_r(horizon), or one row for all times."""
    given = [key for key in _KEYS["reference"] if key in found]
    if len(given) != 1:
        raise AffineDPError("[reference] takes exactly one of constant, samples and file")
    key, where = given[0], f"[reference] {given[0]}"
    if key == "constant":
        constant = _vector(found, "reference", key, plant.states)
        assert constant is not None
        return constant
    if isinstance(found[key], str) != (key == "file"):
        kind = "the name of a CSV file" if key == "file" else "a list of rows"
        raise AffineDPError(f"{where} must be {kind}")
    table = matrix(found[key], where, folder, plant.state_names)
    rows = table.numbers
    if rows.shape[1] != plant.states or len(rows) <= horizon:
        raise AffineDPError(
            f"{where} holds {rows.shape[0]} rows of {rows.shape[1]} numbers, but must hold "
            f"{horizon + 1} (t = 0, …, {horizon}) of {plant.states}, one per state"
        )
    if table.header is not None:
        if sorted(table.header) != sorted(plant.state_names):
            raise AffineDPError(f"{where}: the header must hold {', '.join(plant.state_names)}")
        rows = rows[:, [table.header.index(name) for name in plant.state_names]]
    return np.asarray(rows[: horizon + 1])


def _mu(privacy: Mapping[str, Any], plant: Plant, horizon: int, folder: Path) -> float | FloatArray:
    where, value = "[privacy] mu", privacy.get("mu", 1.0)
    listed = isinstance(value, list) and value
    if not (isinstance(value, str) or (listed and isinstance(value[0], list))):
        return sizes(value, where, plant.state_names, plant.states, "state")
    rows = matrix(value, where, folder, None).numbers
    if rows.shape != (horizon, plant.states) or rows.min() < 0.0 or rows.max() == 0.0:
        raise AffineDPError(
            f"{where}: {rows.shape[0]}×{rows.shape[1]} numbers; by time there must be "
            f"{horizon}×{plant.states}, none negative, not all zero"
        )
    return rows


def _rows(found: Mapping[str, Any], name: str, key: str, folder: Path) -> FloatArray:
    where = f"[{name}] {key}"
    table = matrix(_needed(found, name, key), where, folder, None)
    if table.header is not None:
        raise AffineDPError(f"{where}: a header means nothing here; remove it")
    return table.numbers


def _vector(found: Mapping[str, Any], name: str, key: str, size: int) -> FloatArray | None:
    if key not in found:
        return None
    where = f"[{name}] {key}"
    return shaped(np.array(numbers(found[key], where)), (size,), where)


def _needed(found: Mapping[str, Any], name: str, key: str) -> Any:
    if key not in found:
        raise AffineDPError(f"{f'[{name}] ' if name else ''}{key} is missing")
    return found[key]
