"""Who may talk to the studio: this page, with the token of this run, and nobody else."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TOKEN_HEADER = b"x-studio-token"
MOST_QUESTION = 1_000_000
# Files that come in at once, and seconds within which a question or a file is here.
MOST_COMING = 4
LONGEST_COMING = 60.0

# Nothing is loaded from elsewhere, nothing is run that is not a file of ours, nobody frames it.
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Refused(Exception):
    """A status, and why nothing is answered."""


async def _whole_body(receive: Receive, limit: int) -> bytes:
    """What comes with a request, unless it is more than is taken, or takes too long."""
    content = bytearray()
    try:
        async with asyncio.timeout(LONGEST_COMING):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":  # nobody waits for an answer
                    raise Refused(400, "the request did not come to its end")
                content += message.get("body", b"")
                if len(content) > limit:
                    raise Refused(413, _too_large(limit))
                if not message.get("more_body", False):
                    return bytes(content)
    except TimeoutError:
        slow = f"this came too slowly: it may take {LONGEST_COMING:.0f} seconds"
        raise Refused(408, slow) from None


class Guard:
    """Let pass what comes from the page of this run, in sizes that can be handled."""

    def __init__(self, app: Any, token: str, hosts: tuple[str, ...], most_file: int) -> None:
        self.app = app
        self.token = token.encode()
        self.hosts = tuple(host.encode() for host in hosts)
        self.origins = tuple(b"http://" + host for host in self.hosts)
        self.most_file = most_file
        self.when_known: Callable[[], object] = _nothing  # called once the token was shown
        self._coming = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer, or hand on what is allowed."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no other protocol is spoken here
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        file = scope["path"] == "/api/files"
        limit = self.most_file if file else MOST_QUESTION
        came = False

        async def given() -> Message:
            nonlocal came
            if came:  # what comes now is the end of the connection, whenever that is
                return await receive()
            came = True
            return {"type": "http.request", "body": body}

        try:
            self._check(scope, limit)
            if file and self._coming >= MOST_COMING:
                raise Refused(429, "too many files come at once: wait for the others")
            self._coming += file
            try:
                body = await _whole_body(receive, limit)
                await self.app(scope, given, guarded_send)
            finally:
                self._coming -= file
        except Refused as error:
            await _refuse(guarded_send, *error.args)

    def _check(self, scope: MutableMapping[str, Any], limit: int) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"origin", TOKEN_HEADER):
                raise Refused(400, "a header came twice")
            headers[name] = value
        if headers.get(b"host") not in self.hosts:
            raise Refused(403, "this is not the address of the studio")
        if b"origin" in headers and headers[b"origin"] not in self.origins:
            raise Refused(403, "another site may not ask the studio")
        from_elsewhere = headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
        if from_elsewhere and not _follows_a_link(scope, headers):
            raise Refused(403, "another site may not ask the studio")
        if not scope["path"].startswith("/api/"):
            return
        given = headers.get(TOKEN_HEADER, b"")
        if not hmac.compare_digest(given, self.token):
            raise Refused(
                401, "this link belongs to another run: take the link that the terminal shows"
            )
        known, self.when_known = self.when_known, _nothing
        known()
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 20 or int(length) > limit:
            raise Refused(413, _too_large(limit))


def _nothing() -> None:
    """What is done when nothing waits for the token."""


def _follows_a_link(scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser goes to the empty page, as from the file that led it here.

    That page holds nothing, and can ask nothing without the token, which stands after the #.
    """
    wanted = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest"))
    return scope["path"] == "/" and wanted == (b"navigate", b"document")


def _too_large(limit: int) -> str:
    return f"this is too large for the page: at most {limit // 1_000_000} MB"


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps({"message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# A browser opens six.
MOST_CONNECTIONS = 100
# Seconds within which a connection asks something; guard.py is about what it asks.
LONGEST_SILENCE = 15.0


class Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """HTTP as uvicorn speaks it, which would wait for ever for the first lines of a request."""

    def connection_made(self, transport: Any) -> None:
        """Take a connection; where there are too many, one that has said nothing makes room."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            others = (one for one in self.connections if one is not self and one.cycle is None)
            next(others, self).transport.close()
        self._look_again_later()

    def _look_again_later(self) -> None:
        asyncio.get_running_loop().call_later(LONGEST_SILENCE, self._look_again, self.cycle)

    def _look_again(self, before: Any) -> None:
        """Close where nothing was asked since, and nothing is being answered."""
        if self.cycle is before and (before is None or before.response_complete):
            self.transport.close()
        elif not self.transport.is_closing():
            self._look_again_later()
