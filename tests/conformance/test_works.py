"""Works: run again after a conflict, all or nothing, apart from each other, and only of reads and writes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from records import event, gate, run, schedule, task
from rota.domain.errors import Conflict
from rota.domain.model import Change, ChangeType, Event, Gate, Run, Schedule, Task, TaskStatus
from rota.domain.runtimes import ShellCommand
from rota.domain.task import Submission
from rota.engine.commands import submit_tasks
from rota.stores.base import CommitOptions, Store, Tx, Work
from rota.stores.queries import OpenSchedules, ReadyTasks, ScheduleByKey
from stores import START, TestClock, find, get, put

P = TaskStatus.PENDING


class Broken(Exception):
    pass


async def test_transact_returns_what_the_work_returns(store: Store) -> None:
    async def work(tx: Tx) -> str:
        assert await tx.get(Task, "a") is None
        return "answer"

    assert await store.transact(work) == "answer"
    assert await store.read(work) == "answer"


async def test_a_work_is_run_again_with_fresh_reads_after_a_conflict(store: Store) -> None:
    [stale] = await put(store, task("a"))
    await put(store, replace(stale, kind="second"))
    seen = []

    async def work(tx: Tx) -> None:
        found = await tx.get(Task, "a")
        assert found is not None
        seen.append(found.version)
        tx.put(run("r"))
        tx.put(stale if len(seen) < 3 else replace(found, kind="third"))

    await store.transact(work)
    assert seen == [2, 2, 2]
    assert (await get(store, Task, "a")) == replace(stale, kind="third", version=3)
    assert (await get(store, Run, "r")) is not None


async def test_conflicts_are_tried_a_bounded_number_of_times(store: Store) -> None:
    await put(store, task("a"))
    tries = []

    async def work(tx: Tx) -> None:
        tries.append(tx.now)
        tx.put(task("a"))

    with pytest.raises(Conflict):
        await store.transact(work)
    assert 2 <= len(tries) <= 20


async def test_what_a_work_raises_reaches_the_caller_and_nothing_is_written(store: Store) -> None:
    async def work(tx: Tx) -> None:
        tx.put(task("a"))
        raise Broken("on purpose")

    with pytest.raises(Broken, match="on purpose"):
        await store.transact(work)
    with pytest.raises(Broken):
        await store.read(lambda tx: fail())
    assert await get(store, Task, "a") is None


async def fail() -> None:
    raise Broken


async def test_works_that_fail_leave_the_others_alone(store: Store) -> None:
    await put(store, task("taken"))

    def work_number(n: int) -> Any:
        async def work(tx: Tx) -> int:
            tx.put(task(f"t{n:02}"))
            tx.put(task("taken") if n % 5 == 0 else event(f"e{n:02}"))
            if n % 5 == 1:
                raise Broken
            return n

        return work

    answers = await asyncio.gather(
        *(store.transact(work_number(n)) for n in range(40)), return_exceptions=True
    )
    for n, answer in enumerate(answers):
        expected = {0: Conflict, 1: Broken}.get(n % 5, int)
        assert isinstance(answer, expected), (n, answer)
        assert (await get(store, Task, f"t{n:02}") is not None) == (expected is int)
        assert (await get(store, Event, f"e{n:02}") is not None) == (expected is int)


async def test_concurrent_works_do_not_lose_updates(store: Store) -> None:
    await put(store, task("counter", priority=0))

    async def add_one(tx: Tx) -> None:
        counter = await tx.get(Task, "counter")
        assert counter is not None
        tx.put(replace(counter, priority=counter.priority + 1))

    await asyncio.gather(*(store.transact(add_one) for _ in range(64)))
    counter = await get(store, Task, "counter")
    assert counter is not None
    assert (counter.priority, counter.version) == (64, 65)


async def test_no_task_is_claimed_twice(store: Store) -> None:
    await put(store, *(task() for _ in range(100)))

    async def claim(tx: Tx) -> list[str]:
        found = await tx.find(ReadyTasks(at=tx.now), 7, lock=True)
        return [tx.put(replace(each, status="running")).id for each in found]

    batches = await asyncio.gather(*(store.transact(claim) for _ in range(20)))
    claimed = [each for batch in batches for each in batch]
    assert len(claimed) == len(set(claimed)) == 100


@pytest.mark.parametrize("write", ["put", "delete", "emit"])
async def test_a_work_may_not_read_after_it_wrote(store: Store, write: str) -> None:
    [stored] = await put(store, task("a"))
    written = {"put": stored, "delete": stored, "emit": event("e")}[write]
    for read in (
        lambda tx: tx.get(Task, "a"),
        lambda tx: tx.get_many(Task, ["a"]),
        lambda tx: tx.find(ReadyTasks(at=tx.now), 1),
        lambda tx: tx.count(ReadyTasks(at=tx.now)),
    ):

        async def work(tx: Tx, read: Any = read) -> None:
            getattr(tx, write)(written)
            await read(tx)

        with pytest.raises(AssertionError, match="reads before it writes"):
            await store.transact(work)
    assert await get(store, Task, "a") == stored


async def test_a_record_is_written_once_in_a_work(store: Store) -> None:
    [stored] = await put(store, task("a"))
    for first, second in (("put", "put"), ("put", "delete"), ("delete", "put"), ("delete", "delete")):

        async def work(tx: Tx, first: str = first, second: str = second) -> None:
            getattr(tx, first)(stored)
            getattr(tx, second)(stored)

        with pytest.raises(AssertionError, match="writes a record once"):
            await store.transact(work)
    assert await get(store, Task, "a") == stored


async def test_a_work_given_to_read_does_not_write(store: Store) -> None:
    async def work(tx: Tx) -> None:
        tx.put(task("a"))

    with pytest.raises(AssertionError, match="does not write"):
        await store.read(work)
    assert await get(store, Task, "a") is None


async def test_emit_stores_an_event(store: Store) -> None:
    async def work(tx: Tx) -> None:
        tx.emit(event("e", detail="hello"))

    await store.transact(work)
    stored = await get(store, Event, "e")
    assert stored is not None
    assert (stored.detail, stored.version) == ("hello", 1)


async def test_tx_now_is_the_time_of_the_store(store: Store, clock: TestClock) -> None:
    async def work(tx: Tx) -> Any:
        return tx.now

    before = await store.now()
    during = await store.transact(work)
    reading = await store.read(work)
    assert before <= during <= reading <= await store.now()


async def test_a_later_work_sees_the_writes_of_an_earlier_one(store: Store) -> None:
    seen: list[int] = []

    def work_number(n: int) -> Any:
        async def work(tx: Tx) -> None:
            seen.append(await tx.count(ReadyTasks(at=tx.now)))
            tx.put(task())

        return work

    await asyncio.gather(*(store.transact(work_number(n)) for n in range(10)))
    assert seen == list(range(10))


async def test_a_read_sees_what_the_same_group_has_written_before(store: Store) -> None:
    """Put, replaced, deleted: by every way to read."""
    await put(store, task("a"))
    seen: list[Any] = []

    async def look(tx: Tx) -> None:
        one = await tx.get(Task, "a")
        many = await tx.get_many(Task, ["a"])
        found = await tx.find(ReadyTasks(at=tx.now), 9)
        kinds = [each.kind for each in (one, many.get("a"), *found) if each is not None]
        seen.append((kinds, await tx.count(ReadyTasks(at=tx.now))))

    async def change(tx: Tx) -> None:
        old = await tx.get(Task, "a")
        assert old is not None
        tx.put(replace(old, kind=f"{old.kind}-new"))

    async def remove(tx: Tx) -> None:
        old = await tx.get(Task, "a")
        assert old is not None
        tx.delete(old)

    async def make(tx: Tx) -> None:
        tx.put(task("a", kind="again"))

    works = (look, change, look, change, look, remove, look, make, look)
    await asyncio.gather(*(store.transact(work) for work in works))
    kind = seen[0][0][0]
    kinds = [kind, f"{kind}-new", f"{kind}-new-new", None, "again"]
    assert seen == [([each] * 3, 1) if each else ([], 0) for each in kinds]


async def test_a_cancelled_caller_leaves_a_store_that_works(store: Store) -> None:
    async def work(tx: Tx) -> None:
        tx.put(task())

    waiting = [asyncio.create_task(store.transact(work)) for _ in range(10)]
    await asyncio.sleep(0)
    for each in waiting[::2]:
        each.cancel()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(answer is None for answer in answers) >= 5
    await put(store, task("after"))
    assert await get(store, Task, "after") is not None


OTHERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "kind": {"kind": "mail"},
    "priority": {"priority": 7},
    "time": {"available_at": START + timedelta(hours=1)},
    "expiry": {"expires_at": START + timedelta(hours=1)},
    "output": {"output": [True]},
    "progress": {"progress": 1.0},
    "command": {"command": ShellCommand(run="true")},
    "gates": {"gates": ("g",), "asks_late": True},
    "line": {"line": "g"},
    "tags": {"tags": ("a\\b", '"')},
    "history": {"history": (Change(number=1, at=START, status=P, actor="bob", type=ChangeType.CREATED),)},
}


@pytest.mark.parametrize("other", OTHERS)
async def test_new_tasks_that_are_alike_come_back_as_they_were_put(store: Store, other: str) -> None:
    """Those of one commit differ in their inputs and metadata at least, and equal data may be written differently."""
    data: list[Any] = [1, True, 1.0, None, "1", "\0", [], {}, {"n": 0}, {"n": False}, {"n": [None, -0.0]}]
    metadata: list[Any] = [{}, {"n": 1}, {"n": True}, {"n": 1.0}, {"\0": "\0"}]
    created = Change(number=1, at=START, status=P, actor="ann", type=ChangeType.CREATED)
    like = task("like", input=1, history=(created,), timeout=timedelta(seconds=1.5), tags=("a",))
    alike = [replace(like, id=f"i-{number}", input=each) for number, each in enumerate(data)]
    alike += [replace(like, id=f"m-{number}", metadata=each) for number, each in enumerate(metadata)]
    given = [like, *alike, replace(like, id="other", **OTHERS[other])]
    stored = await put(store, *given)
    for each in stored:
        found = await get(store, Task, each.id)
        assert repr(found) == repr(each)


@pytest.mark.parametrize("ended", [False, True])
async def test_racing_submissions_that_are_the_same_are_one_task(store: Store, ended: bool) -> None:
    """Whether or not a receipt is there from before; in common commits, and in some of their own."""
    asked = Submission(kind="mail", unique_by=("kind",))
    if ended:
        [before] = await store.transact(submit_tasks([("before", asked)], "default", "tester"))
        await put(store, replace(before, status=TaskStatus.CANCELLED))
    racing = [
        store.transact(
            submit_tasks([(f"id-{number}", asked)], "default", "tester"), CommitOptions(lane=f"{number % 4}")
        )
        for number in range(12)
    ]
    found = {task.id for tasks in await asyncio.gather(*racing) for task in tasks}
    assert len(found) == 1
    assert "before" not in found


async def test_new_schedules_of_works_beside_it_are_found_and_counted(store: Store) -> None:
    """Works that share a commit see each other's new schedules by key and in the count, sent or not."""
    seen: list[tuple[bool, bool, int]] = []

    def create(number: int) -> Work[None]:
        async def work(tx: Tx) -> None:
            mine = await tx.find(ScheduleByKey(tenant="default", key=f"k{number}"), 1)
            before = await tx.find(ScheduleByKey(tenant="default", key=f"k{number - 1}"), 1)
            count = await tx.count(OpenSchedules(tenant="default"), lock=True)
            seen.append((bool(mine), bool(before), count))
            tx.put(schedule(f"s{number}", key=f"k{number}"))
            tx.put(schedule(f"o{number}", key=f"k{number}", tenant="other"))

        return work

    for number in range(3):
        await store.transact(create(number))
    seen.clear()
    await asyncio.gather(*(store.transact(create(number)) for number in range(3, 9)))
    assert sorted(count for _, _, count in seen[-6:]) == [3, 4, 5, 6, 7, 8]
    assert not any(mine for mine, _, _ in seen)
    assert await store.read(lambda tx: tx.count(OpenSchedules(tenant="default"))) == 9


