"""The parts that a file may hold: loading makes only classes that are registered."""

from __future__ import annotations

from importlib import import_module

from affinedp.laws.named import know_all_laws

# Modules that are not needed to verify or design noise of matrices.
LATER = ("affinedp.strategies.filter",)


def know_all_parts() -> None:
    """Register every law, strategy, adjacency and domain of the library."""
    know_all_laws()
    for name in LATER:
        import_module(name)
