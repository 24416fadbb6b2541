"""The clock, the polls and the views of a bucket."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import rota
import s3_server
from bucket.faulty import Fault, FaultyRequests, ManualClock, never
from records import run, schedule, task
from rota.domain.errors import Unavailable
from rota.domain.model import RunStatus, TaskStatus
from rota.engine import commands
from rota.engine.clock import SystemClock
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import FolderRequests, MemoryRequests
from rota.stores.bucket.service.clock import ServiceClock
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import LogPoller, Tuning
from rota.stores.bucket.views import views_of
from rota.stores.threads import Threads
from rota.surfaces.cli.commands.store import examine
from stores import START, put

SECOND = timedelta(seconds=1)


class Server:
    """A service's clock that says whole seconds, some time away."""

    def __init__(self, ours: ManualClock, offset: timedelta, delay: timedelta = timedelta(0)) -> None:
        self._ours = ours
        self.offset = offset
        self._delay = delay

    def __call__(self) -> datetime | None:
        self._ours.at += self._delay
        said = (self._ours.at + self.offset).replace(microsecond=0)
        self._ours.at += self._delay
        return said


@pytest.mark.parametrize("skew", [-7200, -3, 3, 86_400 * 400])
def test_a_skewed_node_follows_the_service(skew: float) -> None:
    ours = ManualClock(START + timedelta(microseconds=123_456))
    clock = ServiceClock(ours, Server(ours, timedelta(seconds=skew), timedelta(milliseconds=30)))
    for _ in range(40):
        clock.refresh()
        assert abs(clock.now() - ours.now() - timedelta(seconds=skew)) <= SECOND + timedelta(milliseconds=60)
        ours.at += timedelta(seconds=61.37)
    assert abs(clock.offset - timedelta(seconds=skew)) < timedelta(milliseconds=200), "answers add up"


def test_a_clock_that_is_right_is_not_corrected() -> None:
    ours = ManualClock(START + timedelta(microseconds=999_999))
    clock = ServiceClock(ours, Server(ours, timedelta(milliseconds=20)))
    for _ in range(20):
        clock.refresh()
        ours.at += timedelta(seconds=60.7)
    assert abs(clock.offset) <= timedelta(milliseconds=20)


def test_a_clock_that_is_set_is_noticed() -> None:
    ours = ManualClock(START)
    server = Server(ours, timedelta(0))
    clock = ServiceClock(ours, server)
    clock.refresh()
    ours.at -= timedelta(hours=5)
    server.offset = timedelta(hours=5)
    clock.refresh()
    assert abs(clock.offset - timedelta(hours=5)) <= SECOND


def test_a_service_that_does_not_answer_leaves_the_clock_alone() -> None:
    asked = []

    def away() -> datetime | None:
        asked.append(True)
        raise Unavailable("away")

    clock = ServiceClock(ManualClock(START), away)
    for _ in range(5):
        clock.refresh()
    assert clock.now() == START
    assert len(asked) == 1, "asked again and again"


def test_credentials_that_cannot_sign_have_the_time_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*given: object) -> None:
        raise NotImplementedError

    requests = BucketAddress.parse(s3_server.url()).requests()
    signed = requests.date()
    monkeypatch.setattr("obstore.sign", cannot)
    written = requests.date()
    assert signed is not None
    assert written is not None
    assert abs(written - signed) < timedelta(seconds=5)


def test_a_date_that_is_none_leaves_the_clock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        headers = {"Date": "yesterday, I think"}  # noqa: RUF012  as the real one has it

        def __enter__(self) -> Answer:
            return self

        def __exit__(self, *about: object) -> None: ...

    monkeypatch.setattr("urllib.request.urlopen", lambda *given, **named: Answer())
    assert BucketAddress.parse(s3_server.url()).requests().date() is None


