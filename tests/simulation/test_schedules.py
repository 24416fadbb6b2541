"""Schedules from end to end, in virtual time, on every store. The names are those of document 001."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import rota
from rota import RunReason, RunStatus, RunTrigger, ScheduleStatus, TaskStatus
from rota.domain.schedule import alike
from rota.engine.commands import Tick, fire_due, tick
from rota.engine.commands.shared import Starter
from rota.engine.observe.telemetry import ClockJumped
from rota.engine.roles import scheduler
from rota.engine.roles.scheduler import Scheduler
from worlds import HOUR, MINUTE, SECOND, START, World, on_any_store, to_the_tenth


def handle(world: World, seconds: float = 0) -> list[datetime]:
    """A handler for `work` that takes this long; the times at which it was started."""
    starts: list[datetime] = []

    @world.app.task("work", max_retries=0)
    async def work(input: object) -> object:
        starts.append(to_the_tenth(world.clock.now()))
        await asyncio.sleep(seconds)
        return input

    return starts


async def test_create_one_time_schedule(world: World) -> None:
    schedule = await world.schedule("year-end", run_at=START + HOUR, input={"year": 2026})
    assert schedule.next_run_at == START + HOUR
    assert schedule.missed_run_policy == "execute_once"
    assert (schedule.enabled, schedule.run_count, schedule.last_run_at) == (True, 0, None)


async def test_create_recurring_schedule(world: World) -> None:
    schedule = await world.schedule("daily", cron="0 9 * * *", timezone="America/New_York")
    assert schedule.next_run_at == datetime(2026, 1, 1, 14, tzinfo=UTC)
    assert (schedule.missed_run_policy, schedule.overlap_policy) == ("skip", "skip")


@pytest.mark.start(datetime(2026, 1, 1, 13, 30, tzinfo=UTC))
async def test_schedule_fires_at_correct_time(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="0 9 * * *", timezone="America/New_York")
    async with world.running(janitor=False):
        await world.at(datetime(2026, 1, 2, 14, 30, tzinfo=UTC))
    assert starts == [datetime(2026, 1, day, 14, tzinfo=UTC) for day in (1, 2)]


async def test_schedule_creates_workflow(world: World) -> None:
    @world.app.workflow("report")
    async def report(ctx: rota.Workflow, kind: str) -> str:
        return kind

    target = rota.WorkflowTarget(kind="report", input={"kind": "annual"}, metadata={"team": "x"})
    await world.queue.create_schedule("s", target=target, run_at=START + HOUR)
    async with world.running():
        await world.at(2 * HOUR)
    (run,) = await world.ledger("s")
    assert (run.target_type, run.status) == ("workflow", RunStatus.COMPLETED)
    task = await world.queue.get(run.target_id or "")
    assert (task.output, task.metadata) == ("annual", {"team": "x"})


async def test_schedule_creates_task(world: World) -> None:
    handle(world)
    await world.schedule(
        run_at=START + HOUR,
        input={"a": 1},
        queue="reports",
        priority=200,
        max_retries=9,
        ttl=600,
        tags=["x"],
        metadata={"m": 1},
    )
    async with world.running():
        await world.at(2 * HOUR)
    (run,) = await world.ledger("s")
    task = await world.queue.get(run.target_id or "")
    assert (task.kind, task.queue, task.priority, task.max_retries) == ("work", "reports", 200, 9)
    assert (task.output, task.tags, task.metadata) == ({"a": 1}, ("x",), {"m": 1})
    assert task.expires_at == START + HOUR + timedelta(seconds=600)
    assert (task.schedule_id, task.run_id) == (run.schedule_id, run.id)


async def test_pause_resume_schedule(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="*/10 * * * *")
    async with world.running():
        await world.at(15 * MINUTE)
        paused = await world.queue.pause_schedule("s", "deploy")
        assert (paused.status, paused.pause_note, paused.next_run_at) == ("paused", "deploy", None)
        await world.at(55 * MINUTE)
        resumed = await world.queue.resume_schedule("s")
        assert resumed.next_run_at == START + HOUR
        await world.at(65 * MINUTE)
    assert starts == [START + 10 * MINUTE, START + HOUR]
    assert len(await world.ledger("s")) == 2


async def test_trigger_immediately(world: World) -> None:
    starts = handle(world)
    before = await world.schedule(cron="0 9 * * *", max_runs=5)
    task = await world.queue.trigger_schedule("s")
    async with world.running():
        await world.queue.wait(task.id)
    after = await world.queue.get_schedule("s")
    assert (after.next_run_at, after.run_count) == (before.next_run_at, 0)
    (run,) = await world.ledger("s")
    assert (run.trigger, run.status, run.actor) == (RunTrigger.MANUAL, RunStatus.COMPLETED, "tester")
    assert len(starts) == 1


async def test_schedule_run_history(world: World) -> None:
    handle(world, seconds=60)
    await world.schedule(cron="0 * * * *")
    async with world.running():
        await world.at(2 * HOUR + 30 * SECOND)
        first, second = await world.ledger("s")
        assert (first.status, second.status) == (RunStatus.COMPLETED, RunStatus.RUNNING)
        assert first.scheduled_at == first.started_at == START + HOUR
        assert first.completed_at == START + HOUR + MINUTE
        assert second.completed_at is None


async def test_recurring_schedule_calculates_next_run(world: World) -> None:
    handle(world)
    await world.schedule(interval=timedelta(minutes=7))
    async with world.running():
        await world.at(8 * MINUTE)
        schedule = await world.queue.get_schedule("s")
    assert (schedule.last_run_at, schedule.next_run_at) == (START + 7 * MINUTE, START + 14 * MINUTE)
    assert schedule.run_count == 1


async def test_one_time_schedule_clears_after_execution(world: World) -> None:
    handle(world)
    await world.schedule(run_at=START + HOUR)
    async with world.running():
        await world.at(2 * HOUR)
        done = await world.queue.get_schedule("s")
    assert (done.status, done.next_run_at, done.enabled) == (ScheduleStatus.COMPLETED, None, False)
    with pytest.raises(rota.Refused, match="completed"):
        await world.queue.enable_schedule("s")
    again = await world.queue.update_schedule("s", run_at=START + 5 * HOUR)
    assert (again.status, again.next_run_at) == (ScheduleStatus.ACTIVE, START + 5 * HOUR)


async def test_overlap_policy_skip(world: World) -> None:
    starts = handle(world, seconds=90)
    await world.schedule(cron="* * * * *", max_runs=2)
    async with world.running():
        await world.at(10 * MINUTE)
    assert starts == [START + MINUTE, START + 3 * MINUTE]
    rows = await world.ledger("s")
    assert [(row.status, row.reason) for row in rows] == [
        ("completed", None),
        ("skipped", "overlap"),
        ("completed", None),
    ]
    assert (await world.queue.get_schedule("s")).run_count == 2


async def test_overlap_policy_allow(world: World) -> None:
    starts = handle(world, seconds=150)
    await world.schedule(cron="* * * * *", overlap_policy="allow", max_runs=4)
    async with world.running():
        await world.at(10 * MINUTE)
    assert starts == [START + n * MINUTE for n in (1, 2, 3, 4)]
    assert {row.status for row in await world.ledger("s")} == {RunStatus.COMPLETED}


async def test_overlap_policy_cancel_previous(world: World) -> None:
    handle(world, seconds=900)
    await world.schedule(cron="*/10 * * * *", overlap_policy=rota.OverlapPolicy.CANCEL_PREVIOUS, max_runs=3)
    async with world.running():
        await world.at(HOUR)
    rows = await world.ledger("s")
    assert [row.status for row in rows] == ["cancelled", "cancelled", "completed"]
    statuses = [(await world.queue.get(row.target_id or "")).status for row in rows]
    assert statuses == ["cancelled", "cancelled", "completed"]


async def test_missed_run_policy_skip(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="0 * * * *")
    await world.at(3.5 * HOUR)  # nobody ran meanwhile
    async with world.running():
        await world.at(4.5 * HOUR)
    assert starts == [START + 4 * HOUR]
    rows = await world.ledger("s")
    assert [(row.status, row.reason) for row in rows[:3]] == [("skipped", "missed")] * 3
    assert rows[3].status is RunStatus.COMPLETED


async def test_missed_run_policy_execute_once(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="0 * * * *", missed_run_policy="execute_once")
    await world.at(3.5 * HOUR)
    async with world.running():
        await world.at(4.5 * HOUR)
    assert starts == [START + 3.5 * HOUR, START + 4 * HOUR]
    rows = await world.ledger("s")
    assert [row.status for row in rows] == ["skipped", "skipped", "completed", "completed"]
    assert (rows[2].trigger, rows[2].scheduled_at) == (RunTrigger.CATCH_UP, START + 3 * HOUR)


async def test_missed_run_policy_catch_up(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="0 * * * *", missed_run_policy="catch_up")
    await world.at(3.5 * HOUR)
    async with world.running():
        await world.at(4.5 * HOUR)
    assert starts == [START + 3.5 * HOUR] * 3 + [START + 4 * HOUR]
    rows = await world.ledger("s")
    assert [row.status for row in rows] == ["completed"] * 4
    assert [row.scheduled_at for row in rows] == [START + n * HOUR for n in (1, 2, 3, 4)]


async def test_a_missed_once_schedule_fires_late_unless_told_otherwise(world: World) -> None:
    handle(world)
    await world.schedule("late", run_at=START + HOUR)
    await world.schedule("never", run_at=START + HOUR, missed_run_policy="skip")
    await world.at(24 * HOUR)
    await world.queue.run_due()
    (late,), (never,) = await world.ledger("late"), await world.ledger("never")
    assert (late.trigger, late.status) == (RunTrigger.CATCH_UP, RunStatus.RUNNING)
    assert (never.status, never.reason) == (RunStatus.SKIPPED, RunReason.MISSED)
    for key in ("late", "never"):
        assert (await world.queue.get_schedule(key)).status is ScheduleStatus.COMPLETED


async def test_concurrent_schedulers_no_duplicate_execution(world: World) -> None:
    starts = handle(world)
    for number in range(20):
        await world.schedule(f"s{number}", cron="* * * * *")
    async with world.running(), world.running(), world.running():
        await world.at(5.5 * MINUTE)
    assert len(starts) == 20 * 5
    for number in range(20):
        rows = await world.ledger(f"s{number}")
        assert [row.scheduled_at for row in rows] == [START + n * MINUTE for n in range(1, 6)]


async def test_thousands_missed_are_one_row(world: World) -> None:
    handle(world)
    await world.schedule(interval=1)
    await world.at(2 * HOUR)
    await world.queue.run_due()
    rows = await world.ledger("s")
    assert (rows[0].reason, rows[0].scheduled_at) == (RunReason.MISSED, START + SECOND)
    assert rows[0].count == 7200 - 1
    assert rows[0].until == START + (7200 - 1) * SECOND
    assert sum(row.count for row in rows) == 7200


@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_a_restart_causes_no_burst(world: World, overlap: str) -> None:
    starts = handle(world)
    await world.schedule(interval=1, overlap_policy=overlap)
    await world.at(45.5 * SECOND)
    async with world.running():
        await asyncio.sleep(0.1)
    assert starts == [START + 45.5 * SECOND]
    *missed, last = await world.ledger("s")
    assert {(row.status, row.reason) for row in missed} == {(RunStatus.SKIPPED, RunReason.MISSED)}
    assert (last.scheduled_at, last.status) == (START + 45 * SECOND, RunStatus.COMPLETED)


async def test_a_jump_is_forgotten_after_its_tick(world: World) -> None:
    await world.schedule(interval=1, overlap_policy="allow", misfire_grace=60)
    scheduler = Scheduler(world.queue.store, lambda signal: None)
    for at in (10, 20):
        await world.at(at * SECOND)
        scheduler.jumped = scheduler.jumped or at == 10
        while await scheduler.run_once() == timedelta(0):
            pass
    *missed, latest = (await world.ledger("s"))[:10]
    assert ({row.reason for row in missed}, latest.reason) == ({RunReason.MISSED}, None)
    assert {row.reason for row in (await world.ledger("s"))[10:]} == {None}, "a plain delay: each fires"


@pytest.mark.parametrize("seen_by", ["another", "itself"])
async def test_a_jump_during_a_tick_is_for_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch, seen_by: str
) -> None:
    """The tick has found nothing, since the clock was set ahead after its commit."""
    await world.schedule(interval=1, overlap_policy="allow", misfire_grace=60)

    def jumped() -> None:
        world.clock.step(10 * SECOND)
        scheduler.jumped = True

    def look_for_jumps(role: str, answered_at: datetime | None) -> None:
        if seen_by == "itself" and answered_at == START:
            jumped()

    async def ticked() -> Tick:
        tick = await tick_now()
        if seen_by == "another" and tick.at == START:
            jumped()
        return tick

    scheduler = Scheduler(world.queue.store, lambda signal: None, look_for_jumps=look_for_jumps)
    tick_now = scheduler._tick_now
    monkeypatch.setattr(scheduler, "_tick_now", ticked)
    for _ in range(5):
        await scheduler.run_once()
    *missed, latest = await world.ledger("s")
    assert ({row.reason for row in missed}, latest.reason) == ({RunReason.MISSED}, None)


async def test_a_jump_is_remembered_for_all_that_was_due_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the ticks that take what the first one left."""
    monkeypatch.setattr("rota.engine.roles.scheduler.BATCH", 1)
    for key in ("a", "b"):
        await world.schedule(key, interval=1, overlap_policy="allow", misfire_grace=60)
    scheduler = Scheduler(world.queue.store, lambda signal: None)
    await world.at(10 * SECOND)
    scheduler.jumped = True
    while await scheduler.run_once() == timedelta(0):
        pass
    for key in ("a", "b"):
        *missed, latest = await world.ledger(key)
        assert ({row.reason for row in missed}, latest.reason) == ({RunReason.MISSED}, None)


