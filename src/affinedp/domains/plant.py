"""A plant that private inputs drive: what is sent about them, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.base import Domain
from affinedp.domains.dynamics import ENDLESS, MOST_STATES, checked_horizon
from affinedp.errors import AffineDPError
from affinedp.exact.systems import LinearSystem


@dataclass(frozen=True, eq=False)
class Plant(Domain):
    """``x(t+1) = A x + E w``, ``y = C x + F w``: data are the private inputs w, step by step.

    Attributes
    ----------
    system : LinearSystem
        From w to the outputs.
    names, output_names : tuples of str
        Of the private inputs, and of the outputs.
    horizon : int or None
        How many outputs are sent; None for all time.
    """

    kind = "plant"
    system: LinearSystem = field(repr=False)
    names: tuple[str, ...]
    output_names: tuple[str, ...]
    horizon: int | None = None

    def __post_init__(self) -> None:
        if (len(self.names), len(self.output_names)) != (self.system.inputs, self.system.outputs):
            raise AffineDPError("the names do not fit the inputs and outputs of the plant")
        if max(self.system.order, self.system.inputs, self.system.outputs) > MOST_STATES:
            raise AffineDPError(f"a plant may have up to {MOST_STATES} states, inputs and outputs")
        if self.horizon is not None:
            object.__setattr__(self, "horizon", checked_horizon(self.horizon))

    @property
    def steps(self) -> int:
        """How many outputs may be sent: 2⁴⁰ stands for all time where a number is needed."""
        return ENDLESS if self.horizon is None else self.horizon


def seen_system(A: FloatArray, B: FloatArray, C: FloatArray, D: FloatArray) -> LinearSystem:
    """Return the states that inputs reach and outputs show, by the zeros of the matrices: exact."""
    moves = A != 0
    reached, shown = (B != 0).any(axis=1), (C != 0).any(axis=0)
    for _ in range(len(A)):
        reached = reached | moves[:, reached].any(axis=1)
        shown = shown | moves[shown].any(axis=0)
    kept = np.flatnonzero(reached & shown)
    return LinearSystem(A[np.ix_(kept, kept)], B[kept], C[:, kept], D)
