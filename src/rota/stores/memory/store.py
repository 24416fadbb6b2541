"""The reference store. Everything is in memory, and gone when the process ends. Works run one after the other.

A work runs in the event loop without a pause, so works never overlap. `transact` lets other tasks run once before each
work, so that a loop of transactions does not hold up the rest of the program. Records are encoded when they are put,
and decoded anew when they are read. So a dict that the caller changes later changes nothing here, and the answers are
exactly those of a store on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar, cast

from ...domain.errors import Unavailable
from ...domain.model import Record
from ..base import (
    PLAIN_COMMIT,
    BufferedTx,
    Clock,
    CommitOptions,
    Contents,
    ReadSoFar,
    RecordTypes,
    Store,
    Work,
    no_content,
)
from ..queries import Query
from ..waiting import Waiters
from ..works import drive, run_work
from .finders import count, tally, walk, walk_rows
from .state import Row, State, by_table

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class MemoryTx(BufferedTx):
    """Reads from a state, and gathers the writes. That of a bucket reads its archive, too (`rows`, `walk`, `count`)."""

    def __init__(self, state: State, now: datetime, *, writable: bool = True) -> None:
        super().__init__(now, writable=writable)
        self._state = state

    def rows(self, type: type[Record], ids: Iterable[str]) -> list[Row | None]:
        return [self._state.row(type, id) for id in ids]

    def walk(self, query: Query[Record], limit: int) -> Iterator[Row]:
        """The rows that the query finds, in its order. No more than `limit` are taken."""
        return walk_rows(self._state, query)

    async def get(self, type: type[R], id: str, /) -> R | None:
        return (await self.get_many(type, [id])).get(id)

    async def get_many(self, type: type[R], ids: Iterable[str], /, *, lock: bool = False) -> dict[str, R]:
        self.reading()
        found = self.rows(type, set(ids))
        return {row.record.id: cast("R", row.table.decode(row.body)) for row in found if row is not None}

    async def find(self, query: Query[Record], /, limit: int, *, lock: bool = False) -> list[Any]:
        self.reading()
        return [row.table.decode(row.body) for row in islice(self.walk(query, limit), limit)]

    async def count(self, query: Query[Record], /, *, at_most: int | None = None, lock: bool = False) -> int:
        self.reading()
        return count(self._state, query, at_most)

    async def tally(self, query: Query[Record], /, *by: str) -> dict[tuple[str, ...], int]:
        self.reading()
        return tally(walk(self._state, query), query, by)


class MemoryContents(Contents):
    """Bytes in memory."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._bodies: dict[str, bytes] = {}

    async def write(self, key: str, chunks: Iterator[bytes]) -> None:
        body = await asyncio.get_running_loop().run_in_executor(None, b"".join, chunks)
        self._bodies[key] = body

    async def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        if key not in self._bodies:
            raise no_content(self._url, key)
        yield self._bodies[key][start:stop]

    async def keys(self) -> list[str]:
        return sorted(self._bodies)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._bodies.pop(key, None)


class MemoryStore(Store):
    """A store for tests, demonstrations, and programs that keep nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.state = State()
        self._contents = MemoryContents(self.url)
        self._waiters = Waiters(clock.now)
        self._is_open = False

    @property
    def url(self) -> str:
        return "memory:"

    async def open(self, *, migrate: bool = True) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        await asyncio.sleep(0)  # works that were handed in are done first
        self._waiters.close()

    async def now(self) -> datetime:
        return self._clock.now()

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T:
        self._check_open()
        await asyncio.sleep(0)
        value, _ = run_work(work, lambda: MemoryTx(self.state, self._clock.now()), self._commit)
        return value

    async def read(self, work: Work[T], /) -> T:
        self._check_open()
        await asyncio.sleep(0)
        return drive(work, MemoryTx(self.state, self._clock.now(), writable=False))

    async def wait(self, until: datetime | None, *, of: RecordTypes | None = None) -> None:
        self._check_open()
        await self._waiters.wait(until, of)

    @property
    def contents(self) -> MemoryContents:
        self._check_open()
        return self._contents

    async def snapshot(self, report: ReadSoFar | None = None) -> dict[str, list[Record]]:
        self._check_open()
        return by_table(self.state.all_rows())

    def _commit(self, tx: MemoryTx) -> None:
        if tx.puts or tx.deletes:
            self.state.apply(self.state.prepare(tx.puts, tx.deletes))
            self._waiters.changed(tx.written)

    def _check_open(self) -> None:
        if not self._is_open:
            raise Unavailable("the store at memory: is not open", is_final=True)
