"""Differential privacy for data that obeys known linear equations.

Equations become an :class:`AffineManifold`; an adjacency says who is a neighbour;
:func:`verify` says what any noise really promises.  Names load when they are first used,
so that importing the package is quick.
"""

import importlib

import lazy_loader

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "functions":  # a room that is named with its functions: affinedp.functions.peak()
        return importlib.import_module("affinedp.functions")
    return _installed_version() if name == "__version__" else _public_name(name)


def _installed_version() -> str:
    """The version that was built, which comes from the tag."""
    from importlib import metadata  # takes longer than all the rest here

    try:
        return metadata.version("affinedp")
    except metadata.PackageNotFoundError:  # sources on the path that nobody installed
        return "0+unknown"
