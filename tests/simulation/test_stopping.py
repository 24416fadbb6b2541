"""Asked to stop and asked to cancel are two things: what is stopped goes back to the queue, what is cancelled ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.engine.executor import StopReason
from rota.engine.observe.telemetry import Observation, TaskStarted
from simulation.faults import FaultyStore
from worlds import MINUTE, SECOND, START, World


class Pool:
    """Something that is provided."""


class Looking:
    """A sync handler that looks now and then whether it is to end."""

    def __init__(self, world: World) -> None:
        self.started = threading.Event()
        self.seen: list[tuple[bool, bool]] = []
        world.app.task("loop", max_retries=0)(self.handle)

    def handle(self, context: rota.Context) -> str:
        self.started.set()
        self.seen.append((context.is_stopping, context.is_cancellation_requested))
        for _ in range(60_000):
            try:
                context.check()
            except BaseException:
                self.seen.append((context.is_stopping, context.is_cancellation_requested))
                raise
            threading.Event().wait(0.001)
        return "all of it"


async def test_a_handler_that_is_stopped_goes_back_to_the_queue(world: World) -> None:
    looking = Looking(world)
    task = await world.queue.submit("loop")
    async with world.running(shutdown_timeout=0):
        await asyncio.to_thread(looking.started.wait)
    back = await world.queue.get(task.id)
    assert (back.status, back.attempt, back.retries, back.error) == (TaskStatus.PENDING, 0, 0, None)
    assert back.history[-1].detail == "handed back: the worker stopped"
    assert looking.seen == [(False, False), (True, False)]


@pytest.mark.parametrize("is_cancel", [False, True], ids=["stop", "cancel"])
async def test_a_check_in_a_coroutine_that_a_thread_waits_for_ends_its_attempt_too(
    world: World, is_cancel: bool
) -> None:
    started = threading.Event()

    async def loop(context: rota.Context) -> None:
        started.set()
        while True:
            context.check()
            await asyncio.sleep(0)

    @world.app.task("calls", max_retries=0)
    def calls(context: rota.Context) -> None:
        context.call(loop(context))

    task = await world.queue.submit("calls")
    async with world.running(shutdown_timeout=0):
        await asyncio.to_thread(started.wait)
        if is_cancel:
            await world.queue.cancel(task.id)
    ended = await world.queue.get(task.id)
    assert ended.error is None
    assert ended.status is (TaskStatus.CANCELLED if is_cancel else TaskStatus.PENDING)


async def test_passes_that_are_stopped_or_fail_hand_back_what_they_leave_running(world: World) -> None:
    looking = Looking(world)
    for is_failure in (False, True):
        looking.started.clear()
        task = await world.queue.submit("loop")
        worker = world.worker(shutdown_timeout=0)

        async def passes(worker: rota.Worker = worker, fails: bool = is_failure) -> None:
            await worker.tasks.run_once()
            await asyncio.to_thread(looking.started.wait)
            if fails:
                raise OSError("the store is away")
            worker.stop()
            await asyncio.Event().wait()

        if is_failure:
            with pytest.raises(OSError, match="away"):
                await worker.run_passes(passes())
        else:
            assert not await worker.run_passes(passes())
        back = await world.queue.get(task.id)
        assert (back.status, back.attempt, back.retries) == (TaskStatus.PENDING, 0, 0)
        await world.queue.cancel(task.id)


async def test_a_pass_that_fails_leaves_handlers_the_time_to_finish(world: World) -> None:
    @world.app.task("long")
    async def long() -> str:
        await asyncio.sleep(MINUTE.total_seconds())
        return "all of it"

    task = await world.queue.submit("long")
    worker = world.worker(shutdown_timeout=2 * MINUTE)

    async def passes() -> None:
        await worker.tasks.run_once()
        raise OSError("the store is away")

    with pytest.raises(OSError, match="away"):
        await worker.run_passes(passes())
    ended = await world.queue.get(task.id)
    assert (ended.status, ended.output) == (TaskStatus.COMPLETED, "all of it")


async def test_a_pass_that_fails_when_its_tasks_have_ended_closes_what_was_provided(world: World) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def make() -> AsyncIterator[Pool]:
        yield Pool()
        said.append("closed")

    world.app.provide(Pool, make)

    @world.app.task("work")
    async def work(pool: Pool) -> None:
        said.append("used")

    await world.queue.submit("work")
    worker = world.worker()

    async def passes() -> None:
        await worker.tasks.run_once()
        while not worker.tasks.is_idle:
            await worker.tasks.wake.wait()
            await worker.tasks.run_once()
        raise OSError("the store is away")

    with pytest.raises(OSError, match="away"):
        await worker.run_passes(passes())
    assert said == ["used", "closed"]


async def test_passes_that_end_by_themselves_say_so(world: World) -> None:
    done: list[int] = []
    world.app.task("note")(done.append)
    await world.queue.submit("note", 1)
    worker = world.worker()

    async def passes() -> None:
        await worker.run_once()

    assert await worker.run_passes(passes())
    assert done == [1]


async def test_a_renewal_without_an_answer_holds_up_no_stop(world: World) -> None:
    """Its workflow waits meanwhile, so nobody needs it any more."""
    asked = asyncio.Event()

    class Silent(FaultyStore):
        async def transact(self, work: Any, *options: Any) -> Any:
            if work.__qualname__.startswith("renew_leases"):
                asked.set()
                await asyncio.Event().wait()
            return await super().transact(work, *options)

    @world.app.workflow("waits")
    async def waits(ctx: rota.Workflow) -> None:
        await ctx.step(asked.wait, name="long")
        await ctx.sleep(100 * MINUTE)

    task = await world.queue.start_workflow("waits")
    queue = rota.Queue(Silent(world.store, lambda number: None), clock=world.clock)
    worker = rota.Worker(queue, world.app, lease=30)
    running = asyncio.create_task(worker.run(handle_signals=False))
    await world.at(MINUTE)
    assert (await world.queue.get(task.id)).waits_for
    worker.stop()
    async with asyncio.timeout(10):
        await running


async def test_a_handler_that_is_cancelled_ends_as_cancelled(world: World) -> None:
    looking = Looking(world)
    task = await world.queue.submit("loop")
    async with world.running():
        await asyncio.to_thread(looking.started.wait)
        await world.queue.cancel(task.id, "not needed")
        done = await world.queue.wait(task.id)
    assert (done.status, done.output, done.error) == (TaskStatus.CANCELLED, None, None)
    assert looking.seen == [(False, False), (True, True)]


async def test_a_cancel_outweighs_a_stop(world: World) -> None:
    seen: list[tuple[bool, bool]] = []

    @world.app.task("slow")
    async def slow(context: rota.Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append((context.is_stopping, context.is_cancellation_requested))
            await asyncio.sleep(3)
            seen.append((context.is_stopping, context.is_cancellation_requested))
            context.check()
        return "completed after all"

    task = await world.queue.submit("slow")
    async with world.running(shutdown_timeout=0) as worker:
        await world.at(SECOND)
        worker.stop()
        await world.at(2 * SECOND)
        await world.queue.cancel(task.id)
    assert (await world.queue.get(task.id)).status is TaskStatus.CANCELLED
    assert seen == [(True, False), (True, True)]


async def test_a_stop_asks_nobody_while_there_is_patience(world: World) -> None:
    @world.app.task("slow")
    async def slow(context: rota.Context) -> str:
        for _ in range(20):
            context.check()
            await asyncio.sleep(1)
        return "all of it"

    task = await world.queue.submit("slow")
    async with world.running(shutdown_timeout=30):
        await world.at(SECOND)
    assert (await world.queue.get(task.id)).output == "all of it"


async def test_asked_twice_a_worker_hands_back_at_once(world: World) -> None:
    @world.app.task("slow")
    async def slow(context: rota.Context) -> None:
        while True:
            context.check()
            await asyncio.sleep(1)

    task = await world.queue.submit("slow")
    async with world.running(shutdown_timeout=3600) as worker:
        await world.at(SECOND)
        worker._signalled()
        await world.at(2 * SECOND)
        worker._signalled()
    assert (await world.queue.get(task.id)).history[-1].detail == "handed back: the worker stopped"
    assert await world.queue.nodes() == [], "others see that it is gone"
    assert world.clock.now() < START + 5 * SECOND


@pytest.mark.parametrize("limit", [None, 3600], ids=["no timeout", "timeout"])
async def test_a_handler_that_does_not_end_is_handed_back_too(world: World, limit: Any) -> None:
    @world.app.task("stubborn", max_retries=0, timeout=limit)
    async def stubborn(context: rota.Context) -> None:
        while world.clock.now() < START + MINUTE:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    task = await world.queue.submit("stubborn")
    async with world.running(shutdown_timeout=0):
        await world.at(SECOND)
    assert world.clock.now() <= START + 12 * SECOND
    back = await world.queue.get(task.id)
    assert (back.status, back.attempt, back.retries) == (TaskStatus.PENDING, 0, 0)
    await world.at(2 * MINUTE)  # it ends, and nobody minds
    assert await world.queue.get(task.id) == back


async def test_a_timeout_reaches_a_thread_that_looks() -> None:
    """In real time: virtual time stands still while a thread works."""
    app, ended = rota.App(), threading.Event()

    @app.task("loop", max_retries=0, timeout=0.05)
    def loop(context: rota.Context) -> None:
        try:
            while True:
                context.check()
                threading.Event().wait(0.001)
        finally:
            assert not context.is_cancellation_requested
            ended.set()

    async with rota.connect("memory:") as queue:
        worker = rota.Worker(queue, app)
        running = asyncio.create_task(worker.run(handle_signals=False))
        done = await queue.wait((await queue.submit("loop")).id, 60)
        assert await asyncio.to_thread(ended.wait, 60)
        worker.stop()
        await running
    assert (done.status, done.error and done.error.type) == (TaskStatus.FAILED, "TimeoutError")


@pytest.mark.parametrize("seconds", [None, 10])
async def test_a_handler_stopped_before_its_first_step_is_handed_back_at_once(
    world: World, seconds: float | None
) -> None:
    has_begun = False

    @world.app.task("work", timeout=seconds)
    async def work() -> None:
        nonlocal has_begun
        has_begun = True

    def stop_at_once(signal: Observation) -> None:
        if isinstance(signal, TaskStarted):
            worker.tasks.accepting = False
            worker.tasks.stop_handlers(StopReason.RELEASE)

    worker = rota.Worker(world.queue, world.app, observers=[stop_at_once])
    task = await world.queue.submit("work")
    await worker.run_once()
    back = await world.queue.get(task.id)
    assert (back.status, back.attempt, back.error, has_begun) == (TaskStatus.PENDING, 0, None, False)
