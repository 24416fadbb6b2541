"""What the figures of the bucket share: requests that take 30 ms and are counted, and nodes in one process.

The bucket is in memory, or, with ROTA_BENCH_S3=s3://bucket?endpoint=…, a real one: the 30 ms are added to its own time.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import rota
from rota.engine.clock import SystemClock
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import FetchedObject, ListedObject, MemoryRequests, Requests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning

WRITES = ("create", "put", "list")
"""$5 per million; the others that are not free, $0.40."""

READS = ("get", "date")


RUN = uuid.uuid4().hex[:8]


def bucket(name: str) -> Requests:
    address = os.environ.get("ROTA_BENCH_S3")
    if address is None:
        return MemoryRequests(name)
    base, _, options = address.partition("?")
    return BucketAddress.parse(f"{base}/{RUN}/{quote(name)}?{options}").requests()


class Distant(Requests):
    """A bucket, so many milliseconds away."""

    def __init__(self, name: str, delay: timedelta, made: Counter[str]) -> None:
        self._inner = bucket(name)
        super().__init__(self._inner.name, None, None)
        self._delay = delay.total_seconds()
        self.made = made

    def _do(self, kind: str) -> Any:
        self.made[kind] += 1
        time.sleep(self._delay)
        return self._inner

    def get(self, key: str) -> FetchedObject:
        found: FetchedObject = self._do("get").get(key)
        return found

    def create(self, key: str, body: bytes) -> None:
        self._do("create").create(key, body)

    def replace(self, key: str, body: bytes, etag: str) -> None:
        self._do("create").replace(key, body, etag)

    def put(self, key: str, body: bytes) -> None:
        self._do("put").put(key, body)

    def put_parts(self, key: str, chunks: Iterator[bytes]) -> None:
        self._do("put").put_parts(key, chunks)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        found: bytes = self._do("get").get_range(key, start, stop)
        return found

    def delete(self, keys: list[str]) -> None:
        self._do("delete").delete(keys)

    def list(self, prefix: str, after: str | None) -> Iterator[str]:
        return iter(list(self._do("list").list(prefix, after)))

    def list_objects(self, prefix: str) -> Iterator[tuple[str, ListedObject]]:
        return iter(list(self._do("list").list_objects(prefix)))

    def date(self) -> datetime | None:
        date: datetime | None = self._do("date").date()
        return date


def dollars(made: Counter[str]) -> float:
    """At S3's list prices."""
    writes = sum(made[kind] for kind in WRITES)
    reads = sum(made[kind] for kind in READS)
    return writes * 5e-6 + reads * 0.4e-6


@asynccontextmanager
async def queue_on(
    name: str, made: Counter[str], delay: timedelta = timedelta(milliseconds=30), tuning: Tuning | None = None
) -> AsyncIterator[rota.Queue]:
    store = BucketStore(Distant(name, delay, made), SystemClock(), tuning)
    await store.open()
    async with rota.Queue(store, clock=SystemClock()) as queue:
        yield queue


@asynccontextmanager
async def running(worker: rota.Node) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield
    finally:
        worker.stop()
        await task
