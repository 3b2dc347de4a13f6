"""Attacks on what was built: real releases of neighbours, and the ε that they refute.

``attacks`` says what an attacker looks at and what two samples prove with confidence, ``trial``
runs an attack on a mechanism.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
