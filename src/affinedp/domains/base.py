"""What every domain has: names of its entries, and a way to read data."""

from __future__ import annotations

from typing import Any

from affinedp.arrays import FloatArray
from affinedp.domains.reading import Wrap, read_rows
from affinedp.parts import Part


class Domain(Part):
    """What data is, what everyone knows about it, and which data is refused.

    Attributes
    ----------
    names : tuple of str
        One name per entry.
    """

    names: tuple[str, ...]

    @property
    def offset(self) -> Any:
        """What releases depend on beside the key: public constants, to be hashed."""
        return ()

    def read(self, x: Any) -> tuple[FloatArray, Wrap]:
        """Return data as rows, and how results are handed back in its form.

        All that is refused because of the data is refused here, before anything is charged.

        Parameters
        ----------
        x : array_like or a table
            One data set, or one per row.
        """
        return read_rows(self.names, x)
