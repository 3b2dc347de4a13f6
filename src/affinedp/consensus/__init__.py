"""Private average consensus (section VI of the paper), from ten agents to a million.

:class:`PrivateConsensus` is the protocol on a network: what it promises, simulated runs, exact
errors, bounds.  :func:`sweep` compares many settings on all cores or on a cluster.  Names load
when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from affinedp.consensus.agent import Agent as Agent
    from affinedp.consensus.agent_noise import AgentNoise as AgentNoise
    from affinedp.consensus.errors_exact import ErrorCurve as ErrorCurve
    from affinedp.consensus.network import NetworkError as NetworkError
    from affinedp.consensus.protocol import PrivateConsensus as PrivateConsensus
    from affinedp.consensus.readouts import UnsafeReadoutError as UnsafeReadoutError
    from affinedp.consensus.schedule import Schedule as Schedule
    from affinedp.consensus.simulation import Run as Run
    from affinedp.consensus.spectrum import Spectrum as Spectrum
    from affinedp.consensus.sweeps import SweepRow as SweepRow
    from affinedp.consensus.sweeps import sweep as sweep

_HOME = {
    "Agent": "agent",
    "AgentNoise": "agent_noise",
    "ErrorCurve": "errors_exact",
    "NetworkError": "network",
    "PrivateConsensus": "protocol",
    "Run": "simulation",
    "Schedule": "schedule",
    "Spectrum": "spectrum",
    "SweepRow": "sweeps",
    "UnsafeReadoutError": "readouts",
    "sweep": "sweeps",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'affinedp.consensus' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"affinedp.consensus.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
