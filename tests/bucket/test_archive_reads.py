"""Whoever needs the archive waits for it alone; and what he is told is what a store without an archive would say."""

from __future__ import annotations

import asyncio
import gzip
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count as counting_up
from typing import Any

import pytest
from msgspec.structs import replace

from bucket.faulty import Fault, FaultyRequests, ManualClock, never
from records import any_event, any_run, any_task, run, task
from rota.domain.errors import Corrupt, Refused, StoreError, Unavailable
from rota.domain.model import Event, Record, Run, RunStatus, Task, TaskStatus
from rota.domain.task import Completed, Defaults, Submission
from rota.engine import commands, queries
from rota.engine.commands import Claim, Renewal, Result
from rota.stores.base import CommitOptions, Tx
from rota.stores.bucket.archive.archive import pack_segment
from rota.stores.bucket.archive.lookups import SegmentCache
from rota.stores.bucket.service.bucket import Bucket, Denied, MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from rota.stores.codec import TABLES
from rota.stores.memory.state import Row
from rota.stores.memory.store import MemoryStore
from rota.stores.queries import (
    Cursor,
    EndedRuns,
    EndedTasks,
    EventList,
    FinishedTasks,
    LatestRuns,
    OldEvents,
    OldRuns,
    Query,
    RunList,
    TaskList,
)
from stores import EAGER, START, count, find, get, put
from worlds import seeds

MINUTE = timedelta(minutes=1)
BATCHES = replace(
    EAGER,
    archive_at_least=20,
    archive_at_most=20,
    snapshot_every=1_000_000,  # nothing is archived but when a test says so
    views="off",
    window=MINUTE,
    retention=timedelta(hours=1),
)
EVERYTHING = TaskList(tenant="default", at=START)
_names = counting_up()


def ended(number: int, **changes: Any) -> Task:
    at = START + number * MINUTE
    values = {"status": TaskStatus.FAILED, "created_at": at, "completed_at": at, "available_at": at}
    return task(f"t{number:04}", **{**values, **changes})


def segments(store: BucketStore) -> list[str]:
    return list(store.opened.replica.archive.segments)


async def archived(store: BucketStore, records: list[Record], batch: int = 20) -> None:
    """Put them, and wait until nothing of them that has ended is live."""
    for start in range(0, len(records), batch):
        await put(store, *records[start : start + batch])
    upkeep = store.opened.upkeep
    while await upkeep.archive_once():
        pass


async def opened(
    tuning: Tuning = BATCHES, tasks: int = 200, name: str = "", clock: ManualClock | None = None
) -> tuple[BucketStore, FaultyRequests]:
    requests = FaultyRequests(MemoryRequests(name or f"reads {next(_names)}"))
    store = BucketStore(requests, clock or ManualClock(START), tuning)
    await store.open()
    await archived(store, [ended(number) for number in range(tasks)])
    return store, requests


class Gate:
    """Reads of segments stop at it until it is opened."""

    def __init__(self, requests: FaultyRequests) -> None:
        self.asked = threading.Event()
        self.open = threading.Event()
        self._requests = requests

    def plan(self, number: int, kind: str) -> Fault | None:
        if kind == "get" and "archive/" in self._requests.made[-1][1]:
            self.asked.set()
            assert self.open.wait(60)
        return None

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.asked.wait, 60)


@contextmanager
def gate(requests: FaultyRequests) -> Iterator[Gate]:
    held = Gate(requests)
    requests.plan = held.plan
    try:
        yield held
    finally:
        requests.plan = never
        held.open.set()


def listing(runs: list[int], query: Query[Record] = EVERYTHING, limit: int = 1000) -> Callable[[Tx], Any]:
    async def work(tx: Tx) -> list[str]:
        runs.append(1)
        return [each.id for each in await tx.find(query, limit)]

    return work


