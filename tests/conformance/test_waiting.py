"""wait: until a time, or until something may have changed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from records import schedule, task
from rota.domain.model import Schedule, Task, TaskStatus, Tenant
from rota.stores.base import PendingTask, Store
from stores import put

SOON = timedelta(milliseconds=40)
LATE = timedelta(hours=5)


async def test_wait_ends_at_its_time(store: Store) -> None:
    until = await store.now() + SOON
    waits = 0
    while await store.now() < until:
        await store.wait(until)
        waits += 1
    assert waits <= 3, "it may end early for no reason, but not all the time"


async def test_wait_for_a_time_that_has_passed_ends_at_once(store: Store) -> None:
    await store.wait(await store.now() - LATE)


async def test_a_commit_ends_every_wait(store: Store) -> None:
    until = await store.now() + LATE
    waiting = [asyncio.create_task(store.wait(each)) for each in (until, None, until)]
    await asyncio.sleep(0)
    await put(store, task())
    await asyncio.gather(*waiting)


async def test_a_commit_after_the_call_counts_whenever_the_waiter_gets_to_run(store: Store) -> None:
    for _ in range(20):
        waiting = asyncio.create_task(store.wait(None))
        await asyncio.sleep(0)
        await asyncio.gather(*(put(store, task()) for _ in range(3)))
        await waiting


async def test_a_cancelled_wait_leaves_nothing(store: Store) -> None:
    waiting = asyncio.create_task(store.wait(None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await put(store, task())


async def test_closing_ends_every_wait(store: Store) -> None:
    waiting = asyncio.create_task(store.wait(None))
    await asyncio.sleep(0)
    await store.close()
    await waiting


async def test_a_commit_ends_every_wait_for_the_type_that_it_writes(store: Store) -> None:
    for written, awaited in ((task(), Task), (schedule("s"), Schedule)):
        waiting = [
            asyncio.create_task(store.wait(None, of=of)) for of in ({awaited}, {awaited, Tenant}, None)
        ]
        await asyncio.sleep(0)
        await put(store, written)
        await asyncio.gather(*waiting)


async def test_a_wait_for_other_types_is_ended_by_what_follows(store: Store) -> None:
    waiting = asyncio.create_task(store.wait(None, of={Schedule}))
    await asyncio.sleep(0)
    await put(store, task())
    await put(store, schedule("s"))
    await waiting


async def test_a_claim_ends_a_wait_for_anything_and_a_cancel_one_for_tasks(store: Store) -> None:
    [pending] = await put(store, task())
    anything = asyncio.create_task(store.wait(None))
    tasks = asyncio.create_task(store.wait(None, of={Task}))
    await asyncio.sleep(0)
    [running] = await put(store, replace(pending, status=TaskStatus.RUNNING))
    await anything
    await put(store, replace(running, cancel_requested=True))
    await tasks


async def test_what_a_worker_waits_for(store: Store) -> None:
    [pending] = await put(store, task())
    for changed in ({"priority": 7}, {"status": TaskStatus.RUNNING, "cancel_requested": True}):
        waiting = asyncio.create_task(store.wait(None, of={PendingTask}))
        await asyncio.sleep(0)
        [pending] = await put(store, replace(pending, **changed))
        await waiting
