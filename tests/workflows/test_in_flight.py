"""What happens to a workflow while one of its steps is in flight: a signal, a cancel, a stop."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.engine.executor import StopReason
from worlds import MINUTE, SECOND, START, World


async def long_step() -> str:
    await asyncio.sleep(60)
    return "stepped"


class Waiting:
    """A workflow that waits for a signal, while a step of it takes a minute."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.got: list[timedelta] = []
        world.app.workflow("flow")(self.flow)

    async def flow(self, ctx: rota.Workflow) -> Any:
        async def receive() -> None:
            await ctx.receive("word")
            self.got.append(self.world.clock.now() - START)

        async with asyncio.TaskGroup() as group:
            group.create_task(receive())
            step = group.create_task(ctx.step(long_step))
        return step.result()


@pytest.mark.parametrize("tenths", range(1, 30, 4))
async def test_a_signal_is_seen_within_a_second_whenever_it_comes(world: World, tenths: int) -> None:
    waiting = Waiting(world)
    async with world.running():
        task = await world.queue.start_workflow("flow")
        await world.at(tenths * SECOND / 10)
        await world.queue.signal(task.id, "word")
        done = await world.queue.wait(task.id)
    assert done.output == "stepped"
    [at] = waiting.got
    assert at <= tenths * SECOND / 10 + SECOND


async def test_a_signal_that_came_while_nobody_worked_is_seen_at_once(world: World) -> None:
    waiting = Waiting(world)
    async with world.running(shutdown_timeout=0):
        task = await world.queue.start_workflow("flow")
        await world.at(10 * SECOND)
    await world.at(30 * SECOND)
    await world.queue.signal(task.id, "word")
    await world.at(MINUTE)
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.output == "stepped"
    [at] = waiting.got
    assert MINUTE <= at <= MINUTE + SECOND


async def test_a_wait_that_is_over_while_a_cancelled_run_lets_its_step_end(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        return await asyncio.gather(ctx.step(long_step), ctx.sleep(5))

    async with world.running():
        task = await world.queue.start_workflow("flow")
        await world.at(2 * SECOND)
        await world.queue.cancel(task.id)
        done = await world.queue.wait(task.id)
    assert done.status is TaskStatus.CANCELLED
    assert done.updated_at == START + MINUTE


@pytest.mark.parametrize("reason", [StopReason.RELEASE, StopReason.LEASE_LOST])
async def test_a_stop_that_comes_while_a_step_is_recorded_is_seen_before_the_next(
    world: World, reason: StopReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []
    transact = world.store.transact

    async def step(name: str) -> None:
        began.append(name)

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        await ctx.step(step, "first", name="first")
        await ctx.step(step, "second", name="second")

    async def stopping(work: Any, *options: Any) -> Any:
        answer = await transact(work, *options)
        if began and not worker.stopping.is_set():
            worker.stop()  # so that nobody goes on with it
            worker.tasks.stop_handlers(reason)
        return answer

    async with world.running() as worker:
        monkeypatch.setattr(world.store, "transact", stopping)
        task = await world.queue.start_workflow("flow")
        await worker.stopping.wait()
    assert began == ["first"]
    assert [step.key for step in await world.queue.steps(task.id)] == ["first"]


@pytest.mark.parametrize("turns", range(6))
async def test_a_step_that_ends_itself_for_a_stop_is_begun_anew(world: World, turns: int) -> None:
    """It may do so in the same turn of the loop in which the runner hears of the stop."""
    began = 0

    @world.app.task("part")
    async def part(context: rota.Context) -> str:
        nonlocal began
        began += 1
        if began == 1:
            while not context.is_stopping:
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            context.check()
        return "done"

    @world.app.workflow("flow", max_retries=0)
    async def flow(ctx: rota.Workflow) -> Any:
        return await ctx.step(part, retries=0)

    task = await world.queue.start_workflow("flow")
    async with world.running(shutdown_timeout=0):
        while not began:
            await asyncio.sleep(0)
    assert await world.queue.steps(task.id) == []
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.output, began) == (TaskStatus.COMPLETED, "done", 2)