@pytest.mark.parametrize("how", ["read", "transact"])
async def test_nobody_waits_for_the_archive_but_who_asked_it(how: str) -> None:
    store, requests = await opened()
    with gate(requests) as held:
        slow = asyncio.create_task(getattr(store, how)(listing([])))
        await held.reached()
        async with asyncio.timeout(60):
            asked = Submission(kind="report", input={})
            [submitted] = await store.transact(commands.submit_tasks([("new", asked)], "default", "me"))
            ask = Claim(
                worker_id="w",
                lease_id="l",
                lease=MINUTE,
                limit=1,
                kinds={"report": Defaults()},
            )
            [claimed] = (await store.transact(commands.claim_tasks(ask))).tasks
            assert claimed.id == submitted.id
            [renewed] = await store.transact(commands.renew_leases([Renewal(task=claimed, lease=MINUTE)]))
            assert isinstance(renewed, Task)
            result = Result(task=renewed, outcome=Completed(output=1))
            [settled] = await store.transact(commands.settle_tasks([result]))
            assert isinstance(settled, Task)
            assert settled.status is TaskStatus.COMPLETED
            assert await get(store, Task, "new") == settled
            assert (
                len(await find(store, TaskList(tenant="default", at=START, status=TaskStatus.PENDING))) == 0
            )
        assert not slow.done()
        held.open.set()
        found = await slow
    assert sorted(found) == ["new", *(f"t{number:04}" for number in range(200))]
    await store.close()


async def test_a_work_that_needs_the_archive_does_not_hold_up_its_group() -> None:
    store, requests = await opened()
    with gate(requests) as held:
        replay = asyncio.create_task(store.transact(commands.replay_task("default", "t0003", "me")))
        others = [asyncio.create_task(put(store, task(f"new{number}"))) for number in range(5)]
        await asyncio.wait_for(asyncio.gather(*others), 60)
        await held.reached()
        assert not replay.done()
        assert (await get(store, Task, "new3")) is not None
        held.open.set()
        replayed = await replay
    assert replayed.status is TaskStatus.PENDING
    assert await get(store, Task, "t0003") == replayed
    assert await count(store, TaskList(tenant="default", at=START, status=TaskStatus.FAILED)) == 199
    await store.close()


async def test_two_who_replay_one_archived_task_at_once_replay_it_once() -> None:
    store, _ = await opened()
    works = [store.transact(commands.replay_task("default", "t0003", who)) for who in ("a", "b")]
    first, second = await asyncio.gather(*works, return_exceptions=True)
    assert isinstance(first, Task) != isinstance(second, Task)
    assert any(isinstance(each, Refused) and each.code == "cannot_replay" for each in (first, second))
    await store.close()


async def test_an_idempotency_key_is_remembered_by_the_archive() -> None:
    store, _ = await opened(tasks=0)
    asked = Submission(kind="report", input={"n": 1}, idempotency_key="once")
    [first] = await store.transact(commands.submit_tasks([("a", asked)], "default", "me"))
    await archived(store, [replace(first, status=TaskStatus.COMPLETED, completed_at=START)])
    await archived(store, [ended(number) for number in range(40)])
    assert store.opened.replica.live.row(Task, first.id) is None
    [again] = await store.transact(commands.submit_tasks([("b", asked)], "default", "me"))
    assert again.id == first.id
    with pytest.raises(Refused, match="already used"):
        await store.transact(commands.submit_tasks([("c", replace(asked, input={"n": 2}))], "default", "me"))
    await store.close()


@pytest.mark.parametrize("in_memory", [0, 2**25])
async def test_a_long_listing_is_run_again_only_a_few_times(in_memory: int) -> None:
    """Also if nothing of it can be kept."""
    tuning = replace(BATCHES, archive_at_least=2, archive_at_most=2, archive_in_memory=in_memory)
    store, requests = await opened(tuning, tasks=200)
    assert len(segments(store)) >= 100
    requests.made.clear()
    runs: list[int] = []
    found = await store.read(listing(runs))
    assert found == [f"t{number:04}" for number in reversed(range(200))]
    assert len(runs) <= 10
    reads = [key for kind, key in requests.made if kind == "get" and key.startswith("archive/")]
    assert len(reads) == len(set(reads)) == len(segments(store)), "each segment once"
    runs.clear()
    nothing = replace(EVERYTHING, kind="other")
    assert await store.transact(listing(runs, nothing, 10)) == []
    assert len(runs) <= 10
    assert await count(store, nothing) == 0
    assert await count(store, replace(EVERYTHING, kind="report")) == 200
    await store.close()