@on_any_store
async def test_a_schedule_that_cannot_be_fired_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong with it, or with Rota. It is late then, and runs as soon as that is mended."""
    starts = handle(world)
    for key in ("first", "bad", "last"):
        await world.schedule(key, cron="* * * * *", end_at=START + 3 * MINUTE)

    def start(starter: Starter, id: str, schedule: rota.Schedule, *rest: Any, **options: Any) -> Any:
        if schedule.key == "bad":
            raise ZeroDivisionError("of a test")
        return started(starter, id, schedule, *rest, **options)

    started = Starter.start
    with monkeypatch.context() as patched:
        patched.setattr(Starter, "start", start)
        patched.setattr(alike, "start_alike", lambda *_: None)
        async with world.running():
            await world.at(3 * MINUTE + 30 * SECOND)
        with pytest.raises(RuntimeError, match="schedule 'bad'"):
            await world.queue.run_due()
    for key in ("first", "last"):
        assert [row.status for row in await world.ledger(key)] == [RunStatus.COMPLETED] * 3
    assert (await world.ledger("bad"), len(starts)) == ([], 6)
    [told, *_] = [record.getMessage() for record in caplog.records if record.name == "rota"]
    assert "schedule 'bad' of tenant 'default' cannot be fired: of a test" in told
    await world.queue.run_due()
    assert [row.scheduled_at for row in await world.ledger("bad")][-1] == START + 3 * MINUTE


async def test_an_expired_task_that_nobody_swept_is_not_live(world: World) -> None:
    await world.schedule(cron="* * * * *", ttl=30)
    for minute in (1, 2):
        await world.at(minute * MINUTE)
        await world.queue.run_due()
    assert [row.reason for row in await world.ledger("s")][1] is None, "nothing is in its way"


@on_any_store
async def test_a_laptop_that_slept_causes_no_burst(world: World) -> None:
    starts = handle(world)
    world.jumps_looked_for = SECOND
    await world.schedule(interval=1, overlap_policy="allow", misfire_grace=60)
    async with world.running():
        await world.at(10 * SECOND)
        world.clock.step(timedelta(seconds=50))  # asleep: the wall moved, timers did not
        await asyncio.sleep(5)
    jump = next(signal for signal in world.signals if isinstance(signal, ClockJumped))
    assert jump.by == timedelta(seconds=50)
    assert len(starts) <= 10 + 1 + 6
    rows = await world.ledger("s")
    times = [row.scheduled_at for row in rows]
    assert times == [START + n * SECOND for n in range(1, len(times) + 1)]


async def test_a_clock_that_goes_back_repeats_nothing(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="* * * * *")
    async with world.running():
        await world.at(2.5 * MINUTE)
        world.clock.step(-timedelta(minutes=2))
        await world.queue.pause_schedule("s")
        await world.queue.resume_schedule("s")
        await asyncio.sleep(240)
    rows = await world.ledger("s")
    times = [row.scheduled_at for row in rows]
    assert len(times) == len(set(times))
    assert len(starts) == len(rows)


async def test_a_bad_target_is_a_failed_run_and_on_it_goes(world: World) -> None:
    handle(world)
    await world.queue.create_template("report", "work")
    target = rota.TemplateTarget(template_id="report")
    await world.queue.create_schedule("bad", target=target, cron="0 * * * *", max_runs=2)
    await world.queue.update_template("report", parameters_schema={"required": ["day"]})
    await world.schedule("good", cron="0 * * * *")
    async with world.running():
        await world.at(2.5 * HOUR)
    bad = await world.ledger("bad")
    assert [(row.status, row.reason) for row in bad] == [("failed", "bad_target")] * 2
    assert bad[0].error == "target.input.day: it is missing"
    schedule = await world.queue.get_schedule("bad")
    assert (schedule.run_count, schedule.status) == (0, "active"), "what did not start uses up no max_runs"
    assert [row.status for row in await world.ledger("good")] == ["completed"] * 2


async def test_a_disabled_template_skips_its_runs(world: World) -> None:
    handle(world)
    await world.queue.create_template("report", "work")
    target = rota.TemplateTarget(template_id="report")
    await world.queue.create_schedule("hourly", target=target, cron="0 * * * *", max_runs=5)
    await world.queue.update_template("report", enabled=False)
    async with world.running():
        await world.at(1.5 * HOUR)
        with pytest.raises(rota.Refused, match=r"^template report is disabled; enable it first$"):
            await world.queue.trigger_schedule("hourly")
        await world.queue.update_template("report", enabled=True)
        await world.at(2.5 * HOUR)
    rows = await world.ledger("hourly")
    assert [(row.status, row.reason) for row in rows] == [("skipped", "disabled"), ("completed", None)]
    assert (await world.queue.get_schedule("hourly")).run_count == 1
    why = await world.queue.why("hourly", START + HOUR)
    assert "its template was disabled then" in str(why)


async def test_a_failed_task_fails_its_run_and_may_pause_its_schedule(world: World) -> None:
    @world.app.task("work", max_retries=0)
    async def work() -> None:
        raise ValueError("boom")

    await world.schedule(cron="0 * * * *", pause_on_failure=True)
    async with world.running():
        await world.at(3.5 * HOUR)
    (row,) = await world.ledger("s")
    assert (row.status, row.error) == (RunStatus.FAILED, "ValueError: boom")
    schedule = await world.queue.get_schedule("s")
    assert schedule.status is ScheduleStatus.PAUSED
    assert "boom" in (schedule.pause_note or "")


async def test_an_expired_target_is_no_failure(world: World) -> None:
    await world.schedule(cron="0 * * * *", ttl=60, pause_on_failure=True)
    async with world.running():  # nobody has a handler for it
        await world.at(2.5 * HOUR)
    rows = await world.ledger("s")
    assert [(row.status, row.reason, row.error) for row in rows] == [("skipped", "expired", None)] * 2
    assert (await world.queue.get_schedule("s")).status is ScheduleStatus.ACTIVE


async def test_an_expiry_is_in_the_ledger_at_once_without_a_janitor(world: World) -> None:
    await world.schedule(cron="0 * * * *", ttl=60, overlap_policy="allow")
    async with world.running(janitor=False):
        await world.at(2 * HOUR + MINUTE - SECOND)
    queue, first, second = world.queue, START + HOUR, START + 2 * HOUR

    async def ledger(**filters: Any) -> list[tuple[datetime, str]]:
        return [(row.scheduled_at, str(row.status)) for row in await queue.runs("s", **filters)]

    assert await ledger() == [(second, "running"), (first, "skipped")]
    assert await ledger(status="running") == [(second, "running")]
    assert await ledger(status="skipped", limit=1) == [(first, "skipped")]
    await world.at(2 * HOUR + MINUTE)
    assert await ledger() == [(second, "skipped"), (first, "skipped")]
    assert await ledger(status="running") == []
    page = await queue.runs("s", status="skipped", limit=1)
    assert [row.scheduled_at for row in page] == [second]
    rest = await queue.runs("s", status="skipped", limit=1, cursor=page.next_cursor)
    assert [row.scheduled_at for row in rest] == [first]
    assert await ledger(status="skipped", until=first) == [(first, "skipped")]
    assert await ledger(status="skipped", since=second) == [(second, "skipped")]
    why = await queue.why("s", second)
    assert why.status == "skipped"
    assert "its task expired after 1 minute, before a worker took it" in why
    last = await queue.last_runs([await queue.get_schedule("s")])
    assert [[(row.status, row.reason) for row in rows] for rows in last.values()] == [
        [("skipped", "expired")] * 2
    ]
    await world.at(2 * HOUR + MINUTE + SECOND)
    assert (await queue.overview()).waiting == []


async def test_an_expiry_that_is_marked_late_changes_nothing_in_the_ledger(world: World) -> None:
    await world.schedule(cron="0 * * * *", ttl=60)
    for hour in range(1, 5):
        await world.at(hour * HOUR)
        await world.queue.run_due()
    await world.at(4.5 * HOUR)
    rows, why = await world.ledger("s"), str(await world.queue.why("s", START + HOUR))
    assert [row.completed_at for row in rows] == [START + n * HOUR + MINUTE for n in range(1, 5)]
    async with world.running(scheduler=False):
        await world.at(4.6 * HOUR)
    assert {str(task.history[-1].status) for task in await world.tasks()} == {"expired"}, "it was marked"
    assert [replace(row, version=1) for row in await world.ledger("s")] == rows
    assert str(await world.queue.why("s", START + HOUR)) == why


async def test_a_start_that_failed_uses_up_no_run(world: World) -> None:
    template = await world.queue.create_template("report", "work")
    starts = handle(world)
    target = rota.TemplateTarget(template_id=template.id)
    await world.queue.create_schedule("s", target=target, cron="* * * * *", max_runs=2)
    await world.queue.update_template(template.id, parameters_schema={"required": ["day"]})
    async with world.running():
        await world.at(3.5 * MINUTE)
        await world.queue.update_template(template.id, parameters_schema=None)
        await world.at(9 * MINUTE)
    assert [row.status for row in await world.ledger("s")] == ["failed"] * 3 + ["completed"] * 2
    assert len(starts) == 2
    schedule = await world.queue.get_schedule("s")
    assert (schedule.status, schedule.run_count) == (ScheduleStatus.COMPLETED, 2)


@on_any_store
async def test_jitter_delays_but_keeps_the_nominal_time(world: World) -> None:
    starts = handle(world)
    schedule = await world.schedule(cron="*/10 * * * *", jitter=300)
    async with world.running():
        await world.at(56 * MINUTE)
    rows = await world.ledger("s")
    assert [row.scheduled_at for row in rows] == [START + n * 10 * MINUTE for n in range(1, 6)]
    delays = [start - row.scheduled_at for start, row in zip(starts, rows, strict=True)]
    assert all(timedelta(0) <= delay < timedelta(seconds=300) for delay in delays)
    assert len(set(delays)) > 1
    assert schedule.next_run_at == START + 10 * MINUTE


@pytest.mark.start(datetime(2026, 3, 8, 6, tzinfo=UTC))
async def test_daylight_saving_skips_and_doubles_nothing(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="0 2 * * *", timezone="America/New_York")
    async with world.running(janitor=False):
        await world.at(datetime(2026, 3, 9, 8, tzinfo=UTC))
    assert starts == [datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 3, 9, 6, tzinfo=UTC)]


async def test_max_runs_and_end_at_complete_a_schedule_with_the_reason(world: World) -> None:
    starts = handle(world)
    await world.schedule("few", cron="*/10 * * * *", max_runs=2)
    await world.schedule("short", cron="*/10 * * * *", end_at=START + 30 * MINUTE)
    async with world.running():
        await world.at(HOUR)
    few, short = await world.queue.get_schedule("few"), await world.queue.get_schedule("short")
    assert (few.status, few.run_count) == ("completed", 2)
    assert "max_runs" in (few.completed_reason or "")
    assert (short.status, short.run_count) == ("completed", 3)
    assert "end_at" in (short.completed_reason or "")
    assert len(starts) == 5


async def test_who_triggered_a_schedule_is_in_its_history(world: World) -> None:
    made = await world.schedule(cron="0 * * * *", input={"day": 1})
    await world.at(SECOND)
    first = await world.queue.trigger_schedule("s")
    await world.at(2 * SECOND)
    other = rota.Queue(world.queue.store, actor="ann", clock=world.clock)
    second = await other.trigger_schedule("s", {"day": 2})
    _, one, two = await world.queue.schedule_history("s")
    assert (one.action, one.actor, one.detail) == ("triggered", "tester", f"task {first.id}")
    assert (two.action, two.actor, two.detail) == ("triggered", "ann", f"task {second.id}")
    assert one.before == one.after == two.before == two.after
    assert one.after is not None
    assert (one.after["version"], one.after["target"]["input"]) == (made.version, {"day": 1})


async def test_every_change_of_a_schedule_is_in_its_history(world: World) -> None:
    await world.schedule(cron="0 * * * *")
    await world.queue.update_schedule("s", description="hourly", cron="30 * * * *")
    await world.queue.pause_schedule("s", "note")
    await world.queue.resume_schedule("s")
    await world.queue.delete_schedule("s")
    await world.queue.restore_schedule("s")
    events = await world.queue.schedule_history("s")
    actions = ["created", "updated", "paused", "resumed", "deleted", "restored"]
    assert [event.action for event in events] == actions
    assert {event.actor for event in events} == {"tester"}
    updated = events[1]
    assert updated.before is not None
    assert updated.after is not None
    assert (updated.before["timing"]["expression"], updated.after["timing"]["expression"]) == (
        "0 * * * *",
        "30 * * * *",
    )


async def test_a_deleted_key_can_be_used_again_with_a_new_identity(world: World) -> None:
    old = await world.schedule(cron="0 * * * *")
    await world.queue.delete_schedule("s")
    with pytest.raises(rota.NotFound):
        await world.queue.get_schedule("s")
    new = await world.schedule(cron="5 * * * *")
    assert new.id != old.id
    with pytest.raises(rota.Refused, match="already in use"):
        await world.queue.restore_schedule(old.id)
    await world.queue.delete_schedule("s", hard=True)
    with pytest.raises(rota.NotFound):
        await world.queue.restore_schedule(new.id)
    restored = await world.queue.restore_schedule("s")
    assert restored.id == old.id


async def test_a_stale_version_is_refused(world: World) -> None:
    schedule = await world.schedule(cron="0 * * * *")
    await world.queue.update_schedule("s", description="a", version=schedule.version)
    with pytest.raises(rota.Refused, match="version"):
        await world.queue.update_schedule("s", description="b", version=schedule.version)


async def test_an_edit_never_runs_anything_by_itself(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="0 * * * *")
    async with world.running():
        await world.at(30 * MINUTE)
        edited = await world.queue.update_schedule("s", cron="15 * * * *")
        assert edited.next_run_at == START + 75 * MINUTE
        await world.at(80 * MINUTE)
    assert starts == [START + 75 * MINUTE]


@on_any_store
async def test_why_answers_in_words(world: World) -> None:
    handle(world, seconds=15 * 60)
    await world.schedule(cron="*/10 * * * *")
    async with world.running():
        await world.at(35 * MINUTE)
    ran = await world.queue.why("s", START + 10 * MINUTE)
    skipped = await world.queue.why("s", START + 20 * MINUTE)
    odd = await world.queue.why("s", START + 15 * MINUTE)
    assert (ran.status, skipped.status, odd.status) == ("completed", "skipped", "not_expected")
    assert "overlap" in skipped or "still running" in skipped


async def test_preview_gives_local_times_and_dst_flags(world: World) -> None:
    await world.schedule(
        cron="30 2 * * *", timezone="America/New_York", start_at=datetime(2026, 3, 7, tzinfo=UTC)
    )
    times = await world.queue.preview("s", 2)
    assert [time.at for time in times] == [
        datetime(2026, 3, 7, 7, 30, tzinfo=UTC),
        datetime(2026, 3, 8, 7, 0, tzinfo=UTC),
    ]
    assert [time.local.strftime("%H:%M") for time in times] == ["02:30", "03:00"]
    assert times[0].dst is None
    assert times[1].dst is not None


async def test_declared_schedules_are_created_and_brought_up_to_date(world: World) -> None:
    starts = handle(world)
    world.app.schedule("hourly", task_type="work", cron="0 * * * *")
    async with world.running():
        await world.at(1.5 * HOUR)
    first = await world.queue.get_schedule("hourly")
    world.app.schedules["hourly"] = {"task_type": "work", "cron": "30 * * * *"}
    async with world.running():
        await world.at(2.75 * HOUR)
    second = await world.queue.get_schedule("hourly")
    assert second.id == first.id
    assert starts == [START + HOUR, START + 2.5 * HOUR]
    async with world.running():
        pass
    assert (await world.queue.get_schedule("hourly")).version == second.version


async def test_a_tick_is_all_or_nothing(world: World) -> None:
    """A commit that fails leaves no run, no task and no moved schedule behind."""
    await world.schedule(cron="0 * * * *")
    await world.at(HOUR)
    before = await world.store.snapshot()

    class Failing:
        async def transact(self, work: Any, *options: Any) -> object:
            async def doomed(tx: object) -> object:
                await work(tx)
                raise RuntimeError("the process died here")

            return await world.store.transact(doomed, *options)

    failing: Any = Failing()
    scheduler = Scheduler(failing, lambda signal: None)
    with pytest.raises(RuntimeError):
        await scheduler.run_once()
    assert await world.store.snapshot() == before
    assert len(await world.queue.run_due()) == 1
    assert len(await world.tasks(status=TaskStatus.PENDING)) == 1


@pytest.mark.parametrize("change", ["pause", "edit", "delete"])
async def test_a_time_that_is_due_when_the_schedule_is_changed_has_its_row_too(
    world: World, change: str
) -> None:
    schedule = await world.schedule(cron="0 * * * *", missed_run_policy="execute_once")
    await world.at(2.5 * HOUR)  # no scheduler was running
    match change:
        case "pause":
            await world.queue.pause_schedule("s")
        case "edit":
            await world.queue.update_schedule("s", cron="30 * * * *")
        case "delete":
            await world.queue.delete_schedule("s")
    rows = await world.ledger(schedule.id)
    assert [row.scheduled_at for row in rows] == [START + HOUR, START + 2 * HOUR]
    assert {(row.status, row.reason) for row in rows} == {("skipped", "changed")}
    assert await world.tasks() == []
    assert "before it was fired" in await world.queue.why(schedule.id, START + HOUR)


async def test_caught_up_runs_start_oldest_first_and_know_their_time(world: World) -> None:
    times = []

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        times.append(context.scheduled_at)

    await world.schedule(cron="*/5 * * * *", missed_run_policy="catch_up", overlap_policy="allow")
    await world.at(2.5 * HOUR)
    async with world.running(concurrency=1):
        await world.at(2.5 * HOUR + MINUTE)
    assert times == [START + n * 5 * MINUTE for n in range(1, 31)]


async def test_an_update_keeps_what_it_does_not_name(world: World) -> None:
    start = START + 9 * HOUR
    await world.schedule(rrule="FREQ=DAILY", start_at=start, metadata={"a": 1}, input={"x": 1})
    weekly = await world.queue.update_schedule("s", rrule="FREQ=WEEKLY", metadata={"a": 2})
    assert weekly.next_run_at == start
    task = await world.queue.trigger_schedule("s", input={"x": 2})
    assert (task.metadata, task.input) == ({"a": 2}, {"x": 2})
    assert (await world.queue.trigger_schedule("s")).input == {"x": 1}


async def test_intervals_fire_on_whole_seconds(world: World) -> None:
    await asyncio.sleep(0.123456)
    schedule = await world.schedule(interval=60)
    assert schedule.next_run_at == START + MINUTE + SECOND, "one interval after its creation at the soonest"


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rows on every store would show no more."""
    assert (scheduler.ROWS_PER_CALL, tick.ROWS_PER_TICK) == (5_000, 1_000)
    monkeypatch.setattr(scheduler, "ROWS_PER_CALL", 1_000)
    monkeypatch.setattr(tick, "ROWS_PER_TICK", 200)


