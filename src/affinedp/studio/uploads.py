"""Files that a user hands to the page: held in memory, and their outline."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table

MOST_BYTES = 50_000_000
MOST_HELD = 4
MOST_COLUMNS = 2_000  # that the page can show; affinedp discover takes more

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Held:
    """A file in memory."""

    name: str
    content: bytes


class Newest(Generic[Thing]):
    """The newest few things of a kind, by name; they are gone when the studio stops."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, Thing] = {}
        self._lock = threading.Lock()

    def put(self, name: str, thing: Thing) -> None:
        """Hold a thing, and forget the oldest if there are too many."""
        with self._lock:
            self._held[name] = thing
            for oldest in list(self._held)[: -self._most]:
                del self._held[oldest]

    def take(self, name: str) -> Thing | None:
        """Return a thing, which is no longer held then."""
        with self._lock:
            return self._held.pop(name, None)

    def get(self, name: str) -> Thing:
        """Return a thing, or say that it is no longer here."""
        with self._lock:
            if name not in self._held:
                raise AffineDPError(
                    "this is no longer held: choose the file again, or use the command line"
                )
            return self._held[name]


def peek(held: Held) -> dict[str, Any]:
    """Return the columns and the size of a file, which is refused at once if it cannot be read.

    >>> found = peek(Held("t.csv", b"women,men,all\\n1,2,3\\n4,5,9\\n"))
    >>> found["columns"], found["rows"]
    (['women', 'men', 'all'], 2)
    """
    table = read_table(
        Path(held.name), long_numbers="text", content=held.content, most_columns=MOST_COLUMNS
    )
    return {"columns": list(table), "rows": len(table), "bytes": len(held.content)}
