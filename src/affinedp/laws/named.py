"""From the word that a user says to the law that it names."""

from __future__ import annotations

from typing import Any, Literal

from affinedp.errors import AffineDPError
from affinedp.laws import gaussian, laplace
from affinedp.laws.base import Law
from affinedp.parts import kind_named

# Names that designs and readers take.
LawName = Literal["gaussian", "laplace", "knorm", "staircase"]
LAWS = (gaussian.Gaussian.kind, laplace.Laplace.kind, "knorm", "staircase", laplace.Geometric.kind)


def law_named(name: Any) -> type[Law]:
    """Return the law that a user calls so, or refuse the name.

    Parameters
    ----------
    name : str
        Such as ``"gaussian"``; the kind of a law of one's own once its class is made.

    Examples
    --------
    >>> law_named("gaussian").norm, law_named("staircase").words
    (2, 'staircase')
    """
    found = kind_named(name) if isinstance(name, str) else None
    if found is None or not issubclass(found, Law):
        known = ", ".join(repr(law) for law in LAWS)
        raise AffineDPError(f"law must be one of {known}, not {name!r}")
    return found
