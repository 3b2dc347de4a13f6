"""Where a ledger is kept: what a file and a server have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from affinedp.budget.state import State, chained


class Store(ABC):
    """An open ledger, wherever it is.

    Attributes
    ----------
    name : str
        What refusals call it.
    address : str
        Its path or its address, without a password.
    state : State
        What it says, up to date inside :meth:`reading` and :meth:`writing`.
    """

    name: str
    address: str
    state: State

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Know every event so far; what others add meanwhile does not matter."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """Hold the only right to write, knowing every event so far; keep all of it or nothing."""

    @abstractmethod
    def add_row(self, number: int, body: str, link: str) -> None:
        """Write one event, inside :meth:`writing`."""

    @abstractmethod
    def verified(self) -> State:
        """Read and verify everything anew."""

    @abstractmethod
    def place(self) -> str:
        """Where it is, as a hash: another one means that it was moved or copied."""

    @abstractmethod
    def close(self) -> None:
        """Close it; nothing can be done with it afterwards."""

    def append(self, body: Mapping[str, Any]) -> int:
        """Add an event, inside :meth:`writing`, and return its number.

        It is read back by the next look, so that what is known is what was kept.
        """
        number = self.state.events + 1
        text = json.dumps(body, allow_nan=False)
        self.add_row(number, text, chained(self.state.head, number, text))
        return number
