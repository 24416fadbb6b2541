"""Workflows and what handlers have: types of arguments, task functions, the queue, artifacts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.testing import check_replay
from worlds import World


@dataclass
class Order:
    sku: str
    amount: int = 1


async def test_the_input_is_typed_and_checked_when_it_is_started(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(c: rota.Workflow, order: Order, task: rota.Task) -> Order:
        assert task.id == c.task.id
        return Order(order.sku, order.amount + 1)

    queue = world.queue
    queue.app = world.app
    with pytest.raises(rota.Invalid, match="sku"):
        await queue.start_workflow("flow", {"order": {"amount": 1}})
    with pytest.raises(rota.Invalid, match="idempotency_key"):
        await queue.start_workflow("flow", {"order": {"sku": "lamp"}}, signals={"go": 1}, unique_by=["kind"])
    async with world.running():
        task = await queue.start_workflow("flow", {"order": {"sku": "lamp"}})
        assert (await queue.wait(task.id)).output == {"sku": "lamp", "amount": 2}


async def test_a_task_function_is_a_child_or_a_step(world: World) -> None:
    @world.app.task("double")
    async def double(n: int, context: rota.Context = rota.injected) -> int:
        context.log(f"double {n}")
        return 2 * n

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> list[Any]:
        return [await ctx.child(double, n=2), await ctx.step(double, 3)]

    async with world.running():
        task = await world.queue.start_workflow("flow")
        done = await world.queue.wait(task.id)
    assert done.output == [4, 6]
    assert [line.message for line in done.logs] == ["double 3"]
    assert [each.parent_id for each in await world.tasks(kind="double")] == [task.id]


async def test_many_workflows_are_replayed_where_they_failed(world: World) -> None:
    ran: list[str] = []

    def act(name: str) -> None:
        ran.append(name)
        if ran.count("b") < 2 and name == "b":
            raise rota.PermanentError("not yet")

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        for name in "ab":
            await ctx.step(act, name, name=name)

    async with world.running():
        task = await world.queue.start_workflow("flow")
        assert (await world.queue.wait(task.id)).status is TaskStatus.FAILED
        assert await world.queue.replay_many(workflow=True) == 1
        assert (await world.queue.wait(task.id)).status is TaskStatus.COMPLETED
    assert ran == ["a", "b", "b"]


async def test_what_a_step_leaves_is_stored_with_it(world: World) -> None:
    @world.app.task("draw")
    async def draw(context: rota.Context = rota.injected) -> None:
        context.artifact("picture.txt", b"hello")

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        await ctx.step(draw)

    async with world.running():
        task = await world.queue.start_workflow("flow")
        assert (await world.queue.wait(task.id)).status is TaskStatus.COMPLETED
    assert [each.name for each in await world.queue.artifacts(task.id)] == ["picture.txt"]


async def test_a_workflow_is_submitted_as_a_function_is(world: World) -> None:
    @world.app.workflow(queue="slow", version=3, accepts=2)
    async def order(c: rota.Workflow, wanted: Order, *, by: date) -> Order:
        return Order(f"{wanted.sku} by {by.isoformat()}", await c.receive("amount"))

    handle = await world.queue.bind(order).options(priority=7).submit(Order("lamp"), by=date(2026, 2, 1))
    task = handle.task
    assert (task.kind, task.queue, task.priority, task.is_workflow) == ("order", "slow", 7, True)
    await handle.signal("amount", 5)
    days = [order.args(Order("rug"), by=date(2026, 3, day)) for day in (1, 2)]
    others = await world.queue.bind(order).map(days)
    made = {(other.task.created_at, other.task.queue, other.task.is_workflow) for other in others}
    assert [(queue, is_workflow) for _, queue, is_workflow in made] == [("slow", True)], "one transaction"
    async with world.running(queues=["slow"]):
        result = await handle.result()
        for other in others:
            await other.cancel()
    assert result == Order("lamp by 2026-02-01", 5)
    assert (await handle.get()).workflow_version == 3
    assert [step.key for step in await handle.steps()] == ["receive:amount"]


async def test_a_workflow_with_a_timing_has_its_schedule(world: World) -> None:
    ran: list[Any] = []

    @world.app.workflow(interval="10m", input={"name": "Ada"}, queue="slow", timeout="1h")
    async def greet(ctx: rota.Workflow, name: str) -> None:
        await ctx.sleep(5)
        ran.append((name, ctx.task.is_workflow, ctx.task.timeout))

    async with world.running():
        await world.at(timedelta(minutes=25))
    assert ran == [("Ada", True, timedelta(hours=1))] * 2


class Database:
    def __init__(self, opened: list[str]) -> None:
        self.opened = opened


async def test_what_an_app_provides_reaches_workflows_and_their_steps(world: World) -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def database() -> AsyncIterator[Database]:
        opened.append("open")
        yield Database(opened)
        opened.append("closed")

    world.app.provide(Database, database, per="task")

    @world.app.task
    async def count(n: int, db: Database = rota.injected) -> int:
        return n + len(db.opened)

    def plain(db: Database) -> str:
        return db.opened[0]

    @world.app.workflow
    async def flow(ctx: rota.Workflow, db: Database = rota.injected) -> list[Any]:
        return [await ctx.step(plain, db), await ctx.step(count, 10), await ctx.step(count, 20, db)]

    task = await world.queue.bind(flow).submit()
    async with world.running():
        assert await task.result() == ["open", 12, 23]
    assert opened == ["open", "open", "closed", "closed"]
    check_replay(world.app, await task.get(), await task.steps())


async def test_a_child_gives_back_what_its_function_returns(world: World) -> None:
    @world.app.task
    async def later(order: Order, day: date) -> Order:
        return Order(f"{order.sku} {day:%d}", order.amount + 1)

    @world.app.workflow
    async def flow(ctx: rota.Workflow) -> list[Order]:
        one = await ctx.child(later, order=Order("lamp"), day=date(2026, 1, 31))
        return [one, *await ctx.map(later, [{"order": {"sku": "rug"}, "day": "2026-02-01"}], key=repr)]

    async with world.running():
        started = await world.queue.bind(flow).submit()
        assert await started.result() == [Order("lamp 31", 2), Order("rug 01", 2)]
