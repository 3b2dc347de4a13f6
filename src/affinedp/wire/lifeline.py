"""Processes that end with the one who started them, however that one ended.

Who starts a process holds a pipe to its standard input and writes nothing.  When the holder is
gone, killed or not, the system closes the pipe, and the process reads the end of its input.  That
is so on every system, and nobody has to look whether a process of some number still runs.

``python -m affinedp.wire.lifeline PROGRAM …`` does this for a program that does not listen itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

GOODBYE = 10.0  # seconds for a program to end when it is asked to


def when_input_ends(act: Callable[[], object]) -> None:
    """Do something, on a thread of its own, when standard input has ended.

    Parameters
    ----------
    act : callable
        What to do.
    """
    threading.Thread(target=_listen, args=(act,), daemon=True).start()


def _listen(act: Callable[[], object]) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # a broken pipe has nobody at its other end either
    act()


def keep(command: Sequence[str]) -> int:
    """Run a program until it ends, or standard input does, or SIGTERM comes; its exit code.

    Parameters
    ----------
    command : sequence of str
        The program and its words.  It is given no input.
    """
    running: list[subprocess.Popen[bytes]] = []
    asked = threading.Event()

    def end(*_: object) -> None:
        asked.set()
        for process in running:
            process.terminate()  # nothing if it has ended

    def end_at_last() -> None:
        end()
        time.sleep(GOODBYE)
        for process in running:
            process.kill()

    signal.signal(signal.SIGTERM, end)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    running.append(process)
    if asked.is_set():  # while it was started
        process.terminate()
    when_input_ends(end_at_last)
    return process.wait()


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
