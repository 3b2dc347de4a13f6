"""From the word that a user says to the law that it names."""

from __future__ import annotations

from typing import Any, Literal

from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import Geometric, Laplace
from affinedp.laws.staircase import Staircase
from affinedp.parts import Part

# Names that designs and readers take.
LawName = Literal["gaussian", "laplace", "knorm", "staircase"]
LAWS: tuple[type[Law], ...] = (Gaussian, Laplace, KNorm, Staircase, Geometric)


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
    found = Part.kinds.get(name) if isinstance(name, str) else None
    if found is None or not issubclass(found, Law):
        known = ", ".join(repr(law.kind) for law in LAWS)
        raise AffineDPError(f"law must be one of {known}, not {name!r}")
    return found
