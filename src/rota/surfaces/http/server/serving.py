"""Serving the API from a process that has other things to do: uvicorn, without its signals and its polling.

**The end.** When `until` is set, nothing new is accepted, event streams are ended properly, requests that are being
answered have `PATIENCE` to come to an end; what is left then is cut off. The caller stops the engine after that.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....domain.errors import Invalid
from ....engine.clock import Clock, wait_for_any
from ....stores.base import Store
from ...listening import BACKLOG, Place
from ..access import Access
from .protocol import ConnectionLimits, protocol

PATIENCE = timedelta(seconds=5)
DATE = timedelta(seconds=1)
"""How old the `Date` of an answer may be."""


async def check_reach(place: Place, store: Store, clock: Clock) -> None:
    """Refuse to be reachable from other machines while there are no keys to tell callers apart."""
    if place.is_local or await Access(store, clock, rate=1).has_keys():
        return
    raise Invalid(
        "host",
        f"{place.host} can be reached from other machines, and there are no API keys in {store.url}",
        "create one with `rota keys create --tenant default --role admin --name me`, or use 127.0.0.1",
    )


def prepared(
    api: ASGIApp,
    *,
    until: asyncio.Event,
    limits: ConnectionLimits | None = None,
    patience: timedelta = PATIENCE,
) -> Server:
    """A server that has imported all that it needs. `await prepared(…).serve([listening])` serves on a socket that
    listens, and closes it at the end."""
    limits = limits or fitting_limits()
    config = uvicorn.Config(
        Streams(api, until),
        http=protocol(limits),  # type: ignore[arg-type]  # uvicorn only ever calls it
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(limits.idle.total_seconds()) + 1,
        timeout_graceful_shutdown=int(patience.total_seconds()),
        h11_max_incomplete_event_size=limits.head_bytes,
    )
    config.load()
    return Server(config, until)


def fitting_limits() -> ConnectionLimits:
    """The usual ones; fewer connections where this process may not open so many files."""
    usual = ConnectionLimits()
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return usual
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return usual
    return replace(usual, connections=max(10, min(usual.connections, files // 2)))


class Server(uvicorn.Server):
    """Stops when it is told to, and leaves signals to others."""

    def __init__(self, config: uvicorn.Config, until: asyncio.Event) -> None:
        super().__init__(config)
        self._until = until

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        stopping = asyncio.create_task(self._until.wait())
        try:
            while not stopping.done():
                await self.on_tick(0)
                await wait_for_any(stopping, at_most=DATE)
        finally:
            stopping.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class Streams:
    """Ends event streams when the server stops. To the application this looks like a client that went away; the client
    gets the end of an answer, and not a broken one."""

    def __init__(self, app: ASGIApp, until: asyncio.Event) -> None:
        self._app = app
        self._until = until

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        stream = Stream(receive, send, self._until)
        await self._app(scope, stream.receive, stream.send)
        return await stream.end()


class Stream:
    """One answer, which may turn out to be a stream of events."""

    def __init__(self, receive: Receive, send: Send, until: asyncio.Event) -> None:
        self._receive = receive
        self._send = send
        self._until = until
        self._has_whole_body = False
        self._is_stream = False
        self._has_ended = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message.get("headers", ()))
            self._is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        elif not message.get("more_body", False):
            self._has_ended = True
        await self._send(message)

    async def receive(self) -> Message:
        """The body; after it, the application waits to hear that the client went away."""
        if not self._has_whole_body:
            message = await self._receive()
            self._has_whole_body = not message.get("more_body", False)
            return message
        leaving = asyncio.ensure_future(self._receive())
        stopping = asyncio.ensure_future(self._until.wait())
        try:
            await wait_for_any(leaving, stopping, at_most=None)
            if self._is_stream and not leaving.done():
                return {"type": "http.disconnect"}
            return await leaving
        finally:
            leaving.cancel()
            stopping.cancel()

    async def end(self) -> None:
        if self._is_stream and not self._has_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