async def test_nodes_whose_clocks_are_wrong_agree_with_the_real_server() -> None:
    address = s3_server.url(views="off")
    times, began = [], datetime.now(UTC)
    for wrong in (timedelta(hours=-7), timedelta(0), timedelta(days=90)):
        store = BucketStore.from_url(address, ManualClock(datetime.now(UTC) + wrong))
        await store.open()
        times.append(await store.now())
        await store.close()
    took = datetime.now(UTC) - began  # their clocks stand still
    assert max(times) - min(times) < timedelta(seconds=3) + took
    assert abs(times[1] - began) < timedelta(seconds=3) + took


async def test_an_idle_node_makes_one_get_for_each_poll_and_nothing_else() -> None:
    requests = FaultyRequests(MemoryRequests("idle"))
    tuning = Tuning(poll_shortest=timedelta(milliseconds=10), poll_longest=timedelta(milliseconds=50))
    store = BucketStore(requests, SystemClock(), tuning)
    await store.open()
    await put(store, *(schedule(f"s{n}", key=f"k{n}") for n in range(50)))
    async with asyncio.timeout(60):
        # Views are written eight at a time; with each eight, what they replace is removed.
        while sum(kind == "delete" for kind, _ in requests.made) < 7:
            await asyncio.sleep(0.005)
    requests.made.clear()
    waiting = [asyncio.create_task(store.wait(None)) for _ in range(3)]
    await asyncio.sleep(1)
    kinds = Counter(kind for kind, _ in requests.made)
    assert set(kinds) == {"get"}
    assert 1 <= kinds["get"] <= 45, "slow when idle: 50 ms, and not once for each who waits"
    await store.close()
    await asyncio.gather(*waiting)


async def test_looks_are_as_frequent_as_what_there_is_to_see() -> None:
    """Every second: two looks for each. After a pause: as fast as at first."""
    poller = LogPoller(Threads(1, "never started"), lambda interval: False, lambda: None, Tuning())
    first = [poller.interval_after_find(1000.0 + second) for second in range(12)]
    assert first[0] == timedelta(milliseconds=100)
    assert first[-1] == timedelta(milliseconds=500)
    assert poller.interval_after_find(1100.0) == timedelta(milliseconds=100)
    burst = [poller.interval_after_find(1100.0 + tenth / 10) for tenth in range(1, 12)]
    assert burst[-1] == timedelta(milliseconds=100)


async def test_nobody_waits_nobody_asks() -> None:
    requests = FaultyRequests(MemoryRequests())
    store = BucketStore(requests, SystemClock(), Tuning(poll_longest=timedelta(milliseconds=20)))
    await store.open()
    requests.made.clear()
    await asyncio.sleep(0.3)
    assert requests.made == []
    await store.close()


def view(requests: Any, key: str) -> Any:
    return msgspec.json.decode(requests.get(key).body)


HISTORY = "schedules/kept/history/2026-03-01T12-00-00Z.json"
VIEWS = ["schedules/kept.json", HISTORY, "schedules/kept/last_run.json"]


def all_views(requests: Any) -> list[str]:
    return sorted(key for home in ("schedules/", "tasks/", "tenants/") for key in requests.list(home, None))


async def with_views(requests: Any, clock: ManualClock, **tuning: Any) -> BucketStore:
    """A schedule that ran once; its views are written."""
    store = BucketStore(requests, clock, Tuning(views_every=timedelta(0), **tuning))
    await store.open()
    ran = {"last_run_at": START, "last_task_id": "t", "updated_at": START}
    await put(store, schedule("s1", key="kept", **ran))
    ended = {"status": RunStatus.COMPLETED, "completed_at": START}
    await put(store, run("r", schedule_id="s1", scheduled_at=START, **ended))
    async with asyncio.timeout(60):
        while all_views(requests) != VIEWS:
            await asyncio.sleep(0.005)
    return store


@pytest.mark.parametrize("lost", [*([key] for key in VIEWS), VIEWS])
async def test_views_that_were_deleted_are_rebuilt_by_the_janitor(lost: list[str]) -> None:
    requests = MemoryRequests()
    await (await with_views(requests, ManualClock(START))).close()
    before = {key: requests.get(key).body for key in VIEWS}
    requests.delete(lost)
    store = BucketStore(requests, ManualClock(START), Tuning())
    await store.open()
    await rota.Node(rota.Queue(store, clock=SystemClock()), scheduler=False).run_once()
    await store.close()
    assert {key: requests.get(key).body for key in all_views(requests)} == before


