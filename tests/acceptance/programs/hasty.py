"""A store on a bucket that keeps its log for moments: snapshots, archive and removal happen while a test looks on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import rota
from rota.engine.clock import SystemClock
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning


@asynccontextmanager
async def hasty_queue(address: str, window: float) -> AsyncIterator[rota.Queue]:
    tuning = Tuning(
        window=timedelta(seconds=window),
        retention=timedelta(seconds=4 * window),
        snapshot_every=8,
        archive_after=timedelta(seconds=1),
        archive_at_least=20,
        archive_at_most=60,
        views_every=timedelta(milliseconds=200),
    )
    store = BucketStore(BucketAddress.parse(address).requests(), SystemClock(), tuning)
    await store.open()
    try:
        yield rota.Queue(store)
    finally:
        await store.close()
