"""Processes that end with the one who started them, however that one ended.

Who starts a process holds a pipe to its standard input and writes nothing.  When the holder is
gone, killed or not, the system closes the pipe, and the process reads the end of its input.  That
is so on every system, and nobody has to look whether a process of some number still runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def when_input_ends(act: Callable[[], object]) -> None:
    """Do something, on a thread of its own, when standard input has ended."""
    threading.Thread(target=_listen, args=(act,), daemon=True).start()


def _listen(act: Callable[[], object]) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # a broken pipe has nobody at its other end either
    act()
