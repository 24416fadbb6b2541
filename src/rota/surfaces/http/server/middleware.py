"""The guard refuses addresses, headers and bodies that are too large, and bodies that are not JSON, before any route
sees them. `Head` answers HEAD wherever GET is answered. `Redaction` says which fields no answer shows. The recorder
counts each answer in the metrics, and writes it to the log at level `info`.

All are plain ASGI, so that they cost little and hold for every route.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ... import redaction
from ..fields import SLASH
from ..problems import Problem, respond
from ..service import Service

log = logging.getLogger("rota.http")

MOST_BODY = 2 * 1024 * 1024
MOST_QUERY = 8 * 1024
MOST_HEADERS = 32 * 1024
LINGER = 16 * 1024 * 1024
_JSON = b"application/json"
_TAKEN_AS_JSON = (b"", b"application/x-www-form-urlencoded")
"""`curl -d` sends this type unless another is given."""


class Guard:
    """Refuses requests that are too large or not JSON. It wraps an ASGI application."""

    def __init__(self, app: ASGIApp, most_body: int = MOST_BODY) -> None:
        self._app = app
        self._most = most_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        problem = self._look_at(scope)
        if b"%2f" in scope.get("raw_path", b"").lower():
            parts = scope["raw_path"].decode("ascii").split("/")
            scope["path"] = "/".join(unquote(part).replace("/", SLASH) for part in parts)
        if problem is None:
            return await self._bounded(scope, receive, send)
        return await self._refused(problem, scope, receive, send)

    def _look_at(self, scope: Scope) -> Problem | None:
        query: bytes = scope.get("query_string", b"")
        if len(query) > MOST_QUERY:
            return Problem(414, "query_too_long", f"the query is longer than {MOST_QUERY:,} bytes")
        if not query.isascii():
            return Problem(400, "malformed", "the query has bytes outside ASCII; write each of them as %XX")
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > MOST_HEADERS:
            return Problem(431, "headers_too_large", f"the headers are larger than {MOST_HEADERS:,} bytes")
        by_name = dict(headers)
        length = by_name.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self._most):
            return self._too_large()
        has_body = (length or b"0") != b"0" or b"transfer-encoding" in by_name
        return self._content_type(scope, by_name.get(b"content-type", b"")) if has_body else None

    def _content_type(self, scope: Scope, given: bytes) -> Problem | None:
        kind = given.partition(b";")[0].strip().lower()
        if kind == _JSON or kind.endswith(b"+json"):
            return None
        if kind in _TAKEN_AS_JSON:
            others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
            scope["headers"] = [*others, (b"content-type", _JSON)]
            return None
        sentence = f"Content-Type {kind.decode('latin-1')!r} is not accepted; send application/json"
        return Problem(415, "not_json", sentence)

    async def _refused(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Read what the client sends, then answer: a client that is cut off never reads the answer."""
        left = LINGER
        while left > 0:
            message = await receive()
            left -= len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body"):
                break
        await respond(problem, scope["path"])(scope, receive, send)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def receive_bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                raise HTTPException(413, str(self._too_large()))  # which FastAPI lets pass
            return message

        await self._app(scope, receive_bounded, send)

    def _too_large(self) -> Problem:
        sentence = f"the body is larger than {self._most:,} bytes"
        return Problem(413, "body_too_large", sentence, headers={"Connection": "close"})


class Head:
    """Answers HEAD as GET, without the body. The application that it wraps is asked to GET, and is told that the client
    has gone as soon as the headers are there: a stream of events would never end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)
        asgi = {**scope.get("asgi", {}), "spec_version": "2.3"}  # which says that `receive` tells of it
        asked = {**scope, "method": "GET", "asgi": asgi}

        async def gone() -> Message:
            return {"type": "http.disconnect"}

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["route"] = asked.get("route")  # for the metrics
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        return await self._app(asked, gone, without_body)


class Redaction:
    """Hides fields from every answer of the application that it wraps."""

    def __init__(self, app: ASGIApp, fields: Sequence[str]) -> None:
        self._app = app
        self._fields = fields

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        redaction.hide(self._fields)
        await self._app(scope, receive, send)


class RequestRecorder:
    """Counts and logs each answer when it begins. It wraps an ASGI application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        monotonic = self._service.clock.monotonic
        began = monotonic()

        async def noticed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._notice(scope, message["status"], monotonic() - began)
            await send(message)

        return await self._app(scope, receive, noticed)

    def _notice(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"]
        if self._service.metrics is not None:
            route = getattr(scope.get("route"), "path", None)
            self._service.metrics.http_request(route, method, status, seconds)
        if log.isEnabledFor(logging.INFO):
            about: dict[str, Any] = {
                "method": method,
                "path": scope["path"],
                "status": status,
                "milliseconds": round(seconds * 1000, 1),
                "client": scope["client"][0] if scope.get("client") else None,
            }
            log.info("%s %s %d", method, scope["path"], status, extra=about)