@pytest.mark.usefixtures("small_bounds")
async def test_run_due_does_a_bounded_amount_and_says_whether_more_is_due(world: World) -> None:
    for number in range(3):
        await world.schedule(f"s{number}", interval=1, missed_run_policy="catch_up")
    await world.at(500 * SECOND)
    runs = await world.queue.run_due()
    assert runs.is_more_due
    assert 1_000 <= len(runs) <= 1_300
    rest = await world.queue.run_due()
    assert not rest.is_more_due
    assert len(runs) + len(rest) == 3 * 500
    assert not (await world.queue.run_due()).is_more_due


@pytest.mark.usefixtures("small_bounds")
async def test_one_tick_writes_a_bounded_number_of_rows(world: World) -> None:
    """Twenty schedules that each missed ninety times are not one commit."""
    for number in range(20):
        await world.schedule(f"s{number}", interval=1)
    await world.at(90.5 * SECOND)
    first = await world.store.transact(fire_due(500))
    assert len(first.runs) <= 300
    assert first.is_more_due


FAR = [
    "FREQ=MINUTELY;INTERVAL=23;BYMONTH=1,2,4;BYMINUTE=8,18,19,26,28,32;UNTIL=20990101T000000Z",
    "FREQ=DAILY;BYDAY=FR,SA,SU;BYHOUR=0,6,7,8,13;COUNT=10000000",
    "FREQ=SECONDLY;BYMONTH=3,8;BYDAY=FR,SU;BYMINUTE=15,17;BYSECOND=0,1,9;UNTIL=20990101T000000Z",
]


