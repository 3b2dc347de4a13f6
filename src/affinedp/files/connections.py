"""Connections to SQLite files that a fork leaves to the parent.

A forked child has a copy of every connection.  If it closed one, or Python did when the child ends,
SQLite would copy the parent's log into the file and remove it, or roll back what another thread
of the parent is writing: the parent would go on in a log that is gone.  So nothing in a child ever
closes what the parent opened.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from affinedp.files.processes import this_process


class Connection(sqlite3.Connection):
    """A connection that is closed by the process that opened it, or by none.

    It takes the arguments of :class:`sqlite3.Connection`.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        self._process = this_process()
        self._handles: list[int] = []
        super().__init__(*given, **named)
        _open.add(self)

    def keep(self, handle: int) -> None:
        """Close a file after this connection, and at once in a forked child.

        To close any handle of a file drops all of SQLite's locks on it that this process has.  A
        child that kept a handle would keep the lock of a parent that is gone.

        Parameters
        ----------
        handle : int
            An open file.
        """
        self._handles.append(handle)

    def close(self) -> None:
        """Close the file; nothing in a process that did not open it."""
        if this_process() == self._process:
            super().close()
            self.let_go()

    def leave(self, log: Path) -> None:
        """Close the file as a crash would: its log is neither copied into it nor removed.

        Parameters
        ----------
        log : Path
            The log beside the file.
        """
        if this_process() != self._process:
            return
        aside = log.with_name(log.name + ".kept")
        with suppress(OSError):  # a second name, since SQLite removes a log that it cannot read
            aside.unlink(missing_ok=True)
            if log.stat().st_size:
                os.link(log, aside)
        self.interrupt()  # SQLite then gives up what it would copy, and keeps the log
        self.close()
        with suppress(OSError):
            if not log.exists():
                os.link(aside, log)
            aside.unlink()

    def let_go(self) -> None:
        """Close the handles alone."""
        while self._handles:
            os.close(self._handles.pop())

    def __del__(
        self,
        process: Callable[[], Any] = this_process,  # bound here: at the end of Python they are gone
        shut: Callable[[sqlite3.Connection], None] = sqlite3.Connection.close,
        close: Callable[[int], None] = os.close,
    ) -> None:
        """Close what nobody closed, as :meth:`close` does: SQLite's part needs the locks."""
        try:
            if process() != self._process:
                return
            shut(self)
        except Exception:  # SQLite's part comes later; the handles end with the process
            return
        for handle in self._handles:
            close(handle)


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for connection in list(_open):
        # One reference that nobody ever gives back: Python frees what no name holds, at the latest
        # when the child ends, and to free a connection closes it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        connection.let_go()
    _open.clear()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_leave_to_the_parent)
