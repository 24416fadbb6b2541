"""A transaction pooler, as small as one can be: every client has a server connection for as long as a transaction
lasts, and perhaps another one for the next. What depends on the session fails here as it does behind PgBouncer: a
prepared statement is not found on the other connection, a setting is somebody else's, `LISTEN` is refused.

Servers are asked to let us in without a password, and clients need none."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
_STARTUP = struct.Struct("!II")


class Pooler:
    """Listens on a socket in `folder` and forwards to the server whose socket is in `server`."""

    def __init__(self, folder: Path, server: Path, size: int = 2) -> None:
        self._folder = folder
        self._server = server
        self._free: asyncio.Queue[_Server] = asyncio.Queue()
        self._size = size
        self._clients: set[asyncio.Task[None]] = set()
        self._servers: list[_Server] = []
        self.switches = 0

    async def __aenter__(self) -> Pooler:
        path = self._folder / ".s.PGSQL.5432"
        self._listening = await asyncio.start_unix_server(self._accept, path)
        return self

    async def __aexit__(self, *about: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listening.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        for server in self._servers:
            assert server.pumping is not None
            server.pumping.cancel()
            await asyncio.gather(server.pumping, return_exceptions=True)
            server.writer.close()
            with suppress(OSError):
                await server.writer.wait_closed()
        await self._listening.wait_closed()

    async def _accept(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        startup = await _startup(reader, writer)
        if not self._servers:
            await self._connect(startup)
        writer.write(self._servers[0].greeting)
        client = _Client(writer)
        last: _Server | None = None
        try:
            while True:
                kind, message = await _message(reader)
                if kind == b"X":
                    return
                if client.server is None:
                    client.server = await self._free.get()
                    client.server.client = client
                    self.switches += last is not None and client.server is not last
                    last = client.server
                assert b"LISTEN" not in message.upper(), "a pooler has no LISTEN"
                client.server.asked += kind in (b"Q", b"S")
                client.server.writer.write(message)
        finally:
            if client.server is not None:
                client.server.writer.write(b"Q" + struct.pack("!I", 13) + b"rollback\0")
                client.server.asked += 1

    async def _connect(self, startup: bytes) -> None:
        """All at once: a client finds another connection each time."""
        for _ in range(self._size):
            reader, writer = await asyncio.open_unix_connection(self._server / ".s.PGSQL.5432")
            writer.write(startup)
            server = _Server(reader, writer, self._free)
            server.pumping = asyncio.create_task(server.pump())
            self._servers.append(server)
            await server.is_ready.wait()


class _Client:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.server: _Server | None = None


class _Server:
    """Passes on what its server says, and is free again when that has no transaction any more."""

    def __init__(self, reader: Reader, writer: Writer, free: asyncio.Queue[_Server]) -> None:
        self.reader, self.writer = reader, writer
        self.client: _Client | None = None
        self.asked = 1
        self.greeting = b""
        self.is_ready = asyncio.Event()
        self.pumping: asyncio.Task[None] | None = None
        self._free = free

    async def pump(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, message = await _message(self.reader)
                if not self.is_ready.is_set():
                    self.greeting += message
                client = self.client
                if kind == b"Z":
                    self.asked -= 1
                    self.is_ready.set()
                    if self.asked == 0 and message[-1:] == b"I":
                        self.client = None
                        if client is not None:
                            client.server = None
                        self._free.put_nowait(self)
                if client is not None:
                    client.writer.write(message)


async def _message(reader: Reader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    length = struct.unpack("!I", head[1:])[0]
    return head[:1], head + await reader.readexactly(length - 4)


async def _startup(reader: Reader, writer: Writer) -> bytes:
    """The client's first message; questions about encryption are answered with no."""
    while True:
        head = await reader.readexactly(8)
        length, code = _STARTUP.unpack(head)
        body = await reader.readexactly(length - 8)
        if code not in (80877103, 80877104):
            return head + body
        writer.write(b"N")
