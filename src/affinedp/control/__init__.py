"""Private cloud control: output noise for trajectories of known linear dynamics.

Section V of the paper.  :func:`design_output_noise` designs the least noise,
:class:`Gateway` sends measurements with it one by one, :class:`ClosedLoop` says exactly what
it costs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
