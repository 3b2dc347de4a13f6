"""What releases of matrices have in common: what is read, what is shared, what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.strategies.base import Prepared
from affinedp.strategies.shared import SharedPart


@dataclass(frozen=True, eq=False)
class DensePlan(Prepared):
    """The public part of releases of ``F x + Λ η``.

    Attributes
    ----------
    factor : float
        How much larger than stated the noise is, for all that rounding adds.
    bound : float or None
        The public bound on the data.
    largest : float
        Data beyond this is refused.
    free : array of int
        The entries of x that are read; the others follow from the equations.
    offset, kernel : arrays
        F x_p, and F K where something is shared.
    common : SharedPart or None
        What neighbours have in common and is published as it is; None where noise hides all.
    """

    factor: float
    bound: float | None
    largest: float
    free: IntArray = field(repr=False)
    offset: FloatArray = field(repr=False)
    kernel: FloatArray = field(repr=False)
    common: SharedPart | None = field(repr=False)

    def check(self, data: FloatArray) -> None:
        """Refuse data beyond the declared bound, or beyond what is released exactly."""
        size = float(np.abs(data).max(initial=0.0))
        if self.bound is not None and size > self.bound:
            raise AffineDPError("some entry of x is larger than the declared bound")
        if size > self.largest:
            raise AffineDPError(
                f"some entry of x is beyond {self.largest:.1e}, up to which data is released "
                "exactly with this noise. Nothing was released; change the units, or release fewer "
                "combinations at once"
            )

    def shared(self, data: FloatArray) -> FloatArray:
        """Return what is published without noise: equal for neighbours, bit for bit."""
        if self.common is None:
            return self.offset
        return np.asarray(self.offset + self.common.values(data[:, self.free]) @ self.kernel.T)
