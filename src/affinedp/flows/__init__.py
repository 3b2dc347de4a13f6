"""Private network flows: manifolds of networks, their neighbours, and the noise for them.

:func:`from_graph` and :func:`from_pandapower` make a flow manifold, which says which laws it
assumes to be known; :func:`injection_neighbours` is the promise that scales,
:func:`design_flow_noise` the least noise, :func:`draw_flow_noise` the picture.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
