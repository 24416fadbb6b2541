"""What workflows do when nothing goes wrong, the traps that were seen, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus, testing
from rota.domain.model import StepKind
from rota.domain.workflow import Tried, Tries
from rota.engine.commands import record_steps
from worlds import DAY, HOUR, MINUTE, SECOND, START, World


async def finished(world: World, kind: str = "flow", input: Any = None, **options: Any) -> rota.Task:
    async with world.running():
        task = await world.queue.start_workflow(kind, input, **options)
        return await world.queue.wait(task.id, timeout=timedelta(days=400))


# Traps: each was seen in the code before


async def test_a_parked_run_with_a_ttl_does_not_expire(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        await ctx.sleep(HOUR)
        return "done"

    async with world.running():
        task = await world.queue.start_workflow("flow", ttl=60)
        await world.at(30 * MINUTE)
        assert (await world.queue.get(task.id)).status is TaskStatus.PENDING
        done = await world.queue.wait(task.id)
    assert done.output == "done"
    waits = await world.queue.start_workflow("flow", ttl=60)
    await world.at(2 * HOUR)
    assert (await world.queue.get(waits.id)).status is TaskStatus.EXPIRED, "it never began"


async def test_one_death_a_day_does_not_end_a_run_of_many_days(world: World) -> None:
    @world.app.workflow("flow", max_retries=2)
    async def flow(ctx: rota.Workflow) -> int:
        for _ in range(6):
            await ctx.sleep(DAY)
            await ctx.step(asyncio.sleep, 100, name="work")
        return 6

    task = await world.queue.start_workflow("flow")
    async with world.running():
        await world.at(HOUR)
    for day in range(1, 6):
        await world.at(day * (DAY + HOUR))
        worker = world.worker(worker_id=f"day-{day}")
        running = asyncio.create_task(worker.run(handle_signals=False))
        await testing.advance(5 * SECOND)
        assert (await world.queue.get(task.id)).worker_id == f"day-{day}"
        worker.tasks.abandon_handlers()  # it dies
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        async with world.running():
            await testing.advance(30 * MINUTE)
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.output, done.retries) == (TaskStatus.COMPLETED, 6, 0)
    assert sum(line.type == "lease_lost" for line in done.history) == 5
    assert done.started_at == START


async def test_deaths_count_anew_after_each_step(world: World) -> None:
    @world.app.workflow("flow", max_retries=1)
    async def flow(ctx: rota.Workflow) -> int:
        for _ in range(4):
            await ctx.step(asyncio.sleep, 100, name="work")
        return 4

    task = await world.queue.start_workflow("flow")
    for death in range(3):
        worker = world.worker(worker_id=f"worker-{death}")
        running = asyncio.create_task(worker.run(handle_signals=False))
        await testing.advance(150 * SECOND)
        assert (await world.queue.get(task.id)).worker_id == f"worker-{death}"
        worker.tasks.abandon_handlers()  # it dies in the middle of a step
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await testing.advance(MINUTE)
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.output) == (TaskStatus.COMPLETED, 4)
    assert sum(line.type == "lease_lost" for line in done.history) == 3


async def test_a_start_and_progress_are_kept_over_waits(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        ctx.progress(1, "first")
        ctx.log("before")
        await ctx.sleep(HOUR)
        ctx.log("between")
        await ctx.step(lambda: None, name="nothing")
        await ctx.sleep(HOUR)

    async with world.running():
        task = await world.queue.start_workflow("flow")
        await world.at(90 * MINUTE)
        waits = await world.queue.get(task.id)
        assert (waits.started_at, waits.progress) == (START, {"value": 1, "message": "first"})
        done = await world.queue.wait(task.id)
    assert [line.message for line in done.logs] == ["before", "between"], "silent while it is replayed"
    assert (done.started_at, done.progress) == (START, {"value": 1, "message": "first"})


async def test_a_hundred_sleeps_leave_the_history_alone(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        for _ in range(100):
            await ctx.sleep(MINUTE)

    done = await finished(world)
    assert [line.type for line in done.history] == ["created", "claimed", "completed"]
    assert world.clock.now() == START + 100 * MINUTE


async def test_a_worker_that_stops_in_the_middle_loses_nothing(world: World) -> None:
    ran: list[int] = []

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> list[int]:
        async def work(n: int) -> int:
            await asyncio.sleep(20)
            ran.append(n)
            return n

        return [await ctx.step(work, n) for n in range(3)]

    task = await world.queue.start_workflow("flow")
    async with world.running(shutdown_timeout=1):
        await world.at(30 * SECOND)
    stopped = await world.queue.get(task.id)
    assert (stopped.status, ran) == (TaskStatus.PENDING, [0])
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.output, ran, done.retries) == ([0, 1, 2], [0, 1, 2], 0)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("limit", [None, 60])
async def test_a_step_that_cancels_itself_has_failed(world: World, limit: int | None, is_last: bool) -> None:
    ran = 0

    async def cancels() -> None:
        nonlocal ran
        ran += 1
        current = asyncio.current_task()
        assert current is not None
        if ran == 1:
            current.cancel()
        if not is_last:
            await asyncio.sleep(1)

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        try:
            await ctx.step(cancels, retries=0, timeout=limit)
        except rota.StepFailed as failed:
            return str(failed)
        return "went on"

    assert "CancelledError" in (await finished(world)).output


@pytest.mark.parametrize("is_last", [True, False])
async def test_an_answer_that_another_worker_recorded_first_counts(world: World, is_last: bool) -> None:
    started: list[str] = []

    async def work() -> str:
        held = await world.queue.get(started[0])
        first = Tried(key="work", kind=StepKind.STEP, started_at=START, output="first")
        await world.store.transact(record_steps(held, Tries(results=(first,), number=1), []))
        return "second"

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        started.append(ctx.task.id)
        answer: str = await ctx.step(work)
        return answer if is_last else await ctx.step(lambda: answer, name="more")

    done = await finished(world)
    assert (done.output, done.retries, len(started)) == ("first", 0, 2)
    steps = await world.queue.steps(done.id)
    assert [step.output for step in steps] == (["first"] if is_last else ["first", "first"])


async def test_the_last_step_is_recorded_with_the_end(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> int:
        return sum([await ctx.step(lambda: 1, name="one"), await ctx.step(lambda: 2, name="two")])

    done = await finished(world)
    [one, two] = await world.queue.steps(done.id)
    assert (done.output, one.number, two.number) == (3, 1, 2)
    assert (two.updated_at, two.version) == (done.updated_at, 1)


async def test_a_wait_holds_no_worker(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow, n: int) -> int:
        await ctx.sleep(DAY)
        return n

    world.app.task("other")(lambda: "ran")
    async with world.running(concurrency=1):
        sleeping = [await world.queue.start_workflow("flow", {"n": n}) for n in range(20)]
        await world.at(HOUR)
        other = await world.queue.wait((await world.queue.submit("other")).id)
        assert other.completed_at == START + HOUR
        done = [await world.queue.wait(each.id) for each in sleeping]
    assert [each.output for each in done] == list(range(20))
    assert done[-1].completed_at == START + DAY


# Steps


async def test_a_step_is_tried_again_and_holds_no_worker_meanwhile(world: World) -> None:
    tries: list[datetime] = []

    def flaky() -> str:
        tries.append(world.clock.now())
        if len(tries) < 3:
            raise rota.RetryableError("busy", delay_seconds=3600)
        return "at last"

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        return await ctx.step(flaky)

    done = await finished(world)
    assert done.output == "at last"
    assert tries == [START, START + HOUR, START + 2 * HOUR]
    [step] = await world.queue.steps(done.id)
    assert (step.attempts, step.status, step.error) == (3, "completed", None)


async def test_the_last_failure_of_a_step_is_raised_and_recorded(world: World) -> None:
    async def bad() -> None:
        raise ValueError("no")

    @world.app.workflow("caught")
    async def caught(ctx: rota.Workflow) -> Any:
        try:
            await ctx.step(bad, retries=1)
        except rota.StepFailed as failed:
            await ctx.sleep(HOUR)
            return [failed.step, str(failed.failure)]

    @world.app.workflow("grouped")
    async def grouped(ctx: rota.Workflow) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(bad, retries=0))

    @world.app.workflow("escapes")
    async def escapes(ctx: rota.Workflow) -> None:
        await ctx.step(lambda: 1, name="good")
        await ctx.step(bad, retries=1)

    assert (await finished(world, "caught")).output == ["bad", "ValueError: no"]
    from_group = await finished(world, "grouped")
    assert (from_group.status, from_group.retries) == (TaskStatus.FAILED, 0)
    assert str(from_group.error).endswith("(1 sub-exception); StepFailed: bad: ValueError: no")
    failed = await finished(world, "escapes")
    assert (failed.status, failed.retries) == (TaskStatus.FAILED, 0)
    assert str(failed.error) == "StepFailed: bad: ValueError: no"
    assert [step.attempts for step in await world.queue.steps(failed.id)] == [1, 2]


async def test_a_replay_goes_on_where_it_failed_or_from_a_step(world: World) -> None:
    ran: list[str] = []
    works = False

    def act(name: str) -> str:
        ran.append(name)
        if name == "b" and not works:
            raise rota.PermanentError("not yet")
        return name

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> list[str]:
        return [await ctx.step(act, name, name=name) for name in "abc"]

    failed = await finished(world)
    assert (failed.status, ran) == (TaskStatus.FAILED, ["a", "b"])
    works = True
    async with world.running():
        again = await world.queue.replay(failed.id)
        assert again.rewinds == 1
        done = await world.queue.wait(failed.id)
    assert (done.output, ran) == (["a", "b", "c"], ["a", "b", "b", "c"])
    with pytest.raises(rota.Refused, match="only a failed or cancelled task"):
        await world.queue.replay(failed.id, from_step="b")


async def test_a_replay_from_a_step_keeps_what_came_before(world: World) -> None:
    ran: list[str] = []

    def act(name: str) -> str:
        ran.append(name)
        if ran.count("d") == 1 and name == "d":
            raise rota.PermanentError("not yet")
        return name

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> list[str]:
        return [await ctx.step(act, name, name=name) for name in "abcd"]

    failed = await finished(world)
    with pytest.raises(rota.Refused, match="has no step 'z'"):
        await world.queue.replay(failed.id, from_step="z")
    async with world.running():
        await world.queue.replay(failed.id, from_step="b")
        done = await world.queue.wait(failed.id)
    assert (done.output, "".join(ran)) == (list("abcd"), "abcd" + "bcd")


async def test_a_step_has_its_own_time_and_the_run_a_deadline(world: World) -> None:
    @world.app.workflow("flow", timeout=HOUR)
    async def flow(ctx: rota.Workflow, wait: str) -> None:
        if wait == "step":
            await ctx.step(asyncio.sleep, 100, timeout=5, retries=0)
        elif wait == "long step":
            await ctx.step(asyncio.sleep, 100_000)
        else:
            await ctx.receive("never")

    assert "sleep: TimeoutError: ran longer than its timeout of 5 s" in str(
        (await finished(world, input={"wait": "step"})).error
    )
    for wait in ("long step", "signal"):
        began = world.clock.now()
        late = await finished(world, input={"wait": wait})
        assert (late.status, str(late.error)) == (
            "failed",
            "TimeoutError: ran longer than its timeout of 3600 s",
        )
        assert world.clock.now() - began == HOUR
    async with world.running():
        await world.queue.replay(late.id)
        await world.at(world.clock.now() - START + 30 * MINUTE)
        assert (await world.queue.get(late.id)).is_live, "it has its time anew"


async def test_an_idempotency_key_is_the_same_for_each_try(world: World) -> None:
    keys: list[str] = []

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        def charge() -> str:
            keys.append(ctx.idempotency_key)
            if len(keys) == 1:
                raise OSError("line broke")
            return threading.current_thread().name

        return str(await ctx.step(charge)) + ctx.idempotency_key

    done = await finished(world)
    assert "rota-step" in done.output
    assert keys[0] == keys[1] == (await world.queue.steps(done.id))[0].id
    assert keys[0] not in done.output


async def test_the_first_run_gets_what_a_replay_would(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        got = await ctx.step(lambda: {"pair": (1, 2), "none": None}, name="make")
        got["pair"].append(3)
        return [got, await ctx.step(lambda: got["pair"], name="seen")]

    assert (await finished(world)).output == [{"pair": [1, 2, 3], "none": None}, [1, 2, 3]]


# Signals and children


async def test_signals_wait_for_their_receiver_in_order(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        got = []
        async with asyncio.TaskGroup():
            while (word := await ctx.receive("word")) != "end":
                got.append(word)
        try:
            await ctx.receive("nothing", timeout=MINUTE)
        except TimeoutError as late:
            got.append(str(late))
        return got

    task = await world.queue.start_workflow("flow", signals={"word": "zero"}, idempotency_key="one")
    again = await world.queue.start_workflow("flow", signals={"word": "first"}, idempotency_key="one")
    assert (again.id, again.unread_signals) == (task.id, 2)
    for word in ("a", "b", "end"):
        await world.queue.signal(task.id, "word", word)
    await world.queue.signal(task.id, "other", "unread")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert done.output == ["zero", "first", "a", "b", "no signal 'nothing' came in time"]
    assert done.unread_signals == 1


async def test_a_signal_that_comes_second_in_a_race_is_not_lost(world: World) -> None:
    """Both are there when the code is asked again: the other is still to be received."""

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        first, one = await ctx.first(a=ctx.receive("a"), b=ctx.receive("b"))
        other = await ctx.receive("b" if first == "a" else "a")
        late, _ = await ctx.first(c=ctx.receive("c"), late=ctx.sleep(MINUTE))
        both = await asyncio.gather(*[ctx.receive("d", key=n) for n in range(2)])
        return [one, other, late, await ctx.receive("c"), both]

    task = await world.queue.start_workflow("flow")
    for name in ("b", "a"):
        await world.queue.signal(task.id, name, name)
        await testing.advance(SECOND)
    async with world.running():
        await world.at(10 * SECOND)
    await world.at(2 * MINUTE)  # no worker was there when the time was up
    await world.queue.signal(task.id, "c", "c")
    await world.queue.signal(task.id, "d", 1)
    async with world.running():
        await world.queue.signal(task.id, "d", 2)
        done = await world.queue.wait(task.id)
    assert done.output == ["b", "a", "late", "c", [1, 2]]


async def test_a_signal_after_the_deadline_comes_too_late_whenever_somebody_looks(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> str:
        label, _ = await ctx.first(paid=ctx.receive("paid", timeout=HOUR), late=ctx.sleep(2 * HOUR))
        return label

    async with world.running():
        task = await world.queue.start_workflow("flow")
        await world.at(MINUTE)
    await world.at(3 * HOUR)  # nobody works
    await world.queue.signal(task.id, "paid")
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, done.output) == (TaskStatus.FAILED, None)
    assert "no signal 'paid' came in time" in str(done.error)


async def test_signals_are_refused_where_nobody_could_receive_them(world: World) -> None:
    world.app.task("plain")(lambda: None)
    plain = await world.queue.submit("plain")
    flow = await world.queue.start_workflow("flow")
    with pytest.raises(rota.Refused, match="is a plain, which is no workflow"):
        await world.queue.signal(plain.id, "x")
    with pytest.raises(rota.NotFound):
        await world.queue.signal("nobody", "x")
    for name, payload in (("", 1), ("x", object()), (3, 1)):
        with pytest.raises(rota.Invalid):
            await world.queue.signal(flow.id, name, payload)  # type: ignore[arg-type]
    await world.queue.cancel(flow.id)
    with pytest.raises(rota.Refused, match="already cancelled"):
        await world.queue.signal(flow.id, "x")


async def test_a_signal_reaches_a_run_whose_other_branch_is_busy(world: World) -> None:
    heard: list[datetime] = []

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        async def listen() -> Any:
            found = await ctx.receive("stop")
            heard.append(world.clock.now())
            await ctx.sleep(10)
            return [found, await ctx.step(lambda: "after", name="after")]

        return await asyncio.gather(ctx.step(asyncio.sleep, 3600, name="long"), listen())

    async with world.running():
        task = await world.queue.start_workflow("flow")
        await world.at(10 * MINUTE)
        await world.queue.signal(task.id, "stop", "now")
        done = await world.queue.wait(task.id)
    assert done.output == [None, ["now", "after"]]
    assert heard[0] - START - 10 * MINUTE <= 2 * SECOND
    assert done.completed_at == START + HOUR
    times = {step.key: step.completed_at for step in await world.queue.steps(task.id)}
    assert times["after"] - START < 11 * MINUTE  # type: ignore[operator]


async def test_children_fail_are_cancelled_and_expire(world: World) -> None:
    @world.app.task("bad", max_retries=0)
    async def bad() -> None:
        raise ValueError("broken")

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        asked = [
            ctx.child("bad"),
            ctx.child("nobody", ttl=5),
            ctx.child("nobody", key="cancelled", queue="elsewhere"),
            ctx.child("flow.inner", {"n": 1}),
        ]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [str(each) for each in found]

    @world.app.workflow("flow.inner")
    async def inner(ctx: rota.Workflow, n: int) -> int:
        await ctx.sleep(MINUTE)
        return n

    async with world.running():
        task = await world.queue.start_workflow("flow")
        await world.at(30 * SECOND)
        [elsewhere] = await world.tasks(queue="elsewhere")
        assert (elsewhere.parent_id, elsewhere.is_workflow) == (task.id, False)
        await world.queue.cancel(elsewhere.id, "not needed")
        done = await world.queue.wait(task.id)
    assert done.output == [
        "child:bad: ValueError: broken",
        "child:nobody: Expired",
        "child:nobody[cancelled]: Cancelled: not needed",
        "1",
    ]
    [started] = await world.tasks(kind="flow.inner")
    assert (started.is_workflow, started.workflow_version) == (True, 1)


async def test_children_do_not_outlive_their_workflow(world: World) -> None:
    world.app.task("slow")(lambda: None)

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        return (await ctx.first(child=ctx.child("slow", queue="nowhere"), late=ctx.sleep(MINUTE)))[0]

    async with world.running(queues=["default"]):
        done = await world.queue.wait((await world.queue.start_workflow("flow")).id)
        assert done.output == "late"
        [child] = await world.tasks(kind="slow")
    assert (child.status, child.cancel_reason) == ("cancelled", "the workflow that started it has ended")


async def test_a_map_has_a_limit_and_keeps_the_order(world: World) -> None:
    now, most = 0, 0

    @world.app.task("one")
    async def one(input: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(10 - input)
        now -= 1
        return input * 2

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> Any:
        return await ctx.map(one, range(10), key=lambda item: item, limit=4)

    done = await finished(world)
    assert (done.output, most) == ([n * 2 for n in range(10)], 4)


# Restart


async def test_a_restart_is_the_same_run_without_its_steps(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow, input: int) -> Any:
        await ctx.step(lambda: input, name="count")
        if input < 3:
            await ctx.sleep(MINUTE)
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.restart(input + 1))
        return [input, await ctx.receive("kept")]

    async with world.running():
        task = await world.queue.start_workflow("flow", 0)
        await world.queue.signal(task.id, "kept", "signal")
        done = await world.queue.wait(task.id)
    assert (done.id, done.output, done.rewinds) == (task.id, [3, "signal"], 3)
    assert [step.key for step in await world.queue.steps(task.id)] == ["count", "receive:kept"]
    assert len((await world.store.snapshot())["step"]) == 2
    assert len(done.history) == 3


async def test_a_year_of_a_subscription(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charged each month, reminded before; it ends by a signal. Each month is a run of its own, with the same id."""
    monkeypatch.setattr(rota.Worker, "always_sweeps", False)  # a month has many sweeps
    world.jumps_looked_for = 30 * DAY
    log: list[tuple[str, str]] = []

    def note(what: str) -> None:
        log.append((what, f"{world.clock.now():%m-%d}"))

    @world.app.workflow("subscription")
    async def subscription(ctx: rota.Workflow, input: dict[str, Any]) -> dict[str, Any]:
        at = datetime.fromisoformat(input["at"])
        follows = (at.replace(day=1) + timedelta(days=32)).replace(day=1)
        await ctx.step(note, "charge", name="charge")
        for wake, what in ((follows - 3 * DAY, "remind"), (follows, "")):
            label, why = await ctx.first(over=ctx.receive("cancel"), next=ctx.sleep(wake))
            if label == "over":
                await ctx.step(note, "goodbye", name="goodbye")
                return {"charged": input["charged"] + 1, "why": why}
            if what:
                await ctx.step(note, what, name=what)
        return await ctx.restart({"at": follows.isoformat(), "charged": input["charged"] + 1})

    async with world.running(janitor=False):
        task = await world.queue.start_workflow("subscription", {"at": START.isoformat(), "charged": 0})
        await world.at(datetime(2026, 12, 24, tzinfo=UTC))
        await world.queue.signal(task.id, "cancel", "moved")
        done = await world.queue.wait(task.id)
    assert done.output == {"charged": 12, "why": "moved"}
    assert [at for what, at in log if what == "charge"] == [f"{month:02}-01" for month in range(1, 13)]
    reminded = [at for what, at in log if what == "remind"]
    assert (reminded[:4], len(reminded)) == (["01-29", "02-26", "03-29", "04-28"], 11)
    assert log[-1] == ("goodbye", "12-24")
    assert len(done.history) == 3


