"""Private network flows: manifolds of networks, their neighbours, and the noise for them.

:func:`from_graph`, :func:`from_incidence` and :func:`from_pandapower` make a
:class:`FlowManifold`, which says which laws it assumes to be known; :func:`injection_neighbours`
is the promise that scales, :func:`design_flow_noise` the least noise, :func:`draw_flow_noise` the
picture.  Names load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from affinedp.flows.design import design_flow_noise as design_flow_noise
    from affinedp.flows.graphs import from_graph as from_graph
    from affinedp.flows.graphs import from_incidence as from_incidence
    from affinedp.flows.manifold import FlowManifold as FlowManifold
    from affinedp.flows.neighbours import InjectionAdjacency as InjectionAdjacency
    from affinedp.flows.neighbours import injection_neighbours as injection_neighbours
    from affinedp.flows.network import FlowNetwork as FlowNetwork
    from affinedp.flows.picture import draw_flow_noise as draw_flow_noise
    from affinedp.flows.power import dc_flows as dc_flows
    from affinedp.flows.power import from_pandapower as from_pandapower

_HOME = {
    "FlowManifold": "manifold",
    "FlowNetwork": "network",
    "InjectionAdjacency": "neighbours",
    "dc_flows": "power",
    "design_flow_noise": "design",
    "draw_flow_noise": "picture",
    "from_graph": "graphs",
    "from_incidence": "graphs",
    "from_pandapower": "power",
    "injection_neighbours": "neighbours",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'affinedp.flows' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"affinedp.flows.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
