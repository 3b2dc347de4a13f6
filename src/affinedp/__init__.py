"""Differential privacy for data that obeys known linear equations.

Equations become an :class:`AffineManifold`; an adjacency says who is a neighbour;
:func:`verify` says what any noise really promises.  Names load when they are first used,
so that importing the package is quick.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
