"""Workflows and what handlers have: types of arguments, task functions, the queue, artifacts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import rota
from rota import TaskStatus
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
