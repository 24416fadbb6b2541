"""Every store there is, for the suites that run on all of them. A new store is one line in STORES."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw

import s3_server
from postgres_server import new_database
from rota.engine.clock import LoopClock
from rota.stores.base import Clock, Store, Tx
from rota.stores.bucket.service.bucket import FolderRequests, MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from rota.stores.memory.store import MemoryStore
from rota.stores.postgres.store import PostgresStore
from rota.stores.sqlite.store import SqliteStore

T = TypeVar("T")

EAGER = Tuning(
    snapshot_every=2,
    archive_after=timedelta(days=-3650),
    archive_at_least=1,
    archive_at_most=3,
    window=timedelta(seconds=1),
    retention=timedelta(seconds=4),
    views_every=timedelta(0),
)
"""Everything that has ended goes to the archive at once, in many small segments; snapshots all the time."""

STORES: dict[str, Callable[[Path, Clock], Store]] = {
    "memory": lambda folder, clock: MemoryStore(clock),
    "sqlite": lambda folder, clock: SqliteStore(folder / "rota.db", clock),
    "postgres": lambda folder, clock: PostgresStore.from_url(new_database(), clock),
    "memory bucket": lambda folder, clock: BucketStore(MemoryRequests(), clock),
    "s3": lambda folder, clock: BucketStore.from_url(s3_server.url(), clock),
    "archiving": lambda folder, clock: BucketStore(MemoryRequests(), clock, EAGER),
    "folder": lambda folder, clock: BucketStore(FolderRequests(folder / "bucket"), clock),
}

if "ROTA_TEST_AZURE" in os.environ:  # az://container?account=…&endpoint=…, with the key in the environment

    def _azure(folder: Path, clock: Clock) -> Store:
        return BucketStore.from_url(s3_server.under(os.environ["ROTA_TEST_AZURE"]), clock)

    STORES["azure"] = _azure

ADDRESSES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'rota.db'}",
    "postgres": lambda folder: new_database(),
    "s3": lambda folder: s3_server.url(),
    "folder": lambda folder: (folder / "bucket").as_uri(),
}
"""Where processes find a store that they share: one that nobody has used."""


def connections_in(folder: Path) -> list[apsw.Connection]:
    """Those that a test left open. A server that other tests of this process share has its own, elsewhere."""
    found = []
    for each in apsw.connections():
        with suppress(apsw.ThreadingViolationError, apsw.ConnectionClosedError):  # busy: it is that server's
            if Path(each.filename).is_relative_to(folder):
                found.append(each)
    return found


@contextmanager
def opened_store(name: str, folder: Path, clock: Clock, runner: asyncio.Runner) -> Iterator[Store]:
    """Open and empty; it must leave nothing behind."""
    store = STORES[name](folder, clock)
    runner.run(store.open())
    yield store
    runner.run(store.close())
    assert not connections_in(folder), "connections were left open"


START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class TestClock(LoopClock):
    """Starts at START and runs with the event loop."""

    __test__ = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(START, loop=loop)


async def put(store: Store, *records: Any) -> list[Any]:
    """Store records, in one work."""

    async def work(tx: Tx) -> list[Any]:
        return [tx.put(record) for record in records]

    return await store.transact(work)


async def get(store: Store, type: type[T], id: str) -> T | None:
    return await reading(store, lambda tx: tx.get(type, id))


async def find(store: Store, query: Any, limit: int = 1000) -> list[Any]:
    return await reading(store, lambda tx: tx.find(query, limit))


async def count(store: Store, query: Any) -> int:
    return await reading(store, lambda tx: tx.count(query))


async def reading(store: Store, ask: Callable[[Any], Awaitable[T]]) -> T:
    """The answer to one question."""

    async def work(tx: Tx) -> T:
        return await ask(tx)

    return await store.read(work)
