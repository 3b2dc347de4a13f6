"""What is said about a design beside its promise: bounds, what was compared, what was asked."""

from __future__ import annotations

from dataclasses import dataclass

from affinedp.parts import Part
from affinedp.privacy.asked import Asked
from affinedp.privacy.least_possible import Alternative, LeastPossible


@dataclass(frozen=True, eq=False)
class Design(Part):
    """How a mechanism came about; nothing in it decides what is released or promised.

    Attributes
    ----------
    gap : float or None
        Certified relative distance of the (weighted) error to the least possible of this law;
        None where there is no certificate.
    notes : tuple of str
        What a reader should know.
    least : LeastPossible or None
        What no mechanism of any law with this promise can go below; None where it is not known.
    alternatives : tuple of Alternative
        What else was compared, with its error.
    error : float or None
        What it costs where it was compared: its weighted squared error.
    asked : Asked or None
        What somebody asked for; the mechanism keeps it.
    """

    kind = "design"
    gap: float | None = None
    notes: tuple[str, ...] = ()
    least: LeastPossible | None = None
    alternatives: tuple[Alternative, ...] = ()
    error: float | None = None
    asked: Asked | None = None
