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
(top)           horizon, and the tables below; [privacy] and what follows may be left out
[plant]         A, [B], C, [D], [x0], [state_names], [output_names]; [E], [F] and [private_names]
                for private inputs: ``x(t+1) = A x + B u + E w``, ``y = C x + D u + F w``
[controller]    feedback (K), observer (L), [xhat0]
[reference]     one of constant, samples (horizon + 1 rows) and file (CSV)
[privacy]       [epsilon], [delta], [mu] (one number, one each, by name, or by time), [adjacency]:
                ``time-local`` (default), ``manifold``, ``initial``, ``forward`` or ``input``
                (with E there is no default); [window] (for ``input``: steps in a row, or
                ``inf``); [cost]: ``outputs`` (default) or ``tracking``
[sensors]       for design, gateway and plant: [resolution] as the option --resolution, which comes
                first (a number, one per output, or a text such as "dither:6:0.1" or "exact");
                [range] of readings, with public limits that keep it, [start] of x(0) and
                [inputs]; each is [low, high] for all entries, or [[lows], [highs]]
                ([B], [D] if disturbances enter too); [measurement_error], [fresh_noise] (one
                number, or one per output), [every]
[mqtt]          topics [measurements], [noisy], [inputs]; seconds [wait] (for brokers at the
                start), [linger] (after the last step), [resend], [patience] (without an answer)
==============  ================================================================================

A plant that only sends has no B, no [controller] and no [reference].  A matrix may also be the name
of a CSV file next to it.  Unknown keys are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.closed_loop import ClosedLoop
from affinedp.control.gateway_path import Sending, check_useful
from affinedp.control.plant import SteeredPlant, plant_of, shaped
from affinedp.control.sensors import EXACT, Reach, ends, read_resolution
from affinedp.domains.dynamics import Dynamics, checked_horizon, dynamics_of
from affinedp.errors import AffineDPError
from affinedp.files.documents import Document, Field, FileKind
from affinedp.files.values import (
    a,
    as_written,
    at_least,
    check_names,
    numbers,
    one_of,
    sizes,
    texts,
)
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.inputs import Inputs, forward_states, private_inputs
from affinedp.neighbours.trajectory import Neighbours, TrajectoryAdjacency

Cost = Literal["outputs", "tracking"]
Kind = Neighbours | Literal["forward", "input"]

_MATRIX = Field(as_written)
_LOOP = FileKind(
    {
        "": {"horizon": Field(as_written, needed="how many outputs are sent")},
        "plant": {
            "A": Field(as_written, needed="the matrix of x(t+1) = A x(t) + …"),
            "B": _MATRIX,
            "C": Field(as_written, needed="the matrix of y(t) = C x(t) + …"),
            "D": _MATRIX,
            "E": _MATRIX,
            "F": _MATRIX,
            "x0": Field(numbers),
            "state_names": Field(texts),
            "output_names": Field(texts),
            "private_names": Field(texts),
        },
        "controller": {"feedback": _MATRIX, "observer": _MATRIX, "xhat0": Field(numbers)},
        "reference": {
            "constant": Field(numbers),
            "samples": Field(a("list of rows")),
            "file": Field(a("name of a CSV file")),
        },
        "privacy": {
            "epsilon": Field(at_least()),
            "delta": Field(at_least(below=1.0)),
            "mu": Field(as_written, 1.0),
            "adjacency": Field(one_of("time-local", "manifold", "initial", "forward", "input")),
            "window": Field(a("number")),
            "cost": Field(one_of("outputs", "tracking"), "outputs"),
        },
        "sensors": {
            "resolution": Field(a("number", "list", "text")),
            "range": Field(a("pair [low, high]")),
            "start": Field(a("pair [low, high]")),
            "inputs": Field(a("pair [low, high]")),
            "B": _MATRIX,
            "D": _MATRIX,
            "measurement_error": Field(a("number", "list")),
            "fresh_noise": Field(a("number", "list")),
            "every": Field(a("whole number")),
        },
        "mqtt": {
            "measurements": Field(a("text"), "plant/y"),
            "noisy": Field(a("text"), "cloud/y"),
            "inputs": Field(a("text"), "cloud/u"),
            "wait": Field(at_least(), 60.0),
            "linger": Field(at_least(), 10.0),
            "resend": Field(at_least(0.01), 1.0),
            "patience": Field(at_least(0.01), 60.0),
        },
    },
    needed={"plant": ""},
)