@pytest.mark.parametrize("key", VIEWS)
async def test_views_that_are_old_are_rebuilt(key: str) -> None:
    """A node died before it wrote them; or a late one wrote what was true before."""
    requests = MemoryRequests()
    await (await with_views(requests, ManualClock(START))).close()
    before = {key: requests.get(key).body for key in VIEWS}
    requests.put(key, before[key].replace(b'"', b"", 1))
    store = BucketStore(requests, ManualClock(START), Tuning())
    await store.open()
    await store.tidy()
    await store.close()
    assert {key: requests.get(key).body for key in all_views(requests)} == before


async def test_views_of_archived_runs_are_rebuilt_too() -> None:
    requests = MemoryRequests()
    store = await with_views(
        requests, ManualClock(START), snapshot_every=1, archive_at_least=1, archive_after=timedelta(days=-1)
    )
    await put(store, task("t"))
    async with asyncio.timeout(60):
        while not list(requests.list("archive/", None)):
            await asyncio.sleep(0.005)
    await store.close()
    requests.delete(VIEWS)
    store = BucketStore(requests, ManualClock(START), Tuning())
    await store.open()
    await store.tidy()
    await store.close()
    assert all_views(requests) == VIEWS


async def test_views_that_belong_to_nothing_are_removed() -> None:
    requests = MemoryRequests()
    clock = ManualClock(datetime.now(UTC))
    store = await with_views(requests, clock)
    [gone] = await put(store, schedule("s2", key="gone"))
    await put(store, replace(gone, deleted_at=START))
    await store.close()
    for key in ("gone", "left-over", "kept/history/1999-01-01T00-00-00Z"):  # by a node that is late
        requests.put(f"schedules/{key}.json", b"{}")
    requests.put("schedules/notes.txt", b"somebody's own")
    store = BucketStore(requests, clock, Tuning())
    await store.open()
    await store.tidy()
    await store.close()
    assert all_views(requests) == sorted([*VIEWS, "schedules/notes.txt"])


async def test_the_janitor_lists_once_and_then_once_a_day() -> None:
    clock = ManualClock(START)
    requests = FaultyRequests(MemoryRequests())
    store = await with_views(requests, clock)
    await store.tidy()
    lists = sum(kind == "list" for kind, _ in requests.made)
    for _ in range(10):
        clock.at += timedelta(hours=2)
        clock.steady += 7200
        requests.made.clear()
        await store.tidy()
        assert requests.made == []
    clock.at += timedelta(hours=5)
    await store.tidy()
    assert sum(kind == "list" for kind, _ in requests.made) <= lists
    await store.close()


async def test_a_view_that_could_not_be_written_is_made_up_for() -> None:
    requests = FaultyRequests(MemoryRequests())
    store = await with_views(requests, ManualClock(START))
    await store.tidy()
    requests.plan = lambda number, kind: Fault.BEFORE if kind == "put" else None
    await put(store, schedule("s2", key="second"))
    async with asyncio.timeout(60):
        while not any(kind == "put" and "second" in key for kind, key in requests.made):
            await asyncio.sleep(0.005)
    requests.plan = never
    await store.tidy()
    assert "schedules/second.json" in all_views(requests)
    await store.close()


async def test_views_follow_commits_and_deletions() -> None:
    requests = MemoryRequests()
    store = BucketStore(requests, ManualClock(START), Tuning(views="tasks", views_every=timedelta(0)))
    await store.open()
    [stored] = await put(store, schedule("s", key="daily report/ä~", last_run_at=START, last_task_id="t"))
    [row] = await put(store, run("r", schedule_id="s", scheduled_at=START, status=RunStatus.COMPLETED))
    await put(store, task("t", status=TaskStatus.COMPLETED), task("pending"))
    await put(store, replace(stored, description="changed"))

    async def forget(tx: Any) -> None:
        tx.delete(row)

    home = "schedules/daily~20report~2F~C3~A4~7E"
    history = f"{home}/history/2026-03-01T12-00-00Z.json"
    async with asyncio.timeout(60):
        while not {history, f"{home}.json", f"{home}/last_run.json", "tasks/t.json"} <= set(
            requests.list("", None)
        ):
            await asyncio.sleep(0.005)
    assert "tasks/pending.json" not in list(requests.list("", None))
    await store.transact(forget)
    await store.close()
    assert history not in list(requests.list("", None))