async def test_the_latest_runs_of_many_schedules_are_looked_up_together() -> None:
    """Each schedule has its rows in segments of its own: the work is run again as often as for one of them."""
    tuning = replace(BATCHES, archive_at_least=2, archive_at_most=2)
    store, _ = await opened(tuning, tasks=0)
    rows: list[Record] = [
        run(f"r{number:03}", schedule_id=f"s{number // 4:02}", status=RunStatus.COMPLETED, **ending(number))
        for number in range(80)
    ]
    await archived(store, rows)
    assert len(segments(store)) >= 40
    runs_of: list[int] = []
    for schedules in (1, 20):
        runs: list[int] = []
        ids = tuple(f"s{number:02}" for number in range(schedules))
        found = await store.read(listing(runs, LatestRuns(schedule_ids=ids, most=3)))
        assert found == [f"r{number:03}" for first in range(0, 4 * schedules, 4) for number in latest(first)]
        runs_of.append(len(runs))
    assert runs_of[0] > 1
    assert runs_of[1] <= runs_of[0] + 1
    await store.close()


def ending(number: int) -> dict[str, Any]:
    at = START + number * MINUTE
    return {"scheduled_at": at, "completed_at": at}


def latest(first: int) -> tuple[int, int, int]:
    return (first + 3, first + 2, first + 1)


def questions(chance: random.Random) -> Iterator[tuple[Query[Record], int]]:
    def at() -> Any:
        return START + chance.randint(-6, 6) * MINUTE

    for _ in range(15):
        tenant = chance.choice(("default", "other"))
        after = chance.choice((None, Cursor(at(), chance.choice(("", "~")))))
        schedule = chance.choice(("s1", "s2", "s3"))
        yield from (
            (query, chance.choice((1, 3, 20, 1000)))
            for query in (
                TaskList(
                    tenant=tenant,
                    at=START,
                    status=chance.choice((None, *TaskStatus)),
                    kind=chance.choice((None, None, "send")),
                    schedule_id=chance.choice((None, None, schedule)),
                    is_workflow=chance.choice((None, None, True)),
                    after=after,
                ),
                FinishedTasks(before=at()),
                EndedTasks(tenant=tenant, since=at(), after=after),
                RunList(
                    schedule_id=schedule,
                    since=chance.choice((None, at())),
                    until=chance.choice((None, at())),
                    after=after,
                ),
                LatestRuns(schedule_ids=(schedule, "s9", "s1"), most=chance.choice((1, 3, 50))),
                OldRuns(before=at()),
                EndedRuns(tenant=tenant, since=at(), after=after),
                EventList(tenant=tenant, subject_id=chance.choice((None, schedule)), after=after),
                OldEvents(before=at()),
            )
        )


@pytest.mark.parametrize("seed", seeds(few=1, every=3))
@pytest.mark.parametrize("in_memory", [0, 2**25])
async def test_the_archive_answers_as_memory_does(seed: int, in_memory: int) -> None:
    """Records of all shapes in many segments, some of them written again and some deleted since."""
    chance = random.Random(seed)
    makers = (any_task, any_run, any_event)
    records: list[Record] = [make(chance, id=f"{make.__name__}{n:03}") for n in range(60) for make in makers]
    clock = ManualClock(START)
    memory = MemoryStore(clock)
    tuning = replace(BATCHES, archive_at_least=1, archive_at_most=4, archive_in_memory=in_memory)
    store = BucketStore(MemoryRequests(), clock, tuning)
    for each in (memory, store):
        await each.open()
    await put(memory, *records)
    await archived(store, records, batch=7)
    for _ in range(2):
        changed = {record.id: chance.randint(0, 3) for record in chance.sample(records, 40)}
        for each in (memory, store):
            await each.transact(changing(records, changed))
        assert await store.snapshot() == await memory.snapshot()
        for query, limit in questions(chance):
            assert await find(store, query, limit) == await find(memory, query, limit), query
            assert await count(store, query) == await count(memory, query), query
    assert len(segments(store)) > 10
    for each in (memory, store):
        await each.close()


def changing(records: list[Record], changed: dict[str, int]) -> Any:
    """Delete some, write others again."""

    async def work(tx: Tx) -> None:
        types: dict[str, type[Record]] = {record.id: type(record) for record in records}
        found = [
            record
            for of_type in (Task, Run, Event)
            for record in (
                await tx.get_many(of_type, [id for id in changed if types[id] is of_type])
            ).values()
        ]
        for record in found:
            if changed[record.id] == 0:
                tx.delete(record)
            elif isinstance(record, Task):
                tx.put(replace(record, priority=changed[record.id]))
            else:
                tx.put(record)

    return work


