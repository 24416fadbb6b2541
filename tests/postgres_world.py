"""PostgreSQL in virtual time: the store runs on a real event loop in a thread of its own, since sockets live in real
time. To the virtual loop each call is a function in a thread, for which time stands still; `wait` follows the virtual
clock, and hears of every commit because all of them pass through here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from postgres_server import new_database
from rota.domain.errors import Unavailable
from rota.domain.model import Record
from rota.stores.base import PLAIN_COMMIT, CommitOptions, Contents, ReadSoFar, RecordTypes, Store, Tx, Work
from rota.stores.postgres.address import Address
from rota.stores.postgres.store import PostgresStore
from rota.stores.waiting import Waiters
from rota.testing import LoopClock

T = TypeVar("T")


class PostgresInVirtualTime(Store):
    """A PostgresStore whose clock is virtual."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self._store = PostgresStore(Address.parse(new_database()), clock, time=clock)
        self._waiters = Waiters(clock.now)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        return self._store.url

    async def open(self, *, migrate: bool = True) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio-postgres")
            self._thread.start()
            await self._call(lambda: self._store.open(migrate=migrate))

    async def close(self) -> None:
        if self._loop is not None:
            await self._call(self._store.close)
            self._waiters.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    async def migrate(self) -> Sequence[str]:
        return await self._call(self._store.migrate)

    async def now(self) -> datetime:
        return self._clock.now()

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T:
        written: set[type[Record]] = set()
        virtual = asyncio.get_running_loop()

        async def watched(tx: Tx) -> T:
            value = await work(tx)
            written.update(getattr(tx, "written", ()))
            return value

        async def committed() -> T:
            """Tells of it when it is done, also if the node that asked for it has died meanwhile."""
            try:
                return await self._store.transact(watched, options)
            finally:
                if written:
                    virtual.call_soon_threadsafe(self._waiters.changed, written)

        return await self._call(committed)

    async def wait_for_writers(self, at_most: timedelta) -> bool:
        return await self._call(lambda: self._store.wait_for_writers(at_most))

    async def read(self, work: Work[T], /) -> T:
        return await self._call(lambda: self._store.read(work))

    async def wait(self, until: datetime | None, *, of: RecordTypes | None = None) -> None:
        self._use()
        await self._waiters.wait(until, of)

    async def plan(self) -> str:
        return await self._call(self._store.plan)

    @property
    def contents(self) -> Contents:
        return _ContentsElsewhere(self._call, lambda: self._store.contents)

    async def snapshot(self, report: ReadSoFar | None = None) -> dict[str, list[Record]]:
        return await self._call(lambda: self._store.snapshot(report))

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        real = self._use()

        async def call() -> T:
            return await function()

        def wait_for_it() -> T:
            return asyncio.run_coroutine_threadsafe(call(), real).result()

        return await asyncio.get_running_loop().run_in_executor(None, wait_for_it)

    def _use(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise Unavailable(f"the store at {self.url} is not open", is_final=True)
        return self._loop


class _ContentsElsewhere(Contents):
    """The contents of a store whose event loop is another."""

    def __init__(self, call: Any, inner: Callable[[], Contents]) -> None:
        self._call = call
        self._inner = inner

    async def write(self, key: str, chunks: Iterator[bytes]) -> None:
        await self._call(lambda: self._inner().write(key, chunks))

    async def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        async def all_of_it() -> bytes:
            return b"".join([piece async for piece in self._inner().read(key, start, stop)])

        yield await self._call(all_of_it)

    async def keys(self) -> list[str]:
        found: list[str] = await self._call(lambda: self._inner().keys())
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        await self._call(lambda: self._inner().delete(keys))


def postgres(clock: Any) -> Store:
    return PostgresInVirtualTime(clock)
