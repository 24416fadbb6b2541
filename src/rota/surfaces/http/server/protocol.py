"""Uvicorn's protocol, with bounds: how much of the server a client can hold, and for how long.

    the client owes     until                                                   else
    a head              `head` after the connection, or after its first byte    408, or closed if nothing came
    a body              `body` for each `BATCH` of it                           408
    the next request    `idle` after the answer                                 closed
    its attention       `unread` after it stopped reading an answer             aborted

A head may have `head_bytes`, a body no more framing than content, a connection `pipelined` requests waiting, the server
`connections`. Each connection has one timer, which is moved only when it goes off: a request that comes in one piece
costs none. When a client is refused, or has not finished its request, the server reads on for a moment (`linger`)
before it closes the connection: closing at once would reset it, and the answer would be lost on the way.
"""

from __future__ import annotations

import asyncio
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..problems import Problem, respond

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
else:
    Base = object

BATCH = 64 * 1024
FRAMING = 8
"""How many bytes of chunk sizes may come with each byte of content: a chunk of one byte has five."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int = 1_000
    pipelined: int = 100
    head_bytes: int = 64 * 1024
    head: timedelta = timedelta(seconds=10)
    body: timedelta = timedelta(seconds=20)
    unread: timedelta = timedelta(seconds=30)
    idle: timedelta = timedelta(seconds=15)
    linger: timedelta = timedelta(seconds=2)


class Owed(Enum):
    """The next thing that the client has to send."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    REST = auto()  # of a body that was answered before it was read
    NEXT = auto()


def protocol(limits: ConnectionLimits) -> Callable[..., asyncio.Protocol]:
    """Uvicorn calls this for each connection. It is on httptools, or on h11 where that is not installed."""
    try:
        from .protocol_httptools import BoundedHttptools
    except ModuleNotFoundError as missing:
        if missing.name != "httptools":
            raise
        return partial(BoundedH11, limits=limits)
    return partial(BoundedHttptools, limits=limits)


