"""The state of a gateway: one draw for one trajectory, and the plan it was drawn with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from affinedp.budget.ledger import Ledger
from affinedp.control.gateway.integer_noise import drawn_once
from affinedp.control.gateway.noise_path import NoisePath
from affinedp.control.gateway.plan import GatewayPlan, gateway_plan, per_output
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.errors import AffineDPError
from affinedp.once.draw import Drawn, Request, header_of, obtain
from affinedp.once.owner import Owner
from affinedp.once.state import DrawnState, Head
from affinedp.release.plan import GRID_BITS

_HEADER = {"fingerprint", "charged", "resolution", "measurement_error", "plan"}


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
    mechanism : TrajectoryMechanism
        The noise.
    resolution, measurement_error : array_like or None
        As for :func:`~affinedp.control.gateway.plan.gateway_plan`.
    """

    mechanism: TrajectoryMechanism
    resolution: ArrayLike | None
    measurement_error: ArrayLike | None

    @property
    def settings(self) -> dict[str, list[str] | None]:
        """What decides the plan, as text."""
        given = {"resolution": self.resolution, "measurement_error": self.measurement_error}
        found: dict[str, list[str] | None] = {}
        for name, value in given.items():
            values = per_output(value, name, self.mechanism)
            found[name] = None if values is None else [float(v).hex() for v in values]
        return found


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
    mechanism = trajectory.mechanism
    plan = gateway_plan(mechanism, trajectory.resolution, trajectory.measurement_error)
    if ledger is not None:
        # settled when the state is in place
        ledger.charge(mechanism.guarantee, fingerprint=mechanism.fingerprint, label=label)
    numbers = drawn_once(plan.noise_factor, mechanism.root.shape[1])
    path = NoisePath(mechanism.dynamics, mechanism.root, plan.path_bits)
    header = {
        "fingerprint": mechanism.fingerprint,
        "charged": ledger is not None,
        **trajectory.settings,
        "plan": plan.to_record(),
    }
    return Drawn(header, numbers, Head(0, path.start(numbers, GRID_BITS)))


def _check(trajectory: Trajectory, state: DrawnState, header: dict[str, Any]) -> None:
    """Refuse a state that is not the one of this trajectory."""
    if not set(header) >= _HEADER:
        raise DamagedStateError(f"{state.path}: its header is not that of a gateway")
    if header["fingerprint"] != trajectory.mechanism.fingerprint:
        raise GatewayStateError(
            f"{state.path} is the state of another mechanism: with one draw for two, the noise "
            "would cancel. Give each its own state"
        )
    for name, value in trajectory.settings.items():
        if value is not None and value != header[name]:
            raise GatewayStateError(f"{state.path} was drawn with another {name}: leave it out")
