"""The bytes of large artifacts, on every store: whole, in ranges, listed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rota.domain.errors import Corrupt
from rota.stores.base import Contents, Store

MEGABYTE = 1024 * 1024
BODY = bytes(range(256)) * 4096 * 5 + b"the end"
"""More than a part of any store, and no multiple of one."""


def chunks(body: bytes, size: int = 700_001) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def read(contents: Contents, key: str, start: int = 0, stop: int | None = None) -> bytes:
    until = len(BODY) if stop is None else stop
    return b"".join([piece async for piece in contents.read(key, start, until)])


def test_what_is_written_is_read_whole_and_in_ranges(store: Store, runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        contents = store.contents
        assert await contents.keys() == []
        await contents.write("aa1", chunks(BODY))
        await contents.write("ab2", chunks(b"small"))
        assert await read(contents, "aa1") == BODY
        assert await read(contents, "ab2", 1, 4) == b"mal"
        edges = (0, 1, MEGABYTE - 1, MEGABYTE, 4 * MEGABYTE, 4 * MEGABYTE + 1, len(BODY) - 1, len(BODY))
        for start in edges:
            for stop in edges:
                if start < stop:
                    assert await read(contents, "aa1", start, stop) == BODY[start:stop]
        assert await contents.keys() == ["aa1", "ab2"]

    runner.run(scenario())


def test_what_is_deleted_is_missing(store: Store, runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        contents = store.contents
        await contents.write("aa1", chunks(b"one"))
        await contents.write("ab2", chunks(b"two"))
        await contents.delete(["aa1", "never"])
        assert await contents.keys() == ["ab2"]
        with pytest.raises(Corrupt, match="the content aa1 is missing in"):
            await read(contents, "aa1", 0, 3)

    runner.run(scenario())


def test_a_writing_that_is_cut_short_leaves_a_key_or_nothing(store: Store, runner: asyncio.Runner) -> None:
    """Whoever sweeps finds what is left of it by its key."""

    def torn() -> Iterator[bytes]:
        yield BODY[: 2 * MEGABYTE]
        raise RuntimeError("the source is gone")

    async def scenario() -> None:
        contents = store.contents
        with pytest.raises(Exception, match="the source is gone"):
            await contents.write("aa1", torn())
        assert await contents.keys() in ([], ["aa1"])
        await contents.delete(["aa1"])
        assert await contents.keys() == []

    runner.run(scenario())
