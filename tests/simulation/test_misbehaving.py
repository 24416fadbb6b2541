"""Handlers that misbehave, clocks that jump, callers that race: what must hold all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus
from worlds import HOUR, MINUTE, SECOND, START, World, on_any_store, raising


class Weird(BaseException):
    pass


@on_any_store
@pytest.mark.parametrize("jump", [40 * SECOND, HOUR, -HOUR], ids=str)
@pytest.mark.parametrize("when", [7 * SECOND, 19 * SECOND, 33 * SECOND], ids=str)
async def test_a_jump_of_the_clock_takes_no_task_from_a_living_worker(
    world: World, jump: timedelta, when: timedelta
) -> None:
    starts = []

    @world.app.task("long", max_retries=0)
    async def long(context: rota.Context) -> str:
        starts.append(context.attempt)
        await asyncio.sleep(100)
        return "done"

    world.jumps_looked_for = SECOND
    task = await world.queue.submit("long")
    async with world.running(lease=30):
        await world.at(when)
        world.clock.step(jump)
        await asyncio.sleep(120)
        done = await world.queue.get(task.id)
    assert (done.status, done.output, starts) == (TaskStatus.COMPLETED, "done", [1])


async def test_a_delayed_task_that_fell_due_in_a_jump_starts_at_once(world: World) -> None:
    @world.app.task("work")
    async def work() -> str:
        return world.clock.now().isoformat()

    world.jumps_looked_for = SECOND
    task = await world.queue.submit("work", schedule_at=START + HOUR)
    async with world.running():
        await world.at(5 * SECOND)
        world.clock.step(HOUR)
        await asyncio.sleep(2)
        assert (await world.queue.get(task.id)).status is TaskStatus.COMPLETED


CALLS: list[tuple[Callable[..., Any], Any, Any]] = [
    (lambda report_type="daily": report_type, None, "daily"),
    (lambda report_type="daily": report_type, {"report_type": "x"}, "x"),
    (lambda context, limit=10: [context.attempt, limit], None, [1, 10]),
    (lambda input, ctx: [input, ctx.attempt], None, [None, 1]),
    (lambda input, ctx: [input, ctx.attempt], {"a": 1}, [{"a": 1}, 1]),
    (lambda input, context, extra=3: [input, extra], {"extra": 4}, [{"extra": 4}, 4]),
    (lambda x, y=2: [x, y], 5, [5, 2]),
    (lambda x, context: [x, context.attempt], [1, 2], [[1, 2], 1]),
    (lambda x, /, y: [x, y], {"x": 1, "y": 2}, [1, 2]),
    (lambda *, a, **rest: [a, rest], {"a": 1, "b": 2}, [1, {"b": 2}]),
    (lambda: "nothing", {"a": 1}, "nothing"),
    (lambda: "nothing", 5, "nothing"),
    (lambda *args, **rest: [list(args), rest], {"a": 1}, [[], {"a": 1}]),
]


@on_any_store
@pytest.mark.parametrize(("function", "input", "output"), CALLS, ids=range(len(CALLS)))
async def test_arguments_are_filled_as_promised(
    world: World, function: Callable[..., Any], input: Any, output: Any
) -> None:
    world.app.task("call", max_retries=0)(function)
    task = await world.queue.submit("call", input)
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.error, done.output) == (None, output)


@pytest.mark.parametrize("function", [lambda input, context, extra: 0, lambda x, y: 0], ids=["extra", "y"])
async def test_arguments_that_cannot_be_filled_fail_with_a_sentence(
    world: World, function: Callable[..., Any]
) -> None:
    world.app.task("call")(function)
    task = await world.queue.submit("call", {"x": 1})
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.attempt) == (TaskStatus.FAILED, 1)
    assert "which its handler asks for" in str(done.error)


async def test_cancel_many_reaches_all_of_many_running_tasks(world: World) -> None:
    @world.app.task("long")
    async def long() -> None:
        await asyncio.Event().wait()

    await world.queue.submit_many([("long", None)] * 1200)
    async with world.running(concurrency=1200):
        await world.at(SECOND)
        assert await world.queue.count(status="running") == 1200
        reported: list[int] = []
        assert await world.queue.cancel_many(kind="long", report=reported.append) == 1200
        assert sum(reported) == 1200
        assert max(reported) <= 500
        await world.at(MINUTE)
        assert await world.queue.count(status="cancelled") == 1200


async def test_updates_at_the_same_time_are_both_kept(world: World) -> None:
    for number in range(10):
        key = f"s{number}"
        await world.schedule(key, cron="0 * * * *")
        await asyncio.gather(
            world.queue.update_schedule(key, input={"a": 1}), world.queue.update_schedule(key, queue="other")
        )
        target = (await world.queue.get_schedule(key)).target
        assert isinstance(target, rota.TaskTarget)
        assert (target.input, target.queue) == ({"a": 1}, "other")


async def test_run_due_tells_a_tenant_nothing_of_another(world: World) -> None:
    other = world.queue.for_tenant("other")
    await other.create_schedule("s", task_type="work", cron="0 * * * *")
    await world.at(HOUR)
    assert await world.queue.run_due() == []
    assert len(await other.runs("s")) == 1


@on_any_store
@pytest.mark.parametrize("problem", [Weird(), GeneratorExit(), TimeoutError("mine")], ids=repr)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_whatever_is_raised_is_stored_with_its_traceback(
    world: World, problem: BaseException, is_async: bool
) -> None:
    world.app.task("bad", max_retries=0)(raising(problem, is_async=is_async))
    task = await world.queue.submit("bad")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.error is not None
    assert done.error.type == type(problem).__name__
    assert "in bad" in (done.error.traceback or "")
    assert done.completed_at == START


async def test_a_timeout_holds_for_a_handler_that_swallows_cancellation(world: World) -> None:
    @world.app.task("stubborn", max_retries=0, timeout=1)
    async def stubborn() -> str:
        for _ in range(60):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        return "ran a minute"

    task = await world.queue.submit("stubborn")
    async with world.running(concurrency=1):
        done = await world.queue.wait(task.id)
        assert (done.status, done.error and done.error.type) == (TaskStatus.FAILED, "TimeoutError")
        assert done.completed_at is not None
        assert done.completed_at <= START + 7 * SECOND
        await world.at(2 * MINUTE)  # it occupies its slot until it ends
        other = await world.queue.submit("stubborn")
        await asyncio.sleep(10)
        assert (await world.queue.get(other.id)).status is TaskStatus.FAILED


async def test_a_slot_is_free_as_soon_as_a_hung_thread_ends() -> None:
    """In real time: virtual time stands still while a thread works, so there a thread is never late."""
    gate = threading.Event()
    app = rota.App()

    @app.task("hang", max_retries=0, timeout=0.05)
    def hang() -> None:
        gate.wait(30)

    @app.task("next")
    def next_one() -> str:
        return "ran"

    async with rota.connect("memory:") as queue:
        worker = rota.Worker(queue, app, concurrency=1)
        running = asyncio.create_task(worker.run(handle_signals=False))
        hung = await queue.submit("hang")
        assert (await queue.wait(hung.id, 60)).status is TaskStatus.FAILED
        waiting = await queue.submit("next")
        with pytest.raises(TimeoutError):
            await queue.wait(waiting.id, 0.2)
        gate.set()
        assert (await queue.wait(waiting.id, 60)).output == "ran"
        worker.stop()
        await running


async def test_an_extended_lease_is_one_tasks_own(world: World) -> None:
    @world.app.task("extend")
    async def extend(input: object, context: rota.Context) -> None:
        context.extend_lease(3600)
        await asyncio.Event().wait()

    @world.app.task("other")
    async def other() -> None:
        await asyncio.Event().wait()

    tasks = await world.queue.submit_many([("extend", None), ("other", None)])
    async with world.running(lease=30, shutdown_timeout=0):
        await world.at(MINUTE)
        leases = [(await world.queue.get(task.id)).lease_expires_at for task in tasks]
    assert leases[0] is not None
    assert leases[1] is not None
    assert leases[0] > START + HOUR
    assert leases[1] < START + 2 * MINUTE


async def test_a_generator_is_no_result(world: World) -> None:
    world.app.task("gen")(lambda: (n for n in range(3)))
    task = await world.queue.submit("gen")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert "generator is not JSON" in str(done.error)


async def test_hooks_given_to_two_workers_are_called_once_each(world: World) -> None:
    calls: list[str] = []
    world.app.task("work")(lambda: None)
    task = await world.queue.submit("work")
    async with (
        world.running(on_success=lambda: calls.append("a")),
        world.running(on_success=lambda: calls.append("b")),
    ):
        await world.queue.wait(task.id)
        await world.at(SECOND)
    assert len(calls) == 1


@pytest.mark.parametrize("queues", ["default", 5])
async def test_queues_must_be_a_list(world: World, queues: object) -> None:
    with pytest.raises(rota.Invalid, match=r"queues: .* is not a list; give a list of names"):
        world.worker(queues=queues)


async def test_what_a_handler_changes_in_its_input_is_not_stored(world: World) -> None:
    @world.app.task("work", max_retries=1)
    async def work(context: rota.Context, items: list[Any]) -> list[Any]:
        seen = list(items)
        items.append("changed")
        context.task.input["items"].clear()
        context.task.metadata["also"] = "changed"
        if context.attempt == 1:
            raise RuntimeError("once more")
        return seen

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow, items: list[Any]) -> list[Any]:
        seen = list(items)
        items.append("changed")
        ctx.task.input["items"].clear()
        return seen

    given = {"items": [1, {"two": 2}]}
    async with world.running():
        for task in (
            await world.queue.submit("work", given),
            await world.queue.start_workflow("flow", given),
        ):
            done = await world.queue.wait(task.id)
            assert (done.input, done.output, done.metadata) == (given, given["items"], {})
