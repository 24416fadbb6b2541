"""Two tries of one step never run at the same time in one worker, however the first was given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.engine.executor import STOP_GRACE
from rota.engine.workflows import runner
from worlds import MINUTE, SECOND, START, Stubborn, World

AT_ONCE = rota.RetryPolicy(initial=timedelta(0))


@pytest.mark.parametrize("beside", [0, 200])
async def test_a_second_try_waits_for_the_end_of_the_first(world: World, beside: int) -> None:
    """Also where the run is not parked between the two, since a step beside it is under way."""
    stubborn = Stubborn(world, seconds=40)

    @world.app.workflow("flow", max_retries=0)
    async def flow(ctx: rota.Workflow) -> None:
        trying = ctx.step(stubborn.handle, timeout=1, retries=1, retry_policy=AT_ONCE)
        await asyncio.gather(trying, ctx.step(asyncio.sleep, beside))

    task = await world.queue.start_workflow("flow")
    async with world.running():
        await world.at(20 * SECOND)
        tried = next(step for step in await world.queue.steps(task.id) if step.key == "handle")
        assert "and still runs: this worker starts no other attempt before it has ended" in str(tried.error)
        done = await world.queue.wait(task.id)
    assert (done.status, stubborn.most) == (TaskStatus.FAILED, 1)
    assert stubborn.began == [timedelta(0), 40 * SECOND]


async def test_a_run_goes_on_beside_a_step_that_is_not_tried_again(world: World) -> None:
    stubborn = Stubborn(world, seconds=3600)

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        try:
            await ctx.step(stubborn.handle, timeout=1, retries=0)
        except rota.StepFailed:
            await ctx.sleep(10)
        return "went on"

    task = await world.queue.start_workflow("flow")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.output, world.clock.now() < START + MINUTE) == ("went on", True)


@pytest.mark.parametrize("limit", [None, 100])
async def test_a_step_waits_for_its_call_that_was_left(world: World, limit: float | None) -> None:
    """The branch of the code that asked for it had ended, and then the run failed."""
    stubborn, attempts = Stubborn(world, seconds=40), 0

    async def fail(ctx: rota.Workflow, after: float, name: str) -> None:
        await ctx.step(asyncio.sleep, after, name=name)
        if attempts == 1:
            raise ZeroDivisionError

    async def leave(ctx: rota.Workflow) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step(stubborn.handle, timeout=limit))
                group.create_task(fail(ctx, 1, "first"))
        except* ZeroDivisionError:
            pass

    @world.app.workflow("flow", max_retries=1, retry_policy=AT_ONCE)
    async def flow(ctx: rota.Workflow) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.gather(leave(ctx), fail(ctx, 3, "second"))

    task = await world.queue.start_workflow("flow")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (attempts, stubborn.began, stubborn.most) == (2, [timedelta(0), 40 * SECOND], 1)
    assert done.status == TaskStatus.COMPLETED


@pytest.mark.parametrize("fails_after", [1, 3])
async def test_a_step_waits_for_its_call_that_was_given_up_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, fails_after: float
) -> None:
    """It had a time, and the run failed before that was over, or while the call was given a while to end. The worker
    is too busy for a moment to look after both at once."""
    stubborn, attempts = Stubborn(world, seconds=40), 0
    monkeypatch.setattr(runner, "STOP_GRACE", STOP_GRACE - timedelta(milliseconds=10))

    async def fail(ctx: rota.Workflow) -> None:
        await ctx.step(asyncio.sleep, fails_after)
        if attempts == 1:
            raise ZeroDivisionError

    @world.app.workflow("flow", max_retries=1, retry_policy=AT_ONCE)
    async def flow(ctx: rota.Workflow) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.gather(ctx.step(stubborn.handle, timeout=2, retries=0), fail(ctx))

    task = await world.queue.start_workflow("flow")
    async with world.running():
        await world.queue.wait(task.id)
    assert (attempts, stubborn.began, stubborn.most) == (2, [timedelta(0), 40 * SECOND], 1)


@pytest.mark.parametrize("how", ["not tried again", "of a late run", "beside an error"])
async def test_a_step_waits_for_its_call_of_an_earlier_attempt(world: World, how: str) -> None:
    """Whether the run is tried again or replayed."""
    stubborn = Stubborn(world, seconds=40)
    limit, limit_of_step = (10, None) if how == "of a late run" else (None, 1)
    attempts = 0

    async def fail(ctx: rota.Workflow) -> None:
        await ctx.step(asyncio.sleep, 1)
        if attempts == 1:
            raise ZeroDivisionError

    @world.app.workflow("flow", max_retries=1, retry_policy=AT_ONCE, timeout=limit)
    async def flow(ctx: rota.Workflow) -> None:
        nonlocal attempts
        attempts += 1
        if how == "beside an error":
            await asyncio.gather(ctx.step(stubborn.handle), fail(ctx))
        else:
            await ctx.step(stubborn.handle, timeout=limit_of_step, retries=0)

    task = await world.queue.start_workflow("flow")
    async with world.running():
        done = await world.queue.wait(task.id)
        if how != "beside an error":
            await world.queue.replay(task.id)
            done = await world.queue.wait(task.id)
    assert stubborn.most == 1
    if how == "of a late run":  # it waited there until it was late again
        assert (done.status, stubborn.began) == (TaskStatus.FAILED, [timedelta(0)])
    else:
        assert stubborn.began == [timedelta(0), 40 * SECOND]


@pytest.mark.parametrize("pause", [timedelta(0), timedelta(milliseconds=10)])
async def test_threads_of_one_step_never_run_side_by_side(pause: timedelta) -> None:
    """In real time: virtual time stands still while a thread works, so there a thread is never late."""
    gate, app, running, most = threading.Event(), rota.App(), [0], [0]

    def hang() -> str:
        running[0] += 1
        most[0] = max(most[0], running[0])
        gate.wait(30)
        running[0] -= 1
        return "done"

    app.task("other")(lambda: None)

    @app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        return str(
            await ctx.step(hang, timeout=0.05, retries=2, retry_policy=rota.RetryPolicy(initial=pause))
        )

    async with rota.connect("memory:") as queue:
        worker = rota.Worker(queue, app, concurrency=5)
        working = asyncio.create_task(worker.run(handle_signals=False))
        task = await queue.start_workflow("flow")
        while not [step for step in await queue.steps(task.id) if step.attempts]:
            await queue.store.wait(None)
        due = (await queue.get(task.id)).available_at
        while await queue.store.now() <= due:
            await asyncio.sleep(0)
        other = await queue.submit("other")
        await queue.wait(other.id, 60)  # slots are free, and whatever is ready has been claimed before it
        gate.set()
        done = await queue.wait(task.id, 60)
        worker.stop()
        await working
    assert (done.status, done.output, most) == (TaskStatus.COMPLETED, "done", [1])


@asynccontextmanager
async def working(queue: rota.Queue, app: rota.App, concurrency: int) -> AsyncIterator[None]:
    worker = rota.Worker(queue, app, concurrency=concurrency)
    running = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield
    finally:
        worker.stop()
        await running


async def test_steps_keep_no_handler_waiting_for_a_thread() -> None:
    """In real time, as above."""
    gate, app = threading.Event(), rota.App()

    def hang(number: int) -> int:
        assert gate.wait(60)
        return number

    @app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        return await asyncio.gather(*(ctx.step(hang, number, key=number) for number in range(3)))

    @app.task("work")
    def work() -> str:
        return "done"

    async with rota.connect("memory:") as queue, working(queue, app, concurrency=2):
        run = await queue.start_workflow("flow")
        while not await queue.count(status="running"):
            await asyncio.sleep(0.01)
        task = await queue.submit("work")
        try:
            assert (await queue.wait(task.id, timeout=60)).output == "done"
        finally:
            gate.set()
        assert (await queue.wait(run.id, timeout=60)).output == [0, 1, 2]


class Pool:
    """Something that is provided."""


@pytest.mark.parametrize("is_provided", [False, True])
async def test_a_step_that_waits_for_a_thread_has_all_its_time_left(is_provided: bool) -> None:
    """In real time, as above."""
    app, ran = rota.App(), [0]
    app.provide(Pool, Pool)

    def slow() -> None:
        threading.Event().wait(2.5)

    @app.task("quick")
    def quick(pool: Pool) -> str:
        ran[0] += 1
        return "done"

    def bare() -> str:
        return quick(Pool())

    @app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        step = ctx.step(quick, timeout=2) if is_provided else ctx.step(bare, timeout=2)
        _, output = await asyncio.gather(ctx.step(slow), step)
        return str(output)

    async with rota.connect("memory:") as queue, working(queue, app, concurrency=1):
        run = await queue.start_workflow("flow")
        assert (await queue.wait(run.id, timeout=60)).output == "done"
        (step,) = [step for step in await queue.steps(run.id) if step.key != "slow"]
    assert (step.attempts, ran) == (1, [1])


async def test_a_step_that_waits_for_a_thread_does_not_begin_after_its_run() -> None:
    """In real time, as above."""
    app, gate = rota.App(), threading.Event()
    called: list[str] = []

    def hang() -> None:
        assert gate.wait(60)

    @app.workflow("flow", timeout=0.5, max_retries=0)
    async def flow(ctx: rota.Workflow) -> None:
        await asyncio.gather(ctx.step(hang), ctx.step(called.append, "late"))

    @app.workflow("last", max_retries=0)
    async def last(ctx: rota.Workflow) -> None:
        await ctx.step(called.append, "last")

    async with rota.connect("memory:") as queue, working(queue, app, concurrency=1):
        run = await queue.start_workflow("flow")
        try:
            assert (await queue.wait(run.id, timeout=60)).status == TaskStatus.FAILED
            after = await queue.start_workflow("last")
        finally:
            gate.set()
        assert (await queue.wait(after.id, timeout=60)).status == TaskStatus.COMPLETED
    assert called == ["last"]


async def test_a_call_that_was_given_up_keeps_a_slot(world: World) -> None:
    """Else runs are claimed that find no thread, and no other worker gets them."""
    stubborn = Stubborn(world, seconds=3600)

    @world.app.workflow("flow", max_retries=0)
    async def flow(ctx: rota.Workflow) -> None:
        await ctx.step(stubborn.handle, timeout=1, retries=0)

    @world.app.task("quick", max_retries=0)
    async def quick() -> None: ...

    async with world.running(concurrency=2):
        for _ in range(2):
            given_up = await world.queue.start_workflow("flow")
            assert (await world.queue.wait(given_up.id)).status == TaskStatus.FAILED
        task = await world.queue.submit("quick")
        await world.at(30 * MINUTE)
        assert (await world.queue.get(task.id)).status == TaskStatus.PENDING
        done = await world.queue.wait(task.id)
    assert done.started_at is not None
    assert SECOND * 3600 <= done.started_at - START < SECOND * 3602
