"""Updates: what the domain says once for a batch, every store does to each task that a query finds or a work names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from records import run, task
from rota.domain import task as life
from rota.domain.errors import Conflict
from rota.domain.gate import without_places
from rota.domain.model import Change, ChangeType, Failure, LogLine, RetryPolicy, Task, TaskStatus
from rota.domain.task import Completed, Defaults, Update
from rota.stores.base import PendingTask, Store, Tx, Work
from rota.stores.queries import (
    EndedTasks,
    LostLeases,
    PastExpiry,
    ReadyTasks,
    ReturnedTasks,
    TasksInLine,
    UpcomingTasks,
)
from stores import START, find, get, put

LATER = START + timedelta(seconds=5)
DEFAULTS = {
    "report": Defaults(),
    "send": Defaults(
        max_retries=7, retry_policy=RetryPolicy(multiplier=1.5), timeout=timedelta(seconds=1.25)
    ),
}


def claiming(defaults: Mapping[str, Defaults] = DEFAULTS) -> Update:
    return life.claiming(
        worker_id="host:1", lease_id="lease-1", lease=timedelta(seconds=30), defaults=defaults, now=LATER
    )


def claim(limit: int, update: Update | None = None, **query: Any) -> Work[list[Task]]:
    async def work(tx: Tx) -> list[Task]:
        changed = await tx.update(ReadyTasks(at=LATER, **query), update or claiming(), limit)
        assert changed is not None
        return changed

    return work


def created(**values: Any) -> Change:
    line: dict[str, Any] = {
        "number": 1,
        "at": START,
        "status": TaskStatus.PENDING,
        "actor": "me",
        "type": ChangeType.CREATED,
    }
    return Change(**(line | values))


def population() -> list[Task]:
    """The first four are ready, best first."""
    return [
        task("a", priority=200, history=(created(),), input={"n": 1}),
        task("b", kind="send", tags=("nightly", 'a"b'), metadata={"x": [1]}, history=(created(),)),
        task(
            "c",
            kind="send",
            max_retries=0,
            timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(jitter=0.0),
            attempt=3,
            progress={"done": 2},
            error=Failure(type="OSError", message="\0 is in it"),
            logs=(LogLine(at=START, attempt=1, message="one"),),
            history=tuple(created(number=number) for number in range(3, 53)),
        ),
        task("d", output=[None], expires_at=LATER + timedelta(seconds=1), history=(created(actor="\0"),)),
        task("expired", expires_at=LATER, priority=255),
        task("delayed", available_at=LATER + timedelta(seconds=1), priority=255),
        task("other", kind="unknown", priority=1),
        task("running", status=TaskStatus.RUNNING, priority=255),
    ]


async def test_an_update_is_applied_to_what_the_query_finds(store: Store) -> None:
    before = {each.id: each for each in await put(store, *population())}
    claimed = await store.transact(claim(3))
    expected = claiming().applied_to([before[id] for id in "abc"])
    assert claimed == [replace(each, version=2) for each in expected]
    for id, old in before.items():
        now = {each.id: each for each in claimed}.get(id, old)
        assert await get(store, Task, id) == now


async def test_an_update_leaves_out_what_is_to_be_left_out(store: Store) -> None:
    await put(store, *population())
    kinds = ("report", "send")
    assert [each.id for each in await store.transact(claim(9, kinds=kinds, without=("a", "c")))] == ["b", "d"]
    assert await store.transact(claim(9, kinds=("nothing",))) == []
    assert [each.id for each in await store.transact(claim(9, kinds=kinds))] == ["a", "c"]


async def test_an_update_is_seen_by_every_query(store: Store) -> None:
    """Also by those of columns that are made of what the update changes."""
    await put(store, task("a", updated_at=START + timedelta(seconds=1), expires_at=LATER + timedelta(days=1)))
    [claimed] = await store.transact(claim(1))
    ahead = LATER + timedelta(days=9)
    again, next_to_expire = ReturnedTasks(tenant=claimed.tenant, since=START), PastExpiry(at=ahead)
    assert await find(store, again) == await find(store, next_to_expire) == []
    assert await find(store, LostLeases(at=ahead)) == [claimed]
    [done] = await store.transact(complete(claimed))
    assert await find(store, LostLeases(at=ahead)) == []
    assert await find(store, EndedTasks(tenant=claimed.tenant, since=START)) == [done]


@pytest.mark.parametrize(
    "places",
    [{"gates": ("g",)}, {"gates": ("g",), "passed": 1, "slot_until": LATER - timedelta(microseconds=1)}],
)
async def test_an_update_changes_nothing_if_one_has_to_ask_first(
    store: Store, places: dict[str, Any]
) -> None:
    inside = {"gates": ("g",), "passed": 1, "slot_until": LATER}
    before = await put(store, task("a", **inside), task("b", **places), task("c", line="g", gates=("g",)))

    async def ask(tx: Tx) -> list[Task] | None:
        return await tx.update(ReadyTasks(at=LATER), claiming(), 2)

    assert await store.transact(ask) is None
    assert [await get(store, Task, each.id) for each in before] == before
    assert [each.id for each in await store.transact(claim(1))] == ["a"]


async def test_an_update_changes_nothing_if_one_of_a_limited_kind_has_no_gates(store: Store) -> None:
    """It was submitted before the limit of its kind was known."""
    before = await put(store, task("a", gates=("g",), passed=1), task("b"), task("c", kind="other"))

    async def ids(limit: int, *limited: str) -> list[str] | None:
        async def ask(tx: Tx) -> list[Task] | None:
            return await tx.update(ReadyTasks(at=LATER), claiming(), limit, limited=limited)

        claimed = await store.transact(ask)
        return None if claimed is None else [each.id for each in claimed]

    assert await ids(2, before[1].kind) is None
    assert [await get(store, Task, each.id) for each in before] == before
    assert await ids(1, before[1].kind) == ["a"]
    assert await ids(2, "other", "unknown") is None
    assert await ids(1, "other", "unknown") == ["b"]
    assert await ids(2) == ["c"]


async def test_what_the_fields_imply_of_a_history_is_there_when_it_is_read(store: Store) -> None:
    until = LATER + timedelta(seconds=9)
    histories = {
        "a": (created(),),
        "b": (),
        "c": (created(expires_at=until),),
        "d": tuple(created(number=number) for number in range(1, 51)),
    }
    tasks = [
        task(id, history=lines, expires_at=until if id == "c" else None) for id, lines in histories.items()
    ]
    before = await put(store, *tasks)
    assert [await get(store, Task, each.id) for each in before] == before
    claimed = await store.transact(claim(4))
    assert [[line.number for line in each.history] for each in claimed[:3]] == [[1, 2], [1], [1, 2]]
    assert [line.number for line in claimed[3].history] == [1, *range(3, 52)]
    settled = [
        life.settle(each, Completed({"answer": 42}), lease_id="lease-1", now=LATER + timedelta(seconds=1))
        for each in claimed
    ]

    async def work(tx: Tx) -> list[Task]:
        return [tx.put(new, was=old) for new, old in zip(settled, claimed, strict=True)]

    stored = await store.transact(work)
    assert [await get(store, Task, id) for id in histories] == stored
    assert [line.type for line in stored[0].history] == ["created", "claimed", "completed"]
    assert stored[0].output == {"answer": 42}


@pytest.mark.parametrize(
    "fields",
    [
        {"logs": (LogLine(at=START, attempt=1, message="hello"),)},
        {"status": TaskStatus.COMPLETED, "completed_at": LATER, "output": "ü\0"},
        {"status": TaskStatus.FAILED, "error": Failure(type="E", message="m"), "completed_at": LATER},
        {"metadata": {"k": None}, "progress": 0.5},
        {"history": (created(), created(number=2), created(number=9))},
        {"lease_expires_at": LATER, "updated_at": LATER, "history": (created(number=8),)},
        {"lease_expires_at": LATER, "expires_at": LATER},
        {"status": TaskStatus.COMPLETED, "history": (created(status=TaskStatus.COMPLETED),)},
        {},
    ],
)
async def test_a_put_with_what_was_before_stores_the_whole_record(
    store: Store, fields: dict[str, Any]
) -> None:
    await put(store, task("a", history=(created(),)))
    [was] = await store.transact(claim(1))

    async def work(tx: Tx) -> Task:
        return tx.put(replace(was, **fields), was=was)

    assert await store.transact(work) == await get(store, Task, "a")
    assert await get(store, Task, "a") == replace(was, **fields, version=3)


async def test_an_update_gives_each_task_as_it_is_stored_whatever_it_sets(store: Store) -> None:
    await put(
        store,
        *(
            task(id, history=(created(),), output=output, progress=progress)
            for id, output, progress in [("a", None, None), ("b", 1, "p"), ("c", {"x": 1}, None)]
        ),
    )
    values = {"progress": {"done": 1}, "available_at": LATER, "priority": 9, "cancel_requested": True}
    update = Update(set={**claiming().set, **values}, add={"attempt": 2}, fill={})
    claimed = await store.transact(claim(3, update))
    assert sorted(each.id for each in claimed) == ["a", "b", "c"]
    assert [await get(store, Task, each.id) for each in claimed] == claimed
    assert {each.id: each.output for each in claimed} == {"a": None, "b": 1, "c": {"x": 1}}
    assert [each.progress for each in claimed] == [{"done": 1}] * 3


async def test_updates_at_the_same_time_share_nothing(store: Store) -> None:
    await put(store, *(task(f"t{number:02}", priority=number % 3) for number in range(40)))
    answers = await asyncio.gather(*(store.transact(claim(8)) for _ in range(4)))
    claimed = [each.id for answer in answers for each in answer]
    assert len(set(claimed)) == len(claimed)
    rest = await store.transact(claim(99))
    assert sorted([*claimed, *(each.id for each in rest)]) == [f"t{number:02}" for number in range(40)]


async def test_an_update_sees_the_writes_of_works_beside_it(store: Store) -> None:
    async def submit(tx: Tx) -> None:
        tx.put(task("a"))
        tx.put(run("r"))

    _, claimed = await asyncio.gather(store.transact(submit), store.transact(claim(5)))
    later = await store.transact(claim(5))
    assert [each.id for each in [*claimed, *later]] == ["a"]


async def test_tasks_that_differ_in_their_schedules_keep_them(store: Store) -> None:
    """As those of a tick do: what they share is written and read once."""
    of_schedules = [
        task(id, schedule_id=schedule_id, run_id=run_id, scheduled_at=START, history=(created(),))
        for id, schedule_id, run_id in [
            ("a", "s1", "r1"),
            ("b", "s2", "r2"),
            ("c", "s2", None),
            ("d", None, None),
        ]
    ]
    before = await put(store, *of_schedules)
    assert [await get(store, Task, each.id) for each in before] == before
    claimed = await store.transact(claim(9))
    assert claimed == [replace(each, version=2) for each in claiming().applied_to(before)]
    done = await store.transact(complete(*claimed))
    assert [(each.schedule_id, each.run_id) for each in done] == [
        (each.schedule_id, each.run_id) for each in of_schedules
    ]
    assert [await get(store, Task, each.id) for each in before] == done


OUTPUTS: dict[str, Any] = {"a": 7, "c": {"text": "ü\0", "none": [None]}}
END = LATER + timedelta(seconds=1)


def complete(*tasks: Task) -> Work[list[Task]]:
    async def work(tx: Tx) -> list[Task]:
        return tx.put_updated(tasks, life.completing(OUTPUTS, worker_id="host:1", now=END))

    return work


def settled(task: Task) -> Task:
    done = life.settle(task, Completed(OUTPUTS.get(task.id)), lease_id="lease-1", now=END)
    return replace(done, version=task.version + 1)


async def test_tasks_are_stored_as_the_update_makes_them(store: Store) -> None:
    await put(store, *(replace(each, error=None) for each in population()))
    claimed = await store.transact(claim(4))
    stored = await store.transact(complete(*reversed(claimed)))
    assert list(reversed(stored)) == [settled(each) for each in claimed]
    assert [await get(store, Task, each.id) for each in stored] == stored


async def test_limited_tasks_leave_their_gates_by_the_update(store: Store) -> None:
    places = {"gates": ("g", "h"), "passed": 2}
    await put(store, task("a", **places), task("b", **places, slot_until=END), task("c"))
    claimed = await store.transact(claim(3))

    async def work(tx: Tx) -> list[Task]:
        update = life.completing(OUTPUTS, worker_id="host:1", now=END, are_limited=True)
        plain = life.completing(OUTPUTS, worker_id="host:1", now=END)
        return [*tx.put_updated(claimed[:2], update), *tx.put_updated(claimed[2:], plain)]

    stored = await store.transact(work)
    assert stored == [without_places(settled(each)) for each in claimed]
    assert [await get(store, Task, each.id) for each in stored] == stored


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (created(),),
        (created(), created(number=2, type=ChangeType.CLOCK_SET_BACK)),
        tuple(created(number=number) for number in range(1, 51)),
    ],
)
async def test_the_history_of_an_updated_task_is_whole_whatever_was_stored_of_it(
    store: Store, lines: tuple[Change, ...]
) -> None:
    held = {"worker_id": "host:1", "lease_id": "lease-1", "started_at": LATER, "attempt": 1}
    [before] = await put(store, task("a", status=TaskStatus.RUNNING, history=lines, **held))
    await store.transact(complete(before))
    assert await get(store, Task, "a") == settled(before)


async def test_a_renewed_task_is_updated_as_it_is_stored(store: Store) -> None:
    await put(store, task("a", history=(created(),)))
    [claimed] = await store.transact(claim(1))
    lease = timedelta(minutes=1)
    logs = (LogLine(at=LATER, attempt=1, message="half"),)
    renewed = life.renew(claimed, lease_id="lease-1", lease=lease, now=END, progress=0.5, logs=logs)
    [before] = await put(store, renewed)
    [stored] = await store.transact(complete(before))
    assert stored == settled(before)
    assert await get(store, Task, "a") == stored
    assert (stored.progress, stored.logs) == (0.5, logs)


async def test_an_update_of_a_stale_task_changes_nothing(store: Store) -> None:
    await put(store, task("a"), task("b"))
    first, second = await store.transact(claim(2))
    [renewed] = await put(store, life.renew(second, lease_id="lease-1", lease=timedelta(1), now=LATER))
    with pytest.raises(Conflict):
        await store.transact(complete(first, second))
    with pytest.raises(Conflict):
        await store.transact(complete(first, replace(second, id="missing")))
    assert [await get(store, Task, each) for each in "ab"] == [first, renewed]


async def test_a_work_updates_a_record_once(store: Store) -> None:
    await put(store, task("a"))
    [claimed] = await store.transact(claim(1))

    async def twice(tx: Tx) -> None:
        tx.put(claimed)
        tx.put_updated([claimed], life.completing({}, worker_id="host:1", now=END))

    with pytest.raises(AssertionError, match="once"):
        await store.transact(twice)
    assert await get(store, Task, "a") == claimed


async def test_updated_tasks_are_seen_and_changed_by_works_beside_it(store: Store) -> None:
    await put(store, task("a"), task("b"))
    first, second = await store.transact(claim(2))

    async def archive(tx: Tx) -> Task | None:
        found = await tx.get(Task, "a")
        assert found is not None
        return tx.put(life.archive(found, END, "me")) if not found.is_live else None

    _, archived, _ = await asyncio.gather(
        store.transact(complete(first)), store.transact(archive), store.transact(complete(second))
    )
    archived = archived or await store.transact(archive)
    assert archived is not None
    assert await get(store, Task, "a") == archived
    assert [line.type for line in archived.history] == ["claimed", "completed", "archived"]
    assert await get(store, Task, "b") == settled(second)


def in_line(id: str, line: str = "g", **values: Any) -> Task:
    return task(id, line=line, gates=(line,), history=(created(),), **values)


def let_in(lines: Mapping[str, int]) -> Work[list[Task] | None]:
    async def work(tx: Tx) -> list[Task] | None:
        return await tx.update_lines(lines, life.letting_in())

    return work


def puts(record: Task) -> Work[Task]:
    async def work(tx: Tx) -> Task:
        return tx.put(record)

    return work


async def test_the_first_of_lines_are_let_in(store: Store) -> None:
    before = {
        each.id: each
        for each in await put(
            store,
            in_line("a", priority=200, input={"n": 1}),
            in_line("b", available_at=START - timedelta(seconds=1)),
            in_line("c"),
            in_line("d"),
            in_line("expired", priority=255, expires_at=START),
            in_line("e", "h", tags=("x",), metadata={"y": 1}, updated_at=START + timedelta(seconds=1)),
            in_line("f", "i"),
            task("ready"),
        )
    }
    let = await store.transact(let_in({"g": 3, "h": 2, "none": 5}))
    assert let is not None
    now = {each.id: each for each in let}
    for id in "abce":
        old = before[id]
        assert now[id] == replace(old, line=None, passed=1, version=2)
        assert [now[id]] == [replace(each, version=2) for each in life.letting_in().applied_to([old])]
    assert now.keys() == set("abce")
    for id, old in before.items():
        assert await get(store, Task, id) == now.get(id, old)
    ready = [each.id for each in await find(store, ReadyTasks(at=START))]
    assert ready == ["a", "b", "c", "e", "ready"]
    left = await find(store, TasksInLine(gates=("g", "h", "i"), most=9, at=START))
    assert [each.id for each in left] == ["d", "f"]
    assert await find(store, UpcomingTasks(after=START)) == []
    claimed = await store.transact(claim(9))
    assert claimed == [
        replace(each, version=each.version + 1)
        for each in claiming().applied_to([now.get(id, before[id]) for id in ready])
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"gates": ("g", "h")},
        {"gates": ("f", "g"), "passed": 1},
        {"asks_late": True},
        {"available_at": START + timedelta(days=900)},
    ],
)
async def test_nobody_is_let_in_by_an_update_if_one_changes_otherwise(
    store: Store, values: dict[str, Any]
) -> None:
    other = replace(in_line("b"), **values)
    before = await put(store, in_line("a"), other, in_line("c", "h"))
    assert await store.transact(let_in({"g": 2, "h": 1})) is None
    assert [await get(store, Task, each.id) for each in before] == before
    let = await store.transact(let_in({"g": 1, "h": 1}))
    assert let is not None
    assert sorted(each.id for each in let) == ["a", "c"]


async def test_who_lets_others_in_tells_workers(store: Store) -> None:
    await put(store, in_line("a"))
    waiting = asyncio.create_task(store.wait(START + timedelta(days=900), of={PendingTask}))
    await asyncio.sleep(0)
    await store.transact(let_in({"g": 1}))
    await asyncio.wait_for(waiting, 60)


async def test_a_work_that_fails_lets_nobody_in(store: Store) -> None:
    """Nor does one that is committed beside others."""

    async def failing(tx: Tx) -> None:
        await tx.update_lines({"g": 1}, life.letting_in())
        raise LookupError

    [before] = await put(store, in_line("a"))
    beside = [store.transact(puts(task(id))) for id in "xyz"]
    answers = await asyncio.gather(*beside, store.transact(failing), return_exceptions=True)
    assert isinstance(answers[-1], LookupError)
    assert await get(store, Task, "a") == before
    assert [await get(store, Task, id) for id in "xyz"] == answers[:-1]
