"""A world to test in: a store, a queue and loops in virtual time. One per kind of store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import rota
from postgres_world import PostgresInVirtualTime
from rota import testing
from rota.domain.model import Run, Schedule, Task
from rota.engine.observe.telemetry import Observation
from rota.engine.roles import janitor, scheduler, worker
from rota.stores.base import Store
from rota.stores.bucket.service.bucket import FolderRequests, MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from rota.stores.memory.store import MemoryStore
from rota.stores.sqlite.store import SqliteStore
from rota.testing import LoopClock

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

ALONE = Tuning(poll_shortest=timedelta(days=1), poll_longest=timedelta(days=1))

# In virtual time nobody else writes the file, so there is no need to look for it 50 times a second.
STORES: dict[str, Callable[[Path, LoopClock], Store]] = {
    "memory": lambda folder, clock: MemoryStore(clock),
    "sqlite": lambda folder, clock: SqliteStore(folder / "rota.db", clock, poll_interval=timedelta(days=1)),
    "memory bucket": lambda folder, clock: BucketStore(MemoryRequests(), clock, ALONE),
}
EVERY_STORE: dict[str, Callable[[Path, LoopClock], Store]] = {
    **STORES,
    "folder": lambda folder, clock: BucketStore(FolderRequests(folder / "bucket"), clock, ALONE),
    "postgres": lambda folder, clock: PostgresInVirtualTime(clock),
}
"""Days of virtual time have many rounds, and each asks a real server, or real files for what a bucket in memory shows,
too: the differential suite runs on all of these, the simulations only with ROTA_TEST_SIMULATION=all."""
THOROUGH = os.environ.get("ROTA_TEST_SIMULATION") == "all"
if THOROUGH:
    STORES = EVERY_STORE


on_any_store = pytest.mark.parametrize("world", STORES if THOROUGH else ["memory"], indirect=True)
"""Of a scenario in which the store plays no part: one store with `make test`, every one with `make test-all`."""


def two_stores(scenario: str) -> list[str]:
    """Of a scenario that names no stores: memory and one that its name chooses with `make test`, so that others are
    played on the rest; every one with `make test-all`. What stores differ in is the conformance suite's business."""
    first, *others = STORES
    return [first, *others] if THOROUGH else [first, others[crc32(scenario.encode()) % len(others)]]


def seeds(*, few: int, every: int) -> range:
    """Of a random test: a few with `make test`, every one with `make test-all`."""
    return range(every if THOROUGH else few)


def some_calls(last: int, fault: str, faults: Iterable[str]) -> range:
    """At which calls a fault strikes: a third of them with `make test`, each fault at others; every one with
    `make test-all`."""
    return range(1, last + 1) if THOROUGH else range(1 + list(faults).index(fault) % 3, last + 1, 3)


def to_the_tenth(at: datetime) -> datetime:
    """The nearest tenth of a second. On PostgreSQL, a schedule whose row another role writes at that moment is fired
    with the next hint, 20 ms later."""
    tenths = round((at - START).total_seconds(), 1)
    return START + timedelta(seconds=tenths)


STATE_EVERY = 1 if THOROUGH else 10
"""After how many steps a differential suite compares all that stores hold. To read everything after each step would be
most of its time. A difference is found a few steps late, and not at all if what a next step writes hides it."""


class World:
    """What a scenario gets."""

    def __init__(self, store: Store, clock: LoopClock) -> None:
        self.store = store
        self.clock = clock
        self.queue = rota.Queue(store, clock=clock, actor="tester")
        self.app = rota.App()
        self.signals: list[Observation] = []
        self.jumps_looked_for = HOUR  # days of virtual time have many seconds

    def worker(self, **options: Any) -> rota.Worker:
        """The janitor looks for leases that ran out only if a `lease` is given, or it knows of one."""
        worker = rota.Worker(self.queue, self.app, observers=[self.signals.append], **options)
        worker.jump_watch.every = self.jumps_looked_for
        if worker.janitor is not None and "lease" not in options:
            worker.janitor.look_again = DAY
        return worker

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[rota.Worker]:
        """A worker (with scheduler and janitor) that runs meanwhile and is stopped at the end."""
        worker = self.worker(**options)
        running = asyncio.create_task(worker.run(handle_signals=False))
        try:
            yield worker
        finally:
            worker.stop()
            await running

    async def at(self, when: datetime | timedelta) -> None:
        await testing.sleep_until(START + when if isinstance(when, timedelta) else when)

    async def ledger(self, key: str) -> list[Run]:
        """Oldest first."""
        return list(reversed(await self.queue.runs(key, limit=10_000)))

    async def tasks(self, **filters: Any) -> list[Task]:
        """Oldest first."""
        return list(reversed(await self.queue.list(limit=10_000, **filters)))

    async def schedule(self, key: str = "s", **options: Any) -> Schedule:
        return await self.queue.create_schedule(key, **{"task_type": "work", **options})


class Crowd:
    """Has a handler that takes its time, and knows how many of it ran at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._now = 0
        self.most = 0

    async def handle(self) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self._seconds)
        self._now -= 1


def raising(problem: BaseException, *, is_async: bool) -> Callable[[], Any]:
    """A handler that does nothing else."""

    def bad() -> None:
        raise problem

    async def bad_async() -> None:
        raise problem

    return bad_async if is_async else bad


Scenario = Callable[[World], Awaitable[None]]


@pytest.fixture(autouse=True)
def seldom_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of virtual time would be spent on looks that find nothing: what happens in a scenario is due at a time, or
    is hinted at, and must be seen without them."""
    for role in (janitor, scheduler, worker):
        monkeypatch.setattr(role, "LOOK_AGAIN", DAY)


def play(
    scenario: Scenario, make_store: Callable[[Path, LoopClock], Store], folder: Path, start: datetime = START
) -> None:
    """Run a scenario from `start` on, to its end."""

    async def main(clock: LoopClock) -> None:
        store = make_store(folder, clock)
        await store.open()
        try:
            await scenario(World(store, clock))
        finally:
            await store.close()

    testing.run(main, start=start)


class Stubborn:
    """Has a handler, or a step, that goes on for a while, whoever cancels it, and knows when it ran."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world = world
        self._seconds = seconds
        self._now = 0
        self.most = 0
        self.began: list[timedelta] = []

    async def handle(self) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        began = self._world.clock.now()
        self.began.append(began - START)
        while (left := self._seconds - (self._world.clock.now() - began).total_seconds()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue
        self._now -= 1
