"""Private average consensus (section VI of the paper), from ten agents to a million.

:class:`PrivateConsensus` is the protocol on a network: what it promises, simulated runs, exact
errors, bounds.  :func:`sweep` compares many settings on all cores or on a cluster.  Names load
when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
