"""What a worker does with tasks, in virtual time, on every store."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from datetime import timedelta
from itertools import pairwise

import pytest

import rota
from rota import TaskStatus
from rota.engine.observe.telemetry import LeaseLost, TaskStarted
from worlds import MINUTE, SECOND, START, Crowd, World


async def test_a_task_runs_and_its_result_is_stored(world: World) -> None:
    @world.app.task("double")
    async def double(input: dict[str, int]) -> dict[str, int]:
        return {"is": input["n"] * 2}

    task = await world.queue.submit("double", {"n": 21})
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.output, done.attempt) == (TaskStatus.COMPLETED, {"is": 42}, 1)
    assert [line.status for line in done.history] == ["pending", "running", "completed"]


async def test_handlers_may_take_nothing_the_input_the_context_or_names(world: World) -> None:
    @world.app.task("nothing")
    def nothing() -> str:
        return "nothing"

    @world.app.task("whole")
    def whole(input: object) -> object:
        return input

    @world.app.task("both")
    async def both(input: dict[str, int], context: rota.Context) -> list[object]:
        return [input["a"], context.attempt, context.task.kind]

    @world.app.task("names")
    async def names(a: int, b: int = 5, *, context: rota.Context) -> list[object]:
        return [a, b, context.task.kind]

    @world.app.task("rest")
    async def rest(**values: int) -> dict[str, int]:
        return values

    kinds = ("nothing", "whole", "both", "names", "rest")
    tasks = await world.queue.submit_many([(kind, {"a": 1}) for kind in kinds])
    async with world.running():
        outputs = [(await world.queue.wait(task.id)).output for task in tasks]
    assert outputs == ["nothing", {"a": 1}, [1, 1, "both"], [1, 5, "names"], {"a": 1}]


async def test_what_has_ended_is_freed_without_the_collector(world: World) -> None:
    contexts: list[weakref.ref[rota.Context]] = []

    @world.app.task("known")
    async def known(context: rota.Context) -> None:
        contexts.append(weakref.ref(context))

    gc.disable()
    try:
        async with world.running():
            task = await world.queue.submit("known")
            await world.queue.wait(task.id)
        assert [context() for context in contexts] == [None]
    finally:
        gc.enable()


async def test_a_missing_name_fails_at_once_with_a_sentence(world: World) -> None:
    @world.app.task("names")
    async def names(user: str) -> None: ...

    task = await world.queue.submit("names", {"usr": "x"})
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.status is TaskStatus.FAILED
    assert done.attempt == 1
    assert "has no 'user'" in str(done.error)


async def test_sync_handlers_run_in_threads_beside_each_other(world: World) -> None:
    meeting = threading.Barrier(2, timeout=60)

    @world.app.task("meet")
    def meet() -> str:
        meeting.wait()
        return threading.current_thread().name

    tasks = await world.queue.submit_many([("meet", None)] * 2)
    async with world.running():
        names = {(await world.queue.wait(task.id)).output for task in tasks}
    assert len(names) == 2


async def test_any_exception_retries_with_backoff_and_then_fails(world: World) -> None:
    starts = []

    @world.app.task("fail")
    async def fail() -> None:
        starts.append(world.clock.now())
        raise KeyError("nope")

    task = await world.queue.submit("fail")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.status is TaskStatus.FAILED
    assert done.attempt == 4
    assert done.error is not None
    assert "KeyError: 'nope'" in (done.error.traceback or "")
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    for gap, nominal in zip(gaps, (1, 2, 4), strict=True):
        assert 0.75 * nominal <= gap.total_seconds() <= 1.3 * nominal


async def test_a_permanent_error_fails_at_once(world: World) -> None:
    @world.app.task("fail")
    async def fail() -> None:
        raise rota.PermanentError("no such user")

    task = await world.queue.submit("fail")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.attempt) == (TaskStatus.FAILED, 1)


async def test_a_retryable_error_names_its_delay(world: World) -> None:
    @world.app.task("later", max_retries=1)
    async def later(context: rota.Context) -> str:
        if context.attempt == 1:
            raise rota.RetryableError("busy", delay_seconds=600)
        return world.clock.now().isoformat()

    task = await world.queue.submit("later")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.output == (START + 10 * MINUTE).isoformat()


async def test_a_reschedule_counts_apart_and_may_extend_the_expiry(world: World) -> None:
    @world.app.task("poll", max_retries=0)
    async def poll(context: rota.Context) -> int:
        if context.task.reschedules < 3:
            raise rota.RescheduleError(delay_seconds=60, extend_expiration_seconds=120)
        return context.task.reschedules

    task = await world.queue.submit("poll", ttl_seconds=61)
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.output, done.retries) == (TaskStatus.COMPLETED, 3, 0)
    assert done.expires_at == START + timedelta(seconds=61 + 3 * 120)


async def test_too_many_reschedules_fail(world: World) -> None:
    @world.app.task("poll")
    async def poll() -> None:
        raise rota.RescheduleError(delay_seconds=1)

    task = await world.queue.submit("poll", max_reschedules=2)
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.attempt) == (TaskStatus.FAILED, 3)


async def test_a_timeout_counts_as_a_failure(world: World) -> None:
    @world.app.task("slow", max_retries=0, timeout=timedelta(seconds=5))
    async def slow() -> None:
        await asyncio.sleep(3600)

    task = await world.queue.submit("slow")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.status is TaskStatus.FAILED
    assert "timeout of 5 s" in str(done.error)
    assert done.completed_at == START + 5 * SECOND


async def test_leases_are_renewed_while_a_handler_runs(world: World) -> None:
    @world.app.task("long")
    async def long() -> None:
        await asyncio.sleep(150)

    task = await world.queue.submit("long")
    async with world.running(lease=30):
        done = await world.queue.wait(task.id)
    assert (done.status, done.attempt) == (TaskStatus.COMPLETED, 1)


async def test_a_cancel_reaches_the_handler_and_ends_as_cancelled(world: World) -> None:
    ended = []

    @world.app.task("long")
    async def long() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(world.clock.now())

    task = await world.queue.submit("long")
    async with world.running():
        await world.at(MINUTE)
        asked = await world.queue.cancel(task.id, "not needed")
        assert (asked.status, asked.cancel_requested) == (TaskStatus.RUNNING, True)
        done = await world.queue.wait(task.id)
    assert (done.status, done.cancelled_by, done.cancel_reason) == ("cancelled", "tester", "not needed")
    assert ended == [START + MINUTE]


async def test_a_sync_handler_sees_the_cancel_request(world: World) -> None:
    started, seen = threading.Event(), []

    @world.app.task("loop")
    def loop(input: object, context: rota.Context) -> str:
        started.set()
        while not context.is_cancellation_requested:
            pass
        seen.append(True)
        return "stopped early"

    task = await world.queue.submit("loop")
    async with world.running():
        await asyncio.to_thread(started.wait)
        await world.queue.request_cancellation(task.id)
        done = await world.queue.wait(task.id)
    assert seen == [True]
    assert (done.status, done.output) == (TaskStatus.CANCELLED, "stopped early")


async def test_priorities_come_first_then_age(world: World) -> None:
    order = []

    @world.app.task("note")
    async def note(name: str) -> None:
        order.append(name)

    for name, priority in (("a", 128), ("b", 0), ("c", 255), ("d", 128)):
        await world.queue.submit("note", {"name": name}, priority=priority)
    async with world.running(concurrency=1):
        while len(order) < 4:
            await asyncio.sleep(1)
    assert order == ["c", "a", "d", "b"]


async def test_only_its_queues_and_kinds_are_claimed(world: World) -> None:
    @world.app.task("known")
    async def known() -> None: ...

    mine = await world.queue.submit("known", queue="mine")
    other = await world.queue.submit("known", queue="other")
    unknown = await world.queue.submit("unknown", queue="mine")
    async with world.running(queues=["mine"]):
        await world.queue.wait(mine.id)
        await world.at(MINUTE)
    assert (await world.queue.get(other.id)).status is TaskStatus.PENDING
    assert (await world.queue.get(unknown.id)).status is TaskStatus.PENDING


async def test_the_concurrency_limit_holds(world: World) -> None:
    crowd = Crowd(seconds=1)
    world.app.task("work")(crowd.handle)
    tasks = await world.queue.submit_many([("work", None)] * 20)
    async with world.running(concurrency=3):
        for task in tasks:
            await world.queue.wait(task.id)
    assert crowd.most == 3


async def test_a_delayed_task_starts_when_it_is_available(world: World) -> None:
    @world.app.task("note")
    async def note() -> str:
        return world.clock.now().isoformat()

    task = await world.queue.submit("note", schedule_at=START + timedelta(hours=5))
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.output == (START + timedelta(hours=5)).isoformat()


async def test_an_expired_task_is_never_started(world: World) -> None:
    @world.app.task("note")
    async def note() -> None: ...

    task = await world.queue.submit("note", schedule_at=START + timedelta(hours=2), ttl=timedelta(hours=1))
    async with world.running():
        await world.at(timedelta(hours=3))
    done = await world.queue.get(task.id)
    assert (done.status, done.attempt) == (TaskStatus.EXPIRED, 0)
    assert done.expired_at is not None
    assert not any(isinstance(signal, TaskStarted) for signal in world.signals)


async def test_zero_ttl_is_submitted_expired(world: World) -> None:
    task = await world.queue.submit("quick", ttl=0)
    assert task.status is TaskStatus.Expired


async def test_running_work_outlives_its_expiry(world: World) -> None:
    @world.app.task("long")
    async def long() -> str:
        await asyncio.sleep(600)
        return "done"

    task = await world.queue.submit("long", ttl=timedelta(minutes=1))
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.output) == (TaskStatus.COMPLETED, "done")


async def test_a_graceful_stop_lets_handlers_finish(world: World) -> None:
    @world.app.task("minute")
    async def minute() -> str:
        await asyncio.sleep(20)
        return "finished"

    task = await world.queue.submit("minute")
    async with world.running(shutdown_timeout=30):
        await world.at(SECOND)
    assert (await world.queue.get(task.id)).output == "finished"


async def test_a_graceful_stop_hands_back_what_does_not_finish(world: World) -> None:
    @world.app.task("hour")
    async def hour() -> None:
        await asyncio.sleep(3600)

    task = await world.queue.submit("hour")
    async with world.running(shutdown_timeout=30):
        await world.at(SECOND)
    back = await world.queue.get(task.id)
    assert (back.status, back.attempt, back.retries, back.lease_id) == (TaskStatus.PENDING, 0, 0, None)
    assert "handed back" in back.history[-1].detail
    assert world.clock.now() == START + 31 * SECOND


@pytest.mark.parametrize(("lease", "janitor", "within"), [(30, True, 45), (30, False, 45), (3, False, 9)])
async def test_a_lost_lease_is_noticed_and_changes_nothing(
    world: World, lease: int, janitor: bool, within: int
) -> None:
    """A node that cannot renew (its process was stopped) loses its task, to any worker; what it answers later is
    refused."""
    gate = asyncio.Event()

    @world.app.task("long")
    async def long(context: rota.Context) -> str:
        if context.attempt == 1:
            await gate.wait()
        return f"attempt {context.attempt}"

    task = await world.queue.submit("long")
    first = world.worker(lease=lease, scheduler=False, janitor=False, worker_id="first")
    await first.tasks.run_once()  # claims, then is never given another turn: as after SIGSTOP
    async with world.running(lease=lease, scheduler=False, janitor=janitor, worker_id="second"):
        done = await world.queue.wait(task.id)
        assert done.completed_at is not None
        assert done.completed_at < START + within * SECOND, "the lease, and a little"
        assert (done.output, done.attempt, done.retries) == ("attempt 2", 2, 1)
    gate.set()
    await asyncio.sleep(0)
    await first.tasks.run_once()
    assert await world.queue.get(task.id) == done
    assert any(isinstance(signal, LeaseLost) for signal in world.signals)
    first.tasks.close()


async def test_a_task_that_kills_its_workers_ends_as_failed(world: World) -> None:
    @world.app.task("killer", max_retries=2)
    async def killer() -> None:
        await asyncio.Event().wait()

    task = await world.queue.submit("killer")
    for number in range(3):
        victim = world.worker(lease=10, scheduler=False, janitor=False, worker_id=f"victim-{number}")
        await victim.tasks.run_once()
        await asyncio.sleep(11)
        await rota.Node(world.queue).run_once()
        victim.tasks.abandon_handlers()
        victim.tasks.close()
    done = await world.queue.get(task.id)
    assert (done.status, done.attempt) == (TaskStatus.FAILED, 3)
    assert "did not renew its lease" in str(done.error)


async def test_progress_and_logs_are_stored_while_it_runs(world: World) -> None:
    @world.app.task("report")
    async def report(input: object, context: rota.Context) -> None:
        context.log("begun")
        context.progress(0.5, "half way")
        await asyncio.sleep(60)
        await context.progress(1)
        context.log("done")

    task = await world.queue.submit("report")
    async with world.running():
        await world.at(10 * SECOND)
        seen = await world.queue.get(task.id)
        assert seen.progress == {"value": 0.5, "message": "half way"}
        assert [line.message for line in seen.logs] == ["begun"]
        done = await world.queue.wait(task.id)
    assert done.progress == 1
    assert [(line.attempt, line.message) for line in done.logs] == [(1, "begun"), (1, "done")]


async def test_an_extended_lease_lasts_without_renewal(world: World) -> None:
    @world.app.task("block")
    async def block(input: object, context: rota.Context) -> None:
        await context.extend_lease(timedelta(hours=1))
        await asyncio.Event().wait()

    task = await world.queue.submit("block")
    worker = world.worker(lease=10, scheduler=False, janitor=False)
    await worker.tasks.run_once()
    await asyncio.sleep(0.1)
    held = await world.queue.get(task.id)
    assert held.lease_expires_at is not None
    assert held.lease_expires_at >= START + timedelta(hours=1)
    worker.tasks.abandon_handlers()
    worker.tasks.close()


async def test_results_that_are_not_json_fail_without_a_retry(world: World) -> None:
    @world.app.task("odd")
    async def odd() -> object:
        return object()

    task = await world.queue.submit("odd")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.attempt) == (TaskStatus.FAILED, 1)
    assert "is not JSON" in str(done.error)


async def test_hooks_are_called_and_cannot_harm(world: World) -> None:
    calls: list[object] = []

    @world.app.task("ok")
    async def ok() -> int:
        return 7

    @world.app.task("bad", max_retries=0)
    async def bad() -> None:
        raise ValueError("boom")

    async def on_success(task: rota.Task, output: object) -> None:
        calls.append(("success", task.kind, output))
        raise RuntimeError("a hook that raises")

    def on_error(task: rota.Task, error: Exception) -> None:
        calls.append(("error", task.kind, str(error)))

    tasks = await world.queue.submit_many([("ok", None), ("bad", None)])
    async with world.running(
        on_startup=lambda: calls.append("up"),
        on_shutdown=lambda worker: calls.append("down"),
        on_success=on_success,
        on_error=on_error,
    ):
        for task in tasks:
            await world.queue.wait(task.id)
    assert calls[0] == "up"
    assert calls[-1] == "down"
    assert sorted(map(str, calls[1:-1])) == ["('error', 'bad', 'boom')", "('success', 'ok', 7)"]


async def test_a_replayed_task_runs_again(world: World) -> None:
    @world.app.task("flaky", max_retries=0)
    async def flaky(context: rota.Context) -> str:
        if context.attempt == 1:
            raise ValueError("first time")
        return "second time"

    task = await world.queue.submit("flaky")
    async with world.running():
        assert (await world.queue.wait(task.id)).status is TaskStatus.FAILED
        await world.queue.replay(task.id)
        done = await world.queue.wait(task.id)
    assert (done.status, done.output, done.error) == (TaskStatus.COMPLETED, "second time", None)


async def test_workflows_run_as_tasks_of_their_kind(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow, a: int) -> int:
        return a + 1

    task = await world.queue.submit("flow", {"a": 1})
    async with world.running():
        assert (await world.queue.wait(task.id)).output == 2


async def test_a_worker_of_its_own_registers_handlers_too(world: World) -> None:
    worker = rota.Worker(world.queue)

    @worker.task("mine")
    async def mine() -> str:
        return "ran"

    task = await world.queue.submit("mine")
    await worker.run_once()
    assert (await world.queue.get(task.id)).output == "ran"
    worker.tasks.close()


@pytest.mark.parametrize("wrong", [0, -1, "many", 1.5])
async def test_wrong_concurrency_is_refused(world: World, wrong: object) -> None:
    with pytest.raises(rota.Invalid, match=r"concurrency: .* is not accepted; give a whole number"):
        world.worker(concurrency=wrong)


async def test_a_startup_hook_that_raises_is_a_reason_not_to_start(world: World) -> None:
    def no_database() -> None:
        raise ConnectionError("no database")

    with pytest.raises(ConnectionError):
        await world.worker(on_startup=no_database).run(handle_signals=False)


async def test_a_timeout_of_the_handlers_own_making_is_a_failure_like_any_other(world: World) -> None:
    @world.app.task("impatient", max_retries=0)
    async def impatient() -> None:
        raise TimeoutError("the other side did not answer")

    @world.app.task("limited", max_retries=0, timeout=MINUTE)
    async def limited() -> None:
        raise TimeoutError("the other side did not answer")

    tasks = await world.queue.submit_many([("impatient", None), ("limited", None)])
    async with world.running():
        ended = [await world.queue.wait(task.id) for task in tasks]
    assert {(task.status, str(task.error)) for task in ended} == {
        (TaskStatus.FAILED, "TimeoutError: the other side did not answer")
    }


async def test_a_handler_reaches_only_the_tenant_of_its_task(world: World) -> None:
    @world.app.task("spawn")
    async def spawn(input: object, context: rota.Context) -> str:
        child: rota.Task = await context.queue.submit("child")
        return child.tenant

    other = world.queue.for_tenant("other")
    task = await other.submit("spawn")
    async with world.running(all_tenants=True):
        assert (await other.wait(task.id)).output == "other"
    assert await world.queue.count(kind="child") == 0


async def test_a_sync_handler_uses_the_queue_through_call(world: World) -> None:
    @world.app.task("spawn")
    def spawn(input: object, context: rota.Context) -> str:
        child: rota.Task = context.call(context.queue.submit("child", {"from": context.task.id}))
        return child.id

    task = await world.queue.submit("spawn")
    async with world.running():
        child = (await world.queue.wait(task.id)).output
    assert (await world.queue.get(child)).input == {"from": task.id}


async def test_unknown_options_get_a_sentence(world: World) -> None:
    with pytest.raises(rota.Invalid, match="colour: there is no such option; accepted are"):
        await world.queue.submit_many([("work", None)], colour="red")  # type: ignore[call-arg]  # on purpose
    with pytest.raises(rota.Invalid, match="id: it was given together with schedule_id"):
        await world.queue.create_schedule("x", id="y", task_type="work", cron="* * * * *")
