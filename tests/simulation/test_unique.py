"""Submissions that are the same task: `unique_for`, `unique_by`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.domain.task import Submission
from rota.engine import commands
from stores import ADDRESSES
from worlds import HOUR, MINUTE, World

DAY = timedelta(days=1)


async def test_the_same_task_comes_back_while_it_lives(world: World) -> None:
    @world.app.task("mail")
    async def mail() -> None: ...

    unique: dict[str, Any] = {"unique_by": ["kind", "input"]}
    first = await world.queue.submit("mail", {"a": 1, "b": [1, 2]}, **unique)
    assert await world.queue.submit("mail", {"b": (1, 2), "a": 1}, **unique, priority=7) == first
    others = [
        await world.queue.submit("mail", {"a": 2}, **unique),
        await world.queue.submit("post", {"a": 1, "b": [1, 2]}, **unique),
        await world.queue.submit("mail", {"a": 1, "b": [1, 2]}),
        await world.queue.for_tenant("acme").submit("mail", {"a": 1, "b": [1, 2]}, **unique),
    ]
    assert len({first.id, *(task.id for task in others)}) == 5
    async with world.running():
        await world.queue.wait(first.id)
    second = await world.queue.submit("mail", {"a": 1, "b": [1, 2]}, **unique)
    assert second.id != first.id
    assert (await world.queue.submit("mail", {"a": 1, "b": [1, 2]}, **unique)).id == second.id


async def test_it_comes_back_until_its_period_is_over(world: World) -> None:
    first = await world.queue.submit("mail", unique_for=HOUR)
    await world.queue.cancel(first.id)
    await world.at(HOUR - MINUTE)
    again = await world.queue.submit("mail", unique_for="1h")
    assert (again.id, again.status) == (first.id, "cancelled")
    await world.at(HOUR)
    second = await world.queue.submit("mail", unique_for=HOUR)
    assert second.id != first.id
    await world.at(3 * HOUR)
    assert (await world.queue.submit("mail", unique_for=HOUR)).id == second.id, "it still lives"


@pytest.mark.parametrize(
    ("by", "same"),
    [("queue", {"a", "b", "c"}), ("input.customer", {"a", "c"}), ("input.order.id", {"b", "c"})],
)
async def test_what_counts_may_be_a_part(world: World, by: str, same: set[str]) -> None:
    inputs = {
        "a": {"customer": 7, "order": {"id": 1}},
        "b": {"customer": 8, "order": {"id": 2}},
        "c": {"customer": 7, "order": {"id": 2}},
    }
    last = await world.queue.submit("mail", inputs["c"], unique_by=[by, "kind"])
    found = {
        name: await world.queue.submit("mail", input, unique_by=["kind", by])
        for name, input in inputs.items()
    }
    assert {name for name, task in found.items() if task.id == last.id} == same


async def test_many_at_once_and_many_in_one_call_are_one(world: World) -> None:
    racing = await asyncio.gather(*(world.queue.submit("mail", 5, unique_by=["kind"]) for _ in range(20)))
    assert len({task.id for task in racing}) == 1
    many = await world.queue.submit_many([("post", n % 2) for n in range(6)], unique_for=5)
    assert [task.id for task in many[:2]] * 3 == [task.id for task in many]
    assert await world.queue.count() == 3


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "folder"])
async def test_nodes_that_race_for_new_inputs_make_one_task_of_each(kind: str, tmp_path: Path) -> None:
    address = ADDRESSES[kind](tmp_path)
    async with AsyncExitStack() as nodes:
        queues = [await nodes.enter_async_context(rota.connect(address)) for _ in range(4)]
        asked = [queue.submit("mail", n, unique_for=HOUR) for n in range(10) for queue in queues]
        given = {task.id for task in await asyncio.gather(*asked)}
        stored = await queues[0].list(limit=100)
        assert sorted(task.input for task in stored) == list(range(10))
        assert {task.id for task in stored} == given


async def test_a_lost_answer_is_no_second_task(world: World) -> None:
    asked = Submission(kind="mail", unique_by=("kind",))
    work = commands.submit_tasks([("some-id", asked)], "default", "tester")
    [first] = await world.store.transact(work)
    await world.queue.cancel(first.id)
    [again] = await world.store.transact(work)
    assert (again.id, again.status, await world.queue.count()) == (first.id, "cancelled", 1)


async def test_a_full_tenant_gets_the_task_that_is_there(world: World) -> None:
    await world.queue.create_tenant("default", pending_tasks=1)
    first = await world.queue.submit("mail", unique_by=["kind"])
    assert (await world.queue.submit("mail", unique_by=["kind"])).id == first.id
    with pytest.raises(rota.Refused, match="may have 1 pending task and"):
        await world.queue.submit("post", unique_by=["kind"])


async def test_what_is_unique_is_remembered_as_long_as_its_task_lives(world: World) -> None:
    """Receipts are forgotten after a day; that of a task which lives is kept."""
    retention = commands.Retention()
    first = await world.queue.submit("mail", unique_by=["kind"])
    await world.at(3 * DAY)
    assert await world.store.transact(commands.forget_old(retention, 100)) == 0
    assert (await world.queue.submit("mail", unique_by=["kind"])).id == first.id
    await world.queue.cancel(first.id)
    await world.at(5 * DAY)
    assert await world.store.transact(commands.forget_old(retention, 100)) == 1
    assert (await world.queue.submit("mail", unique_by=["kind"])).id != first.id


async def test_what_is_unique_is_forgotten_when_its_task_has_expired(world: World) -> None:
    """Also if nobody has marked it."""
    await world.queue.submit("mail", unique_by=["kind"], ttl=HOUR)
    await world.at(3 * DAY)
    assert (await world.store.snapshot())["receipt"]
    await world.store.transact(commands.forget_old(commands.Retention(), 100))
    assert not (await world.store.snapshot())["receipt"]
