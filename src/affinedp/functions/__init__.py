"""Functions of what is published, with intervals; and functions of what is private.

What has a known reach (:func:`~affinedp.functions.peak`, :func:`~affinedp.functions.gini`, …) is a
query of :func:`affinedp.design`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
