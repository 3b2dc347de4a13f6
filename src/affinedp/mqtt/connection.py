"""A connection to a broker that comes back by itself: a thin layer over paho-mqtt."""

from __future__ import annotations

import logging
import queue
import secrets
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.mqtt.broker import Broker, check_filter, check_topic, tls_context
from affinedp.mqtt.messages import Dropped

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo
    from paho.mqtt.reasoncodes import ReasonCode

logger = logging.getLogger(__name__)

KEEPALIVE = 30  # seconds without a word from the broker before it counts as gone
LARGEST_PACKET = 1 << 20  # bytes; the broker is told to send nothing larger
NOT_SPOKEN = 0x84  # unsupported protocol version
NOT_ALLOWED = (0x86, 0x87)  # bad user name or password; not authorized
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds between attempts to connect
GOODBYE = 2.0  # seconds for the broker to confirm what was sent, and to be left
POLL = 0.1  # seconds between two looks at whether it is still there
MOST_WAITING = 10_000  # messages that nobody has taken, or that the broker has not confirmed
# A broker that cannot be reached for such a reason may come yet.
ABSENT = (socket.gaierror, ConnectionRefusedError, TimeoutError)


class Message(NamedTuple):
    """What a broker delivered, and on which topic."""

    topic: str
    payload: bytes


class Will(NamedTuple):
    """What the broker publishes for us when our connection breaks, to be kept or not."""

    topic: str
    payload: bytes
    retain: bool


