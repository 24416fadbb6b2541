"""A server that behaves in every way that an HTTP task may meet. It speaks bytes, so that it can misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

__all__ = ["Asked", "Misbehaving"]


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Misbehaving:
    """By path: `/status/503`, `/redirect/3`, `/to/307/URL`, `/close`, `/hang`, `/large`; any other is well."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[str, bytes] = {}
        self.hanging = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Misbehaving]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while asked := await _read(reader):
                self.asked.append(asked)
                if not await self._answer(asked, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        first, _, rest = asked.path.lstrip("/").partition("/")
        match first:
            case "close":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
                await writer.drain()
                return False
            case "hang":
                self.hanging.set()
                await reader_gone(writer)
                return False
            case "large":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
                for _ in range(1600):
                    writer.write(b"x" * 65536)
                    await writer.drain()
                return False
            case "redirect":
                left = int(rest)
                place = f"/redirect/{left - 1}" if left > 1 else "/landed"
                writer.write(_response(302, b"", f"Location: {place}"))
            case "to":
                status, _, place = rest.partition("/")
                writer.write(_response(int(status), b"", f"Location: {place}"))
            case "status":
                status, _, extra = rest.partition("/")
                header = f"Retry-After: {extra.replace('%20', ' ')}" if extra else ""
                writer.write(_response(int(status), b"why not", header))
            case _:
                writer.write(self.answers.get(asked.path) or _response(200, b'{"ok": true}'))
        await writer.drain()
        return True


async def reader_gone(writer: asyncio.StreamWriter) -> None:
    while not writer.transport.is_closing():
        await asyncio.sleep(0.01)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def _response(status: int, body: bytes, header: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", "Content-Type: application/json"]
    return "\r\n".join([*lines, *([header] if header else []), "", ""]).encode() + body
