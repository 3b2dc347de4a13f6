"""``python -m affinedp.cli.started …``: a command that ends with the one who started it.

Trials start their processes so.  On a killed trial they close their states as on SIGTERM, and do
not look for its broker for ever.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time

from affinedp.cli import main
from affinedp.cli.exits import UNEXPECTED
from affinedp.mqtt.lifeline import when_input_ends

PATIENCE = 20.0  # seconds to end in order


def _end() -> None:
    if hasattr(signal, "pthread_kill"):  # also wakes it up
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    else:
        _thread.interrupt_main(signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(UNEXPECTED)


if __name__ == "__main__":
    when_input_ends(_end)
    main()