async def test_a_schedule_that_frees_its_key_beside_a_look_for_it_is_not_found(store: Store) -> None:
    [old] = await put(store, schedule("s", key="k"))

    async def delete(tx: Tx) -> None:
        tx.put(replace(old, deleted_at=START))

    async def look(tx: Tx) -> tuple[int, int]:
        found = await tx.find(ScheduleByKey(tenant="default", key="k"), 1)
        return len(found), await tx.count(OpenSchedules(tenant="default"))

    _, found = await asyncio.gather(store.transact(delete), store.transact(look))
    assert found in ((0, 0), (1, 1))
    assert await store.read(look) == (0, 0)


async def test_a_schedule_takes_the_key_of_one_that_is_deleted_by_the_same_work(store: Store) -> None:
    await put(store, schedule("z", key="a"), schedule("b", key="b"))

    async def take(tx: Tx) -> None:
        old, new = await tx.get(Schedule, "z"), await tx.get(Schedule, "b")
        assert old is not None
        assert new is not None
        tx.put(replace(new, key="a"))
        tx.put(replace(old, deleted_at=tx.now))

    await store.transact(take)
    [found] = await find(store, ScheduleByKey(tenant="default", key="a"))
    assert found.id == "b"


async def test_many_works_that_lock_the_same_records_all_change_them(store: Store) -> None:
    """Also if works of two groups lock two of them in another order, and if there is none before."""

    async def enter(ids: list[str], tx: Tx) -> None:
        found = await tx.get_many(Gate, ids, lock=True)
        for id in ids:
            known = found.get(id, gate(id))
            tx.put(replace(known, inside=known.inside + 1))

    orders = [["a"], ["b"], ["b", "a"], ["a", "b"]] * 15
    await asyncio.gather(*(store.transact(partial(enter, ids)) for ids in orders))
    for id in ("a", "b"):
        counted = await get(store, Gate, id)
        assert counted is not None
        assert counted.inside == 45