def test_no_two_keys_share_a_view() -> None:
    names = [
        "a",
        "A",
        "a b",
        "a~20b",
        "a/b",
        "..",
        ".",
        "~",
        "é",
        "x" * 255,
        "x" * 254 + "y",
        "a.json",
        "a.JSON",
        "a~2Ejson",
        "a%20b",
    ]
    keys = [next(iter(views_of(schedule(key=name), None, gone=False, tasks=False)))[0] for name in names]
    assert len(set(keys)) == len(names)
    assert all(len(key.encode()) < 220 and "/../" not in key for key in keys)


async def test_broken_views_hold_up_nothing() -> None:
    requests = FaultyRequests(MemoryRequests(), lambda number, kind: Fault.BEFORE if kind == "put" else None)
    store = BucketStore(requests, ManualClock(START), Tuning(views_every=timedelta(0)))
    await store.open()
    await put(store, schedule("s", key="s"))
    await asyncio.sleep(0.05)
    await put(store, schedule("t", key="t"))
    await store.close()


async def test_a_store_that_is_closed_has_written_the_views_of_all_its_commits() -> None:
    for _ in range(10):
        requests = MemoryRequests()
        store = BucketStore(requests, ManualClock(START), Tuning(views_every=timedelta(0)))
        await store.open()
        for number in range(3):
            await put(store, schedule(f"s{number}", key=f"s{number}"))
        await store.close()
        assert all_views(requests) == [f"schedules/s{number}.json" for number in range(3)]


async def test_a_late_node_does_not_write_an_old_view_over_a_newer_one() -> None:
    """One is slow to write its views; the other has changed the schedule again meanwhile, and written them."""
    slow = BucketStore(MemoryRequests("late view"), SystemClock(), Tuning(views_every=0.3 * SECOND))
    fast = BucketStore(MemoryRequests("late view"), SystemClock(), Tuning(views_every=timedelta(0)))
    await slow.open()
    await fast.open()
    [first] = await put(slow, schedule("s", key="k", description="one"))
    await put(fast, replace(first, run_count=7))
    await fast.close()
    await slow.close()
    assert view(MemoryRequests("late view"), "schedules/k.json")["run_count"] == 7


async def test_a_view_that_came_over_a_newer_one_is_written_again() -> None:
    """The other's came between the look at the log and the write."""
    requests = FaultyRequests(MemoryRequests("crossed"))
    slow = BucketStore(requests, SystemClock(), Tuning(views_every=timedelta(0)))
    fast = BucketStore(MemoryRequests("crossed"), SystemClock(), Tuning(views_every=timedelta(0)))
    await slow.open()
    await fast.open()
    loop = asyncio.get_running_loop()
    inner = requests.put
    stored: list[Any] = []

    async def meanwhile() -> None:
        while not stored:
            await asyncio.sleep(0)
        await put(fast, replace(stored[0], run_count=7))
        await fast.close()

    def crossing(key: str, body: bytes) -> None:
        vars(requests)["put"] = inner
        asyncio.run_coroutine_threadsafe(meanwhile(), loop).result(60)
        inner(key, body)

    vars(requests)["put"] = crossing
    stored += await put(slow, schedule("s", key="k"))
    await slow.close()
    assert view(requests, "schedules/k.json")["run_count"] == 7


async def test_an_old_view_of_the_same_size_is_found_by_the_comparison() -> None:
    requests = MemoryRequests()
    await (await with_views(requests, ManualClock(START))).close()
    before = {key: requests.get(key).body for key in VIEWS}
    for key in VIEWS:
        requests.put(key, before[key].replace(b"2026", b"2025", 1))
    store = BucketStore(requests, ManualClock(START), Tuning())
    await store.open()
    await store.tidy()
    await store.close()
    assert {key: requests.get(key).body for key in all_views(requests)} == before