# With E, what is hidden must be said: the state by default would leave the inputs bare.
UNSAID = (
    "[plant] E says how private inputs enter, but [privacy] does not say whether they are hidden: "
    "write adjacency = 'input' to hide them, or adjacency = 'time-local' (or another promise "
    "about the state), which does not hide them"
)


@dataclass(frozen=True, eq=False)
class LoopFile:
    """What a loop file says."""

    # plant, gains and reference
    loop: ClosedLoop
    # how many outputs are sent
    horizon: int
    # whether the file says where the plant starts (``x0``)
    has_start: bool
    # epsilon, delta: The promise that is asked for
    epsilon: float | None
    delta: float | None
    # how far an entry of the state (or a private input) moves: one number, one each, or one
    # per time and state
    mu: float | FloatArray = field(repr=False)
    # theorem 3 of the paper, its Definition 4, x(0) alone, jumps of the state, private
    # inputs; None if there are private inputs and no table [privacy] says whether they are
    # hidden
    adjacency: Kind | None
    # what the least noise is: that on the outputs, or that which disturbs the loop least
    cost: Cost
    # how private inputs enter, where they do
    private: SteeredPlant | None = None
    # how many steps in a row a private input may change
    window: float = 1
    # whether the plant has inputs; otherwise the controller of ``loop`` sends zeros
    steered: bool = True
    # arguments of a gateway: steps, range, reach and errors of the sensors, which steps are sent
    sensors: Mapping[str, Any] = field(default_factory=dict)
    # topics, and seconds that processes wait
    mqtt: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dynamics(self) -> Dynamics:
        """What everyone knows about the trajectory."""
        return dynamics_of(self.loop.plant, self.horizon)

    @property
    def limits(self) -> tuple[FloatArray, FloatArray] | None:
        """Between which the controller's inputs lie, where the file says so of the plant's B."""
        reach, own = self.sensors.get("reach"), self.loop.plant.B
        if reach is None or not self.steered:
            return None
        B, count = np.asarray(reach.B), own.shape[1]
        if not np.array_equal(B[:, :count], own):
            return None
        low, high = ends(reach.inputs, "[sensors] inputs", B.shape[1])
        return low[:count], high[:count]

    def check_noise(self, noise: Mechanism) -> None:
        """Refuse noise that was made for another plant, or keeps less than the file asks for."""
        if not self._is_plant_of(noise):
            raise AffineDPError(
                "this noise was made for another plant than that of the loop: what it hides there "
                "may be bare here. Design it for this loop"
            )
        epsilon, delta, kind = self.epsilon, self.delta or 0.0, _kind_of(noise.adjacency)
        if epsilon is None:
            return
        if kind != self.adjacency or not noise.guarantee.holds(epsilon, delta):
            raise AffineDPError(
                f"the loop asks for ε = {epsilon:g} at δ = {delta:g} about {self.adjacency} "
                f"neighbours, which this noise, made for {kind} ones, does not keep"
            )

    def check_sensors(self, noise: Mechanism) -> None:
        """Refuse a range that measurements can leave, or that this noise makes useless."""
        if "range" in self.sensors:
            sent = noise.design.sent
            steps = EXACT if sent is None or not sent.resolution else None  # None: as designed
            sending = Sending.of(noise, steps, limits=self.sensors["range"], horizon=self.horizon)
            try:
                sending.check_range(self.sensors.get("reach"))
                check_useful(sending, sending.plan())
            except AffineDPError as error:
                raise AffineDPError(f"[sensors] range: {error}") from None

    def _is_plant_of(self, noise: Mechanism) -> bool:
        """Whether the noise was made for the very numbers of the plant."""
        private = noise.adjacency
        if isinstance(private, TrajectoryAdjacency):
            made = private.domain
            pairs = [(made.A, self.dynamics.A), (made.C, self.dynamics.C)]
            return all(np.array_equal(*pair) for pair in pairs)
        if not isinstance(private, Inputs):
            return False
        mu = dict(zip(private.domain.names, private.mu.tolist()))
        try:
            if private.forward:
                ours = forward_states(self.dynamics, mu)
            else:
                ours = private_inputs(self.private, mu)
        except AffineDPError:
            return False
        return private.domain.system.key == ours.domain.system.key


def _kind_of(adjacency: Adjacency) -> str:
    """What the file calls the neighbours of some noise."""
    if isinstance(adjacency, TrajectoryAdjacency):
        return adjacency.said
    assert isinstance(adjacency, Inputs)
    return "forward" if adjacency.forward else "input"


