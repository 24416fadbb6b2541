"""A clock that was an hour ahead and is set back: on every store, with a scheduler that saw it and with one that starts
later."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise, product
from typing import Any

import pytest
from msgspec.structs import replace

import rota
from rota import RunReason, RunStatus, TaskStatus
from rota.engine.node import Node
from rota.engine.observe.telemetry import ClockSetBack
from rota.engine.queries.health import check_health
from rota.engine.roles.jumps_and_blocks import JumpWatch
from rota.engine.roles.set_back import SetBack
from simulation.faults import Fault, FaultyStore
from worlds import DAY, EVERY_STORE, HOUR, MINUTE, SECOND, START, STORES, THOROUGH, World, on_any_store

ALONE = {"scheduler": False, "janitor": False}
"""Of a worker: all that `rota worker` runs."""


def handle(world: World) -> list[str]:
    """The ids of the tasks that ran, in order."""
    ran: list[str] = []

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        ran.append(context.task.id)

    return ran


def ahead(world: World, by: timedelta = HOUR) -> None:
    world.clock.step(by)


def back(world: World, by: timedelta = HOUR) -> None:
    world.clock.step(-by)


QUICK: list[dict[str, Any]] = [
    {"cron": "* * * * *"},
    {"interval": 60},
    {"rrule": "FREQ=MINUTELY"},
    {"cron": "* * * * *", "overlap_policy": "allow", "missed_run_policy": "execute_once"},
]


STEPS = [
    (store, options, created)
    for store, options, created in product(EVERY_STORE, QUICK, ["before", "meanwhile"])
    if THOROUGH
    or (store in STORES and (store == "memory" or options is QUICK[0]))
    or (store, options, created) == ("postgres", QUICK[0], "meanwhile")
]
"""How a timing is planned is no matter of the store. That a step is seen and the plan is written is."""


@pytest.mark.parametrize(("world", "options", "created"), STEPS, indirect=["world"], ids=str)
async def test_a_running_scheduler_goes_on_after_a_step_back(
    world: World, options: dict[str, Any], created: str
) -> None:
    handle(world)
    world.jumps_looked_for = SECOND
    if created == "before":
        await world.schedule(**options)
    async with world.running():
        await asyncio.sleep(150)
        ahead(world)
        if created == "meanwhile":
            await world.schedule(**options)
        await asyncio.sleep(200)
        back(world)
        stepped = world.clock.now()
        await asyncio.sleep(185)
        rows = [row for row in await world.ledger("s") if stepped < row.scheduled_at <= world.clock.now()]
    assert [row.status for row in rows] == [RunStatus.COMPLETED] * 3, "one a minute, as ever"
    assert any(isinstance(signal, ClockSetBack) for signal in world.signals)
    (event,) = [each for each in await world.queue.schedule_history("s") if each.action == "replanned"]
    assert event.detail == "the clock was set back: planned anew from now"


@on_any_store
@pytest.mark.parametrize("options", [*QUICK, {"rrule": "FREQ=MINUTELY;COUNT=100"}], ids=str)
@pytest.mark.parametrize(
    "rest",
    [
        "paused",
        "draft",
        "paused later",
        "deleted",
        "edited",
        "edited to be active",
        "paused after",
        "deleted after",
        "paused and deleted",
    ],
)
async def test_what_was_at_rest_meanwhile_begins_when_it_is_activated(
    world: World, options: dict[str, Any], rest: str
) -> None:
    handle(world)
    ahead(world)
    await world.schedule(**options, status=rest if rest in ("paused", "draft") else "active")
    if rest in ("paused later", "paused and deleted"):
        await world.queue.pause_schedule("s")
    if rest in ("deleted", "paused and deleted"):
        await world.queue.delete_schedule("s")
    if rest.startswith("edited"):
        await world.queue.pause_schedule("s")
    back(world)
    if rest == "edited":
        await world.queue.update_schedule("s", description="seen after the step, before any node")
    if rest == "paused after":
        await world.queue.pause_schedule("s")
    if rest == "deleted after":
        await world.queue.delete_schedule("s")
    async with world.running():
        await asyncio.sleep(5)
        if "deleted" in rest:
            await world.queue.restore_schedule("s")
        if rest.startswith("deleted"):
            pass
        elif rest == "edited to be active":
            await world.queue.update_schedule("s", status="active")
        else:
            await world.queue.resume_schedule("s")
        await asyncio.sleep(190)
        assert [row.status for row in await world.ledger("s")] == [RunStatus.COMPLETED] * 3
        await world.queue.pause_schedule("s")
        before = await world.queue.get_schedule("s")
        resumed = await world.queue.resume_schedule("s")
    assert resumed.timing == before.timing, "brought back once"


@on_any_store
async def test_an_edit_before_any_node_has_looked_plans_from_now(world: World) -> None:
    """What it has written shows no longer that the clock was ahead."""
    ahead(world)
    await world.schedule(interval=60)
    back(world)
    edited = await world.queue.update_schedule("s", description="an edit that is not about times")
    assert edited.next_run_at is not None
    assert edited.next_run_at <= world.clock.now() + MINUTE


@on_any_store
async def test_a_backfill_before_any_node_has_looked_plans_from_now(world: World) -> None:
    ahead(world)
    await world.schedule(interval=60)
    back(world)
    await world.queue.backfill("s", START - HOUR, START)
    begun = await world.queue.get_schedule("s")
    assert begun.next_run_at is not None
    assert begun.next_run_at <= world.clock.now() + MINUTE
    ahead(world)
    await world.queue.update_schedule("s", interval=120)
    back(world)
    await world.queue.cancel_backfill("s")
    ended = await world.queue.get_schedule("s")
    assert ended.next_run_at is not None
    assert ended.next_run_at <= world.clock.now() + 2 * MINUTE


@pytest.mark.parametrize("policy", ["skip", "buffer_one"])
async def test_times_that_were_skipped_ahead_run_though_a_backfill_came_first(
    world: World, policy: Any
) -> None:
    handle(world)
    ahead(world)
    await world.schedule(interval=60, overlap_policy=policy, missed_run_policy="skip")
    for after in (61 * SECOND, 10 * MINUTE + SECOND):
        await world.at(HOUR + after)
        await world.queue.run_due()
    ran = {row.scheduled_at for row in await world.ledger("s") if row.status == RunStatus.RUNNING}
    assert {RunStatus.SKIPPED} < {row.status for row in await world.ledger("s")}
    back(world)
    await world.queue.backfill("s", START - HOUR, START - HOUR)
    async with world.running():
        await asyncio.sleep(2 * 3600)
    left = [row for row in await world.ledger("s") if row.status != RunStatus.COMPLETED]
    assert [row.scheduled_at for row in left if row.scheduled_at not in ran] == []


@pytest.mark.parametrize("first", ["a node", "an edit"])
async def test_a_time_whose_task_expired_comes_again(world: World, first: str) -> None:
    """No other schedule waits for it."""
    await world.schedule(cron="* * * * *", ttl=5)
    ahead(world)
    await world.at(HOUR + 65 * SECOND)
    await world.queue.run_due()
    async with world.running(scheduler=False) as worker:
        assert worker.janitor is not None
        worker.janitor.look_again = SECOND
        await world.at(HOUR + 75 * SECOND)
    assert len(await world.tasks(status="expired")) == 1
    back(world, 20 * SECOND)
    if first == "an edit":
        await world.queue.update_schedule("s", description="edited")
    ran = handle(world)
    async with world.running():
        await asyncio.sleep(30)
    assert {f"{task.status}" for task in await world.tasks()} == {"expired", "completed"}
    assert len(ran) == 1


async def test_a_time_that_waited_is_started_before_any_node_has_looked(world: World) -> None:
    """By the end of the run before. The schedule is planned from now then."""

    @world.app.task("work")
    async def work() -> None:
        await asyncio.sleep(150)

    ahead(world)
    await world.schedule(interval=60, overlap_policy="buffer_one")
    async with world.running(scheduler=False) as worker:
        worker.jump_watch.every = DAY
        worker.set_back.stepped_back = lambda: None  # type: ignore[method-assign]
        await world.at(HOUR + 61 * SECOND)
        await world.queue.run_due()
        await world.at(HOUR + 121 * SECOND)
        await world.queue.run_due()
        assert (await world.queue.get_schedule("s")).buffered
        back(world)
        await asyncio.sleep(200)
        found = await world.queue.get_schedule("s")
    assert not found.buffered
    assert found.next_run_at is not None
    assert found.next_run_at <= world.clock.now() + MINUTE


async def test_an_interval_that_is_to_begin_later_keeps_its_anchor(world: World) -> None:
    later = START + timedelta(hours=5)
    ahead(world)
    await world.schedule(interval=60, start_at=later, status="paused")
    back(world)
    resumed = await world.queue.resume_schedule("s")
    assert resumed.next_run_at == later


async def test_a_time_that_had_its_run_does_not_run_again(world: World) -> None:
    ran = handle(world)
    await world.schedule(cron="* * * * *", max_runs=100)
    ahead(world, 10 * MINUTE)
    async with world.running():
        await asyncio.sleep(190)
    assert len(ran) == 4
    back(world, 10 * MINUTE)
    async with world.running():
        await asyncio.sleep(20 * 60)
    rows = await world.ledger("s")
    times = [row.scheduled_at for row in rows]
    assert len(set(times)) == len(times), "one row for each"
    assert len(ran) == len(set(ran)) == sum(row.status is RunStatus.COMPLETED for row in rows)
    assert (await world.queue.get_schedule("s")).run_count == len(ran)


@pytest.mark.parametrize("hours", [1, 30])
async def test_what_was_skipped_too_soon_is_expected_again(world: World, hours: int) -> None:
    """When the clock went ahead, the times in between were missed. They had not come yet."""
    handle(world)
    await world.schedule(cron="* * * * *")
    await world.at(90 * SECOND)
    ahead(world, hours * HOUR)
    await world.queue.run_due()
    assert sum(row.count for row in await world.ledger("s") if row.reason is RunReason.MISSED) > 50
    back(world, hours * HOUR)
    async with world.running():
        await asyncio.sleep(10 * 60)
    rows = [row for row in await world.ledger("s") if row.scheduled_at <= world.clock.now()]
    assert [row.status for row in rows] == [RunStatus.SKIPPED] + [RunStatus.COMPLETED] * 10
    assert {row.count for row in rows} == {1}


async def test_a_clock_that_goes_back_uses_up_no_max_runs(world: World) -> None:
    """By little: nothing is planned anew, and the time that had its run comes again."""
    await world.schedule(cron="* * * * *", max_runs=2, overlap_policy="allow")
    await world.at(MINUTE)
    await world.queue.run_due()
    old = await world.queue.get_schedule("s")
    back(world, SECOND)

    async def as_it_was(tx: Any) -> None:
        found = await tx.get(rota.Schedule, old.id)
        tx.put(replace(found, next_run_at=START + MINUTE, due_at=START + MINUTE))

    await world.store.transact(as_it_was)
    await asyncio.sleep(2)
    assert await world.queue.run_due() == [], "it had its run"
    found = await world.queue.get_schedule("s")
    assert (found.run_count, found.status, found.next_run_at) == (1, "active", START + 2 * MINUTE)
    assert found.last_run_at == old.last_run_at


async def test_tasks_submitted_meanwhile_run_at_once(world: World) -> None:
    ran = handle(world)
    world.jumps_looked_for = SECOND
    async with world.running(queues=["other"]):
        ahead(world)
        task = await world.queue.submit("work")
        later = await world.queue.submit("work", schedule_at=world.clock.now() + MINUTE)
        back(world)
        await asyncio.sleep(2)
    async with world.running():
        await asyncio.sleep(1)
        found = await world.queue.get(task.id)
    assert ran == [task.id]
    assert [line.detail for line in found.history][1] == "the clock was set back: it counts from now"
    assert (await world.queue.get(later.id)).available_at == later.available_at, "that time was asked for"


LIMITS: dict[str, dict[str, Any]] = {
    "rate of the kind": {"kind": {"rate": "1/s"}},
    "rate of the queue": {"queue": {"rate": "1/s"}},
    "both rates": {"kind": {"rate": "1/s"}, "queue": {"rate": "2/s"}},
    "rate and concurrency": {"kind": {"rate": "1/s", "concurrency": 2}},
    "rate before a line": {"kind": {"rate": "1/s"}, "queue": {"concurrency": 1}},
    "concurrency": {"kind": {"concurrency": 1}},
}


async def limit(world: World, limits: dict[str, Any]) -> None:
    if "kind" in limits:
        await world.queue.limit_kind("work", **limits["kind"])
    if "queue" in limits:
        await world.queue.limit_queue("default", **limits["queue"])


@pytest.mark.parametrize("limits", LIMITS)
async def test_limited_tasks_ask_for_other_moments(world: World, limits: str) -> None:
    ran: list[str] = []
    times: list[datetime] = []

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        ran.append(context.task.id)
        times.append(world.clock.now())
        await asyncio.sleep(0.1)

    await limit(world, LIMITS[limits])
    ahead(world)
    tasks = [await world.queue.submit("work") for _ in range(3)]
    async with world.running():
        await asyncio.sleep(1.5)  # some begin; others have moments, or wait in a line
    tasks += [await world.queue.submit("work") for _ in range(7)]
    later = await world.queue.submit("work", schedule_at=world.clock.now() + MINUTE)
    back(world)
    stepped = len(ran)
    async with world.running():
        new = [await world.queue.submit("work") for _ in range(3)]
        await asyncio.sleep(30)
        assert [id for id in ran if id not in {task.id for task in new}] == [task.id for task in tasks]
        assert {task.id for task in new} <= set(ran)
        assert (await world.queue.get(later.id)).available_at == later.available_at
    apart = [after - before for before, after in pairwise(times[stepped:])]
    assert min(apart) >= SECOND or limits == "concurrency"


@pytest.mark.parametrize("rate", ["100/s", "2/s", None])
async def test_a_limit_may_be_changed_after_a_step_back(world: World, rate: str | None) -> None:
    ran = handle(world)
    await world.queue.limit_kind("work", rate="1/s")
    ahead(world)
    tasks = [await world.queue.submit("work") for _ in range(10)]
    async with world.running():
        await asyncio.sleep(2)
        await world.queue.limit_kind("work", rate="50/m")
    back(world)
    if rate is None:
        await world.queue.limit_kind("work")
    else:
        await world.queue.limit_kind("work", rate=rate)
    tasks += [await world.queue.submit("work") for _ in range(3)]
    async with world.running():
        await asyncio.sleep(30)
    assert sorted(ran) == sorted(task.id for task in tasks)


async def test_a_retry_waits_as_long_as_it_was_to_wait(world: World) -> None:
    tries: list[Any] = []

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        tries.append(world.clock.now())
        if len(tries) == 1:
            raise rota.RetryableError("later", delay_seconds=30)

    ahead(world)
    await world.queue.submit("work")
    async with world.running():
        await asyncio.sleep(1)
    back(world)
    async with world.running():
        begun = world.clock.now()
        await asyncio.sleep(60)
    assert len(tries) == 2
    assert tries[1] - begun <= timedelta(seconds=31)


async def test_a_workflow_waits_as_long_as_it_was_to_wait(world: World) -> None:
    tries: list[Any] = []

    async def fails_once() -> None:
        tries.append(world.clock.now())
        if len(tries) == 1:
            raise rota.RetryableError("later", delay_seconds=30)

    @world.app.workflow("tries_again")
    async def tries_again(ctx: rota.Workflow) -> None:
        await ctx.step(fails_once)

    @world.app.workflow("sleeps")
    async def sleeps(ctx: rota.Workflow) -> None:
        await ctx.sleep(30)

    @world.app.workflow("is_told")
    async def is_told(ctx: rota.Workflow) -> str:
        try:
            return str(await ctx.receive("word", timeout=30))
        except TimeoutError:
            return "nobody came"

    @world.app.workflow("sleeps_until")
    async def sleeps_until(ctx: rota.Workflow) -> None:
        await ctx.sleep(START + HOUR + MINUTE)

    ahead(world)
    kinds = ("tries_again", "sleeps", "is_told", "sleeps_until")
    ids = [(await world.queue.start_workflow(kind)).id for kind in kinds]
    async with world.running():
        await asyncio.sleep(1)
    back(world)
    async with world.running():
        await asyncio.sleep(35)
        found = [await world.queue.get(id) for id in ids]
        assert [task.status for task in found] == [TaskStatus.COMPLETED] * 3 + [TaskStatus.PENDING]
        assert "the clock was set back: it counts from now" in [line.detail for line in found[0].history]
        assert found[3].available_at == START + HOUR + MINUTE, "that time was asked for"


async def test_a_worker_that_died_meanwhile_is_not_waited_for(world: World) -> None:
    ran = handle(world)
    stuck = asyncio.Event()

    @world.app.task("stuck")
    async def hang(context: rota.Context) -> None:
        ran.append(context.task.id)
        if len(ran) == 1:
            await stuck.wait()

    ahead(world)
    task = await world.queue.submit("stuck")
    running = asyncio.create_task(world.worker().run(handle_signals=False))
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    stuck.set()
    back(world)
    async with world.running(lease=30):
        await asyncio.sleep(120)
    assert (await world.queue.get(task.id)).status is TaskStatus.COMPLETED


async def test_the_doctor_names_records_from_the_future(world: World) -> None:
    await world.schedule(cron="* * * * *")
    healthy = await world.store.read(check_health("default"))
    assert healthy.ahead == []
    ahead(world)
    await world.queue.run_due()
    task = await world.queue.submit("work")
    back(world)
    named = {record.id for record in (await world.store.read(check_health("default"))).ahead}
    assert named >= {task.id, (await world.queue.get_schedule("s")).id}


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "before the start"])
async def test_a_worker_alone_brings_tasks_and_leases_back(world: World, is_seen: bool) -> None:
    ran = handle(world)
    world.jumps_looked_for = SECOND

    @world.app.task("dies")
    async def dies(context: rota.Context) -> None:
        ran.append(context.task.id)
        if context.attempt == 1:
            await asyncio.sleep(DAY.total_seconds())

    ahead(world)
    died = await world.queue.submit("dies")
    running = asyncio.create_task(world.worker(**ALONE).run(handle_signals=False))
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await world.queue.pause_queue("default")
    submitted = await world.queue.submit("work")
    if not is_seen:
        back(world)
    async with world.running(lease=30, **ALONE):
        await asyncio.sleep(1)
        if is_seen:
            back(world)
        await world.queue.resume_queue("default")
        await asyncio.sleep(60)
    assert sorted(ran) == sorted([died.id, submitted.id, died.id])


async def test_one_pass_of_a_worker_alone_brings_tasks_back(world: World) -> None:
    ran = handle(world)
    ahead(world)
    task = await world.queue.submit("work")
    worker = world.worker(**ALONE)
    back(world)
    await worker.run_once()
    worker.tasks.close()
    assert ran == [task.id]


@pytest.mark.parametrize("roles", [{"janitor": False}, {"scheduler": False}], ids=["scheduler", "janitor"])
async def test_a_scheduler_alone_and_a_janitor_alone_bring_back_everything(
    world: World, roles: dict[str, Any]
) -> None:
    handle(world)
    ahead(world)
    await world.schedule(cron="* * * * *")
    task = await world.queue.submit("work")
    back(world)
    node = Node(world.queue, observers=[world.signals.append], **roles)
    running = asyncio.create_task(node.run(handle_signals=False))
    await asyncio.sleep(1)
    node.stop()
    await running
    assert (await world.queue.get(task.id)).available_at <= world.clock.now()
    assert (await world.queue.get_schedule("s")).next_run_at == START + MINUTE
    assert [signal for signal in world.signals if isinstance(signal, ClockSetBack)] == [ClockSetBack(1, 1)]


async def test_the_clock_of_the_store_may_be_set_back_alone(world: World) -> None:
    jumps: list[timedelta] = []
    watch = JumpWatch(world.clock, world.signals.append, jumps.append)
    for seconds in (3600, 3601, 3600, 0, 1):
        watch.look("scheduler", START + seconds * SECOND)
        watch.look("scheduler")
    assert jumps == [-HOUR]
    assert world.signals == [], "that of this machine did not jump"


async def test_an_answer_that_came_late_is_no_step_back(world: World) -> None:
    """The sweep waited for a row, and the ticks went on meanwhile."""
    jumps: list[timedelta] = []
    watch = JumpWatch(world.clock, world.signals.append, jumps.append)
    for role, seconds in (
        ("janitor", 0),
        ("scheduler", 10),
        ("janitor", 1),
        ("scheduler", 11),
        ("janitor", 2),
    ):
        watch.look(role, START + seconds * SECOND)
    assert jumps == []


async def test_what_could_not_be_brought_back_is_tried_again(world: World) -> None:
    ahead(world)
    task = await world.queue.submit("work")
    back(world)
    failing: Any = FaultyStore(world.store, {1: Fault.BEFORE}.get)
    set_back = SetBack(failing, world.signals.append)
    set_back.stepped_back()
    with pytest.raises(rota.Unavailable):
        await set_back.run_once()
    await set_back.run_once()
    assert (await world.queue.get(task.id)).available_at <= world.clock.now()


async def test_nothing_is_planned_anew_without_need(world: World) -> None:
    await world.schedule(cron="0 * * * *")
    before = await world.queue.get_schedule("s")
    set_back = SetBack(world.store, world.signals.append)
    set_back.stepped_back()
    await set_back.run_once()
    assert await world.queue.get_schedule("s") == before
    assert world.signals == []
