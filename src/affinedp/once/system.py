"""Which start of the operating system this is."""

from __future__ import annotations

import secrets
from pathlib import Path

_THIS_PROCESS = secrets.token_hex(16)


def running_system() -> str:
    """Return a name of the running system that no other start of it has.

    A virtual machine that is put back to a snapshot was not started anew: it has the same name.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _THIS_PROCESS  # elsewhere every process counts as another system