async def test_a_view_belongs_to_who_has_the_key_now() -> None:
    """A schedule was deleted, another has its key: what happens to the old one later leaves the view alone."""
    requests = MemoryRequests()
    store = BucketStore(requests, ManualClock(START), Tuning(views_every=timedelta(0)))
    await store.open()
    [old] = await put(store, schedule("old", key="k"))
    [old] = await put(store, replace(old, deleted_at=START))
    await put(store, schedule("new", key="k"))

    async def forget(tx: Any) -> None:
        tx.delete(old)

    await store.close()
    store = BucketStore(requests, ManualClock(START), Tuning(views_every=timedelta(0)))
    await store.open()
    await store.transact(forget)
    await store.close()
    assert all_views(requests) == ["schedules/k.json"]


async def purge(store: BucketStore, id: str, limit: int) -> None:
    while await store.transact(commands.purge_schedule(id, "me", limit)) == limit:
        pass


def ended_run(id: str, minute: int, **values: Any) -> Any:
    at = START + timedelta(minutes=minute)
    return run(id, scheduled_at=at, status=RunStatus.COMPLETED, completed_at=at, **values)


@pytest.mark.parametrize("archiving", [False, True])
async def test_views_of_a_schedule_that_was_purged_go_with_it(archiving: bool) -> None:
    """Soon, by whoever purged it, in few requests; nobody waits for the comparison."""
    inner = MemoryRequests()
    requests = FaultyRequests(inner)
    often: dict[str, Any] = {"snapshot_every": 1, "archive_at_least": 1, "archive_after": timedelta(days=-1)}
    store = BucketStore(
        requests, ManualClock(START), Tuning(views_every=timedelta(0), **(often if archiving else {}))
    )
    await store.open()
    [gone] = await put(store, schedule("gone", key="gone", last_run_at=START, last_task_id="t"))
    await put(store, schedule("kept", key="kept"))
    await put(store, *(ended_run(f"r{n:03}", n, schedule_id="gone") for n in range(120)))
    await put(store, ended_run("other", 0, schedule_id="kept"))
    await store.close()
    assert len(all_views(inner)) == 124
    store = BucketStore(requests, ManualClock(START), Tuning(views_every=timedelta(0)))
    await store.open()
    await put(store, replace(gone, deleted_at=START))
    requests.made.clear()
    await purge(store, "gone", limit=50)
    await store.close()
    assert all_views(inner) == ["schedules/kept.json", "schedules/kept/history/2026-03-01T12-00-00Z.json"]
    kinds = Counter(kind for kind, key in requests.made if key.startswith("schedules/"))
    assert kinds["delete"] <= 12
    assert kinds["list"] == 0


async def test_what_another_schedule_of_the_same_key_has_in_the_history_stays() -> None:
    requests = MemoryRequests()
    store = BucketStore(requests, ManualClock(START), Tuning(views_every=timedelta(0)))
    await store.open()
    [old] = await put(store, schedule("old", key="k"))
    await put(store, replace(old, deleted_at=START), schedule("new", key="k"))
    await put(store, ended_run("a", 0, schedule_id="old"), ended_run("b", 1, schedule_id="old"))
    await put(store, ended_run("c", 1, schedule_id="new"), ended_run("d", 2, schedule_id="new"))
    await purge(store, "old", limit=50)
    await store.close()
    home = "schedules/k/history/2026-03-01T12-0"
    assert all_views(requests) == ["schedules/k.json", f"{home}1-00Z.json", f"{home}2-00Z.json"]
    fresh = BucketStore(requests, ManualClock(START), Tuning())
    await fresh.open()
    await fresh.tidy()
    await fresh.close()
    assert all_views(requests) == ["schedules/k.json", f"{home}1-00Z.json", f"{home}2-00Z.json"]


