"""Differential privacy for data that obeys known linear equations.

Equations become an :class:`AffineManifold`; an adjacency says who is a neighbour;
:func:`verify` says what any noise really promises.  Names load when they are first used,
so that importing the package is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from affinedp.adjacency import Adjacency as Adjacency
    from affinedp.adjacency import DirectionAdjacency as DirectionAdjacency
    from affinedp.adjacency import FreeSetAdjacency as FreeSetAdjacency
    from affinedp.adjacency import Sensitivity as Sensitivity
    from affinedp.calibration import gaussian_delta as gaussian_delta
    from affinedp.calibration import gaussian_epsilon as gaussian_epsilon
    from affinedp.calibration import gaussian_sensitivity as gaussian_sensitivity
    from affinedp.calibration import gaussian_sigma as gaussian_sigma
    from affinedp.calibration import gaussian_sigma_bound as gaussian_sigma_bound
    from affinedp.circuit_adjacency import CircuitAdjacency as CircuitAdjacency
    from affinedp.design.gaussian import design_gaussian as design_gaussian
    from affinedp.design.laplace import design_laplace as design_laplace
    from affinedp.design.laplace import iid_noise as iid_noise
    from affinedp.errors import AffineDPError as AffineDPError
    from affinedp.guarantee import Guarantee as Guarantee
    from affinedp.guarantee import compose as compose
    from affinedp.ledger import BudgetExceededError as BudgetExceededError
    from affinedp.ledger import Ledger as Ledger
    from affinedp.manifold import AffineManifold as AffineManifold
    from affinedp.mechanism import Mechanism as Mechanism
    from affinedp.verification import verify as verify

_HOME = {
    "Adjacency": "adjacency",
    "AffineDPError": "errors",
    "AffineManifold": "manifold",
    "BudgetExceededError": "ledger",
    "CircuitAdjacency": "circuit_adjacency",
    "DirectionAdjacency": "adjacency",
    "FreeSetAdjacency": "adjacency",
    "Guarantee": "guarantee",
    "Ledger": "ledger",
    "Mechanism": "mechanism",
    "Sensitivity": "adjacency",
    "compose": "guarantee",
    "design_gaussian": "design.gaussian",
    "design_laplace": "design.laplace",
    "gaussian_delta": "calibration",
    "gaussian_epsilon": "calibration",
    "gaussian_sensitivity": "calibration",
    "gaussian_sigma": "calibration",
    "gaussian_sigma_bound": "calibration",
    "iid_noise": "design.laplace",
    "verify": "verification",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'affinedp' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"affinedp.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
