"""Waiting for the disk on another thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class BackgroundSync:
    """Puts what was written to a file onto the disk, while others go on writing to it.

    All that was written before :meth:`begin` is on the disk when :meth:`done` first says so.

    Parameters
    ----------
    path : Path
        The file, which is there by the first :meth:`begin`, and stays the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._running: tuple[Future[None], Callable[[], None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether it was begun and not yet found to be done."""
        return self._running is not None

    def begin(self, then: Callable[[], None]) -> None:
        """Begin, on another thread.

        Parameters
        ----------
        then : callable
            Called by :meth:`done`, on its thread.
        """
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "sync")
        self._running = self._pool.submit(_sync, self._handle), then

    def done(self, wait: bool = False) -> bool:
        """Whether nothing is under way any more.

        Parameters
        ----------
        wait : bool
            Wait for it.

        Raises
        ------
        OSError
            If the disk failed: then nothing is known about what is on it.
        """
        if self._running is None:
            return True
        future, then = self._running
        if not wait and not future.done():
            return False
        self._running = None
        future.result()
        then()
        return True

    def close(self) -> None:
        """Wait for what is under way, whatever comes of it, and end."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._running = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _sync(handle: int) -> None:
    if fcntl is not None and hasattr(fcntl, "F_FULLFSYNC"):  # macOS, where fsync does not wait
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)