@pytest.mark.parametrize("rule", FAR)
async def test_why_of_a_far_year_is_refused_and_of_twenty_years_quick(world: World, rule: str) -> None:
    await world.schedule(rrule=rule, timezone="Australia/Lord_Howe", max_runs=10**9)
    with pytest.raises(rota.Invalid, match=r"at: 9998-.* is more than 20 years ahead; give a time before 20"):
        await world.queue.why("s", datetime(9998, 12, 30, 12, tzinfo=UTC))
    began = time.process_time()
    await world.queue.why("s", START + timedelta(days=20 * 365 - 1))
    assert time.process_time() - began < 1, "it takes some milliseconds; until the year 9998, seconds"


async def test_why_counts_what_calendars_leave_for_five_years(world: World) -> None:
    await world.queue.create_calendar("weekends", rules=["FREQ=WEEKLY;BYDAY=SA,SU"])
    await world.schedule(cron="0 9 * * *", exclude=["weekends"], max_runs=10)
    after_ten = await world.queue.why(
        "s", START.replace(day=15, hour=9)
    )  # a Thursday; the first time was one
    assert "By then the schedule will have run 10 times" in str(after_ten)
    tenth = await world.queue.why("s", START.replace(day=14, hour=9))
    assert "By then" not in str(tenth)
    with pytest.raises(rota.Invalid, match="is more than 5 years ahead; give a time before 2030-12-31"):
        await world.queue.why("s", START + timedelta(days=5 * 365 + 1))


