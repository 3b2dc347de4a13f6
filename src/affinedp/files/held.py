"""Locks that end with the process that took them, and with no other handle of the file.

SQLite's own locks are those of POSIX: they are dropped as soon as this process closes *any* handle
of the file, be it a copy or a checksum.  A lock of ``flock`` belongs to one handle.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: SQLite's locks there belong to its handle
    fcntl = None

PAUSE = 0.01  # seconds between two looks at what another process holds


def lock(handle: int) -> bool:
    """Take a lock that ends with this handle; False if another has it.

    Parameters
    ----------
    handle : int
        An open file or folder.
    """
    assert fcntl is not None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks
        return True
    return True


def is_still(path: Path, handle: int) -> bool:
    """Whether a file was not removed between opening and locking it.

    Parameters
    ----------
    path : Path
        Its name.
    handle : int
        The open file.
    """
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False


def identity(path: str | Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none.

    Parameters
    ----------
    path : str or Path
        Its name.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def hold(path: Path, seconds: float) -> int | None:
    """Lock a file, for the owner only, which is made if there is none.

    Parameters
    ----------
    path : Path
        The file.
    seconds : float
        How long to wait for another one that holds it.

    Returns
    -------
    int or None
        The handle that has the lock; None where there are no such locks.

    Raises
    ------
    BlockingIOError
        If another one holds it.
    """
    if fcntl is None:
        return None
    deadline = time.monotonic() + seconds
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        if lock(handle) and is_still(path, handle):
            return handle
        os.close(handle)
        if time.monotonic() > deadline:
            raise BlockingIOError
        time.sleep(PAUSE)
