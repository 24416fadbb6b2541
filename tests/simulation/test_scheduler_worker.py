"""The tests that document 004 names for its scheduler and its scheduled tasks, on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

import rota
from rota import RunStatus, ScheduleStatus
from worlds import HOUR, MINUTE, START, World


def record(world: World, *kinds: str) -> list[str]:
    """Handlers that note that they ran."""
    ran: list[str] = []
    for kind in kinds:

        @world.app.task(kind, max_retries=0)
        async def handle(input: object, kind: str = kind) -> None:
            ran.append(kind)
            if kind == "broken":
                raise RuntimeError("the task fails")

    return ran


# test_schedule_validation


async def test_once_schedule_requires_run_at(world: World) -> None:
    with pytest.raises(
        rota.Invalid, match="give exactly one of cron, interval, run_at, rrule, rule, timings and after"
    ):
        await world.schedule()


async def test_interval_schedule_requires_a_positive_interval(world: World) -> None:
    for wrong in (0, -5, timedelta(0)):
        with pytest.raises(rota.Invalid, match="interval"):
            await world.schedule(interval=wrong)


async def test_cron_schedule_requires_a_valid_cron_expression(world: World) -> None:
    for wrong in ("", "every day", "* * * *", "60 * * * *", "* 24 * * *", "@reboot", "0 0 31 2 *"):
        with pytest.raises(rota.Invalid, match="cron"):
            await world.schedule(cron=wrong)


async def test_past_timestamps_are_rejected_for_once_schedules(world: World) -> None:
    with pytest.raises(rota.Invalid, match="has passed; give a time in the future"):
        await world.schedule(run_at=START - MINUTE)


# test_task_scheduling


async def test_create_list_update_delete_schedule(world: World) -> None:
    created = await world.schedule("backup", cron="0 2 * * *")
    assert [found.key for found in await world.queue.list_schedules(kind="work")] == ["backup"]
    disabled = await world.queue.disable_schedule("backup")
    assert not disabled.enabled
    enabled = await world.queue.enable_schedule("backup")
    assert (enabled.enabled, enabled.next_run_at) == (True, created.next_run_at)
    await world.queue.delete_schedule("backup")
    assert await world.queue.list_schedules() == []
    assert [found.key for found in await world.queue.list_schedules(deleted=True)] == ["backup"]


async def test_scheduled_execution_occurs(world: World) -> None:
    ran = record(world, "work")
    await world.schedule(interval=300)
    async with world.running():
        await world.at(11 * MINUTE)
    assert ran == ["work", "work"]


async def test_once_schedule_disables_after_execution(world: World) -> None:
    ran = record(world, "work")
    await world.schedule(run_at=START + HOUR)
    async with world.running():
        await world.at(3 * HOUR)
    assert ran == ["work"]
    assert not (await world.queue.get_schedule("s")).enabled


async def test_interval_schedule_calculates_next_run_correctly(world: World) -> None:
    record(world, "work")
    await world.schedule(interval=timedelta(hours=1))
    await world.at(2.5 * HOUR)  # late: the next time still is anchor + k * interval
    await world.queue.run_due()
    assert (await world.queue.get_schedule("s")).next_run_at == START + 3 * HOUR


# test_scheduler_worker


async def test_worker_executes_due_schedules(world: World) -> None:
    ran = record(world, "a", "b")
    await world.schedule("a", task_type="a", cron="0 * * * *")
    await world.schedule("b", task_type="b", cron="30 * * * *")
    async with world.running():
        await world.at(1.75 * HOUR)
    assert ran == ["b", "a", "b"]


async def test_worker_skips_disabled_schedules(world: World) -> None:
    ran = record(world, "work")
    await world.schedule("paused", cron="* * * * *")
    await world.queue.pause_schedule("paused")
    await world.schedule("draft", cron="* * * * *", status="draft")
    await world.schedule("deleted", cron="* * * * *")
    await world.queue.delete_schedule("deleted")
    async with world.running():
        await world.at(10 * MINUTE)
    assert ran == []


async def test_worker_continues_after_task_failure(world: World) -> None:
    ran = record(world, "broken", "work")
    await world.schedule("broken", task_type="broken", cron="* * * * *")
    await world.schedule("work", cron="* * * * *")
    async with world.running():
        await world.at(3.5 * MINUTE)
    assert (ran.count("broken"), ran.count("work")) == (3, 3)
    assert {row.status for row in await world.ledger("broken")} == {RunStatus.FAILED}
    assert (await world.queue.get_schedule("broken")).status is ScheduleStatus.ACTIVE


async def test_worker_updates_last_run_at_and_next_run_at(world: World) -> None:
    record(world, "work")
    await world.schedule(cron="0 * * * *")
    async with world.running():
        await world.at(1.5 * HOUR)
    schedule = await world.queue.get_schedule("s")
    assert (schedule.last_run_at, schedule.next_run_at) == (START + HOUR, START + 2 * HOUR)
    (row,) = await world.ledger("s")
    assert schedule.last_task_id == row.target_id


async def test_multiple_schedules_for_same_task_execute_correctly(world: World) -> None:
    ran = record(world, "work")
    await world.schedule("hourly", cron="0 * * * *")
    await world.schedule("half", cron="*/30 * * * *")
    async with world.running():
        await world.at(2.25 * HOUR)
    assert len(ran) == 2 + 4
    assert len(await world.ledger("hourly")) == 2
    assert len(await world.ledger("half")) == 4