async def test_works_of_a_group_see_what_those_before_them_brought_back() -> None:
    store, _ = await opened()
    failed = TaskList(tenant="default", at=START, status=TaskStatus.FAILED)
    of_kind = replace(failed, kind="report")

    async def asking(tx: Tx) -> tuple[int, int, int, bool]:
        found = await tx.find(failed, 1000)
        t0003 = await tx.get(Task, "t0003")
        return (
            len(found),
            await tx.count(failed),
            await tx.count(of_kind),
            t0003 is not None and t0003.status is TaskStatus.PENDING,
        )

    for _ in range(5):  # in one group, once both have what they need
        replay = commands.replay_task("default", "t0003", "me")
        outcomes = await asyncio.gather(
            store.transact(replay), store.transact(asking), return_exceptions=True
        )
        assert outcomes[1] in ((200, 200, 200, False), (199, 199, 199, True))
    assert await store.transact(asking) == (199, 199, 199, True)
    await store.close()


async def test_what_was_removed_between_the_fetch_and_the_next_run_is_not_found() -> None:
    store, requests = await opened(name="removed meanwhile")
    other = BucketStore(MemoryRequests("removed meanwhile"), ManualClock(START), BATCHES)
    await other.open()
    before = segments(store)
    half = START + 100 * MINUTE

    async def forget(tx: Tx) -> None:
        for each in await tx.find(FinishedTasks(before=half), 1000):
            tx.delete(each)

    with gate(requests) as held:
        slow = asyncio.create_task(store.transact(listing([], FinishedTasks(before=START + 150 * MINUTE))))
        await held.reached()
        await other.transact(forget)
        await put(store, task("new"))  # so that this node has read on
        gone = set(before) - set(segments(store))
        assert len(gone) >= 4
        MemoryRequests("removed meanwhile").delete(sorted(gone))
        held.open.set()
        assert await slow == [f"t{number:04}" for number in range(100, 150)]
    await store.close()
    await other.close()


async def test_a_node_that_is_behind_catches_up_before_it_calls_a_segment_missing() -> None:
    store, _ = await opened(name="behind")
    other = BucketStore(MemoryRequests("behind"), ManualClock(START), BATCHES)
    await other.open()

    async def forget(tx: Tx) -> None:
        for each in await tx.find(FinishedTasks(before=START + 1000 * MINUTE), 1000):
            tx.delete(each)

    await other.transact(forget)
    MemoryRequests("behind").delete(segments(store))
    found = await store.transact(
        listing([], FinishedTasks(before=START + 1000 * MINUTE)), CommitOptions(may_be_stale=True)
    )
    assert found == []
    await store.close()
    await other.close()


FAILURES: list[tuple[Fault | None, type[StoreError], str]] = [
    (Fault.THROTTLED, Unavailable, r"cannot read memory-bucket:.*/archive/.*503"),
    (Fault.DENIED, Denied, r"cannot read memory-bucket:.*/archive/.*access denied"),
    (Fault.TRUNCATED, Corrupt, r"memory-bucket:.*/archive/.* cannot be read"),
    (None, Corrupt, r"memory-bucket:.*/archive/.* is missing"),
]


@pytest.mark.parametrize("how", ["read", "transact"])
@pytest.mark.parametrize(("fault", "error", "words"), FAILURES)
async def test_a_segment_that_cannot_be_had_fails_who_asked_for_it_and_nobody_else(
    fault: Fault | None, error: type[StoreError], words: str, how: str
) -> None:
    store, requests = await opened()
    if fault is None:
        requests.delete(segments(store))
    requests.plan = lambda number, kind: (
        fault if kind == "get" and "archive/" in requests.made[-1][1] else None
    )
    listed = getattr(store, how)(listing([]))
    others = [put(store, task(f"new{number}")) for number in range(3)]
    failed, *stored = await asyncio.gather(listed, *others, return_exceptions=True)
    assert isinstance(failed, error)
    assert [each.id for [each] in stored] == ["new0", "new1", "new2"]
    with pytest.raises(error, match=words):
        await store.transact(commands.replay_task("default", "t0003", "me"))
    requests.plan = never
    if fault is not None:
        assert len(await find(store, EVERYTHING)) == 203
    await store.close()


