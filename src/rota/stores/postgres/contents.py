"""The contents of large artifacts, as rows of the table `content`, one for each piece.

A piece is a commit of its own: the bytes count once a record names their key, so nothing else has to hold the pieces
together.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from itertools import count
from typing import Any

from ..base import Contents, no_content
from ..threads import Threads
from .queries import Statements

PIECE = 1024 * 1024


UseConnection = Callable[[Callable[[Any], Awaitable[Any]]], Awaitable[list[Any]]]
"""Calls a function with a connection."""


class TableContents(Contents):
    """Rows of `content`. `run` gives a connection, and makes errors of the driver those of the contract."""

    def __init__(self, run: UseConnection, statements: Statements, url: str) -> None:
        self._run = run
        self._sql = {name: each.sql for name, each in statements.plain.items()}
        self._url = url

    async def write(self, key: str, chunks: Iterator[bytes]) -> None:
        threads = Threads(1, "rota-contents")
        pieces = _pieces(chunks)
        try:
            for number in count():
                piece = await threads.call(next, pieces, None)
                if piece is None:
                    return
                await self._fetch("write_content", key, number, piece)
        finally:
            threads.close()

    async def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        for number in range(start // PIECE, -(-stop // PIECE)):
            first = max(start - number * PIECE, 0)
            last = min(stop - number * PIECE, PIECE)
            rows = await self._fetch("read_content", key, number, first + 1, last - first)
            if not rows:
                raise no_content(self._url, key)
            yield rows[0][0]

    async def keys(self) -> list[str]:
        return [key for (key,) in await self._fetch("content_keys")]

    async def delete(self, keys: Sequence[str]) -> None:
        await self._fetch("delete_contents", list(keys))

    async def _fetch(self, name: str, *values: Any) -> list[Any]:
        return await self._run(lambda connection: connection.fetch(self._sql[name], *values))


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of one size, the last one aside: a range is then a number and a place in it."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PIECE:
            yield bytes(held[:PIECE])
            del held[:PIECE]
    if held:
        yield bytes(held)
