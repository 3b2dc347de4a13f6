"""Waiting for the disk on another thread."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from affinedp.files.held import fcntl


class BackgroundSync:
    """Puts what was written to a file onto the disk, while others go on writing to it.

    All that was written before :meth:`begin` is on the disk when :meth:`done` first says so.

    The thread is a daemon, which nobody ends at the end of the program: who sends then, on a thread
    that outlives the main one or at exit, still finds it.

    Parameters
    ----------
    path : Path
        The file, which is there by the first :meth:`begin`, and stays the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._thread: threading.Thread | None = None
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._then: Callable[[], None] | None = None

    @property
    def busy(self) -> bool:
        """Whether it was begun and not yet found to be done."""
        return self._then is not None

    def begin(self, then: Callable[[], None]) -> None:
        """Begin, on another thread.

        Parameters
        ----------
        then : callable
            Called by :meth:`done`, on its thread.
        """
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR)
        self._then = then
        if self._thread is None:
            self._thread = self._started()
        if self._thread is None or sys.is_finalizing():
            self._answers.put(_outcome(self._handle))
        else:
            self._asked.put(self._handle)

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
        if self._then is None:
            return True
        try:
            error = self._answers.get(block=wait and not sys.is_finalizing())
        except queue.Empty:
            if not sys.is_finalizing():
                return False
            # other threads do not run any more
            error = None if self._handle is None else _outcome(self._handle)
        then, self._then = self._then, None
        if error is not None:
            raise error
        then()
        return True

    def close(self) -> None:
        """Wait for what is under way, whatever comes of it, and end."""
        thread, self._thread = self._thread, None
        if thread is not None and not sys.is_finalizing():
            self._asked.put(None)
            thread.join()
        self._then = None
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _started(self) -> threading.Thread | None:
        """The thread; None while Python ends, when none can be started any more."""
        thread = threading.Thread(
            target=_work, args=(self._asked, self._answers), name="sync", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            return None
        return thread


def _work(
    asked: queue.SimpleQueue[int | None], answers: queue.SimpleQueue[BaseException | None]
) -> None:
    while (handle := asked.get()) is not None:
        answers.put(_outcome(handle))


def _outcome(handle: int) -> BaseException | None:
    """What went wrong, if anything: it is for who sends, not for this thread."""
    try:
        sync(handle)
    except BaseException as error:
        return error
    return None


def sync(handle: int) -> None:
    """Wait until what was written to a file is on the disk.

    Parameters
    ----------
    handle : int
        The open file.
    """
    if fcntl is not None and hasattr(fcntl, "F_FULLFSYNC"):  # macOS, where fsync does not wait
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)