async def test_views_that_could_not_be_removed_are_left_to_the_comparison() -> None:
    requests = FaultyRequests(MemoryRequests())
    store = await with_views(requests, ManualClock(START))
    await store.tidy()
    failed = threading.Event()

    def failing(number: int, kind: str) -> Fault | None:
        if kind != "delete":
            return None
        failed.set()
        return Fault.BEFORE

    requests.plan = failing
    await purge(store, "s1", limit=50)
    assert await asyncio.to_thread(failed.wait, 60)
    requests.plan = never
    await store.tidy()
    await store.close()
    assert all_views(requests) == []


def test_no_folder_of_views_has_the_name_of_a_view() -> None:
    """Or a file system could not have both."""
    names = ["a", "a.json", "a.json.json", "A.JSON", "last_run", "x" * 145 + ".json", "x" * 250 + ".json"]
    keys = {
        key
        for name in names
        for key, _ in views_of(schedule(key=name, last_run_at=START), None, gone=False, tasks=False)
    }
    folders = {key.rpartition("/")[0].lower() for key in keys}
    assert len(keys) == 2 * len(names)
    assert not folders & {key.lower() for key in keys}
    assert {"schedules/a.json", "schedules/a~2Ejson.json", "schedules/a~2Ejson/last_run.json"} <= keys


async def test_in_a_folder_schedules_a_and_a_json_both_have_their_views(tmp_path: Path) -> None:
    requests = FolderRequests(tmp_path)
    store = BucketStore(requests, ManualClock(START), Tuning(views_every=timedelta(0)))
    await store.open()
    ran = {"last_run_at": START, "last_task_id": "t"}
    await put(store, schedule("s1", key="a", **ran), schedule("s2", key="a.json", **ran))
    await store.close()
    homes = ("schedules/a", "schedules/a~2Ejson")
    assert all_views(requests) == sorted(
        f"{home}{end}" for home in homes for end in (".json", "/last_run.json")
    )


def refusing(requests: FaultyRequests, kind: str, part: str) -> Any:
    """A plan: requests of this kind fail if they are about this."""
    return lambda number, made: (
        Fault.DENIED if made == kind and part in requests.made[number - 1][1] else None
    )


async def test_a_view_that_cannot_be_written_keeps_no_other_from_being_written_or_removed() -> None:
    inner = MemoryRequests()
    requests = FaultyRequests(inner)
    requests.plan = refusing(requests, "put", "bad")
    clock = ManualClock(START)
    store = BucketStore(requests, clock, Tuning(views_every=timedelta(0)))
    await store.open()
    [gone] = await put(store, schedule("gone", key="gone"))
    await put(
        store,
        replace(gone, deleted_at=START),
        *(schedule(f"s{n}", key=f"bad{n}" if n < 9 else f"s{n}") for n in range(30)),
    )
    await store.close()
    good = sorted(f"schedules/s{n}.json" for n in range(9, 30))
    assert all_views(inner) == good
    inner.delete(good[5:])
    inner.put("schedules/left-over.json", b"{}")
    store = BucketStore(requests, clock, Tuning(views_every=timedelta(0)))
    await store.open()
    await store.tidy()
    assert all_views(inner) == good
    await store.close()


async def test_views_that_can_never_be_written_are_compared_ever_more_rarely() -> None:
    requests = FaultyRequests(MemoryRequests())
    clock = ManualClock(START)
    store = await with_views(requests, clock)
    requests.plan = refusing(requests, "put", "bad")
    [bad] = await put(store, schedule("bad", key="bad"))
    requests.made.clear()
    for _ in range(24 * 60):
        await store.tidy()
        clock.at += timedelta(minutes=1)
        clock.steady += 60
    comparisons = requests.made.count(("list", "schedules/"))
    assert 8 <= comparisons <= 15
    requests.plan = never
    clock.at += timedelta(days=1)
    await store.tidy()
    assert "schedules/bad.json" in all_views(requests)
    requests.plan = refusing(requests, "put", "bad")
    requests.made.clear()
    await put(store, replace(bad, run_count=1))
    async with asyncio.timeout(60):
        while ("put", "schedules/bad.json") not in requests.made:
            await asyncio.sleep(0.005)
    requests.plan = never
    await store.tidy()
    await store.close()
    assert view(requests, "schedules/bad.json")["run_count"] == 1, "not at once, once it had worked again"


