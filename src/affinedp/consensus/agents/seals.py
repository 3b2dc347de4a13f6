"""Messages that nobody else can have written: one shared key for each link.

A sealed message is ``{"message": …, "session": "…", "for": "…", "tag": "…"}``.  The tag is an
HMAC-SHA-256 (Python's :mod:`hmac`) under the key of the link, over the topic's prefix, both
sessions and the message in its one spelling: who, to whom, run, round and all numbers are in it.

A session is a random number that a process makes when it starts.  An agent takes note of a message
only if it is *for* its own session, so that what was recorded before it started, in this run or in
any other with the same keys, is dropped.  Who does not know the other's session yet leaves it
open; such a message is not taken note of, but answered, and the answer tells.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from affinedp.consensus.agents.message import AgentMessage, checked_name, encode, read_message
from affinedp.errors import AffineDPError
from affinedp.wire.messages import MalformedMessageError, read_object

KEY_BYTES = 32
SESSION_BYTES = 16
_ENVELOPE = ("message", "session", "for", "tag")
_DOMAIN = "affinedp consensus 1"


class ForgedMessageError(AffineDPError):
    """A message that was not sealed with the key of its link."""


@dataclass(frozen=True)
class Keys:
    """The keys of an agent, one for each neighbour.

    Attributes
    ----------
    by_neighbour : mapping of str to bytes
        Secret, and shared with that neighbour alone.
    """

    by_neighbour: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Keys:
        """Read a key file: one line for each neighbour, its name and 64 hexadecimal digits.

        Parameters
        ----------
        file : str or Path
            For its owner only.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> write_keys(folder.name, [("1", "2")])
        ['1', '2']
        >>> one, two = (Keys.read(f"{folder.name}/{name}.keys") for name in "12")
        >>> one.by_neighbour["2"] == two.by_neighbour["1"]
        True
        """
        path = Path(file)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            shared = os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise AffineDPError(f"the key file {path} cannot be read: {reason}") from None
        if shared:
            raise AffineDPError(
                f"the key file {path} can be read by others than its owner: make new keys, since "
                "these may be known, and chmod 600 them"
            )
        found: dict[str, bytes] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words:
                continue
            try:
                name, key = checked_name(words[0]), bytes.fromhex(" ".join(words[1:]))
            except ValueError:
                key = b""
            if len(key) != KEY_BYTES or name in found:
                raise AffineDPError(
                    f"line {number} of the key file {path} must be the name of a neighbour and "
                    f"{2 * KEY_BYTES} hexadecimal digits, each neighbour once"
                )
            found[name] = key
        return cls(found)

    def check(self, neighbours: Iterable[str]) -> None:
        """Refuse keys that leave a neighbour out.

        Parameters
        ----------
        neighbours : iterable of str
            Who needs one.
        """
        missing = [name for name in neighbours if name not in self.by_neighbour]
        if missing:
            raise AffineDPError(f"there is no key for the link with agent {missing[0]!r}")


def write_keys(folder: str | os.PathLike[str], links: Iterable[tuple[str, str]]) -> list[str]:
    """Make a key for each link, and write a key file for each agent.

    Parameters
    ----------
    folder : str or Path
        Where to; no key file is overwritten.
    links : iterable of (str, str)
        Each link once.

    Returns
    -------
    list of str
        The agents; the file of each is its name with ``.keys``.
    """
    files: dict[str, list[str]] = {}
    for one, other in links:
        key = secrets.token_hex(KEY_BYTES)
        for agent, neighbour in ((one, other), (other, one)):
            files.setdefault(checked_name(agent), []).append(f"{neighbour} {key}\n")
    where = Path(folder)
    present = [name for name in files if os.path.lexists(where / f"{name}.keys")]
    if present:
        raise AffineDPError(f"{where / present[0]}.keys exists: no key is overwritten")
    for name, lines in files.items():
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(where / f"{name}.keys", flags, 0o600), "w") as file:
                file.writelines(lines)
        except OSError as error:
            raise AffineDPError(f"{where / name}.keys: {error.strerror}") from None
    return list(files)


class Seals:
    """The seals of one process: its session, and those of its neighbours as far as they are known.

    Parameters
    ----------
    keys : Keys
        Of the agent.
    prefix : str
        Of the topics.
    """

    def __init__(self, keys: Keys, prefix: str) -> None:
        self._keys = keys.by_neighbour
        self._prefix = prefix
        self._session = secrets.token_hex(SESSION_BYTES)
        self._theirs: dict[str, str] = {}

    def seal(self, message: AgentMessage, session: str | None = None) -> bytes:
        """Write a message with its tag.

        Parameters
        ----------
        message : AgentMessage
            Of this agent, to a neighbour.
        session : str, optional
            For which session of the neighbour; the one it is known to have by default.
        """
        theirs = session or self._theirs.get(message.to)
        record: dict[str, Any] = {"message": json.loads(encode(message)), "session": self._session}
        record |= {"for": theirs, "tag": self._tag(message.to, message, self._session, theirs)}
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()

    def open(self, payload: bytes, agent: str, to: str) -> tuple[AgentMessage, str | None]:
        """Read a message whose tag is right, and say which session must be answered first.

        Parameters
        ----------
        payload : bytes
            What arrived.
        agent, to : str
            From whom and to whom: one of the two is this agent.

        Returns
        -------
        message : AgentMessage
            It counts only if the second is None.
        session : str or None
            Of a sender that did not know ours: answer that one.

        Raises
        ------
        ForgedMessageError
            If there is no key for it or its tag is wrong.
        MalformedMessageError
            If it is no sealed message.
        """
        record = read_object(payload, _ENVELOPE)
        inner, session, theirs, tag = (record[key] for key in _ENVELOPE)
        texts = [session, tag] + ([] if theirs is None else [theirs])
        if not isinstance(inner, dict) or not all(isinstance(text, str) for text in texts):
            raise MalformedMessageError("it is no sealed message")
        message = read_message(inner, agent, to)
        neighbour = agent if agent in self._keys else to
        if neighbour not in self._keys:
            raise ForgedMessageError(f"there is no key for the link of {agent!r} and {to!r}")
        wanted = self._tag(neighbour, message, session, theirs)
        # a forged tag may be no text that can be encoded, such as half a surrogate pair
        if not hmac.compare_digest(wanted.encode(), tag.encode(errors="replace")):
            raise ForgedMessageError(f"it is not sealed with the key that {agent!r} has")
        if neighbour == to:  # our own came back; of another session it may be a recording
            return message, None if session == self._session else session
        if theirs != self._session:
            return message, session
        self._theirs[agent] = session
        return message, None

    def knows(self, neighbour: str) -> str | None:
        """Return the session of a neighbour that has answered ours, or None.

        Parameters
        ----------
        neighbour : str
            Its name.
        """
        return self._theirs.get(neighbour)

    def _tag(self, neighbour: str, message: AgentMessage, ours: str, theirs: str | None) -> str:
        text = json.dumps([_DOMAIN, self._prefix, ours, theirs, encode(message).decode()])
        return hmac.digest(self._keys[neighbour], text.encode(), hashlib.sha256).hex()
