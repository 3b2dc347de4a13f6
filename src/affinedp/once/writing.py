"""Writing a new state."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from affinedp.files.sqlite import write_whole
from affinedp.once.log import MARK, NONE
from affinedp.once.owner import KNOWS_ITS_LOG, Owner
from affinedp.once.record import Draw, Head, sealed, to_text


def write_state(owner: Owner, folder: Path, path: Path, draw: Draw, head: Head) -> Path:
    """Write a complete state into a folder, onto the disk, and return its path.

    Parameters
    ----------
    owner : Owner
        Whose it is.
    folder : Path
        From :func:`~affinedp.files.sqlite.building`.
    path : Path
        Where it will be.
    draw : Draw
        The draw.
    head : Head
        Where to begin.
    """

    def fill(connection: sqlite3.Connection) -> None:
        drawn = (draw.header, draw.salt, to_text(draw.numbers), draw.commitment)
        connection.execute("INSERT INTO draw VALUES (?, ?, ?, ?)", drawn)
        knows_its_log = owner.kind.version >= KNOWS_ITS_LOG
        numbers, log = to_text(head.numbers), NONE if knows_its_log else b""
        seal = sealed(draw.salt, "path", head.next_step, numbers.encode() + log)
        connection.execute("INSERT INTO path VALUES (?, ?, ?)", (head.next_step, numbers, seal))
        nothing = (0, 0, "", sealed(draw.salt, "reserved", 0, b"0 "))
        connection.execute("INSERT INTO reserved VALUES (?, ?, ?, ?)", nothing)
        if knows_its_log:
            connection.execute("INSERT INTO log VALUES (?, ?)", (NONE, NONE))
            connection.execute("INSERT INTO needs VALUES (?)", (MARK + NONE,))

    return write_whole(owner.kind, folder, path, fill)
