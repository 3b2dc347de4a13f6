"""How the file of a state knows that it needs its log.

The last steps lie in a log beside the file (``…-wal``).  Without it the file looks whole, and is
older: the same draw would serve again for steps that were sent.  So every log has a number, drawn
at random.

The first step that goes into a log also writes there the log's number, and the one that the file
needed before (table ``log``).  When that is on the disk, the number is written into the file
itself, past the log (table ``needs``), and only then the step is sent.  Once all of a log was
copied into the file, when it is closed or the log is long, the file holds the number in both places
and needs no log; the next step begins another one.  So a file is whole, with what lies beside it,
if the number that it needs is one of the two that it holds; wherever a crash comes, that is so.

Past the log means: into the page of that table, which SQLite never writes again.  How far the owner
has come is sealed together with the number: a file into which a log was copied in part has the page
of the one without that of the other, and is refused if the log is lost then.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from affinedp.files.connections import Connection
from affinedp.files.sqlite import log_of
from affinedp.once.owner import Owner
from affinedp.once.syncing import sync

NUMBER_BYTES = 16
NONE = bytes(NUMBER_BYTES)  # of a state of which nothing was sent
# What stands before the number in the file: there it is found again.
MARK = b"the log needed: "


class LogNumber:
    """The number of the log of an open state.

    Parameters
    ----------
    owner : Owner
        Whose state it is.
    path : Path
        The state.
    connection : Connection
        To it, the only one.

    Attributes
    ----------
    number : bytes
        Of the last log that was begun.
    """

    def __init__(self, owner: Owner, path: Path, connection: Connection) -> None:
        self._handle = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        connection.keep(self._handle)
        self._place = _place(owner, path, connection, self._handle)
        os.lseek(self._handle, self._place, os.SEEK_SET)
        self._needed = os.read(self._handle, NUMBER_BYTES)
        found = connection.execute("SELECT * FROM log").fetchall()
        if len(found) != 1:
            raise owner.damaged(f"{path}: what it says about its log was altered")
        self.number, before = found[0]
        if self._needed not in (self.number, before):
            raise owner.damaged(
                f"{path} needs its log {log_of(path).name}, which is missing, empty or "
                "another one: steps may have been sent that nothing here knows of. Put back the "
                "log that lay beside it"
            )

    def begin(self, connection: Connection) -> None:
        """Write the number of a new log into it, inside the transaction of its first step.

        Parameters
        ----------
        connection : Connection
            To the state.
        """
        self.number = secrets.token_bytes(NUMBER_BYTES)
        connection.execute("UPDATE log SET number = ?, before = ?", (self.number, self._needed))

    def begun(self) -> None:
        """Let the file need the new log, which is on the disk; before its first step is sent."""
        os.lseek(self._handle, self._place, os.SEEK_SET)
        os.write(self._handle, self.number)
        sync(self._handle)
        self._needed = self.number


def _place(owner: Owner, path: Path, connection: Connection, handle: int) -> int:
    """Where in the file the number stands."""
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'needs'"
    page = int(connection.execute(query).fetchone()[0])
    size = int(connection.execute("PRAGMA page_size").fetchone()[0])
    for _ in range(2):
        os.lseek(handle, (page - 1) * size, os.SEEK_SET)
        # SQLite fills a page from its end, where the number cannot lie in two sectors of the disk
        if os.read(handle, size)[-len(MARK) - NUMBER_BYTES :].startswith(MARK):
            return page * size - NUMBER_BYTES
        # the crash came before the new file got its page, which is in the log then
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    raise owner.damaged(f"{path}: what it says about its log was altered")