class Connection:
    """A connection to a broker that comes back by itself.

    It keeps the network alive in a thread of its own: it answers the broker, and when the broker
    goes away it tries again, ever more patiently, and subscribes anew.  Messages wait in a queue
    until :meth:`receive` takes them out, or a handler gets them at once.  What goes wrong on that
    thread, in a handler too, is raised on the caller's thread by the next call.

    Delivery is at least once (QoS 1) while connected.  What is published while the broker is away
    is dropped: who needs an answer sends again, and finds a fresh value more useful than a heap of
    old ones.

    Parameters
    ----------
    broker : Broker
        Where to connect.
    topics : sequence of str
        What to subscribe to; wildcards are allowed.
    handler : callable, optional
        Called with each message, one at a time, on the thread of the connection.  An exception in
        it ends the connection.
    timeout : float
        Seconds to wait for the broker's first answer.
    retained : bool
        Whether to be sent what the broker kept from before we came.
    patience : float
        Seconds to wait for a broker that is not there yet.
    stop : Event, optional
        Ends that waiting.
    will : Will, optional
        What the broker publishes when our connection breaks.
    on_connect : callable, optional
        Called on the thread of the connection whenever our subscriptions stand.

    Raises
    ------
    AffineDPError
        When the first connection fails: nobody there, unknown host, wrong password, TLS.  Later
        failures are logged, and tried again.

    Notes
    -----
    Use it as a context manager.  It speaks MQTT 5, and 3.1.1 to a broker that refuses version 5;
    that one does not say which messages it refuses, nor can it be told to send nothing large.
    """

    def __init__(
        self,
        broker: Broker,
        topics: Sequence[str] = (),
        handler: Callable[[Message], None] | None = None,
        timeout: float = 10.0,
        retained: bool = True,
        *,
        patience: float = 0.0,
        stop: threading.Event | None = None,
        will: Will | None = None,
        on_connect: Callable[[], None] | None = None,
    ) -> None:
        for topic in topics:
            check_filter(topic)
        self.broker = broker
        self._topics = tuple(topics)
        self._handler = handler
        self._timeout = timeout
        self._patience = patience
        self._stop = threading.Event() if stop is None else stop
        self._greet = on_connect
        self._retained = retained
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._settled = threading.Event()  # the first connection stands, or has failed
        self._connected = threading.Event()
        self._sent: deque[MQTTMessageInfo] = deque()  # what the broker may not have yet
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._pause = FIRST_PAUSE
        self.dropped = Dropped(f"connection to {broker.address}")
        self._will = will
        self._speak_older = False
        self._client = self._new_client()
        self._thread = threading.Thread(target=self._network, name="mqtt", daemon=True)

    def __enter__(self) -> Connection:
        try:
            self._reach()
            self._thread.start()
            if not self._settled.wait(self._timeout):
                raise AffineDPError(
                    f"{self.broker.address} accepts connections but does not answer as an MQTT "
                    f"broker within {self._timeout:g} s"
                )
            self.check()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        """Whether the broker is there now, and our subscriptions stand."""
        return self._connected.is_set()

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> bool:
        """Send a message with QoS 1.

        Parameters
        ----------
        topic : str
            Without wildcards.
        payload : bytes
            What to send.
        retain : bool
            Whether the broker keeps it for those who subscribe later.

        Returns
        -------
        bool
            False if the broker is away; the message is dropped then.
        """
        check_topic(topic)
        self.check()
        if not self.connected:
            return False
        sent = self._client.publish(topic, payload, qos=1, retain=retain)
        if int(sent.rc) != 0:
            return False
        if threading.current_thread() is self._thread:
            self._client.loop_write()  # an answer need not wait for the next turn
        while self._sent and self._sent[0].is_published():
            self._sent.popleft()
        self._sent.append(sent)
        return True

    def receive(self, timeout: float) -> Message | None:
        """Take the next message, in the order of arrival.

        Parameters
        ----------
        timeout : float
            Seconds to wait for one.

        Returns
        -------
        Message or None
            None if there was none in time.
        """
        try:
            return self._inbox.get(timeout=timeout)
        except queue.Empty:
            self.check()
            return None

    def check(self) -> None:
        """Raise what went wrong on the connection's thread, if anything."""
        if isinstance(self._failure, AffineDPError):
            raise self._failure
        if self._failure is not None:
            raise AffineDPError(
                f"the connection to {self.broker.address} broke down: {self._failure!r}"
            ) from self._failure

    def close(self) -> None:
        """Say goodbye; what was published before is still sent if the broker is there."""
        # A socket that is closed while something in it is unread takes down what the other side
        # has not read yet, so the broker's confirmations are waited for.
        deadline = time.monotonic() + GOODBYE
        while self._sent and self.connected and time.monotonic() < deadline:
            self._sent[0].wait_for_publish(POLL)
            if self._sent[0].is_published():
                self._sent.popleft()
        self._closing.set()
        self._client.disconnect()
        if self._thread.is_alive():
            self._thread.join(timeout=GOODBYE)

    # ------------------------------------------------------------------ connecting

    def _new_client(self, older: bool = False) -> Client:
        """A client of paho-mqtt with our settings, not yet connected."""
        try:
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
        except ImportError:
            raise MissingExtraError("paho-mqtt", "network") from None
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"affinedp-{secrets.token_hex(8)}",
            protocol=MQTTProtocolVersion.MQTTv311 if older else MQTTProtocolVersion.MQTTv5,
        )
        client.max_queued_messages_set(MOST_WAITING)
        if self.broker.username is not None:
            client.username_pw_set(self.broker.username, self.broker.password)
        if self.broker.tls:
            client.tls_set_context(tls_context(self.broker))
        if self._will is not None:
            client.will_set(self._will.topic, self._will.payload, qos=1, retain=self._will.retain)
        client.on_socket_open = _no_delay
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        # with this paho leaves writing to the network's thread, and wakes it
        client.on_socket_register_write = lambda *_: None
        return client

    def _reach(self) -> None:
        """Connect for the first time; a broker that is not there yet is waited for."""
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        newer = {} if is_older(self._client) else {"clean_start": True, "properties": _limits()}
        while True:
            try:
                self._client.connect(
                    self.broker.host, self.broker.port or 0, keepalive=KEEPALIVE, **newer
                )
                return
            except (OSError, UnicodeError) as error:
                why, left = _why_not(self.broker, error), until - time.monotonic()
                if not isinstance(error, ABSENT) or left <= 0:
                    raise AffineDPError(why) from None
                if pause == FIRST_PAUSE:
                    logger.warning("%s; waiting for it", why)
                if self._stop.wait(min(pause, left)):
                    raise AffineDPError(why) from None
                pause = min(2.0 * pause, LONGEST_PAUSE)

    def _come_back(self) -> None:
        while not self._closing.wait(self._pause):
            self._pause = min(2.0 * self._pause, LONGEST_PAUSE)
            try:
                self._client.reconnect()
                break
            except OSError as error:
                logger.debug("%s: %s", self.broker.address, error)
        if self._closing.is_set():
            self._client.disconnect()

    # ------------------------------------------------------------------ the network's thread

    def _network(self) -> None:
        try:
            while True:
                if int(self._client.loop(1.0)) == 0:
                    continue
                was_connected = self._connected.is_set()
                self._connected.clear()
                if self._closing.is_set():
                    return
                if self._speak_older and not is_older(self._client):
                    self._client = self._new_client(older=True)
                    self._reach()
                    continue
                if not self._settled.is_set():
                    raise AffineDPError(
                        f"{self.broker.address} closed the connection before answering; it may "
                        "want TLS or a client certificate, or not be an MQTT broker"
                    )
                if was_connected:
                    logger.warning("lost the broker at %s; trying again", self.broker.address)
                self._come_back()
        except Exception as error:  # handed to the caller's thread, which must not wait for ever
            self._failure = error
            self._connected.clear()
            self._settled.set()

    def _on_connect(
        self, client: Client, data: Any, flags: Any, code: ReasonCode, properties: Any
    ) -> None:
        if code.value == NOT_SPOKEN and not is_older(client):
            self._speak_older = True  # the broker ends this connection, and we come again
        elif code.value in NOT_ALLOWED:
            known = self.broker.username is not None
            given = "wrong username or password" if known else "it wants a username"
            self._refuse(f"refuses the connection: {given} ({code})")
        elif code.is_failure:
            self._refuse(f"refuses the connection: {code}")
        elif self._topics:
            _subscribe(client, self._topics, self._retained)
        else:
            self._stands()

    def _on_subscribe(
        self, client: Client, data: Any, mid: int, codes: list[ReasonCode], properties: Any
    ) -> None:
        for topic, code in zip(self._topics, codes):
            if code.is_failure:
                self._refuse(f"refuses the subscription to {topic!r}: {code}")
                return
        self._stands()

    def _stands(self) -> None:
        if self._settled.is_set():
            logger.warning("connected to %s again", self.broker.address)
        self._pause = FIRST_PAUSE
        self._connected.set()
        self._settled.set()
        if self._greet is not None:
            self._greet()

    def _refuse(self, reason: str) -> None:
        said = f"the broker at {self.broker.address} {reason}"
        if not self._settled.is_set():
            raise AffineDPError(said)
        logger.warning("%s", said)

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        if not self._is_wanted(message):
            return
        arrived = Message(message.topic, bytes(message.payload))
        if self._handler is not None:
            self._handler(arrived)
        elif self._inbox.qsize() < MOST_WAITING:
            self._inbox.put(arrived)
        else:
            self.dropped.add("too fast", "they come faster than they are handled")

    def _is_wanted(self, message: MQTTMessage) -> bool:
        """Whether a message is what was subscribed to.

        amqtt also sends kept messages on topics that others subscribed to; and under MQTT 3.1.1 no
        broker can be asked not to send what it kept.
        """
        from paho.mqtt.client import topic_matches_sub

        if message.retain and not self._retained:
            return False
        topic = message.topic
        return topic in self._topics or any(topic_matches_sub(t, topic) for t in self._topics)

    def _on_publish(
        self, client: Client, data: Any, mid: int, code: ReasonCode, properties: Any
    ) -> None:
        if code.is_failure:
            self.dropped.add("refused by the broker", str(code))