class LingeringTransport:
    """A transport that can take its time to close. Everything else is the transport's own."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, limits: ConnectionLimits
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._limits = limits
        self._is_parting = False
        self._timers: list[asyncio.TimerHandle] = []
        self.write: Callable[[bytes], None] = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_parting or self._transport.is_closing()

    def close(self) -> None:
        self.part(linger=False)

    def part(self, *, linger: bool) -> None:
        """Write no more, and close: at once, or when the other side did, or after a moment. Bytes that the client has
        not read by then are dropped."""
        if linger and not self.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()
            self._later(self._limits.linger, self._transport.close)
        else:
            self._transport.close()
        if not self._is_parting:
            self._is_parting = True
            self.write = _unheard
            self._later(self._limits.unread, self._transport.abort)

    def is_gone(self) -> None:
        self._is_parting = True
        for timer in self._timers:
            timer.cancel()

    def _later(self, delay: timedelta, act: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(delay.total_seconds(), act))


def _unheard(data: bytes) -> None:
    """Nothing is written after parting."""


class BoundedProtocol(Base, metaclass=ABCMeta):
    """The bounds, on top of one of uvicorn's protocols. The subclass knows where in a request the client is."""

    transport: Any  # a LingeringTransport

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._owed = Owed.NOTHING
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._last_word: Problem | None = None
        self._batch = 0

    # What the parser of a subclass knows

    @abstractmethod
    def _is_in_head(self) -> bool:
        """Whether a head has begun and not ended."""

    @abstractmethod
    def _is_in_body(self) -> bool:
        """Whether a head has ended, and its body has not."""

    @abstractmethod
    def _running(self) -> Any:
        """The request that is being answered, if any."""

    @abstractmethod
    def _forget_last(self) -> None:
        """The last request was not complete, and has not been started."""

    # Uvicorn's protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        crowd, most = len(self.connections), self._limits.connections
        super().connection_made(LingeringTransport(transport, self.loop, self._limits))  # type: ignore[arg-type]  # passes all else on
        if crowd < most:
            self._expect(Owed.HEAD, self._limits.head)
        elif crowd < most + most // 10 + 1:
            sentence = f"{most:,} connections are open, which is as many as are accepted; ask again in 1 s"
            crowded = {"Retry-After": "1"}
            self._refuse(
                Problem(503, "too_many_connections", sentence, headers=crowded, title="Too many connections")
            )
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        self._timer = self._unread = None
        self._abandon()
        super().connection_lost(exc)
        self.transport.is_gone()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._last_word is not None:
            return  # it is not listened to any more
        super().data_received(data)
        if not self.transport.is_closing() and self._last_word is None:
            self._received(len(data))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or self._running() is not None:
            return
        if self._last_word is not None:
            self._refuse(self._last_word)
        elif self._is_in_body():
            self._expect(Owed.REST, self._limits.linger)
        elif not self._is_in_head():
            self._expect(Owed.NEXT, self._limits.idle)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.unread.total_seconds(), self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        sentence = "this is not a request of HTTP/1.1; the connection is closed"
        self._give_up(Problem(400, "malformed", sentence))

    # What is owed, and until when

    def _received(self, size: int) -> None:
        """Bytes came: decide what the client owes now."""
        if self._is_in_head():
            if self._owed is not Owed.HEAD:
                self._expect(Owed.HEAD, self._limits.head)
        elif self._is_in_body():
            self._received_body(size)
        elif self._running() is not None:
            self._owed = Owed.NOTHING
        elif self.cycle is not None and self._owed is not Owed.NEXT:
            self._expect(Owed.NEXT, self._limits.idle)

    def _received_body(self, size: int) -> None:
        if self._owed is Owed.REST:
            return
        self._batch = self._batch + size if self._owed is Owed.BODY else 0
        if self._owed is not Owed.BODY or self._batch >= BATCH:
            self._batch = 0
            self._expect(Owed.BODY, self._limits.body)

    def _expect(self, owed: Owed, within: timedelta) -> None:
        self._owed = owed
        self._due = self.loop.time() + within.total_seconds()
        if self._timer is None or self._timer.when() > self._due:
            self._wake_at(self._due)

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        """The timer went off: is anything late?"""
        self._timer = None
        if self._owed is Owed.NOTHING or self.transport.is_closing():
            return
        if self._due > self.loop.time():
            self._wake_at(self._due)
        elif self._owed is Owed.BODY and self.flow.read_paused:
            self._expect(Owed.BODY, self._limits.body)  # it is us who do not read
        else:
            self._is_late()

    def _is_late(self) -> None:
        owed, self._owed = self._owed, Owed.NOTHING
        if owed is Owed.BODY:
            seconds = self._limits.body.total_seconds()
            self._give_up(Problem(408, "too_slow", f"the body did not go on within {seconds:g} s"))
        elif owed is Owed.HEAD and self._is_in_head():
            seconds = self._limits.head.total_seconds()
            self._give_up(Problem(408, "too_slow", f"the headers were not complete within {seconds:g} s"))
        else:
            self.transport.close()

    # The end

    def _give_up(self, problem: Problem) -> None:
        """Refuse the rest of what the client sends, after the complete requests are answered."""
        running = self._running()
        if running is None:
            self._refuse(problem)
        elif running is self.cycle and self._is_in_body():
            self._refuse(problem if not running.response_started else None)
        else:
            self._last_word = problem
            if self._is_in_body():
                self._forget_last()
            self.flow.pause_reading()

    def _refuse(self, problem: Problem | None) -> None:
        if problem is not None:
            self.transport.write(_written(problem, self.scope))
        self._abandon()
        self.flow.resume_reading()
        self.transport.part(linger=True)

    def _abandon(self) -> None:
        """Tell the application that nobody waits for its answer."""
        running = self._running()
        if running is not None:
            running.disconnected = True
            running.message_event.set()


class BoundedH11(BoundedProtocol, H11Protocol):  # type: ignore[misc]  # Base is httptools to mypy
    """One connection on h11, which is slower, and bounds an unfinished head by itself."""

    def _is_in_head(self) -> bool:
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _is_in_body(self) -> bool:
        state = self.conn.their_state
        broke_off = state is h11.ERROR and self.cycle is not None and self.cycle.more_body
        return state is h11.SEND_BODY or broke_off

    def _running(self) -> Any:
        return None if self.cycle is None or self.cycle.response_complete else self.cycle

    def _forget_last(self) -> None:
        """No request waits: h11 reads one only when the one before it is answered."""


def _written(problem: Problem, scope: Any) -> bytes:
    """A problem document, as bytes, for a connection that ends with it."""
    response = respond(problem, (scope or {}).get("path", "*"))
    headers = [*response.raw_headers, (b"connection", b"close")]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    reason = _REASONS.get(problem.status, b"Refused")
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (problem.status, reason, lines, response.body)


_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