async def test_many_who_want_the_same_segment_read_it_once() -> None:
    store, requests = await opened(tasks=20)
    requests.made.clear()
    with gate(requests) as held:
        asked = [asyncio.create_task(get(store, Task, f"t{number:04}")) for number in range(20)]
        await held.reached()
        held.open.set()
        assert all(await asyncio.gather(*asked))
    assert len([key for _, key in requests.made if key.startswith("archive/")]) == 1
    await store.close()


async def test_only_some_segments_are_read_at_a_time() -> None:
    """By one who lists, and by all together."""
    tuning = replace(BATCHES, archive_at_least=2, archive_at_most=2, archive_in_memory=0)
    store, requests = await opened(tuning, tasks=100)
    lock, now, most = threading.Lock(), [0], [0]
    inner = requests.get

    def counted(key: str) -> Any:
        if not key.startswith("archive/"):
            return inner(key)
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002)
        try:
            return inner(key)
        finally:
            with lock:
                now[0] -= 1

    requests.get = counted  # type: ignore[method-assign]  # the test watches its own requests
    assert len(await store.read(listing([]))) == 100
    assert most[0] <= 4
    kinds = [
        replace(EVERYTHING, kind="other"),
        RunList(schedule_id="s1"),
        FinishedTasks(before=START + 99 * MINUTE),
    ]
    await asyncio.gather(*(store.read(listing([], each)) for each in (*kinds, EVERYTHING)))
    assert most[0] <= 8
    await store.close()


def test_what_is_kept_of_segments_is_bounded_in_bytes() -> None:
    requests = FaultyRequests(MemoryRequests())
    rows = {n: [Row(each, TABLES[Task].encode(each)) for each in [ended(n), ended(n + 50)]] for n in range(9)}
    for number, each in rows.items():
        requests.put(f"archive/{number}", pack_segment(each))
    size = len(gzip.decompress(requests.get("archive/0").body))
    cache = SegmentCache(Bucket(requests), 3 * size + 100)
    for number in (0, 1, 2, 0, 3):
        assert {row.record.id for row in cache.load(f"archive/{number}").rows(Task)} == {
            f"t{number:04}",
            f"t{number + 50:04}",
        }
    requests.made.clear()
    for number in (0, 2, 3, 1):
        cache.load(f"archive/{number}")
    assert [key for _, key in requests.made] == ["archive/1"], "what was used longest ago went"
    small = SegmentCache(Bucket(requests), size - 1)
    assert len(small.load("archive/4").rows(Task)) == 2
    assert small.size == 0


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    store, requests = await opened()
    with gate(requests) as held:
        slow = asyncio.create_task(store.read(listing([])))
        await held.reached()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        held.open.set()
        await asyncio.wait_for(store.close(), 60)


@pytest.mark.parametrize("late", [False, True], ids=["in its first run", "while it waits"])
@pytest.mark.parametrize("how", ["read", "transact"])
async def test_a_store_that_is_closed_answers_first_who_asks_the_archive(how: str, late: bool) -> None:
    store, requests = await opened()
    with gate(requests) as held:
        slow = asyncio.create_task(getattr(store, how)(queries.one_task("default", "t0003")))
        await (held.reached() if late else asyncio.sleep(0))
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        held.open.set()
        await asyncio.wait_for(closing, 60)
        assert (await slow).id == "t0003"


async def test_the_time_of_a_work_does_not_move_while_it_waits_for_the_archive() -> None:
    clock = ManualClock(START)
    store, _ = await opened(clock=clock)
    times: list[Any] = []

    async def work(tx: Tx) -> int:
        times.append(tx.now)
        clock.at += timedelta(milliseconds=1)
        return len(await tx.find(FinishedTasks(before=tx.now + 1000 * MINUTE), 1000))

    assert await store.read(work) == 200
    assert len(times) > 1
    assert len(set(times)) == 1
    await store.close()


async def test_a_work_may_ask_for_archived_records_one_after_the_other() -> None:
    store, _ = await opened()

    async def work(tx: Tx) -> list[Task | None]:
        return [await tx.get(Task, ended(number).id) for number in range(100)]

    assert None not in await store.read(work)
    await store.close()
