"""Who may talk to the studio: this page, with the token of this run, and nobody else."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TOKEN_HEADER = b"x-studio-token"
MOST_QUESTION = 1_000_000

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


class TooLarge(Exception):
    """More bytes came than are taken."""


class Guard:
    """Let pass what comes from the page of this run, in sizes that can be handled.

    Parameters
    ----------
    app : ASGI application
        What is guarded.
    token : str
        The secret of this run, which the link carries.
    hosts : tuple of str
        The names under which this server is called; others may be another site's trick.
    most_file : int
        Bytes of the largest file that is taken.
    """

    def __init__(self, app: Any, token: str, hosts: tuple[str, ...], most_file: int) -> None:
        self.app = app
        self.token = token.encode()
        self.hosts = tuple(host.encode() for host in hosts)
        self.origins = tuple(b"http://" + host for host in self.hosts)
        self.most_file = most_file

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

        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(guarded_send, *refusal)
            return
        limit = self.most_file if scope["path"] == "/api/files" else MOST_QUESTION
        seen = 0
        began = False

        async def counted_receive() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise TooLarge
            return message

        async def noted_send(message: Message) -> None:
            nonlocal began
            began = True
            await guarded_send(message)

        try:
            await self.app(scope, counted_receive, noted_send)
        except TooLarge:
            if not began:
                await _refuse(guarded_send, 413, _too_large(limit))

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"origin", TOKEN_HEADER):
                return 400, "a header came twice"
            headers[name] = value
        if headers.get(b"host") not in self.hosts:
            return 403, "this is not the address of the studio"
        if b"origin" in headers and headers[b"origin"] not in self.origins:
            return 403, "another site may not ask the studio"
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            return 403, "another site may not ask the studio"
        if not scope["path"].startswith("/api/"):
            return None
        given = headers.get(TOKEN_HEADER, b"")
        if not hmac.compare_digest(given, self.token):
            return 401, "this link belongs to another run: take the link that the terminal shows"
        limit = self.most_file if scope["path"] == "/api/files" else MOST_QUESTION
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limit:
            return 413, _too_large(limit)
        return None


def _too_large(limit: int) -> str:
    return f"this is too large for the page: at most {limit // 1_000_000} MB"


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps({"message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
