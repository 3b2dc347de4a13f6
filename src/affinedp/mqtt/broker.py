"""Where an MQTT broker is and how it is spoken to, as plain checked values."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError

PLAIN_PORT, TLS_PORT = 1883, 8883
PASSWORD_VARIABLE = "AFFINEDP_MQTT_PASSWORD"

_WORD = r"[^\[\]/:@\s]"
_IPV6 = rf"{_WORD}*:(?:{_WORD}*:)+{_WORD}*"  # two colons or more; the system looks closer
_ADDRESS = re.compile(
    rf"(?:(?P<scheme>mqtts?)://)?(?:(?P<user>[^@/:\s]+)@)?"
    rf"(?:(?P<bare>{_IPV6})|(?:\[(?P<bracketed>{_IPV6})\]|(?P<name>{_WORD}+))(?::(?P<port>[0-9]{{1,9}}))?)"
)


@dataclass(frozen=True)
class Broker:
    """Where a broker is, and how to speak to it.

    Parameters
    ----------
    host : str
        Name or address.
    port : int, optional
        1883, or 8883 with TLS, when it is left out.
    username, password : str, optional
        The password is never shown.
    tls : bool
        Encrypt, and check the broker's certificate and name.
    ca_file : str or Path, optional
        Certificates to trust instead of the system's, in PEM.
    cert_file, key_file : str or Path, optional
        Our own certificate, for brokers that ask for one, in PEM.

    Examples
    --------
    >>> Broker("plant.example", tls=True).address
    'plant.example:8883'
    """

    host: str = "localhost"
    port: int | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None

    def __post_init__(self) -> None:
        if not self.host or not self.host.isprintable() or " " in self.host:
            raise AffineDPError(f"{self.host[:60]!r} is no name of a broker")
        if self.port is None:
            object.__setattr__(self, "port", TLS_PORT if self.tls else PLAIN_PORT)
        elif not 1 <= self.port <= 65535:
            raise AffineDPError(f"the port of a broker is from 1 to 65535, not {self.port}")
        if self.password is not None and self.username is None:
            raise AffineDPError("a password for the broker goes with a username")
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise AffineDPError("certificates and keys go with TLS: switch it on")
        if self.key_file and not self.cert_file:
            raise AffineDPError("a key file goes with a certificate file")

    @classmethod
    def parse(cls, address: str, **settings: Any) -> Broker:
        """Read ``host``, ``host:port``, ``[IPv6]:port`` or ``mqtts://user@host:port``.

        Parameters
        ----------
        address : str
            As above; ``mqtts`` is with TLS.  An IPv6 address without port needs no brackets.  A
            password never stands in an address, which everyone on a machine can read.
        **settings
            The other fields.

        Returns
        -------
        Broker

        Examples
        --------
        >>> Broker.parse("localhost:1883").address
        'localhost:1883'
        >>> Broker.parse("mqtts://plant@[::1]").address
        '[::1]:8883'
        >>> Broker.parse("http://localhost")
        Traceback (most recent call last):
        affinedp.errors.AffineDPError: 'http://localhost' is no address of a broker: write host:port
        """
        found = _ADDRESS.fullmatch(address.strip())
        if found is None:
            raise AffineDPError(f"{address[:60]!r} is no address of a broker: write host:port")
        host = found["bracketed"] or found["name"] or found["bare"]
        if found["scheme"] == "mqtts":
            settings["tls"] = True
        if found["user"] is not None:
            settings["username"] = found["user"]
        return cls(host, int(found["port"]) if found["port"] else None, **settings)

    @property
    def address(self) -> str:
        """Where it is, as ``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def password_from(file: str | Path | None = None) -> str | None:
    """Read a password from a file's first line, or else from ``AFFINEDP_MQTT_PASSWORD``."""
    if file is None:
        return os.environ.get(PASSWORD_VARIABLE)
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AffineDPError(f"the password file {file} cannot be read: {reason}") from None
    if not lines or not lines[0]:
        raise AffineDPError(f"the password file {file} is empty")
    return lines[0]


def tls_context(broker: Broker) -> ssl.SSLContext:
    """Return the settings of TLS: certificate and name of the broker are checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if broker.ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(broker.ca_file)
    except OSError as error:
        raise AffineDPError(f"the CA file {broker.ca_file} cannot be used: {_why(error)}") from None
    try:
        if broker.cert_file is not None:
            # an encrypted key is refused; asking for its password would hang a service
            context.load_cert_chain(broker.cert_file, broker.key_file, password=lambda: b"")
    except OSError as error:
        which = f"{broker.cert_file} and key {broker.key_file or broker.cert_file}"
        raise AffineDPError(f"the certificate {which} cannot be used: {_why(error)}") from None
    return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or "not a valid PEM file")
    return error.strerror or str(error)


def check_topic(topic: str) -> None:
    """Refuse what is not the name of one topic."""
    check_filter(topic)
    if "+" in topic or "#" in topic:
        raise AffineDPError(f"{topic[:60]!r} is not one topic: + and # are wildcards")


def check_filter(topic: str) -> None:
    """Refuse what cannot be subscribed to; wildcards are allowed."""
    levels = topic.split("/")
    bad_wildcard = any(len(level) > 1 and set(level) & set("+#") for level in levels)
    if bad_wildcard or "#" in levels[:-1]:
        raise AffineDPError(f"{topic[:60]!r} is no topic: + and # stand alone, # at the end only")
    if not topic or "\0" in topic or len(topic.encode("utf-8", "replace")) > 65535:
        raise AffineDPError(f"{topic[:60]!r} is no topic: it is empty, too long or holds NUL")