# Refusals


async def blocked(ctx: rota.Workflow) -> None:
    await asyncio.Event().wait()


async def sleeps(ctx: rota.Workflow) -> None:
    await asyncio.sleep(1)


async def threads(ctx: rota.Workflow) -> None:
    await asyncio.to_thread(print)


async def same_key(ctx: rota.Workflow) -> None:
    await ctx.step(lambda: 1, name="a", key=1)
    await ctx.step(lambda: 1, name="a", key=1)


async def unkeyed(ctx: rota.Workflow) -> None:
    await asyncio.gather(ctx.step(lambda: 1, name="a"), ctx.step(lambda: 1, name="a"))


async def unkeyed_branches(ctx: rota.Workflow) -> None:
    async def branch(seconds: int) -> None:
        await ctx.sleep(seconds, key=seconds)
        await ctx.step(lambda: 1, name="a")
        await ctx.sleep(10, key=seconds + 10)

    await asyncio.gather(branch(1), branch(2))


async def unkeyed_and_far_apart(ctx: rota.Workflow) -> None:
    """The first branch has ended when the other comes. After a crash both may come at once."""

    async def branch(seconds: int) -> None:
        await ctx.sleep(seconds, key=seconds)
        await ctx.step(lambda: 1, name="a")

    await asyncio.gather(branch(1), branch(2))


