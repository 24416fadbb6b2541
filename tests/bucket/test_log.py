"""The log, its snapshots and its removal: who starts, who slept, who lost, and what cannot be read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count as count_up
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bucket.faulty import Fault, FaultyRequests, ManualClock
from records import schedule, task
from rota.domain.errors import Corrupt, Invalid, Unavailable
from rota.domain.model import Task
from rota.engine.clock import SystemClock
from rota.stores.base import Store, Tx
from rota.stores.bucket.commit import Committed
from rota.stores.bucket.service.bucket import MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from rota.stores.queries import ReadyTasks
from rota.surfaces.cli.commands.store import examine
from stores import START, count, get, put

HOUR = timedelta(hours=1)
PLAIN = Tuning(views="off")
SNAPSHOTS = Tuning(views="off", snapshot_every=4, views_every=timedelta(0))


def keys(requests: Any, prefix: str) -> list[str]:
    return sorted(requests.list(prefix, None))


async def add_one(store: Store, id: str = "counter") -> None:
    async def work(tx: Tx) -> None:
        found = await tx.get(Task, id)
        tx.put(task(id, priority=1) if found is None else replace(found, priority=found.priority + 1))

    await store.transact(work)


async def until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not met():
            await asyncio.sleep(0.005)


async def test_an_entry_is_json_that_a_person_can_read() -> None:
    requests = MemoryRequests()
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    await put(store, task("a", input={"user": "123"}), task("b"))
    await store.close()
    assert keys(requests, "") == ["log/000000000001.json", "proof/create"]
    body = requests.get("log/000000000001.json").body
    entry = msgspec.json.decode(body)
    assert [each["id"] for each in entry["put"]["task"]] == ["a", "b"]
    assert {"number", "commit", "at", "node"} <= set(entry)
    assert len([line for line in body.decode().splitlines() if '"id":"' in line]) == 2


async def test_equal_writes_have_unequal_bodies() -> None:
    """Where an ETag is a hash of the body, equal bodies would hide that something changed and changed back."""
    bodies = []
    for _ in range(2):
        requests = MemoryRequests()
        store = BucketStore(requests, ManualClock(START), PLAIN)
        await store.open()
        await put(store, task("a", created_at=START, available_at=START, updated_at=START))
        await store.close()
        bodies.append(requests.get("log/000000000001.json").body)
    assert bodies[0] != bodies[1]


async def test_many_works_share_an_entry() -> None:
    requests = MemoryRequests()
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    await asyncio.gather(*(put(store, task()) for _ in range(200)))
    assert len(keys(requests, "log/")) <= 3
    await store.close()


async def test_nodes_see_each_other() -> None:
    name = "seen"
    one, two = (BucketStore(MemoryRequests(name), ManualClock(START), PLAIN) for _ in range(2))
    await one.open()
    await two.open()
    await put(one, task("a"))
    assert await get(two, Task, "a") is not None
    await put(one, task("c"))
    assert await two.transact(lambda tx: tx.get(Task, "c")) is not None, "a work that writes nothing, too"
    waiting = asyncio.create_task(two.wait(None))
    await asyncio.sleep(0)
    await put(one, task("b"))
    async with asyncio.timeout(60):
        await waiting
    await one.close()
    await two.close()


async def test_what_others_wrote_is_told_though_a_commit_of_another_type_has_read_it() -> None:
    name, seldom = "read by a commit", Tuning(views="off", poll_shortest=HOUR, poll_longest=HOUR)
    one, two = (BucketStore(MemoryRequests(name), ManualClock(START), seldom) for _ in range(2))
    await one.open()
    await two.open()
    waiting = asyncio.create_task(two.wait(None, of={Task}))
    await asyncio.sleep(0)
    await put(one, task("a"))
    await put(two, schedule("s"))
    async with asyncio.timeout(60):  # else it would wait for the next change
        await waiting
    await one.close()
    await two.close()


async def test_a_look_amid_a_commit_does_not_miss_what_others_write_after_it() -> None:
    name, seldom = "looked at amid a commit", Tuning(views="off", poll_shortest=HOUR, poll_longest=HOUR)
    one, two = (BucketStore(MemoryRequests(name), ManualClock(START), seldom) for _ in range(2))
    await one.open()
    await two.open()
    loop, committer = asyncio.get_running_loop(), one.opened.committer
    committed, looks = committer.on_commit, []

    def looked_at(commit: Committed) -> None:
        """In the writer thread: the entry has been applied, and its callers are yet to be told."""
        one.opened.look(HOUR)
        committed(commit)
        asyncio.run_coroutine_threadsafe(put(two, task("b")), loop).result()
        one.opened.log.catch_up()
        looks.append(one.opened.look(HOUR))

    committer.on_commit = looked_at
    await put(one, schedule("s"))
    assert looks == [True]
    committer.on_commit = committed
    await one.close()
    await two.close()


async def test_a_commit_of_another_type_wakes_nobody_if_nobody_else_wrote() -> None:
    seldom = Tuning(views="off", poll_shortest=HOUR, poll_longest=HOUR)
    store = BucketStore(MemoryRequests(), ManualClock(START), seldom)
    await store.open()
    waiting = asyncio.create_task(store.wait(None, of={Task}))
    await asyncio.sleep(0)
    for number in range(3):
        await put(store, schedule(f"s{number}"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await store.close()
    await waiting


async def test_many_who_read_at_once_share_a_request_and_each_sees_what_was_committed_before() -> None:
    requests = FaultyRequests(MemoryRequests("read by many"), lambda number, kind: time.sleep(0.002))
    one = BucketStore(MemoryRequests("read by many"), SystemClock(), PLAIN)
    two = BucketStore(requests, SystemClock(), PLAIN)
    await one.open()
    await two.open()
    seen = 0
    for number in range(20):
        await put(one, task(f"t{number}"))
        before = len(requests.made)
        found = await asyncio.gather(*(get(two, Task, f"t{number}") for _ in range(50)))
        assert None not in found
        seen += len(requests.made) - before
    assert seen < 20 * 20
    await one.close()
    await two.close()


async def test_four_nodes_on_one_counter_lose_nothing_and_none_starves() -> None:
    def distant(number: int, kind: str) -> None:
        time.sleep(0.003)

    stores = [
        BucketStore(FaultyRequests(MemoryRequests("contended"), distant), SystemClock(), PLAIN)
        for _ in range(4)
    ]
    for store in stores:
        await store.open()
    done = [0] * len(stores)

    async def busy(number: int) -> None:
        while done[number] < 60 or (min(done) < 5 and done[number] < 1000):
            await add_one(stores[number])
            done[number] += 1

    nodes = [asyncio.create_task(busy(number)) for number in range(4)]
    await asyncio.wait(nodes, return_when=asyncio.FIRST_COMPLETED)
    assert min(done) >= 5, done
    await asyncio.gather(*nodes)
    for store in stores:
        counter = await get(store, Task, "counter")
        assert counter is not None
        assert counter.priority == counter.version == sum(done)
        await store.close()


async def test_a_node_that_never_pauses_leaves_room_for_another() -> None:
    """The one has always more to write; the other writes now and then, and reads more slowly than the one writes."""

    def distant(number: int, kind: str) -> None:
        time.sleep(0.004)

    busy, calm = (
        BucketStore(FaultyRequests(MemoryRequests("unequal"), distant), SystemClock(), PLAIN)
        for _ in range(2)
    )
    await busy.open()
    await calm.open()
    ended = asyncio.Event()

    async def never_pauses() -> None:
        while not ended.is_set():
            await add_one(busy, "busy")

    flood = asyncio.create_task(never_pauses())
    async with asyncio.timeout(120):
        for _ in range(20):
            await add_one(calm, "calm")
    ended.set()
    await flood
    counter = await get(busy, Task, "calm")
    assert counter is not None
    assert counter.priority == 20
    await busy.close()
    await calm.close()


async def test_a_client_and_a_worker_far_apart_ask_little() -> None:
    """A task a second, submitted elsewhere: the write finds out what it is not worth asking."""
    clocks = [ManualClock(START) for _ in range(2)]
    nodes = [FaultyRequests(MemoryRequests("far apart")) for _ in range(2)]
    client, worker = (
        BucketStore(requests, clock, PLAIN) for requests, clock in zip(nodes, clocks, strict=True)
    )
    await client.open()
    await worker.open()
    for number in range(30):
        if number == 20:
            for requests in nodes:
                requests.made.clear()
        for clock in clocks:
            clock.at += timedelta(seconds=1)
            clock.steady += 1
        await add_one(client)
        assert worker.opened.look(timedelta(seconds=0.5))
        await add_one(worker)  # the claim
        await add_one(worker)  # the result
    made = Counter(kind for requests in nodes for kind, _ in requests.made)
    assert made["create"] == 30, "a race was lost"
    assert made["get"] <= 40, made
    for store in (client, worker):
        counter = await get(store, Task, "counter")
        assert counter is not None
        assert counter.priority == 90
        await store.close()


async def grown(store: Store, met: Callable[[], object]) -> int:
    """How many commits it takes until upkeep has come so far. It follows commits, and may be far behind them."""
    commits = 0
    async with asyncio.timeout(60):
        while not met():
            await add_one(store)
            commits += 1
            await asyncio.sleep(0.05)
    return commits


async def test_snapshots_bound_what_a_start_reads_and_the_log_is_removed_behind_them() -> None:
    requests = MemoryRequests("bounded")
    clock = ManualClock(START)
    store = BucketStore(requests, clock, SNAPSHOTS)
    await store.open()
    for _ in range(40):
        await add_one(store)
        await asyncio.sleep(0.002)
    more = await grown(store, lambda: len(keys(requests, "snapshot/")) >= 3)
    assert keys(requests, "log/")[0] == "log/000000000001.json", "removed before its time"
    clock.at += 2 * HOUR
    for _ in range(40):
        await add_one(store)
        await asyncio.sleep(0.002)
    more += await grown(store, lambda: keys(requests, "log/")[0] > "log/000000000020.json")
    await store.close()
    assert len(keys(requests, "snapshot/")) < 15
    counting = FaultyRequests(requests)
    fresh = BucketStore(counting, clock, SNAPSHOTS)
    await fresh.open()
    counter = await get(fresh, Task, "counter")
    await fresh.close()
    assert counter is not None
    assert counter.priority == 80 + more
    assert len(counting.made) < 30


async def test_processes_that_make_one_commit_and_end_keep_house_too() -> None:
    requests = MemoryRequests("short-lived")
    clock = ManualClock(START)
    for _ in range(60):
        store = BucketStore(requests, clock, SNAPSHOTS)
        await store.open()
        await add_one(store)
        await store.close()
        clock.at += timedelta(minutes=10)
    assert len(keys(requests, "log/")) < 40, "nothing was removed"
    assert 1 <= len(keys(requests, "snapshot/")) < 10
    store = BucketStore(requests, clock, SNAPSHOTS)
    await store.open()
    counter = await get(store, Task, "counter")
    await store.close()
    assert counter is not None
    assert counter.priority == 60


async def test_a_large_snapshot_is_compressed() -> None:
    requests = MemoryRequests("large")
    store = BucketStore(requests, ManualClock(START), SNAPSHOTS)
    await store.open()
    for _ in range(8):
        await put(store, *(task(input="x" * 1000) for _ in range(50)))
        await asyncio.sleep(0.01)
    await until(lambda: keys(requests, "snapshot/"))
    await store.close()
    assert all(key.endswith(".json.gz") for key in keys(requests, "snapshot/"))
    fresh = BucketStore(requests, ManualClock(START), SNAPSHOTS)
    await fresh.open()
    assert await count(fresh, ReadyTasks(at=START + 1000 * HOUR)) == 400
    await fresh.close()


class Sleeper:
    """A node that falls asleep in a request, for `hours`, while another goes on, snapshots, and removes the log."""

    def __init__(self, name: str, hours: float = 6, *, reads_first: bool = False) -> None:
        """`reads_first`: when it wakes, another of its threads is first, and brings it up to date."""
        self.hours = hours
        self.reads_first = reads_first
        self.clock = ManualClock(START)
        self.requests = FaultyRequests(MemoryRequests(name))
        self.store = BucketStore(self.requests, self.clock, PLAIN)
        self.awake_clock = ManualClock(START)
        self.awake = BucketStore(MemoryRequests(name), self.awake_clock, SNAPSHOTS)
        self.bucket = MemoryRequests(name)
        self.slept = False

    async def begin(self) -> None:
        """Both have counted, to 2; the sleeper is about to count on."""
        await self.awake.open()
        await add_one(self.awake)
        await self.store.open()
        await add_one(self.store)
        self.clock.at += timedelta(seconds=2)  # no longer fresh: it reads before it writes

    def sleeps_in(self, kind: str, after: bool) -> None:
        """In its next request of this kind, before it or after it."""
        inner = self.requests.do
        loop = asyncio.get_running_loop()

        def do(this: str, key: str, request: Callable[[], Any]) -> Any:
            if this != kind or "log/" not in key:
                return inner(this, key, request)
            vars(self.requests)["do"] = inner
            answer = None
            if after:
                with suppress(FileNotFoundError):
                    answer = inner(this, key, request)
            asyncio.run_coroutine_threadsafe(self.meanwhile(), loop).result(60)
            return answer if answer is not None else inner(this, key, request)

        vars(self.requests)["do"] = do

    async def meanwhile(self) -> None:
        for part in range(3):
            known = keys(self.bucket, "snapshot/")[-1:]
            for _ in range(20):
                await add_one(self.awake)
                await asyncio.sleep(0.001)

            def is_newer(known: list[str] = known) -> bool:
                return keys(self.bucket, "snapshot/")[-1:] > known

            await until(is_newer)
            self.awake_clock.at = START + (part + 1) / 3 * self.hours * HOUR
        if self.hours > 3:
            await self._removed()
        self.clock.at += self.hours * HOUR
        self.clock.steady += self.hours * 3600
        self.slept = True
        if self.reads_first:
            assert await get(self.store, Task, "counter") is not None

    async def _removed(self) -> None:
        """Upkeep may be behind: then it takes further commits, and further hours, until the log is cut."""
        async with asyncio.timeout(60):
            more = (task(f"more {number}") for number in count_up())
            while keys(self.bucket, "log/")[0] <= "log/000000000010.json":
                await put(self.awake, next(more))
                self.awake_clock.at += HOUR / 60
                await asyncio.sleep(0.001)

    async def same_everywhere(self) -> int:
        """What the counter says, to each of them and to one who comes now."""
        fresh = BucketStore(self.bucket, ManualClock(START), PLAIN)
        await fresh.open()
        assert await fresh.snapshot() == await self.store.snapshot() == await self.awake.snapshot()
        counter = await get(fresh, Task, "counter")
        for store in (fresh, self.store, self.awake):
            await store.close()
        assert counter is not None
        return counter.priority


@pytest.mark.parametrize("kind", ["get", "create"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize("hours", [1, 6])
async def test_a_node_that_slept_through_the_removal_of_the_log_is_fenced(
    kind: str, after: bool, reads_first: bool, hours: float
) -> None:
    """Wherever it fell asleep, whichever of its threads wakes first: what it is told was written counts, and it goes
    on from the state of the others."""
    sleeper = Sleeper(f"sleeper {kind} {after} {reads_first} {hours}", hours, reads_first=reads_first)
    await sleeper.begin()
    sleeper.sleeps_in(kind, after)
    acknowledged = unknown = 0
    try:
        await add_one(sleeper.store)
        acknowledged = 1
    except Unavailable:
        unknown = 1
    assert sleeper.slept
    await add_one(sleeper.store)
    assert 63 + acknowledged <= await sleeper.same_everywhere() <= 63 + acknowledged + unknown


@pytest.mark.parametrize("reads_first", [False, True])
async def test_a_number_that_was_removed_is_not_written_again(reads_first: bool) -> None:
    """It falls asleep with its entry in its hand. The service takes it, where an entry once was: it counts for nobody,
    nobody is told that it does, and it is taken away. That another thread has brought the node up to date meanwhile
    makes the number no newer."""
    sleeper = Sleeper(f"removed number {reads_first}", reads_first=reads_first)
    await sleeper.begin()
    sleeper.sleeps_in("create", after=False)
    with pytest.raises(Unavailable, match=r"log/000000000003.json was answered too late to know"):
        await add_one(sleeper.store)
    assert sleeper.slept
    assert "log/000000000003.json" not in keys(sleeper.bucket, "")
    assert await sleeper.same_everywhere() == 62


@pytest.mark.parametrize("when", ["before the draft", "in it", "behind it", "before the write"])
@pytest.mark.parametrize("reads_first", [False, True])
async def test_a_draft_that_slept_is_made_again_and_not_sent(when: str, reads_first: bool) -> None:
    """Up to the write itself nothing has happened: it is done on the state of the others, and nothing is written
    where the log was removed."""
    sleeper = Sleeper(f"draft {when} {reads_first}", reads_first=reads_first and when != "in it")
    await sleeper.begin()
    assert await get(sleeper.store, Task, "counter") is not None  # fresh: it does not look first
    loop = asyncio.get_running_loop()
    opened = sleeper.store.opened

    def sleep() -> None:
        if not sleeper.slept:
            asyncio.run_coroutine_threadsafe(sleeper.meanwhile(), loop).result(60)

    def around(owner: Any, name: str, *, first: bool) -> None:
        inner = getattr(owner, name)

        def slowly(*given: Any) -> Any:
            if first:
                sleep()
            answer = inner(*given)
            sleep()
            return answer

        setattr(owner, name, slowly)

    committer = opened.committer
    match when:
        case "before the draft":
            around(committer, "draft", first=True)
        case "in it":
            around(committer, "run_job", first=False)
        case "behind it":
            around(committer, "draft", first=False)
        case "before the write":
            around(opened.log.contention, "give_way", first=True)
    sleeper.requests.made.clear()
    await add_one(sleeper.store)
    assert sleeper.slept
    oldest = keys(sleeper.bucket, "log/")[0]
    assert all(key > oldest for kind, key in sleeper.requests.made if kind == "create")
    assert await sleeper.same_everywhere() == 63


async def test_an_answer_that_writes_nothing_is_not_from_a_state_that_slept() -> None:
    """Another thread has brought the node up to date since: that makes the answer no newer."""
    sleeper = Sleeper("old answer", reads_first=True)
    await sleeper.begin()
    loop = asyncio.get_running_loop()
    committer = sleeper.store.opened.committer
    inner = committer.draft

    def slowly(jobs: Any) -> Any:
        drafted = inner(jobs)
        if not sleeper.slept:
            asyncio.run_coroutine_threadsafe(sleeper.meanwhile(), loop).result(60)
        return drafted

    vars(committer)["draft"] = slowly

    async def work(tx: Tx) -> int:
        found = await tx.get(Task, "counter")
        assert found is not None
        return found.priority

    assert await get(sleeper.store, Task, "counter") is not None
    assert await sleeper.store.transact(work) == 62
    assert await sleeper.same_everywhere() == 62


@pytest.mark.parametrize("asleep", [True, False])
async def test_a_node_behind_the_oldest_entry_writes_nothing_there(asleep: bool) -> None:
    """It does not even try, if it can know that it was away."""
    sleeper = Sleeper(f"behind {asleep}")
    await sleeper.begin()
    await sleeper.meanwhile()
    sleeper.requests.made.clear()
    if asleep:
        await add_one(sleeper.store)
    else:
        assert await get(sleeper.store, Task, "counter") is not None
    asked = [request for request in sleeper.requests.made if request[0] != "date"]
    assert asked[0] == ("list", "snapshot/"), "it believed in its place in the log"
    oldest = keys(sleeper.bucket, "log/")[0]
    assert all(key > oldest for kind, key in sleeper.requests.made if kind == "create")
    assert await sleeper.same_everywhere() == 62 + asleep


@pytest.mark.parametrize("after", [False, True])
async def test_a_late_answer_is_settled_where_nothing_was_removed(after: bool) -> None:
    """An hour is too long to believe an answer, and too short for the log to be removed: won is won, lost is lost and
    done again."""
    sleeper = Sleeper(f"late {after}", hours=1)
    await sleeper.begin()
    sleeper.sleeps_in("create", after)
    await add_one(sleeper.store)
    assert sleeper.slept
    assert await sleeper.same_everywhere() == 63


async def test_nothing_is_removed_before_the_log_has_said_so() -> None:
    requests = FaultyRequests(MemoryRequests("announced"))
    clock = ManualClock(START)
    store = BucketStore(requests, clock, SNAPSHOTS)
    await store.open()
    gone: list[str] = []
    removing = requests.delete

    def delete(chosen: list[str]) -> None:
        said = max((floor(requests, key) for key in keys(requests, "log/")), default=0)
        gone.extend(key for key in chosen if key.startswith("log/"))
        assert all(int(key[4:16]) <= said for key in gone), f"{gone} but the floor is {said}"
        removing(chosen)

    vars(requests)["delete"] = delete
    for _ in range(40):
        await add_one(store)
        clock.at += timedelta(minutes=10)
        await asyncio.sleep(0.002)
    await until(lambda: gone)
    await store.close()


def floor(requests: Any, key: str) -> int:
    return int(msgspec.json.decode(requests.get(key).body).get("floor", 0))


async def test_what_a_dead_node_left_over_is_removed_by_the_next() -> None:
    requests = MemoryRequests("left over")
    clock = ManualClock(START)
    for _ in range(2):
        store = BucketStore(requests, clock, SNAPSHOTS)
        await store.open()
        for _ in range(40):
            await add_one(store)
            clock.at += timedelta(minutes=10)
            await asyncio.sleep(0.002)
        requests.put("log/000000000002.json", b"put back by a late request")
        requests.put("snapshot/000000000004.json", b"as late")
        requests.put("archive/1000000000000000-0.json.gz", b"never committed")
        await store.close()
    store = BucketStore(requests, clock, SNAPSHOTS)
    await store.open()
    for _ in range(12):
        await add_one(store)
        await asyncio.sleep(0.002)
    await until(lambda: "log/000000000002.json" not in keys(requests, "log/"))
    await until(lambda: not keys(requests, "archive/"))
    assert "snapshot/000000000004.json" not in keys(requests, "snapshot/")
    counter = await get(store, Task, "counter")
    assert counter is not None
    assert counter.priority == 92
    await store.close()


@pytest.mark.parametrize("retention", [timedelta(0), timedelta(minutes=5), timedelta(minutes=19)])
def test_a_log_that_is_not_kept_long_enough_is_refused(retention: timedelta) -> None:
    with pytest.raises(Invalid, match="less than 4 times the window of 0:05:00, so that a node which slept"):
        Tuning(retention=retention)
    with pytest.raises(Invalid, match="retention"):
        Tuning(window=timedelta(0), retention=retention)


async def test_a_short_pause_does_not_load_everything_again() -> None:
    """The newest snapshot is not ahead: the log goes on where we are."""
    requests = FaultyRequests(MemoryRequests("pause"))
    clock = ManualClock(START)
    store = BucketStore(requests, clock, SNAPSHOTS)
    await store.open()
    for _ in range(6):
        await add_one(store)
    await until(lambda: keys(requests, "snapshot/"))
    clock.at += HOUR
    requests.made.clear()
    await add_one(store)
    await store.close()
    assert not [key for kind, key in requests.made if kind == "get" and key.startswith("snapshot/")]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"number": 2}', b'\xff\xfe{"number"'])
async def test_an_entry_that_cannot_be_parsed_stops_with_its_name(body: bytes) -> None:
    requests = MemoryRequests()
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    await put(store, task("a"))
    requests.put("log/000000000002.json", body)
    with pytest.raises(Corrupt, match=r"memory-bucket:/log/000000000002.json"):
        await get(store, Task, "a")
    with pytest.raises(Corrupt, match="000000000002"):
        await put(store, task("b"))
    await store.close()
    with pytest.raises(Corrupt, match="000000000002"):
        await BucketStore(requests, ManualClock(START), PLAIN).open()


async def test_a_record_in_an_entry_that_cannot_be_read_is_named_too() -> None:
    requests = MemoryRequests()
    body = msgspec.json.encode(
        {
            "number": 1,
            "commit": "c",
            "at": START,
            "node": "n",
            "put": {"task": [{"record": "task.9", "id": "x"}]},
        }
    )
    requests.put("log/000000000001.json", body)
    with pytest.raises(Corrupt, match=r"log/000000000001.json cannot be read: task x"):
        await BucketStore(requests, ManualClock(START), PLAIN).open()


async def test_a_denied_bucket_says_so_at_once_with_its_name() -> None:
    requests = FaultyRequests(MemoryRequests("mine"))
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    requests.made.clear()
    requests.plan = lambda number, kind: Fault.DENIED if kind == "create" else None
    with pytest.raises(
        Unavailable, match=r"cannot write memory-bucket:mine/log/000000000001.json: access denied"
    ):
        await put(store, task("a"))
    await store.close()
    assert len([kind for kind, _ in requests.made if kind == "create"]) == 1


async def test_a_snapshot_that_cannot_be_parsed_is_named_and_the_one_before_it_does() -> None:
    """As `rota doctor --repair` says: without it, nodes start from an older one, and nothing is lost."""
    requests = MemoryRequests("bad snapshot")
    store = BucketStore(requests, ManualClock(START), SNAPSHOTS)
    await store.open()
    for _ in range(12):
        await add_one(store)
        await asyncio.sleep(0.002)
    await until(lambda: len(keys(requests, "snapshot/")) >= 2)
    await store.close()
    newest = keys(requests, "snapshot/")[-1]
    whole = requests.get(newest).body
    for broken in (b"", whole[:-20], whole.replace(b'"number"', b'"numbers"', 1)):
        requests.put(newest, broken)
        with pytest.raises(Corrupt, match=f"memory-bucket:bad snapshot/{newest} cannot be read"):
            await BucketStore(requests, ManualClock(START), SNAPSHOTS).open()
    requests.delete([newest])
    store = BucketStore(requests, ManualClock(START), SNAPSHOTS)
    await store.open()
    counter = await get(store, Task, "counter")
    await store.close()
    assert counter is not None
    assert counter.priority == 12


@pytest.mark.parametrize("missing", [1, 2, 5])
async def test_an_entry_that_is_missing_is_not_taken_for_the_end(missing: int) -> None:
    requests = FaultyRequests(MemoryRequests(f"hole {missing}"))
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    for _ in range(6):
        await add_one(store)
    await store.close()
    key = f"log/{missing:012}.json"
    requests.delete([key])
    with pytest.raises(Corrupt, match=f"{key} is missing, although log/000000000006.json is there"):
        await BucketStore(requests, ManualClock(START), PLAIN).open()
    requests.made.clear()
    found = await examine(BucketStore(requests, ManualClock(START), PLAIN), "default", repair=True)
    assert [(each.check, each.ok) for each in found] == [("store", True), ("records", False)]
    assert f"{key} is missing" in found[1].found
    assert "lifecycle" in found[1].found
    assert not [made for made in requests.made if made[0] in ("create", "put")], "into the hole"


async def test_an_entry_that_is_missing_behind_a_snapshot_is_named_too() -> None:
    requests = MemoryRequests("hole behind a snapshot")
    store = BucketStore(requests, ManualClock(START), SNAPSHOTS)
    await store.open()
    for _ in range(4):
        await add_one(store)
    await until(lambda: keys(requests, "snapshot/"))
    await store.close()
    number = int(keys(requests, "snapshot/")[-1][9:21])
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    for _ in range(3):
        await add_one(store)
    await store.close()
    requests.delete([f"log/{number + 1:012}.json"])
    with pytest.raises(Corrupt, match=f"log/{number + 1:012}.json is missing"):
        await BucketStore(requests, ManualClock(START), PLAIN).open()


async def test_what_somebody_else_put_beside_the_log_is_no_entry() -> None:
    requests = MemoryRequests("beside")
    requests.put("log/notes.txt", b"mine")
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    await add_one(store)
    await store.close()
    store = BucketStore(requests, ManualClock(START), PLAIN)
    await store.open()
    await store.close()


async def two_nodes(name: str, behind: int) -> tuple[BucketStore, FaultyRequests]:
    """One is open at entry 2; another has written so many more."""
    requests = FaultyRequests(MemoryRequests(name))
    one, two = (BucketStore(each, ManualClock(START), PLAIN) for each in (MemoryRequests(name), requests))
    await one.open()
    await add_one(one)
    await two.open()
    await add_one(two)
    for _ in range(behind):
        await add_one(one)
    await one.close()
    requests.made.clear()
    return two, requests


@pytest.mark.parametrize(
    ("behind", "lists"), [(1, 0), (2, 0), (7, 0), (8, 1), (9, 1), (12, 1), (100, 1), (900, 1)]
)
async def test_a_node_reads_the_next_entries_and_lists_only_if_it_is_further_behind(
    behind: int, lists: int
) -> None:
    store, requests = await two_nodes(f"ahead {behind}", behind)
    counter = await get(store, Task, "counter")
    assert counter is not None
    assert counter.priority == 2 + behind
    made = Counter(kind for kind, _ in requests.made if kind != "date")
    assert made["list"] == lists
    assert made["get"] == behind + 1
    assert made.total() == made["list"] + made["get"]
    await store.close()


@pytest.mark.parametrize("missing", [11, 14, 29])
async def test_who_lists_does_not_take_a_hole_for_the_end(missing: int) -> None:
    store, requests = await two_nodes(f"hole ahead {missing}", 30)
    key = f"log/{missing:012}.json"
    requests.delete([key])
    for _ in range(2):
        with pytest.raises(Corrupt, match=f"{key} is missing, although log/0000000000.*.json is there"):
            await get(store, Task, "counter")
    with pytest.raises(Corrupt, match=f"{key} is missing"):
        await add_one(store)
    assert not [made for made in requests.made if made[0] in ("create", "put")], "into the hole"
    await store.close()


async def test_an_entry_that_comes_while_later_ones_are_read_is_no_hole() -> None:
    """It was asked for before it was written, and the next one after that."""
    store, requests = await two_nodes("crossing", 30)
    inner = requests.get
    late = {f"log/{number:012}.json" for number in (11, 18, 19, 27)}

    def crossing(key: str) -> Any:
        if key in late:
            late.remove(key)
            raise FileNotFoundError
        return inner(key)

    vars(requests)["get"] = crossing
    counter = await get(store, Task, "counter")
    assert counter is not None
    assert counter.priority == 32
    assert not late
    await store.close()


async def test_an_entry_ahead_that_cannot_be_read_is_named_and_what_comes_before_it_counts() -> None:
    store, requests = await two_nodes("broken ahead", 30)
    requests.put("log/000000000021.json", b"{")
    with pytest.raises(Corrupt, match=r"log/000000000021.json"):
        await get(store, Task, "counter")
    assert store.opened.replica.number == 20
    await store.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [12, 17, 20])
@pytest.mark.parametrize("hours", [1, 6])
async def test_a_node_that_slept_while_it_read_many_is_fenced(after: bool, number: int, hours: float) -> None:
    """Some of what it asked for was answered before the log was removed, and some after."""
    sleeper = Sleeper(f"ahead {after} {number} {hours}", hours)
    await sleeper.begin()
    for _ in range(20):
        await add_one(sleeper.awake)
    inner = sleeper.requests.do
    loop = asyncio.get_running_loop()

    def do(kind: str, key: str, request: Callable[[], Any]) -> Any:
        if (kind, key) != ("get", f"log/{number:012}.json") or sleeper.slept:
            return inner(kind, key, request)
        answer = inner(kind, key, request) if after else None
        asyncio.run_coroutine_threadsafe(sleeper.meanwhile(), loop).result(60)
        return answer if after else inner(kind, key, request)

    vars(sleeper.requests)["do"] = do
    await add_one(sleeper.store)
    assert sleeper.slept
    assert await sleeper.same_everywhere() == 83


async def test_what_was_only_proposed_is_not_removed() -> None:
    """A node that stops between proposing and its next entry: nobody else has heard of it."""
    requests = MemoryRequests("proposed")
    clock = ManualClock(START)
    store = BucketStore(requests, clock, SNAPSHOTS)
    await store.open()
    log, removal = store.opened.log, store.opened.upkeep.log_removal
    while not log.snapshots:
        await add_one(store)
        await asyncio.sleep(0.002)
    await store.opened.upkeep.close()  # from here on nothing happens but what is asked for
    clock.at += timedelta(days=1)
    before = keys(requests, "log/")
    for _ in range(2):
        removal.remove()
        assert keys(requests, "log/") == before
        assert log.floor == 0 < log.next_floor
    await add_one(store)  # says so
    removal.remove()
    assert log.floor > 0
    assert [key for key in keys(requests, "log/") if int(key[4:16]) <= log.floor] == []
    await store.close()