async def test_a_pause_may_end_by_itself(world: World) -> None:
    starts = handle(world)
    await world.schedule(cron="*/10 * * * *")
    async with world.running():
        await world.at(15 * MINUTE)
        paused = await world.queue.pause_schedule("s", "deploy", until=START + 45 * MINUTE)
        assert (paused.paused_by, paused.paused_at, paused.next_run_at) == (
            "tester",
            START + 15 * MINUTE,
            None,
        )
        assert [each.at for each in await world.queue.preview("s", 1)] == [START + 50 * MINUTE]
        meanwhile = await world.queue.why("s", START + 40 * MINUTE)
        assert meanwhile.status == "paused"
        assert "tester paused it at 2026-01-01 00:15 UTC (deploy); it is active again from" in meanwhile
        later = await world.queue.why("s", START + 50 * MINUTE)
        assert later.status == "upcoming"
        assert "it is paused until 2026-01-01 00:45 UTC" in later
        with pytest.raises(rota.Invalid, match=r"until: .* has passed; give a time in the future"):
            await world.queue.pause_schedule("s", until=START)
        await world.at(55 * MINUTE)
    assert starts == [START + 10 * MINUTE, START + 50 * MINUTE]
    schedule = await world.queue.get_schedule("s")
    assert (schedule.pause_until, schedule.pause_note, schedule.paused_by) == (None, None, None)
    last = (await world.queue.schedule_history("s"))[-1]
    assert (last.action, last.actor, last.detail) == (
        "resumed",
        "scheduler",
        "its pause was to end by itself",
    )
    assert "active again from 2026-01-01 00:45 UTC" in await world.queue.why("s", START + 40 * MINUTE)


