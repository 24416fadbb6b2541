"""The archive: records that have ended leave memory, and are found all the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count as count_up
from typing import Any

import pytest
from msgspec.structs import replace

from bucket.faulty import Fault, FaultyRequests, ManualClock, never
from records import event, run, task
from rota.domain.errors import Corrupt
from rota.domain.model import Event, Run, RunStatus, Task, TaskStatus
from rota.stores.base import Store, Tx
from rota.stores.bucket.archive.archive import Order, Source, merged
from rota.stores.bucket.archive.segments import Fingerprints
from rota.stores.bucket.service.bucket import MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from rota.stores.memory.state import Row
from rota.stores.queries import (
    Cursor,
    EndedRuns,
    EndedTasks,
    EventList,
    FinishedTasks,
    RunList,
    TaskList,
)
from stores import EAGER, START, count, find, get, put

MINUTE = timedelta(minutes=1)
BATCHES = replace(EAGER, archive_at_least=20, archive_at_most=20, views="off")
NOTHING_KEPT = replace(BATCHES, archive_in_memory=0)


def ended(number: int, **changes: Any) -> Task:
    at = START + number * MINUTE
    values = {"status": TaskStatus.COMPLETED, "created_at": at, "completed_at": at, "available_at": at}
    return task(f"t{number:04}", **{**values, **changes})


async def settle(store: BucketStore) -> None:
    """Until the upkeep has caught up with the commits. It looks again with each of them."""
    async with asyncio.timeout(60):
        for number in count_up():
            await put(store, event(at=START))
            await asyncio.sleep(0.02)
            if number >= 5 and all(live(store, each) < 60 for each in (Task, Run, Event)):
                return


async def filled(
    name: str, tuning: Tuning = BATCHES, clock: ManualClock | None = None
) -> tuple[BucketStore, FaultyRequests]:
    requests = FaultyRequests(MemoryRequests(name))
    store = BucketStore(requests, clock or ManualClock(START), tuning)
    await store.open()
    for start in range(0, 200, 20):
        await put(store, *(ended(number) for number in range(start, start + 20)))
        await asyncio.sleep(0.02)
    await settle(store)
    return store, requests


def live(store: BucketStore, type: Any = Task) -> int:
    return len(store.opened.replica.live.rows(type))


async def test_what_has_ended_leaves_memory_and_is_found_by_everything() -> None:
    store, requests = await filled("found")
    assert live(store) < 60
    assert await get(store, Task, "t0007") == replace(ended(7), version=1)
    newest = await find(store, TaskList(tenant="default", at=START), 1000)
    assert [each.id for each in newest] == [f"t{number:04}" for number in reversed(range(200))]
    assert await count(store, TaskList(tenant="default", at=START)) == 200
    assert await count(store, TaskList(tenant="default", at=START, status=TaskStatus.COMPLETED)) == 200
    assert await count(store, TaskList(tenant="default", at=START, status=TaskStatus.FAILED)) == 0
    assert await count(store, TaskList(tenant="default", at=START, kind="other")) == 0
    assert await count(store, TaskList(tenant="other", at=START)) == 0
    assert len((await store.snapshot())["task"]) == 200
    await store.close()
    fresh = BucketStore(requests, ManualClock(START), BATCHES)
    await fresh.open()
    assert live(fresh) < 60
    assert await find(fresh, TaskList(tenant="default", at=START), 1000) == newest
    await fresh.close()


async def test_a_page_loads_only_the_segments_that_it_needs() -> None:
    store, requests = await filled("pages", NOTHING_KEPT)
    requests.made.clear()
    cursor = Cursor(START + 100 * MINUTE, "t0100")
    page = await find(store, TaskList(tenant="default", at=START, after=cursor), 10)
    assert [each.id for each in page] == [f"t{number:04}" for number in range(99, 89, -1)]
    assert len([key for _, key in requests.made if key.startswith("archive/")]) <= 2
    requests.made.clear()
    assert await get(store, Task, "never was") is None
    assert await find(store, RunList(schedule_id="no runs"), 10) == []
    assert [key for _, key in requests.made if key.startswith("archive/")] == []
    await store.close()


async def test_what_ended_since_then_is_found_and_older_segments_stay_where_they_are() -> None:
    store, requests = await filled("since", NOTHING_KEPT)
    everything = await find(store, EndedTasks(tenant="default", since=START))
    assert [each.id for each in everything] == [f"t{number:04}" for number in range(200)]
    assert await find(store, EndedTasks(tenant="other", since=START)) == []
    requests.made.clear()
    late = EndedTasks(tenant="default", since=START + 95 * MINUTE)
    page = await find(store, late, 10)
    assert [each.id for each in page] == [f"t{number:04}" for number in range(95, 105)]
    cursor = Cursor(START + 104 * MINUTE, "t0104")
    page = await find(store, replace(late, after=cursor), 10)
    assert [each.id for each in page] == [f"t{number:04}" for number in range(105, 115)]
    assert len([key for _, key in requests.made if key.startswith("archive/")]) <= 3
    for at_most in (0, 7, 105, 106):
        assert await store.read(counting(late, at_most)) == min(at_most, 105)
    await store.close()


def counting(query: Any, at_most: int) -> Any:
    async def work(tx: Tx) -> int:
        return await tx.count(query, at_most=at_most)

    return work


async def test_archived_runs_are_found_by_when_they_ended() -> None:
    store = BucketStore(MemoryRequests("runs since"), ManualClock(START), BATCHES)
    await store.open()
    for start in range(0, 100, 20):
        times = [(number, START + number * MINUTE) for number in range(start, start + 20)]
        runs = [
            run(
                f"r{number:04}",
                tenant=("a", "b")[number % 2],
                scheduled_at=at,
                status=RunStatus.COMPLETED,
                completed_at=at,
            )
            for number, at in times
        ]
        await put(store, *runs)
        await asyncio.sleep(0.02)
    await settle(store)
    assert live(store, Run) < 60
    since = START + 51 * MINUTE
    found = await find(store, EndedRuns(tenant="b", since=since))
    assert [each.id for each in found] == [f"r{number:04}" for number in range(51, 100, 2)]
    behind = Cursor(START + 71 * MINUTE, "r0071")
    rest = await find(store, EndedRuns(tenant="b", since=since, after=behind), 3)
    assert [each.id for each in rest] == ["r0073", "r0075", "r0077"]
    await store.close()


async def test_an_archived_record_can_be_changed_and_deleted() -> None:
    store, _ = await filled("changed")
    kept = await get(store, Task, "t0003")
    assert kept is not None
    [back] = await put(store, replace(kept, status=TaskStatus.PENDING))
    assert await get(store, Task, "t0003") == back
    assert await count(store, TaskList(tenant="default", at=START, status=TaskStatus.COMPLETED)) == 199

    async def forget(tx: Tx) -> int:
        old = await tx.find(FinishedTasks(before=START + 50 * MINUTE), 1000)
        for each in old:
            tx.delete(each)
        return len(old)

    assert await store.transact(forget) == 49
    assert await get(store, Task, "t0004") is None
    left = [each.id for each in await find(store, TaskList(tenant="default", at=START), 1000)]
    assert left == [f"t{number:04}" for number in reversed(range(50, 200))] + ["t0003"]
    with pytest.raises(Exception, match="exists already"):
        await put(store, ended(60))
    await store.close()


async def test_a_segment_of_which_nothing_is_left_is_removed() -> None:
    clock = ManualClock(START)
    store, requests = await filled("removed", clock=clock)
    before = set(requests.list("archive/", None))

    async def forget(tx: Tx) -> None:
        for each in await tx.find(FinishedTasks(before=START + 1000 * MINUTE), 1000):
            tx.delete(each)

    await store.transact(forget)
    async with asyncio.timeout(60):  # upkeep removes it some rounds later
        while len(before & set(requests.list("archive/", None))) >= len(before) / 2:
            await settle(store)
            clock.at += MINUTE
    assert await find(store, TaskList(tenant="default", at=START), 10) == []
    await store.close()


async def test_runs_and_events_are_archived_too() -> None:
    requests = MemoryRequests("runs")
    store = BucketStore(requests, ManualClock(START), BATCHES)
    await store.open()
    for number in range(60):
        at = START + number * MINUTE
        values = {"status": RunStatus.COMPLETED, "scheduled_at": at, "completed_at": at}
        await put(
            store, run(f"r{number:02}", schedule_id=f"s{number % 3}", **values), event(f"e{number:02}", at=at)
        )
        await asyncio.sleep(0.002)
    await settle(store)
    assert live(store, Run) < 60
    assert live(store, Event) < 60
    rows = await find(store, RunList(schedule_id="s1"), 5)
    assert [each.id for each in rows] == ["r58", "r55", "r52", "r49", "r46"]
    events = await find(store, EventList(tenant="default"), 1000)
    assert [each.id for each in events if each.id.startswith("e") and len(each.id) == 3] == [
        f"e{number:02}" for number in range(60)
    ]
    await store.close()


async def test_a_group_that_is_lost_leaves_the_archive_as_it_was() -> None:
    """A record comes back for a trial; when the race is lost it is taken back, and tried again."""
    two_nodes = replace(BATCHES, window=MINUTE, retention=timedelta(hours=1))
    one, _ = await filled("trial", two_nodes)
    two = BucketStore(MemoryRequests("trial"), ManualClock(START), two_nodes)
    await two.open()

    async def mark(store: Store, id: str) -> None:
        async def work(tx: Tx) -> None:
            found = await tx.get(Task, id)
            assert found is not None
            tx.put(replace(found, priority=found.priority + 1))

        await store.transact(work)

    await asyncio.gather(*(mark(store, f"t{n:04}") for n in range(30) for store in (one, two)))
    for store in (one, two):
        for n in range(30):
            found = await get(store, Task, f"t{n:04}")
            assert found is not None
            assert found.version == 3
        assert await count(store, TaskList(tenant="default", at=START)) == 200
        await store.close()


def test_fingerprints_never_say_no_to_a_member() -> None:
    texts = [f"id-{n}" for n in range(5000)]
    prints = Fingerprints(Fingerprints.of(texts))
    assert all(text in prints for text in texts)
    assert not any(f"other-{n}" in prints for n in range(5000))


@pytest.mark.parametrize("descending", [False, True])
def test_sources_are_opened_only_when_their_time_comes(descending: bool) -> None:
    opened: list[int] = []

    def source(number: int) -> Source:
        tasks = [ended(number * 10 + n) for n in range(10)]
        tasks = tasks[::-1] if descending else tasks

        def open() -> Any:
            opened.append(number)
            return iter([Row(each, b"") for each in tasks])

        return Source(tasks[0].created_at, open)

    order = Order("created_at", descending=descending)
    walking = merged([source(number) for number in (3, 1, 2, 0)], order)
    found = [next(walking).record.id for _ in range(15)]
    everything = [f"t{n:04}" for n in (reversed(range(40)) if descending else range(40))]
    assert found == everything[:15]
    assert opened == ([3, 2] if descending else [0, 1])
    assert [row.record.id for row in walking] == everything[15:]


async def test_a_segment_that_is_cut_once_is_read_again_and_one_that_stays_so_is_named() -> None:
    store, requests = await filled("cut")
    await store.close()
    store = BucketStore(requests, ManualClock(START), BATCHES)
    await store.open()
    faults = iter([Fault.TRUNCATED])
    requests.plan = lambda number, kind: (
        next(faults, None) if kind == "get" and "archive/" in requests.made[-1][1] else None
    )
    assert await get(store, Task, "t0007") is not None
    await store.close()
    store = BucketStore(requests, ManualClock(START), BATCHES)
    requests.plan = never
    await store.open()
    requests.plan = lambda number, kind: Fault.TRUNCATED if "archive/" in requests.made[-1][1] else None
    with pytest.raises(Corrupt, match=r"^memory-bucket:cut/archive/"):
        await get(store, Task, "t0007")
    requests.plan = never
    await store.close()