async def test_an_outage_is_no_reason_to_try_every_view() -> None:
    """Nothing can be written for a while: then it is not this view or that one."""
    requests = FaultyRequests(MemoryRequests())
    clock = ManualClock(START)
    store = BucketStore(requests, clock, Tuning(views_every=timedelta(0)))
    await store.open()

    def failing(number: int, kind: str) -> Fault | None:
        clock.steady += 1
        clock.at += SECOND
        return Fault.BEFORE if kind in ("put", "delete") else None

    requests.plan = failing
    await put(store, *(schedule(f"s{n}", key=f"s{n}") for n in range(500)))
    await store.close()
    assert sum(kind == "put" for kind, _ in requests.made) < 50


async def test_a_node_leaves_alone_the_views_that_it_was_not_asked_to_keep() -> None:
    requests = MemoryRequests()
    store = BucketStore(requests, ManualClock(START), Tuning(views="tasks", views_every=timedelta(0)))
    await store.open()
    ended = {"status": TaskStatus.COMPLETED, "completed_at": START}
    await put(store, task("t", **ended), task("u", tenant="x", **ended), schedule("s", key="s", tenant="x"))
    await store.close()
    kept = ["tasks/t.json", "tenants/x/schedules/s.json", "tenants/x/tasks/u.json"]
    assert all_views(requests) == kept
    requests.put("tenants/x/schedules/left-over.json", b"{}")
    requests.put("tasks/left-over.json", b"{}")
    for views, more in (("on", ["tasks/left-over.json"]), ("tasks", [])):
        store = BucketStore(requests, ManualClock(START), Tuning(views=views))
        await store.open()
        await store.tidy()
        await store.close()
        assert all_views(requests) == [*more, *kept]


async def test_a_view_that_comes_late_for_a_schedule_that_was_purged_goes_with_the_comparison() -> None:
    requests = MemoryRequests()
    store = await with_views(requests, ManualClock(START))
    await purge(store, "s1", limit=50)
    await store.close()
    requests.put(HISTORY, b"{}")  # another node was about to write it when the schedule went
    store = BucketStore(requests, ManualClock(START), Tuning())
    await store.open()
    await store.tidy()
    await store.close()
    assert all_views(requests) == []


async def test_in_a_folder_nothing_is_left_of_a_schedule_that_was_purged(tmp_path: Path) -> None:
    requests = FolderRequests(tmp_path)
    store = await with_views(requests, ManualClock(START))
    await purge(store, "s1", limit=50)
    await store.close()
    assert [each.name for each in (tmp_path / "schedules").iterdir()] == []
    assert (tmp_path / "log").is_dir()


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """What was said of upkeep; servers of other tests may run in this process."""
    mine = [each for each in caplog.records if each.name == "rota" and each.levelno == level]
    return [each.getMessage() for each in mine if each.getMessage().startswith("upkeep ")]