async def unkeyed_beside_a_group(ctx: rota.Workflow) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.step(lambda: 1, name="a"))
        await ctx.sleep(5)
        await ctx.step(lambda: 2, name="a")


async def unkeyed_and_not_awaited(ctx: rota.Workflow) -> None:
    first = ctx.step(lambda: 1, name="a")
    await ctx.sleep(5)
    try:
        await ctx.step(lambda: 2, name="a")
    finally:
        await first


async def not_awaited(ctx: rota.Workflow) -> None:
    ctx.step(lambda: 1, name="a")  # type: ignore[unused-coroutine]  # this is the fault
    await ctx.step(lambda: 1, name="b")


async def no_name(ctx: rota.Workflow) -> None:
    await ctx.step(lambda: 1)


async def not_json(ctx: rota.Workflow) -> None:
    await ctx.step(lambda: object(), name="a")


async def inside(ctx: rota.Workflow) -> None:
    async def step() -> None:
        await ctx.step(lambda: 1, name="inner")

    await ctx.step(step, retries=0)


async def restarts_inside(ctx: rota.Workflow) -> None:
    async def step() -> None:
        await ctx.restart(1)

    await ctx.step(step, retries=0)


async def unknown(ctx: rota.Workflow) -> None:
    await ctx.child(finished)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (blocked, "waits for something that can never come"),
        (sleeps, "wait with `await ctx.sleep"),
        (threads, "do it in a step"),
        (same_key, "has asked for 'a[1]' before"),
        (unkeyed, "calls 'a' in branches that run at the same time; give each call a key="),
        (unkeyed_branches, "calls 'a' in branches that run at the same time"),
        (unkeyed_and_far_apart, "calls 'a' in branches that run at the same time"),
        (unkeyed_beside_a_group, "calls 'a' in branches that run at the same time"),
        (unkeyed_and_not_awaited, "calls 'a' in branches that run at the same time"),
        (not_awaited, "has ended and never awaited 'a'; write `await ctx.step"),
        (no_name, "'<lambda>' cannot be the name of a step; give name="),
        (not_json, "a: PermanentError: the step's result cannot be stored: output: a value of type object"),
        (inside, "the context of a workflow works only inside its function"),
        (restarts_inside, "the context of a workflow works only inside its function"),
        (unknown, "is no handler of this app"),
    ],
)
async def test_refusals(world: World, code: Any, problem: str) -> None:
    world.app.workflow("flow", max_retries=0)(code)
    done = await finished(world)
    assert done.status is TaskStatus.FAILED
    assert problem in str(done.error)


