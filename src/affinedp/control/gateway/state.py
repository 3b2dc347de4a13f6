"""The state of a gateway: one draw for one trajectory, and the plan it was drawn with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger
from affinedp.control.gateway.integer_noise import drawn_once
from affinedp.control.gateway.noise_path import NoisePath
from affinedp.control.gateway.plan import GatewayPlan, gateway_plan
from affinedp.control.gateway.white_plan import white_plan
from affinedp.control.sensors.sensor import Sensor, per_output
from affinedp.control.trajectory.noise import IndependentOutputNoise, TrajectoryMechanism
from affinedp.errors import AffineDPError
from affinedp.once.draw import Drawn, Request, header_of, obtain
from affinedp.once.owner import Owner
from affinedp.once.state import DrawnState, Head
from affinedp.release.plan import GRID_BITS

_HEADER = {"fingerprint", "charged", "sensor", "fresh_noise", "plan"}


class GatewayStateError(AffineDPError):
    """A state that is lost, in use, or of another gateway: nothing is sent."""


class DamagedStateError(GatewayStateError):
    """A state whose draw or path cannot be trusted any more."""


GATEWAY = Owner(
    name="gateway",
    article="a",
    subject="trajectory",
    occasion="trajectory",
    form="affinedp gateway state",
    copies_leak=True,
    error=GatewayStateError,
    damaged=DamagedStateError,
)


OneRun = TrajectoryMechanism | IndependentOutputNoise


@dataclass(frozen=True)
class Trajectory:
    """What a state is drawn for.

    Attributes
    ----------
    mechanism : TrajectoryMechanism or IndependentOutputNoise
        The noise.
    sensor : Sensor
        What is declared about the readings.
    fresh_noise : array_like or None
        As for :func:`~affinedp.control.gateway.plan.gateway_plan`.
    """

    mechanism: OneRun
    sensor: Sensor
    fresh_noise: ArrayLike | None

    @property
    def plan(self) -> GatewayPlan:
        """Grids, fresh noise and enlargement."""
        if isinstance(self.mechanism, TrajectoryMechanism):
            return gateway_plan(self.mechanism, self.sensor, self.fresh_noise)
        if self.fresh_noise is not None:
            raise AffineDPError("independent noise is all fresh: leave fresh_noise out")
        return white_plan(self.mechanism, self.sensor)

    @property
    def root(self) -> FloatArray:
        """R, which makes noise on x(0) of the one draw; without columns for independent noise."""
        if isinstance(self.mechanism, TrajectoryMechanism):
            return self.mechanism.root
        return np.zeros((self.mechanism.states, 0))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is sent."""
        if isinstance(self.mechanism, TrajectoryMechanism):
            return self.mechanism.fingerprint
        key = f"{self.mechanism.neighbours.key} {self.mechanism.dynamics.fingerprint} white"
        scales = np.ascontiguousarray(self.mechanism.sigma, dtype=np.float64)
        return hashlib.sha256(key.encode() + scales.tobytes()).hexdigest()

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the plan, as text."""
        values = per_output(self.fresh_noise, "fresh_noise", self.mechanism.outputs)
        fresh = None if values is None else [float(v).hex() for v in values]
        return {"sensor": self.sensor.to_record(), "fresh_noise": fresh}


def obtain_state(
    trajectory: Trajectory,
    path: Path,
    *,
    ledger: Ledger | None,
    label: str,
    redraw: bool,
    moved: bool,
) -> DrawnState:
    """Open the state of a trajectory, or draw it.

    Parameters
    ----------
    trajectory : Trajectory
        What it is drawn for.
    path : Path
        The real path of the state.
    ledger, label, redraw, moved
        As for :class:`~affinedp.once.draw.Request`.
    """

    def draw(label: str) -> Drawn:
        return _draw(trajectory, ledger, label)

    def check(state: DrawnState, header: dict[str, Any]) -> None:
        _check(trajectory, state, header)

    return obtain(Request(GATEWAY, path, ledger, label, redraw, moved, draw, check))


def plan_of(state: DrawnState) -> GatewayPlan:
    """Return the plan with which a state was drawn.

    Parameters
    ----------
    state : DrawnState
        An open state.
    """
    try:
        return GatewayPlan.from_record(header_of(state)["plan"])
    except (LookupError, TypeError) as error:
        raise DamagedStateError(f"{state.path}: its header cannot be read ({error})") from None


def was_charged(state: DrawnState) -> bool:
    """Whether a ledger paid for the draw of a state.

    Parameters
    ----------
    state : DrawnState
        An open state.
    """
    return bool(header_of(state)["charged"])


def _draw(trajectory: Trajectory, ledger: Ledger | None, label: str) -> Drawn:
    """Charge and draw η; what is refused is refused before that."""
    mechanism, plan, root = trajectory.mechanism, trajectory.plan, trajectory.root
    if ledger is not None:
        # settled when the state is in place
        ledger.charge(mechanism.guarantee, fingerprint=trajectory.fingerprint, label=label)
    numbers = drawn_once(plan.noise_factor, root.shape[1])
    path = NoisePath(mechanism.dynamics, root, plan.path_bits)
    header = {
        "fingerprint": trajectory.fingerprint,
        "charged": ledger is not None,
        **trajectory.settings,
        "plan": plan.to_record(),
    }
    return Drawn(header, numbers, Head(0, path.start(numbers, GRID_BITS)))


def _check(trajectory: Trajectory, state: DrawnState, header: dict[str, Any]) -> None:
    """Refuse a state that is not the one of this trajectory."""
    if not set(header) >= _HEADER:
        raise DamagedStateError(f"{state.path}: its header is not that of a gateway")
    if header["fingerprint"] != trajectory.fingerprint:
        raise GatewayStateError(
            f"{state.path} is the state of another mechanism: with one draw for two, the noise "
            "would cancel. Give each its own state"
        )
    settings = trajectory.settings
    if settings["sensor"] != header["sensor"]:
        raise GatewayStateError(
            f"{state.path} was drawn for other sensors: give the resolution, range and errors that "
            "were declared then, or start a new run with a new state"
        )
    if settings["fresh_noise"] not in (None, header["fresh_noise"]):
        raise GatewayStateError(f"{state.path} was drawn with another fresh_noise: leave it out")
