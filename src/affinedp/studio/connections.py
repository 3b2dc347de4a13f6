"""Connections that say nothing, or too slowly, do not keep others from the studio."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# A browser opens six.
MOST_CONNECTIONS = 100
# Seconds within which a connection asks something; guard.py is about what it asks.
LONGEST_SILENCE = 15.0


class Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """HTTP as uvicorn speaks it, which would wait for ever for the first lines of a request."""

    def connection_made(self, transport: Any) -> None:
        """Take a connection; where there are too many, one that has said nothing makes room.

        Parameters
        ----------
        transport : Transport
            The connection.
        """
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            others = (one for one in self.connections if one is not self and one.cycle is None)
            next(others, self).transport.close()
        self._look_again_later()

    def _look_again_later(self) -> None:
        asyncio.get_running_loop().call_later(LONGEST_SILENCE, self._look_again, self.cycle)

    def _look_again(self, before: Any) -> None:
        """Close where nothing was asked since, and nothing is being answered."""
        if self.cycle is before and (before is None or before.response_complete):
            self.transport.close()
        elif not self.transport.is_closing():
            self._look_again_later()