async def test_repeats_of_branches_that_come_one_after_the_other_need_no_key(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        def act() -> Any:
            return ctx.step(lambda: None, name="a")

        async def later() -> None:
            await ctx.sleep(1, key="later")
            await act()

        await act()
        await asyncio.gather(act(), ctx.step(lambda: None, name="b"))
        async with asyncio.TaskGroup() as group:
            group.create_task(act())
            group.create_task(ctx.step(lambda: None, name="b"))
        await asyncio.create_task(later())
        for _ in range(2):
            await ctx.first(word=ctx.receive("word"), late=ctx.sleep(1))
        await asyncio.gather(later_but_keyed(ctx), act())
        await act()

    async def later_but_keyed(ctx: rota.Workflow) -> None:
        await ctx.sleep(1)
        await ctx.step(lambda: None, name="a", key="other")

    done = await finished(world)
    assert (done.status, done.error) == (TaskStatus.COMPLETED, None)
    keys = {step.key for step in await world.queue.steps(done.id)}
    assert {"a", "a#2", "a#3", "a#4", "a#5", "a#6", "b#2", "receive:word#2", "sleep#3"} <= keys


async def test_too_many_steps_are_refused_with_the_way_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.domain.workflow.MOST_STEPS", 20)

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        while True:
            await ctx.step(lambda: 1, name="again")

    done = await finished(world)
    assert "has 20 steps, the most it may have; go on with `await ctx.restart(input)`" in str(done.error)


async def test_a_context_is_of_no_use_after_the_end(world: World) -> None:
    kept: list[rota.Workflow] = []

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        kept.append(ctx)

    await finished(world)
    with pytest.raises(rota.Refused, match="or after the end"):
        await kept[0].sleep(1)


async def test_what_is_kept_long_enough_goes_with_its_steps(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        await ctx.step(lambda: 1, name="one")
        await ctx.receive("word")

    async with world.running():
        task = await world.queue.start_workflow("flow", signals={"word": 1})
        await world.queue.wait(task.id)
        await world.at(9 * DAY)
    state = await world.store.snapshot()
    assert (state["task"], state["step"], state["signal"]) == ([], [], [])
