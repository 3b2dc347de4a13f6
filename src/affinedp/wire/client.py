"""A client of paho-mqtt for a broker, and its first words with it, with clear refusals."""

from __future__ import annotations

import secrets
import socket
import ssl
from typing import TYPE_CHECKING, Any

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.wire.broker import Broker, tls_context

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.reasoncodes import ReasonCode

KEEPALIVE = 30  # seconds without a word from the broker before it counts as gone
LARGEST_PACKET = 1 << 20  # bytes; the broker is told to send nothing larger
MOST_QUEUED = 10_000  # messages that the broker has not confirmed yet


class BrokerError(AffineDPError):
    """A broker that cannot be reached, or that refuses us."""


class AbsentBrokerError(BrokerError):
    """A broker that is not there, or not yet: it may come."""


def new_client(broker: Broker) -> Client:
    """Return a client of paho-mqtt with the settings for a broker, not yet connected.

    Parameters
    ----------
    broker : Broker
        Where it will connect.

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
        protocol=MQTTProtocolVersion.MQTTv5,  # this version says why it refuses something
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
            clean_start=True,
            properties=_limits(),
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
