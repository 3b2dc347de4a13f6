"""What a saved mechanism says about the least possible error and about other laws."""

from __future__ import annotations

import math
from typing import Any

from affinedp.files.packing import StorageError
from affinedp.promise.least_possible import Alternative, LeastPossible


def checked_least(record: Any) -> LeastPossible | None:
    """Return how near to the least possible a file says its mechanism is, if it says so.

    Parameters
    ----------
    record : mapping or None
        As it stands in the file; the bound is computed again from it.
    """
    if record is None:  # also older files
        return None
    numbers = {name: float(record[name]) for name in ("dual", "error", "epsilon", "delta")}
    return LeastPossible(
        **numbers, data=record["data"], objective=record["objective"],
        confined=record["confined"], sum_of_three=float(record["sum_of_three"]),
    )  # fmt: skip


def checked_alternatives(records: Any) -> tuple[Alternative, ...]:
    """Return the other laws that a file lists.

    Parameters
    ----------
    records : list of mappings
        As they stand in the file.
    """
    found = []
    for record in records:
        error = float(record["error"])
        if not 0 <= error < math.inf or type(record["designed"]) is not bool:
            raise StorageError(f"the error of another law cannot be {error}")
        found.append(
            Alternative(str(record["law"]), error, record["designed"], str(record["reason"]))
        )
    return tuple(found)
