"""What a computation may take: a file that unpacks to the whole memory ends one process only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# A page is not the place for more; the command line has no such limit.
SHARE = 0.25
LEAST_BYTES = 2_000_000_000


def limit_memory() -> None:
    """Keep this process to a share of the memory, and offer it first where memory runs out.

    Beyond it comes a MemoryError.  Where a system has no such limits, nothing happens.
    """
    _limit("RLIMIT_DATA", _most_bytes())
    with suppress(OSError):  # of Linux: the server and the browser stay
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def leave_no_dump() -> None:
    """Write no memory to a disk when this process crashes: private numbers may be in it."""
    _limit("RLIMIT_CORE", 0)


def _most_bytes() -> int:
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return LEAST_BYTES
    return max(LEAST_BYTES, int(SHARE * there))


def _limit(kind: str, most: int) -> None:
    try:
        import resource
    except ImportError:  # of POSIX only
        return
    number = getattr(resource, kind, None)
    if number is None:
        return
    _, hard = resource.getrlimit(number)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(number, (allowed, hard))