def _why_not(broker: Broker, error: Exception) -> str:
    """Why a broker cannot be reached, plainly."""
    address = broker.address
    match error:
        case socket.gaierror():
            return f"there is no host named {broker.host!r}"
        case ssl.SSLCertVerificationError():
            said = error.verify_message
            return f"the certificate of {address} is not trusted: {said}; give its CA file"
        case ConnectionRefusedError():
            return f"no broker listens at {address}"
        case TimeoutError():
            return f"{address} does not answer"
        case ssl.SSLError() | ConnectionError() if broker.tls:
            return f"no TLS with {address}: {error}; is it the TLS port?"
    return f"{address} cannot be reached: {error}"


def is_older(client: Client) -> bool:
    """Whether a client speaks MQTT 3.1.1."""
    from paho.mqtt.enums import MQTTProtocolVersion

    return client.protocol == MQTTProtocolVersion.MQTTv311


def _subscribe(client: Client, topics: Sequence[str], retained: bool) -> None:
    """Subscribe with QoS 1; under MQTT 3.1.1 what was kept is sent anyway, and marked."""
    if is_older(client):
        client.subscribe([(topic, 1) for topic in topics])
        return
    from paho.mqtt.subscribeoptions import SubscribeOptions

    kept = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
    if not retained:
        kept = SubscribeOptions.RETAIN_DO_NOT_SEND
    options = SubscribeOptions(qos=1, retainHandling=kept)
    client.subscribe([(topic, options) for topic in topics])


def _limits() -> Any:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.MaximumPacketSize = LARGEST_PACKET
    return properties


def _no_delay(client: Client, data: Any, opened: Any) -> None:
    # Nagle's algorithm together with QoS 1 would delay every message by some 40 ms
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