def read_loop(path: str | Path) -> LoopFile:
    """Read and check a loop file.

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
    >>> found.horizon, found.loop.plant.state_names, found.adjacency
    (10, ('x1',), 'time-local')
    """
    return _LOOP.read(path, _loop_file)


def _loop_file(told: Document) -> LoopFile:
    horizon = checked_horizon(told[""]["horizon"])
    plant = _plant(told)
    start = _vector(told["plant"]["x0"], "[plant] x0", plant.states)
    private = _private(told, plant)
    privacy = told["privacy"]
    kind: Kind | None = privacy["adjacency"]
    if kind is None and private is None:
        kind = "time-local"
    elif kind is None and "privacy" in told.there:
        raise AffineDPError(UNSAID)
    if kind == "input" and private is None:
        raise AffineDPError("[privacy] adjacency = 'input' needs [plant] E: how do they enter?")
    if privacy["window"] is not None and kind != "input":
        raise AffineDPError("[privacy] window is for adjacency = 'input': leave it out")
    steered = told["plant"]["B"] is not None
    if privacy["cost"] == "tracking" and not steered:
        raise AffineDPError("[privacy] cost = 'tracking' needs a loop: [plant] B, [controller]")
    sensors = _sensors(told, plant, private, steered)
    _check_start(start, sensors.get("reach"), plant.state_names)
    return LoopFile(
        loop=_steered(told, plant, start, horizon) if steered else _only_sends(told, plant, start),
        horizon=horizon,
        has_start=start is not None,
        epsilon=privacy["epsilon"],
        delta=privacy["delta"],
        mu=_private_mu(privacy["mu"], private) if kind == "input" else _mu(told, plant, horizon),
        adjacency=kind,
        cost=privacy["cost"],
        private=private,
        window=1 if privacy["window"] is None else privacy["window"],
        steered=steered,
        sensors=sensors,
        mqtt=told["mqtt"],
    )


def _sensors(
    told: Document, plant: SteeredPlant, private: SteeredPlant | None, steered: bool
) -> dict[str, Any]:
    """What a gateway is told; limits hold for inputs and private inputs, in this order."""
    given = {key: value for key, value in told["sensors"].items() if value is not None}
    if isinstance(given.get("resolution"), str):
        given["resolution"] = read_resolution(given["resolution"])
    limits = given.keys() & {"start", "inputs", "B", "D"}
    if "range" in given:
        given["range"] = tuple(given["range"])
    if not limits:
        return given
    if not {"range", "start", "inputs"} <= given.keys():
        raise AffineDPError("[sensors] range, start and inputs go together: limits that keep it")
    start, inputs = tuple(given["start"]), tuple(given["inputs"])
    enter: list[SteeredPlant] = [plant] if steered or private is None else []
    if private is not None:
        enter.append(private)
    B = np.hstack([one.B for one in enter])
    D: FloatArray | None = np.hstack([one.D for one in enter])
    if "B" in limits:
        B = told.rows("sensors", "B")
        D = told.rows("sensors", "D") if "D" in limits else None
    elif "D" in limits:
        raise AffineDPError("[sensors] D goes with B: how inputs and disturbances enter y and x")
    for key in limits:
        del given[key]
    return {**given, "reach": Reach(start, B, inputs, D, (plant.A, plant.C))}


def _check_start(start: FloatArray | None, reach: Reach | None, names: tuple[str, ...]) -> None:
    """Refuse a plant that starts outside of the limits that are declared for it."""
    if start is None or reach is None:
        return
    low, high = ends(reach.start, "[sensors] start", len(names))
    for i in np.flatnonzero((start < low) | (start > high)).tolist():
        raise AffineDPError(
            f"[plant] x0: {names[i]} starts outside of [sensors] start, from {low[i]:g} to "
            f"{high[i]:g}, on which the promise rests: declare limits that hold, or start within"
        )


def _plant(told: Document) -> SteeredPlant:
    given = told["plant"]
    matrices = [told.rows("plant", name) for name in "AC"]
    if given["B"] is None and given["D"] is not None:
        raise AffineDPError("[plant] B is missing: D says how inputs enter y, B how they enter x")
    inputs = np.zeros((len(matrices[0]), 1)) if given["B"] is None else told.rows("plant", "B")
    matrices.insert(1, inputs)
    if given["D"] is not None:
        matrices.append(told.rows("plant", "D"))
    try:
        plant = plant_of(matrices)
    except AffineDPError as error:
        raise AffineDPError(f"[plant] {error}") from None
    return replace(
        plant,
        state_names=_names(given, "state_names", plant.state_names),
        output_names=_names(given, "output_names", plant.output_names),
    )


