"""The state of a gateway: one draw for one trajectory, and the plan it was drawn with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from affinedp.budget.ledger import Ledger
from affinedp.control.gateway.kinds import Kind, Source
from affinedp.control.gateway.plan import GatewayPlan
from affinedp.control.sensors.sensor import Sensor, per_output
from affinedp.errors import AffineDPError
from affinedp.once.draw import Drawn, Request, header_of, obtain
from affinedp.once.owner import Owner
from affinedp.once.record import Head
from affinedp.once.state import DrawnState

_HEADER = {"fingerprint", "charged", "sensor", "fresh_noise", "horizon", "plan"}


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


@dataclass(frozen=True)
class Trajectory:
    """What a state is drawn for.

    Attributes
    ----------
    kind : Kind
        The noise.
    sensor : Sensor
        What is declared about the readings.
    fresh_noise : array_like or None
        As for :func:`~affinedp.control.gateway.plan.gateway_plan`.
    """

    kind: Kind
    sensor: Sensor
    fresh_noise: ArrayLike | None

    @property
    def plan(self) -> GatewayPlan:
        """Grids, fresh noise and enlargement."""
        return self.kind.plan(self.sensor, self.fresh_noise)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the plan, as text."""
        values = per_output(self.fresh_noise, "fresh_noise", len(self.kind.names))
        fresh = None if values is None else [float(v).hex() for v in values]
        return {
            "sensor": self.sensor.to_record(),
            "fresh_noise": fresh,
            "horizon": self.kind.steps,
            "saturates": self.kind.covers_saturation,
        }


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


def check_path(state: DrawnState, source: Source) -> None:
    """Refuse a state whose noise cannot go on as it began.

    Parameters
    ----------
    state : DrawnState
        An open state.
    source : Source
        What makes the noise of every step.
    """
    if not source.fits(state.head):
        raise DamagedStateError(f"{state.path}: how far its noise has come is not of this noise")
    if state.head.next_step and state.last() is None:
        raise DamagedStateError(
            f"{state.path}: nothing is left of what was sent, and for which run"
        )
    known = source.until(state.head)
    if known is not None and state.next_step > known:
        raise GatewayStateError(
            f"{state.path}: before a power cut steps up to {state.next_step - 1} may have been "
            f"sent, and what was drawn for them is known up to {known - 1} alone, as older "
            "versions of affinedp left it. Other numbers in their place would be a second release: "
            "start a new run with a new state, which the ledger is charged for"
        )


def was_charged(state: DrawnState) -> bool:
    """Whether a ledger paid for the draw of a state.

    Parameters
    ----------
    state : DrawnState
        An open state.
    """
    return bool(header_of(state)["charged"])


def _draw(trajectory: Trajectory, ledger: Ledger | None, label: str) -> Drawn:
    """Charge and draw; what is refused is refused before that."""
    kind, plan = trajectory.kind, trajectory.plan
    if ledger is not None:
        # settled when the state is in place
        ledger.charge(kind.guarantee, fingerprint=kind.fingerprint, label=label)
    numbers, start = kind.draw(plan)
    header = {
        "fingerprint": kind.fingerprint,
        "charged": ledger is not None,
        **trajectory.settings,
        "plan": plan.to_record(),
    }
    return Drawn(header, numbers, Head(0, start))


def _check(trajectory: Trajectory, state: DrawnState, header: dict[str, Any]) -> None:
    """Refuse a state that is not the one of this trajectory."""
    if not set(header) >= _HEADER:
        raise DamagedStateError(f"{state.path}: its header is not that of a gateway")
    if header["fingerprint"] != trajectory.kind.fingerprint:
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
    if settings["saturates"] and not header.get("saturates"):
        raise GatewayStateError(
            f"{state.path} was drawn for sensors that public limits keep in their range, and its "
            "noise does not hide where they saturate: give the reach that was given then"
        )
    if settings["horizon"] != header["horizon"]:
        raise GatewayStateError(
            f"{state.path} was drawn for {header['horizon']} steps: give that as its horizon"
        )
    if settings["fresh_noise"] not in (None, header["fresh_noise"]):
        raise GatewayStateError(f"{state.path} was drawn with another fresh_noise: leave it out")
