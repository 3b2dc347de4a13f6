"""A broker in Python for trials: amqtt in a process of its own, which only this machine can reach.

``python -m affinedp.mqtt.embedded PORT`` ends when its standard input does, so it never outlives
who started it, however that ended.

amqtt speaks MQTT 3.1.1 only.  It reads the first words of a client that speaks MQTT 5 wrongly and
waits for more of them, so those are read here first, and answered as the standard wants it: this
version is not spoken.  It also sends whoever connects all kept messages that anyone subscribed to,
and breaks off if somebody subscribes meanwhile; here they go only to who subscribed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from affinedp.mqtt.lifeline import when_input_ends

if TYPE_CHECKING:
    from amqtt.broker import Broker
    from amqtt.session import Session

CONNECT = 0x10
HELLO = b"\0\4MQTT\4"  # the name of the protocol, and the level of MQTT 3.1.1
LISTENER = "default"  # amqtt wants one of this name
MOST_LENGTH_BYTES = 4
UNACCEPTABLE_VERSION = bytes([0x20, 2, 0, 1])  # CONNACK


def main() -> None:
    """Serve until standard input ends."""
    logging.basicConfig(level=logging.WARNING)
    when_input_ends(lambda: os._exit(0))
    port = int(sys.argv[1])
    try:
        asyncio.run(_serve(port))
    except OSError as error:
        sys.exit(f"no broker at port {port}: {error.strerror}")


async def _serve(port: int) -> None:
    from amqtt.broker import Broker

    class Courteous(Broker):  # type: ignore[misc]
        async def _publish_retained_messages_for_subscription(
            self, subscription: tuple[str, int], session: Session
        ) -> None:
            who = self._subscriptions.get(subscription[0], [])
            if any(subscriber is session for subscriber, _ in who):
                await super()._publish_retained_messages_for_subscription(subscription, session)

    anonymous = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    broker = Courteous({"listeners": {LISTENER: {"type": "external"}}, "plugins": anonymous})
    await broker.start()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _welcome(broker, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(welcome, "127.0.0.1", port)
    await server.serve_forever()


class _FromTheBeginning:
    """A reader for amqtt that gives first what was read before."""

    def __init__(self, words: bytes, reader: asyncio.StreamReader) -> None:
        self._words = words
        self._reader = reader

    async def read(self, n: int) -> bytes:
        """Read so many bytes."""
        first, self._words = self._words[:n], self._words[n:]
        return first + await self._reader.readexactly(n - len(first)) if len(first) < n else first

    def feed_eof(self) -> None:
        """End it."""
        self._reader.feed_eof()


async def _welcome(
    broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Hand a client over to amqtt, with its first words, unless it speaks another version."""
    from amqtt.adapters import StreamWriterAdapter

    words = await reader.readexactly(2)
    if words[0] != CONNECT:
        raise ConnectionError("these are not the words of a client of MQTT")
    while words[-1] & 0x80 and len(words) <= MOST_LENGTH_BYTES:
        words += await reader.readexactly(1)
    hello = await reader.readexactly(len(HELLO))
    if hello != HELLO:
        writer.write(UNACCEPTABLE_VERSION)
        await writer.drain()
        writer.close()
        return
    client = _FromTheBeginning(words + hello, reader), StreamWriterAdapter(writer)
    await broker.external_connected(*client, listener_name=LISTENER)


if __name__ == "__main__":
    main()