def _names(given: dict[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if given[key] is None:
        return default
    names = tuple(given[key])
    if len(names) != len(default):
        raise AffineDPError(f"[plant] {key} must hold {len(default)} names, not {len(names)}")
    if len(set(names)) < len(names) or not all(names):
        raise AffineDPError(f"[plant] {key}: a name is empty or appears twice")
    check_names(names, f"[plant] {key}")
    return names


def _private(told: Document, plant: SteeredPlant) -> SteeredPlant | None:
    given = told["plant"]
    if given["E"] is None:
        if given["F"] is not None or given["private_names"] is not None:
            raise AffineDPError("[plant] F and private_names belong to private inputs: give E too")
        return None
    E = shaped(told.rows("plant", "E"), (plant.states, None), "[plant] E")
    count = E.shape[1]
    F = np.zeros((plant.outputs, count))
    if given["F"] is not None:
        F = shaped(told.rows("plant", "F"), (plant.outputs, count), "[plant] F")
    names = _names(given, "private_names", tuple(f"w{i + 1}" for i in range(count)))
    return replace(plant, B=E, D=F, input_labels=names)


def _private_mu(value: Any, private: SteeredPlant | None) -> float | FloatArray:
    names = () if private is None else private.input_labels
    return sizes(value, "[privacy] mu", names, len(names), "private input")


def _steered(
    told: Document, plant: SteeredPlant, start: FloatArray | None, horizon: int
) -> ClosedLoop:
    given = told["controller"]
    if "controller" not in told.there:
        raise AffineDPError(
            "the section [controller] is missing; a plant that only sends leaves B out, too"
        )
    for key in ("feedback", "observer"):
        if given[key] is None:
            raise AffineDPError(f"[controller] {key} is missing: the gain of the {key}")
    reference = _reference(told, plant, horizon)
    feedback, observer = (told.rows("controller", key) for key in ("feedback", "observer"))
    believed = _vector(given["xhat0"], "[controller] xhat0", plant.states)
    try:
        return ClosedLoop(plant, feedback, observer, reference, x0=start, xhat0=believed)
    except AffineDPError as error:
        raise AffineDPError(f"[controller] {error}") from None


def _only_sends(told: Document, plant: SteeredPlant, start: FloatArray | None) -> ClosedLoop:
    """A loop whose inputs are zero and do nothing."""
    if told.there & {"controller", "reference"}:
        raise AffineDPError("[plant] B is missing: how do the controller's inputs enter?")
    n, m = plant.states, plant.outputs
    return ClosedLoop(plant, np.zeros((1, n)), np.zeros((n, m)), np.zeros(n), x0=start)


def _reference(told: Document, plant: SteeredPlant, horizon: int) -> FloatArray:
    """x_r(0), …, x_r(horizon), or one row for all times."""
    given = [key for key, value in told["reference"].items() if value is not None]
    if "reference" not in told.there:
        raise AffineDPError("the section [reference] is missing: what is followed?")
    if len(given) != 1:
        raise AffineDPError("[reference] takes exactly one of constant, samples and file")
    key, where = given[0], f"[reference] {given[0]}"
    constant = _vector(told["reference"]["constant"], where, plant.states)
    if constant is not None:
        return constant
    table = told.table("reference", key, plant.state_names)
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


def _mu(told: Document, plant: SteeredPlant, horizon: int) -> float | FloatArray:
    where, value = "[privacy] mu", told["privacy"]["mu"]
    listed = isinstance(value, list) and value
    if not (isinstance(value, str) or (listed and isinstance(value[0], list))):
        return sizes(value, where, plant.state_names, plant.states, "state")
    rows = told.table("privacy", "mu").numbers
    if rows.shape != (horizon, plant.states) or rows.min() < 0.0 or rows.max() == 0.0:
        raise AffineDPError(
            f"{where}: {rows.shape[0]}×{rows.shape[1]} numbers; by time there must be "
            f"{horizon}×{plant.states}, none negative, not all zero"
        )
    return rows


def _vector(value: list[float] | None, where: str, size: int) -> FloatArray | None:
    return None if value is None else shaped(np.array(value), (size,), where)
