"""What an eavesdropper sees: every message that a broker delivers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from affinedp.wire.broker import Broker
from affinedp.wire.connection import Connection
from affinedp.wire.line import POLL, LineLog

logger = logging.getLogger(__name__)


def eavesdrop(broker: Broker, topics: Sequence[str], log: Path, stop: threading.Event) -> int:
    """Write down every message that a broker delivers, until stopped.

    Parameters
    ----------
    broker : Broker
        Where to listen.
    topics : sequence of str
        To what; ``#`` is everything.
    log : Path
        Where to: one JSON object per line, with ``time``, ``topic`` and ``payload`` (``hex``
        instead, if it is not UTF-8 text).
    stop : Event
        Ends it.

    Returns
    -------
    int
        How many messages.
    """
    count = 0
    with LineLog(log) as lines, Connection(broker, topics) as connection:
        logger.info("eavesdropper: listening to %s at %s", ", ".join(topics), broker.address)
        while not stop.is_set():
            message = connection.receive(POLL)
            if message is None:
                continue
            try:
                content = {"payload": message.payload.decode("utf-8")}
            except UnicodeDecodeError:
                content = {"hex": message.payload.hex()}
            lines.write(time=time.time(), topic=message.topic, **content)
            count += 1
    return count