async def test_a_pause_that_ends_lets_go_what_waits(world: World) -> None:
    starts = handle(world, seconds=90)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_one")
    async with world.running():
        await world.at(2.2 * MINUTE)
        await world.queue.pause_schedule("s", until=START + 30 * MINUTE)
        await world.at(30 * MINUTE + SECOND)
    assert starts == [START + MINUTE, START + 30 * MINUTE]


async def test_a_longer_pause_replaces_a_shorter_one(world: World) -> None:
    await world.schedule(cron="* * * * *")
    await world.queue.pause_schedule("s", "why", until=START + HOUR)
    longer = await world.queue.pause_schedule("s", until=START + 2 * HOUR)
    assert (longer.pause_until, longer.pause_note) == (START + 2 * HOUR, "why")
    resumed = await world.queue.resume_schedule("s")
    assert (resumed.status, resumed.pause_until) == ("active", None)


async def test_a_schedule_pauses_after_so_many_failures_in_a_row(world: World) -> None:
    """The second of each three succeeds, until hour 7."""

    @world.app.task("work", max_retries=0)
    async def work() -> None:
        hour = (world.clock.now() - START) // HOUR
        if hour % 3 != 2 or hour > 6:
            raise ValueError("boom")

    await world.schedule(cron="0 * * * *", pause_on_failure=3)
    async with world.running():
        await world.at(12.5 * HOUR)
    assert [row.status[:4] for row in await world.ledger("s")] == [
        "fail",
        "comp",
        "fail",
        "fail",
        "comp",
        "fail",
        "fail",
        "fail",
    ]
    schedule = await world.queue.get_schedule("s")
    assert schedule.pause_note == (
        "paused because the run of 2026-01-01T08:00:00+00:00 failed, as 3 did in a row: ValueError: boom"
    )