@pytest.mark.parametrize(
    ("kind", "prefix", "act", "consequence"),
    [
        ("put", "snapshot/", "put", "the log grows"),
        ("put", "archive/", "put", "records that have ended stay in memory"),
        ("put", "schedules/", "put", "views are missing or old"),
        ("delete", "log/", "delete", "objects that nobody needs any more stay"),
    ],
)
@pytest.mark.parametrize("is_expected", [True, False])
async def test_upkeep_that_fails_is_said_once_and_again_when_it_works(
    kind: str, prefix: str, act: str, consequence: str, is_expected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rota")
    requests = FaultyRequests(MemoryRequests())
    refused = refusing(requests, kind, prefix)

    def broken(number: int, kind: str) -> Fault | None:
        if refused(number, kind) is not None:
            raise RuntimeError("can't start new thread")
        return None

    requests.plan = refused if is_expected else broken
    clock = ManualClock(START)
    often: dict[str, Any] = {"snapshot_every": 4, "archive_at_least": 1, "archive_after": timedelta(days=-1)}
    store = BucketStore(requests, clock, Tuning(views_every=timedelta(0), **often))
    await store.open()

    numbers = itertools.count()

    async def busy(least: int, met: Callable[[], bool]) -> None:
        """So many commits, and as many more as upkeep needs: it follows them, and may be far behind."""
        for made in itertools.count():
            if made >= least and met():
                return
            number = next(numbers)
            ended: dict[str, Any] = {"status": TaskStatus.COMPLETED, "completed_at": clock.at}
            await put(store, schedule(key=f"s{number}"), task(**ended))
            clock.at += timedelta(minutes=10)
            clock.steady += 600
            await asyncio.sleep(0.01)
            await store.tidy()

    def refused_again() -> bool:
        return sum(made[0] == kind and made[1].startswith(prefix) for made in requests.made) > 1

    async with asyncio.timeout(60):
        await busy(60, refused_again)
    [warning] = said(caplog, logging.WARNING)
    if is_expected:
        assert warning.startswith(f"upkeep of memory-bucket:: cannot {act} memory-bucket:/{prefix}")
        assert "access denied (injected: 403)" in warning
    else:
        assert warning.startswith("upkeep of memory-bucket:: can't start new thread")
    assert f"Until it works, {consequence}" in warning
    assert said(caplog, logging.INFO) == []
    requests.plan = never
    clock.at += timedelta(days=1)
    async with asyncio.timeout(60):
        await busy(30, lambda: said(caplog, logging.INFO) != [])
    await store.close()
    assert len(said(caplog, logging.WARNING)) == 1
    [info] = said(caplog, logging.INFO)
    assert info.endswith("works again")


async def test_the_doctor_notices_that_no_snapshots_are_written() -> None:
    inner = MemoryRequests()
    requests = FaultyRequests(inner)
    requests.plan = refusing(requests, "put", "snapshot/")
    tuning = Tuning(views_every=timedelta(0), snapshot_every=8)
    store = BucketStore(requests, SystemClock(), tuning)
    await store.open()
    for number in range(30):
        await put(store, task(f"t{number}"))
        if number == 7:
            assert (await store.prove_upkeep())[1] == ("log length", True, "8 entries and no snapshot")
    await store.close()
    found = {
        each.check: each for each in await examine(BucketStore(requests, SystemClock(), tuning), "default")
    }
    assert not found["log length"].ok
    assert found["log length"].found.startswith(
        "30 entries and no snapshot, where there should be one after about 8"
    )
    assert "under snapshot/, archive/ and schedules/" in found["log length"].advice
    assert not found["upkeep"].ok
    assert "access denied" in found["upkeep"].found
    requests.plan = never
    store = BucketStore(requests, SystemClock(), tuning)
    await store.open()
    for number in range(30, 50):
        await put(store, task(f"t{number}"))
    await store.close()
    before = sorted(inner.list("", None))
    store = BucketStore(requests, SystemClock(), tuning)
    await store.open()
    assert [proof.holds for proof in await store.prove_upkeep()] == [True, True]
    assert sorted(inner.list("", None)) == before, "the doctor leaves nothing behind"
    await store.close()


@pytest.mark.parametrize("kind", ["put", "delete"])
@pytest.mark.parametrize("prefix", ["snapshot/", "archive/", "schedules/", "tasks/", "log/"])
async def test_the_doctor_proves_the_rights_that_upkeep_needs(kind: str, prefix: str) -> None:
    requests = FaultyRequests(MemoryRequests())
    store = BucketStore(requests, ManualClock(START), Tuning(views="tasks"))
    await store.open()
    requests.plan = refusing(requests, kind, prefix)
    rights, _ = await store.prove_upkeep()
    await store.close()
    if (kind, prefix) == ("put", "log/"):  # that is for everybody's work
        assert rights.holds
    else:
        assert not rights.holds
        assert f"cannot {kind} memory-bucket:/{prefix}" in rights.found
