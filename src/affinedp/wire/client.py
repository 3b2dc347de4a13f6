"""A client of paho-mqtt for a broker, and its first words with it, with clear refusals."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.wire.broker import Broker, tls_context

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

KEEPALIVE = 30  # seconds without a word from the broker before it counts as gone
LARGEST_PACKET = 1 << 20  # bytes; the broker is told to send nothing larger
NOT_SPOKEN = 0x84  # unsupported protocol version
MOST_QUEUED = 10_000  # messages that the broker has not confirmed yet


class BrokerError(AffineDPError):
    """A broker that cannot be reached, or that refuses us."""


class AbsentBrokerError(BrokerError):
    """A broker that is not there, or not yet: it may come."""


class Message(NamedTuple):
    """What a broker delivered.

    Attributes
    ----------
    topic : str
        Where it was published.
    payload : bytes
        What was.
    """

    topic: str
    payload: bytes


class Will(NamedTuple):
    """What the broker publishes for us, to be kept, when our connection breaks.

    Attributes
    ----------
    topic : str
        Where.
    payload : bytes
        What.
    """

    topic: str
    payload: bytes


def new_client(broker: Broker, older: bool = False) -> Client:
    """Return a client of paho-mqtt with the settings for a broker, not yet connected.

    MQTT 5 says why a broker refuses something.  Under 3.1.1 it does not say so of messages, nor can
    it be told to send nothing large.

    Parameters
    ----------
    broker : Broker
        Where it will connect.
    older : bool
        Speak MQTT 3.1.1, because the broker does not speak MQTT 5.

    Returns
    -------
    paho.mqtt.client.Client
    """
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
    client.on_socket_open = _no_delay
    client.max_queued_messages_set(MOST_QUEUED)
    if broker.username is not None:
        client.username_pw_set(broker.username, broker.password)
    if broker.tls:
        client.tls_set_context(tls_context(broker))
    return client


def connect(client: Client, broker: Broker) -> None:
    """Open the connection; the broker's answer comes later.

    Parameters
    ----------
    client : paho.mqtt.client.Client
        From :func:`new_client`.
    broker : Broker
        Where to.

    Raises
    ------
    BrokerError
        If nobody is there, the host is unknown, or TLS fails.
    """
    address = broker.address
    assert broker.port is not None
    try:
        client.connect(
            broker.host,
            broker.port,
            keepalive=KEEPALIVE,
            **({} if is_older(client) else {"clean_start": True, "properties": _limits()}),
        )
    except socket.gaierror:
        raise AbsentBrokerError(f"there is no host named {broker.host!r}") from None
    except ssl.SSLCertVerificationError as error:
        raise BrokerError(
            f"the certificate of {address} is not trusted: {error.verify_message}; "
            "give the CA file that signed it"
        ) from None
    except ConnectionRefusedError:
        raise AbsentBrokerError(f"no broker listens at {address}") from None
    except TimeoutError:
        raise AbsentBrokerError(f"{address} does not answer") from None
    except (OSError, UnicodeError) as error:
        if broker.tls and isinstance(error, ssl.SSLError | ConnectionError):
            raise BrokerError(f"no TLS with {address}: {error}; is it the TLS port?") from None
        raise BrokerError(f"{address} cannot be reached: {error}") from None


def is_older(client: Client) -> bool:
    """Whether a client speaks MQTT 3.1.1.

    Parameters
    ----------
    client : paho.mqtt.client.Client
        From :func:`new_client`.
    """
    from paho.mqtt.enums import MQTTProtocolVersion

    return client.protocol == MQTTProtocolVersion.MQTTv311


def subscribe(client: Client, topics: Sequence[str], retained: bool) -> None:
    """Subscribe with QoS 1; the broker's answer comes later.

    Parameters
    ----------
    client : paho.mqtt.client.Client
        That is connected.
    topics : sequence of str
        To what.
    retained : bool
        Whether to be sent what the broker kept from before.  Under MQTT 3.1.1 it is sent anyway,
        and marked.
    """
    if is_older(client):
        client.subscribe([(topic, 1) for topic in topics])
        return
    from paho.mqtt.subscribeoptions import SubscribeOptions

    kept = (
        SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
        if retained
        else SubscribeOptions.RETAIN_DO_NOT_SEND
    )
    options = SubscribeOptions(qos=1, retainHandling=kept)
    client.subscribe([(topic, options) for topic in topics])


def wanted(message: MQTTMessage, topics: Sequence[str], retained: bool) -> bool:
    """Whether a message is what was subscribed to.

    amqtt also sends kept messages on topics that others subscribed to; and under MQTT 3.1.1 no
    broker can be asked not to send what it kept.

    Parameters
    ----------
    message : MQTTMessage
        What came.
    topics, retained
        As in :func:`subscribe`.
    """
    from paho.mqtt.client import topic_matches_sub

    if message.retain and not retained:
        return False
    topic = message.topic
    return topic in topics or any(topic_matches_sub(pattern, topic) for pattern in topics)


def reason_of(code: ReasonCode, broker: Broker) -> str:
    """Say why a broker refuses a connection.

    Parameters
    ----------
    code : ReasonCode
        Its answer.
    broker : Broker
        Who it is.
    """
    if code.value in (0x86, 0x87):  # bad user name or password; not authorized
        given = "wrong username or password" if broker.username else "it wants a username"
        return f"{given} ({code})"
    return str(code)


def _limits() -> Any:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.MaximumPacketSize = LARGEST_PACKET
    return properties


def _no_delay(client: Client, data: Any, opened: Any) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
