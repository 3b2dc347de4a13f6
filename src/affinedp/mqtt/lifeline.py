"""Processes that end with the one who started them, however that one ended.

Who starts a process holds a pipe to its standard input and writes nothing.  When the holder is
gone, killed or not, the system closes the pipe, and the process reads the end of its input.  That
is so on every system, and nobody has to look whether a process of some number still runs.

``python -m affinedp.mqtt.lifeline PROGRAM …`` does this for a program that does not listen itself.
On Linux that program also ends if the lifeline is killed; elsewhere it stays.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

GOODBYE = 10.0  # seconds for a program to end when it is asked to
_SIGNAL_WHEN_PARENT_ENDS = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


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


def keep(command: Sequence[str]) -> int:
    """Run a program, without input, until it ends, our input does, or SIGTERM comes; its code."""
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
    # no other thread runs yet, so what is done between fork and exec cannot meet a lock
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_tied_to(os.getpid()))
    running.append(process)
    if asked.is_set():  # while it was started
        process.terminate()
    when_input_ends(end_at_last)
    return process.wait()


def _tied_to(parent: int) -> Callable[[], None] | None:
    """What a new process does to end with its parent, also if that one is killed."""
    if not sys.platform.startswith("linux"):
        return None
    control = ctypes.CDLL(None).prctl

    def tie() -> None:
        control(_SIGNAL_WHEN_PARENT_ENDS, signal.SIGTERM)
        if os.getppid() != parent:  # it was gone before the system could know
            os._exit(1)

    return tie


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
