"""Private cloud control: output noise for trajectories of known linear dynamics.

Section V of the paper.  :func:`design_output_noise` designs the least noise,
:class:`Gateway` sends measurements with it one by one, :class:`ClosedLoop` says exactly what
it costs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from affinedp.control.design import design_output_noise as design_output_noise
    from affinedp.control.design import independent_output_noise as independent_output_noise
    from affinedp.control.gateway import Gateway as Gateway
    from affinedp.control.loop import ClosedLoop as ClosedLoop
    from affinedp.control.simulation import Simulation as Simulation
    from affinedp.control.sweeps import sweep as sweep
    from affinedp.control.systems import Dynamics as Dynamics
    from affinedp.control.systems import dynamics_of as dynamics_of
    from affinedp.control.trajectory import IndependentOutputNoise as IndependentOutputNoise
    from affinedp.control.trajectory import TrajectoryMechanism as TrajectoryMechanism

_HOME = {
    "ClosedLoop": "loop",
    "Dynamics": "systems",
    "Gateway": "gateway",
    "IndependentOutputNoise": "trajectory",
    "Simulation": "simulation",
    "TrajectoryMechanism": "trajectory",
    "design_output_noise": "design",
    "dynamics_of": "systems",
    "independent_output_noise": "design",
    "sweep": "sweeps",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'affinedp.control' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"affinedp.control.{_HOME[name]}"), name)
    globals()[name] = value
    return value
